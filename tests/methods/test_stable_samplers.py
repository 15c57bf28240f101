"""The samplers of the stable process against truth that is not a Markov chain.

Three kinds of truth: NumPy by brute force for the parts; importance sampling from the prior for a
few points; and the prior itself: when (state, y) is drawn from the joint law and a move leaves the
posterior given y invariant, the state after any number of moves has the law of the prior (Geweke
2004). The last sees every error of a move at once, with independent chains and no burn-in.
"""

import functools

import numpy as np
import pytest
import stable_process as reference
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import stats

from tfp_fnspace import metrics
from tfp_fnspace.math import kanter
from tfp_fnspace.methods.stable_process import hyperplanes, samplers
from tfp_fnspace.methods.stable_process.samplers import (
    functions,
    gaussian,
    grouped,
    hmc,
    hyper,
    relocate,
    sweep,
)
from tfp_fnspace.methods.stable_process.samplers import state as chain

FALSE_FAIL = 1e-6
LEVELS = np.array([-1.0, 0.0, 0.5, 1.5, 3.0])
ALPHAS = (0.7, 1.1, 1.6)

#: Of importance sampling: its errors are half of the chains' or less.
NUM_DRAWS = 200_000

#: Fixed noise and hyper-parameters.
FIXED = samplers.Settings(infer_noise=False, adapt_for=0, relocations=8)

# x of the training points, of new points, and y. Between and beyond two training points the new
# ones cut the groups into atoms with q from 1e-4 to 0.3.
PROBLEMS = {
    "two_points": ([-0.6, 0.8], [0.1, -0.1, 0.101, 3.0, -2.0, 40.0], [-0.3, 2.0]),
    "three_points": ([1.0, -1.0, 0.2], [-0.4, 0.5, 2.0, 0.2003], [2.2, 0.1, 1.9]),
    "plane": (
        [[0.0, 0.3], [1.0, -0.5], [-0.7, 0.8]],
        [[0.4, 0.0], [0.05, 0.3], [-2.0, 1.0]],
        [0.4, -1.5, 2.0],
    ),
}


# So many groups that they have different numbers of neighbours.
_SPREAD = np.random.default_rng(3).normal(size=(8, 2)) ** 3
MANY = (_SPREAD[:7], _SPREAD[7:], [0.0] * 7)


def tensor(value):
    return tf.constant(value, tf.float64)


def partition_of(name):
    """Partition, signs at training and new points, and y."""
    x, x_new, y = (np.asarray(part, np.float64) for part in PROBLEMS[name])
    points = np.concatenate([x, x_new])
    points = points.reshape(len(points), -1)
    partition = hyperplanes.exact(points)
    return partition, partition.signs(points).astype(np.float64), y


@functools.cache
def compiled(one_step):
    """`samplers.run` as a graph: one trace for each shape and settings."""
    return tf.function(functools.partial(samplers.run, one_step=one_step), autograph=False)


def run_chains(
    name, settings, chains, count, *, thin=1, seed=0, one_step=grouped.one_step, **start
):
    """Draws of f `[K, B, n + m]`, `Draws`, the last state and the mean `Info`.

    The first fifth of the iterations is left out. One call only: XLA compiles for each.
    """
    problem, signs, state = problem_and_state(name, chains, seed=seed, **start)
    burn = count // 5
    settings = settings._replace(adapt_for=burn * thin)
    state, draws, info = compiled(one_step)(
        tf.constant([seed, 1]), state, problem, settings, count, thin
    )
    draws = samplers.Draws(*(part.numpy()[burn:] for part in draws))
    return draws.weights.astype(np.float64) @ signs.T, draws, state, info


def problem_and_state(name, chains, alphas=ALPHAS, noise=0.25, seed=0):
    """`Problem`, signs at all points and an initial state, the chains sorted by alpha."""
    partition, signs, y = partition_of(name)
    problem = samplers.make_problem(
        signs[: len(y)], partition.probabilities, np.tile(y, (chains, 1))
    )
    alpha = np.repeat(alphas, chains // len(alphas))
    return problem, signs, samplers.initial_state([seed, 0], problem, alpha, 1.0, noise)


def check_chains(values, expected, expected_error=0.0):
    """Means over all draws `[K, B, ...]` against the truth; B independent chains.

    The chains' means are independent, so Student's t gives the rate of false alarms whatever
    the autocorrelation: `FALSE_FAIL` over all entries (Bonferroni).
    """
    means = np.asarray(values, np.float64).mean(axis=0)
    error = means.std(axis=0, ddof=1) / np.sqrt(len(means))
    quantile = stats.t(len(means) - 1).isf(FALSE_FAIL / (2 * np.size(error)))
    excess = np.abs(means.mean(axis=0) - expected) / np.hypot(error, expected_error)
    assert np.all(excess < quantile), (excess, quantile)


def check_posterior(f, y, truth):
    """Mean of f at the training points, distribution function everywhere."""
    cdf, error = truth["cdf"]
    common = (cdf > 0.02) & (cdf < 0.98)  # the central limit theorem needs some of either
    below = f[..., np.newaxis] <= LEVELS
    check_chains(below[..., common], cdf[common], error[common])
    mean, mean_error = (part[: len(y)] for part in truth["mean"])
    check_chains(f[..., : len(y)], mean, mean_error)


# Parts -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rows", "columns", "proposals"), [(1, 16, 1), (3, 16, 2), (7, 48, 3)])
def test_refresh_is_one_group_after_the_other(rows, columns, proposals):
    rng = np.random.default_rng(rows)
    chains, real = 3, columns - 5  # the last columns only fill up
    signs = rng.choice([-1.0, 1.0], size=(rows, columns))
    totals = rng.exponential(size=(chains, columns))
    changes = rng.exponential(size=(proposals, chains, columns)) ** 3 - totals
    changes[..., real:] = 0.0
    totals[:, real:] = 0.0
    changes[rng.uniform(size=changes.shape) < 0.2] = np.nan
    log_uniforms = np.log(rng.uniform(size=changes.shape))
    y = 2.0 * rng.normal(size=(chains, rows))
    covariance = np.einsum("ng,bg,mg->bnm", signs, totals, signs) + 0.3 * np.eye(rows)
    precision = np.linalg.inv(covariance)
    weighted = np.einsum("bnm,bm->bn", precision, y)
    ours = sweep.refresh_groups(*map(tensor, (precision, weighted, signs, changes, log_uniforms)))

    chosen = np.zeros((chains, columns), int)
    for b in range(chains):
        for g in range(columns):
            base, where = covariance[b], 0.0
            for k in range(proposals):
                here = base + where * np.outer(signs[:, g], signs[:, g])
                there = base + changes[k, b, g] * np.outer(signs[:, g], signs[:, g])
                if np.isfinite(changes[k, b, g]) and (
                    log_normal(y[b], there) - log_normal(y[b], here) > log_uniforms[k, b, g]
                ):
                    where, chosen[b, g] = changes[k, b, g], k + 1
            covariance[b] = base + where * np.outer(signs[:, g], signs[:, g])
    assert set(np.unique(chosen[:, :real])) == set(range(proposals + 1))
    np.testing.assert_array_equal(ours[2], chosen)
    expected = np.linalg.inv(covariance)
    np.testing.assert_allclose(ours[0], expected, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(ours[1], np.einsum("bnm,bm->bn", expected, y), rtol=1e-8, atol=1e-8)


def log_normal(y, covariance):
    return stats.multivariate_normal(cov=covariance).logpdf(y)


def from_the_joint_law(
    name, chains, alphas, noise_prior=None, nu_prior=None, seed=0, noise_df=None
):
    """State and problem whose targets are drawn given the state: exact, one data set a chain."""
    rng = np.random.default_rng(seed)
    partition, signs, y = partition_of(name)
    patterns = signs[: len(y)]
    problem = samplers.make_problem(patterns, partition.probabilities, np.ones((chains, len(y))))
    fixed = None if noise_prior else 0.5
    alpha, nu, noise = reference.hyper_parameters(
        rng, alphas, nu_prior or 1.0, fixed, noise_prior, chains
    )
    state = samplers.initial_state([seed, 0], problem, alpha, nu, noise)
    u, scales = chain.prior_scales(tf.constant([seed, 1]), state.alpha[:, None], state.u.shape)
    weights = np.ones((chains, len(y)))
    if noise_df:
        weights = 0.5 * noise_df / rng.gamma(0.5 * noise_df, size=weights.shape)
    state = state._replace(u=u, log_scales=scales, noise_weights=tensor(weights))
    masses = np.exp(chain.log_masses(state.log_scales, problem, state.alpha).numpy())
    deviations = np.sqrt(nu[:, None] * masses) * rng.normal(size=masses.shape)
    totals = chain.group_totals(tensor(deviations), problem).numpy()
    targets = totals @ problem.signs.numpy().T
    targets += np.sqrt(noise[:, None] * weights) * rng.normal(size=targets.shape)
    square = np.maximum(np.mean(targets**2, axis=1), 1e-30)
    return state, problem._replace(
        targets=tensor(targets), log_largest_mass=tensor(np.log(1e9 * square))
    )


def whitened_targets(state, problem):
    masses = tf.exp(chain.log_masses(state.log_scales, problem, state.alpha))
    totals = chain.group_totals(masses, problem)
    factor = gaussian.cholesky_of_covariance(totals, state, problem)
    return tf.linalg.triangular_solve(factor, problem.targets[..., None])[..., 0].numpy()


def precision_of(state, problem):
    """Q^-1 by brute force, and the groups' totals."""
    masses = tf.exp(chain.log_masses(state.log_scales, problem, state.alpha))
    totals = chain.group_totals(masses, problem)
    factor = gaussian.cholesky_of_covariance(totals, state, problem)
    identity = tf.eye(factor.shape[-1], batch_shape=[factor.shape[0]], dtype=tf.float64)
    return tf.linalg.cholesky_solve(factor, identity), totals


def test_choices_of_neighbours_and_atoms_are_corrected_for():
    x = np.random.default_rng(3).uniform(-1.0, 1.0, (7, 2))
    partition = hyperplanes.partition(x, "refined", num_atoms=200)
    signs = partition.signs(x)
    problem = samplers.make_problem(signs, partition.probabilities, np.zeros((1, 7)))
    degree, q = problem.degree.numpy(), np.exp(problem.log_probability.numpy())
    neighbours, start = problem.neighbours.numpy(), problem.start.numpy()
    total = problem.group_probability.numpy()
    pairs = [(g, h) for g in range(len(degree)) for h in neighbours[g, : degree[g]]]
    g, h = next((g, h) for g, h in pairs if degree[g] != degree[h])
    there = q[start[h]] / total[h] / degree[g]
    back = q[start[g]] / total[g] / degree[h]
    atom, target, group, other = (tf.constant([i]) for i in (start[g], start[h], g, h))
    unused = [None] * (len(relocate._Exchange._fields) - 4)
    exchange = relocate._Exchange(atom, target, group, other, *unused)
    ratio = relocate._choice_ratio(exchange, problem).numpy()
    np.testing.assert_allclose(ratio, np.log(back / there), rtol=1e-10)


@pytest.mark.parametrize("name", PROBLEMS)
def test_relocation_keeps_account_of_precision_and_totals(name):
    state, problem = from_the_joint_law(name, 64, (1.0, 1.9))
    precision, totals = precision_of(state, problem)
    masses = chain.log_masses(state.log_scales, problem, state.alpha)
    weighted = tf.linalg.matvec(precision, problem.targets)
    jumps = relocate._Jumps(precision, weighted, state.u, masses, totals)
    rng, taken = np.random.default_rng(0), 0.0
    for _ in range(40):
        draws, noise = tensor(rng.uniform(size=(8, 64))), tensor(rng.normal(size=(2, 64)))
        patterns = tf.transpose(problem.signs)
        jumps, accept = relocate._move(jumps, draws, noise, patterns, state, problem)
        taken += np.mean(accept) / 40
    shares = (2.0 / state.alpha)[:, None] * problem.log_probability
    state = state._replace(u=jumps.u, log_scales=jumps.log_masses - shares)
    expected, totals = precision_of(state, problem)
    size = np.max(np.abs(expected), axis=(1, 2), keepdims=True)
    np.testing.assert_allclose(jumps.precision / size, expected / size, atol=1e-7)
    np.testing.assert_allclose(jumps.totals, totals, rtol=1e-6, atol=1e-9 * np.max(totals))
    assert 0.2 < taken < 0.95


@pytest.mark.parametrize("name", ["two_points", "plane"])
def test_weights_have_their_conditional_law(assert_mean_close, name):
    partition, signs, y = partition_of(name)
    chains, noise = 40_000, 0.3
    problem = samplers.make_problem(
        signs[: len(y)], partition.probabilities, np.tile(y, (chains, 1))
    )
    state = samplers.initial_state([3, 4], problem, 1.5, 0.7, noise)
    state = state._replace(log_scales=tf.tile(state.log_scales[:1], [chains, 1]))
    weights, values = functions.draw_weights(tf.constant([5, 6]), state, problem)
    scales = np.exp(tf.gather(state.log_scales[0], problem.place))
    variances = 0.7 * partition.probabilities ** (2.0 / 1.5) * scales
    patterns = signs[: len(y)]
    np.testing.assert_allclose(values, weights.numpy() @ patterns.T, rtol=1e-9, atol=1e-9)
    gain = variances[:, None] * patterns.T
    gain = gain @ np.linalg.inv((patterns * variances) @ patterns.T + noise * np.eye(len(y)))
    assert_mean_close(weights, gain @ y, FALSE_FAIL)
    centred = weights.numpy() - gain @ y
    products = centred[:, :, None] * centred[:, None]
    covariance = np.diag(variances) - gain @ (patterns * variances)
    assert_mean_close(products, covariance, FALSE_FAIL)


@pytest.mark.parametrize("x", ["two_points", "plane"])
def test_alpha_two_is_the_arc_sine_gaussian_process(x):
    partition, signs, y = partition_of(x)
    _, _, state, info = run_chains(x, FIXED, 2, 8, alphas=[2.0])
    points = np.concatenate([np.asarray(part, np.float64) for part in PROBLEMS[x][:2]])
    points = points.reshape(len(points), -1)
    points = np.concatenate([np.ones((len(points), 1)), points], axis=1)
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    kernel = 1.0 - 2.0 / np.pi * np.arccos(np.clip(points @ points.T, -1.0, 1.0))
    problem = samplers.make_problem(signs[: len(y)], partition.probabilities, np.tile(y, (2, 1)))
    scales = np.exp(tf.gather(state.log_scales, problem.place, axis=1))
    variances = partition.probabilities * scales  # [2, L]
    ours = np.einsum("nl,bl,ml->bnm", signs, variances, signs)
    np.testing.assert_allclose(ours, np.stack([kernel] * 2), atol=1e-5)
    for covariance in ours:
        moments = gaussian_moments(covariance, y)
        np.testing.assert_allclose(moments, gaussian_moments(kernel, y), atol=1e-5)
    evidence = log_normal(y, kernel[: len(y), : len(y)] + 0.25 * np.eye(len(y)))
    np.testing.assert_allclose(info.log_likelihood, evidence, rtol=1e-5)


def gaussian_moments(kernel, y):
    """Mean and variance at all points, `[2, n + m]`."""
    n = len(y)
    gain = kernel[:, :n] @ np.linalg.inv(kernel[:n, :n] + 0.25 * np.eye(n))
    return np.stack([gain @ y, np.diagonal(kernel - gain @ kernel[:n])])


# Moves leave the joint law as it is --------------------------------------------------------------


def check_prior(state, problem, settings, alphas, false_fail=FALSE_FAIL):
    """Kolmogorov-Smirnov tests of everything whose law under the joint law is known.

    The state alone would not notice a move that ignores the targets: given the state, the
    whitened targets are standard normal.

    `false_fail` is the rate of all tests together (Bonferroni).
    """
    index = chain.index_of(state.alpha)[:, None]
    log_e = kanter.log_exponential(state.u, state.log_scales, index).numpy()
    real = problem.present.numpy() > 0.0
    u, e = state.u.numpy()[:, real], np.exp(log_e[:, real])
    samples = [(part, "uniform") for part in u.T] + [(part, "expon") for part in e.T]
    # A sum of uniform variables modulo 1 is uniform unless they depend on each other.
    uniforms = np.concatenate([u, np.exp(-e)], axis=1)
    pairs = uniforms[:, :, None] + uniforms[:, None]
    first, second = np.triu_indices(uniforms.shape[1], 1)
    samples += [(part, "uniform") for part in (pairs[:, first, second] % 1.0).T]
    samples += [(part, "norm") for part in whitened_targets(state, problem).T]
    if np.ndim(alphas):
        alpha = (state.alpha.numpy() - alphas[0]) / (alphas[1] - alphas[0])
        samples += [(alpha, "uniform"), ((alpha + u[:, 0]) % 1.0, "uniform")]
    if settings.infer_noise:
        power = 0.5 if settings.noise_prior == "scale" else 1.0
        samples.append((np.exp(power * state.log_noise.numpy()), "halfcauchy"))
    if settings.nu_prior is not None:
        mean, stddev = settings.nu_prior
        samples.append(((state.log_nu.numpy() - mean) / stddev, "norm"))
    if settings.noise_df is not None:
        gamma = 0.5 * settings.noise_df / state.noise_weights.numpy()
        law = stats.gamma(0.5 * settings.noise_df).cdf
        samples += [(part, law) for part in gamma.T]
    values = [stats.kstest(values, law).pvalue for values, law in samples]
    assert min(values) > false_fail / len(values), values


@pytest.mark.parametrize("name", [*PROBLEMS, "many"])
def test_relocation_leaves_the_joint_law(name, monkeypatch):
    monkeypatch.setitem(PROBLEMS, "many", MANY)
    state, problem = from_the_joint_law(name, 12_000, (0.4, 1.95))
    precision, totals = precision_of(state, problem)
    weighted = tf.linalg.matvec(precision, problem.targets)
    move = tf.function(relocate.relocate, autograph=False)
    u, scales, accepted = move(tf.constant([1, 2]), precision, weighted, state, totals, problem, 40)
    assert 0.2 < np.mean(accepted) < 0.95
    moved = np.mean(np.any(u.numpy() != state.u.numpy(), axis=1))
    assert moved > 0.9
    state = state._replace(u=u, log_scales=scales)
    check_prior(state, problem, FIXED, None)

    # Where the largest jump is: the numbers of groups' neighbours matter here.
    atoms = np.argmax(chain.log_masses(scales, problem, state.alpha), axis=1)
    rng, probabilities = np.random.default_rng(5), partition_of(name)[0].probabilities
    alpha = rng.uniform(0.4, 1.95, (200_000, 1))
    masses = reference.positive_stable(rng, alpha, (len(alpha), len(probabilities)))
    masses = np.argmax(masses * probabilities ** (2.0 / alpha), axis=1)
    counts = [
        np.bincount(problem.place.numpy()[masses], minlength=scales.shape[1]),
        np.bincount(atoms, minlength=scales.shape[1]),
    ]
    counts = np.stack(counts)[:, problem.place.numpy()]
    rare = counts[0] < 200
    counts = np.concatenate([counts[:, ~rare], counts[:, rare].sum(axis=1)[:, None]], axis=1)
    counts = counts[:, counts.sum(axis=0) > 0]
    assert stats.chi2_contingency(counts).pvalue > FALSE_FAIL


ALPHA_RANGE, NU_PRIOR = (0.4, 2.0), (0.3, 0.8)


def everything(prior, noise_df=None):
    return samplers.Settings(
        noise_prior=prior,
        noise_df=noise_df,
        alpha_range=ALPHA_RANGE,
        nu_prior=NU_PRIOR,
        adapt_for=0,
        relocations=8,
    )


@pytest.mark.parametrize("prior", ["variance", "scale"])
@pytest.mark.parametrize("move", ["alpha", "spectrum", "factors"])
def test_walks_leave_the_joint_law(move, prior):
    settings = everything(prior)
    state, problem = from_the_joint_law("three_points", 20_000, ALPHA_RANGE, prior, NU_PRIOR)
    step = tf.function(WALKS[move], autograph=False)
    before = state
    for i in range(40 if move == "alpha" else 10):
        state = step(tf.constant([i, 2]), state, problem, settings)
    name = "alpha" if move == "alpha" else "log_noise"
    assert np.mean(getattr(state, name) != getattr(before, name)) > 0.8
    check_prior(state, problem, settings, ALPHA_RANGE)


def walk_alpha(seed, state, problem, settings):
    return hyper.walk_alpha(seed, state, problem, settings)[0]


def walk_on_spectrum(seed, state, problem, settings):
    _, totals = precision_of(state, problem)
    return hyper.walk_on_spectrum(seed, totals, state, problem, settings)[0]


def walk_on_factors(seed, state, problem, settings):
    _, totals = precision_of(state, problem)
    return hyper.walk_on_factors(seed, totals, state, problem, settings)[0]


WALKS = {"alpha": walk_alpha, "spectrum": walk_on_spectrum, "factors": walk_on_factors}


@pytest.mark.parametrize("walk", [hyper.walk_on_spectrum, hyper.walk_on_factors])
def test_walks_give_the_precision_and_likelihood_of_where_they_end(walk):
    state, problem = from_the_joint_law("plane", 50, ALPHA_RANGE, "scale", NU_PRIOR, noise_df=3.0)
    _, totals = precision_of(state, problem)
    state, precision, likelihood, *_ = walk((5, 6), totals, state, problem, everything("scale", 3))
    expected, _ = precision_of(state, problem)
    np.testing.assert_allclose(precision, expected, rtol=1e-6, atol=1e-9)
    covariance = np.linalg.inv(expected)
    for i in range(50):
        exact = stats.multivariate_normal(cov=covariance[i]).logpdf(problem.targets[i])
        np.testing.assert_allclose(likelihood[i], exact, rtol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sampler", "name", "prior", "noise_df"),
    [
        ("grouped", "two_points", "variance", None),
        ("grouped", "plane", "scale", 3.0),
        ("metropolis", "two_points", "variance", None),
        ("metropolis", "three_points", "scale", 3.0),
        ("hmc", "two_points", "variance", None),
        ("hmc", "three_points", "scale", 3.0),
    ],
)
def test_iterations_leave_the_joint_law(sampler, name, prior, noise_df):
    settings = everything(prior, noise_df)
    state, problem = from_the_joint_law(
        name, 6_000, ALPHA_RANGE, prior, NU_PRIOR, noise_df=noise_df
    )
    if sampler == "hmc":
        state = state._replace(log_steps=state.log_steps - 1.0)
    after, _, info = compiled(samplers.SAMPLERS[sampler])(
        tf.constant([3, 4]), state, problem, settings, 1, 20
    )
    for moved in ("u", "log_scales", "log_noise", "log_nu", "alpha"):
        changed = np.reshape(getattr(after, moved) != getattr(state, moved), (6_000, -1))
        assert np.mean(np.any(changed, axis=1)) > 0.8, moved
    check_prior(after, problem, settings, ALPHA_RANGE)


# HMC's coordinates -------------------------------------------------------------------------------


def test_coordinates_are_standard_normal_under_the_prior_and_give_the_state_back():
    settings = everything("scale")
    state, _ = from_the_joint_law("two_points", 20_000, ALPHA_RANGE, "scale", NU_PRIOR)
    position = hmc.coordinates(state, settings)
    atoms = position.numpy()[:, : 2 * state.u.shape[1]].ravel()
    assert stats.kstest(atoms, "norm").pvalue > FALSE_FAIL
    back = hmc.state_at(position, state, settings)
    for name in ("u", "log_scales", "log_noise", "log_nu", "alpha"):
        np.testing.assert_allclose(getattr(back, name), getattr(state, name), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("alpha", [0.4, 1.1, 1.99, 2.0])
def test_gradients_are_those_of_differences_and_finite_far_out(alpha):
    settings = samplers.Settings(noise_prior="scale", nu_prior=NU_PRIOR)
    problem, _, state = problem_and_state("three_points", 4, alphas=[alpha])
    position = hmc.coordinates(state, settings)
    value, gradient = value_and_gradient(position, state, problem, settings)
    length, step = position.shape[1], 1e-5
    shifts = step * np.eye(length)[:, np.newaxis]
    differences = [
        (
            value_and_gradient(position + shift, state, problem, settings)[0]
            - value_and_gradient(position - shift, state, problem, settings)[0]
        )
        / (2.0 * step)
        for shift in shifts
    ]
    np.testing.assert_allclose(gradient, np.transpose(differences), rtol=1e-4, atol=1e-4)
    rng = np.random.default_rng(0)
    far = tensor(np.clip(3.0 * rng.normal(size=position.shape), -7.0, 7.0))
    value, gradient = value_and_gradient(far, state, problem, settings)
    assert np.all(np.isfinite(value)) and np.all(np.isfinite(gradient))


def value_and_gradient(position, state, problem, settings):
    with tf.GradientTape() as tape:
        tape.watch(position)
        value, _, _ = hmc.log_target(position, state, problem, settings)
    return value.numpy(), tape.gradient(value, position).numpy()


# Transition kernels ------------------------------------------------------------------------------


@pytest.mark.parametrize("sampler", samplers.SAMPLERS)
@pytest.mark.parametrize("structure", [list, lambda parts: samplers.ChainState(*parts)])
def test_kernels_are_the_samplers(sampler, structure):
    settings = everything("scale")
    one_step = samplers.SAMPLERS[sampler]
    problem, _, state = problem_and_state("two_points", 6)
    kernel = samplers.StableProcessKernel(problem, settings, one_step)
    assert kernel.is_calibrated
    start = structure(state)

    @tf.function(autograph=False)
    def sample():
        return tfp.mcmc.sample_chain(
            4, start, kernel=kernel, num_burnin_steps=2, seed=tf.constant([1, 2])
        )

    states, infos = sample()
    assert type(states) is type(start)
    assert isinstance(infos, samplers.Info)
    assert infos.log_likelihood.shape == (4, 6)
    states = samplers.ChainState(*states)
    assert states.u.shape == (4, *state.u.shape)
    assert len(np.unique(states.log_noise[:, 0])) > 1
    step = kernel.one_step(start, kernel.bootstrap_results(start), seed=tf.constant([3, 4]))
    expected = one_step(tf.constant([3, 4]), state, problem, settings)
    for ours, theirs in zip(tf.nest.flatten(step), tf.nest.flatten(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)


# The posterior of a few points ------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("y", [1.2, -4.0])
def test_one_point_is_voigt(y, monkeypatch):
    levels = y * np.array([0.2, 0.6, 0.8, 1.0, 1.1])
    monkeypatch.setitem(PROBLEMS, "one_point", ([0.7], [0.0, 1.3], [y]))
    f, _, _, _ = run_chains("one_point", FIXED, 64, 250, thin=2, alphas=[1.0])
    truth = reference.voigt_posterior(y, 1.0, 0.5, levels)
    common = (truth["cdf"] > 0.02) & (truth["cdf"] < 0.98)
    check_chains(f[:, :, 0, None] <= levels[common], truth["cdf"][common])
    check_chains(f[:, :, 0], truth["mean"])


@pytest.mark.slow
@pytest.mark.parametrize("name", PROBLEMS)
def test_known_hyper_parameters_at_training_and_new_points(name):
    partition, signs, y = partition_of(name)
    f, _, _, _ = run_chains(name, FIXED, 96, 350)
    for k, alpha in enumerate(ALPHAS):
        truth = reference.importance_posterior(
            y, signs, partition.probabilities, alpha, 1.0, 0.5, NUM_DRAWS, k, LEVELS
        )
        check_posterior(f[:, 32 * k : 32 * (k + 1)], y, truth)


@pytest.mark.slow
@pytest.mark.parametrize("prior", ["variance", "scale"])
def test_noise_and_hyper_parameters_too(prior):
    name = {"variance": "two_points", "scale": "plane"}[prior]
    partition, signs, y = partition_of(name)
    settings = everything(prior)
    f, draws, _, _ = run_chains(name, settings, 96, 500, thin=2)
    truth = reference.importance_posterior(
        y, signs, partition.probabilities, ALPHA_RANGE, NU_PRIOR, None, NUM_DRAWS, 1, LEVELS, prior
    )
    cdf, error = truth["cdf"]
    common = (cdf > 0.02) & (cdf < 0.98)
    check_chains((f[..., None] <= LEVELS)[..., common], cdf[common], error[common])
    check_chains(np.log(draws.noise_scale), *truth["log_noise_scale"])
    check_chains(draws.alpha, *truth["alpha"])
    check_chains(np.log(draws.nu), *truth["log_nu"])


@pytest.mark.slow
def test_samplers_agree():
    """R-hat of the pooled chains at most 1.05, and Algorithm S.2 and HMC have the posterior."""
    name, settings, chains, draws = "three_points", FIXED._replace(infer_noise=True), 48, {}
    partition, signs, y = partition_of(name)
    truth = reference.importance_posterior(
        y, signs, partition.probabilities, 1.1, 1.0, None, NUM_DRAWS, 2, LEVELS
    )
    cdf, error = truth["cdf"]
    common = (cdf > 0.02) & (cdf < 0.98)
    for sampler, one_step in samplers.SAMPLERS.items():
        f, parts, _, _ = run_chains(
            name, settings, chains, 300, thin=2, alphas=[1.1], one_step=one_step
        )
        check_chains((f[..., None] <= LEVELS)[..., common], cdf[common], error[common])
        log_noise = np.log(parts.noise_scale)
        check_chains(log_noise, *truth["log_noise_scale"])
        pooled = np.concatenate([f, log_noise[..., None]], axis=-1)  # [K, B, n + m + 1]
        draws[sampler] = pooled.reshape(-1, 4, chains // 4, pooled.shape[-1]).swapaxes(1, 2)
    # Few long chains: R-hat of the many short ones would only say that they are short.
    longer = [part.reshape(-1, 4, part.shape[-1]).swapaxes(0, 1) for part in draws.values()]
    assert np.all(metrics.rhat(np.concatenate(longer)) <= 1.05)


@pytest.mark.slow
def test_rows_and_their_order_do_not_matter(monkeypatch):
    x, y = np.array([0.9, -1.2, 0.3, 2.0, -0.1]), np.array([2.0, 0.1, 1.7, -0.5, 0.2])
    x_new, order = [0.6, -0.6], np.argsort(x)
    runs = []
    for seed, rows in enumerate([np.arange(5), order]):
        monkeypatch.setitem(PROBLEMS, "rows", (x[rows], x_new, y[rows]))
        settings = FIXED._replace(infer_noise=True)
        f, draws, _, _ = run_chains("rows", settings, 64, 300, seed=seed, alphas=[1.1])
        f[..., rows] = f[..., : len(rows)].copy()
        f = np.concatenate([f, np.log(draws.noise_scale)[..., None]], axis=-1)
        runs.append((f[..., None] <= LEVELS).mean(axis=0))
    means = [run.mean(axis=0) for run in runs]
    common = (means[0] > 0.02) & (means[0] < 0.98)
    errors = [run.std(axis=0, ddof=1)[common] / np.sqrt(len(run)) for run in runs]
    check_chains(runs[0][np.newaxis][..., common], means[1][common], errors[1])


# Simulation-based calibration --------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("prior", ["variance", "scale"])
def test_simulation_based_calibration(prior):
    """Ranks of 200 truths among 63 draws are uniform (Talts et al. 2018).

    Chi-square on 8 bins, and Kolmogorov-Smirnov, which sees shifts. The data sets are the chains of
    one batch. False alarms: 1e-3 over all ranks and both tests.
    """
    chains, bins = 200, 8
    rng = np.random.default_rng(7)
    x = np.sort(rng.normal(size=9))[:, None]
    partition = hyperplanes.exact(x)
    rows = [0, 1, 2, 3, 5, 6, 7, 8]  # the fifth is new
    signs = partition.signs(x).astype(np.float64)
    truth = reference.simulate(
        rng, signs, partition.probabilities, ALPHA_RANGE, NU_PRIOR, None, prior, chains
    )
    y = truth["f"] + np.sqrt(truth["noise"])[:, None] * rng.normal(size=truth["f"].shape)
    problem = samplers.make_problem(signs[rows], partition.probabilities, y[:, rows])
    start = rng.uniform(*ALPHA_RANGE, chains)
    state = samplers.initial_state([1, 2], problem, start, 1.0, np.mean(y**2, axis=1) + 1e-6)
    settings = everything(prior)._replace(adapt_for=250)
    _, draws, _ = compiled(grouped.one_step)(tf.constant([3, 4]), state, problem, settings, 84, 12)
    draws = [part.numpy()[21:] for part in draws]
    f = draws[0].astype(np.float64) @ signs.T
    ranks = {
        "f": np.sum(f[..., 3] < truth["f"][:, 3], axis=0),
        "new f": np.sum(f[..., 4] < truth["f"][:, 4], axis=0),
        "noise": np.sum(draws[1] < np.sqrt(truth["noise"]), axis=0),
        "alpha": np.sum(draws[2] < truth["alpha"], axis=0),
        "nu": np.sum(draws[3] < truth["nu"], axis=0),
    }
    for name, rank in ranks.items():
        counts = np.bincount(rank * bins // 64, minlength=bins)
        found = stats.chisquare(counts), stats.kstest((rank + 0.5) / 64, "uniform")
        assert min(test.pvalue for test in found) > 1e-3 / (2 * len(ranks)), (name, counts, found)
