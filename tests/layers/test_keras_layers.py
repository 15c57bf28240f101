"""Keras layers that draw, count or keep something, in the networks of our models."""

import keras
import numpy as np
import pytest
import sip_models
import tensorflow as tf
import tensorflow_probability as tfp
from numpy.testing import assert_allclose, assert_array_equal

import tfp_fnspace as fns

L = keras.layers
GENERATOR = np.random.default_rng(0)
X = (5.0 + 3.0 * GENERATOR.normal(size=(40, 4))).astype("float32")
Y = X[:, :1]

#: Layers that act only in training.
RANDOM = {
    "Dropout": lambda: L.Dropout(0.5),
    "GaussianNoise": lambda: L.GaussianNoise(0.5),
    "GaussianDropout": lambda: L.GaussianDropout(0.5),
    "AlphaDropout": lambda: L.AlphaDropout(0.5),
    "PerSample": lambda: fns.layers.PerSample(L.Dropout(0.5)),
}
#: Layers that learn moments or norms in a pass.
LEARNING = {
    "BatchNormalization": lambda: L.BatchNormalization(momentum=0.5, center=False, scale=False),
    "BatchNormalization_per_sample": lambda: fns.layers.PerSample(
        L.BatchNormalization(momentum=0.5)
    ),
    "SpectralNormalization": lambda: L.SpectralNormalization(L.Dense(6)),
}
#: Layers that act on each row alone, in training as in prediction.
ALIKE = {
    "LayerNormalization": lambda: L.LayerNormalization(),
    "UnitNormalization": lambda: L.UnitNormalization(),
    "RMSNormalization": lambda: L.RMSNormalization(),
    "GroupNormalization": lambda: fns.layers.PerSample(L.GroupNormalization(2)),
    "Dense": lambda: L.Dense(6),
    "Softmax": lambda: L.Softmax(),
}


def network(*middle):
    keras.utils.set_random_seed(0)
    inputs = keras.Input((4,))
    hidden = fns.layers.VariationalDense(6, activation="relu")(inputs)
    for layer in middle:
        hidden = layer(hidden)
    return inputs, fns.layers.VariationalDense(1)(hidden)


def variational(*middle, **options):
    options = {"num_samples": 3, "num_eval_samples": 20, "seed": 0, **options}
    model = fns.fbnn.VariationalModel(network(*middle), **options)
    model.compile(keras.optimizers.Adam(1e-3))  # the default depends on the number of steps
    return model


def fitted(model, epochs=2, **options):
    model.fit(X, Y, epochs=epochs, batch_size=16, verbose=0, **options)
    return model


def draws(model, training, seed=0):
    with fns.layers.function_draws(4, seed, noise="joint"):
        return model._values([tf.constant(X)], training=training).numpy()


def test_batch_normalisation_normalises_as_in_keras():
    layer = L.BatchNormalization(momentum=0.0, center=False, scale=False)
    model = variational(layer)
    hidden = keras.Model(model.network.inputs, layer.output)
    fitted(model, epochs=1)
    with fns.layers.function_draws(4, 0, noise="joint"):
        values = hidden(X, training=True).numpy()
    assert_allclose(values.mean(axis=(0, 1)), 0.0, atol=1e-4)
    spread = values.std(axis=(0, 1))
    assert_allclose(spread[spread > 0.01], 1.0, atol=0.05)  # other units are always 0
    twin = L.BatchNormalization(momentum=0.0, center=False, scale=False)
    with fns.layers.function_draws(4, 0, noise="joint"):
        before = model.network.layers[1](X).numpy()
    twin(before.reshape(-1, 6), training=True)
    for ours, expected in zip(layer.weights, twin.weights, strict=True):
        assert_allclose(ours.numpy(), expected.numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "name",
    [
        "BatchNormalization_per_sample",
        pytest.param("SpectralNormalization", marks=pytest.mark.slow),
    ],
)
def test_layers_that_learn_in_a_pass_do_so_in_compiled_epochs(name):
    layer = LEARNING[name]()
    model = variational(layer)
    before = [v.numpy() for v in layer.non_trainable_variables]
    fitted(model, epochs=1)
    after = [v.numpy() for v in layer.non_trainable_variables]
    assert any(np.any(a != b) for a, b in zip(after, before, strict=True))
    model.predict(X)
    for value, variable in zip(after, layer.non_trainable_variables, strict=True):
        assert_array_equal(variable.numpy(), value)


@pytest.mark.parametrize("name", RANDOM)
def test_random_layers_act_in_training_only(name):
    model = variational(RANDOM[name]())
    assert np.abs(draws(model, True) - draws(model, True)).max() > 1e-3
    assert_array_equal(draws(model, False), draws(model, False))
    assert_allclose(draws(model, False), draws(variational(), False))


@pytest.mark.parametrize("name", ALIKE)
def test_other_layers_act_as_in_keras(name):
    layer = ALIKE[name]()
    model = variational(layer)
    first, last = model.network.layers[1], model.network.layers[-1]
    with fns.layers.function_draws(4, 0, noise="joint"):
        hidden = first(X)
        rows = getattr(layer, "layer", layer)(tf.reshape(hidden, [-1, 6]))
        expected = last(tf.reshape(rows, [4, -1, 6]))
    for training in (False, True):
        assert_allclose(draws(model, training), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_the_same_seed_is_the_same_run_with_dropout_and_so_is_a_restored_one(tmp_path):
    def weights(model):
        return np.concatenate([v.numpy().ravel() for v in model.network.trainable_weights])

    whole = weights(fitted(variational(L.Dropout(0.5))))
    assert_array_equal(weights(fitted(variational(L.Dropout(0.5)))), whole)
    half = fitted(variational(L.Dropout(0.5)), epochs=1)
    half.save(tmp_path / "half.keras")
    restored = keras.models.load_model(tmp_path / "half.keras")
    assert_allclose(weights(fitted(restored, initial_epoch=1)), whole, rtol=1e-4, atol=1e-6)
    assert np.abs(weights(fitted(variational())) - whole).max() > 1e-4


@pytest.mark.parametrize(
    "layer",
    [
        lambda: L.LSTM(6, return_sequences=True),
        lambda: L.Bidirectional(L.LSTM(3, return_sequences=True)),
        lambda: L.GroupNormalization(2),
        lambda: L.MultiHeadAttention(1, 2),
    ],
)
def test_layers_that_take_rows_for_steps_are_refused(layer):
    layer = layer()
    if isinstance(layer, L.MultiHeadAttention):
        attend = layer
        layer = lambda x: attend(x, x)  # noqa: E731
    with pytest.raises(ValueError, match=r"PerSample\(layer\).*Received: network"):
        variational(layer)


def test_steep_functions_are_not_taken_for_mixed_rows():
    """Their values feel how a product of matrices is rounded, which depends on its shape."""
    kernel = tfp.math.psd_kernels.ExponentiatedQuadratic(1.0, 1e-6)
    steep = fns.layers.RandomFourierFeatures(100, kernel, seed=0)
    model = fns.fbnn.VariationalModel(network(steep))
    assert np.all(np.isfinite(model.draw_functions(X, 3, tf.constant([0, 1]))))


def test_stateful_layers_and_added_losses_are_refused():
    inputs = keras.Input((3, 2), batch_size=8)
    outputs = fns.layers.VariationalDense(1)(L.LSTM(3, stateful=True, name="s")(inputs))
    with pytest.raises(ValueError, match=r"stateful=True`. Received: layers \['s'\]"):
        fns.fbnn.VariationalModel((inputs, outputs))
    with pytest.raises(ValueError, match="must not add losses"):
        fitted(variational(L.ActivityRegularization(0.1)))


def plain(*layers, num_inputs=4):
    keras.utils.set_random_seed(0)
    return keras.Sequential([keras.Input((num_inputs,)), *layers, L.Dense(1)])


def process_of_functions(layer):
    return fns.processes.VariationalProcess(keras.Model(*network(layer)))


def fbnn(layer):
    prior = fns.processes.GaussianProcess(tfp.math.psd_kernels.ExponentiatedQuadratic())
    return fns.fbnn.FBNNModel(network(layer), prior)


def tagi(layer):
    inputs = keras.Input((4,))
    outputs = fns.tagi.Dense(1)(layer(inputs))
    return fns.tagi.TAGIModel(inputs, outputs, likelihood=fns.likelihoods.Gaussian(0.3))


#: Models whose networks must be functions of a row; such layers would prevent that.
FUNCTIONS = {
    "fBNN": fbnn,
    "TAGI": tagi,
    "BNNProcess": lambda layer: fns.processes.BNNProcess(plain(layer)),
    "NeuralSamplerProcess": lambda layer: fns.processes.NeuralSamplerProcess(plain(layer)),
    "VariationalProcess": process_of_functions,
    "AVB": lambda layer: fns.sip.AVBModel(plain(layer)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_networks_that_are_functions_of_a_row_refuse_them_unless_frozen(name):
    kinds = [L.Dropout(0.5), L.BatchNormalization(center=False, scale=False)]
    for layer in kinds:
        with pytest.raises(ValueError, match=r"frozen|freeze[\s\S]*Received: layer"):
            FUNCTIONS[name](layer)
        frozen = type(layer).from_config(layer.get_config())
        frozen.trainable = False
        FUNCTIONS[name](frozen)


@pytest.mark.parametrize(
    "part", [pytest.param("posterior", marks=pytest.mark.slow), "discriminator"]
)
def test_parts_of_sip_act_as_in_training_while_it_trains(part):
    width = {"posterior": (4, 5), "discriminator": (5, 1)}[part]
    batch = L.BatchNormalization(momentum=0.5)
    given = keras.Sequential(
        [keras.Input((width[0],)), L.Dense(6, "tanh"), batch, L.Dropout(0.2), L.Dense(width[1])]
    )
    options = {"num_samples": 8, "num_eval_samples": 20, "kl_annealing": 0.0, "seed": 0}
    model = sip_models.make_model("neural_sampler", 5, **{part: given}, **options)
    fitted(model, epochs=1)
    moved = batch.moving_variance.numpy()
    assert np.all(moved != 1.0)
    predicted = model.predict(X)["mean"]
    assert_array_equal(model.predict(X)["mean"], predicted)
    assert_array_equal(batch.moving_variance.numpy(), moved)


def preprocessing():
    """Returns Keras layers in front of ours, their inputs, and their expected outputs."""
    normalization = L.Normalization()
    normalization.adapt(X)
    numbers = GENERATOR.integers(0, 4, (40, 4))
    return {
        "Normalization": (normalization, X),
        "Discretization": (L.Discretization([0.0, 5.0], output_mode="multi_hot"), X),
        "IntegerLookup": (L.IntegerLookup(vocabulary=[1, 2], output_mode="multi_hot"), numbers),
        "CategoryEncoding": (L.CategoryEncoding(4, output_mode="multi_hot"), numbers),
        "Hashing": (L.Hashing(3, output_mode="multi_hot"), numbers),
        "Rescaling": (L.Rescaling(0.1, -0.5), X),
    }


@pytest.mark.parametrize("name", list(preprocessing()))
def test_preprocessing_layers_are_those_of_keras(name):
    layer, x = preprocessing()[name]
    inputs = keras.Input((4,), dtype="float32" if x is X else "int64")
    features = tf.cast(layer(x), tf.float32)
    hidden = layer(inputs)
    if hidden.shape[1:] != features.shape[1:]:
        pytest.skip(
            f"Keras {keras.__version__} itself states another shape than that of the values"
        )
    last = fns.tagi.Dense(1)
    likelihood = fns.likelihoods.Gaussian(0.3)
    model = fns.tagi.TAGIModel(inputs, last(hidden), likelihood=likelihood, standardize=False)
    for ours, expected in zip(model(x), last(features), strict=True):
        assert_allclose(ours, expected, rtol=1e-5, atol=1e-6)
    layer_of_draws = fns.layers.VariationalDense(1)
    model = fns.fbnn.VariationalModel((inputs, layer_of_draws(hidden)), standardize=False, seed=0)
    with fns.layers.function_draws(4, 0, noise="joint"):
        expected = layer_of_draws(features)
    with fns.layers.function_draws(4, 0, noise="joint"):
        assert_allclose(model._values([tf.constant(x)]), expected, rtol=1e-5, atol=1e-6)
