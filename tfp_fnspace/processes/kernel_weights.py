"""The parameters of a TFP kernel as the weights of a Keras layer."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_fnspace.kernels.description import build, describe
from tfp_fnspace.typing import ArrayLike, Config

tfpk = tfp.math.psd_kernels


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class KernelWeights(keras.layers.Layer):
    """A TFP kernel whose parameters are weights.

    Every tensor parameter t of the kernel and of its parts becomes a weight u with `t = b(u)`. Here
    b is the bijector that TFP names for it (`parameter_properties`), for example softplus for a
    scale. The initial values are those of the given kernel. `kernel()` builds the kernel from the
    present values, so that gradients reach the weights.

    The names and the arguments of the kernels are serialised, but no code. The kernels may be those
    of TFP and of `tfp_fnspace.kernels`, and classes registered by
    `keras.saving.register_keras_serializable`.

    Args:
        kernel: `PositiveSemidefiniteKernel`, or its description by `describe`.
        fixed: Names of parameters that are not learned: `"period"` for all parameters of that name,
            `"kernels/0/period"` for one in a sum.
        **kwargs: `name`, `dtype`, `trainable`.

    Raises:
        TypeError: If `kernel` is something else.
        ValueError: If a parameter has no known value, a class is not known by name, or a name in
            `fixed` matches no parameter.

    Example:
        >>> smooth = tfp.math.psd_kernels.ExponentiatedQuadratic(1.0, 0.5)
        >>> periodic = tfp.math.psd_kernels.ExpSinSquared(1.0, 1.0, period=2.0)
        >>> layer = KernelWeights(smooth + periodic, fixed=["period"])
        >>> layer.kernel().matrix(x, x)
    """

    def __init__(self, kernel: Any, fixed: Sequence[str] = (), **kwargs: Any):
        super().__init__(autocast=False, **kwargs)
        self.fixed = [fixed] if isinstance(fixed, str) else list(fixed)
        self.description = dict(kernel) if isinstance(kernel, dict) else describe(kernel)
        self.parameter_weights = {}
        unused = set(self.fixed)

        def add(path, value, bijector):
            names = {name for name in self.fixed if f"/{path}".endswith(f"/{name}")}
            unused.difference_update(names)
            start = tf.constant(value, tf.float64)
            start = start if bijector is None else bijector(tf.float64).inverse(start)
            self.parameter_weights[path] = self.add_weight(
                name=path.replace("/", "_"),
                shape=start.shape,
                initializer=keras.initializers.Constant(start.numpy()),
                trainable=bijector is not None and not names,
            )
            return value

        build(self.description, add)
        if unused:
            raise ValueError(
                f"`fixed` must name parameters out of {sorted(self.parameter_weights)}. "
                f"Received: fixed={self.fixed}"
            )
        self.built = True

    def kernel(self) -> Any:
        """Returns the kernel at the present values of the weights."""
        dtype = tf.as_dtype(self.variable_dtype)

        def read(path, _, bijector):
            value = tf.convert_to_tensor(self.parameter_weights[path].value)
            return value if bijector is None else bijector(dtype).forward(value)

        return build(self.description, read)

    def get_config(self) -> Config:
        return {**super().get_config(), "kernel": self.description, "fixed": self.fixed}


def ard_squared_exponential(
    num_features: int, amplitude: float = 1.0, length_scale: ArrayLike = 1.0
) -> Any:
    """Makes a squared exponential kernel with a length scale for each feature.

        k(x, x') = amplitude^2 exp(-sum_i (x_i - x'_i)^2 / (2 length_scale_i^2))

    Args:
        num_features: I, a positive integer.
        amplitude: Positive number.
        length_scale: Positive number, or one for each feature.

    Returns:
        `tfp.math.psd_kernels.FeatureScaled`, whose `scale_diag` are the length scales.

    References:
        Sun, Zhang, Shi and Grosse (2019), "Functional variational Bayesian neural networks", ICLR,
        section 5.2.1.
    """
    scales = np.broadcast_to(np.asarray(length_scale, np.float64), [num_features]).tolist()
    return tfpk.FeatureScaled(tfpk.ExponentiatedQuadratic(amplitude), scale_diag=scales)
