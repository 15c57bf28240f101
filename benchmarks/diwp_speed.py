"""Milliseconds of a training step of `DIWPModel`, and how they grow.

The step is that of the paper's small data sets: 10 posterior samples, 100 inducing points, a batch
of 455 rows of 13 inputs, three kernels, two inverse Wishart layers, and Adam. It runs through
`fit`, after an epoch that traces. An epoch has 20 such batches in the first table. With 455 rows in
all it has one, and then the time of a step includes Keras's loop over 120 epochs.

The runs are with and without oneDNN (`TF_ENABLE_ONEDNN_OPTS`, which is read when TensorFlow is
imported). TensorFlow uses its matrix products and memory by default only on processors with
AVX-512. The runs are also with the two threads as TensorFlow has them, and with one for each
operation and two operations at once: `TF_NUM_INTRAOP_THREADS=1`. Results of other processors stay
in the file.

    python benchmarks/diwp_speed.py
    python benchmarks/diwp_speed.py --cost        # against rows and inducing points, and a plot

Run it with nothing else running.
"""

import argparse
import itertools
import os
import subprocess
import sys
import tempfile
import time
import warnings

import keras
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from tfp_fnspace.benchmark import machine, read_records, versions, write_records
from tfp_fnspace.diwp import DeepKernel, DIWPModel

RESULTS = "benchmarks/results/diwp_speed.json"
COST_RESULTS = "benchmarks/results/diwp_cost.json"
COST_PLOT = "docs/images/diwp_cost.png"

#: What bayesfunc takes for the step on an idle machine of this kind, and what ours may take.
REFERENCE, TARGET = 146.0, 36.0

ROWS, INPUTS, SAMPLES, INDUCING = 455, 13, 10, 100


class EpochTimes(keras.callbacks.Callback):
    """Keeps the seconds of each epoch."""

    def __init__(self):
        super().__init__()
        self.seconds = []

    def on_epoch_begin(self, epoch, logs=None):
        self.begin = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        self.seconds.append(time.perf_counter() - self.begin)


def problem(rows, inducing, kernel, dtype):
    """Returns model and data."""
    random = np.random.default_rng(0)
    x = random.normal(size=(rows, INPUTS))
    y = np.sin(x[:, :1]) + 0.1 * random.normal(size=(rows, 1))
    network = DeepKernel(inducing, kernel=kernel, constant=False)
    model = DIWPModel(network, num_samples=SAMPLES, seed=0, dtype=dtype)
    return model, x, y


def time_alone(kernel, dtype, epochs=120):
    """Returns milliseconds of an epoch of one step, in a second `fit`: the first one traces."""
    model, x, y = problem(ROWS, INDUCING, kernel, dtype)
    model.fit(x, y, batch_size=ROWS, epochs=5, verbose=0)
    begin = time.perf_counter()
    model.fit(x, y, batch_size=ROWS, epochs=epochs, verbose=0)
    return round(1e3 * (time.perf_counter() - begin) / epochs, 2)


def step_time(rows, batch, inducing, kernel="relu", dtype="float32", epochs=6):
    """Returns the median milliseconds of a step over epochs, without the first."""
    model, x, y = problem(rows, inducing, kernel, dtype)
    times = EpochTimes()
    begin = time.perf_counter()
    model.fit(x, y, batch_size=batch, epochs=epochs, verbose=0, callbacks=[times])
    total = time.perf_counter() - begin
    steps = -(-rows // batch)
    whole = 1e3 * (total - times.seconds[0]) / (steps * (epochs - 1))
    return round(1e3 * float(np.median(times.seconds[1:])) / steps, 2), round(whole, 2)


_ONEDNN, _INTRA_OP = "TF_ENABLE_ONEDNN_OPTS", "TF_NUM_INTRAOP_THREADS"


def speed(path, echo=print):
    """Measures the step for two kernels and two dtypes, with oneDNN as the environment sets it."""
    records = []
    for kernel in ("relu", "squared_exponential"):
        for dtype in ("float32", "float64"):
            step, whole = step_time(20 * ROWS, ROWS, INDUCING, kernel, dtype)
            alone = time_alone(kernel, dtype)
            record = {
                "kernel": kernel,
                "dtype": dtype,
                "onednn": os.environ.get(_ONEDNN, "1") == "1",
                "threads_of_an_operation": int(os.environ.get(_INTRA_OP) or os.cpu_count()),
                "milliseconds": step,
                "milliseconds_with_the_loop_over_epochs": whole,
                "milliseconds_one_step_an_epoch": alone,
                "target": TARGET,
                "bayesfunc": REFERENCE,
                "versions": versions(),
                "machine": machine(),
            }
            echo({key: record[key] for key in list(record)[:7]})
            records.append(record)
    write_records(path, records)


def speed_in_all_settings():
    """Runs `speed` in a process for each setting."""
    here = machine()["processor"]
    records = [r for r in read_records(RESULTS) if r["machine"]["processor"] != here]
    for onednn, threads in itertools.product("01", "21"):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "speed.json")
            command = [sys.executable, __file__, "--out", path]
            settings = {_ONEDNN: onednn, _INTRA_OP: threads, "TF_NUM_INTEROP_THREADS": "2"}
            subprocess.run(command, check=True, env={**os.environ, **settings})
            records += read_records(path)
    write_records(RESULTS, records)


def cost(echo=print):
    """Measures the step against the rows of a batch and against the number of inducing points."""
    records = []
    cells = [("rows", rows, INDUCING) for rows in (64, 128, 256, 512, 1024, 2048)]
    cells += [("inducing", 128, inducing) for inducing in (25, 50, 100, 200, 400)]
    for varied, rows, inducing in cells:
        warnings.simplefilter("ignore")
        step, _ = step_time(4 * rows if rows >= inducing else 4 * inducing, rows, inducing)
        cell = {"varied": varied, "rows": rows, "inducing_points": inducing, "milliseconds": step}
        echo(cell)
        records.append({**cell, "versions": versions(), "machine": machine()})
    return records


def plot_cost(records):
    """Plots both on logarithmic axes, with lines of slope 1 and 3."""
    figure, axes = plt.subplots(1, 2, figsize=(8.0, 3.4), sharey=True)
    for axis, varied, key, power in zip(
        axes, ("rows", "inducing"), ("rows", "inducing_points"), (1, 3), strict=True
    ):
        chosen = [r for r in records if r["varied"] == varied]
        at = np.array([r[key] for r in chosen])
        milliseconds = np.array([r["milliseconds"] for r in chosen])
        axis.loglog(at, milliseconds, "o-", label="measured")
        axis.loglog(at, milliseconds[-1] * (at / at[-1]) ** power, "k:", label=f"power {power}")
        axis.set_xticks(at, map(str, at), minor=False)
        axis.set_xticks([], minor=True)
        axis.set_xlabel("rows in a batch" if varied == "rows" else "inducing points")
        axis.legend(frameon=False)
        axis.set_ylim(0.5 * milliseconds.min(), 2.0 * milliseconds.max())
    axes[0].set_ylabel("milliseconds a step")
    figure.tight_layout()
    figure.savefig(COST_PLOT, dpi=130)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cost", action="store_true", help="cost against rows and inducing points")
    parser.add_argument("--out", help="one process, settings as they are; the file to write")
    options = parser.parse_args()
    if options.cost:
        records = cost()
        write_records(COST_RESULTS, records)
        plot_cost(records)
    elif options.out:
        speed(options.out)
    else:
        speed_in_all_settings()


if __name__ == "__main__":
    main()
