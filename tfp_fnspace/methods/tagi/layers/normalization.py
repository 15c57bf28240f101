r"""Normalisation layers.

A unit is shifted and scaled by statistics, `n = (a - c) r`, and then by an uncertain scale and
shift, `z = n w + b`. The second step is the rule of `BilinearLayer`. The statistics use the
expected square, `E[(a - c)^2] = (ma - c)^2 + Sa`, so that uncertain units are also normalised. They
are treated as known: `n` then has mean `(ma - c) r` and variance `Sa r^2`, and innovations are
multiplied by `r` and `r^2`.
"""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tfp_fnspace.boundary.arguments import checked_number, checked_positive
from tfp_fnspace.math import replicas
from tfp_fnspace.methods.tagi import propagation
from tfp_fnspace.methods.tagi.layers.base import BilinearLayer, Inputs, mean_shape
from tfp_fnspace.typing import Config, GaussianMoments, Shape, Tensor


class _Normalization(BilinearLayer):
    """Base of normalisations: `_statistics`, then an uncertain scale and shift."""

    def __init__(
        self,
        axis: int | Sequence[int],
        epsilon: float,
        center: bool,
        scale: bool,
        scale_variance: float = 0.01,
        bias_variance: float = 0.01,
        **kwargs: Any,
    ):
        super().__init__(use_bias=center, bias_variance=bias_variance, **kwargs)
        self.axis = axis if isinstance(axis, int) else tuple(axis)
        self.epsilon = checked_positive("epsilon", epsilon)
        self.scale = bool(scale)
        self.scale_variance_prior = checked_positive("scale_variance", scale_variance)

    @property
    def heeds_masks(self) -> bool:
        return self.axis in (-1, (-1,))

    def _axes(self, rank):
        """Returns the axes with a scale for each entry, ascending."""
        axes = (self.axis,) if isinstance(self.axis, int) else self.axis
        positive = sorted({axis + rank if axis < 0 else axis for axis in axes})
        if not positive or positive[0] < 1 or positive[-1] >= rank:
            raise ValueError(
                f"`axis` must name axes of the inputs other than the first. Received: "
                f"axis={self.axis!r}, inputs of rank {rank}"
            )
        return positive

    def create_parameters(self, input_shape: Shape) -> None:
        axes = self._axes(len(input_shape))
        shape = [input_shape[i] if i in axes else 1 for i in range(min(axes), len(input_shape))]
        if None in shape:
            raise ValueError(
                f"{type(self).__name__} needs inputs whose axes {self.axis!r} have known sizes. "
                f"Received: shape={input_shape}"
            )
        # A scale of variance 0 is a constant, which no update changes.
        variance = self.scale_variance_prior if self.scale else 0.0
        kernel = self._add_moments("kernel", shape, variance, mean=1.0)
        self.kernel_mean, self.kernel_variance = kernel
        if self.use_bias:
            bias = self._add_moments("bias", shape, self.bias_variance_prior, mean=0.0)
            self.bias_mean, self.bias_variance = bias

    def linear_map(self, inputs: Tensor, kernel: Tensor) -> Tensor:
        return inputs * kernel

    def _statistics(self, mean, variance):
        """Returns the centre c and the mean of (a - c)^2, given means and variances."""
        raise NotImplementedError

    def _normalized(self, inputs, *options):
        mean, variance = self._unpack(inputs)
        uncertain = variance is not None and not propagation.sampling_active()
        spread = variance if uncertain else tf.zeros_like(mean)
        centre, square = self._statistics(mean, spread, *options)
        if propagation.innovations_active():
            centre, square = tf.stop_gradient(centre), tf.stop_gradient(square)
        factor = tf.math.rsqrt(square + self.epsilon)
        normalized = (mean - centre) * factor
        if variance is None:
            return normalized
        return GaussianMoments(normalized, variance * tf.square(factor))

    def call(self, inputs: Inputs) -> GaussianMoments:
        return super().call(self._normalized(inputs))

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return mean_shape(input_shape)

    def get_config(self) -> Config:
        return {
            **super(BilinearLayer, self).get_config(),
            "axis": self.axis,
            "epsilon": self.epsilon,
            "center": self.use_bias,
            "scale": self.scale,
            "scale_variance": self.scale_variance_prior,
            "bias_variance": self.bias_variance_prior,
        }


@keras.saving.register_keras_serializable(package="tfp_fnspace.tagi")
class LayerNormalization(_Normalization):
    r"""Normalises each row over its own units, with an uncertain scale w and shift b.

        z = w (a - c)/sqrt(v + epsilon) + b,   c = mean(ma),   v = mean((ma - c)^2 + Sa)

    over the units of `axis`. The statistics c and v are treated as known. Their dependence on the
    units is dropped, which is an error of order 1/(number of units).

    Args:
        axis: Integer or tuple: the axes to normalise over; one scale and shift for each entry.
        epsilon: Positive number.
        center: Whether there is a shift.
        scale: Whether there is a scale; otherwise it is exactly 1.
        scale_variance: Prior variance of the scale; its prior mean is 1.
        bias_variance: Prior variance of the shift; its prior mean is 0.
        **kwargs: `name`, `dtype`, `trainable`.

    Call arguments:
        inputs: `(mean, variance)` pair of tensors `[N, ..., D]`, or one tensor.

    Returns:
        `GaussianMoments` of the same shape.

    Attributes:
        kernel_mean, kernel_variance: Variables, the scale. They have the shape of the axes from the
            first one in `axis` on, with size 1 along those not in `axis`.
        bias_mean, bias_variance: Variables of the same shape, or `None`.

    Raises:
        ValueError: If an argument is not as described, or a size is unknown.

    Example:
        >>> inputs = keras.Input((3,))
        >>> hidden = tfp_fnspace.tagi.Dense(20)(inputs)
        >>> normalized = tfp_fnspace.tagi.LayerNormalization()(hidden)
    """

    def __init__(
        self,
        axis: int | Sequence[int] = -1,
        epsilon: float = 1e-3,
        center: bool = True,
        scale: bool = True,
        **kwargs: Any,
    ):
        super().__init__(axis, epsilon, center, scale, **kwargs)

    def _statistics(self, mean, variance):
        axes = self._axes(len(mean.shape))
        centre = tf.reduce_mean(mean, axis=axes, keepdims=True)
        square = tf.reduce_mean(tf.square(mean - centre) + variance, axis=axes, keepdims=True)
        return centre, square


@keras.saving.register_keras_serializable(package="tfp_fnspace.tagi")
class RMSNormalization(_Normalization):
    r"""Divides each row by the root mean square of its own units, with an uncertain scale w.

        z = w a / sqrt(v + epsilon),   v = mean(ma^2 + Sa)

    over the units of `axis`; v is treated as known, see `LayerNormalization`.

    Args:
        axis: Integer or tuple: the axes to normalise over; one scale for each entry.
        epsilon: Positive number.
        scale_variance: Prior variance of the scale; its prior mean is 1.
        **kwargs: `name`, `dtype`, `trainable`.

    Call arguments:
        inputs: `(mean, variance)` pair of tensors `[N, ..., D]`, or one tensor.

    Returns:
        `GaussianMoments` of the same shape.

    Attributes:
        kernel_mean, kernel_variance: Variables, the scale, see `LayerNormalization`.

    Raises:
        ValueError: If an argument is not as described, or a size is unknown.
    """

    def __init__(
        self,
        axis: int | Sequence[int] = -1,
        epsilon: float = 1e-6,
        *,
        scale_variance: float = 0.01,
        **kwargs: Any,
    ):
        super().__init__(axis, epsilon, False, True, scale_variance, **kwargs)

    def _statistics(self, mean, variance):
        axes = self._axes(len(mean.shape))
        square = tf.reduce_mean(tf.square(mean) + variance, axis=axes, keepdims=True)
        return tf.zeros_like(square), square

    def get_config(self) -> Config:
        config = super().get_config()
        return {k: v for k, v in config.items() if k not in ("center", "scale", "bias_variance")}


@keras.saving.register_keras_serializable(package="tfp_fnspace.tagi")
class BatchNormalization(_Normalization):
    r"""Normalises each channel over the batch, with an uncertain scale w and shift b.

        z = w (a - c)/sqrt(v + epsilon) + b,   c = mean(ma),   v = mean((ma - c)^2 + Sa)

    over all axes but `axis`. While the model learns, c and v are those of the batch (padded rows do
    not count), and moving averages of them are kept. At any other time c and v are the moving
    averages. They are treated as known: their dependence on the units is dropped.

    A batch of one row has no spread. It is normalised by the moving averages, which it updates with
    `v = mean((ma - moving_mean)^2 + Sa)`. With `update="exact"`, which takes rows one by one, the
    split into batches therefore still has no effect.

    Args:
        axis: Integer, the axis of the channels.
        momentum: Number in [0, 1): weight of the past in the moving averages.
        epsilon: Positive number.
        center: Whether there is a shift.
        scale: Whether there is a scale; otherwise it is exactly 1.
        scale_variance: Prior variance of the scale; its prior mean is 1.
        bias_variance: Prior variance of the shift; its prior mean is 0.
        **kwargs: `name`, `dtype`, `trainable`. If not trainable, the layer always uses the moving
            averages.

    Call arguments:
        inputs: `(mean, variance)` pair of tensors `[N, ..., C]`, or one tensor.
        training: Whether to use the batch's statistics; `None` uses them while the model learns.

    Returns:
        `GaussianMoments` of the same shape.

    Attributes:
        kernel_mean, kernel_variance: Variables, the scale, `[C]` (followed by axes of size 1 if
            `axis` is not the last).
        bias_mean, bias_variance: Variables of the same shape, or `None`.
        moving_mean, moving_variance: Variables of the same shape.

    Raises:
        ValueError: If an argument is not as described, or the size of `axis` is unknown.
    """

    def __init__(
        self,
        axis: int | Sequence[int] = -1,
        momentum: float = 0.99,
        epsilon: float = 1e-3,
        center: bool = True,
        scale: bool = True,
        **kwargs: Any,
    ):
        super().__init__(axis, epsilon, center, scale, **kwargs)
        self.momentum = checked_number("momentum", momentum, above=0.0, inclusive=True)
        if not isinstance(self.axis, int) or self.momentum >= 1.0:
            raise ValueError(
                "`axis` must be one integer and `momentum` less than 1. "
                f"Received: axis={axis!r}, momentum={momentum!r}"
            )
        self.moving_mean = self.moving_variance = None

    def create_parameters(self, input_shape: Shape) -> None:
        super().create_parameters(input_shape)
        self.moving_mean, self.moving_variance = (
            self.add_weight(
                name=f"moving_{name}",
                shape=self.kernel_mean.shape,
                initializer=start,
                trainable=False,
                autocast=False,
            )
            for name, start in (("mean", "zeros"), ("variance", "ones"))
        )

    @property
    def heeds_masks(self) -> bool:
        return False  # the batch's statistics would have to leave steps out

    @property
    def state(self) -> list[keras.Variable]:
        return [self.moving_mean, self.moving_variance]

    def call(self, inputs: Inputs, training: bool | None = None) -> GaussianMoments:
        if training is None:
            training = propagation.innovations_active() and not propagation.state_frozen()
        return super(_Normalization, self).call(
            self._normalized(inputs, training and self.trainable)
        )

    def _statistics(self, mean, variance, learning):
        moving = [tf.convert_to_tensor(part) for part in self.state]
        if not learning:
            return moving
        rows = self._rows(mean)
        axes = self._axes(len(mean.shape))
        others = [i for i in range(len(mean.shape)) if i not in axes]

        def average(tensor):
            weights = tf.broadcast_to(rows, tf.shape(tensor))
            sums = [tf.reduce_sum(part, others) for part in (weights * tensor, weights)]
            sums = replicas.summed(sums)
            return tf.reshape(sums[0] / sums[1], moving[0].shape)

        (count,) = replicas.summed([tf.reduce_sum(rows)])
        one = count < 1.5
        batch_mean = average(mean)
        centre = tf.where(one, moving[0], batch_mean)
        square = average(tf.square(mean - centre) + variance)
        for variable, old, new in zip(self.state, moving, (batch_mean, square), strict=True):
            variable.assign(self.momentum * old + (1.0 - self.momentum) * new)
        return centre, tf.where(one, moving[1], square)

    def _rows(self, mean):
        """Returns 1 for the rows that count and 0 for those that pad the batch, `[N, 1, ...]`."""
        valid = propagation.valid_rows()
        if valid is None:
            valid = tf.ones(tf.shape(mean)[:1], mean.dtype)
        shape = tf.concat([tf.shape(valid), tf.ones(len(mean.shape) - 1, tf.int32)], axis=0)
        return tf.reshape(tf.cast(valid, mean.dtype), shape)

    def get_config(self) -> Config:
        return {**super().get_config(), "momentum": self.momentum}
