"""Means of densities over draws of the scales: importance sampling in chunks (float64)."""

import math

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

#: Numbers in one chunk of an importance sample: 32 MB.
_CHUNK = 4_000_000


def log_mean_weight(log_weights, y, num_samples, matrix_shape, batch_shape, seed):
    """Logarithm of the mean of K weights `w_k(y)`, with its standard error by the delta method.

    Args:
        log_weights: Function of columns y `[B, N, S]`, a number of draws k and a seed to the
            logarithms of the weights `[k, B, S]`.
        y: float64 tensor `[S, B, N]`, S of any rank.
        num_samples: K.
        matrix_shape: Shape of the largest matrix of a draw, integers (rows, N).
        batch_shape: B, as a pair of a tensor and a `tf.TensorShape`.
        seed: Seed as TFP takes it.

    Returns:
        Estimate and standard error, `[S, B]`.
    """
    log_sum, log_squares = _log_sums(log_weights, y, num_samples, matrix_shape, batch_shape, seed)
    # Rounding takes it below 0 where all weights are equal.
    relative = tf.maximum(tf.exp(log_squares - 2.0 * log_sum) - 1.0 / num_samples, 0.0)
    return log_sum - math.log(num_samples), tf.sqrt(relative)


def _log_sums(log_weights, y, num_samples, matrix_shape, batch_shape, seed):
    """Logarithms of the sums of the weights and of their squares, two tensors `[S, B]`."""
    num_rows, size = matrix_shape
    batch, known_batch = batch_shape
    batch_rank = len(known_batch)
    outer = tf.shape(y)[: tf.rank(y) - batch_rank - 1]
    # y as columns [B, N, S]: one factor of Q serves all of them.
    y = tf.reshape(y, tf.concat([[-1], batch, [size]], axis=0))
    y = tf.transpose(y, [*range(1, batch_rank + 2), 0])
    numbers = (known_batch.num_elements() or 1) * size * (num_rows + (y.shape[-1] or 1))
    count = max(1, min(num_samples, _CHUNK // numbers))
    num_chunks = -(-num_samples // count)
    seeds = tf.stack(tfp.random.split_seed(seed, n=num_chunks, salt="stable_process"))

    def chunk(seed_and_start):
        seed, start = seed_and_start
        drawn = log_weights(y, count, seed)  # [count, B, S]
        is_drawn = start + tf.range(count) < num_samples
        is_drawn = tf.reshape(is_drawn, [count] + [1] * (batch_rank + 1))
        drawn = tf.where(is_drawn, drawn, -np.inf)
        return tf.stack([tf.reduce_logsumexp(power * drawn, axis=0) for power in (1.0, 2.0)])

    starts = count * tf.range(num_chunks)
    sums = tf.map_fn(chunk, (seeds, starts), fn_output_signature=tf.float64)
    sums = tf.reduce_logsumexp(sums, axis=0)  # [2, B, S]
    sums = tf.transpose(sums, [0, batch_rank + 1, *range(1, batch_rank + 1)])
    return tf.unstack(tf.reshape(sums, tf.concat([[2], outer, batch], axis=0)), num=2)
