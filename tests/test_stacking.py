"""Stacking: weights, and mixtures of fitted models."""

import keras
import numpy as np
import pytest
import scipy.optimize
import scipy.special
import scipy.stats
import tensorflow as tf

import tfp_fnspace as fns
from tfp_fnspace import stacking, trials
from tfp_fnspace.math.random import as_seed, fold_in
from tfp_fnspace.methods.diwp import recipe as diwp
from tfp_fnspace.methods.tagi import recipe as tagi
from tfp_fnspace.metrics import nll

GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(50, 2))
Y = np.stack([np.sin(X[:, 0]), X[:, 1]], axis=1) + 0.1 * GENERATOR.normal(size=(50, 2))
LABELS = (Y[:, 0] > 0.0).astype(int)
WEIGHTS = [0.3, 0.7]


def fitted(recipe, y, num_classes=None):
    table = trials.Table(X, y, num_classes)
    settings = recipe.candidates(table)[0]
    model = recipe.build(settings, table, seed=0)
    model.fit(X, y, epochs=3, batch_size=settings["batch_size"], verbose=0)
    return model


@pytest.fixture(scope="module")
def members():
    return [fitted(tagi, Y), fitted(diwp, Y)]


@pytest.fixture(scope="module")
def model(members):
    return stacking.StackedModel(members, WEIGHTS)


def test_weights_are_those_of_scipy():
    densities = np.random.default_rng(1).normal(size=(40, 3)) * [1.0, 2.0, 0.5] - [0.0, 1.0, 0.2]
    found = stacking.stacking_weights(densities)

    def loss(weights):
        return -np.mean(np.log(np.exp(densities) @ weights))

    sums = {"type": "eq", "fun": lambda weights: np.sum(weights) - 1.0}
    start, bounds = np.full(3, 1.0 / 3.0), [(0.0, 1.0)] * 3
    best = scipy.optimize.minimize(loss, start, bounds=bounds, constraints=[sums], tol=1e-12)
    assert loss(found) == pytest.approx(best.fun, abs=1e-6)
    np.testing.assert_allclose(found, best.x, atol=2e-3)


def test_weights_of_rows_count_as_copies():
    densities = np.random.default_rng(1).normal(size=(20, 3))
    copies = np.random.default_rng(2).integers(1, 5, size=20)
    found = stacking.stacking_weights(densities, copies.astype(float))
    expected = stacking.stacking_weights(np.repeat(densities, copies, axis=0))
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)
    assert np.max(np.abs(found - stacking.stacking_weights(densities))) > 0.01


def test_weights_of_densities_that_would_underflow():
    assert stacking.stacking_weights(np.array([[-1e4, -1e4 - 50.0]])) == pytest.approx([1.0, 0.0])


@pytest.mark.slow
def test_density_and_moments_are_those_of_the_mixture(model, members):
    logs = [member.predict_distribution(X).log_prob(Y).numpy() for member in members]
    expected = np.logaddexp(*(np.log(w) + each for w, each in zip(WEIGHTS, logs, strict=True)))
    distribution = model.predict_distribution(X)
    # DIWP computes in float32: other batches alone move its densities by 4e-6.
    np.testing.assert_allclose(distribution.log_prob(Y), expected, rtol=1e-5, atol=3e-5)
    found = model.predict(X)
    np.testing.assert_allclose(found["mean"], distribution.mean(), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found["stddev"], distribution.stddev(), rtol=1e-6)
    parts = np.square(found["epistemic_stddev"]) + np.square(found["aleatoric_stddev"])
    np.testing.assert_allclose(np.square(found["stddev"]), parts, rtol=1e-9)
    scores = model.evaluate(X, Y, verbose=0, return_dict=True)
    assert scores["nll"] == pytest.approx(float(nll(Y, distribution)), rel=1e-6)


@pytest.mark.slow
def test_functions_of_classifiers_are_log_probabilities():
    tree, softmax = fitted(tagi, LABELS, 2), fitted(diwp, LABELS, 2)
    assert (tree.num_outputs, softmax.num_outputs) == (1, 2)
    functions = stacking.StackedModel([tree, softmax], WEIGHTS).sample_functions(X, 10, seed=1)
    seeds = [fold_in(as_seed(1), i) for i in range(2)]
    f = tree.sample_functions(X, 3, seed=seeds[0])
    noise = np.hypot(tree.likelihood.alpha, float(tree.likelihood.scale))
    first = np.concatenate([scipy.stats.norm.cdf(s * f / noise) for s in (1.0, -1.0)], axis=-1)
    np.testing.assert_allclose(np.exp(functions[:3]), first, rtol=1e-4)
    second = scipy.special.softmax(softmax.sample_functions(X, 7, seed=seeds[1]), axis=-1)
    np.testing.assert_allclose(np.exp(functions[3:]), second, rtol=1e-4)


def test_functions_are_those_of_the_members(model, members):
    functions = model.sample_functions(X, 10, seed=4)
    assert functions.shape == (10, 50, 2)
    np.testing.assert_array_equal(functions, model.sample_functions(X, 10, seed=4))
    middle = [member.predict(X)["mean"] for member in members]
    errors = [np.abs(functions - each).mean(axis=(1, 2)) for each in middle]
    assert (errors[0][:3] < errors[1][:3]).all()
    assert (errors[1][3:] < errors[0][3:]).all()


@pytest.mark.slow
def test_it_is_saved_and_served(model, tmp_path):
    model.save(tmp_path / "m.keras")
    loaded = fns.load_model(tmp_path / "m.keras")
    expected = model.predict(X)
    np.testing.assert_array_equal(loaded.predict(X)["mean"], expected["mean"])
    model.export(tmp_path / "served")
    loaded = tf.saved_model.load(tmp_path / "served")
    served = loaded.serve(tf.constant(X, tf.float32))
    np.testing.assert_allclose(served["stddev"], expected["stddev"], rtol=1e-4)
    assert served["quantiles"].shape == (50, 2, 3)


@pytest.mark.slow
def test_probabilities_of_classes_are_averaged():
    members = [fitted(tagi, LABELS, 2), fitted(diwp, LABELS, 2)]
    model = stacking.StackedModel(members, WEIGHTS)
    each = [member.predict(X)["probabilities"] for member in members]
    expected = WEIGHTS[0] * each[0] + WEIGHTS[1] * each[1]
    found = model.predict(X)
    np.testing.assert_allclose(found["probabilities"], expected, atol=1e-5)
    entropy = -np.sum(expected * np.log(expected), axis=1)
    np.testing.assert_allclose(found["entropy"], entropy, atol=1e-5)
    log_prob = model.predict_distribution(X).log_prob(LABELS).numpy()
    np.testing.assert_allclose(log_prob, np.log(expected[np.arange(50), LABELS]), atol=1e-4)


@pytest.mark.parametrize("weights", [[0.5], [0.5, 0.6], [1.0, 0.0]])
def test_weights_that_are_none_are_refused(members, weights):
    with pytest.raises(ValueError, match="Received: "):
        stacking.StackedModel(members, weights)


def test_it_learns_no_more(model):
    with pytest.raises(ValueError, match="cannot be trained itself"):
        model.fit(X, Y)


def test_models_of_no_weight_are_not_fitted(members):
    asked = []

    def fit(k):
        asked.append(k)
        return members[k]

    densities = np.stack([np.full(9, -50.0), np.zeros(9)], axis=1)
    model, weights = stacking.stacked(fit, densities, least_weight=0.01)
    assert asked == [1]
    np.testing.assert_array_equal(weights, [0.0, 1.0])
    assert isinstance(model, keras.Model)
