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
    """Mixin of `SIPModel`: its mixture and its functions, from its prior and draws of u.

    With B sets of prior draws, the draw s of u is combined with the moments of set s mod B. The
    sets are side by side as if they were outputs: tensors `[n, N, D]` of n draws are stored as `[n
    / B, N, B D]`.
    """

    def call(self, inputs):
        """Draws f in model units, `[S, N, D]`, for inputs in the user's units."""
        self._check_ready()
        seed = fold_in(tf.convert_to_tensor(self.seed_state), -1)
        return self._functions(self.scaled(inputs)[0], self.num_eval_samples, seed)

    def _prior_seed(self):
        """Returns the seed of prior draws, which is the same for all predictions."""
        return fold_in(tf.convert_to_tensor(self.seed_state), -3)

    @property
    def _num_sets(self):
        """B, or 1 if the moments are the same for all draws."""
        same = self.prior is None or self.prior.has_moments or self.fixed_prior_draws
        return 1 if same else self.num_eval_prior_sets

    def mixture_moments(self, x, num_samples, seed):
        distribution, _, _ = self._predictive_distribution(self.scaled(x)[0])
        u = self._posterior_draws(self._whole(num_samples), seed, False)
        moments = distribution.given(_beside(u, self._num_sets))
        return self.in_user_units(
            type(moments)(*(_apart(v, self._num_sets)[:num_samples] for v in moments))
        )

    def draw_functions(self, x, num_samples, seed):
        """Draws functions by Matheron's rule, from a draw of u and one of the process."""
        return self.functions_in_user_units(self._functions(self.scaled(x)[0], num_samples, seed))

    def _functions(self, x, count, seed):
        seeds, whole = split(seed, 3), self._whole(count)
        u = _beside(self._posterior_draws(whole, seeds[0], False), self._num_sets)
        first = tf.random.stateless_uniform([], fold_in(seed, -1), 0, self._num_sets, tf.int32)
        distribution, at_z, at_x = self._predictive_distribution(x, first)
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
        functions = distribution.draw(u, process_x, process_z, noise)
        return _apart(functions, self._num_sets)[:count]

    def _predictive_distribution(self, x, first=0):
        """Returns the distribution given u by all sets, and their draws at both kinds of points.

        The set `first` comes first. If there are fewer functions than sets, each set is thus
        equally likely.
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
        """Returns the smallest multiple of B that is at least `count`."""
        return -(-count // self._num_sets) * self._num_sets

    def jittered_when_predicting(self):
        z = tf.convert_to_tensor(self.inducing_inputs.value)
        return int(self._predictive_distribution(z[:1])[0].num_jittered)

    def inducing_inputs_in_user_units(self):
        """Returns the inducing inputs, NumPy array `[M, ...]` in the user's units."""
        self._check_ready()
        return self.input_scalers[0].inverse(self.inducing_inputs.value).numpy()

    def numbers_per_row(self, num_samples):
        if self.prior is None or not self.draws_smooth_functions:
            return 1  # draws at the points of a call are joint, so there is one chunk
        of_prior = self._num_sets * self.num_prior_samples * PRIOR_WIDTH
        # Each chunk also has the prior at the inducing points, so it should have as many rows.
        of_prior = min(of_prior, SAMPLE_CHUNK // self.inducing_inputs.shape[0])
        return of_prior + super().numbers_per_row(num_samples)


def _beside(draws, num_sets):
    """Reshapes `[n, N, D]` to `[n / B, N, B D]`; the draw s belongs to the set s mod B."""
    if num_sets == 1:
        return draws
    count, points, outputs = _sizes(draws)
    columns = tf.reshape(draws, [count // num_sets, num_sets, points, outputs])
    columns = tf.transpose(columns, [0, 2, 1, 3])
    return tf.reshape(columns, [count // num_sets, points, num_sets * outputs])


def _apart(values, num_sets):
    """Reshapes `[n / B, N, B D]` back to draws `[n, N, D]`."""
    if num_sets == 1:
        return values
    count, points, columns = _sizes(values)
    outputs = columns // num_sets
    parts = tf.reshape(values, [count, points, num_sets, outputs])
    return tf.reshape(tf.transpose(parts, [0, 2, 1, 3]), [count * num_sets, points, outputs])


def _sizes(tensor):
    """Returns the sizes of the axes, as integers if they are known."""
    found = tf.unstack(tf.shape(tensor))
    return [found[i] if size is None else size for i, size in enumerate(tensor.shape)]
