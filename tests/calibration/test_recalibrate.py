"""Maps of predicted probabilities, fitted to held-out rows."""

import numpy as np
import pytest
import toys
from conftest import check_mean_close, check_variance_close
from linear_estimators import LinearRegressor
from scipy import stats

import tfp_fnspace as fns
from tfp_fnspace import calibration

GENERATOR = np.random.default_rng(1)


def rows(num_rows):
    """Draws rows of a line with skewed noise in the first column."""
    x = GENERATOR.uniform(-1.0, 1.0, size=(num_rows, 1))
    skewed = GENERATOR.exponential(size=(num_rows, 1)) - 1.0
    return x, np.hstack([2.0 * x + skewed, 10.0 * GENERATOR.normal(size=(num_rows, 1))])


X, Y = rows(500)
NEW_X, NEW_Y = rows(1000)


@pytest.fixture(scope="module", params=["one Gaussian", "mixture"])
def model(request):
    """Returns a model of Gaussian noise, too wide in one column and too narrow in the other."""
    noise = fns.likelihoods.Gaussian([1.5, 5.0])
    draws = request.param == "mixture"
    model = toys.LinearModel(1, 2, noise, draws=draws, standardize=False, seed=0, dtype="float64")
    model.num_eval_samples = 8 if draws else 1
    model.mean.assign([[0.0, 2.0], [0.0, 0.0]])
    model.raw.assign(-2.0 * np.eye(2) + np.zeros((2, 2, 2)))
    return model


@pytest.fixture(scope="module")
def recalibrated(model):
    return calibration.recalibrate(model, X, Y)


def test_knots_are_sorted_transforms(model, recalibrated):
    before = fns.metrics.pit(Y, model.predict_distribution(X)).numpy()
    levels, values = recalibrated.adjustment.levels, recalibrated.adjustment.values
    assert levels.shape == (51, 2)  # pieces of ten rows
    ranks = np.round(np.arange(1, 50) * 501 / 50).astype(int)
    np.testing.assert_allclose(levels[1:-1], np.sort(before, axis=0)[ranks - 1])
    np.testing.assert_allclose(values[1:-1], np.stack([ranks, ranks], axis=1) / 501)
    after = fns.metrics.pit(Y, recalibrated.predict_distribution(X)).numpy()
    np.testing.assert_allclose(np.sort(after, axis=0)[ranks - 1], values[1:-1], atol=1e-9)


@pytest.mark.slow
def test_transforms_of_new_rows_are_uniform(model, recalibrated):
    """The map itself has a statistical error, as a sample of 500 rows has: a two-sample test."""
    before, after = (
        fns.metrics.pit(NEW_Y, each.predict_distribution(NEW_X)).numpy()
        for each in (model, recalibrated)
    )
    reference = (np.arange(500) + 0.5) / 500
    for d in range(2):
        assert stats.ks_2samp(before[:, d], reference).pvalue < 1e-6
        # False once in 10,000 seeds, for each of two columns.
        assert stats.ks_2samp(after[:, d], reference).pvalue > 1e-4
    better = recalibrated.evaluate(NEW_X, NEW_Y, verbose=0, return_dict=True)
    worse = model.evaluate(NEW_X, NEW_Y, verbose=0, return_dict=True)
    assert better["nll"] < worse["nll"] and better["crps"] < worse["crps"]
    assert abs(better["coverage_90"] - 0.9) < 0.03 < abs(worse["coverage_90"] - 0.9)


def test_moments_add_up_and_are_those_of_the_distribution(model, recalibrated):
    found, distribution = recalibrated.predict(X), recalibrated.predict_distribution(X)
    np.testing.assert_allclose(found["mean"], distribution.mean(), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found["stddev"], distribution.stddev(), rtol=1e-6)
    total = np.square(found["epistemic_stddev"]) + np.square(found["aleatoric_stddev"])
    np.testing.assert_allclose(np.square(found["stddev"]), total)
    before = model.predict(X)
    for name in ("epistemic_stddev", "aleatoric_stddev"):
        share = np.divide(found[name], found["stddev"])
        np.testing.assert_allclose(share, before[name] / before["stddev"])


def test_functions_keep_their_distances(model, recalibrated):
    if model.num_eval_samples > 1:
        pytest.skip("the member predicts from 8 draws, whose moments are not those of others")
    functions = recalibrated.sample_functions(X[:3], 4000, seed=1)
    found = recalibrated.predict(X[:3])
    check_mean_close(functions, found["mean"])
    check_variance_close(functions, np.square(found["epistemic_stddev"]))


def test_equal_transforms_are_one_knot():
    regressor = LinearRegressor().fit(X, Y[:, 0])
    x, y = np.repeat(X[:2], 20, axis=0), np.repeat(Y[:2, 0], 20)
    adjustment = calibration.recalibrate(regressor, x, y).model_.adjustment
    assert adjustment.levels.shape == (4, 1)
    transforms = fns.metrics.pit(Y[:2, :1], regressor.predict_distribution(X[:2])).numpy()
    np.testing.assert_allclose(adjustment.levels[1:-1, 0], np.sort(transforms[:, 0]), rtol=1e-6)


def test_errors(model):
    with pytest.raises(ValueError, match="at least 20 observed values.*Received: a column of 19"):
        calibration.recalibrate(model, X[:19], Y[:19])
    with pytest.raises(ValueError, match="must rise from 0 to 1 in each column. Received: levels="):
        calibration.Recalibration([[0.0], [0.5], [0.4], [1.0]], [[0.0], [0.3], [0.6], [1.0]])
    with pytest.raises(ValueError, match="a row for each knot.*Received: shapes"):
        calibration.Recalibration([0.0, 1.0], [0.0, 1.0])
