"""Standardisation that is saved and exported with the model."""

import keras
import numpy as np
import tensorflow as tf

from tfp_fnspace import columns

#: Of a file: where the names of the columns are.
_NAMES = "column_names"


class RunningMoments:
    """Mean and sum of squared deviations of columns, batch by batch, in float64.

    Chan's pairwise update merges unequal batches exactly; NaN entries are missing.

    Args:
        num_columns: Size of the last axis.
    """

    def __init__(self, num_columns):
        self.count = np.zeros(num_columns, np.int64)
        self.mean = np.zeros(num_columns)
        self.sum_of_squares = np.zeros(num_columns)
        self.low = np.full(num_columns, np.inf)
        self.high = np.full(num_columns, -np.inf)

    def update(self, batch):
        """Adds an array `[N, ..., num_columns]`."""
        values = np.asarray(batch, np.float64).reshape(-1, len(self.mean))
        observed = ~np.isnan(values)
        size = observed.sum(axis=0)
        batch_mean = np.where(observed, values, 0.0).sum(axis=0) / np.maximum(size, 1)
        deviation = np.where(observed, values - batch_mean, 0.0)
        total = np.maximum(self.count + size, 1)
        shift = batch_mean - self.mean
        self.sum_of_squares += (deviation**2).sum(axis=0) + shift**2 * self.count * size / total
        self.mean += shift * size / total
        self.count += size
        self.low = np.minimum(self.low, np.where(observed, values, np.inf).min(axis=0))
        self.high = np.maximum(self.high, np.where(observed, values, -np.inf).max(axis=0))


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
        column_names: Names of the columns as a tuple, `None` if data had none, which are saved too.
    """

    def __init__(self, enabled=True, **kwargs):
        super().__init__(autocast=False, **{"trainable": False, **kwargs})
        self.enabled = bool(enabled)
        self.column_names = None

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

    def adapt(self, moments):
        """Takes the mean and the standard deviation; constant columns get scale 1.

        Args:
            moments: `RunningMoments` of the data.

        Raises:
            ValueError: If a column has no observed value.
        """
        empty = np.flatnonzero(moments.count == 0)
        if len(empty):
            raise ValueError(
                "Standardisation needs at least one observed value in every column. "
                f"Received: columns without one={empty.tolist()}"
            )
        stddev = np.sqrt(moments.sum_of_squares / moments.count)
        self.mean.assign(moments.mean)
        self.stddev.assign(np.where(moments.high > moments.low, stddev, 1.0))
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

    def save_own_variables(self, store):
        super().save_own_variables(store)
        if self.column_names is not None:
            store[_NAMES] = columns.as_bytes(self.column_names)

    def load_own_variables(self, store):
        parts = {name: store[name] for name in list(store.keys())}
        names = parts.pop(_NAMES, None)
        super().load_own_variables(parts)
        if names is not None:
            self.column_names = columns.from_bytes(names)

    def get_config(self):
        return {**super().get_config(), "enabled": self.enabled}
