"""The base class of layers on Gram matrices."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfp_fnspace.boundary.arguments import checked_choice
from tfp_fnspace.layers import calls
from tfp_fnspace.layers.draws import FunctionDraws, current_draws
from tfp_fnspace.math.gradients import custom_gradient
from tfp_fnspace.typing import GramBlocks, Shape, Tensor

#: Jitter, relative to the mean diagonal, that is always added to the diagonal of a matrix before it
#: is factored. It exceeds the rounding of a Gram matrix. It acts as noise on the functions of each
#: layer, and data may have less noise.
JITTER = {"float32": 1e-6, "float64": 1e-11}

#: Bounds of positive parameters, which are trained on a logarithmic scale.
_SMALLEST, _LARGEST = 1e-6, 1e10


class GramLayer(keras.layers.Layer):
    """A layer from `GramBlocks` to `GramBlocks` (`[S, P, P]`, `[S, P, N]`, `[S, N]`).

    S is 1 up to the first layer that samples. For a joint distribution of the data points, `tt` is
    `[S, N, N]` and blocks have double precision whatever the weights have: in single precision,
    rounding would make neighbouring points differ.

    Half precision is not enough for Gram matrices: weights have single or double precision.
    """

    def __init__(self, **kwargs: Any):
        super().__init__(autocast=False, **kwargs)
        check_dtype(self.variable_dtype)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        calls.refuse_keras_training(self, "`fns.diwp.DIWPModel(network)`")
        return super().__call__(*args, **kwargs)

    def add_weight(self, *args: Any, **kwargs: Any) -> keras.Variable:
        """Adds a weight as Keras does, but without a cast under a policy of half precision."""
        return super().add_weight(*args, **{"autocast": False, **kwargs})

    @property
    def blocks_dtype(self) -> tf.DType:
        """The dtype in which the blocks are computed."""
        is_joint = current_draws().noise == "joint"
        return tf.float64 if is_joint else tf.as_dtype(self.variable_dtype)

    def unpack(self, blocks: Sequence[Tensor]) -> GramBlocks:
        """Returns `GramBlocks` in `blocks_dtype`; saved networks pass lists."""
        dtype = self.blocks_dtype
        return GramBlocks(*(tf.cast(block, dtype) for block in blocks))

    def with_jitter(self, matrix: Tensor) -> Tensor:
        """Returns the matrix with the `JITTER` of the weights' dtype added, see `with_jitter`."""
        return with_jitter(matrix, JITTER[self.variable_dtype])

    def positive_weight(
        self, name: str, initial: float, trainable: bool, shape: Shape = ()
    ) -> keras.Variable:
        """Adds a weight that holds the logarithm of a positive number."""
        return self.add_weight(
            name=f"log_{name}",
            shape=shape,
            initializer=keras.initializers.Constant(np.log(initial)),
            trainable=trainable,
        )

    def compute_output_spec(self, blocks: Any) -> Any:
        size = blocks[0].shape[-1]
        shapes = [(None, size, size), (None, size, None), (None, None)]
        return GramBlocks(*(keras.KerasTensor(s, self.variable_dtype) for s in shapes))


def positive(log_weight: keras.Variable | Tensor) -> Tensor:
    """Returns the positive number whose logarithm a weight holds, within bounds."""
    return tf.exp(_bounded(tf.convert_to_tensor(log_weight)))


@custom_gradient
def _bounded(values):
    """Clips logarithms to the bounds; outside, only gradients that lead inside are kept."""
    low, high = np.log([_SMALLEST, _LARGEST])

    def gradient(upstream):
        returns = ((values < low) & (upstream < 0.0)) | ((values > high) & (upstream > 0.0))
        inside = (values >= low) & (values <= high)
        return tf.where(inside | returns, upstream, tf.zeros_like(upstream))

    return tf.clip_by_value(values, low, high), gradient


def with_jitter(matrix: Tensor, jitter: float) -> Tensor:
    """Adds `jitter` times the mean diagonal of a matrix to its diagonal.

    The mean is also differentiated. If most eigenvalues are only the jitter, the gradient in the
    size of the matrix would otherwise miss most of that of the log determinant.
    """

    @custom_gradient
    def add(values):
        # The map is its own transpose.
        diagonal = tf.linalg.diag_part(values)
        unit = tf.reduce_mean(diagonal, axis=-1, keepdims=True)
        return tf.linalg.set_diag(values, diagonal + jitter * unit), add

    return add(matrix)


def joint_factor(draws: FunctionDraws, covariance: Tensor, variance: Tensor) -> Tensor:
    """Factorises a covariance without changing the variance of each point.

    Jitter that rounding requires is added to the correlations, so that one point with a large
    variance does not change the distribution of the others. Rows are then scaled so that no point
    changes its own variance.

    Args:
        draws: `FunctionDraws`.
        covariance: `[..., N, N]`, positive semidefinite up to rounding.
        variance: Its diagonal, positive, `[..., N]`.

    Returns:
        Lower triangular tensor `[..., N, N]`.
    """
    scale = tf.sqrt(variance)
    correlations = covariance / (scale[..., :, tf.newaxis] * scale[..., tf.newaxis, :])
    correlations = tf.clip_by_value(correlations, -1.0, 1.0)
    factor = draws.cholesky(tf.linalg.set_diag(correlations, tf.ones_like(scale)))
    return tf.math.l2_normalize(factor, axis=-1) * scale[..., tf.newaxis]


def check_dtype(dtype: str) -> None:
    """Refuses weights of half precision.

    Raises:
        ValueError: If the dtype is another one.
    """
    checked_choice("dtype", dtype, JITTER)
