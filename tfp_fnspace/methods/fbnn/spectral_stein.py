"""The spectral Stein gradient estimator of gradients of log densities from samples."""

import tensorflow as tf

from tfp_fnspace.boundary.arguments import checked_positive
from tfp_fnspace.methods.fbnn import equations
from tfp_fnspace.typing import ArrayLike, Tensor

_SMALLEST_SQUARED_LENGTH = 1e-20
_MOST_NEIGHBOURS = 16

#: Least variances, and least eigenvalues of correlations, that are divided out.
_SMALLEST_VARIANCE, _SMALLEST_EIGENVALUE = 1e-20, 1e-5


def spectral_stein_score(
    samples: ArrayLike,
    points: ArrayLike | None = None,
    share: float = 0.99,
    bandwidth: float = 1.0,
    whiten: bool = False,
) -> Tensor:
    r"""Estimates the gradient of the log density of the distribution of samples.

    With M samples x_m, `k(x, x') = exp(-|x - x'|^2 / (2 h^2))` and `K = U Lambda U^T`,

        score(x) = sum_j beta_j psi_j(x)                                               (equation 2)
        psi_j(x) = sqrt(M) / lambda_j sum_m U_mj k(x, x_m)
        beta_j = -1/M sum_m grad psi_j(x_m)

    over the leading eigenvalues. These are the fewest (at least one) that have `share` of the sum,
    and are chosen at each call. `equations.stein_score` has the matrix form.

    Far from all samples the estimate tends to 0, not to the score, so it is only for points near
    samples. Eigenvalues below the rounding error are never kept.

    The result is a constant in gradients (and so are samples, points and h). This is how the score
    enters the gradient of a divergence (equation 11); moreover, the derivatives of eigenvectors are
    infinite if eigenvalues are equal.

    A single length h for all directions misses those in which the samples spread little, where the
    score is largest. With `whiten` the estimate is made for `z = L^-1 (x - mean)`, where `L L^T` is
    the covariance of the samples, and transformed back by `score(x) = L^-T score(z)`. Correlations
    are shrunk by `1 / (1 + (d / M)^2)`, since few samples say little about them.

    The cost is O(M^3 + M^2 d) for each member of the batch, plus O(d^3 + M d^2) with `whiten`.
    `tf.linalg.eigh` is 10 times slower when compiled by XLA on CPUs, so keep this outside of
    `jit_compile=True` there.

    Args:
        samples: x_m, floating tensor `[..., M, d]`, M at least 2.
        points: Points at which to estimate the score, `[..., P, d]` with the same batch; None for
            the samples.
        share: Number in (0, 1].
        bandwidth: h in units of the median distance of two samples, positive. The authors use 1; 2
            is more accurate for smooth densities (by a factor of about two for a Gaussian with
            share 0.99).
        whiten: Whether the samples' covariance is divided out first.

    Returns:
        Tensor `[..., P, d]`, or `[..., M, d]`.

    Raises:
        ValueError: If an argument is not as described.

    Example:
        >>> samples = tf.random.stateless_normal([500, 2], (0, 0))
        >>> spectral_stein_score(samples)  # [500, 2], about -samples

    References:
        Shi, Sun and Zhu (2018), "A spectral approach to gradient estimation for implicit
        distributions", ICML.
        Sun, Zhang, Shi and Grosse (2019), "Functional variational Bayesian neural networks", ICLR,
        section 2.3.
    """
    samples = tf.stop_gradient(tf.convert_to_tensor(samples))
    _check(samples, share, bandwidth)
    if points is not None:
        points = tf.stop_gradient(tf.convert_to_tensor(points, samples.dtype))
        _check_points(points, samples)
    if not whiten:
        return _score(samples, points, share, bandwidth)
    mean = tf.reduce_mean(samples, axis=-2, keepdims=True)
    root = _root_of_covariance(samples - mean)

    def to_unit(x):
        return tf.linalg.matrix_transpose(
            tf.linalg.triangular_solve(root, tf.linalg.matrix_transpose(x - mean))
        )

    scores = _score(to_unit(samples), None if points is None else to_unit(points), share, bandwidth)
    scores = tf.linalg.matrix_transpose(scores)
    return tf.linalg.matrix_transpose(tf.linalg.triangular_solve(root, scores, adjoint=True))


def _score(samples, points, share, bandwidth):
    mean = tf.reduce_mean(samples, axis=-2, keepdims=True)
    basis = spectrum(samples - mean, share, bandwidth)  # so that squared distances do not cancel
    return equations.stein_score(basis, None if points is None else points - mean)


def spectrum(samples: ArrayLike, share: float = 0.99, bandwidth: float = 1.0) -> equations.Spectrum:
    """Estimates eigenfunctions of a kernel whose length follows from the samples.

    Args:
        samples: As for `spectral_stein_score`.
        share: As for `spectral_stein_score`.
        bandwidth: As for `spectral_stein_score`.

    Returns:
        `Spectrum`.
    """
    samples = tf.convert_to_tensor(samples)
    squared = equations.squared_distances(samples, samples)
    return equations.nystrom(samples, squared, bandwidth * _median_distance(squared), share)


def _root_of_covariance(centred):
    """Returns the Cholesky factor of the shrunk covariance of centred samples, `[..., d, d]`."""
    size, length = (tf.cast(tf.shape(centred)[i], centred.dtype) for i in (-2, -1))
    variance = tf.reduce_mean(tf.square(centred), axis=-2)
    scale = tf.sqrt(tf.maximum(variance, _SMALLEST_VARIANCE))  # [..., d]
    unit = centred / scale[..., tf.newaxis, :]
    shrinkage = 1.0 / (1.0 + tf.square(length / size))
    correlations = tf.matmul(unit, unit, transpose_a=True) * (shrinkage / size)
    ones = tf.ones_like(scale) * (1.0 + _SMALLEST_EIGENVALUE)
    return scale[..., tf.newaxis] * tf.linalg.cholesky(tf.linalg.set_diag(correlations, ones))


def _median_distance(squared):
    """Returns the median distance of samples, `[...]`, or 1 if it is 0.

    It is the median over the cyclic pairs `(m, m + i)` for all i < M / 2 if these are at most 16,
    else for 16 of them, evenly spaced. Sorting 100^2 entries would take longer than the
    eigenvalues.
    """
    size = tf.shape(squared)[-1]
    reach = tf.maximum((size - 1) // 2, 1)
    num_offsets = tf.minimum(reach, _MOST_NEIGHBOURS)
    offsets = 1 + tf.range(num_offsets) * reach // num_offsets
    rows = tf.range(size)[:, tf.newaxis]
    index = tf.reshape(rows * size + (rows + offsets) % size, [-1])
    flat = tf.reshape(squared, tf.concat([tf.shape(squared)[:-2], [size * size]], axis=0))
    upper_half = tf.math.top_k(tf.gather(flat, index, axis=-1), k=tf.size(index) // 2 + 1)
    median = upper_half.values[..., -1]
    is_zero = median <= _SMALLEST_SQUARED_LENGTH
    return tf.sqrt(tf.where(is_zero, tf.ones_like(median), median))


def _check_points(points, samples):
    if points.shape.rank is not None and points.shape[-1] != samples.shape[-1]:
        raise ValueError(
            f"`points` must have the shape [..., P, {samples.shape[-1]}]. "
            f"Received: points.shape={points.shape}"
        )


def _check(samples, share, bandwidth):
    rank = samples.shape.rank
    if not samples.dtype.is_floating or (rank is not None and rank < 2):
        raise ValueError(
            "`samples` must be floating, of the shape [..., M, d]. "
            f"Received: samples.shape={samples.shape}, dtype={samples.dtype.name}"
        )
    if rank is not None and samples.shape[-2] is not None and samples.shape[-2] < 2:
        raise ValueError(
            f"There must be at least 2 samples. Received: samples.shape={samples.shape}"
        )
    if not 0.0 < share <= 1.0:
        raise ValueError(f"`share` must be in (0, 1]. Received: share={share}")
    checked_positive("bandwidth", bandwidth)
