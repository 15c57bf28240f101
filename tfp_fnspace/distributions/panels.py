"""Integrals over the real line, by panels between approximate quantiles and two tails."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from tfp_fnspace.distributions.quantile import quantile_of_marginals
from tfp_fnspace.typing import Array, Distribution, Tensor

#: Edges of the panels of a mixture, nodes in a panel, nodes of a tail, and quantiles of each
#: component from which the edges are estimated.
_EDGES, _PANEL_NODES, _TAIL_NODES, _COMPONENT_LEVELS = 33, 8, 16, 9

#: Levels closer than this are equal. Else rounding would choose between two edges.
_SLACK = 1e-6


def integral(
    function: Callable[[Tensor], Tensor], edges: Tensor, tail: Tensor | None = None
) -> Tensor:
    """Integrates functions over the real line, one for each marginal.

    Each panel between two edges has 8 nodes. The tails are mapped to (0, 1) by `x = end -+ tail t /
    (1 - t)` and have 16 nodes each.

    Args:
        function: Function of x, a tensor `[Q, N, D]` (`[Q, N]`), that returns a tensor `[..., Q, N,
            D]`. It should be smooth between edges, and must decay faster than 1 / x.
        edges: Tensor `[E, N, D]`, sorted along its first axis.
        tail: Length scale of the tails, `[N, D]`; by default the distance of the outer edges.

    Returns:
        Tensor `[..., N, D]`.
    """
    if tail is None:
        tail = edges[-1] - edges[0]
    axis = -len(edges.shape)  # of the nodes

    def part(rule, place, slope):
        """Integrates over `place(t)`, t in (0, 1)."""
        nodes, weights = (column(t, edges[0]) for t in rule)
        return tf.reduce_sum(weights * slope(nodes) * function(place(nodes)), axis=axis)

    def add_panel(i, total):
        width = edges[i + 1] - edges[i]
        rule = smooth_gauss_legendre(_PANEL_NODES)
        return i + 1, total + part(rule, lambda t: edges[i] + width * t, lambda t: width)

    rule = gauss_legendre(_TAIL_NODES)
    lower, upper = (
        part(
            rule,
            lambda t, end=end, sign=sign: end + sign * tail * t / (1.0 - t),
            lambda t: tail / tf.square(1.0 - t),
        )
        for end, sign in ((edges[0], -1.0), (edges[-1], 1.0))
    )
    num_panels = edges.shape[0] - 1
    _, total = tf.while_loop(
        lambda i, total: i < num_panels,
        add_panel,
        (0, lower + upper),
        maximum_iterations=num_panels,
    )
    return total


def mixture_edges(
    mixture: Distribution,
    quantiles: Callable[[Distribution, Tensor], Tensor] = quantile_of_marginals,
) -> Tensor:
    """Returns approximate quantiles of a mixture, `[E, N, D]`.

    They are weighted quantiles of all components together.

    Args:
        mixture: `tfd.MixtureSameFamily` with batch `[N, D]` (`[N]`) and event `[]`.
        quantiles: Function that returns quantiles of its components, also rough ones.

    Returns:
        Tensor, sorted along its first axis.
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
    wanted = tf.constant(wanted * wanted * (3.0 - 2.0 * wanted) - _SLACK, dtype)
    wanted = tf.broadcast_to(wanted, tf.concat([shape[:-1], [_EDGES]], axis=0))
    places = tf.minimum(tf.searchsorted(below, wanted), tf.shape(values)[-1] - 1)
    edges = tf.gather(values, places, axis=-1, batch_dims=rank - 2)  # [N, D, E]
    edges = tf.transpose(edges, [rank - 2, *range(rank - 2)])
    edges.set_shape([_EDGES, *edges.shape[1:]])  # a graph may not know the first size
    return edges


def column(values: Array, like: Tensor) -> Tensor:
    """Returns Q numbers as a tensor `[Q, 1, ...]` that broadcasts with `[Q, *like.shape]`."""
    return tf.reshape(tf.constant(values, like.dtype), [-1] + [1] * len(like.shape))


def smooth_gauss_legendre(size: int) -> tuple[Array, Array]:
    """Returns nodes and weights on (0, 1) after `t = u^2 (3 - 2 u)`, which tames both tails."""
    u, weights = gauss_legendre(size)
    return u * u * (3.0 - 2.0 * u), weights * 6.0 * u * (1.0 - u)


def gauss_legendre(size: int) -> tuple[Array, Array]:
    """Returns nodes and weights on (0, 1)."""
    nodes, weights = np.polynomial.legendre.leggauss(size)
    return 0.5 * (nodes + 1.0), 0.5 * weights
