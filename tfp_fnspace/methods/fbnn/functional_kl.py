"""The divergence of a random network from a prior over functions, at measurement points."""

import tensorflow as tf

from tfp_fnspace import notices
from tfp_fnspace.math import random
from tfp_fnspace.methods.fbnn import equations
from tfp_fnspace.methods.fbnn.spectral_stein import spectral_stein_score
from tfp_fnspace.model.seeds import part
from tfp_fnspace.processes.base import Process
from tfp_fnspace.typing import ArrayLike, Seed, Tensor


def kl_surrogate(
    functions: ArrayLike,
    points: ArrayLike,
    prior: Process,
    seed: Seed,
    injected_noise: float | Tensor = 0.0,
    share: float = 0.99,
    bandwidth: float = 1.0,
    whiten: bool = False,
    num_prior_samples: int | None = None,
    learn_prior: bool = False,
) -> Tensor:
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
    noisy = equations.with_noise(functions, injected_noise, seeds[0])
    q_score = spectral_stein_score(_flat(noisy), None, share, bandwidth, whiten)
    q_score = tf.reshape(q_score, tf.shape(noisy))
    if learn_prior:
        log_prob = prior.log_prob(noisy, points, injected_noise)
        return equations.learned_prior_surrogate(noisy, q_score, log_prob)
    constant = tf.stop_gradient(noisy)
    if prior.has_density:
        p_score = prior.score(constant, points, injected_noise)
    else:
        count = tf.shape(functions)[0] if num_prior_samples is None else num_prior_samples
        draws = tf.cast(prior.sample(points, count, seeds[1]), functions.dtype)
        draws = _flat(equations.with_noise(draws, injected_noise, seeds[2]))
        p_score = spectral_stein_score(draws, _flat(constant), share, bandwidth, whiten)
        p_score = tf.reshape(p_score, tf.shape(noisy))
    return equations.score_surrogate(noisy, q_score - p_score)


def gaussian_kl(
    mean: Tensor,
    covariance: Tensor,
    points: ArrayLike,
    prior: Process,
    injected_noise: float | Tensor = 0.0,
) -> equations.GaussianDivergence:
    """Returns `KL[N(m, S) * N || p * N]` at points for a Gaussian process p, in closed form.

    `equations.gaussian_divergence` computes it in float64. The prior's covariance is still computed
    in its own dtype, so use a prior in float64 if gamma is below a thousandth of its scale. At
    `gamma = 0` the divergence is finite only if both covariances have a factor. Otherwise jitter is
    added and counted.

    Args:
        mean: m, `[N, D]`.
        covariance: S, the outputs of a point one after another, `[N D, N D]`.
        points: X, `[N, ...]`.
        prior: `Process` with `is_gaussian`.
        injected_noise: gamma, a number at least 0.

    Returns:
        `GaussianDivergence` of the dtype of the mean.
    """
    prior_moments = prior.moments(points, injected_noise)
    return equations.gaussian_divergence(mean, covariance, *prior_moments, injected_noise)


def kl_estimate(
    functions: ArrayLike,
    points: ArrayLike,
    prior: Process,
    seed: Seed,
    injected_noise: float | Tensor = 0.0,
    num_prior_samples: int | None = None,
) -> Tensor:
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
    seeds = random.split(random.as_seed(seed), 3)
    noisy = equations.with_noise(functions, injected_noise, seeds[0])
    q_moments = equations.moments_of_draws(noisy, num_samples)
    p_moments = _prior_moments(prior, points, injected_noise, prior_count, seeds, functions.dtype)
    return equations.matched_divergence(q_moments, p_moments)


def most_points(num_samples: int) -> int:
    """Returns the most points that a training step compares, half the number of functions.

    With more points the variance of the gradient of `kl_estimate` would hide the gradient.
    """
    return (num_samples - 1) // 2


def at_some_points(
    functions: Tensor, points: ArrayLike, most: int | Tensor, seed: Seed
) -> tuple[Tensor, Tensor]:
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
    return at_some_points(functions, points, most, part(random.as_seed(seed), "fewer points"))


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
    """Returns the `Moments` of the prior, exact if they are known, else of draws."""
    if prior.has_moments:
        mean, covariance = (tf.cast(v, dtype) for v in prior.moments(points, injected_noise))
        return equations.exact_moments(mean, covariance)
    draws = tf.cast(prior.sample(points, count, seeds[1]), dtype)
    return equations.moments_of_draws(equations.with_noise(draws, injected_noise, seeds[2]), count)


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
