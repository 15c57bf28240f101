"""A distribution made of some of its quantiles."""

import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_fnspace.typing import ArrayLike

tfd = tfp.distributions


class PiecewiseLinearCDF(tfd.Distribution):
    r"""The distribution function is linear between quantiles, with exponential tails outside.

    With quantiles $q_1 < \dots < q_Q$ at levels $p_1 < \dots < p_Q$:

        F(y) = p_1 exp((y - q_1) / s)                    for y < q_1,
        F(y) = p_i + (p_{i+1} - p_i) (y - q_i) / (q_{i+1} - q_i)   for q_i <= y < q_{i+1},
        F(y) = 1 - (1 - p_Q) exp(-(y - q_Q) / t)         for y >= q_Q,

    The scales are those of an exponential tail through the outermost and the fourth quantile, $s =
    (q_4 - q_1) / \log(p_4 / p_1)$ and $t = (q_Q - q_{Q-3}) / \log((1 - p_{Q-3}) / (1 - p_Q))$. The
    two outermost quantiles alone may lie so near to each other that there is no density outside.

    Args:
        levels: Increasing numbers `[Q]` in (0, 1), at least four.
        quantiles: Increasing quantiles `[..., Q]`, floating.
    """

    def __init__(
        self, levels: Sequence[float], quantiles: ArrayLike, name: str = "PiecewiseLinearCDF"
    ):
        parameters = dict(locals())
        self._q = tf.convert_to_tensor(quantiles)
        super().__init__(
            dtype=self._q.dtype,
            reparameterization_type=tfd.NOT_REPARAMETERIZED,
            validate_args=False,
            allow_nan_stats=False,
            parameters=parameters,
            name=name,
        )
        p = [float(level) for level in levels]
        self._p = tf.constant(p, self.dtype)
        self._gaps, self._steps = self._q[..., 1:] - self._q[..., :-1], self._p[1:] - self._p[:-1]
        self._lower = (self._q[..., 3] - self._q[..., 0]) / math.log(p[3] / p[0])
        last = self._q[..., -1] - self._q[..., -4]
        self._upper = last / math.log((1.0 - p[-4]) / (1.0 - p[-1]))

    @classmethod
    def _parameter_properties(cls, dtype, num_classes=None):
        return {
            "levels": tfp.util.ParameterProperties(event_ndims=None),
            "quantiles": tfp.util.ParameterProperties(event_ndims=1),
        }

    def _batch_shape_tensor(self, **_):
        return tf.shape(self._q)[:-1]

    def _batch_shape(self):
        return self._q.shape[:-1]

    def _event_shape_tensor(self):
        return tf.constant([], tf.int32)

    def _event_shape(self):
        return tf.TensorShape([])

    def _log_prob(self, y):
        inside = tf.math.log(self._steps / self._gaps)  # [..., Q - 1]
        above = y[..., tf.newaxis] >= self._q[..., :-1]
        piece = tf.maximum(tf.reduce_sum(tf.cast(above, tf.int32), axis=-1) - 1, 0)
        inside = tf.reduce_sum(
            tf.one_hot(piece, inside.shape[-1], dtype=self.dtype) * inside, axis=-1
        )
        low, high = self._q[..., 0], self._q[..., -1]
        left = tf.math.log(self._p[0] / self._lower) + (y - low) / self._lower
        right = tf.math.log((1.0 - self._p[-1]) / self._upper) - (y - high) / self._upper
        return tf.where(y < low, left, tf.where(y >= high, right, inside))

    def _cdf(self, y):
        part = tf.clip_by_value((y[..., tf.newaxis] - self._q[..., :-1]) / self._gaps, 0.0, 1.0)
        inside = self._p[0] + tf.reduce_sum(part * self._steps, axis=-1)
        low, high = self._q[..., 0], self._q[..., -1]
        left = self._p[0] * tf.exp(tf.minimum((y - low) / self._lower, 0.0))
        right = (1.0 - self._p[-1]) * tf.exp(-tf.maximum((y - high) / self._upper, 0.0))
        return tf.where(y < low, left, tf.where(y >= high, 1.0 - right, inside))

    def _quantile(self, level):
        part = tf.clip_by_value((level[..., tf.newaxis] - self._p[:-1]) / self._steps, 0.0, 1.0)
        inside = self._q[..., 0] + tf.reduce_sum(part * self._gaps, axis=-1)
        first, last = self._p[0], self._p[-1]
        left = self._lower * tf.math.log(tf.minimum(level / first, 1.0))
        right = self._upper * tf.math.log(tf.maximum((1.0 - last) / (1.0 - level), 1.0))
        return inside + left + right

    def _sample_n(self, n, seed=None):
        shape = tf.concat([[n], tf.shape(self._q)[:-1]], axis=0)
        seed = tfp.random.sanitize_seed(seed)
        tiny = np.finfo(self.dtype.as_numpy_dtype).tiny
        return self._quantile(tf.random.stateless_uniform(shape, seed, tiny, 1.0, self.dtype))

    def _mean(self):
        middles = 0.5 * (self._q[..., 1:] + self._q[..., :-1])
        inside = tf.reduce_sum(self._steps * middles, axis=-1)
        left = self._p[0] * (self._q[..., 0] - self._lower)
        right = (1.0 - self._p[-1]) * (self._q[..., -1] + self._upper)
        return inside + left + right

    def _variance(self):
        a, b = self._q[..., :-1], self._q[..., 1:]
        inside = tf.reduce_sum(self._steps * (a * a + a * b + b * b) / 3.0, axis=-1)
        left = self._p[0] * (tf.square(self._q[..., 0] - self._lower) + tf.square(self._lower))
        right = tf.square(self._q[..., -1] + self._upper) + tf.square(self._upper)
        return inside + left + (1.0 - self._p[-1]) * right - tf.square(self._mean())
