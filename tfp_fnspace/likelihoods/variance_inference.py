"""Approximate Gaussian variance inference (AGVI): learning the noise from an observation."""

import tensorflow as tf

from tfp_fnspace.likelihoods.base import variance_of
from tfp_fnspace.typing import GaussianMoments, Tensor

#: Largest exponent of a mean variance, and largest variance of a logarithm. Float32 overflows
#: beyond it. In standardised units, no noise that is learnt is as large as exp(20).
LARGEST_EXPONENT = 40.0


def exponential_mean(mean: Tensor, variance: Tensor | None = None) -> Tensor:
    """Returns `E exp(w) = exp(mean + variance / 2)` of a Gaussian w, without overflow.

    Args:
        mean: Tensor, mean of w.
        variance: Tensor of the same shape, variance of w; `None` for known w.
    """
    exponent = mean if variance is None else mean + 0.5 * variance
    return tf.exp(tf.minimum(exponent, LARGEST_EXPONENT))


def noise_innovation(
    moments: GaussianMoments, log_noise: GaussianMoments, targets: Tensor, min_variance: float = 0.0
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    r"""Returns the innovations of a value z and of w, the log variance of its noise.

        y = z + v,    v ~ N(0, u),    u = min_variance + exp(w)

    where z and w are Gaussian; all is in closed form. Let M and V be the mean and variance of
    exp(w), U = min_variance + M, T = Sz + U and r = y - mz. The steps are Gaussian conditionals,
    each between two variables:

    1. y to z and v: z gets the innovation (r/T, -1/T); v gets the mean U r/T and the variance U -
    U^2/T.
    2. v to its square: mean `m2 = mean^2 + var`, variance `s2 = 2 var^2 + 4 var mean^2`.
    3. v^2 to u: v^2 has the prior mean U and the variance D = 3V + 2U^2; its covariance with u is
    V.
    4. u to w: their covariance is Sw M.

    Steps 3 and 4 together give the innovation `(M (m2 - U)/D, M^2 (s2 - D)/D^2)` of w, in which Sw
    and V cancel. Everything below is in units of U, so that float32 does not overflow.

    Args:
        moments: `GaussianMoments` of z, tensors `[N, D]`.
        log_noise: `GaussianMoments` of w, tensors `[N, D]`.
        targets: Tensor `[N, D]`, y.
        min_variance: Non-negative number.

    Returns:
        Two pairs `(dm, dS)` of tensors `[N, D]`, for z and for w.

    References:
        Deka, Nguyen and Goulet (2024), "Analytically tractable heteroscedastic uncertainty
        quantification in Bayesian neural networks for regression tasks", Neurocomputing 572.
    """
    mean, variance = moments[0], variance_of(moments)
    random = exponential_mean(*log_noise)
    noise = min_variance + random
    total = variance + noise
    residual = (targets - mean) / total
    share, ratio = variance / total, random / noise
    spread = tf.math.expm1(tf.minimum(variance_of(log_noise), LARGEST_EXPONENT))  # V / M^2
    prior = 3.0 * tf.square(ratio) * spread + 2.0  # D / U^2
    squared_mean = noise * tf.square(residual)  # of v, over U
    surprise = squared_mean + share - 1.0  # (m2 - U) / U
    change = 2.0 * tf.square(share) + 4.0 * share * squared_mean - prior  # (s2 - D) / U^2
    of_noise = (ratio * surprise / prior, tf.square(ratio / prior) * change)
    return (residual, -1.0 / total), of_noise
