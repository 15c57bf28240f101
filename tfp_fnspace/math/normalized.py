"""Moments of positive variables divided by their sum."""

import tensorflow as tf

from tfp_fnspace.math.expectations import clipped_moments
from tfp_fnspace.typing import GaussianMoments, Tensor

#: Largest variance of a logarithm for which the exponential is taken in float32.
_LARGEST_EXPONENT = 40.0

#: Smallest mean of a rectified unit: a unit that is certainly off still gets a share.
_SMALLEST_MEAN = 1e-10


class NormalizedMoments:
    r"""Moments of `p_i = x_i / sum_j x_j` of independent positive x, over the last axis.

    Each `x_i`, and their sum X, is treated as log-normal with its own mean and variance. With the
    means m, `w_i = m_i / sum_j m_j`, relative variances `c_i = var(x_i) / m_i^2` and the relative
    variance `Q = sum_j w_j^2 c_j` of X:

        log p_i = log x_i - log X
        var(log x_i) = log(1 + c_i),  var(log X) = log(1 + Q)
        cov(log x_i, log X) = log(1 + w_i c_i)
        E p_i = w_i (1 + Q) / (1 + w_i c_i)
        var(p_i) = (E p_i)^2 ((1 + c_i) (1 + Q) / (1 + w_i c_i)^2 - 1)

    For a Gaussian z_i that is independent of the other x and has `cov(z_i, x_i) = t_i m_i
    var(z_i)`, `cov(z_i, p_j) / var(z_i) = t_i E p_j (delta_ij - w_i)`. The approximation is close
    where relative variances are well below 1. The means sum to 1 only approximately.

    Args:
        log_means: Tensor `[..., K]`, `log m`.
        relative_variances: Tensor `[..., K]`, c.
        log_slopes: Tensor that broadcasts to `[..., K]`, t.
    """

    def __init__(self, log_means: Tensor, relative_variances: Tensor, log_slopes: Tensor):
        weights = tf.nn.softmax(log_means)
        own = tf.math.log1p(relative_variances)
        total = tf.reduce_sum(tf.square(weights) * relative_variances, axis=-1, keepdims=True)
        total = tf.math.log1p(total)
        shared = tf.math.log1p(weights * relative_variances)
        mean = weights * tf.exp(total - shared)
        spread = tf.math.expm1(tf.maximum(own + total - 2.0 * shared, 0.0))
        self.moments = GaussianMoments(mean, tf.square(mean) * spread)
        self.weights, self.log_slopes = weights, log_slopes

    def innovation(
        self, mean_innovation: Tensor, variance_innovation: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Returns innovations of z from those of p: `J dm`, `J^2 dS`, `J = cov(z_i, p_j)/var(z_i)`.

        Args:
            mean_innovation: Tensor `[..., K]`.
            variance_innovation: Tensor `[..., K]`.

        Returns:
            Pair of tensors `[..., K]`.
        """
        mean, weights = self.moments.mean, self.weights
        first = mean * mean_innovation
        second = tf.square(mean) * variance_innovation
        first -= weights * tf.reduce_sum(first, axis=-1, keepdims=True)
        others = tf.reduce_sum(second, axis=-1, keepdims=True) - second
        second = tf.square(1.0 - weights) * second + tf.square(weights) * others
        return self.log_slopes * first, tf.square(self.log_slopes) * second


def softmax_moments(mean: Tensor, variance: Tensor) -> NormalizedMoments:
    """Returns `NormalizedMoments` of `x = exp(z)` for Gaussian z; x is log-normal, `log x = z`."""
    relative = tf.math.expm1(tf.minimum(variance, _LARGEST_EXPONENT))
    return NormalizedMoments(mean + 0.5 * variance, relative, tf.ones_like(mean))


def remax_moments(mean: Tensor, variance: Tensor) -> NormalizedMoments:
    """Returns `NormalizedMoments` of `x = max(z, 0)` for Gaussian z; moments of x are exact."""
    rectified, spread, slope = clipped_moments(mean, variance, 0.0)
    rectified = tf.maximum(rectified, _SMALLEST_MEAN)
    relative = spread / tf.square(rectified)
    return NormalizedMoments(tf.math.log(rectified), relative, slope / rectified)
