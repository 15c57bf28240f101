"""Piecewise constant and piecewise linear random functions."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfp_fnspace.boundary.arguments import checked_number
from tfp_fnspace.math import random
from tfp_fnspace.processes.base import Process
from tfp_fnspace.typing import Config

#: Larger numbers of change points are not drawn if their total Poisson probability is less than
#: this.
_NEGLIGIBLE = 1e-12


class _Piecewise(Process):
    """Base of functions with Poisson change points on an interval and uniform values.

    Args:
        rate: Mean number of change points.
        low, high: The interval.
        value_low, value_high: Range of the values.
        num_outputs: D.
        **kwargs: `name`, `dtype`.
    """

    draws_are_functions_of_x = True

    def __init__(
        self,
        rate: float = 3.0,
        low: float = 0.0,
        high: float = 1.0,
        value_low: float = 0.0,
        value_high: float = 1.0,
        num_outputs: int = 1,
        **kwargs: Any,
    ):
        super().__init__(num_outputs, **kwargs)
        self.rate = checked_number("rate", rate, 0.0)
        self.low, self.high = checked_number("low", low), checked_number("high", high, low)
        self.value_low = checked_number("value_low", value_low)
        self.value_high = checked_number("value_high", value_high, value_low)
        self._cdf = _poisson_cdf(self.rate)
        self.built = True

    def _sample(self, x, n, seed):
        if x.shape[1:].as_list() not in ([1], [None]):
            raise ValueError(
                f"A piecewise function has points of the shape [N, 1]. Received: x.shape={x.shape}"
            )
        dtype, width = self.variable_dtype, len(self._cdf)
        seeds = random.split(seed, 3)

        def uniform(shape, seed):
            return tf.random.stateless_uniform(shape, seed, dtype=dtype)

        batch = [n, self.num_outputs]
        # The number is drawn by inversion: TensorFlow's Poisson op runs only on CPUs, and XLA
        # cannot compile draws of an unknown number.
        number = tf.reduce_sum(
            tf.cast(uniform([*batch, 1], seeds[0]) > tf.constant(self._cdf, dtype), tf.int32), -1
        )  # [n, D]
        places = self.low + (self.high - self.low) * uniform([*batch, width], seeds[1])
        values = uniform([*batch, width + 1], seeds[2])
        values = self.value_low + (self.value_high - self.value_low) * values
        values = self._at(x[:, 0], number, places, values)  # [n, D, N]
        return tf.transpose(values, [0, 2, 1])

    def _at(self, x, number, places, values):
        """Returns function values at x `[N]`, given `[n, D]`, `[n, D, J]` and `[n, D, J + 1]`."""
        raise NotImplementedError

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "rate": self.rate,
            "low": self.low,
            "high": self.high,
            "value_low": self.value_low,
            "value_high": self.value_high,
        }


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class PiecewiseConstant(_Piecewise):
    """Random functions that jump at a Poisson number of places; no density.

        n ~ Poisson(rate),   c_1 ... c_n ~ U[low, high],   v_0 ... v_n ~ U[value_low, value_high]
        f(x) = v_j,   j = |{i : c_i <= x}|

    Outside `[low, high]` the outermost pieces continue. The outputs are independent. Numbers of
    change points are not drawn if the probability to exceed them is below 1e-12.

    Args:
        rate: Mean number of change points, positive.
        low: Beginning of the interval, in units of x.
        high: End of the interval.
        value_low: Least value, in units of f.
        value_high: Largest value.
        num_outputs: D, a positive integer.
        **kwargs: `name`, `dtype`.

    Raises:
        ValueError: If an argument is not as described; in `sample` if points are not `[N, 1]`.

    References:
        Sun, Zhang, Shi and Grosse (2019), "Functional variational Bayesian neural networks", ICLR,
        appendix D.2.
    """

    def _at(self, x, number, places, values):
        is_change = tf.range(tf.shape(places)[-1]) < number[..., tf.newaxis]  # [n, D, J]
        is_left = is_change[..., tf.newaxis] & (places[..., tf.newaxis] <= x)  # [n, D, J, N]
        piece = tf.reduce_sum(tf.cast(is_left, tf.int32), axis=-2)
        return tf.gather(values, piece, batch_dims=2)


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class PiecewiseLinear(_Piecewise):
    """Random continuous functions that bend at a Poisson number of places; no density.

        n ~ Poisson(rate),   c_1 < ... < c_n uniform on [low, high],   c_0 = low,   c_{n+1} = high
        f(c_0) ... f(c_n) ~ U[value_low, value_high],   f(high) = 0,   straight lines between

    Outside `[low, high]` f keeps its value at the end. The outputs are independent. Numbers of
    change points are not drawn if the probability to exceed them is below 1e-12.

    Args:
        rate: Mean number of change points, positive.
        low: Beginning of the interval, in units of x.
        high: End of the interval.
        value_low: Least value at the first n + 1 places, in units of f.
        value_high: Largest value.
        num_outputs: D, a positive integer.
        **kwargs: `name`, `dtype`.

    Raises:
        ValueError: If an argument is not as described; in `sample` if points are not `[N, 1]`.

    References:
        Sun, Zhang, Shi and Grosse (2019), "Functional variational Bayesian neural networks", ICLR,
        appendix D.2.
    """

    def _at(self, x, number, places, values):
        x = tf.clip_by_value(x, self.low, self.high)
        last = number[..., tf.newaxis]  # [n, D, 1]
        count = tf.range(tf.shape(places)[-1])
        places = tf.sort(
            tf.where(count < last, places, self.high), axis=-1
        )  # the other places are at the end
        low, high = (tf.fill(tf.shape(last), tf.cast(v, x.dtype)) for v in (self.low, self.high))
        knots = tf.concat([low, places, high], axis=-1)  # [n, D, J + 2]
        is_free = tf.range(tf.shape(values)[-1]) <= last
        heights = tf.where(is_free, values, tf.zeros_like(values))
        heights = tf.concat([heights, tf.zeros_like(low)], axis=-1)
        is_left = places[..., tf.newaxis] <= x  # [n, D, J, N]
        piece = tf.minimum(tf.reduce_sum(tf.cast(is_left, tf.int32), axis=-2), last)
        left, right = (tf.gather(knots, piece + i, batch_dims=2) for i in range(2))
        from_height, to_height = (tf.gather(heights, piece + i, batch_dims=2) for i in range(2))
        share = tf.math.divide_no_nan(x - left, right - left)
        return from_height + share * (to_height - from_height)


def _poisson_cdf(rate):
    """Returns the cumulative probabilities of 0, 1, ..., until a negligible rest is left."""
    bound = int(rate + 10.0 * np.sqrt(rate) + 30.0)  # larger than any count that matters
    counts = np.arange(bound)
    log_factorials = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, bound)))])
    mass = np.exp(counts * np.log(rate) - rate - log_factorials)
    tail = np.cumsum(mass[::-1])[::-1]  # of k and more
    return np.cumsum(mass)[: np.count_nonzero(tail > _NEGLIGIBLE)]
