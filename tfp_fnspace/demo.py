"""The demo: commands that fit, score, predict and export models of a real table, and a picture.

`tfp-fnspace demo` runs it, on the prices of `datasets.example_table`. A straight line does not fit
them: they grow faster than the first column, and larger prices spread more.
"""

import contextlib
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_fnspace import datasets, files, metrics, plotting
from tfp_fnspace.commands import folder
from tfp_fnspace.distributions import quantile
from tfp_fnspace.model.summary import QUANTILE_LEVELS
from tfp_fnspace.plotting.style import BLACK, BLUE, GREY, VERMILLION

tfd = tfp.distributions

_SEED = 0

# Names, methods of the command line and their seconds. With all else they take two minutes on two
# cores. SIP would add a fifth of a minute, and the stable process, which is far behind on several
# columns, more than a minute.
_METHODS = {
    "TAGI": ("tagi", 20),
    "deep kernels (DIWP)": ("diwp", 20),
    "fBNN": ("fbnn", 20),
    "DIWP and TAGI, weighed": ("auto", 45),
}

_SAMPLE_SEED = (1, 2)
_NUM_SAMPLES = 100
_TOLERANCE = 1e-5

# Code of the second process, which has only TensorFlow and NumPy.
_SERVER = """
import sys

for name in ("tfp_fnspace", "keras", "tf_keras"):
    sys.modules[name] = None  # `import` of it raises ImportError from here on

import numpy as np
import tensorflow as tf

folder, inputs, outputs = sys.argv[1:]
columns = [tf.constant(column) for column in np.load(inputs).T]
model = tf.saved_model.load(folder)
seed = tf.constant({seed}, tf.int32)
first, second = (model.sample(*columns, seed) for _ in range(2))
arrays = dict(model.serve(*columns), sample=first, sample_again=second)
np.savez(outputs, **{{name: array.numpy() for name, array in arrays.items()}})
"""


def run(output_dir: str | os.PathLike[str], command: Callable[[Sequence[str]], int]) -> int:
    """Runs the demo and prints its steps.

    Args:
        output_dir: Folder for the tables, a model of each method, `demo.png` and the SavedModel
            `served`; created if need be.
        command: Runs the words of a `tfp-fnspace` command and returns its exit status.

    Returns:
        Exit status: 0, that of a command that failed, or 1 if the served model does not agree with
        the one in this process.

    Raises:
        ImportError: If a package of the extra `[cli]` is missing.
    """
    _check_packages()
    _stay_off_the_gpu()
    output_dir = Path(output_dir)
    output_dir.mkdir(parents=True, exist_ok=True)
    clock = _Clock()

    table = datasets.example_table()
    data, new = output_dir / "diamonds.csv", output_dir / "new.csv"
    _write(data, table.columns, table.x_train, table.y_train)
    _write(new, table.columns, table.x_test, table.y_test)
    clock.say(f"data: {len(table.x_train)} rows in {data}, {len(table.x_test)} others in {new}")
    served = output_dir / "served"
    for words in _commands(output_dir, data, new, table.columns[-1]):
        clock.say(f"$ tfp-fnspace {shlex.join(words)}")
        status = command(words)
        if status:
            return status

    clock.say(f"what each method says of {len(table.x_test)} other rows; smaller is better:")
    model, line = _print_all_scores(table, output_dir)
    picture = output_dir / "demo.png"
    with files.replacing(picture) as partial:
        _plot(model, line, table, partial)
    clock.say(f"plot: {picture}")

    there = _serve_elsewhere(served, table.x_test.astype(np.float64))
    clock.say("serve: loaded by a second process without tfp_fnspace, keras and tf_keras")
    here = _outputs(model, table.x_test)  # with an axis of one target
    status = _compare(here, {name: each.reshape(here[name].shape) for name, each in there.items()})
    clock.say(f"done; wrote {picture} and {served}{os.sep}" if status == 0 else "failed")
    return status


def _write(path, columns, x, y):
    options = {"fmt": "%.10g", "delimiter": ",", "header": ",".join(columns), "comments": ""}
    with files.replacing(path) as partial:
        np.savetxt(partial, np.hstack([x, y]), **options)


def _commands(output_dir, data, new, target):
    """Yields the words of the commands, as a user types them after `tfp-fnspace`."""
    models = [output_dir / method for method, _ in _METHODS.values()]
    for model, (method, seconds) in zip(models, _METHODS.values(), strict=True):
        words = ["fit", "--data", data, "--target", target, "--method", method]
        yield _strings([*words, "--time-limit", seconds, "--seed", _SEED, "--out", model])
    of_last = ["--model", models[-1]]
    yield _strings(["evaluate", *of_last, "--data", new])
    yield _strings(["predict", *of_last, "--data", new, "--out", output_dir / "predictions.csv"])
    yield _strings(["export", *of_last, "--out", output_dir / "served"])


def _strings(words):
    return [str(word) for word in words]


class _Clock:
    """Prints lines with the seconds since it was made."""

    def __init__(self):
        self.begin = time.monotonic()

    def say(self, text):
        print(f"[{time.monotonic() - self.begin:5.1f} s] {text}", flush=True)


def _check_packages():
    try:
        import matplotlib  # noqa: F401
        import pandas  # noqa: F401
        import sklearn  # noqa: F401
        import skops  # noqa: F401
    except ImportError as error:
        raise ImportError(
            'The demo needs the packages of the command line: `pip install ".[cli]"`. '
            f"Received: {type(error).__name__}: {error}"
        ) from error


def _stay_off_the_gpu():
    # TensorFlow takes all memory of a GPU, which would leave none for the second process. Also, the
    # two are compared more closely than kernels of different devices agree.
    with contextlib.suppress(RuntimeError):  # too late: this process uses its GPU already
        tf.config.set_visible_devices([], "GPU")


def _print_all_scores(table, output_dir):
    """Prints a line of scores for each model; returns the last one, and the straight line."""
    print(f"          {'':<20} {'RMSE':>8} {'NLL':>8} {'CRPS':>8} {'in 90 %':>9} {'seconds':>8}")
    count = len(table.y_test)
    y = table.y_train[:, 0]
    _print_scores(
        "mean and spread of y", table, _normal(*np.full((count, 2), [y.mean(), y.std()]).T), 0.0
    )
    begin = time.monotonic()
    line = _straight_line(table)
    distribution = _normal(*line.predict(table.x_test, return_std=True))
    _print_scores("straight line", table, distribution, time.monotonic() - begin)
    model = None
    for name, (method, _) in _METHODS.items():
        saved = folder.load(output_dir / method)
        model = saved.estimator.model_
        _print_scores(name, table, model.predict_distribution(table.x_test), saved.card["seconds"])
    return model, line


def _straight_line(table):
    """Returns Bayesian linear regression; its predictive distribution, with noise, is normal."""
    from sklearn.linear_model import BayesianRidge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), BayesianRidge()).fit(table.x_train, table.y_train[:, 0])


def _normal(mean, stddev):
    return tfd.Independent(tfd.Normal(mean[:, np.newaxis], stddev[:, np.newaxis]), 1)


def _print_scores(name, table, distribution, seconds):
    y = table.y_test
    rmse, nll, crps = (
        float(score(y, distribution)) for score in (metrics.rmse, metrics.nll, metrics.crps)
    )
    inside = 100.0 * float(metrics.interval_coverage(y, distribution, 0.9))
    line = f"{name:<20} {rmse:8.1f} {nll:8.3f} {crps:8.1f} {inside:7.1f} % {seconds:8.1f}"
    print(f"          {line}", flush=True)


def _plot(model, line, table, path):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12.0, 5.0), dpi=110, layout="constrained")
    along, rows = figure.subplots(1, 2)
    _plot_along(model, line, table, along)
    _plot_rows(model, table, rows)
    figure.savefig(path)


def _plot_along(model, line, table, ax):
    """Draws the prediction along the first column, and rows nearly alike in other columns."""
    center = np.median(table.x_train, axis=0)
    near = np.all(np.abs(table.x_test - center)[:, 1:] <= 1.0, axis=1)
    x, y = table.x_test[near][:, :1], table.y_test[near]
    grid = np.linspace(x.min(), x.max(), 200)[:, np.newaxis]
    one_input = plotting.AlongInput(model, table.x_train, 0, at=center)
    straight = np.hstack([grid, np.broadcast_to(center[1:], (len(grid), len(center) - 1))])
    plotting.plot_predictive_band(one_input, grid, num_draws=0, ax=ax)
    ax.plot(x, y, "o", color=BLACK, ms=5.0, mec="white", mew=0.6, label="new rows")
    ax.plot(grid, line.predict(straight), color=VERMILLION, lw=1.6, label="straight line")
    ax.axhline(0.0, color=GREY, lw=0.8)
    ax.set_ylim(ax.dataLim.y0 - 500.0, ax.dataLim.y1)
    ax.set_title(f"Along one input: {len(x)} new rows near the medians of the others", loc="left")
    ax.set(xlabel=table.columns[0], ylabel=table.columns[-1])
    ax.legend(frameon=False, fontsize="small", loc="upper left")


def _plot_rows(model, table, ax):
    """Draws observations against predictions on the test rows, in the order of the prediction."""
    distribution = model.predict_distribution(table.x_test)
    low, middle, high = quantile(distribution, [0.05, 0.5, 0.95]).numpy()[:, 0].T
    order = np.argsort(middle)
    low, middle, high, y = (a[order] for a in (low, middle, high, table.y_test[:, 0]))
    rank, inside = np.arange(1, len(y) + 1), (low <= y) & (y <= high)
    ax.vlines(rank, low, high, color=BLUE, alpha=0.25, lw=1.8, label="90 % of y")
    ax.plot(rank, middle, color=BLUE, lw=2.0, label="median")
    for chosen, color, word in (
        (inside, BLACK, "inside"),
        (~inside, VERMILLION, "outside"),
    ):
        label = f"{word}: {chosen.sum()}"
        style = {"color": color, "ms": 4.0, "mec": "white", "mew": 0.5, "label": label}
        ax.plot(rank[chosen], y[chosen], "o", **style)
    ax.set_title(
        f"All {len(y)} new rows: {100 * inside.mean():.0f} % inside their 90 % intervals",
        loc="left",
    )
    ax.set(xlabel="rank of the prediction", ylabel=table.columns[-1], yscale="log")
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(color=GREY, alpha=0.18, lw=0.6)
    ax.set_axisbelow(True)
    ax.legend(frameon=False, fontsize="small", loc="upper left")


def _outputs(model, x):
    """Returns the outputs that the endpoints of the SavedModel should have."""
    prediction = model.predict(x)
    quantiles = quantile(model.predict_distribution(x), list(QUANTILE_LEVELS)).numpy()
    sample = model.sample_functions(x, _NUM_SAMPLES, seed=_SAMPLE_SEED)
    return {**prediction, "quantiles": quantiles, "sample": sample, "sample_again": sample}


def _serve_elsewhere(served, x):
    """Returns outputs of the endpoints in a process that cannot import this package or Keras."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    with tempfile.TemporaryDirectory() as folder:
        inputs, outputs = Path(folder) / "inputs.npy", Path(folder) / "outputs.npz"
        np.save(inputs, x)
        code = _SERVER.format(seed=list(_SAMPLE_SEED))
        command = [sys.executable, "-I", "-c", code, str(served), str(inputs), str(outputs)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode != 0:
            raise ChildProcessError(f"The second process failed to serve {served}:\n{done.stderr}")
        with np.load(outputs) as arrays:
            return dict(arrays)


def _compare(here, there):
    """Prints the differences of the outputs of two processes; returns the exit status."""
    status = 0
    for name in ("mean", "stddev", "quantiles", "sample"):
        difference = float(np.max(np.abs(here[name] - there[name])))
        relative = difference / float(np.max(np.abs(here[name])))
        print(f"          {name:<10} max |difference| {difference:.2g}, relative {relative:.1g}")
        if not relative <= _TOLERANCE:
            status = _error(
                f"the served {name} must agree to {_TOLERANCE:g}. Received: {relative:g}"
            )
    if not np.array_equal(there["sample"], there["sample_again"]):
        status = _error("sample(x, seed) must return the same functions for the same seed")
    if status == 0:
        print(
            f"          agreement: the served model is the same to {_TOLERANCE:g}, and "
            f"sample(x, seed) is reproducible ({len(there['sample'])} functions)",
            flush=True,
        )
    return status


def _error(text):
    print(f"error: {text}", file=sys.stderr, flush=True)
    return 1
