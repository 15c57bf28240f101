"""Transposed convolution with Gaussian weights."""

import math
from typing import Any

import keras
import tensorflow as tf

from tfp_fnspace.boundary.arguments import check_count, checked_count
from tfp_fnspace.methods.tagi.layers.activation import ActivationLike
from tfp_fnspace.methods.tagi.layers.convolution import ConvolutionLayer, Sizes
from tfp_fnspace.typing import Config, Tensor


@keras.saving.register_keras_serializable(package="tfp_fnspace.tagi")
class Conv2DTranspose(ConvolutionLayer):
    """Transposed convolution with Gaussian weights; moments as in `Conv2D`.

    Args:
        filters: Number of output channels, a positive integer.
        kernel_size: Integer or a pair.
        strides: Integer or a pair: the distance between neighbouring inputs in the output.
        padding: `"valid"` or `"same"`.
        output_padding: `None`, or an integer or a pair, added to the size of the output.
        data_format: `None` or `"channels_last"`.
        dilation_rate: Integer or a pair; not together with strides.
        activation: Name, function, or `Activation` layer that follows; see `Activation`.
        use_bias: Whether to add a bias for each filter.
        **kwargs: `prior`, `gain`, `bias_variance` as in `BilinearLayer` (fan in: kernel positions
            times channels, divided by the strides; fan out: kernel positions times filters);
            `name`, `dtype`, `trainable`.

    Call arguments:
        inputs: `(mean, variance)` pair of tensors `[N, H, W, C]`, or one tensor.

    Returns:
        `GaussianMoments` of tensors `[N, H', W', filters]`.

    Attributes:
        kernel_mean, kernel_variance: Variables `[*kernel_size, filters, C]`.
        bias_mean, bias_variance: Variables `[filters]`, or `None`.

    Raises:
        ValueError: If an argument is not as described, or the inputs have another rank.
    """

    def __init__(
        self,
        filters: int,
        kernel_size: Sizes,
        strides: Sizes = 1,
        padding: str = "valid",
        output_padding: Sizes | None = None,
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
        self.filters = checked_count("filters", filters)
        self.output_padding = output_padding
        if output_padding is not None:
            pads = output_padding if isinstance(output_padding, list | tuple) else [output_padding]
            for pad in pads:
                check_count("output_padding", pad, least=0)

    def _create_kernel(self, channels, window):
        self.add_parameters(
            (*self.kernel_size, self.filters, channels),
            fan_in=max(window * channels / math.prod(self.strides), 1.0),
            fan_out=window * self.filters,
            bias_shape=(self.filters,),
        )

    def linear_map(self, inputs: Tensor, kernel: Tensor) -> Any:
        # TensorFlow has no derivatives of a transposed convolution with dilations on a CPU.
        for axis, rate in enumerate(self.dilation_rate):
            kernel = _spread(kernel, axis, rate)
        options = {**self._geometry(), "dilation_rate": 1, "output_padding": self.output_padding}
        return keras.ops.conv_transpose(inputs, kernel, **options)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "filters": self.filters,
            "output_padding": self.output_padding,
        }


def _spread(kernel, axis, rate):
    """Returns the kernel with `rate - 1` zeros between its entries along an axis."""
    if rate == 1:
        return kernel
    before, (size, *after) = kernel.shape[:axis], kernel.shape[axis:]
    sides = [[0, 0]] * (axis + 1) + [[0, rate - 1]] + [[0, 0]] * len(after)
    spread = tf.pad(tf.expand_dims(kernel, axis + 1), sides)
    spread = tf.reshape(spread, [*before, size * rate, *after])
    return spread[(slice(None),) * axis + (slice((size - 1) * rate + 1),)]
