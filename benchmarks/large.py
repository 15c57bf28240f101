"""Quality against seconds on sets that are streamed: SIP, fBNN and Bayes by Backprop.

    python benchmarks/large.py [--data-dir ../shared/data] [--only nyc_flights,generated]

- `nyc_flights`: 246,468 rows to train on; 5,000 of the 27,385 test rows.
- `generated`: 2,000,000 rows of the function of Friedman (1991) of ten inputs with noise N(0, 1),
  made as they are read, and 5,000 others. The log-likelihood of the truth is -1.419.

Each cell (data set, method) runs in its own process with both cores. All methods read a
`tf.data.Dataset` in batches (of `BATCHES` rows) and take steps of Adam (rates: `RATES`) for 240
seconds. The seconds include all that comes before the test: the pass for the standardisation, the
fit of fBNN's prior, and tracing. `memory_mib` is the resident memory at those seconds, and `steps`
the number of steps so far.

- `bayes_by_backprop`: one hidden layer of 100 ReLU units, otherwise as in the recipe of the UCI
  tables.
- `fbnn`: the same units, of which only those of the last layer are random, with a full covariance.
  The divergence is in closed form, at the rows and 20 points in the box of the first batch. The
  prior is fitted to 500 rows of the first 20,000.
- `sip_bnn`: a Bayesian network of two layers of 50 tanh units as prior, 50 inducing points, alpha
  0.5, 100 samples, as in the paper.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time

import keras
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
from figure_style import COLOURS, save

from tfp_fnspace import fbnn, layers, likelihoods, sip
from tfp_fnspace.benchmark import read_records, run_missing
from tfp_fnspace.methods.fbnn.benchmark import network
from tfp_fnspace.processes.fitted import fitted_prior

RESULTS = "benchmarks/results/large.json"
METHODS = {"bayes_by_backprop": "Bayes by Backprop", "fbnn": "fBNN", "sip_bnn": "SIP, BNN"}
SECONDS = (20, 30, 60, 120, 240)
BATCHES = {"bayes_by_backprop": 500, "fbnn": 100, "sip_bnn": 500}
RATES = {"bayes_by_backprop": 1e-3, "fbnn": 3e-3, "sip_bnn": 1e-3}
MADE, TEST, PRIOR_ROWS, FIRST_ROWS = 500, 5000, 500, 20_000
GENERATED = 2_000_000


def friedman(number, seed):
    """Draws some rows of the generated set."""
    x = tf.random.stateless_uniform([MADE, 10], [seed, 2 * number])
    y = 10.0 * tf.sin(np.pi * x[:, 0] * x[:, 1]) + 20.0 * (x[:, 2] - 0.5) ** 2
    y += 10.0 * x[:, 3] + 5.0 * x[:, 4]
    y += tf.random.stateless_normal([MADE], [seed, 2 * number + 1])
    return x, y[:, tf.newaxis]


def stream_of(name, data_dir, batch_size):
    """Returns the training stream, its number of rows, its first rows, and the test rows."""
    if name == "generated":
        numbers = tf.data.Dataset.range(GENERATED // MADE, output_type=tf.int32)
        stream = numbers.map(lambda number: friedman(number, 0)).rebatch(batch_size)
        stream = stream.apply(tf.data.experimental.assert_cardinality(GENERATED // batch_size))
        others = numbers.take(TEST // MADE).map(lambda number: friedman(number, 1))
        test = [np.concatenate(parts) for parts in zip(*others, strict=True)]
        rows = GENERATED
    else:
        with np.load(os.path.join(data_dir, "large", f"{name}.npz")) as file:
            x, y, held_out = file["x"], file["y"], file["test_index"]
        chosen = np.random.default_rng(0).choice(held_out, TEST, replace=False)
        test = [x[chosen], y[chosen]]
        kept = np.ones(len(x), bool)
        kept[held_out] = False
        x, y = x[kept], y[kept]
        rows = len(x)
        stream = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(50_000, seed=0)
        stream = stream.batch(batch_size)
    some = stream.take(FIRST_ROWS // batch_size)
    first = [np.concatenate(parts) for parts in zip(*some, strict=True)]
    return stream.prefetch(2), rows, first, test


def make_model(method, first):
    """Makes an unfitted model of the protocol."""
    keras.utils.set_random_seed(0)
    size = first[0].shape[1]
    likelihood = likelihoods.Gaussian(0.5, trainable=True, min_scale=0.005)
    if method == "sip_bnn":
        return sip.SIPModel("bnn", inducing_points=50, likelihood=likelihood, seed=0)
    if method == "bayes_by_backprop":
        return fbnn.VariationalModel(
            network(size, [100]), likelihood=likelihood, num_samples=10, seed=0
        )
    prior = fitted_prior(*first, PRIOR_ROWS, 0)
    inputs = keras.Input((size,))
    hidden = keras.layers.Dense(100, activation="relu")(inputs)
    return fbnn.FBNNModel(
        (inputs, layers.VariationalDense(1, posterior="full")(hidden)),
        prior,
        likelihood=likelihood,
        measurement=fbnn.Box(20, margin=0.0),
        divergence=fbnn.ClosedForm(injected_noise=0.2 * float(prior.noise_scale)),
        kl_weight="data",
        seed=0,
    )


class Curve(keras.callbacks.Callback):
    """Scores the test rows after some seconds; the scoring itself does not count."""

    def __init__(self, test, start):
        super().__init__()
        self.test, self.start, self.away = test, start, 0.0
        self.steps, self.due, self.points = 0, 0, []

    def on_train_batch_end(self, batch, logs=None):
        self.steps += 1
        seconds = time.monotonic() - self.start - self.away
        due = sum(seconds >= bound for bound in SECONDS)
        if due == self.due:
            return
        self.due = due
        memory = memory_mib()
        before = time.monotonic()
        scores = self.model.evaluate(*self.test, batch_size=1000, verbose=0, return_dict=True)
        self.away += time.monotonic() - before
        self.points.append(
            {
                "seconds": round(seconds, 1),
                "steps": self.steps,
                "log_likelihood": round(-scores["nll"], 4),
                "rmse": round(scores["rmse"], 4),
                "crps": round(scores["crps"], 4),
                "memory_mib": memory,
            }
        )
        self.model.stop_training = due == len(SECONDS)


def memory_mib():
    """Returns the resident memory of this process."""
    with open("/proc/self/statm") as file:
        return round(int(file.read().split()[1]) * resource.getpagesize() / 2**20)


def measure(data, method, data_dir):
    """Measures the curve of a cell."""
    stream, rows, first, test = stream_of(data, data_dir, BATCHES[method])
    start = time.monotonic()
    model = make_model(method, first)
    model.compile(optimizer=keras.optimizers.Adam(RATES[method]), num_rows=rows)
    curve = Curve(test, start)
    model.fit(stream, epochs=10**6, verbose=0, callbacks=[curve])
    return {
        "rows": rows,
        "batch_size": BATCHES[method],
        "rate": RATES[method],
        "points": curve.points,
        "noise": round(float(model.likelihood.scale), 4),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def run(data, method, data_dir):
    """Runs a cell in its own process."""
    command = [sys.executable, __file__, "--one", data, method, "--data-dir", data_dir]
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(out.splitlines()[-1])


def picture(out):
    """Plots log-likelihood against seconds."""
    records = read_records(out)
    sets = [name for name in ("nyc_flights", "generated") if name in {r["data"] for r in records}]
    figure, panels = plt.subplots(1, len(sets), figsize=(4.0 * len(sets), 3.2), squeeze=False)
    for name, panel in zip(sets, panels[0], strict=True):
        for (method, label), colour in zip(METHODS.items(), COLOURS.values(), strict=False):
            for record in (r for r in records if (r["data"], r["method"]) == (name, method)):
                points = record["points"]
                panel.plot(
                    [p["seconds"] for p in points],
                    [p["log_likelihood"] for p in points],
                    "o-",
                    color=colour,
                    label=label,
                )
        panel.set(xlabel="seconds", title=name.replace("_", " "), xlim=(0, SECONDS[-1] + 10))
    panels[0, 0].set_ylabel("test log-likelihood")
    panels[0, 0].legend()
    figure.tight_layout()
    save(figure, "large.png")


def main():
    """Runs the cells that are not in the file, and draws the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", default=os.environ.get("TFP_FNSPACE_DATA", "../shared/data"))
    parser.add_argument("--only", default="nyc_flights,generated")
    parser.add_argument("--out", default=RESULTS)
    parser.add_argument("--one", nargs=2, metavar=("DATA", "METHOD"))
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(*options.one, options.data_dir)))
        return
    cells = [{"data": d, "method": m} for d in options.only.split(",") for m in METHODS]
    for record in run_missing(
        options.out, cells, lambda **cell: run(**cell, data_dir=options.data_dir)
    ):
        print(record["data"], record["method"], record["points"][-1], flush=True)
    picture(options.out)


if __name__ == "__main__":
    main()
