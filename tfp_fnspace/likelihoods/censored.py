"""Observations beyond a limit, of which only the side is known."""

import math
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfp_fnspace.boundary import data
from tfp_fnspace.boundary.arguments import checked_number, checked_positive
from tfp_fnspace.distributions.censored import CensoredLogNormal as LogNormalObservations
from tfp_fnspace.distributions.censored import CensoredNormal, log_prob_between
from tfp_fnspace.distributions.observations import LogNormal, Normal
from tfp_fnspace.likelihoods.linked import LARGEST_TARGET, SMALLEST_TARGET, PositiveLikelihood
from tfp_fnspace.likelihoods.positive import WithScale
from tfp_fnspace.math.expectations import normal_expectation
from tfp_fnspace.typing import Array, Config, Distribution, GaussianMoments, Tensor

#: What targets are that are known up to intervals.
_LIMITS = "a lower and an upper limit of each output"


class _Censored(WithScale):
    """Base of both: limits in the user's units, the same for all columns."""

    _lowest = -math.inf

    def __init__(
        self,
        low: float | None = None,
        high: float | None = None,
        scale: float = 0.3,
        trainable: bool = True,
        **kwargs: Any,
    ):
        super().__init__(checked_positive("scale", scale), trainable, **kwargs)
        self.low, self.high = (
            None if limit is None else checked_number(name, limit, self._lowest)
            for name, limit in (("low", low), ("high", high))
        )
        if self.low is None and self.high is None:
            raise ValueError(
                f"`{type(self).__name__}` must have a limit, `low` or `high` or both. "
                "Received: low=None, high=None"
            )
        if self.low is not None and self.high is not None and self.low >= self.high:
            raise ValueError(
                f"`low` must be less than `high`. Received: low={self.low:g}, high={self.high:g}"
            )

    def _limits(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        is_low, is_high = self._observed(tf.zeros_like(targets)).at_limits(targets)
        low = high = self._link(targets)
        infinity = tf.constant(math.inf, low.dtype)
        if self.low is not None:
            limit = self._link(tf.constant(self.low, low.dtype))
            low, high = tf.where(is_low, -infinity, low), tf.where(is_low, limit, high)
        if self.high is not None:
            limit = self._link(tf.constant(self.high, low.dtype))
            low, high = tf.where(is_high, limit, low), tf.where(is_high, infinity, high)
        return low, high

    def get_config(self) -> Config:
        return {**super().get_config(), "low": self.low, "high": self.high}


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class CensoredGaussian(_Censored):
    r"""Gaussian noise, observed only between limits (Tobit), independent between outputs.

        y = min(max(f + v, low), high),    v ~ N(0, scale^2)

    A target at a limit or beyond it says that `f + v` is there or further: its density is the
    probability of that. Predictions are about observations, which lie between the limits too;
    `sample_functions` draws f, which does not. Expectations over Gaussian f are by quadrature.

    Args:
        low: The lower limit in the user's units, the same for all columns, or `None`.
        high: The upper limit, or `None`.
        scale: A positive number, the standard deviation of v at which training starts, in model
            units: standard deviations of the targets, if the model standardises.
        trainable: Whether the scale of each column is trained.
        **kwargs: `name`, `dtype`.

    Raises:
        ValueError: If there is no limit, `low` is not less than `high`, or a number is not finite.

    References:
        Tobin (1958), "Estimation of relationships for limited dependent variables", Econometrica
        26.
    """

    def check_targets(self, targets: Array, name: str = "y") -> None:
        rule = f"numbers of at most {LARGEST_TARGET:g} in magnitude for `CensoredGaussian`"
        data.check_rows(name, targets, np.abs(targets) <= LARGEST_TARGET, rule)

    def _link(self, mean: Tensor) -> Tensor:
        return tf.convert_to_tensor(mean)

    def _about(self, values: Tensor, scale: Tensor) -> Distribution:
        return CensoredNormal(values, scale, self.low, self.high)


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class CensoredLogNormal(_Censored, PositiveLikelihood):
    r"""Positive targets with Gaussian logarithms, observed only between limits.

        y = min(max(exp(f + v), low), high),    v ~ N(0, scale^2)

    This is `CensoredGaussian` for the logarithms. With `high` alone it is a model of times that
    were not observed to their end.

    Args:
        low: The lower limit in the user's units, positive, the same for all columns, or `None`.
        high: The upper limit, or `None`.
        scale: A positive number, the standard deviation of v at which training starts, in model
            units: standard deviations of the logarithms of the targets, if the model standardises.
        trainable: Whether the scale of each column is trained.
        **kwargs: `name`, `dtype`.

    Raises:
        ValueError: If there is no limit, `low` is not less than `high`, or a number is not positive
            and finite.
    """

    _lowest = 0.0

    def statistic(self, targets: Array) -> Array:
        return np.log(targets)

    def _about(self, values: Tensor, scale: Tensor) -> Distribution:
        return LogNormalObservations(values, scale, self.low, self.high)


class _IntervalCensored(WithScale):
    """Base of both: targets `[N, 2 D]`, the lower limits of D outputs and then their upper ones."""

    targets_are_limits = True

    def __init__(self, scale: float = 0.3, trainable: bool = True, **kwargs: Any):
        super().__init__(checked_positive("scale", scale), trainable, **kwargs)

    def num_target_columns(self, num_outputs: int) -> int:
        return 2 * num_outputs

    def check_targets(self, targets: Array, name: str = "y") -> None:
        low, high = np.split(targets, 2, axis=1)
        data.check_rows(
            name, targets, np.tile(low <= high, 2), f"{_LIMITS}, the first at most the second"
        )
        at_infinity = (low == np.inf) | (high == -np.inf)
        data.check_rows(
            name, targets, np.tile(~at_infinity, 2), f"{_LIMITS}, some number between them"
        )
        good = np.isinf(targets) | (np.abs(targets) <= LARGEST_TARGET)
        rule = f"infinite or at most {LARGEST_TARGET:g} in magnitude for `{type(self).__name__}`"
        data.check_rows(name, targets, good, rule)

    def known_values(self, targets: Tensor) -> Tensor:
        low, high = tf.split(targets, 2, axis=-1)
        return tf.where(low >= high, low, tf.constant(math.nan, low.dtype))

    def values_near(self, targets: Array) -> Array:
        low, high = np.split(np.asarray(targets, np.float64), 2, axis=1)
        low, high = (np.where(np.isfinite(limit), limit, np.nan) for limit in (low, high))
        low, high = np.where(np.isnan(low), high, low), np.where(np.isnan(high), low, high)
        return 0.5 * (low + high)

    def statistic(self, targets: Array) -> Array:
        return self.values_near(targets)

    def start_values(self, targets: Tensor) -> Tensor:
        low, high = tf.split(tf.cast(targets, tf.float64), 2, axis=-1)
        first = tf.where(tf.math.is_finite(low), low, high)
        last = tf.where(tf.math.is_finite(high), high, first)
        offset = self.function_scaler.mean.value
        values = tf.where(tf.math.is_finite(last), self._link(0.5 * (first + last)), offset)
        return self.function_scaler(values)

    def _expected(self, moments: GaussianMoments, targets: Tensor) -> Tensor:
        return normal_expectation(lambda f: self._log_prob_of(self._observed(f), targets), moments)

    def _limits(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        low, high = tf.split(self._link(targets), 2, axis=-1)
        return low, high

    def _log_prob_of(self, observed: Distribution, targets: Tensor) -> Tensor:
        low, high = tf.split(targets, 2, axis=-1)
        return log_prob_between(observed, low, high)


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class IntervalCensoredGaussian(_IntervalCensored):
    r"""Gaussian noise, where each target is known up to an interval, independent between outputs.

        low <= y <= high,    y = f + v,    v ~ N(0, scale^2)

    Targets are `[N, 2 D]`: first the lower limits of the D outputs, then the upper ones. Equal
    limits are an exact value, with its density; `high = inf` says that y is above `low` (censored
    on the right), `low = -inf` that it is below `high`, and both say nothing. Otherwise the row has
    the probability of its interval. Every row may have limits of its own, unlike in
    `CensoredGaussian`. Limits must not depend on y in other ways than through the interval.

    Predictions are about y itself, `[N, D]`. `evaluate` has the negative logarithm of these
    probabilities and densities as `nll`; its other scores are about exact values. Expectations over
    Gaussian f are by quadrature.

    Args:
        scale: A positive number, the standard deviation of v at which training starts, in model
            units: standard deviations of the targets, if the model standardises. For these, an
            interval counts as its middle, or its limit.
        trainable: Whether the scale of each column is trained.
        **kwargs: `name`, `dtype`.

    Raises:
        ValueError: If `scale` is not a positive finite number.
    """

    def _link(self, mean: Tensor) -> Tensor:
        return tf.convert_to_tensor(mean)

    def _about(self, values: Tensor, scale: Tensor) -> Distribution:
        return Normal(values, scale)


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class IntervalCensoredLogNormal(_IntervalCensored):
    r"""Positive targets with Gaussian logarithms, each of which is known up to an interval.

        low <= y <= high,    log y = f + v,    v ~ N(0, scale^2)

    This is `IntervalCensoredGaussian` for the logarithms: an accelerated failure time model.
    Targets are `[N, 2 D]`, lower limits and then upper ones. A time t that was seen to its end is
    `(t, t)`, one that was followed up to t only is `(t, inf)`. A lower limit of 0 is none.

    Args:
        scale: A positive number, the standard deviation of v at which training starts, in model
            units: standard deviations of the logarithms of the targets, if the model standardises.
        trainable: Whether the scale of each column is trained.
        **kwargs: `name`, `dtype`.

    Raises:
        ValueError: If `scale` is not a positive finite number.
    """

    def check_targets(self, targets: Array, name: str = "y") -> None:
        super().check_targets(targets, name)
        low, high = np.split(targets, 2, axis=1)
        good = np.concatenate([(low == 0.0) | (low >= SMALLEST_TARGET), high >= SMALLEST_TARGET], 1)
        rule = f"at least {SMALLEST_TARGET:g} for `IntervalCensoredLogNormal`, a lower limit also 0"
        data.check_rows(name, targets, good, rule)

    def values_near(self, targets: Array) -> Array:
        return super().values_near(_without_zeros(np, targets))

    def statistic(self, targets: Array) -> Array:
        return np.log(self.values_near(targets))

    def start_values(self, targets: Tensor) -> Tensor:
        return super().start_values(_without_zeros(tf, targets))

    def _limits(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        return super()._limits(tf.maximum(targets, 0.0))  # whose logarithm is -inf: no limit

    def _log_prob_of(self, observed: Distribution, targets: Tensor) -> Tensor:
        return super()._log_prob_of(observed, _without_zeros(tf, targets))

    def _link(self, mean: Tensor) -> Tensor:
        return tf.math.log(mean)

    def _about(self, values: Tensor, scale: Tensor) -> Distribution:
        return LogNormal(values, scale)


def _without_zeros(library: Any, targets: Any) -> Any:
    """Returns targets whose limits of 0 are those of no limit."""
    return library.where(targets > 0.0, targets, -np.inf * library.ones_like(targets))
