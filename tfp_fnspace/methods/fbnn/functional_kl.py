"""The divergence of a random network from a prior over functions, at measurement points."""

from typing import NamedTuple

import tensorflow as tf

from tfp_fnspace import notices
from tfp_fnspace.math import linalg, random
from tfp_fnspace.methods.fbnn.spectral_stein import spectral_stein_score


def kl_surrogate(
    functions,
    points,
    prior,
    seed,
    injected_noise=0.0,
    share=0.99,
    bandwidth=1.0,
    whiten=False,
    num_prior_samples=None,
    learn_prior=False,
):
    r"""Returns a loss with the gradient of `KL[q(f_X) || p(f_X)]`; its value has no meaning.

        grad KL = E[J^T (grad_f log q - grad_f log p)]                               (equation 11)

    J is the Jacobian of the values in the parameters of q, so the functions must be differentiable
    draws. The score of q is `spectral_stein_score` of the draws, over the values of all points and
    outputs jointly. The score of p is exact if the prior has a density, otherwise it is estimated
    from draws. Noise `N(0, gamma^2)` is added to the values of both sides: `f + gamma e` against
    `K + gamma^2 I` (appendix D.1). This gives the gradient of `KL[q * N || p * N] <= KL[q || p]`.

    Args:
        functions: Draws of q at the points, `[S, N, D]`, S at least 2.
        points: X, `[N, ...]`.
        prior: `Process`.
        seed: Integer, two integers, or int32 tensor `[2]`.
        injected_noise: gamma, a number at least 0, in units of f.
        share: As for `spectral_stein_score`.
        bandwidth: As for `spectral_stein_score`.
        whiten: As for `spectral_stein_score`.
        num_prior_samples: Number of draws of a prior without density; None stands for S.
        learn_prior: Whether to include the gradient in parameters of the prior, `-E[grad log
            p(f)]`, and in the points. The prior must have a density.

    Returns:
        Scalar of the dtype of the functions.

    Raises:
        ValueError: If an argument is not as described.

    References:
        Sun, Zhang, Shi and Grosse (2019), "Functional variational Bayesian neural networks", ICLR,
        section 3.3 and appendices C.2 (joint training of the prior) and D.1.
    """
    if learn_prior and not prior.has_density:
        raise ValueError(
            "`learn_prior` needs a prior with a density. "
            f"Received: learn_prior=True, prior={type(prior).__name__}"
        )
    functions = _checked_functions(functions)
    seeds = random.split(random.as_seed(seed), 3)
    noisy = _with_noise(functions, injected_noise, seeds[0])
    q_score = spectral_stein_score(_flat(noisy), None, share, bandwidth, whiten)
    q_score = tf.reshape(q_score, tf.shape(noisy))
    if learn_prior:
        log_prob = prior.log_prob(noisy, points, injected_noise)
        return score_surrogate(noisy, q_score) - tf.reduce_mean(log_prob)
    constant = tf.stop_gradient(noisy)
    if prior.has_density:
        p_score = prior.score(constant, points, injected_noise)
    else:
        count = tf.shape(functions)[0] if num_prior_samples is None else num_prior_samples
        draws = tf.cast(prior.sample(points, count, seeds[1]), functions.dtype)
        draws = _flat(_with_noise(draws, injected_noise, seeds[2]))
        p_score = spectral_stein_score(draws, _flat(constant), share, bandwidth, whiten)
        p_score = tf.reshape(p_score, tf.shape(noisy))
    return score_surrogate(noisy, q_score - p_score)


class GaussianDivergence(NamedTuple):
    """A divergence between normal distributions.

    Attributes:
        kl: Scalar.
        num_jittered: Number of the two covariances that had no Cholesky factor without jitter,
            int32.
    """

    kl: tf.Tensor
    num_jittered: tf.Tensor


def gaussian_kl(mean, root, points, prior, injected_noise=0.0):
    r"""Returns `KL[N(m, R R^T) * N || p * N]` at points for a Gaussian process p, in closed form.

        1/2 [tr(P^-1 C) + (m - m_p)^T P^-1 (m - m_p) - N D + log |P| - log |C|],
        C = R R^T + gamma^2 I,     P = the prior's covariance + gamma^2 I

    It is computed in float64, whatever the dtypes of q and the prior: C has the condition 1 /
    gamma^2, and in float32 a rounding error of an input would change the gradient by more than a
    hundredth. The prior's covariance is still computed in its own dtype, so use a prior in float64
    if gamma is below a thousandth of its scale. At `gamma = 0` the divergence is finite only if R
    has as many columns as there are values, and the prior's covariance has a factor. Otherwise
    jitter is added and counted.

    Args:
        mean: m, `[N, D]`.
        root: R, `[N, D, Q]`.
        points: X, `[N, ...]`.
        prior: `Process` with `is_gaussian`.
        injected_noise: gamma, a number at least 0.

    Returns:
        `GaussianDivergence` of the dtype of the mean.
    """
    prior_mean, prior_covariance = prior.moments(points, injected_noise)
    prior_mean, prior_covariance, difference, root = (
        tf.cast(v, tf.float64) for v in (prior_mean, prior_covariance, mean, root)
    )
    num_points, num_outputs = tf.unstack(tf.shape(mean))
    size = num_points * num_outputs
    flat = tf.reshape(root, [size, root.shape[-1]])
    covariance = tf.matmul(flat, flat, transpose_b=True)
    covariance += tf.cast(injected_noise, tf.float64) ** 2 * tf.eye(size, dtype=tf.float64)
    theirs, ours = linalg.cholesky(prior_covariance), linalg.cholesky(covariance)
    factor = theirs.factor  # [D, N, N]
    log_det = tf.reduce_sum(linalg.log_determinant(factor))
    log_det -= linalg.log_determinant(ours.factor)
    by_output = [num_points, num_outputs, num_points, num_outputs]
    own = tf.einsum("ndmd->dnm", tf.reshape(covariance, by_output))
    trace, square = _trace_and_square(factor, own, tf.transpose(difference - prior_mean))
    kl = 0.5 * (tf.reduce_sum(trace + square) - tf.cast(size, tf.float64) + log_det)
    num_jittered = sum(tf.math.count_nonzero(v.jitter, dtype=tf.int32) for v in (theirs, ours))
    return GaussianDivergence(tf.cast(kl, mean.dtype), num_jittered)


def score_surrogate(functions, scores):
    """Returns `1/S sum_s f_s . stop_gradient(scores_s)`, with the mean of `J^T scores` as gradient.

    Args:
        functions: Differentiable draws `[S, ...]`.
        scores: Tensor of the same shape.

    Returns:
        Scalar.
    """
    count = tf.cast(tf.shape(functions)[0], functions.dtype)
    return tf.reduce_sum(functions * tf.stop_gradient(scores)) / count


def kl_estimate(functions, points, prior, seed, injected_noise=0.0, num_prior_samples=None):
    r"""Estimates `KL[q(f_X) || p(f_X)]` by that of normal distributions with the same moments.

        1/2 [tr(P^-1 C) + (m - m_p)^T P^-1 (m - m_p) - N + log |P| - log |C|]

    for each output, summed over outputs. Here C is the covariance of the draws of q with noise
    `N(0, gamma^2)`, and P that of the prior. P is exact (with `gamma^2 I`) if it is known,
    otherwise it is estimated from draws. For a normal q and S draws the estimate is unbiased: `log
    |C|` and the square of `m - m_p` are corrected for S (and those of P for its number of draws, as
    if the prior were normal). If q is far from normal, or its outputs are dependent, this is not
    its divergence. It is for monitoring, and is not a bound.

    It needs N + 3 draws of each side for N points, and has a large variance unless there are
    several times as many. The variance of its gradient is infinite for fewer than N + 5 draws. If
    there are fewer than N + 3, it estimates the divergence at half as many random points as there
    are draws, which the seed chooses. This is at most the divergence at all points (Theorem 1). A
    warning reports it.

    Args:
        functions: Draws of q, `[S, N, D]`, where S is static and at least 4.
        points: X, `[N, ...]`. The estimate is differentiable in the points and in the functions.
        prior: `Process`.
        seed: Integer, two integers, or int32 tensor `[2]`.
        injected_noise: gamma, a number at least 0.
        num_prior_samples: Number of draws of a prior without moments, at least 4; None stands for
            10 S.

    Returns:
        Scalar of the dtype of the functions.

    Raises:
        ValueError: If there are fewer than 4 functions or draws of the prior, or the number of
            functions is not known.
    """
    functions = _checked_functions(functions)
    num_samples = functions.shape[0]
    if num_samples is None or num_samples < 4:
        raise ValueError(
            "An estimate of the divergence needs at least 4 functions. "
            f"Received: functions.shape={functions.shape}"
        )
    prior_count = _count_of_prior_draws(prior, num_prior_samples, num_samples)
    fewest = min(num_samples, prior_count or num_samples)
    if functions.shape[1] is None or functions.shape[1] > fewest - 3:
        functions, points = _as_many_as_can_be(functions, points, fewest, seed)
    num_points = tf.cast(tf.shape(functions)[1], functions.dtype)
    seeds = random.split(random.as_seed(seed), 3)
    mean, covariance = _moments(_with_noise(functions, injected_noise, seeds[0]))
    log_det = _log_determinant(covariance, num_samples)
    prior_mean, prior_covariance, prior_log_det, shrink = _prior_moments(
        prior, points, injected_noise, prior_count, seeds, functions.dtype
    )
    factor = linalg.cholesky(prior_covariance).factor
    terms = _trace_and_square(factor, covariance, mean - prior_mean)
    trace, square = (shrink * term for term in terms)
    square -= trace / num_samples
    if prior_count:
        square -= num_points / prior_count
    return 0.5 * tf.reduce_sum(trace + square - num_points + prior_log_det - log_det)


def _trace_and_square(factor, covariance, difference):
    """Returns `tr(P^-1 C)` and `d^T P^-1 d`, `[D]`, given the Cholesky factor of P, `[D, N, N]`."""
    trace = tf.linalg.trace(tf.linalg.cholesky_solve(factor, covariance))
    return trace, linalg.squared_norm_of_solution(factor, difference[..., tf.newaxis])


def most_points(num_samples):
    """Returns the most points that a training step compares, half the number of functions.

    With more points the variance of the gradient of `kl_estimate` would hide the gradient.
    """
    return (num_samples - 1) // 2


def at_some_points(functions, points, most, seed):
    """Returns random points, each set of them equally likely, and the values there.

    Args:
        functions: `[S, N, D]`.
        points: `[N, ...]`.
        most: Maximum number of points, an integer.
        seed: Integer, two integers, or int32 tensor `[2]`; different seeds give different points.

    Returns:
        Values `[S, n, D]` and points `[n, ...]`, where n is the smaller of N and `most`. If N is
        not larger, the arguments are returned.
    """
    static = functions.shape[1]
    if static is not None and static <= most:
        return functions, points
    size = tf.shape(functions)[1]
    keys = tf.random.stateless_uniform([size], random.as_seed(seed))
    index = tf.sort(tf.math.top_k(keys, tf.minimum(size, most)).indices)
    return tf.gather(functions, index, axis=1), tf.gather(points, index)


def _as_many_as_can_be(functions, points, fewest, seed):
    """Returns all points if there are enough draws for them, else half as many as draws."""
    size, half = tf.shape(functions)[1], most_points(fewest)
    if functions.shape[1] is not None:
        notices.warn(
            f"The divergence at {functions.shape[1]} points cannot be estimated from {fewest} "
            f"draws: {half} random points are used, where it is smaller. Draw at least "
            f"{functions.shape[1] + 3}.",
        )
        most = half
    else:
        most = tf.where(size <= fewest - 3, size, half)
    return at_some_points(functions, points, most, random.fold_in(random.as_seed(seed), 3))


def _count_of_prior_draws(prior, given, num_samples):
    """Returns the number of draws for the moments of a prior, or None if these are known.

    Raises:
        ValueError: If there are fewer than 4.
    """
    if given is not None and given < 4:
        raise ValueError(
            "An estimate of the divergence needs at least 4 draws of the prior. "
            f"Received: num_prior_samples={given}"
        )
    return None if prior.has_moments else given or 10 * num_samples


def _prior_moments(prior, points, injected_noise, count, seeds, dtype):
    """Returns mean, covariance P, its log determinant, and b that makes b P^-1 unbiased."""
    if prior.has_moments:
        mean, covariance = (tf.cast(v, dtype) for v in prior.moments(points, injected_noise))
        log_det = linalg.log_determinant(linalg.cholesky(covariance).factor)
        return tf.transpose(mean), covariance, log_det, 1.0
    draws = tf.cast(prior.sample(points, count, seeds[1]), dtype)
    mean, covariance = _moments(_with_noise(draws, injected_noise, seeds[2]))
    size = tf.cast(tf.shape(mean)[-1], dtype)
    shrink = (count - size - 2.0) / (count - 1.0)  # from the mean of an inverse Wishart matrix
    return mean, covariance, _log_determinant(covariance, count), shrink


def _moments(functions):
    """Returns the means `[D, N]` and unbiased covariances `[D, N, N]` of draws `[S, N, D]`."""
    values = tf.transpose(functions, [2, 1, 0])  # [D, N, S]
    mean = tf.reduce_mean(values, axis=-1)
    centred = values - mean[..., tf.newaxis]
    count = tf.cast(tf.shape(values)[-1], values.dtype)
    return mean, linalg.outer_product(centred) / (count - 1.0)


def _log_determinant(covariance, num_samples):
    """Returns an unbiased `log |Sigma|`, given a covariance of draws from N(., Sigma).

    `E log |(n - 1) C| = log |Sigma| + sum_{i<N} digamma((n - 1 - i) / 2) + N log 2`.
    """
    dtype = covariance.dtype
    size, degrees = tf.cast(tf.shape(covariance)[-1], dtype), tf.cast(num_samples - 1, dtype)
    halves = 0.5 * (degrees - tf.range(size, dtype=dtype))
    bias = tf.reduce_sum(tf.math.digamma(halves)) - size * tf.math.log(0.5 * degrees)
    return linalg.log_determinant(linalg.cholesky(covariance).factor) - bias


def _with_noise(functions, scale, seed):
    noise = random.normal(tf.shape(functions), seed, functions.dtype)
    return functions + tf.cast(scale, functions.dtype) * noise


def _flat(functions):
    """Reshapes `[S, N, D]` to `[S, N D]`."""
    return tf.reshape(functions, [tf.shape(functions)[0], -1])


def _checked_functions(functions):
    functions = tf.convert_to_tensor(functions)
    if functions.shape.rank != 3:
        raise ValueError(
            f"Functions must have the shape [S, N, D]. Received: shape={functions.shape}"
        )
    return functions
