"""Milliseconds of a training step of `FBNNModel`, and where they go.

A step has 20 training and 5 random points of 13 inputs, 100 function draws, Adam, and a fixed
Gaussian process as prior. It runs through `fit` on 2,000 rows after an epoch that traces. The
networks have one layer of 50 and five layers of 100 ReLU units. The targets are 3.5 and 40 ms on an
idle machine with two threads.

To show where the time goes, the same step runs with parts left out, each with its own network, in
milliseconds of all threads (`cpu_ms`), and the draws of the weights run alone.

    python benchmarks/fbnn_speed.py
    python benchmarks/fbnn_speed.py --memory      # 10^6 rows from a generator: peak memory

Run it with nothing else running.
"""

import argparse
import functools
import resource
import time

import keras
import numpy as np
import tensorflow as tf

from tfp_fnspace import fbnn, layers, likelihoods, processes
from tfp_fnspace.benchmark import add_records, machine, versions
from tfp_fnspace.math.random import fast_normal

RESULTS = "benchmarks/results/fbnn_speed.json"
NETWORKS = {"1 x 50": [50], "5 x 100": [100] * 5}
TARGETS = {"1 x 50": 3.5, "5 x 100": 40.0}
ROWS, INPUTS, BATCH, POINTS, SAMPLES = 2000, 13, 20, 5, 100


class Silent(processes.GaussianProcess):
    """A prior whose score costs nothing, which shows what the prior costs."""

    def _score(self, f, x, noise_scale):
        return -f


def data(rows=ROWS):
    """Returns random rows."""
    random = np.random.default_rng(0)
    x = random.normal(size=(rows, INPUTS)).astype("float32")
    return x, np.sin(x[:, :1]) + 0.1 * random.normal(size=(rows, 1)).astype("float32")


def make(units, prior=processes.GaussianProcess, model_class=fbnn.FBNNModel, **options):
    """Makes the model of a step."""
    keras.utils.set_random_seed(0)
    inputs = hidden = keras.Input((INPUTS,))
    for width in units:
        hidden = layers.VariationalDense(width, activation="relu", prior="fan_in")(hidden)
    parts = inputs, layers.VariationalDense(1, prior="fan_in")(hidden)
    if model_class is fbnn.FBNNModel:
        options["prior"] = prior(processes.ard_squared_exponential(INPUTS))
        options["measurement"] = fbnn.Box(POINTS)
    noise = likelihoods.Gaussian(0.1, trainable=True)
    model = model_class(parts, likelihood=noise, num_samples=SAMPLES, seed=0, **options)
    model.compile(optimizer=keras.optimizers.Adam(1e-3))
    return model


def step_time(model, epochs=5):
    """Returns median and least milliseconds of a step over epochs, and the least of all threads."""
    x, y = data()
    options = {"batch_size": BATCH, "epochs": 1, "verbose": 0}
    model.fit(x, y, **options)
    walls, works, steps = [], [], ROWS // BATCH
    for _ in range(epochs):
        wall, work = time.perf_counter(), time.process_time()
        model.fit(x, y, **options)
        walls.append(1e3 * (time.perf_counter() - wall) / steps)
        works.append(1e3 * (time.process_time() - work) / steps)
    return {
        "ms": round(float(np.median(walls)), 2),
        "least_ms": round(min(walls), 2),
        "cpu_ms": round(min(works), 2),
    }


def draws_time(units, repeats=20):
    """Returns milliseconds of all threads for the normal draws of a step alone."""
    widths = [INPUTS, *units, 1]
    shapes = [[SAMPLES, a + 1, b] for a, b in zip(widths[:-1], widths[1:], strict=True)]

    @tf.function(autograph=False)
    def draw(seed):
        return [
            tf.reduce_max(fast_normal(shape, seed + i, "float32")) for i, shape in enumerate(shapes)
        ]

    draw(tf.constant([0, 1]))
    works = []
    for i in range(repeats):
        work = time.process_time()
        draw(tf.constant([i, 1]))
        works.append(1e3 * (time.process_time() - work))
    return round(min(works), 2)


def speed(echo=print):
    """Measures the step of both networks, whole and without parts."""
    records = []
    for name, units in NETWORKS.items():
        every_step = fbnn.Stein(monitor_steps=1)
        kinds = {
            "whole": make(units),
            "divergence monitored at every step": make(units, divergence=every_step),
            "without the score of the prior": make(units, prior=Silent),
            "without the divergence": make(units, model_class=fbnn.VariationalModel),
        }
        found = {kind: step_time(model) for kind, model in kinds.items()}
        found["normal draws alone"] = {"cpu_ms": draws_time(units)}
        for kind, times in found.items():
            echo(f"{name}, {kind}: {times}")
        record = {"network": name, "target_ms": TARGETS[name], "times": found}
        records.append({**record, "versions": versions(), "machine": machine()})
    return records


def memory(rows=1_000_000, batch=1000, echo=print):
    """Measures peak memory of rows streamed from a generator, after a tenth and at the end."""

    def batches():
        random = np.random.default_rng(0)
        for _ in range(rows // batch):
            x = random.normal(size=(batch, INPUTS)).astype("float32")
            yield x, np.sin(x[:, :1])

    signature = (tf.TensorSpec((None, INPUTS)), tf.TensorSpec((None, 1)))
    stream = tf.data.Dataset.from_generator(batches, output_signature=signature)
    stream = stream.map(lambda x, y: (x[:BATCH], y[:BATCH]))  # steps of the size above
    model = make([50], standardize=False)  # `adapt` needs a length, which a generator lacks
    model.compile(optimizer=keras.optimizers.Adam(1e-3), num_rows=rows)
    peak = functools.partial(resource.getrusage, resource.RUSAGE_SELF)
    steps = rows // batch
    peaks = []

    class Peaks(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch + 1 in (steps // 10, steps):
                peaks.append(round(peak().ru_maxrss / 1024.0, 1))

    begin = time.perf_counter()
    model.fit(stream, epochs=1, verbose=0, callbacks=[Peaks()])
    seconds = round(time.perf_counter() - begin, 1)
    echo(f"{rows} rows, peak memory after a tenth and at the end, MB: {peaks}; {seconds} s")
    result = {"rows": rows, "batch": batch, "peak_mb": peaks, "seconds": seconds}
    return [{"network": "1 x 50, streamed", **result, "versions": versions()}]


def main():
    """Measures, prints and writes."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--memory", action="store_true")
    options = parser.parse_args()
    found = memory() if options.memory else speed()
    names = {record["network"] for record in found}
    add_records(RESULTS, found, lambda record: record["network"] in names)


if __name__ == "__main__":
    main()
