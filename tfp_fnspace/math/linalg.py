"""Cholesky factors that do not fail, and functions of a factor."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from tfp_fnspace.math.gradients import custom_gradient
from tfp_fnspace.typing import Tensor

#: `log_determinant_and_trace` takes a series if the Frobenius norm of A is below this.
_SMALL = {"float32": 3e-2, "float64": 1e-3}

_FIRST_JITTER = {tf.float32: 1e-6, tf.float64: 1e-12}
_LAST_JITTER = 1e3
_GROWTH = 10.0


class SafeCholesky(NamedTuple):
    """A factor and the jitter that it needed.

    Attributes:
        factor: Lower triangular L, `[..., k, k]`.
        jitter: The amount j that was added to the diagonal, `[...]`: 0 where none was needed,
            infinite where none helped (an entry is not finite, or the matrix is not nearly positive
            semidefinite; the factor then is NaN), so that `jitter > 0` counts every failure.
    """

    factor: tf.Tensor
    jitter: tf.Tensor


def cholesky(matrix: Tensor) -> SafeCholesky:
    r"""Returns lower triangular L with `L L^T = matrix + j I`, j = 0 wherever that has a factor.

    A batch member whose plain factorisation fails is tried again with

        j = s m, 10 s, 100 s, ... times m,   m = mean |diagonal| (1 if that is 0),

    s = 1e-6 in float32 and 1e-12 in float64, up to 1e3 m, which is far more than rounding needs.
    Members that succeeded keep their factor. If all do at once, which is the common case, this
    costs one factorisation.

    TensorFlow raises on no device when a factorisation fails: the lower triangle is NaN, and on
    CPUs the upper one is uninitialised memory.

    The gradient goes through the factorisation that was used; j is a constant in it.

    Args:
        matrix: Symmetric `[..., k, k]`, float32 or float64. Only the lower triangle is read.

    Returns:
        `SafeCholesky`.
    """
    matrix = tf.convert_to_tensor(matrix)
    factor, jitter = _search(tf.stop_gradient(matrix))
    return SafeCholesky(_differentiable(matrix, factor), jitter)


def _search(matrix):
    diagonal = tf.abs(tf.linalg.diag_part(matrix))
    unit = tf.reduce_mean(diagonal, axis=-1)
    unit = tf.where(unit > 0.0, unit, tf.ones_like(unit))
    identity = tf.eye(tf.shape(matrix)[-1], dtype=matrix.dtype)

    def is_needed(size, factor, _):
        return (size <= _LAST_JITTER) & ~tf.reduce_all(_has_succeeded(factor))

    def attempt(size, factor, jitter):
        is_good = _has_succeeded(factor)
        jitter = tf.where(is_good, jitter, size * unit)
        other = tf.linalg.cholesky(matrix + jitter[..., tf.newaxis, tf.newaxis] * identity)
        return size * _GROWTH, tf.where(is_good[..., tf.newaxis, tf.newaxis], factor, other), jitter

    first = tf.constant(_FIRST_JITTER[matrix.dtype], matrix.dtype)
    start = (first, tf.linalg.cholesky(matrix), tf.zeros_like(unit))
    _, factor, jitter = tf.while_loop(is_needed, attempt, start)
    return factor, tf.where(_has_succeeded(factor), jitter, tf.constant(math.inf, matrix.dtype))


def _has_succeeded(factor):
    diagonal = tf.linalg.diag_part(factor)
    return tf.reduce_all(tf.math.is_finite(diagonal) & (diagonal > 0.0), axis=-1)


@custom_gradient
def _differentiable(matrix, factor):
    """Returns `factor`, with the derivatives of a Cholesky factor of `matrix`.

    With P halving the diagonal of a lower triangle, `dL = L P(L^-1 dM L^-T)`, so that the gradient
    in M is the symmetric part of `L^-T P(L^T dL) L^-1`.
    """

    def gradient(upstream):
        lower = _differentiable(matrix, factor)  # so that this has derivatives too
        inner = tf.linalg.band_part(tf.matmul(lower, upstream, transpose_a=True), -1, 0)
        inner = tf.linalg.set_diag(inner, 0.5 * tf.linalg.diag_part(inner))
        outer = tf.linalg.triangular_solve(lower, inner, adjoint=True)  # [..., k, k]
        # From the right: (L^-T X)^T = X^T L^-1.
        outer = tf.linalg.triangular_solve(lower, tf.linalg.matrix_transpose(outer), adjoint=True)
        return 0.5 * (outer + tf.linalg.matrix_transpose(outer)), None

    return tf.identity(factor), gradient


def log_determinant(factor: Tensor) -> Tensor:
    """Returns `log |L L^T| = 2 sum_i log L_ii` of a triangular factor.

    Args:
        factor: Triangular `[..., k, k]` with positive diagonal.

    Returns:
        Tensor `[...]`.
    """
    return 2.0 * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(factor)), axis=-1)


class SafeLogDeterminant(NamedTuple):
    """A log determinant and the jitter that its factor needed.

    Attributes:
        value: `log |matrix + j I|`, `[...]`.
        jitter: As for `SafeCholesky`.
    """

    value: tf.Tensor
    jitter: tf.Tensor


def log_determinant_of(matrix: Tensor) -> SafeLogDeterminant:
    """Returns `log |matrix + j I|` with the jitter of `cholesky`.

    Its gradient is the inverse, which costs less than the gradient of a factor.

    Args:
        matrix: Symmetric `[..., k, k]`, float32 or float64.

    Returns:
        `SafeLogDeterminant`.
    """
    matrix = tf.convert_to_tensor(matrix)
    factor, jitter = _search(tf.stop_gradient(matrix))
    return SafeLogDeterminant(_log_determinant_of(matrix, factor), jitter)


@custom_gradient
def _log_determinant_of(matrix, factor):
    def gradient(upstream):
        slope = inverse(_differentiable(matrix, factor))  # so that this has derivatives too
        return upstream[..., tf.newaxis, tf.newaxis] * slope, None

    return log_determinant(factor), gradient


def inverse(factor: Tensor) -> Tensor:
    """Returns `(L L^T)^-1`.

    Args:
        factor: L, lower triangular, `[..., k, k]`.

    Returns:
        Tensor `[..., k, k]`.
    """
    identity = tf.eye(tf.shape(factor)[-1], dtype=factor.dtype)
    root = solve_lower(factor, identity)
    return tf.matmul(root, root, transpose_a=True)


@custom_gradient
def with_diagonal(matrix: Tensor) -> tuple[tuple[Tensor, Tensor], Callable[..., Any]]:
    """Returns a matrix and its diagonal; the gradient of the diagonal needs no second matrix.

    Args:
        matrix: `[..., k, k]`.

    Returns:
        The matrix, and a tensor `[..., k]`.
    """

    def gradient(upstream, diagonal):
        return tf.linalg.set_diag(upstream, tf.linalg.diag_part(upstream) + diagonal)

    return (tf.identity(matrix), tf.linalg.diag_part(matrix)), gradient


@custom_gradient
def outer_product(factor: Tensor) -> tuple[Tensor, Callable[..., Any]]:
    """Returns `A A^T`, with a gradient of one product instead of two.

    Args:
        factor: `[..., k, n]`.

    Returns:
        Tensor `[..., k, k]`.
    """

    def gradient(upstream):
        return tf.matmul(upstream + tf.linalg.matrix_transpose(upstream), factor)

    return tf.matmul(factor, factor, transpose_b=True), gradient


@custom_gradient
def squared_column_norms(matrix: Tensor) -> tuple[Tensor, Callable[..., Any]]:
    """Returns `diag(A^T A)`, with a gradient that makes no other matrix than the result.

    Args:
        matrix: `[..., k, n]`.

    Returns:
        Tensor `[..., n]`.
    """

    def gradient(upstream):
        return matrix * tf.expand_dims(2.0 * upstream, -2)

    return tf.reduce_sum(tf.square(matrix), axis=-2), gradient


@custom_gradient
def solve_upper(
    strictly_upper: Tensor, diagonal: Tensor, values: Tensor
) -> tuple[Tensor, Callable[..., Any]]:
    """Returns `U^-1 B` of an upper triangular U whose elements off the diagonal are constants.

    Args:
        strictly_upper: `[..., k, k]`; only entries above the diagonal are read, and it gets no
            gradient.
        diagonal: `[..., k]`.
        values: B, `[..., k, n]`.

    Returns:
        Tensor `[..., k, n]`.
    """
    upper = tf.linalg.set_diag(strictly_upper, diagonal)
    solution = tf.linalg.triangular_solve(upper, values, lower=False)

    def gradient(upstream):
        back = tf.linalg.triangular_solve(upper, upstream, lower=False, adjoint=True)
        return None, -tf.reduce_sum(back * solution, axis=-1), back

    return solution, gradient


def solve_lower(factor: Tensor, values: Tensor, adjoint: bool = False) -> Tensor:
    """Returns `L^-1 B`, or `L^-T B`, with broadcast batches.

    Args:
        factor: L, lower triangular, `[..., P, P]`.
        values: B, `[..., P, M]`.
        adjoint: Whether L is transposed.

    Returns:
        Tensor `[..., P, M]`.
    """
    batch = tf.broadcast_dynamic_shape(tf.shape(factor)[:-2], tf.shape(values)[:-2])
    factor = tf.broadcast_to(factor, tf.concat([batch, tf.shape(factor)[-2:]], axis=0))
    values = tf.broadcast_to(values, tf.concat([batch, tf.shape(values)[-2:]], axis=0))
    return tf.linalg.triangular_solve(factor, values, adjoint=adjoint)


def squared_norm_of_solution(a: Tensor, b: Tensor) -> Tensor:
    """Returns `||A^-1 B||_F^2 = tr((A A^T)^-1 B B^T)`.

    Args:
        a: Lower triangular `[..., k, k]`.
        b: `[..., k, n]`, whose batch broadcasts with that of `a`.

    Returns:
        Tensor of the broadcast batch shape.
    """
    batch = tf.broadcast_dynamic_shape(tf.shape(a)[:-2], tf.shape(b)[:-2])
    a, b = (tf.broadcast_to(v, tf.concat([batch, tf.shape(v)[-2:]], axis=0)) for v in (a, b))
    return tf.reduce_sum(tf.square(tf.linalg.triangular_solve(a, b)), axis=[-2, -1])


def log_determinant_and_trace(w: Tensor, gram: Tensor, factor: Tensor) -> tuple[Tensor, Tensor]:
    r"""Returns `log|I + A| - tr((I + A)^-1 A)` and `tr((I + A)^-1 A)` with `A = W W^T`.

    The first is the sum of `h(l) = log(1 + l) - l / (1 + l)` over the eigenvalues l of A. For small
    l, h is about `l^2 / 2`, the difference of two nearly equal numbers, and the divergence of
    inverse Wishart distributions multiplies it by the degrees of freedom. A series is therefore
    used for small A, and the gradients are products without a difference,

        2 A (I + A)^-2 W    and    2 (I + A)^-2 W.

    Args:
        w: W, `[..., k, n]`.
        gram: A, `[..., k, k]`.
        factor: Cholesky factor of I + A. No gradient passes through it or through `gram`.

    Returns:
        Two tensors of the batch shape.
    """
    gram, factor = tf.stop_gradient(gram), tf.stop_gradient(factor)

    @custom_gradient
    def terms(w):
        solved = tf.linalg.triangular_solve(factor, w)
        trace = tf.reduce_sum(tf.square(solved), axis=[-2, -1])
        squared = tf.matmul(gram, gram)
        second, third, fourth = (
            tf.reduce_sum(product, axis=[-2, -1])
            for product in (tf.square(gram), gram * squared, tf.square(squared))
        )
        series = second / 2.0 - 2.0 * third / 3.0 + 3.0 * fourth / 4.0
        is_small = second < _SMALL[w.dtype.name] ** 2
        excess = tf.where(is_small, series, log_determinant(factor) - trace)

        def gradient(of_excess, of_trace):
            once = tf.linalg.triangular_solve(factor, solved, adjoint=True)
            twice = tf.linalg.triangular_solve(factor, once)
            twice = tf.linalg.triangular_solve(factor, twice, adjoint=True)
            through = tf.matmul(w, tf.matmul(w, twice, transpose_a=True))
            of_excess, of_trace = (v[..., tf.newaxis, tf.newaxis] for v in (of_excess, of_trace))
            return 2.0 * (of_excess * through + of_trace * twice)

        return (excess, trace), gradient

    return terms(w)
