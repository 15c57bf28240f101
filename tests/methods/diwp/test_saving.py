"""Saved DIWP models and their graphs; the batteries test the rest."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_array_equal
from test_gpu_ready import devices_of, ops_of

from tfp_fnspace import diwp
from tfp_fnspace.kernels import ArcCosine

GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(40, 3)).astype("float32")
Y = np.stack([np.sin(X[:, 0]), X[:, 1] * X[:, 2]], axis=1).astype("float32")


def custom_network():
    return keras.Sequential(
        [
            keras.Input((3,)),
            diwp.InverseWishartFeatures(6, delta=4.0),
            diwp.KernelOfGram(ArcCosine(1) + 0.1),
            diwp.InverseWishartProcess(),
            diwp.KernelOfGram("matern32", learn_amplitude=True),
            diwp.GlobalInducingGP(2, precision="diagonal"),
        ]
    )


def make_model(network=None):
    network = diwp.DeepKernel(6, depth=1) if network is None else network
    return diwp.DIWPModel(network, num_samples=2, num_eval_samples=10, seed=0)


def fit(model, epochs=2, batch_size=15, **options):
    return model.fit(X, Y, epochs=epochs, batch_size=batch_size, verbose=0, **options)


@pytest.fixture(scope="module")
def fitted():
    model = make_model()
    fit(model)
    return model


def assert_same_predictions(first, second):
    ours, theirs = first.predict(X), second.predict(X)
    for key, value in ours.items():
        assert_array_equal(value, theirs[key])


@pytest.mark.parametrize("network", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_keras_file_keeps_all_and_training_goes_on(network, tmp_path):
    model = make_model(custom_network() if network else None)
    fit(model)
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras", safe_mode=True)
    assert len(loaded.weights) == len(model.weights)
    assert len(loaded.trainable_weights) == len(model.trainable_weights)
    for ours, theirs in zip(loaded.weights, model.weights, strict=True):
        assert_array_equal(ours, theirs)
    assert_same_predictions(loaded, model)
    samples = [m.sample_functions(X, 3, seed=1) for m in (model, loaded)]
    assert_array_equal(*samples)
    configs = [{**m.get_config(), "network": None} for m in (loaded, model)]
    assert configs[0] == configs[1]  # Keras adds build shapes to the network's config
    fit(model)
    fit(loaded)
    assert_same_predictions(loaded, model)


@pytest.mark.slow
def test_all_parameters_move_in_training(fitted):
    fresh = make_model()
    fresh.adapt(X, Y)
    fresh.prepare([X], Y, [])  # training starts at these values
    moved = {}
    for before, after in zip(fresh.network.weights, fitted.network.weights, strict=True):
        moved[before.path.split("/", 1)[-1]] = np.any(before.numpy() != after.numpy())
    assert len(moved) == len(fitted.network.trainable_weights) == 11
    assert all(moved.values()), moved


@pytest.mark.slow
def test_new_batch_sizes_do_not_trace_again():
    model, traces = make_model(), []
    objective = model.objective
    model.objective = lambda *args: traces.append(1) or objective(*args)
    fit(model, batch_size=15)
    fit(model, batch_size=7)
    model.fit(X[:33], Y[:33], batch_size=11, epochs=2, verbose=0)
    assert len(traces) == 1


def network_of_all_layers():
    return keras.Sequential(
        [
            keras.Input((3,)),
            diwp.InverseWishartFeatures(6, constant=True),
            diwp.KernelOfGram("relu", learn_amplitude=True),
            diwp.InverseWishartProcess(),
            diwp.KernelOfGram("matern32"),
            diwp.InverseWishartProcess(whiten=False),
            diwp.GaussianProcessGram(3, precision="full"),
            diwp.GlobalInducingGP(2, precision="diagonal"),
        ]
    )


@pytest.mark.slow
def test_every_op_of_all_layers_has_a_gpu_kernel():
    if not tf.test.is_built_with_cuda():
        pytest.skip("this build of TensorFlow has no GPU kernels to list")
    model = make_model(network_of_all_layers())
    model.compile()
    model.adapt(X, Y)
    model.begin(40, 10)
    found = ops_of(lambda a, b: model.train_step((a, b)), (tf.constant(X), tf.constant(Y)))
    assert {"MatMul", "BatchMatMulV2"} & found, "the graph looks empty"
    assert not {op for op in found if not {"GPU", "DEFAULT"} & devices_of(op)}
