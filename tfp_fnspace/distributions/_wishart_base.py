"""Bases of Wishart and inverse Wishart distributions: parameters, shapes, samples as factors."""

import math
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_fnspace.distributions._parameters import assertions, check_known_parameter, common_dtype
from tfp_fnspace.math import bartlett, linalg
from tfp_fnspace.math.parameters import as_parameter
from tfp_fnspace.typing import ArrayLike, Tensor

tfd = tfp.distributions
tfb = tfp.bijectors


class ScaledByMatrix(tfd.AutoCompositeTensorDistribution):
    """Base of distributions of `[k, k]` matrices with a positive definite scale or its factor.

    Args:
        scale: Positive definite `[..., k, k]`, or None.
        scale_tril: Lower triangular `[..., k, k]` with positive diagonal, or None.
        dtype: Floating dtype.
        parameters: Arguments of the constructor of the derived class.
        validate_args: As in TFP.
        allow_nan_stats: As in TFP.
        name: As in TFP.

    Raises:
        ValueError: If not exactly one of `scale`, `scale_tril` is given, or it has a wrong shape
            or a wrong known value.
    """

    def __init__(
        self,
        scale: ArrayLike | None,
        scale_tril: ArrayLike | None,
        dtype: tf.DType,
        parameters: dict[str, Any],
        validate_args: bool,
        allow_nan_stats: bool,
        name: str,
    ):
        if (scale is None) == (scale_tril is None):
            raise ValueError(
                "Exactly one of `scale` and `scale_tril` must be given. "
                f"Received: scale={scale}, scale_tril={scale_tril}"
            )
        self._scale = None if scale is None else as_parameter(scale, dtype)
        self._scale_tril = None if scale_tril is None else as_parameter(scale_tril, dtype)
        if scale is None:
            _check_square("scale_tril", self._scale_tril)
            check_known_parameter(
                "scale_tril", self._scale_tril, _has_positive_diagonal, "of positive diagonal"
            )
        else:
            _check_square("scale", self._scale)
            rule = "symmetric positive definite"
            check_known_parameter("scale", self._scale, _is_positive_definite, rule)
        # The scale is factorised once, unless it is a variable, whose later values count.
        is_fixed = isinstance(self._scale, tf.Tensor)
        self._fixed_factor = tf.linalg.cholesky(self._scale) if is_fixed else None
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
        return dict(
            scale=properties(
                event_ndims=2,
                default_constraining_bijector_fn=lambda: tfb.Chain(
                    [tfb.CholeskyOuterProduct(), _fill_scale_tril(dtype)]
                ),
                is_preferred=False,
            ),
            scale_tril=properties(
                event_ndims=2,
                default_constraining_bijector_fn=lambda: _fill_scale_tril(dtype),
            ),
        )

    @property
    def scale(self) -> Any:
        """Scale matrix as given, or None."""
        return self._scale

    @property
    def scale_tril(self) -> Any:
        """Cholesky factor of the scale matrix as given, or None."""
        return self._scale_tril

    def scale_factor(self) -> Tensor:
        """Returns the Cholesky factor of the scale matrix, `[..., k, k]`, whichever was given."""
        if self._fixed_factor is not None:
            return self._fixed_factor
        if self._scale_tril is None:
            return tf.linalg.cholesky(tf.convert_to_tensor(self._scale))
        return tf.linalg.band_part(tf.convert_to_tensor(self._scale_tril), -1, 0)

    def _given_scale(self):
        return self._scale_tril if self._scale is None else self._scale

    def _size(self):
        """Returns k, as an integer if it is known."""
        static = self._given_scale().shape[-1]
        return tf.shape(self._given_scale())[-1] if static is None else static

    def _event_shape_tensor(self):
        return tf.stack([self._size(), self._size()])

    def _event_shape(self):
        size = self._given_scale().shape[-1]
        return tf.TensorShape([size, size])

    def _scale_rules(self):
        """Returns triples for `assertions`."""
        if self._scale is None:
            message = "`scale_tril` must have a positive diagonal."
            return [(self._scale_tril, lambda v: tf.linalg.diag_part(v) > 0.0, message)]
        message = "`scale` must be positive definite."
        is_valid = lambda v: tf.linalg.diag_part(tf.linalg.cholesky(v)) > 0.0  # noqa: E731
        return [(self._scale, is_valid, message)]

    def _parameter_control_dependencies(self, is_init):
        return assertions(is_init, *self._scale_rules()) if self.validate_args else []


class WishartBase(ScaledByMatrix):
    """Base of Wishart and inverse Wishart distributions, with real df > k - 1.

    A derived class defines `_draw_factor(seed, shape)`, which returns the Cholesky factor A of a
    sample, `log |A A^T|` and the trace in its density. It also defines `_trace(factor)`, this trace
    for a given A, and `_log_density(log_det, trace)`.
    """

    def __init__(
        self,
        df: ArrayLike,
        scale: ArrayLike | None = None,
        scale_tril: ArrayLike | None = None,
        input_output_cholesky: bool = False,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str | None = None,
    ):
        parameters = dict(locals())
        with tf.name_scope(name or type(self).__name__) as name:
            dtype = common_dtype(*(v for v in (df, scale, scale_tril) if v is not None))
            self._df = as_parameter(df, dtype)
            self._input_output_cholesky = input_output_cholesky
            super().__init__(
                scale, scale_tril, dtype, parameters, validate_args, allow_nan_stats, name
            )
            size = self._given_scale().shape[-1]
            if size is not None:
                rule = f"finite and greater than k - 1 = {size - 1}, where the scale is k x k"
                is_valid = lambda v: np.isfinite(v) & (v > size - 1)  # noqa: E731
                check_known_parameter("df", self._df, is_valid, rule)

    @classmethod
    def _parameter_properties(cls, dtype, num_classes=None):
        df = tfp.util.ParameterProperties(
            shape_fn=lambda sample_shape: sample_shape[:-2],
            default_constraining_bijector_fn=_no_bijector_of_df,
        )
        return dict(df=df, **super()._parameter_properties(dtype, num_classes))

    @property
    def df(self) -> Any:
        """Degrees of freedom nu."""
        return self._df

    @property
    def input_output_cholesky(self) -> bool:
        """Whether samples, means and arguments are Cholesky factors of the matrices."""
        return self._input_output_cholesky

    def _df_and_factor(self):
        return tf.convert_to_tensor(self._df), self.scale_factor()

    def _in_and_out(self, factor):
        """Returns the matrix `A A^T`, or A if factors are used."""
        return factor if self._input_output_cholesky else linalg.outer_product(factor)

    def _standard(self, draw, seed, shape):
        """Returns a standard Wishart factor of shape `shape + batch_shape`."""
        df = tf.broadcast_to(tf.convert_to_tensor(self._df), self.batch_shape_tensor())
        seed = tfp.random.sanitize_seed(seed, salt=type(self).__name__)
        return draw(seed, df, self._size(), shape)

    def _sample_n(self, n, seed=None):
        return self._in_and_out(self._draw_factor(seed, [n])[0])

    def _sample_and_log_prob(self, sample_shape, seed):
        factor, log_det, trace = self._draw_factor(seed, sample_shape)
        return self._in_and_out(factor), self._log_density(log_det, trace)

    def _standard_entropy(self):
        """Returns the entropy of the Wishart distribution of unit scale."""
        df, size = tf.convert_to_tensor(self._df), self._size()
        k = tf.cast(size, self.dtype)
        gamma = bartlett.log_multigamma(df, size)
        digamma = bartlett.multidigamma(df, size)
        pairs = 0.5 * k * (k + 1.0) * math.log(2.0)
        return pairs + gamma - 0.5 * (df - k - 1.0) * digamma + 0.5 * df * k

    def _log_prob(self, x):
        factor = x if self._input_output_cholesky else tf.linalg.cholesky(x)
        return self._log_density(linalg.log_determinant(factor), self._trace(factor))

    def _scaled(self, multiple, factor):
        """Returns `multiple` times the scale matrix, or its factor; NaN where `multiple` is NaN."""
        shape = tf.concat([self.batch_shape_tensor(), self._event_shape_tensor()], axis=0)
        multiple = multiple[..., tf.newaxis, tf.newaxis]
        root = tf.broadcast_to(tf.sqrt(multiple) * factor, shape)
        if self._input_output_cholesky:
            return root
        return tf.broadcast_to(multiple * linalg.outer_product(factor), shape)

    def _where_defined(self, is_defined, value, what):
        """Returns `value` where it is defined, else NaN or an error, as `allow_nan_stats` says."""
        checks = []
        if not self.allow_nan_stats:
            checks = [tf.debugging.Assert(tf.reduce_all(is_defined), [what])]
        with tf.control_dependencies(checks):
            return tf.where(is_defined, value, tf.constant(np.nan, self.dtype))

    def _default_event_space_bijector(self):
        factor = _fill_scale_tril(self.dtype, validate_args=self.validate_args)
        if self._input_output_cholesky:
            return factor
        return tfb.Chain([tfb.CholeskyOuterProduct(validate_args=self.validate_args), factor])

    def _parameter_control_dependencies(self, is_init):
        if not self.validate_args:
            return []
        bound = tf.cast(self._size() - 1, self.dtype)
        rule = (self._df, lambda v: v > bound, "`df` must be greater than k - 1.")
        return assertions(is_init, rule, *self._scale_rules())


def kl_from_traces(a: WishartBase, b: WishartBase, trace: Tensor, log_det_ratio: Tensor) -> Tensor:
    r"""Returns `KL(a || b)` of two Wishart or two inverse Wishart distributions.

    Inversion does not change a divergence. With V the scale, or its inverse, both divergences are

        [nu_b log(|V_b| / |V_a|) + nu_a (tr V_b^-1 V_a - k) + (nu_a - nu_b) psi_k(nu_a/2)] / 2
        + log Gamma_k(nu_b/2) - log Gamma_k(nu_a/2).

    Args:
        a: `WishartBase`.
        b: `WishartBase`.
        trace: `tr V_b^-1 V_a`, `[...]`.
        log_det_ratio: `log(|V_b| / |V_a|)`, `[...]`.

    Returns:
        Tensor `[...]`.
    """
    size = a._size()
    df_a, df_b = tf.convert_to_tensor(a.df), tf.convert_to_tensor(b.df)
    halves = df_b * log_det_ratio + df_a * (trace - tf.cast(size, a.dtype))
    halves += (df_a - df_b) * bartlett.multidigamma(df_a, size)
    gammas = bartlett.log_multigamma(df_b, size) - bartlett.log_multigamma(df_a, size)
    return 0.5 * halves + gammas


def _fill_scale_tril(dtype, **options):
    """Returns TFP's bijector with a diagonal shift of the given dtype instead of float32."""
    shift = tf.as_dtype(dtype).as_numpy_dtype(1e-5)
    return tfb.FillScaleTriL(diag_shift=shift, **options)


def _no_bijector_of_df():
    raise NotImplementedError("The bound of `df` depends on k, and so would its bijector.")


def _check_square(name, value):
    shape = value.shape
    known = shape.rank is not None
    if known and (shape.rank < 2 or not shape[-1:].is_compatible_with(shape[-2:-1])):
        raise ValueError(f"`{name}` must have shape [..., k, k]. Received: {name}.shape={shape}")


def _has_positive_diagonal(value):
    diagonal = np.diagonal(value, axis1=-2, axis2=-1)
    return np.isfinite(diagonal) & (diagonal > 0.0)


def _is_positive_definite(value):
    if not np.all(np.isfinite(value)):
        return False
    transposed = np.swapaxes(value, -1, -2)
    if not np.allclose(value, transposed, rtol=1e-4, atol=1e-6 * np.max(np.abs(value), initial=0)):
        return False
    try:
        np.linalg.cholesky(value)
    except np.linalg.LinAlgError:
        return False
    return True
