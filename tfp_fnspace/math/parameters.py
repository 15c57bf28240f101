"""Parameters of distributions and kernels: values that are known now, and later values."""

from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp


def is_deferred(value: Any) -> bool:
    """Returns whether a value is looked up at every use: a variable or a deferred tensor."""
    return isinstance(value, tf.Variable | tfp.util.DeferredTensor)


def as_parameter(value: Any, dtype: tf.DType | None = None) -> Any:
    """Returns a tensor, or the variable itself, so that its later values count.

    Args:
        value: Number, array, tensor, variable or deferred tensor.
        dtype: Floating dtype, None for that of the value.

    Returns:
        Tensor, variable or deferred tensor.
    """
    return value if is_deferred(value) else tf.convert_to_tensor(value, dtype=dtype)
