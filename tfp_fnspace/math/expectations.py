"""Expectations of functions of Gaussian variables: in closed form, and by quadrature."""

import math
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from tfp_fnspace.math.random import fold_in, normal
from tfp_fnspace.typing import GaussianMoments, Seed, Tensor

#: erf and exp are saturated in float32 and float64 long before |x| = 40 standard deviations.
_SATURATION = 40.0

#: Default number of nodes of `normal_expectation`.
NUM_NODES = 20


# Quadrature --------------------------------------------------------------------------------------


def stddev_of(variance: Tensor) -> Tensor:
    """Returns the square root with a finite gradient down to 0: constant below one rounding of 1.

    This is for variances in model units, where 1 is large. In other units the floor would matter.
    """
    eps = np.finfo(variance.dtype.as_numpy_dtype).eps
    return tf.sqrt(tf.maximum(variance, eps))


def normal_expectation(
    function: Callable[[Tensor], Tensor], moments: GaussianMoments, num_nodes: int = NUM_NODES
) -> Tensor:
    r"""Returns the expectation `E g(f)`, `f ~ N(mean, variance)`, entry by entry.

        E g(f) = sum_q w_q g(mean + sqrt(variance) z_q)

    with the nodes and weights of the probabilists' Hermite polynomials; exact for polynomials of
    degree up to `2 num_nodes - 1`.

    Args:
        function: g, a function of a tensor `[Q, ...]` that acts on its entries.
        moments: `GaussianMoments` of tensors `[...]`; `variance=None` for known values.
        num_nodes: Q.

    Returns:
        Tensor `[...]`.
    """
    mean, variance = moments
    if variance is None:
        return function(mean[tf.newaxis])[0]
    nodes, weights = np.polynomial.hermite_e.hermegauss(num_nodes)
    column = [-1] + [1] * len(mean.shape)
    nodes = tf.reshape(tf.constant(nodes, mean.dtype), column)
    weights = tf.reshape(tf.constant(weights / weights.sum(), mean.dtype), column)
    return tf.reduce_sum(weights * function(mean + stddev_of(variance) * nodes), axis=0)


def normal_nodes(
    num_components: int, num_nodes: int, num_outputs: int, seed: Seed, dtype: tf.DType | str
) -> Tensor:
    r"""Returns equally weighted nodes of a standard normal, a set for each mixture component.

        z_skd = Phi^-1((i_skd + u_sd) / K)

    Each i_sd is a random order of 0, ..., K - 1: a Latin hypercube, with one node for every Kth
    part of an output's distribution; the outputs are related by chance only. The u_d are a random
    order of (1/2, ..., S - 1/2) / S, so that all components together have one node for each of S K
    parts. In the lower half of the parts 1 - u_sd replaces u_sd, so that the nodes of a component
    are symmetric with mean 0.

    Args:
        num_components: S.
        num_nodes: K, even.
        num_outputs: D.
        seed: int32 tensor `[2]`.
        dtype: Floating dtype.

    Returns:
        Tensor `[S, K, D]`.
    """
    # In float64, because with many components a level in float32 could be 1.
    parts = normal([num_components, num_nodes, num_outputs], fold_in(seed, 0), tf.float64)
    shifts = normal([num_components, 1, num_outputs], fold_in(seed, 1), tf.float64)
    parts = tf.cast(tf.argsort(parts, axis=1), tf.float64)
    shifts = (tf.cast(tf.argsort(shifts, axis=0), tf.float64) + 0.5) / num_components
    shifts = tf.where(2.0 * parts < num_nodes, 1.0 - shifts, shifts)
    return tf.cast(tf.math.ndtri((parts + shifts) / num_nodes), dtype)


# Absolute values and scores ----------------------------------------------------------------------


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


# Clipped variables -------------------------------------------------------------------------------


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
