"""`tfp_fnspace.math.expectations` against SciPy, numerical integration and known limits."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import integrate, stats

from tfp_fnspace.math.expectations import absolute_normal_mean, normal_crps, normal_mixture_crps

CASES = [(0.0, 0.0, 1.0), (1.5, -0.5, 0.3), (-4.0, 2.0, 2.5), (0.2, 0.1, 10.0)]
TOLERANCE = {"float32": 1e-5, "float64": 1e-10}


def crps_by_integration(cdf, y, reach=60.0):
    below, _ = integrate.quad(lambda x: cdf(x) ** 2, y - reach, y, limit=400)
    above, _ = integrate.quad(lambda x: (1.0 - cdf(x)) ** 2, y, y + reach, limit=400)
    return below + above


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("mean", "stddev"), [(0.0, 1.0), (2.0, 0.5), (-1.0, 3.0)])
def test_absolute_mean_is_that_of_the_folded_normal(mean, stddev, dtype):
    expected = stats.foldnorm(abs(mean) / stddev, scale=stddev).mean()
    actual = absolute_normal_mean(tf.constant(mean, dtype), tf.constant(stddev, dtype))
    assert actual.dtype == dtype
    np.testing.assert_allclose(actual, expected, rtol=TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("y", "mean", "stddev"), CASES)
def test_normal_crps_is_the_integral(y, mean, stddev, dtype):
    expected = crps_by_integration(stats.norm(mean, stddev).cdf, y)
    actual = normal_crps(*(tf.constant(t, dtype) for t in (y, mean, stddev)))
    assert actual.dtype == dtype
    np.testing.assert_allclose(actual, expected, rtol=TOLERANCE[dtype])


def test_normal_crps_at_the_mean():
    # The expected value is (sqrt(2) - 1) / sqrt(pi), from z = 0 in the closed form.
    np.testing.assert_allclose(normal_crps(3.0, 3.0, 2.0), 2.0 * 0.2336950, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("stddev", [0.0, 1e-30, 1e-12])
def test_small_stddev_gives_the_absolute_error_with_finite_gradients(stddev, dtype):
    y = tf.constant([-2.0, 0.5, 7.0], dtype)
    mean, stddev = tf.zeros_like(y), tf.fill([3], tf.constant(stddev, dtype))
    with tf.GradientTape() as tape:
        tape.watch([y, mean, stddev])
        crps = normal_crps(y, mean, stddev)
    gradients = tape.gradient(crps, [y, mean, stddev])
    np.testing.assert_allclose(crps, [2.0, 0.5, 7.0], rtol=1e-6)
    np.testing.assert_allclose(gradients[0], [-1.0, 1.0, 1.0])
    np.testing.assert_allclose(gradients[1], [1.0, -1.0, -1.0])
    np.testing.assert_allclose(gradients[2], np.full(3, -1.0 / np.sqrt(np.pi)), rtol=1e-6)


def test_a_point_forecast_that_is_right_scores_zero():
    with tf.GradientTape() as tape:
        stddev = tf.constant(0.0)
        tape.watch(stddev)
        crps = normal_crps(tf.constant(1.0), 1.0, stddev)
    assert float(crps) == 0.0
    assert np.isfinite(tape.gradient(crps, stddev))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("y", [-3.0, 0.1, 2.0])
def test_mixture_crps_is_the_integral(y, dtype):
    probs, means, stddevs = [0.2, 0.5, 0.3], [-1.0, 0.5, 4.0], [0.5, 1.0, 0.1]

    def cdf(x):
        return np.dot(probs, stats.norm.cdf(x, means, stddevs))

    actual = normal_mixture_crps(*(tf.constant(t, dtype) for t in (y, probs, means, stddevs)))
    assert actual.dtype == dtype
    np.testing.assert_allclose(actual, crps_by_integration(cdf, y), rtol=TOLERANCE[dtype])


def test_mixture_of_equal_components_is_one_gaussian():
    y = tf.constant([0.3, -2.0])
    mixture = normal_mixture_crps(y, tf.fill([4], 0.25), tf.fill([2, 4], 1.0), tf.constant(0.7))
    np.testing.assert_allclose(mixture, normal_crps(y, 1.0, 0.7), rtol=1e-5)


def test_xla_gives_the_same_values_and_gradients():
    rng = np.random.default_rng(0)
    y, means = tf.constant(rng.normal(size=5)), tf.constant(rng.normal(size=(5, 3)))
    stddevs = tf.constant(rng.uniform(0.1, 1.0, size=(5, 3)))
    probs = tf.constant([0.2, 0.3, 0.5], "float64")

    def value_and_gradient(y, means, stddevs):
        with tf.GradientTape() as tape:
            tape.watch(means)
            crps = tf.reduce_sum(normal_mixture_crps(y, probs, means, stddevs))
        return crps, tape.gradient(crps, means)

    compiled = tf.function(value_and_gradient, jit_compile=True)(y, means, stddevs)
    for actual, expected in zip(compiled, value_and_gradient(y, means, stddevs), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-10)
