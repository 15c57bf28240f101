"""The stacked estimators on real recipes."""

import pickle

import numpy as np
import pytest

from tfp_fnspace import trials
from tfp_fnspace.sklearn import FunctionSpaceClassifier, FunctionSpaceRegressor


def rows(seed):
    """Draws 150 rows of a smooth function of one of two inputs, with noise."""
    generator = np.random.default_rng(seed)
    x = generator.uniform(-2.0, 2.0, size=(150, 2))
    return x, 20.0 + 3.0 * np.sin(2.0 * x[:, :1]) + 0.3 * generator.normal(size=(150, 1))


X, COLUMN = rows(seed=0)
Y = COLUMN[:, 0]


@pytest.mark.slow
def test_regressor_is_no_worse_than_the_best_that_it_tried():
    regressor = FunctionSpaceRegressor(time_limit=20.0, random_state=0).fit(X, Y)
    board = regressor.leaderboard_
    assert {"diwp", "tagi"} <= {each["method"] for each in board}
    assert sum(each["weight"] for each in board) == pytest.approx(1.0)
    best = max(each["log_density"] for each in board)
    new = trials.Table(*rows(seed=1))
    assert trials.Scored(regressor.model_).log_density(new).mean() > best - 0.1
    low, high = regressor.predict_quantiles(X, [0.05, 0.95]).T
    assert 0.8 < np.mean((low <= Y) & (high >= Y)) <= 1.0
    other = pickle.loads(pickle.dumps(regressor))
    np.testing.assert_array_equal(other.predict(X), regressor.predict(X))


@pytest.mark.slow
def test_classifier_finds_classes_and_its_model_is_one():
    labels = np.where(Y > 20.0, "above", "below")
    classifier = FunctionSpaceClassifier(time_limit=15.0, random_state=0).fit(X, labels)
    assert classifier.score(X, labels) > 0.9
    probabilities = classifier.predict_proba(X)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, atol=1e-6)
    found = classifier.model_.predict(X)["probabilities"]
    np.testing.assert_allclose(probabilities, found, atol=1e-6)
