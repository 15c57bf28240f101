"""Bayesian optimisation by max-value entropy search."""

import math
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from numpy.polynomial.hermite_e import hermegauss
from numpy.polynomial.legendre import leggauss

from tfp_fnspace.boundary import arguments, arrays, data
from tfp_fnspace.math.random import as_seed, fold_in
from tfp_fnspace.model import FunctionSpaceModel
from tfp_fnspace.tracing import traced
from tfp_fnspace.typing import Array, ArrayLike, Seed

tfd = tfp.distributions

#: Nodes and weights of a mean over the quantiles of a distribution, and over the standard normal.
_QUANTILES = 0.5 * (1.0 + leggauss(12)[0]), 0.5 * leggauss(12)[1]
_NODES = hermegauss(8)[0], hermegauss(8)[1] / math.sqrt(2.0 * math.pi)

#: Largest standardised gap; beyond it there is nothing to learn except rounding errors.
_LARGEST_GAP = 1e6

#: Below this the quantiles of the truncated distribution are computed as exponential ones.
_LEAST_LOG_CDF = -500.0

#: Standard deviation of candidates around sampled optima, in units of the box.
_SPREAD = 0.02


class Optima(NamedTuple):
    """Optima of function draws.

    Attributes:
        x: Positions of the optima, `[S, d]`.
        values: Their values, `[S]`.
    """

    x: np.ndarray
    values: np.ndarray


def max_value_entropy(
    mean: ArrayLike,
    stddev: ArrayLike,
    optima: ArrayLike,
    minimize: bool = True,
    noise_scale: ArrayLike = 0.0,
) -> Array:
    r"""Returns the information of a measurement of f about the optimum's value, in nats.

    It is the entropy of the measurement y ~ N(f(x), noise_scale^2), f(x) ~ N(mean, stddev^2),
    minus its entropy given that f(x) is truncated at y*, averaged over draws of y*. Let `g =
    (mean - y*) / stddev` for minima, and its negative for maxima. Let phi and Psi be the density
    and the distribution function of the standard normal distribution. Then

        alpha(x) = (1/S) sum_s [g_s phi(g_s) / (2 Psi(g_s)) - log Psi(g_s)]

    without noise. With noise, `rho^2 = stddev^2 / (stddev^2 + noise_scale^2)` and `w(u) = Psi((g +
    rho u) / sqrt(1 - rho^2)) / Psi(g)`,

        alpha(x) = (1/S) sum_s [E w_s(u) log w_s(u) + rho^2 g_s phi(g_s) / (2 Psi(g_s))],

    where u ~ N(0, 1), computed by quadrature. Noise reduces the information: if f is known to a
    small fraction of the noise, one more measurement tells little.

    Args:
        mean: Means of f, array `[N]`.
        stddev: Positive standard deviations of f, array `[N]`.
        optima: Optimal values y* of function draws, array `[S]`.
        minimize: Whether the optima are minima.
        noise_scale: Standard deviation of the noise of a measurement, a number or an array `[N]`,
            not negative.

    Returns:
        NumPy array `[N]`, not negative.

    Raises:
        ValueError: If a shape does not match, a value is not finite, or a standard deviation is out
            of range.

    References:
        Wang and Jegelka (2017), "Max-value entropy search for efficient Bayesian optimization",
        ICML.
        Takeno et al. (2020), "Multi-fidelity Bayesian optimization with max-value entropy search
        and its parallelization", ICML, section 3 (the effect of noise).
    """
    mean, stddev, optima, noise = (
        arrays.as_array(values, name).astype(np.float64)
        for name, values in (
            ("mean", mean),
            ("stddev", stddev),
            ("optima", optima),
            ("noise_scale", noise_scale),
        )
    )
    if mean.ndim != 1 or mean.shape != stddev.shape or optima.ndim != 1 or not optima.size:
        raise ValueError(
            "`mean` and `stddev` must have shape (N,) and `optima` (S,), S at least 1. Received: "
            f"shapes {mean.shape}, {stddev.shape} and {optima.shape}"
        )
    named = {"mean": mean, "stddev": stddev, "optima": optima, "noise_scale": noise}
    for name, values in named.items():
        data.check_finite(name, values)
    if noise.shape not in ((), mean.shape) or np.any(noise < 0.0):
        raise ValueError(
            f"`noise_scale` must be a number or of shape {mean.shape}, not negative. "
            f"Received: noise_scale of shape {noise.shape} with {noise.min():g}"
        )
    if not np.all(stddev > 0.0):
        raise ValueError(f"`stddev` must be positive. Received: stddev with {stddev.min():g}")
    with np.errstate(over="ignore"):
        gap = (mean[:, np.newaxis] - optima) / stddev[:, np.newaxis]
    gap = np.clip(gap, -_LARGEST_GAP, _LARGEST_GAP)
    gap = gap if minimize else -gap  # [N, S]
    rho = np.broadcast_to(stddev / np.hypot(stddev, noise), mean.shape)[:, np.newaxis]
    gap, rho = tf.constant(gap), tf.constant(rho)
    # exp(g^2 / 2) Psi(g) keeps its digits where both factors are out of range.
    scaled = 0.5 * tfp.math.erfcx(-gap / math.sqrt(2.0))
    of_tail = tf.math.log(scaled) - 0.5 * gap**2
    log_cdf = tf.where(gap < 0.0, of_tail, _standard_normal().log_cdf(gap))
    ratio = 1.0 / (math.sqrt(2.0 * math.pi) * scaled)
    divergence = _divergence_by_cutting_off(gap, log_cdf, rho) if np.any(noise) else -log_cdf
    information = divergence + 0.5 * rho**2 * gap * ratio
    return tf.maximum(tf.reduce_mean(information, axis=1), 0.0).numpy()


def _standard_normal():
    # Not a module constant: a tensor made at import would fix the set of devices.
    return tfd.Normal(np.float64(0.0), np.float64(1.0))


def _divergence_by_cutting_off(gap, log_cdf, rho):
    """Returns the divergence of y given a truncated f from y, `E log w(u)`, `[N, S]`.

    Here y is standardised and the expectation is over y given the truncated f. Given it, `u = rho
    z + sqrt(1 - rho^2) e`, where e is normal and z is normal and larger than -g, taken at its
    quantiles.
    """
    root, total, normal = tf.sqrt(1.0 - rho**2), tf.zeros_like(gap), _standard_normal()
    root = tf.maximum(root, np.finfo(np.float64).eps)
    nodes, of_nodes = _NODES
    for share, weight in zip(*_QUANTILES, strict=True):
        z = -tf.math.ndtri(share * tf.exp(tf.maximum(log_cdf, _LEAST_LOG_CDF)))
        # In the far tail the normal distribution falls like an exponential one.
        z = tf.where(log_cdf > _LEAST_LOG_CDF, z, -gap + np.log(share) / gap)
        centre, spread = (gap + rho**2 * z) / root, rho + tf.zeros_like(gap)
        logs = normal.log_cdf(centre[..., tf.newaxis] + spread[..., tf.newaxis] * nodes)
        total += weight * tf.linalg.matvec(logs, of_nodes)
    return total - log_cdf


def sample_optima(
    model: FunctionSpaceModel,
    low: ArrayLike,
    high: ArrayLike,
    num_functions: int = 10,
    num_starts: int = 30,
    num_steps: int = 100,
    learning_rate: float = 0.02,
    minimize: bool = True,
    seed: Seed = 0,
) -> Optima:
    """Finds optima of function draws in a box, by projected Adam steps from random points.

    Args:
        model: A `FunctionSpaceModel` with one input `[N, d]` and one output whose function draws
            are differentiable and do not depend on the other points of a call: `fbnn`, `tagi`.
        low: Lower ends of the box, array `[d]`.
        high: Upper ends of the box.
        num_functions: S, the number of function draws.
        num_starts: Number of starting points for each function, uniform in the box.
        num_steps: Number of steps.
        learning_rate: Learning rate of Adam, in units of the box.
        minimize: Whether to look for minima.
        seed: Integer or two integers.

    Returns:
        `Optima`, the best point of all steps of each function.

    Raises:
        TypeError: If the model is none.
        ValueError: If an argument is out of range, or the model's draws are not such functions.
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
    # The points are in units of the box.
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
    # The loss is scaled, since Adam squares gradients in float32, whatever the units of f.
    spread = tf.maximum(tf.math.reduce_std(first), np.finfo(np.float64).tiny)

    def better(best, where, loss, here):
        return tf.minimum(loss, best), tf.where((loss < best)[..., tf.newaxis], here, where)

    @traced
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
    if not np.all(np.isfinite(tf.reduce_min(best, axis=1))):
        raise ValueError(
            "`model` must draw functions with finite values in the box. Received: "
            f"{type(model).__name__} with functions that are nowhere finite there"
        )
    chosen = tf.argmin(best, axis=1)
    x = low + width * tf.cast(tf.gather(where, chosen, batch_dims=1), low.dtype)
    return Optima(x.numpy(), sign * tf.reduce_min(best, axis=1).numpy())


def suggest(
    model: FunctionSpaceModel,
    low: ArrayLike,
    high: ArrayLike,
    num_candidates: int = 2000,
    minimize: bool = True,
    seed: Seed = 0,
    measured: ArrayLike | None = None,
    **options: Any,
) -> Array:
    """Returns the point of a box whose measurement would tell most about the optimum of f.

    The acquisition function `max_value_entropy`, with the noise of the model, is maximised over
    uniform points in the box, the optima of `sample_optima`, and normal draws around these. The
    suggestions depend on the quality of the posterior: a model that is too sure of the position of
    the optimum gets the same suggestion again and again. A TAGI model whose training continues
    counts the rows once more in each epoch, and becomes too sure; make a new model for each
    suggestion.

    Args:
        model: As for `sample_optima`, fitted.
        low: Lower ends of the box, array `[d]`.
        high: Upper ends of the box.
        num_candidates: Number of uniform points.
        minimize: Whether to look for a minimum.
        seed: Integer or two integers.
        measured: Array `[N, d]` of points at which f is known and need not be measured again.
            Points that are nearer to one of them than 0.02 in all coordinates, in units of the box,
            are not suggested. Use None if a second measurement is useful, as with noise.
        **options: Options of `sample_optima`.

    Returns:
        NumPy array `[d]`.

    Raises:
        TypeError: As for `sample_optima`.
        ValueError: As for `sample_optima`, or if `measured` has another shape, is not finite, or
            leaves no candidates.
    """
    arguments.check_count("num_candidates", num_candidates)
    low, high = _checked_box(model, low, high)
    if measured is not None:
        (measured,) = data.check_inputs(measured, model.input_tensors, "measured", [True])
    optima = sample_optima(model, low, high, minimize=minimize, seed=seed, **options)
    generator = np.random.default_rng(as_seed(seed).numpy().view(np.uint32))
    uniform = low + (high - low) * generator.uniform(size=(num_candidates, len(low)))
    near = np.repeat(optima.x, 20, axis=0)
    near = near + _SPREAD * (high - low) * generator.normal(size=near.shape)
    points = np.clip(np.concatenate([uniform, optima.x, near]), low, high)
    if measured is not None:
        points = points[_is_new(points, measured, _SPREAD * (high - low))]
    moments = model.predict(points, verbose=0)
    stddev = np.maximum(moments["epistemic_stddev"][:, 0], np.finfo(np.float64).tiny)
    noise = moments.get("aleatoric_stddev", np.zeros_like(moments["mean"]))[:, 0]
    scores = max_value_entropy(moments["mean"][:, 0], stddev, optima.values, minimize, noise)
    return points[np.argmax(scores)]


def _is_new(points, measured, apart):
    """Returns which points `[P, d]` are `apart` from all measured points in some coordinate.

    Raises:
        ValueError: If there is no such point.
    """
    near = np.abs(points[:, np.newaxis] - measured) < apart
    is_new = ~np.any(np.all(near, axis=-1), axis=1)
    if not np.any(is_new):
        raise ValueError(
            "`measured` must leave a part of the box to be measured. "
            f"Received: measured of shape {measured.shape}, near to all {len(points)} candidates"
        )
    return is_new


def _checked_box(model, low, high):
    """Checks and returns the ends of a box as float64 arrays.

    Raises:
        TypeError: If the model is none.
        ValueError: If the model does not have suitable function draws, or the ends are wrong.
    """
    arguments.check_model(model, "draw_functions")
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
        arrays.as_array(ends, name).astype(np.float64)
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
