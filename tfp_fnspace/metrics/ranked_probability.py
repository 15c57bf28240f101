"""Continuous ranked probability scores, one entry for each marginal."""

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_fnspace.distributions.quantile import (
    is_count,
    is_mixture,
    marginal_cdf,
    quantile_of_marginals,
)
from tfp_fnspace.math.expectations import normal_crps, normal_mixture_crps
from tfp_fnspace.typing import Distribution, Tensor

tfd = tfp.distributions

#: Number of nodes of the integral over the levels, on either side of `F(y)`.
_LEVEL_NODES = 32

#: Numbers for mixtures: edges of panels, nodes in a panel, nodes of a tail, and quantiles of each
#: component from which the edges are estimated.
_EDGES, _PANEL_NODES, _TAIL_NODES, _COMPONENT_LEVELS = 33, 8, 16, 9

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
    if is_count(scalar):
        return _of_counts(y, scalar)
    if not is_mixture(scalar):
        return _by_levels(y, scalar)
    components = scalar.components_distribution
    if isinstance(components, tfd.Normal):
        probs = scalar.mixture_distribution.probs_parameter()
        return normal_mixture_crps(y, probs, components.loc, components.scale)
    return _by_panels(y, scalar, _edges(scalar, quantile_of_marginals), marginal_cdf)


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
    nodes, weights = (_column(t, y) for t in _smooth_gauss_legendre(_LEVEL_NODES))

    def deviations(levels):
        return tf.abs(quantile_of_marginals(scalar, tf.clip_by_value(levels, eps, 1.0 - eps)) - y)

    below = tf.square(split) * tf.reduce_sum(weights * nodes * deviations(split * nodes), axis=0)
    above = tf.square(1.0 - split) * tf.reduce_sum(
        weights * nodes * deviations(1.0 - (1.0 - split) * nodes), axis=0
    )
    return 2.0 * (below + above)


def _smooth_gauss_legendre(size):
    """Returns nodes and weights on (0, 1) after `t = u^2 (3 - 2 u)`, which tames both tails."""
    u, weights = _gauss_legendre(size)
    return u * u * (3.0 - 2.0 * u), weights * 6.0 * u * (1.0 - u)


def _by_panels(y, mixture, edges, cdf):
    """Returns `int (F - 1{y <= x})^2 dx` by panels between approximate quantiles and two tails.

    F costs one term for each component at each node. `_by_levels` would need a quantile of F for
    each of its nodes, and each quantile is a search that takes dozens of values of F.
    """
    edges = tf.stop_gradient(edges)  # [E, N, D]
    tail = edges[-1] - edges[0]
    edges = tf.sort(tf.concat([edges, y[tf.newaxis]], axis=0), axis=0)

    def integral(nodes, weights, place, slope):
        """Integrates the square over `place(t)`, t in (0, 1)."""
        nodes, weights = (_column(t, y) for t in (nodes, weights))
        x = place(nodes)
        square = tf.square(cdf(mixture, x) - tf.cast(x >= y, y.dtype))
        # Outside the support, where the square is 0, TFP's function may be NaN.
        square = tf.where(tf.math.is_nan(square), tf.zeros_like(square), square)
        return tf.reduce_sum(weights * slope(nodes) * square, axis=0)

    def add_panel(i, total):
        width = edges[i + 1] - edges[i]
        rule = _smooth_gauss_legendre(_PANEL_NODES)
        return i + 1, total + integral(*rule, lambda t: edges[i] + width * t, lambda t: width)

    rule = _gauss_legendre(_TAIL_NODES)  # x = end -+ tail t / (1 - t)
    total = tf.zeros_like(y)
    for end, sign in ((edges[0], -1.0), (edges[-1], 1.0)):
        total += integral(
            *rule,
            lambda t, end=end, sign=sign: end + sign * tail * t / (1.0 - t),
            lambda t: tail / tf.square(1.0 - t),
        )
    _, total = tf.while_loop(
        lambda i, total: i < _EDGES, add_panel, (0, total), maximum_iterations=_EDGES
    )
    known = cdf(mixture, y)
    return tf.where(tf.math.is_nan(known), known, total)


def _edges(mixture, quantiles):
    """Returns approximate quantiles of a mixture, `[E, N, D]`, by a function for its components.

    They are weighted quantiles of all components together.
    """
    components, dtype = mixture.components_distribution, mixture.dtype
    levels = (np.arange(_COMPONENT_LEVELS) + 0.5) / _COMPONENT_LEVELS
    levels = tf.reshape(tf.constant(levels, dtype), [-1] + [1] * len(components.batch_shape))
    values = quantiles(components, levels)  # [L, N, D, K]
    probs = mixture.mixture_distribution.probs_parameter() + tf.zeros_like(values)
    rank = len(values.shape)
    to_last = [*range(1, rank - 1), 0, rank - 1]
    shape = tf.concat([tf.shape(values)[1:-1], [-1]], axis=0)
    values, probs = (tf.reshape(tf.transpose(t, to_last), shape) for t in (values, probs))
    order = tf.argsort(values, axis=-1)
    values, probs = (tf.gather(t, order, axis=-1, batch_dims=rank - 2) for t in (values, probs))
    below = tf.cumsum(probs, axis=-1) / tf.reduce_sum(probs, axis=-1, keepdims=True)
    wanted = np.linspace(0.0, 1.0, _EDGES)
    wanted = tf.constant(wanted * wanted * (3.0 - 2.0 * wanted), dtype)
    wanted = tf.broadcast_to(wanted, tf.concat([shape[:-1], [_EDGES]], axis=0))
    places = tf.minimum(tf.searchsorted(below, wanted), tf.shape(values)[-1] - 1)
    edges = tf.gather(values, places, axis=-1, batch_dims=rank - 2)  # [N, D, E]
    return tf.transpose(edges, [rank - 2, *range(rank - 2)])


def _column(values, y):
    return tf.reshape(tf.constant(values, y.dtype), [-1] + [1] * len(y.shape))


def _gauss_legendre(size):
    """Returns nodes and weights on (0, 1)."""
    nodes, weights = np.polynomial.legendre.leggauss(size)
    return 0.5 * (nodes + 1.0), 0.5 * weights


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
        lambda: _by_panels(y, scalar, _edges(scalar, _rough_quantiles), _smooth_cdf),
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
