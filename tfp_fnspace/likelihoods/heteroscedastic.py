"""Gaussian noise whose size depends on the input."""

import math
from typing import Any

import keras
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_fnspace.boundary.arguments import checked_positive
from tfp_fnspace.distributions import observations
from tfp_fnspace.likelihoods.base import static_size, variance_of
from tfp_fnspace.likelihoods.mixtures import MixtureLikelihood, num_nodes
from tfp_fnspace.likelihoods.variance_inference import exponential_mean, noise_innovation
from tfp_fnspace.math.expectations import normal_expectation, normal_nodes, stddev_of
from tfp_fnspace.math.random import as_seed
from tfp_fnspace.typing import ArrayLike, Config, Distribution, GaussianMoments, Seed, Tensor

tfd = tfp.distributions


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class HeteroscedasticGaussian(MixtureLikelihood):
    r"""Gaussian noise with a variance that is learnt as a function of the input.

        y_d = f_d(x) + v_d,    v_d ~ N(0, min_scale^2 + exp(g_d(x)))

    The model has 2 D outputs for D columns of targets: first f_1 ... f_D, then g_1 ... g_D, the
    logarithms of the noise's variances in model units. All results about functions are about f.
    TAGI learns g in closed form, by approximate Gaussian variance inference (see `innovation`).

    Args:
        min_scale: Smallest standard deviation of the noise in model units, a positive number. It
            keeps the density bounded if a network fits a point exactly.
        **kwargs: `name`, `dtype`.

    Raises:
        ValueError: If `min_scale` is not a positive finite number.

    References:
        Kendall and Gal (2017), "What uncertainties do we need in Bayesian deep learning for
        computer vision?", NeurIPS.
        Deka, Nguyen and Goulet (2024), "Analytically tractable heteroscedastic uncertainty
        quantification in Bayesian neural networks for regression tasks", Neurocomputing 572.
    """

    has_noise_outputs = True

    def __init__(self, min_scale: float = 0.01, **kwargs: Any):
        super().__init__(autocast=False, **kwargs)
        self.min_scale = checked_positive("min_scale", min_scale)
        self.built = True

    def check_outputs(self, num_outputs: int) -> None:
        """Refuses an odd number of outputs.

        Raises:
            ValueError: If some column of targets lacks an output for f or for g.
        """
        if num_outputs % 2:
            raise ValueError(
                "With `HeteroscedasticGaussian` a model must have two outputs for each column of "
                "targets, the value and the logarithm of the noise's variance. "
                f"Received: {num_outputs} outputs"
            )

    def num_target_columns(self, num_outputs: int) -> int:
        return num_outputs // 2

    def log_prob(self, values: Tensor, targets: Tensor) -> Tensor:
        return self.expected_log_prob(GaussianMoments(values, None), targets)

    def expected_log_prob(
        self, moments: GaussianMoments, targets: Tensor, seed: Seed | None = None
    ) -> Tensor:
        r"""Computes `Likelihood.expected_log_prob` in closed form over f, by quadrature over g.

        It is `E_g [-(log(2 pi s) + ((y - m)^2 + v) / s) / 2]`, where s is the noise's variance.
        """
        (mean, variance), log_noise = _split(moments)
        squared = tf.square(targets - mean) + (0.0 if variance is None else variance)

        def density(g):
            noise = self._variance(g)
            return -0.5 * (tf.math.log(2.0 * math.pi * noise) + squared / noise)

        return tf.reduce_sum(normal_expectation(density, log_noise), axis=-1)

    def mean_noise_variance(self, moments: GaussianMoments, unit: ArrayLike = 1.0) -> Tensor:
        """Computes `Likelihood.mean_noise_variance`, `min_scale^2 + E exp(g)`, in closed form."""
        noise = self._mean_variance(_split(moments)[1])
        return tf.reduce_mean(noise, axis=0) * tf.square(tf.cast(unit, noise.dtype))

    def innovation(self, moments: GaussianMoments, targets: Tensor) -> tuple[Tensor, Tensor]:
        r"""Returns the innovations of f and g given one observation each, see `noise_innovation`.

        Args:
            moments: `GaussianMoments` of f and g in model units, tensors `[N, 2 D]`.
            targets: Tensor `[N, D]` in model units.

        Returns:
            Pair of tensors `[N, 2 D]`.
        """
        parts = noise_innovation(*_split(moments), targets, self.min_scale**2)
        mean, variance = (tf.concat(pair, axis=-1) for pair in zip(*parts, strict=True))
        return mean, variance

    def observation_moments(
        self, moments: GaussianMoments, unit: ArrayLike = 1.0
    ) -> GaussianMoments:
        r"""Returns the mean m and the variance `v + min_scale^2 + E exp(g)` of the observations.

        Args:
            moments: `GaussianMoments` of f, in the units of the result, and g, `[..., 2 D]`.
            unit: One model unit of the targets, `[]` or `[D]`, in the units of the result.

        Returns:
            `GaussianMoments` of tensors `[..., D]`.
        """
        values, log_noise = _split(moments)
        noise = self._mean_variance(log_noise) * tf.square(tf.cast(unit, values.mean.dtype))
        return GaussianMoments(values.mean, variance_of(values) + noise)

    def predictive(self, moments: GaussianMoments, unit: ArrayLike = 1.0) -> Distribution:
        """Returns the Gaussian with the moments of the observations, for Gaussian f and g.

        Closed-form inference approximates the observations by this Gaussian. `mixture` is their
        exact distribution, which has the same mean and variance and heavier tails.

        Args:
            moments: As for `observation_moments`.
            unit: As for `observation_moments`.

        Returns:
            `tfd.Independent` normal, event `[D]`.
        """
        observed = self.observation_moments(moments, unit)
        return self.predictive_from(observed.mean, tf.sqrt(variance_of(observed)))

    def predictive_from(self, mean: Tensor, stddev: Tensor) -> Distribution:
        """Returns the result of `predictive` for the moments `[..., D]` of the observations."""
        return tfd.Independent(observations.Normal(mean, stddev), reinterpreted_batch_ndims=1)

    def _components(self, moments: GaussianMoments, unit: ArrayLike, seed: Seed) -> Distribution:
        """Returns Gaussians; if g is Gaussian there are K for each component, at K nodes of g."""
        values, (g, g_variance) = _split(moments)  # [N, S, D]
        mean, variance = values.mean, variance_of(values)
        if g_variance is not None:
            size, outputs = static_size(mean, 1), static_size(mean, 2)
            nodes = num_nodes(size)
            z = normal_nodes(size, nodes, outputs, as_seed(seed), mean.dtype)  # [S, K, D]
            g = g[:, :, tf.newaxis] + stddev_of(g_variance)[:, :, tf.newaxis] * z
            shape = [tf.shape(mean)[0], size * nodes, outputs]
            g = tf.reshape(g, shape)
            mean, variance = (tf.repeat(v, nodes, axis=1) for v in (mean, variance))
        stddev = tf.sqrt(variance + self._variance(g) * tf.square(tf.cast(unit, mean.dtype)))
        return tfd.Independent(observations.Normal(mean, stddev), reinterpreted_batch_ndims=1)

    def _mean_variance(self, log_noise: GaussianMoments) -> Tensor:
        return self.min_scale**2 + exponential_mean(*log_noise)

    def _variance(self, log_variance: Tensor) -> Tensor:
        return self.min_scale**2 + tf.exp(log_variance)

    def get_config(self) -> Config:
        return {**super().get_config(), "min_scale": self.min_scale}


def _split(moments: GaussianMoments) -> tuple[GaussianMoments, GaussianMoments]:
    """Returns the moments of f and of g."""
    mean, variance = moments
    means = tf.split(mean, 2, axis=-1)
    variances = [None, None] if variance is None else tf.split(variance, 2, axis=-1)
    first, second = map(GaussianMoments, means, variances)
    return first, second
