"""The weight of a divergence that rises from 0 to 1 at the start of training."""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tfp_fnspace.typing import Tensor

#: The number of steps before it is known.
_OPEN = -1


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class Annealing(keras.layers.Layer):
    """A factor that rises linearly over the first steps and is 1 after them.

    Args:
        steps: Number of steps, an integer from 0; or a function of the number of steps of the first
            `fit` (`None` if it is not known) that returns it, or `None` to wait for a later `fit`.
        **kwargs: `name`, `dtype`.
    """

    def __init__(self, steps: int | Callable[[int | None], int | None], **kwargs: Any):
        super().__init__(autocast=False, **{"trainable": False, "name": "annealing", **kwargs})
        self.steps_for = steps if callable(steps) else None
        self.steps = self.add_weight(
            name="steps",
            trainable=False,
            initializer=keras.initializers.Constant(_OPEN if callable(steps) else steps),
            dtype="int64",
        )
        self.built = True

    def begin(self, total_steps: int | None, is_first: bool) -> None:
        """Takes the number of steps of a `fit`, if it is the first or none was known before."""
        if self.steps_for is not None and (is_first or self.steps.numpy() == _OPEN):
            steps = self.steps_for(total_steps)
            if steps is not None:
                self.steps.assign(steps)

    def factor(self, step: Tensor) -> Tensor:
        """Returns the factor in the step after `step` finished ones, a scalar in [0, 1]."""
        steps = tf.cast(tf.maximum(self.steps.value, 1), self.variable_dtype)
        return tf.minimum(tf.cast(step + 1, self.variable_dtype) / steps, 1.0)
