"""How the time of a training step grows with each size of a model, beside what its algorithm says.

A step is `train_step` of a batch, compiled as Keras does; of the stable process it is an iteration
of one chain on all rows. One size is varied at a time, and its fastest of some steps is kept.

    python benchmarks/growth.py --out benchmarks/results/growth.json

A point that is in the file is kept, so that a killed run resumes. Run it with nothing else running.
"""

import argparse
import pathlib
import time
from collections.abc import Callable
from typing import NamedTuple

import keras
import matplotlib

matplotlib.use("Agg")
import figure_style
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_fnspace as fns
from tfp_fnspace.benchmark import add_records, machine, read_records, versions
from tfp_fnspace.methods.stable_process import chains, hyperplanes, samplers

_REPEATS, _SECONDS = 200, 1.5

#: Rows of the first data, from which models take their inducing points.
_ALL_ROWS = 512

_FIELDS = {"method": str, "size": str, "value": int, "milliseconds": int | float}


def tagi(rows=64, width=200, outputs=1):
    """Makes two hidden layers."""
    inputs = keras.Input((10,))
    hidden = fns.tagi.Dense(width, "relu")(fns.tagi.Dense(width, "relu")(inputs))
    noise = fns.likelihoods.Gaussian(0.3)
    return fns.tagi.TAGIModel(inputs, fns.tagi.Dense(outputs)(hidden), likelihood=noise, seed=0)


def fbnn(rows=64, width=100, samples=100):
    """Makes a network of one hidden layer, a Gaussian process, and Stein's estimator."""
    inputs = keras.Input((10,))
    hidden = fns.layers.VariationalDense(width, activation="tanh")(inputs)
    network = inputs, fns.layers.VariationalDense(1)(hidden)
    prior = fns.processes.GaussianProcess(tfp.math.psd_kernels.ExponentiatedQuadratic(1.0, 2.0))
    return fns.fbnn.FBNNModel(network, prior, num_samples=samples, seed=0)


def sip(rows=64, inducing_points=50, samples=100):
    """Makes a neural sampler."""
    return fns.sip.SIPModel("neural_sampler", inducing_points, num_samples=samples, seed=0)


def diwp(rows=64, inducing_points=100, samples=5, outputs=1):
    """Makes one hidden layer."""
    kernel = fns.diwp.DeepKernel(inducing_points=inducing_points, depth=1)
    return fns.diwp.DIWPModel(kernel, num_samples=samples, num_outputs=outputs, seed=0)


class Curve(NamedTuple):
    """One size that is varied, and the power of it with which the largest part of a step grows."""

    size: str
    values: tuple[int, ...]
    power: int


#: Method -> (function that makes a model, what is varied).
METHODS: dict[str, tuple[Callable | None, list[Curve]]] = {
    "TAGI": (
        tagi,
        [
            Curve("rows", (64, 256, 1024, 4096), 1),
            Curve("width", (100, 200, 400, 800, 1600), 2),
            Curve("outputs", (1, 16, 256, 1024), 1),
        ],
    ),
    "fBNN": (
        fbnn,
        [
            Curve("rows", (64, 128, 256, 512, 1024), 3),
            Curve("samples", (50, 100, 200, 400, 800), 3),
            Curve("width", (100, 400, 1600, 6400), 1),
        ],
    ),
    "SIP": (
        sip,
        [
            Curve("rows", (64, 256, 1024, 4096), 1),
            Curve("inducing_points", (25, 50, 100, 200, 400), 3),
            Curve("samples", (50, 100, 200, 400), 1),
        ],
    ),
    "DIWP": (
        diwp,
        [
            Curve("rows", (64, 256, 1024, 4096), 1),
            Curve("inducing_points", (50, 100, 200, 400), 3),
            Curve("samples", (2, 5, 10, 20), 1),
            Curve("outputs", (1, 4, 16), 1),
        ],
    ),
    "stable process": (None, [Curve("rows", (50, 100, 200, 400), 2)]),
}


def data(rows, outputs=1):
    """Returns a smooth function with noise, float32 `[N, 10]` and `[N, D]`."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 10)).astype("float32")
    y = np.sin(x[:, :1]) + 0.1 * rng.normal(size=(rows, outputs))
    return x, y.astype("float32")


def fastest(step):
    """Returns the milliseconds of the fastest of some steps."""
    step()
    seconds, begin = [], time.perf_counter()
    while len(seconds) < _REPEATS and time.perf_counter() - begin < _SECONDS:
        start = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)
    return 1000.0 * min(seconds)


def of_model(make, sizes):
    """Returns the milliseconds of a step of a model of such sizes."""
    rows = sizes.get("rows", 64)
    x, y = data(max(_ALL_ROWS, rows), sizes.get("outputs", 1))
    model = make(**sizes)
    model.fit(x, y, epochs=1, batch_size=rows, verbose=0)
    function = tf.function(lambda x, y: model.train_step((x, y)), autograph=False)
    x, y = tf.constant(x[:rows]), tf.constant(y[:rows])
    return fastest(lambda: tf.nest.map_structure(lambda part: part.numpy(), function(x, y)))


def of_stable_process(sizes):
    """Returns the milliseconds of an iteration of a chain on 500 random hyperplanes."""
    x, y = data(sizes["rows"])
    partition = hyperplanes.sampled(x.shape[1], 500, seed=0)
    one = fns.stable_process.Chains(num_chains=1, sweeps_per_epoch=5, burn_in=1)
    noise = fns.likelihoods.Gaussian(0.3)
    model = fns.stable_process.StableProcessModel(
        partition=partition, likelihood=noise, chains=one, seed=0
    )
    model.fit(x, y, epochs=2, verbose=0)
    store, settings = model.store, samplers.Settings()
    problem = chains.make_problem(store.partition, store.x.numpy(), store.y.numpy(), 1)
    state = tf.nest.map_structure(tf.convert_to_tensor, store.state)
    run = tf.function(
        lambda seed, state: samplers.run(seed, state, problem, settings, 10, 10), autograph=False
    )
    seed = tf.constant([1, 2])
    return fastest(lambda: tf.nest.flatten(run(seed, state))[0].numpy()) / 10.0


def measure(out):
    """Measures what the file lacks; returns all records."""
    records = read_records(out, _FIELDS)
    for method, (make, curves) in METHODS.items():
        for curve in curves:
            for value in curve.values:
                place = {"method": method, "size": curve.size, "value": value}
                if any(place.items() <= record.items() for record in records):
                    continue
                sizes = {curve.size: value}
                found = of_stable_process(sizes) if make is None else of_model(make, sizes)
                print(f"{method}, {value} {curve.size}: {found:.2f} ms", flush=True)
                record = {**place, "milliseconds": round(found, 3)}
                record |= {"versions": versions(), "machine": machine()}
                records = add_records(
                    out, [record], lambda r, place=place: place.items() <= r.items()
                )
    return records


def draw(records):
    """Draws a panel for each method; dashed lines have the power, through the largest size."""
    figure, grid = plt.subplots(2, 3, figsize=(9.5, 6.0), sharex=True, sharey=True)
    *panels, empty = grid.flat
    for panel, (method, (_, curves)) in zip(panels, METHODS.items(), strict=True):
        for i, curve in enumerate(curves):
            own = [r for r in records if (r["method"], r["size"]) == (method, curve.size)]
            values, times = zip(*sorted((r["value"], r["milliseconds"]) for r in own), strict=True)
            ratio = np.array(values) / values[0]
            label = f"{curve.size.replace('_', ' ')}, from {values[0]}"
            panel.loglog(ratio, times, "o-", color=f"C{i}", label=label)
            line = times[-1] * (ratio[-2:] / ratio[-1]) ** curve.power
            panel.loglog(ratio[-2:], line, "--", color=f"C{i}")
        panel.set_title(method, fontsize=10)
        panel.tick_params(labelbottom=True)
        panel.legend(fontsize=8)
    empty.axis("off")
    figure.supxlabel("times the smallest", fontsize=10)
    figure.supylabel("milliseconds of a step", fontsize=10)
    figure.tight_layout()
    figure_style.save(figure, "growth.png")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, required=True)
    draw(measure(parser.parse_args().out))


if __name__ == "__main__":
    main()
