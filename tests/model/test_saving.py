"""Models that are saved, killed, restored, exported and served."""

import subprocess
import sys
import warnings

import batteries
import keras
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from elsewhere import ENVIRONMENT
from serving import serve_elsewhere

import tfp_fnspace as fns


def example_data(num_rows=40):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(num_rows, 4)).astype("float32")
    y = np.stack([x[:, 0] ** 2, x[:, 1] - x[:, 2]], axis=1) + 0.1 * rng.normal(size=(num_rows, 2))
    return x, y.astype("float32")


@pytest.fixture(params=batteries.MODELS)
def make_model(request):
    return batteries.MODELS[request.param]


class Stop(keras.callbacks.Callback):
    """Simulates a power cut at the end of an epoch."""

    def __init__(self, epoch):
        super().__init__()
        self.epoch = epoch

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == self.epoch:
            raise InterruptedError("power cut")


@pytest.mark.slow
def test_keras_file_keeps_predictions_and_needs_no_custom_objects(make_model, tmp_path):
    x, y = example_data()
    model = make_model(noise=keras.optimizers.schedules.ExponentialDecay(1.0, 1, 0.9))
    model.fit(x, y, epochs=3, verbose=0)
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras", safe_mode=True)
    for key, value in model.predict(x).items():
        np.testing.assert_array_equal(loaded.predict(x)[key], value)
    np.testing.assert_array_equal(
        loaded.sample_functions(x, 3, seed=1), model.sample_functions(x, 3, seed=1)
    )
    for ours, theirs in zip(loaded.weights, model.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_writing_warns_of_nothing(tmp_path):
    x, y = pd.DataFrame({"a": [1.0, 2.0, 3.0]}), np.ma.masked_array([[1.0], [2.0], [4.0]])
    model = batteries.tagi_model(num_inputs=1, num_outputs=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(x, y, verbose=0, callbacks=[fns.callbacks.BackupAndRestore(tmp_path / "backup")])
        model.save(tmp_path / "m.keras")
        model.save_weights(tmp_path / "m.weights.h5")
        fns.load_model(tmp_path / "m.keras").load_weights(tmp_path / "m.weights.h5")
        model.set_weights(model.get_weights())
        model.predict(x)


@pytest.mark.slow
def test_keras_file_of_a_graph_with_branches_and_two_inputs(tmp_path):
    x, y = example_data()
    inputs, variances = keras.Input((4,)), keras.Input((4,))
    shared = fns.tagi.Dense(4, activation=fns.tagi.Activation("relu", moments="exact"))
    first = shared((inputs, variances))
    joined = fns.tagi.Concatenate()([fns.tagi.Add()([first, shared(first)]), first])
    model = fns.tagi.TAGIModel(
        [inputs, variances],
        fns.tagi.Dense(2)(joined),
        likelihood=fns.likelihoods.Gaussian(scale=[0.2, 0.3]),
    )
    data = [x, 0.01 * np.ones_like(x)]
    model.fit(data, y, epochs=2, verbose=0)
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    np.testing.assert_array_equal(loaded.predict(data)["mean"], model.predict(data)["mean"])
    np.testing.assert_array_equal(loaded.predict(data)["stddev"], model.predict(data)["stddev"])


@pytest.mark.slow
def test_nested_models_train_and_load(tmp_path):
    x, y = example_data()
    mean, variance = keras.Input((6,)), keras.Input((6,))
    block = keras.Model([mean, variance], fns.tagi.Dense(6, activation="relu")((mean, variance)))
    chain = keras.Sequential([fns.tagi.Dense(6), fns.tagi.Activation("tanh")])
    inputs = keras.Input((4,))
    outputs = fns.tagi.Dense(2)(block(list(chain(inputs))))
    model = fns.tagi.TAGIModel(inputs, outputs, likelihood=fns.likelihoods.Gaussian(0.3), seed=0)
    before = [variable.numpy() for variable in model.parameter_variables]
    model.fit(x, y, epochs=2, verbose=0)
    assert len(model.tagi_layers) == 3
    assert all(np.any(v != b) for v, b in zip(model.parameter_variables, before, strict=True))
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    np.testing.assert_array_equal(loaded.predict(x)["mean"], model.predict(x)["mean"])


@pytest.mark.parametrize("batchwise", [False, True])
@pytest.mark.slow
def test_restored_fit_equals_an_undisturbed_one(make_model, tmp_path, batchwise):
    x, y = example_data()
    # A callback that acts at batches makes `fit` use the loop over batches.
    extra = [keras.callbacks.LambdaCallback(on_train_batch_end=lambda b, logs: None)]
    extra = extra if batchwise else []
    options = {"epochs": 5, "batch_size": 7, "verbose": 0}
    undisturbed = make_model(seed=2)
    undisturbed.fit(x, y, callbacks=extra, **options)

    def backup():
        return keras.callbacks.BackupAndRestore(tmp_path / "backup")

    killed = make_model(seed=2)
    with pytest.raises(InterruptedError, match="power cut"):
        killed.fit(x, y, callbacks=[backup(), Stop(3), *extra], **options)
    restored = make_model(seed=2)
    history = restored.fit(x, y, callbacks=[backup(), *extra], **options)
    assert history.epoch == [3, 4]
    np.testing.assert_array_equal(restored.predict(x)["mean"], undisturbed.predict(x)["mean"])
    again = restored.fit(x, y, verbose=0)  # Keras would remember epoch 3 and do nothing
    assert again.epoch == [0]


def test_kill_between_weights_and_metadata_trains_no_epoch_twice(tmp_path):
    x, y = example_data()
    options = {"epochs": 4, "batch_size": 7, "verbose": 0}
    undisturbed = batteries.tagi_model(seed=2)
    undisturbed.fit(x, y, **options)
    killed = batteries.tagi_model(seed=2)
    backup = keras.callbacks.BackupAndRestore(tmp_path / "backup")
    with pytest.raises(InterruptedError, match="power cut"):
        killed.fit(x, y, callbacks=[backup, Stop(2)], **options)
    metadata = tmp_path / "backup" / "training_metadata.json"
    metadata.write_text(metadata.read_text().replace('"epoch": 2', '"epoch": 1'))
    restored = batteries.tagi_model(seed=2)
    backup = keras.callbacks.BackupAndRestore(tmp_path / "backup")
    assert restored.fit(x, y, callbacks=[backup], **options).epoch == [2, 3]
    np.testing.assert_array_equal(restored.predict(x)["mean"], undisturbed.predict(x)["mean"])


KILLED = """
import os, sys
import keras
import numpy as np
import batteries
from test_saving import example_data

class PowerCut(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 3 and sys.argv[2] == "kill":
            os._exit(9)

x, y = example_data()
model = batteries.tagi_model(seed=2, noise="cross_validate")
backup = keras.callbacks.BackupAndRestore(sys.argv[1])
model.fit(x, y, epochs=5, batch_size=7, verbose=0, callbacks=[backup, PowerCut()])
np.save(sys.argv[1] + ".npy", model.predict(x)["mean"])
"""


@pytest.mark.slow
def test_killed_process_is_restored_by_another(tmp_path):
    x, y = example_data()
    undisturbed = batteries.tagi_model(seed=2, noise="cross_validate")
    undisturbed.fit(x, y, epochs=5, batch_size=7, verbose=0)
    backup = str(tmp_path / "backup")

    def run(mode):
        command = [sys.executable, "-c", KILLED, backup, mode]
        return subprocess.run(command, capture_output=True, check=False, env=ENVIRONMENT).returncode

    assert run("kill") == 9
    assert run("finish") == 0
    np.testing.assert_array_equal(np.load(backup + ".npy"), undisturbed.predict(x)["mean"])


# Export


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    x, y = example_data()
    model = batteries.tagi_model()
    model.fit(x, y, epochs=3, verbose=0)
    path = tmp_path_factory.mktemp("export") / "served"
    model.export(path, num_samples=7)
    return model, path


def test_served_moments_and_quantiles(served):
    model, path = served
    x, _ = example_data()
    loaded = tf.saved_model.load(str(path))
    outputs = loaded.serve(x)
    for key, value in model.predict(x).items():
        np.testing.assert_allclose(outputs[key], value, rtol=1e-6, atol=1e-6)
    distribution = model.predict_distribution(x)
    assert outputs["quantiles"].shape == (40, 2, 3)
    for i, level in enumerate((0.05, 0.5, 0.95)):
        expected = distribution.distribution.quantile(level)
        np.testing.assert_allclose(outputs["quantiles"][..., i], expected, rtol=1e-5, atol=1e-5)


def test_served_batch_size_is_free_and_serving_default_is_the_same(served):
    _, path = served
    x, _ = example_data()
    loaded = tf.saved_model.load(str(path))
    whole, one = loaded.serve(x), loaded.serve(x[:1])
    np.testing.assert_allclose(one["mean"], whole["mean"][:1], rtol=1e-5, atol=1e-6)
    signature = loaded.signatures["serving_default"]
    name = next(iter(signature.structured_input_signature[1]))
    default = signature(**{name: tf.constant(x)})
    np.testing.assert_array_equal(default["mean"], whole["mean"])


def test_served_samples_are_the_models_and_reproducible(served):
    model, path = served
    x, _ = example_data()
    loaded = tf.saved_model.load(str(path))
    first = loaded.sample(x, tf.constant([1, 2]))
    assert first.shape == (7, 40, 2)
    np.testing.assert_array_equal(first, loaded.sample(x, tf.constant([1, 2])))
    np.testing.assert_allclose(
        first, model.sample_functions(x, 7, seed=(1, 2)), rtol=1e-5, atol=1e-5
    )
    assert np.abs(first - loaded.sample(x, tf.constant([1, 3]))).max() > 1e-3


def test_export_with_several_inputs(tmp_path):
    x, y = example_data()
    inputs, variances = keras.Input((4,)), keras.Input((4,))
    outputs = fns.tagi.Dense(2)((inputs, variances))
    noise = fns.likelihoods.Gaussian(0.3)
    model = fns.tagi.TAGIModel([inputs, variances], outputs, likelihood=noise)
    data = [x, np.full_like(x, 0.04)]
    model.fit(data, y, epochs=1, verbose=0)
    model.export(tmp_path / "served")
    loaded = tf.saved_model.load(str(tmp_path / "served"))
    np.testing.assert_allclose(loaded.serve(*data)["stddev"], model.predict(data)["stddev"], 1e-6)
    assert loaded.sample(*data, tf.constant([0, 1])).shape == (100, 40, 2)


GRADIENT = """
import sys
import numpy as np
import tensorflow as tf
x, served = tf.constant(np.load(sys.argv[1])), tf.saved_model.load(sys.argv[2])
with tf.GradientTape() as tape:
    tape.watch(x)
    total = tf.reduce_sum(served.serve(x)["mean"])
np.save(sys.argv[1], tape.gradient(total, x))
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["DIWP", "SIP"])
def test_served_outputs_have_first_derivatives_in_another_process(name, tmp_path):
    """Both have custom gradients, which the file leaves out; kernels have roots of 0 at Z."""
    x, y = example_data()
    model = batteries.ALL_MODELS[name]()
    batteries.fit(model, x, y, epochs=1)
    model.export(tmp_path / "served")
    x = np.concatenate([x, model.inducing_inputs_in_user_units().astype(x.dtype)])
    np.save(tmp_path / "x.npy", x)
    files = [str(tmp_path / "x.npy"), str(tmp_path / "served")]
    subprocess.run([sys.executable, "-I", "-c", GRADIENT, *files], check=True, capture_output=True)
    points = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(points)
        total = tf.reduce_sum(model.served_outputs(points)["mean"])
    expected = tape.gradient(total, points)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(np.load(files[0]), expected, rtol=1e-3, atol=1e-4 * scale)


@pytest.mark.slow
def test_saved_model_serves_where_keras_and_the_library_are_missing(served, tmp_path):
    model, path = served
    x, _ = example_data()
    outputs = serve_elsewhere(path, x, tmp_path)
    for key, value in model.predict(x).items():
        np.testing.assert_allclose(outputs[key], value, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(
        outputs["sample"], model.sample_functions(x, 7, seed=(1, 2)), rtol=1e-5, atol=1e-5
    )
