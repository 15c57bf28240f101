"""Predictions of a sparse implicit process."""

import tensorflow as tf

from tfp_fnspace.math.random import fold_in, normal, split
from tfp_fnspace.methods.sip.conditional import gaussian_process_draws
from tfp_fnspace.methods.sip.with_prior import PRIOR_WIDTH


class SparsePrediction:
    """Mixin of `SIPModel`: its mixture and its functions, by `_conditional` and draws of u."""

    def call(self, inputs):
        """Draws of f in model units, `[S, N, D]`, for inputs in the user's units."""
        self._check_ready()
        seed = fold_in(tf.convert_to_tensor(self.seed_state), -1)
        return self._functions(self.scaled(inputs)[0], self.num_eval_samples, seed)

    def _prior_seed(self):
        """The prior draws of everything that predicts are the same."""
        return fold_in(tf.convert_to_tensor(self.seed_state), -3)

    def mixture_moments(self, x, num_samples, seed):
        law, _ = self._conditional(self.scaled(x)[0], self._prior_seed())
        return self.in_user_units(law.given(self._posterior_draws(num_samples, seed, False)))

    def draw_functions(self, x, num_samples, seed):
        """Functions by Matheron's rule: a draw of u, and one of the process about it."""
        return self.functions_in_user_units(self._functions(self.scaled(x)[0], num_samples, seed))

    def _functions(self, x, count, seed):
        seeds = split(seed, 3)
        u = self._posterior_draws(count, seeds[0], False)
        law, at_z = self._conditional(x, self._prior_seed())
        if self.prior.has_moments:
            process_z, process_x = self._prior_draws(x, count, seeds[1])
        else:
            at_z, at_x = self._prior_draws(x, self.num_prior_samples, self._prior_seed())
            shape = [count, self.num_outputs, self.num_prior_samples]
            coefficients = normal(shape, seeds[1], u.dtype)
            process_z, process_x = (
                gaussian_process_draws(draws, coefficients) for draws in (at_z, at_x)
            )
        noise = normal(tf.shape(u), seeds[2], u.dtype)
        return law.draw(u, process_x, process_z, noise)

    def inducing_inputs_in_user_units(self):
        """The inducing inputs, NumPy array `[M, ...]` in the user's units."""
        self._check_ready()
        return self.input_scalers[0].inverse(self.inducing_inputs.value).numpy()

    def numbers_per_row(self, num_samples):
        if self.prior is None or not self.draws_smooth_functions:
            return 1  # draws at the points of a call are joint: one chunk
        return self.num_prior_samples * PRIOR_WIDTH + super().numbers_per_row(num_samples)
