"""The inverse of a positive definite matrix, a TFP bijector."""

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_fnspace.math import linalg

tfb = tfp.bijectors


class PositiveDefiniteInverse(tfb.AutoCompositeTensorBijector):
    r"""`Y = X^-1` for symmetric positive definite X, its own inverse.

    As a map of the k (k + 1) / 2 entries of the lower triangle,

        log |dY / dX| = -(k + 1) log |X|,

    so that it turns a density of Wishart matrices into that of inverse Wishart matrices: `W^-1(Psi,
    nu)` is the distribution of `X^-1`, X ~ W(Psi^-1, nu).

    Args:
        validate_args: Whether to check that inputs are positive definite.
        name: Name of the operations.

    Example:
    ```python
    inverse = PositiveDefiniteInverse()
    inverse.forward([[2.0, 0.0], [0.0, 4.0]])  # [[0.5, 0], [0, 0.25]]
    inverse.forward_log_det_jacobian([[2.0, 0.0], [0.0, 4.0]])  # -3 log 8
    ```

    References:
        Muirhead (1982), "Aspects of multivariate statistical theory", theorem 2.1.8.
    """

    def __init__(self, validate_args: bool = False, name: str = "positive_definite_inverse"):
        parameters = dict(locals())
        with tf.name_scope(name) as name:
            super().__init__(
                forward_min_event_ndims=2,
                validate_args=validate_args,
                parameters=parameters,
                name=name,
            )

    @classmethod
    def _parameter_properties(cls, dtype):
        return {}

    def _factor(self, x):
        factor = tf.linalg.cholesky(x)
        if not self.validate_args:
            return factor
        is_positive = tf.reduce_all(tf.linalg.diag_part(factor) > 0.0)  # NaN is not
        message = "Matrices must be positive definite."
        with tf.control_dependencies([tf.debugging.Assert(is_positive, [message])]):
            return tf.identity(factor)

    def _forward(self, x):
        identity = tf.eye(tf.shape(x)[-1], batch_shape=tf.shape(x)[:-2], dtype=x.dtype)
        y = tf.linalg.cholesky_solve(self._factor(x), identity)
        return tf.ensure_shape(0.5 * (y + tf.linalg.matrix_transpose(y)), x.shape)

    def _inverse(self, y):
        return self._forward(y)

    def _forward_log_det_jacobian(self, x):
        k = tf.cast(tf.shape(x)[-1], x.dtype)
        return -(k + 1.0) * linalg.log_determinant(self._factor(x))

    def _inverse_log_det_jacobian(self, y):
        return self._forward_log_det_jacobian(y)
