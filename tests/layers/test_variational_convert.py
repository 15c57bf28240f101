"""Deterministic networks converted to variational ones."""

import keras
import numpy as np
import pytest
from numpy.testing import assert_allclose

from tfp_fnspace.layers.convert import from_keras
from tfp_fnspace.layers.dense import VariationalDense
from tfp_fnspace.layers.draws import function_draws
from tfp_fnspace.layers.per_sample import PerSample
from tfp_fnspace.layers.posteriors import FactorizedGaussian, LowRankGaussian, Radial

L = keras.layers
NARROW = {"posterior": FactorizedGaussian(1e-6)}
GENERATOR = np.random.default_rng(0)


def images():
    return keras.Sequential(
        [
            keras.Input((8, 8, 2)),
            L.Rescaling(0.5),
            L.Conv2D(4, 3, strides=2, padding="same", activation="relu"),
            L.MaxPooling2D(),
            L.Conv2D(3, 2, use_bias=False),
            L.LeakyReLU(),
            L.Dropout(0.5),
            L.Flatten(),
            L.Dense(2),
            L.Softmax(),
        ],
        name="images",
    )


def residual():
    inputs = keras.Input((4,))
    hidden = L.Dense(4, activation="tanh")(inputs)
    hidden = L.Add()([hidden, inputs])
    hidden = L.Concatenate()([inputs, hidden, L.Activation("relu")(inputs)])
    return keras.Model(inputs, L.Dense(2)(hidden))


def shared():
    inputs = [keras.Input((4,), name="a"), keras.Input((4,), name="b")]
    layer = L.Dense(4)
    first = layer(inputs[0])
    return keras.Model(inputs, L.Dense(1)(L.Multiply()([layer(first), layer(inputs[1])])))


def sequence():
    return keras.Sequential(
        [
            keras.Input((6,), dtype="int32"),
            L.Embedding(9, 3),
            L.Conv1D(4, 2, dilation_rate=2),
            L.Dense(3, activation="elu"),
            L.GlobalAveragePooling1D(),
            keras.Sequential([L.Dense(2), L.ReLU()]),
            L.Dense(1),
        ]
    )


def words():
    """Returns a network of words with nine indices, of which 0 is padding."""
    layers = [L.Embedding(9, 3, mask_zero=True), L.Dense(4, activation="tanh"), L.Dropout(0.5)]
    layers += [L.GlobalAveragePooling1D(), L.Dense(1)]
    return keras.Sequential([keras.Input((6,), dtype="int32"), *layers])


def masked():
    """Returns a network that masks negative numbers; one branch has the user's own mask."""
    inputs, mask = keras.Input((6, 1)), keras.Input((6,), dtype="int32")
    hidden = L.Masking(0.0)(L.ReLU()(inputs))
    hidden = L.Activation("tanh")(L.Dense(3, activation="relu")(hidden))
    own = L.GlobalAveragePooling1D()(L.Dense(3)(inputs), mask=mask > 4)
    return keras.Model(
        [inputs, mask], L.Dense(1)(L.Add()([L.GlobalAveragePooling1D()(hidden), own]))
    )


NETWORKS = {
    "images": images,
    "residual": residual,
    "shared": shared,
    "sequence": sequence,
    "words": words,
    "masked": masked,
}


def inputs_for(model):
    arrays = [
        GENERATOR.integers(0, 9, (5, *t.shape[1:]))
        if "int" in t.dtype
        else GENERATOR.normal(size=(5, *t.shape[1:])).astype("float32")
        for t in model.inputs
    ]
    return arrays if len(arrays) > 1 else arrays[0]


@pytest.mark.parametrize("name", NETWORKS)
def test_small_variances_give_the_deterministic_network(name, tmp_path):
    model = NETWORKS[name]()
    for variable in model.trainable_variables:
        variable.assign(variable + 0.1 * GENERATOR.normal(size=variable.shape))
    x = inputs_for(model)
    expected = model(x).numpy()
    network = from_keras(model, **NARROW)
    network.save(tmp_path / "n.keras")
    for each in (network, keras.models.load_model(tmp_path / "n.keras")):
        for noise in ("joint", "independent"):
            with function_draws(3, 0, noise) as draws:
                outputs = each(x)
            assert outputs.shape == (3, *expected.shape)
            assert_allclose(outputs, np.broadcast_to(expected, outputs.shape), atol=2e-5)
            num_layers = sum(bool(layer.weights) for layer in model._flatten_layers(False))
            assert len(draws.divergences) >= min(num_layers, 2)


def test_options_names_and_new_layers():
    model = images()
    network = from_keras(model, posterior=LowRankGaussian(3), prior="he", estimator="function")
    assert network.name == "images"
    dense = next(layer for layer in network.layers if isinstance(layer, VariationalDense))
    assert dense.name == model.layers[-2].name and dense.posterior.rank == 3
    assert dense.prior == "he"
    pooled = [layer.layer for layer in network.layers if isinstance(layer, PerSample)]
    assert pooled and not {id(layer) for layer in pooled} & {id(layer) for layer in model.layers}
    estimators = from_keras(residual(), estimator="local_reparameterization").layers
    assert {each.estimator for each in estimators if hasattr(each, "estimator")} == {
        "local_reparameterization"
    }
    mixed = from_keras(images(), estimator="local_reparameterization").layers
    assert {each.estimator for each in mixed if hasattr(each, "estimator")} == {
        "local_reparameterization",
        "function",
    }


def test_a_shared_layer_stays_one():
    network = from_keras(shared(), posterior=Radial())
    with function_draws(3, 0) as draws:
        network(inputs_for(network))
    assert len(draws.divergences) == 2
    assert len(network.trainable_weights) == 2 * 4


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ([L.BatchNormalization()], "BatchNormalization"),
        ([L.Dense(2), L.LayerNormalization()], "LayerNormalization"),
        ([L.Reshape((4, 1)), L.Conv1D(2, 2, padding="causal")], "padding='causal'"),
        ([L.Reshape((2, 2)), L.Conv1D(2, 2, groups=2)], "groups=2"),
        ([L.Embedding(3, 2, mask_zero=True), L.GlobalMaxPooling1D()], "does not heed masks"),
        ([L.Dense(4), L.Reshape((2, 2)), L.Masking()], "`Masking` must come before"),
    ],
)
def test_layers_without_counterpart_are_refused(layers, message):
    with pytest.raises(ValueError, match=message):
        from_keras(keras.Sequential([keras.Input((4,)), *layers]))


@pytest.mark.parametrize("model", [3, keras.Sequential([L.Dense(1)])])
def test_what_is_no_built_network_is_refused(model):
    with pytest.raises(TypeError, match="built.*Received: model"):
        from_keras(model)
