"""Functions and predictive distributions from stored draws of the atoms' weights, in the graph."""

from typing import TYPE_CHECKING

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_fnspace.math.random import as_seed
from tfp_fnspace.methods.stable_process import equations
from tfp_fnspace.typing import Distribution, GaussianMoments, Seed, Tensor

if TYPE_CHECKING:
    from tfp_fnspace.methods.stable_process.model import StableProcessModel

tfd = tfp.distributions

#: The logarithm of no weight; minus infinity would make NaN of infinity minus infinity.
_LOG_NOTHING = -1e9


def atom_signs(model: "StableProcessModel", x: Tensor) -> Tensor:
    """Returns the side of each hyperplane on which each point lies, `[N, L]` of -1 and +1.

    The sides are computed in float64, as the chains saw them: cells of an exact partition can be
    thinner than float32 resolves.

    Args:
        model: `StableProcessModel`.
        x: float64 tensor `[N, I]`, model units.
    """
    return equations.signs(x, model.store.hyperplanes.value)


def values_of(model: "StableProcessModel", x: Tensor, weights: Tensor) -> Tensor:
    """Returns functions `f(x) = sum_l w_l sign(h_l . (1, x))` in model units.

    Args:
        model: `StableProcessModel`.
        x: As for `atom_signs`.
        weights: `[D, S, L]`.

    Returns:
        `[N, S, D]` in the model's dtype.
    """
    outputs, draws, atoms = weights.shape
    flat = tf.reshape(weights, [outputs * draws, atoms])
    values = equations.function_values(atom_signs(model, x), flat)  # [N, D * S]
    values = tf.reshape(values, [-1, outputs, draws])
    return tf.cast(tf.transpose(values, [0, 2, 1]), model.variable_dtype)


def function_values(model: "StableProcessModel", x: Tensor) -> tuple[Tensor, Tensor]:
    """Returns f for every place of a draw, `[N, S, D]` in model units, and weights `[S]`."""
    weights, _, stored = model.store.flat_draws()
    shares = tf.cast(stored, model.variable_dtype)
    return values_of(model, x, weights), shares / tf.reduce_sum(shares)


def moments(model: "StableProcessModel", x: Tensor) -> GaussianMoments:
    """Returns the mean and variance of f over the draws, `[N, D]` in model units."""
    return equations.predictive_moments(*function_values(model, x))


def predictive(model: "StableProcessModel", values: Tensor, joint: bool = False) -> Distribution:
    """Returns the predictive distribution of an observation, or of all: a mixture over draws.

    Args:
        model: `StableProcessModel`.
        values: f for every place of a draw, `[N, S, D]` in the user's units.
        joint: Whether to return the joint distribution of all points.

    Returns:
        `tfd.MixtureSameFamily` in the user's units, batch `[N]`, event `[D]`; no batch and event
        `[N, D]` if `joint`.
    """
    _, noise_scale, stored = model.store.flat_draws()
    dtype = values.dtype
    scale = tf.cast(tf.transpose(noise_scale), dtype)
    logits = tf.where(stored, tf.zeros([], dtype), tf.constant(_LOG_NOTHING, dtype))
    if joint:
        values, scale = tf.transpose(values, [1, 0, 2]), scale[:, tf.newaxis]
    distribution = model.likelihood.conditional(values, model.units.target_unit, scale=scale)
    if joint:
        distribution = tfd.Independent(distribution, reinterpreted_batch_ndims=1)
    return tfd.MixtureSameFamily(tfd.Categorical(logits=logits), distribution)


def noise_variance(model: "StableProcessModel") -> Tensor:
    """Returns the mean variance of the noise over draws, `[D]` in the user's units squared."""
    _, noise_scale, stored = model.store.flat_draws()
    shares = tf.cast(stored, noise_scale.dtype)
    mean = tf.reduce_sum(shares * tf.square(noise_scale), axis=1) / tf.reduce_sum(shares)
    return model.likelihood.noise_variance(model.units.target_unit, scale=tf.sqrt(mean))


def functions(model: "StableProcessModel", x: Tensor, num_samples: int, seed: Seed) -> Tensor:
    """Draws stored functions in a random order; starts again when they are used up.

    Returns:
        `[num_samples, N, D]` in model units.
    """
    weights, _, stored = model.store.flat_draws()
    keys = tf.random.stateless_uniform(stored.shape, as_seed(seed))
    order = tf.argsort(tf.where(stored, keys, 2.0))
    count = tf.reduce_sum(tf.cast(stored, tf.int32))
    chosen = tf.gather(order, tf.range(num_samples) % count)
    values = values_of(model, x, tf.gather(weights, chosen, axis=1))
    return tf.transpose(values, [1, 0, 2])
