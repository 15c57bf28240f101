"""Random walks of the noise, nu and alpha, and the weights of Student-t noise."""

import functools
import math
from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_fnspace.methods.stable_process import equations
from tfp_fnspace.methods.stable_process.samplers import state as chain
from tfp_fnspace.methods.stable_process.samplers.problem import Problem
from tfp_fnspace.tracing import traced_for_all
from tfp_fnspace.typing import Seed, Tensor

#: Steps of noise and nu on one eigendecomposition, and steps that take a Cholesky factor each.
_STEPS, _FACTOR_STEPS = 6, 2

#: Logarithm of the largest variance of a group over the smallest of the noise. The latter is 1e-8
#: mean squares of the targets; below it float64 no longer holds Q^-1 (with constant targets the
#: noise would go to zero).
_LOG_RANGE = 17.0 * math.log(10.0)

#: Share of accepted steps that the adaptation aims at.
_TARGET_ACCEPTANCE = 0.4


def walk_on_spectrum(
    seed: Seed, totals: Tensor, state: chain.ChainState, problem: Problem, settings: chain.Settings
) -> tuple[Any, ...]:
    """Runs random walks of `log sigma^2` and `log nu`: many cheap steps on one eigendecomposition.

    Args:
        seed: int32 tensor `[2]`.
        totals: `[B, G]`, the groups' shares of the covariance.
        state: `ChainState`.
        problem: `Problem`.
        settings: `Settings`.

    Returns:
        The new state, `Q^-1` `[B, N, N]`, `log N(y; 0, Q)`, and the shares of accepted steps of
        noise and nu, `[B]` each.
    """
    covariance = equations.function_covariance(totals, problem.signs)
    values, vectors, squares = equations.spectrum(covariance, state.noise_weights, problem.targets)
    log_noise, log_nu, *accepted = _compiled_walk(
        settings.noise_prior,
        settings.nu_prior,
        settings.num_copies,
        values,
        squares,
        state.log_noise,
        state.log_nu,
        *_limits(totals, problem),
        *_steps_of_walk(seed, _STEPS, state, settings),
    )
    likelihood = equations.log_likelihood_of_spectrum(values, squares, log_noise, log_nu)
    likelihood -= 0.5 * tf.reduce_sum(tf.math.log(state.noise_weights), axis=-1)
    precision = equations.precision_of_spectrum(
        values, vectors, state.noise_weights, log_noise, log_nu
    )
    return state._replace(log_noise=log_noise, log_nu=log_nu), precision, likelihood, *accepted


def walk_on_factors(
    seed: Seed, totals: Tensor, state: chain.ChainState, problem: Problem, settings: chain.Settings
) -> tuple[Any, ...]:
    """Does the same as `walk_on_spectrum`, by a few steps of one Cholesky factor each."""
    covariance = equations.function_covariance(totals, problem.signs)
    largest_nu, smallest = _limits(totals, problem)

    def evaluate(log_noise, log_nu):
        factor = equations.covariance_factor(covariance, state.noise_weights, log_noise, log_nu)
        likelihood = equations.log_likelihood(factor, problem.targets)
        return factor, likelihood, likelihood + _log_prior(log_noise, log_nu, settings)

    noise, log_uniforms = _steps_of_walk(seed, _FACTOR_STEPS, state, settings)
    where = [state.log_noise, state.log_nu]
    factor, likelihood, current = evaluate(*where)
    accepted = [tf.zeros_like(current), tf.zeros_like(current)]
    walking = [settings.infer_noise, settings.nu_prior is not None]
    for i in range(_FACTOR_STEPS):
        for part in (k for k in range(2) if walking[k]):
            proposal = list(where)
            proposal[part] = where[part] + noise[i, part]
            # A step outside is refused; its factor might not exist.
            inside = (proposal[1] <= largest_nu) & (proposal[0] >= tf.minimum(smallest, where[0]))
            proposal[part] = tf.where(inside, proposal[part], where[part])
            candidate, new_likelihood, target = evaluate(*proposal)
            accept = inside & (target - current > log_uniforms[i, part])
            where[part] = tf.where(accept, proposal[part], where[part])
            current = tf.where(accept, target, current)
            likelihood = tf.where(accept, new_likelihood, likelihood)
            factor = tf.where(accept[:, tf.newaxis, tf.newaxis], candidate, factor)
            accepted[part] += tf.cast(accept, current.dtype) / _FACTOR_STEPS
    state = state._replace(log_noise=where[0], log_nu=where[1])
    return state, equations.precision_of_factor(factor), likelihood, *accepted


def _limits(totals, problem):
    """Returns the largest log nu and the smallest log sigma^2, `[B]` each."""
    largest_total = tf.math.log(tf.reduce_max(totals, axis=-1))
    return problem.log_largest_mass - largest_total, smallest_log_noise(problem)


def smallest_log_noise(problem: Problem) -> Tensor:
    """Returns the smallest log sigma^2 that inferred noise may reach, `[B]`.

    Noise may be below it at the start of a chain or because it is fixed; then it may only grow.
    """
    return problem.log_largest_mass - _LOG_RANGE


def _steps_of_walk(seed, count, state, settings):
    """Draws steps `[count, 2, B]` of log sigma^2 and log nu, and logarithms of uniform draws."""
    chains = state.alpha.shape[0]
    moves = tf.stack([settings.infer_noise, settings.nu_prior is not None])
    first, second = tfp.random.split_seed(seed)
    noise = chain.standard_normal([count, 2, chains], first)
    noise *= tf.exp(tf.transpose(state.log_steps[:, :2]))
    noise *= tf.cast(moves, noise.dtype)[:, tf.newaxis]
    return noise, tf.math.log(chain.uniform([count, 2, chains], second))


def log_prior_of_noise(log_noise: Tensor, settings: chain.Settings) -> Tensor:
    """Returns the log density of `log sigma^2`, and what copies of rows add to it, `[B]`."""
    prior = equations.log_noise_prior(log_noise, settings.noise_prior)
    if not settings.num_copies:
        return prior
    return prior + equations.log_noise_of_copies(log_noise, settings.num_copies)


def _log_prior(log_noise, log_nu, settings):
    prior = log_prior_of_noise(log_noise, settings)
    if settings.nu_prior is None:
        return prior
    return prior + equations.log_nu_prior(log_nu, settings.nu_prior)


@functools.partial(traced_for_all, jit_compile=True)
def _compiled_walk(
    noise_prior,
    nu_prior,
    num_copies,
    values,
    squares,
    log_noise,
    log_nu,
    largest_nu,
    smallest,
    noise,
    log_uniforms,
):
    settings = chain.Settings(noise_prior=noise_prior, nu_prior=nu_prior, num_copies=num_copies)

    def log_target(log_noise, log_nu):
        target = equations.log_likelihood_of_spectrum(values, squares, log_noise, log_nu)
        return target + _log_prior(log_noise, log_nu, settings)

    where = [log_noise, log_nu]
    current = log_target(*where)
    accepted = [tf.zeros_like(current), tf.zeros_like(current)]
    for i in range(_STEPS):
        for part in range(2):
            proposal = list(where)
            proposal[part] = where[part] + noise[i, part]
            target = log_target(*proposal)
            accept = (target - current > log_uniforms[i, part]) & (proposal[1] <= largest_nu)
            accept &= proposal[0] >= tf.minimum(smallest, where[0])
            where[part] = tf.where(accept, proposal[part], where[part])
            current = tf.where(accept, target, current)
            accepted[part] += tf.cast(accept & (noise[i, part] != 0.0), current.dtype) / _STEPS
    return *where, *accepted


def walk_alpha(
    seed: Seed, state: chain.ChainState, problem: Problem, settings: chain.Settings
) -> tuple[chain.ChainState, Tensor]:
    """Makes two random-walk steps of alpha: one keeps Kanter's variables, one the masses.

    With Kanter's (u, e) fixed, alpha changes all scales and with them the likelihood; with the
    masses `q^(2/alpha) s` fixed, it changes only the prior. Each mixes where the other is slow.

    Returns:
        The state with new alpha and scales, and the share of accepted steps, `[B]`.
    """
    low, high = settings.alpha_range  # pyright: ignore[reportGeneralTypeIssues]: it has a prior
    chains = state.alpha.shape[0]
    first, second = tfp.random.split_seed(seed)
    noise = chain.standard_normal([2, chains], first) * tf.exp(state.log_steps[:, 2])
    log_uniforms = tf.math.log(chain.uniform([2, chains], second))

    def inside(alpha):
        return (alpha > low) & (alpha < high)

    def likelihood(scales, alpha):
        masses = chain.log_masses(scales, problem, alpha)
        totals = chain.group_totals(tf.exp(masses), problem)
        factor = chain.covariance_factor(totals, state, problem)
        largest = tf.math.log(tf.reduce_max(totals, axis=-1))
        allowed = state.log_nu + largest <= problem.log_largest_mass
        return equations.log_likelihood(factor, problem.targets), allowed

    # The first step keeps Kanter's variables.
    alpha = state.alpha + noise[0]
    possible = inside(alpha)
    alpha = tf.where(possible, alpha, state.alpha)
    scales = equations.scales_with_kanter_kept(
        state.u, state.log_scales, state.alpha[:, tf.newaxis], alpha[:, tf.newaxis]
    )
    before, _ = likelihood(state.log_scales, state.alpha)
    after, allowed = likelihood(scales, alpha)
    accept = possible & allowed & (after - before > log_uniforms[0])
    state = state._replace(
        alpha=tf.where(accept, alpha, state.alpha),
        log_scales=tf.where(accept[:, tf.newaxis], scales, state.log_scales),
    )
    accepted = tf.cast(accept, alpha.dtype)

    # The second keeps the masses. It is smaller, because the priors of all atoms count.
    alpha = state.alpha + noise[1] / math.sqrt(problem.place.shape[0])
    possible = inside(alpha)
    alpha = tf.where(possible, alpha, state.alpha)
    scales = equations.scales_with_masses_kept(
        state.log_scales,
        problem.log_probability,
        state.alpha[:, tf.newaxis],
        alpha[:, tf.newaxis],
    )

    def prior(log_scales, value):
        value = value[:, tf.newaxis]
        return equations.log_scales_prior(state.u, log_scales, value, problem.present)

    ratio = prior(scales, alpha) - prior(state.log_scales, state.alpha)
    accept = possible & (ratio > log_uniforms[1])
    return state._replace(
        alpha=tf.where(accept, alpha, state.alpha),
        log_scales=tf.where(accept[:, tf.newaxis], scales, state.log_scales),
    ), accepted


def draw_noise_weights(seed: Seed, state: chain.ChainState, residuals: Tensor, df: float) -> Tensor:
    """Draws the relative variances of Student-t noise: independent inverse gamma variables.

    Args:
        seed: int32 tensor `[2]`.
        state: `ChainState`.
        residuals: `[B, N]`, y - f.
        df: Degrees of freedom.

    Returns:
        `[B, N]`. The previous weights are kept where the residuals are not finite, as in a chain
        whose covariance has no Cholesky factor in float64; otherwise it would never have one again.
    """
    weights = equations.draw_noise_weights(seed, residuals, state.log_noise, df)
    return tf.where(tf.math.is_finite(weights), weights, state.noise_weights)


def adapt(state: chain.ChainState, accepted: list[Tensor], settings: chain.Settings) -> Tensor:
    """Returns the widths of the random walks after a Robbins-Monro update during the burn-in."""
    time = tf.cast(state.iteration, chain.FLOAT)
    rate = 2.0 / (1.0 + time) ** 0.6
    rate *= tf.cast(state.iteration < settings.adapt_for, rate.dtype)
    change = rate * (tf.stack(accepted, axis=-1) - _TARGET_ACCEPTANCE)
    return tf.clip_by_value(state.log_steps + change, -8.0, 2.0)
