"""Observations that are positive."""

import math
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfp_fnspace.boundary.arguments import checked_positive
from tfp_fnspace.distributions import observations
from tfp_fnspace.layers.scaler import RunningMoments
from tfp_fnspace.likelihoods.base import variance_of
from tfp_fnspace.likelihoods.linked import LinkedLikelihood, PositiveLikelihood
from tfp_fnspace.typing import Array, Distribution, GaussianMoments, Tensor


class WithScale(LinkedLikelihood):
    """Mixin for targets, or their logarithms, that are Gaussian about f, up to censoring.

    The offset and spread of f are the mean and the standard deviation of the `statistic`.
    """

    parameter_name = "scale"

    @property
    def scale(self) -> Tensor:
        """The noise scale of each column in model units, `[D]`."""
        return self._parameter()

    def _noise_scale(self, dtype: tf.DType) -> Tensor:
        """Returns the noise scale in the user's units."""
        return self._parameter(dtype) * tf.cast(self.function_scaler.stddev.value, dtype)

    def _units_of(self, moments: RunningMoments) -> tuple[Array, Array]:
        spread = np.sqrt(moments.sum_of_squares / moments.count)
        return moments.mean, np.where(spread > 0.0, spread, 1.0)


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class LogNormal(WithScale, PositiveLikelihood):
    r"""Positive targets with Gaussian logarithms, independent between outputs.

        log y = f + v,    v ~ N(0, scale^2)

    f is the logarithm of the median. All expectations over Gaussian f have closed forms: those of
    `Gaussian` for log y, less log y.

    Args:
        scale: A positive number, the standard deviation of v at which training starts, in model
            units: standard deviations of the logarithms of the targets, if the model standardises.
        trainable: Whether the scale of each column is trained.
        **kwargs: `name`, `dtype`.

    Raises:
        ValueError: If `scale` is not a positive finite number.
    """

    def __init__(self, scale: float = 0.3, trainable: bool = True, **kwargs: Any):
        super().__init__(checked_positive("scale", scale), trainable, **kwargs)

    def statistic(self, targets: Array) -> Array:
        return np.log(targets)

    def _observed(self, values: Tensor) -> Distribution:
        return observations.LogNormal(values, self._noise_scale(values.dtype))

    def _expected(self, moments: GaussianMoments, targets: Tensor) -> Tensor:
        mean, variance = moments[0], variance_of(moments)
        logs, scale = tf.math.log(targets), self._noise_scale(mean.dtype)
        squared = (tf.square(logs - mean) + variance) / tf.square(scale)
        return -0.5 * squared - tf.math.log(scale) - logs - 0.5 * math.log(2.0 * math.pi)


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class Gamma(PositiveLikelihood):
    r"""Positive targets with a Gamma distribution, independent between outputs.

        E(y | f) = exp(f),    Var(y | f) = exp(2 f) / shape

    Over Gaussian f the expected log density has a closed form: with k the shape and `r = log y -
    m`, it is `k r - k exp(r + v / 2) + k log k - log Gamma(k) - log y`.

    Args:
        shape: A positive number at which the shape of each column starts. The default is what the
            first data suggest.
        trainable: Whether the shapes are trained.
        **kwargs: `name`, `dtype`.

    Raises:
        ValueError: If `shape` is not a positive finite number.
    """

    parameter_name = "shape"

    def __init__(self, shape: float | None = None, trainable: bool = True, **kwargs: Any):
        super().__init__(shape, trainable, **kwargs)

    @property
    def shape(self) -> Tensor:
        """The shape of each column, `[D]`."""
        return self._parameter()

    def _observed(self, values: Tensor) -> Distribution:
        shape = self._parameter(values.dtype) + tf.zeros_like(values)
        return observations.Gamma(shape, log_rate=tf.math.log(shape) - values)

    def _expected(self, moments: GaussianMoments, targets: Tensor) -> Tensor:
        mean, variance = moments[0], variance_of(moments)
        shape, logs = self._parameter(mean.dtype), tf.math.log(targets)
        ratio = logs - mean
        constant = tf.math.xlogy(shape, shape) - tf.math.lgamma(shape)
        return shape * (ratio - tf.exp(ratio + 0.5 * variance)) + constant - logs

    def _parameter_of(self, mean: Array, variance: Array) -> Array:
        with np.errstate(divide="ignore"):
            return np.square(mean) / variance
