"""A table of Gaussian vectors."""

from typing import Any

import keras
import tensorflow as tf

from tfp_fnspace.boundary.arguments import checked_count
from tfp_fnspace.methods.tagi import propagation
from tfp_fnspace.methods.tagi.layers.base import BilinearLayer, is_pair, mean_shape
from tfp_fnspace.typing import Config, GaussianMoments, Shape, Tensor


@keras.saving.register_keras_serializable(package="tfp_fnspace.tagi")
class Embedding(BilinearLayer):
    r"""Looks up rows of a table of independent Gaussians.

    This is the linear map of a one-hot input, without the zeros: `z = W[i]` with mean `mw[i]` and
    variance `Sw[i]`. The row of an index gets the sum of the innovations of all its occurrences.

    Inputs of a model that are indices are not standardised. They are checked against `input_dim`
    before anything is learnt.

    Args:
        input_dim: Number of rows of the table; indices are 0 to `input_dim - 1`.
        output_dim: Length of a row.
        gain: Prior standard deviation of the table's entries.
        mask_zero: Whether the index 0 is padding, which later layers leave out; see `LSTM`.
        **kwargs: `name`, `dtype`, `trainable`.

    Call arguments:
        inputs: Tensor `[N, ...]` of integers, of any dtype.

    Returns:
        `GaussianMoments` of tensors `[N, ..., output_dim]`.

    Attributes:
        kernel_mean, kernel_variance: Variables `[input_dim, output_dim]`.

    Raises:
        ValueError: If a size is not a positive integer, or the inputs are moments.

    Example:
        >>> words = keras.Input((7,), dtype="int32")
        >>> mean, variance = tfp_fnspace.tagi.Embedding(100, 8)(words)
    """

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        *,
        gain: float = 1.0,
        mask_zero: bool = False,
        **kwargs: Any,
    ):
        super().__init__(use_bias=False, gain=gain, **kwargs)
        self.mask_zero = bool(mask_zero)
        self.input_dim = checked_count("input_dim", input_dim)
        self.output_dim = checked_count("output_dim", output_dim)

    def create_parameters(self, input_shape: Shape) -> None:
        self.add_parameters((self.input_dim, self.output_dim), fan_in=1, fan_out=1)

    def linear_map(self, inputs: Tensor, kernel: Tensor) -> Tensor:
        return tf.gather(kernel, tf.cast(inputs, tf.int32))

    def call(self, inputs: Tensor) -> GaussianMoments:
        if propagation.sampling_active():
            return super().call(inputs)
        if is_pair(inputs):
            raise ValueError(f"Embedding takes indices, not moments. Received: inputs={inputs!r}")
        ones = tf.ones([1] * (len(inputs.shape) + 1), self.variable_dtype)
        kernel = tuple(tf.convert_to_tensor(part) for part in self.parameters[0])

        def rows(coefficients, table):
            return coefficients * self.linear_map(inputs, table)

        # This is the rule for inputs of 1: a row has the coefficient 1, whatever its index.
        return GaussianMoments(*propagation.bilinear(rows, ones, None, kernel, None))

    def compute_mask(self, inputs: Tensor, previous_mask: Any = None) -> tuple[Any, Any] | None:
        if not self.mask_zero:
            return None
        mask = keras.ops.not_equal(inputs, 0)
        return mask, mask

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (*mean_shape(input_shape), self.output_dim)

    def get_config(self) -> Config:
        config = super().get_config()
        config = {k: config[k] for k in config if k not in ("use_bias", "prior", "bias_variance")}
        options = ("input_dim", "output_dim", "mask_zero")
        return {**config, **{name: getattr(self, name) for name in options}}
