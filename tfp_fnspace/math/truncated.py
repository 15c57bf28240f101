"""Gaussians that are observed up to limits: derivatives of the logarithm of what is observed."""

import math

import numpy as np
import tensorflow as tf

from tfp_fnspace.typing import Tensor

#: From here on, the hazard of N(0, 1) is a continued fraction, with this many terms. The error is
#: below 1e-12 of the distance between the hazard and its argument.
_TAIL, _NUM_TERMS = 3.0, 40

#: Intervals of at most this many standard deviations have integrals by quadrature. The others are
#: so wide that the probability of an interval does not underflow.
_NARROW, _NUM_NODES = 8.0, 32

#: The logarithm of the ratio of the densities at both limits beyond which the further one is none.
_NEGLIGIBLE = 40.0

#: Standardised limits are cut at this magnitude, so that their squares are finite in any dtype.
_FURTHEST = 1e18


def log_prob_derivatives(
    mean: Tensor, variance: Tensor, low: Tensor, high: Tensor
) -> tuple[Tensor, Tensor]:
    r"""Returns the first two derivatives in m of `log P(low <= z <= high)`, `z ~ N(m, v)`.

    With `x = (z - m) / sqrt(v)` they are the moments of x between the limits,

        E(x | low <= z <= high) / sqrt(v),    (Var(x | low <= z <= high) - 1) / v.

    Equal limits are an exact value, with the derivatives of its log density, `x / sqrt(v)` and `-1
    / v`. Without limits both are 0. Far from the mean they are as exact as near it: a tail has the
    hazard of a normal, and an interval is integrated from its nearer limit.

    Args:
        mean: Tensor `[...]`, m.
        variance: Tensor of the same shape, v, positive.
        low: Tensor of the same shape and any floating dtype; -inf is no limit.
        high: Tensor of the same shape and dtype as `low`, at least `low`; inf is no limit.

    Returns:
        Pair of tensors `[...]` in the dtype of the mean. The second is between -1 / v and 0.
    """
    stddev = tf.sqrt(variance)
    has_low, has_high = tf.math.is_finite(low), tf.math.is_finite(high)
    has_both = has_low & has_high
    width = tf.cast(tf.where(has_both, high - low, tf.zeros_like(low)), mean.dtype)
    width = tf.minimum(width / stddev, _FURTHEST)
    first, last = (
        tf.clip_by_value(
            (tf.cast(tf.where(there, limit, tf.zeros_like(limit)), mean.dtype) - mean) / stddev,
            -_FURTHEST,
            _FURTHEST,
        )
        for limit, there in ((low, has_low), (high, has_high))
    )
    # The limit that is nearer to the mean, or inside of the two, comes first.
    is_mirrored = tf.where(has_both, first + last < 0.0, has_high)
    near = tf.where(is_mirrored, -last, first)
    far = tf.where(is_mirrored, -first, last)
    is_interval = has_both & (0.5 * width * (near + far) <= _NEGLIGIBLE)
    is_narrow = is_interval & (width <= _NARROW)
    moments = [
        tf.where(is_narrow, narrow, tf.where(is_interval, wide, one_side))
        for narrow, wide, one_side in zip(
            _moments_of_narrow(
                tf.where(is_narrow, near, tf.zeros_like(near)),
                tf.where(is_narrow, width, tf.ones_like(width)),
            ),
            _moments_of_wide(
                tf.where(is_interval & ~is_narrow, near, -_NARROW * tf.ones_like(near)),
                tf.where(is_interval & ~is_narrow, far, _NARROW * tf.ones_like(far)),
            ),
            _moments_of_tail(near),
            strict=True,
        )
    ]
    expectation, excess = (
        tf.where(has_low | has_high, part, tf.zeros_like(part)) for part in moments
    )
    sign = tf.where(is_mirrored, -tf.ones_like(near), tf.ones_like(near))
    return sign * expectation / stddev, tf.clip_by_value(excess, -1.0, 0.0) / variance


def _moments_of_tail(low: Tensor) -> tuple[Tensor, Tensor]:
    r"""Returns `E x` and `Var x - 1` of x > low, for `x ~ N(0, 1)`.

    They are the hazard `h = phi(low) / Phi(-low)` and `-h (h - low)`. In the tail `h - low` is
    Laplace's continued fraction `1 / (low + 2 / (low + 3 / ...))`.
    """
    inside, tail = tf.minimum(low, _TAIL), tf.maximum(low, _TAIL)
    hazard = _density(inside) / _survival(inside)
    distance = tf.zeros_like(tail)
    for k in range(_NUM_TERMS, 0, -1):
        distance = k / (tail + distance)
    is_tail = low > _TAIL
    hazard = tf.where(is_tail, tail + distance, hazard)
    return hazard, -hazard * tf.where(is_tail, distance, hazard - inside)


def _moments_of_narrow(low: Tensor, width: Tensor) -> tuple[Tensor, Tensor]:
    r"""Returns `E x` and `Var x - 1` of x from `low` to `low + width`, by quadrature.

    The density of `u = x - low` is proportional to `exp(-low u - u^2 / 2)` and has no large terms.
    """
    nodes, weights = np.polynomial.legendre.leggauss(_NUM_NODES)
    column = [-1] + [1] * len(low.shape)
    nodes = tf.reshape(tf.constant(0.5 * (1.0 + nodes), low.dtype), column)
    weights = tf.reshape(tf.constant(weights, low.dtype), column)
    steps = width * nodes
    weights *= tf.exp(-low * steps - 0.5 * tf.square(steps))
    weights /= tf.reduce_sum(weights, axis=0)
    step = tf.reduce_sum(weights * steps, axis=0)
    return low + step, tf.reduce_sum(weights * tf.square(steps - step), axis=0) - 1.0


def _moments_of_wide(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Returns `E x` and `Var x - 1` of x from `low` to `high`, a probable interval."""
    probability = _survival(low) - _survival(high)
    at_low, at_high = _density(low) / probability, _density(high) / probability
    expectation = at_low - at_high
    return expectation, low * at_low - high * at_high - tf.square(expectation)


def _density(x: Tensor) -> Tensor:
    return tf.exp(-0.5 * tf.square(x)) / math.sqrt(2.0 * math.pi)


def _survival(x: Tensor) -> Tensor:
    return 0.5 * tf.math.erfc(x / math.sqrt(2.0))
