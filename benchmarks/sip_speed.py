"""Milliseconds of a step of `SIPModel` and its discriminator.

The model and the discriminator take one step each at the size of boston: 455 rows of 13 inputs, 100
draws of the posterior and of the prior, 50 inducing points, a Bayesian network of two layers of 50
as prior, batches of 10 and of 100, and Adam. It runs through `fit`, after an epoch that traces.

    python benchmarks/sip_speed.py
    python benchmarks/sip_speed.py --profile folder    # a trace for TensorBoard

Run it with nothing else running.
"""

import argparse
import time

import numpy as np
import tensorflow as tf

from tfp_fnspace.benchmark import machine, versions, write_records
from tfp_fnspace.sip import SIPModel

RESULTS = "benchmarks/results/sip_speed.json"

#: What the authors' program takes for the step with a batch of 10, and what ours may take.
REFERENCE, TARGETS = 75.0, {10: 11.0, 100: 15.0}

ROWS, INPUTS, SAMPLES, INDUCING = 455, 13, 100, 50


def make_model(prior, x, y, batch):
    """Makes a model that has trained for an epoch."""
    model = SIPModel(prior, INDUCING, num_samples=SAMPLES, seed=0)
    model.fit(x, y, batch_size=batch, verbose=0)
    return model


def data():
    """Returns random rows of that size."""
    random = np.random.default_rng(0)
    x = random.normal(size=(ROWS, INPUTS))
    return x, np.sin(x[:, :1]) + 0.1 * random.normal(size=(ROWS, 1))


def step_time(prior, batch, repetitions=7):
    """Returns the median milliseconds of a step, over calls of `fit` of about 100 steps each."""
    x, y = data()
    model = make_model(prior, x, y, batch)
    epochs = -(-100 * batch // ROWS)
    steps = epochs * -(-ROWS // batch)
    times = []
    for _ in range(repetitions):
        begin = time.perf_counter()
        model.fit(x, y, batch_size=batch, epochs=epochs, verbose=0)
        times.append(1e3 * (time.perf_counter() - begin) / steps)
    return round(float(np.median(times)), 2)


def profile(folder):
    """Writes a trace of an epoch."""
    x, y = data()
    model = make_model("bnn", x, y, 10)
    tf.profiler.experimental.start(folder)
    model.fit(x, y, batch_size=10, verbose=0)
    tf.profiler.experimental.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--profile", help="folder to write a trace to, in place of the table")
    options = parser.parse_args()
    if options.profile:
        profile(options.profile)
        return
    records = []
    for prior in ("bnn", "neural_sampler"):
        for batch, target in TARGETS.items():
            record = {
                "prior": prior,
                "batch_size": batch,
                "milliseconds": step_time(prior, batch),
                "target": target,
                "authors": REFERENCE if batch == 10 else None,
            }
            print(record, flush=True)
            records.append({**record, "versions": versions(), "machine": machine()})
    write_records(RESULTS, records)


if __name__ == "__main__":
    main()
