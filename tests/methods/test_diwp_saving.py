"""DIWP saved, restored, exported, and its graphs; the batteries have the rest."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal
from serving import serve_elsewhere
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
            diwp.GramKernel(ArcCosine(1) + 0.1),
            diwp.InverseWishartProcess(),
            diwp.GramKernel("matern32", learn_amplitude=True),
            diwp.GlobalInducingGP(2, precision="diagonal"),
        ]
    )


def make_model(network=None):
    stack = {"inducing_points": 6, "depth": 1} if network is None else {"network": network}
    return diwp.DIWPModel(**stack, num_samples=2, num_eval_samples=10, seed=0)


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
    assert configs[0] == configs[1]  # Keras adds build shapes to the network's
    fit(model)
    fit(loaded)
    assert_same_predictions(loaded, model)


def test_all_parameters_move_in_training(fitted):
    fresh = make_model()
    fresh.adapt(X, Y)
    fresh.prepare_training([X], Y)  # what training starts at
    moved = {}
    for before, after in zip(fresh.network.weights, fitted.network.weights, strict=True):
        moved[before.path.split("/", 1)[-1]] = np.any(before.numpy() != after.numpy())
    assert len(moved) == len(fitted.network.trainable_weights) == 11
    assert all(moved.values()), moved


class PowerCut(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 2:
            raise InterruptedError("power cut")


def test_restored_run_equals_an_undisturbed_one(tmp_path):
    undisturbed, killed, restored = (make_model() for _ in range(3))
    fit(undisturbed, epochs=4)

    def backup():
        return keras.callbacks.BackupAndRestore(tmp_path / "backup")

    with pytest.raises(InterruptedError, match="power cut"):
        fit(killed, epochs=4, callbacks=[backup(), PowerCut()])
    assert fit(restored, epochs=4, callbacks=[backup()]).epoch == [2, 3]
    assert_same_predictions(restored, undisturbed)


def test_new_batch_sizes_do_not_trace_again():
    model, traces = make_model(), []
    objective = model.objective
    model.objective = lambda *args: traces.append(1) or objective(*args)
    fit(model, batch_size=15)
    fit(model, batch_size=7)
    model.fit(X[:33], Y[:33], batch_size=11, epochs=2, verbose=0)
    assert len(traces) == 1


# Graphs ------------------------------------------------------------------------------------------

KINDS = {"diwp": lambda: None, "custom": custom_network}


def network_of_all_layers():
    return keras.Sequential(
        [
            keras.Input((3,)),
            diwp.InverseWishartFeatures(6, constant=True),
            diwp.GramKernel("relu", learn_amplitude=True),
            diwp.InverseWishartProcess(),
            diwp.GramKernel("matern32"),
            diwp.InverseWishartProcess(batch_size_defect=True),
            diwp.GaussianProcessGram(3, precision="full"),
            diwp.GlobalInducingGP(2, precision="diagonal"),
        ]
    )


def prepared(network):
    model = make_model(network)
    model.compile()
    model.adapt(X, Y)
    model._prepare_steps(40, 10)
    return model


def functions_of(model):
    x, y, seed = tf.constant(X), tf.constant(Y), tf.constant([1, 2])
    return {
        "train_step": (lambda a, b: model.train_step((a, b)), (x, y)),
        "test_step": (lambda a, b: model.test_step((a, b)), (x, y)),
        "predict_step": (lambda a: model.predict_step((a,)), (x,)),
        "draw_functions": (lambda a: model.draw_functions(a, 3, seed), (x,)),
    }


def test_every_op_has_a_gpu_kernel():
    if not tf.test.is_built_with_cuda():
        pytest.skip("this build of TensorFlow has no GPU kernels to list")
    model = prepared(network_of_all_layers())
    for name, (function, arguments) in functions_of(model).items():
        found = ops_of(function, arguments)
        assert {"MatMul", "BatchMatMulV2"} & found, "the graph looks empty"
        missing = {op: devices_of(op) for op in found if not {"GPU", "DEFAULT"} & devices_of(op)}
        assert not missing, name


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_steps_compile_under_xla(kind):
    """The custom network has the layers of the other; `test_step` predicts, and scores."""
    model = prepared(KINDS[kind]())
    functions = functions_of(model)
    for name in ("test_step", "draw_functions") if kind == "diwp" else ("train_step",):
        function, arguments = functions[name]
        before = [w.numpy() for w in model.trainable_weights]
        outputs = tf.function(function, autograph=False, jit_compile=True)(*arguments)
        for value in tf.nest.flatten(outputs):
            assert np.all(np.isfinite(value)), name
        after = [w.numpy() for w in model.trainable_weights]
        changed = any(np.any(a != b) for a, b in zip(after, before, strict=True))
        assert changed == (name == "train_step")


# Export ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_served_where_keras_and_the_library_are_missing(fitted, tmp_path):
    fitted.export(tmp_path / "served", num_samples=4)
    outputs = serve_elsewhere(tmp_path / "served", X, tmp_path)
    for key, value in fitted.predict(X).items():
        assert_allclose(outputs[key], value, rtol=1e-4, atol=1e-5)
    assert outputs["quantiles"].shape == (40, 2, 3)
    assert np.all(np.diff(outputs["quantiles"], axis=-1) > 0.0)
    samples = fitted.sample_functions(X, 4, seed=(1, 2))
    assert_allclose(outputs["sample"], samples, rtol=1e-3, atol=1e-3)
