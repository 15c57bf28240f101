"""Observations beyond a limit, of which only the side is known."""

import math
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfp_fnspace.boundary import data
from tfp_fnspace.boundary.arguments import checked_number, checked_positive
from tfp_fnspace.distributions.censored import CensoredLogNormal as LogNormalObservations
from tfp_fnspace.distributions.censored import CensoredNormal
from tfp_fnspace.likelihoods.linked import LARGEST_TARGET, PositiveLikelihood
from tfp_fnspace.likelihoods.positive import WithScale
from tfp_fnspace.typing import Array, Config, Distribution, Tensor


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

    def _observed(self, values: Tensor) -> Distribution:
        return CensoredNormal(values, self._noise_scale(values.dtype), self.low, self.high)


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

    def _observed(self, values: Tensor) -> Distribution:
        scale = self._noise_scale(values.dtype)
        return LogNormalObservations(values, scale, self.low, self.high)
