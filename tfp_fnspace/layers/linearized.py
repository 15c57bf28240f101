"""Networks as linear functions of their random weights, about the posterior means."""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from tfp_fnspace.layers.draws import function_draws
from tfp_fnspace.layers.variational import VariationalLayer
from tfp_fnspace.typing import Network, Tensor

#: At most so many numbers are copies of weights at once.
_MOST_COPIES = 2**22

_ZERO = tf.UnconnectedGradients.ZERO


class LinearMoments(NamedTuple):
    """Moments of a linear function of Gaussian weights, at N points with D outputs.

    Attributes:
        mean: Tensor `[N, D]`.
        covariance: Tensor `[N D, N D]`, the outputs of a point one after another.
    """

    mean: Tensor
    covariance: Tensor


class LinearizedNetwork:
    r"""The first-order expansion of a network in its random weights.

        f(x; w) ~ f(x; m) + J(x) (w - m),     w ~ N(m, V),     J = df/dw at m.

    At any points it is Gaussian, with mean `f(x; m)` and covariance `J V J^T`. It is exact if the
    network is linear in its random weights, and in the limit of a small V. The covariance is
    computed by products with the Jacobian, which is never in memory. With e_k a column of the
    identity, a column k of it, and the part of this column in the gradient of `tr(G J V J^T)` for a
    symmetric G, are

        J (V (J^T e_k)),     grad (J^T G e_k)^T V (J^T e_k).

    As many columns as fit into memory are computed at once. A column costs as much as a few passes
    through the network at all points.

    Args:
        network: Keras model with variational layers, whose posteriors are Gaussian.

    Raises:
        ValueError: If a posterior is not Gaussian.

    References:
        Rudner, Chen, Teh and Gal (2022), "Tractable function-space variational inference in
        Bayesian neural networks", NeurIPS.
    """

    def __init__(self, network: Network):
        found = [v for v in network._flatten_layers() if isinstance(v, VariationalLayer)]
        others = {v.name: type(v.posterior).__name__ for v in found if not v.posterior.is_gaussian}
        if others:
            raise ValueError(
                "The expansion of a network in its weights is Gaussian only if all posteriors are. "
                f"Received: posteriors {others}"
            )
        self.layers = found

    def moments(self, values: Callable[[Tensor], Tensor], points: Tensor) -> LinearMoments:
        """Returns the moments at points.

        Args:
            values: Function that draws `[S, N, D]` from the network at points.
            points: Tensor `[N, ...]`.

        Returns:
            `LinearMoments` of the dtype of the values.
        """
        mean = self._values(values, points, self._means(1))[0]
        columns = _Columns(mean, sum(layer.posterior.size for layer in self.layers))

        @tf.custom_gradient
        def covariance(points):
            def gradient(upstream, variables=()):
                upstream, of = 0.5 * (upstream + tf.transpose(upstream)), [points, *variables]

                def part(rows):
                    with tf.GradientTape(watch_accessed_variables=False) as tape:
                        tape.watch(of)
                        both = rows, tf.matmul(rows, upstream)
                        ours, theirs = self._pulled_back(values, points, columns, *both)
                        total = _inner(theirs, self._times_covariance(ours))
                    return tape.gradient(total, of, unconnected_gradients=_ZERO)

                of_points, *of_variables = columns.summed(part, of)
                return of_points, of_variables

            return columns.stacked(lambda rows: self._product(values, points, columns, rows)), (
                gradient
            )

        return LinearMoments(mean, covariance(points))

    def _product(self, values, points, columns, rows):
        """Returns `J V J^T r` for rows r `[count, N D]`; `J v` is the gradient of `r^T J v`."""
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(rows)
            (pulled,) = self._pulled_back(values, points, columns, rows)
            with tape.stop_recording():
                direction = self._times_covariance(pulled)
            total = _inner(pulled, direction)
        return tape.gradient(total, rows)

    def _pulled_back(self, values, points, columns, *rows):
        """Returns `J^T r` in the structure of the weights, for each of the rows `[count, N D]`."""
        means = self._means(columns.count)
        with tf.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
            tape.watch(means)
            drawn = self._values(values, points, means)
        return [
            tape.gradient(drawn, means, columns.like_values(each), unconnected_gradients=_ZERO)
            for each in rows
        ]

    def _means(self, count):
        """Returns copies `[count, ...]` of all means, a list of a dict for each layer."""
        return [
            {
                name: tf.tile(mean[tf.newaxis], [count] + [1] * len(mean.shape))
                for name, mean in layer.posterior.mean_values().items()
            }
            for layer in self.layers
        ]

    def _values(self, values, points, weights):
        """Returns the values with given weights, a function for each copy."""
        copies = next(iter(weights[0].values()))
        count = copies.shape[0] or tf.shape(copies)[0]
        with function_draws(count, 0, noise="joint") as draws:
            for layer, own in zip(self.layers, weights, strict=True):
                layer.take_weights(draws, own)
            return values(points)

    def _times_covariance(self, parts):
        """Returns `V v` in the structure of v."""
        return [
            layer.posterior.times_covariance(own)
            for layer, own in zip(self.layers, parts, strict=True)
        ]


class _Columns:
    """The columns of a matrix `[N D, N D]`, some of which are computed at once.

    Args:
        mean: Tensor `[N, D]`.
        num_weights: Number of weights of a copy of the network.
    """

    def __init__(self, mean, num_weights):
        self.shape, self.dtype = tf.shape(mean), mean.dtype
        self.size, static = tf.size(mean), mean.shape.num_elements()
        most = max(_MOST_COPIES // num_weights, 1)
        self.is_one_part = static is not None and static <= most
        self.count = tf.minimum(self.size, most) if static is None else min(static, most)
        self._starts = tf.range(0, self.size, self.count)

    def _rows(self, start):
        """Returns rows of the identity, `[count, N D]`; those beyond the last are zeros."""
        return tf.one_hot(start + tf.range(self.count), self.size, dtype=self.dtype)

    def like_values(self, rows):
        """Reshapes rows `[count, N D]` to `[count, N, D]`."""
        return tf.reshape(rows, tf.concat([[self.count], self.shape], axis=0))

    def stacked(self, make: Callable[[Tensor], Tensor]) -> Tensor:
        """Returns the results of all rows, one below the other."""
        if self.is_one_part:
            return make(self._rows(0))
        found = tf.map_fn(
            lambda start: make(self._rows(start)),
            self._starts,
            parallel_iterations=1,  # so that one part is in memory
            fn_output_signature=self.dtype,
        )
        return tf.reshape(found, [-1, self.size])[: self.size]

    def summed(self, make: Callable[[Tensor], list[Tensor]], like: list[Any]) -> list[Tensor]:
        """Returns the sums of the results of all rows, whose shapes are those of `like`."""
        if self.is_one_part:
            return make(self._rows(0))

        def added(sums, start):
            return [a + b for a, b in zip(sums, make(self._rows(start)), strict=True)]

        zeros = [tf.zeros_like(each) for each in like]
        return tf.foldl(added, self._starts, zeros, parallel_iterations=1)


def _inner(a, b):
    """Returns the inner product of two structures."""
    pairs = zip(tf.nest.flatten(a), tf.nest.flatten(b), strict=True)
    return tf.add_n([tf.reduce_sum(x * y) for x, y in pairs])
