"""Every model that learns by gradients: restored, on two devices, its graphs, and served."""

import shutil

import batteries
import keras
import numpy as np
import pytest
import tensorflow as tf
from elsewhere import run_elsewhere
from exhaustive import sample_of
from numpy.testing import assert_allclose
from serving import serve_elsewhere
from test_gpu_ready import devices_of, ops_of

GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(24, 4)).astype("float32")
Y = np.stack([np.sin(X[:, 0]), X[:, 1] * X[:, 2]], axis=1).astype("float32")
OPTIONS = {"batch_size": 12, "verbose": 0}
MODELS = batteries.ALL_BY_GRADIENTS
#: One model of each group that shares code: DIWP's layers, the bound and the divergence of fBNN,
#: and all that SIP trains.
KEPT = ["DIWP", "SIP", "fBNN"]
SOME = pytest.mark.parametrize("name", sample_of(MODELS, KEPT))


class Copied(keras.callbacks.BackupAndRestore):
    """Keeps the backup as it is at the start of the third epoch."""

    def __init__(self, folder, copy):
        super().__init__(folder)
        self.copy = copy

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 2:
            shutil.copytree(self.backup_dir, self.copy)
        super().on_epoch_begin(epoch, logs)


@pytest.mark.slow
@SOME
def test_restored_run_equals_an_undisturbed_one(name, tmp_path):
    """The restored run continues from a power cut at the start of the third epoch.

    The runs are equal up to rounding: the first goes through Keras's loop and the second is
    compiled whole, and TensorFlow groups the products of those graphs in different orders. DIWP's
    weights differ by 6e-7; without that rewriting they are equal to the bit. A step of Adam moves
    them by 1e-2.
    """
    undisturbed, restored = MODELS[name](), MODELS[name]()
    callback = Copied(tmp_path / "running", tmp_path / "left")
    history = undisturbed.fit(X, Y, epochs=4, callbacks=[callback], **OPTIONS).history
    backup = keras.callbacks.BackupAndRestore(tmp_path / "left")
    rest = restored.fit(X, Y, epochs=4, callbacks=[backup], **OPTIONS)
    assert rest.epoch == [2, 3]
    for name, values in rest.history.items():
        assert_allclose(values, history[name][2:], rtol=1e-5, atol=1e-6)
    for ours, theirs in zip(restored.weights, undisturbed.weights, strict=True):
        assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def prepared(make):
    model = make()
    model.adapt(X, Y)
    model.prepare([X], Y, [([X], Y)])
    model.begin(24, 10)
    return model


@SOME
@pytest.mark.slow
def test_every_op_has_a_gpu_kernel(name):
    if not tf.test.is_built_with_cuda():
        pytest.skip("this build of TensorFlow has no GPU kernels to list")
    model, x, y = prepared(MODELS[name]), tf.constant(X), tf.constant(Y)
    found = ops_of(lambda a, b: model.train_step((a, b)), (x, y))
    found |= ops_of(lambda a: model.predict_step((a,)), (x,))
    found |= ops_of(lambda a: model.draw_functions(a, 3, tf.constant([1, 2])), (x,))
    assert {"MatMul", "BatchMatMulV2"} & found, "the graph looks empty"
    assert not {op for op in found if not {"GPU", "DEFAULT"} & devices_of(op)}


STEPS = """
import sys
import numpy as np
import tensorflow as tf
import test_gradient_models as tests

for name in sys.argv[1:]:
    make = tests.MODELS[name]
    model, x, y = tests.prepared(make), tf.constant(tests.X), tf.constant(tests.Y)
    step = tf.function(lambda a, b: model.train_step((a, b)), autograph=False, jit_compile=True)
    before = [w.numpy() for w in model.trainable_weights]
    assert all(np.all(np.isfinite(value)) for value in step(x, y).values())
    for weight, old in zip(model.trainable_weights, before, strict=True):
        assert np.any(weight.numpy() != old), weight.path
print("done")
"""


#: The variational model is a part of fBNN. AADM is small and has a discriminator, as SIP has.
IN_XLA, OTHERS_IN_XLA = ("fBNN", "AADM"), ("DIWP", "SIP", "VIP")


@pytest.mark.slow
@pytest.mark.parametrize("names", sample_of([IN_XLA, OTHERS_IN_XLA], [IN_XLA]), ids="-".join)
def test_steps_compile_under_xla(names):
    run_elsewhere(STEPS, *names)


OTHERS = tuple(name for name in MODELS if name not in KEPT)


@pytest.mark.slow
@pytest.mark.parametrize("names", sample_of([tuple(KEPT), OTHERS], [tuple(KEPT)]), ids="-".join)
def test_served_where_keras_and_the_library_are_missing(names, tmp_path):
    models = {name: MODELS[name]() for name in names}
    for name, model in models.items():
        model.fit(X, Y, epochs=1, **OPTIONS)
        model.export(tmp_path / name, num_samples=4)
    served = serve_elsewhere({name: tmp_path / name for name in models}, X, tmp_path)
    for name, model in models.items():
        outputs = served[name]
        for key, value in model.predict(X).items():
            assert_allclose(outputs[key], value, rtol=1e-4, atol=1e-5, err_msg=name)
        assert outputs["quantiles"].shape == (24, 2, 3)
        assert np.all(np.diff(outputs["quantiles"], axis=-1) > 0.0)
        samples = model.sample_functions(X, 4, seed=(1, 2))
        assert_allclose(outputs["sample"], samples, rtol=1e-3, atol=1e-3, err_msg=name)
