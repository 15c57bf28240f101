"""Draws of functions given the scales: the weights of the atoms."""

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_fnspace.methods.stable_process import equations
from tfp_fnspace.methods.stable_process.samplers import state as chain
from tfp_fnspace.methods.stable_process.samplers.problem import Problem
from tfp_fnspace.typing import Seed, Tensor


def draw_weights(seed: Seed, state: chain.ChainState, problem: Problem) -> tuple[Tensor, Tensor]:
    """Draws the weights given scales, noise and targets, by Matheron's rule.

    They are a draw from the conditional Gaussian of Proposition 2, at every x at once; see
    `equations.posterior_weights`.

    Args:
        seed: int32 tensor `[2]`.
        state: `ChainState`.
        problem: `Problem`.

    Returns:
        `[B, L']`, the weights of the partition's atoms, in its order and orientation; and
        `[B, N]`, f on the data.
    """
    masses = tf.exp(chain.log_masses(state.log_scales, problem, state.alpha))
    totals = chain.group_totals(masses, problem)
    factor = chain.covariance_factor(totals, state, problem)
    variance = tf.exp(state.log_nu)[:, tf.newaxis] * masses
    first, second = tfp.random.split_seed(seed)
    prior = tf.sqrt(variance) * chain.standard_normal(masses.shape, first)
    noise = tf.sqrt(tf.exp(state.log_noise)[:, tf.newaxis] * state.noise_weights)
    noise *= chain.standard_normal(noise.shape, second)
    prior_values = equations.function_values(chain.group_totals(prior, problem), problem.signs)
    residual = problem.targets - prior_values - noise
    weights = equations.posterior_weights(
        prior, residual, variance, factor, problem.signs, problem.group
    )
    values = equations.function_values(chain.group_totals(weights, problem), problem.signs)
    return tf.gather(weights, problem.place, axis=1) * problem.orientation, values
