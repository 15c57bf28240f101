"""A real table that comes with the package."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

#: Number of training rows; the others are for scores.
_TRAIN_ROWS = 1000


class ExampleTable(NamedTuple):
    """A table in two parts.

    Attributes:
        x_train: `[1000, 4]` inputs, float64.
        y_train: `[1000, 1]` targets.
        x_test: `[250, 4]` inputs of rows to score.
        y_test: `[250, 1]` their targets.
        columns: Names of the inputs and, last, of the target.
    """

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    columns: tuple


def example_table() -> ExampleTable:
    """Returns prices of diamonds in US dollars: a real table that a straight line does not fit.

    The inputs are the weight in carat and three grades, where larger is better: cut from 0 (fair)
    to 4 (ideal), colour from 0 (J) to 6 (D) and clarity from 0 (I1) to 7 (IF). Prices go from 348
    to 18,574 dollars and grow faster than the weight. Larger prices spread more.

    Returns:
        `ExampleTable` of 1,250 rows drawn at random, in random order.

    Example:
        >>> x, y, x_test, y_test, columns = tfp_fnspace.datasets.example_table()
        >>> x.shape, y_test.shape
        ((1000, 4), (250, 1))

    References:
        The data set `diamonds` of ggplot2 (Wickham, 2016), 53,940 rows, MIT licence.
    """
    path = Path(__file__).with_name("example_table.csv")
    columns = tuple(path.read_text(encoding="utf-8").partition("\n")[0].split(","))
    values = np.loadtxt(path, delimiter=",", skiprows=1)
    x, y = values[:, :-1], values[:, -1:]
    return ExampleTable(x[:_TRAIN_ROWS], y[:_TRAIN_ROWS], x[_TRAIN_ROWS:], y[_TRAIN_ROWS:], columns)
