"""The mathematics of the metrics: values per entry or row, their sum, and a function of the mean.

Both the functions and the Keras metrics are made from the `Score`s built here.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_fnspace.boundary import arrays, data
from tfp_fnspace.boundary.arguments import check_count, checked_level
from tfp_fnspace.distributions.censored import log_prob_between
from tfp_fnspace.distributions.quantile import (
    check_distribution,
    event_rank,
    is_factorised,
    is_mixture,
    marginal_cdf,
    marginal_mass,
    marginals,
    quantile,
    with_weights_of_components,
)
from tfp_fnspace.math.random import as_seed, fold_in, split
from tfp_fnspace.metrics.ranked_probability import ranked_probability
from tfp_fnspace.typing import ArrayLike, Distribution, Seed, Tensor

tfd = tfp.distributions

#: Draws of `energy_score` that are made at once.
_DRAWS_AT_A_TIME = 20


class Score(NamedTuple):
    """A metric in parts, so that it can be accumulated over batches.

    Attributes:
      sums: function of `(y, distribution, row_weights=None)` that returns the sum of the pointwise
        values, of shape `shape`, and the number of values, a scalar. With weights of the rows,
        `[N]`, a tensor, both are weighted.
      finish: function from the mean of the pointwise values to the metric, a scalar.
      shape: shape of the sum.
    """

    sums: Callable
    finish: Callable = tf.identity
    shape: tuple = ()


def evaluate(
    score: Score, y: ArrayLike, distribution: Distribution, row_weights: Tensor | None = None
) -> Tensor:
    """Evaluates the metric on all rows at once, which may have weights `[N]`."""
    total, count = score.sums(y, distribution, row_weights)
    return score.finish(total / count)


def weighted(values: Tensor, row_weights: Tensor | None, axis_of_rows: int = 0) -> Tensor:
    """Multiplies the values of each row by its weight.

    Args:
        values: Tensor whose axis `axis_of_rows` is the rows.
        row_weights: Tensor `[N]`, or `None` for weights of 1.
        axis_of_rows: Integer.
    """
    if row_weights is None:
        return values
    shape = [1] * len(values.shape)
    shape[axis_of_rows] = -1
    return values * tf.reshape(tf.cast(row_weights, values.dtype), shape)


def rmse() -> Score:
    """Makes the score of `functions.rmse`."""
    return _entry_score(lambda y, scalar: tf.square(y - scalar.mean()), finish=tf.sqrt)


def mae() -> Score:
    """Makes the score of `functions.mae`."""
    return _entry_score(lambda y, scalar: tf.abs(y - quantile(scalar, 0.5)))


def nll() -> Score:
    """Makes the score of `functions.nll`."""
    return Score(_nll_sums)


def interval_censored_nll() -> Score:
    """Makes the score of `functions.interval_censored_nll`."""
    return Score(_interval_censored_sums)


def crps() -> Score:
    """Makes the score of `functions.crps`."""
    return _entry_score(ranked_probability)


def interval_coverage(level: float) -> Score:
    """Makes the score of `functions.interval_coverage`."""
    lower, upper = _interval(level)

    def inside(y, scalar):
        if is_mixture(scalar):  # its quantiles need about 40 values of the distribution function
            level_of_y = marginal_cdf(scalar, y)
            below_y = level_of_y - marginal_mass(scalar, y)  # P(Y < y)
            return tf.cast((level_of_y >= lower) & (below_y <= upper), y.dtype)
        above = y >= quantile(scalar, lower)
        return tf.cast(above & (y <= quantile(scalar, upper)), y.dtype)

    return _entry_score(inside)


def interval_width(level: float) -> Score:
    """Makes the score of `functions.interval_width`."""
    lower, upper = _interval(level)
    return _entry_score(lambda y, scalar: quantile(scalar, upper) - quantile(scalar, lower))


def interval_score(level: float) -> Score:
    """Makes the score of `functions.interval_score`."""
    lower, upper = _interval(level)

    def width_and_misses(y, scalar):
        low, high = quantile(scalar, lower), quantile(scalar, upper)
        miss = tf.nn.relu(low - y) + tf.nn.relu(y - high)
        return high - low + 2.0 / (1.0 - level) * miss

    return _entry_score(width_and_misses)


def pinball_loss(level: float) -> Score:
    """Makes the score of `functions.pinball_loss`."""
    checked_level(level)

    def loss(y, scalar):
        error = y - quantile(scalar, level)
        return tf.maximum(level * error, (level - 1.0) * error)

    return _entry_score(loss)


def dawid_sebastiani_score() -> Score:
    """Makes the score of `functions.dawid_sebastiani_score`."""

    def of_moments(y, scalar):
        variance = scalar.variance()
        return tf.square(y - scalar.mean()) / variance + tf.math.log(variance)

    return _entry_score(of_moments)


def energy_score(num_samples: int, seed: Seed, rows_before: int | Tensor = 0) -> Score:
    """Makes the score of `functions.energy_score`, with other draws after other rows."""
    check_count("num_samples", num_samples, 2)
    seed = fold_in(as_seed(seed), rows_before)

    def sums(y, distribution, row_weights=None):
        y, observed, filled = align(y, distribution)
        if y.shape.rank == 1 or y.shape[-1] == 1:
            return crps().sums(y, distribution, row_weights)
        draws = _draws(distribution, num_samples, seed)
        mask = tf.cast(observed, y.dtype)
        errors = tf.norm((draws - filled) * mask, axis=-1)  # [S, N]
        steps = tf.norm((draws - tf.roll(draws, 1, axis=0)) * mask, axis=-1)
        values = tf.reduce_mean(errors - 0.5 * steps, axis=0)
        counts = weighted(tf.cast(tf.reduce_any(observed, axis=-1), y.dtype), row_weights)
        return tf.reduce_sum(counts * values), tf.reduce_sum(counts)

    return Score(sums)


def _draws(distribution, num_samples, seed):
    """Returns draws `[S, N, D]`, some at a time: a mixture draws from all of its components."""
    distribution = with_weights_of_components(distribution)
    blocks = -(-num_samples // _DRAWS_AT_A_TIME)
    draws = tf.map_fn(
        lambda each: distribution.sample(_DRAWS_AT_A_TIME, seed=each),
        tf.stack(split(seed, blocks)),
        fn_output_signature=distribution.dtype,
    )
    return tf.reshape(draws, tf.concat([[-1], tf.shape(draws)[2:]], axis=0))[:num_samples]


def calibration_error(num_levels: int) -> Score:
    """Makes the score of `functions.calibration_error`."""
    check_count("num_levels", num_levels)
    levels = np.arange(1, num_levels + 1) / (num_levels + 1)

    def at_most(y, scalar):
        grid = tf.reshape(tf.constant(levels, y.dtype), [-1] + [1] * len(y.shape))  # [L, 1, 1]
        return tf.cast(marginal_cdf(scalar, y) <= grid, y.dtype)  # [L, N, D]

    def distance(frequencies):
        return tf.reduce_mean(tf.abs(frequencies - tf.constant(levels, frequencies.dtype)))

    return _entry_score(at_most, distance, shape=(num_levels,))


def pit(y: ArrayLike, distribution: Distribution) -> Tensor:
    """Computes `functions.pit`, which has a value per entry and no mean, so it is no `Score`."""
    y, observed, filled = align(y, distribution)
    return tf.where(observed, marginal_cdf(distribution, filled), y)


def standardized_residuals(y: ArrayLike, distribution: Distribution) -> Tensor:
    """Returns `(y - mean) / stddev` of the marginals, `[N, D]` (`[N]`), NaN where missing."""
    y, observed, filled = align(y, distribution)
    scalar = marginals(distribution)
    return tf.where(observed, (filled - scalar.mean()) / scalar.stddev(), y)


def _entry_score(pointwise, finish=tf.identity, shape=()):
    """Makes a score from a function of `(y [N, D], marginals)` with values `shape + [N, D]`."""

    def sums(y, distribution, row_weights=None):
        y, observed, filled = align(y, distribution)
        values = tf.where(observed, pointwise(filled, marginals(distribution)), 0.0)
        values = weighted(values, row_weights, len(shape))
        counts = weighted(tf.cast(observed, y.dtype), row_weights)
        entries = [*range(-len(y.shape), 0)]
        return tf.reduce_sum(values, axis=entries), tf.reduce_sum(counts)

    return Score(sums, finish, shape)


def align(y: ArrayLike, distribution: Distribution) -> tuple[Tensor, Tensor, Tensor]:
    """Returns `y` in the distribution's dtype and shape, where it is observed, and filled.

    Raises:
        TypeError: If `y` has other values than real numbers, or there is no distribution.
        ValueError: If the shapes do not match, or a value is infinite.
    """
    check_distribution(distribution)
    floating = distribution.dtype.is_floating  # else labels, floats if some are NaN
    y = as_observations(y, floating)
    shape = distribution.batch_shape.concatenate(distribution.event_shape)
    received = y.shape
    if received.rank == 1 and shape.rank == 2:
        y = y[:, tf.newaxis]
    elif received.rank == 2 and shape.rank == 1 and received[1] == 1:
        y = y[:, 0]
    if not y.shape.is_compatible_with(shape):
        raise ValueError(
            "y must have an entry for every output of the distribution (batch shape followed by "
            f"event shape). Received: y.shape={received}, distribution output shape={shape}"
        )
    y = tf.cast(y, distribution.dtype) if floating else y
    observed = ~tf.math.is_nan(y) if y.dtype.is_floating else tf.ones_like(y, tf.bool)
    filled = tf.cast(tf.where(observed, y, tf.zeros_like(y)), distribution.dtype)
    return y, observed, filled


def as_observations(y: ArrayLike, floating: bool = True, name: str = "y") -> Tensor:
    """Returns observations as a tensor, NaN where missing; tensors stay as they are.

    Args:
        y: Tensor, or an argument of `arrays.as_array`.
        floating: Whether they are real numbers rather than labels.
        name: Name of the argument, for messages.

    Raises:
        TypeError: If they are not real numbers.
        ValueError: If a value is infinite and known, which it is not while a graph is traced.
    """
    if tf.is_tensor(y) and not isinstance(y, tf.RaggedTensor | tf.SparseTensor):
        y = tf.convert_to_tensor(y)
        if not (y.dtype.is_floating or y.dtype.is_integer or y.dtype.is_bool):
            raise TypeError(
                f"`{name}` must be an array of real numbers. "
                f"Received: {name} of dtype {y.dtype.name}"
            )
        if y.dtype.is_floating and not tf.is_symbolic_tensor(y):
            data.check_not_infinite(name, y.numpy())
        return y
    array = arrays.as_array(y, name, labels=not floating)
    if (floating and array.dtype.kind != "f") or array.dtype.itemsize > 8:
        array = array.astype(np.float64)
    data.check_not_infinite(name, array)
    return tf.constant(array)


def _interval(level):
    checked_level(level)
    return 0.5 * (1.0 - level), 0.5 * (1.0 + level)


def _nll_sums(y, distribution, row_weights=None):
    y, observed, filled = align(y, distribution)
    if isinstance(distribution, tfd.Empirical):
        raise TypeError(
            "nll needs a distribution with a density; samples have none (use crps). "
            f"Received: distribution={distribution}"
        )
    distribution = with_weights_of_components(distribution)
    log_density, counts = _log_density(filled, observed, distribution)
    log_density = tf.where(counts, log_density, tf.zeros_like(log_density))
    total = tf.reduce_sum(weighted(log_density, row_weights))
    return -total, tf.reduce_sum(weighted(tf.cast(counts, total.dtype), row_weights))


def _interval_censored_sums(limits, distribution, row_weights=None):
    check_distribution(distribution)
    if not tf.is_tensor(limits):
        limits = tf.constant(arrays.as_array(limits, "limits").astype(np.float64))
    limits = tf.cast(limits, distribution.dtype)
    low, high = tf.split(limits, 2, axis=-1)
    shape = distribution.batch_shape.concatenate(distribution.event_shape)
    if shape.rank == 1:
        shape = shape.concatenate(1)
    if not low.shape.is_compatible_with(shape):
        raise ValueError(
            "The limits must have two columns for every output of the distribution, lower limits "
            f"first. Received: limits of shape {limits.shape}, distribution output shape={shape}"
        )
    distribution = with_weights_of_components(distribution)
    if is_factorised(distribution):
        rows = tf.reduce_sum(log_prob_between(marginals(distribution), low, high), axis=-1)
    elif is_mixture(distribution) and is_factorised(distribution.components_distribution):
        components = marginals(distribution).components_distribution
        each = log_prob_between(components, low[..., tf.newaxis], high[..., tf.newaxis])
        rows = _over_components(each, distribution)
    else:
        raise TypeError(
            "interval_censored_nll needs independent outputs, or a mixture of such. "
            f"Received: distribution={distribution}"
        )
    total = tf.reduce_sum(weighted(rows, row_weights))
    return -total, tf.reduce_sum(weighted(tf.ones_like(rows), row_weights))


def _log_density(y, observed, distribution):
    """Returns the log density of the observed part of each row, and whether it counts, `[N]`."""
    outputs = [*range(1, len(y.shape))]
    some = tf.reduce_any(observed, axis=outputs)
    if is_factorised(distribution):
        log_densities = marginals(distribution).log_prob(y)
        return tf.reduce_sum(tf.where(observed, log_densities, 0.0), axis=outputs), some
    if is_mixture(distribution) and is_factorised(distribution.components_distribution):
        return _mixture_log_density(y, observed, distribution), some
    event = [*range(-event_rank(distribution), 0)]
    return distribution.log_prob(y), tf.reduce_all(observed, axis=event)


def _mixture_log_density(y, observed, mixture):
    components = marginals(mixture).components_distribution
    log_densities = components.log_prob(y[..., tf.newaxis])  # [N, D, K]
    return _over_components(tf.where(observed[..., tf.newaxis], log_densities, 0.0), mixture)


def _over_components(log_densities, mixture):
    """Returns the log density of each row, `[N]`, given those of K components, `[N, D, K]`."""
    log_weights = tf.nn.log_softmax(mixture.mixture_distribution.logits_parameter())  # [N, K]
    return tf.reduce_logsumexp(log_weights + tf.reduce_sum(log_densities, axis=-2), axis=-1)
