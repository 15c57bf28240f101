"""Conformal intervals by cross-validation."""

import importlib
from typing import Any

import numpy as np

from tfp_fnspace import datasets
from tfp_fnspace.boundary import arguments
from tfp_fnspace.calibration.conformal import conformal_rank, moments, scores, targets_like
from tfp_fnspace.typing import Array, ArrayLike

#: How many numbers the ends of a chunk of new rows may hold.
_CHUNK_NUMBERS = 2**22


class CVPlus:
    r"""Intervals of K estimators, each of which was fitted without one of K parts of the rows.

    Row i is left out by the estimator of its part, `k(i)`, and has the score `r_i = |y_i -
    m_{k(i)}(x_i)| / s_{k(i)}(x_i)`. The interval at a new x reaches from the kth largest of the n
    lower ends to the kth smallest of the n upper ends

        m_{k(i)}(x) - r_i s_{k(i)}(x)   and   m_{k(i)}(x) + r_i s_{k(i)}(x),

    `k = ceil((n + 1) level)`. No row is lost to calibration. For exchangeable rows the coverage of
    a column is at least `2 level - 1` minus a term of the order `sqrt(2 / n)`, and in practice
    about `level`. With `groups` the groups must be exchangeable, and this bound is not proven.

    It pickles with its estimators.

    Args:
        estimator: Regressor of scikit-learn whose `predict` takes `return_std`, such as those of
            `tfp_fnspace.sklearn`; it is cloned, and need not be fitted.
        x: Array or data frame `[n, P]`.
        y: Targets `[n]` or `[n, D]`.
        num_folds: K, an integer of at least 2.
        groups: Labels `[n]`, or `None`. Rows with the same label stay together.
        seed: Seed of the parts.

    Attributes:
        estimators: List of the K fitted estimators.
        fold: Integer array `[n]`, the part of each row.
        scores: Array `[n]` or `[n, D]`.

    Raises:
        TypeError: If `estimator` is no estimator of scikit-learn.
        ValueError: If there are fewer rows or groups than parts, or the data are bad.

    References:
        Barber, Candes, Ramdas and Tibshirani (2021), "Predictive inference with the jackknife+",
        Annals of Statistics 49(1).
    """

    def __init__(
        self,
        estimator: Any,
        x: ArrayLike,
        y: ArrayLike,
        num_folds: int = 5,
        groups: ArrayLike | None = None,
        seed: int = 0,
    ):
        if isinstance(estimator, type) or not hasattr(estimator, "get_params"):
            raise TypeError(
                "`estimator` must be a regressor of scikit-learn, an instance: models of Keras "
                "cannot be cloned and fitted anew without their settings of `fit`. "
                f"Received: estimator={estimator!r}"
            )
        base = importlib.import_module("sklearn.base")
        rows_of = importlib.import_module("sklearn.utils")._safe_indexing
        num_rows = np.shape(y)[0] if np.ndim(y) else 0
        self.fold = folds(num_rows, num_folds, groups, seed)
        self.estimators, parts = [], []
        for k in range(num_folds):
            train, left_out = np.flatnonzero(self.fold != k), np.flatnonzero(self.fold == k)
            fitted = base.clone(estimator).fit(rows_of(x, train), rows_of(y, train))
            inputs, targets = rows_of(x, left_out), rows_of(y, left_out)
            mean, stddev = moments(fitted, inputs)
            parts.append(scores(mean, stddev, targets_like(fitted, inputs, targets, mean)))
            self.estimators.append(fitted)
        self.scores = np.empty((num_rows, *parts[0].shape[1:]))
        for k, part in enumerate(parts):
            self.scores[self.fold == k] = part

    def interval(self, x: ArrayLike, level: float = 0.9) -> tuple[Array, Array]:
        """Returns the ends of the intervals.

        Args:
            x: Array or data frame `[N, P]`.
            level: Number in (0, 1).

        Returns:
            Arrays of lower and upper ends, `[N]`, or `[N, D]` if y had columns.

        Raises:
            ValueError: If the level needs more rows, or the data are bad.
        """
        rank = int(conformal_rank(level, len(self.scores)))
        found = [moments(estimator, x) for estimator in self.estimators]
        mean, stddev = (np.stack(parts) for parts in zip(*found, strict=True))  # [K, N, ...]
        size = max(1, _CHUNK_NUMBERS // self.scores.size)
        lower, upper = [], []
        for i in range(0, mean.shape[1], size):
            centre = mean[self.fold, i : i + size]  # [n, size, ...]
            reach = self.scores[:, np.newaxis] * stddev[self.fold, i : i + size]
            lower.append(-_smallest(reach - centre, rank))
            upper.append(_smallest(centre + reach, rank))
        return np.concatenate(lower), np.concatenate(upper)


def folds(num_rows: int, num_folds: int, groups: ArrayLike | None, seed: int) -> Array:
    """Returns the part of each row, integers from 0 to K - 1.

    Args:
        num_rows: n.
        num_folds: K.
        groups: Labels `[n]` of rows that stay together, or `None`.
        seed: Seed.

    Raises:
        ValueError: If there are fewer rows or groups than parts, or another number of labels.
    """
    arguments.check_count("num_folds", num_folds, 2)
    arguments.check_count("seed", seed, 0)
    group = np.arange(num_rows)
    if groups is not None:
        _, group = np.unique(np.asarray(groups), return_inverse=True)
        if group.shape != (num_rows,):
            raise ValueError(
                f"`groups` must have a label for each of the {num_rows} rows. "
                f"Received: groups of shape {group.shape}"
            )
    num_groups = int(np.max(group, initial=-1)) + 1
    if num_groups < num_folds:
        raise ValueError(
            "`num_folds` must be at most the number of rows or groups. "
            f"Received: num_folds={num_folds} with {num_groups} of them"
        )
    of_group = np.empty(num_groups, int)
    for k, (_, left_out) in enumerate(datasets.k_fold(num_groups, num_folds, seed)):
        of_group[left_out] = k
    return of_group[group]


def _smallest(values, rank):
    """Returns the value of a rank along the first axis; it starts from 1."""
    return np.partition(values, rank - 1, axis=0)[rank - 1]
