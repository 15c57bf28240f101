"""Parameters of distributions and kernels: values known now, and those that come later."""

import tensorflow as tf
import tensorflow_probability as tfp


def is_deferred(value):
    """Whether its value is looked up at every use: of a variable or a deferred tensor."""
    return isinstance(value, tf.Variable | tfp.util.DeferredTensor)


def as_parameter(value, dtype=None):
    """A tensor, or the variable itself, so that its later values count.

    Args:
        value: Number, array, tensor, variable or deferred tensor.
        dtype: Floating dtype, None for its own.

    Returns:
        Tensor or what has a value later.
    """
    return value if is_deferred(value) else tf.convert_to_tensor(value, dtype=dtype)
