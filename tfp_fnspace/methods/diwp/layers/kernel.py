"""A kernel of a Gram matrix as a layer."""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tfp_fnspace import kernels
from tfp_fnspace.methods.diwp.layers.base import GramLayer, positive
from tfp_fnspace.typing import Config, GramBlocks, Shape, Tensor


def without_variables(kernel: Any) -> Any:
    """Returns a kernel, whose parameters must be constants.

    Raises:
        ValueError: If a parameter is a variable, which no layer would train.
    """
    for part in getattr(kernel, "kernels", ()):
        without_variables(part)
    for name, value in vars(kernel).items():
        if hasattr(value, "assign"):
            raise ValueError(
                "The parameters of a layer's kernel must be constants; a model learns the scale "
                "of the inputs and, with `learn_amplitude`, that of the kernel. Received: "
                f"kernel={type(kernel).__name__} with the variable {name}"
            )
    return kernel


@keras.saving.register_keras_serializable(package="tfp_fnspace.diwp")
class KernelOfGram(GramLayer):
    """`K(G)`, a kernel that is applied to Gram matrices entry by entry.

    Args:
        kernel: A kernel of `tfp_fnspace.kernels`, or its name: `"relu"`, `"squared_exponential"`,
            `"matern32"` ...
        learn_amplitude: Whether the result is multiplied by the square of a learned number that
            starts at 1.
        **kwargs: `name`, `dtype`.

    Call arguments:
        blocks: `GramBlocks`.

    Returns:
        `GramBlocks` of the same shapes.

    Raises:
        TypeError: If `kernel` is neither a kernel nor a name nor a configuration.
        ValueError: If there is no kernel of this name, if one of its parameters is a variable
            (which would not be a weight of the layer), or if the dtype is neither float32 nor
            float64.
    """

    def __init__(self, kernel: Any, *, learn_amplitude: bool = False, **kwargs: Any):
        super().__init__(**kwargs)
        self.kernel = without_variables(kernels.get(kernel))
        self.learn_amplitude = bool(learn_amplitude)

    def build(self, blocks_shape: Sequence[Shape]) -> None:
        if self.learn_amplitude:
            self.log_amplitude = self.positive_weight("amplitude", 1.0, trainable=True)

    def call(self, blocks: Sequence[Tensor]) -> GramBlocks:
        kernel, blocks = self.kernel, self.unpack(blocks)
        if self.learn_amplitude:
            kernel = kernel * tf.cast(positive(2.0 * self.log_amplitude), blocks.it.dtype)
        return kernel.blocks(blocks)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "kernel": kernels.serialize(self.kernel),
            "learn_amplitude": self.learn_amplitude,
        }
