r"""Samples of stable distributions, smooth in the parameters also at alpha = 1.

This is the method of Chambers, Mallows and Stuck. With theta uniform on (-pi/2, pi/2), e standard
exponential, eps = alpha - 1, `tau = beta tan(pi alpha / 2)`, `c = cos arctan(tau)`, `b = cos(eps
theta) - tau sin(eps theta)`:

    Z = a exp(-eps l / alpha),    l = log(b / (e cos theta)),
    a = tau cos(eps theta) + sin(eps theta) + b tan(theta) = sin(arctan(tau) + alpha theta)
        / (c cos theta).

Near alpha = 1, where tau has a pole, `Z - tau` is computed from functions without one.

References:
    Chambers, Mallows and Stuck (1976), "A method for simulating stable random variables",
    Journal of the American Statistical Association 71.
"""

import math

import tensorflow as tf

from tfp_fnspace.math.stable.general import tangent
from tfp_fnspace.typing import Tensor

# The pole is split off this near to alpha = 1; elsewhere a small Z keeps its digits.
_WINDOW = 0.05

# Below this argument, three terms of their series give the following functions to all digits.
_SMALL = 1e-3


def _removable(function, series, x):
    """Returns `function(x)`, or `series(x)` where x is small, with gradients of either."""
    is_small = tf.abs(x) < _SMALL
    safe = tf.where(is_small, tf.ones_like(x), x)
    return tf.where(is_small, series(x), function(safe))


def _sinc(x):
    """Returns the ratio of sin(x) to x."""
    return _removable(lambda x: tf.sin(x) / x, lambda x: 1.0 - x**2 / 6.0 * (1.0 - x**2 / 20.0), x)


def _cotangent_ratio(x):
    """Returns the ratio of x to tan(x)."""
    return _removable(lambda x: x / tf.tan(x), lambda x: 1.0 - x**2 / 3.0 * (1.0 + x**2 / 15.0), x)


def _exponential_ratio(x):
    """Returns the ratio of exp(x) - 1 to x."""
    return _removable(
        lambda x: tf.math.expm1(x) / x,
        lambda x: 1.0 + x / 2.0 * (1.0 + x / 3.0 * (1.0 + x / 4.0 * (1.0 + x / 5.0))),
        x,
    )


def _near_one(theta, log_ratio, alpha, beta):
    """Returns Z - tau for alpha near 1; `log_ratio` is log(1 / (e cos theta))."""
    eps = alpha - 1.0
    pole = -2.0 / math.pi * beta * _cotangent_ratio(0.5 * math.pi * eps)  # eps tau
    sine = theta * _sinc(eps * theta)  # sin(eps theta) / eps
    bend = tf.cos(eps * theta) - pole * sine
    half = 0.5 * theta * _sinc(0.5 * eps * theta)
    # tau (cos(eps theta) - 1) + sin(eps theta) + b tan(theta)
    shifted = -2.0 * pole * eps * tf.square(half) + eps * sine + bend * tf.tan(theta)
    log_factor = -(log_ratio + tf.math.log(bend)) / alpha
    return shifted + (eps * shifted + pole) * log_factor * _exponential_ratio(eps * log_factor)


def _elsewhere(theta, log_ratio, alpha, tau):
    """Returns Z for alpha away from 1."""
    eps = alpha - 1.0
    bend = tf.cos(eps * theta) - tau * tf.sin(eps * theta)
    angle = alpha * theta + tf.atan(tau)
    factor = tf.sin(angle) * tf.sqrt(1.0 + tf.square(tau)) / tf.cos(theta)
    # Rounding takes b below 0 where it vanishes, at the ends for |beta| = 1.
    log_bend = tf.math.log(tf.maximum(bend, 1e-300))
    return factor * tf.exp(-eps / alpha * (log_ratio + log_bend))


def from_uniform_and_exponential(
    uniform: Tensor, exponential: Tensor, alpha: Tensor, beta: Tensor
) -> Tensor:
    """Returns Z of `general.py` from a uniform and a standard exponential number.

    Args:
        uniform: float64 tensor in (0, 1).
        exponential: Positive float64 tensor of the same shape.
        alpha: In (0, 2], float64 tensor that broadcasts with `uniform`.
        beta: In [-1, 1], float64 tensor that broadcasts with `uniform`.

    Returns:
        Tensor of the broadcast shape.
    """
    theta = math.pi * (uniform - 0.5)
    log_cosine = tf.math.log(tf.sin(math.pi * tf.minimum(uniform, 1.0 - uniform)))
    log_ratio = -tf.math.log(exponential) - log_cosine
    is_one = tf.equal(alpha, 1.0)
    is_near = tf.abs(alpha - 1.0) < _WINDOW
    far_alpha = tf.where(is_near, tf.constant(0.5, alpha.dtype), alpha)
    near_alpha = tf.where(is_near, alpha, tf.ones_like(alpha))
    pole_alpha = tf.where(is_one | ~is_near, far_alpha, alpha)
    tau = tf.where(is_one, tf.zeros_like(beta), beta * tangent(pole_alpha))
    near = _near_one(theta, log_ratio, near_alpha, beta) + tau
    far = _elsewhere(theta, log_ratio, far_alpha, beta * tangent(far_alpha))
    return tf.where(is_near, near, far)
