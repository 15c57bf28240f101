"""A sparse Gaussian process, by Titsias's bound.

The bound is that of `processes`. GPflow needs NumPy below 2 (2.11) or `pkg_resources` (2.9),
neither of which exists with TensorFlow 2.21, and GPyTorch brings another framework.
"""

import math

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import optimize
from sklearn.cluster import MiniBatchKMeans

from tfp_fnspace.benchmark.rivals.base import Rival
from tfp_fnspace.processes.marginal_likelihood import collapsed_bound
from tfp_fnspace.tracing import traced
from tfp_fnspace.typing import Tensor

psd_kernels = tfp.math.psd_kernels

#: Numbers of inducing points and of steps of L-BFGS.
_NUM_INDUCING, _STEPS = 200, 200

_JITTER = 1e-6


class SparseGP(Rival):
    """A squared exponential process with a length for each input and up to 200 inducing points.

    Scale, lengths, noise and inducing points maximise the bound of the marginal likelihood in at
    most 200 steps of L-BFGS. The points start at the means of k-means.

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
        start = [0.0, math.log(0.1), *np.full(width, 0.5 * math.log(width)), *np.ravel(x_inducing)]
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
        chol, chol_b, c = self._posterior
        cross = _kernel(variance, lengths).matrix(inducing, tf.constant(x))  # [M, N]
        first = tf.linalg.triangular_solve(chol, cross)
        second = tf.linalg.triangular_solve(chol_b, first)
        mean = tf.linalg.matmul(second, c, transpose_a=True)[:, 0]
        less, more = (tf.reduce_sum(tf.square(t), axis=0) for t in (first, second))
        return mean.numpy(), tf.sqrt(variance - less + more + noise).numpy()


def bound(
    x: Tensor, y: Tensor, variance: Tensor, noise: Tensor, lengths: Tensor, inducing: Tensor
) -> Tensor:
    """Returns Titsias's bound: `log N(y; 0, Q + noise I) - tr(K - Q) / (2 noise)`.

    Args:
        x: Inputs `[N, X]`.
        y: Targets `[N, 1]`.
        variance: Variance of the process.
        noise: Variance of the noise.
        lengths: `[X]`.
        inducing: Inducing points `[M, X]`; with all of `x` the bound is the marginal likelihood.
    """
    kernel = _kernel(variance, lengths)
    scale = tf.sqrt(noise)
    return collapsed_bound(tf.transpose(y), x, inducing, kernel, scale, _JITTER * variance)[0]


def _posterior(x, y, variance, noise, lengths, inducing):
    """Returns Cholesky factors of `Kuu` and `B = I + A A'`, and `c = LB^-1 A y / s`.

    `A = L^-1 Kuf / s`, where `s` is the standard deviation of the noise. The cost is O(N M^2).
    """
    kernel = _kernel(variance, lengths)
    eye = tf.eye(tf.shape(inducing)[0], dtype=x.dtype)
    chol = tf.linalg.cholesky(kernel.matrix(inducing, inducing) + _JITTER * variance * eye)
    a = tf.linalg.triangular_solve(chol, kernel.matrix(inducing, x)) / tf.sqrt(noise)
    chol_b = tf.linalg.cholesky(tf.linalg.matmul(a, a, transpose_b=True) + eye)
    return chol, chol_b, tf.linalg.triangular_solve(chol_b, a @ y) / tf.sqrt(noise)


def _kernel(variance, lengths):
    return psd_kernels.FeatureScaled(
        psd_kernels.ExponentiatedQuadratic(tf.sqrt(variance)), scale_diag=lengths
    )


def _unpacked(parameters, width):
    variance, noise, lengths = tf.split(tf.exp(parameters[: 2 + width]), [1, 1, width])
    return variance[0], noise[0], lengths, tf.reshape(parameters[2 + width :], [-1, width])
