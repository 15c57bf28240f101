"""Estimators follow scikit-learn's rules, and its tools accept them as they are."""

import copy
import doctest
import importlib
import inspect
import io
import pickle
import sys
import zipfile

import check_estimators
import crepes
import joblib
import numpy as np
import pandas as pd
import pytest
import sklearn
from conftest import check_mean_close, check_variance_close
from linear_estimators import LinearClassifier, LinearRegressor
from mapie.classification import SplitConformalClassifier
from mapie.regression import CrossConformalRegressor, SplitConformalRegressor
from scipy import stats
from sklearn import datasets, linear_model
from sklearn.base import clone
from sklearn.ensemble import StackingRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.inspection import permutation_importance
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from tfp_fnspace import sklearn as estimators

REGRESSORS = ["TAGI", "StableProcess", "FBNN", "SIP", "DIWP"]
CLASSIFIERS = ["TAGI", "FBNN", "DIWP"]


def make_rows(num_rows=80, num_inputs=3, num_outputs=None, seed=0):
    """Draws rows of a linear function with noise 0.3."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(num_rows, num_inputs))
    weights = rng.normal(size=(num_inputs, num_outputs or 1))
    y = 2.0 + x @ weights + 0.3 * rng.normal(size=(num_rows, num_outputs or 1))
    return x, y if num_outputs else y[:, 0]


X, Y = make_rows()
LABELS = np.where(X[:, 0] + 0.3 * X[:, 1] > 0, "yes", "no")


@pytest.fixture(scope="module")
def tagi():
    """Returns a real estimator that is fitted quickly."""
    return estimators.TAGIRegressor(time_limit=0.01, random_state=0).fit(X, Y)


# scikit-learn's own checks ----------------------------------------------------------------------


@parametrize_with_checks([LinearRegressor(), LinearClassifier()])
def test_base_classes_pass_the_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@pytest.mark.parametrize("check", check_estimators.OF_THE_RECIPE)
def test_tagi_passes_the_checks_of_its_recipe(check):
    failed = check_estimators.failures(estimators.TAGIRegressor(time_limit=0.01), [check])
    assert failed == {}


def test_estimators_are_a_method_and_their_arguments():
    names = {f"{name}Regressor" for name in REGRESSORS} | {f"{n}Classifier" for n in CLASSIFIERS}
    assert names <= set(estimators.__all__)
    for name in names:
        given = {"time_limit": 5.0, "random_state": 3, "verbose": 1}
        if name.endswith("Classifier"):
            given["class_weight"] = "balanced"
        estimator = getattr(estimators, name)(**given)
        assert estimator.get_params() == given
        assert clone(estimator).get_params() == estimator.get_params()
        importlib.import_module(f"tfp_fnspace.methods.{estimator.method}.recipe")
    with pytest.raises(TypeError, match="positional"):
        estimators.TAGIRegressor(60.0)


# What is predicted ------------------------------------------------------------------------------


def least_squares(x, y):
    """Returns mean and standard deviation of an observation at each row, by textbook formulas."""
    rows = np.hstack([np.ones((len(x), 1)), x])
    mean = rows @ np.linalg.lstsq(rows, y, rcond=None)[0]
    variance = np.mean((y - mean) ** 2, axis=0)
    leverage = np.sum((rows @ np.linalg.inv(rows.T @ rows)) * rows, axis=1)
    return mean, np.sqrt(variance * (1.0 + leverage.reshape(-1, *[1] * (y.ndim - 1))))


@pytest.mark.parametrize("num_outputs", [None, 2])
def test_predictions_have_the_shape_of_y(num_outputs):
    x, y = make_rows(num_outputs=num_outputs)
    fitted = LinearRegressor().fit(x, y)
    mean, stddev = fitted.predict(x, return_std=True)
    expected = least_squares(x, y)
    np.testing.assert_allclose(mean, expected[0], rtol=1e-5)
    np.testing.assert_allclose(stddev, expected[1], rtol=0.01)  # the noise has a floor of 0.001
    np.testing.assert_array_equal(fitted.predict(x), mean)
    levels = [0.05, 0.5, 0.95]
    quantiles = fitted.predict_quantiles(x, levels)
    exact = mean[..., np.newaxis] + stddev[..., np.newaxis] * stats.norm.ppf(levels)
    np.testing.assert_allclose(quantiles, exact, rtol=1e-5)
    np.testing.assert_allclose(fitted.predict_quantiles(x, 0.05), exact[..., 0], rtol=1e-5)
    draws = fitted.sample_y(x, 2000)
    assert draws.shape == (*y.shape, 2000)
    check_mean_close(np.moveaxis(draws, -1, 0), mean)
    check_variance_close(np.moveaxis(draws, -1, 0), stddev**2)
    np.testing.assert_array_equal(fitted.sample_y(x, 2000, random_state=0), draws)
    assert np.all(fitted.sample_y(x, random_state=1)[..., 0] != draws[..., 0])
    density = fitted.predict_distribution(x).log_prob(y.reshape(len(y), -1)).numpy()
    exact = stats.norm.logpdf(y, mean, stddev).reshape(len(y), -1).sum(axis=1)
    np.testing.assert_allclose(density, exact, rtol=1e-5)
    explained = 1.0 - np.mean((y - mean) ** 2, axis=0) / np.var(y, axis=0)
    assert fitted.score(x, y) == pytest.approx(np.mean(explained))


def test_classes_are_the_labels():
    fitted = LinearClassifier().fit(X, LABELS)
    assert fitted.classes_.tolist() == ["no", "yes"]
    probabilities = fitted.predict_proba(X)
    np.testing.assert_array_equal(fitted.predict(X) == "yes", probabilities[:, 1] > 0.5)
    assert fitted.score(X, LABELS) > 0.9
    np.testing.assert_allclose(
        fitted.predict_distribution(X).probs_parameter().numpy(), probabilities, rtol=1e-5
    )
    with pytest.raises(ValueError, match=r"two classes. Received: y with 1 classes, \['a'\]"):
        LinearClassifier().fit(X, ["a"] * len(X))


def test_settings_are_those_of_the_recipe(capsys):
    fitted = LinearRegressor(time_limit=7, random_state=5, verbose=1).fit(X, Y)
    assert fitted.settings_ == {
        "seed": np.random.RandomState(5).randint(2**31 - 1),
        "batch_size": 20,
        "time_limit": 7.0,
    }
    printed = capsys.readouterr().out
    assert " 50% half" in printed and "100% done" in printed and printed.endswith("\n")
    LinearRegressor().fit(X, Y)
    assert capsys.readouterr().out == ""
    with pytest.raises(ValueError, match="`time_limit` must be a positive.*Received: time_limit=0"):
        LinearRegressor(time_limit=0).fit(X, Y)


def test_weights_reach_the_recipe():
    weights = np.linspace(0.0, 2.0, len(X))
    expected = linear_model.LinearRegression().fit(X, Y, weights).predict(X)
    found = LinearRegressor().fit(X, Y, weights).predict(X)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    with sklearn.config_context(enable_metadata_routing=True):
        routed = LinearRegressor().set_fit_request(sample_weight=True)
        pipeline = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), routed)
        found = pipeline.fit(X, Y, sample_weight=weights).predict(X)
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_rows_of_weight_zero_are_no_rows():
    weights = np.where(np.arange(len(X)) % 3, 1.5, 0.0)
    kept = weights > 0.0
    ours = LinearRegressor().fit(X, Y, weights)
    theirs = LinearRegressor().fit(X[kept], Y[kept], weights[kept])
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))
    labels = np.where(kept, LABELS, "only without weight")
    classifier = LinearClassifier().fit(X, labels, weights)
    np.testing.assert_array_equal(classifier.classes_, np.unique(LABELS[kept]))
    with pytest.raises(ValueError, match=r"`sample_weight` must be positive in at least 2 rows"):
        LinearRegressor().fit(X, Y, np.arange(len(X)) == 0)


@pytest.mark.parametrize(
    "name",
    [
        "TAGIRegressor",
        pytest.param("DIWPRegressor", marks=pytest.mark.slow),
        pytest.param("StableProcessRegressor", marks=pytest.mark.slow),
        pytest.param("FunctionSpaceRegressor", marks=pytest.mark.slow),
    ],
)
def test_an_estimator_predicts_the_weighted_mean(name):
    """Each x has the targets 0 and 1, whose weights are 9 and 1."""
    x = np.repeat(np.linspace(-1.0, 1.0, 15), 2)[:, np.newaxis]
    y = np.tile([0.0, 1.0], 15)
    weights = np.where(y, 1.0, 9.0)
    found = {}
    for key, given in {"weighted": weights, "plain": None}.items():
        estimator = getattr(estimators, name)(time_limit=0.5, random_state=0)
        found[key] = np.mean(estimator.fit(x, y, sample_weight=given).predict(x))
    assert found["plain"] == pytest.approx(0.5, abs=0.1)
    assert found["weighted"] == pytest.approx(0.1, abs=0.07)
    weighted_score = estimator.score(x, y, sample_weight=weights)
    assert weighted_score < estimator.score(x, y) - 0.5


WEIGHTS_OF_CLASSES = [
    ({"yes": 3.0}, np.where(LABELS == "yes", 3.0, 1.0)),
    (
        "balanced",
        np.where(LABELS == "yes", 0.5 / np.mean(LABELS == "yes"), 0.5 / np.mean(LABELS == "no")),
    ),
]


@pytest.mark.parametrize(("class_weight", "weights"), WEIGHTS_OF_CLASSES)
def test_weights_of_classes_are_weights_of_rows(class_weight, weights):
    found = (
        LinearClassifier(class_weight=class_weight, random_state=0).fit(X, LABELS).predict_proba(X)
    )
    expected = LinearClassifier(random_state=0).fit(X, LABELS, weights).predict_proba(X)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert np.max(np.abs(found - LinearClassifier().fit(X, LABELS).predict_proba(X))) > 0.01


def test_weights_of_classes_count_copies_of_rows():
    copies = np.random.default_rng(0).integers(0, 4, len(X))
    balanced = LinearClassifier(class_weight="balanced", random_state=0)
    weighted = clone(balanced).fit(X, LABELS, copies)
    repeated = clone(balanced).fit(np.repeat(X, copies, axis=0), np.repeat(LABELS, copies))
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), rtol=1e-5)


def test_first_partial_fit_with_weights_of_classes_is_fit():
    weighted = LinearClassifier(class_weight={"yes": 3.0}, random_state=0)
    first = clone(weighted).partial_fit(X, LABELS, classes=["no", "yes"])
    expected = weighted.fit(X, LABELS).predict_proba(X)
    np.testing.assert_array_equal(first.predict_proba(X), expected)


@pytest.mark.slow
def test_partial_fit_learns_with_weights_of_classes():
    fitted = {}
    for weight in (1.0, 20.0):
        tagi = estimators.TAGIClassifier(time_limit=0.01, random_state=0).fit(X, LABELS)
        tagi.set_params(class_weight={"yes": weight}).partial_fit(X, LABELS)
        fitted[weight] = np.mean(tagi.predict_proba(X)[:, 1])
    assert fitted[20.0] > fitted[1.0] + 0.03


def test_bad_weights_of_classes():
    message = r"`class_weight\['no'\]` must be a positive.*Received: class_weight\['no'\]=-1"
    with pytest.raises(ValueError, match=message):
        LinearClassifier(class_weight={"no": -1.0}).fit(X, LABELS)
    with pytest.raises(ValueError, match="not in class_weight"):
        LinearClassifier(class_weight={"maybe": 2.0}).fit(X, LABELS)
    with pytest.raises(ValueError, match='dict or None for `partial_fit`.*"balanced"'):
        LinearClassifier(class_weight="balanced").partial_fit(X, LABELS)


# TAGI goes on -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_partial_fit_goes_on(tagi):
    online = copy.deepcopy(tagi)
    x, y = make_rows(200)
    before, steps = online.score(x, y), online.model_.counters.steps.numpy()
    for start in range(0, 200, 40):
        online.partial_fit(x[start : start + 40], y[start : start + 40])
    assert online.model_.counters.steps.numpy() == steps + 5 * 40 / online.settings_["batch_size"]
    assert online.score(x, y) > before


def test_first_partial_fit_is_fit():
    first = LinearRegressor().partial_fit(X, Y)
    np.testing.assert_array_equal(first.predict(X), LinearRegressor().fit(X, Y).predict(X))
    classes = ["maybe", "no", "yes"]
    classifier = LinearClassifier().partial_fit(X, LABELS, classes=classes)
    assert classifier.classes_.tolist() == classes
    assert classifier.partial_fit(X, LABELS).predict_proba(X).shape == (len(X), 3)
    with pytest.raises(ValueError, match=r"labels of `classes`.*Received: y with \['perhaps'\]"):
        classifier.partial_fit(X[:1], ["perhaps"])


# Copies -----------------------------------------------------------------------------------------


def test_pickles_hold_keras_files(tagi, tmp_path):
    assert zipfile.is_zipfile(io.BytesIO(tagi.__getstate__()["model_"]))
    joblib.dump(tagi, tmp_path / "tagi.joblib")
    copies = [pickle.loads(pickle.dumps(tagi)), copy.deepcopy(tagi)]
    for other in [*copies, joblib.load(tmp_path / "tagi.joblib")]:
        assert other.model_ is not tagi.model_
        np.testing.assert_array_equal(other.predict(X), tagi.predict(X))
        assert other.settings_ == tagi.settings_
    unfitted = pickle.loads(pickle.dumps(estimators.TAGIRegressor(time_limit=3.0)))
    assert unfitted.get_params() == estimators.TAGIRegressor(time_limit=3.0).get_params()


@pytest.mark.slow
def test_two_processes(tagi):
    one, two = (cross_val_score(LinearRegressor(), X, Y, cv=2, n_jobs=jobs) for jobs in (1, 2))
    np.testing.assert_allclose(one, two)
    found = joblib.Parallel(2)(joblib.delayed(tagi.predict)(part) for part in (X[:40], X[40:]))
    np.testing.assert_allclose(np.concatenate(found), tagi.predict(X), rtol=1e-5)


# scikit-learn's tools ---------------------------------------------------------------------------


def test_tools_of_scikit_learn():
    plain = linear_model.LinearRegression()
    np.testing.assert_allclose(
        cross_val_score(LinearRegressor(), X, Y), cross_val_score(plain, X, Y), rtol=1e-5
    )
    np.testing.assert_allclose(
        cross_val_predict(LinearRegressor(), X, Y), cross_val_predict(plain, X, Y), rtol=1e-5
    )
    drops = [
        permutation_importance(model.fit(X, Y), X, Y, n_repeats=2, random_state=0).importances
        for model in (LinearRegressor(), plain)
    ]
    np.testing.assert_allclose(*drops, rtol=1e-4)
    stacked = StackingRegressor([("ours", LinearRegressor()), ("theirs", plain)]).fit(X, Y)
    assert stacked.score(X, Y) > 0.9


def test_grid_of_a_pipeline_of_frames():
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    pipeline = make_pipeline(PolynomialFeatures(include_bias=False), LinearRegressor())
    pipeline.set_output(transform="pandas")
    grid = {"polynomialfeatures__degree": [1, 2], "linearregressor__time_limit": [1.0]}
    y = X[:, 0] * X[:, 1]
    search = GridSearchCV(pipeline, grid, cv=2).fit(frame, y)
    assert search.best_params_["polynomialfeatures__degree"] == 2
    assert search.best_estimator_[-1].feature_names_in_.tolist()[:3] == ["a", "b", "c"]
    assert search.score(frame, y) > 0.99


def test_conformal_wrappers():
    x, y = make_rows(480)
    train, calibration, rest = slice(80), slice(80, 280), slice(280, 480)
    split = SplitConformalRegressor(LinearRegressor(), confidence_level=0.9, prefit=False)
    split.fit(x[train], y[train]).conformalize(x[calibration], y[calibration])
    cross = CrossConformalRegressor(LinearRegressor(), confidence_level=0.9, cv=3)
    cross.fit_conformalize(x[calibration], y[calibration])
    wrapped = crepes.WrapRegressor(LinearRegressor())
    wrapped.fit(x[train], y[train])
    wrapped.calibrate(x[calibration], y[calibration])
    intervals = [model.predict_interval(x[rest])[1][:, :, 0] for model in (split, cross)]
    intervals.append(wrapped.predict_int(x[rest], confidence=0.9))
    for low, high in [part.T for part in intervals]:
        # Each end is off by 0.03, for 200 rows to calibrate and 200 to count.
        assert 0.8 < np.mean((low <= y[rest]) & (y[rest] <= high)) < 0.98


@pytest.mark.slow
def test_tools_take_an_estimator_with_its_recipe():
    """The tests above are about our base classes; here a recipe chooses and fits."""
    x, y = make_rows(300)
    train, rest = slice(150), slice(150, 300)
    tagi = estimators.TAGIRegressor(time_limit=2.0, random_state=0)
    wrapped = crepes.WrapRegressor(clone(tagi))
    wrapped.fit(x[:75], y[:75])
    wrapped.calibrate(x[75:150], y[75:150])
    split = SplitConformalRegressor(clone(tagi), confidence_level=0.9, prefit=False)
    split.fit(x[:75], y[:75]).conformalize(x[75:150], y[75:150])
    for low, high in (
        wrapped.predict_int(x[rest], confidence=0.9).T,
        split.predict_interval(x[rest])[1][:, :, 0].T,
    ):
        # 0.9 up to four standard deviations, for 75 rows to calibrate and 150 to count.
        assert np.mean((low <= y[rest]) & (y[rest] <= high)) > 0.73
    pipeline = make_pipeline(PolynomialFeatures(include_bias=False), clone(tagi))
    assert np.min(cross_val_score(pipeline, x[train], y[train], cv=2)) > 0.8
    plain = linear_model.LinearRegression()
    stacked = StackingRegressor([("ours", clone(tagi)), ("theirs", plain)], cv=2)
    assert stacked.fit(x[train], y[train]).score(x[rest], y[rest]) > 0.8


def test_conformal_wrappers_of_classes():
    x, y = make_rows(400)
    labels = (y > np.median(y)).astype(int)
    split = SplitConformalClassifier(LinearClassifier(), confidence_level=0.9, prefit=False)
    split.fit(x[:100], labels[:100]).conformalize(x[100:250], labels[100:250])
    sets = split.predict_set(x[250:])[1][:, :, 0]
    wrapped = crepes.WrapClassifier(LinearClassifier())
    wrapped.fit(x[:100], labels[:100])
    wrapped.calibrate(x[100:250], labels[100:250])
    sets = [np.flatnonzero(members) for members in sets]
    for found in (sets, wrapped.predict_set(x[250:], confidence=0.9)):
        inside = [label in members for label, members in zip(labels[250:], found, strict=True)]
        assert np.mean(inside) > 0.8


def example_of_gaussian_process():
    """Returns the example of scikit-learn's documentation, with our estimator instead of theirs."""
    text = inspect.getdoc(GaussianProcessRegressor)
    lines = [example.source for example in doctest.DocTestParser().get_examples(text)]
    (changed,) = [i for i, line in enumerate(lines) if "GaussianProcessRegressor(" in line]
    lines[changed] = "gpr = TAGIRegressor(time_limit=1.0, random_state=0).fit(X, y)"
    return lines


@pytest.mark.slow
def test_example_of_gaussian_process_with_one_line_changed():
    *lines, last = example_of_gaussian_process()
    names = {"TAGIRegressor": estimators.TAGIRegressor}
    exec("\n".join(lines), names)
    mean, stddev = eval(last, names)
    assert mean.shape == stddev.shape == (2,)
    _, y = datasets.make_friedman2(n_samples=500, noise=0, random_state=0)
    assert np.all(np.abs(mean - y[:2]) < 4.0 * stddev)
    assert names["gpr"].score(names["X"], names["y"]) > 0.368  # theirs has this score


def test_without_scikit_learn_there_is_one_clear_error(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("tfp_fnspace.sklearn")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sklearn.utils.validation", None)
    with pytest.raises(ImportError, match=r"pip install 'tfp_fnspace\[sklearn\]'.*Received: "):
        importlib.import_module("tfp_fnspace.sklearn")
