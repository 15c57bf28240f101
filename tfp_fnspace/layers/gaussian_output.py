"""Networks with Gaussian functions, which have fixed features and a random last layer."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_fnspace.layers.dense import VariationalDense
from tfp_fnspace.layers.networks import acts_in_training
from tfp_fnspace.layers.posteriors import ConditionedGaussian
from tfp_fnspace.layers.variational import VariationalLayer
from tfp_fnspace.math import linalg
from tfp_fnspace.math.regression import LinearRegression
from tfp_fnspace.typing import Array, Network, Tensor

tfd = tfp.distributions


class JointGaussian(NamedTuple):
    """Values at N points of a function with D outputs, `f = mean + root z`, z standard normal.

    Attributes:
        mean: Tensor `[N, D]`.
        root: Tensor `[N, D, Q]`.
    """

    mean: tf.Tensor
    root: tf.Tensor

    def variance(self) -> Tensor:
        """Returns the variance of each value, `[N, D]`."""
        return tf.reduce_sum(tf.square(self.root), axis=-1)

    def covariance(self) -> Tensor:
        """Returns the covariance of all values in float64, `[N D, N D]`.

        The outputs of a point are one after another.
        """
        root = tf.cast(self.root, tf.float64)
        return linalg.outer_product(tf.reshape(root, [tf.size(self.mean), root.shape[-1]]))


class GaussianOutput:
    r"""The distribution of the functions of a network in which only the last layer is random.

        f(x) = W^T phi(x) + b,     (W, b) ~ N(m, R R^T),     phi not random.

    It is Gaussian at any points, and its moments have a closed form.

    Args:
        network: Keras model `[N, ...] -> [S, N, D]` of one input.

    Raises:
        ValueError: If its last layer is not a `VariationalDense` of rows, without activation and
            with a Gaussian posterior, or if a layer before it is random too. Random layers that
            users have written are not detected.
    """

    def __init__(self, network: Network):
        layer, node_index, _ = network.outputs[0]._keras_history
        rule = (
            "Functions have closed-form moments only where the network ends in a "
            "`VariationalDense` of rows, without activation and with a Gaussian posterior, and "
            "nothing before it is random. Received: "
        )
        if not isinstance(layer, VariationalDense):
            raise ValueError(f"{rule}last layer {layer.name} ({type(layer).__name__})")
        is_linear = layer.activation is keras.activations.linear
        if not is_linear or not layer.posterior.has_gaussian_marginals:
            activation = getattr(layer.activation, "__name__", layer.activation)
            posterior = type(layer.posterior).__name__
            raise ValueError(
                f"{rule}last layer {layer.name}, activation={activation}, posterior={posterior}"
            )
        (features,) = layer._inbound_nodes[node_index].input_tensors  # of this call
        self._features = keras.Model(network.inputs, features, name="features")
        others = [
            v.name
            for v in self._features._flatten_layers()
            if isinstance(v, VariationalLayer) or acts_in_training(v)
        ]
        if others:
            raise ValueError(f"{rule}random layers before the last {others}")
        if len(features.shape) != 2:
            raise ValueError(f"{rule}features of shape {features.shape}")
        self.layer = layer

    def joint(self, x: Tensor) -> JointGaussian:
        """Returns `JointGaussian` of the values at points x `[N, ...]`."""
        layer = self.layer
        rows = self._design(x)
        means = layer.posterior.mean_values().values()
        mean = tf.concat([tf.reshape(part, [-1, layer.units]) for part in means], axis=0)
        mean = tf.matmul(rows, mean)
        if layer.units > 1:  # a row of the weights has a value for each output
            each = tf.eye(layer.units, dtype=rows.dtype)
            rows = rows[:, tf.newaxis, :, tf.newaxis] * each[:, tf.newaxis, :]  # [N, D, I, E]
            rows = tf.reshape(rows, [-1, layer.units, rows.shape[2] * layer.units])
        else:
            rows = rows[:, tf.newaxis]
        return JointGaussian(mean, layer.posterior.times_root(rows))

    def prior_scales(self) -> Array:
        """Returns the prior standard deviations of the rows of the weights, `[I]`.

        Raises:
            ValueError: If the posterior is not `ConditionedGaussian`, or the prior is not a normal
                distribution with mean 0. The layer can then not be conditioned on data.
        """
        posterior = self.layer.posterior
        if not isinstance(posterior, ConditionedGaussian):
            raise ValueError(
                'The last layer needs `posterior="conditioned"` to be conditioned on data. '
                f"Received: posterior={type(posterior).__name__}"
            )
        priors = self.layer.weight_priors()
        scales = [_scale_of_centred(priors[name]) for name in posterior.shapes]
        width = posterior.size // self.layer.units
        sizes = [width - 1, 1] if self.layer.use_bias else [width]
        return np.repeat(scales, sizes)

    def regression(self, batches: Iterable[Sequence[Any]]) -> LinearRegression:
        """Makes the Bayesian linear regression on the features, with the layer's weight prior.

        The memory does not grow with the number of rows.

        Args:
            batches: Iterable of points `[B, ...]`, observations `[B, D]` and perhaps weights `[B]`.

        Returns:
            `LinearRegression`, for `layer.posterior.condition`.
        """
        regression = LinearRegression(self.prior_scales(), self.layer.units)
        for x, *others in batches:
            regression.update(self._design(x), *others)
        return regression

    def _design(self, x):
        """Returns the features, with ones for the bias, `[N, I]`."""
        features = tf.cast(self._features(x), self.layer.variable_dtype)
        if not self.layer.use_bias:
            return features
        return tf.concat([features, tf.ones_like(features[:, :1])], axis=1)


def _scale_of_centred(prior):
    is_one = isinstance(prior, tfd.Normal) and prior.scale.shape.rank == 0
    if not is_one or float(prior.loc) != 0.0:
        raise ValueError(
            "A layer that is conditioned on data needs a normal prior with mean 0 and a scale "
            "that is not learnt. "
            f"Received: prior={prior!r}"
        )
    return float(prior.scale)
