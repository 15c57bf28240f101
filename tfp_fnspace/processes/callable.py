"""A process made from a user's functions."""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tfp_fnspace.processes.base import Process
from tfp_fnspace.typing import Config, Tensor


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class CallableProcess(Process):
    """The distribution of functions that a user's function draws.

    Args:
        function: Function that maps x `[N, ...]`, n and an int32 seed `[2]` to n functions at the
            points, `[n, N, D]`. It must be written in TensorFlow if `sample` is used inside
            `tf.function`. It must draw one function at all points, not each point separately, and
            the same seed must give the same functions at any points. For saving, register it by
            `keras.saving.register_keras_serializable`.
        density: None, or a function in TensorFlow that maps f `[..., N, D]`, x and the scalar gamma
            to a log density `[...]`. It is the log density of the values with independent noise of
            standard deviation gamma; the score is its gradient.
        num_outputs: D, a positive integer.
        **kwargs: `name`, `dtype`.

    Raises:
        TypeError: If `function` or `density` is not callable.
        ValueError: In `sample` if the function returns another shape.

    Example:
        >>> @keras.saving.register_keras_serializable("mine")
        ... def lines(x, n, seed):
        ...     slopes = tf.random.stateless_normal([n, 1, 1], seed, dtype=x.dtype)
        ...     return slopes * x[:, :1]
        >>> CallableProcess(lines).sample(x, 10, seed=0)  # [10, N, 1]
    """

    draws_are_functions_of_x = True

    def __init__(
        self,
        function: Callable[..., Tensor] | Config,
        density: Callable[..., Tensor] | Config | None = None,
        num_outputs: int = 1,
        **kwargs: Any,
    ):
        super().__init__(num_outputs, **kwargs)
        self.function = _as_function("function", function)
        self.density = None if density is None else _as_function("density", density)
        self.built = True

    @property
    def has_density(self) -> bool:
        return self.density is not None

    def _sample(self, x, n, seed):
        values = self._cast(tf.convert_to_tensor(self.function(x, n, seed)))
        known_n = None if tf.is_tensor(n) else n
        expected = tf.TensorShape([known_n, x.shape[0], self.num_outputs])
        if not expected.is_compatible_with(values.shape):
            raise ValueError(
                f"`function` must return the shape [n, N, D] = {expected}. "
                f"Received: shape={values.shape}"
            )
        return values

    def _log_prob(self, f, x, noise_scale):
        return self.density(f, x, noise_scale)

    def get_config(self) -> Config:
        density = self.density
        return {
            **super().get_config(),
            "function": keras.saving.serialize_keras_object(self.function),
            "density": None if density is None else keras.saving.serialize_keras_object(density),
        }


def _as_function(name, value):
    value = keras.saving.deserialize_keras_object(value) if isinstance(value, dict) else value
    if not callable(value):
        raise TypeError(f"`{name}` must be callable. Received: {name}={value!r}")
    return value
