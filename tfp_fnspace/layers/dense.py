"""Dense layers whose weights are drawn once for each function."""

import math
from typing import Any

import keras
import tensorflow as tf

from tfp_fnspace.boundary import arguments
from tfp_fnspace.layers.variational import ActivationFunction, VariationalLayer
from tfp_fnspace.typing import Config, Shape, Tensor


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class VariationalDense(VariationalLayer):
    r"""Dense layer with one draw of its weights for each function.

        f_s(x) = activation(x W_s + b_s),      (W_s, b_s) ~ q,  s = 1 ... S.

    Args:
        units: Number of outputs.
        activation: As in Keras, applied entry by entry.
        use_bias: Whether there is a bias.
        row_rank: Rank of the inputs of one row: 1 for `[N, D]` and `[S, N, D]`; 2 for sequences
            `[N, T, D]` and `[S, N, T, D]`, whose steps share the weights.
        **kwargs: See `VariationalLayer`.

    Call arguments:
        inputs: Tensor `[N, D]` or `[S, N, D]`.

    Returns:
        Tensor `[S, N, units]`.

    Raises:
        ValueError: If an argument is not as described.

    Example:
        >>> network = keras.Sequential(
        ...     [keras.Input((3,)), VariationalDense(50, "relu"), VariationalDense(1)]
        ... )
        >>> with layers.function_draws(num_samples=100, seed=0, noise="joint") as draws:
        ...     f = network(np.zeros((20, 3)))  # [100, 20, 1]
        >>> kl = draws.kl("float32")
    """

    estimators = ("function", "local_reparameterization", "flipout")
    heeds_masks = True

    units: int

    def __init__(
        self,
        units: int,
        activation: ActivationFunction = None,
        use_bias: bool = True,
        *,
        row_rank: int = 1,
        **kwargs: Any,
    ):
        super().__init__(activation=activation, use_bias=use_bias, **kwargs)
        for name, value in {"units": units, "row_rank": row_rank}.items():
            setattr(self, name, arguments.checked_count(name, value))

    def kernel_shape(self, input_shape: Shape) -> tuple[int, int]:
        if input_shape[-1] is None:
            raise ValueError(
                "The last axis of the inputs must be known. "
                f"Received: input_shape={tuple(input_shape)}"
            )
        return (input_shape[-1], self.units)

    def fans(self, kernel_shape: tuple[int, int]) -> tuple[int, int]:
        return kernel_shape

    def map_each(self, x: Tensor, kernel: Tensor) -> Tensor:
        return matmul_each(x, kernel, self.row_rank)

    def map_all(self, x: Tensor, kernel: Tensor) -> Tensor:
        return tf.tensordot(x, kernel, axes=1)

    def row_output_shape(self, row_shape: Shape) -> Shape:
        return (*row_shape[:-1], self.units)

    def get_config(self) -> Config:
        return {**super().get_config(), "units": self.units, "row_rank": self.row_rank}


def matmul_each(x: Tensor, kernel: Tensor, row_rank: int) -> Tensor:
    """Multiplies inputs by a matrix for each draw.

    Args:
        x: Tensor `[N, ..., in]` or `[S, N, ..., in]`.
        kernel: Tensor `[S, in, units]`.
        row_rank: Rank of the inputs of one row.

    Returns:
        Tensor `[S, N, ..., units]`.
    """
    if len(x.shape) == row_rank + 1:
        x = x[tf.newaxis]
    if row_rank == 1:
        return tf.matmul(x, kernel)
    shape = tf.unstack(tf.shape(x))
    flat = tf.reshape(x, [shape[0], math.prod(shape[1:-1]), x.shape[-1]])
    outputs = tf.matmul(flat, kernel)
    return tf.reshape(outputs, [-1, *shape[1:-1], kernel.shape[-1]])
