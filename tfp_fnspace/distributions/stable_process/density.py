"""Mean densities over draws of the scales, by importance sampling in chunks (float64)."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from tfp_fnspace.typing import Tensor

#: How many numbers one chunk of an importance sample has: 32 MB.
_CHUNK = 4_000_000


def log_mean_weight(
    log_weights: Callable[..., Tensor],
    y: Tensor,
    draws: Sequence[Tensor],
    matrix_shape: tuple[int, int],
    batch_shape: tuple[Tensor, tf.TensorShape],
) -> tuple[Tensor, Tensor]:
    """Returns the log of the mean of K weights `w_k(y)`, and its delta-method standard error.

    Args:
        log_weights: Function from columns y `[B, N, S]` and k draws to the logarithms of the
            weights `[k, B, S]`.
        y: float64 tensor `[S, B, N]`, S of any rank.
        draws: Tensors with K draws along their first axis. They are the same for every y and every
            member of the batch, so that a part of the batch has the same result.
        matrix_shape: Shape of the largest matrix of a draw, integers (rows, N).
        batch_shape: B, as a pair of a tensor and a `tf.TensorShape`.

    Returns:
        Estimate and standard error, `[S, B]`.
    """
    num_samples = draws[0].shape[0]
    log_sum, log_squares = _log_sums(log_weights, y, draws, matrix_shape, batch_shape)
    # Rounding makes this negative if all weights are equal.
    relative = tf.maximum(tf.exp(log_squares - 2.0 * log_sum) - 1.0 / num_samples, 0.0)
    return log_sum - math.log(num_samples), tf.sqrt(relative)


def _log_sums(log_weights, y, draws, matrix_shape, batch_shape):
    """Returns the logarithms of the sums of the weights and of their squares, both `[S, B]`."""
    num_rows, size = matrix_shape
    batch, known_batch = batch_shape
    batch_rank = len(known_batch)
    outer = tf.shape(y)[: tf.rank(y) - batch_rank - 1]
    # y becomes columns [B, N, S], so that one factor of Q serves all of them.
    y = tf.reshape(y, tf.concat([[-1], batch, [size]], axis=0))
    y = tf.transpose(y, [*range(1, batch_rank + 2), 0])
    numbers = (known_batch.num_elements() or 1) * size * (num_rows + (y.shape[-1] or 1))
    num_samples = draws[0].shape[0]
    count = max(1, min(num_samples, _CHUNK // numbers))
    num_chunks = -(-num_samples // count)

    def chunk(start):
        rows = start + tf.range(count)
        part = [tf.gather(draw, tf.minimum(rows, num_samples - 1)) for draw in draws]
        drawn = log_weights(y, *part)  # [count, B, S]
        is_drawn = tf.reshape(rows < num_samples, [count] + [1] * (batch_rank + 1))
        drawn = tf.where(is_drawn, drawn, -np.inf)
        return tf.stack([tf.reduce_logsumexp(power * drawn, axis=0) for power in (1.0, 2.0)])

    starts = count * tf.range(num_chunks)
    sums = tf.map_fn(chunk, starts, fn_output_signature=tf.float64)
    sums = tf.reduce_logsumexp(sums, axis=0)  # [2, B, S]
    sums = tf.transpose(sums, [0, batch_rank + 1, *range(1, batch_rank + 1)])
    return tf.unstack(tf.reshape(sums, tf.concat([[2], outer, batch], axis=0)), num=2)
