"""TAGI models made from deterministic Keras models."""

import keras
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from tfp_fnspace import likelihoods, tagi

L = keras.layers


def rng(seed=0):
    return np.random.default_rng(seed)


def randomized(model):
    """Gives the model random weights (variances of normalisations positive)."""
    generator = rng(3)
    for weight in model.weights:
        value = generator.normal(size=weight.shape) * 0.4
        weight.assign(np.abs(value) + 0.5 if "variance" in weight.name else value)
    return model


def images():
    inputs = keras.Input((6, 6, 2), name="images")
    hidden = L.Conv2D(4, 3, padding="same", groups=2, activation="relu")(L.ZeroPadding2D()(inputs))
    hidden = L.BatchNormalization(momentum=0.9)(L.MaxPooling2D()(hidden))
    hidden = L.LeakyReLU(negative_slope=0.3)(L.DepthwiseConv2D(2)(hidden))
    hidden = L.AveragePooling2D(2)(L.UpSampling2D()(L.Conv2DTranspose(3, 2)(hidden)))
    hidden = L.Dropout(0.5)(L.LayerNormalization()(hidden))
    hidden = L.Concatenate()([L.Flatten()(hidden), L.GlobalAveragePooling2D()(hidden)])
    return inputs, L.Dense(2)(hidden)


def sequences():
    inputs = keras.Input((5, 3))
    hidden = L.Conv1D(4, 2, padding="causal", activation="gelu")(inputs)
    hidden = L.Bidirectional(L.LSTM(3, return_sequences=True), merge_mode="sum")(hidden)
    hidden = L.Add()([hidden, L.MultiHeadAttention(2, 2)(hidden, hidden, use_causal_mask=True)])
    hidden = L.RMSNormalization()(L.AveragePooling1D(2, padding="same")(hidden))
    return inputs, L.LSTM(2)(hidden)


def words():
    inputs = keras.Input((5,), dtype="int32")
    return inputs, L.Dense(2)(L.GlobalAveragePooling1D()(L.Embedding(7, 3)(inputs)))


def nested():
    """Returns a sequential model that uses a block twice."""
    block = keras.Sequential([keras.Input((4,)), L.Dense(4), L.Activation("tanh")], name="block")
    inputs = keras.Input((4,))
    return inputs, L.Dense(2)(block(block(inputs)))


MODELS = {"images": images, "sequences": sequences, "words": words, "nested": nested}


def rows(inputs):
    if inputs.dtype == "int32":
        return rng(1).integers(0, 7, size=(3, *inputs.shape[1:]))
    return rng(1).normal(size=(3, *inputs.shape[1:])).astype("float32")


@pytest.mark.parametrize("name", MODELS)
def test_nearly_known_weights_predict_as_the_keras_model(name):
    inputs, outputs = MODELS[name]()
    network = randomized(keras.Model(inputs, outputs))
    model = tagi.from_keras(network, prior_variance=1e-12)
    x = rows(inputs)
    moments = model(x)
    assert_allclose(moments.mean, network(x), rtol=1e-4, atol=1e-5)
    assert np.all(np.asarray(moments.variance) < 1e-6)
    shared = [layer for layer in network._flatten_layers() if isinstance(layer, L.Dense)]
    assert sum(isinstance(layer, tagi.Dense) for layer in model.tagi_layers) >= len(
        {id(layer) for layer in shared}
    )


def test_a_sequential_model_learns_from_where_it_is(tmp_path):
    network = keras.Sequential([keras.Input((3,)), L.Dense(8, "tanh"), L.Dense(1)])
    x = rng(0).normal(size=(60, 3))
    y = network(x).numpy() + 0.5 * x[:, :1]
    noise = likelihoods.Gaussian(scale=0.1)
    model = tagi.from_keras(network, prior_variance=0.05, likelihood=noise, seed=0)
    assert not model.standardize
    assert_array_equal(model.get_layer(network.layers[0].name).kernel_mean, network.weights[0])
    before = np.sqrt(np.mean((model.predict(x)["mean"] - y) ** 2))
    model.compile(jit_compile=False)
    model.fit(x, y, epochs=3, batch_size=10, verbose=0)
    assert np.sqrt(np.mean((model.predict(x)["mean"] - y) ** 2)) < 0.5 * before
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    assert_array_equal(loaded.predict(x)["mean"], model.predict(x)["mean"])


def test_other_elementwise_functions_are_saved(tmp_path):
    network = keras.Sequential([keras.Input((3,)), L.Dense(4, "silu"), L.LeakyReLU(), L.Dense(1)])
    model = tagi.from_keras(network)
    model.save(tmp_path / "m.keras")
    x = rng(0).normal(size=(5, 3))
    loaded = keras.models.load_model(tmp_path / "m.keras")
    assert_array_equal(loaded.predict(x)["mean"], model.predict(x)["mean"])
    assert_allclose(loaded.predict(x)["mean"], network(x), rtol=1e-5, atol=1e-6)


def test_prior_variances_by_layer():
    first, second = L.Dense(4, name="first"), L.Dense(1, name="second", trainable=False)
    network = keras.Sequential([keras.Input((3,)), first, second])
    model = tagi.from_keras(network, prior_variance={"first": 0.3})
    ours = model.get_layer("first"), model.get_layer("second")
    for pair in ours[0].parameters:
        assert_allclose(pair.variance.numpy(), 0.3)
    assert_allclose(ours[1].kernel_variance.numpy(), 2 / (4 + 1))  # the layer's own rule
    assert_allclose(ours[1].bias_variance.numpy(), 0.01)
    assert not ours[1].trainable and model.trainable_layers == [ours[0]]


def test_a_scale_that_is_not_there_stays_one():
    layers = [L.LayerNormalization(scale=False), L.BatchNormalization(center=False), L.Dense(1)]
    model = tagi.from_keras(keras.Sequential([keras.Input((3,)), *layers]), prior_variance=0.3)
    layer = model.get_layer(layers[0].name)
    assert_array_equal(layer.kernel_variance, np.zeros(3))
    assert_allclose(layer.bias_variance.numpy(), 0.3)
    assert_allclose(model.get_layer(layers[1].name).kernel_variance.numpy(), 0.3)


def sequential(*layers, shape=(4, 3)):
    return keras.Sequential([keras.Input(shape), *layers])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: sequential(L.GRU(3, return_sequences=True, name="a"), L.GRU(3)),
            r"the layer 'a' of class GRU",
        ),
        (lambda: sequential(L.Dense(2, "softmax", name="a")), r"'a' of class Dense.*softmax"),
        (lambda: sequential(L.Dense(2, lambda x: x, name="a")), r"'a' of class Dense"),
        (lambda: sequential(L.Softmax(name="a")), r"'a' of class Softmax"),
        (lambda: keras.Sequential([L.Dense(2)]), r"functional or built sequential"),
        (lambda: "model", r"Received: model='model'"),
    ],
)
def test_the_first_layer_that_has_no_counterpart_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        tagi.from_keras(make(), prior_variance=0.1)


@pytest.mark.parametrize(
    ("prior_variance", "message"),
    [
        (0.0, r"`prior_variance` must be a positive finite number"),
        ({"other": 1.0}, r"must be names of layers\. Received: \['other'\]"),
        ({"first": -1.0}, r"`prior_variance` must be a positive finite number"),
    ],
)
def test_prior_variances_are_checked(prior_variance, message):
    network = sequential(L.Dense(1, name="first"), shape=(3,))
    with pytest.raises(ValueError, match=message):
        tagi.from_keras(network, prior_variance)


def test_a_model_with_flatten_and_add_is_saved(tmp_path):
    inputs = keras.Input((3, 2))
    hidden = L.Flatten()(inputs)
    network = keras.Model(inputs, L.Dense(1)(L.Add()([hidden, hidden])))
    noise = likelihoods.Gaussian(0.2)
    model = tagi.from_keras(network, prior_variance=0.01, likelihood=noise)
    x = np.random.default_rng(0).normal(size=(5, 3, 2))
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    assert_array_equal(loaded.predict(x)["stddev"], model.predict(x)["stddev"])
