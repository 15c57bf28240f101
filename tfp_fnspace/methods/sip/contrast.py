"""Adaptive contrast with full covariances, an extension of appendix B of the paper."""

from typing import NamedTuple, Self

import tensorflow as tf

from tfp_fnspace.math import linalg, random
from tfp_fnspace.methods.sip.equations import NormalPart
from tfp_fnspace.typing import Seed, Tensor

#: Variance of the noise that is added to draws of q, relative to the noise of p.
_OF_Q = 0.01


def with_noise(q: Tensor, p: Tensor, noise: float, seed: Seed) -> list[Tensor]:
    """Adds noise of variance `noise / 100` to draws of q, and of variance `noise` to draws of p.

    Args:
        q: Draws `[S, K]`.
        p: Draws `[S, K]`.
        noise: Variance, a number.
        seed: int32 tensor `[2]`.

    Returns:
        List of both with noise.
    """
    return [
        v + share**0.5 * random.normal(tf.shape(v), random.fold_in(seed, i), v.dtype)
        for i, (v, share) in enumerate([(q, _OF_Q * noise), (p, noise)], 1)
    ]


def joint_normal_part(q: Tensor, p: Tensor) -> NormalPart:
    """Computes `NormalPart` as `equations.normal_part` does, but with full covariances.

    Args:
        q: Draws `[S, K]`, S at least K + 3.
        p: Draws `[S, K]`, S at least K + 3.

    Returns:
        `NormalPart`.
    """
    q_bar, p_bar = JointNormal.of(q), JointNormal.of(p)
    return NormalPart(
        [q_bar.standard(v) for v in (q, p)],
        [p_bar.standard(v) for v in (q, p)],
        q_bar.divergence(p_bar),
        p_bar.divergence(q_bar),
        q_bar.num_jittered + p_bar.num_jittered,
    )


class JointNormal(NamedTuple):
    r"""Normal distribution with a full covariance, `L L^T`.

    Attributes:
        mean: m, `[K]`.
        factor: L, `[K, K]`.
        count: S, the number of its draws, a scalar.
        num_jittered: 1 if the covariance needed more on its diagonal, else 0, int32.
    """

    mean: Tensor
    factor: Tensor
    count: Tensor
    num_jittered: Tensor

    @classmethod
    def of(cls, draws: Tensor) -> Self:
        """Makes the distribution with the moments of draws `[S, K]`, S at least K + 3.

        If their covariance is not positive definite in floating point, jitter is added to its
        diagonal (`math.linalg.cholesky`) and counted.
        """
        mean, count = tf.reduce_mean(draws, axis=0), tf.cast(tf.shape(draws)[0], draws.dtype)
        centred = (draws - mean) * tf.math.rsqrt(count - 1.0)
        covariance = linalg.outer_product(tf.linalg.matrix_transpose(centred))
        factor, extra = linalg.cholesky(covariance)
        return cls(mean, factor, count, tf.math.count_nonzero(extra, dtype=tf.int32))

    def standard(self, values: Tensor) -> Tensor:
        """Returns `L^-1 (v - m)` for each value; the moments are constants in the gradient."""
        mean, factor = map(tf.stop_gradient, (self.mean, self.factor))
        half = tf.linalg.triangular_solve(factor, tf.linalg.matrix_transpose(values - mean))
        return tf.linalg.matrix_transpose(half)

    def divergence(self, other: Self) -> Tensor:
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
