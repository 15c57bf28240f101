"""The distribution of a process at points given values at inducing points, and its draws."""

from typing import NamedTuple

import tensorflow as tf

from tfp_fnspace.math import linalg
from tfp_fnspace.typing import GaussianMoments


class ProcessMoments(NamedTuple):
    """Moments of a process of D outputs at N points and at M inducing points.

    Attributes:
        mean_x: Tensor `[N, D]`.
        mean_z: Tensor `[M, D]`.
        zz: Covariances between inducing points, `[D, M, M]`.
        zx: Covariances of inducing points (rows) with points, `[D, M, N]`.
        xx: Variances at the points, `[D, N]`.
    """

    mean_x: tf.Tensor
    mean_z: tf.Tensor
    zz: tf.Tensor
    zx: tf.Tensor
    xx: tf.Tensor


def empirical_moments(at_x, at_z):
    """Computes the moments of S draws of a process (equation 6).

        m(x) = 1/S sum_s f_s(x),   K(x, x') = 1/S sum_s (f_s(x) - m(x)) (f_s(x') - m(x'))

    Args:
        at_x: The draws at the points, `[S, N, D]`.
        at_z: The same draws at the inducing points, `[S, M, D]`.

    Returns:
        `ProcessMoments`.
    """
    mean_x, x = _centred(at_x)
    mean_z, z = _centred(at_z)
    variance = linalg.squared_column_norms(x)
    return ProcessMoments(
        mean_x,
        mean_z,
        linalg.outer_product(tf.linalg.matrix_transpose(z)),
        _product(z, x),
        variance,
    )


def _centred(draws):
    """Returns the mean `[N, D]` and `(f_s - m) / sqrt(S)`, `[D, S, N]`."""
    mean = tf.reduce_mean(draws, axis=0)
    scale = tf.math.rsqrt(tf.cast(tf.shape(draws)[0], draws.dtype))
    return mean, tf.transpose((draws - mean) * scale, [2, 0, 1])


def _product(a, b):
    return tf.matmul(a, b, transpose_a=True)


def exact_moments(process, x, z):
    """Computes the moments of a process that has them in closed form.

    Args:
        process: `processes.Process` with `has_moments`.
        x: Points `[N, ...]`.
        z: Inducing points `[M, ...]`.

    Returns:
        `ProcessMoments`.
    """
    count = tf.shape(z)[0]
    mean, covariance = (tf.cast(v, x.dtype) for v in process.moments(tf.concat([z, x], axis=0)))
    return ProcessMoments(
        mean[count:],
        mean[:count],
        covariance[:, :count, :count],
        covariance[:, :count, count:],
        tf.linalg.diag_part(covariance)[:, count:],
    )


class Conditional(NamedTuple):
    r"""The Gaussian distribution of values at points given values u at inducing points (eq. 13).

        f(x) | u ~ N(m(x) + w(x)^T (u - m(Z)), k(x)),   w(x) = (K_zz + j I)^-1 K_zx,
        k(x) = K_xx - K_xz (K_zz + j I)^-1 K_zx

    for each output separately.

    Attributes:
        mean_x: m(x), `[N, D]`.
        mean_z: m(Z), `[M, D]`.
        weights: w, `[D, M, N]`.
        variance: k, `[N, D]`.
        jitter: j, `[D]`.
        num_jittered: Number of matrices that needed more jitter than was given, int32.
    """

    mean_x: tf.Tensor
    mean_z: tf.Tensor
    weights: tf.Tensor
    variance: tf.Tensor
    jitter: tf.Tensor
    num_jittered: tf.Tensor

    def mean(self, u):
        """Returns the mean of f given u, `[S, N, D]` for u `[S, M, D]`."""
        return self.mean_x + _applied(self.weights, u - self.mean_z)

    def given(self, u):
        """Returns `GaussianMoments` of f given u, tensors `[S, N, D]`."""
        mean = self.mean(u)
        return GaussianMoments(mean, tf.broadcast_to(self.variance, tf.shape(mean)))

    def draw(self, u, process_x, process_z, normal):
        r"""Draws f given u by Matheron's rule.

            f(x) = g(x) + w(x)^T (u - g(Z) - sqrt(j) e)

        has the distribution of f given u, if g is a Gaussian process with the moments of the
        process and e is standard normal. It is a function of x.

        Args:
            u: Tensor `[S, M, D]`.
            process_x: g at the points, `[S, N, D]`.
            process_z: g at the inducing points, `[S, M, D]`.
            normal: e, `[S, M, D]`.

        Returns:
            Tensor `[S, N, D]`.
        """
        return process_x + _applied(self.weights, u - process_z - tf.sqrt(self.jitter) * normal)


def _applied(weights, values):
    """Returns `w(x)^T v` for each output, given `[D, M, N]` and `[S, M, D]`, as `[S, N, D]`."""
    products = tf.matmul(tf.transpose(values, [2, 0, 1]), weights)  # [D, S, N]
    return tf.transpose(products, [1, 2, 0])


def conditional(moments, jitter):
    """Computes the distribution given values at the inducing points.

    Args:
        moments: `ProcessMoments`.
        jitter: Variance added to the diagonal of `K_zz`, a number. If the sum is not positive
            definite in floating point, more is added (`math.linalg.cholesky`) and counted.

    Returns:
        `Conditional`.
    """
    diagonal = tf.linalg.diag_part(moments.zz)
    factor, extra = linalg.cholesky(tf.linalg.set_diag(moments.zz, diagonal + jitter))
    half = tf.linalg.triangular_solve(factor, moments.zx)  # [D, M, N]
    variance = tf.maximum(moments.xx - linalg.squared_column_norms(half), 0.0)
    return Conditional(
        moments.mean_x,
        moments.mean_z,
        tf.linalg.triangular_solve(factor, half, adjoint=True),
        tf.transpose(variance),
        jitter + extra,
        tf.math.count_nonzero(extra, dtype=tf.int32),
    )


def gaussian_process_draws(draws, coefficients):
    """Draws from the Gaussian process with the empirical moments of given draws.

        g(x) = m(x) + S^-1/2 sum_s a_s (f_s(x) - m(x)),   a ~ N(0, I)

    Args:
        draws: The f_s at points, `[S, N, D]`.
        coefficients: a, `[n, D, S]`. The outputs are independent, as in the conditional.

    Returns:
        Tensor `[n, N, D]`.
    """
    mean, centred = _centred(draws)
    products = tf.matmul(tf.transpose(coefficients, [1, 0, 2]), centred)  # [D, n, N]
    return mean + tf.transpose(products, [1, 2, 0])
