"""The NumPy references of the stable process against each other and against closed forms."""

import numpy as np
import pytest
import stable_process as reference
from scipy import integrate, special, stats

LEVELS = np.array([-1.0, 0.0, 0.5, 1.5, 3.0])
FALSE_FAIL = 1e-6
NUM_BATCHES = 50


def check_close(estimate, error, expected, expected_error=0.0, *, batches=None):
    """Fails with probability `FALSE_FAIL` over all entries together (Bonferroni)."""
    estimate, expected = np.broadcast_arrays(estimate, expected)
    distribution = stats.norm if batches is None else stats.t(batches - 1)
    # 1e-10 allows for quadrature: there all draws agree and the standard error is 0.
    bound = (
        distribution.isf(FALSE_FAIL / (2 * estimate.size)) * np.hypot(error, expected_error) + 1e-10
    )
    assert np.all(np.abs(estimate - expected) <= bound), (estimate, expected, bound)


# Parts -------------------------------------------------------------------------------------------


def test_line_partition_has_the_angles_kernel():
    x = np.random.default_rng(0).normal(size=6)
    signs, probabilities = reference.line_partition(x)
    assert signs.shape == (6, 6)
    np.testing.assert_allclose(probabilities.sum(), 1.0, rtol=1e-14)
    angle = np.abs(np.arctan(x) - np.arctan(x)[:, np.newaxis])
    kernel = (signs * probabilities) @ signs.T
    np.testing.assert_allclose(kernel, 1.0 - 2.0 * angle / np.pi, atol=1e-14)


@pytest.mark.parametrize("alpha", [0.3, 1.0, 1.9, 2.0])
def test_positive_stable_has_its_laplace_transform(assert_mean_close, alpha):
    s = reference.positive_stable(np.random.default_rng(1), alpha, (200_000, 1))
    rates = np.array([0.1, 1.0, 3.0])
    assert_mean_close(np.exp(-rates * s), np.exp(-(rates ** (alpha / 2.0))), FALSE_FAIL)


@pytest.mark.parametrize("prior", ["variance", "scale"])
def test_noise_priors_are_half_cauchy_of_what_they_say(assert_mean_close, prior):
    draws = reference.noise_variances(np.random.default_rng(2), prior, 100_000)
    draws = draws if prior == "variance" else np.sqrt(draws)
    at = np.array([0.1, 1.0, 10.0])
    assert_mean_close(draws[:, np.newaxis] < at, stats.halfcauchy.cdf(at), FALSE_FAIL)


# Importance sampling -----------------------------------------------------------------------------


@pytest.mark.parametrize(("y", "nu", "sigma"), [(1.2, 1.0, 0.5), (-4.0, 0.3, 0.5), (0.1, 5.0, 2.0)])
def test_importance_sampling_is_voigt_for_one_point(y, nu, sigma):
    signs, probabilities = reference.line_partition([0.7])
    ours = reference.importance_posterior(
        [y], signs, probabilities, 1.0, nu, sigma, 200_000, seed=3, levels=LEVELS
    )
    truth = reference.voigt_posterior(y, nu, sigma, LEVELS)
    for name in ("mean", "second_moment", "cdf", "log_evidence"):
        estimate, error = ours[name]
        assert np.all(error < 0.03)
        check_close(estimate, error, truth[name])


def test_importance_sampling_is_a_gaussian_process_at_alpha_two():
    x, y, nu, sigma = np.array([-0.5, 0.4, 1.0]), np.array([1.0, -0.2]), 1.5, 0.3
    signs, probabilities = reference.line_partition(x)
    ours = reference.importance_posterior(y, signs, probabilities, 2.0, nu, sigma, 10, seed=4)
    angle = np.abs(np.arctan(x) - np.arctan(x)[:, np.newaxis])
    kernel = nu * (1.0 - 2.0 * angle / np.pi)
    covariance = kernel[:2, :2] + sigma**2 * np.eye(2)
    gain = kernel[:, :2] @ np.linalg.inv(covariance)
    mean, variance = gain @ y, np.diagonal(kernel - gain @ kernel[:2])
    np.testing.assert_allclose(ours["mean"][0], mean, rtol=1e-10)
    np.testing.assert_allclose(ours["second_moment"][0], mean**2 + variance, rtol=1e-10)
    cdf = stats.norm.cdf(0.0, mean, np.sqrt(variance))
    np.testing.assert_allclose(ours["cdf"][0][:, 0], cdf, rtol=1e-10)
    evidence = stats.multivariate_normal(cov=covariance).logpdf(y)
    np.testing.assert_allclose(ours["log_evidence"][0], evidence, rtol=1e-10)


@pytest.mark.parametrize("prior", ["variance", "scale"])
def test_importance_sampling_of_the_noise_too(prior):
    y, nu = 1.2, 1.0
    signs, probabilities = reference.line_partition([0.7])
    ours = reference.importance_posterior(
        [y], signs, probabilities, 1.0, nu, None, 400_000, seed=5, noise_prior=prior
    )

    def integrand(log_sigma):
        sigma = np.exp(log_sigma)
        power = 2.0 if prior == "variance" else 1.0  # the change of variables to log sigma
        density = stats.halfcauchy.pdf(sigma**power) * power * sigma**power
        return special.voigt_profile(y, sigma, np.sqrt(nu / 2.0)) * density

    evidence = integrate.quad(integrand, -15.0, 15.0, limit=200)[0]
    moment = integrate.quad(lambda u: u * integrand(u), -15.0, 15.0, limit=200)[0] / evidence
    check_close(*ours["log_evidence"], np.log(evidence))
    check_close(*ours["log_noise_scale"], moment)


# Algorithm S.2 -----------------------------------------------------------------------------------

# Each problem has x of the training points and of new points, y, alpha and nu.
PROBLEMS = {
    "one_point": ([0.7], [0.0], [1.2], 1.0, 1.0),
    "two_points": ([-0.6, 0.8], [0.1], [-0.3, 2.0], 1.1, 1.0),
    "three_points": ([1.0, -1.0, 0.2], [-0.4, 2.0], [2.2, 0.1, 1.9], 0.8, 0.5),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "noise"),
    [
        ("one_point", "scale"),
        ("two_points", 0.5),
        ("two_points", "variance"),
        ("three_points", 0.5),
        ("three_points", "scale"),
    ],
)
def test_algorithm_s2_has_the_posterior(name, noise):
    x, x_new, y, alpha, nu = PROBLEMS[name]
    partition = reference.line_partition(x + x_new)
    known, prior = (None, noise) if isinstance(noise, str) else (noise, "variance")
    arguments = (np.array(y), *partition, alpha, nu)
    truth = reference.importance_posterior(
        *arguments, known, 400_000, seed=6, levels=LEVELS, noise_prior=prior
    )
    chain = reference.algorithm_s2(
        *arguments, NUM_BATCHES * 400 + 1000, seed=7, noise_prior=prior, noise_scale=known
    )
    below = chain["f"][1000:, :, np.newaxis] <= LEVELS
    cdf, error = truth["cdf"]
    common = (cdf > 0.02) & (cdf < 0.98)  # the central limit theorem needs some draws on both sides
    check_batches(below[:, common], cdf[common], error[common])
    if known is None:
        check_batches(np.log(chain["sigma"][1000:]), *truth["log_noise_scale"])
    else:
        check_batches(chain["f"][1000:, : len(y)], *(v[: len(y)] for v in truth["mean"]))


def check_batches(draws, expected, expected_error):
    """Compares means of batches with the truth.

    The longest autocorrelation time among the chains is 6 iterations, so means of 400 are as good
    as independent, and Student's t gives the false-fail rate.
    """
    means = draws.reshape(NUM_BATCHES, -1, *draws.shape[1:]).mean(axis=1)
    error = means.std(axis=0, ddof=1) / np.sqrt(NUM_BATCHES)
    check_close(means.mean(axis=0), error, expected, expected_error, batches=NUM_BATCHES)


def test_rank_one_updates_are_those_of_the_whole_matrix():
    rng = np.random.default_rng(8)
    y, (signs, _) = rng.normal(size=4), reference.line_partition(rng.normal(size=4))
    variances = rng.exponential(size=4)
    patterns, noise = signs.T.copy(), 0.25

    def log_density(variances):
        covariance = (signs * variances) @ patterns + noise * np.eye(4)
        return stats.multivariate_normal(cov=covariance).logpdf(y)

    proposals, thresholds = rng.exponential(size=4), -2.0 * rng.exponential(size=4)
    expected = variances.copy()
    for k in range(4):
        proposed = expected.copy()
        proposed[k] = proposals[k]
        if thresholds[k] < 2.0 * (log_density(proposed) - log_density(expected)):
            expected = proposed
    precision = np.linalg.inv((signs * variances) @ patterns + noise * np.eye(4))
    reference._sweep(precision, y, patterns, variances, proposals, thresholds)
    np.testing.assert_array_equal(variances, expected)
