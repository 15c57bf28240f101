"""Choice of a few rows that stand for many."""

from collections.abc import Callable

import numpy as np

from tfp_fnspace.typing import Array, ArrayLike

#: Variance that is left of a row is rounding below this share of the largest one at the start.
_NOTHING_LEFT = 1e-10


def greedy_rows(x: ArrayLike, count: int) -> Array:
    """Chooses, one by one, rows that tell most about a smooth function at the others.

    Each is the row at which a Gaussian process with the kernel

        k(x, x') = exp(-|x - x'|^2 / (2 K))

    has the greatest variance given its values at the rows before it; the first counts if several
    are equal. This is a Cholesky decomposition with pivots. If no row has variance left, as among
    copies of few rows, the first rows that are not yet chosen follow. Cost `O(N count^2)`.

    Args:
        x: Array `[N, K]`.
        count: Number of rows, at most N.

    Returns:
        Indices `[count]` in the order in which they were chosen.

    References:
        Burt, Rasmussen & van der Wilk (2020), "Convergence of sparse variational inference in
        Gaussian processes regression", JMLR 21.
    """
    x = np.asarray(x, np.float64)
    squares, width = np.sum(x**2, axis=1), max(1, x.shape[1])

    def column(row):
        distances = np.maximum(squares + squares[row] - 2.0 * (x @ x[row]), 0.0)
        return np.exp(-0.5 * distances / width)

    return greedy_pivots(np.ones(len(x)), column, count)


def greedy_pivots(diagonal: Array, column: Callable[[int], Array], count: int) -> Array:
    """Returns pivots of a Cholesky decomposition: rows of the greatest variance given those before.

    If no row has variance left, the first rows that are not yet chosen follow.

    Args:
        diagonal: Diagonal of the covariance matrix, array `[N]`.
        column: Function from the number of a row to its column of the matrix, `[N]`.
        count: Number of rows, at most N.

    Returns:
        Indices `[count]` in the order in which they were chosen.
    """
    left = np.array(diagonal, np.float64)
    nothing = _NOTHING_LEFT * np.max(left)
    factor, rows = np.zeros([count, len(left)]), []
    while len(rows) < count:
        row = int(np.argmax(left))
        if left[row] <= nothing:
            break
        known = factor[: len(rows)]
        factor[len(rows)] = (column(row) - known[:, row] @ known) / np.sqrt(left[row])
        left = np.maximum(left - factor[len(rows)] ** 2, 0.0)
        left[row] = 0.0
        rows.append(row)
    others = np.setdiff1d(np.arange(len(left)), rows)
    return np.array([*rows, *others[: count - len(rows)]], int)
