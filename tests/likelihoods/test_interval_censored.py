"""Targets that are limits of intervals: likelihoods against SciPy, and models that use them."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from normals import expectation
from numpy.testing import assert_allclose, assert_array_equal
from scipy import special, stats

import tfp_fnspace as fns
from tfp_fnspace import likelihoods, metrics, stacking
from tfp_fnspace.distributions.censored import log_prob_between
from tfp_fnspace.layers.scaler import RunningMoments
from tfp_fnspace.typing import GaussianMoments

tfd = tfp.distributions

INF = np.inf
SCALE, OFFSET, SPREAD = 0.6, np.array([0.3, -0.2]), np.array([0.7, 1.1])
F = np.random.default_rng(0).normal(size=(4, 5, 2))
#: Exact values, an interval and one side; everything, an exact value; far tails.
LIMITS = np.array(
    [
        [0.4, 1.5, 0.4, 1.5],
        [0.5, 1.0, 2.0, INF],
        [-INF, 0.3, INF, 0.3],
        [9.0, -INF, 9.5, 0.1],
        [0.2, 8.0, 0.2 + 1e-6, 8.5],
    ]
)
MADE = {
    "IntervalCensoredGaussian": lambda f: stats.norm(f, SCALE * SPREAD),
    "IntervalCensoredLogNormal": lambda f: stats.lognorm(SCALE * SPREAD, scale=np.exp(f)),
}


def log_density(reference, low, high):
    """Returns what SciPy has for the limits; the smaller tails are subtracted."""
    lower = special.logsumexp([reference.logcdf(high), reference.logcdf(low)], axis=0, b=_SIGNS)
    upper = special.logsumexp([reference.logsf(low), reference.logsf(high)], axis=0, b=_SIGNS)
    inside = np.where(reference.logsf(low) < reference.logcdf(high), upper, lower)
    return np.where(low == high, reference.logpdf(low), inside)


_SIGNS = np.array([1.0, -1.0])[:, np.newaxis, np.newaxis, np.newaxis]


def made(name):
    likelihood = getattr(likelihoods, name)(SCALE)
    likelihood.build((None, 2))
    likelihood.function_scaler.mean.assign(OFFSET)
    likelihood.function_scaler.stddev.assign(SPREAD)
    return likelihood


@pytest.fixture(params=MADE)
def name(request):
    return request.param


def test_log_prob_is_that_of_scipy(name, float64):
    low, high = np.split(LIMITS, 2, axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        expected = log_density(MADE[name](OFFSET + SPREAD * F), low, high).sum(axis=-1)
    found = made(name).log_prob(F, LIMITS)
    assert found.shape == (4, 5)
    assert_allclose(found, expected, rtol=1e-5)


def test_expected_log_prob_is_the_integral(name, float64):
    variance = np.array([0.09, 0.2])
    moments = GaussianMoments(tf.constant(F[0]), tf.constant(variance + np.zeros_like(F[0])))
    found = made(name).expected_log_prob(moments, LIMITS)
    low, high = np.split(LIMITS, 2, axis=1)
    for n in (0, 1, 2):  # rows without far tails
        expected = 0.0
        for d in range(2):

            def density(f, n=n, d=d):
                with np.errstate(divide="ignore", invalid="ignore"):
                    return log_density(MADE[name](np.full((1, 1, 2), f)), low[n], high[n])[0, 0, d]

            mean = OFFSET[d] + SPREAD[d] * F[0, n, d]
            expected += expectation(density, mean, variance[d] * SPREAD[d] ** 2)
        assert_allclose(found[n], expected, rtol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gradients_are_finite_at_all_limits(name, dtype):
    likelihood, f = made(name), tf.Variable(tf.cast(30.0 * F, dtype))
    with tf.GradientTape() as tape:
        value = tf.reduce_sum(likelihood.log_prob(f, tf.constant(LIMITS, dtype)))
    gradients = tape.gradient(value, [f, *likelihood.trainable_variables])
    assert all(np.all(np.isfinite(gradient)) for gradient in [value, *gradients])


@pytest.mark.parametrize("width", [1e-1, 1e-3, 1e-5, 1e-7])
def test_narrow_intervals_in_float32(width):
    """The probability is the density times the width, here where float32 has seven digits."""
    low = tf.constant(0.25)
    high = low + width
    width = float(high - low)
    found = log_prob_between(tfd.Normal(0.0, 1.0), low, high)
    exact = stats.norm.logcdf(0.25 + width), stats.norm.logcdf(0.25)
    assert_allclose(found, exact[0] + np.log(-np.expm1(exact[1] - exact[0])), rtol=1e-4)


def test_no_limits_say_nothing(name):
    nothing = np.array([[-INF, -INF, INF, INF]] * 5)
    assert_array_equal(made(name).log_prob(F, nothing), np.zeros((4, 5)))


def test_what_counts_as_the_value_of_an_interval():
    gaussian = likelihoods.IntervalCensoredGaussian()
    limits = np.array([[1.0, 1.0], [1.0, 3.0], [-INF, 4.0], [5.0, INF], [-INF, INF]])
    assert_array_equal(gaussian.values_near(limits)[:, 0], [1.0, 2.0, 4.0, 5.0, np.nan])
    assert_array_equal(gaussian.known_values(limits)[:, 0], [1.0, *[np.nan] * 4])
    positive = likelihoods.IntervalCensoredLogNormal()
    assert_array_equal(positive.values_near(np.array([[0.0, 4.0]]))[:, 0], [4.0])
    positive.build((None, 1))
    moments = RunningMoments(1)
    moments.update(positive.statistic(np.array([[1.0, 1.0], [0.0, np.exp(2.0)]])))
    positive.adapt_to(moments)
    assert_allclose(positive.function_scaler.mean, [1.0])
    assert_allclose(positive.start_values(tf.constant([[0.0, INF]])), [[0.0]])


BAD = [
    ([[2.0, 1.0]], "a lower and an upper limit of each output, the first at most the second"),
    ([[INF, INF]], "some number between them"),
    ([[-INF, -INF]], "some number between them"),
    ([[-1e31, 1.0]], r"infinite or at most 1e\+30 in magnitude"),
]


@pytest.mark.parametrize(("limits", "message"), BAD)
def test_bad_limits_are_refused(limits, message):
    with pytest.raises(ValueError, match=message):
        likelihoods.IntervalCensoredGaussian().check_targets(np.array(limits))


@pytest.mark.parametrize("limits", [[[-1.0, 1.0]], [[0.0, 0.0]], [[-INF, 2.0]]])
def test_limits_of_positive_values_are_positive(limits):
    with pytest.raises(ValueError, match=r"at least 1e-30 for `IntervalCensoredLogNormal`"):
        likelihoods.IntervalCensoredLogNormal().check_targets(np.array(limits))


# Scores ------------------------------------------------------------------------------------------


def test_score_of_intervals(float64):
    """Independent outputs, a mixture of such, and a Keras metric over batches with weights."""
    low, high = np.split(LIMITS, 2, axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        each = log_density(stats.norm(F, 0.8), low, high)
    first = tfd.Independent(tfd.Normal(tf.constant(F[0]), np.float64(0.8)), 1)
    found = metrics.interval_censored_nll(LIMITS, first)
    assert_allclose(found, -each[0].sum(axis=-1).mean(), rtol=1e-6)
    parts = tfd.Independent(tfd.Normal(np.moveaxis(F, 0, 1), np.float64(0.8)), 1)
    mixture = tfd.MixtureSameFamily(tfd.Categorical(np.zeros((5, 4))), parts)
    rows = special.logsumexp(each.sum(axis=-1), axis=0) - np.log(4)
    assert_allclose(metrics.interval_censored_nll(LIMITS, mixture), -rows.mean(), rtol=1e-6)
    weights = np.arange(1.0, 6.0)
    metric = metrics.IntervalCensoredNLL()
    for part in (slice(0, 2), slice(2, 5)):
        batch = tfd.Independent(tfd.Normal(tf.constant(F[0, part]), np.float64(0.8)), 1)
        metric.update_state(LIMITS[part], batch, weights[part])
    assert_allclose(metric.result(), -np.average(each[0].sum(axis=-1), weights=weights), rtol=1e-6)
    with pytest.raises(ValueError, match="two columns for every output"):
        metrics.interval_censored_nll(LIMITS[:, :2], first)


# Models ------------------------------------------------------------------------------------------

ROWS = np.random.default_rng(1)
X = ROWS.uniform(-1.0, 1.0, size=(600, 1))
TIMES = np.exp(1.0 + np.sin(3.0 * X[:, 0]) + 0.3 * ROWS.normal(size=600))
FOLLOWED = ROWS.exponential(6.0, size=600)
Y = np.stack([np.minimum(TIMES, FOLLOWED), np.where(TIMES <= FOLLOWED, TIMES, INF)], axis=1)
Y[:150] = np.stack([np.floor(TIMES[:150]), np.floor(TIMES[:150]) + 1.0], axis=1)


def network():
    keras.utils.set_random_seed(0)
    inputs = keras.Input((1,))
    hidden = fns.layers.VariationalDense(30, activation="tanh")(inputs)
    return inputs, fns.layers.VariationalDense(1)(hidden)


@pytest.fixture(scope="module")
def survival():
    noise = likelihoods.IntervalCensoredLogNormal()
    model = fns.fbnn.VariationalModel(network(), likelihood=noise, num_eval_samples=50, seed=0)
    model.fit(X, Y, epochs=200, batch_size=100, verbose=0)
    return model


@pytest.mark.slow
def test_a_model_finds_times_that_were_not_seen_to_their_end(survival):
    """A third of the rows has no end; medians of a fit to the ends as times are up to 56 % low."""
    assert 0.25 < np.mean(np.isinf(Y[:, 1])) < 0.4
    x = np.linspace(-0.8, 0.8, 9)[:, np.newaxis]
    medians = survival.predict_quantiles(x, [0.5])[:, 0, 0]
    assert_allclose(medians, np.exp(1.0 + np.sin(3.0 * x[:, 0])), rtol=0.2)
    noise = survival.likelihood
    unit = noise.function_scaler.stddev.numpy()
    assert_allclose(noise.scale.numpy() * unit, [0.3], rtol=0.2)


@pytest.mark.slow
def test_scores_files_and_looks_of_a_model(survival, tmp_path):
    scores = survival.evaluate(X, Y, return_dict=True, verbose=0)
    distribution = survival.predict_distribution(X)
    assert distribution.event_shape == (1,)
    assert_allclose(scores["nll"], metrics.interval_censored_nll(Y, distribution), rtol=1e-6)
    known = np.where(Y[:, :1] == Y[:, 1:], Y[:, :1], np.nan)
    assert_allclose(scores["crps"], metrics.crps(known, distribution), rtol=1e-6)
    survival.save(tmp_path / "model.keras")
    loaded = fns.load_model(tmp_path / "model.keras")
    assert loaded.evaluate(X, Y, return_dict=True, verbose=0) == pytest.approx(scores)
    with pytest.raises(ValueError, match="`y` must not be infinite"):
        survival.report(X, Y, tmp_path / "report.html")
    assert "Targets: 0.0" in str(survival.check(X, Y)) and not survival.check(X, Y).warnings


@pytest.mark.slow
def test_a_model_refuses_limits_that_are_none_and_is_no_member_of_a_mixture():
    noise = likelihoods.IntervalCensoredGaussian()
    model = fns.fbnn.VariationalModel(network(), likelihood=noise, seed=0)
    for y, message in (
        (np.full((4, 2), np.nan), r"`y` must not be NaN \(infinite is no limit\)"),
        (np.ones((4, 1)), r"`y` must have shape \(4, 2\)"),
        ([[2.0, 1.0]] * 4, "the first at most the second"),
    ):
        with pytest.raises(ValueError, match=message):
            model.fit(X[:4], y, verbose=0)
    model.fit(X[:20], Y[:20], verbose=0)
    with pytest.raises(ValueError, match="no likelihoods of counts.*censored"):
        stacking.StackedModel([model], [1.0])
    with pytest.raises(ValueError, match="Calibration must have the values of targets"):
        fns.calibration.calibrate(model, X, Y)
