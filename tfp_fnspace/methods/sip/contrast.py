"""Normal distributions with the moments of draws, for the estimation of divergences."""

from typing import NamedTuple

import tensorflow as tf

from tfp_fnspace.math import linalg

#: The least variance, in case a sampler has collapsed to a point.
_LEAST_VARIANCE = 1e-6


class IndependentNormal(NamedTuple):
    """Normal distribution of independent values.

    Attributes:
        mean: `[K]`.
        variance: `[K]`.
    """

    mean: tf.Tensor
    variance: tf.Tensor

    @classmethod
    def of(cls, draws):
        """Makes the distribution with the moments of draws `[S, K]`."""
        mean, variance = tf.nn.moments(draws, axes=[0])
        return cls(mean, variance + _LEAST_VARIANCE)

    def standard(self, values):
        """Standardises values by the moments, which are constants in the gradient (equation 19)."""
        mean, variance = map(tf.stop_gradient, self)
        return (values - mean) * tf.math.rsqrt(variance)

    def divergence(self, other):
        """Returns the KL divergence from another distribution, in closed form.

        As an estimate for the distributions of the draws, it is too large: with S draws of q and
        known p, by about 1 / S nats for each value, whatever q is.
        """
        ratio = self.variance / other.variance
        squares = tf.square(self.mean - other.mean) / other.variance
        return 0.5 * tf.reduce_sum(ratio + squares - 1.0 - tf.math.log(ratio))


class JointNormal(NamedTuple):
    r"""Normal distribution with a full covariance, `L L^T`.

    Attributes:
        mean: m, `[K]`.
        factor: L, `[K, K]`.
        count: S, the number of its draws, a scalar.
        num_jittered: 1 if the covariance needed more on its diagonal, else 0, int32.
    """

    mean: tf.Tensor
    factor: tf.Tensor
    count: tf.Tensor
    num_jittered: tf.Tensor

    @classmethod
    def of(cls, draws):
        """Makes the distribution with the moments of draws `[S, K]`, S at least K + 3.

        If their covariance is not positive definite in floating point, jitter is added to its
        diagonal (`math.linalg.cholesky`) and counted.
        """
        mean, count = tf.reduce_mean(draws, axis=0), tf.cast(tf.shape(draws)[0], draws.dtype)
        centred = (draws - mean) * tf.math.rsqrt(count - 1.0)
        covariance = linalg.outer_product(tf.linalg.matrix_transpose(centred))
        factor, extra = linalg.cholesky(covariance)
        return cls(mean, factor, count, tf.math.count_nonzero(extra, dtype=tf.int32))

    def standard(self, values):
        """Returns `L^-1 (v - m)` for each value; the moments are constants in the gradient."""
        mean, factor = map(tf.stop_gradient, (self.mean, self.factor))
        half = tf.linalg.triangular_solve(factor, tf.linalg.matrix_transpose(values - mean))
        return tf.linalg.matrix_transpose(half)

    def divergence(self, other):
        r"""Estimates the KL divergence between the normal distributions of the draws.

            1/2 [b (1 - 1/S_1) tr(C_2^-1 C_1) + b |L_2^-1 (m_1 - m_2)|^2 - K (1 + 1/S_2)]
                + l_2 - l_1,
            b = (S_2 - K - 2) / (S_2 - 1),
            l = 1/2 log |C| - 1/2 sum_{k=1..K} [psi((S - k) / 2) - log((S - 1) / 2)]

        with the moments of the draws. It has no bias if the draws are normal and independent of
        each other, and no covariance was jittered. The moments alone would be biased: on average
        the inverse of C_2 is too large by a factor 1 / b, log |C| is too small, and the distance of
        two means is too large.

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
        """Returns an unbiased estimate of the log determinant of the covariance of the draws."""
        degrees = self.count - 1.0
        halves = 0.5 * (self.count - tf.range(1.0, self._size + 1.0, dtype=self.mean.dtype))
        bias = tf.reduce_sum(tf.math.digamma(halves) - tf.math.log(0.5 * degrees))
        return linalg.log_determinant(self.factor) - bias
