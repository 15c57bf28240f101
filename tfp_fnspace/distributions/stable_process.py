"""The stable process at finitely many points, with normal noise: a TFP distribution."""

import math

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_fnspace.distributions.positive_stable import (
    as_parameter,
    assertions,
    check_known_parameter,
    common_dtype,
    uniform_and_exponential,
)
from tfp_fnspace.distributions.stable import Stable
from tfp_fnspace.math import kanter

tfd = tfp.distributions
tfb = tfp.bijectors

#: Logarithms of variances are kept within +-600 where squares of their roots are added up: the
#: densities of draws beyond that vanish beside any other.
_LARGEST_LOG = 600.0

#: Numbers in one chunk of an importance sample: 32 MB.
_CHUNK = 4_000_000

#: Importance samples without a seed are always the same, so that `log_prob` is a function of y.
_SEED = (0, 0)

_LOG_TWO_PI = math.log(2.0 * math.pi)


class StableProcess(tfd.Distribution):
    r"""Law of `y = f(x) + e` at N points x for the limit f of wide networks with stable weights.

    A network with p hidden units `sign(b + w.x)`, (b, w) standard normal, and independent
    symmetric alpha-stable output weights of scale `(nu/2)^(1/2) p^(-1/alpha)` tends to a process f
    (Proposition 1). With the hyperplanes h_l and probabilities q_l of a partition, and
    `tau_l(x) = sign(h_l . (1, x))`, `sign(0) = 1` (Theorem 1),

        f(x) = sum_l beta_l tau_l(x),         beta_l | s_l ~ N(0, d_l),
        d_l = nu q_l^{2/alpha} s_l,           E exp(-r s_l) = exp(-r^{alpha/2}),
        y = f(x) + e,                         e ~ N(0, sigma^2 I),
        E exp(i t.y) = exp(-(nu/2)^{alpha/2} sum_l q_l |t.tau_l|^alpha - sigma^2 |t|^2 / 2),

    the last from equations (3) and (4). At one point f is symmetric stable of scale
    `(nu/2)^{1/2}`. At alpha = 2 all s are 1: f is a Gaussian process with the kernel
    `nu (1 - (2/pi) angle((1, x), (1, x')))`. Paths are piecewise constant for alpha < 2.

    Given the scales s, y is normal with the covariance

        Q = sigma^2 I + sum_l d_l tau_l tau_l'.

    Samples are reparameterised in alpha, nu and sigma; at alpha = 2, where they have no derivative
    in alpha, it is 0. The density has no closed form but at one point without noise, where
    `log_prob` is exact; else `log_prob` averages the normal densities over draws of the scales
    from their law, always the same ones without a `seed`. This serves for a handful of points:
    `log_prob_with_error` says how far to trust it. Everything is computed in float64 and returned
    in the dtype of the parameters.

    Args:
        index_points: x, array `[N, I]` whose value is known.
        alpha: Index, in (0, 2], floating tensor.
        nu: Positive tensor that broadcasts with `alpha`: the squared scale of f, times 2.
        observation_noise_scale: sigma >= 0, tensor that broadcasts with `alpha`.
        partition: Object with the arrays `hyperplanes` `[L, I+1]`, vectors (b, w), and
            `probabilities` `[L]`, such as `tfp_fnspace.stable_process.partition(x)`: exact at x,
            one or two inputs.
        num_importance_samples: Number of draws of the scales in `log_prob`.
        validate_args: Whether to check parameters whose value is not known beforehand.
        allow_nan_stats: Whether an undefined mean or covariance is NaN; an error otherwise.
        name: Name of the operations.

    Raises:
        ValueError: If a parameter has a known value and lies outside its range, or shapes do not
            fit, or there is no partition.

    Example:
    ```python
    x = np.linspace(-1.0, 1.0, 50)[:, np.newaxis]
    law = StableProcess(x, 1.1, partition=tfp_fnspace.stable_process.partition(x))
    paths = law.sample(3, seed=1)  # [3, 50]
    ```

    References:
        Loria & Bhadra (2023), "Posterior Inference on Infinitely Wide Bayesian Neural Networks
        under Weights with Unbounded Variance", Proposition 1 to Proposition 2.
        Der & Lee (2005), "Beyond Gaussian Processes: On the Distributions of Infinite Networks".
    """

    def __init__(
        self,
        index_points,
        alpha,
        nu=1.0,
        observation_noise_scale=0.0,
        partition=None,
        num_importance_samples=10_000,
        validate_args=False,
        allow_nan_stats=True,
        name="StableProcess",
    ):
        parameters = dict(locals())
        with tf.name_scope(name) as name:
            dtype = _common_dtype(index_points, alpha, nu, observation_noise_scale)
            self._alpha = as_parameter(alpha, dtype)
            self._nu = as_parameter(nu, dtype)
            self._noise_scale = as_parameter(observation_noise_scale, dtype)
            check_known_parameter(
                "alpha", self._alpha, lambda v: (v > 0.0) & (v <= 2.0), "in (0, 2]"
            )
            check_known_parameter(
                "nu", self._nu, lambda v: np.isfinite(v) & (v > 0.0), "positive and finite"
            )
            check_known_parameter(
                "observation_noise_scale",
                self._noise_scale,
                lambda v: np.isfinite(v) & (v >= 0.0),
                "at least 0 and finite",
            )
            self._num_importance_samples = _checked_count(
                num_importance_samples, "num_importance_samples"
            )
            self._partition = partition
            self._hyperplanes, self._probabilities = _checked_partition(partition)
            points = self._checked_points(index_points, "index_points")
            self._index_points = tf.constant(points, dtype)
            self._signs = self._signs_at(points)  # [L, N]
            # Atoms with one pattern at the index points, up to the sign, are one atom of their
            # total probability: the sum of their terms has the law of one. At one point all are.
            self._patterns, self._shares = _merged(self._signs, self._probabilities)
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
            nu=properties(default_constraining_bijector_fn=tfb.Softplus),
            observation_noise_scale=properties(default_constraining_bijector_fn=tfb.Softplus),
        )

    @property
    def index_points(self):
        """Points x, `[N, I]`."""
        return self._index_points

    @property
    def alpha(self):
        """Index of stability."""
        return self._alpha

    @property
    def nu(self):
        """Squared scale of f at a point, times 2."""
        return self._nu

    @property
    def observation_noise_scale(self):
        """Standard deviation of the noise."""
        return self._noise_scale

    @property
    def partition(self):
        """Hyperplanes and their probabilities, as given."""
        return self._partition

    @property
    def num_importance_samples(self):
        """Number of draws of the scales in `log_prob`."""
        return self._num_importance_samples

    # Given the scales ----------------------------------------------------------------------------

    def sample_scales(self, sample_shape=(), seed=None, name="sample_scales"):
        """Logarithms of draws of the scales s from their law; 0 at alpha = 2.

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

    def covariance(self, log_scales=None, include_noise=True, name="covariance"):
        """Q of Theorem 1 for given scales; without them the covariance of y.

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

    def given_scales(self, log_scales, include_noise=True, name="given_scales"):
        """The normal law of y for given scales (Theorem 1): N(0, Q).

        Args:
            log_scales: Logarithms of the scales, `[..., L]`.
            include_noise: False for the law of f. Where Q is singular (fewer atoms than points,
                repeated points) it can be sampled but has no density.
            name: Name of the operation.

        Returns:
            `tfd.MultivariateNormalTriL`, batch `[...]`, event `[N]`.
        """
        with self._name_and_control_scope(name):
            log_variances = self._log_variances(log_scales, self._probabilities)
            noise = self._noise(include_noise)
            return self._normal(0.0, _root(self._signs, log_variances, noise))

    def conditional(
        self,
        log_scales,
        observation_index_points,
        observations,
        include_noise=True,
        name="conditional",
    ):
        """The normal law of y at the index points given observations elsewhere and the scales.

        Proposition 2: with the covariance Q of both, observations first,

            N(Q_*o Q_oo^-1 y_o, Q_** - Q_*o Q_oo^-1 Q_o*).

        The noise at an index point is always a new one, also where that point was observed.

        Args:
            log_scales: Logarithms of the scales, `[..., L]`: a draw from their posterior makes
                this a draw of the posterior predictive law.
            observation_index_points: Array `[n, I]` whose value is known. Both kinds of points
                see the same partition: make it of both.
            observations: y there, `[..., n]`.
            include_noise: False for the law of f, which can be sampled but may have no density.
            name: Name of the operation.

        Returns:
            `tfd.MultivariateNormalTriL`, batch `[...]`, event `[N]`.

        Raises:
            ValueError: If shapes do not fit, or if there is no noise and the covariance of the
                observations is singular.
        """
        with self._name_and_control_scope(name):
            points = self._checked_points(observation_index_points, "observation_index_points")
            observed = self._signs_at(points)  # [L, n]
            self._check_regular(observed)
            y = tf.convert_to_tensor(observations, dtype_hint=self.dtype)
            n = len(points)
            if y.shape.rank == 0 or y.shape[-1] not in (None, n):
                raise ValueError(
                    f"`observations` must have shape [..., {n}]. "
                    f"Received: observations.shape={y.shape}"
                )
            signs = np.concatenate([observed, self._signs], axis=1)  # [L, n + N]
            log_variances = self._log_variances(log_scales, self._probabilities)
            noise = self._noise(True)
            new_noise = noise if include_noise else tf.zeros_like(noise)
            noise = [tf.repeat(noise, n, axis=-1), tf.repeat(new_noise, self._size, axis=-1)]
            # With the factor R of Q = R'R in blocks, the mean is R_o*' R_oo^-T y and the
            # covariance R_**' R_**: nothing is subtracted. O((L + n + N) (n + N)^2).
            root = _root(signs, log_variances, tf.concat(noise, axis=-1))
            whitened = _solve_transposed(root[..., :n, :n], tf.cast(y, tf.float64)[..., tf.newaxis])
            loc = tf.linalg.matmul(root[..., :n, n:], whitened, transpose_a=True)[..., 0]
            return self._normal(loc, root[..., n:, n:])

    def _normal(self, loc, root):
        """N(loc, root' root) with a non-negative diagonal, in the distribution's dtype."""
        diagonal = tf.linalg.diag_part(root)
        turned = tf.where(diagonal < 0.0, -tf.ones_like(diagonal), tf.ones_like(diagonal))
        tril = tf.linalg.matrix_transpose(root * turned[..., tf.newaxis])
        loc = tf.broadcast_to(
            tf.cast(loc, self.dtype),
            tf.broadcast_dynamic_shape(tf.shape(loc), tf.shape(tril)[:-1]),
        )
        return tfd.MultivariateNormalTriL(loc, tf.cast(tril, self.dtype))

    def _covariance_given(self, log_scales, include_noise):
        """Q in float64."""
        variances = tf.exp(self._log_variances(log_scales, self._probabilities))
        signs = tf.constant(self._signs)
        covariance = tf.linalg.matmul(variances[..., tf.newaxis] * signs, signs, transpose_a=True)
        noise = tf.square(self._noise(include_noise))[..., tf.newaxis]
        return covariance + noise * tf.eye(self._size, dtype=tf.float64)

    def _marginal_covariance(self, include_noise):
        alpha = tf.convert_to_tensor(self.alpha)
        is_defined = tf.reduce_all(alpha >= 2.0) | (self._size == 1)
        checks = self._undefined_unless(is_defined, "The covariance is undefined for alpha < 2.")
        with tf.control_dependencies(checks):
            normal = self._covariance_given(tf.zeros_like(self._probabilities), include_noise)
            heavy = np.where(np.eye(self._size, dtype=bool), np.inf, np.nan)
            is_normal = (alpha >= 2.0)[..., tf.newaxis, tf.newaxis]
            result = tf.cast(tf.where(is_normal, normal, heavy), self.dtype)
            return tf.broadcast_to(result, self._shape_with(2 * [self._size]))

    # Densities -----------------------------------------------------------------------------------

    def log_prob_with_error(self, y, num_samples=None, seed=None, name="log_prob_with_error"):
        """Logarithm of the density by importance sampling, with its standard error.

        With weights `w_k = N(y; 0, Q_k)` the estimate is log mean w and its standard error, by
        the delta method, `sqrt(sum w^2 / (sum w)^2 - 1/K)`. Errors above some tenths are not to
        be trusted, and the estimate then tends to be too small. O(K (G + N) N^2) for G distinct
        patterns of the N points.

        Args:
            y: Tensor `[..., N]`.
            num_samples: K, `num_importance_samples` if None.
            seed: Seed as TFP takes it; None stands for a fixed one.
            name: Name of the operation.

        Returns:
            Estimate and standard error, `[...]` broadcast with the batch shape.

        Raises:
            ValueError: If there is no noise and the covariance is singular, or `num_samples` is
                no positive integer.
        """
        num_samples = self.num_importance_samples if num_samples is None else num_samples
        num_samples = _checked_count(num_samples, "num_samples")
        with self._name_and_control_scope(name):
            self._check_regular(self._patterns)
            y = tf.cast(tf.convert_to_tensor(y, dtype_hint=self.dtype), tf.float64)
            y = tf.broadcast_to(
                y, tf.broadcast_dynamic_shape(tf.shape(y), self._shape_with([self._size]))
            )
            log_sum, log_squares = self._log_sums(y, num_samples, _SEED if seed is None else seed)
            estimate = log_sum - math.log(num_samples)
            # Rounding takes it below 0 where all weights are equal.
            relative = tf.maximum(tf.exp(log_squares - 2.0 * log_sum) - 1.0 / num_samples, 0.0)
            return tf.cast(estimate, self.dtype), tf.cast(tf.sqrt(relative), self.dtype)

    def _log_sums(self, y, num_samples, seed):
        """Logarithms of the sums of the weights and of their squares.

        Args:
            y: float64 tensor `[S, B, N]`, S and B of any rank.
            num_samples: K.
            seed: Seed as TFP takes it.

        Returns:
            Two float64 tensors `[S, B]`.
        """
        batch = self.batch_shape_tensor()
        batch_rank = len(self.batch_shape)
        outer = tf.shape(y)[: tf.rank(y) - batch_rank - 1]
        # y as columns [B, N, S]: one factor of Q serves all of them.
        y = tf.reshape(y, tf.concat([[-1], batch, [self._size]], axis=0))
        y = tf.transpose(y, [*range(1, batch_rank + 2), 0])
        rows = len(self._shares) + self._size
        numbers = (self.batch_shape.num_elements() or 1) * self._size * (rows + (y.shape[-1] or 1))
        size = max(1, min(num_samples, _CHUNK // numbers))
        num_chunks = -(-num_samples // size)
        seeds = tf.stack(tfp.random.split_seed(seed, n=num_chunks, salt="stable_process"))

        def chunk(seed_and_start):
            seed, start = seed_and_start
            log_weights = self._log_weights(y, size, seed)  # [size, B, S]
            is_drawn = start + tf.range(size) < num_samples
            is_drawn = tf.reshape(is_drawn, [size] + [1] * (batch_rank + 1))
            log_weights = tf.where(is_drawn, log_weights, -np.inf)
            return tf.stack(
                [tf.reduce_logsumexp(power * log_weights, axis=0) for power in (1.0, 2.0)]
            )

        starts = size * tf.range(num_chunks)
        sums = tf.map_fn(chunk, (seeds, starts), fn_output_signature=tf.float64)
        sums = tf.reduce_logsumexp(sums, axis=0)  # [2, B, S]
        sums = tf.transpose(sums, [0, batch_rank + 1, *range(1, batch_rank + 1)])
        return tf.unstack(tf.reshape(sums, tf.concat([[2], outer, batch], axis=0)), num=2)

    def _log_weights(self, y, size, seed):
        """`log N(y; 0, Q)`, `[size, B, S]`, for columns y `[B, N, S]` and draws of Q."""
        log_scales = self._log_scales([size], len(self._shares), seed)
        log_variances = self._log_variances(log_scales, self._shares)
        root = _root(self._patterns, log_variances, self._noise(True))  # [size, B, N, N]
        whitened = _solve_transposed(root, y)
        log_det = tf.reduce_sum(tf.math.log(tf.abs(tf.linalg.diag_part(root))), axis=-1)
        squares = tf.reduce_sum(tf.square(whitened), axis=-2)
        return -0.5 * squares - log_det[..., tf.newaxis] - 0.5 * self._size * _LOG_TWO_PI

    def _log_prob(self, y, seed=None):
        if self._size == 1 and self._is_noiseless(np.all):
            scale = tf.sqrt(0.5 * tf.convert_to_tensor(self.nu))
            zero = tf.zeros([], self.dtype)
            return Stable(self.alpha, zero, zero, scale).log_prob(y[..., 0])
        return self.log_prob_with_error(y, seed=seed)[0]

    def log_characteristic_function(self, t, name="log_characteristic_function"):
        """`log E exp(i t.y)`, a real number (equations 3 and 4), exact for every alpha.

        Args:
            t: Tensor `[..., N]`; the leading shape broadcasts with the batch shape.
            name: Name of the operation.

        Returns:
            Tensor `[...]`, at most 0.
        """
        with self._name_and_control_scope(name):
            t = tf.cast(tf.convert_to_tensor(t, dtype_hint=self.dtype), tf.float64)
            alpha, nu, noise = self._in_float64()
            products = tf.abs(tf.linalg.matvec(tf.constant(self._patterns), t))  # [..., G]
            powers = tf.reduce_sum(self._shares * products ** alpha[..., tf.newaxis], axis=-1)
            result = (0.5 * nu) ** (0.5 * alpha) * powers
            result += 0.5 * tf.square(noise) * tf.reduce_sum(tf.square(t), axis=-1)
            return tf.cast(-result, self.dtype)

    # Parts ---------------------------------------------------------------------------------------

    @property
    def _size(self):
        """N."""
        return self._signs.shape[1]

    def _in_float64(self):
        """alpha, nu and the scale of the noise."""
        parts = (self.alpha, self.nu, self.observation_noise_scale)
        return [tf.cast(part, tf.float64) for part in parts]

    def _noise(self, include_noise):
        """Scale of the noise, `[..., 1]` in float64; 0 if it is not wanted."""
        noise = self._in_float64()[2][..., tf.newaxis]
        return noise if include_noise else tf.zeros_like(noise)

    def _shape_with(self, last):
        return tf.concat([self.batch_shape_tensor(), last], axis=0)

    def _log_scales(self, sample_shape, num_atoms, seed):
        """Draws of log s by Kanter's formula, `sample_shape + B + [num_atoms]` in float64."""
        shape = tf.concat([sample_shape, self._shape_with([num_atoms])], axis=0)
        uniform, exponential = uniform_and_exponential(shape, seed)
        index = 0.5 * self._in_float64()[0][..., tf.newaxis]
        is_normal = index >= 1.0
        safe = tf.where(is_normal, tf.constant(0.5, tf.float64), index)
        log_scales = kanter.log_scale(uniform, tf.math.log(exponential), safe)
        return tf.where(is_normal, tf.zeros_like(log_scales), log_scales)

    def _log_variances(self, log_scales, probabilities):
        """`log d`, `[..., L]` in float64."""
        alpha, nu, _ = self._in_float64()
        log_q = 2.0 / alpha[..., tf.newaxis] * np.log(probabilities)
        log_scales = tf.convert_to_tensor(log_scales, dtype_hint=self.dtype)
        if log_scales.shape.rank == 0 or log_scales.shape[-1] not in (None, len(probabilities)):
            raise ValueError(
                f"`log_scales` must have shape [..., {len(probabilities)}]. "
                f"Received: log_scales.shape={log_scales.shape}"
            )
        return tf.math.log(nu)[..., tf.newaxis] + log_q + tf.cast(log_scales, tf.float64)

    def _checked_points(self, points, name):
        """Points as a float64 array `[N, I]`."""
        known = tf.get_static_value(points) if tf.is_tensor(points) else points
        if known is None:
            raise ValueError(f"`{name}` must have a known value. Received: {name}={points}")
        known = np.asarray(known, np.float64)
        width = self._hyperplanes.shape[1] - 1
        if known.ndim != 2 or len(known) < 1 or known.shape[1] != width:
            raise ValueError(
                f"`{name}` must have shape [N, {width}], N at least 1, for this partition. "
                f"Received: {name}.shape={known.shape}"
            )
        if not np.all(np.isfinite(known)):
            count = np.count_nonzero(~np.isfinite(known))
            raise ValueError(f"`{name}` must be finite. Received: {name} with {count} other values")
        return known

    def _signs_at(self, points):
        """tau, float64 array `[L, N]` of -1 and +1."""
        sides = self._hyperplanes[:, 1:] @ points.T + self._hyperplanes[:, :1]
        return np.where(sides >= 0.0, 1.0, -1.0)

    def _is_noiseless(self, which):
        """Whether `which` (any or all) of the noises are known to be 0."""
        noise = tf.get_static_value(self.observation_noise_scale)
        return noise is not None and bool(which(noise == 0.0))

    def _check_regular(self, signs):
        """Without noise there is a density only if as many patterns as points are independent."""
        size = signs.shape[1]
        if self._is_noiseless(np.any) and np.linalg.matrix_rank(signs) < size:
            raise ValueError(
                "`observation_noise_scale` must be positive where the covariance is singular "
                f"(repeated points, or fewer patterns than points). Received: "
                f"observation_noise_scale={tf.get_static_value(self.observation_noise_scale)}, "
                f"{size} points with {np.linalg.matrix_rank(signs)} independent patterns"
            )

    def _undefined_unless(self, is_defined, message):
        return [] if self.allow_nan_stats else [tf.debugging.Assert(is_defined, [message])]

    # What TFP asks for ---------------------------------------------------------------------------

    def _event_shape_tensor(self):
        return tf.constant([self._size], dtype=tf.int32)

    def _event_shape(self):
        return tf.TensorShape([self._size])

    def _sample_n(self, n, seed=None):
        seeds = tfp.random.split_seed(seed, n=3, salt="stable_process")
        num_patterns = len(self._shares)
        log_scales = self._log_scales([n], num_patterns, seeds[0])
        half = 0.5 * self._log_variances(log_scales, self._shares)  # [n, B, G]
        # Relative to the largest: for a small alpha exp overflows, to an infinity but never to
        # a difference of two.
        largest = tf.stop_gradient(tf.reduce_max(half, axis=-1, keepdims=True))
        weights = tf.exp(half - largest) * tf.random.stateless_normal(
            tf.shape(half), seeds[1], dtype=tf.float64
        )
        f = tf.exp(largest) * tf.linalg.matmul(weights, tf.constant(self._patterns))
        e = tf.random.stateless_normal(tf.shape(f), seeds[2], dtype=tf.float64)
        return tf.cast(f + self._noise(True) * e, self.dtype)

    def _mean(self):
        """0 for alpha > 1, else undefined."""
        is_defined = tf.convert_to_tensor(self.alpha) > 1.0
        checks = self._undefined_unless(
            tf.reduce_all(is_defined), "The mean is undefined for alpha <= 1."
        )
        with tf.control_dependencies(checks):
            mean = tf.where(is_defined, tf.zeros([], self.dtype), np.nan)[..., tf.newaxis]
            return tf.broadcast_to(mean, self._shape_with([self._size]))

    def _variance(self):
        """`nu + sigma^2` for alpha = 2 (the kernel is 1 on the diagonal), else infinite."""
        variance = self.nu + tf.square(self.observation_noise_scale)
        variance = tf.where(tf.convert_to_tensor(self.alpha) >= 2.0, variance, np.inf)
        return tf.broadcast_to(variance[..., tf.newaxis], self._shape_with([self._size]))

    def _default_event_space_bijector(self):
        return tfb.Identity(validate_args=self.validate_args)

    def _parameter_control_dependencies(self, is_init):
        if not self.validate_args:
            return []
        return assertions(
            is_init,
            (self.alpha, lambda v: (v > 0.0) & (v <= 2.0), "`alpha` must be in (0, 2]."),
            (self.nu, lambda v: (v > 0.0) & tf.math.is_finite(v), "`nu` must be positive."),
            (
                self.observation_noise_scale,
                lambda v: (v >= 0.0) & tf.math.is_finite(v),
                "`observation_noise_scale` must be at least 0.",
            ),
        )


def _root(signs, log_variances, noise):
    """R with `R'R = sum_l d_l tau_l tau_l' + diag(noise^2)`, by QR. O((L + N) N^2).

    Not from the sum itself: single variances are often 1e16 times the others (at alpha = 1 one
    in 1e8), and then its Cholesky factor does not exist in float64.

    Args:
        signs: float64 array `[L, N]`.
        log_variances: log d, float64 tensor `[..., L]`.
        noise: float64 tensor `[..., N]` or `[..., 1]` that broadcasts with it.

    Returns:
        Upper triangular float64 tensor `[..., N, N]`.
    """
    size = signs.shape[1]
    log_variances = tf.clip_by_value(log_variances, -_LARGEST_LOG, _LARGEST_LOG)
    above = tf.exp(0.5 * log_variances)[..., tf.newaxis] * signs
    below = noise[..., tf.newaxis] * tf.eye(size, dtype=tf.float64)
    batch = tf.broadcast_dynamic_shape(tf.shape(above)[:-2], tf.shape(below)[:-2])
    above, below = (
        tf.broadcast_to(part, tf.concat([batch, tf.shape(part)[-2:]], axis=0))
        for part in (above, below)
    )
    return tf.linalg.qr(tf.concat([above, below], axis=-2)).r


def _solve_transposed(root, y):
    """`R^-T y` for upper triangular R `[..., N, N]` and columns y `[..., N, S]`."""
    return tf.linalg.triangular_solve(root, y, lower=False, adjoint=True)


def _merged(signs, probabilities):
    """Distinct patterns, up to the sign.

    Args:
        signs: Array `[L, N]`.
        probabilities: Array `[L]`.

    Returns:
        Patterns `[G, N]`, +1 at the first point, and their probabilities `[G]`.
    """
    patterns, index = np.unique(signs * signs[:, :1], axis=0, return_inverse=True)
    return patterns, np.bincount(index.reshape(-1), weights=probabilities)


def _checked_partition(partition):
    """Hyperplanes `[L, I+1]` and probabilities `[L]` as float64 arrays."""
    if not (hasattr(partition, "hyperplanes") and hasattr(partition, "probabilities")):
        raise ValueError(
            "`partition` must have the attributes `hyperplanes` and `probabilities`; "
            "`tfp_fnspace.stable_process.partition(x)` makes one. "
            f"Received: partition={partition!r}"
        )
    hyperplanes = np.asarray(partition.hyperplanes, np.float64)
    probabilities = np.asarray(partition.probabilities, np.float64)
    if hyperplanes.ndim != 2 or probabilities.shape != hyperplanes.shape[:1]:
        raise ValueError(
            "`partition` must have hyperplanes [L, I+1] and probabilities [L]. Received: "
            f"hyperplanes.shape={hyperplanes.shape}, probabilities.shape={probabilities.shape}"
        )
    if not (np.all(probabilities > 0.0) and abs(probabilities.sum() - 1.0) < 1e-6):
        raise ValueError(
            "`partition` must have positive probabilities of sum 1. "
            f"Received: probabilities with sum {probabilities.sum():.6g}"
        )
    return hyperplanes, probabilities


def _checked_count(value, name):
    is_integer = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not is_integer or value < 1:
        raise ValueError(f"`{name}` must be a positive integer. Received: {name}={value!r}")
    return int(value)


def _common_dtype(index_points, *parameters):
    """The dtype of the parameters; if none has one, that of the points if it is floating."""
    if any(hasattr(value, "dtype") for value in parameters):
        return common_dtype(*parameters)
    given = getattr(index_points, "dtype", None)
    is_floating = given is not None and tf.as_dtype(given).is_floating
    return common_dtype(index_points) if is_floating else tf.float32
