"""Base of univariate distributions that compute both tails at once."""

from collections.abc import Sequence

import tensorflow as tf

from tfp_fnspace.typing import Tensor


class Univariate:
    """Mixin of distributions of numbers.

    The class has `_log_probabilities(x)`, which returns the logarithms of P(X <= x) and P(X > x).
    The mixin comes before the distribution among the bases.
    """

    def _log_probabilities(self, x: Tensor) -> Sequence[Tensor]:
        raise NotImplementedError

    def _event_shape_tensor(self):
        return tf.constant([], dtype=tf.int32)

    def _event_shape(self):
        return tf.TensorShape([])

    def _log_cdf(self, x):
        return self._log_probabilities(x)[0]

    def _cdf(self, x):
        return tf.exp(self._log_cdf(x))

    def _log_survival_function(self, x):
        return self._log_probabilities(x)[1]

    def _survival_function(self, x):
        return tf.exp(self._log_survival_function(x))
