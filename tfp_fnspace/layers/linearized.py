"""Networks as linear functions of their random weights, about the posterior means."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tfp_fnspace.layers.draws import function_draws
from tfp_fnspace.layers.variational import VariationalLayer
from tfp_fnspace.typing import Network, Tensor

#: At most so many entries of the Jacobian are in memory at once.
_MOST_ENTRIES = 2**22

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
    network is linear in its random weights, and in the limit of a small V. The rows of J are
    gradients, one for each value. The covariance is computed in blocks `J_i V J_j^T`, for as many
    rows as fit into memory, and so is its gradient: a large Jacobian is never in memory.

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
        mean = self._values(values, points, self._means())[0]
        blocks = _Blocks(mean, sum(layer.posterior.size for layer in self.layers))

        def rows(points, start):
            index, is_there = blocks.entries(start)
            each = tf.gather(points, index // blocks.num_outputs)
            outputs = tf.one_hot(index % blocks.num_outputs, blocks.num_outputs, dtype=mean.dtype)
            gradients = tf.vectorized_map(
                lambda pair: self._gradient(values, *pair), (each, outputs)
            )
            return self._times_root(gradients) * is_there[:, tf.newaxis]

        def block(points, i, j):
            return tf.matmul(rows(points, i), rows(points, j), transpose_b=True)

        if blocks.is_one:
            own = rows(points, 0)
            return LinearMoments(mean, tf.matmul(own, own, transpose_b=True))

        @tf.custom_gradient
        def covariance(points):
            def gradient(upstream, variables=()):
                padded, of = blocks.padded(upstream), [points, *variables]

                def part(i, j):
                    with tf.GradientTape(watch_accessed_variables=False) as tape:
                        tape.watch(of)
                        total = tf.reduce_sum(blocks.of(padded, i, j) * block(points, i, j))
                    return tape.gradient(total, of, unconnected_gradients=_ZERO)

                of_points, *of_variables = blocks.summed(part, of)
                return of_points, of_variables

            return blocks.joined(lambda i, j: block(points, i, j)), gradient

        return LinearMoments(mean, covariance(points))

    def _gradient(self, values, point, output):
        """Returns the gradient of one output at one point, a list of a dict for each layer."""
        means = self._means()
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(means)
            drawn = self._values(values, point[tf.newaxis], means)[0, 0]
        return tape.gradient(drawn, means, output, unconnected_gradients=_ZERO)

    def _means(self):
        """Returns the means as one draw, a list of a dict for each layer."""
        return [
            {name: mean[tf.newaxis] for name, mean in layer.posterior.mean_values().items()}
            for layer in self.layers
        ]

    def _values(self, values, points, weights):
        """Returns the values with given weights, `[1, N, D]`."""
        with function_draws(1, 0, noise="joint") as draws:
            for layer, own in zip(self.layers, weights, strict=True):
                layer.take_weights(draws, own)
            return values(points)

    def _times_root(self, gradients):
        """Returns `J R` for rows of J, where `R R^T` is V, `[count, Q]`."""
        found = []
        for layer, parts in zip(self.layers, gradients, strict=True):
            sizes = [(name, math.prod(shape)) for name, shape in layer.posterior.shapes.items()]
            flat = [tf.reshape(parts[name], [-1, size]) for name, size in sizes]
            found.append(layer.posterior.times_root(tf.concat(flat, axis=1)))
        return tf.concat(found, axis=1)


class _Blocks:
    """The square blocks of a matrix `[N D, N D]`, which are computed one after another.

    Args:
        mean: Tensor `[N, D]`.
        num_weights: Number of entries of a row of the Jacobian.
    """

    def __init__(self, mean, num_weights):
        self.size, static, self.dtype = tf.size(mean), mean.shape.num_elements(), mean.dtype
        self.num_outputs = mean.shape[1]
        most = max(_MOST_ENTRIES // num_weights, 1)
        self.is_one = static is not None and static <= most
        self.count = tf.minimum(self.size, most) if static is None else min(static, most)
        self._starts = tf.range(0, self.size, self.count)

    def entries(self, start):
        """Returns the numbers of the rows of a block, and 0 for those beyond the last, else 1."""
        index = start + tf.range(self.count)
        return tf.minimum(index, self.size - 1), tf.cast(index < self.size, self.dtype)

    def padded(self, matrix):
        """Returns a matrix with zeros on the right and below, so that all blocks are whole."""
        more = tf.size(self._starts) * self.count - self.size
        return tf.pad(matrix, [[0, more], [0, more]])

    def of(self, padded, i, j):
        """Returns the block that begins in row i and column j."""
        return padded[i : i + self.count, j : j + self.count]

    def joined(self, make: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """Returns the matrix of all blocks."""
        found = tf.map_fn(
            lambda place: make(*self._at(place)),
            self._places(),
            parallel_iterations=1,  # so that one block is in memory
            fn_output_signature=self.dtype,
        )
        side = tf.size(self._starts)
        found = tf.reshape(found, [side, side, self.count, self.count])
        matrix = tf.reshape(tf.transpose(found, [0, 2, 1, 3]), [side * self.count] * 2)
        return matrix[: self.size, : self.size]

    def summed(
        self, make: Callable[[Tensor, Tensor], list[Tensor]], like: Sequence[Any]
    ) -> list[Tensor]:
        """Returns the sums of the results of all blocks, whose shapes are those of `like`."""
        return tf.foldl(
            lambda sums, place: [a + b for a, b in zip(sums, make(*self._at(place)), strict=True)],
            self._places(),
            [tf.zeros_like(each) for each in like],
            parallel_iterations=1,
        )

    def _places(self):
        """Returns numbers of all blocks, in one loop: TensorFlow 2.21 fails in two nested ones."""
        return tf.range(tf.square(tf.size(self._starts)))

    def _at(self, place):
        """Returns the row and the column in which a block begins."""
        side = tf.size(self._starts)
        return self._starts[place // side], self._starts[place % side]
