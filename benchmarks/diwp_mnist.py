"""MNIST with fully connected deep inverse Wishart processes (table 2 of the paper).

The models have three ReLU kernels, 100 inducing points, and 10 outputs with a categorical
likelihood; they learn no scale or bias of the inputs. Pixels are standardised by one mean and one
standard deviation. Adam has the rate 1e-2 in the first half of the steps and 1e-3 in the second. A
step takes one posterior sample, and evaluation takes 100. The NNGP is the same without inverse
Wishart layers. The third model is the process with the defect of the authors' program. The process
with and without the defect also starts from delta = 1, because the start decides which of its
optima a run finds. V of the posteriors is the paper's, not whitened. The batch size and the number
of steps are ours: the paper gives none for images.

    python benchmarks/diwp_mnist.py
"""

import argparse
import itertools
import time

import keras
import mnist
import numpy as np
import tensorflow as tf

from tfp_fnspace import likelihoods
from tfp_fnspace.benchmark import run_missing
from tfp_fnspace.diwp import (
    DIWPModel,
    FeaturesToGram,
    GlobalInducingGP,
    InverseWishartProcess,
    KernelOfGram,
)


class DefectiveProcess(InverseWishartProcess):
    """Adds the number of points of a batch to the degrees of freedom of each, as in the program."""

    def points_of_a_conditional(self, it):
        return tf.shape(it)[-1]


RESULTS = "benchmarks/results/diwp_mnist.json"
METHODS = {
    "diwp": {},
    "nngp": {"process": None},
    "diwp_defective": {"process": DefectiveProcess},
    "diwp_from_delta_1": {"delta": 1.0},
    "diwp_defective_from_delta_1": {"process": DefectiveProcess, "delta": 1.0},
}

#: Rows of the test set that get probabilities at a time.
_CHUNK = 500


def network(process=InverseWishartProcess, delta=100.0):
    """Returns the network of the experiment; `process` is its hidden layer, `None` for none."""
    stack = [keras.Input((784,)), FeaturesToGram(100, learn_scale=False)]
    for _ in range(2):
        hidden = [] if process is None else [process(delta=delta, whiten=False)]
        stack += [KernelOfGram("relu"), *hidden]
    return keras.Sequential(
        [*stack, KernelOfGram("relu", learn_amplitude=True), GlobalInducingGP(10)]
    )


def run(method, seed, options, arrays):
    """Returns the results of one model."""
    x_train, x_test = (arrays[name].reshape(-1, 784) for name in ("x_train", "x_test"))
    y_train, y_test = arrays["y_train"], arrays["y_test"]
    model = DIWPModel(
        network(**METHODS[method]),
        likelihood=likelihoods.Categorical(),
        num_samples=options.samples,
        standardize=False,
        seed=seed,
    )
    steps = -(-len(x_train) // options.batch_size)
    epochs = -(-options.steps // steps)
    begin = time.monotonic()
    model.fit(x_train, y_train, batch_size=options.batch_size, epochs=epochs, verbose=0)
    seconds = time.monotonic() - begin
    begin = time.monotonic()
    chunks = [x_test[i : i + _CHUNK] for i in range(0, len(x_test), _CHUNK)]
    probabilities = np.concatenate([model.predict(x, verbose=0)["probabilities"] for x in chunks])
    history = model.history.history
    tenth = -(-epochs // 10)
    return {
        "accuracy": float(np.mean(np.argmax(probabilities, axis=1) == y_test)),
        "log_likelihood": float(np.mean(np.log(probabilities[np.arange(len(y_test)), y_test]))),
        "elbo": float(np.mean(history["elbo"][-tenth:])),
        "delta": [float(each.delta) for each in model.network.layers if hasattr(each, "delta")],
        "jittered": float(np.sum(history["jittered"]) * steps),
        "steps": epochs * steps,
        "batch_size": options.batch_size,
        "samples": options.samples,
        "seconds": round(seconds, 1),
        "seconds_of_prediction": round(time.monotonic() - begin, 1),
    }


def main():
    """Runs the models that are not in the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", default="../shared/data")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=20000)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--samples", type=int, default=1)
    parser.add_argument("--out", default=RESULTS)
    options = parser.parse_args()
    arrays = mnist.standardized(mnist.load(options.data_dir))
    cells = itertools.product(METHODS, range(options.seeds))
    cells = [{"method": method, "seed": seed} for method, seed in cells]
    for record in run_missing(
        options.out, cells, lambda method, seed: run(method, seed, options, arrays)
    ):
        shown = ("method", "seed", "accuracy", "log_likelihood", "elbo", "seconds")
        print({name: record[name] for name in shown}, flush=True)


if __name__ == "__main__":
    main()
