"""A kernel of a Gram matrix as a layer."""

import keras

from tfp_fnspace import kernels
from tfp_fnspace.methods.diwp.layers.base import GramLayer, positive


@keras.saving.register_keras_serializable(package="tfp_fnspace.diwp")
class GramKernel(GramLayer):
    """`K(G)`: a kernel applied to Gram matrices, entry by entry.

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
        ValueError: If there is no kernel of that name, or the dtype is neither float32 nor
            float64.
    """

    def __init__(self, kernel, learn_amplitude=False, **kwargs):
        super().__init__(**kwargs)
        self.kernel = kernels.get(kernel)
        self.learn_amplitude = bool(learn_amplitude)

    def build(self, blocks_shape):
        if self.learn_amplitude:
            self.log_amplitude = self.positive_weight("amplitude", 1.0, trainable=True)

    def call(self, blocks):
        kernel = self.kernel
        if self.learn_amplitude:
            kernel = kernel * positive(2.0 * self.log_amplitude)
        return kernel.blocks(self.unpack(blocks))

    def get_config(self):
        return {
            **super().get_config(),
            "kernel": kernels.serialize(self.kernel),
            "learn_amplitude": self.learn_amplitude,
        }
