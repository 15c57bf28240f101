"""Histograms for ScoringBench have the scores of the distributions that they stand for."""

import numpy as np
import pytest
from linear_estimators import LinearRegressor
from sklearn.linear_model import LinearRegression

from tfp_fnspace import metrics
from tfp_fnspace.sklearn.scoringbench import ScoringBenchRegressor

GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(80, 3))
Y = X @ [1.0, -2.0, 0.5] + 0.3 * GENERATOR.normal(size=80)


@pytest.fixture(scope="module")
def fitted():
    return ScoringBenchRegressor(LinearRegressor(random_state=0)).fit(X, Y)


def crps_of_histograms(found, y):
    """Returns `integral of (F(t) - [y <= t])^2 dt` of each row, on a fine grid of t."""
    values = []
    for masses, edges, target in zip(found.probas, found.bin_edges, y, strict=True):
        t = np.linspace(min(edges[0], target) - 0.1, max(edges[-1], target) + 0.1, 40001)
        below = np.interp(t, edges, np.concatenate([[0.0], np.cumsum(masses)]))
        values.append(np.sum((below - (target <= t)) ** 2) * (t[1] - t[0]))
    return np.array(values)


def test_histograms_have_the_scores_of_the_distributions(fitted):
    found, exact = fitted.predict_distribution(X), fitted.estimator_.predict_distribution(X)
    assert found.probas.shape == found.bin_midpoints.shape == (80, 200)
    assert found.bin_edges.shape == (80, 201)
    np.testing.assert_allclose(found.probas.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(found.mean, fitted.estimator_.predict(X))
    crps = metrics.crps(Y[:, np.newaxis], exact)
    np.testing.assert_allclose(np.mean(crps_of_histograms(found, Y)), np.mean(crps), rtol=2e-3)
    # The density of the bin of the target, as ScoringBench computes its log score.
    place = np.array([np.searchsorted(e[1:], t) for e, t in zip(found.bin_edges, Y, strict=True)])
    rows = np.arange(len(Y))
    density = (found.probas / np.diff(found.bin_edges, axis=1))[rows, place]
    log_prob = exact.log_prob(Y[:, np.newaxis]).numpy()
    np.testing.assert_allclose(np.log(density), log_prob, atol=0.1)
    np.testing.assert_allclose(np.mean(np.log(density)), np.mean(log_prob), atol=0.01)


def test_each_fit_is_a_new_estimator(fitted):
    given = fitted.estimator
    assert fitted.estimator_ is not given and not hasattr(given, "model_")
    np.testing.assert_array_equal(fitted.predict(X), fitted.estimator_.predict(X))


def test_what_is_no_regressor_of_ours_is_refused():
    with pytest.raises(TypeError, match="`estimator` must be a regressor of `tfp_fnspace"):
        ScoringBenchRegressor(LinearRegression())
    with pytest.raises(ValueError, match="`num_bins` must be a positive"):
        ScoringBenchRegressor(num_bins=0)
