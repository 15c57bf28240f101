"""TAGI against pytagi 0.2.1, through the public interface.

The tests run every file `dense_*.npz`, `conv_*.npz` and `hierarchical*.npz` in the folder of
oracles, whose README says what is in a file. The files have channels first, the layers here last.
"""

import json
import pathlib
import re

import keras
import numpy as np
import pytest

from tfp_fnspace import likelihoods, tagi

# Activation in a file -> its name and rule here.
ACTIVATIONS = {
    "ReLU": ("relu", "linearized"),
    "LeakyReLU": ("leaky_relu", "linearized"),
    "Tanh": ("tanh", "linearized"),
    "Sigmoid": ("sigmoid", "linearized"),
    "Softplus": ("softplus", "linearized"),
    "MixtureReLU": ("relu", "exact"),
    "MixtureTanh": ("tanh", "exact"),
    "MixtureSigmoid": ("sigmoid", "exact"),
}
PARTS = ("kernel_mean", "kernel_variance", "bias_mean", "bias_variance")
TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}

FOLDER = pathlib.Path(__file__).resolve().parents[3].parent / "shared" / "oracles"
# Files that every copy of the folder has are named, so that skipping them is visible.
FOUND = {path.stem for k in ("dense_", "conv_", "hierarch") for path in FOLDER.glob(f"{k}*.npz")}
NAMED = {"dense_relu_b10", "dense_mixturerelu_b10", "conv_avgpool_b4", "hierarchical10_b6"}
NAMES = sorted(NAMED | FOUND)


@pytest.fixture
def oracle(request, oracle_folder):
    path = oracle_folder / f"{request.param}.npz"
    if not path.is_file():
        pytest.skip(f"needs {path}")
    with np.load(path) as archive:
        return dict(archive)


def build(oracle):
    """Makes the model with the oracle's first parameters; returns its layers with parameters."""
    tensor = inputs = keras.Input((oracle["x"].shape[-1],))
    layers = []
    for entry in json.loads(str(oracle["spec"])):
        kind, size, options = re.fullmatch(r"([A-Za-z]+)(\d*)(.*)", entry).groups()
        if kind == "dense":
            layers.append(tagi.Dense(int(size)))
            shape = tensor[0].shape if isinstance(tensor, tuple) else tensor.shape
            layers[-1].image = shape[1:] if len(shape) == 4 else None
            tensor = layers[-1](tagi.Flatten()(tensor))
        elif kind == "conv":
            kernel, padding, *shape = re.fullmatch(
                r"k(\d+)([a-z]+)(?: (\d+)x(\d+)x(\d+))?", options
            ).groups()
            if shape[0]:
                tensor = tagi.Reshape(tuple(map(int, shape)))(tensor)  # one channel
            layers.append(tagi.Conv2D(int(size), int(kernel), padding=padding))
            tensor = layers[-1](tensor)
        elif kind == "avgpool":
            tensor = tagi.AveragePooling2D(int(size))(tensor)
        else:
            name, moments = ACTIVATIONS[entry]
            tensor = tagi.Activation(name, moments=moments)(tensor)
    scale = np.sqrt(float(oracle["noise_variance"]))
    if "labels" in oracle:
        noise = likelihoods.HierarchicalCategorical(10, scale=scale)
    else:
        noise = likelihoods.Gaussian(scale=scale)
    model = tagi.TAGIModel(inputs, tensor, likelihood=noise, standardize=False)
    assert len(layers) == len(oracle["layers"])
    for i, layer in enumerate(layers):
        for part, value in zip(PARTS, parameters(oracle, f"init_{i}", layer), strict=True):
            getattr(layer, part).assign(value)
    return model, layers


def parameters(oracle, prefix, layer):
    """Returns moments of the kernel, in the layer's order of axes, and of the bias."""
    shape = layer.kernel_mean.shape
    for j in range(4):
        flat = oracle[f"{prefix}_{j}"]
        if j >= 2:
            yield flat
        elif len(shape) == 4:  # [filters, channels, rows, columns]
            yield flat.reshape(shape[3], shape[2], *shape[:2]).transpose(2, 3, 1, 0)
        elif layer.image is None:  # [out, in]
            yield flat.reshape(shape[::-1]).T
        else:
            rows, columns, channels = layer.image
            first = flat.reshape(shape[1], channels, rows, columns)
            yield first.transpose(2, 3, 1, 0).reshape(shape)


def targets(oracle):
    return oracle["labels"] if "labels" in oracle else oracle["y"]


def output_moments(model, x):
    """Returns mean and variance of the outputs."""
    if model.likelihood.is_classifier:
        return [part.numpy() for part in model.function_moments(x)]
    prediction = model.predict(x)
    return prediction["mean"], prediction["epistemic_stddev"] ** 2


def learn(model, x, y, path):
    if path == "train_on_batch":
        model.train_on_batch(x, y)
    else:  # one compiled loop over the epoch, which here has one batch
        model.fit(x, y, batch_size=len(x), epochs=1, shuffle=False, verbose=0)


@pytest.mark.parametrize("path", ["train_on_batch", "fit"])
@pytest.mark.parametrize("oracle", NAMES, indirect=True)
@pytest.mark.slow
def test_every_step_is_that_of_pytagi(oracle, path):
    model, layers = build(oracle)
    for step, (x, y) in enumerate(zip(oracle["x"], targets(oracle), strict=True)):
        mean, variance = output_moments(model, x)
        np.testing.assert_allclose(mean, oracle[f"mean_{step}"], **TOLERANCE)
        np.testing.assert_allclose(variance, oracle[f"variance_{step}"], **TOLERANCE)
        learn(model, x, y, path)
        for i, layer in enumerate(layers):
            expected = parameters(oracle, f"step{step}_{i}", layer)
            for part, value in zip(PARTS, expected, strict=True):
                np.testing.assert_allclose(
                    getattr(layer, part).numpy(),
                    value,
                    err_msg=f"{part} of layer {i} after step {step}",
                    **TOLERANCE,
                )


@pytest.mark.parametrize("oracle", NAMES, indirect=True)
@pytest.mark.slow
def test_one_epoch_over_all_steps_ends_where_pytagi_does(oracle):
    model, layers = build(oracle)
    x = oracle["x"].reshape(-1, oracle["x"].shape[-1])
    y = targets(oracle).reshape(len(x), -1)
    model.fit(x, y, batch_size=oracle["x"].shape[1], epochs=1, shuffle=False, verbose=0)
    last = len(oracle["x"]) - 1
    for i, layer in enumerate(layers):
        for part, value in zip(PARTS, parameters(oracle, f"step{last}_{i}", layer), strict=True):
            np.testing.assert_allclose(getattr(layer, part).numpy(), value, **TOLERANCE)
