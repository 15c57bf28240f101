r"""Refreshing the groups' scales from the prior, one group after the other.

For a group with pattern tau, total S and proposal S', the likelihood needs only the two numbers
`c = tau^T P tau` and `m = tau^T P y`, where P = Q^-1 (`equations.log_ratio`, `equations.gain`).

Groups are taken in blocks of `BLOCK`. Inside a block only `T^T P T` and `T^T P y` are followed, at
O(BLOCK) a step for each column. P is updated once a block by matrix products, so that the O(N^2)
operations a group run at the speed of a product of matrices.
"""

import tensorflow as tf

from tfp_fnspace.methods.stable_process import equations
from tfp_fnspace.methods.stable_process.samplers.problem import BLOCK
from tfp_fnspace.typing import Tensor


def refresh_groups(
    precision: Tensor, weighted: Tensor, signs: Tensor, changes: Tensor, log_uniforms: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Makes Metropolis-Hastings steps of all groups, each with K proposals in turn.

    Args:
        precision: `[B, N, N]`, P = Q^-1.
        weighted: `[B, N]`, P y.
        signs: `[N, G]`, G a multiple of `BLOCK`.
        changes: `[K, B, G]`, `nu (S' - S)` of the proposals against the state at the start; NaN
            refuses a proposal.
        log_uniforms: `[K, B, G]`.

    Returns:
        Updated `precision`, `weighted`, and `[B, G]` int32: 0 for a group that kept its scale,
        k for one that took proposal k.
    """
    chains, rows, _ = precision.shape
    blocks = signs.shape[1] // BLOCK

    def in_blocks(values):  # [K, B, G] to [blocks, BLOCK, K, B]
        split = tf.reshape(values, [values.shape[0], chains, blocks, BLOCK])
        return tf.transpose(split, [2, 3, 0, 1])

    columns = tf.transpose(tf.reshape(signs, [rows, blocks, BLOCK]), [1, 0, 2])
    changes, log_uniforms = in_blocks(changes), in_blocks(log_uniforms)

    def step(i, precision, weighted, chosen):
        block = columns[i]
        product = tf.matmul(tf.reshape(precision, [chains * rows, rows]), block)
        product = tf.reshape(product, [chains, rows, BLOCK])
        gram = tf.matmul(product, tf.broadcast_to(block, product.shape), transpose_a=True)
        slopes = tf.matmul(weighted, block)
        taken, gains, shifts, basis = _refresh_block(gram, slopes, changes[i], log_uniforms[i])
        vectors = tf.matmul(product, basis)  # [B, N, BLOCK], P tau at each group's turn
        precision -= tf.matmul(vectors * gains[:, tf.newaxis, :], vectors, transpose_b=True)
        weighted -= tf.linalg.matvec(vectors, shifts)
        return i + 1, precision, weighted, tf.tensor_scatter_nd_update(chosen, [[i]], [taken])

    chosen = tf.zeros([blocks, BLOCK, chains], tf.int32)
    _, precision, weighted, chosen = tf.while_loop(
        lambda i, *_: i < blocks,
        step,
        (0, precision, weighted, chosen),
        maximum_iterations=blocks,
    )
    return precision, weighted, tf.reshape(tf.transpose(chosen, [2, 0, 1]), [chains, -1])


def _refresh_block(gram, slopes, changes, log_uniforms):
    """Refreshes one block, followed in its own coordinates.

    `P tau_j` at the turn of group j is `P T r_j`. The earlier updates of the block subtracted a
    combination of their columns from it. `history` holds the column `T^T P tau_i` and the
    coordinates `r_i` of each update i.

    Returns:
        `taken` `[BLOCK, B]`, `gains` and `shifts` `[B, BLOCK]`, `basis` `[B, BLOCK, BLOCK]`.
    """
    chains = gram.shape[0]
    dtype = gram.dtype
    identity = tf.broadcast_to(tf.eye(BLOCK, dtype=dtype)[:, tf.newaxis], [BLOCK, chains, BLOCK])
    start = tf.concat([tf.transpose(gram, [2, 0, 1]), identity], axis=-1)  # [BLOCK, B, 2 BLOCK]

    def step(j, history, gains, shifts, taken):
        row = history[:, :, j]  # [BLOCK, B]
        column = start[j] - tf.reduce_sum((gains * row)[:, :, tf.newaxis] * history, axis=0)
        curvature = column[:, j]
        slope = slopes[:, j] - tf.reduce_sum(shifts * row, axis=0)
        change, number = _choose(changes[j], log_uniforms[j], curvature, slope)
        gain = equations.gain(change, curvature)
        at = [[j]]
        return (
            j + 1,
            tf.tensor_scatter_nd_update(history, at, [column]),
            tf.tensor_scatter_nd_update(gains, at, [gain]),
            tf.tensor_scatter_nd_update(shifts, at, [gain * slope]),
            tf.tensor_scatter_nd_update(taken, at, [number]),
        )

    zeros = tf.zeros([BLOCK, chains], dtype)
    state = (0, tf.zeros_like(start), zeros, zeros, tf.zeros([BLOCK, chains], tf.int32))
    _, history, gains, shifts, taken = tf.while_loop(
        lambda j, *_: j < BLOCK, step, state, maximum_iterations=BLOCK
    )
    basis = tf.transpose(history[:, :, BLOCK:], [1, 2, 0])
    return taken, tf.transpose(gains), tf.transpose(shifts), basis


def _choose(changes, log_uniforms, curvature, slope):
    """Makes a Metropolis-Hastings step with several proposals in turn, from c and m alone."""
    change = tf.zeros_like(curvature)
    number = tf.zeros(curvature.shape, tf.int32)
    current = tf.zeros_like(curvature)
    for k in range(changes.shape[0]):
        ratio = equations.log_ratio(changes[k], curvature, slope)
        accept = ratio - current > log_uniforms[k]  # false for NaN
        change = tf.where(accept, changes[k], change)
        current = tf.where(accept, ratio, current)
        number = tf.where(accept, k + 1, number)
    return change, number
