"""Writes what XLA compiles of the five methods, so that `run.py` runs it without TensorFlow.

`python benchmarks/gpu/programs.py DIR [--models tagi,diwp] [--rows 1000] [--columns 10]
[--floatx float64]` writes two files for a prediction and two for a training step of each model:
`<model>-<step>.hlo`, the serialized HLO program before XLA's optimisation; and
`<model>-<step>.npz`, what it is given (`in0`, `in1`, ...) and what TensorFlow returns here
(`out0`, `out1`, ..., in the order of the program's own outputs). A training step returns its logs
and the new weights.
"""

import argparse
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_fnspace as fns
from tfp_fnspace.methods.stable_process import chains, hyperplanes, samplers

_WIDTH, _EPOCHS = 100, 20


def tagi(columns):
    """Makes a network of two hidden layers with closed-form moments."""
    inputs = keras.Input((columns,))
    hidden = fns.tagi.Dense(_WIDTH, activation="relu")(inputs)
    hidden = fns.tagi.Dense(_WIDTH, activation="relu")(hidden)
    noise = fns.likelihoods.Gaussian(0.3)
    return fns.tagi.TAGIModel(inputs, fns.tagi.Dense(1)(hidden), likelihood=noise, seed=0)


def fbnn(columns):
    """Makes a functional BNN whose prior is a Gaussian process."""
    inputs = keras.Input((columns,))
    hidden = fns.layers.VariationalDense(_WIDTH, activation="tanh")(inputs)
    network = inputs, fns.layers.VariationalDense(1)(hidden)
    prior = fns.processes.GaussianProcess(tfp.math.psd_kernels.ExponentiatedQuadratic(1.0, 2.0))
    return fns.fbnn.FBNNModel(network, prior, num_samples=20, num_eval_samples=20, seed=0)


def sip(columns):
    """Makes a sparse implicit process whose prior is a neural sampler."""
    del columns  # it learns them from the first data
    return fns.sip.SIPModel("neural_sampler", inducing_points=20, num_eval_samples=20, seed=0)


def diwp(columns):
    """Makes a deep inverse Wishart process of two layers."""
    del columns
    kernel = fns.diwp.DeepKernel(inducing_points=20, depth=2)
    return fns.diwp.DIWPModel(kernel, num_samples=2, num_eval_samples=20, num_outputs=1, seed=0)


#: Name -> function of the number of columns that makes a model which `train_step` trains.
MODELS = {"tagi": tagi, "fbnn": fbnn, "sip": sip, "diwp": diwp}

#: The stable process takes few columns and rows: its hyperplanes are enumerated or drawn.
_STABLE_ROWS, _STABLE_PLANES = 100, 200


def data(rows, columns):
    """Returns a smooth function with noise, `[N, X]` and `[N, 1]`, in Keras's float type."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, columns))
    y = np.sin(x[:, :1]) + 0.1 * rng.normal(size=(rows, 1))
    return x.astype(keras.config.floatx()), y.astype(keras.config.floatx())


def steps_of(model, x, y):
    """Fits a model for some epochs; returns name -> (function in the graph, its arguments).

    The first steps of Adam divide a gradient by itself, which makes rounding large where it is 0.
    """
    model.fit(x, y, epochs=_EPOCHS, batch_size=len(x), verbose=0)

    def train(inputs, targets):
        logs = model.train_step((inputs, targets))
        return {**logs, "weights": [tf.identity(weight.value) for weight in model.weights]}

    x, y = tf.constant(x), tf.constant(y)
    return {"predict": (model.predictive_moments, (x,)), "train": (train, (x, y))}


def steps_of_stable_process(x, y):
    """Returns the same of a stable process, whose training step is a sweep of its chains."""
    partition = hyperplanes.sampled(x.shape[1], _STABLE_PLANES, seed=0)
    noise = fns.likelihoods.Gaussian(0.3)
    few = fns.stable_process.Chains(num_chains=2, sweeps_per_epoch=5, burn_in=1)
    model = fns.stable_process.StableProcessModel(
        partition=partition, likelihood=noise, chains=few, seed=0
    )
    model.fit(x, y, epochs=2, verbose=0)
    store = model.store
    arrays = store.x.numpy(), store.y.numpy()
    problem = chains.make_problem(store.partition, *arrays, model.chains.num_chains)
    settings = samplers.Settings()
    state = [tf.constant(part) for part in tf.nest.flatten(store.state)]

    def sweep(seed, *parts):
        return samplers.run(
            seed, tf.nest.pack_sequence_as(store.state, parts), problem, settings, 1, 1
        )

    x, seed = tf.constant(x), tf.constant([1, 2])
    return {"predict": (model.predictive_moments, (x,)), "train": (sweep, (seed, *state))}


def write(folder, name, function, arguments):
    """Writes the program of a function, and what TensorFlow computes by it.

    Args:
        folder: `pathlib.Path`.
        name: Name of the files.
        function: Function of tensors that returns a structure of tensors.
        arguments: Tuple of tensors.
    """
    compiled = tf.function(function, jit_compile=True, autograph=False)
    traced = compiled.get_concrete_function(*arguments)
    variables = {id(variable.handle): variable for variable in traced.graph.variables}
    given = [argument.numpy() for argument in arguments]
    for captured in traced.captured_inputs:  # parameters of the program after the arguments
        is_variable = captured.dtype == tf.resource
        given.append((variables[id(captured)] if is_variable else captured).numpy())
    program = compiled.experimental_get_compiler_ir(*arguments)(stage="hlo_serialized")
    found = tf.nest.flatten(compiled(*arguments))  # after the program: a step changes variables
    arrays = {f"in{i}": value for i, value in enumerate(given)}
    arrays |= {f"out{i}": value.numpy() for i, value in enumerate(found)}
    np.savez(folder / f"{name}.npz", **arrays)
    (folder / f"{name}.hlo").write_bytes(program)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--models", default=",".join([*MODELS, "stable_process"]))
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--columns", type=int, default=10)
    parser.add_argument("--floatx", default="float32", help="Keras's float type")
    options = parser.parse_args()
    keras.config.set_floatx(options.floatx)
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in options.models.split(","):
        if name == "stable_process":
            x, y = data(min(options.rows, _STABLE_ROWS), options.columns)
            steps = steps_of_stable_process(x, y)
        else:
            x, y = data(options.rows, options.columns)
            steps = steps_of(MODELS[name](options.columns), x, y)
        for step, (function, arguments) in steps.items():
            write(options.folder, f"{name}-{step}", function, arguments)
            size = (options.folder / f"{name}-{step}.hlo").stat().st_size
            print(f"{name} {step}: {size:,} bytes", flush=True)


if __name__ == "__main__":
    main()
