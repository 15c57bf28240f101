"""MNIST with TAGI (table 2 of the paper), and a small convolutional network.

The paper's protocol has images in (0, 1), two hidden layers of ReLU units, 11 outputs (the nodes of
a binary tree of 10 classes), alpha = 1/3, weights with Xavier's prior, and biases with variance
0.01. A twentieth of the training images, drawn by the seed, is for validation. The number of epochs
is that with the fewest validation errors. Training stops when 6 epochs (20 for the small networks)
were no better, or after 40 (60). The noise of a network is the one of 0.1, 0.2, 0.3 and 0.4 with
the fewest validation errors with seed 0, and the largest if several are equal.

`convolutional` has standardised images, 32 filters of 4 x 4 (padded) and 64 of 5 x 5, each with
ReLU and average pooling of 3 x 3 with strides 2, 150 ReLU units, and batches of 16. Its noise is
chosen by the first four epochs.

The entropy of the label tells Fashion-MNIST test images from MNIST's: its AUROC is reported.

    python benchmarks/tagi_mnist.py [--only dense_100,dense_800,...] [--data-dir DIR]
"""

import argparse
import os
import time

import keras
import mnist
import numpy as np

from tfp_fnspace import likelihoods, tagi
from tfp_fnspace.benchmark import read_records, run_missing

RESULTS = "benchmarks/results/tagi_mnist.json"
SCALES = (0.1, 0.2, 0.3, 0.4)

#: Name -> rows in a batch.
NETWORKS = {"dense_800": 10, "dense_100": 10, "convolutional": 16, "dense_100_batch_1": 1}

#: Name -> most epochs, and the number of epochs without improvement after which training stops.
EPOCHS = {
    "dense_800": (40, 6),
    "dense_100": (60, 20),
    "convolutional": (40, 6),
    "dense_100_batch_1": (60, 20),
}

#: Most epochs in the choice of the noise, if they are fewer than in training.
SELECTION_EPOCHS = {"convolutional": 4}

#: The paper's prior of a layer.
PRIOR = {"prior": "xavier", "bias_variance": 0.01}


def outputs_of(name, inputs):
    """Returns the layers of a network."""
    if name == "convolutional":
        hidden = tagi.Conv2D(32, 4, padding="same", activation="relu")(inputs)
        hidden = tagi.AveragePooling2D(3, strides=2)(hidden)
        hidden = tagi.Conv2D(64, 5, activation="relu")(hidden)
        hidden = tagi.Flatten()(tagi.AveragePooling2D(3, strides=2)(hidden))
        return tagi.Dense(11)(tagi.Dense(150, activation="relu")(hidden))
    width = int(name.split("_")[1])
    hidden = inputs
    for _ in range(2):
        hidden = tagi.Dense(width, activation="relu", **PRIOR)(hidden)
    return tagi.Dense(11, **PRIOR)(hidden)


class Data:
    """The images as a network takes them, and a split of the training set by a seed."""

    def __init__(self, arrays, name, seed):
        if name == "convolutional":
            parts = mnist.standardized(arrays)
            shape = (-1, 28, 28, 1)
        else:
            parts = {k: v / np.float32(255.0) if k[0] == "x" else v for k, v in arrays.items()}
            shape = (-1, 784)
        order = np.random.default_rng(seed).permutation(len(parts["x_train"]))
        rows = {"validation": order[: len(order) // 20], "train": order[len(order) // 20 :]}
        x, y = parts["x_train"].reshape(shape), parts["y_train"]
        self.train, self.validation = ((x[rows[k]], y[rows[k]]) for k in ("train", "validation"))
        self.test = parts["x_test"].reshape(shape), parts["y_test"]
        self.fashion = parts["x_fashion"].reshape(shape)


def make(name, scale, seed, shape):
    """Makes a model that has seen nothing."""
    inputs = keras.Input(shape)
    likelihood = likelihoods.HierarchicalCategorical(10, scale=scale)
    return tagi.TAGIModel(
        inputs, outputs_of(name, inputs), likelihood=likelihood, standardize=False, seed=seed
    )


def error(model, x, y):
    """Returns the percentage of misclassified images."""
    return round(100.0 * (1.0 - model.evaluate(x, y, return_dict=True, verbose=0)["accuracy"]), 3)


def early_stopping(network):
    """Stops at, and goes back to, the epoch with the fewest validation errors."""
    return keras.callbacks.EarlyStopping(
        "val_accuracy", mode="max", patience=EPOCHS[network][1], restore_best_weights=True
    )


def select(arrays, network, scale):
    """Returns validation errors of a scale of the noise, after each epoch."""
    data = Data(arrays, network, 0)
    model = make(network, scale, 0, data.train[0].shape[1:])
    fit = {"batch_size": NETWORKS[network], "verbose": 0, "validation_data": data.validation}
    fit["epochs"] = SELECTION_EPOCHS.get(network, EPOCHS[network][0])
    history = model.fit(*data.train, callbacks=[early_stopping(network)], **fit).history
    errors = 100.0 * (1.0 - np.array(history["val_accuracy"]))
    return {"validation_errors": np.round(errors, 3).tolist()}


def run(arrays, network, scale, seed):
    """Returns the results of one model."""
    data = Data(arrays, network, seed)
    model = make(network, scale, seed, data.train[0].shape[1:])
    fit = {"batch_size": NETWORKS[network], "verbose": 0}
    begin = time.monotonic()
    model.fit(*data.train, epochs=1, **fit)
    seconds = time.monotonic() - begin
    first = error(model, *data.test)
    fit.update(validation_data=data.validation, callbacks=[early_stopping(network)])
    begin = time.monotonic()
    history = model.fit(*data.train, initial_epoch=1, epochs=EPOCHS[network][0], **fit).history
    seconds_of_training = seconds + time.monotonic() - begin
    accuracy = history["val_accuracy"]
    ours, other = (
        model.predict(x, verbose=0)["entropy"].ravel() for x in (data.test[0], data.fashion)
    )
    scores = model.evaluate(*data.test, return_dict=True, verbose=0)
    return {
        "scale": scale,
        "batch_size": NETWORKS[network],
        "error_after_one_epoch": first,
        "error": round(100.0 * (1.0 - scores["accuracy"]), 3),
        "nll": round(scores["nll"], 4),
        "epoch": 2 + int(np.argmax(accuracy)),
        "epochs": 1 + len(accuracy),
        "validation_error": round(100.0 * (1.0 - max(accuracy)), 3),
        "auroc_entropy": round(mnist.auroc(ours, other), 4),
        "seconds_of_first_epoch": round(seconds, 1),
        "seconds_of_training": round(seconds_of_training, 1),
    }


def best_scale(records, network):
    """Returns the scale with the fewest validation errors, and the largest of equal ones."""
    rows = [r for r in records if r["stage"] == "selection" and r["network"] == network]
    return min(rows, key=lambda row: (min(row["validation_errors"]), -row["scale"]))["scale"]


def main():
    """Runs the models that are not in the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", default=os.environ.get("TFP_FNSPACE_DATA", "../shared/data"))
    parser.add_argument("--only", default=",".join(NETWORKS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", default=RESULTS)
    options = parser.parse_args()
    arrays = mnist.load(options.data_dir)
    hidden = ("versions", "machine")
    for network in options.only.split(","):
        cells = [{"stage": "selection", "network": network, "scale": scale} for scale in SCALES]
        for record in run_missing(
            options.out,
            cells,
            lambda stage, network, scale: select(arrays, network, scale),
        ):
            print({k: v for k, v in record.items() if k not in hidden}, flush=True)
        scale = best_scale(read_records(options.out), network)
        cells = [{"stage": "test", "network": network, "seed": s} for s in range(options.seeds)]
        for record in run_missing(
            options.out,
            cells,
            lambda stage, network, seed, scale=scale: run(arrays, network, scale, seed),
        ):
            print({k: v for k, v in record.items() if k not in hidden}, flush=True)


if __name__ == "__main__":
    main()
