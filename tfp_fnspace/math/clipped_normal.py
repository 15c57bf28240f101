"""Moments of clipped Gaussian variables."""

import math

import tensorflow as tf

from tfp_fnspace.typing import Tensor


def _standard_normal(x):
    """Returns the density and distribution function of N(0, 1)."""
    density = tf.exp(-0.5 * tf.square(x)) / math.sqrt(2.0 * math.pi)
    return density, 0.5 * tf.math.erfc(-x / math.sqrt(2.0))


def clipped_moments(
    mean: Tensor, variance: Tensor, low: float, high: float | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    r"""Returns exact moments of `clip(z, low, high)` for `z ~ N(mean, variance)`.

    With `alpha = (low - m)/s`, `beta = (high - m)/s` and `n ~ N(0, 1)`, the moments of `clip(n,
    alpha, beta)` are taken about `c = clip(0, alpha, beta)`, the image of the mean. Every term is
    then small far from the kinks, so nothing cancels in float32.

    Args:
        mean: Tensor.
        variance: Tensor of the same shape, non-negative.
        low: Lower bound, a number.
        high: Upper bound, a number, or `None` for none.

    Returns:
        Mean, variance and slope `P(low < z < high)`, each of the shape of `mean`.
    """
    stddev = tf.sqrt(tf.maximum(variance, tf.constant(1e-30, mean.dtype)))
    alpha = _standardized(low, mean, stddev)
    density_low, below = _standard_normal(alpha)
    # `where`, not `maximum`: at a tie both expressions must take the same branch's derivative.
    centre = tf.where(mean < low, alpha, tf.zeros_like(alpha))
    centre_value = tf.where(mean < low, tf.constant(low, mean.dtype), mean)
    if high is None:
        # 1 - P(z < low) comes from its own tail, so that nothing cancels.
        inside = _standard_normal(-alpha)[1]
        edges, second_edges = density_low, alpha * density_low
        first_above = second_above = tf.zeros_like(mean)
    else:
        beta = _standardized(high, mean, stddev)
        density_high, above = _standard_normal(-beta)
        centre = tf.where(mean > high, beta, centre)
        centre_value = tf.where(mean > high, tf.constant(high, mean.dtype), centre_value)
        inside = tf.where(mean > high, _standard_normal(beta)[1] - below, (1.0 - above) - below)
        edges = density_low - density_high
        second_edges = alpha * density_low - beta * density_high
        first_above = (beta - centre) * above
        second_above = tf.square(beta - centre) * above
    inside = tf.maximum(inside, 0.0)
    first = (alpha - centre) * below + first_above - centre * inside + edges
    second = (
        tf.square(alpha - centre) * below
        + second_above
        + inside
        + second_edges
        - 2.0 * centre * edges
        + tf.square(centre) * inside
    )
    spread = tf.maximum(second - tf.square(first), 0.0)
    return centre_value + stddev * first, tf.square(stddev) * spread, inside


def _standardized(bound, mean, stddev):
    """Returns (bound - mean)/stddev, cut where the normal tails are zero in any dtype."""
    return tf.clip_by_value((bound - mean) / stddev, -1e4, 1e4)
