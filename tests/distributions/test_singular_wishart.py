"""`SingularWishart`: its density against Uhlig's measure, its moments, its gradients."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import special

from tfp_fnspace.distributions import SingularWishart

FALSE_FAIL = 1e-6  # for each statistical test


def double(value):
    return tf.constant(value, tf.float64)


def positive_definite(k, seed=0):
    a = np.random.default_rng(seed).normal(size=(k, 2 * k))
    return a @ a.T / (2 * k)


@pytest.mark.parametrize(("k", "n"), [(2, 1), (3, 1), (3, 2), (5, 2)])
def test_singular_density_integrates_to_one(k, n):
    """For V = I the density depends on the eigenvalues only: Uhlig's measure, Stiefel volume."""
    distribution = SingularWishart(n, scale_tril=tf.eye(k, dtype=tf.float64))
    log_volume = n * np.log(2.0) + n * k / 2 * np.log(np.pi) - special.multigammaln(k / 2.0, n)
    # With l_1 = s^2 and l_2 = s^2 u^2, up to 100, the integrand is smooth.
    nodes, weights = np.polynomial.legendre.leggauss(60)
    nodes, weights = 0.5 * (nodes + 1.0), 0.5 * weights
    s, u = (v.ravel() for v in np.meshgrid(10.0 * nodes, nodes, indexing="ij"))
    weight = 10.0 * np.outer(weights, weights).ravel() * 2.0 * s
    values, gap = s[:, np.newaxis] ** 2, 1.0
    if n == 2:
        values = np.stack([s**2, (s * u) ** 2], axis=-1)
        gap = s**2 - (s * u) ** 2
        weight *= 2.0 * s**2 * u
    matrices = np.eye(k) * np.pad(values, [(0, 0), (0, k - n)])[:, np.newaxis]
    measure = np.exp(log_volume) * 2.0**-n * np.prod(values ** (k - n), axis=-1) * gap
    total = np.sum(weight * measure * distribution.prob(matrices).numpy())
    np.testing.assert_allclose(total, 1.0, rtol=1e-8)


def test_singular_density_has_the_right_scale(assert_mean_close):
    """E_a[p_b(X) / p_a(X)] = 1 if both densities refer to the same measure."""
    a = SingularWishart(2, double(np.eye(4)))
    b = SingularWishart(2, double(0.6 * np.eye(4) + 0.2 * np.ones((4, 4))))
    x = a.sample(20000, seed=[6, 7])
    assert_mean_close(tf.exp(b.log_prob(x) - a.log_prob(x)), 1.0, FALSE_FAIL)


def test_singular_samples(assert_mean_close, assert_variance_close):
    scale = positive_definite(4, 3)
    distribution = SingularWishart(2, double(scale))
    samples = distribution.sample(20000, seed=[8, 9])
    assert np.all(np.linalg.matrix_rank(samples[:50]) == 2)
    np.testing.assert_allclose(distribution.mean(), 2 * scale)
    assert_mean_close(samples, distribution.mean().numpy(), FALSE_FAIL)
    assert_variance_close(samples, distribution.variance().numpy(), FALSE_FAIL)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_singular_distribution_has_gradients(jit_compile):
    def everything(scale):
        with tf.GradientTape() as tape:
            tape.watch(scale)
            distribution = SingularWishart(2, scale)
            x, log_prob = distribution.experimental_sample_and_log_prob(3, seed=[1, 2])
            total = tf.reduce_sum(x) + tf.reduce_sum(log_prob)
        return tape.gradient(total, scale)

    gradient = tf.function(everything, jit_compile=jit_compile)
    assert np.all(np.isfinite(gradient(double(positive_definite(4)))))


@pytest.mark.parametrize("df", [0, 3, 4, 1.5, True])
def test_singular_distribution_refuses_bad_degrees(df):
    with pytest.raises(ValueError, match="`df` must be an integer, at least 1 and less than k = 3"):
        SingularWishart(df, scale_tril=tf.eye(3))
