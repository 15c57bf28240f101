"""A sparse Gaussian process, by Titsias's bound.

Written here, because GPflow asks for NumPy below 2 (2.11) or for `pkg_resources` (2.9), neither of
which there is beside TensorFlow 2.21, and GPyTorch brings another framework.
"""

import math

import numpy as np
import tensorflow as tf
from scipy import optimize
from sklearn.cluster import MiniBatchKMeans

from tfp_fnspace.benchmark.rivals.base import Rival
from tfp_fnspace.tracing import traced

#: Inducing points, and steps of L-BFGS.
_NUM_INDUCING, _STEPS = 200, 200

_JITTER = 1e-6


class SparseGP(Rival):
    """Squared exponential with a length for each input, at most 200 inducing points.

    Scale, lengths, noise and inducing points maximise the bound of the marginal likelihood, by 200
    steps of L-BFGS at most; the points start at the means of k-means.

    References:
        Titsias (2009), "Variational learning of inducing variables in sparse Gaussian processes".
    """

    def _fit(self, x, y):
        size, width = x.shape
        if size > _NUM_INDUCING:
            means = MiniBatchKMeans(_NUM_INDUCING, n_init=1, random_state=self.random_state)
            x_inducing = means.fit(x).cluster_centers_
        else:
            x_inducing = x
        start = [0.0, math.log(0.1), *np.full(width, 0.5 * math.log(width)), *x_inducing.ravel()]
        x, y = tf.constant(x), tf.constant(y[:, np.newaxis])

        @traced
        def loss_and_gradient(parameters):
            with tf.GradientTape() as tape:
                tape.watch(parameters)
                loss = -bound(x, y, *_unpacked(parameters, width))
            return loss, tape.gradient(loss, parameters)

        found = optimize.minimize(
            lambda p: [v.numpy() for v in loss_and_gradient(tf.constant(p))],
            np.array(start),
            jac=True,
            method="L-BFGS-B",
            bounds=[(-7.0, 7.0), (-14.0, 3.0), *[(-5.0, 7.0)] * width]
            + [(None, None)] * (len(start) - 2 - width),
            options={"maxiter": _STEPS},
        )
        self._parameters = _unpacked(tf.constant(found.x), width)
        self._posterior = _posterior(x, y, *self._parameters)

    def _predict(self, x):
        variance, noise, lengths, inducing = self._parameters
        chol, chol_b, c, _ = self._posterior
        cross = _kernel(inducing, tf.constant(x), variance, lengths)  # [M, N]
        first = tf.linalg.triangular_solve(chol, cross)
        second = tf.linalg.triangular_solve(chol_b, first)
        mean = tf.linalg.matmul(second, c, transpose_a=True)[:, 0]
        less, more = (tf.reduce_sum(tf.square(t), axis=0) for t in (first, second))
        return mean.numpy(), tf.sqrt(variance - less + more + noise).numpy()


def bound(x, y, variance, noise, lengths, inducing):
    """Titsias's bound: `log N(y; 0, Q + noise I) - tr(K - Q) / (2 noise)`.

    Args:
        x: Inputs `[N, X]`.
        y: Targets `[N, 1]`.
        variance: Of the process.
        noise: Variance of the noise.
        lengths: `[X]`.
        inducing: Inducing points `[M, X]`; with all of `x` the bound is the marginal likelihood.
    """
    _, chol_b, c, trace = _posterior(x, y, variance, noise, lengths, inducing)
    size = tf.cast(tf.shape(x)[0], x.dtype)
    log_det = tf.reduce_sum(tf.math.log(tf.linalg.diag_part(chol_b)))
    quadratic = tf.reduce_sum(tf.square(y)) / noise - tf.reduce_sum(tf.square(c))
    constant = size * (math.log(2.0 * math.pi) + tf.math.log(noise) + variance / noise)
    return 0.5 * (trace - quadratic - constant) - log_det


def _posterior(x, y, variance, noise, lengths, inducing):
    """Cholesky factors of `Kuu` and `B = I + A A'`, `c = LB^-1 A y / s`, and `tr(A A')`.

    `A = L^-1 Kuf / s`, `s` the standard deviation of the noise. Costs O(N M^2).
    """
    gram = _kernel(inducing, inducing, variance, lengths)
    eye = tf.eye(tf.shape(inducing)[0], dtype=x.dtype)
    chol = tf.linalg.cholesky(gram + _JITTER * variance * eye)
    a = tf.linalg.triangular_solve(chol, _kernel(inducing, x, variance, lengths)) / tf.sqrt(noise)
    product = tf.linalg.matmul(a, a, transpose_b=True)  # [M, M]
    chol_b = tf.linalg.cholesky(product + eye)
    c = tf.linalg.triangular_solve(chol_b, a @ y) / tf.sqrt(noise)
    return chol, chol_b, c, tf.linalg.trace(product)


def _kernel(left, right, variance, lengths):
    left, right = left / lengths, right / lengths
    squares = [tf.reduce_sum(tf.square(t), axis=1) for t in (left, right)]
    distance = squares[0][:, tf.newaxis] + squares[1] - 2.0 * left @ tf.transpose(right)
    return variance * tf.exp(-0.5 * tf.maximum(distance, 0.0))


def _unpacked(parameters, width):
    variance, noise, lengths = tf.split(tf.exp(parameters[: 2 + width]), [1, 1, width])
    return variance[0], noise[0], lengths, tf.reshape(parameters[2 + width :], [-1, width])
