"""Predictions of a sparse implicit process, from its prior and draws of u.

With B sets of prior draws, the draw s of u is combined with the moments of set s mod B. The sets
are side by side as if they were outputs: tensors `[n, N, D]` of n draws are stored as
`[n / B, N, B D]`.
"""

from typing import TYPE_CHECKING

import tensorflow as tf

from tfp_fnspace.math.random import normal, split
from tfp_fnspace.methods.sip import equations, given_prior
from tfp_fnspace.methods.sip.given_prior import PRIOR_WIDTH
from tfp_fnspace.model.predicting import CHUNK_NUMBERS
from tfp_fnspace.model.seeds import part
from tfp_fnspace.typing import GaussianMoments, Seed, Tensor

if TYPE_CHECKING:
    from tfp_fnspace.methods.sip.model import SIPModel


def num_sets(model: "SIPModel") -> int:
    """Returns B, or 1 if the moments are the same for all draws."""
    same = model.prior is None or model.prior.has_moments or model.prior_draws.fixed
    return 1 if same else model.prior_draws.num_eval_sets


def moments(model: "SIPModel", x: Tensor, num_samples: int, seed: Seed) -> GaussianMoments:
    """Returns the moments of f given draws of u, `[S, N, D]`, at points in model units."""
    sets = num_sets(model)
    distribution, _, _ = predictive_distribution(model, x)
    u = model.posterior_draws(_whole(num_samples, sets), seed, training=False)
    mixture = equations.mixture(distribution, _beside(u, sets))
    return GaussianMoments(*(_apart(v, sets)[:num_samples] for v in mixture))


def functions(model: "SIPModel", x: Tensor, count: int, seed: Seed) -> Tensor:
    """Draws functions `[S, N, D]` by Matheron's rule, from a draw of u and one of the process."""
    sets = num_sets(model)
    seeds, whole = split(seed, 3), _whole(count, sets)
    u = _beside(model.posterior_draws(whole, seeds[0], training=False), sets)
    first = tf.random.stateless_uniform([], part(seed, "first set"), 0, sets, tf.int32)
    distribution, at_z, at_x = predictive_distribution(model, x, first)
    if model.prior.has_moments:
        process_z, process_x = model.draw_prior(x, count, seeds[1])
    else:
        shape = [whole // sets, sets * model.num_outputs, model.num_prior_samples]
        coefficients = normal(shape, seeds[1], u.dtype)
        process_z, process_x = (
            equations.gaussian_process_draws(draws, coefficients) for draws in (at_z, at_x)
        )
    noise = normal(tf.shape(u), seeds[2], u.dtype)
    drawn = equations.matheron_draws(distribution, u, process_x, process_z, noise)
    return _apart(drawn, sets)[:count]


def predictive_distribution(
    model: "SIPModel", x: Tensor, first: Tensor | None = None
) -> tuple[equations.Conditional, Tensor | None, Tensor | None]:
    """Returns the distribution given u by all sets, and their draws at both kinds of points.

    The set `first` comes first, if it is given. If there are fewer functions than sets, each set is
    thus equally likely.
    """
    seed = model.counters.seeds.stream("prior")  # the same for all predictions
    if model.prior.has_moments:
        return model.conditional(x, seed)[0], None, None
    sets = num_sets(model)
    both = _prior_draws(model, x, sets * model.num_prior_samples, seed)
    if first is not None:
        both = [tf.roll(draws, -first, axis=0) for draws in both]
    at_z, at_x = (_beside(draws, sets) for draws in both)
    moments = equations.empirical_moments(at_x, at_z)
    return equations.conditional(moments, model.jitter), at_z, at_x


def _prior_draws(model, x, count, seed):
    """Draws the prior at both kinds of points, as `draw_prior` does.

    Where draws are functions, those at the inducing points do not depend on x here, nor does their
    factorisation. An export then holds it.
    """
    if model.draws_jointly:
        return model.draw_prior(x, count, seed)
    z = tf.convert_to_tensor(model.inducing_inputs.value)
    return [given_prior.draws(model, points, count, seed) for points in (z, tf.cast(x, z.dtype))]


def numbers_per_row(model: "SIPModel", of_draws: int) -> int:
    """Returns how many numbers function draws take at a point, `of_draws` of them for u."""
    if model.draws_jointly:
        return of_draws
    of_prior = num_sets(model) * model.num_prior_samples * PRIOR_WIDTH
    # Each chunk also has the prior at the inducing points, so it should have as many rows.
    of_prior = min(of_prior, CHUNK_NUMBERS // model.inducing_inputs.shape[0])
    return of_prior + of_draws


def _whole(count, sets):
    """Returns the smallest multiple of B that is at least `count`."""
    return -(-count // sets) * sets


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
