"""Data at the boundary: what comes in is checked once, with one clear error."""

import numbers

import numpy as np
import tensorflow as tf


def check_structure(inputs, input_tensors):
    """Tensors of a batch as a list with the ranks and widths of the model's inputs.

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


def check_columns(targets, num_outputs):
    """A batch of targets as a tensor `[N, D]`.

    Args:
        targets: Tensor `[N, D]`, or `[N]` when D is 1.
        num_outputs: D.

    Raises:
        ValueError: If the static shape is wrong.
    """
    return _shaped(targets, (None, num_outputs), "y")


def _shaped(tensor, shape, name):
    tensor = tf.convert_to_tensor(tensor)
    shape = (None, *shape[1:])  # a model of batches of a known size may be given many
    if tensor.shape.rank == 1 and shape == (None, 1):
        tensor = tensor[:, tf.newaxis]
    if not tensor.shape.is_compatible_with(shape):
        raise ValueError(
            f"A batch of `{name}` must have shape {('N', *shape[1:])}. "
            f"Received: {name} of shape {tuple(tensor.shape)}"
        )
    return tf.ensure_shape(tensor, shape)


def _names(inputs, input_tensors, name):
    """The names of the model's inputs, if the dict has these keys."""
    names = [tensor.name for tensor in input_tensors]
    if set(inputs) != set(names):
        raise ValueError(
            f"`{name}` must have the keys of the model's inputs, {names}. "
            f"Received: keys={sorted(inputs)}"
        )
    return names


def as_array(values, name):
    """A numeric NumPy array; tensors, data frames and nested lists are welcome.

    Args:
        values: Anything `np.asarray` takes.
        name: Name of the argument, for messages.

    Raises:
        TypeError: If the values are not real numbers.
    """
    if values is None:
        raise TypeError(f"`{name}` must be an array of numbers. Received: {name}=None")
    try:
        array = np.asarray(values)
    except ValueError:  # lists of unequal lengths
        array = np.empty(0, object)
    if array.dtype.name == "bfloat16":
        array = array.astype(np.float32)
    if array.dtype == object and array.size and not _columns_of_words(array):
        array = array.astype(np.float64)  # a data frame with columns of numbers and of booleans
    if not (np.issubdtype(array.dtype, np.number) or array.dtype == bool) or np.iscomplexobj(array):
        raise TypeError(
            f"`{name}` must be an array of real numbers. Received: {name} of dtype {array.dtype}"
            f"{_words_in(values, array)}"
        )
    return array


def column_names(values):
    """The names of a data frame's columns as a tuple, `None` of what has none that are words."""
    names = tuple(getattr(values, "columns", ()))
    return names if names and all(isinstance(name, str) for name in names) else None


def check_column_names(values, expected, name):
    """Refuses a data frame with other columns than an earlier one, or in another order.

    Args:
        values: Inputs; of what has no names for its columns only their number is known.
        expected: The names of the earlier one, or `None` if it had none.
        name: Name of the argument, for messages.

    Raises:
        ValueError: If they differ.
    """
    names = column_names(values)
    if None not in (names, expected) and names != tuple(expected):
        raise ValueError(
            f"`{name}` must have the columns of the data frame that the model was fitted to, in "
            f"their order, {list(expected)}: `{name}.reindex(columns=model.column_names)` puts "
            f"them so (with `fill_value=0` for those of `get_dummies`). "
            f"Received: columns={list(names)}"
        )


def _columns_of_words(array):
    """Indices along the last axis at which not all entries are numbers or booleans."""
    is_number = np.vectorize(
        lambda value: isinstance(value, numbers.Real | np.bool_), otypes=[bool]
    )
    columns = is_number(array).reshape(-1, array.shape[-1] if array.ndim > 1 else 1)
    return np.flatnonzero(~columns.all(axis=0)).tolist()


def _words_in(values, array):
    """What is said of a data frame's columns of words."""
    names = getattr(values, "columns", None)
    if names is None or array.dtype != object or array.ndim != 2:
        return ""
    words = [str(names[i]) for i in _columns_of_words(array)]
    return f" with words in the columns {words}: `pandas.get_dummies` makes numbers of them"


def check_inputs(x, input_tensors, name="x"):
    """Checks model inputs and returns them as a list of arrays.

    Args:
        x: Array `[N, ...]` for a model with one input; a list, or a dict by input name, for
            several.
        input_tensors: The model's symbolic inputs.
        name: Name of the argument, for messages.

    Returns:
        List of arrays with the same number of rows, in the dtypes of the inputs.

    Raises:
        TypeError: If the values are not real numbers.
        ValueError: If the number of inputs, a shape or the number of rows is wrong, or a value
            is NaN or infinite.
    """
    if isinstance(x, dict):
        x = [x[key] for key in _names(x, input_tensors, name)]
    rank = len(input_tensors[0].shape)
    several = isinstance(x, list | tuple) and (
        len(input_tensors) > 1 or (len(x) == 1 and np.ndim(x[0]) == rank)
    )
    items = list(x) if several else [x]
    if len(items) != len(input_tensors):
        raise ValueError(
            f"`{name}` must be a list of {len(input_tensors)} arrays, one for each input. "
            f"Received: {len(items)}"
        )
    arrays = [
        _check_input(item, tensor, name) for item, tensor in zip(items, input_tensors, strict=True)
    ]
    if len({len(array) for array in arrays}) > 1:
        raise ValueError(
            f"All inputs in `{name}` must have the same number of rows. "
            f"Received: {[len(array) for array in arrays]}"
        )
    return arrays


def _check_input(values, tensor, name):
    array = as_array(values, name)
    expected = tuple(tensor.shape)
    if array.ndim == 1 and expected == (None, 1):
        array = array[:, np.newaxis]
    matches = array.ndim == len(expected) and all(
        size in (None, actual) for size, actual in zip(expected[1:], array.shape[1:], strict=True)
    )
    if not matches:
        raise ValueError(
            f"`{name}` must have shape {('N', *expected[1:])}. "
            f"Received: {name} of shape {array.shape}"
        )
    if len(array) == 0:
        raise ValueError(
            f"`{name}` must have at least one row. Received: {name} of shape {array.shape}"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        given, array = array, array.astype(tensor.dtype)
    if array.dtype.kind in "iu":
        _check_none(name, array != given, "must be whole numbers", f"that are no {tensor.dtype}")
    # A number too large for the dtype counts as infinite.
    check_finite(name, array, column_names(values))
    return array


def check_finite(name, array, columns=None):
    """Refuses NaN and infinite values.

    Args:
        name: Name of the argument, for messages.
        array: Array of real numbers.
        columns: Names of its columns, if they have names.

    Raises:
        ValueError: With their number and the place of the first.
    """
    _check_none(name, ~np.isfinite(array), "must be finite", columns=columns)


def _check_none(name, bad, rule, what="NaN or infinite values", columns=None):
    if np.any(bad):
        count, first = np.count_nonzero(bad), np.argwhere(bad)[0]
        column = f", in column {columns[first[1]]!r}" if columns else ""
        raise ValueError(
            f"`{name}` {rule}. Received: {name} with {count} {what}, "
            f"the first at [{', '.join(map(str, first))}]{column}"
        )


def check_targets(y, num_rows, num_outputs, missing_allowed, dtype, name="y"):
    """Checks targets and returns them as an array `[N, D]`.

    Args:
        y: Array `[N, D]`, or `[N]` when D is 1.
        num_rows: N, or `None` if any number of rows will do.
        num_outputs: D, the number of columns (1 for class labels).
        missing_allowed: Whether NaN stands for a missing target.
        dtype: Dtype of the result.
        name: Name of the argument, for messages.

    Raises:
        TypeError: If the values are not real numbers.
        ValueError: If the shape is wrong, or a value is infinite, or NaN where none may be.
    """
    array = as_array(y, name)
    if array.ndim == 1 and num_outputs == 1:
        array = array[:, np.newaxis]
    rows = len(array) if num_rows is None and array.ndim else num_rows
    if array.shape != (rows, num_outputs):
        raise ValueError(
            f"`{name}` must have shape ({rows}, {num_outputs}), a row for each row of the inputs "
            f"and a column for each target. Received: {name} of shape {array.shape}"
        )
    with np.errstate(over="ignore"):  # A number too large for the dtype counts as infinite.
        array = array.astype(dtype)
    if missing_allowed:
        rule = "must not be infinite (NaN marks a missing target)"
        _check_none(name, np.isinf(array), rule)
    else:
        check_finite(name, array)
    return array


def is_label(targets, num_labels):
    """Whether each target is one of 0, 1, ..., `num_labels` - 1, a boolean tensor."""
    values = tf.cast(targets, tf.float64)
    return (values >= 0.0) & (values < num_labels) & (tf.floor(values) == values)


def check_labels(values, num_labels, name="y", what="labels"):
    """Refuses what is none of the first integers: class labels, indices of a table.

    Args:
        values: Array of numbers.
        num_labels: How many integers there are.
        name: Name of the argument, for messages.
        what: What they are, for messages.

    Raises:
        ValueError: With the first such value.
    """
    bad = np.asarray(values)[~is_label(values, num_labels).numpy()]
    if bad.size:
        raise ValueError(
            f"`{name}` must hold integer {what} from 0 to {num_labels - 1}. "
            f"Received: {name} with {bad.size} other values, the first {bad.flat[0]:g}"
        )


def split_rows(arrays, fraction):
    """The last `fraction` of the rows apart, as Keras's `validation_split` has it.

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
