"""Every option of every TAGI layer: in the config, in saved and exported models, under XLA."""

import inspect

import keras
import numpy as np
import pytest
import tensorflow as tf
from exhaustive import sample_of
from numpy.testing import assert_allclose, assert_array_equal

from tfp_fnspace import likelihoods, tagi

WEIGHTS = {"prior": "he", "gain": 0.7, "bias_variance": 0.02, "use_bias": False}
CONVOLUTION = {
    "filters": 4,
    "kernel_size": 2,
    "strides": 2,
    "padding": "same",
    "dilation_rate": 1,
    "groups": 2,
    "activation": "tanh",
}
RECURRENT = {
    "units": 3,
    "activation": "relu",
    "recurrent_activation": "tanh",
    "use_bias": True,
    "unit_forget_bias": False,
    "return_sequences": True,
    "go_backwards": True,
    "stateful": True,
}
NORMALIZATION = {"epsilon": 0.1, "scale_variance": 0.3}

#: Class -> all its options, none at its default unless two exclude each other.
OPTIONS = {
    "Activation": {"activation": "tanh", "moments": "exact"},
    "Add": {},
    "AveragePooling1D": {"pool_size": 3, "strides": 1, "padding": "same"},
    "AveragePooling2D": {"pool_size": (3, 2), "strides": (1, 2), "padding": "same"},
    "BatchNormalization": {
        **NORMALIZATION,
        "axis": 1,
        "momentum": 0.5,
        "center": True,
        "scale": True,
        "bias_variance": 0.4,
    },
    "Concatenate": {"axis": 1},
    "Conv1D": {**CONVOLUTION, **WEIGHTS, "padding": "causal"},
    "Conv2D": {**CONVOLUTION, **WEIGHTS},
    "Conv2DTranspose": {
        "filters": 3,
        "kernel_size": 3,
        "strides": 2,
        "padding": "same",
        "output_padding": 1,
        "dilation_rate": 1,
        "activation": "relu",
        **WEIGHTS,
    },
    "Conv3D": {**CONVOLUTION, **WEIGHTS},
    "Dense": {"units": 3, "activation": "sigmoid", **WEIGHTS},
    "DepthwiseConv2D": {
        "kernel_size": 2,
        "strides": 2,
        "padding": "same",
        "depth_multiplier": 3,
        "dilation_rate": 1,
        "activation": "tanh",
        **WEIGHTS,
    },
    "Embedding": {"input_dim": 7, "output_dim": 3, "gain": 0.3, "mask_zero": True},
    "Flatten": {},
    "GlobalAveragePooling1D": {"keepdims": True},
    "GlobalAveragePooling2D": {"keepdims": True},
    "LSTM": {**RECURRENT, "prior": "he", "gain": 0.7, "bias_variance": 0.02},
    "LayerNormalization": {
        **NORMALIZATION,
        "axis": 1,
        "center": False,
        "scale": False,
        "bias_variance": 0.4,
    },
    "MaxPooling2D": {
        "pool_size": (3, 2),
        "strides": (1, 2),
        "padding": "same",
        "moments": "exact",
    },
    "MultiHeadAttention": {
        "num_heads": 2,
        "key_dim": 3,
        "value_dim": 4,
        "output_shape": 5,
        **WEIGHTS,
    },
    "RMSNormalization": {**NORMALIZATION, "axis": 1},
    "Reshape": {"target_shape": (2, 3)},
    "UpSampling2D": {"size": (2, 3), "interpolation": "bicubic"},
    "ZeroPadding2D": {"padding": ((1, 2), (0, 3))},
}

#: Constructor arguments that are not our options: a wish for the only format, and Keras's own.
NOT_KEPT = {"data_format", "kwargs", "self", "name", "dtype", "trainable"}

#: Bases for users' layers, and the layer that holds two others.
OTHERS = {"BilinearLayer", "ElementwiseLayer", "TAGILayer", "Bidirectional", "TAGIModel"}


def test_every_layer_is_here():
    classes = {name for name in tagi.__all__ if inspect.isclass(getattr(tagi, name))}
    assert classes - OTHERS == set(OPTIONS)


def as_given(value, given):
    """Converts a value of a config to its argument's form: sizes to tuples, objects to names."""
    if isinstance(value, dict) and isinstance(given, str):
        return value["config"].get("function", value["config"].get("activation"))
    if isinstance(value, list | tuple) and not isinstance(given, list | tuple):
        assert len(set(value)) == 1
        return value[0]
    return tuple(map(tuple, value)) if np.ndim(given) == 2 else value


@pytest.mark.parametrize("name", OPTIONS)
def test_the_config_has_every_option(name):
    make, given = getattr(tagi, name), OPTIONS[name]
    own = set(inspect.signature(make.__init__).parameters) - NOT_KEPT
    assert own <= set(given), "an option without a test"
    config = make(**given).get_config()
    for option, value in given.items():
        found = as_given(config[option], value)
        assert (tuple(found) if isinstance(value, tuple) else found) == value, option
    assert make.from_config(config).get_config() == config


@pytest.mark.parametrize("merge_mode", ["sum", "ave", "mul", None])
def test_both_directions_keep_their_layers(merge_mode):
    mode = {} if merge_mode is None else {"merge_mode": merge_mode}
    layer = tagi.Bidirectional(tagi.LSTM(2, unit_forget_bias=False), name="both", **mode)
    config = layer.get_config()
    assert config["merge_mode"] == (merge_mode or "concat")
    again = tagi.Bidirectional.from_config(config)
    assert again.get_config() == config
    assert again.backward_layer.go_backwards and not again.backward_layer.unit_forget_bias


# Models ------------------------------------------------------------------------------------------


def images(inputs):
    hidden = tagi.ZeroPadding2D(((1, 0), (0, 1)))(inputs)
    hidden = tagi.Conv2D(4, (2, 3), padding="same", dilation_rate=2, groups=2)(hidden)
    hidden = tagi.BatchNormalization(momentum=0.5, epsilon=0.1)(hidden)
    hidden = tagi.MaxPooling2D((3, 2), strides=(1, 2), padding="same")(hidden)
    hidden = tagi.DepthwiseConv2D(2, strides=2, depth_multiplier=2, activation="tanh")(hidden)
    hidden = tagi.Conv2DTranspose(3, 3, strides=2, padding="same", output_padding=1)(hidden)
    hidden = tagi.UpSampling2D((1, 2), interpolation="bicubic")(hidden)
    hidden = tagi.AveragePooling2D((2, 3), strides=(1, 2), padding="same")(hidden)
    return tagi.Concatenate(1)(
        [tagi.GlobalAveragePooling2D()(hidden), tagi.Flatten()(tagi.MaxPooling2D()(hidden))]
    )


def volumes(inputs):
    hidden = tagi.Conv3D(4, (1, 2, 2), strides=(1, 1, 2), padding="same", **WEIGHTS)(inputs)
    hidden = tagi.Activation("relu", moments="exact")(hidden)
    return tagi.Flatten()(tagi.LayerNormalization(axis=[1, 2], epsilon=0.2)(hidden))


def series(inputs):
    hidden = tagi.Conv1D(4, 2, padding="causal", dilation_rate=2, groups=2)(inputs)
    hidden = tagi.RMSNormalization(epsilon=0.3)(hidden)
    attention = tagi.MultiHeadAttention(2, 2, value_dim=3, output_shape=4)
    hidden = tagi.Add()([hidden, attention(hidden, hidden, use_causal_mask=True)])
    gate = tagi.Activation("sigmoid", moments="exact")
    lstm = tagi.LSTM(3, recurrent_activation=gate, unit_forget_bias=False, return_sequences=True)
    hidden = tagi.Bidirectional(lstm, merge_mode="ave")(hidden)
    hidden = tagi.AveragePooling1D(3, strides=2, padding="same")(hidden)
    return tagi.LSTM(2, go_backwards=True)(hidden)


def words(inputs):
    hidden = tagi.Embedding(7, 3, gain=0.5)(inputs)
    return tagi.Flatten()(tagi.GlobalAveragePooling1D(keepdims=True)(hidden))


def stateful(inputs):
    return tagi.LSTM(2, stateful=True)(inputs)


#: Name -> layers, shape of the inputs, rows in a batch.
MODELS = {
    "images": (images, (6, 5, 2), None),
    "volumes": (volumes, (2, 3, 4, 2), None),
    "series": (series, (5, 2), None),
    "words": (words, (4,), None),
    "stateful": (stateful, (3, 2), 4),
}


def model_of(name, jit_compile):
    body, shape, batch_size = MODELS[name]
    inputs = keras.Input(shape, batch_size=batch_size)
    model = tagi.TAGIModel(
        inputs, tagi.Dense(1)(body(inputs)), likelihood=likelihoods.Gaussian(0.3), seed=0
    )
    model.compile(jit_compile=jit_compile)
    rng = np.random.default_rng(0)
    shape = (8, *shape)
    x = rng.integers(7, size=shape) if name == "words" else rng.normal(size=shape)
    return model, x.astype("float32"), rng.normal(size=(8, 1)).astype("float32")


@pytest.mark.slow
@pytest.mark.parametrize("name", sample_of(MODELS, [name for name in MODELS if name != "series"]))
def test_models_of_many_options_learn_are_saved_and_served(name, tmp_path):
    model, x, y = model_of(name, jit_compile=True)
    plain, *_ = model_of(name, jit_compile=False)
    before = [variable.numpy() for variable in model.parameter_variables]
    for each in (model, plain):
        each.fit(x, y, batch_size=4, shuffle=False, verbose=0)
    learnt = zip(model.parameter_variables, plain.parameter_variables, strict=True)
    for old, (compiled, other) in zip(before, learnt, strict=True):
        assert np.all(np.isfinite(compiled))
        # A bias of the keys moves all scores of a query equally: the softmax does not see it.
        assert np.any(compiled.numpy() != old) or "key/bias" in compiled.path
        assert_allclose(compiled, other, rtol=2e-4, atol=1e-5)
    model.save(tmp_path / "m.keras")
    model.export(tmp_path / "served", num_samples=2)
    loaded = keras.models.load_model(tmp_path / "m.keras")
    served = tf.saved_model.load(str(tmp_path / "served"))
    if name == "stateful":  # a prediction moves its state on: predict once each
        want, got = model.predict(x[:4]), loaded.predict(x[:4])
        answers = served.serve(x[:4])
    else:
        want, got, answers = model.predict(x), loaded.predict(x), served.serve(x)
        draws = model.sample_functions(x, 2, seed=3)
        assert_array_equal(loaded.sample_functions(x, 2, seed=3), draws)
        assert np.all(np.ptp(draws, axis=0) > 0.0)
    assert np.all(np.isfinite(want["stddev"]))
    for key, value in want.items():
        assert_array_equal(got[key], value)
        assert_allclose(answers[key], value, rtol=1e-4, atol=1e-5)
