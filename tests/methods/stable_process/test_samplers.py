"""Parts of the stable process's samplers against NumPy by brute force, and the TFP kernels."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import stats
from stable_chains import (
    ALPHA_RANGE,
    CHAINS,
    FIXED,
    NOISE_ONLY,
    NU_PRIOR,
    PROBLEMS,
    everything,
    from_the_joint_distribution,
    partition_of,
    precision_of,
    problem_and_state,
    run_chains,
    tensor,
)

from tfp_fnspace.methods.stable_process import hyperplanes, samplers
from tfp_fnspace.methods.stable_process.samplers import (
    functions,
    hmc,
    hyper,
    relocate,
    sweep,
)
from tfp_fnspace.methods.stable_process.samplers import state as chain

FALSE_FAIL = 1e-6


# Parts -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rows", "columns", "proposals"), [(1, 16, 1), (3, 16, 2), (7, 48, 3)])
def test_refresh_is_one_group_after_the_other(rows, columns, proposals):
    rng = np.random.default_rng(rows)
    chains, real = 3, columns - 5  # the last columns are padding
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
    state, problem = from_the_joint_distribution(name, 64, (1.0, 1.9))
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
def test_weights_have_their_conditional_distribution(assert_mean_close, name):
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


def test_noise_weights_stay_where_the_covariance_has_no_factor():
    problem, _, state = problem_and_state("two_points", 6)
    residuals = np.ones((6, len(problem.targets[0])))
    residuals[0] = np.nan
    weights = hyper.draw_noise_weights(tf.constant([1, 2]), state, tensor(residuals), 4.0)
    np.testing.assert_array_equal(weights[0], state.noise_weights[0])
    assert np.all(weights[1:] > 0.0) and np.all(weights[1:] != state.noise_weights[1:])


@pytest.mark.slow
def test_alpha_two_is_the_arc_sine_gaussian_process():
    partition, signs, y = partition_of("plane")
    _, _, state, info = run_chains("plane", FIXED, CHAINS, 8, alphas=[2.0])
    points = np.concatenate([np.asarray(part, np.float64) for part in PROBLEMS["plane"][:2]])
    points = np.concatenate([np.ones((len(points), 1)), points], axis=1)
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    kernel = 1.0 - 2.0 / np.pi * np.arccos(np.clip(points @ points.T, -1.0, 1.0))
    targets = np.tile(y, (CHAINS, 1))
    problem = samplers.make_problem(signs[: len(y)], partition.probabilities, targets)
    scales = np.exp(tf.gather(state.log_scales, problem.place, axis=1))
    variances = partition.probabilities * scales  # [CHAINS, L]
    ours = np.einsum("nl,bl,ml->bnm", signs, variances, signs)
    np.testing.assert_allclose(ours, np.stack([kernel] * CHAINS), atol=1e-5)
    for covariance in ours:
        moments = gaussian_moments(covariance, y)
        np.testing.assert_allclose(moments, gaussian_moments(kernel, y), atol=1e-5)
    evidence = log_normal(y, kernel[: len(y), : len(y)] + 0.25 * np.eye(len(y)))
    np.testing.assert_allclose(info.log_likelihood, evidence, rtol=1e-5)


def gaussian_moments(kernel, y):
    """Returns mean and variance at all points, `[2, n + m]`."""
    n = len(y)
    gain = kernel[:, :n] @ np.linalg.inv(kernel[:n, :n] + 0.25 * np.eye(n))
    return np.stack([gain @ y, np.diagonal(kernel - gain @ kernel[:n])])


@pytest.mark.parametrize("walk", [hyper.walk_on_spectrum, hyper.walk_on_factors])
@pytest.mark.slow
def test_walks_give_the_precision_and_likelihood_of_where_they_end(walk):
    state, problem = from_the_joint_distribution(
        "plane", 50, ALPHA_RANGE, "scale", NU_PRIOR, noise_df=3.0
    )
    _, totals = precision_of(state, problem)
    state, precision, likelihood, *_ = walk((5, 6), totals, state, problem, everything("scale", 3))
    expected, _ = precision_of(state, problem)
    np.testing.assert_allclose(precision, expected, rtol=1e-6, atol=1e-9)
    covariance = np.linalg.inv(expected)
    for i in range(50):
        exact = stats.multivariate_normal(cov=covariance[i]).logpdf(problem.targets[i])
        np.testing.assert_allclose(likelihood[i], exact, rtol=1e-8)


# HMC's coordinates -------------------------------------------------------------------------------


def test_coordinates_are_standard_normal_under_the_prior_and_give_the_state_back():
    settings = everything("scale")
    state, _ = from_the_joint_distribution("two_points", 20_000, ALPHA_RANGE, "scale", NU_PRIOR)
    position = hmc.coordinates(state, settings)
    atoms = position.numpy()[:, : 2 * state.u.shape[1]].ravel()
    assert stats.kstest(atoms, "norm").pvalue > FALSE_FAIL
    back = hmc.state_at(position, state, settings)
    for name in ("u", "log_scales", "log_noise", "log_nu", "alpha"):
        np.testing.assert_allclose(getattr(back, name), getattr(state, name), rtol=1e-7, atol=1e-9)


@pytest.mark.slow
def test_gradients_are_those_of_differences_and_finite_far_out():
    settings = samplers.Settings(noise_prior="scale", nu_prior=NU_PRIOR)
    problem, _, state = problem_and_state("three_points", 16, alphas=[0.4, 1.1, 1.99, 2.0])
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


# HMC is left out: a kernel does not depend on its sampler, and HMC would compile here again.
@pytest.mark.parametrize("sampler", ["grouped", "metropolis"])
@pytest.mark.parametrize("structure", [list, lambda parts: samplers.ChainState(*parts)])
@pytest.mark.slow
def test_kernels_are_the_samplers(sampler, structure):
    # Other tests compile these shapes too.
    settings = NOISE_ONLY
    one_step = samplers.SAMPLERS[sampler]
    problem, _, state = problem_and_state("plane", CHAINS)
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
    assert infos.log_likelihood.shape == (4, CHAINS)
    states = samplers.ChainState(*states)
    assert states.u.shape == (4, *state.u.shape)
    assert len(np.unique(states.log_noise[:, 0])) > 1
    step = kernel.one_step(start, kernel.bootstrap_results(start), seed=tf.constant([3, 4]))
    expected = one_step(tf.constant([3, 4]), state, problem, settings)
    for ours, theirs in zip(tf.nest.flatten(step), tf.nest.flatten(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)
