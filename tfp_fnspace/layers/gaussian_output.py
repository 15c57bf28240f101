"""Networks whose functions are Gaussian: fixed features, and a last layer that is random."""

from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_fnspace.layers.dense import VariationalDense
from tfp_fnspace.layers.posteriors import ConditionedGaussian
from tfp_fnspace.layers.variational import VariationalLayer

tfd = tfp.distributions


class JointGaussian(NamedTuple):
    """Values at N points of a function with D outputs, `f = mean + root z`, z standard normal.

    Attributes:
        mean: Tensor `[N, D]`.
        root: Tensor `[N, D, Q]`.
    """

    mean: tf.Tensor
    root: tf.Tensor

    def variance(self):
        """Variance of each value, `[N, D]`."""
        return tf.reduce_sum(tf.square(self.root), axis=-1)

    def covariance(self):
        """Covariance of all values, `[N D, N D]`, those of one point next to each other."""
        flat = tf.reshape(self.root, [-1, tf.shape(self.root)[-1]])
        return tf.matmul(flat, flat, transpose_b=True)


class GaussianOutput:
    r"""The law of the functions of a network whose last layer alone is random.

        f(x) = W^T phi(x) + b,     (W, b) ~ N(m, R R^T),     phi not random.

    It is Gaussian at any points, with the moments in closed form.

    Args:
        network: Keras model `[N, ...] -> [S, N, D]` of one input.

    Raises:
        ValueError: If its last layer is not a `VariationalDense` without activation and with a
            Gaussian posterior, or another layer is variational too.
    """

    def __init__(self, network):
        layer = network.outputs[0]._keras_history.operation
        others = [
            other.name
            for other in network._flatten_layers()
            if isinstance(other, VariationalLayer) and other is not layer
        ]
        is_dense = isinstance(layer, VariationalDense) and layer.row_rank == 1
        linear = is_dense and layer.activation is keras.activations.linear
        if not linear or not layer.posterior.has_gaussian_marginals or others:
            raise ValueError(
                "Functions have closed-form moments only where the network ends in a "
                "`VariationalDense` of rows, without activation and with a Gaussian posterior, and "
                "no other layer is variational. "
                f"Received: last layer {layer.name} ({type(layer).__name__}), others {others}"
            )
        self.layer = layer
        self._features = keras.Model(network.inputs, layer.input, name="features")

    def joint(self, x):
        """`JointGaussian` of the values at points x `[N, ...]`."""
        layer = self.layer
        rows = self._design(x)
        means = layer.posterior.mean_values().values()
        mean = tf.concat([tf.reshape(part, [-1, layer.units]) for part in means], axis=0)
        mean = tf.matmul(rows, mean)
        if layer.units > 1:  # a row of the weights is a value for each output
            each = tf.eye(layer.units, dtype=rows.dtype)
            rows = tf.einsum("ni,de->ndie", rows, each)
            rows = tf.reshape(rows, [-1, layer.units, rows.shape[2] * layer.units])
        else:
            rows = rows[:, tf.newaxis]
        return JointGaussian(mean, layer.posterior.times_root(rows))

    def condition(self, x, targets, noise_scale):
        """Makes the law of the weights that of a Bayesian linear regression on the features.

        The layer's prior is that of the weights.

        Args:
            x: Points `[N, ...]`.
            targets: Observations `[N, D]`.
            noise_scale: Their standard deviation about f.

        Raises:
            ValueError: If the posterior is not `ConditionedGaussian`, or the prior not a normal
                distribution with mean 0.
        """
        posterior = self.layer.posterior
        if not isinstance(posterior, ConditionedGaussian):
            raise ValueError(
                'The last layer needs `posterior="conditioned"` to be conditioned on data. '
                f"Received: posterior={type(posterior).__name__}"
            )
        design = self._design(x).numpy()
        laws = self.layer.weight_priors()
        scales = [_scale_of_centred(laws[name]) for name in posterior.shapes]
        sizes = [design.shape[1] - 1, 1] if self.layer.use_bias else [design.shape[1]]
        posterior.condition(design, targets, float(noise_scale), np.repeat(scales, sizes))

    def _design(self, x):
        """Features, and ones for the bias, `[N, I]`."""
        features = tf.cast(self._features(x), self.layer.variable_dtype)
        if not self.layer.use_bias:
            return features
        return tf.concat([features, tf.ones_like(features[:, :1])], axis=1)


def _scale_of_centred(prior):
    if not isinstance(prior, tfd.Normal) or float(prior.loc) != 0.0:
        raise ValueError(
            "A layer that is conditioned on data needs a normal prior with mean 0. "
            f"Received: prior={prior!r}"
        )
    return float(prior.scale)
