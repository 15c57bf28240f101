"""Bayesian linear regression from sums over rows, against SciPy's density and plain algebra."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import optimize, stats

from tfp_fnspace.math.regression import LinearRegression

GENERATOR = np.random.default_rng(0)
SCALES = np.array([0.5, 2.0, 1.0])
DESIGN = GENERATOR.normal(size=(30, 3))
WEIGHTS = np.array([[1.0, -2.0], [0.5, 0.3], [0.0, 1.0]])
NOISE = np.array([0.3, 0.05])
TARGETS = DESIGN @ WEIGHTS + NOISE * GENERATOR.normal(size=(30, 2))


def regression(*sizes):
    result = LinearRegression(SCALES, 2)
    for rows in np.split(np.arange(30), np.cumsum(sizes)):
        result.update(DESIGN[rows], TARGETS[rows])
    return result


def log_density(noise, column):
    covariance = DESIGN * SCALES**2 @ DESIGN.T + noise**2 * np.eye(30)
    return stats.multivariate_normal(np.zeros(30), covariance).logpdf(TARGETS[:, column])


def test_posterior_is_that_of_the_normal_equations():
    means, roots = regression(7, 9).posterior(NOISE)
    for d, noise in enumerate(NOISE):
        precision = DESIGN.T @ DESIGN / noise**2 + np.diag(SCALES**-2)
        expected = np.linalg.solve(precision, DESIGN.T @ TARGETS[:, d] / noise**2)
        assert_allclose(means[:, d], expected, rtol=1e-10, atol=1e-12)
        assert_allclose(roots[d] @ roots[d].T, np.linalg.inv(precision), rtol=1e-9, atol=1e-12)
        assert_allclose(roots[d], np.tril(roots[d]), atol=1e-15)


@pytest.mark.parametrize("noise", [0.01, 0.3, 2.0])
def test_marginal_likelihood_is_that_of_scipy(noise):
    constant = 15.0 * np.log(2.0 * np.pi)
    values = regression().log_marginal_likelihood(noise) - constant
    assert_allclose(values, [log_density(noise, 0), log_density(noise, 1)], rtol=1e-8)


@pytest.mark.parametrize("separate", [False, True])
def test_best_noise_is_that_of_an_optimiser(separate):
    def best(columns):
        def loss(raw):
            return -sum(log_density(np.exp(raw), column) for column in columns)

        return np.exp(optimize.minimize_scalar(loss, bounds=(-6.0, 2.0), method="bounded").x)

    expected = [best([0]), best([1])] if separate else best([0, 1])
    assert_allclose(regression().best_noise_scale(1e-3, separate), expected, rtol=1e-3)


def test_best_noise_keeps_to_its_bound():
    assert regression().best_noise_scale(0.7) == pytest.approx(0.7)


def test_targets_that_are_zero_have_the_least_noise():
    result = LinearRegression(SCALES, 1)
    result.update(DESIGN, np.zeros((30, 1)))
    assert result.best_noise_scale(0.01) == pytest.approx(0.01)
