"""Inducing points that start at rows of the first data."""

from collections.abc import Callable

import numpy as np

from tfp_fnspace import notices
from tfp_fnspace.math.selection import greedy_rows
from tfp_fnspace.model.seeds import Seeds
from tfp_fnspace.typing import Array, ArrayLike

#: How inducing points may be placed at rows, and the most rows that the greedy choice sees.
INITS = ("random", "greedy")
_MOST_CANDIDATES = 10_000


def number_for(num_rows: int, wanted: int) -> int:
    """Returns the number of inducing points for first data with `num_rows` rows, with a warning."""
    if num_rows >= wanted:
        return wanted
    notices.warn(
        f"The first data have {num_rows} rows: the model takes as many inducing points "
        f"instead of {wanted}.",
    )
    return num_rows


def starting_rows(
    inputs: Array, count: int, seeds: Seeds, scaled: Callable[[Array], ArrayLike] | None = None
) -> Array:
    """Returns the indices of the rows at which inducing points start, `[count]` in order.

    Args:
        inputs: Array `[N, ...]` of the first rows.
        count: Number of inducing points.
        seeds: `Seeds` of the model.
        scaled: Function of rows that returns them in model units, for the greedy choice: each row
            is where a smooth process has the largest variance given its values at the previous
            ones. By default the rows are random.

    Raises:
        ValueError: If there are fewer rows than inducing points.
    """
    order = _row_order(inputs, count, seeds)
    if scaled is not None:
        order = order[: max(count, _MOST_CANDIDATES)]
        x = scaled(inputs[order])
        order = order[greedy_rows(np.reshape(x, [len(order), -1]), count)]
    return np.sort(order[:count])


def rows_of_a_fit(inputs: Array, targets: Array, count: int, seeds: Seeds) -> tuple[Array, int]:
    """Returns random rows in the order in which an initialisation should use them, best first.

    Rows with new inputs come first, then rows that repeat inputs with other targets. Copies of
    whole rows come last.

    Args:
        inputs: As for `starting_rows`.
        targets: Array `[N, D]`.
        count: The least number of rows.
        seeds: `Seeds` of the model.

    Returns:
        Indices of at most 10,000 rows (or `count`, if that is more), and the number of those
        that are not copies.

    Raises:
        ValueError: If there are fewer rows than `count`.
    """
    order = _row_order(inputs, count, seeds)[: max(count, _MOST_CANDIDATES)]
    x = inputs[order].reshape([len(order), -1]).astype("float64")
    y = targets[order].reshape([len(order), -1])
    new_x, new_row = (
        np.unique(rows, axis=0, return_index=True)[1] for rows in (x, np.hstack([x, y]))
    )
    rank = np.full(len(order), 2)
    rank[new_row], rank[new_x] = 1, 0
    return order[np.argsort(rank, kind="stable")], len(np.union1d(new_x, new_row))


def _row_order(inputs: Array, count: int, seeds: Seeds) -> Array:
    """Returns the rows in a random order that follows from the seed."""
    num_rows = len(inputs)
    if num_rows < count:
        raise ValueError(
            "The first data must have at least as many rows as the model has inducing points, "
            f"{count}. Received: {num_rows} rows"
        )
    return seeds.row_order(num_rows)
