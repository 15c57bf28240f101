"""Normal laws with the moments of draws, about which a divergence is estimated."""

from typing import NamedTuple

import tensorflow as tf

from tfp_fnspace.math import linalg

#: The least variance, against a sampler that has collapsed to a point.
_LEAST_VARIANCE = 1e-6


class IndependentNormal(NamedTuple):
    """Normal law of independent values.

    Attributes:
        mean: `[K]`.
        variance: `[K]`.
    """

    mean: tf.Tensor
    variance: tf.Tensor

    @classmethod
    def of(cls, draws):
        """The one with the moments of draws `[S, K]`."""
        mean, variance = tf.nn.moments(draws, axes=[0])
        return cls(mean, variance + _LEAST_VARIANCE)

    def standard(self, values):
        """Values in units of the moments, which are constants in the gradient (equation 19)."""
        mean, variance = map(tf.stop_gradient, self)
        return (values - mean) * tf.math.rsqrt(variance)

    def divergence(self, other):
        """Its KL divergence from another, in closed form.

        As one of the laws that the draws are of, it is too large: of S draws of q, where p is
        known, by about 1 / S nats for each value, whatever q is.
        """
        ratio = self.variance / other.variance
        squares = tf.square(self.mean - other.mean) / other.variance
        return 0.5 * tf.reduce_sum(ratio + squares - 1.0 - tf.math.log(ratio))


class JointNormal(NamedTuple):
    r"""Normal law with a full covariance, `L L^T`.

    Attributes:
        mean: m, `[K]`.
        factor: L, `[K, K]`.
        count: S, the number of draws that it is of, a scalar.
        num_jittered: Whether the covariance needed more on its diagonal, int32.
    """

    mean: tf.Tensor
    factor: tf.Tensor
    count: tf.Tensor
    num_jittered: tf.Tensor

    @classmethod
    def of(cls, draws):
        """The one with the moments of draws `[S, K]`, S at least K + 3.

        Where their covariance is not positive definite in floating point, something is added to
        its diagonal (`math.linalg.cholesky`), and counted.
        """
        mean, count = tf.reduce_mean(draws, axis=0), tf.cast(tf.shape(draws)[0], draws.dtype)
        centred = (draws - mean) * tf.math.rsqrt(count - 1.0)
        covariance = linalg.outer_product(tf.linalg.matrix_transpose(centred))
        factor, extra = linalg.cholesky(covariance)
        return cls(mean, factor, count, tf.math.count_nonzero(extra, dtype=tf.int32))

    def standard(self, values):
        """`L^-1 (v - m)` of each value, where the moments are constants in the gradient."""
        mean, factor = map(tf.stop_gradient, (self.mean, self.factor))
        half = tf.linalg.triangular_solve(factor, tf.linalg.matrix_transpose(values - mean))
        return tf.linalg.matrix_transpose(half)

    def divergence(self, other):
        r"""An estimate of the KL divergence of the normal laws that the draws are of.

            1/2 [b (1 - 1/S_1) tr(C_2^-1 C_1) + b |L_2^-1 (m_1 - m_2)|^2 - K (1 + 1/S_2)]
                + l_2 - l_1,
            b = (S_2 - K - 2) / (S_2 - 1),
            l = 1/2 log |C| - 1/2 sum_{k=1..K} [psi((S - k) / 2) - log((S - 1) / 2)]

        with the moments of the draws. It has no bias where those are normal, independent of each
        other, and no covariance was jittered. The moments alone would err: the inverse of C_2 is
        1 / b times too large in the mean, log |C| too small, the distance of two means too large.

        References:
            Hartlap, Simon & Schneider (2007), "Why your model parameter confidences might be too
            optimistic: unbiased estimation of the inverse covariance matrix", Astronomy &
            Astrophysics 464, for b.
        """
        size, count = self._size, other.count
        shift = (self.mean - other.mean)[:, tf.newaxis]
        solved = tf.linalg.triangular_solve(other.factor, tf.concat([self.factor, shift], axis=1))
        squares = tf.reduce_sum(tf.square(solved), axis=0)
        trace, distance = tf.reduce_sum(squares[:-1]), squares[-1]
        unbiased = (count - size - 2.0) / (count - 1.0)
        total = unbiased * ((1.0 - 1.0 / self.count) * trace + distance)
        return 0.5 * (total - size * (1.0 + 1.0 / count) + other._log_size() - self._log_size())

    @property
    def _size(self):
        return tf.cast(tf.shape(self.mean)[0], self.mean.dtype)

    def _log_size(self):
        """Log determinant of the covariance that the draws are of, without bias."""
        degrees = self.count - 1.0
        halves = 0.5 * (self.count - tf.range(1.0, self._size + 1.0, dtype=self.mean.dtype))
        bias = tf.reduce_sum(tf.math.digamma(halves) - tf.math.log(0.5 * degrees))
        return linalg.log_determinant(self.factor) - bias
