"""Padded steps: a masked sequence gives the answer of the sequence without its padding."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

import tfp_fnspace as fns
from tfp_fnspace import tagi
from tfp_fnspace.math.random import as_seed
from tfp_fnspace.methods.tagi import training

GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(12, 4, 2)).astype("float32")
Y = GENERATOR.normal(size=(12, 1)).astype("float32")
PADDING = -9.0
#: Steps of padding before and behind.
SIDES = {"behind": (0, 2), "before": (2, 0), "both": (1, 2)}


def attention(x):
    hidden = tagi.Dense(4)(x)
    hidden = tagi.Add()([hidden, tagi.MultiHeadAttention(2, 3)(hidden, hidden)])
    return tagi.GlobalAveragePooling1D()(tagi.LayerNormalization()(hidden))


def two_recurrent(x):
    hidden = tagi.Dense(3, activation="relu")(tagi.LSTM(3, return_sequences=True)(x))
    return tagi.LSTM(2)(hidden)


def both_directions(x):
    layer = tagi.LSTM(3, return_sequences=True)
    return tagi.GlobalAveragePooling1D()(tagi.Bidirectional(layer, merge_mode="mul")(x))


#: Name -> from a sequence to units.
LAYERS = {
    "LSTM": lambda x: tagi.LSTM(3)(x),
    "LSTM_backwards": lambda x: tagi.LSTM(3, go_backwards=True)(x),
    "LSTM_twice": two_recurrent,
    "Bidirectional": lambda x: tagi.Bidirectional(tagi.LSTM(3))(x),
    "Bidirectional_sequences": both_directions,
    "MultiHeadAttention": attention,
    "GlobalAveragePooling1D": lambda x: tagi.GlobalAveragePooling1D(keepdims=False)(
        tagi.Concatenate()([tagi.Dense(2)(x), x])
    ),
}


def model_of(layers, inputs, hidden):
    likelihood = fns.likelihoods.Gaussian(scale=0.3)
    return tagi.TAGIModel(inputs, tagi.Dense(1)(layers(hidden)), likelihood=likelihood, seed=0)


def masked_model(layers, steps):
    inputs = keras.Input((steps, 2))
    return model_of(layers, inputs, keras.layers.Masking(PADDING)(inputs))


def padded(x, side):
    return np.pad(x, [(0, 0), SIDES[side], (0, 0)], constant_values=PADDING)


def assert_same(ours, expected):
    for name, values in expected.items():
        assert_allclose(ours[name], values, rtol=1e-4, atol=1e-5)


def assert_same_moments(ours, expected):
    for parts in zip(ours, expected, strict=True):
        assert_allclose(*parts, rtol=1e-4, atol=1e-5)


def assert_same_weights(ours, expected):
    for parts in zip(ours.network.weights, expected.network.weights, strict=True):
        assert_allclose(*(part.numpy() for part in parts), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(v, marks=pytest.mark.slow) if v in ("LSTM", "LSTM_backwards") else v
        for v in LAYERS  # those are parts of others
    ],
)
def test_padding_changes_no_answer_and_nothing_that_is_learnt(name):
    inputs = keras.Input((4, 2))
    plain, x = model_of(LAYERS[name], inputs, inputs), padded(X, "both")
    masked = masked_model(LAYERS[name], x.shape[1])
    for _ in range(2):
        assert_same_moments(masked(x), plain(X))
        for model, rows in ((plain, X), (masked, x)):
            training.observe(model, [tf.constant(rows)], tf.constant(Y))
    assert_same_weights(masked, plain)
    draws = [model.draw_functions(rows, 3, as_seed(1)) for model, rows in ((masked, x), (plain, X))]
    assert_allclose(*draws, rtol=1e-3, atol=1e-4)
    for part in masked(np.full_like(x, PADDING)):  # rows without any step
        assert np.all(np.isfinite(part))


@pytest.mark.parametrize("side", ["behind", "before"])
def test_either_side_may_be_padded(side):
    inputs, x = keras.Input((4, 2)), padded(X, side)
    plain = model_of(two_recurrent, inputs, inputs)
    assert_same_moments(masked_model(two_recurrent, x.shape[1])(x), plain(X))


@pytest.mark.slow
def test_masked_models_fit_and_are_saved_and_exported(tmp_path):
    inputs = keras.Input((4, 2))
    plain, x = model_of(two_recurrent, inputs, inputs), padded(X, "both")
    masked = masked_model(two_recurrent, x.shape[1])
    plain.fit(X, Y, batch_size=5, epochs=2, verbose=0)
    masked.fit(x, Y, batch_size=5, epochs=2, verbose=0)
    assert_same_weights(masked, plain)
    predicted = masked.predict(x)
    assert_same(predicted, plain.predict(X))
    masked.save(tmp_path / "m.keras")
    assert_same(keras.models.load_model(tmp_path / "m.keras").predict(x), predicted)
    masked.export(tmp_path / "served")
    served = tf.saved_model.load(str(tmp_path / "served"))
    assert_allclose(served.serve(x)["mean"], predicted["mean"], rtol=1e-5, atol=1e-6)


def test_sequences_of_several_lengths_in_one_batch():
    lengths = np.arange(12) % 4 + 1
    x = np.where(np.arange(4)[:, np.newaxis] < lengths[:, np.newaxis, np.newaxis], X, PADDING)
    ours = masked_model(two_recurrent, 4)(x)
    for length in range(1, 5):
        inputs = keras.Input((length, 2))
        plain = model_of(two_recurrent, inputs, inputs)
        rows = lengths == length
        assert_same_moments([part[rows] for part in ours], plain(X[rows, :length]))


def test_an_index_of_zero_is_padding():
    words = GENERATOR.integers(1, 6, (12, 4))

    def model(steps):
        inputs = keras.Input((steps,), dtype="int32")
        return model_of(tagi.LSTM(2), inputs, tagi.Embedding(6, 3, mask_zero=True)(inputs))

    plain, masked = model(4), model(6)
    x = np.pad(words, [(0, 0), (0, 2)])
    for each, rows in ((plain, words), (masked, x)):
        training.observe(each, [tf.constant(rows, tf.int32)], tf.constant(Y))
    assert_same_weights(masked, plain)
    assert_same_moments(masked(x), plain(words))


def test_conversions_keep_masks():
    keras.utils.set_random_seed(0)
    inputs = keras.Input((6, 2))
    hidden = keras.layers.Masking(PADDING)(inputs)
    hidden = keras.layers.Bidirectional(keras.layers.LSTM(3, return_sequences=True))(hidden)
    hidden = keras.layers.MultiHeadAttention(2, 3)(hidden, hidden)
    hidden = keras.layers.GlobalAveragePooling1D()(hidden)
    network = keras.Model(inputs, keras.layers.Dense(1)(hidden))
    x = padded(X, "behind")
    ours = tagi.from_keras(network, prior_variance=1e-10)(x).mean
    assert_allclose(ours, network(x), rtol=1e-3, atol=1e-4)
    words = keras.Sequential(
        [
            keras.Input((6,), dtype="int32"),
            keras.layers.Embedding(6, 3, mask_zero=True),
            keras.layers.LSTM(2),
            keras.layers.Dense(1),
        ]
    )
    x = np.pad(GENERATOR.integers(1, 6, (12, 4)), [(0, 0), (0, 2)])
    ours = tagi.from_keras(words, prior_variance=1e-10)(x).mean
    assert_allclose(ours, words(x), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    "layer",
    [
        lambda: tagi.Flatten(),
        lambda: tagi.Conv1D(2, 2),
        lambda: tagi.AveragePooling1D(2),
        lambda: tagi.BatchNormalization(),
        lambda: tagi.LayerNormalization(axis=(1, 2)),
    ],
)
def test_layers_that_do_not_heed_masks_refuse_them(layer):
    hidden = tagi.Dense(2)(keras.layers.Masking()(keras.Input((4, 2))))
    with pytest.raises(ValueError, match="does not heed masks.*Received: layer .* behind"):
        layer()(hidden)
    known = keras.layers.Masking()(keras.Input((4, 2)))
    with pytest.raises(ValueError, match="does not heed masks"):
        tagi.Concatenate(axis=1)([known, known])


def test_masked_inputs_are_not_standardised():
    inputs = keras.Input((4, 2))
    hidden = tagi.LSTM(2)(keras.layers.Masking(name="m")(inputs))
    likelihood = fns.likelihoods.Gaussian(scale=0.3)
    with pytest.raises(ValueError, match=r"Received: standardize=True, layers \['m'\]"):
        tagi.TAGIModel(inputs, tagi.Dense(1)(hidden), likelihood=likelihood, standardize=True)
