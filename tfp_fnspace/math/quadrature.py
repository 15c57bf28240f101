"""Expectations under Gaussians by Gauss-Hermite quadrature."""

import numpy as np
import tensorflow as tf

#: Nodes of `normal_expectation` if the caller does not say.
NUM_NODES = 20


def stddev_of(variance):
    """Square root with a finite gradient down to 0: below one rounding of 1 it is constant."""
    eps = np.finfo(variance.dtype.as_numpy_dtype).eps
    return tf.sqrt(tf.maximum(variance, eps))


def normal_expectation(function, moments, num_nodes=NUM_NODES):
    r"""Expectation `E g(f)`, `f ~ N(mean, variance)`, entry by entry.

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
