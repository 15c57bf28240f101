"""Expectations under Gaussians by quadrature."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from tfp_fnspace.math.random import fold_in, normal
from tfp_fnspace.typing import GaussianMoments, Seed, Tensor

#: Default number of nodes of `normal_expectation`.
NUM_NODES = 20


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
