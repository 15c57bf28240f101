"""The UCI recipes of fBNN and Bayes by Backprop, with a short budget."""

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

from tfp_fnspace import fbnn, layers, processes
from tfp_fnspace.methods.fbnn import benchmark
from tfp_fnspace.processes.fitted import fitted_prior

GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(3.0, 2.0, size=(40, 2))
Y = 10.0 + np.sin(X[:, :1]) + 0.3 * GENERATOR.normal(size=(40, 1))


@pytest.mark.slow
def test_prior_is_fitted_in_standardised_units():
    prior = fitted_prior(X, Y, 1000, seed=0)
    assert_allclose(prior.noise_scale, 0.3 / Y.std(), rtol=0.3)
    # The second input says nothing: its length is the larger one.
    lengths = [w for w in prior.trainable_weights if w.shape == (2,)]
    assert len(lengths) == 1 and float(lengths[0][1]) > float(lengths[0][0])
    twice = fitted_prior(np.tile(X, (2, 1)), np.tile(Y, (2, 1)), 1000, seed=0)
    assert_allclose(twice.noise_scale, prior.noise_scale, rtol=1e-3)
    few = fitted_prior(X, Y, 10, seed=0)
    assert abs(float(few.noise_scale) - float(prior.noise_scale)) > 1e-4


@pytest.mark.parametrize("name", ["fbnn", "bayes_by_backprop"])
def test_recipe(name):
    recipe = getattr(benchmark, name)
    functional = name == "fbnn"
    budget = {"steps": 4, "batch_size": 20} if functional else {"epochs": 2}
    config = {**recipe.uci_config("energy", 1), **budget, "num_samples": 8}
    model, chosen = recipe.uci_fit(config, X, Y)
    assert isinstance(model, fbnn.FBNNModel) == functional
    least = chosen["prior_noise_scale"] if functional else 0.05
    assert_allclose(model.likelihood.min_scale, least, rtol=1e-6)
    assert least < chosen["noise_scale"] < 2.1 * least
    assert len(model.history.epoch) == 2
    if functional:
        of_prior = set(map(id, model.prior.variables))
        assert not of_prior & set(map(id, model.trainable_variables)) and not model.fit_prior
        assert_allclose(model.prior.noise_scale, chosen["prior_noise_scale"], rtol=1e-6)
    else:
        again, _ = recipe.uci_fit(config, X, Y)
        np.testing.assert_array_equal(again.predict(X)["mean"], model.predict(X)["mean"])


def test_smooth_set_has_the_divergence_in_closed_form():
    config = benchmark.fbnn.uci_config("yacht", 1)
    assert config["kl"] == "closed_form" and config["units"] == [2000]
    config.update(units=[30], steps=4, batch_size=20, measurement=5)
    model, chosen = benchmark.fbnn.uci_fit(config, X, Y)
    assert model.kl == "closed_form" and model.fit_output and len(model.history.epoch) == 2
    assert model.prior.variable_dtype == "float64"
    assert_allclose(model.injected_noise, 0.2 * chosen["prior_noise_scale"])
    least = chosen["prior_noise_scale"]
    scaled = [(model.scaled([tf.constant(X)])[0], model.target_scaler(tf.constant(Y)))]
    best = layers.GaussianOutput(model.network).regression(scaled).best_noise_scale(1.01 * least)
    assert best > 1.05 * least  # where the noise starts, and four small steps leave it
    assert_allclose(chosen["noise_scale"], best, rtol=0.02)
    features, last = model.network.layers[1:]
    covariance = model.prior.kernel().apply(X[:1], X[1:2])
    wide = layers.RandomFourierFeatures(200_000, features.get_config()["kernel"], seed=0)
    assert_allclose(np.sum(wide(X[:1]) * wide(X[1:2])), covariance[0], atol=0.02)
    assert isinstance(last.posterior, layers.ConditionedGaussian)


@pytest.mark.parametrize(
    ("noise", "given", "weight", "hidden", "epochs"),
    [
        (0.05, "batch", 0.025, "full", 6),
        (0.05, 0.004, 0.004, "full", 6),
        (0.3, "batch", "batch", "factorized", 2),
        (0.7, "batch", "data", "factorized", 2),
    ],
)
def test_protocol_follows_the_noise_of_the_prior(noise, given, weight, hidden, epochs, monkeypatch):
    prior = processes.GaussianProcess(processes.ard_squared_exponential(2), noise_scale=noise)
    monkeypatch.setattr(benchmark, "fitted_prior", lambda *_: prior)
    config = {**benchmark.fbnn.uci_config("energy", 1), "steps": 4, "batch_size": 20}
    config.update(num_samples=8, kl_weight=given)
    model, chosen = benchmark.fbnn.uci_fit(config, X, Y)
    assert chosen["kl_weight"] == model.get_config()["kl_weight"] == weight
    assert len(model.history.epoch) == epochs and chosen["hidden_posterior"] == hidden
    layer = next(v for v in model.network.layers if isinstance(v, layers.VariationalDense))
    law = layer.get_config()["posterior"]["class_name"]
    assert law == {"full": "FullCovarianceGaussian", "factorized": "FactorizedGaussian"}[hidden]


@pytest.mark.parametrize("name", ["naval", "power", "protein"])
def test_large_sets_have_wider_networks(name):
    small, large = (benchmark.bayes_by_backprop.uci_config(v, 0) for v in ("energy", name))
    assert small["units"] == [50] and large["units"] == [100]
    assert large["batch_size"] > small["batch_size"] and large["epochs"] < small["epochs"]
    small, large = (benchmark.fbnn.uci_config(v, 0) for v in ("energy", name))
    assert small["units"] == [50] and small["output_posterior"] == "full" and "kl" not in small
    assert large["units"] == [2000] and large["kl"] == "closed_form"
    assert large["steps"] < benchmark.fbnn.uci_config("yacht", 0)["steps"]
