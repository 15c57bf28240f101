"""The Student-t process."""

import math
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfp_fnspace.boundary.arguments import checked_number
from tfp_fnspace.math import linalg, random
from tfp_fnspace.processes.elliptical import EllipticalProcess, constant
from tfp_fnspace.typing import Config, Tensor


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class StudentTProcess(EllipticalProcess):
    r"""Student-t process prior, independent over the outputs.

        f_d = m_d + sqrt((nu - 2) / c) u,   u ~ N(0, K),   c ~ chi^2(nu)

    so that K is the covariance. With `b = (f - m)^T K^-1 (f - m)` for N values of an output,

        log p(f) = lgamma((nu + N) / 2) - lgamma(nu / 2) - N/2 log((nu - 2) pi) - 1/2 log |K|
                   - (nu + N)/2 log(1 + b / (nu - 2))                               (equation 5)
        score(f) = -(nu + N) / (nu - 2 + b) K^-1 (f - m)

    `noise_scale` is added to the diagonal of K, as in the reference (section 4). The noise then has
    the heavy tails of the process, and is uncorrelated with it but not independent.

    Args:
        kernel: As for `GaussianProcess`.
        df: Initial nu, greater than 2.
        learn_df: Whether nu is learned.
        num_outputs: D, a positive integer.
        **kwargs: All other arguments of `GaussianProcess`.

    Raises:
        TypeError: If `kernel` is not a TFP kernel.
        ValueError: If an argument is not as described.

    References:
        Shah, Wilson and Ghahramani (2014), "Student-t processes as alternatives to Gaussian
        processes", AISTATS.
    """

    def __init__(
        self,
        kernel: Any,
        df: float = 5.0,
        learn_df: bool = False,
        num_outputs: int = 1,
        **kwargs: Any,
    ):
        super().__init__(kernel, num_outputs, **kwargs)
        self.initial_df, self.learn_df = checked_number("df", df, 2.0), bool(learn_df)
        self._log_excess = self.add_weight(
            name="log_excess_df",
            shape=(),
            initializer=constant(np.log(self.initial_df - 2.0)),
            trainable=self.learn_df,
        )

    @property
    def df(self) -> Tensor:
        """nu, a scalar tensor."""
        return 2.0 + self._excess

    @property
    def _excess(self):
        return tf.exp(self._log_excess.value)

    def _sample(self, x, n, seed):
        seeds = random.split(seed, 2)
        half = tf.random.stateless_gamma(
            [n, 1, self.num_outputs], seeds[1], 0.5 * self.df, dtype=self.variable_dtype
        )  # c / 2
        return self.mean + tf.sqrt(0.5 * self._excess / half) * self._gaussian(x, n, seeds[0])

    def _log_prob(self, f, x, noise_scale):
        factor = self._factor(x, noise_scale)
        whitened, shape = self._whitened(f, factor)
        size, df, excess = tf.cast(shape[-2], f.dtype), self.df, self._excess
        constant = tf.math.lgamma(0.5 * (df + size)) - tf.math.lgamma(0.5 * df)
        constant -= 0.5 * size * (tf.math.log(excess) + math.log(math.pi))
        log_det = tf.reshape(linalg.log_determinant(factor), [-1, 1])
        tail = tf.math.log1p(self._squares(whitened) / excess)
        log_probs = constant - 0.5 * log_det - 0.5 * (df + size) * tail  # [D, S]
        return tf.reshape(tf.reduce_sum(log_probs, axis=0), shape[:-2])

    def _score(self, f, x, noise_scale):
        factor = self._factor(x, noise_scale)
        whitened, shape = self._whitened(f, factor)
        solution = tf.linalg.triangular_solve(factor, whitened, adjoint=True)
        size = tf.cast(shape[-2], f.dtype)
        weight = (self.df + size) / (self._excess + self._squares(whitened))  # [D, S]
        weight = tf.reshape(tf.transpose(weight), tf.concat([shape[:-2], [1, shape[-1]]], axis=0))
        return -weight * self._to_values(solution, shape[:-1])

    def get_config(self) -> Config:
        return {**super().get_config(), "df": self.initial_df, "learn_df": self.learn_df}
