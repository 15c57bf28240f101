"""The spectral Stein gradient estimator of gradients of log densities from samples."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfp_fnspace.boundary.arguments import checked_positive

_SMALLEST_SQUARED_LENGTH = 1e-20
_MOST_NEIGHBOURS = 16

#: Least variances, and least eigenvalues of correlations, that are divided out.
_SMALLEST_VARIANCE, _SMALLEST_EIGENVALUE = 1e-20, 1e-5


class Spectrum(NamedTuple):
    """The quantities that the estimator computes from samples `[..., M, d]`.

    Attributes:
        samples: Differences of the samples from their mean, `[..., M, d]`.
        mean: `[..., 1, d]`.
        kernel: K, `[..., M, M]`.
        eigenvectors: U of `K = U Lambda U^T` in columns, with ascending eigenvalues, `[..., M, M]`.
        eigenvalues: `[..., M]`.
        inverses: `1 / eigenvalues` for those that are kept, 0 for the others, `[..., M]`.
        num_kept: Number of kept eigenvalues, int32 `[...]`.
        length_scale: h of the kernel, `[...]`.
    """

    samples: tf.Tensor
    mean: tf.Tensor
    kernel: tf.Tensor
    eigenvectors: tf.Tensor
    eigenvalues: tf.Tensor
    inverses: tf.Tensor
    num_kept: tf.Tensor
    length_scale: tf.Tensor


def spectral_stein_score(samples, points=None, share=0.99, bandwidth=1.0, whiten=False):
    r"""Estimates the gradient of the log density of the distribution of samples.

    With M samples x_m, `k(x, x') = exp(-|x - x'|^2 / (2 h^2))` and `K = U Lambda U^T`,

        score(x) = sum_j beta_j psi_j(x)                                               (equation 2)
        psi_j(x) = sqrt(M) / lambda_j sum_m U_mj k(x, x_m)
        beta_j = -1/M sum_m grad psi_j(x_m)

    over the leading eigenvalues. These are the fewest (at least one) that have `share` of the sum,
    and are chosen at each call. In matrix form, with `B_l = -sum_m grad_1 k(x_m, x_l)`,

        score(x) = k(x, X) U Lambda^{+2} U^T B,       score(X) = U Lambda^+ U^T B.

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
    basis = spectrum(samples, share, bandwidth)
    gradients = _summed_gradients(basis)
    projected = tf.matmul(basis.eigenvectors, gradients, transpose_a=True)  # U^T B
    inverses = basis.inverses[..., tf.newaxis]
    if points is None:
        return tf.matmul(basis.eigenvectors, inverses * projected)
    between = _kernel(
        _squared_distances(points - basis.mean, basis.samples), basis.length_scale
    )  # [..., P, M]
    weights = tf.matmul(basis.eigenvectors, tf.square(inverses) * projected)
    return tf.matmul(between, weights)


def spectrum(samples, share=0.99, bandwidth=1.0):
    """Computes the eigenvalues and eigenvectors of the kernel at samples, and which are kept.

    Args:
        samples: As for `spectral_stein_score`.
        share: As for `spectral_stein_score`.
        bandwidth: As for `spectral_stein_score`.

    Returns:
        `Spectrum`.

    Raises:
        ValueError: If an argument is not as described.
    """
    samples = tf.stop_gradient(tf.convert_to_tensor(samples))
    _check(samples, share, bandwidth)
    mean = tf.reduce_mean(samples, axis=-2, keepdims=True)
    samples -= mean  # so that the distances below do not cancel
    squared = _squared_distances(samples, samples)
    length_scale = bandwidth * _median_distance(squared)
    kernel = _kernel(squared, length_scale)
    kernel = tf.linalg.set_diag(kernel, tf.ones_like(kernel[..., 0]))
    eigenvalues, eigenvectors = tf.linalg.eigh(kernel)
    is_kept = _is_leading(eigenvalues, share)
    safe = tf.where(is_kept, eigenvalues, tf.ones_like(eigenvalues))
    inverses = tf.where(is_kept, 1.0 / safe, tf.zeros_like(safe))
    num_kept = tf.reduce_sum(tf.cast(is_kept, tf.int32), axis=-1)
    return Spectrum(
        samples, mean, kernel, eigenvectors, eigenvalues, inverses, num_kept, length_scale
    )


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


def _is_leading(eigenvalues, share):
    """Returns which of ascending eigenvalues, the fewest with `share` of the sum, are kept."""
    count = tf.cast(tf.shape(eigenvalues)[-1], eigenvalues.dtype)
    largest = eigenvalues[..., -1:]
    resolution = np.finfo(eigenvalues.dtype.as_numpy_dtype).eps * count * largest
    positive = tf.nn.relu(eigenvalues)
    above = tf.cumsum(positive, axis=-1, exclusive=True, reverse=True)
    total = tf.reduce_sum(positive, axis=-1, keepdims=True)
    is_needed = (above < share * total) & (eigenvalues > resolution)
    return is_needed | (tf.range(tf.shape(eigenvalues)[-1]) == tf.shape(eigenvalues)[-1] - 1)


def _summed_gradients(basis):
    """Returns B, `B_l = sum_m k(x_m, x_l) (x_m - x_l) / h^2`, `[..., M, d]`."""
    sums = tf.reduce_sum(basis.kernel, axis=-1, keepdims=True)
    differences = tf.matmul(basis.kernel, basis.samples) - sums * basis.samples
    return differences / tf.square(basis.length_scale)[..., tf.newaxis, tf.newaxis]


def _kernel(squared, length_scale):
    return tf.exp(-0.5 * squared / tf.square(length_scale)[..., tf.newaxis, tf.newaxis])


def _squared_distances(a, b):
    """Returns `|a_i - b_j|^2`, `[..., A, B]`."""
    norms_a, norms_b = (tf.reduce_sum(tf.square(v), axis=-1) for v in (a, b))
    inner = tf.matmul(a, b, transpose_b=True)
    return tf.nn.relu(norms_a[..., :, tf.newaxis] + norms_b[..., tf.newaxis, :] - 2.0 * inner)


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
