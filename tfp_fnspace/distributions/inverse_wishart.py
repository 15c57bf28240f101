"""The inverse Wishart distribution, a TFP distribution."""

import math

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_fnspace.distributions._wishart_base import WishartBase, kl_from_traces
from tfp_fnspace.math import bartlett, linalg

tfd = tfp.distributions


class InverseWishart(WishartBase):
    r"""Distribution of `G = X^-1` where X ~ W(Psi^-1, nu); SciPy's `invwishart(df=nu, scale=Psi)`.

    With nu = `df` > k - 1 real and Psi = `scale` positive definite, the density in the entries of
    the lower triangle is

        log p(G) = nu/2 log |Psi| - nu k/2 log 2 - log Gamma_k(nu/2)
                   - (nu + k + 1)/2 log |G| - 1/2 tr(Psi G^-1).

    The mean is `Psi / (nu - k - 1)` for nu > k + 1, the mode is `Psi / (nu + k + 1)`, and for nu >
    k + 3

        Var G_ij = [(nu-k+1) Psi_ij^2 + (nu-k-1) Psi_ii Psi_jj] / [(nu-k)(nu-k-1)^2 (nu-k-3)].

    A sample is `G = A A^T`, `A = L U^-T`, with `Psi = L L^T` and U Bartlett's upper factor. A is
    the Cholesky factor of G, so `experimental_sample_and_log_prob` factorises nothing. Samples are
    reparameterised in the scale and in df. In float32 prefer factors
    (`input_output_cholesky=True`), or use float64: for df near k - 1, or a scale of condition above
    1e5, a sample may be too ill-conditioned to be factorised again, and then `log_prob` of the
    matrix is NaN. The log density is a difference of terms of size nu k. In float32 its error was
    0.01 at nu = 1e3, k = 50, and 2 at nu = 1e6, k = 5.

    Args:
        df: nu > k - 1, floating tensor that broadcasts with the batch of the scale.
        scale: Psi, symmetric positive definite `[..., k, k]`; alternatively give `scale_tril`.
        scale_tril: Lower triangular Cholesky factor of Psi, `[..., k, k]`; entries above the
            diagonal are ignored.
        input_output_cholesky: Whether `sample`, `mean` and `mode` return the Cholesky factor of the
            matrix and `log_prob` takes it. The density stays that of the matrix.
        validate_args: Whether to check parameters whose value is not known in advance.
        allow_nan_stats: Whether an undefined moment is NaN; otherwise it is an error.
        name: Name of the operations, by default that of the class.

    Raises:
        ValueError: If a parameter has a known value or shape that breaks its rule.

    Example:
    ```python
    distribution = InverseWishart(df=5.0, scale=[[2.0, 0.3], [0.3, 1.0]])
    distribution.mean()  # scale / 2
    distribution.log_prob(distribution.sample(10, seed=1))  # [10]
    ```

    References:
        Muirhead (1982), "Aspects of multivariate statistical theory", section 3.2.5.
        Press (1982), "Applied multivariate analysis", section 5.2 (moments).
        Aitchison, Yang and Ober (2021), "Deep kernel processes", ICML (an application).
    """

    def _draw_factor(self, seed, shape):
        upper, log_diagonal = self._standard(bartlett.upper_factor, seed, shape)
        scale = tf.broadcast_to(self.scale_factor(), tf.shape(upper))
        # A^T = U^-1 L^T, O(k^3).
        transposed = tf.linalg.triangular_solve(
            upper, tf.linalg.matrix_transpose(scale), lower=False
        )
        log_det = linalg.log_determinant(scale) - 2.0 * tf.reduce_sum(log_diagonal, axis=-1)
        trace = tf.reduce_sum(tf.square(upper), axis=[-2, -1])  # tr(Psi G^-1) = tr(U U^T)
        return tf.linalg.matrix_transpose(transposed), log_det, trace

    def _trace(self, factor):
        """Returns `tr(Psi G^-1) = ||A^-1 L||_F^2`, O(k^3)."""
        return linalg.squared_norm_of_solution(factor, self.scale_factor())

    def _log_density(self, log_det, trace):
        df, scale = self._df_and_factor()
        size = self._size()
        k = tf.cast(size, self.dtype)
        normaliser = 0.5 * df * (linalg.log_determinant(scale) - k * math.log(2.0))
        normaliser -= bartlett.log_multigamma(df, size)
        return normaliser - 0.5 * (df + k + 1.0) * log_det - 0.5 * trace

    def _excess(self):
        """Returns `df - (k + 1)`, which is positive if there is a mean."""
        return tf.convert_to_tensor(self.df) - tf.cast(self._size() + 1, self.dtype)

    def _entropy(self):
        """Returns the entropy of X plus the expectation of `log |dG / dX| = -(k + 1) log |X|`."""
        size = self._size()
        k = tf.cast(size, self.dtype)
        # First for the unit scale; then G is scaled by Psi.
        log_det = bartlett.multidigamma(tf.convert_to_tensor(self._df), size) + k * math.log(2.0)
        entropy = self._standard_entropy() - (k + 1.0) * log_det
        entropy += 0.5 * (k + 1.0) * linalg.log_determinant(self.scale_factor())
        return tf.broadcast_to(entropy, self.batch_shape_tensor())

    def _mean(self):
        excess = self._excess()
        what = "The mean is undefined for df <= k + 1."
        multiple = self._where_defined(excess > 0.0, 1.0 / excess, what)
        return self._scaled(multiple, self.scale_factor())

    def _mode(self):
        df, scale = self._df_and_factor()
        return self._scaled(1.0 / (df + tf.cast(self._size() + 1, self.dtype)), scale)

    def _variance(self):
        """Returns the variance, infinite for k + 1 < nu <= k + 3 and undefined below."""
        excess = self._excess()[..., tf.newaxis, tf.newaxis]
        scale = linalg.outer_product(self.scale_factor())
        diagonal = tf.linalg.diag_part(scale)
        products = diagonal[..., :, tf.newaxis] * diagonal[..., tf.newaxis, :]
        variance = (excess + 2.0) * tf.square(scale) + excess * products
        variance /= (excess + 1.0) * tf.square(excess) * (excess - 2.0)
        variance = tf.where(excess > 2.0, variance, tf.constant(math.inf, self.dtype))
        what = "The variance is undefined for df <= k + 1."
        return self._where_defined(excess > 0.0, variance, what)


@tfd.RegisterKL(InverseWishart, InverseWishart)
def _kl_inverse_wishart(a, b, name=None):
    with tf.name_scope(name or "kl_inverse_wishart"):
        factor_a, factor_b = a.scale_factor(), b.scale_factor()
        ratio = linalg.log_determinant(factor_a) - linalg.log_determinant(factor_b)
        trace = linalg.squared_norm_of_solution(factor_a, factor_b)  # tr(Psi_b Psi_a^-1)
        return kl_from_traces(a, b, trace, ratio)
