"""The equations of deep inverse Wishart processes against dense algebra, SciPy and quadrature."""

import diwp as reference
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose
from scipy import integrate, stats

from tfp_fnspace.methods.diwp import equations

#: Probability that a statistical assertion fails although the distribution is right.
FALSE_FAIL = 1e-6

GENERATOR = np.random.default_rng(0)
ROOT = GENERATOR.normal(size=(7, 9))
K = ROOT @ ROOT.T / 9.0 + 0.1 * np.eye(7)
P, N = 4, 3  # inducing points, and data points after them
II, IT, TT = reference.split(K, P)
L = np.linalg.cholesky(II)
SCHUR = TT - IT.T @ np.linalg.solve(II, IT)
V = GENERATOR.normal(size=(P, P))
TARGETS = GENERATOR.normal(size=(2, P))
NOISE_FACTORS = np.tril(0.3 * GENERATOR.normal(size=(2, P, P)), -1) + 0.5 * np.eye(P)
SEED, CLOSE = (1, 2), {"rtol": 1e-8, "atol": 1e-10}


def tensor(*values):
    """Returns float64 tensors with an axis of one draw in front."""
    tensors = [tf.constant(np.asarray(value)[np.newaxis]) for value in values]
    return tensors if len(tensors) > 1 else tensors[0]


# The generative model -----------------------------------------------------------------------------


def test_gram_matrix_of_inputs_with_and_without_omega():
    x, omega = GENERATOR.normal(size=(6, P)), np.stack([II, 2.0 * II])
    assert_allclose(equations.input_gram(x), (x @ x.T / P)[np.newaxis], **CLOSE)
    assert_allclose(equations.input_gram(x, omega), x @ omega @ x.T / P, **CLOSE)


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("constant", [None, 0.7])
def test_gram_matrix_in_blocks(joint, constant):
    f = GENERATOR.normal(size=(7, 5))
    blocks = equations.gram_of_features(*tensor(f[:P], f[P:]), joint, constant)
    ii, it, tt = reference.split(f @ f.T / 5.0 + (constant or 0.0), P)
    for ours, expected in zip(blocks, (ii, it, tt if joint else np.diag(tt)), strict=True):
        assert_allclose(ours[0], expected, **CLOSE)


@pytest.mark.parametrize(
    ("draw", "distribution"),
    [
        (lambda *a: equations.wishart(a[0], 6.5, *a[1:]), stats.wishart(6.5, II / 6.5)),
        (lambda *a: equations.residual_wishart(a[0], 6, 0.0, *a[1:]), stats.wishart(6, II / 6.0)),
        (
            lambda *a: equations.inverse_wishart(a[0], 3.0, *a[1:]),
            stats.invwishart(3.0 + P + 1.0, 3.0 * II),
        ),
    ],
    ids=["wishart", "residual_wishart", "inverse_wishart"],
)
def test_kernel_processes_have_scipys_distributions(draw, distribution):
    ours = draw(tf.constant(L), 4000, SEED)
    theirs = distribution.rvs(4000, random_state=3)
    for statistic in (lambda g: np.linalg.slogdet(g)[1], lambda g: g[:, 0, 1]):
        assert stats.ks_2samp(statistic(ours.numpy()), statistic(theirs)).pvalue > FALSE_FAIL


def test_functions_have_the_covariance_of_the_kernel(assert_mean_close):
    f = equations.gaussian_functions(tensor(L), 20_000, SEED)[0].numpy().T
    assert_mean_close(f[:, :, np.newaxis] * f[:, np.newaxis], II, FALSE_FAIL)


# The posterior of a Gram matrix -------------------------------------------------------------------


@pytest.mark.parametrize("whiten", [True, False])
def test_scale_of_the_posterior_is_that_of_equation_21(whiten):
    delta = tf.constant(3.0, tf.float64)
    v = np.linalg.solve(L, V) if whiten else V
    w, gram = equations.relative_scale(tensor(v), delta, None if whiten else tensor(L))
    assert_allclose(gram, w.numpy() @ np.swapaxes(w, 1, 2), **CLOSE)
    assert_allclose(3.0 * L @ (np.eye(P) + gram[0]) @ L.T, 3.0 * II + V @ V.T, **CLOSE)


def test_draws_of_the_posterior_have_scipys_distribution():
    delta, gamma = tf.constant([3.0, 1.5], tf.float64)
    _, gram = equations.relative_scale(tensor(V), delta, tensor(L))
    inner = np.linalg.cholesky(np.eye(P) + gram)
    rotation = equations.posterior_rotation(tf.constant(inner), delta, gamma, P, 4000, SEED)
    factor = L @ rotation.numpy()
    ours = factor @ np.swapaxes(factor, 1, 2)
    theirs = reference.inverse_wishart(3.0 + 1.5 + P + 1.0, 3.0 * II + V @ V.T, 4000, seed=3)
    for statistic in (lambda g: np.linalg.slogdet(g)[1], lambda g: g[:, 0, 1]):
        assert stats.ks_2samp(statistic(ours), statistic(theirs)).pvalue > FALSE_FAIL


@pytest.mark.parametrize("v", [0.0, 0.01, 2.0])
def test_divergence_of_a_number_is_that_of_quadrature(v):
    """At one point the inverse Wishart distribution is an inverse gamma distribution."""
    delta, gamma, k = 3.0, 0.8, 1.7
    arguments = tf.constant([delta, gamma], tf.float64)
    w, gram = equations.relative_scale(tensor([[v]]), arguments[0], tensor([[np.sqrt(k)]]))
    ours = equations.gram_divergence(w, gram, tf.sqrt(1.0 + gram), *tf.unstack(arguments), 1)
    p = stats.invgamma((delta + 2.0) / 2.0, scale=delta * k / 2.0)
    q = stats.invgamma((delta + gamma + 2.0) / 2.0, scale=(delta * k + v**2) / 2.0)

    def integrand(u):
        g = q.ppf(u)
        return q.logpdf(g) - p.logpdf(g)

    assert_allclose(ours, integrate.quad(integrand, 0.0, 1.0, epsabs=1e-10)[0], atol=1e-7)


# The posterior of the output ----------------------------------------------------------------------


def posterior_of_output(factors):
    """Returns L_C, `L_C^-1 v` and the divergence."""
    c = equations.covariance_of_targets(tensor(II), tf.constant(factors))
    c_factor = tf.linalg.cholesky(c)
    return c_factor, *equations.output_divergence(c_factor, tf.constant(TARGETS), factors)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("joint", [True, False])
def test_output_is_that_of_equations_97_and_98(shared, joint):
    factors = NOISE_FACTORS[:1] if shared else NOISE_FACTORS
    c_factor, whitened, divergence = posterior_of_output(factors)
    blocks = tensor(IT, TT if joint else np.diag(TT))
    mean, given = equations.output_given_inducing(c_factor, whitened, *blocks)
    total = 0.0
    for d, v in enumerate(TARGETS):
        unit = 0 if shared else d
        noise = factors[unit] @ factors[unit].T
        expected, covariance = reference.predict(K, P, v, noise)
        assert_allclose(mean[0, d], expected, **CLOSE)
        assert_allclose(given.variance[0, unit], np.diag(covariance), **CLOSE)
        if joint:
            assert_allclose(given.covariance[0, unit], covariance, **CLOSE)
        total += reference.gaussian_kl(*reference.inducing_posterior(II, v, noise), II)
    assert joint or given.covariance is None
    assert_allclose(divergence, [total], **CLOSE)


# The bound ----------------------------------------------------------------------------------------


def test_bound_of_the_exact_posterior_is_the_evidence():
    """With inducing points at the data, v = y and A = s^2 I, the posterior is exact."""
    scale = 0.5
    factors = np.tile(scale * np.eye(P), (2, 1, 1))
    c_factor, whitened, divergence = posterior_of_output(factors)
    mean, given = equations.output_given_inducing(c_factor, whitened, *tensor(II, np.diag(II)))
    log_density = stats.norm(mean[0], scale).logpdf(TARGETS) - given.variance[0] / (2.0 * scale**2)
    value, log_likelihood, kl = equations.bound(tf.reduce_sum(log_density, 0), divergence[0], P)
    evidence = sum(reference.log_marginal_likelihood(II, y, scale**2) for y in TARGETS)
    assert_allclose(P * value, evidence, rtol=1e-8)
    assert_allclose(value, log_likelihood - kl, rtol=1e-12)


# The data given the inducing points ---------------------------------------------------------------


@pytest.mark.parametrize("joint", [True, False])
def test_schur_complement(joint):
    it, tt = tensor(IT, TT if joint else np.diag(TT))
    given = equations.given_inducing(tensor(L), it, tt, 1e-11)
    assert_allclose(L @ given.whitened[0], IT, **CLOSE)
    assert_allclose(given.variance[0], np.diag(SCHUR), **CLOSE)
    if joint:
        assert_allclose(given.covariance[0], SCHUR, **CLOSE)
    at_inducing = equations.given_inducing(tensor(L), *tensor(II, np.diag(II)), 1e-3)
    assert_allclose(at_inducing.variance[0], 1e-3 * np.diag(II), rtol=1e-8)


def test_a_point_has_the_quantiles_of_equation_106_and_the_spread_of_107():
    delta, probabilities = 3.0, np.array([0.1, 0.5, 0.9])
    concentration = equations.point_concentration(tf.constant(delta, tf.float64), P)
    log_gamma = np.log(stats.gamma(float(concentration)).ppf(1.0 - probabilities))
    noise = np.ones((1, P, N))
    variance, log_gamma = tensor(np.diag(SCHUR), log_gamma)
    delta_tensor = tf.constant(delta, tf.float64)
    added, drawn = equations.point_given_inducing(variance, delta_tensor, log_gamma, noise)
    for n, probability in enumerate(probabilities):
        expected = stats.invgamma((delta + P + 2.0) / 2.0, scale=0.5 * delta * SCHUR[n, n])
        assert_allclose(drawn[0, n], expected.ppf(probability), rtol=1e-8)
        assert_allclose(added[0, :, n], np.sqrt(drawn[0, n] / delta), rtol=1e-8)


def test_points_have_the_distribution_of_equation_34():
    delta, factor = 3.0, np.linalg.cholesky(SCHUR)
    delta_tensor, noise = tf.constant(delta, tf.float64), np.tile(np.eye(N), (4000, 1, 1))
    added, drawn = equations.points_given_inducing(tensor(factor), delta_tensor, noise, SEED)
    # Noise I shows the factor by which the noise is multiplied.
    assert_allclose(delta * np.swapaxes(added, 1, 2) @ added, drawn, rtol=1e-7, atol=1e-9)
    theirs = reference.inverse_wishart(delta + N + N + 1.0, delta * SCHUR, 4000, seed=3)
    for statistic in (lambda g: np.linalg.slogdet(g)[1], lambda g: g[:, 0, 1]):
        assert stats.ks_2samp(statistic(drawn.numpy()), statistic(theirs)).pvalue > FALSE_FAIL


@pytest.mark.parametrize("joint", [True, False])
def test_blocks_are_those_of_equation_32(joint):
    rotation, noise = np.tril(V), GENERATOR.normal(size=(P, N))
    schur = SCHUR if joint else np.diag(SCHUR)
    whitened = np.linalg.solve(L, IT) + noise
    ii, it, tt = equations.assemble(*tensor(L, rotation, whitened, schur))
    g_ii = L @ rotation @ rotation.T @ L.T
    solved = np.linalg.solve(II, IT) + np.linalg.solve(L.T, noise)  # G_ii^-1 G_it
    g_tt = SCHUR + solved.T @ g_ii @ solved
    assert_allclose(ii[0], g_ii, **CLOSE)
    assert_allclose(it[0], g_ii @ solved, **CLOSE)
    assert_allclose(tt[0], g_tt if joint else np.diag(g_tt), **CLOSE)
