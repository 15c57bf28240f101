"""The data term of the objective, against quadrature and Monte Carlo."""

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose
from scipy import integrate, special, stats

from tfp_fnspace import likelihoods
from tfp_fnspace.likelihoods.energy import data_term
from tfp_fnspace.typing import GaussianMoments

SEED = tf.constant([1, 2])
ALPHAS = (0.05, 0.5, 1.0)


def moments(num_outputs, num_draws=4, num_rows=3, dtype="float64"):
    random = np.random.default_rng(0)
    shape = (num_draws, num_rows, num_outputs)
    mean, stddev = random.normal(size=shape), random.uniform(0.1, 1.5, size=shape)
    return GaussianMoments(tf.constant(mean, dtype), tf.constant(stddev**2, dtype))


@pytest.mark.parametrize("alpha", ALPHAS)
def test_gaussian_power_is_in_closed_form(alpha):
    likelihood = likelihoods.Gaussian([0.3, 0.8], dtype="float64")
    distribution, y = moments(2), np.random.default_rng(1).normal(size=(3, 2))
    found = likelihood.log_expected_power(distribution, tf.constant(y), alpha, SEED).numpy()
    scales, f = np.array([0.3, 0.8]), np.linspace(-10.0, 10.0, 20_001)
    prior = stats.norm(
        distribution.mean.numpy()[..., np.newaxis], np.sqrt(distribution.variance)[..., np.newaxis]
    )
    density = stats.norm(f, scales[:, np.newaxis]).pdf(y[..., np.newaxis])  # [N, D, F]
    integrals = integrate.simpson(prior.pdf(f) * density**alpha, x=f, axis=-1)
    assert_allclose(found, np.log(integrals).sum(axis=-1), rtol=1e-8)
    exact = GaussianMoments(distribution.mean, None)
    powers = likelihood.log_expected_power(exact, tf.constant(y), alpha, SEED)
    logs = stats.norm(distribution.mean.numpy(), scales).logpdf(y).sum(axis=-1)
    assert_allclose(powers, alpha * logs, rtol=1e-10)


def log_density_student(f, y):
    return stats.t(4.0, f, 0.3).logpdf(y).sum(axis=-1)


def log_density_bernoulli(f, y):
    return np.where(y == 1, special.log_expit(f), special.log_expit(-f)).sum(axis=-1)


def log_density_categorical(f, y):
    logs = special.log_softmax(f, axis=-1)
    return logs[..., np.arange(len(y)), y[:, 0].astype(int)]


def log_density_heteroscedastic(f, y):
    noise = np.sqrt(0.01**2 + np.exp(f[..., 2:]))
    return stats.norm(f[..., :2], noise).logpdf(y).sum(axis=-1)


REALS = np.array([[0.2, -0.4], [1.0, 0.3], [-0.8, 0.0]])
BITS = np.array([[0.0, 1.0], [1.0, 1.0], [0.0, 0.0]])

#: Likelihood, outputs, targets, and the log density of f `[..., N, D]` by SciPy.
WITHOUT_CLOSED_FORM = {
    "StudentT": (likelihoods.StudentT(4.0, 0.3), 2, REALS, log_density_student),
    "Bernoulli": (likelihoods.Bernoulli(), 2, BITS, log_density_bernoulli),
    "Categorical": (
        likelihoods.Categorical(),
        3,
        np.array([[0.0], [2.0], [1.0]]),
        log_density_categorical,
    ),
    "Heteroscedastic": (
        likelihoods.HeteroscedasticGaussian(),
        4,
        REALS,
        log_density_heteroscedastic,
    ),
}


@pytest.mark.parametrize("alpha", [0.5, 1.0])
@pytest.mark.parametrize("name", WITHOUT_CLOSED_FORM)
def test_power_from_one_draw_is_unbiased(name, alpha):
    """The mean of exp over 20,000 draws is that of 200,000 of NumPy; the false-fail rate is 1e-6.

    The errors of both means are known (central limit theorem); the rows are tested by Bonferroni.
    """
    likelihood, num_outputs, targets, log_density = WITHOUT_CLOSED_FORM[name]
    mean, variance = (v[0].numpy() for v in moments(num_outputs))
    many = GaussianMoments(
        *(tf.constant(np.tile(v, (20_000, 1, 1)), tf.float32) for v in (mean, variance))
    )
    ours = np.exp(
        likelihood.log_expected_power(many, tf.constant(targets, tf.float32), alpha, SEED)
    )
    f = mean + np.sqrt(variance) * np.random.default_rng(1).normal(size=(200_000, 3, num_outputs))
    theirs = np.exp(alpha * log_density(f, targets))
    error = np.sqrt(sum(v.var(axis=0) / len(v) for v in (ours, theirs)))
    difference = np.abs(ours.mean(axis=0) - theirs.mean(axis=0))
    assert np.all(difference < stats.norm.isf(1e-6 / 6) * error)
    assert np.all(error < 0.03 * theirs.mean(axis=0))  # the test could have failed


def test_one_is_the_log_of_the_mean_density():
    likelihood, distribution = likelihoods.Gaussian(0.5, dtype="float64"), moments(1, num_draws=6)
    y = np.array([[0.1], [-0.3], [2.0]])
    found = data_term(likelihood, distribution, tf.constant(y), 1.0, SEED)
    components = stats.norm(
        distribution.mean.numpy(), np.sqrt(distribution.variance.numpy() + 0.25)
    )
    assert_allclose(found, np.log(components.pdf(y)[..., 0].mean(axis=0)), rtol=1e-10)
    assert_allclose(found, likelihood.mixture(distribution).log_prob(y), rtol=1e-10)


def test_zero_is_the_expected_log_density_and_the_limit():
    likelihood, distribution = likelihoods.Gaussian(0.5, dtype="float64"), moments(1, num_draws=6)
    y = np.array([[0.1], [-0.3], [2.0]])
    at_zero = data_term(likelihood, distribution, tf.constant(y), 0.0, SEED).numpy()
    squares = (y - distribution.mean.numpy()) ** 2 + distribution.variance.numpy()
    expected = -0.5 * (squares / 0.25 + np.log(2.0 * np.pi * 0.25))
    assert_allclose(at_zero, expected[..., 0].mean(axis=0), rtol=1e-10)
    gaps = []
    for alpha in (1e-2, 1e-3, 1e-4):
        gap = data_term(likelihood, distribution, tf.constant(y), alpha, SEED).numpy() - at_zero
        assert np.all(gap > 0.0)  # Jensen
        gaps.append(gap)
    assert_allclose(gaps[1] / gaps[2], 10.0, rtol=0.05)  # gaps are of the order of alpha
    assert gaps[2].max() < 0.05


def test_powers_between_are_a_mean_of_powers_over_the_components():
    likelihood, distribution = likelihoods.Gaussian(0.5, dtype="float64"), moments(2, num_draws=6)
    y, alpha = np.zeros((3, 2)), 0.3
    powers = likelihood.log_expected_power(distribution, tf.constant(y), alpha, SEED).numpy()
    expected = np.log(np.exp(powers).mean(axis=0)) / alpha
    assert_allclose(
        data_term(likelihood, distribution, tf.constant(y), alpha, SEED), expected, rtol=1e-10
    )


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_gradients_are_finite_far_from_the_data(alpha):
    distribution, likelihood = moments(1, dtype="float32"), likelihoods.Gaussian(0.01)
    mean = tf.Variable(distribution.mean)
    with tf.GradientTape() as tape:
        value = data_term(
            likelihood,
            GaussianMoments(mean, 1e-8 * distribution.variance),
            tf.fill([3, 1], 100.0),
            alpha,
            SEED,
        )
        total = tf.reduce_sum(value)
    assert np.all(np.isfinite(value)) and np.all(np.isfinite(tape.gradient(total, mean)))
