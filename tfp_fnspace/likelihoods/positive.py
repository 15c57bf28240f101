"""Observations that are positive."""

import math
from typing import Any

import keras
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_fnspace.boundary import arrays
from tfp_fnspace.boundary.arguments import checked_positive
from tfp_fnspace.distributions import observations
from tfp_fnspace.layers.scaler import RunningMoments
from tfp_fnspace.likelihoods.base import variance_of
from tfp_fnspace.likelihoods.linked import LinkedLikelihood, PositiveLikelihood
from tfp_fnspace.math.truncated import log_prob_derivatives
from tfp_fnspace.typing import Array, ArrayLike, Distribution, GaussianMoments, Tensor

tfd = tfp.distributions


class WithScale(LinkedLikelihood):
    """Mixin for targets, or their logarithms, that are Gaussian about f, up to censoring.

    The offset and spread of f are the mean and the standard deviation of the `statistic`. Over
    Gaussian f a target, or its logarithm, is Gaussian too, so that `predictive` and `innovation`
    have closed forms.

    A subclass has `_about(values, scale)`, the distribution of a target given f and the scale of
    the noise, whose `_link` maps targets to the scale of f.
    """

    parameter_name = "scale"

    @property
    def scale(self) -> Tensor:
        """The noise scale of each column in model units, `[D]`."""
        return self._parameter()

    @property
    def scale_variable(self) -> keras.Variable:
        """The weight that `set_scale` sets."""
        return self._variable()

    def set_scale(self, scale: ArrayLike) -> None:
        """Sets the noise scale in model units, a positive number or one for each column."""
        values = arrays.as_array(scale, "scale").astype(np.float64)
        if values.ndim > 1 or not np.all(np.isfinite(values)) or not np.all(values > 0.0):
            raise ValueError(
                "`scale` must be a positive finite number, or one per output. "
                f"Received: scale={scale!r}"
            )
        variable = self._variable()
        variable.assign(np.broadcast_to(np.log(values), variable.shape))

    def _noise_scale(self, dtype: tf.DType) -> Tensor:
        """Returns the noise scale in the user's units."""
        return self._parameter(dtype) * tf.cast(self.function_scaler.stddev.value, dtype)

    def _about(self, values: Tensor, scale: Tensor) -> Distribution:
        """Returns the distribution of a target for values of f and noise in the user's units."""
        raise NotImplementedError

    def _observed(self, values: Tensor) -> Distribution:
        return self._about(values, self._noise_scale(values.dtype))

    # Over Gaussian f --------------------------------------------------------------------------

    def predictive(self, moments: GaussianMoments, unit: ArrayLike = 1.0) -> Distribution:
        """Returns the distribution of the observations for Gaussian f, in closed form.

        Args:
            moments: `GaussianMoments` of f in the user's units, tensors `[..., N, D]`.
            unit: Has no effect, as targets have the same units everywhere.

        Returns:
            `tfd.Independent`, event `[D]`.
        """
        return tfd.Independent(self._observed_over(moments), reinterpreted_batch_ndims=1)

    def _observed_over(self, moments: GaussianMoments) -> Distribution:
        """Returns the distribution of a target, entry by entry, for Gaussian f."""
        mean, noise = moments[0], tf.square(self._noise_scale(moments[0].dtype))
        return self._about(mean, tf.sqrt(variance_of(moments) + noise))

    def innovation(self, moments: GaussianMoments, targets: Tensor) -> tuple[Tensor, Tensor]:
        r"""Returns the innovations of the function values given one observation each.

        They are the first two derivatives in m of the log probability of what is observed of `z =
        f + v`, `z ~ N(m, S + scale^2)`. Of an exact value they are `(z - m) / (S + scale^2)` and
        `-1 / (S + scale^2)`, as for `Gaussian`. Of limits they are moments of a truncated Gaussian
        (`math.truncated`). The posterior moments of f are `m + S dm` and `S + S^2 dS`, exactly.

        Args:
            moments: `GaussianMoments` of f in model units, tensors `[N, D]`.
            targets: Tensor of targets in the user's units, `[N, D]`; `[N, 2 D]` of limits.

        Returns:
            Pair of tensors `[N, D]`.
        """
        mean, variance = moments[0], variance_of(moments)
        total = variance + tf.square(self._parameter(mean.dtype))
        scaler = self.function_scaler
        low, high = (
            (limit - scaler.mean.value) / scaler.stddev.value
            for limit in self._limits(tf.cast(targets, tf.float64))
        )
        return log_prob_derivatives(mean, total, low, high)

    def _limits(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Returns what float64 targets say of f + v: limits `[N, D]`, equal for exact values."""
        values = self._link(targets)
        return values, values

    def log_predictive(self, moments: GaussianMoments, targets: Tensor) -> Tensor:
        """Returns the log density or probability of each target for Gaussian f.

        Args:
            moments: `GaussianMoments` of f in the user's units, tensors `[N, D]`.
            targets: As for `innovation`.

        Returns:
            Tensor `[N, D]`.
        """
        targets = tf.cast(targets, moments[0].dtype)
        return self._log_prob_of(self._observed_over(moments), targets)

    def _log_prob_of(self, observed: Distribution, targets: Tensor) -> Tensor:
        """Returns the log density of targets, entry by entry."""
        return observed.log_prob(targets)

    # ------------------------------------------------------------------------------------------

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

    def _about(self, values: Tensor, scale: Tensor) -> Distribution:
        return observations.LogNormal(values, scale)

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
