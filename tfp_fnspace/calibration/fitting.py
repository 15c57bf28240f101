"""Adjustments that held-out rows call for."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfp_fnspace import likelihoods, notices
from tfp_fnspace.boundary import arguments
from tfp_fnspace.calibration.adjustments import Recalibration, Scaling, Tempering, location
from tfp_fnspace.calibration.rows import HeldOut, adjusted, fitted_model, held_out
from tfp_fnspace.distributions.quantile import has_atoms, marginal_cdf, marginals
from tfp_fnspace.metrics.ranked_probability import ranked_probability
from tfp_fnspace.tracing import traced
from tfp_fnspace.typing import Array, ArrayLike, Rows

#: The least and the largest factor or temperature.
LEAST, MOST = 0.01, 100.0

#: Points of the first grid, and steps of the golden-section search between two of them; the error
#: of a logarithm is then below 1e-4.
_GRID, _STEPS = 9, 22

#: The least number of rows in a piece of a map, and the largest number of pieces.
_ROWS_OF_PIECE, _MOST_PIECES = 10, 50


def calibrate(model: Any, x: Rows, y: ArrayLike, by: str = "nll") -> Any:
    r"""Calibrates a fitted model by one number for each column of the targets.

    For a regression this is the factor c of all standard deviations, see `Scaling`, that minimises
    the mean score of the held-out rows. With the predictive mean m and F the marginal distribution
    of the column,

        nll:   log c - log f(m + (y - m) / c)
        crps:  c CRPS(F, m + (y - m) / c)

    The second is convex in c, so that its minimum is found from anywhere. For a classifier it is
    the temperature that minimises the negative log probability, see `Tempering`.

    Both lie between 0.01 and 100. A number on few rows is a noisy one, and nothing shrinks it
    towards 1: for Gaussian predictions and n rows its relative standard error is about
    `1 / sqrt(2 n)`.

    Args:
        model: Fitted model of this library, or fitted estimator of `tfp_fnspace.sklearn`.
        x: Inputs of rows that the model was not fitted to, as for its `predict`.
        y: Their targets, as for its `fit`.
        by: `"nll"`, or `"crps"` for a regression, on which outliers have less influence.

    Returns:
        `CalibratedModel`; for an estimator a copy of it whose `model_` is one.

    Raises:
        TypeError: If `model` is of another kind, or its predictive distribution is not Gaussian,
            Student t, Johnson's S_U or a mixture of these.
        ValueError: If it is not fitted, the data are bad, or `by` is unknown.

    References:
        Guo, Pleiss, Sun and Weinberger (2017), "On calibration of modern neural networks", ICML.
    """
    arguments.checked_choice("by", by, ("nll", "crps"))
    rows = held_out(model, x, y)
    fitted = fitted_model(model)
    if fitted.likelihood.is_classifier:
        if by != "nll":
            raise ValueError(f"`by` of a classifier must be 'nll'. Received: by={by!r}")
        binary = isinstance(fitted.likelihood, likelihoods.Bernoulli)
        losses = _of_binary_outputs(rows) if binary else _of_labels(rows)
        return adjusted(model, Tempering(_best("temperature", losses, rows)))
    return adjusted(model, Scaling(_best("scale", _of_scales(rows, by), rows)))


def recalibrate(model: Any, x: Rows, y: ArrayLike) -> Any:
    r"""Recalibrates the quantiles of a fitted regression by a monotone map.

    The map R, one for each column of the targets, leads from predicted probabilities to observed
    frequencies, see `Recalibration`. It is fitted to the probability integral transforms
    `u_i = F_i(y_i)` of the n held-out rows, which are uniform if the model is right. The empirical
    distribution function of the u is their isotonic regression. With all its n knots the density
    would be noise, so R has a knot at every mth of the sorted u only:

        R(u_(k m)) = k m / (n + 1),     m = max(10, n / 50) rows

    `calibrate` takes fewer rows, and also reaches the tails: beyond the outer knots the map keeps
    the shape of the tails. Where the spread is wrong, calibrate first and recalibrate the result.

    Args:
        model: As for `calibrate`, a regression.
        x: As for `calibrate`. At least 20 rows are needed.
        y: As for `calibrate`.

    Returns:
        As for `calibrate`.

    Raises:
        TypeError: If `model` is of another kind, or predicts counts or censored targets.
        ValueError: If it is not fitted, is a classifier, the data are bad, or the rows are too few.

    References:
        Kuleshov, Fenner and Ermon (2018), "Accurate uncertainties for deep learning using
        calibrated regression", ICML.
    """
    rows = held_out(model, x, y)
    if fitted_model(model).likelihood.is_classifier:
        raise ValueError(
            "`recalibrate` must be given a regression; `calibrate` has a temperature for classes. "
            "Received: a classifier"
        )
    if has_atoms(marginals(rows.distribution)):
        raise TypeError(
            "`recalibrate` is for predictive distributions with a density, not for those of counts "
            f"or of censored targets. Received: {rows.distribution}"
        )
    observed = np.isfinite(rows.targets)
    least = int(np.min(np.sum(observed, axis=0)))
    if least < 2 * _ROWS_OF_PIECE:
        raise ValueError(
            f"`y` must have at least {2 * _ROWS_OF_PIECE} observed values in each column. "
            f"Received: a column of {least}"
        )
    levels = marginal_cdf(rows.distribution, np.where(observed, rows.targets, 0.0)).numpy()
    found = [_knots(u[seen]) for u, seen in zip(levels.T, observed.T, strict=True)]
    size = max(len(knots) for knots, _ in found)
    columns = (
        np.stack([np.pad(part, (0, size - len(part)), constant_values=1.0) for part in parts], 1)
        for parts in zip(*found, strict=True)
    )
    return adjusted(model, Recalibration(*columns))


def _knots(u):
    """Returns levels and values of the map of one column, two arrays from 0 to 1."""
    u = np.sort(u.astype(np.float64))
    pieces = min(_MOST_PIECES, len(u) // _ROWS_OF_PIECE)
    ranks = np.round(np.arange(1, pieces) * (len(u) + 1) / pieces).astype(int)
    levels, values = [0.0], [0.0]
    for level, rank in zip(u[ranks - 1], ranks, strict=True):
        last = levels[-1]
        # Equal levels, also those that rounding alone tells apart, are one knot.
        if level < 1.0 and level - last > 1e-6 * min(level, 1.0 - last):
            levels.append(float(level))
            values.append(rank / (len(u) + 1))
    return np.array([*levels, 1.0]), np.array([*values, 1.0])


# Scores as functions of the logarithm of the number --------------------------------------------


def _of_scales(rows: HeldOut, by: str) -> Callable[[Array], Array]:
    """Returns the mean score of each column as a function of the logarithms of the factors."""
    mean, scalar = location(rows.distribution), marginals(rows.distribution)
    observed = np.isfinite(rows.targets)
    residual = tf.where(observed, tf.cast(rows.targets, mean.dtype) - mean, 0.0)
    count = tf.constant(_count(observed), mean.dtype)

    def losses(log_scale):
        scale = tf.exp(log_scale)
        y = mean + residual / scale
        if by == "nll":
            scores = log_scale - scalar.log_prob(y)
        else:
            scores = scale * ranked_probability(y, scalar)
        return tf.reduce_sum(tf.where(observed, scores, 0.0), axis=0) / count

    function = traced(losses)
    return lambda log_scale: function(tf.constant(log_scale, mean.dtype)).numpy()


def _of_labels(rows: HeldOut) -> Callable[[Array], Array]:
    """Returns the mean negative log probability of the labels, `[1]`."""
    logits = rows.distribution.logits_parameter().numpy().astype(np.float64)  # [N, K]
    labels = rows.targets.astype(int)

    def losses(log_temperature):
        logs = logits / np.exp(log_temperature)
        chosen = np.take_along_axis(logs, labels, axis=1)
        return np.mean(np.logaddexp.reduce(logs, axis=1, keepdims=True) - chosen, axis=0)

    return losses


def _of_binary_outputs(rows: HeldOut) -> Callable[[Array], Array]:
    """Returns the mean negative log probability of each binary output, `[D]`."""
    logits = rows.distribution.distribution.logits_parameter().numpy().astype(np.float64)

    def losses(log_temperature):
        logs = logits / np.exp(log_temperature)
        return np.mean(np.logaddexp(0.0, logs) - rows.targets * logs, axis=0)

    return losses


def _count(observed):
    count = np.sum(observed, axis=0)
    if not np.all(count):
        raise ValueError(
            "`y` must have an observed value in each column. "
            f"Received: columns without one={np.flatnonzero(count == 0).tolist()}"
        )
    return count


def _best(name, losses, rows):
    """Returns the numbers that minimise the losses; warns if they are at a bound."""
    logs = minimisers(losses, np.log(LEAST), np.log(MOST), rows.targets.shape[1])
    found = np.exp(logs)
    if np.any(logs < np.log(LEAST) + 1e-3) or np.any(logs > np.log(MOST) - 1e-3):
        notices.warn(
            f"The best {name} is beyond its bounds, {LEAST:g} and {MOST:g}: the held-out rows may "
            f"be too few, or be those that the model was fitted to. Found: {found.tolist()}"
        )
    return found


def minimisers(
    losses: Callable[[Array], Array], low: float, high: float, num_columns: int
) -> Array:
    """Returns where each of D functions of one number is smallest.

    A grid finds the neighbourhood, and a golden-section search goes on from there.

    Args:
        losses: Function of D numbers, an array `[D]`, that returns the D values `[D]`.
        low: Lower bound.
        high: Upper bound.
        num_columns: D.

    Returns:
        Array `[D]`.

    Raises:
        ValueError: If a value is not finite.
    """
    grid = np.linspace(low, high, _GRID)
    values = np.stack([losses(np.full(num_columns, point)) for point in grid])
    if not np.all(np.any(np.isfinite(values), axis=0)):
        raise ValueError(
            "The predictions of the held-out rows must be finite. Received: scores that are not"
        )
    best = np.argmin(np.where(np.isnan(values), np.inf, values), axis=0)
    lower, upper = grid[np.maximum(best - 1, 0)], grid[np.minimum(best + 1, _GRID - 1)]
    share = 0.5 * (np.sqrt(5.0) - 1.0)
    left, right = upper - share * (upper - lower), lower + share * (upper - lower)
    of_left, of_right = losses(left), losses(right)
    for _ in range(_STEPS):
        is_left = of_left < of_right
        lower, upper = np.where(is_left, lower, left), np.where(is_left, right, upper)
        new = np.where(is_left, upper - share * (upper - lower), lower + share * (upper - lower))
        of_new = losses(new)
        left, right = np.where(is_left, new, right), np.where(is_left, left, new)
        of_left, of_right = (
            np.where(is_left, of_new, of_right),
            np.where(is_left, of_left, of_new),
        )
    return 0.5 * (lower + upper)
