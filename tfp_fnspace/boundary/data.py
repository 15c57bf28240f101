"""Checks of inputs, targets and labels."""

import numbers
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import DTypeLike

from tfp_fnspace.boundary.arrays import as_array, is_read_by_item
from tfp_fnspace.boundary.columns import Names, column_names
from tfp_fnspace.typing import Array, ArrayLike, Rows, Shape, Tensor

#: The largest number in the user's units, such that float64 holds its square times that of a far
#: point.
LARGEST_VALUE = 1e100

#: The largest number in model units, such that float32 holds the results of models.
LARGEST_SCALED = 1e9

#: The message about targets with a column for each class.
_ONE_HOT = ": labels, not one-hot, `np.argmax(y, axis=1)` say"


def check_structure(inputs: Any, input_tensors: Sequence[keras.KerasTensor]) -> list[Tensor]:
    """Returns the tensors of a batch as a list with the ranks and widths of the model's inputs.

    Args:
        inputs: Tensor, list or tuple of tensors, or dict by input name.
        input_tensors: The model's symbolic inputs.

    Raises:
        ValueError: If the number of tensors or a static shape is wrong.
    """
    if isinstance(inputs, dict):
        inputs = [inputs[key] for key in _names(inputs, input_tensors, "x")]
    tensors = list(inputs) if isinstance(inputs, list | tuple) else [inputs]
    if len(tensors) != len(input_tensors):
        raise ValueError(f"The model takes {len(input_tensors)} inputs. Received: {len(tensors)}")
    return [_shaped(x, spec.shape, "x") for x, spec in zip(tensors, input_tensors, strict=True)]


def check_columns(targets: Tensor, num_outputs: int, num_labels: int | None = None) -> Tensor:
    """Returns a batch of targets as a tensor `[N, D]`.

    Args:
        targets: Tensor `[N, D]`, or `[N]` when D is 1.
        num_outputs: D.
        num_labels: Number of classes if the targets are labels.

    Raises:
        ValueError: If the static shape is wrong.
    """
    one_hot = num_labels is not None and targets.shape.rank and targets.shape[-1] == num_labels
    return _shaped(targets, (None, num_outputs), "y", _ONE_HOT if one_hot else "")


def _shaped(tensor: Tensor, shape: Shape, name: str, hint: str = "") -> Tensor:
    tensor = tf.convert_to_tensor(tensor)
    shape = (None, *shape[1:])  # a model with a static batch size may get other sizes
    if tensor.shape.rank == 1 and shape == (None, 1):
        tensor = tensor[:, tf.newaxis]
    if not tensor.shape.is_compatible_with(shape):
        raise ValueError(
            f"A batch of `{name}` must have shape {('N', *shape[1:])}{hint}. "
            f"Received: {name} of shape {tuple(tensor.shape)}"
        )
    return tf.ensure_shape(tensor, shape)


def _names(
    inputs: dict[str, Any], input_tensors: Sequence[keras.KerasTensor], name: str
) -> list[str]:
    """Returns the names of the model's inputs, which must be the keys of the dict."""
    names = [tensor.name for tensor in input_tensors]
    if set(inputs) != set(names):
        raise ValueError(
            f"`{name}` must have the keys of the model's inputs, {names}. "
            f"Received: keys={list(inputs)}"
        )
    return names


def input_items(
    x: Rows, input_tensors: Sequence[keras.KerasTensor], name: str = "x"
) -> list[ArrayLike]:
    """Returns a list of what is given for each of a model's inputs.

    Args:
        x: As for `check_inputs`.
        input_tensors: The model's symbolic inputs.
        name: Name of the argument, for messages.

    Raises:
        ValueError: If the number of inputs is wrong.
    """
    if isinstance(x, dict):
        x = [x[key] for key in _names(x, input_tensors, name)]
    rank = len(input_tensors[0].shape)
    several = isinstance(x, list | tuple) and (
        len(input_tensors) > 1 or (len(x) == 1 and len(shape_of(x[0]) or ()) == rank)
    )
    items = list(x) if several else [x]
    if len(items) != len(input_tensors):
        raise ValueError(
            f"`{name}` must be a list of {len(input_tensors)} arrays, one for each input. "
            f"Received: {len(items)}"
        )
    return items


def shape_of(values: ArrayLike) -> tuple[int, ...] | None:
    """Returns the shape of an array, or `None` if NumPy cannot make one array of the values."""
    if is_read_by_item(values):
        return None
    try:
        return np.shape(values)
    except (TypeError, ValueError, NotImplementedError):
        return None


def check_inputs(
    x: Rows,
    input_tensors: Sequence[keras.KerasTensor],
    name: str = "x",
    standardized: Sequence[bool] | None = None,
) -> list[Array]:
    """Checks model inputs and returns them as a list of arrays.

    Args:
        x: Array `[N, ...]` for a model with one input; a list, or a dict by input name, for
            several.
        input_tensors: The model's symbolic inputs.
        name: Name of the argument, for messages.
        standardized: Whether each input is standardised, so that it is in the user's units; by
            default none is.

    Returns:
        List of arrays with the same number of rows. They are float64 in the user's units, else they
        have the dtypes of the inputs.

    Raises:
        TypeError: If the values are not real numbers.
        ValueError: If the number of inputs, a shape or the number of rows is wrong, or a value
            is NaN or infinite.
    """
    items = input_items(x, input_tensors, name)
    arrays = [
        _check_input(item, tensor, name, in_units)
        for item, tensor, in_units in zip(
            items, input_tensors, standardized or [False] * len(items), strict=True
        )
    ]
    if len({len(array) for array in arrays}) > 1:
        raise ValueError(
            f"All inputs in `{name}` must have the same number of rows. "
            f"Received: {[len(array) for array in arrays]}"
        )
    return arrays


def _check_input(
    values: ArrayLike, tensor: keras.KerasTensor, name: str, standardized: bool
) -> Array:
    array = as_array(values, name)
    expected = tuple(tensor.shape)
    if array.ndim == 1 and expected == (None, 1):
        array = array[:, np.newaxis]
    matches = array.ndim == len(expected) and all(
        size in (None, actual) for size, actual in zip(expected[1:], array.shape[1:], strict=True)
    )
    if not matches:
        is_row = array.ndim and array.shape == expected[1:]
        row = f": `{name.split()[-1]}[np.newaxis]` is an array of a single row" if is_row else ""
        raise ValueError(
            f"`{name}` must have shape {('N', *expected[1:])}{row}. "
            f"Received: {name} of shape {array.shape}"
        )
    if array.size == 0:
        raise ValueError(
            f"`{name}` must have at least one {'column' if len(array) else 'row'}. "
            f"Received: {name} of shape {array.shape}"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        given, array = array, _cast(array, "float64" if standardized else tensor.dtype)
    if array.dtype.kind in "iu":
        _check_none(name, array != given, "must be whole numbers", f"that are no {tensor.dtype}")
    columns = column_names(values)
    check_finite(name, given, columns, _what_is_bad(values))
    if array.dtype.kind == "f":
        check_size(name, given, LARGEST_VALUE if standardized else LARGEST_SCALED, columns)
    return array


def _what_is_bad(values: ArrayLike) -> str:
    masked = isinstance(values, np.ma.MaskedArray)
    return "masked, NaN or infinite values" if masked else "NaN or infinite values"


def check_size(name: str, array: Array, largest: float, columns: Names | None = None) -> None:
    """Refuses finite numbers that are too large.

    Args:
        name: Name of the argument, for messages.
        array: Array of real numbers; NaN is ignored.
        largest: The largest allowed magnitude.
        columns: Names of its columns, if they have names.

    Raises:
        ValueError: If there are any; the message has their number and the place of the first.
    """
    if not array.size:
        return
    extremes = (np.fmin.reduce(array, axis=None), np.fmax.reduce(array, axis=None))
    if not max(abs(float(value)) for value in extremes) > largest:  # NaN if there is no number
        return
    hint = "" if largest == LARGEST_VALUE else ", as nothing standardises it"
    rule = f"must be at most {largest:g} in magnitude{hint}"
    _check_none(name, np.abs(array.astype(np.float64)) > largest, rule, "larger values", columns)


def check_finite(
    name: str, array: Array, columns: Names | None = None, what: str = "NaN or infinite values"
) -> None:
    """Refuses NaN and infinite values.

    Args:
        name: Name of the argument, for messages.
        array: Array of real numbers.
        columns: Names of its columns, if they have names.
        what: What they are, for messages.

    Raises:
        ValueError: If there are any; the message has their number and the place of the first.
    """
    _check_none(name, ~np.isfinite(array), "must be finite", what, columns)


def _check_none(
    name: str,
    bad: Array,
    rule: str,
    what: str = "NaN or infinite values",
    columns: Names | None = None,
) -> None:
    if np.any(bad):
        count, first = np.count_nonzero(bad), np.argwhere(bad)[0]
        column = f", in column {columns[first[1]]!r}" if columns else ""
        raise ValueError(
            f"`{name}` {rule}. Received: {name} with {count} {what}, "
            f"the first at [{', '.join(map(str, first))}]{column}"
        )


def check_not_infinite(name: str, array: Array) -> None:
    """Refuses infinite values where NaN is missing.

    Raises:
        ValueError: If there are any; the message has their number and the place of the first.
    """
    rule = "must not be infinite (NaN marks a missing target)"
    _check_none(name, np.isinf(array), rule, "infinite values")


def check_targets(
    y: ArrayLike,
    num_rows: int | None,
    num_outputs: int,
    missing_allowed: bool,
    dtype: DTypeLike,
    name: str = "y",
    num_labels: int | None = None,
    largest: float = LARGEST_VALUE,
    are_limits: bool = False,
) -> Array:
    """Checks targets and returns them as an array `[N, D]`.

    Args:
        y: Array `[N, D]`, or `[N]` when D is 1.
        num_rows: N, or `None` if any number of rows is allowed.
        num_outputs: D, the number of columns (1 for class labels).
        missing_allowed: Whether NaN stands for a missing target.
        dtype: Dtype of the result.
        name: Name of the argument, for messages.
        num_labels: The number of classes if the targets are labels, else `None`.
        largest: The largest magnitude that a value may have.
        are_limits: Whether they are limits of intervals, which may be infinite.

    Raises:
        TypeError: If the values are not real numbers.
        ValueError: If the shape is wrong, or if a value is infinite, too large, NaN although none
            is allowed, or not a label.
    """
    array = as_array(y, name, labels=num_labels is not None)
    if array.ndim == 1 and num_outputs == 1:
        array = array[:, np.newaxis]
    rows = len(array) if num_rows is None and array.ndim else num_rows
    if array.shape != (rows, num_outputs):
        one_hot = num_labels is not None and array.shape == (rows, num_labels)
        labels = _ONE_HOT if one_hot else ""
        raise ValueError(
            f"`{name}` must have shape ({rows}, {num_outputs}), a row for each row of the inputs "
            f"and a column for each target{labels}. Received: {name} of shape {array.shape}"
        )
    if are_limits:
        _check_none(name, np.isnan(array), "must not be NaN (infinite is no limit)", "NaN values")
    elif missing_allowed:
        check_not_infinite(name, array)
    else:
        is_missing = num_labels is None and np.any(np.isnan(array))
        who = " (with a missing target, NaN, `tagi.TAGIModel` can learn)" if is_missing else ""
        _check_none(name, ~np.isfinite(array), f"must be finite{who}", _what_is_bad(y))
    if num_labels is not None:
        check_labels(array, num_labels, name)
    check_size(name, np.where(np.isinf(array), 0.0, array) if are_limits else array, largest)
    return _cast(array, dtype)


def _cast(array: Array, dtype: DTypeLike) -> Array:
    """Converts numbers to another dtype, including float32 numbers below 1.2e-38.

    The threads of TensorFlow, which read batches of streams, would treat these as zero.
    """
    cast = array.astype(dtype)
    if array.dtype.type is np.float32 and cast.dtype == np.float64:
        is_zero = cast == 0.0
        bits = array[is_zero].astype("=f4").view(np.uint32)
        size = (bits & 0x7FFFFFFF) * 2.0**-149
        cast[is_zero] = np.where(bits >> 31, -size, size)
    return cast


def check_rows(name: str, array: Array, good: Array, rule: str) -> None:
    """Refuses values of another kind.

    Args:
        name: Name of the argument, for messages.
        array: Array `[N, D]`; NaN is missing, and is let through.
        good: Boolean array of the same shape.
        rule: What the array must hold.

    Raises:
        ValueError: If there are others; the message has the first rows with them.
    """
    good = good | np.isnan(array)
    rows = np.flatnonzero(~np.all(good, axis=1))
    if rows.size:
        first = rows[:3]
        values = [f"{array[i][~good[i]][0]:g}" for i in first]
        raise ValueError(
            f"`{name}` must hold {rule}. Received: {name} with others in {rows.size} rows, the "
            f"first {', '.join(values)} in rows {first.tolist()}"
        )


def check_labels(values: ArrayLike, num_labels: int, name: str = "y", what: str = "labels") -> None:
    """Refuses class labels or indices of a table that are not integers from 0 to `num_labels - 1`.

    Args:
        values: Array of numbers.
        num_labels: Number of allowed integers.
        name: Name of the argument, for messages.
        what: What they are, for messages.

    Raises:
        ValueError: If there are others; the message has the first of them.
    """
    values = np.asarray(values)
    bad = values[~((values >= 0) & (values < num_labels) & (np.floor(values) == values))]
    if bad.size:
        raise ValueError(
            f"`{name}` must hold integer {what} from 0 to {num_labels - 1}. "
            f"Received: {name} with {bad.size} other values, the first {bad.flat[0]:g}"
        )


def split_rows(arrays: Sequence[Array], fraction: float) -> tuple[list[Array], list[Array]]:
    """Splits off the last `fraction` of the rows, as Keras's `validation_split` does.

    Args:
        arrays: List of arrays of N rows.
        fraction: Number in (0, 1).

    Returns:
        Two lists of arrays.

    Raises:
        ValueError: If either part would be empty.
    """
    num_rows = len(arrays[0])
    inside = isinstance(fraction, numbers.Real) and 0.0 < fraction < 1.0
    first = int(num_rows * (1.0 - fraction)) if inside else 0
    if not 0 < first < num_rows:
        raise ValueError(
            "`validation_split` must leave rows on both sides. Received: "
            f"validation_split={fraction!r} with {num_rows} rows"
        )
    return [a[:first] for a in arrays], [a[first:] for a in arrays]
