"""Datasets, generators and single batches: what arrays promise holds for them too."""

import batteries
import keras
import numpy as np
import pytest
import tensorflow as tf

import tfp_fnspace as fns

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 4)).astype("float32")
Y = np.stack([X[:, 0], X[:, 1] - X[:, 2]], axis=1)


class Rows(keras.utils.PyDataset):
    """Batches of 10 rows."""

    def __init__(self, x=X, y=Y):
        super().__init__()
        self.x, self.y = x, y

    def __len__(self):
        return 3

    def __getitem__(self, index):
        rows = slice(10 * index, 10 * index + 10)
        return self.x[rows], self.y[rows]


def dataset(x=X, y=Y):
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(10)


def generator(x=X, y=Y, epochs=1):
    for _ in range(epochs):
        for start in range(0, 30, 10):
            yield x[start : start + 10], y[start : start + 10]


def changed(array, value):
    array = array.copy()
    array[17, 1] = value
    return array


@pytest.fixture
def model():
    return batteries.tagi_model()


@pytest.fixture(scope="module")
def fitted():
    model = batteries.tagi_model()
    model.fit(X, Y, epochs=1, verbose=0)
    return model


STREAMS = {
    "tf.data": lambda: dataset(),
    "PyDataset": lambda: Rows(),
    "generator": lambda: generator(epochs=2),
}


@pytest.mark.parametrize("kind", STREAMS)
def test_streams_equal_arrays_in_the_same_order(model, kind):
    arrays = batteries.tagi_model()
    arrays.fit(X, Y, batch_size=10, epochs=2, shuffle=False, verbose=0)
    if kind == "generator":
        model.adapt(X, Y)
    options = {"steps_per_epoch": 3} if kind == "generator" else {}
    model.fit(STREAMS[kind](), epochs=2, verbose=0, **options)
    np.testing.assert_allclose(
        arrays.predict(X)["mean"], model.predict(X)["mean"], rtol=1e-4, atol=1e-4
    )


def test_scores_of_streams_and_batches_equal_those_of_arrays(fitted):
    expected = fitted.evaluate(X, Y, return_dict=True, verbose=0)
    assert all(isinstance(value, float) for value in expected.values())
    for stream in (dataset(), Rows()):
        scores = fitted.evaluate(stream, return_dict=True, verbose=0)
        np.testing.assert_allclose(list(scores.values()), list(expected.values()), rtol=1e-5)
    scores = fitted.test_on_batch(X, Y, return_dict=True)
    np.testing.assert_allclose(scores["nll"], expected["nll"], rtol=1e-5)
    np.testing.assert_allclose(
        fitted.predict_on_batch(X)["mean"], fitted.predict(X)["mean"], rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("kind", ["tf.data", "PyDataset"])
@pytest.mark.parametrize("use", ["fit", "evaluate"])
def test_streams_with_bad_values_are_refused(use, kind):
    model = batteries.tagi_model(standardize=False)
    make = {"tf.data": dataset, "PyDataset": Rows}[kind]
    rule = r"`batch x` must be finite\. Received: .* 1 NaN .* the first at \[7, 1\], in batch 1"
    with pytest.raises(ValueError, match=rule):
        getattr(model, use)(make(x=changed(X, np.nan)), verbose=0)


def test_streams_with_infinite_targets_are_refused():
    model = batteries.tagi_model(standardize=False)
    with pytest.raises(ValueError, match=r"`batch y` must not be infinite"):
        model.fit(dataset(y=changed(Y, np.inf)), verbose=0)
    assert np.all(np.isfinite(model.predict(X)["mean"]))


def test_streams_may_have_missing_targets(model):
    arrays, y = batteries.tagi_model(), changed(Y, np.nan)
    arrays.fit(X, y, batch_size=10, shuffle=False, verbose=0)
    model.fit(dataset(y=y), verbose=0)
    np.testing.assert_allclose(
        arrays.predict(X)["mean"], model.predict(X)["mean"], rtol=1e-4, atol=1e-4
    )


def test_prediction_refuses_a_stream_with_bad_values(fitted):
    stream = tf.data.Dataset.from_tensor_slices(changed(X, np.inf)).batch(10)
    with pytest.raises(ValueError, match=r"`batch x` must be finite"):
        fitted.predict(stream)


WIDTHS = {
    "predict": lambda m: m.predict(tf.data.Dataset.from_tensor_slices(X[:, :1]).batch(10)),
    "predict_on_batch": lambda m: m.predict_on_batch(X[:, :1]),
    "call": lambda m: m(X[:, :1]),
    "evaluate": lambda m: m.evaluate(dataset(x=X[:, :1]), verbose=0),
    "fit": lambda m: m.fit(dataset(x=X[:, :1]), verbose=0),
}


@pytest.mark.parametrize("use", WIDTHS)
def test_inputs_of_another_width_are_refused(fitted, use):
    with pytest.raises(ValueError, match=r"must have shape \('N', 4\)\.?\s+Received"):
        WIDTHS[use](fitted)


TARGETS = {
    "fit": lambda m: m.fit(dataset(y=Y[:, :1]), verbose=0),
    "train_step": lambda m: m.train_step((X, Y[:, :1])),
    "test_on_batch": lambda m: m.test_on_batch(X, Y[:, :1]),
}


@pytest.mark.parametrize("use", TARGETS)
def test_targets_of_another_width_are_refused(fitted, use):
    with pytest.raises(ValueError, match=r"`y` must have shape"):
        TARGETS[use](fitted)


@pytest.mark.parametrize("method", ["predict_on_batch", "test_on_batch"])
def test_unfitted_model_is_refused(model, method):
    arguments = (X,) if method == "predict_on_batch" else (X, Y)
    with pytest.raises(ValueError, match=r"The model is not fitted"):
        getattr(model, method)(*arguments)


def test_inputs_by_name():
    a, b = keras.Input((2,), name="a"), keras.Input((2,), name="b")
    outputs = fns.tagi.Dense(2)(fns.tagi.Concatenate()([a, b]))
    model = fns.tagi.TAGIModel([a, b], outputs, likelihood=fns.likelihoods.Gaussian(0.3), seed=0)
    named = {"b": X[:, 2:], "a": X[:, :2]}
    model.fit(named, Y, verbose=0)
    model.fit(tf.data.Dataset.from_tensor_slices((named, Y)).batch(10), verbose=0)
    expected = model.predict([X[:, :2], X[:, 2:]])["mean"]
    np.testing.assert_array_equal(model.predict(named)["mean"], expected)
    stream = tf.data.Dataset.from_tensor_slices(named).batch(10)
    np.testing.assert_allclose(model.predict(stream)["mean"], expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match=r"`x` must have the keys of the model's inputs"):
        model.predict({"a": X[:, :2], "c": X[:, 2:]})


def test_an_own_train_step_is_called():
    calls = []

    class Counting(fns.tagi.TAGIModel):
        def train_step(self, data):
            calls.append(1)
            return super().train_step(data)

    inputs = keras.Input((4,))
    noise = fns.likelihoods.Gaussian(0.3)
    model = Counting(inputs, fns.tagi.Dense(2)(inputs), likelihood=noise)
    model.compile(run_eagerly=False)
    model.fit(X, Y, batch_size=10, verbose=0)
    assert calls


@pytest.mark.parametrize(
    "strategy", [tf.distribute.OneDeviceStrategy, tf.distribute.MirroredStrategy]
)
def test_strategies_of_one_replica(strategy):
    plain = batteries.tagi_model()
    plain.fit(X, Y, epochs=2, verbose=0)
    devices = "CPU:0" if strategy is tf.distribute.OneDeviceStrategy else ["CPU:0"]
    with strategy(devices).scope():
        model = batteries.tagi_model()
        model.compile()
    model.fit(X, Y, epochs=2, verbose=0)
    np.testing.assert_allclose(
        plain.predict(X)["mean"], model.predict(X)["mean"], rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize(
    "callback",
    [
        keras.callbacks.ReduceLROnPlateau("val_nll"),
        keras.callbacks.LearningRateScheduler(lambda epoch: 0.1),
    ],
)
def test_schedules_of_a_learning_rate_are_refused(model, callback):
    with pytest.raises(ValueError, match=r"TAGI has no learning rate to schedule.*Received"):
        model.fit(X, Y, callbacks=[callback], verbose=0)


def test_adapt_after_learning_is_refused(fitted):
    with pytest.raises(ValueError, match=r"`adapt` would change the units of what the model has"):
        fitted.adapt(X, Y)


def test_all_layers_frozen_learn_nothing(fitted):
    model = batteries.tagi_model()
    model.network.trainable = False
    model.fit(X, Y, epochs=1, verbose=0)
    before = [variable.numpy() for layer in model.tagi_layers for variable in layer.weights]
    model.fit(X, Y, epochs=1, verbose=0)
    after = [variable.numpy() for layer in model.tagi_layers for variable in layer.weights]
    for ours, theirs in zip(before, after, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("likelihood", [None, 0.3])
def test_likelihood_must_be_one(likelihood):
    with pytest.raises(TypeError, match=r"`likelihood` must be one of `tfp_fnspace.likelihoods`"):
        batteries.tagi_model(likelihood=likelihood)


def test_likelihood_scales_must_match_the_outputs():
    noise = fns.likelihoods.Gaussian([0.1, 0.2, 0.3])
    with pytest.raises(ValueError, match=r"one per output, 2\. Received: 3 scales"):
        batteries.tagi_model(likelihood=noise)


def test_seed_keeps_assigned_weights():
    inputs = keras.Input((4,))
    layer = fns.tagi.Dense(2)
    outputs = layer(inputs)
    layer.kernel_mean.assign(np.ones((4, 2)))
    fns.tagi.TAGIModel(inputs, outputs, likelihood=fns.likelihoods.Gaussian(0.3), seed=0)
    np.testing.assert_array_equal(layer.kernel_mean, np.ones((4, 2)))


def test_served_endpoints_by_name(fitted, tmp_path):
    fitted.export(tmp_path / "served", num_samples=3)
    loaded = tf.saved_model.load(str(tmp_path / "served"))
    outputs = loaded.serve(x=X)
    np.testing.assert_array_equal(
        loaded.signatures["serving_default"](x=X)["mean"], outputs["mean"]
    )
    sample = loaded.sample(x=X, seed=tf.constant([1, 2]))
    np.testing.assert_array_equal(sample, loaded.sample(X, seed=tf.constant([1, 2])))


def test_a_subclass_of_our_metrics_sees_the_distribution():
    class Mine(fns.metrics.NLL):
        pass

    model = batteries.tagi_model()
    model.compile(metrics=[Mine(name="mine")])
    model.fit(X, Y, verbose=0)
    scores = model.evaluate(X, Y, return_dict=True, verbose=0)
    assert scores["mine"] == scores["nll"]


def test_one_element_list_for_one_input(fitted):
    np.testing.assert_array_equal(fitted.predict([X])["mean"], fitted.predict(X)["mean"])


def test_cross_validation_says_what_it_does(capsys):
    model = batteries.tagi_model(noise="cross_validate")
    model.fit(X, Y, epochs=2, batch_size=10, verbose=2)
    lines = [line for line in capsys.readouterr().out.splitlines() if "held-out" in line]
    assert len(lines) == len(model.noise_scores) >= 3
