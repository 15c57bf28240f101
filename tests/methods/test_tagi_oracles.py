"""TAGI against pytagi 0.2.1, through the public interface.

Every file `dense_*.npz` in the folder of oracles is run; its README says what is in one.
"""

import json
import pathlib

import keras
import numpy as np
import pytest

from tfp_fnspace import likelihoods, tagi

# Activation of a spec -> name and rule here.
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

FOLDER = pathlib.Path(__file__).resolve().parents[2].parent / "shared" / "oracles"
# The two that every copy of the folder has are named, so that they are seen to be skipped.
FOUND = {path.stem for path in FOLDER.glob("dense_*.npz")}
NAMES = sorted({"dense_relu_b10", "dense_mixturerelu_b10"} | FOUND)


@pytest.fixture
def oracle(request, oracle_folder):
    path = oracle_folder / f"{request.param}.npz"
    if not path.is_file():
        pytest.skip(f"needs {path}")
    with np.load(path) as archive:
        return dict(archive)


def build(oracle):
    """The model with the oracle's first parameters, and its dense layers."""
    tensor = inputs = keras.Input((oracle["x"].shape[-1],))
    layers = []
    for entry in json.loads(str(oracle["spec"])):
        if entry.startswith("dense"):
            layers.append(tagi.Dense(int(entry.removeprefix("dense"))))
            tensor = layers[-1](tensor)
        else:
            name, moments = ACTIVATIONS[entry]
            tensor = tagi.Activation(name, moments=moments)(tensor)
    noise = likelihoods.Gaussian(scale=np.sqrt(float(oracle["noise_variance"])))
    model = tagi.TAGIModel(inputs, tensor, likelihood=noise, standardize=False)
    assert len(layers) == len(oracle["layers"])
    for i, layer in enumerate(layers):
        for part, value in zip(PARTS, parameters(oracle, f"init_{i}", layer), strict=True):
            getattr(layer, part).assign(value)
    return model, layers


def parameters(oracle, prefix, layer):
    """Kernel moments `[in, out]` (the file has `[out, in]`) and bias moments."""
    for j in range(4):
        flat = oracle[f"{prefix}_{j}"]
        yield flat.reshape(layer.kernel_mean.shape[::-1]).T if j < 2 else flat


def learn(model, x, y, path):
    if path == "train_on_batch":
        model.train_on_batch(x, y)
    else:  # one compiled loop over the epoch, here of one batch
        model.fit(x, y, batch_size=len(x), epochs=1, shuffle=False, verbose=0)


@pytest.mark.parametrize("path", ["train_on_batch", "fit"])
@pytest.mark.parametrize("oracle", NAMES, indirect=True)
def test_every_step_is_that_of_pytagi(oracle, path):
    model, layers = build(oracle)
    for step, (x, y) in enumerate(zip(oracle["x"], oracle["y"], strict=True)):
        prediction = model.predict(x)
        np.testing.assert_allclose(prediction["mean"], oracle[f"mean_{step}"], **TOLERANCE)
        np.testing.assert_allclose(
            prediction["epistemic_stddev"] ** 2, oracle[f"variance_{step}"], **TOLERANCE
        )
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
def test_one_epoch_over_all_steps_ends_where_pytagi_does(oracle):
    model, layers = build(oracle)
    x, y = (oracle[name].reshape(-1, oracle[name].shape[-1]) for name in "xy")
    model.fit(x, y, batch_size=oracle["x"].shape[1], epochs=1, shuffle=False, verbose=0)
    last = len(oracle["x"]) - 1
    for i, layer in enumerate(layers):
        for part, value in zip(PARTS, parameters(oracle, f"step{last}_{i}", layer), strict=True):
            np.testing.assert_allclose(getattr(layer, part).numpy(), value, **TOLERANCE)
