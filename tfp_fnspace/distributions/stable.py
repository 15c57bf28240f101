"""Stable laws of any index and skewness, a TFP distribution."""

import math

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_fnspace.distributions.positive_stable import (
    as_parameter,
    assertions,
    check_known_parameter,
    check_scale,
    common_dtype,
    uniform_and_exponential,
)
from tfp_fnspace.math.stable import general, sampling

tfd = tfp.distributions
tfb = tfp.bijectors


class Stable(tfd.AutoCompositeTensorDistribution):
    r"""The stable law of index alpha, skewness beta, location and scale.

    In the parameterisation of Samorodnitsky and Taqqu ("S1", SciPy's default):

        E exp(i t X) = exp[i t loc - scale^alpha |t|^alpha (1 - i beta sign(t) omega)],
        omega = tan(pi alpha / 2) if alpha != 1, else -(2/pi) log|t|.

    Special cases: `alpha = 2` is `Normal(loc, sqrt(2) scale)`, `alpha = 1, beta = 0` is
    `Cauchy(loc, scale)`, `alpha = 1/2, beta = 1` is Levy's law on `(loc, inf)`. For alpha < 1 and
    beta = 1 (-1) the law lives on the right (left) of `loc`.

    Density and distribution function are computed by quadrature of Zolotarev's integrals, in
    float64 whatever the dtype, for every alpha and beta, with gradients in x and all parameters.
    Samples are reparameterised in all parameters.

    For beta != 0 this law is not continuous in alpha at 1: its bulk is at
    `loc + scale beta tan(pi alpha / 2)`. At alpha = 1 exactly, gradients in alpha are those of the
    law shifted by this amount, which is continuous.

    Args:
        alpha: Index, in (0, 2], floating tensor.
        beta: Skewness, in [-1, 1], tensor that broadcasts with `alpha`.
        loc: Finite tensor that broadcasts with `alpha`.
        scale: Positive tensor that broadcasts with `alpha`.
        validate_args: Whether to check parameters whose value is not known beforehand.
        allow_nan_stats: Whether an undefined mean is NaN; an error otherwise.
        name: Name of the operations.

    Raises:
        ValueError: If a parameter has a known value and lies outside its range.

    Example:
    ```python
    law = Stable(alpha=1.7, beta=0.5, loc=0.0, scale=1.0)
    law.log_prob([-1.0, 0.0, 30.0])  # [3]
    ```

    References:
        Samorodnitsky and Taqqu (1994), "Stable non-Gaussian random processes", section 1.1.
        Nolan (2020), "Univariate stable distributions".
        Zolotarev (1986), "One-dimensional stable distributions".
        Chambers, Mallows and Stuck (1976), "A method for simulating stable random variables",
        Journal of the American Statistical Association 71.
    """

    def __init__(
        self,
        alpha,
        beta,
        loc=0.0,
        scale=1.0,
        validate_args=False,
        allow_nan_stats=True,
        name="Stable",
    ):
        parameters = dict(locals())
        with tf.name_scope(name) as name:
            dtype = common_dtype(alpha, beta, loc, scale)
            self._alpha = as_parameter(alpha, dtype)
            self._beta = as_parameter(beta, dtype)
            self._loc = as_parameter(loc, dtype)
            self._scale = as_parameter(scale, dtype)
            check_known_parameter(
                "alpha", self._alpha, lambda v: (v > 0.0) & (v <= 2.0), "in (0, 2]"
            )
            check_known_parameter("beta", self._beta, lambda v: np.abs(v) <= 1.0, "in [-1, 1]")
            check_known_parameter("loc", self._loc, np.isfinite, "finite")
            check_scale(self._scale)
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
        properties = tfp.util.ParameterProperties
        ends = tf.zeros([], dtype), tf.constant(2.0, dtype)
        return dict(
            alpha=properties(default_constraining_bijector_fn=lambda: tfb.Sigmoid(*ends)),
            beta=properties(default_constraining_bijector_fn=tfb.Tanh),
            loc=properties(),
            scale=properties(default_constraining_bijector_fn=tfb.Softplus),
        )

    @property
    def alpha(self):
        """Index of stability."""
        return self._alpha

    @property
    def beta(self):
        """Skewness."""
        return self._beta

    @property
    def loc(self):
        """Location: the mean for alpha > 1."""
        return self._loc

    @property
    def scale(self):
        """Scale."""
        return self._scale

    def _in_float64(self):
        """alpha, beta, location and scale; at alpha = 1 the location of the standard law."""
        parts = (self.alpha, self.beta, self.loc, self.scale)
        alpha, beta, loc, scale = (tf.cast(part, tf.float64) for part in parts)
        shift = 2.0 / math.pi * beta * scale * tf.math.log(scale)
        return alpha, beta, loc + tf.where(tf.equal(alpha, 1.0), shift, 0.0), scale

    def _event_shape_tensor(self):
        return tf.constant([], dtype=tf.int32)

    def _event_shape(self):
        return tf.TensorShape([])

    def _sample_n(self, n, seed=None):
        alpha, beta, loc, scale = self._in_float64()
        shape = tf.concat([[n], self.batch_shape_tensor()], axis=0)
        draws = uniform_and_exponential(shape, seed)
        z = sampling.from_uniform_and_exponential(*draws, alpha, beta)
        return tf.cast(loc + scale * z, self.dtype)

    def _log_prob(self, x):
        alpha, beta, loc, scale = self._in_float64()
        z = (tf.cast(x, tf.float64) - loc) / scale
        return tf.cast(general.log_density(z, alpha, beta) - tf.math.log(scale), self.dtype)

    def _log_probabilities(self, x):
        alpha, beta, loc, scale = self._in_float64()
        z = (tf.cast(x, tf.float64) - loc) / scale
        return [tf.cast(log, self.dtype) for log in general.log_probabilities(z, alpha, beta)]

    def _log_cdf(self, x):
        return self._log_probabilities(x)[0]

    def _cdf(self, x):
        return tf.exp(self._log_cdf(x))

    def _log_survival_function(self, x):
        return self._log_probabilities(x)[1]

    def _survival_function(self, x):
        return tf.exp(self._log_survival_function(x))

    def _mean(self):
        """`loc` for alpha > 1; infinite if only one tail is heavy, else undefined."""
        alpha, beta = tf.convert_to_tensor(self.alpha), tf.convert_to_tensor(self.beta)
        shape = self.batch_shape_tensor()
        is_defined = (alpha > 1.0) | (tf.abs(beta) >= 1.0)
        checks = []
        if not self.allow_nan_stats:
            message = "The mean is undefined for alpha <= 1 and |beta| < 1."
            checks = [tf.debugging.Assert(tf.reduce_all(is_defined), [message])]
        with tf.control_dependencies(checks):
            infinite = tf.where(beta > 0.0, np.inf, -np.inf)
            without = tf.where(is_defined, tf.cast(infinite, self.dtype), np.nan)
            return tf.broadcast_to(tf.where(alpha > 1.0, self.loc, without), shape)

    def _variance(self):
        """`2 scale^2` for alpha = 2, else infinite."""
        alpha, scale = tf.convert_to_tensor(self.alpha), tf.convert_to_tensor(self.scale)
        variance = tf.where(alpha >= 2.0, 2.0 * tf.square(scale), np.inf)
        return tf.broadcast_to(variance, self.batch_shape_tensor())

    def _default_event_space_bijector(self):
        return tfb.Identity(validate_args=self.validate_args)

    def _parameter_control_dependencies(self, is_init):
        if not self.validate_args:
            return []
        return assertions(
            is_init,
            (self.alpha, lambda v: (v > 0.0) & (v <= 2.0), "`alpha` must be in (0, 2]."),
            (self.beta, lambda v: tf.abs(v) <= 1.0, "`beta` must be in [-1, 1]."),
            (self.loc, tf.math.is_finite, "`loc` must be finite."),
            (self.scale, lambda v: (v > 0.0) & tf.math.is_finite(v), "`scale` must be positive."),
        )
