"""Measurement points that move towards the largest divergence."""

import keras
import tensorflow as tf

from tfp_fnspace.boundary.arguments import checked_count, checked_positive
from tfp_fnspace.math import random
from tfp_fnspace.methods.fbnn.measurement import Box, uniform


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
        self, num_points, low=None, high=None, margin=None, step_size=0.01, num_steps=1, **kwargs
    ):
        super().__init__(num_points, low, high, margin, **kwargs)
        self.step_size = checked_positive("step_size", step_size)
        self.num_steps = checked_count("num_steps", num_steps)

    def build(self, input_shape):
        super().build(input_shape)
        shape = (self.num_points, input_shape[-1])
        # The places are relative to the box, so that they stay inside when `adapt` moves it.
        start = keras.initializers.RandomUniform(0.0, 1.0, seed=0)
        self.places = self.add_weight(
            name="places", shape=shape, initializer=start, trainable=False
        )

    def restart(self, seed):
        """Draws the points uniformly in the box.

        Args:
            seed: Integer, two integers, or int32 tensor `[2]`.
        """
        places = self.places
        places.assign(uniform(places.shape, random.as_seed(seed), tf.as_dtype(places.dtype)))

    def ascend(self, divergence):
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

    def get_config(self):
        return {**super().get_config(), "step_size": self.step_size, "num_steps": self.num_steps}


def gradient_ascent(function, points, low, high, step_size, num_steps=1):
    """Moves points of a box along a function's gradient by projected, normalised steps.

        u = x / (high - low),   u <- clip(u + step_size g / rms(g)),   g = grad_u function

    The gradient's root mean square is over all entries, so that a step is `step_size` widths of the
    box whatever the units of the function are. Points do not move if the gradient is 0 or not
    finite.

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
    width = high - low

    def step(i, x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = function(x)
        gradient = tape.gradient(value, x, unconnected_gradients="zero") * width
        size = tf.sqrt(tf.reduce_mean(tf.square(gradient)))
        direction = tf.math.divide_no_nan(gradient, size)
        direction = tf.where(tf.math.is_finite(direction), direction, tf.zeros_like(direction))
        return i + 1, tf.clip_by_value(x + step_size * width * direction, low, high)

    _, points = tf.while_loop(lambda i, _: i < num_steps, step, (0, points))
    return tf.stop_gradient(points)
