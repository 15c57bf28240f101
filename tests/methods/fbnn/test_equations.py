"""The equations of fBNN against closed forms, SciPy and exact limits.

Other files test `stein_score` (`test_fbnn_stein.py`), `score_surrogate` with exact scores (there
too) and `gaussian_divergence` (`test_fbnn_closed_form.py`).
"""

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose
from scipy import special, stats

from tfp_fnspace.methods.fbnn import equations

GENERATOR = np.random.default_rng(0)


def covariance_of(size):
    root = GENERATOR.normal(size=(size, size))
    return root @ root.T + np.eye(size)


def divergence(mean, covariance, other_mean, other_covariance):
    """Computes `KL[N || N]` by NumPy."""
    solved = np.linalg.solve(other_covariance, np.column_stack([covariance, mean - other_mean]))
    logs = np.linalg.slogdet(other_covariance)[1] - np.linalg.slogdet(covariance)[1]
    square = (mean - other_mean) @ solved[:, -1]
    return 0.5 * (np.trace(solved[:, :-1]) + square - len(mean) + logs)


def test_bound_is_the_evidence_less_the_divergence_from_the_posterior():
    """This is equation 8, for three rows and two more points of a Gaussian process."""
    prior, noise, y = covariance_of(5), 0.3, GENERATOR.normal(size=3)
    mean, root = GENERATOR.normal(size=5), np.linalg.cholesky(covariance_of(5))
    q = root @ root.T
    gain = np.linalg.solve(prior[:3, :3] + noise**2 * np.eye(3), prior[:3]).T
    posterior = gain @ y, prior - gain @ prior[:3]
    evidence = stats.multivariate_normal(cov=prior[:3, :3] + noise**2 * np.eye(3)).logpdf(y)
    log_likelihood = np.sum(stats.norm(mean[:3], noise).logpdf(y) - np.diag(q)[:3] / 2 / noise**2)
    kl = equations.gaussian_divergence(
        tf.constant(mean[:, np.newaxis]),
        tf.constant(q),
        tf.zeros([5, 1], tf.float64),
        tf.constant(prior[np.newaxis]),
    ).kl
    of_a_row = equations.elbo(tf.constant(log_likelihood / 3.0, tf.float64), kl, 1.0 / 3.0)
    assert_allclose(3.0 * of_a_row, evidence - divergence(mean, q, *posterior), rtol=1e-9)


def test_eigenfunctions_of_a_normal_distribution_are_hermite_functions():
    """Rasmussen and Williams (2006), equations 4.39 and 4.40, at quantiles instead of draws."""
    size, length = 800, 1.5
    x = stats.norm.ppf((np.arange(size) + 0.5) / size)[:, np.newaxis]
    samples = tf.constant(x)
    squared = equations.squared_distances(samples, samples)
    basis = equations.nystrom(samples, squared, tf.constant(length, tf.float64), 0.99)
    a, b = 0.25, 0.5 / length**2
    c = np.sqrt(a**2 + 2.0 * a * b)
    for j in range(4):
        value = np.sqrt(2.0 * a / (a + b + c)) * (b / (a + b + c)) ** j
        assert_allclose(basis.eigenvalues[-1 - j] / size, value, rtol=0.005)
        expected = np.exp(-(c - a) * x[:, 0] ** 2) * special.eval_hermite(
            j, np.sqrt(2.0 * c) * x[:, 0]
        )
        expected /= np.sqrt(np.mean(expected**2))
        found = np.sqrt(size) * basis.eigenvectors[:, -1 - j].numpy()
        found *= np.sign(found @ expected)
        assert np.sqrt(np.mean((found - expected) ** 2)) < 0.05


def test_step_of_the_adversary_is_in_widths_of_the_box():
    points, gradient = GENERATOR.normal(size=(2, 6, 2))
    low, high = np.array([-10.0, -900.0]), np.array([10.0, 900.0])
    width = high - low
    for unit in (1e-4, 1e4):  # of the divergence
        moved = equations.ascent_step(
            *(tf.constant(v) for v in (points, unit * gradient, low, high)), 0.01
        )
        step = (moved - points) / width
        assert_allclose(np.sqrt(np.mean(step**2)), 0.01)
        assert_allclose(
            step / np.linalg.norm(step), width * gradient / np.linalg.norm(width * gradient)
        )


def test_gradients_are_those_of_the_divergence():
    """With the draws m + s and m - s all moments in the gradients of KL[N || N] are exact."""
    m, s, v = (tf.constant(value, tf.float64) for value in (0.4, 0.7, 1.3))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([m, s, v])
        kl = tf.math.log(v / s) + (s**2 + m**2) / (2.0 * v**2)
        f = m + s * tf.constant([1.0, -1.0], tf.float64)
        q_scores, p_scores = -(f - m) / s**2, -f / v**2
        log_prob = -0.5 * (f / v) ** 2 - tf.math.log(v)
        fixed = equations.score_surrogate(f, q_scores - p_scores)
        learned = equations.learned_prior_surrogate(f, q_scores, log_prob)
        valued = equations.with_value(fixed, tf.constant(5.0, tf.float64))
    expected = tape.gradient(kl, [m, s, v])
    assert_allclose(tape.gradient(fixed, [m, s]), expected[:2])
    assert_allclose(tape.gradient(valued, [m, s]), expected[:2])
    assert_allclose(tape.gradient(learned, [m, s, v]), expected)
    assert_allclose(valued, 5.0)


def test_injected_noise_is_normal():
    """The probability of a false alarm is 1e-6."""
    noisy = equations.with_noise(tf.fill([1000, 2, 1], 3.0), 0.5, tf.constant([1, 2]))
    assert stats.kstest(np.ravel(noisy), stats.norm(3.0, 0.5).cdf).pvalue > 1e-6


def test_with_regularized_noise_the_divergence_has_a_limit():
    def at(count, gamma):
        x = np.linspace(-1.0, 1.0, count)
        root = np.stack([np.cos(w * x) for w in range(4)], axis=-1)
        prior = np.exp(-0.5 * (x[:, np.newaxis] - x) ** 2 / 0.3**2)
        if gamma is None:
            gamma = equations.regularized_noise(0.05, tf.zeros([1, count, 1], tf.float64))
        total = prior + np.square(gamma) * np.eye(count)
        zeros = tf.zeros([count, 1], tf.float64)
        parts = tf.constant(root @ root.T), zeros, tf.constant(total[np.newaxis])
        return equations.gaussian_divergence(zeros, *parts, gamma).kl

    regularized, fixed = ([float(at(n, gamma)) for n in (50, 100, 200)] for gamma in (None, 0.05))
    assert_allclose(regularized, regularized[-1], rtol=0.02)
    assert np.all(np.diff(fixed) > 0.1 * fixed[0])


def test_moments_of_draws_are_unbiased(assert_mean_close):
    """The outputs are independent runs. FALSE_FAIL = 1e-6 for each part."""
    covariance = covariance_of(4)
    draws = GENERATOR.normal(size=(8, 5000, 4)) @ np.linalg.cholesky(covariance).T + 2.0
    moments = equations.moments_of_draws(tf.constant(draws.transpose(0, 2, 1)), 8)
    assert_mean_close(moments.mean.numpy(), 2.0)
    assert_mean_close(moments.covariance.numpy(), covariance)
    assert_mean_close(moments.log_det.numpy(), np.linalg.slogdet(covariance)[1])


@pytest.mark.parametrize("num_draws", [None, 10**10])
def test_matched_divergence_of_many_draws_is_that_of_normal_distributions(num_draws):
    means = GENERATOR.normal(size=(2, 3, 2))  # of q and p, [N, D] each
    covariances = np.array([[covariance_of(3) for _ in range(2)] for _ in range(2)])
    q, p = (
        equations.exact_moments(tf.constant(m), tf.constant(c))
        for m, c in zip(means, covariances, strict=True)
    )
    found = equations.matched_divergence(
        q._replace(num_draws=10**10), p._replace(num_draws=num_draws)
    )
    expected = sum(
        divergence(means[0, :, d], covariances[0, d], means[1, :, d], covariances[1, d])
        for d in range(2)
    )
    assert_allclose(found, expected, rtol=1e-7)
