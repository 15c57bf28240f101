"""Draws of functions given the scales: the weights of the atoms."""

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_fnspace.methods.stable_process.samplers import gaussian
from tfp_fnspace.methods.stable_process.samplers import state as chain


def draw_weights(seed, state, problem):
    r"""Draws the weights given scales, noise and targets, by Matheron's rule.

    `f(x) = sum_l beta_l tau_l(x)`, `beta_l ~ N(0, D_l)`, `D_l = nu q_l^(2/alpha) s_l`. With a draw
    beta0 from that prior and noise e0, `beta0 + D T^T Q^-1 (y - T beta0 - e0)` has the distribution
    of beta given y. This is the conditional Gaussian of Proposition 2, at every x at once.

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
    factor = gaussian.cholesky_of_covariance(totals, state, problem)
    variance = tf.exp(state.log_nu)[:, tf.newaxis] * masses
    first, second = tfp.random.split_seed(seed)
    prior = tf.sqrt(variance) * chain.standard_normal(masses.shape, first)
    noise = tf.sqrt(tf.exp(state.log_noise)[:, tf.newaxis] * state.noise_weights)
    noise *= chain.standard_normal(noise.shape, second)
    prior_values = tf.matmul(chain.group_totals(prior, problem), problem.signs, transpose_b=True)
    residual = (problem.targets - prior_values - noise)[:, :, tf.newaxis]
    solved = tf.linalg.cholesky_solve(factor, residual)[:, :, 0]
    pull = tf.matmul(solved, problem.signs)  # [B, G], T^T Q^-1 r
    weights = prior + variance * tf.gather(pull, problem.group, axis=1)
    values = tf.matmul(chain.group_totals(weights, problem), problem.signs, transpose_b=True)
    return tf.gather(weights, problem.place, axis=1) * problem.orientation, values
