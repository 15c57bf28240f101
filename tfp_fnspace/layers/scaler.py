"""Standardisation that is saved and exported with the model."""

import keras
import numpy as np
import tensorflow as tf


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class Standardizer(keras.layers.Layer):
    """Affine map to zero mean and unit standard deviation, `(x - mean) / stddev`.

    The two vectors are weights: they are saved, restored and exported with the model. Until
    `adapt`, or with `enabled=False`, the map is the identity.

    Args:
        enabled: Whether there is anything to adapt.
        **kwargs: `name`, `dtype`.

    Attributes:
        mean, stddev: Variables `[D]`, D the size of the last axis.
    """

    def __init__(self, enabled=True, **kwargs):
        super().__init__(autocast=False, **{"trainable": False, **kwargs})
        self.enabled = bool(enabled)

    def build(self, input_shape):
        size = (input_shape[-1],)
        options = {"shape": size, "autocast": False}
        self.mean = self.add_weight(name="mean", initializer="zeros", **options)
        self.stddev = self.add_weight(name="stddev", initializer="ones", **options)
        self.adapted = self.add_weight(name="adapted", initializer="zeros", dtype="int32")

    @property
    def ready(self):
        """Whether the map is defined: adapted, or nothing to adapt."""
        return not self.enabled or bool(self.adapted.numpy())

    def adapt(self, batches):
        """Takes the moments of all values; NaN entries are missing, constant columns get 1.

        Args:
            batches: Iterable of arrays `[N, ..., D]`; one pass, in float64.

        Raises:
            ValueError: If a column has no observed value.
        """
        count, mean, sum_of_squares = 0, 0.0, 0.0
        low, high = np.inf, -np.inf
        for batch in batches:
            values = np.asarray(batch, np.float64).reshape(-1, self.mean.shape[0])
            observed = ~np.isnan(values)
            size = observed.sum(axis=0)
            # Chan's pairwise update: exact merging of the moments of unequal batches.
            batch_mean = np.where(observed, values, 0.0).sum(axis=0) / np.maximum(size, 1)
            deviation = np.where(observed, values - batch_mean, 0.0)
            total = np.maximum(count + size, 1)
            shift = batch_mean - mean
            sum_of_squares += (deviation**2).sum(axis=0) + shift**2 * count * size / total
            mean = mean + shift * size / total
            count = count + size
            low = np.fmin(low, np.nanmin(values, axis=0, initial=np.inf))
            high = np.fmax(high, np.nanmax(values, axis=0, initial=-np.inf))
        if np.any(np.equal(count, 0)):
            empty = np.flatnonzero(np.broadcast_to(np.equal(count, 0), self.mean.shape))
            raise ValueError(
                "Standardisation needs at least one observed value in every column. "
                f"Received: columns without one={empty.tolist()}"
            )
        stddev = np.sqrt(sum_of_squares / count)
        self.mean.assign(mean)
        self.stddev.assign(np.where(high > low, stddev, 1.0))
        self.adapted.assign(1)

    def call(self, inputs):
        x = tf.cast(inputs, self.variable_dtype)
        return (x - self.mean.value) / self.stddev.value

    def scale_variance(self, variance):
        """Variance in standardised units for a variance in the user's."""
        return tf.cast(variance, self.variable_dtype) / tf.square(self.stddev.value)

    def inverse(self, values):
        """The user's units for values in standardised units."""
        return values * self.stddev.value + self.mean.value

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {**super().get_config(), "enabled": self.enabled}
