"""Bayesian optimisation by max-value entropy search."""

from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_fnspace import arguments, data
from tfp_fnspace.math.random import as_seed, fold_in

tfd = tfp.distributions

#: Standard deviation of candidates around sampled optima, in units of the box.
_SPREAD = 0.02


class Optima(NamedTuple):
    """Optima of function draws.

    Attributes:
        x: Where they are, `[S, d]`.
        values: Their values, `[S]`.
    """

    x: np.ndarray
    values: np.ndarray


def max_value_entropy(mean, stddev, optima, minimize=True):
    r"""Information about the optimum's value that f at some points would bring, in nats.

    With `g = (mean - y*) / stddev` for minima, the negative of it for maxima, phi and Psi the
    density and the distribution function of the standard normal law,

        alpha(x) = (1/S) sum_s [g_s phi(g_s) / (2 Psi(g_s)) - log Psi(g_s)]:

    the entropy of f(x) ~ N(mean, stddev^2) less that of the same law cut off at y*, averaged over
    draws of y*.

    Args:
        mean: Means of f, array `[N]`.
        stddev: Positive standard deviations of f, array `[N]`.
        optima: Optimal values y* of function draws, array `[S]`.
        minimize: Whether they are minima.

    Returns:
        NumPy array `[N]`, not negative.

    Raises:
        ValueError: If a shape does not fit, or a standard deviation is not positive.

    References:
        Wang and Jegelka (2017), "Max-value entropy search for efficient Bayesian optimization",
        ICML.
    """
    mean, stddev, optima = (
        data.as_array(values, name).astype(np.float64)
        for name, values in (("mean", mean), ("stddev", stddev), ("optima", optima))
    )
    if mean.ndim != 1 or mean.shape != stddev.shape or optima.ndim != 1 or not optima.size:
        raise ValueError(
            "`mean` and `stddev` must have shape (N,) and `optima` (S,), S at least 1. Received: "
            f"shapes {mean.shape}, {stddev.shape} and {optima.shape}"
        )
    if not np.all(stddev > 0.0):
        raise ValueError(f"`stddev` must be positive. Received: stddev with {stddev.min():g}")
    normal = tfd.Normal(tf.constant(0.0, tf.float64), 1.0)
    gap = (mean[:, np.newaxis] - optima) / stddev[:, np.newaxis]
    gap = tf.constant(gap if minimize else -gap)
    log_cdf = normal.log_cdf(gap)
    ratio = tf.exp(normal.log_prob(gap) - log_cdf)
    return tf.reduce_mean(0.5 * gap * ratio - log_cdf, axis=1).numpy()


def sample_optima(
    model,
    low,
    high,
    num_functions=10,
    num_starts=30,
    num_steps=100,
    learning_rate=0.02,
    minimize=True,
    seed=0,
):
    """Optima of function draws in a box, by projected gradient steps (Adam) from random points.

    Args:
        model: A `FunctionSpaceModel` with one input `[N, d]` and one output whose function draws
            are differentiable and do not depend on the other points of a call: `fbnn`, `tagi`.
        low: Lower ends of the box, array `[d]`.
        high: Upper ends.
        num_functions: S.
        num_starts: Starting points for each function, uniform in the box.
        num_steps: Steps.
        learning_rate: Of Adam, in units of the box.
        minimize: Whether minima are looked for.
        seed: Integer or two integers.

    Returns:
        `Optima`, the best point of all steps of each function.

    Raises:
        ValueError: If an argument is out of range, or the model's draws are no such functions.
    """
    low, high = _checked_box(model, low, high)
    for name, value in (
        ("num_functions", num_functions),
        ("num_starts", num_starts),
        ("num_steps", num_steps),
    ):
        arguments.check_count(name, value)
    rate = arguments.checked_positive("learning_rate", learning_rate)
    seed, dtype = as_seed(seed), model.input_tensors[0].dtype
    shape = [num_functions, num_starts, len(low)]
    # In units of the box.
    points = keras.Variable(tf.random.stateless_uniform(shape, fold_in(seed, 0), dtype=dtype))
    optimizer = keras.optimizers.Adam(rate)
    optimizer.build([points])
    low, width = tf.constant(low), tf.constant(high - low)
    sign = 1.0 if minimize else -1.0

    def losses(unit):
        x = tf.reshape(low + width * tf.cast(unit, low.dtype), [-1, shape[-1]])
        values = model.draw_functions([x], num_functions, fold_in(seed, 1))[..., 0]
        values = tf.reshape(values, [num_functions, *shape[:2]])  # each function at all points
        values = tf.cast(values, tf.float64)
        return sign * tf.transpose(tf.linalg.diag_part(tf.transpose(values, [2, 0, 1])))

    first = losses(tf.convert_to_tensor(points))
    # Adam's squares of gradients are in float32, whatever the units of f.
    spread = tf.maximum(tf.math.reduce_std(first), np.finfo(np.float64).tiny)

    def better(best, where, loss, here):
        return tf.minimum(loss, best), tf.where((loss < best)[..., tf.newaxis], here, where)

    @tf.function(autograph=False)
    def step(best, where):
        here = tf.convert_to_tensor(points)
        with tf.GradientTape() as tape:
            tape.watch(here)
            loss = losses(here)
            scaled = loss / spread
        optimizer.apply([tape.gradient(scaled, here)], [points])
        points.assign(tf.clip_by_value(points, 0.0, 1.0))
        return better(best, where, loss, here)

    best, where = first, tf.convert_to_tensor(points)
    for _ in range(num_steps):
        best, where = step(best, where)
    here = tf.convert_to_tensor(points)
    best, where = better(best, where, losses(here), here)
    chosen = tf.argmin(best, axis=1)
    x = low + width * tf.cast(tf.gather(where, chosen, batch_dims=1), low.dtype)
    return Optima(x.numpy(), sign * tf.reduce_min(best, axis=1).numpy())


def suggest(model, low, high, num_candidates=2000, minimize=True, seed=0, **options):
    """The point of a box at which f would tell most about its optimum.

    The acquisition of `max_value_entropy` is maximised over points that are uniform in the box, the
    optima of `sample_optima`, and normal draws around these.

    Args:
        model: As for `sample_optima`, fitted.
        low: Lower ends of the box, array `[d]`.
        high: Upper ends.
        num_candidates: Number of uniform points.
        minimize: Whether a minimum is looked for.
        seed: Integer or two integers.
        **options: Of `sample_optima`.

    Returns:
        NumPy array `[d]`.

    Raises:
        ValueError: As of `sample_optima`.
    """
    arguments.check_count("num_candidates", num_candidates)
    low, high = _checked_box(model, low, high)
    optima = sample_optima(model, low, high, minimize=minimize, seed=seed, **options)
    generator = np.random.default_rng(as_seed(seed).numpy().view(np.uint32))
    uniform = low + (high - low) * generator.uniform(size=(num_candidates, len(low)))
    near = np.repeat(optima.x, 20, axis=0)
    near = near + _SPREAD * (high - low) * generator.normal(size=near.shape)
    points = np.clip(np.concatenate([uniform, optima.x, near]), low, high)
    moments = model.predict(points, verbose=0)
    stddev = np.maximum(moments["epistemic_stddev"][:, 0], np.finfo(np.float64).tiny)
    scores = max_value_entropy(moments["mean"][:, 0], stddev, optima.values, minimize)
    return points[np.argmax(scores)]


def _checked_box(model, low, high):
    """Ends of a box as float64 arrays.

    Raises:
        ValueError: If the model has no function draws for this, or the ends are off.
    """
    if not model.draws_smooth_functions:
        raise ValueError(
            "`model` must draw differentiable functions that do not depend on the points of a "
            f"call, such as fbnn.FBNNModel. Received: {type(model).__name__}"
        )
    tensors = model.input_tensors
    if len(tensors) != 1 or len(tensors[0].shape) != 2 or model.num_outputs != 1:
        raise ValueError(
            "`model` must have one input of shape (N, d) and one output. Received: inputs of "
            f"shapes {[tuple(t.shape) for t in tensors]} and {model.num_outputs} outputs"
        )
    low, high = (
        data.as_array(ends, name).astype(np.float64)
        for name, ends in (("low", low), ("high", high))
    )
    size = (tensors[0].shape[1],)
    fits = low.shape == size and high.shape == size
    if not fits or not np.all(np.isfinite(high - low)) or not np.all(low < high):
        raise ValueError(
            f"`low` and `high` must be finite numbers of shape {size}, low < high. "
            f"Received: low={low.tolist()}, high={high.tolist()}"
        )
    return low, high
