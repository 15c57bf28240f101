"""Split conformal intervals."""

import math
from typing import Any

import numpy as np

from tfp_fnspace.boundary import arguments
from tfp_fnspace.calibration.rows import targets_of
from tfp_fnspace.typing import Array, ArrayLike, Rows

#: Slack for products such as `0.9 * 10`, which must not be rounded up to the next integer.
_SLACK = 1e-9


class SplitConformal:
    r"""Intervals that cover with a probability of at least the level, whatever the model is.

        |y - m(x)| <= q s(x)

    m and s are the mean and the standard deviation of an observation that the model predicts, and q
    is the kth smallest of the scores `|y_i - m(x_i)| / s(x_i)` of n held-out rows, with
    `k = ceil((n + 1) level)`. If the held-out rows and a new row are exchangeable, the interval of
    each column covers with a probability from `level` to `level + 1 / (n + 1)`. The probability is
    over the held-out rows too, and it is not one for each x. Intervals are symmetric about m.

    It pickles with its model.

    Args:
        model: Fitted model of this library, a regression, or any regressor of scikit-learn whose
            `predict` takes `return_std`.
        x: Inputs of rows that the model was not fitted to.
        y: Their targets; a model that allows missing targets may have NaN.

    Attributes:
        model: The model.
        scores: Array `[n, D]` (`[n]` if an estimator predicts no columns).

    Raises:
        TypeError: If `model` is of another kind.
        ValueError: If it is a classifier or not fitted, or the data are bad.

    References:
        Lei, G'Sell, Rinaldo, Tibshirani and Wasserman (2018), "Distribution-free predictive
        inference for regression", JASA 113.
    """

    def __init__(self, model: Any, x: Rows, y: ArrayLike):
        mean, stddev = moments(model, x)
        self.model = model
        self.scores = scores(mean, stddev, targets_like(model, x, y, mean))

    def interval(self, x: Rows, level: float = 0.9) -> tuple[Array, Array]:
        """Returns the ends of the intervals.

        Args:
            x: Inputs of N rows.
            level: Number in (0, 1).

        Returns:
            Arrays of lower and upper ends, `[N, D]` (`[N]` if an estimator predicts no columns).

        Raises:
            ValueError: If the level needs more held-out rows, or the data are bad.
        """
        factor = self.factor(level)
        mean, stddev = moments(self.model, x)
        return mean - factor * stddev, mean + factor * stddev

    def factor(self, level: float = 0.9) -> Array:
        """Returns q, the half-width of the intervals in standard deviations.

        It makes the same intervals of the mean and the standard deviation that an export of the
        model returns.

        Args:
            level: Number in (0, 1).

        Returns:
            Array `[D]` (`[]` if an estimator predicts no columns).

        Raises:
            ValueError: If the level needs more held-out rows.
        """
        return conformal_quantile(self.scores, level)


def moments(model: Any, x: Rows) -> tuple[Array, Array]:
    """Returns mean and standard deviation of observations, of a model or a regressor.

    Raises:
        TypeError: If it is neither.
        ValueError: If it is a classifier.
    """
    is_estimator = hasattr(model, "get_params")
    if not is_estimator:
        arguments.check_model(model, "predict", "predict_distribution", "predicted")
    if hasattr(model, "classes_") if is_estimator else model.likelihood.is_classifier:
        raise ValueError(
            "`model` must be a regression; `AdaptiveSets` is for classes. Received: a classifier"
        )
    if is_estimator:
        found = model.predict(x, return_std=True)
    else:
        found = (model.predict(x)[name] for name in ("mean", "stddev"))
    mean, stddev = (np.asarray(values, np.float64) for values in found)
    if not np.all(np.isfinite(stddev)):
        raise ValueError(
            "Standard deviations of observations must be finite: Student t noise must have more "
            f"than 2 degrees of freedom. Received: {np.sum(~np.isfinite(stddev))} that are not"
        )
    return mean, stddev


def targets_like(model: Any, x: Rows, y: ArrayLike, mean: Array) -> Array:
    """Returns checked targets in the shape of the predictive mean, NaN where missing."""
    if hasattr(model, "get_params"):
        targets = targets_of(model, y, len(mean), mean.size // len(mean))
        return targets.reshape(mean.shape)
    return model.checks.data(x, y)[1].astype(np.float64)


def scores(mean: Array, stddev: Array, targets: Array) -> Array:
    """Returns the scores `|y - m| / s`, NaN where a target is missing."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.abs(targets - mean) / stddev
    return np.where(targets == mean, 0.0, found)  # also with a standard deviation of 0


def conformal_quantile(values: Array, level: float) -> Array:
    """Returns the kth smallest score of each column, `k = ceil((n + 1) level)`.

    Args:
        values: Scores `[n, ...]`, NaN where missing.
        level: Number in (0, 1).

    Returns:
        Array `[...]`.

    Raises:
        ValueError: If the level is no such number, or k is larger than n in a column.
    """
    count = np.sum(~np.isnan(values), axis=0)
    rank = conformal_rank(level, count)
    place = np.asarray(rank - 1)[np.newaxis]
    return np.take_along_axis(np.sort(values, axis=0), place, axis=0)[0]


def conformal_rank(level: float, count: ArrayLike) -> Array:
    """Returns k for n held-out rows, an array like `count`.

    Raises:
        ValueError: If the level is no number in (0, 1), or a count is too small for it.
    """
    arguments.checked_level(level)
    count = np.asarray(count)
    rank = np.ceil((count + 1) * level - _SLACK).astype(int)
    if np.any(rank > count):
        needed = math.ceil(level / (1.0 - level) - _SLACK)
        raise ValueError(
            f"A level of {level:g} must have at least {needed} held-out rows. "
            f"Received: level={level!r} with {int(np.min(count))} rows"
        )
    return np.maximum(rank, 1)
