"""The positive stable distribution, a TFP distribution."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_fnspace.distributions._parameters import (
    POSITIVE,
    UNIT_INTERVAL,
    CheckedParameters,
    common_dtype,
    parameter,
    properties_of,
)
from tfp_fnspace.distributions._univariate import Univariate
from tfp_fnspace.math import kanter
from tfp_fnspace.math.stable import positive
from tfp_fnspace.typing import ArrayLike, Seed, Tensor

tfd = tfp.distributions
tfb = tfp.bijectors


def uniform_and_exponential(
    shape: Sequence[int | Tensor] | Tensor, seed: Seed | None
) -> tuple[Tensor, Tensor]:
    """Returns independent float64 draws, uniform on (0, 1) and standard exponential.

    Args:
        shape: Integer tensor.
        seed: Seed as TFP takes it, also None.

    Returns:
        Two tensors of the given shape.
    """
    # Uniform numbers are multiples of eps; adding half of it keeps u and 1 - u away from 0.
    half = 0.5 * np.finfo(np.float64).eps
    seeds = tfp.random.split_seed(seed, salt="stable")
    uniform, other = (half + tf.random.stateless_uniform(shape, s, dtype=tf.float64) for s in seeds)
    return uniform, -tf.math.log(other)


class PositiveStable(CheckedParameters, Univariate, tfd.AutoCompositeTensorDistribution):
    r"""Distribution of `scale * s` where s > 0 has the Laplace transform `E exp(-l s) = exp(-l^a)`.

    Here a = `index` in (0, 1). The density has a closed form only at a = 1/2 (Levy's distribution).
    Otherwise, with Kanter's function A, it is the integral over u in (0, 1) of the density of `s =
    (A(u)/e)^{(1-a)/a}`, where e is standard exponential:

        P(s <= x) = int_0^1 exp(-A(u) x^{-a/(1-a)}) du,
        A(u) = sin(a pi u)^{a/(1-a)} sin((1-a) pi u) / sin(pi u)^{1/(1-a)}.

    This is computed in logarithms by quadrature, to at least seven digits between the 1 and 99 %
    points, with gradients in x and all parameters. The right tail is `x^{-a} / Gamma(1-a)`; the
    left tail falls faster than exponentially. Everything is computed in float64 and returned in the
    dtype of the parameters.

    `Stable(alpha=a, beta=1, loc=0, scale=cos(pi a / 2)^{1/a})` is the same distribution at
    `scale=1`.

    Samples for a small index are often larger than the largest float32 (1.2 % of them at 0.05).
    `sample_log` and `log_prob_of_log` therefore work with logarithms.

    Args:
        index: a, in (0, 1), floating tensor.
        scale: Positive tensor that broadcasts with `index`.
        validate_args: Whether to check parameters whose value is not known beforehand.
        allow_nan_stats: Has no effect, since no statistic of this distribution is NaN.
        name: Name of the operations.

    Raises:
        ValueError: If a parameter has a known value and lies outside its range.

    Example:
    ```python
    distribution = PositiveStable(index=0.5)
    distribution.prob(1.0)  # 0.2197 = exp(-1/4) / (2 sqrt(pi))
    distribution.sample_log(10, seed=1)  # [10]
    ```

    References:
        Kanter (1975), "Stable densities under change of scale and total variation inequalities",
        Annals of Probability 3(4).
        Zolotarev (1986), "One-dimensional stable distributions".
        Nolan (2020), "Univariate stable distributions".
    """

    _RULES: ClassVar = {"index": UNIT_INTERVAL, "scale": POSITIVE}

    index = parameter("index", "Index of stability a.")
    scale = parameter("scale", "Scale.")

    def __init__(
        self,
        index: ArrayLike,
        scale: ArrayLike = 1.0,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "PositiveStable",
    ):
        parameters = dict(locals())
        with tf.name_scope(name) as name:
            dtype = common_dtype(index, scale)
            self._store_parameters(dtype, index=index, scale=scale)
            super().__init__(
                dtype=dtype,
                reparameterization_type=tfd.FULLY_REPARAMETERIZED,
                validate_args=validate_args,
                allow_nan_stats=allow_nan_stats,
                parameters=parameters,
                name=name,
            )

    @classmethod
    def _parameter_properties(cls, dtype, num_classes=None):
        return properties_of(cls._RULES, dtype)

    def sample_log(
        self,
        sample_shape: int | Sequence[int] | Tensor = (),
        seed: Seed | None = None,
        name: str = "sample_log",
    ) -> Tensor:
        """Draws the logarithms of samples, which are finite in float32 for every index.

        Args:
            sample_shape: Shape, an integer or integers.
            seed: Seed as TFP takes it.
            name: Name of the operation.

        Returns:
            Tensor of shape `sample_shape + batch_shape`.
        """
        with self._name_and_control_scope(name):
            index, log_scale = self._in_float64()
            shape = tf.reshape(tf.convert_to_tensor(sample_shape, tf.int32), [-1])
            shape = tf.concat([shape, self.batch_shape_tensor()], axis=0)
            uniform, exponential = uniform_and_exponential(shape, seed)
            log_s = kanter.log_scale(uniform, tf.math.log(exponential), index)
            return tf.cast(log_s + log_scale, self.dtype)

    def log_prob_of_log(self, log_x: ArrayLike, name: str = "log_prob_of_log") -> Tensor:
        """Returns the logarithm of the density of log x, at log x: `log_prob(x) + log x`.

        Args:
            log_x: Real tensor that broadcasts with the batch shape.
            name: Name of the operation.

        Returns:
            Tensor of the broadcast shape, of the distribution's dtype.
        """
        with self._name_and_control_scope(name):
            index, log_scale = self._in_float64()
            log_x = tf.convert_to_tensor(log_x, dtype_hint=self.dtype)
            log_s = tf.cast(log_x, tf.float64) - log_scale
            return tf.cast(positive.log_density_of_log(log_s, index), self.dtype)

    def _in_float64(self):
        """Returns the index and the logarithm of the scale."""
        return tf.cast(self.index, tf.float64), tf.math.log(tf.cast(self.scale, tf.float64))

    def _sample_n(self, n, seed=None):
        return tf.exp(self.sample_log(n, seed=seed))

    def _log_x(self, x):
        """Returns a mask of x <= 0, and log x elsewhere."""
        x = tf.cast(x, tf.float64)
        outside = x <= 0.0
        return outside, tf.math.log(tf.where(outside, tf.ones_like(x), x))

    def _log_prob(self, x):
        index, log_scale = self._in_float64()
        outside, log_x = self._log_x(x)
        inside = positive.log_density_of_log(log_x - log_scale, index) - log_x
        return tf.cast(tf.where(outside, tf.constant(-np.inf, tf.float64), inside), self.dtype)

    def _log_probabilities(self, x):
        index, log_scale = self._in_float64()
        outside, log_x = self._log_x(x)
        log_below, log_above = positive.log_probabilities_of_log(log_x - log_scale, index)
        log_below = tf.where(outside, tf.constant(-np.inf, tf.float64), log_below)
        log_above = tf.where(outside, tf.constant(0.0, tf.float64), log_above)
        return tf.cast(log_below, self.dtype), tf.cast(log_above, self.dtype)

    def _mean(self):
        """Returns infinity, since the tail is that of x^-a."""
        return tf.fill(self.batch_shape_tensor(), tf.constant(np.inf, self.dtype))

    def _variance(self):
        return self._mean()

    def _default_event_space_bijector(self):
        return tfb.Exp(validate_args=self.validate_args)

    def _sample_control_dependencies(self, x):
        if not self.validate_args:
            return []
        # As in TFP's distributions of positive numbers, a value that rounds to 0 is allowed.
        return [tf.debugging.assert_non_negative(x, message="Samples must not be negative.")]
