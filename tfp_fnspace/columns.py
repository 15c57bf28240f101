"""Names of the columns of data frames: which column is which is remembered, and compared."""

import json
import numbers

import numpy as np


def column_names(values):
    """The names of the columns of a data frame, or of a series, as a tuple.

    Args:
        values: Anything; frames of pandas, polars, PyArrow and others have names.

    Returns:
        Strings, numbers, and tuples of them, which JSON can hold; other names as strings. `None` of
        what has no names.
    """
    names = getattr(values, "column_names", None)
    if names is None:
        names = getattr(values, "columns", None)
    if names is None and is_series(values):
        names = [name for name in [values.name] if name not in (None, "")]
    if names is None or callable(names) or isinstance(names, str):
        return None
    return tuple(map(_plain, names)) or None


def is_series(values):
    """Whether this is one column, with a name or without."""
    return hasattr(values, "to_frame") and hasattr(values, "name")


def _plain(name):
    """A name as JSON can hold it."""
    if isinstance(name, tuple | list):  # of several levels
        return tuple(map(_plain, name))
    if name is None or isinstance(name, bool):
        return name
    if isinstance(name, numbers.Integral):
        return int(name)
    if isinstance(name, numbers.Real) and name == name:
        return float(name)
    return str(name)


def is_default(names):
    """Whether the names are no more than the numbers of the columns, as pandas makes them up."""
    return names is None or names == tuple(range(len(names)))


def names_to_keep(values):
    """The names of columns that later ones are compared with, `None` of what has none."""
    names = column_names(values)
    return None if is_default(names) else names


def check_column_names(values, expected, name, attribute="column_names"):
    """Refuses a data frame with other columns than an earlier one, or in another order.

    Of what has no names, only the number of columns is known. Names that are the numbers of the
    columns, in order, are none; in another order they are.

    Args:
        values: Inputs or targets.
        expected: The names of the earlier one, or `None` if it had none.
        name: Name of the argument, for messages.
        attribute: Of the model, which has the names.

    Raises:
        ValueError: If they differ.
    """
    if is_series(values) and expected is not None and len(expected) > 1:
        return  # a row: its shape is wrong
    check_names(column_names(values), expected, name, attribute)


def check_names(names, expected, name, attribute="column_names"):
    """`check_column_names` of names that are known, or `None`."""
    if names is None:
        return
    expected = tuple(range(len(names)) if expected is None else expected)
    # Numbers in order say nothing of what is in the columns, but others contradict them.
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


def as_bytes(names):
    """Names as an array of bytes, for files."""
    return np.frombuffer(json.dumps(names).encode(), np.uint8)


def from_bytes(array):
    """The inverse of `as_bytes`."""
    return tuple(map(_plain, json.loads(np.asarray(array).tobytes().decode())))
