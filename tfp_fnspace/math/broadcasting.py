"""The gradient of broadcasting."""

import tensorflow as tf

from tfp_fnspace.typing import Tensor


def sum_to(values: Tensor, like: Tensor) -> Tensor:
    """Sums over the axes along which a tensor was broadcast: the gradient of broadcasting.

    Args:
        values: Tensor of the broadcast shape.
        like: The tensor that was broadcast to it.

    Returns:
        Tensor of the shape of `like`.
    """
    if like.shape.is_fully_defined() and like.shape == values.shape:
        return values
    shape = tf.shape(like)
    axes, _ = tf.raw_ops.BroadcastGradientArgs(s0=shape, s1=tf.shape(values))
    return tf.reshape(tf.reduce_sum(values, axis=axes), shape)
