"""Warm-up: the weight of the divergence rises at the start of training."""

import keras
import tensorflow as tf

#: The value of `warm_up_steps` before the length of a `fit` is known.
_OPEN = -1


class WarmUp:
    """Mixin of models with `warm_up`, the fraction of the first `fit` in which the weight rises.

    It comes before `GradientTraining`. There is no warm-up for a stream of unknown length.
    """

    def _setup_counters(self, seed):
        super()._setup_counters(seed)
        self.warm_up_steps = self.add_weight(
            name="warm_up_steps",
            trainable=False,
            initializer=keras.initializers.Constant(_OPEN),
            dtype="int64",
        )

    def _prepare_steps(self, num_rows, total_steps):
        if total_steps and self.warm_up_steps.numpy() == _OPEN:
            self.warm_up_steps.assign(int(self.warm_up * total_steps))
        super()._prepare_steps(num_rows, total_steps)

    def warmth(self):
        """Returns the weight of the divergence in this step, from 0 to 1."""
        step = tf.cast(self.steps_seen.value + 1, self.variable_dtype)
        steps = tf.cast(tf.maximum(self.warm_up_steps.value, 1), self.variable_dtype)
        return tf.minimum(step / steps, 1.0)
