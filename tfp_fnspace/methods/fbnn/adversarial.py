"""Measurement points that move towards the largest divergence."""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tfp_fnspace.boundary.arguments import checked_count, checked_positive
from tfp_fnspace.math import random
from tfp_fnspace.methods.fbnn import equations
from tfp_fnspace.methods.fbnn.measurement import Box, uniform
from tfp_fnspace.typing import ArrayLike, Config, Seed, Shape, Tensor


@keras.saving.register_keras_serializable(package="tfp_fnspace.fbnn")
class Adversarial(Box):
    """Points that move to where the divergence is largest, the inner player of equation 6.

    M points in a box are a state, which `restart` initialises. `ascend` moves them along the
    gradient of the divergence, concurrently with the training of the network. The authors report
    that such points generalise worse than drawn ones, since they move near the data.

    Args:
        num_points: M, a positive integer.
        low: As for `Box`.
        high: As for `Box`.
        margin: As for `Box`.
        step_size: Length of a step in widths of the box, positive.
        num_steps: Number of steps of an `ascend`, a positive integer.
        **kwargs: `name`, `dtype`.

    Raises:
        ValueError: If an argument is not as described.

    References:
        Sun, Zhang, Shi and Grosse (2019), "Functional variational Bayesian neural networks", ICLR,
        section 3.2.
    """

    def __init__(
        self,
        num_points: int,
        low: ArrayLike | None = None,
        high: ArrayLike | None = None,
        margin: float | None = None,
        step_size: float = 0.01,
        num_steps: int = 1,
        **kwargs: Any,
    ):
        super().__init__(num_points, low, high, margin, **kwargs)
        self.step_size = checked_positive("step_size", step_size)
        self.num_steps = checked_count("num_steps", num_steps)

    def build(self, input_shape: Shape) -> None:
        super().build(input_shape)
        shape = (self.num_points, input_shape[-1])
        # The places are relative to the box, so that they stay inside when `adapt` moves it.
        start = keras.initializers.RandomUniform(0.0, 1.0, seed=0)
        self.places = self.add_weight(
            name="places", shape=shape, initializer=start, trainable=False
        )

    def restart(self, seed: Seed) -> None:
        """Draws the points uniformly in the box.

        Args:
            seed: Integer, two integers, or int32 tensor `[2]`.
        """
        places = self.places
        places.assign(uniform(places.shape, random.as_seed(seed), tf.as_dtype(places.dtype)))

    def ascend(self, divergence: Callable[[Tensor], Tensor]) -> None:
        """Moves the points along the gradient of a divergence.

        Args:
            divergence: Differentiable function from points `[M, I]` to a scalar. `FBNNModel` passes
                the divergence of its objective, at the rows of the batch and these points.
        """
        low, high = self.limits
        points = gradient_ascent(
            divergence, self._draw(None, None), low, high, self.step_size, self.num_steps
        )
        self.places.assign(tf.math.divide_no_nan(points - low, high - low))

    def _draw(self, seed, width):
        low, high = self.limits
        return low + tf.convert_to_tensor(self.places.value) * (high - low)

    def get_config(self) -> Config:
        return {**super().get_config(), "step_size": self.step_size, "num_steps": self.num_steps}


def gradient_ascent(
    function: Callable[[Tensor], Tensor],
    points: Tensor,
    low: Tensor,
    high: Tensor,
    step_size: float,
    num_steps: int = 1,
) -> Tensor:
    """Moves points of a box along a function's gradient by steps of `equations.ascent_step`.

    Args:
        function: Differentiable function from points `[M, I]` to a scalar.
        points: Initial points, `[M, I]`.
        low: Lower ends of the box, `[I]`.
        high: Upper ends of the box, `[I]`.
        step_size: Positive number.
        num_steps: Positive integer.

    Returns:
        Tensor `[M, I]`.
    """

    def step(i, x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = function(x)
        gradient = tape.gradient(value, x, unconnected_gradients="zero")
        return i + 1, equations.ascent_step(x, gradient, low, high, step_size)

    _, points = tf.while_loop(lambda i, _: i < num_steps, step, (0, points))
    return tf.stop_gradient(points)
