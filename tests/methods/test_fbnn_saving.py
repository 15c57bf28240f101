"""fBNN restored, exported, on two devices, streamed, and its graphs. The batteries: the rest."""

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

GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(24, 4)).astype("float32")
Y = np.stack([np.sin(X[:, 0]), X[:, 1] * X[:, 2]], axis=1).astype("float32")
OPTIONS = {"batch_size": 12, "verbose": 0}


class PowerCut(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 2:
            raise InterruptedError("power cut")


def test_restored_run_equals_an_undisturbed_one(tmp_path):
    undisturbed, killed, restored = (batteries.fbnn_model() for _ in range(3))
    history = undisturbed.fit(X, Y, epochs=4, **OPTIONS).history

    def backup():
        return keras.callbacks.BackupAndRestore(tmp_path / "backup")

    with pytest.raises(InterruptedError, match="power cut"):
        killed.fit(X, Y, epochs=4, callbacks=[backup(), PowerCut()], **OPTIONS)
    rest = restored.fit(X, Y, epochs=4, callbacks=[backup()], **OPTIONS)
    assert rest.epoch == [2, 3]
    # The monitored divergence too, which no step of these epochs computes anew.
    assert_array_equal(rest.history["kl_estimate"], history["kl_estimate"][2:])
    assert_array_equal(restored.predict(X)["mean"], undisturbed.predict(X)["mean"])


def test_streams_of_batches_are_traced_once_and_equal_arrays():
    """Datasets of any length train by one graph; their batches need not be of one size."""
    traces = []
    models = [batteries.fbnn_model(standardize=False) for _ in range(2)]
    x, y = X[:20], Y[:20]  # batches of 8, 8 and 4 rows
    models[0].fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0)
    objective = models[1].objective
    vars(models[1])["objective"] = lambda *args: traces.append(1) or objective(*args)
    models[1].measurement.adapt(x)  # of a dataset it would see the first batch
    batches = tf.data.Dataset.from_tensor_slices((x, y)).batch(8)
    models[1].fit(batches, epochs=1, verbose=0)
    first = len(traces)
    models[1].fit(batches, epochs=1, verbose=0)
    longer = batches.repeat(20)
    assert first <= 2 and len(traces) == first
    assert_allclose(models[0].predict(x)["mean"], models[1].predict(x)["mean"], rtol=1e-4)
    models[1].fit(longer, epochs=1, verbose=0)
    assert len(traces) == first


def prepared(whiten=True):
    model = batteries.fbnn_model(whiten=whiten)
    model.adapt(X, Y)
    model.prepare_training([X], Y)
    model._prepare_steps(24, 10)
    return model


def test_every_op_has_a_gpu_kernel():
    if not tf.test.is_built_with_cuda():
        pytest.skip("this build of TensorFlow has no GPU kernels to list")
    model, x, y = prepared(), tf.constant(X), tf.constant(Y)
    found = ops_of(lambda a, b: model.train_step((a, b)), (x, y))
    found |= ops_of(lambda a: model.predict_step((a,)), (x,))
    assert {"SelfAdjointEigV2", "Cholesky"} <= found, "the graph looks empty"
    assert not {op for op in found if not {"GPU", "DEFAULT"} & devices_of(op)}


@pytest.mark.slow
def test_a_step_compiles_under_xla():
    model = prepared()
    before = [w.numpy() for w in model.network.trainable_weights]
    step = tf.function(lambda x, y: model.train_step((x, y)), autograph=False, jit_compile=True)
    for value in step(tf.constant(X), tf.constant(Y)).values():
        assert np.isfinite(value)
    after = [w.numpy() for w in model.network.trainable_weights]
    assert all(np.any(a != b) for a, b in zip(after, before, strict=True))


@pytest.mark.slow
def test_served_where_keras_and_the_library_are_missing(tmp_path):
    model = batteries.fbnn_model()
    model.fit(X, Y, epochs=1, **OPTIONS)
    model.export(tmp_path / "served", num_samples=4)
    outputs = serve_elsewhere(tmp_path / "served", X, tmp_path)
    for key, value in model.predict(X).items():
        assert_allclose(outputs[key], value, rtol=1e-4, atol=1e-5)
    assert outputs["quantiles"].shape == (24, 2, 3)
    samples = model.sample_functions(X, 4, seed=(1, 2))
    assert_allclose(outputs["sample"], samples, rtol=1e-4, atol=1e-4)


DEVICES = """
import sys
import tensorflow as tf
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
sys.path.insert(0, sys.argv[1])
import batteries
import keras
import numpy as np

rng = np.random.default_rng(0)
x, y = rng.normal(size=(24, 4)).astype("float32"), rng.normal(size=(24, 2)).astype("float32")

def fitted(make):
    model = make()
    model.compile(optimizer=keras.optimizers.SGD(0.01))
    history = model.fit(x, y, epochs=2, batch_size=12, shuffle=False, verbose=0).history
    assert all(np.all(np.isfinite(values)) for values in history.values()), history
    return model, history

def on_two(make):
    before = [w.numpy() for w in make().network.weights]
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        model, history = fitted(make)
    for weight, old in zip(model.network.weights, before, strict=True):
        copies = [copy.numpy() for copy in weight.value.values]
        assert len(copies) == 2 and np.array_equal(*copies)
        assert np.any(copies[0] != old)
    return model, history

# In the space of weights the objective is a mean over rows, of the same draws on both.
one, history = fitted(batteries.variational_model)
two, other = on_two(batteries.variational_model)
for a, b in zip(one.network.weights, two.network.weights, strict=True):
    np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-4, atol=1e-5)
for key in history:
    np.testing.assert_allclose(history[key], other[key], rtol=1e-4)
on_two(batteries.fbnn_model)
print("trained")
"""


@pytest.mark.slow
def test_two_replicas_train_as_one_model():
    here = pathlib.Path(__file__).resolve().parents[1]
    environment = {**os.environ, "PYTHONPATH": str(here.parent)}
    command = [sys.executable, "-c", DEVICES, str(here)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.stdout.split()[-1:] == ["trained"], done.stderr[-2000:]
