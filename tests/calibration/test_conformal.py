"""Conformal intervals and sets: coverage, slow references, and models and estimators alike."""

import pickle

import keras
import numpy as np
import pytest
import toys
from linear_estimators import LinearClassifier, LinearRegressor
from scipy import stats
from sklearn.base import BaseEstimator
from sklearn.linear_model import BayesianRidge

import tfp_fnspace as fns
from tfp_fnspace import calibration
from tfp_fnspace.calibration.cross_conformal import folds

GENERATOR = np.random.default_rng(2)


def rows(num_rows, seed):
    """Draws rows whose noise grows with x, two columns."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.0, 1.0, size=(num_rows, 1))
    return x, np.hstack([x, -5.0 * x]) + (0.1 + x) * rng.standard_t(3.0, size=(num_rows, 2))


X, Y = rows(60, seed=0)
NEW, _ = rows(7, seed=1)


class Known(BaseEstimator):
    """A regressor with a mean and a standard deviation that are wrong."""

    def predict(self, X, return_std=False):
        return X[:, 0] ** 2, 0.3 + X[:, 0]


class KnownClasses(BaseEstimator):
    """A classifier with probabilities that are wrong."""

    classes_ = np.array([2, 3, 5])

    def predict_proba(self, X):
        logits = np.stack([X[:, 0], 1.0 - X[:, 0], np.full(len(X), 0.2)], axis=1)
        return np.exp(3.0 * logits) / np.exp(3.0 * logits).sum(axis=1, keepdims=True)


def linear():
    noise = fns.likelihoods.Gaussian([0.5, 1.0])
    model = toys.LinearModel(1, 2, noise, standardize=False, seed=0, dtype="float64")
    model.compile(run_eagerly=True)
    return model


# Split conformal --------------------------------------------------------------------------------


def test_coverage_is_exact_for_exchangeable_rows():
    """With 19 rows and level 0.9 the probability is 18 / 20. False once in a million seeds."""
    trials, covered = 3000, 0
    for seed in range(trials):
        x, y = rows(20, seed=100 + seed)
        found = calibration.SplitConformal(Known(), x[:19], y[:19, 0])
        low, high = found.interval(x[19:], level=0.9)
        covered += int(low[0] <= y[19, 0] <= high[0])
    assert stats.binomtest(covered, trials, 0.9).pvalue > 1e-6


def test_interval_of_a_model_is_a_quantile_of_its_scores():
    model = linear()
    conformal = calibration.SplitConformal(model, X, Y)
    found = model.predict(X)
    scores = np.sort(np.abs(Y - found["mean"]) / found["stddev"], axis=0)
    rank = int(np.ceil(61 * 0.8))
    new = model.predict(NEW)
    low, high = conformal.interval(NEW, level=0.8)
    np.testing.assert_allclose(low, new["mean"] - scores[rank - 1] * new["stddev"])
    np.testing.assert_allclose(high, new["mean"] + scores[rank - 1] * new["stddev"])
    again = pickle.loads(pickle.dumps(conformal))
    np.testing.assert_allclose(again.interval(NEW, level=0.8)[1], high, rtol=2e-6)  # float32


def test_factor_makes_the_interval_of_mean_and_stddev():
    model = linear()
    conformal = calibration.SplitConformal(model, X, Y)
    found, factor = model.predict(NEW, verbose=0), conformal.factor(0.8)
    assert factor.shape == (2,)
    low, high = conformal.interval(NEW, 0.8)
    np.testing.assert_allclose(low, found["mean"] - factor * found["stddev"], rtol=1e-6)
    np.testing.assert_allclose(high, found["mean"] + factor * found["stddev"], rtol=1e-6)


def test_missing_targets_have_no_score():
    inputs = keras.Input((1,))
    noise = fns.likelihoods.Gaussian(0.3)
    model = fns.tagi.TAGIModel(inputs, fns.tagi.Dense(2)(inputs), likelihood=noise, seed=0)
    model.compile(jit_compile=False)
    model.fit(X, Y, batch_size=20, verbose=0)
    y = Y.copy()
    y[20:, 1] = np.nan
    _, high = calibration.SplitConformal(model, X, y).interval(NEW)
    _, of_all = calibration.SplitConformal(model, X, Y).interval(NEW)
    _, of_some = calibration.SplitConformal(model, X[:20], Y[:20]).interval(NEW)
    np.testing.assert_allclose(high, np.stack([of_all[:, 0], of_some[:, 1]], axis=1))
    y[8:, 1] = np.nan
    with pytest.raises(ValueError, match="at least 9 held-out rows. Received: .* with 8 rows"):
        calibration.SplitConformal(model, X, y).interval(NEW)


def test_intervals_of_an_estimator_have_the_shape_of_y():
    for y in (Y, Y[:, 0]):
        regressor = LinearRegressor().fit(X, y)
        low, high = calibration.SplitConformal(regressor, X, y).interval(NEW)
        assert low.shape == high.shape == (7, *y.shape[1:])
        assert np.all(low < high)


# CV+ --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("groups", [None, np.arange(60) // 4])
def test_cross_conformal_is_that_of_a_double_loop(groups):
    y = Y[:, 0]
    conformal = calibration.CVPlus(BayesianRidge(), X, y, num_folds=4, groups=groups, seed=3)
    lower, upper = [], []
    for x in NEW:
        lows, highs = [], []
        for i in range(60):
            train = conformal.fold != conformal.fold[i]
            fitted = BayesianRidge().fit(X[train], y[train])
            (mean,), (stddev,) = fitted.predict(X[i : i + 1], return_std=True)
            score = abs(y[i] - mean) / stddev
            (mean,), (stddev,) = fitted.predict(x[np.newaxis], return_std=True)
            lows.append(mean - score * stddev)
            highs.append(mean + score * stddev)
        lower.append(sorted(lows)[int(np.floor(0.2 * 61)) - 1])
        upper.append(sorted(highs)[int(np.ceil(0.8 * 61)) - 1])
    low, high = conformal.interval(NEW, level=0.8)
    np.testing.assert_allclose(low, lower)
    np.testing.assert_allclose(high, upper)
    again = pickle.loads(pickle.dumps(conformal))
    np.testing.assert_array_equal(again.interval(NEW, level=0.8)[0], low)


def test_cross_conformal_takes_columns_of_targets_and_large_tables(monkeypatch):
    conformal = calibration.CVPlus(LinearRegressor(), X, Y, num_folds=3)
    low, high = conformal.interval(NEW)
    assert low.shape == high.shape == (7, 2)
    monkeypatch.setattr("tfp_fnspace.calibration.cross_conformal._CHUNK_NUMBERS", 240)
    for part, whole in zip(conformal.interval(NEW), (low, high), strict=True):
        np.testing.assert_array_equal(part, whole)


def test_folds_keep_groups_together():
    found = folds(12, 3, np.repeat(["b", "a", "c", "d"], 3), seed=0)
    assert set(found) == {0, 1, 2}
    assert all(len(set(found[i : i + 3])) == 1 for i in range(0, 12, 3))
    with pytest.raises(ValueError, match="`num_folds` must be at most.*num_folds=5 with 4"):
        folds(12, 5, np.repeat(range(4), 3), seed=0)
    with pytest.raises(ValueError, match="`groups` must have a label for each of the 12 rows"):
        folds(12, 3, np.zeros(11), seed=0)


# Sets of classes --------------------------------------------------------------------------------


def labels_of(x, rng):
    """Draws labels whose probabilities are not those of `KnownClasses`."""
    second = rng.random(len(x)) < 0.3 + 0.5 * x[:, 0]
    return np.where(second, 3, rng.choice([2, 5], size=len(x)))


def test_sets_have_the_scores_of_the_paper():
    y = labels_of(X, GENERATOR)
    conformal = calibration.AdaptiveSets(KnownClasses(), X, y, seed=4)
    uniform = np.random.default_rng([4, 0]).random(60)
    expected = []
    for p, u, label in zip(KnownClasses().predict_proba(X), uniform, y, strict=True):
        k = [2, 3, 5].index(label)
        expected.append(sum(q for q in p if q > p[k]) + u * p[k])
    np.testing.assert_allclose(conformal.scores, expected)
    threshold = sorted(expected)[int(np.ceil(61 * 0.7)) - 1]
    uniform = np.random.default_rng([4, 1]).random(7)
    sets = conformal.sets(NEW, level=0.7)
    for p, u, chosen in zip(KnownClasses().predict_proba(NEW), uniform, sets, strict=True):
        for k in range(3):
            score = sum(q for q in p if q > p[k]) + u * p[k]
            assert chosen[k] == (score <= threshold or p[k] == max(p))


def test_sets_cover():
    """With 19 rows and level 0.8 the probability is at least 16 / 20. False once in a million."""
    trials, covered = 2000, 0
    for seed in range(trials):
        rng = np.random.default_rng(seed)
        x = rng.random((20, 1))
        y = labels_of(x, rng)
        conformal = calibration.AdaptiveSets(KnownClasses(), x[:19], y[:19], seed=seed)
        covered += conformal.sets(x[19:], level=0.8)[0, [2, 3, 5].index(y[19])]
    assert stats.binomtest(int(covered), trials, 0.8, alternative="less").pvalue > 1e-6
    assert covered < 0.95 * trials  # the sets are not all classes


def test_sets_of_models_and_estimators_are_the_same():
    words = np.array(["a", "b", "c"])[labels := np.digitize(X[:, 0], [0.3, 0.7])]
    estimator = LinearClassifier().fit(X, words)
    ours = calibration.AdaptiveSets(estimator, X, words).sets(NEW)
    theirs = calibration.AdaptiveSets(estimator.model_, X, labels).sets(NEW)
    np.testing.assert_array_equal(ours, theirs)
    assert ours.shape == (7, 3) and ours.any(axis=1).all()


# Errors -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [0.0, 1.0, 90, "0.9", None])
def test_levels_that_are_none_are_refused(level):
    conformal = calibration.SplitConformal(Known(), X, Y[:, 0])
    with pytest.raises(ValueError, match="`level` must lie strictly between 0 and 1. Received: "):
        conformal.interval(NEW, level=level)


def test_a_level_needs_enough_rows():
    conformal = calibration.SplitConformal(Known(), X, Y[:, 0])
    with pytest.raises(ValueError, match="at least 99 held-out rows. Received: level=0.99 with 60"):
        conformal.interval(NEW, level=0.99)
    for few, level in ((9, 0.9), (19, 0.95), (4, 0.8)):  # products that floats round up
        calibration.SplitConformal(Known(), X[:few], Y[:few, 0]).interval(NEW, level)


def test_infinite_standard_deviations_are_refused():
    noise = fns.likelihoods.StudentT(2.0, [0.5, 1.0])
    model = toys.LinearModel(1, 2, noise, standardize=False, seed=0, dtype="float64")
    with pytest.raises(ValueError, match="more than 2 degrees of freedom. Received: 120 that"):
        calibration.SplitConformal(model, X, Y)


def test_other_models_are_refused():
    with pytest.raises(ValueError, match="`AdaptiveSets` is for classes. Received: a classifier"):
        calibration.SplitConformal(LinearClassifier().fit(X, X[:, 0] > 0.5), X, X[:, 0] > 0.5)
    with pytest.raises(ValueError, match="`SplitConformal` is for regressions. Received: a regres"):
        calibration.AdaptiveSets(linear(), X, Y)
    with pytest.raises(TypeError, match="must be a FunctionSpaceModel"):
        calibration.SplitConformal(keras.Sequential(), X, Y)
    with pytest.raises(TypeError, match="`estimator` must be a regressor of scikit-learn"):
        calibration.CVPlus(linear(), X, Y)
    with pytest.raises(ValueError, match="`y` must be finite. Received: y with 1 values"):
        calibration.SplitConformal(Known(), X, np.append(Y[:-1, 0], np.nan))
    with pytest.raises(ValueError, match=r"must have shape \(60, 1\).*y of shape \(59,\)"):
        calibration.SplitConformal(Known(), X, Y[:-1, 0])
