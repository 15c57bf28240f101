"""Positive semidefinite matrices of a given rank from real vectors, a TFP bijector."""

import math

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_fnspace.boundary.arguments import checked_count
from tfp_fnspace.math import linalg

tfb = tfp.bijectors


class LowRankOuterProduct(tfb.AutoCompositeTensorBijector):
    r"""`X = T T^T` for a lower trapezoidal `[k, n]` matrix T that a real vector fills.

    T has n <= k columns, zeros above its diagonal and a positive diagonal. The first n (n + 1) / 2
    numbers of the vector fill its upper n rows by `tfb.FillScaleTriL`, without a shift of the
    diagonal. The other (k - n) n numbers fill the rows below. Every positive semidefinite `[k, k]`
    matrix of rank n whose first n rows are linearly independent has exactly one factor T. With
    respect to the measure of `SingularWishart`,

        (dX) = 2^n |T^T T|^((k - n + 1)/2) prod_i t_ii^(n - i) (dT),   i = 1 ... n.

    Args:
        rank: n, a positive integer.
        validate_args: As in TFP.
        name: Name of the operations.

    Raises:
        ValueError: If `rank` is not a positive integer.

    Example:
    ```python
    bijector = LowRankOuterProduct(rank=1)
    bijector.forward([0.5, 1.0, -2.0])  # [3, 3], of rank 1
    ```

    References:
        Diaz-Garcia, Gutierrez Jaimez and Mardia (1997), "Wishart and pseudo-Wishart distributions
        and some applications to shape theory", Journal of Multivariate Analysis 63.
    """

    def __init__(
        self, rank: int, validate_args: bool = False, name: str = "low_rank_outer_product"
    ):
        parameters = dict(locals())
        self._rank = checked_count("rank", rank)
        self._size = self._rank * (self._rank + 1) // 2  # of the triangle
        with tf.name_scope(name) as name:
            super().__init__(
                forward_min_event_ndims=1,
                inverse_min_event_ndims=2,
                validate_args=validate_args,
                parameters=parameters,
                name=name,
            )

    @classmethod
    def _parameter_properties(cls, dtype):
        return {}

    @property
    def rank(self) -> int:
        """Number of columns n of the factor."""
        return self._rank

    def _trapezoid(self, x):
        """Returns T."""
        rank = self._rank
        upper = _fill().forward(x[..., : self._size])
        rows = (tf.shape(x)[-1] - self._size) // rank
        shape = tf.concat([tf.shape(x)[:-1], [rows, rank]], axis=0)
        return tf.concat([upper, tf.reshape(x[..., self._size :], shape)], axis=-2)

    def _forward(self, x):
        matrix = linalg.outer_product(self._trapezoid(x))
        return tf.ensure_shape(matrix, x.shape[:-1].concatenate(self._matrix_shape(x.shape[-1:])))

    def _factor(self, y):
        """Returns the upper and the lower rows of T."""
        rank = self._rank
        upper = tf.linalg.cholesky(y[..., :rank, :rank])
        below = tf.linalg.triangular_solve(upper, y[..., :rank, rank:])
        return upper, tf.linalg.matrix_transpose(below)

    def _inverse(self, y):
        upper, below = self._factor(y)
        first = _fill().inverse(upper)
        rows = tf.shape(y)[-1] - self._rank
        shape = tf.concat([tf.shape(y)[:-2], [rows * self._rank]], axis=0)
        x = tf.concat([first, tf.reshape(below, shape)], axis=-1)
        return tf.ensure_shape(x, y.shape[:-2].concatenate(self._vector_shape(y.shape[-2:])))

    def _forward_log_det_jacobian(self, x):
        fill = _fill()
        x_upper = x[..., : self._size]
        diagonal = tf.linalg.diag_part(fill.forward(x_upper))
        factor = self._trapezoid(x)
        below = tf.shape(factor)[-2] - self._rank
        inner = tf.linalg.cholesky(tf.matmul(factor, factor, transpose_a=True))
        log_det = 0.5 * tf.cast(below + 1, x.dtype) * linalg.log_determinant(inner)
        powers = tf.range(self._rank - 1, -1, -1, dtype=x.dtype)
        log_det += tf.reduce_sum(powers * tf.math.log(diagonal), axis=-1)
        return (
            self._rank * math.log(2.0)
            + log_det
            + fill.forward_log_det_jacobian(x_upper, event_ndims=1)
        )

    def _matrix_shape(self, shape):
        length = shape[0]
        side = None if length is None else (length - self._size) // self._rank + self._rank
        return tf.TensorShape([side, side])

    def _vector_shape(self, shape):
        side = shape[-1]
        length = None if side is None else self._size + (side - self._rank) * self._rank
        return tf.TensorShape([length])

    def _forward_event_shape(self, input_shape):
        return input_shape[:-1].concatenate(self._matrix_shape(input_shape[-1:]))

    def _inverse_event_shape(self, output_shape):
        return output_shape[:-2].concatenate(self._vector_shape(output_shape[-2:]))

    def _forward_event_shape_tensor(self, input_shape):
        side = (input_shape[-1] - self._size) // self._rank + self._rank
        return tf.concat([input_shape[:-1], [side, side]], axis=0)

    def _inverse_event_shape_tensor(self, output_shape):
        length = self._size + (output_shape[-1] - self._rank) * self._rank
        return tf.concat([output_shape[:-2], [length]], axis=0)


def _fill():
    return tfb.FillScaleTriL(diag_shift=None)  # a shift would have its own dtype
