"""Metrics by group of rows."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tfp_fnspace.distributions.quantile import check_distribution
from tfp_fnspace.metrics import scores
from tfp_fnspace.typing import ArrayLike, Distribution


def by_group(
    score: Callable[[Any, Distribution], Any],
    y: ArrayLike,
    distribution: Distribution,
    groups: ArrayLike,
) -> dict[Any, float]:
    """Returns a score for each group of rows.

    It shows where a model is wrong: with groups that are made from an input, from the prediction or
    from anything else that is known of the rows. The score is computed once for each group, with
    the rows of the others missing.

    Example:
    >>> distribution = tfd.Independent(tfd.Normal([[0.0], [0.0], [0.0]], 1.0), 1)
    >>> by_group(tfp_fnspace.metrics.rmse, [[3.0], [4.0], [3.0]], distribution, ["a", "b", "a"])
    {'a': 3.0, 'b': 4.0}

    Args:
      score: function of `(y, distribution)`, such as `metrics.crps`. For one with options take a
        `lambda`.
      y: tensor `[N, D]` or `[N]`, `NaN` where missing.
      distribution: `tfd.Distribution` with batch `[N]` and event `[D]`.
      groups: labels of the groups, `[N]`: numbers or words, none missing.

    Returns:
      Dict from the label of a group to its score, in the order of the labels; `NaN` if nothing of a
      group is observed.

    Raises:
      TypeError: if `score` is not a function, or as the score does.
      ValueError: if there is not a label for each row, or as the score does.
    """
    if not callable(score):
        raise TypeError(
            "`score` must be a function of (y, distribution), such as `metrics.crps`. "
            f"Received: score={score!r}"
        )
    check_distribution(distribution)
    y = np.asarray(scores.as_observations(y, distribution.dtype.is_floating), np.float64)
    labels, places = _labelled(groups, len(y) if y.ndim else 0)
    found = {}
    for i, label in enumerate(labels):
        inside = (places == i).reshape([-1] + [1] * (y.ndim - 1))
        found[label] = float(score(np.where(inside, y, np.nan), distribution))
    return found


def _labelled(groups, num_rows):
    """Returns the sorted labels, and the place of each row's label among them, `[N]`."""
    array = np.asarray(groups)
    if array.shape != (num_rows,) or not num_rows:
        raise ValueError(
            f"`groups` must have a label for each of the {num_rows} rows. "
            f"Received: groups of shape {array.shape}"
        )
    try:
        labels, places = np.unique(array, return_inverse=True)
        missing = np.any(labels != labels)  # NaN
    except TypeError:  # None, pandas.NA, or words and numbers
        labels, places, missing = array, array, True
    if missing:
        raise ValueError(
            "`groups` must have labels that can be sorted, none of them missing. "
            f"Received: groups={sorted(set(map(repr, array.tolist())))[:5]}"
        )
    return labels.tolist(), places
