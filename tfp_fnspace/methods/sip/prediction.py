"""Predictions of a sparse implicit process."""

import tensorflow as tf

from tfp_fnspace.math.random import fold_in, normal, split
from tfp_fnspace.methods.sip.conditional import (
    conditional,
    empirical_moments,
    gaussian_process_draws,
)
from tfp_fnspace.methods.sip.with_prior import PRIOR_WIDTH
from tfp_fnspace.model.prediction import SAMPLE_CHUNK


class SparsePrediction:
    """Mixin of `SIPModel`: its mixture and its functions, by its prior and draws of u.

    With B sets of prior draws the draw s of u goes with the moments of set s mod B. The sets stand
    side by side as if they were outputs: tensors `[n, N, D]` of n draws are `[n / B, N, B D]`.
    """

    def call(self, inputs):
        """Draws of f in model units, `[S, N, D]`, for inputs in the user's units."""
        self._check_ready()
        seed = fold_in(tf.convert_to_tensor(self.seed_state), -1)
        return self._functions(self.scaled(inputs)[0], self.num_eval_samples, seed)

    def _prior_seed(self):
        """The prior draws of everything that predicts are the same."""
        return fold_in(tf.convert_to_tensor(self.seed_state), -3)

    @property
    def _num_sets(self):
        """B, 1 where the moments are no others for other draws."""
        same = self.prior is None or self.prior.has_moments or self.fixed_prior_draws
        return 1 if same else self.num_eval_prior_sets

    def mixture_moments(self, x, num_samples, seed):
        law, _, _ = self._predictive_law(self.scaled(x)[0])
        u = self._posterior_draws(self._whole(num_samples), seed, False)
        moments = law.given(_beside(u, self._num_sets))
        return self.in_user_units(
            type(moments)(*(_apart(v, self._num_sets)[:num_samples] for v in moments))
        )

    def draw_functions(self, x, num_samples, seed):
        """Functions by Matheron's rule: a draw of u, and one of the process about it."""
        return self.functions_in_user_units(self._functions(self.scaled(x)[0], num_samples, seed))

    def _functions(self, x, count, seed):
        seeds, whole = split(seed, 3), self._whole(count)
        u = _beside(self._posterior_draws(whole, seeds[0], False), self._num_sets)
        first = tf.random.stateless_uniform([], fold_in(seed, -1), 0, self._num_sets, tf.int32)
        law, at_z, at_x = self._predictive_law(x, first)
        if self.prior.has_moments:
            process_z, process_x = self._prior_draws(x, count, seeds[1])
        else:
            sets = self._num_sets
            shape = [whole // sets, sets * self.num_outputs, self.num_prior_samples]
            coefficients = normal(shape, seeds[1], u.dtype)
            process_z, process_x = (
                gaussian_process_draws(draws, coefficients) for draws in (at_z, at_x)
            )
        noise = normal(tf.shape(u), seeds[2], u.dtype)
        return _apart(law.draw(u, process_x, process_z, noise), self._num_sets)[:count]

    def _predictive_law(self, x, first=0):
        """The law given u by all sets, with their draws at the inducing points and at points.

        The set `first` is the first of them: of fewer functions than sets each set is as likely.
        """
        if self.prior.has_moments:
            return self._conditional(x, self._prior_seed())[0], None, None
        count = self._num_sets * self.num_prior_samples
        at_z, at_x = (
            _beside(tf.roll(draws, -first, axis=0), self._num_sets)
            for draws in self._prior_draws(x, count, self._prior_seed())
        )
        return conditional(empirical_moments(at_x, at_z), self.jitter), at_z, at_x

    def _whole(self, count):
        """The least multiple of B from a count."""
        return -(-count // self._num_sets) * self._num_sets

    def jittered_when_predicting(self):
        z = tf.convert_to_tensor(self.inducing_inputs.value)
        return int(self._predictive_law(z[:1])[0].num_jittered)

    def inducing_inputs_in_user_units(self):
        """The inducing inputs, NumPy array `[M, ...]` in the user's units."""
        self._check_ready()
        return self.input_scalers[0].inverse(self.inducing_inputs.value).numpy()

    def numbers_per_row(self, num_samples):
        if self.prior is None or not self.draws_smooth_functions:
            return 1  # draws at the points of a call are joint: one chunk
        of_prior = self._num_sets * self.num_prior_samples * PRIOR_WIDTH
        # Each chunk has the prior at the inducing points too: no fewer rows than these.
        of_prior = min(of_prior, SAMPLE_CHUNK // self.inducing_inputs.shape[0])
        return of_prior + super().numbers_per_row(num_samples)


def _beside(draws, num_sets):
    """`[n, N, D]` as `[n / B, N, B D]`: the draw s is of the set s mod B."""
    if num_sets == 1:
        return draws
    count, points, outputs = _sizes(draws)
    columns = tf.reshape(draws, [count // num_sets, num_sets, points, outputs])
    columns = tf.transpose(columns, [0, 2, 1, 3])
    return tf.reshape(columns, [count // num_sets, points, num_sets * outputs])


def _apart(values, num_sets):
    """The draws again, `[n, N, D]` of `[n / B, N, B D]`."""
    if num_sets == 1:
        return values
    count, points, columns = _sizes(values)
    outputs = columns // num_sets
    parts = tf.reshape(values, [count, points, num_sets, outputs])
    return tf.reshape(tf.transpose(parts, [0, 2, 1, 3]), [count * num_sets, points, outputs])


def _sizes(tensor):
    """Sizes of the axes, integers where they are known."""
    found = tf.unstack(tf.shape(tensor))
    return [found[i] if size is None else size for i, size in enumerate(tensor.shape)]
