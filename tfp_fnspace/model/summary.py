"""From moments of f to what models predict: distributions and the tensors of `predict`.

Moments are `GaussianMoments` in the user's units: one Gaussian at each point, tensors `[N, D]`, or
an equal mixture of S of them, `[S, N, D]`; in a mixture the variance may be `None`, which stands
for draws of f.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from tfp_fnspace.distributions.quantile import quantile
from tfp_fnspace.likelihoods.base import of_each, variance_of
from tfp_fnspace.model.units import Units
from tfp_fnspace.typing import ArrayLike, Distribution, GaussianMoments, Seed, Tensor

#: Levels of the quantiles that an exported model serves.
QUANTILE_LEVELS = (0.05, 0.5, 0.95)


class Predicted(NamedTuple):
    """What a model predicts for a batch, in the graph and in the user's units.

    Attributes:
        distribution: Function that returns the `tfd.Distribution` of the observations, batch `[N]`,
            event `[D]`.
        tensors: Function that returns the tensors of `predict`, a dict.
    """

    distribution: Callable[[], Distribution]
    tensors: Callable[[], dict[str, Tensor]]


def is_mixture(moments: GaussianMoments) -> bool:
    """Returns whether there are S Gaussians at each point."""
    return moments.mean.shape.rank == 3


def total_moments(moments: GaussianMoments, units: Units) -> GaussianMoments:
    """Returns the mean and variance of f, `[N, D]`.

    For a mixture these are the laws of total expectation and variance.

    Args:
        moments: See above.
        units: `Units` of the model.
    """
    if is_mixture(moments):
        means, variances = moments
        within = 0.0 if variances is None else tf.reduce_mean(variances, axis=0)
        between = tf.math.reduce_variance(means, axis=0)
        moments = GaussianMoments(tf.reduce_mean(means, axis=0), within + between)
    return of_each(units.about_targets, moments)


def probabilities_given(functions: Tensor, likelihood: Any) -> Tensor:
    """Returns the probabilities of classes for functions that are known.

    Args:
        functions: Tensor `[S, N, D]`.
        likelihood: Likelihood of classes.

    Returns:
        Tensor `[S, N, K]`, or `[S, N, D]` for D targets that are 0 or 1.
    """
    size = tf.shape(functions)
    one_by_one = tf.reshape(functions, [1, -1, functions.shape[-1]])
    found = likelihood.uncertainty(GaussianMoments(one_by_one, None))["probabilities"]
    return tf.reshape(found, [size[0], size[1], found.shape[-1]])


def distribution(
    moments: GaussianMoments, likelihood: Any, units: Units, seed: Seed
) -> Distribution:
    """Returns the distribution of the observations, batch `[N]`, event `[D]`.

    Args:
        moments: See above.
        likelihood: Observation model.
        units: `Units` of the model.
        seed: int32 tensor `[2]`, of the draws that a likelihood without a closed form needs.

    Returns:
        `tfd.Distribution`.
    """
    if is_mixture(moments):
        return likelihood.mixture(moments, units.target_unit, seed)
    return likelihood.predictive(moments, units.target_unit)


def tensors(
    moments: GaussianMoments, likelihood: Any, units: Units, seed: Seed
) -> dict[str, Tensor]:
    """Returns the tensors of `predict`; arguments as for `distribution`.

    Returns:
        Dict of tensors `[N, D]`: `mean`, `stddev`, `epistemic_stddev` and `aleatoric_stddev`; for
        a classifier `probabilities`, `entropy` and `mutual_information`. Under a
        likelihood with a link, the first three are of `E(y | f)`.
    """
    mixture = moments
    if not is_mixture(moments):
        mixture, seed = of_each(lambda part: part[tf.newaxis], moments), (0, 0)
    if likelihood.is_classifier:
        return likelihood.uncertainty(mixture, seed)
    if likelihood.has_link:
        return of_variances(*likelihood.observed_moments(mixture))
    noise = likelihood.mean_noise_variance(mixture, units.target_unit)
    return of_variances(total_moments(moments, units), noise)


def of_variances(moments: GaussianMoments, noise: ArrayLike) -> dict[str, Tensor]:
    """Returns the tensors of `predict` of a regression.

    Args:
        moments: Mean and variance of f, or of another function, `[N, D]`.
        noise: Variance of the noise, `[D]` or `[N, D]`.
    """
    mean, variance = moments.mean, variance_of(moments)
    noise = tf.broadcast_to(tf.cast(noise, mean.dtype), tf.shape(mean))
    return {
        "mean": mean,
        "stddev": tf.sqrt(variance + noise),
        "epistemic_stddev": tf.sqrt(variance),
        "aleatoric_stddev": tf.sqrt(noise),
    }


def with_quantiles(outputs: dict[str, Tensor], predictive: Distribution) -> dict[str, Tensor]:
    """Adds the `quantiles` of a distribution, `[N, D, Q]`, to the tensors of `predict`."""
    return {**outputs, "quantiles": quantile(predictive, list(QUANTILE_LEVELS))}
