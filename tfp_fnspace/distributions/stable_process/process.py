"""The stable process at finitely many points with normal noise, as a TFP distribution."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_fnspace.boundary.arguments import checked_count
from tfp_fnspace.distributions._parameters import (
    NON_NEGATIVE,
    POSITIVE,
    STABLE_INDEX,
    CheckedParameters,
    parameter,
    properties_of,
)
from tfp_fnspace.distributions.positive_stable import uniform_and_exponential
from tfp_fnspace.distributions.stable import Stable
from tfp_fnspace.distributions.stable_process import checks, density, gaussian, patterns, prior
from tfp_fnspace.math.random import normal
from tfp_fnspace.typing import ArrayLike, Distribution, Seed, Tensor

tfd = tfp.distributions
tfb = tfp.bijectors

#: Importance samples without a seed are always the same, so that `log_prob` is a function of y.
_SEED = (0, 0)


class _AsGiven(tuple):
    """A partition as given, and the bytes by which types of composite tensors are compared.

    Args:
        key: The bytes of its arrays.
        given: The partition.
    """

    given: Any

    def __new__(cls, key, given=None):
        self = super().__new__(cls, key)
        self.given = given
        return self

    def __getattr__(self, name):
        return getattr(self.given, name)


class StableProcess(CheckedParameters, tfd.AutoCompositeTensorDistribution):
    r"""Distribution of `y = f(x) + e` at points x, f a limit of wide networks with stable weights.

    Consider a network with p hidden units `sign(b + w.x)`, (b, w) standard normal, and independent
    symmetric alpha-stable output weights of scale `(nu/2)^(1/2) p^(-1/alpha)`. It tends to a
    process f (Proposition 1). With the hyperplanes h_l and probabilities q_l of a partition, and
    `tau_l(x) = sign(h_l . (1, x))`, `sign(0) = 1` (Theorem 1),

        f(x) = sum_l beta_l tau_l(x),         beta_l | s_l ~ N(0, d_l),
        d_l = nu q_l^{2/alpha} s_l,           E exp(-r s_l) = exp(-r^{alpha/2}),
        y = f(x) + e,                         e ~ N(0, sigma^2 I),
        E exp(i t.y) = exp(-(nu/2)^{alpha/2} sum_l q_l |t.tau_l|^alpha - sigma^2 |t|^2 / 2),

    where the last line follows from equations (3) and (4). At one point f is symmetric stable with
    scale `(nu/2)^{1/2}`. At alpha = 2 all s are 1, and f is a Gaussian process with the kernel `nu
    (1 - (2/pi) angle((1, x), (1, x')))`. Paths are piecewise constant for alpha < 2.

    Given the scales s, y is normal with the covariance

        Q = sigma^2 I + sum_l d_l tau_l tau_l'.

    Samples are reparameterised in alpha, nu and sigma. At alpha = 2 they have no derivative in
    alpha, which is returned as 0. The density has a closed form only at one point without noise,
    where `log_prob` is exact. Otherwise `log_prob` averages the normal densities over draws of the
    scales from their distribution. Without a `seed` the draws are always the same. They are also
    the same for every member of a batch, so that `log_prob` of a part of the batch is that part of
    `log_prob`. This works for a handful of points; `log_prob_with_error` returns the standard
    error. Everything is computed in float64 and returned in the dtype of the parameters.

    Args:
        index_points: x, array `[N, I]` whose value is known.
        alpha: Index, in (0, 2], floating tensor.
        nu: Positive tensor that broadcasts with `alpha`, twice the squared scale of f.
        observation_noise_scale: sigma >= 0, tensor that broadcasts with `alpha`.
        partition: Object with the arrays `hyperplanes` `[L, I+1]`, vectors (b, w), and
            `probabilities` `[L]`, such as `tfp_fnspace.stable_process.partition(x)`, which is exact
            at x for one or two inputs.
        num_importance_samples: Number of draws of the scales in `log_prob`.
        validate_args: Whether to check parameters whose value is not known in advance.
        allow_nan_stats: Whether an undefined mean or covariance is NaN; otherwise it is an error.
        name: Name of the operations.

    Raises:
        ValueError: If a parameter has a known value and lies outside its range, if shapes do not
            match, or if there is no partition.

    Example:
    ```python
    x = np.linspace(-1.0, 1.0, 50)[:, np.newaxis]
    distribution = StableProcess(x, 1.1, partition=tfp_fnspace.stable_process.partition(x))
    paths = distribution.sample(3, seed=1)  # [3, 50]
    ```

    References:
        Loria & Bhadra (2023), "Posterior Inference on Infinitely Wide Bayesian Neural Networks
        under Weights with Unbounded Variance", Proposition 1 to Proposition 2.
        Der & Lee (2005), "Beyond Gaussian Processes: On the Distributions of Infinite Networks".
    """

    _RULES: ClassVar = {
        "alpha": STABLE_INDEX,
        "nu": POSITIVE,
        "observation_noise_scale": NON_NEGATIVE,
    }

    index_points = parameter("index_points", "Points x, an array `[N, I]`.")
    alpha = parameter("alpha", "Index of stability.")
    nu = parameter("nu", "Twice the squared scale of f at a point.")
    observation_noise_scale = parameter(
        "observation_noise_scale", "Standard deviation of the noise."
    )
    partition = parameter("partition", "Hyperplanes and their probabilities, as given.")
    num_importance_samples = parameter(
        "num_importance_samples", "Number of draws of the scales in `log_prob`."
    )

    def __init__(
        self,
        index_points: ArrayLike,
        alpha: ArrayLike,
        nu: ArrayLike = 1.0,
        observation_noise_scale: ArrayLike = 0.0,
        partition: Any = None,
        num_importance_samples: int = 10_000,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "StableProcess",
    ):
        parameters = dict(locals())
        with tf.name_scope(name) as name:
            dtype = checks.common_dtype_with(index_points, alpha, nu, observation_noise_scale)
            self._store_parameters(
                dtype, alpha=alpha, nu=nu, observation_noise_scale=observation_noise_scale
            )
            self._num_importance_samples = checked_count(
                "num_importance_samples", num_importance_samples
            )
            self._hyperplanes, self._probabilities = checks.checked_partition(partition)
            key = (self._hyperplanes.tobytes(), self._probabilities.tobytes())
            self._partition = _AsGiven(key, getattr(partition, "given", partition))
            points = self._checked_points(index_points, "index_points")
            # This is an array and not a tensor: its values are inspected, so they belong to the
            # type of this composite tensor.
            self._index_points = points.astype(dtype.as_numpy_dtype)
            self._signs = patterns.signs_at(self._hyperplanes, points)  # [L, N]
            self._patterns, self._shares = patterns.merged(self._signs, self._probabilities)
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

    # Given the scales ----------------------------------------------------------------------------

    def sample_scales(
        self,
        sample_shape: int | Sequence[int] | Tensor = (),
        seed: Seed | None = None,
        name: str = "sample_scales",
    ) -> Tensor:
        """Draws the logarithms of the scales s from their distribution; they are 0 at alpha = 2.

        Args:
            sample_shape: Shape, an integer or integers.
            seed: Seed as TFP takes it.
            name: Name of the operation.

        Returns:
            Tensor of shape `sample_shape + batch_shape + [L]`.
        """
        with self._name_and_control_scope(name):
            shape = tf.reshape(tf.convert_to_tensor(sample_shape, tf.int32), [-1])
            return tf.cast(self._log_scales(shape, len(self._probabilities), seed), self.dtype)

    def covariance(
        self,
        log_scales: ArrayLike | None = None,
        include_noise: bool = True,
        name: str = "covariance",
    ) -> Tensor:
        """Returns Q of Theorem 1 for given scales, or the covariance of y without them.

        Args:
            log_scales: Logarithms of the scales, `[..., L]`, or None. The leading shape
                broadcasts with the batch shape.
            include_noise: Whether to add sigma^2 to the diagonal.
            name: Name of the operation.

        Returns:
            Tensor `[..., N, N]`. Without scales and for alpha < 2 it is infinite on the diagonal
            and NaN elsewhere.
        """
        with self._name_and_control_scope(name):
            if log_scales is None:
                return self._marginal_covariance(include_noise)
            return tf.cast(self._covariance_given(log_scales, include_noise), self.dtype)

    def given_scales(
        self, log_scales: ArrayLike, include_noise: bool = True, name: str = "given_scales"
    ) -> Distribution:
        """Returns the normal distribution of y for given scales (Theorem 1): N(0, Q).

        Args:
            log_scales: Logarithms of the scales, `[..., L]`.
            include_noise: False for the distribution of f. If Q is singular (fewer atoms than
                points, or repeated points), it can be sampled but has no density.
            name: Name of the operation.

        Returns:
            `tfd.MultivariateNormalTriL`, batch `[...]`, event `[N]`.
        """
        with self._name_and_control_scope(name):
            log_variances = self._log_variances(log_scales, self._probabilities)
            root = gaussian.root(self._signs, log_variances, self._noise(include_noise))
            return gaussian.normal(0.0, root, self.dtype)

    def conditional(
        self,
        log_scales: ArrayLike,
        observation_index_points: ArrayLike,
        observations: ArrayLike,
        include_noise: bool = True,
        name: str = "conditional",
    ) -> Distribution:
        """Returns the normal distribution of y given observations elsewhere and the scales.

        Proposition 2: with the covariance Q of both, observations first,

            N(Q_*o Q_oo^-1 y_o, Q_** - Q_*o Q_oo^-1 Q_o*).

        The noise at an index point is always new, even if that point was observed.

        Args:
            log_scales: Logarithms of the scales, `[..., L]`: a draw from their posterior makes
                this a draw of the posterior predictive distribution.
            observation_index_points: Array `[n, I]` whose value is known. Both kinds of points use
                the same partition, so make it from both.
            observations: y there, `[..., n]`.
            include_noise: False for the distribution of f, which can be sampled but may have no
                density.
            name: Name of the operation.

        Returns:
            `tfd.MultivariateNormalTriL`, batch `[...]`, event `[N]`.

        Raises:
            ValueError: If shapes do not match, or if there is no noise and the covariance of the
                observations is singular.
        """
        with self._name_and_control_scope(name):
            points = self._checked_points(observation_index_points, "observation_index_points")
            n = len(points)
            observed = patterns.signs_at(self._hyperplanes, points)  # [L, n]
            checks.check_regular(self.observation_noise_scale, observed)
            y = checks.checked_rows(observations, "observations", n, self.dtype)
            signs = np.concatenate([observed, self._signs], axis=1)  # [L, n + N]
            log_variances = self._log_variances(log_scales, self._probabilities)
            old, new = self._noise(True), self._noise(include_noise)
            noise = [tf.repeat(old, n, axis=-1), tf.repeat(new, self._size, axis=-1)]
            root = gaussian.root(signs, log_variances, tf.concat(noise, axis=-1))
            loc, root = gaussian.conditional(root, tf.cast(y, tf.float64), n)
            return gaussian.normal(loc, root, self.dtype)

    def _covariance_given(self, log_scales, include_noise):
        """Returns Q in float64."""
        log_variances = self._log_variances(log_scales, self._probabilities)
        return gaussian.covariance(self._signs, log_variances, self._noise(include_noise))

    def _marginal_covariance(self, include_noise):
        alpha = tf.convert_to_tensor(self.alpha)
        is_defined = tf.reduce_all(alpha >= 2.0) | (self._size == 1)
        asserted = self._undefined_unless(is_defined, "The covariance is undefined for alpha < 2.")
        with tf.control_dependencies(asserted):
            normal = self._covariance_given(tf.zeros_like(self._probabilities), include_noise)
            heavy = np.where(np.eye(self._size, dtype=bool), np.inf, np.nan)
            is_normal = (alpha >= 2.0)[..., tf.newaxis, tf.newaxis]
            result = tf.cast(tf.where(is_normal, normal, heavy), self.dtype)
            return tf.broadcast_to(result, self._shape_with(2 * [self._size]))

    # Densities -----------------------------------------------------------------------------------

    def log_prob_with_error(
        self,
        y: ArrayLike,
        num_samples: int | None = None,
        seed: Seed | None = None,
        name: str = "log_prob_with_error",
    ) -> tuple[Tensor, Tensor]:
        """Estimates the log density by importance sampling, with its standard error.

        With weights `w_k = N(y; 0, Q_k)` the estimate is log mean w. Its standard error, by the
        delta method, is `sqrt(sum w^2 / (sum w)^2 - 1/K)`. Errors above a few tenths are not
        reliable, and the estimate then tends to be too small. The cost is O(K (G + N) N^2) for G
        distinct patterns of the N points, and 16 K G bytes for the draws.

        Args:
            y: Tensor `[..., N]`.
            num_samples: K, `num_importance_samples` if None.
            seed: Seed as TFP takes it; None stands for a fixed one.
            name: Name of the operation.

        Returns:
            Estimate and standard error, `[...]` broadcast with the batch shape.

        Raises:
            ValueError: If there is no noise and the covariance is singular, or `num_samples` is not
                a positive integer.
        """
        num_samples = self.num_importance_samples if num_samples is None else num_samples
        num_samples = checked_count("num_samples", num_samples)
        with self._name_and_control_scope(name):
            checks.check_regular(self.observation_noise_scale, self._patterns)
            y = tf.cast(tf.convert_to_tensor(y, dtype_hint=self.dtype), tf.float64)
            y = tf.broadcast_to(
                y, tf.broadcast_dynamic_shape(tf.shape(y), self._shape_with([self._size]))
            )
            estimate, error = density.log_mean_weight(
                self._log_weights,
                y,
                uniform_and_exponential(
                    [num_samples, len(self._shares)], _SEED if seed is None else seed
                ),
                matrix_shape=(len(self._shares) + self._size, self._size),
                batch_shape=(self.batch_shape_tensor(), self.batch_shape),
            )
            return tf.cast(estimate, self.dtype), tf.cast(error, self.dtype)

    def _log_weights(self, y, *draws):
        """Returns `log N(y; 0, Q)`, `[size, B, S]`, for columns y `[B, N, S]` and draws."""
        shape = [-1] + [1] * len(self.batch_shape) + [len(self._shares)]
        draws = (tf.reshape(draw, shape) for draw in draws)
        log_scales = prior.log_scales_of(*draws, self._in_float64()[0][..., tf.newaxis])
        log_variances = self._log_variances(log_scales, self._shares)
        root = gaussian.root(self._patterns, log_variances, self._noise(True))  # [size, B, N, N]
        return gaussian.log_densities(y, root, self._size)

    def _log_prob(self, y, seed=None):
        if self._size == 1 and checks.is_noiseless(self.observation_noise_scale, np.all):
            scale = tf.sqrt(0.5 * tf.convert_to_tensor(self.nu))
            zero = tf.zeros([], self.dtype)
            return Stable(self.alpha, zero, zero, scale).log_prob(y[..., 0])
        return self.log_prob_with_error(y, seed=seed)[0]

    def log_characteristic_function(
        self, t: ArrayLike, name: str = "log_characteristic_function"
    ) -> Tensor:
        """Returns `log E exp(i t.y)`, a real number (equations 3 and 4), exact for every alpha.

        Args:
            t: Tensor `[..., N]`; the leading shape broadcasts with the batch shape.
            name: Name of the operation.

        Returns:
            Tensor `[...]`, at most 0.
        """
        with self._name_and_control_scope(name):
            t = tf.cast(tf.convert_to_tensor(t, dtype_hint=self.dtype), tf.float64)
            alpha, nu, noise = self._in_float64()
            result = prior.minus_log_characteristic(t, self._patterns, self._shares, alpha, nu)
            result += 0.5 * tf.square(noise) * tf.reduce_sum(tf.square(t), axis=-1)
            return tf.cast(-result, self.dtype)

    # Parts ---------------------------------------------------------------------------------------

    @property
    def _size(self):
        """N, the number of points."""
        return self._signs.shape[1]

    def _in_float64(self):
        """Returns alpha, nu and the scale of the noise."""
        parts = (self.alpha, self.nu, self.observation_noise_scale)
        return [tf.cast(part, tf.float64) for part in parts]

    def _noise(self, include_noise):
        """Returns the noise scale, `[..., 1]` in float64; 0 if noise is not included."""
        noise = self._in_float64()[2][..., tf.newaxis]
        return noise if include_noise else tf.zeros_like(noise)

    def _shape_with(self, last):
        return tf.concat([self.batch_shape_tensor(), last], axis=0)

    def _log_scales(self, sample_shape, num_atoms, seed):
        """Draws log s by Kanter's formula, `sample_shape + B + [num_atoms]` in float64."""
        shape = tf.concat([sample_shape, self._shape_with([num_atoms])], axis=0)
        return prior.draw_log_scales(shape, self._in_float64()[0][..., tf.newaxis], seed)

    def _log_variances(self, log_scales, probabilities):
        """Returns `log d`, `[..., L]` in float64."""
        alpha, nu, _ = self._in_float64()
        log_scales = checks.checked_rows(log_scales, "log_scales", len(probabilities), self.dtype)
        return prior.log_variances(log_scales, probabilities, alpha, nu)

    def _checked_points(self, points, name):
        """Checks and returns points as a float64 array `[N, I]`."""
        return checks.checked_points(points, name, self._hyperplanes.shape[1] - 1)

    def _undefined_unless(self, is_defined, message):
        return [] if self.allow_nan_stats else [tf.debugging.Assert(is_defined, [message])]

    # For TFP --------------------------------------------------------------------------

    def _event_shape_tensor(self):
        return tf.constant([self._size], dtype=tf.int32)

    def _event_shape(self):
        return tf.TensorShape([self._size])

    def _sample_n(self, n, seed=None):
        seeds = tfp.random.split_seed(seed, n=3, salt="stable_process")
        log_scales = self._log_scales([n], len(self._shares), seeds[0])
        log_variances = self._log_variances(log_scales, self._shares)  # [n, B, G]
        f = prior.draw_functions(self._patterns, log_variances, seeds[1])
        e = normal(tf.shape(f), seeds[2], tf.float64)
        return tf.cast(f + self._noise(True) * e, self.dtype)

    def _mean(self):
        """Returns 0 for alpha > 1, and else NaN."""
        is_defined = tf.convert_to_tensor(self.alpha) > 1.0
        asserted = self._undefined_unless(
            tf.reduce_all(is_defined), "The mean is undefined for alpha <= 1."
        )
        with tf.control_dependencies(asserted):
            mean = tf.where(is_defined, tf.zeros([], self.dtype), np.nan)[..., tf.newaxis]
            return tf.broadcast_to(mean, self._shape_with([self._size]))

    def _variance(self):
        """Returns `nu + sigma^2` for alpha = 2 (the kernel has a unit diagonal), else infinity."""
        variance = self.nu + tf.square(self.observation_noise_scale)
        variance = tf.where(tf.convert_to_tensor(self.alpha) >= 2.0, variance, np.inf)
        return tf.broadcast_to(variance[..., tf.newaxis], self._shape_with([self._size]))

    def _default_event_space_bijector(self):
        return tfb.Identity(validate_args=self.validate_args)
