"""Keras's own test of a layer, run on all our layers that take plain tensors; masks."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from keras.src.testing import TestCase
from numpy.testing import assert_allclose

import tfp_fnspace as fns
from tests.batteries import TENSOR_LAYERS

L = keras.layers
GENERATOR = np.random.default_rng(0)


class KerasTest(TestCase):
    """Gives access to Keras's `run_layer_test`."""

    def runTest(self):
        """Exists because unittest requires it."""


#: Layers of every test run; the test compiles a step of Keras, which takes a second.
FAST = ("PerSample_MaxPooling2D", "TAGI_Flatten", "VariationalDense")


@pytest.mark.parametrize(
    "name", [pytest.param(v, marks=() if v in FAST else pytest.mark.slow) for v in TENSOR_LAYERS]
)
def test_keras_s_own_test_of_a_layer(name):
    cls, arguments, shape, output = TENSOR_LAYERS[name]
    inputs = {"input_shape": shape}
    if cls is fns.layers.VariationalEmbedding:
        inputs = {"input_data": GENERATOR.integers(0, 5, shape)}
    KerasTest().run_layer_test(cls, arguments, expected_output_shape=output, **inputs)


# Masks -------------------------------------------------------------------------------------------


def masked_network(steps, padding):
    """Returns a recurrent network of function draws, whose weights are the same at every call."""
    keras.utils.set_random_seed(0)
    inputs = hidden = keras.Input((steps, 2))
    if padding is not None:
        hidden = L.Masking(padding)(inputs)
    hidden = fns.layers.VariationalDense(4, row_rank=2, activation="tanh")(hidden)
    hidden = L.LayerNormalization()(L.Dropout(0.1)(hidden))
    hidden = fns.layers.PerSample(L.LSTM(3, return_sequences=True))(hidden)
    hidden = fns.layers.PerSample(L.GlobalAveragePooling1D())(hidden)
    return inputs, fns.layers.VariationalDense(1)(hidden)


def test_padding_changes_no_function(tmp_path):
    x = GENERATOR.normal(size=(6, 4, 2)).astype("float32")
    padded = np.pad(x, [(0, 0), (1, 2), (0, 0)], constant_values=-9.0)
    models = [
        fns.fbnn.VariationalModel(masked_network(*steps), num_eval_samples=5, seed=0)
        for steps in ((4, None), (7, -9.0))
    ]
    expected, ours = (
        model.draw_functions(rows, 5, tf.constant([0, 1]))
        for model, rows in zip(models, (x, padded), strict=True)
    )
    assert_allclose(ours, expected, rtol=1e-4, atol=1e-5)
    models[1].save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    assert_allclose(loaded.draw_functions(padded, 5, tf.constant([0, 1])), ours, rtol=1e-6)


def test_an_index_of_zero_is_padding():
    keras.utils.set_random_seed(0)
    layer = fns.layers.VariationalEmbedding(6, 3, mask_zero=True)
    words = GENERATOR.integers(1, 6, (5, 4))
    pool = fns.layers.PerSample(L.GlobalAveragePooling1D())
    with fns.layers.function_draws(3, 0, noise="joint"):
        expected, ours = (pool(layer(x)) for x in (words, np.pad(words, [(0, 0), (0, 2)])))
    assert_allclose(ours, expected, rtol=1e-5, atol=1e-6)


def test_layers_that_do_not_heed_masks_refuse_them():
    masked = L.Masking(name="m")(keras.Input((4, 2)))
    draws = fns.layers.VariationalDense(3, row_rank=2)(masked)
    for call in (
        lambda: fns.layers.VariationalConv1D(2, 2)(masked),
        lambda: fns.layers.PerSample(L.Flatten())(draws),
        lambda: fns.layers.PerSample(L.MaxPooling1D())(draws),
        lambda: fns.layers.PerSample(L.Concatenate())([draws, draws]),
    ):
        with pytest.raises(ValueError, match="does not heed masks.*Received: layer"):
            call()
    with pytest.raises(ValueError, match=r"standardize=True, layers \['masking"):
        fns.fbnn.VariationalModel(masked_network(4, 0.0), standardize=True)


def test_layers_behind_tagi_layers_are_told_what_those_make():
    moments = fns.tagi.Dense(3)(keras.Input((4,)))
    for layer in (
        fns.layers.VariationalDense(2),
        fns.layers.VariationalEmbedding(3, 2),
        fns.layers.RepeatSamples(),
        fns.layers.PerSample(L.Flatten()),
        fns.layers.RandomFourierFeatures(3, tfp.math.psd_kernels.ExponentiatedQuadratic()),
    ):
        with pytest.raises(TypeError, match="`fns.tagi` too. Received: layer .* GaussianMoments"):
            layer(moments)
