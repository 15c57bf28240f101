"""Wishart distributions of regular and singular matrices, as TFP distributions."""

import math

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_fnspace.bijectors import LowRankOuterProduct
from tfp_fnspace.boundary.arguments import is_integer
from tfp_fnspace.distributions._parameters import common_dtype
from tfp_fnspace.distributions._wishart_base import ScaledByMatrix, WishartBase, kl_from_traces
from tfp_fnspace.math import bartlett, linalg, random
from tfp_fnspace.typing import ArrayLike

tfd = tfp.distributions


class Wishart(WishartBase):
    r"""The Wishart distribution W(V, nu) for real nu > k - 1; SciPy's `wishart(df=nu, scale=V)`.

    With V = `scale` and nu = `df`, the density in the k (k + 1) / 2 entries of the lower triangle
    is

        log p(X) = (nu - k - 1)/2 log |X| - 1/2 tr(V^-1 X)
                   - nu/2 log |V| - nu k/2 log 2 - log Gamma_k(nu/2).

    The mean is `nu V`, the mode is `(nu - k - 1) V` for nu >= k + 1, and `Var X_ij = nu (V_ij^2 +
    V_ii V_jj)`. The entropy is that of the matrix, also with `input_output_cholesky`. TFP's own
    distribution refuses k - 1 < nu < k, and its gradient in df does not compile under XLA.

    A sample is `X = A A^T`, `A = L T`, with `V = L L^T` and T Bartlett's lower factor. A is the
    Cholesky factor of X, so `experimental_sample_and_log_prob` factorises nothing. Samples are
    reparameterised in the scale and in df. In float32 prefer factors, as for `InverseWishart`,
    whose density has the same error.

    Args:
        df: nu > k - 1, floating tensor that broadcasts with the batch of the scale.
        scale: V, symmetric positive definite `[..., k, k]`; alternatively give `scale_tril`.
        scale_tril: Lower triangular Cholesky factor of V, `[..., k, k]`; entries above the diagonal
            are ignored.
        input_output_cholesky: Whether `sample`, `mean` and `mode` return the Cholesky factor of the
            matrix and `log_prob` takes it. The density stays that of the matrix.
        validate_args: Whether to check parameters whose value is not known in advance.
        allow_nan_stats: Whether an undefined mode is NaN; otherwise it is an error.
        name: Name of the operations, by default that of the class.

    Raises:
        ValueError: If a parameter has a known value or shape that breaks its rule.

    Example:
    ```python
    distribution = Wishart(df=1.5, scale_tril=[[1.0, 0.0], [0.3, 1.0]])
    distribution.log_prob(distribution.sample(10, seed=1))  # [10]
    ```

    References:
        Muirhead (1982), "Aspects of multivariate statistical theory", section 3.2.
    """

    def _draw_factor(self, seed, shape):
        lower, log_diagonal = self._standard(bartlett.lower_factor, seed, shape)
        scale = self.scale_factor()
        log_det = linalg.log_determinant(scale) + 2.0 * tf.reduce_sum(log_diagonal, axis=-1)
        trace = tf.reduce_sum(tf.square(lower), axis=[-2, -1])  # tr(V^-1 X) = tr(T T^T)
        return tf.matmul(scale, lower), log_det, trace

    def _trace(self, factor):
        """Returns `tr(V^-1 X) = ||L^-1 A||_F^2`, O(k^3)."""
        return linalg.squared_norm_of_solution(self.scale_factor(), factor)

    def _log_density(self, log_det, trace):
        df, scale = self._df_and_factor()
        size = self._size()
        k = tf.cast(size, self.dtype)
        normaliser = 0.5 * df * (linalg.log_determinant(scale) + k * math.log(2.0))
        normaliser += bartlett.log_multigamma(df, size)
        return 0.5 * (df - k - 1.0) * log_det - 0.5 * trace - normaliser

    def _entropy(self):
        k = tf.cast(self._size(), self.dtype)
        entropy = self._standard_entropy() + 0.5 * (k + 1.0) * linalg.log_determinant(
            self.scale_factor()
        )
        return tf.broadcast_to(entropy, self.batch_shape_tensor())

    def _mean(self):
        return self._scaled(*self._df_and_factor())

    def _mode(self):
        df, scale = self._df_and_factor()
        excess = df - tf.cast(self._size() + 1, self.dtype)
        what = "The mode is undefined for df < k + 1."
        return self._scaled(self._where_defined(excess >= 0.0, excess, what), scale)

    def _variance(self):
        df, factor = self._df_and_factor()
        return df[..., tf.newaxis, tf.newaxis] * _variance_of_one(factor)


class SingularWishart(ScaledByMatrix):
    r"""The Wishart distribution with fewer degrees of freedom than dimensions, of rank n < k.

    `X = Z Z^T`, where the n = `df` columns of Z are independent N(0, V), V = `scale`. The measure
    on positive semidefinite matrices of rank n is

        (dX) = 2^-n prod_i l_i^(k-n) prod_{i<j} (l_i - l_j) (H^T dH) dl_1 ... dl_n,

    where `X = H diag(l) H^T`, `l_1 > ... > l_n > 0`. With respect to it, the density is

        log p(X) = -1/2 tr(V^-1 X) + (n - k - 1)/2 sum_i log l_i - n/2 log |V|
                   - k n/2 log 2 + n (n - k)/2 log pi - log Gamma_n(n/2).

    The mean is `n V`, and `Var X_ij = n (V_ij^2 + V_ii V_jj)`. Samples are reparameterised in the
    scale. `log_prob` uses the n largest eigenvalues of its argument and does not check whether the
    others are zero.

    Args:
        df: n, an integer, 1 <= n < k.
        scale: V, symmetric positive definite `[..., k, k]`; alternatively give `scale_tril`.
        scale_tril: Lower triangular Cholesky factor of V, `[..., k, k]`; entries above the diagonal
            are ignored.
        validate_args: Whether to check parameters whose value is not known in advance.
        allow_nan_stats: Has no effect, since no statistic of this distribution is NaN.
        name: Name of the operations.

    Raises:
        ValueError: If a parameter has a known value or shape that breaks its rule.

    Example:
    ```python
    distribution = SingularWishart(df=2, scale_tril=tf.eye(5))
    distribution.log_prob(distribution.sample(10, seed=1))  # [10]
    ```

    References:
        Uhlig (1994), "On singular Wishart and singular multivariate beta distributions", Annals of
        Statistics 22(1), theorem 6.
        Srivastava (2003), "Singular Wishart and multivariate beta distributions", Annals of
        Statistics 31(5).
    """

    def __init__(
        self,
        df: int,
        scale: ArrayLike | None = None,
        scale_tril: ArrayLike | None = None,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "SingularWishart",
    ):
        parameters = dict(locals())
        with tf.name_scope(name) as name:
            dtype = common_dtype(*(v for v in (scale, scale_tril) if v is not None))
            super().__init__(
                scale, scale_tril, dtype, parameters, validate_args, allow_nan_stats, name
            )
            size = self._given_scale().shape[-1]
            if not is_integer(df) or df < 1 or (size is not None and df >= size):
                raise ValueError(
                    f"`df` must be an integer, at least 1 and less than k = {size}, where the "
                    f"scale is k x k. Received: df={df}"
                )
            self._df = int(df)

    @classmethod
    def _parameter_properties(cls, dtype, num_classes=None):
        # TFP requires this method in every class with a constructor.
        return super()._parameter_properties(dtype, num_classes)

    @property
    def df(self) -> int:
        """Degrees of freedom n, a Python integer."""
        return self._df

    def _sample_n(self, n, seed=None):
        shape = tf.concat([[n], self.batch_shape_tensor(), [self._size(), self._df]], axis=0)
        seed = tfp.random.sanitize_seed(seed, salt="SingularWishart")
        normal = random.normal(shape, seed, self.dtype)
        return linalg.outer_product(tf.matmul(self.scale_factor(), normal))

    def _log_prob(self, x):
        scale, n = self.scale_factor(), self._df
        k = tf.cast(self._size(), self.dtype)
        shape = tf.concat(
            [tf.broadcast_dynamic_shape(tf.shape(x)[:-2], tf.shape(scale)[:-2]), tf.shape(x)[-2:]],
            axis=0,
        )
        whole = tf.linalg.cholesky_solve(
            tf.broadcast_to(scale, shape), tf.broadcast_to(x, shape)
        )  # V^-1 X, O(k^3)
        log_values = tf.math.log(tf.linalg.eigvalsh(x)[..., -n:])
        normaliser = 0.5 * n * (linalg.log_determinant(scale) + k * math.log(2.0))
        normaliser += 0.5 * n * math.log(math.pi) * (k - n)
        normaliser += bartlett.log_multigamma(tf.constant(n, self.dtype), n)
        exponent = 0.5 * (n - k - 1.0)
        log_det = tf.reduce_sum(log_values, axis=-1)
        return exponent * log_det - 0.5 * tf.linalg.trace(whole) - normaliser

    def _default_event_space_bijector(self):
        return LowRankOuterProduct(self._df, validate_args=self.validate_args)

    def _mean(self):
        return self._df * linalg.outer_product(self.scale_factor())

    def _variance(self):
        return self._df * _variance_of_one(self.scale_factor())


def _variance_of_one(factor):
    """Returns `V_ij^2 + V_ii V_jj`, the variances for one degree of freedom, `[..., k, k]`."""
    scale = linalg.outer_product(factor)
    diagonal = tf.linalg.diag_part(scale)
    return tf.square(scale) + diagonal[..., :, tf.newaxis] * diagonal[..., tf.newaxis, :]


@tfd.RegisterKL(Wishart, Wishart)
def _kl_wishart(a, b, name=None):
    with tf.name_scope(name or "kl_wishart"):
        factor_a, factor_b = a.scale_factor(), b.scale_factor()
        ratio = linalg.log_determinant(factor_b) - linalg.log_determinant(factor_a)
        trace = linalg.squared_norm_of_solution(factor_b, factor_a)  # tr(V_b^-1 V_a)
        return kl_from_traces(a, b, trace, ratio)
