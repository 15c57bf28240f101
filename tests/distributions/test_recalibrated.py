"""Distributions after a monotone map of their distribution functions, against brute force."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import integrate, stats

from tfp_fnspace import metrics
from tfp_fnspace.distributions import marginal_cdf, observations, quantile
from tfp_fnspace.distributions.recalibrated import Recalibrated

tfd = tfp.distributions

# The second column has fewer pieces.
LEVELS = np.array([[0.0, 0.02, 0.3, 0.7, 1.0], [0.0, 0.5, 0.9, 1.0, 1.0]]).T
VALUES = np.array([[0.0, 0.2, 0.4, 0.6, 1.0], [0.0, 0.4, 0.95, 1.0, 1.0]]).T
Y = np.array([[-1.0, 2.0], [0.3, 5.0], [4.0, 40.0]])


def normal():
    mean = np.array([[0.0, 10.0], [0.5, 7.0], [1.0, 9.0]])
    return observations.Normal(tf.constant(mean), tf.constant([[1.0, 5.0]], tf.float64))


def mixture():
    means = np.stack([Y - 1.0, Y + 2.0, 0.5 * Y], axis=-1)
    weights = tfd.Categorical(logits=np.log([0.5, 0.3, 0.2]) + np.zeros((3, 2, 3)))
    return tfd.MixtureSameFamily(weights, observations.Normal(means, np.full((3, 2, 3), 1.5)))


def johnson():
    shape = np.full((3, 2), 0.4), np.full((3, 2), 1.5)
    return observations.JohnsonSU(*(tf.constant(v) for v in (*shape, Y, np.full((3, 2), 2.0))))


BASES = {"Normal": normal, "mixture": mixture, "JohnsonSU": johnson}


@pytest.fixture(params=BASES)
def both(request):
    base = BASES[request.param]()
    return base, Recalibrated(base, LEVELS, VALUES)


def grid(base):
    """Returns 40,001 points of each marginal from far below to far above, `[G, 3, 2]`."""
    mean, stddev = base.mean().numpy(), base.stddev().numpy()
    return mean + stddev * np.sinh(np.linspace(-8.0, 8.0, 40_001))[:, np.newaxis, np.newaxis]


def test_distribution_function_is_mapped(both):
    base, distribution = both
    expected = marginal_cdf(base, Y).numpy()
    columns = [np.interp(expected[:, d], LEVELS[:, d], VALUES[:, d]) for d in range(2)]
    np.testing.assert_allclose(distribution.cdf(Y), np.stack(columns, axis=1), rtol=1e-12)
    assert (distribution.batch_shape, distribution.event_shape) == ((3, 2), ())


def test_density_is_the_derivative_and_integrates_to_one(both):
    base, distribution = both
    x = grid(base)
    density = distribution.prob(x).numpy()
    total = integrate.trapezoid(density, x, axis=0)
    np.testing.assert_allclose(total, 1.0, atol=2e-3)  # it jumps at the knots
    step = 1e-5
    slope = (distribution.cdf(Y + step) - distribution.cdf(Y - step)) / (2.0 * step)
    np.testing.assert_allclose(distribution.prob(Y), slope, rtol=1e-6, atol=1e-9)


def test_quantiles_invert_the_distribution_function(both):
    _, distribution = both
    levels = np.array([0.01, 0.2, 0.5, 0.97])
    values = quantile(distribution, levels).numpy()  # [3, 2, 4]
    found = distribution.cdf(np.moveaxis(values, -1, 0)).numpy()
    np.testing.assert_allclose(found, np.broadcast_to(levels[:, None, None], (4, 3, 2)), atol=1e-7)


def test_moments_and_crps_are_those_of_a_fine_grid(both):
    base, distribution = both
    x = grid(base)
    below = distribution.cdf(x).numpy()
    middle, mass = 0.5 * (x[1:] + x[:-1]), np.diff(below, axis=0)
    mean = np.sum(middle * mass, axis=0)
    stddev = np.sqrt(np.sum(np.square(middle - mean) * mass, axis=0))
    tolerance = 1e-3 if hasattr(base, "mixture_distribution") else 1e-6
    assert np.all(np.abs(distribution.mean() - mean) < tolerance * stddev)
    np.testing.assert_allclose(distribution.stddev(), stddev, rtol=tolerance)
    above = (x >= Y).astype(float)
    crps = integrate.trapezoid(np.square(below - above), x, axis=0)
    np.testing.assert_allclose(metrics.crps(Y, distribution), crps.mean(), rtol=1e-3)


def test_samples_follow_the_distribution_function(both):
    _, distribution = both
    draws = distribution.sample(2000, seed=3)
    levels = distribution.cdf(draws).numpy().reshape(2000, -1)
    # Six tests of Kolmogorov and Smirnov: false once in 100,000 seeds.
    assert min(stats.kstest(column, "uniform").pvalue for column in levels.T) > 1e-5 / 6


def test_float32_values_are_taken_and_the_identity_changes_nothing():
    base = normal()
    distribution = Recalibrated(base, [[0.0, 0.0], [1.0, 1.0]], [[0.0, 0.0], [1.0, 1.0]])
    y = tf.constant(Y, tf.float32)
    np.testing.assert_allclose(distribution.log_prob(y), base.log_prob(y), rtol=1e-12)
    np.testing.assert_allclose(distribution.mean(), base.mean(), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(distribution.stddev(), base.stddev() + 0.0 * Y, rtol=1e-4)


def test_it_is_the_same_in_a_graph():
    def moments(y):
        distribution = Recalibrated(normal(), LEVELS, VALUES)
        return distribution.mean(), distribution.variance(), distribution.log_prob(y)

    eager = moments(tf.constant(Y))
    traced = tf.function(moments, input_signature=[tf.TensorSpec([None, 2], tf.float64)])
    for ours, theirs in zip(traced(tf.constant(Y)), eager, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)


POSITIVE = {
    "LogNormal": lambda: observations.LogNormal(*of_columns([0.2, 1.0], [0.5, 0.3])),
    "Gamma": lambda: observations.Gamma(*of_columns([2.0, 5.0], [3.0, 0.5])),
    "Beta": lambda: observations.Beta(*of_columns([2.0, 1.7], [3.0, 4.0])),
}


def of_columns(*parameters):
    return [tf.constant([columns], tf.float64) for columns in parameters]


@pytest.mark.parametrize("name", POSITIVE)
def test_moments_where_values_are_positive(name):
    """The integrals go beyond the values that are possible, where TFP's functions are NaN."""
    distribution = Recalibrated(POSITIVE[name](), LEVELS, VALUES)
    levels = (np.arange(200_000) + 0.5) / 200_000
    values = quantile(distribution, levels).numpy()  # [1, 2, 200_000]
    np.testing.assert_allclose(distribution.mean(), values.mean(axis=-1), rtol=1e-4)
    np.testing.assert_allclose(distribution.variance(), values.var(axis=-1), rtol=2e-3)
