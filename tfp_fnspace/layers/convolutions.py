"""Convolutions whose weights are drawn once for each function."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tfp_fnspace.boundary import arguments
from tfp_fnspace.layers.dense import matmul_each
from tfp_fnspace.layers.variational import VariationalLayer
from tfp_fnspace.typing import Config, Shape, Tensor

_PADDINGS = ("valid", "same")


class _VariationalConv(VariationalLayer):
    """Base of convolutions over `num_axes` axes."""

    estimators = ("function", "flipout")
    num_axes = None

    def __init__(
        self,
        filters: int,
        kernel_size: int | Sequence[int],
        strides: int | Sequence[int] = 1,
        padding: str = "valid",
        data_format: str | None = None,
        dilation_rate: int | Sequence[int] = 1,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.filters = arguments.checked_count("filters", filters)
        self.kernel_size = self._per_axis("kernel_size", kernel_size)
        self.strides = self._per_axis("strides", strides)
        self.dilation_rate = self._per_axis("dilation_rate", dilation_rate)
        self.padding = arguments.checked_choice("padding", padding, _PADDINGS)
        arguments.checked_choice("data_format", data_format, (None, "channels_last"))
        if max(self.strides) > 1 and max(self.dilation_rate) > 1:
            raise ValueError(
                "`strides` and `dilation_rate` cannot both be larger than 1. "
                f"Received: strides={strides!r}, dilation_rate={dilation_rate!r}"
            )

    def _per_axis(self, name, value):
        values = list(value) if isinstance(value, list | tuple) else [value] * self.num_axes
        if len(values) != self.num_axes:
            raise ValueError(
                f"`{name}` must be an integer, or {self.num_axes}. Received: {name}={value!r}"
            )
        return tuple(arguments.checked_count(name, each) for each in values)

    @property
    def row_rank(self) -> int:
        """Rank of the inputs of one row: the axes and the channels."""
        return self.num_axes + 1

    def kernel_shape(self, input_shape: Shape) -> tuple[int, ...]:
        if input_shape[-1] is None:
            raise ValueError(
                "The last axis of the inputs, the channels, must be known. "
                f"Received: input_shape={tuple(input_shape)}"
            )
        return (*self.kernel_size, input_shape[-1], self.filters)

    def fans(self, kernel_shape: tuple[int, ...]) -> tuple[int, int]:
        field = math.prod(self.kernel_size)
        return field * kernel_shape[-2], field * kernel_shape[-1]

    def _convolve(self, x, kernel):
        return tf.nn.convolution(
            x, kernel, self.strides, self.padding.upper(), dilations=self.dilation_rate
        )

    def map_each(self, x: Tensor, kernel: Tensor) -> Tensor:
        """Applies the convolution with a kernel for each draw, see `VariationalLayer`.

        For inputs without draws, the kernels of all draws are filters of one convolution. For
        inputs with draws, patches are multiplied by matrices, since TensorFlow has no gradient of
        grouped convolutions on a CPU. The patches take `prod(kernel_size)` times the memory of the
        inputs.
        """
        if len(x.shape) == self.row_rank + 1:
            return self._map_shared(x, kernel)
        patches = self._patches(x)
        matrices = tf.reshape(kernel, [tf.shape(kernel)[0], patches.shape[-1], self.filters])
        return matmul_each(patches, matrices, self.row_rank)

    def _map_shared(self, x, kernel):
        last = len(kernel.shape) - 1
        kernels = tf.transpose(kernel, [*range(1, last), 0, last])
        channels = kernel.shape[-2]
        outputs = self._convolve(x, tf.reshape(kernels, [*self.kernel_size, channels, -1]))
        shape = tf.unstack(tf.shape(outputs))[:-1]
        outputs = tf.reshape(outputs, [*shape, -1, self.filters])
        axes = list(range(len(shape)))
        return tf.transpose(outputs, [len(shape), *axes, len(shape) + 1])

    def _patches(self, x):
        """Returns the inputs of each output, `[S, N, ..., prod(kernel_size) * channels]`."""
        static, dynamic = x.shape, tf.shape(x)
        sizes = [static[i + 2] or dynamic[i + 2] for i in range(self.num_axes)]
        paddings, lengths = [[0, 0], [0, 0]], []
        each = zip(sizes, self.kernel_size, self.strides, self.dilation_rate, strict=True)
        for size, width, stride, dilation in each:
            reach = (width - 1) * dilation + 1
            if self.padding == "valid":
                lengths.append((size - reach) // stride + 1)
                paddings.append([0, 0])
                continue
            length = -(-size // stride)
            missing = (length - 1) * stride + reach - size
            missing = max(missing, 0) if isinstance(missing, int) else tf.maximum(missing, 0)
            lengths.append(length)
            paddings.append([missing // 2, missing - missing // 2])
        if self.padding == "same":
            x = tf.pad(x, [*paddings, [0, 0]])
        taps = []
        for tap in itertools.product(*map(range, self.kernel_size)):
            window = [slice(None), slice(None)]
            for i, offset in enumerate(tap):
                start = offset * self.dilation_rate[i]
                stop = start + (lengths[i] - 1) * self.strides[i] + 1
                window.append(slice(start, stop, self.strides[i]))
            taps.append(x[tuple(window)])
        return tf.concat(taps, axis=-1)

    def map_all(self, x: Tensor, kernel: Tensor) -> Tensor:
        if len(x.shape) == self.row_rank + 1:
            return self._convolve(x, kernel)
        shape = tf.shape(x)
        folded = tf.reshape(x, tf.concat([[shape[0] * shape[1]], shape[2:]], axis=0))
        folded = tf.ensure_shape(folded, [None, *x.shape[2:]])
        outputs = self._convolve(folded, kernel)
        unfolded = tf.concat([shape[:2], tf.shape(outputs)[1:]], axis=0)
        return tf.ensure_shape(tf.reshape(outputs, unfolded), [*x.shape[:2], *outputs.shape[1:]])

    def row_output_shape(self, row_shape: Shape) -> Shape:
        lengths = []
        each = zip(row_shape[:-1], self.kernel_size, self.strides, self.dilation_rate, strict=True)
        for size, width, stride, dilation in each:
            if size is None:
                lengths.append(None)
            elif self.padding == "same":
                lengths.append(-(-size // stride))
            else:
                lengths.append((size - (width - 1) * dilation - 1) // stride + 1)
        return (*lengths, self.filters)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "filters": self.filters,
            "kernel_size": self.kernel_size,
            "strides": self.strides,
            "padding": self.padding,
            "dilation_rate": self.dilation_rate,
        }


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class VariationalConv1D(_VariationalConv):
    """Convolution over one axis with one draw of its weights for each function.

    Args:
        filters: Number of outputs.
        kernel_size: Length of the window.
        strides: Steps between windows.
        padding: `"valid"` or `"same"`.
        data_format: `None` or `"channels_last"`.
        dilation_rate: Steps between the inputs of a window.
        **kwargs: See `VariationalLayer`; `estimator` is `"function"` or `"flipout"`. Local
            reparameterisation would lose the covariance of outputs that share weights.

    Call arguments:
        inputs: Tensor `[N, T, C]` or `[S, N, T, C]`.

    Returns:
        Tensor `[S, N, T', filters]`.

    Raises:
        ValueError: If an argument is not as described.
    """

    num_axes = 1


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class VariationalConv2D(_VariationalConv):
    """Convolution over two axes with one draw of its weights for each function.

    Args:
        filters: Number of outputs.
        kernel_size: Sizes of the window, an integer or two.
        strides: Steps between windows, an integer or two.
        padding: `"valid"` or `"same"`.
        data_format: `None` or `"channels_last"`.
        dilation_rate: Steps between the inputs of a window, an integer or two.
        **kwargs: As for `VariationalConv1D`.

    Call arguments:
        inputs: Tensor `[N, H, W, C]` or `[S, N, H, W, C]`.

    Returns:
        Tensor `[S, N, H', W', filters]`.

    Raises:
        ValueError: If an argument is not as described.
    """

    num_axes = 2
