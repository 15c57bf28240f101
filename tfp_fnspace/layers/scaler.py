"""Standardisation that is saved and exported with the model."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfp_fnspace.boundary import columns
from tfp_fnspace.boundary.data import LARGEST_SCALED
from tfp_fnspace.typing import Array, ArrayLike, Config, Shape, Tensor

#: Range of standard deviations of columns that can be standardised; squares stay within float64.
SMALLEST_UNIT, LARGEST_UNIT = 1e-100, 1e100

#: A column is constant up to rounding if its range is at most this share of its numbers.
_ROUNDING = 8.0 * np.finfo(np.float64).eps

#: The key of a file under which the column names are stored.
_NAMES = "column_names"


class RunningMoments:
    """Running means and sums of squared deviations of columns, in float64.

    Chan's pairwise update merges unequal batches exactly; NaN entries are missing. A row of
    weight w counts as w copies.

    Args:
        num_columns: Size of the last axis.
    """

    def __init__(self, num_columns: int):
        self.count = np.zeros(num_columns)  # sums of the weights of observed entries
        self.mean = np.zeros(num_columns)
        self.sum_of_squares = np.zeros(num_columns)
        self.low = np.full(num_columns, np.inf)
        self.high = np.full(num_columns, -np.inf)

    def update(self, batch: ArrayLike, row_weights: Array | None = None) -> None:
        """Adds an array `[N, ..., num_columns]`, whose rows may have weights `[N]`."""
        array = np.asarray(batch, np.float64)
        values = array.reshape(-1, len(self.mean))
        observed = ~np.isnan(values)

        def sum_of(terms):
            if row_weights is None:
                return terms.sum(axis=0)
            return np.repeat(row_weights, len(values) // len(array)) @ terms

        size = sum_of(observed)
        batch_mean = sum_of(np.where(observed, values, 0.0)) / np.where(size > 0, size, 1)
        deviation = np.where(observed, values - batch_mean, 0.0)
        total = np.where(self.count + size > 0, self.count + size, 1)
        shift = batch_mean - self.mean
        self.sum_of_squares += sum_of(deviation**2) + shift**2 * self.count * size / total
        self.mean += shift * size / total
        self.count += size
        self.low = np.minimum(self.low, np.where(observed, values, np.inf).min(axis=0))
        self.high = np.maximum(self.high, np.where(observed, values, -np.inf).max(axis=0))


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class Standardizer(keras.layers.Layer):
    """Affine map to zero mean and unit standard deviation, `(x - mean) / stddev`.

    Values in the user's units are float64, values in model units have the dtype of the layer. The
    map and its inverse are computed in float64. A small spread about a large mean therefore costs
    no precision, and neither does a unit whose square float32 cannot hold.

    The two vectors are weights, so they are saved, restored and exported with the model. Until
    `adapt`, or with `enabled=False`, the map is the identity.

    Args:
        enabled: Whether there is anything to adapt.
        **kwargs: `name`, `dtype`.

    Attributes:
        mean, stddev: float64 variables `[D]`, D the size of the last axis.
        column_names: Names of the columns as a tuple, `None` if data had none. They are saved too.
    """

    def __init__(self, enabled: bool = True, **kwargs: Any):
        super().__init__(autocast=False, **{"trainable": False, **kwargs})
        self.enabled = bool(enabled)
        self.column_names = None

    def build(self, input_shape: Shape) -> None:
        size = (input_shape[-1],)
        options = {"shape": size, "trainable": False, "autocast": False, "dtype": "float64"}
        self.mean = self.add_weight(name="mean", initializer="zeros", **options)
        self.stddev = self.add_weight(name="stddev", initializer="ones", **options)
        options = {"dtype": "int32", "trainable": False}
        self.adapted = self.add_weight(name="adapted", initializer="zeros", **options)

    @property
    def ready(self) -> bool:
        """Whether the map is defined: adapted, or nothing to adapt."""
        return not self.enabled or bool(_read(self.adapted))

    def adapt(self, moments: RunningMoments, name: str = "x") -> None:
        """Sets the mean and the standard deviation.

        For a column that is constant up to rounding, the mean is its smallest number and the scale
        is 1. If the rounding error of its numbers may be larger than 1 (for numbers beyond 5e14),
        the scale is that error.

        Args:
            moments: `RunningMoments` of the data.
            name: Name of the data, for messages.

        Raises:
            ValueError: If a column has no observed value, or a standard deviation whose square
                float64 cannot hold.
        """
        empty = np.flatnonzero(moments.count == 0)
        if len(empty):
            raise ValueError(
                "Standardisation needs at least one observed value in every column. "
                f"Received: columns without one={empty.tolist()}"
            )
        magnitude = np.maximum(np.abs(moments.high), np.abs(moments.low))
        rounding = _ROUNDING * magnitude
        constant = moments.high - moments.low <= rounding
        spread = np.sqrt(moments.sum_of_squares / moments.count)
        stddev = np.where(constant, np.maximum(1.0, rounding), spread)
        bad = np.flatnonzero((stddev < SMALLEST_UNIT) | (stddev > LARGEST_UNIT))
        if len(bad):
            raise ValueError(
                f"`{name}` must have columns that are constant or have a standard deviation from "
                f"{SMALLEST_UNIT:g} to {LARGEST_UNIT:g}: multiply the others by a number. "
                f"Received: standard deviations={stddev[bad].tolist()} in columns {bad.tolist()}"
            )
        # The mean of equal numbers is one of them, not a rounded sum.
        self.mean.assign(np.where(constant, moments.low, moments.mean))
        self.stddev.assign(stddev)
        self.adapted.assign(1)

    def call(self, inputs: Tensor) -> Tensor:
        if not self.enabled:
            return tf.cast(inputs, self.variable_dtype)
        x = tf.cast(inputs, tf.float64)
        return tf.cast((x - self.mean.value) / self.stddev.value, self.variable_dtype)

    def check_near(self, values: Array, name: str) -> None:
        """Refuses values so far from the mean that no model can predict for them.

        Args:
            values: Array `[..., D]` of finite numbers, NaN where missing.
            name: Name of the argument, for messages.

        Raises:
            ValueError: If one is more than 1e9 standard deviations away.
        """
        if not self.enabled or not self.ready or not values.size:
            return
        mean, stddev = _read(self.mean), _read(self.stddev)
        reach = LARGEST_SCALED * stddev
        columns = values.reshape(-1, len(mean))
        # These are two passes without large temporaries. A column of missing values has no
        # extremes.
        low = np.fmin.reduce(columns, axis=0)
        high = np.fmax.reduce(columns, axis=0)
        far = np.flatnonzero((high > mean + reach) | (low < mean - reach))
        if len(far):
            i = far[0]
            value = high[i] if high[i] > mean[i] + reach[i] else low[i]
            raise ValueError(
                f"`{name}` must be within {LARGEST_SCALED:g} standard deviations of the mean of "
                f"what the model was fitted to. Received: {name}={value:g} in column {i}, where "
                f"the mean is {mean[i]:g} and the standard deviation {stddev[i]:g}"
            )

    def scale_variance(self, variance: Tensor) -> Tensor:
        """Converts a variance from the user's units to standardised units."""
        scaled = tf.cast(variance, tf.float64) / tf.square(self.stddev.value)
        return tf.cast(scaled, self.variable_dtype)

    def inverse(self, values: Tensor) -> Tensor:
        """Converts values from standardised units to the user's units, float64."""
        return tf.cast(values, tf.float64) * self.stddev.value + self.mean.value

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def save_own_variables(self, store: Any) -> None:
        super().save_own_variables(store)
        if self.column_names is not None:
            store[_NAMES] = columns.as_bytes(self.column_names)

    def load_own_variables(self, store: Any) -> None:
        parts = {name: store[name] for name in list(store.keys())}
        names = parts.pop(_NAMES, None)
        super().load_own_variables(parts)
        if names is not None:
            self.column_names = columns.from_bytes(names)

    def get_config(self) -> Config:
        return {**super().get_config(), "enabled": self.enabled}


def _read(variable):
    """Returns the value of a Keras variable, four times as fast as `numpy()`."""
    return variable.value.value().numpy()
