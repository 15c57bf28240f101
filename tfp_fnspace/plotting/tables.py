"""Tables that figures show column by column: arrays `[N, P]`, data frames of pandas and polars."""

from typing import Any, NamedTuple

import numpy as np

from tfp_fnspace.boundary import arguments, arrays, columns
from tfp_fnspace.typing import Array, ArrayLike


class Column(NamedTuple):
    """A column of a table.

    Attributes:
        number: Its number, from 0.
        name: Its name in the data frame, or its number in words.
        values: float64 array `[N]`, NaN where missing; for words, their places in `words`.
        words: The words in their order, that of the categories in pandas; `None` for numbers.
    """

    number: int
    name: str
    values: np.ndarray
    words: list[str] | None


def is_table(x: Any) -> bool:
    """Returns whether `x` has rows and columns, so that `column_of` can read it."""
    return not isinstance(x, dict) and len(_shape(x)) == 2


def num_columns(x: Any) -> int:
    """Returns the number of columns of a table."""
    return _shape(x)[1]


def column_of(x: ArrayLike, column: int | str) -> Column:
    """Returns a column of a table.

    Args:
        x: Array or data frame `[N, P]`.
        column: Number of the column, from 0, or its name in a data frame.

    Raises:
        TypeError: If it holds neither numbers nor words.
        ValueError: If there is no such column.
    """
    names = list(columns.column_names(x) or [])
    number = names.index(column) if column in names else column
    shape = _shape(x)
    if len(shape) != 2 or not arguments.is_integer(number) or not 0 <= number < shape[1]:
        raise ValueError(
            "`x` must have shape [N, D_in] with the column. "
            f"Received: x of shape {shape}, column={column!r}"
        )
    name = str(names[number]) if names else f"input {number}"
    values = x.iloc[:, number] if hasattr(x, "iloc") else _with_slices(x)[:, number]
    array = np.asarray(values)
    try:
        return Column(number, name, arrays.as_array(values, name).astype(np.float64), None)
    except TypeError:
        if array.dtype.kind not in "OSUT":
            raise
    known = {str(word) for word in array if isinstance(word, str | bytes)}
    order = getattr(getattr(values, "cat", None), "categories", sorted(known))  # that of pandas
    words = [str(word) for word in order if str(word) in known]
    places = {word: place for place, word in enumerate(words)}
    codes = [places.get(str(word)) if isinstance(word, str | bytes) else None for word in array]
    return Column(number, name, np.array(codes, np.float64), words)


def with_column(x: ArrayLike, rows: Array, number: int, sources: Array) -> Any:
    """Returns rows of a table in which one column has the values of other rows.

    Values are copied and not computed, so categories and dtypes stay as they are.

    Args:
        x: Array or data frame `[N, P]`.
        rows: Numbers of rows `[M]`.
        number: Number of the column.
        sources: Numbers of the rows `[M]` whose values the column gets.

    Returns:
        Table `[M, P]` of the same type; an array for types other than data frames.
    """
    if hasattr(x, "iloc"):
        found = x.iloc[rows].reset_index(drop=True)
        found.isetitem(number, x.iloc[sources, number].reset_index(drop=True))
        return found
    if hasattr(x, "get_columns"):  # polars
        return x[rows.tolist()].with_columns(x[sources.tolist(), number])
    table = np.asarray(x)
    found = table[rows]
    found[:, number] = table[sources, number]
    return found


def _with_slices(x):
    """Returns a frame of polars as it is, and else an array."""
    return x if hasattr(x, "get_columns") else np.asarray(x)


def _shape(x):
    shape = getattr(x, "shape", None)
    return tuple(np.shape(x) if shape is None else shape)
