"""Fully connected layer with Gaussian weights."""

from typing import Any

import keras
import tensorflow as tf

from tfp_fnspace.boundary.arguments import checked_count
from tfp_fnspace.methods.tagi.layers.activation import ActivatedLayer, ActivationLike
from tfp_fnspace.methods.tagi.layers.base import mean_shape
from tfp_fnspace.typing import Config, Shape, Tensor


@keras.saving.register_keras_serializable(package="tfp_fnspace.tagi")
class Dense(ActivatedLayer):
    r"""Fully connected layer whose weights and biases are independent Gaussians.

    For `z = a W + b` with independent `a ~ N(ma, Sa)`, `W ~ N(mw, Sw)`, `b ~ N(mb, Sb)`,

        mz = ma mw + mb
        Sz = (ma^2 + Sa) Sw + Sa mw^2 + Sb

    (equations 3, 6 and 10 of the paper with diagonal covariances). Prior means are drawn from
    N(0, prior variance), which breaks the symmetry between units.

    Args:
        units: Number of outputs, a positive integer.
        activation: Name, function, or `Activation` layer that follows; see `Activation`.
        use_bias: Whether to add a bias.
        prior: `"glorot"` (or `"xavier"`, the paper's) for variance `gain^2 2/(fan_in + fan_out)`,
            or `"he"` for variance `gain^2 / fan_in`.
        gain: Positive number.
        bias_variance: Prior variance of the biases; 0.01 in the paper.
        **kwargs: `name`, `dtype`, `trainable`.

    Call arguments:
        inputs: `(mean, variance)` pair of tensors `[N, ..., D]`, or a tensor of exactly known
            values.

    Returns:
        `GaussianMoments` of tensors `[N, ..., units]`.

    Attributes:
        kernel_mean, kernel_variance: Variables `[D, units]`.
        bias_mean, bias_variance: Variables `[units]`, or `None`.

    Raises:
        ValueError: If `units` is not a positive integer; see also `Activation`.

    Example:
        >>> inputs = keras.Input((3,))
        >>> mean, variance = tfp_fnspace.tagi.Dense(2, activation="relu")(inputs)

    References:
        Goulet, Nguyen & Amiri (2021), section 2.
    """

    heeds_masks = True

    def __init__(
        self, units: int, activation: ActivationLike = None, use_bias: bool = True, **kwargs: Any
    ):
        super().__init__(activation=activation, use_bias=use_bias, **kwargs)
        self.units = checked_count("units", units)

    def create_parameters(self, input_shape: Shape) -> None:
        features = input_shape[-1]
        if features is None:
            raise ValueError(
                f"The last axis of the inputs of Dense must be known. Received: shape={input_shape}"
            )
        self.add_parameters((features, self.units), fan_in=features, fan_out=self.units)

    def linear_map(self, inputs: Tensor, kernel: Tensor) -> Tensor:
        return tf.matmul(inputs, kernel)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (*mean_shape(input_shape)[:-1], self.units)

    def get_config(self) -> Config:
        return {**super().get_config(), "units": self.units}
