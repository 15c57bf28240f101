"""The Gaussian process."""

import math

import keras
import tensorflow as tf

from tfp_fnspace.math import linalg
from tfp_fnspace.processes import marginal_likelihood
from tfp_fnspace.processes.elliptical import EllipticalProcess

_LOG_TWO_PI = math.log(2.0 * math.pi)


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class GaussianProcess(EllipticalProcess):
    """Gaussian process prior, independent over the outputs.

        f_d(x) ~ N(m_d, K),   K_ij = k_d(x_i, x_j) + jitter [i = j]
        score(f) = -(K + gamma^2 I)^-1 (f - m)

    In float32, K of many close points has an error of about 1e-6 of its diagonal. If `jitter` and
    the injected noise gamma are smaller than that, make the process with `dtype="float64"`.

    Args:
        kernel: TFP kernel `tfp.math.psd_kernels.*` of any kind, including sums and products, with
            batch shape `[]` or `[D]`. Its parameters become weights, see `KernelWeights`.
        num_outputs: D, a positive integer.
        mean: Initial m, a number for all outputs; in units of f.
        noise_scale: Initial standard deviation of the noise of observations, greater than 1e-6.
            It is not part of f; `fit` learns it.
        jitter: Variance added to the diagonal of K, at least 0.
        learn_mean: Whether m is learned.
        fixed: Names of parameters of the kernel that are not learned, such as `"period"`.
        **kwargs: `name`, `dtype`, `trainable`.

    Raises:
        TypeError: If `kernel` is not a TFP kernel.
        ValueError: If an argument is not as described.

    Example:
        >>> kernel = processes.ard_squared_exponential(x.shape[1])
        >>> prior = GaussianProcess(kernel, noise_scale=0.3)
        >>> prior.fit(x, y).log_marginal_likelihood
        >>> prior.sample(x, 5, seed=0)  # [5, N, 1]

    References:
        Rasmussen and Williams (2006), "Gaussian processes for machine learning", chapters 2 and 5.
        Sun, Zhang, Shi and Grosse (2019), "Functional variational Bayesian neural networks", ICLR,
        appendix D.1 (K + gamma^2 I).
    """

    is_gaussian = True

    def _sample(self, x, n, seed):
        return self.mean + self._gaussian(x, n, seed)

    def _log_prob(self, f, x, noise_scale):
        factor = self._factor(x, noise_scale)
        whitened, shape = self._whitened(f, factor)
        log_det = tf.reshape(linalg.log_determinant(factor), [-1, 1])
        size = tf.cast(shape[-2], f.dtype)
        log_probs = -0.5 * (self._squares(whitened) + log_det + size * _LOG_TWO_PI)  # [D, S]
        return tf.reshape(tf.reduce_sum(log_probs, axis=0), shape[:-2])

    def _score(self, f, x, noise_scale):
        factor = self._factor(x, noise_scale)
        whitened, shape = self._whitened(f, factor)
        solution = tf.linalg.triangular_solve(factor, whitened, adjoint=True)
        return -self._to_values(solution, shape[:-1])

    def _collapsed_bound(self, y, x, inducing):
        residual = tf.transpose(y - self.mean)
        bounds = marginal_likelihood.collapsed_bound(
            residual, x, inducing, self.kernel(), self.noise_scale, self.jitter
        )
        return tf.reduce_sum(bounds)
