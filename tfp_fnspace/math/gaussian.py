"""Expectations under Gaussians and Gaussian mixtures, in closed form."""

import math

import numpy as np
import tensorflow as tf

from tfp_fnspace.typing import Tensor

# erf and exp are saturated in float32 and float64 long before |x| = 40 standard deviations.
_SATURATION = 40.0


def absolute_normal_mean(mean: Tensor, stddev: Tensor) -> Tensor:
    """Returns the mean of the absolute value of a Gaussian, `E|X|` for `X ~ N(mean, stddev^2)`.

        E|X| = m (2 Phi(m / s) - 1) + 2 s phi(m / s)

    Value and gradient are finite down to `stddev = 0`, where the limit is `|mean|`.

    Args:
      mean: real tensor.
      stddev: tensor that broadcasts with `mean`, entries `>= 0`.

    Returns:
      Tensor of the broadcast shape.

    References:
      Grimit, Gneiting, Berrocal and Johnson (2006), The continuous ranked probability score for
      circular variables, QJRMS 132 (there `A(mu, sigma^2)`).
    """
    mean = tf.convert_to_tensor(mean)
    stddev = tf.convert_to_tensor(stddev, dtype=mean.dtype)
    tiny = np.finfo(mean.dtype.as_numpy_dtype).tiny
    # The floor is for the division alone: beyond it erf is 1 and the density is 0, as they should
    # be.
    floor = tf.maximum(tf.abs(mean) / _SATURATION, tiny)
    z = mean / tf.maximum(stddev, floor)
    density = tf.exp(-0.5 * tf.square(z)) / math.sqrt(2.0 * math.pi)
    return mean * tf.math.erf(z / math.sqrt(2.0)) + 2.0 * stddev * density


def normal_crps(y: Tensor, mean: Tensor, stddev: Tensor) -> Tensor:
    """Returns the continuous ranked probability score of a Gaussian forecast.

        CRPS = E|X - y| - E|X - X'| / 2 = s [z (2 Phi(z) - 1) + 2 phi(z) - 1 / sqrt(pi)],
        z = (y - m) / s

    The limit at `stddev = 0` is `|y - mean|`.

    Args:
      y: tensor, the observations.
      mean: tensor that broadcasts with `y`.
      stddev: tensor that broadcasts with `y`, entries `>= 0`.

    Returns:
      Tensor of the broadcast shape, in the units of `y`.

    References:
      Gneiting and Raftery (2007), Strictly proper scoring rules, JASA 102, section 4.2 (there with
      the opposite sign).
    """
    y = tf.convert_to_tensor(y)
    stddev = tf.convert_to_tensor(stddev, dtype=y.dtype)
    return absolute_normal_mean(y - mean, stddev) - stddev / math.sqrt(math.pi)


def normal_mixture_crps(y: Tensor, probs: Tensor, means: Tensor, stddevs: Tensor) -> Tensor:
    """Returns the continuous ranked probability score of a mixture of K Gaussians.

        CRPS = sum_k p_k A(y - m_k, s_k^2) - 1/2 sum_jk p_j p_k A(m_j - m_k, s_j^2 + s_k^2),
        A(m, s^2) = E|X|, X ~ N(m, s^2)

    The double sum costs O(K^2) operations but O(K) memory: it runs over j in a loop in the graph.

    Args:
      y: tensor `[...]`, the observations.
      probs: tensor that broadcasts with `[..., K]`, the weights, which sum to 1 over K.
      means: tensor that broadcasts with `[..., K]`.
      stddevs: tensor that broadcasts with `[..., K]`, entries `>= 0`.

    Returns:
      Tensor `[...]`, in the units of `y`.

    References:
      Grimit, Gneiting, Berrocal and Johnson (2006), The continuous ranked probability score for
      circular variables, QJRMS 132.
    """
    y = tf.convert_to_tensor(y)
    means = tf.convert_to_tensor(means, dtype=y.dtype)
    means += tf.zeros_like(stddevs, dtype=y.dtype)  # [..., K]: the loop gathers along K
    stddevs += tf.zeros_like(means)
    probs += tf.zeros_like(means)
    distance = tf.reduce_sum(probs * absolute_normal_mean(y[..., None] - means, stddevs), axis=-1)
    return distance - 0.5 * _mean_pair_distance(probs, means, stddevs)


def _mean_pair_distance(probs, means, stddevs):
    """Returns `E|X - X'|` of two independent draws of a Gaussian mixture, `[..., K]` to `[...]`."""
    num_components = tf.shape(means)[-1] if means.shape[-1] is None else means.shape[-1]

    def add_component(j, total):
        mean, stddev, prob = (tf.gather(t, j, axis=-1) for t in (means, stddevs, probs))
        spread = tf.sqrt(tf.square(stddevs) + tf.square(stddev[..., None]))
        distance = absolute_normal_mean(means - mean[..., None], spread)  # [..., K]
        return j + 1, total + prob * tf.reduce_sum(probs * distance, axis=-1)

    _, total = tf.while_loop(
        lambda j, total: j < num_components,
        add_component,
        (0, tf.zeros_like(means[..., 0])),
        # XLA can only differentiate a loop whose length it knows.
        maximum_iterations=num_components,
    )
    return total
