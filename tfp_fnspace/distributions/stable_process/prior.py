"""The distribution of the scales and of the function: draws, characteristic function (float64)."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tfp_fnspace.distributions.positive_stable import uniform_and_exponential
from tfp_fnspace.math import kanter
from tfp_fnspace.math.random import normal
from tfp_fnspace.typing import Array, Seed, Tensor


def draw_log_scales(
    shape: Sequence[int | Tensor] | Tensor, alpha: Tensor, seed: Seed | None
) -> Tensor:
    """Draws log s by Kanter's formula; it is 0 at alpha = 2.

    Args:
        shape: Integer tensor.
        alpha: float64 tensor that broadcasts with the draws.
        seed: Seed as TFP takes it.

    Returns:
        float64 tensor of the given shape.
    """
    return log_scales_of(*uniform_and_exponential(shape, seed), alpha)


def log_scales_of(uniform: Tensor, exponential: Tensor, alpha: Tensor) -> Tensor:
    """Converts uniform and exponential draws to log s by Kanter's formula; 0 at alpha = 2.

    Args:
        uniform: float64 tensor in (0, 1).
        exponential: Positive float64 tensor of the same shape.
        alpha: float64 tensor that broadcasts with the draws.

    Returns:
        float64 tensor of the broadcast shape.
    """
    index = 0.5 * alpha
    is_normal = index >= 1.0
    safe = tf.where(is_normal, tf.constant(0.5, tf.float64), index)
    log_scales = kanter.log_scale(uniform, tf.math.log(exponential), safe)
    return tf.where(is_normal, tf.zeros_like(log_scales), log_scales)


def log_variances(log_scales: Tensor, probabilities: Array, alpha: Tensor, nu: Tensor) -> Tensor:
    """Returns `log d`, where `d_l = nu q_l^{2/alpha} s_l`.

    Args:
        log_scales: log s, tensor `[..., L]`.
        probabilities: q, array `[L]`.
        alpha: float64 tensor `[...]`.
        nu: float64 tensor `[...]`.

    Returns:
        float64 tensor `[..., L]`.
    """
    log_q = 2.0 / alpha[..., tf.newaxis] * np.log(probabilities)
    return tf.math.log(nu)[..., tf.newaxis] + log_q + tf.cast(log_scales, tf.float64)


def draw_functions(signs: Array, log_variances: Tensor, seed: Seed) -> Tensor:
    """Draws `f = sum_l beta_l tau_l`, where beta_l ~ N(0, d_l).

    Args:
        signs: tau, float64 array `[L, N]`.
        log_variances: log d, float64 tensor `[..., L]`.
        seed: int32 tensor `[2]`.

    Returns:
        float64 tensor `[..., N]`.
    """
    half = 0.5 * log_variances
    # Weights are relative to the largest. For a small alpha exp may then overflow to an infinity,
    # but never to a difference of two infinities.
    largest = tf.stop_gradient(tf.reduce_max(half, axis=-1, keepdims=True))
    weights = tf.exp(half - largest) * normal(tf.shape(half), seed, tf.float64)
    return tf.exp(largest) * tf.linalg.matmul(weights, tf.constant(signs))


def minus_log_characteristic(
    t: Tensor, signs: Array, probabilities: Array, alpha: Tensor, nu: Tensor
) -> Tensor:
    """Returns `-log E exp(i t.f) = (nu/2)^{alpha/2} sum_l q_l |t.tau_l|^alpha` (equations 3 and 4).

    Args:
        t: float64 tensor `[..., N]`.
        signs: tau, float64 array `[L, N]`.
        probabilities: q, array `[L]`.
        alpha: float64 tensor that broadcasts with `[...]`.
        nu: float64 tensor that broadcasts with `[...]`.

    Returns:
        float64 tensor `[...]`.
    """
    products = tf.abs(tf.linalg.matvec(tf.constant(signs), t))  # [..., L]
    powers = tf.reduce_sum(probabilities * products ** alpha[..., tf.newaxis], axis=-1)
    return (0.5 * nu) ** (0.5 * alpha) * powers
