"""Continuous ranked probability scores, one entry for each marginal."""

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_fnspace.distributions import panels
from tfp_fnspace.distributions.quantile import (
    is_count,
    is_mixture,
    marginal_cdf,
    quantile_of_marginals,
)
from tfp_fnspace.distributions.recalibrated import Recalibrated
from tfp_fnspace.math.expectations import normal_crps, normal_mixture_crps
from tfp_fnspace.typing import Distribution, Tensor

tfd = tfp.distributions

#: Number of nodes of the integral over the levels, on either side of `F(y)`.
_LEVEL_NODES = 32

#: Counts up to this number are summed over; larger ones are treated as continuous.
_MOST_COUNTS = 2000

#: What is left of the probability where a sum over counts ends.
_LEFT = 1e-10


def ranked_probability(y: Tensor, scalar: Distribution) -> Tensor:
    """Returns the score of each entry (see `functions.crps`).

    Args:
        y: Tensor `[N, D]` (`[N]`).
        scalar: Distribution with batch `[N, D]` (`[N]`) and event `[]`.

    Returns:
        Tensor like `y`.
    """
    if isinstance(scalar, tfd.Normal):
        return normal_crps(y, scalar.loc, scalar.scale)
    if isinstance(scalar, tfd.Empirical):
        return _of_samples(y, tf.convert_to_tensor(scalar.samples))
    if isinstance(scalar, Recalibrated):
        return _by_panels(y, scalar, scalar.edges())
    if is_count(scalar):
        return _of_counts(y, scalar)
    if not is_mixture(scalar):
        return _by_levels(y, scalar)
    components = scalar.components_distribution
    if isinstance(components, tfd.Normal):
        probs = scalar.mixture_distribution.probs_parameter()
        return normal_mixture_crps(y, probs, components.loc, components.scale)
    return _by_panels(y, scalar, panels.mixture_edges(scalar))


def _of_samples(y, samples):
    """Returns `E|X - y| - E|X - X'| / 2` for equally likely values, samples `[N, D, S]`.

    For sorted values, `sum_ij |x_i - x_j| = 2 sum_i (2 i - S - 1) x_i`.
    """
    deviations = tf.sort(samples - y[..., tf.newaxis], axis=-1)
    size = tf.cast(tf.shape(deviations)[-1], y.dtype)
    ranks = tf.range(1.0, size + 0.5, dtype=y.dtype)
    half_spread = tf.reduce_mean((2.0 * ranks - size - 1.0) / size * deviations, axis=-1)
    return tf.reduce_mean(tf.abs(deviations), axis=-1) - half_spread


def _by_levels(y, scalar):
    """Returns twice the integral of the pinball loss over the levels, split at its kink `F(y)`."""
    dtype = y.dtype
    eps = np.finfo(dtype.as_numpy_dtype).eps
    split = tf.clip_by_value(marginal_cdf(scalar, y), eps, 1.0 - eps)
    rule = panels.smooth_gauss_legendre(_LEVEL_NODES)
    nodes, weights = (panels.column(t, y) for t in rule)

    def deviations(levels):
        return tf.abs(quantile_of_marginals(scalar, tf.clip_by_value(levels, eps, 1.0 - eps)) - y)

    below = tf.square(split) * tf.reduce_sum(weights * nodes * deviations(split * nodes), axis=0)
    above = tf.square(1.0 - split) * tf.reduce_sum(
        weights * nodes * deviations(1.0 - (1.0 - split) * nodes), axis=0
    )
    return 2.0 * (below + above)


def _by_panels(y, scalar, edges, cdf=marginal_cdf):
    """Returns `int (F - 1{y <= x})^2 dx` by panels between approximate quantiles and two tails.

    F of a mixture costs one term for each component at each node. `_by_levels` would need a
    quantile of F for each of its nodes, and each quantile is a search that takes dozens of values
    of F.
    """
    edges = tf.stop_gradient(edges)  # [E, N, D]
    with_y = tf.sort(tf.concat([edges, y[tf.newaxis]], axis=0), axis=0)

    def square(x):
        values = tf.square(cdf(scalar, x) - tf.cast(x >= y, y.dtype))
        # Outside the support, where the square is 0, TFP's function may be NaN.
        return tf.where(tf.math.is_nan(values), tf.zeros_like(values), values)

    total = panels.integral(square, with_y, tail=edges[-1] - edges[0])
    known = cdf(scalar, y)
    return tf.where(tf.math.is_nan(known), known, total)


# Counts ------------------------------------------------------------------------------------------


def _of_counts(y, scalar):
    """Returns the score of a distribution of counts or of a mixture of them."""
    if not is_mixture(scalar):
        components = scalar.copy(**_with_last_axis(scalar))
        weights = tfd.Categorical(logits=tf.zeros([1], scalar.dtype))
        scalar = tfd.MixtureSameFamily(weights, components)
    components = scalar.components_distribution
    far = tf.reduce_max(components.mean() + 10.0 * components.stddev())
    is_small = tf.maximum(far, tf.reduce_max(y)) < _MOST_COUNTS
    return tf.cond(
        is_small,
        lambda: _by_sum(y, scalar),
        lambda: _by_panels(y, scalar, panels.mixture_edges(scalar, _rough_quantiles), _smooth_cdf),
    )


def _with_last_axis(scalar):
    shape = scalar.batch_shape_tensor()
    properties = scalar.parameter_properties(dtype=scalar.dtype)
    given = {name: scalar.parameters.get(name) for name in properties}
    return {
        name: tf.broadcast_to(value, shape)[..., tf.newaxis]
        for name, value in given.items()
        if value is not None
    }


def _by_sum(y, mixture):
    """Returns `sum_k (F(k) - 1{y <= k})^2` over the integers from 0, one term for each."""
    left = max(_LEFT, 1e3 * np.finfo(y.dtype.as_numpy_dtype).eps)
    probs = mixture.mixture_distribution.probs_parameter()
    components = mixture.components_distribution

    def goes_on(k, cdf, total):
        return tf.reduce_any((cdf < 1.0 - left) | (k <= y))

    def add(k, cdf, total):
        cdf += tf.ensure_shape(tf.reduce_sum(probs * components.prob(k), axis=-1), y.shape)
        return k + 1.0, cdf, total + tf.square(cdf - tf.cast(k >= y, y.dtype))

    zeros = tf.zeros_like(y)
    start = (tf.zeros([], y.dtype), zeros, zeros)
    # A tail that is left at 20 standard deviations contributes nothing.
    _, _, total = tf.while_loop(goes_on, add, start, maximum_iterations=2 * _MOST_COUNTS)
    return total


def _smooth_cdf(mixture, x):
    """Returns a smooth function that is F(k) at each `x = k + 1/2`.

    Its integral is the sum over the integers, up to the second derivative over 24.
    """
    probs = mixture.mixture_distribution.probs_parameter()
    counts = mixture.components_distribution
    k = tf.maximum(x[..., tf.newaxis] + 0.5, 0.5)  # one more than x - 1/2
    if isinstance(counts, tfd.Poisson):
        parts = tf.math.igammac(k, counts.rate_parameter())
    else:
        parts = tfp.math.betainc(counts.total_count, k, 1.0 - counts.probs_parameter())
    return tf.reduce_sum(
        probs * tf.where(x[..., tf.newaxis] < 0.0, tf.zeros_like(parts), parts), axis=-1
    )


def _rough_quantiles(counts, levels):
    """Returns quantiles of a Gamma distribution with the same moments, by Wilson and Hilferty."""
    mean, variance = counts.mean(), counts.variance()
    share = variance / (9.0 * tf.square(mean))
    root = 1.0 - share + tf.math.ndtri(levels) * tf.sqrt(share)
    return mean * tf.pow(tf.maximum(root, 0.0), 3.0)
