r"""Data given the inducing points, inverse Wishart (equations 31 to 34) and Gaussian.

With K_ii = L L^T and a = L^-1 K_it, both need only `K_tt.i = K_tt - a^T a`. Gram matrices of the
data are assembled from the draw G_ii = C C^T without a further factorisation:

    G_ii^-1 G_it = L^-T (a + noise),     B = C^T G_ii^-1 G_it = M^T (a + noise),  M = L^-1 C,
    G_it = C B,     G_tt = G_tt.i + B^T B.
"""

from typing import NamedTuple

import tensorflow as tf

from tfp_fnspace.math import bartlett, replicas
from tfp_fnspace.math.linalg import outer_product, squared_column_norms
from tfp_fnspace.methods.diwp.layers.base import JITTER
from tfp_fnspace.typing import GramBlocks

#: The least variance of a data point given the inducing points.
_TINY = 1e-20


class GivenInducing(NamedTuple):
    """A kernel matrix of the data given the inducing points.

    Attributes:
        whitened: `a = L^-1 K_it`, `[S, P, N]`.
        variance: Diagonal of `K_tt - a^T a`, `[S, N]`, positive.
        covariance: The matrix, `[S, N, N]`, for the joint distribution of all points; else `None`.
    """

    whitened: tf.Tensor
    variance: tf.Tensor
    covariance: tf.Tensor | None = None


def given_inducing(factor, it, tt):
    """Computes the Schur complement of the inducing points.

    Args:
        factor: Cholesky factor of K_ii, `[S, P, P]`.
        it: `[S, P, N]`.
        tt: `[S, N]` or `[S, N, N]`.

    Returns:
        `GivenInducing`.
    """
    whitened = tf.linalg.triangular_solve(factor, it)
    covariance = None
    if tt.shape.rank == it.shape.rank:
        covariance = tt - tf.matmul(whitened, whitened, transpose_a=True)
        tt = tf.linalg.diag_part(tt)
    variance = tt - squared_column_norms(whitened)
    # This bounds rounding errors, and gives the square root a gradient where the kernel is 0.
    variance = tf.maximum(variance, JITTER[tt.dtype.name] * tt + _TINY)
    return GivenInducing(whitened, variance, covariance)


def joint_factor(draws, covariance, variance):
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


def sample_pointwise(draws, given, delta, num_inducing, extra):
    """Samples the inverse Wishart process at each data point separately.

    Args:
        draws: `FunctionDraws`.
        given: `GivenInducing` of K.
        delta: Scalar tensor.
        num_inducing: P.
        extra: Number of points that add to the degrees of freedom: 1 for a single one.

    Returns:
        Noise in whitened coordinates, `[S, P, N]`, and g_tt.i, `[S, N]`.
    """
    samples, dtype = draws.num_samples, delta.dtype
    count = tf.shape(given.variance)[-1]
    shape = 0.5 * (delta + num_inducing + 1.0 + tf.cast(extra, dtype))
    seed = draws.next_seed()
    log_gamma = replicas.of_all_rows(
        lambda rows: bartlett.log_gamma(tf.broadcast_to(shape, [samples, rows]), seed),
        1 if draws.noise == "shared" else count,
        axis=1,
    )
    variance = 0.5 * delta * given.variance * tf.exp(-log_gamma)
    noise = draws.point_normal([samples, num_inducing, count], dtype)
    return noise * tf.expand_dims(tf.sqrt(variance / delta), -2), variance


def sample_joint(draws, given, delta, num_inducing):
    """Samples the inverse Wishart process jointly at all data points (equation 34).

    Args:
        draws: `FunctionDraws`.
        given: `GivenInducing` of K with its matrix.
        delta: Scalar tensor.
        num_inducing: P.

    Returns:
        Noise in whitened coordinates, `[S, P, N]`, and G_tt.i, `[S, N, N]`.
    """
    samples, count = draws.num_samples, tf.shape(given.variance)[-1]
    factor = tf.sqrt(delta) * joint_factor(draws, given.covariance, given.variance)
    df = delta + tf.cast(num_inducing + 1 + count, delta.dtype)
    transposed = tf.broadcast_to(tf.linalg.matrix_transpose(factor), [samples, count, count])
    root = bartlett.solve_upper_factor(draws.next_seed(), df, transposed)  # G_tt.i = root^T root
    noise = draws.normal([samples, num_inducing, count], delta.dtype)
    noise = tf.matmul(noise, root) / tf.sqrt(delta)
    return noise, tf.matmul(root, root, transpose_a=True)


def assemble(k_factor, rotation, whitened, variance):
    """Assembles the Gram matrix in blocks.

    Args:
        k_factor: L, `[S, P, P]` or `[1, P, P]`.
        rotation: M = L^-1 C, `[S, P, P]`.
        whitened: a + noise, `[S, P, N]`.
        variance: g_tt.i, `[S, N]`, or G_tt.i, `[S, N, N]`.

    Returns:
        `GramBlocks`.
    """
    factor = tf.matmul(k_factor, rotation)
    coordinates = tf.matmul(rotation, whitened, transpose_a=True)
    if variance.shape.rank == coordinates.shape.rank:
        tt = variance + tf.matmul(coordinates, coordinates, transpose_a=True)
    else:
        tt = variance + squared_column_norms(coordinates)
    return GramBlocks(ii=outer_product(factor), it=tf.matmul(factor, coordinates), tt=tt)


def sample_gaussian(draws, given, mean):
    """Samples Gaussian functions at the data given the inducing points.

    Args:
        draws: `FunctionDraws`.
        given: `GivenInducing` of K.
        mean: Conditional means of the functions, `[S, N, D]`.

    Returns:
        Tensor `[S, N, D]`, independent between points, or joint if the draws are.
    """
    count, size = tf.shape(mean)[1], mean.shape[2]
    if draws.noise == "joint":
        factor = joint_factor(draws, given.covariance, given.variance)
        noise = draws.normal([draws.num_samples, count, size], mean.dtype)
        return mean + tf.matmul(factor, noise)
    noise = draws.point_normal([draws.num_samples, size, count], mean.dtype)
    noise = tf.sqrt(given.variance)[:, tf.newaxis, :] * noise
    return mean + tf.linalg.matrix_transpose(noise)
