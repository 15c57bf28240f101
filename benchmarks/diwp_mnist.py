"""MNIST with fully connected deep inverse Wishart processes (table 2 of the paper).

Three ReLU kernels, 100 inducing points, 10 outputs with a categorical likelihood, no learned scale
or bias of the inputs; pixels standardised by one mean and one standard deviation. Adam, 1e-2 in the
first half of the steps and 1e-3 in the second, one posterior sample a step, 100 for evaluation. The
NNGP is the same without inverse Wishart layers; the process with the defect of the authors' program
is the third. Those two also from delta = 1, as which of its optima a run finds depends on where it
starts. V of the posteriors is the paper's, not whitened. Size of a batch and number of steps are
ours: the paper gives none for images.

    python benchmarks/diwp_mnist.py
"""

import argparse
import itertools
import time

import mnist
import numpy as np

from tfp_fnspace import likelihoods
from tfp_fnspace.benchmark import run_missing
from tfp_fnspace.diwp import DIWPModel

RESULTS = "benchmarks/results/diwp_mnist.json"
METHODS = {
    "diwp": {},
    "nngp": {"hidden": "none"},
    "diwp_defective": {"batch_size_defect": True},
    "diwp_from_delta_1": {"delta": 1.0},
    "diwp_defective_from_delta_1": {"batch_size_defect": True, "delta": 1.0},
}

#: Rows of the test set for which probabilities are made at a time.
_CHUNK = 500


def run(method, seed, options, arrays):
    """What came out of one model."""
    x_train, x_test = (arrays[name].reshape(-1, 784) for name in ("x_train", "x_test"))
    y_train, y_test = arrays["y_train"], arrays["y_test"]
    model = DIWPModel(
        100,
        likelihood=likelihoods.Categorical(),
        num_outputs=10,
        num_samples=options.samples,
        learn_scale=False,
        constant=False,
        whiten=False,
        standardize=False,
        seed=seed,
        **METHODS[method],
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
