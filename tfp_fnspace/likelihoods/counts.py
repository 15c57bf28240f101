"""Observations that are counts."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfp_fnspace.boundary import data
from tfp_fnspace.distributions import observations
from tfp_fnspace.layers.scaler import RunningMoments
from tfp_fnspace.likelihoods.linked import LARGEST_COUNT, LinkedLikelihood
from tfp_fnspace.typing import Array, Distribution, GaussianMoments, Tensor


class _Counts(LinkedLikelihood):
    """Counts with the mean `exp(f)`."""

    def check_targets(self, targets: Array, name: str = "y") -> None:
        good = (targets >= 0.0) & (targets == np.floor(targets)) & (targets <= LARGEST_COUNT)
        rule = f"non-negative integers, at most {LARGEST_COUNT:g}, for `{type(self).__name__}`"
        data.check_rows(name, targets, good, rule)

    def _link(self, mean: Tensor) -> Tensor:
        return tf.math.log(mean)

    def _possible(self, moments: RunningMoments) -> Array:
        return np.maximum(moments.mean, 0.5 / moments.count)

    def _inside(self, targets: Tensor) -> Tensor:
        return targets + 0.5


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class Poisson(_Counts):
    r"""Counts, `y ~ Poisson(exp(f))`, independent between outputs.

    Targets are non-negative integers `[N, D]`. f is the logarithm of the mean, which is also the
    variance. Over Gaussian f the expected log density has a closed form:

        E log p(y | f) = y m - exp(m + v / 2) - log y!

    Args:
        **kwargs: `name`, `dtype`.

    Example:
        >>> counts = Poisson()
        >>> float(counts.mean(0.0))
        1.0
    """

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)

    def _observed(self, values: Tensor) -> Distribution:
        return observations.Poisson(log_rate=values)

    def _expected(self, moments: GaussianMoments, targets: Tensor) -> Tensor:
        """Computes the closed form about `m = log y`, where nothing cancels for large y.

        With `r = m - log y` it is `y (r - expm1(r + v / 2)) + y log y - y - log y!`.
        """
        mean, variance = moments
        exponent = mean if variance is None else mean + 0.5 * variance
        counts = tf.where(targets > 0.0, targets, tf.ones_like(targets))
        logs = tf.math.log(counts)
        about = counts * (mean - logs - tf.math.expm1(exponent - logs))
        y = tf.cast(counts, tf.float64)
        constant = tf.math.xlogy(y, y) - y - tf.math.lgamma(y + 1.0)
        return tf.where(targets > 0.0, about + tf.cast(constant, mean.dtype), -tf.exp(exponent))


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class NegativeBinomial(_Counts):
    r"""Counts that vary more than `Poisson` allows, independent between outputs.

        E(y | f) = exp(f),    Var(y | f) = exp(f) + dispersion exp(f)^2

    This is `Poisson` with a Gamma-distributed factor on the mean, whose variance is the dispersion.
    Targets are non-negative integers `[N, D]`. Expectations over Gaussian f are by quadrature.

    Args:
        dispersion: A positive number at which the dispersion of each column starts. The default is
            what the first data suggest.
        trainable: Whether the dispersions are trained.
        **kwargs: `name`, `dtype`.

    Raises:
        ValueError: If `dispersion` is not a positive finite number.
    """

    parameter_name = "dispersion"

    def __init__(self, dispersion: float | None = None, trainable: bool = True, **kwargs: Any):
        super().__init__(dispersion, trainable, **kwargs)

    @property
    def dispersion(self) -> Tensor:
        """The dispersion of each column, `[D]`."""
        return self._parameter()

    def _observed(self, values: Tensor) -> Distribution:
        dispersion = self._parameter(values.dtype)
        logits = values + tf.math.log(dispersion)
        total_count = 1.0 / dispersion + tf.zeros_like(logits)
        return observations.NegativeBinomial(total_count, logits=logits)

    def _parameter_of(self, mean: Array, variance: Array) -> Array:
        return (variance - mean) / np.square(mean)
