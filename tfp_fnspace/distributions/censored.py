"""Distributions of clipped variables, which have a positive probability at the limits."""

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_fnspace.distributions._parameters import common_dtype
from tfp_fnspace.distributions.observations import AnyDtype, LogNormal, Normal
from tfp_fnspace.math.expectations import clipped_moments
from tfp_fnspace.typing import ArrayLike, Distribution, Tensor

tfd = tfp.distributions

#: Share of a limit within which a value counts as at the limit: float32 values are rounded.
_SLACK = 2e-7


#: Distance of the logarithms of two tail probabilities below which their difference loses digits.
#: The density in the middle of the interval times its width is then as exact.
_CLOSE = 1e-3


def log_prob_between(distribution: Distribution, low: Tensor, high: Tensor) -> Tensor:
    """Returns `log P(low < y <= high)` of scalars, the log density of y where the limits are equal.

    The difference is that of the smaller tails, so that it is exact far from the mean too. Where
    both limits are infinite it is 0. Gradients are finite.

    Args:
        distribution: Continuous distribution of scalars with a distribution function.
        low: Tensor that broadcasts with the batch; -inf is no limit.
        high: Tensor of the same shape, at least `low`; inf is no limit.

    Returns:
        Tensor.
    """
    has_low, has_high = tf.math.is_finite(low), tf.math.is_finite(high)
    exact = has_low & has_high & (low >= high)
    zeros = tf.zeros_like(low)
    # Each branch has arguments that it can take, since an unused one still has a gradient.
    some = tf.where(has_low, low, tf.where(has_high, high, tf.ones_like(low)))
    between = has_low & has_high & ~exact
    first, last = tf.where(has_low, low, some), tf.where(has_high, high, some)
    last = tf.where(between, last, first + tf.ones_like(first))
    above = distribution.log_survival_function(first), distribution.log_survival_function(last)
    below = distribution.log_cdf(last), distribution.log_cdf(first)
    is_above = above[0] < below[0]
    larger = tf.where(is_above, above[0], below[0])
    smaller = tf.where(is_above, above[1], below[1])
    distance = larger - smaller
    close = distance < _CLOSE
    difference = larger + tf.math.log(
        -tf.math.expm1(-tf.where(close, tf.ones_like(distance), distance))
    )
    middle = distribution.log_prob(0.5 * (first + last)) + tf.math.log(last - first)
    inside = tf.where(close, middle, difference)
    one_side = tf.where(
        has_low, distribution.log_survival_function(some), distribution.log_cdf(some)
    )
    one_side = tf.where(has_low | has_high, one_side, zeros)
    return tf.where(exact, distribution.log_prob(some), tf.where(between, inside, one_side))


class CensoredNormal(AnyDtype, tfd.Distribution):
    r"""`min(max(z, low), high)` for `z ~ N(loc, scale^2)`: a density between two atoms.

    `log_prob` is the logarithm of the density between the limits, and that of the probability
    `P(z <= low)` or `P(z >= high)` at a limit or beyond it. There `mass` is this probability.

    Args:
        loc: Mean of z.
        scale: Standard deviation of z, a tensor that broadcasts with `loc`.
        low: Number, or `None` for no limit.
        high: Number, or `None` for no limit.
        validate_args: As in TFP.
        allow_nan_stats: As in TFP.
        name: Name of the operations.
    """

    def __init__(
        self,
        loc: ArrayLike,
        scale: ArrayLike,
        low: float | None = None,
        high: float | None = None,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "Censored",
    ):
        parameters = dict(locals())
        with tf.name_scope(name) as name:
            dtype = common_dtype(loc, scale)
            self.loc, self.scale = (tf.convert_to_tensor(v, dtype) for v in (loc, scale))
            self.low, self.high = low, high
            super().__init__(
                dtype=dtype,
                reparameterization_type=tfd.NOT_REPARAMETERIZED,
                validate_args=validate_args,
                allow_nan_stats=allow_nan_stats,
                parameters=parameters,
                name=name,
            )

    @classmethod
    def _parameter_properties(cls, dtype, num_classes=None):
        return tfd.Normal._parameter_properties(dtype, num_classes)

    def _event_shape_tensor(self):
        return tf.constant([], tf.int32)

    def _event_shape(self):
        return tf.TensorShape([])

    def _free(self) -> Distribution:
        """Returns the distribution without limits."""
        return Normal(self.loc, self.scale)

    def _is_low(self, y: Tensor) -> Tensor:
        return y <= self.low + _SLACK * abs(self.low)

    def _is_high(self, y: Tensor) -> Tensor:
        return y >= self.high - _SLACK * abs(self.high)

    def at_limits(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Returns whether values are at the lower limit or beyond it, and at the upper one."""
        never = tf.zeros_like(y, tf.bool)
        return (
            never if self.low is None else self._is_low(y),
            never if self.high is None else self._is_high(y),
        )

    def _clipped(self, y: Tensor) -> Tensor:
        y = y if self.low is None else tf.maximum(y, self.low)
        return y if self.high is None else tf.minimum(y, self.high)

    def _log_prob(self, y):
        free = self._free()
        log_prob = free.log_prob(self._clipped(y))
        if self.low is not None:
            log_prob = tf.where(self._is_low(y), free.log_cdf(self.low), log_prob)
        if self.high is not None:
            log_above = free.log_survival_function(self.high)
            log_prob = tf.where(self._is_high(y), log_above, log_prob)
        return log_prob

    def mass(self, y: Tensor) -> Tensor:
        """Returns the probability of the single value y, 0 between the limits."""
        prob = self.prob(y)
        return tf.where(tf.logical_or(*self.at_limits(y)), prob, tf.zeros_like(prob))

    def _cdf(self, y):
        cdf = self._free().cdf(self._clipped(y))
        if self.low is not None:
            cdf = tf.where(y < self.low - _SLACK * abs(self.low), tf.zeros_like(cdf), cdf)
        if self.high is not None:
            cdf = tf.where(self._is_high(y), tf.ones_like(cdf), cdf)
        return cdf

    def _quantile(self, p):
        return self._clipped(self._free().quantile(p))

    def _sample_n(self, n, seed=None):
        return self._clipped(self._free().sample(n, seed=seed))

    def _moments(self) -> tuple[Tensor, Tensor]:
        low = -float("inf") if self.low is None else self.low
        shape = self.batch_shape_tensor()
        loc, variance = (tf.broadcast_to(v, shape) for v in (self.loc, tf.square(self.scale)))
        mean, variance, _ = clipped_moments(loc, variance, low, self.high)
        return mean, variance

    def _mean(self):
        return self._moments()[0]

    def _variance(self):
        return self._moments()[1]


class CensoredLogNormal(CensoredNormal):
    r"""`min(max(exp(z), low), high)` for `z ~ N(loc, scale^2)`; arguments as `CensoredNormal`."""

    def _free(self) -> Distribution:
        return LogNormal(self.loc, self.scale)

    def _clipped(self, y: Tensor) -> Tensor:
        return super()._clipped(tf.maximum(y, np.finfo(self.dtype.as_numpy_dtype).tiny))

    def _moments(self) -> tuple[Tensor, Tensor]:
        mean = self._power(1.0)
        return mean, tf.maximum(self._power(2.0) - tf.square(mean), 0.0)

    def _power(self, k: float) -> Tensor:
        r"""Returns `E y^k`, between the limits the moment of a log-normal of a shifted z.

        low^k Phi(a) + exp(k m + k^2 s^2 / 2) [Phi(b - k s) - Phi(a - k s)] + high^k Phi(-b)
        """
        standard = Normal(tf.zeros([], self.dtype), tf.ones([], self.dtype))
        shape = self.batch_shape_tensor()
        loc, scale = (tf.broadcast_to(v, shape) for v in (self.loc, self.scale))
        total, inside = tf.zeros_like(loc), tf.ones_like(loc)
        for limit, sign in ((self.low, 1.0), (self.high, -1.0)):
            if limit is not None:
                place = sign * (tf.math.log(tf.constant(limit, self.dtype)) - loc) / scale
                total += limit**k * standard.cdf(place)
                inside -= standard.cdf(place - sign * k * scale)
        whole = tf.exp(k * loc + 0.5 * tf.square(k * scale))
        return total + whole * tf.maximum(inside, 0.0)
