"""The normal distributions of the process for given scales (float64)."""

import math

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_fnspace.typing import Array, Distribution, Tensor

tfd = tfp.distributions

#: Logarithms of variances are kept within +-600 when squares of their roots are summed. The
#: densities of draws beyond that are negligible compared with any other.
_LARGEST_LOG = 600.0

_LOG_TWO_PI = math.log(2.0 * math.pi)


def covariance(signs: Array, log_variances: Tensor, noise: Tensor) -> Tensor:
    """Returns `Q = sum_l d_l tau_l tau_l' + noise^2 I`.

    Args:
        signs: float64 array `[L, N]`.
        log_variances: log d, float64 tensor `[..., L]`.
        noise: float64 tensor `[..., 1]`.

    Returns:
        float64 tensor `[..., N, N]`.
    """
    tau = tf.constant(signs)
    variances = tf.exp(log_variances)
    total = tf.linalg.matmul(variances[..., tf.newaxis] * tau, tau, transpose_a=True)
    noise = tf.square(noise)[..., tf.newaxis]
    return total + noise * tf.eye(signs.shape[1], dtype=tf.float64)


def root(signs: Array, log_variances: Tensor, noise: Tensor) -> Tensor:
    """Returns R with `R'R = sum_l d_l tau_l tau_l' + diag(noise^2)`, by QR. O((L + N) N^2).

    It is not computed from the sum itself: single variances are often 1e16 times the others (at
    alpha = 1 one in 1e8), and then the Cholesky factor of the sum does not exist in float64.

    Args:
        signs: float64 array `[L, N]`.
        log_variances: log d, float64 tensor `[..., L]`.
        noise: float64 tensor `[..., N]` or `[..., 1]` that broadcasts with it.

    Returns:
        Upper triangular float64 tensor `[..., N, N]`.
    """
    size = signs.shape[1]
    log_variances = tf.clip_by_value(log_variances, -_LARGEST_LOG, _LARGEST_LOG)
    above = tf.exp(0.5 * log_variances)[..., tf.newaxis] * signs
    below = noise[..., tf.newaxis] * tf.eye(size, dtype=tf.float64)
    batch = tf.broadcast_dynamic_shape(tf.shape(above)[:-2], tf.shape(below)[:-2])
    above, below = (
        tf.broadcast_to(part, tf.concat([batch, tf.shape(part)[-2:]], axis=0))
        for part in (above, below)
    )
    return tf.linalg.qr(tf.concat([above, below], axis=-2)).r


def conditional(root: Tensor, y: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Returns mean and covariance root of the last points given the first (Proposition 2).

    With the factor R of `Q = R'R` in blocks, the mean is `R_o*' R_oo^-T y` and the covariance is
    `R_**' R_**`. No matrices are subtracted.

    Args:
        root: R of both sets of points, observations first, `[..., n + N, n + N]`.
        y: Observations, float64 tensor `[..., n]`.
        n: Number of observations.

    Returns:
        Mean `[..., N]` and root `[..., N, N]`.
    """
    whitened = _solve_transposed(root[..., :n, :n], y[..., tf.newaxis])
    loc = tf.linalg.matmul(root[..., :n, n:], whitened, transpose_a=True)[..., 0]
    return loc, root[..., n:, n:]


def normal(loc: float | Tensor, root: Tensor, dtype: tf.DType) -> Distribution:
    """Makes the distribution N(loc, root' root), with a non-negative diagonal of its factor."""
    diagonal = tf.linalg.diag_part(root)
    turned = tf.where(diagonal < 0.0, -tf.ones_like(diagonal), tf.ones_like(diagonal))
    tril = tf.linalg.matrix_transpose(root * turned[..., tf.newaxis])
    loc = tf.broadcast_to(
        tf.cast(loc, dtype), tf.broadcast_dynamic_shape(tf.shape(loc), tf.shape(tril)[:-1])
    )
    return tfd.MultivariateNormalTriL(loc, tf.cast(tril, dtype))


def log_densities(y: Tensor, root: Tensor, size: int) -> Tensor:
    """Returns `log N(y; 0, root' root)` of the columns of y.

    Args:
        y: float64 tensor `[..., N, S]`.
        root: Upper triangular float64 tensor `[..., N, N]`.
        size: N.

    Returns:
        float64 tensor `[..., S]`.
    """
    whitened = _solve_transposed(root, y)
    log_det = tf.reduce_sum(tf.math.log(tf.abs(tf.linalg.diag_part(root))), axis=-1)
    squares = tf.reduce_sum(tf.square(whitened), axis=-2)
    return -0.5 * squares - log_det[..., tf.newaxis] - 0.5 * size * _LOG_TWO_PI


def _solve_transposed(root, y):
    """Returns `R^-T y` for upper triangular R `[..., N, N]` and columns y `[..., N, S]`."""
    return tf.linalg.triangular_solve(root, y, lower=False, adjoint=True)
