"""The demo: fit, score, plot, export and serve a model of real data.

`python -m tfp_fnspace demo` runs it. The data are those of 442 diabetes patients that come with
scikit-learn (Efron et al., 2004, "Least Angle Regression"): ten measurements, and how far the
disease has come a year later. They are noisy and nearly linear, so that a linear model is hard to
beat: the demo is to show a calibrated predictive distribution, not a better mean.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_fnspace import datasets, files, likelihoods, metrics, plotting
from tfp_fnspace.distributions import quantile
from tfp_fnspace.export import QUANTILE_LEVELS
from tfp_fnspace.methods import tagi

tfd = tfp.distributions

_SEED = 0
_TRAIN_FRACTION = 0.8

# Chosen by 5-fold cross-validation on the training rows alone: with the prior's default gain of 1
# the network starts far from these nearly linear data and needs more rows to come back.
_GAIN, _EPOCHS, _BATCH_SIZE = 0.2, 10, 10

_SAMPLE_SEED = (1, 2)
_NUM_SAMPLES = 100
_TOLERANCE = 1e-5

# What the second process runs, with nothing but TensorFlow and NumPy.
_SERVER = """
import sys

for name in ("tfp_fnspace", "keras", "tf_keras"):
    sys.modules[name] = None  # `import` of it raises ImportError from here on

import numpy as np
import tensorflow as tf

folder, inputs, outputs = sys.argv[1:]
x = tf.constant(np.load(inputs))
model = tf.saved_model.load(folder)
seed = tf.constant({seed}, tf.int32)
arrays = dict(model.serve(x), sample=model.sample(x, seed), sample_again=model.sample(x, seed))
np.savez(outputs, **{{name: array.numpy() for name, array in arrays.items()}})
"""


def run(output_dir):
    """Runs the demo; prints what it does.

    Args:
        output_dir: Folder for `demo.png` and the SavedModel `served`; created if need be.

    Returns:
        Exit status: 0, or 1 if the served model does not agree with the one in this process.

    Raises:
        ImportError: If scikit-learn or matplotlib is missing.
    """
    _check_packages()
    _stay_off_the_gpu()
    output_dir = Path(output_dir)
    output_dir.mkdir(parents=True, exist_ok=True)
    clock = _Clock()

    split, names = _load()
    clock.say(
        f"data: scikit-learn's diabetes set, {split.x_train.shape[1]} inputs, "
        f"{len(split.x_train)} rows to train on and {len(split.x_test)} to test on"
    )

    model = _fit(split)
    noise = float(model.likelihood.scale.numpy() * model.target_unit.numpy()[0])
    clock.say(
        f"fit: TAGI, 1 x 50 ReLU, {_EPOCHS} epochs; standard deviation of the noise {noise:.1f}, "
        f"by 5-fold cross-validation ({len(model.noise_scores)} candidates)"
    )

    predictions = {
        "TAGI, 1 x 50 ReLU": model.predict_distribution(split.x_test),
        "linear (BayesianRidge)": _linear_baseline(split),
    }
    clock.say("score on the test rows, smaller is better but for the coverage:")
    print(_table(split.y_test, predictions), flush=True)

    picture = output_dir / "demo.png"
    with files.replacing(picture) as partial:
        _plot(model, split, names.index("bmi"), partial)
    clock.say(f"plot: {picture}")

    served = output_dir / "served"
    model.export(served, num_samples=_NUM_SAMPLES)
    clock.say(f"export: SavedModel {served}{os.sep}")

    there = _serve_elsewhere(served, split.x_test)
    clock.say("serve: loaded by a second process without tfp_fnspace, keras and tf_keras")
    status = _compare(_outputs(model, split.x_test), there)
    clock.say(f"done; wrote {picture} and {served}{os.sep}" if status == 0 else "failed")
    return status


class _Clock:
    """Prints lines with the seconds since it was made."""

    def __init__(self):
        self.begin = time.monotonic()

    def say(self, text):
        print(f"[{time.monotonic() - self.begin:5.1f} s] {text}", flush=True)


def _check_packages():
    try:
        import matplotlib  # noqa: F401
        import sklearn  # noqa: F401
    except ImportError as error:
        raise ImportError(
            'The demo needs scikit-learn and matplotlib: `pip install ".[demo]"`. '
            f"Received: {type(error).__name__}: {error}"
        ) from error


def _stay_off_the_gpu():
    # TensorFlow takes all memory of a GPU, which would leave none for the second process; and the
    # two are compared more closely than kernels of different devices agree.
    with contextlib.suppress(RuntimeError):  # too late: this process uses its GPU already
        tf.config.set_visible_devices([], "GPU")


def _load():
    """The training and test rows, and the names of the inputs."""
    from sklearn.datasets import load_diabetes

    data = load_diabetes(scaled=False)
    x, y = data.data.astype(np.float32), data.target.astype(np.float32)[:, np.newaxis]
    order = np.random.default_rng(_SEED).permutation(len(x))
    train, test = np.split(order, [round(_TRAIN_FRACTION * len(x))])
    return datasets.Split(x[train], y[train], x[test], y[test]), list(data.feature_names)


def _fit(split):
    inputs = keras.Input((split.x_train.shape[1],))
    relu = tagi.Activation("relu", moments="exact")
    hidden = tagi.Dense(50, activation=relu, gain=_GAIN)(inputs)
    outputs = tagi.Dense(1, gain=_GAIN)(hidden)
    model = tagi.TAGIModel(
        inputs, outputs, likelihoods.Gaussian(scale=1.0), noise="cross_validate", seed=_SEED
    )
    model.fit(split.x_train, split.y_train, epochs=_EPOCHS, batch_size=_BATCH_SIZE, verbose=0)
    return model


def _linear_baseline(split):
    """Bayesian linear regression; its predictive law is Gaussian, noise included."""
    from sklearn.linear_model import BayesianRidge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    linear = make_pipeline(StandardScaler(), BayesianRidge())
    linear.fit(split.x_train, split.y_train[:, 0])
    mean, stddev = (a.astype(np.float32) for a in linear.predict(split.x_test, return_std=True))
    return tfd.Independent(tfd.Normal(mean[:, np.newaxis], stddev[:, np.newaxis]), 1)


def _table(y, predictions):
    """Scores of predictive distributions, and how sure the difference of the first two is."""
    lines = [f"{'':<24} {'RMSE':>8} {'NLL':>8} {'CRPS':>8} {'90 % coverage':>14}"]
    for name, distribution in predictions.items():
        values = [float(score(y, distribution)) for score in (metrics.rmse, metrics.nll)]
        values.append(float(metrics.crps(y, distribution)))
        coverage = 100.0 * float(metrics.interval_coverage(y, distribution, 0.9))
        lines.append(
            f"{name:<24} {values[0]:8.2f} {values[1]:8.4f} {values[2]:8.2f} {coverage:12.1f} %"
        )
    ours, linear = (-distribution.log_prob(y).numpy() for distribution in predictions.values())
    error = np.std(ours - linear, ddof=1) / np.sqrt(len(y))
    lines.append(
        f"difference in NLL, row by row: {np.mean(ours - linear):+.4f} "
        f"± {error:.4f} (standard error over {len(y)} rows)"
    )
    return "\n".join(f"          {line}" for line in lines)


def _plot(model, split, column, path):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(16.5, 5.2), dpi=110, layout="constrained")
    rows, along, calibration = figure.subplots(1, 3, width_ratios=[1.15, 1.15, 1.0])
    _plot_rows(model, split, rows)
    _plot_along(model, split, column, along)
    plotting.plot_calibration(
        split.y_test, model.predict_distribution(split.x_test), ax=calibration
    )
    calibration.set_title("Calibration on the test rows", loc="left")
    figure.savefig(path)


def _plot_rows(model, split, ax):
    """Observed against predicted on the test rows, by the size of the prediction."""
    mean = model.predict(split.x_test)["mean"][:, 0]
    order = np.argsort(mean)
    interval = quantile(model.predict_distribution(split.x_test), [0.05, 0.95]).numpy()[:, 0]
    low, high = interval[order].T
    mean, observed, rank = mean[order], split.y_test[order, 0], np.arange(1, len(order) + 1)
    inside = (observed >= low) & (observed <= high)
    ax.vlines(rank, low, high, color=plotting.BLUE, alpha=0.22, lw=2.6, label="90 % of y")
    ax.plot(rank, mean, color=plotting.BLUE, lw=2.2, label="mean")
    for chosen, color, label in (
        (inside, plotting.BLACK, f"observed, inside ({inside.sum()})"),
        (~inside, plotting.VERMILLION, f"observed, outside ({(~inside).sum()})"),
    ):
        ax.plot(
            rank[chosen],
            observed[chosen],
            "o",
            color=color,
            ms=5,
            mec="white",
            mew=0.6,
            label=label,
        )
    ax.set_title("Test rows in the order of the prediction", loc="left")
    ax.set(xlabel="rank of the predicted mean", ylabel="disease progression after a year")
    _decorate(ax)


def _plot_along(model, split, column, ax):
    """The prediction along one input, with the data corrected for the others."""
    x, y = split.x_train, split.y_train
    one_input = plotting.AlongInput(model, x, column)
    values = x[:, [column]]
    # A quarter of the range beyond the data on both sides: there the band of f opens.
    margin = 0.25 * np.ptp(values)
    grid = np.linspace(values.min() - margin, values.max() + margin, 200, dtype=np.float32)
    grid = grid[:, np.newaxis]
    # Partial residuals: each target as it would be, by the model, with the other inputs at their
    # means. What is left is the effect of this input and the noise.
    others = model.predict(x)["mean"] - one_input.predict(values)["mean"]
    plotting.plot_predictive_band(one_input, grid, data=(values, y - others), num_draws=12, ax=ax)
    ax.set_title("Body mass index, other inputs at their means", loc="left")
    ax.set(
        xlabel="body mass index, kg / m²", ylabel="disease progression, other inputs' part removed"
    )


def _decorate(ax):
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(color=plotting.GREY, alpha=0.18, lw=0.6)
    ax.set_axisbelow(True)
    ax.legend(frameon=False, fontsize="small", loc="upper left")


def _outputs(model, x):
    """What the endpoints of the SavedModel should return."""
    prediction = model.predict(x)
    quantiles = quantile(model.predict_distribution(x), list(QUANTILE_LEVELS)).numpy()
    sample = model.sample_functions(x, _NUM_SAMPLES, seed=_SAMPLE_SEED)
    return {**prediction, "quantiles": quantiles, "sample": sample, "sample_again": sample}


def _serve_elsewhere(served, x):
    """What the endpoints return in a process that cannot import this package or Keras."""
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
    """Prints how far the outputs of two processes differ; returns the exit status."""
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
