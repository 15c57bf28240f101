r"""Hamiltonian Monte Carlo on Kanter's coordinates.

All coordinates are unconstrained: `u = Phi(z)`, `e = -log(1 - Phi(z'))` with z and z' standard
normal under the prior; `log sigma^2`, `log nu`, and the logit of alpha within its interval. The
target is the likelihood with f integrated out, `N(y; 0, Q)`, times the prior.
"""

import functools
import math

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_fnspace.math.random import fold_in
from tfp_fnspace.methods.stable_process import equations
from tfp_fnspace.methods.stable_process.samplers import functions, hyper
from tfp_fnspace.methods.stable_process.samplers import state as chain
from tfp_fnspace.methods.stable_process.samplers.problem import Problem
from tfp_fnspace.tracing import traced_for_all
from tfp_fnspace.typing import Seed, Tensor

#: Leapfrog steps of a trajectory.
_STEPS = 16

#: Probability of acceptance that the adaptation aims at.
_TARGET_ACCEPTANCE = 0.8

#: Step sizes vary up and down by this share, to avoid periodic orbits.
_JITTER = 0.2


def one_step(
    seed: Seed, state: chain.ChainState, problem: Problem, settings: chain.Settings
) -> tuple[chain.ChainState, chain.Info]:
    """Runs one trajectory of every chain, an iteration as `samplers` describes it.

    The step size is `exp` of the last of `state.log_steps`, adapted in the first
    `settings.adapt_for` iterations. `settings.proposals` and `settings.relocations` have no effect.

    Returns:
        `ChainState`, `Info`. All shares of accepted moves except that of relocations are the
        probability that the trajectory was accepted; the log-likelihood is that of its start.
    """
    seeds = [fold_in(seed, i) for i in range(5)]
    chains, length = state.alpha.shape[0], 2 * state.u.shape[1] + 3
    momentum = chain.standard_normal([chains, length], seeds[0])
    jitter = 1.0 + _JITTER * (2.0 * chain.uniform([chains], seeds[1]) - 1.0)
    step_size = jitter * tf.exp(state.log_steps[:, -1])
    log_uniform = tf.math.log(chain.uniform([chains], seeds[2]))
    u, scales, log_noise, log_nu, alpha, likelihood, acceptance = _compiled_trajectory(
        settings, momentum, step_size, log_uniform, *state, *problem
    )
    state = state._replace(u=u, log_scales=scales, log_noise=log_noise, log_nu=log_nu, alpha=alpha)
    if settings.noise_df is not None:
        _, f = functions.draw_weights(seeds[3], state, problem)
        weights = hyper.draw_noise_weights(seeds[4], state, problem.targets - f, settings.noise_df)
        state = state._replace(noise_weights=weights)
    state = state._replace(
        log_steps=_adapt(state, acceptance, settings), iteration=state.iteration + 1
    )
    none = tf.zeros_like(acceptance)
    return state, chain.Info(likelihood, acceptance, none, acceptance, acceptance, acceptance)


@functools.partial(traced_for_all, jit_compile=True)
def _compiled_trajectory(settings, momentum, step_size, log_uniform, *rest):
    fields = len(chain.ChainState._fields)
    state, problem = chain.ChainState(*rest[:fields]), Problem(*rest[fields:])
    moving = _moving(state, settings)
    start = coordinates(state, settings)

    def value_and_gradient(position):
        with tf.GradientTape() as tape:
            tape.watch(position)
            value, likelihood, allowed = log_target(position, state, problem, settings)
        gradient = moving * tape.gradient(value, position)
        # The leapfrog is reversible for any function of the position; 0 is used where Q is
        # singular.
        gradient = tf.where(tf.math.is_finite(gradient), gradient, tf.zeros_like(gradient))
        return value, gradient, likelihood, allowed

    step = step_size[:, tf.newaxis]

    def leapfrog(i, position, momentum, value, gradient, likelihood, allowed):
        momentum = momentum + 0.5 * step * gradient
        position = position + step * moving * momentum
        value, gradient, likelihood, allowed = value_and_gradient(position)
        return (
            i + 1,
            position,
            momentum + 0.5 * step * gradient,
            value,
            gradient,
            likelihood,
            allowed,
        )

    momentum *= moving
    first = value_and_gradient(start)
    _, position, last_momentum, value, _, _, allowed = tf.while_loop(
        lambda i, *_: i < _STEPS,
        leapfrog,
        (0, start, momentum, *first),
        maximum_iterations=_STEPS,
    )
    kinetic = 0.5 * tf.reduce_sum(tf.square(momentum) - tf.square(last_momentum), axis=-1)
    log_ratio = tf.where(allowed, value - first[0] + kinetic, -math.inf)
    log_ratio = tf.where(tf.math.is_nan(log_ratio), tf.constant(-math.inf, value.dtype), log_ratio)
    accept = log_ratio > log_uniform
    new = state_at(position, state, settings)
    wide = accept[:, tf.newaxis]
    return (
        tf.where(wide, new.u, state.u),
        tf.where(wide, new.log_scales, state.log_scales),
        tf.where(accept, new.log_noise, state.log_noise),
        tf.where(accept, new.log_nu, state.log_nu),
        tf.where(accept, new.alpha, state.alpha),
        first[2],
        tf.exp(tf.minimum(log_ratio, 0.0)),
    )


def coordinates(state: chain.ChainState, settings: chain.Settings) -> Tensor:
    """Returns the unconstrained position: z and z' of the atoms, log sigma^2, log nu, logit alpha.

    Args:
        state: `ChainState`.
        settings: `Settings`.

    Returns:
        `[B, 2 L + 3]`; it has entries for known values too, but these do not move.
    """
    alpha = state.alpha[:, tf.newaxis]
    e = tf.exp(equations.log_exponentials_of(state.u, state.log_scales, alpha))
    # Each value is computed from the end at which nothing cancels.
    upper = -tf.math.ndtri(tf.exp(-tf.maximum(e, 0.5)))
    normal_e = tf.where(e > 0.5, upper, tf.math.ndtri(-tf.math.expm1(-tf.minimum(e, 0.5))))
    logit = tf.zeros_like(state.alpha)
    if settings.alpha_range is not None:
        low, high = settings.alpha_range
        logit = tf.math.log(state.alpha - low) - tf.math.log(high - state.alpha)
    hyper_parameters = tf.stack([state.log_noise, state.log_nu, logit], axis=-1)
    return tf.concat([tf.math.ndtri(state.u), normal_e, hyper_parameters], axis=-1)


def state_at(
    position: Tensor, state: chain.ChainState, settings: chain.Settings
) -> chain.ChainState:
    """Returns the state at a position (inverts `coordinates`); the rest is that of `state`."""
    length = state.u.shape[1]
    normal_u, normal_e = position[:, :length], position[:, length : 2 * length]
    alpha = state.alpha
    if settings.alpha_range is not None:
        low, high = settings.alpha_range
        alpha = low + (high - low) * tf.sigmoid(position[:, -1])
    u = 0.5 * tf.math.erfc(-normal_u / math.sqrt(2.0))
    log_e = _log_exponential_of(normal_e)
    scales = equations.log_scales_of(u, log_e, alpha[:, tf.newaxis])
    return state._replace(
        u=u, log_scales=scales, log_noise=position[:, -3], log_nu=position[:, -2], alpha=alpha
    )


def _log_exponential_of(normal):
    """Returns `log(-log(1 - Phi(z)))`; far left it is `log Phi(z) + Phi(z)/2` up to rounding."""
    standard = tfp.distributions.Normal(tf.zeros([], normal.dtype), 1.0)
    left = tf.minimum(normal, -5.0)
    below = standard.log_cdf(left) + 0.5 * standard.cdf(left)
    above = tf.math.log(-standard.log_survival_function(tf.maximum(normal, -5.0)))
    return tf.where(normal < -5.0, below, above)


def log_target(
    position: Tensor, state: chain.ChainState, problem: Problem, settings: chain.Settings
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the log density of the posterior at a position, up to a constant.

    Args:
        position: `[B, 2 L + 3]`, see `coordinates`.
        state: `ChainState` with the values that do not move.
        problem: `Problem`.
        settings: `Settings`.

    Returns:
        The log density; the log-likelihood; and whether the prior's cut allows the position: `[B]`.
    """
    new = state_at(position, state, settings)
    log_masses = chain.log_masses(new.log_scales, problem, new.alpha)
    # A trajectory may cross values at which the cut forbids it to end, so this is finite there too.
    bound = (problem.log_largest_mass - new.log_nu)[:, tf.newaxis]
    totals = chain.group_totals(tf.exp(tf.minimum(log_masses, bound)), problem)
    allowed = tf.math.log(tf.reduce_max(totals, axis=-1)) < bound[:, 0]
    allowed &= tf.reduce_max(log_masses, axis=-1) < bound[:, 0]
    factor = chain.covariance_factor(totals, new, problem)
    likelihood = equations.log_likelihood(factor, problem.targets)
    value = likelihood - 0.5 * tf.reduce_sum(tf.square(position[:, :-3]), axis=-1)
    if settings.infer_noise:
        value += hyper.log_prior_of_noise(new.log_noise, settings)
    if settings.nu_prior is not None:
        value += equations.log_nu_prior(new.log_nu, settings.nu_prior)
    if settings.alpha_range is not None:
        value += equations.log_density_of_logit(position[:, -1])
    return value, likelihood, allowed


def _moving(state, settings):
    """Returns 1 for coordinates that move, 0 for known ones, `[2 L + 3]`."""
    inferred = [
        settings.infer_noise,
        settings.nu_prior is not None,
        settings.alpha_range is not None,
    ]
    atoms = tf.ones([2 * state.u.shape[1]], chain.FLOAT)
    return tf.concat([atoms, tf.constant(inferred, chain.FLOAT)], axis=0)


def _adapt(state, acceptance, settings):
    """Returns the steps after a Robbins-Monro update during the burn-in, `[B, 3]`."""
    time = tf.cast(state.iteration, chain.FLOAT)
    rate = 2.0 / (1.0 + time) ** 0.6
    rate *= tf.cast(state.iteration < settings.adapt_for, rate.dtype)
    last = state.log_steps[:, -1:] + rate * (acceptance - _TARGET_ACCEPTANCE)[:, tf.newaxis]
    return tf.concat([state.log_steps[:, :-1], tf.clip_by_value(last, -8.0, 1.0)], axis=-1)
