"""MNIST with a small convolutional network: fBNN and Bayes by Backprop.

The network has two convolutions (8 filters of 5 x 5 and 16 of 3 x 3, strides 2, ReLU) and a dense
layer of 10 logits, with factorised Gaussian posteriors. Pixels are standardised by one mean and one
standard deviation. The prior of fBNN is independent Gaussian processes of the logits, squared
exponential with amplitude 5 and length 20 (half the distance of two images). It has 4 measurement
points beside 16 rows, which are images of uniform noise. The regularised divergence has injected
noise 0.1 and is weighted by `--kl-weight` a row. A step has 48 function draws; there are two
epochs. Bayes by Backprop has weights with normal priors of variance 1 over their number of inputs,
4 draws, and its divergence over the 60,000 rows. `_longer` takes ten times as many epochs, about
as long as fBNN. Adam has the rate 1e-3, and 1e-4 in the last third.

Predictions are means over 30 draws. The ECE has 15 bins. The AUROC is that of telling Fashion-MNIST
from MNIST test images by mutual information (of the label and the function) or by entropy.

    python benchmarks/fbnn_mnist.py [--data-dir DIR]
"""

import argparse
import os
import time

import keras
import mnist
import numpy as np
import tensorflow_probability as tfp

from tfp_fnspace import fbnn, layers, likelihoods, metrics, processes
from tfp_fnspace.benchmark import run_missing

RESULTS = "benchmarks/results/fbnn_mnist.json"
#: Methods and the factor on their number of epochs.
METHODS = {"fbnn": 1, "bayes_by_backprop": 1, "bayes_by_backprop_longer": 10}
ROWS = 16

#: Rows that are predicted at a time.
_CHUNK = 500


def network():
    """Returns inputs and outputs of the variational layers."""
    inputs = keras.Input((28, 28, 1))
    hidden = layers.VariationalConv2D(8, 5, strides=2, activation="relu", prior="fan_in")(inputs)
    hidden = layers.VariationalConv2D(16, 3, strides=2, activation="relu", prior="fan_in")(hidden)
    hidden = layers.PerSample(keras.layers.Flatten())(hidden)
    return inputs, layers.VariationalDense(10, prior="fan_in")(hidden)


def make(method, options, seed):
    """Makes a compiled model."""
    keras.utils.set_random_seed(seed)
    shared = {"standardize": False, "num_eval_samples": 30, "seed": seed}
    if method != "fbnn":
        shared.update(num_samples=4, kl_annealing_steps=0)
        model = fbnn.VariationalModel(network(), likelihood=likelihoods.Categorical(), **shared)
    else:
        kernel = tfp.math.psd_kernels.ExponentiatedQuadratic(5.0, 20.0, feature_ndims=3)
        model = fbnn.FBNNModel(
            network(),
            processes.GaussianProcess(kernel, num_outputs=10),
            likelihood=likelihoods.Categorical(),
            measurement=fbnn.Box(4, margin=0.0),
            divergence=fbnn.Regularized(injected_noise=0.1),
            kl_weight=options.kl_weight,
            num_samples=48,
            **shared,
        )
    steps = options.epochs * METHODS[method] * (60_000 // ROWS)
    rates = keras.optimizers.schedules.PiecewiseConstantDecay([2 * steps // 3], [1e-3, 1e-4])
    model.compile(optimizer=keras.optimizers.Adam(rates), num_rows=60_000)
    return model


def predicted(model, images):
    """Predicts all images, a chunk at a time, and returns arrays."""
    chunks = [images[i : i + _CHUNK] for i in range(0, len(images), _CHUNK)]
    parts = [model.predict(chunk, batch_size=100, verbose=0) for chunk in chunks]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def run(method, seed, options, arrays):
    """Returns the results of one model."""
    x_train, x_test, fashion = (
        arrays[name][..., np.newaxis] for name in ("x_train", "x_test", "x_fashion")
    )
    y_train, y_test = arrays["y_train"], arrays["y_test"]
    model = make(method, options, seed)
    epochs = options.epochs * METHODS[method]
    begin = time.monotonic()
    model.fit(x_train, y_train, batch_size=ROWS, epochs=epochs, verbose=0)
    seconds = round(time.monotonic() - begin, 1)
    ours, other = predicted(model, x_test), predicted(model, fashion)
    distribution = tfp.distributions.Categorical(probs=ours["probabilities"])
    chosen = ours["probabilities"][np.arange(len(y_test)), y_test]
    return {
        "accuracy": float(np.mean(np.argmax(ours["probabilities"], axis=1) == y_test)),
        "nll": round(float(-np.mean(np.log(chosen))), 4),
        "ece": round(float(metrics.expected_calibration_error(y_test, distribution)), 4),
        "auroc_mutual_information": round(
            mnist.auroc(ours["mutual_information"], other["mutual_information"]), 4
        ),
        "auroc_entropy": round(mnist.auroc(ours["entropy"], other["entropy"]), 4),
        "epochs": epochs,
        "kl_weight": options.kl_weight if method == "fbnn" else None,
        "seconds_of_training": seconds,
    }


def main():
    """Runs the models that are not in the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    folder = os.environ.get("TFP_FNSPACE_DATA", "../shared/data")
    parser.add_argument("--data-dir", default=folder)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--kl-weight", type=float, default=5e-4)
    parser.add_argument("--out", default=RESULTS)
    options = parser.parse_args()
    arrays = mnist.standardized(mnist.load(options.data_dir))
    cells = [{"method": m, "seed": s} for s in range(options.seeds) for m in METHODS]
    for record in run_missing(
        options.out, cells, lambda method, seed: run(method, seed, options, arrays)
    ):
        hidden = ("versions", "machine")
        print({k: v for k, v in record.items() if k not in hidden}, flush=True)


if __name__ == "__main__":
    main()
