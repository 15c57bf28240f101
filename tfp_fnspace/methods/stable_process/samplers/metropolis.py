"""Algorithm S.2 of the paper: every atom in turn, then the noise, is proposed from the prior."""

import math

import tensorflow as tf

from tfp_fnspace.math.random import fold_in
from tfp_fnspace.methods.stable_process import equations
from tfp_fnspace.methods.stable_process.samplers import functions, hyper
from tfp_fnspace.methods.stable_process.samplers import state as chain
from tfp_fnspace.methods.stable_process.samplers.problem import BLOCK, Problem
from tfp_fnspace.methods.stable_process.samplers.sweep import refresh_groups
from tfp_fnspace.tracing import traced_for_all
from tfp_fnspace.typing import Seed


def one_step(
    seed: Seed, state: chain.ChainState, problem: Problem, settings: chain.Settings
) -> tuple[chain.ChainState, chain.Info]:
    """Runs one iteration of every chain, as `samplers` describes it.

    Each atom takes a scale from the prior with probability `min(1, p(y | Q') / p(y | Q))`; then the
    variance of the noise does the same. Parameters that the paper fixes but `settings` infers
    follow in the same way: nu, and alpha with Kanter's variables kept. `settings.proposals`,
    `settings.relocations` and `settings.adapt_for` have no effect here.

    Returns:
        `ChainState`, `Info`. The log-likelihood is that of the new state before Student-t weights
        are drawn again.
    """
    seeds = [fold_in(seed, i) for i in range(6)]
    state, accept_scales = _refresh_atoms(seeds[0], state, problem)
    likelihood, _ = _log_likelihood(state, problem)
    nothing = tf.zeros_like(likelihood)
    accept_noise, accept_nu, accept_alpha = nothing, nothing, nothing
    if settings.infer_noise:
        log_noise = _noise_draws(seeds[1], state, settings)
        proposal, of_copies = state._replace(log_noise=log_noise), None
        if settings.num_copies:
            change = log_noise - state.log_noise
            of_copies = equations.log_noise_of_copies(change, settings.num_copies)
        state, likelihood, accept_noise = _decide(
            seeds[1], state, proposal, likelihood, problem, of_copies
        )
    if settings.nu_prior is not None:
        mean, stddev = settings.nu_prior
        log_nu = mean + stddev * chain.standard_normal(state.log_nu.shape, fold_in(seeds[2], 0))
        proposal = state._replace(log_nu=log_nu)
        state, likelihood, accept_nu = _decide(seeds[2], state, proposal, likelihood, problem)
    if settings.alpha_range is not None:
        proposal = _with_new_alpha(seeds[3], state, settings)
        state, likelihood, accept_alpha = _decide(seeds[3], state, proposal, likelihood, problem)
    if settings.noise_df is not None:
        _, f = functions.draw_weights(seeds[4], state, problem)
        weights = hyper.draw_noise_weights(seeds[5], state, problem.targets - f, settings.noise_df)
        state = state._replace(noise_weights=weights)
    state = state._replace(iteration=state.iteration + 1)
    info = chain.Info(likelihood, accept_scales, nothing, accept_noise, accept_nu, accept_alpha)
    return state, info


def _refresh_atoms(seed, state, problem):
    """Proposes a scale for every atom; returns the state and the share accepted, `[B]`."""
    shape = state.u.shape
    u, scales = chain.prior_scales(fold_in(seed, 0), state.alpha[:, tf.newaxis], shape)
    log_uniforms = tf.math.log(chain.uniform([1, *shape], fold_in(seed, 1)))
    precision = _precision(state, problem)
    weighted = tf.linalg.matvec(precision, problem.targets)

    log_masses = chain.log_masses(scales, problem, state.alpha)
    nu = tf.exp(state.log_nu)[:, tf.newaxis]
    changes = nu * (
        tf.exp(log_masses) - tf.exp(chain.log_masses(state.log_scales, problem, state.alpha))
    )
    too_large = log_masses + state.log_nu[:, tf.newaxis] > problem.log_largest_mass[:, tf.newaxis]
    changes = tf.where(too_large, tf.constant(math.nan, changes.dtype), changes)

    signs = tf.gather(problem.signs, problem.group, axis=1)
    missing = -shape[1] % BLOCK
    signs = tf.pad(signs, [[0, 0], [0, missing]], constant_values=1.0)
    changes = tf.pad(changes[tf.newaxis], [[0, 0], [0, 0], [0, missing]])
    log_uniforms = tf.pad(log_uniforms, [[0, 0], [0, 0], [0, missing]])
    _, _, chosen = _compiled_refresh(precision, weighted, signs, changes, log_uniforms)
    accept = chosen[:, : shape[1]] > 0
    accepted = tf.linalg.matvec(tf.cast(accept, nu.dtype), problem.present)
    state = state._replace(
        u=tf.where(accept, u, state.u), log_scales=tf.where(accept, scales, state.log_scales)
    )
    return state, accepted / problem.place.shape[0]


_compiled_refresh = traced_for_all(refresh_groups, jit_compile=True)


def _precision(state, problem):
    """Returns `Q^-1`, `[B, N, N]`."""
    masses = tf.exp(chain.log_masses(state.log_scales, problem, state.alpha))
    factor = chain.covariance_factor(chain.group_totals(masses, problem), state, problem)
    identity = tf.eye(factor.shape[-1], batch_shape=[factor.shape[0]], dtype=factor.dtype)
    return tf.linalg.cholesky_solve(factor, identity)


def _log_likelihood(state, problem):
    """Returns `log N(y; 0, Q)`, and whether the prior's cut allows the state, `[B]`."""
    masses = tf.exp(chain.log_masses(state.log_scales, problem, state.alpha))
    totals = chain.group_totals(masses, problem)
    largest = state.log_nu + tf.math.log(tf.reduce_max(totals, axis=-1))
    factor = chain.covariance_factor(totals, state, problem)
    return equations.log_likelihood(factor, problem.targets), largest <= problem.log_largest_mass


def _noise_draws(seed, state, settings):
    """Draws `log sigma^2` from its prior, `[B]`."""
    level = chain.uniform(state.log_noise.shape, fold_in(seed, 0))
    return equations.log_noise_quantile(level, settings.noise_prior)


def _with_new_alpha(seed, state, settings):
    """Returns the state with alpha drawn from its prior and Kanter's variables kept."""
    low, high = settings.alpha_range
    alpha = low + (high - low) * chain.uniform(state.alpha.shape, fold_in(seed, 0))
    scales = equations.scales_with_kanter_kept(
        state.u, state.log_scales, state.alpha[:, tf.newaxis], alpha[:, tf.newaxis]
    )
    return state._replace(alpha=alpha, log_scales=scales)


def _decide(seed, state, proposal, likelihood, problem, further=None):
    """Takes the proposal with the probability of Metropolis and Hastings.

    Args:
        seed: int32 tensor `[2]`.
        state: `ChainState`.
        proposal: `ChainState`.
        likelihood: Log-likelihood of the state, `[B]`.
        problem: `Problem`.
        further: What the log ratio has beside the change of the likelihood, `[B]`, or `None`.

    Returns:
        State, its log-likelihood, and 1 where the proposal was taken, `[B]`.
    """
    proposed, allowed = _log_likelihood(proposal, problem)
    log_uniform = tf.math.log(chain.uniform(likelihood.shape, fold_in(seed, 1)))
    gain = proposed - likelihood
    if further is not None:
        gain += further
    accept = allowed & (gain > log_uniform)  # false for NaN

    def choose(new, old):
        return tf.where(accept[:, tf.newaxis] if new.shape.rank == 2 else accept, new, old)

    kept = state.iteration
    state = chain.ChainState(
        *(choose(new, old) for new, old in zip(proposal[:-1], state[:-1], strict=True)), kept
    )
    likelihood = tf.where(accept, proposed, likelihood)
    return state, likelihood, tf.cast(accept, likelihood.dtype)
