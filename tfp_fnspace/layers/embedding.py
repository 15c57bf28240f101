"""Embeddings whose table is drawn once for each function."""

from typing import Any

import keras
import tensorflow as tf

from tfp_fnspace.boundary import arguments
from tfp_fnspace.layers.variational import VariationalLayer
from tfp_fnspace.typing import Config, Shape, Tensor


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class VariationalEmbedding(VariationalLayer):
    """Embedding with one draw of the table for each function.

    The weights are the part `embeddings` of the posterior; there is no bias. An index is an input
    of `fan_in` 1, so the rules `"fan_in"` and `"standard"` are the same.

    Args:
        input_dim: Number of indices.
        output_dim: Length of the vector of an index.
        mask_zero: Whether the index 0 is padding, which later layers that use masks leave out.
        kernel_initializer: As for `VariationalLayer`; the default is standard normal.
        **kwargs: See `VariationalLayer`, without `use_bias`. `estimator` is `"function"` or
            `"local_reparameterization"`, which draws only the rows that are looked up, and draws
            again for each repeated index.

    Call arguments:
        inputs: Integers `[N]`, or `[N, ...]`, from 0 to `input_dim - 1`; never with an axis of
            draws.

    Returns:
        Tensor `[S, N, ..., output_dim]`.
    """

    estimators = ("function", "local_reparameterization")
    kernel_name = "embeddings"
    takes_indices = True
    heeds_masks = True

    input_dim: int
    output_dim: int

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        *,
        mask_zero: bool = False,
        kernel_initializer: Any = None,
        **kwargs: Any,
    ):
        if kernel_initializer is None:
            kernel_initializer = keras.initializers.RandomNormal(stddev=1.0)
        options = {"use_bias": False, "kernel_initializer": kernel_initializer, **kwargs}
        # Inputs are indices, which half precision would round.
        super().__init__(**{"autocast": False, **options})
        for name, value in {"input_dim": input_dim, "output_dim": output_dim}.items():
            setattr(self, name, arguments.checked_count(name, value))
        self.mask_zero = bool(mask_zero)
        if self.use_bias:
            raise ValueError("An embedding has no bias. Received: use_bias=True")

    def has_draws(self, input_shape: Shape) -> bool:
        return False

    def _check_rank(self, input_shape):
        """Accepts indices of any rank."""

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        return super().call(tf.cast(inputs, tf.int32), training)

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Any:
        return keras.ops.not_equal(inputs, 0) if self.mask_zero else None

    def kernel_shape(self, input_shape: Shape) -> tuple[int, int]:
        return (self.input_dim, self.output_dim)

    def fans(self, kernel_shape: tuple[int, int]) -> tuple[int, int]:
        return 1, kernel_shape[1]

    def map_each(self, x: Tensor, kernel: Tensor) -> Tensor:
        return tf.gather(kernel, x, axis=1)

    def map_all(self, x: Tensor, kernel: Tensor) -> Tensor:
        return tf.gather(kernel, x)

    def row_output_shape(self, row_shape: Shape) -> Shape:
        return (*row_shape, self.output_dim)

    def get_config(self) -> Config:
        config = super().get_config()
        del config["use_bias"]
        options = ("input_dim", "output_dim", "mask_zero")
        return {**config, **{name: getattr(self, name) for name in options}}
