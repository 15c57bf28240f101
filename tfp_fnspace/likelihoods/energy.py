"""The data's part of an objective between the lower bound and the density of the data."""

import tensorflow as tf

from tfp_fnspace.typing import GaussianMoments


def data_term(likelihood, moments, targets, alpha, seed, num_draws=1):
    r"""What is expected of the data under a mixture of Gaussians.

        1/alpha log E_q p(y | f)^alpha,      alpha in (0, 1],
        E_q log p(y | f),                    alpha = 0, its limit,

    with q the equal mixture over S components. Over each component the expectation is in closed
    form where the likelihood has one (`Likelihood.log_expected_power`), else from draws.

    Args:
        likelihood: A layer of `tfp_fnspace.likelihoods`.
        moments: `GaussianMoments` of f given each component, `[S, N, D]`.
        targets: `[N, D]`.
        alpha: Number from 0 to 1.
        seed: int32 tensor `[2]`.
        num_draws: Draws of f over all components, but one of each at least. One in all is the
            limit at 0, whatever alpha is.

    Returns:
        Tensor `[N]`.

    References:
        Hernandez-Lobato et al. (2016), "Black-box alpha-divergence minimization", ICML.
    """
    if alpha == 0.0:
        return tf.reduce_mean(likelihood.expected_log_prob(moments, targets, seed), axis=0)
    if num_draws > 1 and not likelihood.has_expected_power:
        repeats = tf.maximum(num_draws // tf.shape(moments.mean)[0], 1)
        moments = GaussianMoments(*(v if v is None else tf.repeat(v, repeats, 0) for v in moments))
    powers = likelihood.log_expected_power(moments, targets, alpha, seed)
    most = tf.stop_gradient(tf.reduce_max(powers, axis=0))
    most = tf.where(tf.math.is_finite(most), most, tf.zeros_like(most))
    # Not the logarithm of a number near 1, which a small alpha would magnify the rounding of.
    excess = tf.math.log1p(tf.reduce_mean(tf.math.expm1(powers - most), axis=0))
    return (most + excess) / alpha
