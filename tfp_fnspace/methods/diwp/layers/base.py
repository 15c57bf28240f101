"""What the layers on Gram matrices have in common."""

import keras
import numpy as np
import tensorflow as tf

from tfp_fnspace.arguments import checked_choice
from tfp_fnspace.layers import calls
from tfp_fnspace.layers.draws import current_draws
from tfp_fnspace.typing import GramBlocks

#: What is always added to the diagonal of a matrix before it is factored, times its mean: more than
#: the rounding of a Gram matrix. It is noise on functions, of each layer, and data may have less.
JITTER = {"float32": 1e-6, "float64": 1e-11}

#: Bounds of positive parameters, which are trained on a logarithmic scale.
_SMALLEST, _LARGEST = 1e-6, 1e10


class GramLayer(keras.layers.Layer):
    """A layer from `GramBlocks` to `GramBlocks` (`[S, P, P]`, `[S, P, N]`, `[S, N]`).

    S is 1 up to the first layer that samples. Where a joint law of the data points is asked for,
    `tt` is `[S, N, N]`, and blocks are of double precision whatever the weights are: in single
    precision rounding would tell a point from one close to it.

    Half precision is not for Gram matrices: weights are of single or double.
    """

    def __init__(self, **kwargs):
        super().__init__(autocast=False, **kwargs)
        check_dtype(self.variable_dtype)

    def __call__(self, *args, **kwargs):
        calls.refuse_keras_training(self, "`fns.diwp.DIWPModel(network)`")
        return super().__call__(*args, **kwargs)

    def add_weight(self, *args, **kwargs):
        """As in Keras; a weight is not cast under a policy of half precision either."""
        return super().add_weight(*args, **{"autocast": False, **kwargs})

    @property
    def blocks_dtype(self):
        """What the blocks are computed in, a dtype."""
        is_joint = current_draws().noise == "joint"
        return tf.float64 if is_joint else tf.as_dtype(self.variable_dtype)

    def unpack(self, blocks):
        """`GramBlocks` of `blocks_dtype`; saved networks hand over lists."""
        dtype = self.blocks_dtype
        return GramBlocks(*(tf.cast(block, dtype) for block in blocks))

    def with_jitter(self, matrix):
        """The matrix with `JITTER` of the weights' dtype, times its mean diagonal, added."""
        return with_jitter(matrix, JITTER[self.variable_dtype])

    def positive_weight(self, name, initial, trainable, shape=()):
        """A weight that holds the logarithm of a positive number."""
        return self.add_weight(
            name=f"log_{name}",
            shape=shape,
            initializer=keras.initializers.Constant(np.log(initial)),
            trainable=trainable,
        )

    def compute_output_spec(self, blocks):
        size = blocks[0].shape[-1]
        shapes = [(None, size, size), (None, size, None), (None, None)]
        return GramBlocks(*(keras.KerasTensor(s, self.variable_dtype) for s in shapes))


def positive(log_weight):
    """The positive number whose logarithm a weight holds, within bounds."""
    return tf.exp(_bounded(tf.convert_to_tensor(log_weight)))


@tf.custom_gradient
def _bounded(values):
    """Logarithms within the bounds; one that is outside has the gradients that lead inside."""
    low, high = np.log([_SMALLEST, _LARGEST])

    def gradient(upstream):
        returns = ((values < low) & (upstream < 0.0)) | ((values > high) & (upstream > 0.0))
        inside = (values >= low) & (values <= high)
        return tf.where(inside | returns, upstream, tf.zeros_like(upstream))

    return tf.clip_by_value(values, low, high), gradient


def with_jitter(matrix, jitter):
    """The matrix with `jitter` times its mean diagonal on the diagonal.

    The mean is differentiated too: where most eigenvalues are the jitter, the gradient in the size
    of the matrix would otherwise miss most of the log-determinant's.
    """

    @tf.custom_gradient
    def add(values):
        # The map is its own transpose.
        diagonal = tf.linalg.diag_part(values)
        unit = tf.reduce_mean(diagonal, axis=-1, keepdims=True)
        return tf.linalg.set_diag(values, diagonal + jitter * unit), add

    return add(matrix)


def check_dtype(dtype):
    """Refuses weights of half precision.

    Raises:
        ValueError: With the dtype.
    """
    checked_choice("dtype", dtype, JITTER)
