"""A network of dense layers and activations with full covariances."""

import math
from typing import Any

import keras
import tensorflow as tf

from tfp_fnspace.boundary import memory
from tfp_fnspace.math.random import fold_in, normal
from tfp_fnspace.methods.tagi import covariance, equations, graph
from tfp_fnspace.methods.tagi.covariance import UnitMoments
from tfp_fnspace.methods.tagi.equations import Pair
from tfp_fnspace.methods.tagi.layers import Dense, ElementwiseLayer
from tfp_fnspace.methods.tagi.layers.base import TAGILayer
from tfp_fnspace.typing import GaussianMoments, Network, Seed, Tensor


def dense_chain(network: Network) -> list[Dense | ElementwiseLayer]:
    """Returns the dense layers and activations of a network, in order.

    Args:
        network: Functional `keras.Model`.

    Raises:
        ValueError: If the network is not a chain of these.
    """
    steps, previous = [], list(network.inputs)
    for node in graph._nodes(network):
        if node.is_input:
            continue
        operation = node.operation
        if isinstance(operation, Dense) and operation in steps:
            raise ValueError(
                "Full covariances need a network in which every dense layer is used once. "
                f"Received: layer={operation!r}"
            )
        follows = [id(t) for t in node.input_tensors] == [id(t) for t in previous]
        if not (follows and isinstance(operation, Dense | ElementwiseLayer)):
            raise ValueError(
                "Full covariances need a network of fns.tagi.Dense and activations, one after the "
                f"other. Received: layer={operation!r}"
            )
        steps.append(operation)
        if getattr(operation, "activation", None) is not None and isinstance(operation, Dense):
            steps.append(operation.activation)
        previous = keras.tree.flatten(node.outputs)
    return steps


#: Matrices [P, P] that a step has at once: the covariance, that after the step, and their change.
_COPIES = 3


class CovarianceChain(keras.layers.Layer):
    """Moments and innovations with full covariances, by the equations of `covariance`.

    Args:
        network: Functional `keras.Model` of dense layers and activations.
        joint: Whether the parameters of a layer also have a full covariance; otherwise they are
            independent.
        **kwargs: `name`, `dtype`.

    Raises:
        MemoryError: If the covariances of a `joint` chain do not fit into memory.

    Attributes:
        correlations: Covariances of different parameters of each dense layer, `[P, P]` with P =
            (inputs + 1) units and a zero diagonal. The list is empty unless `joint`.
    """

    steps: list[Dense | ElementwiseLayer]

    def __init__(self, network: Network, joint: bool = False, **kwargs: Any):
        super().__init__(autocast=False, **kwargs)
        steps = dense_chain(network)
        vars(self)["steps"] = steps  # hidden from Keras: the network saves them
        self.joint = joint
        self.correlations = []
        layers = self.dense_layers if joint else []
        sizes = [sum(math.prod(pair.mean.shape) for pair in layer.parameters) for layer in layers]
        item = tf.as_dtype(self.variable_dtype).size
        memory.check_room(
            "The covariances of all parameters, with `covariance='full_parameters'`,",
            _COPIES * item * sum(size**2 for size in sizes),
            'take narrower layers, or `covariance="full"`, which grows with the units',
        )
        for i, size in enumerate(sizes):
            self.correlations.append(
                self.add_weight(
                    name=f"correlations_{i}",
                    shape=(size, size),
                    initializer="zeros",
                    trainable=False,
                    autocast=False,
                )
            )
        self.built = True

    @property
    def dense_layers(self) -> list[Dense]:
        """The layers with parameters."""
        return [step for step in self.steps if isinstance(step, Dense)]

    # Forward ----------------------------------------------------------------------------------

    def forward(
        self, mean: Tensor, variance: Tensor | None = None
    ) -> tuple[list[UnitMoments], list[Tensor | None]]:
        """Returns the moments of the inputs of each step, and of the outputs.

        Args:
            mean: Tensor `[N, X]`.
            variance: Tensor that broadcasts to `[N, X]`, the variances of independent inputs, or
                `None` for exactly known inputs.

        Returns:
            List of `UnitMoments`, one longer than `steps`, and a list of the slopes of activations,
            with `None` for dense layers.
        """
        variance = tf.zeros_like(mean) + (0.0 if variance is None else variance)
        seen, slopes = [UnitMoments(mean, tf.linalg.diag(variance))], []
        for step in self.steps:
            if isinstance(step, Dense):
                units, slope = self._dense(step, seen[-1]), None
            else:
                units, slope = covariance.activation_moments(step.moments, seen[-1])
            seen.append(units)
            slopes.append(slope)
        return seen, slopes

    def moments(self, mean: Tensor, variance: Tensor | None = None) -> GaussianMoments:
        """Returns `GaussianMoments` of the outputs; the arguments are those of `forward`."""
        out = self.forward(mean, variance)[0][-1]
        return GaussianMoments(out.mean, tf.maximum(tf.linalg.diag_part(out.covariance), 0.0))

    def _dense(self, layer, units):
        values = [(mean.value, variance.value) for mean, variance in layer.parameters]
        kernel, bias = values if layer.use_bias else (*values, None)
        if not self.joint:
            return covariance.dense_moments(units, kernel, bias)
        parameters = self._parameter_covariance(layer)
        return covariance.joint_dense_moments(units, kernel, bias, parameters)

    def _parameter_covariance(self, layer):
        """Returns `[I, J, I, J]` for J units and I inputs, including that of the bias."""
        flat = self.correlations[self.dense_layers.index(layer)].value
        variances = [tf.reshape(pair.variance.value, [-1]) for pair in layer.parameters]
        full = tf.linalg.set_diag(flat, tf.concat(variances, axis=0))
        shape = [full.shape[0] // layer.units, layer.units]
        return tf.reshape(full, [*shape, *shape])

    # Backward ---------------------------------------------------------------------------------

    def innovations(
        self,
        mean: Tensor,
        variance: Tensor | None,
        targets: Tensor,
        observed: Tensor,
        noise_variance: Tensor,
    ) -> tuple[list[UnitMoments], list[Pair]]:
        """Returns the moments and innovations of all units.

        Args:
            mean: Tensor `[N, X]`.
            variance: As for `forward`.
            targets: Tensor `[N, D]`.
            observed: Boolean tensor `[N, D]`.
            noise_variance: `[]` or `[D]`.

        Returns:
            A list of `UnitMoments`, and a list of pairs of d `[N, A]` and G `[N, A, A]`, both from
            the inputs to the outputs.
        """
        seen, slopes = self.forward(mean, variance)
        pairs = [covariance.output_innovation(seen[-1], targets, observed, noise_variance)]
        for step, slope in zip(self.steps[::-1], slopes[::-1], strict=True):
            if isinstance(step, Dense):
                pair = covariance.dense_innovation(step.kernel_mean.value, *pairs[0])
            else:
                pair = covariance.activation_innovation(slope, *pairs[0])
            pairs.insert(0, pair)
        return seen, pairs

    def learn(
        self,
        mean: Tensor,
        variance: Tensor | None,
        targets: Tensor,
        observed: Tensor,
        noise_variance: Tensor,
        trainable: list[TAGILayer],
        row_weights: Tensor | None = None,
    ) -> tuple[GaussianMoments, list[Tensor]]:
        """Sums the innovations of independent parameters; joint parameters are updated here.

        Args:
            mean: As for `innovations`, and so are the next four.
            variance: See above.
            targets: See above.
            observed: See above.
            noise_variance: See above.
            trainable: List of the layers to learn.
            row_weights: Tensor `[N]`, factors of the rows in the sums, or `None`. There are none if
                parameters are joint.

        Returns:
            `GaussianMoments` of the outputs before the update, and a list of tensors: the sums over
            the rows for mean and variance, for each parameter of `trainable`. The list is empty if
            the parameters of a layer are joint, since their update takes one row.
        """
        seen, pairs = self.innovations(mean, variance, targets, observed, noise_variance)
        sums = []
        for step, units, pair in zip(self.steps, seen[:-1], pairs[1:], strict=True):
            if not isinstance(step, Dense) or not any(step is layer for layer in trainable):
                continue
            if self.joint:
                self._update_joint(step, units.mean, pair)
                continue
            if row_weights is not None:
                vector, matrix = pair
                pair = (
                    vector * row_weights[:, tf.newaxis],
                    matrix * row_weights[:, tf.newaxis, tf.newaxis],
                )
            sums += covariance.parameter_innovations(units.mean, *pair, step.use_bias)
        out = seen[-1]
        return GaussianMoments(out.mean, tf.linalg.diag_part(out.covariance)), sums

    def _update_joint(self, layer, mean, innovation):
        """Applies equation 16 to all parameters of a layer, for one row."""
        inputs = covariance.with_one(mean, layer.use_bias)
        step, full = covariance.joint_update(self._parameter_covariance(layer), inputs, *innovation)
        start = 0
        for pair in layer.parameters:
            end = start + pair.mean.shape.num_elements()
            shape = tf.shape(pair.mean.value)
            new = tf.reshape(tf.linalg.diag_part(full)[start:end], shape)
            pair.mean.assign_add(tf.reshape(step[start:end], shape))
            pair.variance.assign(equations.positive(new, pair.variance.value))
            start = end
        flat = self.correlations[self.dense_layers.index(layer)]
        flat.assign(tf.linalg.set_diag(full, tf.zeros_like(full[0])))

    # Draws ------------------------------------------------------------------------------------

    def sample(self, inputs: Tensor, num_samples: int, seed: Seed) -> Tensor:
        """Evaluates the network for each of S draws of joint parameters.

        Args:
            inputs: Tensor `[S, N, X]`.
            num_samples: S.
            seed: int32 tensor `[2]`.

        Returns:
            Tensor `[S, N, D]`.
        """
        values = inputs
        for i, step in enumerate(self.steps):
            if not isinstance(step, Dense):
                values = step.function(values)
                continue
            parameters = self._parameter_covariance(step)
            shape = parameters.shape[:2]
            flat = tf.reshape(parameters, [shape.num_elements()] * 2)
            noise = normal([num_samples, flat.shape[0]], fold_in(seed, i), flat.dtype)
            own = tf.linalg.diag_part(flat)
            # Rounding may leave a matrix that is not positive definite.
            root = tf.linalg.cholesky(tf.linalg.set_diag(flat, own + 1e-5 * tf.reduce_mean(own)))
            noise = tf.reshape(tf.matmul(noise, root, transpose_b=True), [num_samples, *shape])
            rows = step.kernel_mean.shape[0]
            kernel = step.kernel_mean.value + noise[:, :rows]
            values = tf.matmul(values, kernel)
            if step.use_bias:
                values += step.bias_mean.value + noise[:, rows:]
        return values
