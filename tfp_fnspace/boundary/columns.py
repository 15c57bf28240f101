"""Names of the columns of data frames, which are remembered and compared."""

import json
import numbers
from typing import Any, TypeAlias

import numpy as np

from tfp_fnspace.typing import Array

#: Names of columns: strings, numbers, and tuples of them.
Names: TypeAlias = tuple[Any, ...]


def column_names(values: Any) -> Names | None:
    """Returns the names of the columns of a data frame, or of a series, as a tuple.

    Args:
        values: Anything; frames of pandas, polars, PyArrow and others have names.

    Returns:
        Strings, numbers, and tuples of them, which JSON can hold; other names are converted to
        strings. `None` if there are no names.
    """
    names = getattr(values, "column_names", None)
    if names is None:
        names = getattr(values, "columns", None)
    if names is None and is_series(values):
        names = [name for name in [values.name] if name not in (None, "")]
    if names is None or callable(names) or isinstance(names, str):
        return None
    return tuple(map(_plain, names)) or None


def is_series(values: Any) -> bool:
    """Returns whether `values` is one column, with or without a name."""
    return hasattr(values, "to_frame") and hasattr(values, "name")


def _plain(name: Any) -> Any:
    """Returns a name in a form that JSON can hold."""
    if isinstance(name, tuple | list):  # a name of several levels
        return tuple(map(_plain, name))
    if name is None or isinstance(name, bool):
        return name
    if isinstance(name, numbers.Integral):
        return int(name)
    if isinstance(name, numbers.Real) and name == name:
        return float(name)
    return str(name)


def is_default(names: Names | None) -> bool:
    """Returns whether the names are only the column numbers, the default of pandas."""
    return names is None or names == tuple(range(len(names)))


def names_to_keep(values: Any) -> Names | None:
    """Returns the column names to compare later ones with, or `None` if there are none."""
    names = column_names(values)
    return None if is_default(names) else names


def check_column_names(
    values: Any, expected: Names | None, name: str, attribute: str = "column_names"
) -> None:
    """Refuses a data frame with other columns than an earlier one, or in another order.

    Data without names are only compared by their number of columns. Column numbers in order count
    as no names; in another order they count as names.

    Args:
        values: Inputs or targets.
        expected: The names of the earlier frame, or `None` if it had none.
        name: Name of the argument, for messages.
        attribute: The attribute of the model that has the names.

    Raises:
        ValueError: If they differ.
    """
    if is_series(values) and expected is not None and len(expected) > 1:
        return  # a row: its shape is wrong
    check_names(column_names(values), expected, name, attribute)


def check_names(
    names: Names | None, expected: Names | None, name: str, attribute: str = "column_names"
) -> None:
    """Runs `check_column_names` on given names, or `None`."""
    if names is None:
        return
    expected = tuple(range(len(names)) if expected is None else expected)
    # Numbers in order say nothing about the columns, but other numbers contradict them.
    unknown = is_default(names) or is_default(expected)
    if names == expected or (unknown and set(names) != set(expected)):
        return
    short = name.split()[-1]
    if is_default(expected):
        how = f"`{short}[{list(expected)}]` puts them so"
    elif attribute == "column_names":
        how = (
            f"`{short}.reindex(columns=model.column_names)` puts them so (with `fill_value=0` for "
            "those of `get_dummies`)"
        )
    else:
        how = f"`{short}[model.{attribute}]` puts them so"
    raise ValueError(
        f"`{name}` must have the columns of the data frame that the model was fitted to, in their "
        f"order, {list(expected)}: {how}. Received: columns={list(names)}"
    )


def as_bytes(names: Names | None) -> Array:
    """Converts names to an array of bytes, for files."""
    return np.frombuffer(json.dumps(names).encode(), np.uint8)


def from_bytes(array: Array) -> Names:
    """Converts an array of `as_bytes` back to names."""
    return tuple(map(_plain, json.loads(np.asarray(array).tobytes().decode())))
