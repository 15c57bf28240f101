"""The equations of the stable process against SciPy, closed forms and brute force in NumPy."""

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose
from scipy import special, stats

from tfp_fnspace.methods.stable_process import equations

FALSE_FAIL = 1e-6

#: Chains, points, groups.
B, N, G = 3, 4, 6


def tensor(value):
    return tf.constant(value, tf.float64)


@pytest.fixture
def case():
    """Returns NumPy arrays of a random state: patterns, totals, noise, nu, Q and targets."""
    rng = np.random.default_rng(0)
    signs = rng.choice([-1.0, 1.0], size=(N, G))
    totals = rng.exponential(size=(B, G))
    noise_weights = rng.exponential(size=(B, N)) + 0.5
    noise, nu = rng.exponential(size=(2, B)) + 0.3
    covariance = np.einsum("ng,bg,mg->bnm", signs, totals, signs)
    q = nu[:, None, None] * covariance
    q += np.einsum("b,bn,nm->bnm", noise, noise_weights, np.eye(N))
    return {
        "signs": signs,
        "totals": totals,
        "covariance": covariance,
        "noise_weights": noise_weights,
        "log_noise": np.log(noise),
        "log_nu": np.log(nu),
        "q": q,
        "targets": rng.normal(size=(B, N)),
    }


def log_normal(targets, covariances):
    parts = zip(targets, covariances, strict=True)
    return np.array([stats.multivariate_normal(cov=q).logpdf(y) for y, q in parts])


# Section 2.1 and S.1 -----------------------------------------------------------------------------


def test_signs_are_sides_of_hyperplanes():
    x, planes = np.array([[2.0, 1.0], [-1.0, 3.0]]), np.array([[0.5, 1.0, -1.0], [-1.0, 0.5, 0.0]])
    # 0.5 + 2 - 1 > 0, and (2, 1) lies on the second hyperplane: -1 + 0.5 * 2 = 0.
    assert_allclose(equations.signs(tensor(x), tensor(planes)), [[1.0, 1.0], [-1.0, -1.0]])


def test_separations_are_probabilities_of_a_cauchy_variable():
    x, other = np.array([-3.0, 0.2, 1.0]), np.array([-1.0, 0.3, 40.0])
    between = stats.cauchy.cdf(other) - stats.cauchy.cdf(x)
    ones = np.ones(3)
    assert_allclose(equations.separation(x, other, ones) / np.pi, between, rtol=1e-13)
    assert_allclose(equations.separation(x, other, -ones) / np.pi, 1.0 - between, rtol=1e-13)


# Theorem 1: scales -------------------------------------------------------------------------------


def levels(count):
    """Returns u in (0, 1) and weights, by which means over a uniform variable are sums."""
    nodes, weights = special.roots_legendre(count)
    return 0.5 + 0.5 * nodes, 0.5 * weights


def test_scales_of_index_one_half_are_levy():
    """E exp(-r s) = exp(-sqrt(r)) is that of the Levy distribution with scale 1/2."""
    (u, weights), log_s = levels(400), np.linspace(-5.0, 8.0, 14)
    density = stats.levy(scale=0.5).pdf(np.exp(log_s)) * np.exp(log_s)
    given_u = equations.log_scale_density(tensor(u[:, None]), tensor(log_s), tensor(1.0))
    assert_allclose(weights @ np.exp(given_u), density, rtol=1e-9)
    logit = np.linspace(-30.0, 30.0, 2001)
    joint = equations.log_jump_density(tensor(logit[:, None]), tensor(log_s), tensor(1.0))
    total = np.sum(np.exp(joint), axis=0) * (logit[1] - logit[0])
    assert_allclose(total, density, rtol=1e-9)


@pytest.mark.parametrize("alpha", [0.3, 1.0, 1.8])
def test_scales_have_their_laplace_transform(alpha):
    u, weights = levels(300)
    e, e_weights = special.roots_legendre(400)
    log_e = 22.0 * e - 18.0  # from -40 to 4, where e exp(-e) ends
    e_weights = 22.0 * e_weights * np.exp(log_e - np.exp(log_e))
    log_s = equations.log_scales_of(tensor(u[:, None]), tensor(log_e), tensor(alpha))
    for rate in (0.2, 1.0, 5.0):
        transform = weights @ np.exp(-rate * np.exp(log_s)) @ e_weights
        assert_allclose(transform, np.exp(-(rate ** (alpha / 2.0))), rtol=1e-7)


def test_at_alpha_two_scales_are_one():
    assert 1.0 - 1e-8 < equations.index_of(tensor(2.0)) < 1.0
    log_s = equations.log_scales_of(tensor([0.1, 0.5, 0.9]), tensor([-2.0, 0.0, 1.0]), tensor(2.0))
    assert_allclose(log_s, np.zeros(3), atol=1e-7)


def test_moves_of_alpha_keep_kanters_variables_or_the_masses():
    rng = np.random.default_rng(1)
    u, log_e = tensor(rng.uniform(size=(B, G))), tensor(np.log(rng.exponential(size=(B, G))))
    log_q = np.log(rng.dirichlet(np.ones(G)))
    alpha, new_alpha = tensor([[0.5], [1.1], [1.9]]), tensor([[0.7], [1.0], [1.2]])
    log_s = equations.log_scales_of(u, log_e, alpha)
    assert_allclose(equations.log_exponentials_of(u, log_s, alpha), log_e, rtol=1e-9, atol=1e-9)
    kept = equations.scales_with_kanter_kept(u, log_s, alpha, new_alpha)
    assert_allclose(kept, equations.log_scales_of(u, log_e, new_alpha), rtol=1e-9, atol=1e-9)
    masses = np.log(np.exp(log_q) ** (2.0 / alpha.numpy()) * np.exp(log_s))
    assert_allclose(equations.log_masses(log_s, tensor(log_q), alpha), masses, rtol=1e-9)
    back = equations.log_scales_of_masses(tensor(masses), tensor(log_q), alpha)
    assert_allclose(back, log_s, rtol=1e-9, atol=1e-9)
    kept = equations.scales_with_masses_kept(log_s, tensor(log_q), alpha, new_alpha)
    assert_allclose(equations.log_masses(kept, tensor(log_q), new_alpha), masses, rtol=1e-9)


def test_the_prior_of_scales_counts_atoms_that_are_present():
    u, log_s = np.array([[0.2, 0.7, 0.5]]), np.array([[-1.0, 0.5, 2.0]])
    every = equations.log_scale_density(tensor(u), tensor(log_s), tensor([[1.3]])).numpy()
    present = tensor([1.0, 0.0, 1.0])
    total = equations.log_scales_prior(tensor(u), tensor(log_s), tensor([[1.3]]), present)
    assert_allclose(total, every[:, 0] + every[:, 2])


def test_theorem_1_is_a_voigt_profile_at_one_point_and_alpha_one():
    """A Cauchy variable of scale sqrt(nu/2) plus a normal one."""
    (u, weights), log_s = levels(200), np.linspace(-10.0, 25.0, 1201)
    given_u = equations.log_scale_density(tensor(u[:, None]), tensor(log_s), tensor(1.0))
    density = weights @ np.exp(given_u) * (log_s[1] - log_s[0])
    nu, sigma = 0.8, 0.5
    count = len(log_s)
    masses = equations.log_masses(tensor(log_s), tensor(0.0), tensor(1.0))
    covariance = equations.function_covariance(tf.exp(masses)[:, None], tensor([[1.0]]))
    log_noise, log_nu = (tf.fill([count], tensor(v)) for v in (np.log(sigma**2), np.log(nu)))
    factor = equations.covariance_factor(
        covariance, tf.ones([count, 1], tf.float64), log_noise, log_nu
    )
    for y in (0.1, 1.2, -4.0):
        given_s = equations.log_likelihood(factor, tf.fill([count, 1], tensor(y)))
        expected = special.voigt_profile(y, sigma, np.sqrt(nu / 2.0))
        assert_allclose(np.exp(given_s) @ density, expected, rtol=1e-9)


# Theorem 1: covariance and density ---------------------------------------------------------------


def test_covariance_density_and_precision(case):
    covariance = equations.function_covariance(tensor(case["totals"]), tensor(case["signs"]))
    assert_allclose(covariance, case["covariance"], rtol=1e-12)
    noise = [tensor(case[name]) for name in ("noise_weights", "log_noise", "log_nu")]
    factor = equations.covariance_factor(covariance, *noise)
    assert_allclose(factor @ tf.linalg.matrix_transpose(factor), case["q"], rtol=1e-12, atol=1e-12)
    density = equations.log_likelihood(factor, tensor(case["targets"]))
    assert_allclose(density, log_normal(case["targets"], case["q"]), rtol=1e-10)
    precision = equations.precision_of_factor(factor)
    assert_allclose(precision, np.linalg.inv(case["q"]), rtol=1e-9, atol=1e-9)


def test_the_spectrum_gives_density_and_precision(case):
    weights, log_noise, log_nu = (
        tensor(case[name]) for name in ("noise_weights", "log_noise", "log_nu")
    )
    values, vectors, squares = equations.spectrum(
        tensor(case["covariance"]), weights, tensor(case["targets"])
    )
    density = equations.log_likelihood_of_spectrum(values, squares, log_noise, log_nu).numpy()
    density -= 0.5 * np.sum(np.log(case["noise_weights"]), axis=-1)
    assert_allclose(density, log_normal(case["targets"], case["q"]), rtol=1e-10)
    precision = equations.precision_of_spectrum(values, vectors, weights, log_noise, log_nu)
    assert_allclose(precision, np.linalg.inv(case["q"]), rtol=1e-9, atol=1e-9)


# Proposition 2 -----------------------------------------------------------------------------------


def test_posterior_weights_have_the_moments_of_equation_5():
    """The map from prior draws is affine: unit vectors give the exact mean and covariance."""
    rng = np.random.default_rng(2)
    atoms, noise = 5, 0.3
    group = np.array([0, 1, 1, 2, 0])
    patterns = rng.choice([-1.0, 1.0], size=(N, 3))
    at_new = rng.choice([-1.0, 1.0], size=(2, atoms))
    at_data = patterns[:, group]
    variance, y = rng.exponential(size=atoms), rng.normal(size=N)
    q = (at_data * variance) @ at_data.T + noise * np.eye(N)
    # The first row is the mean; the others have one prior weight, or one error, of a unit.
    prior = np.concatenate([np.zeros((1, atoms)), np.diag(np.sqrt(variance)), np.zeros((N, atoms))])
    errors = np.concatenate([np.zeros((1 + atoms, N)), np.sqrt(noise) * np.eye(N)])
    residual = np.concatenate([[y], np.zeros((atoms + N, N))]) - prior @ at_data.T - errors
    rows = len(prior)
    weights = equations.posterior_weights(
        tensor(prior),
        tensor(residual),
        tensor(np.tile(variance, (rows, 1))),
        tensor(np.tile(np.linalg.cholesky(q), (rows, 1, 1))),
        tensor(patterns),
        tf.constant(group),
    )
    f = equations.function_values(weights, tensor(at_new)).numpy()
    cross = (at_new * variance) @ at_data.T  # Q_{*, 1:n}
    assert_allclose(f[0], cross @ np.linalg.solve(q, y), rtol=1e-10)
    expected = (at_new * variance) @ at_new.T - cross @ np.linalg.solve(q, cross.T)
    assert_allclose(f[1:].T @ f[1:], expected, rtol=1e-10, atol=1e-10)


def test_predictive_moments_are_those_of_weighted_draws():
    rng = np.random.default_rng(3)
    values, shares = rng.normal(size=(4, 5, 2)), rng.dirichlet(np.ones(5))
    mean, variance = equations.predictive_moments(tensor(values), tensor(shares))
    assert_allclose(mean, np.average(values, axis=1, weights=shares), rtol=1e-12)
    for n in range(4):
        exact = np.cov(values[n].T, aweights=shares, ddof=0)
        assert_allclose(variance[n], np.diag(exact), rtol=1e-10)


# Section 3 ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("prior", "power"), [("variance", 1.0), ("scale", 0.5)])
def test_noise_priors_are_half_cauchy(prior, power):
    at = np.linspace(-6.0, 6.0, 9)  # log sigma^2
    value = np.exp(power * at)
    expected = stats.halfcauchy.logpdf(value) + np.log(value)
    ours = equations.log_noise_prior(tensor(at), prior).numpy()
    assert_allclose(ours - ours[0], expected - expected[0], rtol=1e-10, atol=1e-10)
    level = np.array([0.05, 0.5, 0.99])
    quantile = equations.log_noise_quantile(tensor(level), prior)
    assert_allclose(np.exp(power * quantile.numpy()), stats.halfcauchy.ppf(level), rtol=1e-10)


def test_nu_is_log_normal():
    at = np.linspace(-2.0, 2.0, 5)
    ours = equations.log_nu_prior(tensor(at), (0.3, 0.8)).numpy()
    expected = stats.norm.logpdf(at, 0.3, 0.8)
    assert_allclose(ours - ours[0], expected - expected[0], rtol=1e-10, atol=1e-12)


# Algorithm S.2 -----------------------------------------------------------------------------------


def test_a_rank_one_change_has_the_ratio_of_the_densities(case):
    tau, change = case["signs"][:, 0], np.array([0.7, 3.0, -0.1])
    precision = np.linalg.inv(case["q"])
    moved = precision @ tau
    curvature, slope = moved @ tau, np.einsum("bn,bn->b", moved, case["targets"])
    after = case["q"] + change[:, None, None] * np.outer(tau, tau)
    expected = log_normal(case["targets"], after) - log_normal(case["targets"], case["q"])
    ours = equations.log_ratio(tensor(change), tensor(curvature), tensor(slope))
    assert_allclose(ours, expected, rtol=1e-9)
    gain = equations.gain(tensor(change), tensor(curvature)).numpy()
    updated = precision - gain[:, None, None] * moved[:, :, None] * moved[:, None, :]
    assert_allclose(updated, np.linalg.inv(after), rtol=1e-9, atol=1e-9)


def test_two_rank_one_changes_at_once(case):
    tau = np.stack([case["signs"][:, [0, 1]], case["signs"][:, [2, 3]], case["signs"][:, [1, 4]]])
    changes = np.array([[0.7, 0.2], [3.0, -0.05], [-0.1, 0.4]])
    precision = np.linalg.inv(case["q"])
    weighted = np.einsum("bnm,bm->bn", precision, case["targets"])
    after = case["q"] + np.einsum("bnk,bk,bmk->bnm", tau, changes, tau)
    ours = equations.update_twice(*map(tensor, (precision, weighted, tau, *changes.T)))
    expected = np.linalg.inv(after)
    assert_allclose(ours.precision, expected, rtol=1e-9, atol=1e-9)
    targets = case["targets"]
    assert_allclose(ours.weighted, np.einsum("bnm,bm->bn", expected, targets), rtol=1e-8)
    ratio = log_normal(targets, after) - log_normal(targets, case["q"])
    assert_allclose(ours.log_ratio, ratio, rtol=1e-8)


# Not in the paper --------------------------------------------------------------------------------


def test_the_logit_of_a_uniform_variable_is_logistic():
    at = np.linspace(-30.0, 30.0, 7)
    assert_allclose(equations.log_density_of_logit(tensor(at)), stats.logistic.logpdf(at))


def test_noise_weights_are_inverse_gamma():
    df, noise, residual = 4.0, 0.25, 0.8
    weights = equations.draw_noise_weights(
        tf.constant([1, 2]),
        tf.fill([2, 20_000], tensor(residual)),
        tf.fill([2], tensor(np.log(noise))),
        df,
    )
    exact = stats.invgamma(0.5 * (df + 1.0), scale=0.5 * (df + residual**2 / noise))
    assert stats.kstest(weights.numpy().ravel(), exact.cdf).pvalue > FALSE_FAIL
