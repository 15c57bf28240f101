"""The equations of SIP against SciPy, TFP and quadrature."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from numpy.testing import assert_allclose
from scipy import integrate, special, stats

from tfp_fnspace import likelihoods
from tfp_fnspace.methods.sip import equations
from tfp_fnspace.typing import GaussianMoments

GENERATOR = np.random.default_rng(0)
SEED = tf.constant([0, 1])

Q, NORMAL = stats.laplace(0.4, 0.7), stats.norm(0.0, 1.0)

#: Quantiles in the place of draws: a mean over them is an integral.
LEVEL = (np.arange(200_000) + 0.5) / 200_000


def divergence(q, p):
    """Computes KL(q || p) of two distributions of SciPy by quadrature."""

    def integrand(x):
        return q.pdf(x) * (q.logpdf(x) - p.logpdf(x))

    middle = q.mean()
    return sum(integrate.quad(integrand, *ends)[0] for ends in ((-20.0, middle), (middle, 20.0)))


def normal_of(draws):
    return stats.norm(draws.mean(), draws.std())


def exact_ratio(q, p, values):
    return tf.constant(q.logpdf(values) - p.logpdf(values))


@pytest.mark.parametrize("p", [stats.logistic(-0.2, 0.6), NORMAL])
def test_divergences_are_those_of_quadrature_if_discriminators_are_exact(p):
    at_q, at_p = Q.ppf(LEVEL), p.ppf(LEVEL)
    exact = divergence(Q, p), divergence(p, Q)
    ratios = [exact_ratio(Q, p, values) for values in (at_q, at_p)]
    assert_allclose(equations.log_ratio_divergences(*ratios), exact, rtol=1e-3)
    q_bar, p_bar = map(normal_of, (at_q, at_p))
    t_q = [exact_ratio(Q, q_bar, values) for values in (at_q, at_p)]
    t_p = [exact_ratio(p, p_bar, values) for values in (at_q, at_p)]
    draws = [tf.constant(values[:, np.newaxis]) for values in (at_q, at_p)]
    found = equations.contrasted_divergences(t_q, t_p, equations.normal_part(*draws))
    assert_allclose(found, exact, rtol=1e-3)
    if p is NORMAL:
        of_q = equations.normal_moments(draws[0])
        assert_allclose(equations.divergences_from_standard_normal(*t_q, of_q), exact, rtol=1e-3)


def test_normal_part_of_draws():
    q, p = (
        GENERATOR.normal([1.0, -2.0, 0.0], [0.5, 1.0, 3.0], (50, 3)),
        GENERATOR.normal(size=(40, 3)),
    )
    part = equations.normal_part(tf.constant(q), tf.constant(p))
    for found, of in ((part.by_q, q), (part.by_p, p)):
        for values, draws in zip(found, (q, p), strict=True):
            assert_allclose(values, (draws - of.mean(axis=0)) / of.std(axis=0), rtol=1e-4)
    normals = [
        tfp.distributions.MultivariateNormalDiag(v.mean(axis=0), v.std(axis=0)) for v in (q, p)
    ]
    assert_allclose(part.forward, normals[0].kl_divergence(normals[1]), rtol=1e-4)
    assert_allclose(part.reverse, normals[1].kl_divergence(normals[0]), rtol=1e-4)


def linear_model():
    """Returns draws `[S, N, D]`, and mean and Cholesky factor of their weights."""
    factor = np.tril(GENERATOR.normal(size=(2, 4, 4)))
    factor[:, range(4), range(4)] = GENERATOR.uniform(0.5, 2.0, size=(2, 4))
    return GENERATOR.normal(size=(4, 5, 2)), GENERATOR.normal(size=(2, 4)), factor


def test_moments_of_the_linear_model_are_those_of_its_weights():
    draws, mean, factor = linear_model()
    found = equations.linear_model_moments(*map(tf.constant, (draws, mean, factor)))
    for d in range(2):
        features = (draws[:, :, d] - draws[:, :, d].mean(axis=0)) / 2.0  # [S, N]
        assert_allclose(found.mean[0, :, d], draws[:, :, d].mean(axis=0) + mean[d] @ features)
        covariance = features.T @ factor[d] @ factor[d].T @ features
        assert_allclose(found.variance[0, :, d], np.diag(covariance))


def test_divergence_of_the_weights_is_that_of_tfp():
    _, mean, factor = linear_model()
    q = tfp.distributions.MultivariateNormalTriL(mean, factor)
    p = tfp.distributions.MultivariateNormalDiag(np.zeros(4), np.ones(4))
    expected = np.sum(q.kl_divergence(p))
    found = equations.weight_divergence(tf.constant(mean), tf.constant(factor))
    assert_allclose(found, expected)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_objective_of_a_gaussian_mixture(alpha):
    """The expectations over f are by Gauss-Hermite quadrature."""
    mean, variance = GENERATOR.normal(size=(3, 6, 1)), GENERATOR.uniform(0.1, 0.5, (3, 6, 1))
    y = GENERATOR.normal(size=(6, 1))
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    f = mean + np.sqrt(variance) * nodes  # [S, N, nodes]
    logs, weights = stats.norm(f, 0.8).logpdf(y), weights / weights.sum()
    if alpha == 0.0:
        term = np.mean(logs @ weights, axis=0)
    else:
        powers = special.logsumexp(alpha * logs, axis=(0, 2), b=weights / 3.0)
        term = powers / alpha
    noise = likelihoods.Gaussian(0.8, dtype="float64")
    moments = GaussianMoments(tf.constant(mean), tf.constant(variance))
    energy = equations.data_energy(noise, moments, tf.constant(y), alpha, SEED)
    assert_allclose(energy, np.mean(term), rtol=1e-8)
    divergence = equations.symmetrized(tf.constant(3.0), tf.constant(4.0))
    loss = equations.loss(energy, tf.cast(divergence, tf.float64), 6.0, 0.5)
    assert_allclose(loss, -(np.sum(term) - 0.5 * 3.5) / 6.0, rtol=1e-8)


def test_mixture_and_function_draws_take_the_values_at_inducing_points():
    """At Z itself and without jitter, f given u is u."""
    at_z = tf.constant(GENERATOR.normal(size=(30, 4, 2)))
    given = equations.conditional(equations.empirical_moments(at_z, at_z), 0.0)
    u = tf.constant(GENERATOR.normal(size=(7, 4, 2)))
    components = equations.mixture(given, u)
    assert_allclose(components.mean, u, rtol=1e-8)
    assert_allclose(components.variance, np.zeros((7, 4, 2)), atol=1e-10)
    process = equations.gaussian_process_draws(at_z, tf.constant(GENERATOR.normal(size=(7, 2, 30))))
    drawn = equations.matheron_draws(given, u, process, process, tf.ones_like(u))
    assert_allclose(drawn, u, rtol=1e-8)
