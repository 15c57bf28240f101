"""Counts, positive, bounded and censored targets: likelihoods against SciPy and quadrature."""

from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from normals import expectation
from numpy.testing import assert_allclose
from scipy import integrate, special, stats

from tfp_fnspace import likelihoods, metrics
from tfp_fnspace.distributions import marginal_cdf, quantile
from tfp_fnspace.layers.scaler import RunningMoments
from tfp_fnspace.typing import GaussianMoments

GENERATOR = np.random.default_rng(0)
F = GENERATOR.normal(size=(4, 5, 2))  # [draws, N, D], model units
OFFSET, SPREAD = np.array([0.3, -0.2]), np.array([0.7, 1.1])
ON_LINK = OFFSET + SPREAD * F
LOW, HIGH = 0.4, 2.5


@dataclass
class Clipped:
    """A distribution of SciPy, clipped to limits: its density and the moments by quadrature."""

    free: Any
    low: float = LOW
    high: float = HIGH

    def logpdf(self, y):
        inside = np.where(y <= self.low, self.free.logcdf(self.low), self.free.logpdf(y))
        return np.where(y >= self.high, self.free.logsf(self.high), inside)

    def cdf(self, y):
        return np.where(y < self.low, 0.0, np.where(y >= self.high, 1.0, self.free.cdf(y)))

    def ppf(self, q):
        return np.clip(self.free.ppf(q), self.low, self.high)

    def _power(self, k):
        y = np.linspace(self.low, self.high, 4_001)
        survival = self.free.sf(y.reshape(-1, *[1] * self.free.mean().ndim))
        slopes = k * y ** (k - 1)
        integrand = survival * slopes.reshape(survival.shape[0], *[1] * (survival.ndim - 1))
        return self.low**k + integrate.trapezoid(integrand, y, axis=0)

    def mean(self):
        return self._power(1)

    def var(self):
        return self._power(2) - self._power(1) ** 2


def beta(f, precision):
    return stats.beta(precision * special.expit(f), precision * special.expit(-f))


#: Name -> constructor from a value of the parameter, distribution in SciPy, targets.
FAMILIES = {
    "Poisson": (
        lambda p: likelihoods.Poisson(),
        lambda f, p: stats.poisson(np.exp(f)),
        np.array([[0, 1], [2, 0], [7, 3], [1, 12], [0, 0]], float),
    ),
    "NegativeBinomial": (
        likelihoods.NegativeBinomial,
        lambda f, p: stats.nbinom(1 / p, 1 / (1 + p * np.exp(f))),
        np.array([[0, 1], [2, 0], [7, 3], [1, 12], [0, 0]], float),
    ),
    "LogNormal": (
        likelihoods.LogNormal,
        lambda f, p: stats.lognorm(p * SPREAD, scale=np.exp(f)),
        GENERATOR.gamma(2.0, size=(5, 2)),
    ),
    "Gamma": (
        likelihoods.Gamma,
        lambda f, p: stats.gamma(p, scale=np.exp(f) / p),
        GENERATOR.gamma(2.0, size=(5, 2)),
    ),
    "Beta": (likelihoods.Beta, beta, GENERATOR.beta(2.0, 3.0, size=(5, 2))),
    "CensoredGaussian": (
        lambda p: likelihoods.CensoredGaussian(LOW, HIGH, p),
        lambda f, p: Clipped(stats.norm(f, p * SPREAD)),
        np.array([[0.4, 0.5], [2.5, 3.0], [-1.0, 1.0], [0.7, 2.4], [1.5, 0.4]]),
    ),
    "CensoredLogNormal": (
        lambda p: likelihoods.CensoredLogNormal(LOW, HIGH, p),
        lambda f, p: Clipped(stats.lognorm(p * SPREAD, scale=np.exp(f))),
        np.array([[0.4, 0.5], [2.5, 3.0], [0.1, 1.0], [0.7, 2.4], [1.5, 0.4]]),
    ),
}
PARAMETER = 0.6


def made(name):
    """Returns a likelihood with an offset and a spread of f, as the first data would set them."""
    likelihood = FAMILIES[name][0](PARAMETER)
    likelihood.build((None, 2))
    likelihood.function_scaler.mean.assign(OFFSET)
    likelihood.function_scaler.stddev.assign(SPREAD)
    return likelihood


def log_density(reference, y):
    return reference.logpmf(y) if hasattr(reference, "logpmf") else reference.logpdf(y)


@pytest.fixture(params=FAMILIES)
def name(request):
    return request.param


# Densities ---------------------------------------------------------------------------------------


def test_log_prob_is_that_of_scipy(name, float64):
    _, reference, y = FAMILIES[name]
    found = made(name).log_prob(F, y)
    assert found.shape == (4, 5)
    expected = log_density(reference(ON_LINK, PARAMETER), y).sum(axis=-1)
    assert_allclose(found, expected, rtol=1e-5)  # Beta keeps means away from 0 and 1


def test_expected_log_prob_is_the_integral(name, float64):
    _, reference, y = FAMILIES[name]
    variance = np.array([0.09, 0.2])
    moments = GaussianMoments(tf.constant(F[0]), tf.constant(variance + np.zeros_like(F[0])))
    found = made(name).expected_log_prob(moments, y)[:1]
    expected = np.zeros(1)
    for n in range(1):
        for d in range(2):

            def density(f, n=n, d=d):
                return log_density(reference(np.full(2, f), PARAMETER), y[n])[d]

            expected[n] += expectation(density, ON_LINK[0, n, d], variance[d] * SPREAD[d] ** 2)
    assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("count", [0.0, 3.0, 1e4, 1e8])
def test_poisson_is_exact_for_large_counts_in_float32(count):
    likelihood = likelihoods.Poisson()
    likelihood.build((None, 1))
    mean = np.float32(np.log(count + 0.3)) + np.float32(0.01 / np.sqrt(1 + count))
    found = likelihood.log_prob(tf.constant([[mean]]), np.float32([[count]]))
    expected = stats.poisson.logpmf(count, np.exp(np.float64(mean)))
    # The rounding of f, 1e-6, times the derivative, within a standard deviation of the count.
    assert_allclose(found, [expected], rtol=1e-5, atol=2e-6 * np.sqrt(count))


# Predictive distributions ------------------------------------------------------------------------


def test_mixture_over_draws_is_that_of_scipy(name, float64):
    _, reference, y = FAMILIES[name]
    likelihood = made(name)
    distribution = likelihood.mixture(GaussianMoments(tf.constant(ON_LINK), None))
    assert (distribution.batch_shape, distribution.event_shape) == ((5,), (2,))
    parts = reference(ON_LINK, PARAMETER)
    joint = special.logsumexp(log_density(parts, y).sum(axis=-1), axis=0) - np.log(4)
    assert_allclose(distribution.log_prob(tf.cast(y, tf.float32)), joint, rtol=1e-4)
    assert_allclose(marginal_cdf(distribution, y), parts.cdf(y).mean(axis=0), atol=1e-6)
    mean, variance = parts.mean(), parts.var()
    assert_allclose(distribution.mean(), mean.mean(axis=0), rtol=1e-5)
    total = variance.mean(axis=0) + mean.var(axis=0)
    assert_allclose(distribution.variance(), total, rtol=1e-4)
    observed, noise = likelihood.observed_moments(GaussianMoments(tf.constant(ON_LINK), None))
    assert_allclose(observed.mean, mean.mean(axis=0), rtol=1e-5)
    assert_allclose(observed.variance, mean.var(axis=0), rtol=1e-4, atol=1e-9)
    assert_allclose(noise, variance.mean(axis=0), rtol=1e-4)
    assert_allclose(likelihood.mean(ON_LINK), mean, rtol=1e-5)
    for level in (0.05, 0.97):
        found = quantile(distribution, level).numpy()
        assert np.all(parts.cdf(found + 1e-6).mean(axis=0) >= level - 1e-6)
        below = parts.cdf(found - 1e-6).mean(axis=0)  # the least number with this property
        assert np.all(below <= level + 1e-6)
    draws = distribution.sample(20_000, seed=(1, 2)).numpy()
    error = np.sqrt(total / 20_000)
    assert np.all(np.abs(draws.mean(axis=0) - mean.mean(axis=0)) < 6.0 * error)  # 2e-8 for ten


def test_mixture_of_gaussians_has_the_moments_and_the_density(name, float64):
    _, reference, y = FAMILIES[name]
    likelihood, mean, variance = FAMILIES[name][0](PARAMETER), ON_LINK[:1, :2, :1], 0.3
    likelihood.build((None, 1))
    likelihood.function_scaler.stddev.assign(SPREAD[:1])
    moments = GaussianMoments(tf.constant(mean), tf.constant(np.full_like(mean, variance)))

    z = np.linspace(-9.0, 9.0, 361)  # the trapezoid rule is exact to rounding
    weights = stats.norm.pdf(z) * (z[1] - z[0])
    parts = reference(mean + np.sqrt(variance) * z[:, np.newaxis, np.newaxis], PARAMETER)

    def average(values):
        return np.tensordot(weights, values, 1)[:, :1]

    observed, noise = likelihood.observed_moments(moments)
    expected = average(parts.mean())
    assert_allclose(observed.mean, expected, rtol=1e-5)
    second = average(parts.mean() ** 2)
    assert_allclose(observed.variance, second - expected**2, rtol=1e-4)
    assert_allclose(noise, average(parts.var()), rtol=1e-4)
    distribution = likelihood.mixture(moments)
    assert_allclose(distribution.mean(), expected, rtol=0.01)
    densities = average(np.exp(log_density(parts, y[:2, :1])))
    assert_allclose(distribution.prob(y[:2, :1]), densities[:, 0], rtol=0.02, atol=1e-3)


def test_joint_distribution_of_counts(float64):
    y = FAMILIES["Poisson"][2]
    joint = made("Poisson").joint(tf.constant(ON_LINK))
    expected = stats.poisson(np.exp(ON_LINK)).logpmf(y).sum(axis=(1, 2))
    assert joint.event_shape == (5, 2)
    assert_allclose(joint.log_prob(y), special.logsumexp(expected) - np.log(4), rtol=1e-6)


# Scores ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Poisson", "NegativeBinomial"])
@pytest.mark.parametrize("size", [1.0, 10.0, 3000.0])
def test_crps_of_counts_is_the_sum(name, size, float64):
    _, reference, _ = FAMILIES[name]
    values = (ON_LINK if size < 100.0 else ON_LINK[:, :1]) + np.log(size)
    distribution = made(name).mixture(GaussianMoments(tf.constant(values), None))
    parts = reference(values, PARAMETER)
    y = np.floor(parts.mean().mean(axis=0) * GENERATOR.uniform(0.3, 2.0, size=values.shape[1:]))
    k = np.arange(int(40 * size + 100), dtype=float)[:, np.newaxis, np.newaxis]
    cdf = sum(reference(v, PARAMETER).cdf(k) for v in values) / len(values)
    expected = np.sum((cdf - (k >= y)) ** 2, axis=0).mean()
    assert_allclose(metrics.crps(y, distribution), expected, rtol=1e-6 if size < 100 else 1e-3)


def test_crps_of_plain_counts(float64):
    import tensorflow_probability as tfp

    y = np.array([[3.0], [0.0]])
    rate = np.array([[2.0], [4.5]])
    counts = tfp.distributions.Independent(tfp.distributions.Poisson(rate), 1)
    k = np.arange(60)[:, np.newaxis, np.newaxis]
    expected = np.sum((stats.poisson(rate).cdf(k) - (k >= y)) ** 2, axis=0).mean()
    assert_allclose(metrics.crps(y, counts), expected, rtol=1e-8)


@pytest.mark.parametrize("name", ["CensoredGaussian", "CensoredLogNormal", "Gamma", "Beta"])
def test_crps_is_the_integral(name, float64):
    _, reference, y = FAMILIES[name]
    y = np.clip(y, LOW, HIGH) if "Censored" in name else y
    distribution = made(name).mixture(GaussianMoments(tf.constant(ON_LINK), None))
    grid = np.linspace(0.0, 60.0 if name == "Gamma" else HIGH, 60_001)[:, np.newaxis, np.newaxis]
    cdf = sum(reference(f, PARAMETER).cdf(grid) for f in ON_LINK) / len(ON_LINK)
    expected = integrate.trapezoid((cdf - (grid >= y)) ** 2, grid, axis=0).mean()
    assert_allclose(metrics.crps(y, distribution), expected, rtol=2e-3)


@pytest.mark.parametrize("name", ["Poisson", "CensoredGaussian"])
def test_coverage_counts_the_ends_of_an_interval(name, float64):
    """Where single values have a probability, the ends of an interval belong to it."""
    distribution = made(name).mixture(GaussianMoments(tf.constant(ON_LINK), None))
    low, high = (quantile(distribution, q).numpy() for q in (0.05, 0.95))
    for ends in (low, high):
        assert float(metrics.interval_coverage(ends, distribution, level=0.9)) == 1.0
    outside = np.where(high < HIGH, high + 1.0, -1.0) if name == "CensoredGaussian" else high + 1.0
    assert float(metrics.interval_coverage(outside, distribution, level=0.9)) == 0.0


# The first data ----------------------------------------------------------------------------------


def adapted(likelihood, y):
    likelihood.build((None, y.shape[1]))
    moments = RunningMoments(y.shape[1])
    moments.update(likelihood.statistic(y))
    likelihood.adapt_to(moments)
    return likelihood


def test_zero_is_the_best_constant(name):
    likelihood = adapted(FAMILIES[name][0](PARAMETER), FAMILIES[name][2])
    assert_allclose(likelihood.best_constant(FAMILIES[name][2]), [0.0, 0.0], atol=1e-6)
    start = likelihood.start_values(tf.constant(FAMILIES[name][2], tf.float32))
    assert np.isfinite(start).all() and np.any(start < 0.0) and np.any(start > 0.0)


def test_counts_that_are_all_zero_have_a_finite_start():
    likelihood = adapted(likelihoods.Poisson(), np.zeros((10, 1)))
    assert_allclose(likelihood.function_scaler.mean, np.log([0.05]))


def test_parameters_start_at_what_the_data_suggest():
    size = 20_000
    of_counts = stats.nbinom(1 / 0.4, 1 / (1 + 0.4 * 5.0)).rvs((size, 1), random_state=1)
    of_positive = stats.gamma(3.0, scale=2.0).rvs((size, 1), random_state=1)
    of_shares = stats.beta(6.0, 2.0).rvs((size, 1), random_state=1)
    found = [
        adapted(likelihoods.NegativeBinomial(), of_counts).dispersion,
        adapted(likelihoods.Gamma(), of_positive).shape,
        adapted(likelihoods.Beta(), of_shares).precision,
    ]
    assert_allclose(np.ravel(found), [0.4, 3.0, 8.0], rtol=0.1)
    given = adapted(likelihoods.NegativeBinomial(0.1, trainable=False), of_counts)
    assert_allclose(given.dispersion, [0.1], rtol=1e-6)
    assert not given.trainable_variables
    assert len(adapted(likelihoods.Gamma(), of_positive).trainable_variables) == 1


def test_config_and_weights_round_trip(name):
    ours = made(name)
    theirs = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(ours))
    assert theirs.get_config() == ours.get_config()
    theirs.set_weights(ours.get_weights())
    y = np.float32(FAMILIES[name][2])
    values = tf.constant(F, tf.float32)
    np.testing.assert_array_equal(theirs.log_prob(values, y), ours.log_prob(values, y))


# Errors ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "bad", "rule"),
    [
        ("Poisson", [-1.0, 0.5], "non-negative integers, at most 1e\\+09, for `Poisson`"),
        ("NegativeBinomial", [2e9, -1.0], "non-negative integers.*for `NegativeBinomial`"),
        ("LogNormal", [0.0, -1.0], "positive numbers \\(from 1e-30 to 1e\\+30\\) for `LogNormal`"),
        ("Gamma", [0.0, 1e31], "positive numbers.*for `Gamma`"),
        ("Beta", [0.0, 1.0], "numbers between 0 and 1 \\(not 0 or 1\\) for `Beta`"),
        ("CensoredGaussian", [1e31, -1e31], "numbers of at most.*for `CensoredGaussian`"),
        ("CensoredLogNormal", [-1.0, 0.0], "positive numbers.*for `CensoredLogNormal`"),
    ],
)
def test_bad_targets(name, bad, rule):
    y = FAMILIES[name][2].copy()
    made(name).check_targets(y)
    y[1, 0], y[3, 1] = bad
    first, second = (f"{value:g}".replace("+", "\\+") for value in bad)
    places = f"y with others in 2 rows, the first {first}, {second} in rows \\[1, 3\\]"
    with pytest.raises(ValueError, match=f"`y` must hold {rule}. Received: {places}"):
        made(name).check_targets(y)


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf, "a", True])
def test_bad_parameters(value):
    for make, parameter in (
        (likelihoods.NegativeBinomial, "dispersion"),
        (likelihoods.LogNormal, "scale"),
        (likelihoods.Gamma, "shape"),
        (likelihoods.Beta, "precision"),
    ):
        with pytest.raises(ValueError, match=f"`{parameter}` must be a positive finite number"):
            make(value)


def test_bad_limits():
    with pytest.raises(ValueError, match="must have a limit, `low` or `high` or both. Received"):
        likelihoods.CensoredGaussian()
    with pytest.raises(ValueError, match="`low` must be less than `high`. Received: low=2, high=1"):
        likelihoods.CensoredGaussian(2.0, 1.0)
    with pytest.raises(ValueError, match="`high` must be a finite number. Received: high=nan"):
        likelihoods.CensoredGaussian(high=np.nan)
    with pytest.raises(ValueError, match="`low` must be a finite number greater than 0"):
        likelihoods.CensoredLogNormal(low=0.0)


def test_parameters_before_a_model():
    with pytest.raises(ValueError, match="exist once a model knows.*Received: Gamma without"):
        likelihoods.Gamma().shape  # noqa: B018
