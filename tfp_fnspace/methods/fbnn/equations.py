r"""The mathematics of fBNN, in the order of the paper.

A network with random weights draws functions `f(x) = g_phi(x, xi)`. Their distribution q
approximates the posterior under a prior p, which is a process. Training maximises

    L(q) = E_q log p(D | f) - KL[q || p],                                            (equation 3)
    KL[q || p] = sup_X KL[q(f_X) || p(f_X)],                              (equation 4, Theorem 1)

where f_X are the values at a finite set X of points, the measurement set. One set in place of the
supremum gives L_X(q). It is a bound if X contains all rows:

    L_X(q) = log p(D) - KL[q(f_X) || p(f_X | D)] <= log p(D).             (equation 8, Theorem 2)

X consists of the rows of a batch D_s and of M other points. These are drawn (equation 7,
`measurement`), or they move to where L_X is smallest (equation 6). The objective of a step is

    1/|D_s| sum_{D_s} E_q log p(y | f(x)) - lambda KL[q(f^{D_s}, f^M) || p(f^{D_s}, f^M)]
                                                                                    (equation 12)

q has no density. The gradient of the divergence needs only the scores of q and p (equation 11),
and the spectral Stein estimator finds a score from draws (equation 2).

| paper | here |
|---|---|
| equations 1, 3 and 12 | `elbo` |
| section 2.3, equation 2 | `nystrom`, `stein_score` |
| section 3.2, equation 6 | `ascent_step` |
| section 3.3, equation 11 | `score_surrogate`, `with_value` |
| appendix C.2 | `learned_prior_surrogate` |
| appendix D.1 | `with_noise` |
| not in the paper | `gaussian_divergence`, `matched_divergence`, `regularized_noise` |

The last line has values of the divergence, which equation 11 does not give. The value is exact if q
and p are Gaussian. Otherwise it is that of the Gaussians with the moments of q and p. Whitening and
the kernel's length are chosen in `spectral_stein`.

S is the number of draws of functions, N that of points, and D that of outputs.

References:
    Sun, Zhang, Shi and Grosse (2019), "Functional variational Bayesian neural networks", ICLR.
    Shi, Sun and Zhu (2018), "A spectral approach to gradient estimation for implicit
    distributions", ICML.
    Cinquin and Bamler (2024), "Regularized KL-divergence for well-defined function-space
    variational inference in Bayesian neural networks".
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfp_fnspace.math import linalg, random
from tfp_fnspace.typing import Seed, Tensor


def elbo(log_likelihood: Tensor, divergence: Tensor, weight: float | Tensor = 1.0) -> Tensor:
    """Returns `E_q log p(y | f) - lambda KL`, per row (equation 12).

    With the divergence of the weights, and lambda = 1, it is equation 1 for Bayes by Backprop.

    Args:
        log_likelihood: Mean over rows of the expected log-likelihood, a scalar.
        divergence: KL, a scalar.
        weight: lambda, a scalar.

    Returns:
        Scalar.
    """
    return log_likelihood - weight * divergence


# Section 2.3: the spectral Stein gradient estimator ----------------------------------------------


class Spectrum(NamedTuple):
    """The kernel at M samples and its eigenfunctions there.

    Attributes:
        samples: `[..., M, d]`.
        kernel: K, `[..., M, M]`.
        eigenvectors: U of `K = U Lambda U^T` in columns, with ascending eigenvalues, `[..., M, M]`.
        eigenvalues: `[..., M]`.
        inverses: Lambda^+, `1 / eigenvalues` for those that are kept and 0 for the others,
            `[..., M]`.
        num_kept: Number of kept eigenvalues, int32 `[...]`.
        length_scale: h of the kernel, `[...]`.
    """

    samples: Tensor
    kernel: Tensor
    eigenvectors: Tensor
    eigenvalues: Tensor
    inverses: Tensor
    num_kept: Tensor
    length_scale: Tensor


def nystrom(samples: Tensor, squared: Tensor, length_scale: Tensor, share: float) -> Spectrum:
    """Estimates eigenfunctions of `k(x, x') = exp(-|x - x'|^2 / (2 h^2))` under q (section 2.3).

    With `K = U Lambda U^T` at samples x_m of q, the Nystrom estimates are

        psi_j(x) = sqrt(M) / lambda_j sum_m U_mj k(x, x_m).

    The paper truncates the sum of equation 2 and leaves open where. Here the fewest leading
    eigenvalues, at least one, that have `share` of the sum of all are kept.

    Args:
        samples: `[..., M, d]`, with mean 0, so that their squared distances do not cancel.
        squared: `squared_distances` of the samples, `[..., M, M]`, from which h was found too.
        length_scale: h, `[...]`.
        share: Number in (0, 1].

    Returns:
        `Spectrum`.
    """
    kernel = _kernel(squared, length_scale)
    kernel = tf.linalg.set_diag(kernel, tf.ones_like(kernel[..., 0]))
    eigenvalues, eigenvectors = tf.linalg.eigh(kernel)
    is_kept = _is_leading(eigenvalues, share)
    safe = tf.where(is_kept, eigenvalues, tf.ones_like(eigenvalues))
    inverses = tf.where(is_kept, 1.0 / safe, tf.zeros_like(safe))
    num_kept = tf.reduce_sum(tf.cast(is_kept, tf.int32), axis=-1)
    return Spectrum(samples, kernel, eigenvectors, eigenvalues, inverses, num_kept, length_scale)


def stein_score(basis: Spectrum, points: Tensor | None = None) -> Tensor:
    """Estimates the score `grad log q` at points.

        score(x) = -sum_j E_q[grad psi_j] psi_j(x),                                  (equation 2)

    where the mean over samples replaces E_q. With `B_l = -sum_m grad_1 k(x_m, x_l)` this is

        score(x) = k(x, X) U Lambda^{+2} U^T B,       score(X) = U Lambda^+ U^T B.

    Args:
        basis: Estimates of the eigenfunctions psi_j.
        points: x, `[..., P, d]`; None for the samples X.

    Returns:
        Tensor `[..., P, d]`, or `[..., M, d]`.
    """
    gradients = _summed_gradients(basis)
    projected = tf.matmul(basis.eigenvectors, gradients, transpose_a=True)  # U^T B
    inverses = basis.inverses[..., tf.newaxis]
    if points is None:
        return tf.matmul(basis.eigenvectors, inverses * projected)
    between = _kernel(squared_distances(points, basis.samples), basis.length_scale)  # [..., P, M]
    weights = tf.matmul(basis.eigenvectors, tf.square(inverses) * projected)
    return tf.matmul(between, weights)


def _is_leading(eigenvalues: Tensor, share: float) -> Tensor:
    """Returns which of ascending eigenvalues, the fewest with `share` of the sum, are kept."""
    count = tf.cast(tf.shape(eigenvalues)[-1], eigenvalues.dtype)
    largest = eigenvalues[..., -1:]
    resolution = np.finfo(eigenvalues.dtype.as_numpy_dtype).eps * count * largest
    positive = tf.nn.relu(eigenvalues)
    above = tf.cumsum(positive, axis=-1, exclusive=True, reverse=True)
    total = tf.reduce_sum(positive, axis=-1, keepdims=True)
    is_needed = (above < share * total) & (eigenvalues > resolution)
    return is_needed | (tf.range(tf.shape(eigenvalues)[-1]) == tf.shape(eigenvalues)[-1] - 1)


def _summed_gradients(basis: Spectrum) -> Tensor:
    """Returns B, `B_l = sum_m k(x_m, x_l) (x_m - x_l) / h^2`, `[..., M, d]`."""
    sums = tf.reduce_sum(basis.kernel, axis=-1, keepdims=True)
    differences = tf.matmul(basis.kernel, basis.samples) - sums * basis.samples
    return differences / tf.square(basis.length_scale)[..., tf.newaxis, tf.newaxis]


def _kernel(squared: Tensor, length_scale: Tensor) -> Tensor:
    return tf.exp(-0.5 * squared / tf.square(length_scale)[..., tf.newaxis, tf.newaxis])


def squared_distances(a: Tensor, b: Tensor) -> Tensor:
    """Returns `|a_i - b_j|^2`, `[..., A, B]`, for points `[..., A, d]` and `[..., B, d]`."""
    norms_a, norms_b = (tf.reduce_sum(tf.square(v), axis=-1) for v in (a, b))
    inner = tf.matmul(a, b, transpose_b=True)
    return tf.nn.relu(norms_a[..., :, tf.newaxis] + norms_b[..., tf.newaxis, :] - 2.0 * inner)


# Section 3.2: the measurement set as an adversary ------------------------------------------------


def ascent_step(
    points: Tensor, gradient: Tensor, low: Tensor, high: Tensor, step_size: float
) -> Tensor:
    """Moves measurement points towards the largest divergence, the inner player of equation 6.

    The points enter L_X only by the divergence, so `min_X L_X(q)` is ascent of it. A step is
    projected and normalised:

        u = x / (high - low),   u <- clip(u + step_size g / rms(g)),   g = grad_u KL

    Args:
        points: `[M, I]`.
        gradient: Gradient of the divergence in the points, `[M, I]`.
        low: Lower ends of the box, `[I]`.
        high: Upper ends of the box, `[I]`.
        step_size: Positive number, in widths of the box.

    Returns:
        Points `[M, I]`, which are those given if the gradient is 0 or not finite.
    """
    width = high - low
    gradient *= width
    size = tf.sqrt(tf.reduce_mean(tf.square(gradient)))
    direction = tf.math.divide_no_nan(gradient, size)
    direction = tf.where(tf.math.is_finite(direction), direction, tf.zeros_like(direction))
    return tf.clip_by_value(points + step_size * width * direction, low, high)


# Section 3.3: the gradient of the divergence -----------------------------------------------------


def score_surrogate(functions: Tensor, scores: Tensor) -> Tensor:
    """Returns `1/S sum_s f_s . stop_gradient(scores_s)`, with the mean of `J^T scores` as gradient.

    J is the Jacobian of the values in the parameters of q. For scores `grad_f log q - grad_f log p`
    this is the gradient of `KL[q(f_X) || p(f_X)]` (equation 11).

    Args:
        functions: Differentiable draws `[S, ...]`.
        scores: Tensor of the same shape.

    Returns:
        Scalar.
    """
    count = tf.cast(tf.shape(functions)[0], functions.dtype)
    return tf.reduce_sum(functions * tf.stop_gradient(scores)) / count


def learned_prior_surrogate(functions: Tensor, q_scores: Tensor, log_prob: Tensor) -> Tensor:
    """Returns a scalar with the gradient of the divergence also in parameters of p (appendix C.2).

    In these it is `-E_q[grad log p(f_X)]`.

    Args:
        functions: Differentiable draws `[S, ...]`.
        q_scores: Scores of q, of the same shape.
        log_prob: `log p(f_X)` of the draws, `[S]`, differentiable in them and in p.

    Returns:
        Scalar.
    """
    return score_surrogate(functions, q_scores) - tf.reduce_mean(log_prob)


def with_value(surrogate: Tensor, value: Tensor) -> Tensor:
    """Returns a scalar with the gradient of one scalar and the value of another."""
    return surrogate + tf.stop_gradient(value - surrogate)


# Appendix D.1: injected noise --------------------------------------------------------------------


def with_noise(functions: Tensor, scale: float | Tensor, seed: Seed) -> Tensor:
    """Returns `f + gamma e` with standard normal e, draws of `q * N(0, gamma^2)`.

    The same noise makes the covariance of a Gaussian process `K + gamma^2 I`.

    Args:
        functions: `[S, N, D]`.
        scale: gamma, a non-negative scalar.
        seed: int32 tensor `[2]`.

    Returns:
        Tensor `[S, N, D]`.
    """
    noise = random.normal(tf.shape(functions), seed, functions.dtype)
    return functions + tf.cast(scale, functions.dtype) * noise


# Not in the paper: values of the divergence ------------------------------------------------------


class GaussianDivergence(NamedTuple):
    """A divergence between normal distributions.

    Attributes:
        kl: Scalar.
        num_jittered: Number of the two covariances that had no Cholesky factor without jitter,
            int32.
    """

    kl: Tensor
    num_jittered: Tensor


def gaussian_divergence(
    mean: Tensor,
    covariance: Tensor,
    prior_mean: Tensor,
    prior_covariance: Tensor,
    injected_noise: float | Tensor = 0.0,
) -> GaussianDivergence:
    r"""Returns `KL[N(m, C) || N(m_p, P)]` of all outputs jointly, in closed form.

        1/2 [tr(P^-1 C) + (m - m_p)^T P^-1 (m - m_p) - N D + log |P| - log |C|],
        C = S + gamma^2 I

    It is computed in float64, whatever the dtypes of the arguments. C has the condition 1 /
    gamma^2, and in float32 a rounding error of an input would change the gradient by more than a
    hundredth.

    Args:
        mean: m, `[N, D]`.
        covariance: S, the outputs of a point one after another, `[N D, N D]`.
        prior_mean: m_p, `[N, D]`.
        prior_covariance: P of each output, with the injected noise, `[D, N, N]`.
        injected_noise: gamma, a non-negative scalar.

    Returns:
        `GaussianDivergence` of the dtype of the mean.
    """
    prior_mean, prior_covariance, difference, covariance = (
        tf.cast(v, tf.float64) for v in (prior_mean, prior_covariance, mean, covariance)
    )
    num_points, num_outputs = tf.unstack(tf.shape(mean))
    size = num_points * num_outputs
    covariance += tf.cast(injected_noise, tf.float64) ** 2 * tf.eye(size, dtype=tf.float64)
    theirs, ours = linalg.cholesky(prior_covariance), linalg.log_determinant_of(covariance)
    factor = theirs.factor  # [D, N, N]
    log_det = tf.reduce_sum(linalg.log_determinant(factor)) - ours.value
    by_output = [num_points, num_outputs, num_points, num_outputs]
    own = tf.einsum("ndmd->dnm", tf.reshape(covariance, by_output))
    trace, square = _trace_and_square(factor, own, tf.transpose(difference - prior_mean))
    kl = 0.5 * (tf.reduce_sum(trace + square) - tf.cast(size, tf.float64) + log_det)
    num_jittered = sum(tf.math.count_nonzero(v.jitter, dtype=tf.int32) for v in (theirs, ours))
    return GaussianDivergence(tf.cast(kl, mean.dtype), num_jittered)


def regularized_noise(scale: float | Tensor, functions: Tensor) -> Tensor:
    """Returns `sqrt(N) gamma`, with which the divergence has a limit for many points.

    Args:
        scale: gamma, a non-negative scalar.
        functions: `[S, N, D]`.

    Returns:
        Scalar.
    """
    return scale * tf.sqrt(tf.cast(tf.shape(functions)[1], functions.dtype))


class Moments(NamedTuple):
    """Moments of the values at points, of each output by itself.

    Attributes:
        mean: `[D, N]`.
        covariance: `[D, N, N]`.
        log_det: Logarithm of the determinant of the covariance, `[D]`.
        num_draws: Number of draws that they were estimated from; None if they are exact.
    """

    mean: Tensor
    covariance: Tensor
    log_det: Tensor
    num_draws: int | None


def exact_moments(mean: Tensor, covariance: Tensor) -> Moments:
    """Returns `Moments` of a process.

    Args:
        mean: `[N, D]`.
        covariance: `[D, N, N]`.
    """
    log_det = linalg.log_determinant_of(covariance).value
    return Moments(tf.transpose(mean), covariance, log_det, None)


def moments_of_draws(functions: Tensor, num_draws: int) -> Moments:
    """Returns `Moments` of S draws; each of them is unbiased if the draws are normal.

    `E log |(S - 1) C| = log |Sigma| + sum_{i<N} digamma((S - 1 - i) / 2) + N log 2` for the
    covariance C of draws from N(., Sigma).

    Args:
        functions: `[S, N, D]`.
        num_draws: S, at least N + 1.
    """
    values = tf.transpose(functions, [2, 1, 0])  # [D, N, S]
    mean = tf.reduce_mean(values, axis=-1)
    centred = values - mean[..., tf.newaxis]
    dtype = values.dtype
    covariance = linalg.outer_product(centred) / (tf.cast(tf.shape(values)[-1], dtype) - 1.0)
    size, degrees = tf.cast(tf.shape(covariance)[-1], dtype), tf.cast(num_draws - 1, dtype)
    halves = 0.5 * (degrees - tf.range(size, dtype=dtype))
    bias = tf.reduce_sum(tf.math.digamma(halves)) - size * tf.math.log(0.5 * degrees)
    log_det = linalg.log_determinant_of(covariance).value - bias
    return Moments(mean, covariance, log_det, num_draws)


def matched_divergence(q: Moments, p: Moments) -> Tensor:
    r"""Estimates the divergence of the normal distributions with the moments of q and of p.

        1/2 [tr(P^-1 C) + (m - m_p)^T P^-1 (m - m_p) - N + log |P| - log |C|],

    summed over outputs. The square is corrected for the errors of the means. If P is that of draws,
    `b P^-1` is unbiased for `b = (S_p - N - 2) / (S_p - 1)`, from the mean of an inverse Wishart
    matrix. For a normal q, and a p that is normal or has exact moments, the estimate is unbiased.

    Args:
        q: `Moments` of S draws.
        p: `Moments`, exact or of S_p draws.

    Returns:
        Scalar.
    """
    num_points = tf.cast(tf.shape(q.mean)[-1], q.mean.dtype)
    factor = linalg.cholesky(p.covariance).factor
    shrink = 1.0 if p.num_draws is None else (p.num_draws - num_points - 2.0) / (p.num_draws - 1.0)
    terms = _trace_and_square(factor, q.covariance, q.mean - p.mean)
    trace, square = (shrink * term for term in terms)
    square -= trace / q.num_draws
    if p.num_draws is not None:
        square -= num_points / p.num_draws
    return 0.5 * tf.reduce_sum(trace + square - num_points + p.log_det - q.log_det)


def _trace_and_square(
    factor: Tensor, covariance: Tensor, difference: Tensor
) -> tuple[Tensor, Tensor]:
    """Returns `tr(P^-1 C)` and `d^T P^-1 d`, `[D]`, given the Cholesky factor of P, `[D, N, N]`."""
    # With the inverse as a matrix, the gradient in C needs no further solution.
    trace = tf.reduce_sum(linalg.inverse(factor) * covariance, axis=[-2, -1])
    return trace, linalg.squared_norm_of_solution(factor, difference[..., tf.newaxis])
