r"""Equations 10 to 16 of TAGI with full covariances, which section 4.1 compares with diagonal ones.

The covariance S of all units of a layer is kept here, of which `equations` has the diagonal only.
Equations 10 and 12 are

    z = a W + b      mz = ma mw + mb     Sz = mw' Sa mw + diag((ma^2 + diag Sa) Sw + Sb)
    a = f(z)         Sa = J Sz J,  J = diag(slope)

for independent weights. Suppose now that all weights and biases of a layer have a covariance C,
with W and b as rows of one matrix and a_1 = (a, 1). The second term of Sz is then `sum_il E[a_1i
a_1l] C[i j, l k]`.

Innovations are a vector d and a matrix G for each row, and posterior moments are `m + S d` and `S +
S G S`. At the outputs, `d = K^-1 (y - m)` and `G = -K^-1` with `K = Sz + scale^2` (equation 14). By
equations 15 and 16, then,

    units                  d_a = mw d_z               G_a = mw G_z mw'
    activation             d_z = J d_a                G_z = J G_a J
    independent weights    dm_ij = ma_i d_j           dS_ij = ma_i^2 G_jj
    weights with C         change of the mean c d     of the covariance c G c',  c = cov(w, z)

`chain` applies these lines to the layers of a network.
"""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from tfp_fnspace.methods.tagi.equations import MomentsAndSlope, Pair
from tfp_fnspace.typing import Tensor


class UnitMoments(NamedTuple):
    """Mean `[N, A]` and covariance `[N, A, A]` of the units of a layer."""

    mean: tf.Tensor
    covariance: tf.Tensor


# Forward -----------------------------------------------------------------------------------------


def dense_moments(units: UnitMoments, kernel: Pair, bias: Pair | None) -> UnitMoments:
    """Returns the moments of `z = a W + b` for independent weights (equation 10).

    Args:
        units: Moments of a, `[N, I]` and `[N, I, I]`.
        kernel: Mean and variance of W, tensors `[I, J]`.
        bias: Mean and variance of b, tensors `[J]`, or `None`.

    Returns:
        Moments of z, `[N, J]` and `[N, J, J]`.
    """
    out = _known_dense_moments(units, kernel, bias)
    second = tf.square(units.mean) + tf.linalg.diag_part(units.covariance)
    own = tf.matmul(second, kernel[1])
    if bias is not None:
        own += bias[1]
    return UnitMoments(out.mean, out.covariance + tf.linalg.diag(own))


def joint_dense_moments(
    units: UnitMoments, kernel: Pair, bias: Pair | None, parameters: Tensor
) -> UnitMoments:
    """Returns the moments of `z = a W + b` for weights with a covariance (equation 10).

    Args:
        units: Moments of a, `[N, I]` and `[N, I, I]`.
        kernel: As for `dense_moments`.
        bias: As for `dense_moments`.
        parameters: Tensor `[P, J, P, J]`, the covariance of W and, as its last row, b. P is I + 1
            with a bias, otherwise I.

    Returns:
        Moments of z, `[N, J]` and `[N, J, J]`.
    """
    out = _known_dense_moments(units, kernel, bias)
    rows = with_one(units.mean, bias is not None)
    second = tf.einsum("ni,nl->nil", rows, rows)
    extra = rows.shape[1] - units.mean.shape[1]
    second += tf.pad(units.covariance, [[0, 0], [0, extra], [0, extra]])
    own = tf.einsum("nil,ijlk->njk", second, parameters)
    return UnitMoments(out.mean, out.covariance + own)


def _known_dense_moments(units: UnitMoments, kernel: Pair, bias: Pair | None) -> UnitMoments:
    """Returns the moments of z as if the weights were known to be their means."""
    mean, covariance = units
    out_mean = tf.matmul(mean, kernel[0])
    if bias is not None:
        out_mean += bias[0]
    return UnitMoments(out_mean, tf.einsum("nil,ij,lk->njk", covariance, kernel[0], kernel[0]))


def with_one(mean: Tensor, use_bias: bool) -> Tensor:
    """Appends the 1 that belongs to the bias to inputs `[N, I]`."""
    return tf.concat([mean, tf.ones_like(mean[:, :1])], axis=1) if use_bias else mean


def activation_moments(
    moments: Callable[[Tensor, Tensor], MomentsAndSlope], units: UnitMoments
) -> tuple[UnitMoments, Tensor]:
    """Returns the moments of activations and their slopes (equation 12).

    Args:
        moments: Function `(mean, variance) -> (mean, variance, slope)`.
        units: Moments of z, `[N, A]` and `[N, A, A]`.

    Returns:
        Moments of the same shapes, whose variances are those of `moments`, and slopes `[N, A]`.
    """
    mean, variance, slope = moments(units.mean, tf.linalg.diag_part(units.covariance))
    covariance = tf.linalg.set_diag(_on_both_sides(slope, units.covariance), variance)
    return UnitMoments(mean, covariance), slope


# Backward ----------------------------------------------------------------------------------------


def output_innovation(
    units: UnitMoments, targets: Tensor, observed: Tensor, noise_variance: Tensor
) -> Pair:
    """Returns `K^-1 (y - m)` and `-K^-1` with the covariance K of the observed targets.

    This is equation 14. Both are 0 for the other targets.

    Args:
        units: `UnitMoments` of the outputs.
        targets: Tensor `[N, D]`.
        observed: Boolean tensor `[N, D]`.
        noise_variance: `[]` or `[D]`.

    Returns:
        Tensors `[N, D]` and `[N, D, D]`.
    """
    weight = tf.cast(observed, targets.dtype)
    noise = weight * noise_variance + (1.0 - weight)
    covariance = _on_both_sides(weight, units.covariance) + tf.linalg.diag(noise)
    identity = tf.linalg.diag(tf.ones_like(targets))
    inverse = tf.linalg.cholesky_solve(tf.linalg.cholesky(covariance), identity)
    inverse = _on_both_sides(weight, inverse)
    residual = tf.where(observed, targets - units.mean, tf.zeros_like(targets))
    return tf.linalg.matvec(inverse, residual), -inverse


def dense_innovation(kernel_mean: Tensor, vector: Tensor, matrix: Tensor) -> Pair:
    """Returns the innovation of a given that of `z = a W + b` (equation 15).

    Args:
        kernel_mean: Tensor `[I, J]`.
        vector: Tensor `[N, J]`, d of z.
        matrix: Tensor `[N, J, J]`, G of z.

    Returns:
        Tensors `[N, I]` and `[N, I, I]`.
    """
    return (
        tf.matmul(vector, kernel_mean, transpose_b=True),
        tf.einsum("ij,njk,lk->nil", kernel_mean, matrix, kernel_mean),
    )


def activation_innovation(slope: Tensor, vector: Tensor, matrix: Tensor) -> Pair:
    """Returns the innovation of z given that of `a = f(z)`, tensors `[N, A]` and `[N, A, A]`."""
    return slope * vector, _on_both_sides(slope, matrix)


def parameter_innovations(
    mean: Tensor, vector: Tensor, matrix: Tensor, use_bias: bool
) -> list[Tensor]:
    """Returns the innovations of independent weights, summed over the rows (equation 16).

    Args:
        mean: Tensor `[N, I]`, mean of a.
        vector: Tensor `[N, J]`, d of z.
        matrix: Tensor `[N, J, J]`, G of z.
        use_bias: Whether there is a bias.

    Returns:
        List of dm and dS of W, tensors `[I, J]`, and of b, tensors `[J]`, if there is one.
    """
    own = tf.linalg.diag_part(matrix)
    kernel = [
        tf.matmul(mean, vector, transpose_a=True),
        tf.matmul(tf.square(mean), own, transpose_a=True),
    ]
    bias = [tf.reduce_sum(vector, axis=0), tf.reduce_sum(own, axis=0)] if use_bias else []
    return kernel + bias


def joint_update(parameters: Tensor, inputs: Tensor, vector: Tensor, matrix: Tensor) -> Pair:
    """Returns the changes of weights with a covariance, given one row (equation 16).

    Args:
        parameters: Tensor `[P, J, P, J]`, see `joint_dense_moments`.
        inputs: Tensor `[1, P]`, mean of a, see `with_one`.
        vector: Tensor `[1, J]`, d of z.
        matrix: Tensor `[1, J, J]`, G of z.

    Returns:
        Change of the means `[P J]`, and posterior covariance `[P J, P J]`.
    """
    cross = tf.einsum("ijlk,nl->nijk", parameters, inputs)  # cov(w, z)
    size = parameters.shape[0] * parameters.shape[1]
    cross = tf.reshape(cross[0], [size, -1])
    full = tf.reshape(parameters, [size, size])
    step = tf.linalg.matvec(cross, vector[0])
    full += tf.matmul(tf.matmul(cross, matrix[0]), cross, transpose_b=True)
    return step, 0.5 * (full + tf.transpose(full))


def _on_both_sides(vector: Tensor, matrix: Tensor) -> Tensor:
    """Returns `diag(v) M diag(v)` for `[N, A]` and `[N, A, A]`."""
    return vector[:, :, tf.newaxis] * matrix * vector[:, tf.newaxis, :]
