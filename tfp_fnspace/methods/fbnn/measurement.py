"""Measurement sets, the points at which a network is compared with its prior."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfp_fnspace.boundary.arguments import checked_count, checked_number
from tfp_fnspace.boundary.streams import all_parts, is_endless, is_stream, own_errors
from tfp_fnspace.math import random
from tfp_fnspace.typing import ArrayLike, Config, Rows, Seed, Shape, Tensor


class MeasurementSet(keras.layers.Layer):
    """The rows of a batch and additional drawn points.

    `points(x, seed)` is `[x; draw(seed)]`, `[B + M, I]`, with the training rows first. A set stores
    what it learns from the data (`adapt`) in weights, which are saved with the model. Points are in
    model units. A subclass has `_draw(seed, width)` and, if it uses data, `_see(rows)` for each
    batch of rows in `adapt`.

    Args:
        num_points: M, an integer, at least 1.
        **kwargs: `name`, `dtype`.

    Raises:
        ValueError: If `num_points` is not a positive integer.
    """

    def __init__(self, num_points: int, **kwargs: Any):
        super().__init__(autocast=False, **{"trainable": False, **kwargs})
        self.num_points = checked_count("num_points", num_points, self._least_points)

    _least_points = 1

    def adapt(self, x: Rows) -> None:
        """Adapts the set to data in one pass.

        Args:
            x: Rows `[N, I]`, or a stream of batches whose first part is the rows.

        Raises:
            ValueError: If rows are not `[N, I]` or not finite, or a stream has no end.
        """
        if is_endless(x):
            raise ValueError(f"A pass over rows must have an end. Received: x={x!r}")
        with own_errors():
            for (rows,) in all_parts(x, False) if is_stream(x) else [(x,)]:
                self._see_checked(np.asarray(rows, np.float64))

    def _see_checked(self, rows):
        if rows.ndim != 2 or not np.all(np.isfinite(rows)):
            raise ValueError(
                f"Rows must be finite, of the shape [N, I]. Received: shape={rows.shape}"
            )
        if not self.built:
            self.build((None, rows.shape[1]))
        self._see(rows)

    def points(self, x: ArrayLike, seed: Seed) -> Tensor:
        """Returns the rows of a batch and M additional points.

        Args:
            x: `[B, I]`.
            seed: Integer, two integers, or int32 tensor `[2]`.

        Returns:
            Tensor `[B + M, I]` of the dtype of x.

        Raises:
            ValueError: If the set has another width.
        """
        x = tf.convert_to_tensor(x)
        if x.shape.rank != 2:
            raise ValueError(f"Rows must have the shape [B, I]. Received: x.shape={x.shape}")
        if not self.built:
            self.build(x.shape)
        drawn = self._draw(random.as_seed(seed), x.shape[-1])
        if drawn is None:
            return x
        if not tf.TensorShape([None, x.shape[-1]]).is_compatible_with(drawn.shape):
            raise ValueError(
                f"Measurement points must have the shape [M, {x.shape[-1]}], as the rows. "
                f"Received: shape={drawn.shape}"
            )
        return tf.concat([x, tf.cast(drawn, x.dtype)], axis=0)

    def _see(self, rows):
        """Does nothing, since the set does not need data."""

    def _draw(self, seed, width):
        raise NotImplementedError

    def get_config(self) -> Config:
        return {**super().get_config(), "num_points": self.num_points}


@keras.saving.register_keras_serializable(package="tfp_fnspace.fbnn")
class TrainingRows(MeasurementSet):
    """Only the rows of the batch.

    Args:
        num_points: 0.
        **kwargs: `name`, `dtype`.
    """

    _least_points = 0

    def __init__(self, num_points: int = 0, **kwargs: Any):
        super().__init__(num_points, **kwargs)

    def _draw(self, seed, width):
        return None


class _Adapted(MeasurementSet):
    """A set with two vectors that are given or taken from the data."""

    _names = ("low", "high")

    def __init__(
        self, num_points: int, first: ArrayLike | None, second: ArrayLike | None, **kwargs: Any
    ):
        super().__init__(num_points, **kwargs)
        if (first is None) != (second is None):
            raise ValueError(
                f"`{self._names[0]}` and `{self._names[1]}` must both be given, or neither. "
                f"Received: {self._names[0]}={first}, {self._names[1]}={second}"
            )
        self.is_given = first is not None
        self.given = [_as_list(v) for v in (first, second)] if self.is_given else [None, None]

    def build(self, input_shape: Shape) -> None:
        width = input_shape[-1]
        starts = self.given if self.is_given else [0.0, 0.0]
        self.vectors = [
            self.add_weight(
                name=name,
                shape=(width,),
                initializer=keras.initializers.Constant(np.broadcast_to(start, [width])),
                trainable=False,
            )
            for name, start in zip(self._names, starts, strict=True)
        ]
        self.seen = self.add_weight(
            name="seen", shape=(), initializer="zeros", dtype="int64", trainable=False
        )
        self.built = True

    @property
    def ready(self) -> bool:
        """Whether points can be drawn: the vectors are given, or data were seen."""
        return self.is_given or (self.built and int(self.seen.numpy()) > 0)

    def _see(self, rows):
        if not self.is_given:
            self._update(rows, int(self.seen.numpy()))
        self.seen.assign_add(len(rows))

    def _update(self, rows, seen):
        raise NotImplementedError

    def get_config(self) -> Config:
        return {**super().get_config(), **dict(zip(self._names, self.given, strict=True))}


@keras.saving.register_keras_serializable(package="tfp_fnspace.fbnn")
class Box(_Adapted):
    """Points uniform in a box.

        x_i ~ U[low_i - margin d_i, high_i + margin d_i],   d_i = high_i - low_i

    Args:
        num_points: M, a positive integer.
        low: Number or list of I numbers; None stands for the least value of each column in `adapt`.
        high: Number or list of I numbers; None stands for the largest value.
        margin: Number, at least 0. None is 1/2 (as in the paper) around the data, and 0 around a
            given box.
        **kwargs: `name`, `dtype`.

    Raises:
        ValueError: If an argument is not as described.

    References:
        Sun, Zhang, Shi and Grosse (2019), "Functional variational Bayesian neural networks", ICLR,
        section 5.
    """

    def __init__(
        self,
        num_points: int,
        low: ArrayLike | None = None,
        high: ArrayLike | None = None,
        margin: float | None = None,
        **kwargs: Any,
    ):
        super().__init__(num_points, low, high, **kwargs)
        if self.is_given and not np.all(np.asarray(low) <= np.asarray(high)):
            raise ValueError(f"`low` must be at most `high`. Received: low={low}, high={high}")
        if margin is not None:
            margin = checked_number("margin", margin, 0.0, inclusive=True)
        self.margin = margin

    def _update(self, rows, seen):
        low, high = (v.numpy() for v in self.vectors)
        least, largest = rows.min(axis=0), rows.max(axis=0)
        self.vectors[0].assign(np.minimum(low, least) if seen else least)
        self.vectors[1].assign(np.maximum(high, largest) if seen else largest)

    @property
    def limits(self) -> tuple[Tensor, Tensor]:
        """Ends of the box including the margin, two tensors `[I]`."""
        low, high = (tf.convert_to_tensor(v.value) for v in self.vectors)
        margin = (0.0 if self.is_given else 0.5) if self.margin is None else self.margin
        return low - margin * (high - low), high + margin * (high - low)

    def _draw(self, seed, width):
        low, high = self.limits
        return uniform([self.num_points, width], seed, low.dtype) * (high - low) + low

    def get_config(self) -> Config:
        return {**super().get_config(), "margin": self.margin}


@keras.saving.register_keras_serializable(package="tfp_fnspace.fbnn")
class Normal(_Adapted):
    """Points from a normal distribution, independent over columns: `x_i ~ N(loc_i, scale_i^2)`.

    Args:
        num_points: M, a positive integer.
        loc: Number or list of I numbers; None stands for the mean of each column in `adapt`.
        scale: The same for standard deviations.
        **kwargs: `name`, `dtype`.

    Raises:
        ValueError: If an argument is not as described.
    """

    _names = ("loc", "scale")

    def __init__(
        self,
        num_points: int,
        loc: ArrayLike | None = None,
        scale: ArrayLike | None = None,
        **kwargs: Any,
    ):
        super().__init__(num_points, loc, scale, **kwargs)
        if self.is_given and not np.all(np.asarray(scale) > 0.0):
            raise ValueError(f"`scale` must be positive. Received: scale={scale}")

    def _update(self, rows, seen):
        loc, scale = (np.asarray(v.numpy(), np.float64) for v in self.vectors)
        total = seen + len(rows)
        shift = rows.mean(axis=0) - loc
        squares = seen * scale**2 + len(rows) * rows.var(axis=0)
        squares += shift**2 * seen * len(rows) / total  # Chan's merge of two sets
        self.vectors[0].assign(loc + shift * len(rows) / total)
        self.vectors[1].assign(np.sqrt(squares / total))

    def _draw(self, seed, width):
        loc, scale = (tf.convert_to_tensor(v.value) for v in self.vectors)
        return loc + scale * random.normal([self.num_points, width], seed, loc.dtype)


@keras.saving.register_keras_serializable(package="tfp_fnspace.fbnn")
class CallableSet(MeasurementSet):
    """Points that a user's function draws.

    Args:
        num_points: M, a positive integer.
        function: Function in TensorFlow that maps M and an int32 seed `[2]` to a tensor `[M, I]`.
            For saving, register it by `keras.saving.register_keras_serializable`.
        **kwargs: `name`, `dtype`.

    Raises:
        TypeError: If `function` is not callable.
    """

    def __init__(self, num_points: int, function: Callable[[int, Tensor], Tensor], **kwargs: Any):
        super().__init__(num_points, **kwargs)
        if isinstance(function, dict):
            function = keras.saving.deserialize_keras_object(function)
        if not callable(function):
            raise TypeError(f"`function` must be callable. Received: function={function!r}")
        self.function = function

    def build(self, input_shape: Shape) -> None:
        self.built = True

    def _draw(self, seed, width):
        return tf.convert_to_tensor(self.function(self.num_points, seed))

    def get_config(self) -> Config:
        function = keras.saving.serialize_keras_object(self.function)
        return {**super().get_config(), "function": function}


@keras.saving.register_keras_serializable(package="tfp_fnspace.fbnn")
class DataStream(MeasurementSet):
    """Rows of data without targets, drawn with replacement from a reservoir.

    `adapt` passes over the data, which may be a stream larger than memory, and keeps `capacity`
    rows of it. Each set of rows is equally likely (Vitter's reservoir sampling, algorithm R). The
    rows are weights, so a saved model draws the same points.

    Args:
        num_points: M, a positive integer.
        capacity: Number of rows that are kept, a positive integer.
        seed: Seed of the choice of rows, a non-negative integer.
        **kwargs: `name`, `dtype`.

    Raises:
        ValueError: If an argument is not as described.

    References:
        Vitter (1985), "Random sampling with a reservoir", ACM TOMS 11.
    """

    def __init__(self, num_points: int, capacity: int = 10_000, seed: int = 0, **kwargs: Any):
        super().__init__(num_points, **kwargs)
        self.capacity = checked_count("capacity", capacity)
        self.seed = checked_count("seed", seed, 0)

    def build(self, input_shape: Shape) -> None:
        shape = (self.capacity, input_shape[-1])
        options = {"initializer": "zeros", "trainable": False}
        self.rows = self.add_weight(name="rows", shape=shape, **options)
        self.seen = self.add_weight(name="seen", shape=(), dtype="int64", **options)
        self.built = True

    @property
    def ready(self) -> bool:
        """Whether points can be drawn: data were seen."""
        return self.built and int(self.seen.numpy()) > 0

    def _see(self, rows):
        kept, seen = self.rows.numpy(), int(self.seen.numpy())
        order = np.arange(seen, seen + len(rows))
        chosen = np.random.default_rng([self.seed, seen]).integers(0, order + 1)
        places = np.where(order < self.capacity, order, chosen)
        is_kept = places < self.capacity
        kept[places[is_kept]] = rows[is_kept]  # the last of several wins, as in a loop
        self.rows.assign(kept)
        self.seen.assign(seen + len(rows))

    def _draw(self, seed, width):
        count = tf.minimum(tf.convert_to_tensor(self.seen.value), self.capacity)
        index = tf.random.stateless_uniform(
            [self.num_points], seed, maxval=count, dtype=tf.int64, minval=0
        )
        return tf.gather(tf.convert_to_tensor(self.rows.value), index)

    def get_config(self) -> Config:
        return {**super().get_config(), "capacity": self.capacity, "seed": self.seed}


def uniform(shape: Shape, seed: Seed, dtype: tf.DType) -> Tensor:
    """Draws uniform numbers in [0, 1).

    Args:
        shape: List of integers.
        seed: int32 tensor `[2]`.
        dtype: Floating dtype.

    Returns:
        Tensor of shape `shape`.
    """
    return tf.random.stateless_uniform(shape, seed, dtype=dtype)


def _as_list(value):
    """Checks and returns a number or a list of numbers in a form that JSON can hold."""
    values = np.asarray(value, np.float64)
    if values.ndim > 1 or not np.all(np.isfinite(values)):
        raise ValueError(f"Ends of a set must be finite numbers. Received: {value}")
    return values.tolist()
