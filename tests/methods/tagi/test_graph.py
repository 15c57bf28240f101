"""What a TAGI graph is, and what its inputs mean."""

import keras
import numpy as np
import pytest

import tfp_fnspace as fns
from tfp_fnspace.methods.tagi import graph

NOISE = {"scale": 0.3}


def model_of(inputs, outputs, **options):
    noise = fns.likelihoods.Gaussian(**NOISE)
    return fns.tagi.TAGIModel(inputs, outputs, likelihood=noise, **options)


def test_a_keras_model_stands_for_inputs_and_outputs():
    layers = [keras.Input((3,)), fns.tagi.Dense(4, activation="relu"), fns.tagi.Dense(1)]
    x = np.random.default_rng(0).normal(size=(8, 3))
    found = []
    for ends in ((keras.Sequential(layers),), (layers[0], layers[2](layers[1](layers[0])))):
        noise = fns.likelihoods.Gaussian(**NOISE)
        model = fns.tagi.TAGIModel(*ends, likelihood=noise, standardize=False, seed=0)
        found.append(model.predict(x)["stddev"])
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("network", [keras.Sequential([fns.tagi.Dense(1)]), keras.Input((3,))])
def test_without_outputs_the_network_must_know_its_inputs(network):
    with pytest.raises(TypeError, match=r"`outputs` must be given.*outputs=None"):
        model_of(network, None)


def test_layers_called_by_keyword():
    inputs = keras.Input((3,))
    model = model_of(inputs, fns.tagi.Dense(1)(inputs=inputs))
    assert model.input_roles == [None]


def test_a_second_input_in_a_pair_is_a_variance():
    first, second, third = (keras.Input((3,)) for _ in range(3))
    hidden = fns.tagi.Concatenate()([fns.tagi.Dense(2)((first, third)), second])
    assert graph.input_roles(keras.Model([first, second, third], list(hidden))) == [None, None, 0]


@pytest.mark.parametrize("mixed", ["two_layers", "swapped"])
def test_outputs_are_the_mean_and_the_variance_of_one_layer(mixed):
    inputs = keras.Input((3,))
    a, b = fns.tagi.Dense(1)(inputs), fns.tagi.Dense(1)(inputs)
    outputs = {"two_layers": [a[0], b[1]], "swapped": [a[1], a[0]]}[mixed]
    with pytest.raises(ValueError, match=r"must be the moments that one TAGI layer returns"):
        model_of(inputs, outputs)


@pytest.mark.parametrize(
    "layer",
    [
        lambda h: keras.layers.Dense(1)(h),
        lambda h: keras.layers.Flatten()(h),
        lambda h: keras.layers.Add()([h, h]),
        lambda h: keras.ops.relu(h),
    ],
)
def test_words_of_keras_for_moments_say_which_layers_take_them(layer):
    inputs = keras.Input((4,))
    with pytest.raises((ValueError, AttributeError), match="layers of `fns.tagi` only"):
        layer(fns.tagi.Dense(3)(inputs))


def test_ordinary_layers_may_work_on_what_is_exactly_known():
    inputs = keras.Input((3,))
    frozen = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4)])
    frozen.trainable = False
    known = keras.layers.Rescaling(2.0)(fns.tagi.Flatten()(frozen(inputs)))
    model = model_of(inputs, fns.tagi.Dense(1)(keras.layers.ReLU()(known)))
    x = np.random.default_rng(0).normal(size=(8, 3))
    model.fit(x, x[:, :1], epochs=2, verbose=0)
    assert np.all(np.isfinite(model.predict(x)["stddev"]))


def test_a_seed_leaves_layers_that_have_learnt():
    inputs = keras.Input((3,))
    hidden = fns.tagi.Dense(4, activation="relu")
    first = model_of(inputs, fns.tagi.Dense(1)(hidden(inputs)), seed=0)
    x = np.random.default_rng(0).normal(size=(8, 3))
    first.fit(x, x[:, :1], epochs=2, verbose=0)
    learnt = hidden.kernel_mean.numpy()
    head = fns.tagi.Dense(1)
    model_of(inputs, head(hidden(inputs)), seed=1)
    np.testing.assert_array_equal(hidden.kernel_mean, learnt)
    again = fns.tagi.Dense(1)
    model_of(inputs, again(hidden(inputs)), seed=1)
    np.testing.assert_array_equal(again.kernel_mean, head.kernel_mean)


def test_input_noise_is_saved_with_the_model(tmp_path):
    inputs = keras.Input((3,))
    model = model_of(inputs, fns.tagi.Dense(1)(fns.tagi.Flatten()(inputs)), input_stddev=0.5)
    x = np.random.default_rng(0).normal(size=(8, 3))
    model.fit(x, x[:, :1], epochs=1, verbose=0)
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    assert loaded.input_stddev == 0.5 and len(loaded.weights) == len(model.weights)
    np.testing.assert_array_equal(loaded.predict(x)["stddev"], model.predict(x)["stddev"])


def test_function_samples_with_uncertain_inputs_are_functions_of_x(assert_variance_close):
    inputs = keras.Input((3,))
    model = model_of(inputs, fns.tagi.Dense(1)(inputs), input_stddev=2.0, standardize=False)
    x = np.random.default_rng(0).normal(size=(8, 3))
    whole = model.sample_functions(x, 2000, seed=3)
    np.testing.assert_allclose(whole[:, 2:5], model.sample_functions(x[2:5], 2000, seed=3), 1e-4)
    # With one dense layer the variance of the moments is exact.
    assert_variance_close(whole, model.predict(x)["epistemic_stddev"] ** 2, false_fail=1e-6)


def test_a_fitted_model_takes_variances_by_its_twin():
    rng = np.random.default_rng(0)
    x = rng.normal(1.0, 3.0, size=(40, 2))
    y = 2.0 * x[:, :1] + rng.normal(size=(40, 1))
    inputs, layer = keras.Input((2,)), fns.tagi.Dense(1)
    noise = fns.likelihoods.Gaussian([0.3], trainable=True)
    model = fns.tagi.TAGIModel(inputs, layer(inputs), likelihood=noise, seed=0)
    model.fit(x, y, epochs=2, batch_size=10, verbose=0)
    twin, before = model.with_variances(), model.predict(x)
    for name, values in twin.predict([x, np.zeros_like(x)]).items():
        np.testing.assert_allclose(values, before[name], rtol=1e-6)
    # With one dense layer E[f] is the mean's, and each input adds v (E[w]^2 + Var[w]) to Var[f].
    variance = np.array([4.0, 0.0]) * np.ones_like(x)
    found = twin.predict([x, variance])
    np.testing.assert_allclose(found["mean"], before["mean"], rtol=1e-6)
    squares = layer.kernel_mean.numpy() ** 2 + layer.kernel_variance.numpy()
    more = variance / np.var(x, axis=0) @ squares * np.var(y)
    expected = before["epistemic_stddev"] ** 2 + more
    np.testing.assert_allclose(found["epistemic_stddev"] ** 2, expected, rtol=1e-5)
    twin.fit([x, variance], y, epochs=1, batch_size=10, verbose=0)
    np.testing.assert_array_equal(model.predict(x)["mean"], twin.predict([x, 0.0 * x])["mean"])
    assert not np.allclose(model.predict(x)["mean"], before["mean"])
