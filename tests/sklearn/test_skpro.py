"""Our estimators in skpro: its distributions, metrics, tuning and own checks."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy import stats
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import KFold
from skpro.benchmarking.evaluate import evaluate
from skpro.metrics import CRPS, LogLoss
from skpro.utils import check_estimator

import tfp_fnspace as fns
from tfp_fnspace.sklearn import TAGIRegressor
from tfp_fnspace.sklearn.skpro import SkproRegressor

RNG = np.random.default_rng(0)
X = pd.DataFrame(
    {"a": RNG.normal(size=80), "b": RNG.normal(size=80), "c": pd.Categorical(["u", "v"] * 40)},
    index=[f"row {i}" for i in range(80)],
)
Y = pd.DataFrame({"y": np.sin(X["a"]) + 0.1 * RNG.normal(size=80), "z": 50.0 + 3.0 * X["b"]})
LEVELS = [0.05, 0.5, 0.9]


def estimator():
    return TAGIRegressor(time_limit=1.0, random_state=0)


@pytest.fixture(scope="module")
def fitted():
    return SkproRegressor(estimator()).fit(X, Y)


@pytest.mark.slow
def test_distribution_is_that_of_the_estimator(fitted):
    found = fitted.predict_proba(X)
    moments = fitted.estimator_.predict_moments(X)
    assert list(found.index) == list(X.index) and list(found.columns) == ["y", "z"]
    assert_allclose(found.mean(), moments["mean"], rtol=1e-5)
    assert_allclose(np.sqrt(found.var()), moments["stddev"], rtol=1e-5)
    assert_allclose(fitted.predict(X), moments["mean"], rtol=1e-5)
    quantiles = fitted.predict_quantiles(X, alpha=LEVELS)
    expected = fitted.estimator_.predict_quantiles(X, LEVELS)
    assert quantiles.columns.tolist() == [(name, level) for name in "yz" for level in LEVELS]
    assert_allclose(quantiles, expected.reshape(80, 6), rtol=1e-4, atol=1e-4)
    interval = fitted.predict_interval(X, coverage=0.9)
    assert_allclose(interval["y"][0.9]["lower"], quantiles["y"][0.05], rtol=1e-5, atol=1e-5)


def test_functions_of_the_distribution_are_those_of_scipy(fitted):
    """TAGI's prediction with constant noise is Gaussian."""
    found = fitted.predict_proba(X)
    normal = stats.norm(found.mean().to_numpy(), np.sqrt(found.var()).to_numpy())
    assert type(found.distribution.distribution).__name__.startswith("Normal")
    assert_allclose(found.pdf(Y.set_axis(X.index)), normal.pdf(Y), rtol=1e-3)
    assert_allclose(found.log_pdf(Y.set_axis(X.index)), normal.logpdf(Y), rtol=1e-3, atol=1e-4)
    assert_allclose(found.cdf(Y.set_axis(X.index)), normal.cdf(Y), rtol=1e-3, atol=1e-5)
    levels = RNG.uniform(0.05, 0.95, size=Y.shape)
    assert_allclose(found.ppf(levels), normal.ppf(levels), rtol=1e-4, atol=1e-4)


def test_parts(fitted):
    found = fitted.predict_proba(X)
    mean = found.mean()
    assert_allclose(found.iloc[[3, 1]].mean(), mean.iloc[[3, 1]])
    assert_allclose(found.loc[["row 5"], ["z"]].mean(), mean.loc[["row 5"], ["z"]])
    assert found.loc["row 5", "z"].mean() == pytest.approx(mean.loc["row 5", "z"])
    assert found.iat[2, 0].cdf(found.iat[2, 0].mean()) == pytest.approx(0.5, abs=1e-4)
    part = found.iloc[4:9].iloc[[2], [1]]
    assert list(part.index) == ["row 6"] and list(part.columns) == ["z"]
    assert_allclose(part.var(), found.var().iloc[[6], [1]])


def test_samples_have_the_distribution(fitted):
    found = fitted.predict_proba(X.iloc[:2])
    np.random.seed(0)
    draws = found.sample(400).to_numpy().reshape(400, 2, 2)
    standard = (draws - found.mean().to_numpy()) / np.sqrt(found.var()).to_numpy()
    assert stats.kstest(standard.ravel(), "norm").pvalue > 1e-6


@pytest.mark.slow
def test_scores_are_ours(fitted):
    found, truth = fitted.predict_proba(X), Y.set_axis(X.index)
    nll, crps = (f(Y.to_numpy(), found.distribution) for f in (fns.metrics.nll, fns.metrics.crps))
    assert_allclose(LogLoss()(truth, found), nll / 2, rtol=1e-4)  # ours is of a row of two columns
    # skpro's CRPS is an estimate by draws where it knows no closed form of the energy.
    np.random.seed(0)
    assert_allclose(CRPS()(truth, found), crps, rtol=0.05)


@pytest.mark.slow
def test_evaluation_by_skpro():
    scores = evaluate(
        SkproRegressor(estimator()), KFold(2), X, Y[["y"]].set_axis(X.index), scoring=LogLoss()
    )
    assert len(scores) == 2 and np.all(scores["test_LogLoss"] < 1.5)


@pytest.mark.exhaustive
def test_checks_of_skpro():
    results = check_estimator(SkproRegressor, raise_exceptions=False)
    failed = {name: result for name, result in results.items() if result != "PASSED"}
    assert failed == {}


def test_other_estimators_are_refused():
    with pytest.raises(TypeError, match="`estimator` must be a regressor of `tfp_fnspace.sklearn`"):
        SkproRegressor(LinearRegression()).fit(X[["a"]], Y[["y"]])
