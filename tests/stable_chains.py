"""Shared parts of the tests of the stable process's samplers: problems, states, runs of chains."""

import functools

import numpy as np
import stable_posterior as oracles
import stable_process as reference
import tensorflow as tf

from tfp_fnspace.methods.stable_process import samplers
from tfp_fnspace.methods.stable_process.samplers import grouped
from tfp_fnspace.methods.stable_process.samplers import state as chain

LEVELS, ALPHAS, PROBLEMS = oracles.LEVELS, oracles.ALPHAS, dict(oracles.PROBLEMS)
ALPHA_RANGE, NU_PRIOR = oracles.ALPHA_RANGE, oracles.NU_PRIOR

#: Settings with fixed noise and hyper-parameters.
FIXED = samplers.Settings(infer_noise=False, adapt_for=0, relocations=8)

#: The number of chains where it is free: XLA compiles the moves once for each shape of chains,
#: points and atoms, whatever the settings but `relocations`. HMC's moves also compile for each
#: settings.
CHAINS = 96

#: Settings with inferred noise and fixed hyper-parameters.
NOISE_ONLY = FIXED._replace(infer_noise=True)


def tensor(value):
    return tf.constant(value, tf.float64)


def partition_of(name):
    """Returns the partition, the signs at training and new points, and y."""
    x, x_new, y = PROBLEMS[name]
    return *oracles.partition_of(x, x_new), np.asarray(y, np.float64)


@functools.cache
def compiled(one_step):
    """Compiles `samplers.run` as a graph: one trace for each shape and settings."""
    return tf.function(functools.partial(samplers.run, one_step=one_step), autograph=False)


def run_chains(
    name, settings, chains, count, *, thin=1, seed=0, one_step=grouped.one_step, **start
):
    """Returns draws of f `[K, B, n + m]`, `Draws`, the last state and the mean `Info`.

    The first fifth of the iterations is left out. There is only one call, as XLA compiles for each.
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
    """Returns `Problem`, signs at all points and an initial state; chains are sorted by alpha."""
    partition, signs, y = partition_of(name)
    problem = samplers.make_problem(
        signs[: len(y)], partition.probabilities, np.tile(y, (chains, 1))
    )
    alpha = np.repeat(alphas, chains // len(alphas))
    return problem, signs, samplers.initial_state([seed, 0], problem, alpha, 1.0, noise)


def everything(prior, noise_df=None):
    return samplers.Settings(
        noise_prior=prior,
        noise_df=noise_df,
        alpha_range=ALPHA_RANGE,
        nu_prior=NU_PRIOR,
        adapt_for=0,
        relocations=8,
    )


# The joint distribution -------------------------------------------------------------------------


def from_the_joint_distribution(
    name, chains, alphas, noise_prior=None, nu_prior=None, seed=0, noise_df=None
):
    """Draws state and problem, with targets given the state: exact, one data set for each chain."""
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


def precision_of(state, problem):
    """Computes Q^-1 by brute force, and the groups' totals."""
    masses = tf.exp(chain.log_masses(state.log_scales, problem, state.alpha))
    totals = chain.group_totals(masses, problem)
    factor = chain.covariance_factor(totals, state, problem)
    identity = tf.eye(factor.shape[-1], batch_shape=[factor.shape[0]], dtype=tf.float64)
    return tf.linalg.cholesky_solve(factor, identity), totals
