"""MNIST, and the test images of Fashion-MNIST, for the benchmarks that read them."""

import os

import numpy as np
from sklearn.metrics import roc_auc_score


def load(data_dir):
    """Loads images `[N, 28, 28]`, 0 to 255, and labels.

    Args:
        data_dir: Folder with `mnist/mnist.npz` and `fashion/fashion_test.npz`.

    Returns:
        Dict of NumPy arrays: `x_train`, `y_train`, `x_test`, `y_test`, `x_fashion`.
    """
    with np.load(os.path.join(data_dir, "mnist", "mnist.npz"), allow_pickle=False) as arrays:
        parts = {name: arrays[name] for name in arrays.files}
    with np.load(os.path.join(data_dir, "fashion", "fashion_test.npz")) as arrays:
        parts["x_fashion"] = arrays["x_test"]
    parts.update({name: parts[name].astype(int) for name in ("y_train", "y_test")})
    return parts


def standardized(parts):
    """Returns the parts with images of mean 0 and standard deviation 1 over the training images."""
    mean, stddev = parts["x_train"].mean(), parts["x_train"].std()
    names = ("x_train", "x_test", "x_fashion")
    return {**parts, **{name: ((parts[name] - mean) / stddev).astype("float32") for name in names}}


def auroc(inside, outside):
    """Computes the probability that a score is higher outside than inside."""
    labels = np.repeat([0, 1], [len(inside), len(outside)])
    return float(roc_auc_score(labels, np.concatenate([inside, outside])))
