"""Observation models p(y | f)."""

import keras
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

tfd = tfp.distributions


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class Gaussian(keras.layers.Layer):
    r"""Gaussian noise, `y = f + v`, `v ~ N(0, scale^2)`, independent between outputs.

    Args:
        scale: Standard deviation of the noise in model units (standardised targets when the
            model standardises): a positive number, or one per output.
        **kwargs: `name`, `dtype`.

    Attributes:
        scale: Variable `[]` or `[D]`, saved and exported with the model.

    Raises:
        ValueError: If a scale is not a positive finite number.
    """

    def __init__(self, scale=1.0, **kwargs):
        super().__init__(autocast=False, **{"trainable": False, **kwargs})
        self._initial_scale = self._checked(scale)
        self.scale = self.add_weight(
            name="scale",
            shape=self._initial_scale.shape,
            initializer=keras.initializers.Constant(self._initial_scale),
            autocast=False,
        )
        self.built = True

    @staticmethod
    def _checked(scale):
        try:
            values = np.asarray(scale, dtype=np.float64)
        except (TypeError, ValueError):
            values = np.full(1, np.nan)
        if values.ndim > 1 or not np.all(np.isfinite(values)) or not np.all(values > 0.0):
            raise ValueError(
                "`scale` must be a positive finite number, or one per output. "
                f"Received: scale={scale!r}"
            )
        return values

    def check_outputs(self, num_outputs):
        """Refuses a number of outputs that does not match the scales.

        Raises:
            ValueError: If there are several scales, and not one per output.
        """
        if self.scale.shape not in ((), (num_outputs,)):
            raise ValueError(
                f"`scale` must be one number, or one per output, {num_outputs}. "
                f"Received: {self.scale.shape[0]} scales"
            )

    def set_scale(self, scale):
        """Sets the noise scale, in model units."""
        self.scale.assign(np.broadcast_to(self._checked(scale), self.scale.shape))

    def conditional(self, values, unit=1.0):
        """Distribution of the observations given function values.

        Args:
            values: Tensor `[..., N, D]`, f in the units of the result.
            unit: One model unit of the targets, `[]` or `[D]`, in the units of the result.

        Returns:
            `tfd.Independent` normal, event `[D]`.
        """
        noise = tf.broadcast_to(self.scale.value * unit, tf.shape(values))
        return tfd.Independent(tfd.Normal(values, noise), reinterpreted_batch_ndims=1)

    def predictive(self, moments, unit=1.0):
        """Distribution of the observations for Gaussian function values, N(mean, S + scale^2).

        Args:
            moments: `GaussianMoments` of f, tensors `[..., N, D]` in the units of the result.
            unit: One model unit of the targets, `[]` or `[D]`, in the units of the result.

        Returns:
            `tfd.Independent` normal, event `[D]`.
        """
        mean, variance = moments
        stddev = tf.sqrt(variance + self.noise_variance(unit))
        return tfd.Independent(tfd.Normal(mean, stddev), reinterpreted_batch_ndims=1)

    def noise_variance(self, unit=1.0):
        """Variance of the noise, `[]` or `[D]`, in squared units of the result."""
        return tf.square(self.scale.value * unit)

    def innovation(self, moments, targets):
        r"""Innovations of the function values given one observation each.

        `dm = (y - m)/(S + scale^2)`, `dS = -1/(S + scale^2)`: the first two derivatives of the
        log predictive density in m, so that `m + S dm` and `S + S^2 dS` are the posterior
        moments (equation 14 of the TAGI paper).

        Args:
            moments: `GaussianMoments` of f in model units, tensors `[N, D]`.
            targets: Tensor `[N, D]` in model units.

        Returns:
            Pair of tensors `[N, D]`.
        """
        mean, variance = moments
        precision = 1.0 / (variance + self.noise_variance())
        return (targets - mean) * precision, -precision

    def get_config(self):
        return {**super().get_config(), "scale": self._initial_scale.tolist()}
