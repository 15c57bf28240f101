"""SIP saved, restored, exported, on two devices, and its graphs; the batteries have the rest."""

import os
import pathlib
import subprocess
import sys

import batteries
import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal
from serving import serve_elsewhere
from test_gpu_ready import devices_of, ops_of

from tfp_fnspace import sip

GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(24, 4)).astype("float32")
Y = np.stack([np.sin(X[:, 0]), X[:, 1] * X[:, 2]], axis=1).astype("float32")
OPTIONS = {"batch_size": 10, "verbose": 0}


def make(**options):
    return batteries.sip_model(**{"adaptive_contrast": True, "discriminator_steps": 2, **options})


def test_keras_file_keeps_both_optimizers_and_training_goes_on(tmp_path):
    model = make(warm_up=0.5)  # without dropout, whose state Keras does not save
    model.compile(keras.optimizers.Adam(0.01), keras.optimizers.RMSprop(0.002))
    model.fit(X, Y, epochs=2, **OPTIONS)
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras", safe_mode=True)
    assert isinstance(loaded.discriminator_optimizer, keras.optimizers.RMSprop)
    for part in ("", "optimizer", "discriminator_optimizer"):
        ours, theirs = ((getattr(m, part) if part else m).variables for m in (loaded, model))
        assert len(ours) == len(theirs) > 5
        for one, other in zip(ours, theirs, strict=True):
            assert_array_equal(one, other)
    assert loaded.get_compile_config() == model.get_compile_config()
    for each in (model, loaded):
        each.fit(X, Y, epochs=2, **OPTIONS)
    assert_array_equal(loaded.predict(X)["mean"], model.predict(X)["mean"])
    for ours, theirs in zip(loaded.weights, model.weights, strict=True):
        assert_array_equal(ours, theirs)


@pytest.mark.parametrize("prior", ["bnn", "neural_sampler"])
def test_default_networks_are_kept(prior, tmp_path):
    model = sip.SIPModel(prior, inducing_points=X[:4], num_samples=6, num_eval_samples=5, seed=0)
    model.compile(run_eagerly=True)
    model.fit(X, Y, **OPTIONS)
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras", safe_mode=True)
    assert loaded.get_config() == model.get_config()
    assert_array_equal(loaded.predict(X)["stddev"], model.predict(X)["stddev"])
    draws = [m.sample_prior_functions(X, 3, seed=1) for m in (model, loaded)]
    assert_array_equal(*draws)


def test_one_seed_is_one_run_with_default_networks():
    runs = []
    for seed in (0, 0, 1):
        model = sip.SIPModel("bnn", 4, num_samples=6, num_eval_samples=5, seed=seed)
        model.compile(run_eagerly=True)
        model.fit(X, Y, **OPTIONS)
        runs.append(model.predict(X)["mean"])
    assert_array_equal(runs[0], runs[1])
    assert np.abs(runs[0] - runs[2]).max() > 1e-3


class PowerCut(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 2:
            raise InterruptedError("power cut")


def test_restored_run_equals_an_undisturbed_one(tmp_path):
    undisturbed, killed, restored = (make(warm_up=0.5) for _ in range(3))
    undisturbed.fit(X, Y, epochs=4, **OPTIONS)

    def backup():
        return keras.callbacks.BackupAndRestore(tmp_path / "backup")

    with pytest.raises(InterruptedError, match="power cut"):
        killed.fit(X, Y, epochs=4, callbacks=[backup(), PowerCut()], **OPTIONS)
    assert restored.fit(X, Y, epochs=4, callbacks=[backup()], **OPTIONS).epoch == [2, 3]
    assert_array_equal(restored.predict(X)["mean"], undisturbed.predict(X)["mean"])
    for ours, theirs in zip(restored.log_ratio.weights, undisturbed.log_ratio.weights, strict=True):
        assert_array_equal(ours, theirs)


def test_compiled_epochs_equal_the_loop_over_batches_and_trace_once():
    models, traces = [make() for _ in range(2)], []
    objectives = models[0].objectives
    vars(models[0])["objectives"] = lambda *a: traces.append(1) or objectives(*a)
    callback = keras.callbacks.LambdaCallback(on_train_batch_end=lambda b, logs: None)
    histories = [
        model.fit(X, Y, epochs=2, callbacks=extra, **OPTIONS).history
        for model, extra in zip(models, ([], [callback]), strict=True)
    ]
    for name, values in histories[0].items():
        assert_allclose(values, histories[1][name], rtol=1e-4, atol=1e-5)
    models[0].fit(X, Y, batch_size=7, verbose=0)
    assert len(traces) == 1


# Graphs ------------------------------------------------------------------------------------------


def prepared():
    model = make()
    model.adapt(X, Y)
    model.prepare_training([X], Y)
    model._prepare_steps(24, 10)
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
    for name, (function, arguments) in functions_of(prepared()).items():
        found = ops_of(function, arguments)
        assert {"MatMul", "Cholesky"} <= found, "the graph looks empty"
        missing = {op: devices_of(op) for op in found if not {"GPU", "DEFAULT"} & devices_of(op)}
        assert not missing, name


@pytest.mark.slow
def test_steps_compile_under_xla():
    model = prepared()
    functions = functions_of(model)
    for name in ("train_step", "predict_step"):
        function, arguments = functions[name]
        before = [w.numpy() for w in model.trainable_weights]
        outputs = tf.function(function, autograph=False, jit_compile=True)(*arguments)
        assert all(np.all(np.isfinite(value)) for value in tf.nest.flatten(outputs)), name
        after = [w.numpy() for w in model.trainable_weights]
        moved = [np.any(a != b) for a, b in zip(after, before, strict=True)]
        assert all(moved) if name == "train_step" else not any(moved)


@pytest.mark.slow
def test_served_where_keras_and_the_library_are_missing(tmp_path):
    model = make()
    model.fit(X, Y, **OPTIONS)
    model.export(tmp_path / "served", num_samples=4)
    outputs = serve_elsewhere(tmp_path / "served", X, tmp_path)
    for key, value in model.predict(X).items():
        assert_allclose(outputs[key], value, rtol=1e-4, atol=1e-5)
    assert outputs["quantiles"].shape == (24, 2, 3)
    assert np.all(np.diff(outputs["quantiles"], axis=-1) > 0.0)
    samples = model.sample_functions(X, 4, seed=(1, 2))
    assert_allclose(outputs["sample"], samples, rtol=1e-3, atol=1e-3)


DEVICES = """
import sys
import tensorflow as tf
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
sys.path.insert(0, sys.argv[1])
import batteries
import numpy as np

rng = np.random.default_rng(0)
x, y = rng.normal(size=(24, 4)).astype("float32"), rng.normal(size=(24, 2)).astype("float32")
with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
    model = batteries.sip_model(discriminator_steps=2)
    model.adapt(x, y)  # the weights, which need sizes, are of the strategy too
    model.prepare_training([x], y)
before = [w.numpy() for w in model.trainable_weights]
history = model.fit(x, y, epochs=2, batch_size=12, verbose=0).history
assert all(np.all(np.isfinite(values)) for values in history.values()), history
for weight, old in zip(model.trainable_weights, before, strict=True):
    copies = [copy.numpy() for copy in getattr(weight.value, "values", [weight.value])]
    assert len(copies) == 2 and np.array_equal(*copies), weight.path
    assert np.any(copies[0] != old), weight.path
assert np.all(np.isfinite(model.predict(x)["stddev"]))
print("trained")
"""


@pytest.mark.slow
def test_two_replicas_train_as_one_model():
    here = pathlib.Path(__file__).resolve().parents[1]
    environment = {**os.environ, "PYTHONPATH": str(here.parent)}
    command = [sys.executable, "-c", DEVICES, str(here)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.stdout.split()[-1:] == ["trained"], done.stderr[-2000:]
