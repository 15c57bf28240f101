"""One number for each column: factors of the spread and temperatures, in models and estimators."""

import pickle

import batteries
import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
import toys
from conftest import check_mean_close, check_variance_close
from linear_estimators import LinearClassifier, LinearRegressor
from scipy import optimize, special, stats

import tfp_fnspace as fns
from tfp_fnspace import calibration, stacking, warping
from tfp_fnspace.distributions import marginal_cdf, marginals, quantile
from tfp_fnspace.distributions.quantile import is_mixture
from tfp_fnspace.sklearn import TAGIRegressor

tfd = tfp.distributions

GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(60, 1))
F = np.hstack([1.0 + 2.0 * X, -3.0 * X])
Y = F + [0.5, 20.0] * GENERATOR.normal(size=(60, 2))
LABELS = (np.hstack([X, -X, 0.5 * np.ones_like(X)]) + GENERATOR.gumbel(size=(60, 3))).argmax(axis=1)


def linear(likelihood, coefficients, draws=False, spread=0.1):
    """Makes a linear model with given weights `[D, 2]`, which is not fitted and needs no fit."""
    coefficients = np.asarray(coefficients, float)
    model = toys.LinearModel(
        1, len(coefficients), likelihood, draws=draws, standardize=False, seed=0, dtype="float64"
    )
    model.compile(run_eagerly=True)
    model.mean.assign(coefficients)
    model.raw.assign(np.log(spread) * np.eye(2) + np.zeros((len(coefficients), 2, 2)))
    return model


def regression(**options):
    return linear(fns.likelihoods.Gaussian([1.0, 5.0]), [[1.0, 2.0], [0.0, -3.0]], **options)


def classifier():
    return linear(fns.likelihoods.Categorical(), 3.0 * np.array([[0, 1], [0, -1], [0.5, 0]]))


def scores_of_normal(scale, z):
    """Returns the CRPS of N(0, scale^2) at z, by the textbook formula."""
    u = z / scale
    return scale * (u * (2.0 * stats.norm.cdf(u) - 1.0) + 2.0 * stats.norm.pdf(u) - np.pi**-0.5)


@pytest.fixture(scope="module")
def model():
    return regression()


@pytest.fixture(scope="module")
def calibrated(model):
    return calibration.calibrate(model, X, Y)


# Factors ----------------------------------------------------------------------------------------


def test_factor_by_nll_is_the_spread_of_residuals(model, calibrated):
    before, after = model.predict(X), calibrated.predict(X)
    z = (Y - before["mean"]) / before["stddev"]
    expected = np.sqrt(np.mean(np.square(z), axis=0))
    np.testing.assert_allclose(calibrated.adjustment.scale, expected, rtol=1e-3)
    np.testing.assert_array_equal(after["mean"], before["mean"])
    for name in ("stddev", "epistemic_stddev", "aleatoric_stddev"):
        np.testing.assert_allclose(after[name], calibrated.adjustment.scale * before[name])
    distribution = calibrated.predict_distribution(X)
    expected = stats.norm(after["mean"], after["stddev"]).logpdf(Y).sum(axis=1)
    np.testing.assert_allclose(distribution.log_prob(Y), expected)
    scores = calibrated.evaluate(X, Y, verbose=0, return_dict=True)
    assert scores["nll"] == pytest.approx(-expected.mean())
    assert scores["nll"] < model.evaluate(X, Y, verbose=0, return_dict=True)["nll"]


def test_factor_by_crps_is_that_of_scipy(model):
    found = model.predict(X)
    scale = calibration.calibrate(model, X, Y, by="crps").adjustment.scale
    for d in range(2):
        residual, stddev = (Y - found["mean"])[:, d], found["stddev"][:, d]

        def loss(c, residual=residual, stddev=stddev):
            return np.mean(scores_of_normal(c * stddev, residual))

        best = optimize.minimize_scalar(loss, bounds=(0.01, 100.0), method="bounded")
        assert scale[d] == pytest.approx(best.x, rel=1e-3)


def test_missing_targets_are_left_out():
    inputs = keras.Input((1,))
    noise = fns.likelihoods.Gaussian(0.3)
    model = fns.tagi.TAGIModel(inputs, fns.tagi.Dense(2)(inputs), likelihood=noise, seed=0)
    model.compile(jit_compile=False)
    model.fit(X, Y, batch_size=20, verbose=0)
    y = np.where(GENERATOR.random(Y.shape) < 0.3, np.nan, Y)
    found = model.predict(X)
    expected = np.sqrt(np.nanmean(np.square((y - found["mean"]) / found["stddev"]), axis=0))
    calibrated = calibration.calibrate(model, X, y)
    np.testing.assert_allclose(calibrated.adjustment.scale, expected, rtol=1e-3)
    assert np.isfinite(calibrated.evaluate(X, y, verbose=0)).all()
    y[:, 1] = np.nan
    with pytest.raises(ValueError, match=r"observed value in each column. Received: .*\[1\]"):
        calibration.calibrate(model, X, y)


def families():
    student = fns.likelihoods.StudentT(3.0, [1.0, 5.0])
    weights = [[1.0, 2.0], [0.0, -3.0]]
    return {
        "draws": (regression(draws=True, spread=0.5), tfd.Normal),
        "student": (linear(student, weights), tfd.StudentT),
        "warped": (
            warping.WarpedModel(regression(), [0.0, 1.0], [1.0, 9.0], [2.0, 2.0]),
            tfd.JohnsonSU,
        ),
        "stacked": (stacking.StackedModel([regression(), regression()], [0.4, 0.6]), tfd.Normal),
    }


@pytest.mark.parametrize("name", ["draws", "student", "warped", "stacked"])
def test_families_stay_closed(name):
    model, family = families()[name]
    scaled = calibration.CalibratedModel(model, calibration.Scaling([2.0, 0.5]))
    before, after = model.predict_distribution(X), scaled.predict_distribution(X)
    assert is_mixture(after)
    assert isinstance(after.components_distribution.distribution, family)
    mean = model.predict(X)["mean"]
    np.testing.assert_allclose(scaled.predict(X)["mean"], mean)
    np.testing.assert_allclose(after.mean(), mean, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(after.stddev(), before.stddev() * [2.0, 0.5], rtol=1e-6)
    stretched = mean + [2.0, 0.5] * (Y - mean)
    levels = marginal_cdf(before, Y)
    np.testing.assert_allclose(marginal_cdf(after, stretched), levels, atol=1e-9)
    logs = marginals(before).log_prob(Y) - np.log([2.0, 0.5])
    np.testing.assert_allclose(marginals(after).log_prob(stretched), logs, rtol=1e-6, atol=1e-9)


def test_crps_of_a_mixture_is_minimised():
    model = regression(draws=True, spread=0.5)
    scale = calibration.calibrate(model, X, Y, by="crps").adjustment.scale

    def score(factor):
        adjusted = calibration.CalibratedModel(model, calibration.Scaling(factor * scale))
        return fns.metrics.crps(Y, adjusted.predict_distribution(X)).numpy()

    assert score(1.0) < min(score(0.95), score(1.05))


def test_functions_have_the_moments_of_predict(calibrated):
    functions = calibrated.sample_functions(X[:3], 4000, seed=1)
    found = calibrated.predict(X[:3])
    check_mean_close(functions, found["mean"])
    check_variance_close(functions, np.square(found["epistemic_stddev"]))


def test_a_factor_at_its_bound_is_warned_of(model):
    with pytest.warns(UserWarning, match=r"best scale is beyond its bounds, 0\.01 and 100"):
        calibration.calibrate(model, X, model.predict(X)["mean"])


# Temperatures -----------------------------------------------------------------------------------


def test_temperature_is_that_of_scipy():
    model = classifier()
    before = model.predict(X)
    logs = np.log(before["probabilities"])

    def loss(temperature):
        return -np.mean(special.log_softmax(logs / temperature, axis=1)[np.arange(60), LABELS])

    best = optimize.minimize_scalar(loss, bounds=(0.01, 100.0), method="bounded")
    calibrated = calibration.calibrate(model, X, LABELS)
    assert calibrated.adjustment.temperature == pytest.approx([best.x], rel=1e-3)
    assert best.x > 1.5
    after = calibrated.predict(X)
    expected = special.softmax(logs / calibrated.adjustment.temperature, axis=1)
    np.testing.assert_allclose(after["probabilities"], expected, rtol=1e-6)
    entropy = stats.entropy(expected, axis=1)
    np.testing.assert_allclose(after["entropy"], entropy, rtol=1e-6)
    share = before["mutual_information"] / before["entropy"]
    np.testing.assert_allclose(after["mutual_information"], share * entropy, rtol=1e-6)
    scores = calibrated.evaluate(X, LABELS, verbose=0, return_dict=True)
    assert scores["nll"] == pytest.approx(best.fun, rel=1e-6)
    np.testing.assert_array_equal(
        calibrated.sample_functions(X, 2, seed=1), model.sample_functions(X, 2, seed=1)
    )


def test_each_binary_output_has_its_temperature():
    model = linear(fns.likelihoods.Bernoulli(), [[0.0, 4.0], [1.0, -4.0]])
    y = np.stack([LABELS == 0, LABELS == 1], axis=1).astype(float)
    odds = special.logit(model.predict(X)["probabilities"])
    calibrated = calibration.calibrate(model, X, y)
    for d in range(2):

        def loss(log_temperature, d=d):
            logits = odds[:, d] / np.exp(log_temperature)
            return np.mean(np.logaddexp(0.0, logits) - y[:, d] * logits)

        best = optimize.minimize_scalar(loss, bounds=(-4.0, 4.0), method="bounded")
        found = calibrated.adjustment.temperature[d]
        assert found == pytest.approx(np.exp(best.x), rel=1e-3)
        expected = special.expit(odds[:, d] / found)
        np.testing.assert_allclose(calibrated.predict(X)["probabilities"][:, d], expected)


# Files ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", ["scale", pytest.param("map", marks=pytest.mark.slow), "temperature"]
)
def test_files_and_exports_predict_the_same(kind, tmp_path):
    if kind == "temperature":
        model, name = calibration.calibrate(classifier(), X, LABELS), "probabilities"
    else:
        fit = calibration.calibrate if kind == "scale" else calibration.recalibrate
        model, name = fit(regression(), X, Y), "stddev"
    expected = model.predict(X)
    model.save(tmp_path / "m.keras")
    loaded = fns.load_model(tmp_path / "m.keras")
    # The toy model is loaded in float32.
    np.testing.assert_allclose(loaded.predict(X)[name], expected[name], rtol=2e-6)
    model.export(tmp_path / "served", num_samples=3)
    served = tf.saved_model.load(tmp_path / "served")
    x = tf.constant(X, model.served_dtypes[0])
    found = served.serve(x)
    np.testing.assert_allclose(found[name], expected[name], rtol=1e-4)
    if name == "stddev":
        levels = quantile(model.predict_distribution(X), [0.05, 0.5, 0.95])
        np.testing.assert_allclose(found["quantiles"], levels, rtol=1e-4, atol=1e-4)
    functions = served.sample(x, tf.constant([0, 1]))
    seed = np.array([0, 1])
    np.testing.assert_allclose(
        functions, model.sample_functions(X, 3, seed=seed), rtol=1e-4, atol=1e-4
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["DIWP", "stable_process"])
def test_models_of_draws_are_calibrated_and_served(name, tmp_path):
    x = GENERATOR.normal(size=(23, 4))
    y = np.stack([x[:, 0], 50.0 * x[:, 2]], axis=1) + GENERATOR.normal(size=(23, 2))
    model = batteries.ALL_MODELS[name]()
    batteries.fit(model, x, y, epochs=2, batch_size=8)
    calibrated = calibration.calibrate(model, x, y)
    found, distribution = calibrated.predict(x), calibrated.predict_distribution(x)
    expected = calibrated.adjustment.scale * model.predict(x)["stddev"]
    np.testing.assert_allclose(found["stddev"], expected, rtol=1e-5)
    np.testing.assert_allclose(distribution.stddev(), expected, rtol=1e-5)
    assert np.sum(marginals(distribution).log_prob(y)) > np.sum(
        marginals(model.predict_distribution(x)).log_prob(y)
    )
    calibrated.export(tmp_path / "served")
    served = tf.saved_model.load(tmp_path / "served")
    stddev = served.serve(tf.constant(x, model.served_dtypes[0]))["stddev"]
    np.testing.assert_allclose(stddev, expected, rtol=1e-3)


# Estimators -------------------------------------------------------------------------------------


def test_an_estimator_is_copied():
    regressor = LinearRegressor().fit(X[:30], Y[:30, 0])
    calibrated = calibration.calibrate(regressor, X[30:], Y[30:, 0])
    mean, stddev = regressor.predict(X, return_std=True)
    expected = np.sqrt(np.mean(np.square((Y[:, 0] - mean) / stddev)[30:]))
    found, spread = calibrated.predict(X, return_std=True)
    np.testing.assert_array_equal(found, mean)
    np.testing.assert_allclose(spread / stddev, expected, rtol=1e-3)
    assert isinstance(calibrated, LinearRegressor)
    assert not isinstance(regressor.model_, calibration.CalibratedModel)
    again = pickle.loads(pickle.dumps(calibrated))
    np.testing.assert_allclose(again.predict(X, return_std=True)[1], spread, rtol=2e-6)


def test_labels_of_an_estimator_are_words():
    words = np.array(["b", "a", "c"])[LABELS]
    estimator = LinearClassifier().fit(X, words)
    calibrated = calibration.calibrate(estimator, X, words)
    before, after = estimator.predict_proba(X), calibrated.predict_proba(X)
    power = before ** (1.0 / calibrated.model_.adjustment.temperature)
    np.testing.assert_allclose(after, power / power.sum(axis=1, keepdims=True), rtol=1e-5)
    with pytest.raises(ValueError, match=r"labels of the classes.*\['d'\]"):
        calibration.calibrate(estimator, X, np.where(words == "a", "d", words))


@pytest.mark.slow
def test_tagi_predicts_missing_numbers_after_calibration():
    regressor = TAGIRegressor(time_limit=0.01, random_state=0).fit(X, Y[:, 0])
    calibrated = calibration.calibrate(regressor, X, Y[:, 0])
    x = np.where(np.arange(60)[:, np.newaxis] < 5, np.nan, X)
    before, after = (each.predict(x, return_std=True)[1] for each in (regressor, calibrated))
    np.testing.assert_allclose(after / before, calibrated.model_.adjustment.scale[0], rtol=1e-5)


# Errors -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((X, Y, "rmse"), ValueError, r"`by` must be one of \['nll', 'crps'\]. Received: by='rmse'"),
        ((X, Y[:, :1]), ValueError, r"must have shape \(60, 2\).*Received: "),
        ((X, np.full_like(Y, np.nan)), ValueError, "must be finite.*Received: "),
    ],
)
def test_bad_arguments_are_refused(model, arguments, error, message):
    with pytest.raises(error, match=message):
        calibration.calibrate(model, *arguments)


def test_other_objects_are_refused(model):
    with pytest.raises(TypeError, match="must be a FunctionSpaceModel.*Received: model=Sequential"):
        calibration.calibrate(keras.Sequential(), X, Y)
    with pytest.raises(ValueError, match="of a classifier must be 'nll'. Received: by='crps'"):
        calibration.calibrate(classifier(), X, LABELS, by="crps")
    with pytest.raises(TypeError, match="`adjustment` of this model must be Scaling or Recal"):
        calibration.CalibratedModel(model, calibration.Tempering([1.0]))
    with pytest.raises(ValueError, match="number for each column.*2. Received: 1 columns"):
        calibration.CalibratedModel(model, calibration.Scaling([1.0]))
    with pytest.raises(ValueError, match="`scale` must be a positive.*Received: scale=-1.0"):
        calibration.Scaling([1.0, -1.0])
    recalibrated = calibration.recalibrate(model, X, Y)
    with pytest.raises(TypeError, match="Calibrate before `recalibrate`; for others take"):
        calibration.calibrate(recalibrated, X, Y)


def test_unfitted_models_are_refused():
    inputs = keras.Input((1,))
    model = fns.tagi.TAGIModel(inputs, fns.tagi.Dense(2)(inputs))
    with pytest.raises(ValueError, match="The model is not fitted"):
        calibration.calibrate(model, X, Y)


def test_it_learns_no_more(calibrated):
    with pytest.raises(ValueError, match="cannot be trained itself"):
        calibrated.fit(X, Y)
    with pytest.raises(ValueError, match="`joint` must be False for CalibratedModel"):
        calibrated.predict_distribution(X, joint=True)
