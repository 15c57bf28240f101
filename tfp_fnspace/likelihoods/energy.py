"""The data term of objectives between the lower bound and the density of the data."""

import tensorflow as tf

from tfp_fnspace.likelihoods.base import Likelihood, of_each
from tfp_fnspace.typing import GaussianMoments, Seed, Tensor


def data_term(
    likelihood: Likelihood,
    moments: GaussianMoments,
    targets: Tensor,
    alpha: float,
    seed: Seed,
    num_draws: int = 1,
) -> Tensor:
    r"""Returns the data term of an objective under a mixture of Gaussians.

        1/alpha log E_q p(y | f)^alpha,      alpha in (0, 1],
        E_q log p(y | f),                    alpha = 0, its limit,

    where q is the equal mixture of S components. The expectation over each component has a closed
    form if the likelihood has one (`Likelihood.log_expected_power`); otherwise it is estimated from
    draws.

    Args:
        likelihood: A layer of `tfp_fnspace.likelihoods`.
        moments: `GaussianMoments` of f given each component, `[S, N, D]`.
        targets: `[N, D]`.
        alpha: Number from 0 to 1.
        seed: int32 tensor `[2]`.
        num_draws: Number of draws of f over all components, with at least one draw of each. One
            draw in total gives the limit at 0, whatever alpha is.

    Returns:
        Tensor `[N]`.

    References:
        Hernandez-Lobato et al. (2016), "Black-box alpha-divergence minimization", ICML.
    """
    if alpha == 0.0:
        return tf.reduce_mean(likelihood.expected_log_prob(moments, targets, seed), axis=0)
    if num_draws > 1 and not likelihood.has_expected_power:
        repeats = tf.maximum(num_draws // tf.shape(moments.mean)[0], 1)
        moments = of_each(lambda part: tf.repeat(part, repeats, 0), moments)
    powers = likelihood.log_expected_power(moments, targets, alpha, seed)
    most = tf.stop_gradient(tf.reduce_max(powers, axis=0))
    most = tf.where(tf.math.is_finite(most), most, tf.zeros_like(most))
    # This avoids the logarithm of a number near 1, whose rounding a small alpha would magnify.
    excess = tf.math.log1p(tf.reduce_mean(tf.math.expm1(powers - most), axis=0))
    return (most + excess) / alpha
