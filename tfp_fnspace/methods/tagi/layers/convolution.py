"""Convolutional layers with Gaussian weights.

A convolution is linear in its inputs and in its kernel, so moments and innovations are those of
`BilinearLayer`. Each class here only defines the shape of a kernel and a `linear_map`.
"""

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import keras
import tensorflow as tf

from tfp_fnspace.boundary.arguments import check_count, checked_choice, checked_count
from tfp_fnspace.methods.tagi.layers.activation import ActivatedLayer, ActivationLike
from tfp_fnspace.typing import Config, Shape, Tensor

#: An integer, or one for each axis.
Sizes: TypeAlias = int | Sequence[int]


def checked_sizes(name: str, value: Sizes, rank: int) -> tuple[int, ...]:
    """Returns a tuple of `rank` positive integers, given a tuple or one integer.

    Raises:
        ValueError: If it is something else.
    """
    sizes = tuple(value) if isinstance(value, list | tuple) else (value,) * rank
    if len(sizes) != rank:
        raise ValueError(f"`{name}` must have {rank} integers. Received: {name}={value!r}")
    for size in sizes:
        check_count(name, size)
    return tuple(map(int, sizes))


class ConvolutionLayer(ActivatedLayer):
    """Base of all convolutions, with the arguments of Keras and channels last."""

    rank = 2
    slow_in_xla_loops = True

    def __init__(
        self,
        kernel_size: Sizes,
        strides: Sizes = 1,
        padding: str = "valid",
        data_format: str | None = None,
        dilation_rate: Sizes = 1,
        activation: ActivationLike = None,
        use_bias: bool = True,
        **kwargs: Any,
    ):
        super().__init__(activation=activation, use_bias=use_bias, **kwargs)
        self.kernel_size = checked_sizes("kernel_size", kernel_size, self.rank)
        self.strides = checked_sizes("strides", strides, self.rank)
        self.dilation_rate = checked_sizes("dilation_rate", dilation_rate, self.rank)
        self.padding = checked_choice("padding", padding, self._paddings())
        checked_choice("data_format", data_format, (None, "channels_last"))
        if max(self.strides) > 1 and max(self.dilation_rate) > 1:
            raise ValueError(
                "`strides` and `dilation_rate` cannot both exceed 1. "
                f"Received: strides={strides!r}, dilation_rate={dilation_rate!r}"
            )

    def _paddings(self):
        return ("valid", "same")

    def create_parameters(self, input_shape: Shape) -> None:
        if len(input_shape) != self.rank + 2 or input_shape[-1] is None:
            raise ValueError(
                f"{type(self).__name__} needs inputs of rank {self.rank + 2} whose channels, the "
                f"last axis, are known. Received: shape={input_shape}"
            )
        self._create_kernel(input_shape[-1], math.prod(self.kernel_size))

    def _create_kernel(self, channels, window):
        """Calls `add_parameters`, given the number of channels and of positions in the window."""
        raise NotImplementedError

    def _geometry(self):
        """Returns the options for the convolutions of `keras.ops`."""
        return {
            "strides": self.strides,
            "padding": self.padding,
            "data_format": "channels_last",
            "dilation_rate": self.dilation_rate,
        }

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "kernel_size": self.kernel_size,
            "strides": self.strides,
            "padding": self.padding,
            "dilation_rate": self.dilation_rate,
        }


class _Conv(ConvolutionLayer):
    """Convolution over one, two or three axes."""

    def __init__(
        self,
        filters: int,
        kernel_size: Sizes,
        strides: Sizes = 1,
        padding: str = "valid",
        data_format: str | None = None,
        dilation_rate: Sizes = 1,
        groups: int = 1,
        activation: ActivationLike = None,
        use_bias: bool = True,
        **kwargs: Any,
    ):
        super().__init__(
            kernel_size,
            strides,
            padding,
            data_format,
            dilation_rate,
            activation,
            use_bias,
            **kwargs,
        )
        self.filters = checked_count("filters", filters)
        self.groups = checked_count("groups", groups)
        if self.filters % self.groups:
            raise ValueError(
                "`groups` must divide `filters`. "
                f"Received: filters={self.filters}, groups={self.groups}"
            )

    def _create_kernel(self, channels, window):
        if channels % self.groups:
            raise ValueError(
                "`groups` must divide the number of channels. "
                f"Received: groups={self.groups}, channels={channels}"
            )
        channels //= self.groups
        self.add_parameters(
            (*self.kernel_size, channels, self.filters),
            fan_in=window * channels,
            fan_out=window * self.filters // self.groups,
        )

    def linear_map(self, inputs: Tensor, kernel: Tensor) -> Any:
        return self._convolved(inputs, kernel, self._geometry())

    def _convolved(self, inputs, kernel, geometry):
        if self.groups > 1:  # XLA cannot differentiate dilated convolutions in groups
            kernel = _dilated(kernel, geometry.pop("dilation_rate"))
        return keras.ops.conv(inputs, kernel, **geometry)

    def get_config(self) -> Config:
        return {**super().get_config(), "filters": self.filters, "groups": self.groups}


def _dilated(kernel, rates):
    """Returns the kernel with `rate - 1` zeros between its entries along each axis."""
    for axis, rate in enumerate(rates):
        size = kernel.shape[axis]
        spread = tf.expand_dims(kernel, axis + 1)
        after = [[0, 0]] * len(spread.shape)
        after[axis + 1] = [0, rate - 1]
        shape = [*kernel.shape[:axis], size * rate, *kernel.shape[axis + 1 :]]
        kernel = tf.reshape(tf.pad(spread, after), shape)
        kernel = kernel[(*[slice(None)] * axis, slice((size - 1) * rate + 1))]
    return kernel


@keras.saving.register_keras_serializable(package="tfp_fnspace.tagi")
class Conv2D(_Conv):
    r"""Two-dimensional convolution whose kernel and bias are independent Gaussians.

    Let `*` be the convolution of Keras's layer of this name, and let `a ~ N(ma, Sa)`, `W ~ N(mw,
    Sw)` and `b ~ N(mb, Sb)` be independent. Then

        mz = ma * mw + mb
        Sz = (ma^2 + Sa) * Sw + Sa * mw^2 + Sb

    by equations 3, 6 and 10 of the paper. Outputs that share a kernel or an input are correlated;
    as in every layer, only their variances are kept. An update costs four more convolutions. Its
    memory is that of the activations, plus three times the size of the kernel each for means and
    variances, since innovations of the kernel are never formed for single rows.

    Args:
        filters: Number of output channels, a positive integer.
        kernel_size: Integer or a pair.
        strides: Integer or a pair.
        padding: `"valid"` or `"same"` (zeros, exactly known).
        data_format: `None` or `"channels_last"`.
        dilation_rate: Integer or a pair; not together with strides.
        groups: Number of groups of channels that are convolved separately; it must divide the
            number of channels and `filters`.
        activation: Name, function, or `Activation` layer that follows; see `Activation`.
        use_bias: Whether to add a bias for each filter.
        **kwargs: `prior`, `gain`, `bias_variance` as in `BilinearLayer` (fan in: kernel positions
            times channels of a group; fan out: kernel positions times filters of a group); `name`,
            `dtype`, `trainable`.

    Call arguments:
        inputs: `(mean, variance)` pair of tensors `[N, H, W, C]`, or a tensor of exactly known
            values.

    Returns:
        `GaussianMoments` of tensors `[N, H', W', filters]`.

    Attributes:
        kernel_mean, kernel_variance: Variables `[*kernel_size, C / groups, filters]`.
        bias_mean, bias_variance: Variables `[filters]`, or `None`.

    Raises:
        ValueError: If an argument is not as described, or the inputs have another rank.

    Example:
        >>> images = keras.Input((28, 28, 1))
        >>> mean, variance = tfp_fnspace.tagi.Conv2D(8, 3, activation="relu")(images)

    References:
        Goulet, Nguyen & Amiri (2021), section 2.
    """


@keras.saving.register_keras_serializable(package="tfp_fnspace.tagi")
class Conv1D(_Conv):
    """One-dimensional convolution with Gaussian weights: `Conv2D` with one axis.

    Args:
        filters, kernel_size, strides, padding, data_format, dilation_rate, groups, activation,
            use_bias, **kwargs: As in `Conv2D`, with one integer instead of a pair. `padding` may
            also be `"causal"`: output t sees inputs up to t.

    Call arguments:
        inputs: `(mean, variance)` pair of tensors `[N, T, C]`, or one tensor.

    Returns:
        `GaussianMoments` of tensors `[N, T', filters]`.

    Raises:
        ValueError: If an argument is not as described, or the inputs have another rank.
    """

    rank = 1

    def _paddings(self):
        return ("valid", "same", "causal")

    def linear_map(self, inputs: Tensor, kernel: Tensor) -> Any:
        geometry = self._geometry()
        if self.padding == "causal":
            before = self.dilation_rate[0] * (self.kernel_size[0] - 1)
            inputs = tf.pad(inputs, [[0, 0], [before, 0], [0, 0]])
            geometry["padding"] = "valid"
        return self._convolved(inputs, kernel, geometry)


@keras.saving.register_keras_serializable(package="tfp_fnspace.tagi")
class Conv3D(_Conv):
    """Three-dimensional convolution with Gaussian weights: `Conv2D` with three axes.

    Args:
        filters, kernel_size, strides, padding, data_format, dilation_rate, groups, activation,
            use_bias, **kwargs: As in `Conv2D`, with triples instead of pairs.

    Call arguments:
        inputs: `(mean, variance)` pair of tensors `[N, D, H, W, C]`, or one tensor.

    Returns:
        `GaussianMoments` of tensors `[N, D', H', W', filters]`.

    Raises:
        ValueError: If an argument is not as described, or the inputs have another rank.
    """

    rank = 3


@keras.saving.register_keras_serializable(package="tfp_fnspace.tagi")
class DepthwiseConv2D(ConvolutionLayer):
    """Convolution of each channel with its own Gaussian kernels; moments as in `Conv2D`.

    Args:
        kernel_size: Integer or a pair.
        strides: Integer or a pair of equal integers.
        padding: `"valid"` or `"same"`.
        depth_multiplier: Number of outputs of each channel.
        data_format: `None` or `"channels_last"`.
        dilation_rate: Integer or a pair; not together with strides.
        activation: Name, function, or `Activation` layer that follows; see `Activation`.
        use_bias: Whether to add a bias for each output channel.
        **kwargs: `prior`, `gain`, `bias_variance` as in `BilinearLayer` (fan in: kernel positions;
            fan out: kernel positions times `depth_multiplier`); `name`, `dtype`, `trainable`.

    Call arguments:
        inputs: `(mean, variance)` pair of tensors `[N, H, W, C]`, or one tensor.

    Returns:
        `GaussianMoments` of tensors `[N, H', W', C * depth_multiplier]`.

    Attributes:
        kernel_mean, kernel_variance: Variables `[*kernel_size, C, depth_multiplier]`.
        bias_mean, bias_variance: Variables `[C * depth_multiplier]`, or `None`.

    Raises:
        ValueError: If an argument is not as described, or the inputs have another rank.
    """

    def __init__(
        self,
        kernel_size: Sizes,
        strides: Sizes = 1,
        padding: str = "valid",
        depth_multiplier: int = 1,
        data_format: str | None = None,
        dilation_rate: Sizes = 1,
        activation: ActivationLike = None,
        use_bias: bool = True,
        **kwargs: Any,
    ):
        super().__init__(
            kernel_size,
            strides,
            padding,
            data_format,
            dilation_rate,
            activation,
            use_bias,
            **kwargs,
        )
        self.depth_multiplier = checked_count("depth_multiplier", depth_multiplier)
        if len(set(self.strides)) > 1:
            raise ValueError(f"`strides` must be equal along both axes. Received: {strides=}")

    def _create_kernel(self, channels, window):
        self.add_parameters(
            (*self.kernel_size, channels, self.depth_multiplier),
            fan_in=window,
            fan_out=window * self.depth_multiplier,
            bias_shape=(channels * self.depth_multiplier,),
        )

    def linear_map(self, inputs: Tensor, kernel: Tensor) -> Any:
        return keras.ops.depthwise_conv(inputs, kernel, **self._geometry())

    def get_config(self) -> Config:
        return {**super().get_config(), "depth_multiplier": self.depth_multiplier}
