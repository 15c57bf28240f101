"""Distributions of observations that accept values of any dtype."""

from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_fnspace.distributions.quantile import is_mixture
from tfp_fnspace.typing import ArrayLike, Distribution, Tensor

tfd = tfp.distributions


# The methods are those of the distribution that comes after the mixin among the bases.
_Host = tfd.Distribution if TYPE_CHECKING else object


class AnyDtype(_Host):
    """Mixin of distributions of numbers that casts values of any dtype to its own dtype.

    For a float64 distribution TFP accepts a float32 array but refuses a float32 tensor. Predictions
    are float64 (see `layers.Standardizer`), and observations are often float32 tensors.
    """

    def log_prob(self, value: ArrayLike, name: str = "log_prob", **kwargs: Any) -> Tensor:
        return super().log_prob(self._as_own(value), name, **kwargs)

    def prob(self, value: ArrayLike, name: str = "prob", **kwargs: Any) -> Tensor:
        return super().prob(self._as_own(value), name, **kwargs)

    def cdf(self, value: ArrayLike, name: str = "cdf", **kwargs: Any) -> Tensor:
        return super().cdf(self._as_own(value), name, **kwargs)

    def log_cdf(self, value: ArrayLike, name: str = "log_cdf", **kwargs: Any) -> Tensor:
        return super().log_cdf(self._as_own(value), name, **kwargs)

    def survival_function(
        self, value: ArrayLike, name: str = "survival_function", **kwargs: Any
    ) -> Tensor:
        return super().survival_function(self._as_own(value), name, **kwargs)

    def log_survival_function(
        self, value: ArrayLike, name: str = "log_survival_function", **kwargs: Any
    ) -> Tensor:
        return super().log_survival_function(self._as_own(value), name, **kwargs)

    def quantile(self, value: ArrayLike, name: str = "quantile", **kwargs: Any) -> Tensor:
        return super().quantile(self._as_own(value), name, **kwargs)

    def _as_own(self, value):
        return tf.cast(tf.convert_to_tensor(value, dtype_hint=self.dtype), self.dtype)


class Normal(AnyDtype, tfd.Normal):
    """`tfd.Normal` for values of any dtype."""


class StudentT(AnyDtype, tfd.StudentT):
    """`tfd.StudentT` for values of any dtype."""


class JohnsonSU(AnyDtype, tfd.JohnsonSU):
    """`tfd.JohnsonSU` for values of any dtype."""

    def _quantile(self, value):
        # TFP asks the parameters whether the map rises, and then no level is a constant any more.
        return self.bijector.forward(self.distribution.quantile(value))


class _Positive(AnyDtype):
    """Mixin of distributions of positive numbers, also of those below `_most`.

    Outside of these TFP's distribution functions may be NaN; here they are 0 or 1.
    """

    _most = np.inf

    def _cdf(self, x):
        is_below, is_above, inside = self._places(x)
        found = tf.where(is_below, tf.zeros_like(inside), super()._cdf(inside))
        return tf.where(is_above, tf.ones_like(inside), found)

    def _survival_function(self, x):
        is_below, is_above, inside = self._places(x)
        found = tf.where(is_below, tf.ones_like(inside), super()._survival_function(inside))
        return tf.where(is_above, tf.zeros_like(inside), found)

    def _places(self, x):
        """Returns where values are below and above all possible ones, and a possible one there."""
        is_below, is_above = x <= 0.0, x >= self._most
        return is_below, is_above, tf.where(is_below | is_above, 0.5 * tf.ones_like(x), x)


class LogNormal(_Positive, tfd.LogNormal):
    """`tfd.LogNormal` for values of any dtype."""


class Gamma(_Positive, tfd.Gamma):
    """`tfd.Gamma` for values of any dtype."""


class Beta(_Positive, tfd.Beta):
    """`tfd.Beta` for values of any dtype."""

    _most = 1.0


class Poisson(AnyDtype, tfd.Poisson):
    """`tfd.Poisson` for values of any dtype, whose distribution function has steps."""

    def _cdf(self, x):
        return super()._cdf(tf.floor(x))


class NegativeBinomial(AnyDtype, tfd.NegativeBinomial):
    """`tfd.NegativeBinomial` for values of any dtype, whose distribution function has steps."""

    def _cdf(self, x):
        return super()._cdf(tf.floor(x))


def normal_components(distribution: Distribution) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the components of a distribution of observations.

    Args:
        distribution: Independent Gaussians, batch `[N]` and event `[D]`, or a mixture of them.

    Returns:
        Logarithms of the weights `[N, K]`, means and standard deviations `[N, K, D]`.
    """
    if is_mixture(distribution):
        logits = distribution.mixture_distribution.logits_parameter()
        normal = distribution.components_distribution.distribution
        mean, stddev = normal.loc, normal.scale
        logits = tf.broadcast_to(tf.nn.log_softmax(logits), tf.shape(mean)[:2])
        return logits, mean, tf.broadcast_to(stddev, tf.shape(mean))
    normal = distribution.distribution
    mean = normal.loc[:, tf.newaxis]
    stddev = tf.broadcast_to(normal.scale, tf.shape(normal.loc))[:, tf.newaxis]
    return tf.zeros(tf.shape(mean)[:2], mean.dtype), mean, stddev


def mixture(logits: Tensor, components: Distribution) -> Distribution:
    """Makes a mixture with batch `[N]` and event `[D]`.

    Args:
        logits: Logarithms of the weights `[N, K]`.
        components: Distribution of numbers, batch `[N, K, D]`.
    """
    independent = tfd.Independent(components, reinterpreted_batch_ndims=1)
    return tfd.MixtureSameFamily(tfd.Categorical(logits=logits), independent)
