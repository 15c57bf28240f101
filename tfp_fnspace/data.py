"""Checks of users' data, each done once and with one clear error."""

import decimal
import numbers

import numpy as np
import tensorflow as tf

from tfp_fnspace.columns import column_names, is_series

#: The largest number in the user's units, such that float64 holds its square times that of a far
#: point.
LARGEST_VALUE = 1e100

#: The largest number in model units, such that float32 holds the results of models.
LARGEST_SCALED = 1e9

#: How to convert words to numbers, in columns of inputs and in labels.
_ENCODE_COLUMNS = "`pandas.get_dummies` makes numbers of them"
_ENCODE_LABELS = (
    "`pandas.factorize(y)[0]`, scikit-learn's `LabelEncoder` or `keras.layers.StringLookup` makes "
    "integers of them"
)

#: The message about targets with a column for each class.
_ONE_HOT = ": labels, not one-hot, `np.argmax(y, axis=1)` say"

#: What can be done about a dtype, by its kind.
_REMEDIES = {
    "M": " (dates): `(x - start) / np.timedelta64(1, 'D')` makes days of them",
    "m": " (durations): `x / np.timedelta64(1, 's')` makes seconds of them",
    "c": ": the real and the imaginary part are two columns",
    "V": ": `numpy.lib.recfunctions.structured_to_unstructured` makes columns of fields",
}

#: Prefixes of the names of dtypes of dates, times and durations, in pandas and polars.
_TIMES = ("date", "time", "duration", "period", "interval")


def check_structure(inputs, input_tensors):
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


def check_columns(targets, num_outputs, num_labels=None):
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


def _shaped(tensor, shape, name, hint=""):
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


def _names(inputs, input_tensors, name):
    """Returns the names of the model's inputs, which must be the keys of the dict."""
    names = [tensor.name for tensor in input_tensors]
    if set(inputs) != set(names):
        raise ValueError(
            f"`{name}` must have the keys of the model's inputs, {names}. "
            f"Received: keys={list(inputs)}"
        )
    return names


def as_array(values, name, labels=False):
    """Converts arrays, tensors, data frames or nested lists to a numeric NumPy array.

    Masked values, `None` and `pandas.NA` are missing values and become NaN.

    Args:
        values: Anything that `np.asarray` accepts.
        name: Name of the argument, for messages.
        labels: Whether they are labels of classes, for messages.

    Raises:
        TypeError: If the values are not real numbers.
        ValueError: If an integer is too large for float64.
    """
    if values is None:
        raise TypeError(f"`{name}` must be an array of numbers. Received: {name}=None")
    _refuse_times(values, name)
    encoder = _ENCODE_LABELS if labels else _ENCODE_COLUMNS
    array = _converted(values, name)
    if array.dtype.isbuiltin == 2:  # a custom dtype, such as bfloat16
        array = array.astype(np.float32)
    others = ""
    if array.dtype == object:
        array, others = _numbers_in(array, column_names(values), name, encoder)
    elif array.dtype.kind in "SUT":
        others = f": {encoder}"
    if array.dtype.kind not in "biuf":
        raise TypeError(
            f"`{name}` must be an array of real numbers. Received: {name} of dtype {array.dtype}"
            f"{_REMEDIES.get(array.dtype.kind, others)}"
        )
    if isinstance(array, np.ma.MaskedArray):
        is_masked = np.ma.getmaskarray(array)
        array = array.data
        if np.any(is_masked):
            array = np.where(is_masked, np.nan, array.astype(np.result_type(array, np.float16)))
    return array


def _converted(values, name):
    """Returns an array, which is masked where `values` are."""
    try:
        parts = values if isinstance(values, list | tuple) else [values]
        masked = any(isinstance(part, np.ma.MaskedArray) for part in parts)
        one_of_each_type = {type(part): part for part in [values, *parts]}.values()
        array, endless = None, [type(p).__name__ for p in one_of_each_type if _is_read_by_item(p)]
        reason = f": NumPy cannot convert {endless[0]}, which has no `__array__`" if endless else ""
        if not endless:
            array = np.ma.array(values) if masked else np.asarray(values)
    except (TypeError, ValueError, NotImplementedError):
        # Lists of unequal lengths, symbolic tensors
        array = None
        reason = " with rows of unequal lengths" if isinstance(values, list | tuple) else ""
    if array is None or (array.dtype == object and array.ndim == 0):
        if (
            isinstance(values, tf.RaggedTensor)
            or "spars" in type(values).__module__ + type(values).__name__.lower()
        ):
            reason = ": `to_tensor`, `tf.sparse.to_dense` or `toarray` makes an array of it"
        raise TypeError(
            f"`{name}` must be an array of real numbers. Received: {name} of type "
            f"{type(values).__name__}{reason}"
        )
    return array


def _is_read_by_item(value):
    """Returns whether NumPy would read items 0, 1, ... of an object until an `IndexError`.

    If the object is not a Python container, this may never end.
    """
    cls = type(value)
    if hasattr(cls, "__iter__") or not hasattr(cls, "__getitem__"):
        return False
    if any(hasattr(cls, name) for name in ("__array__", "__array_interface__", "__array_struct__")):
        return False
    try:
        memoryview(value)
    except TypeError:
        return True
    return False


def _refuse_times(values, name):
    """Refuses a data frame with dates or durations, which polars would convert to numbers."""
    dtypes, names = getattr(values, "dtypes", None), column_names(values)
    if dtypes is None or names is None or is_series(values) or len(names) != len(dtypes):
        return
    found = [n for n, d in zip(names, dtypes, strict=True) if str(d).lower().startswith(_TIMES)]
    if found:
        raise TypeError(
            f"`{name}` must be an array of real numbers. Received: {name} with dates or durations "
            f"in the columns {found}: `(column - start) / np.timedelta64(1, 'D')` makes days"
        )


def _numbers_in(array, names, name, encoder):
    """Returns an array of objects as float64 if they are numbers; otherwise it describes them."""
    flat = array.reshape(-1)
    missing = np.fromiter((_is_missing(value) for value in flat), bool, flat.size)
    bad = np.fromiter((not _is_real(value) for value in flat), bool, flat.size) & ~missing
    if not np.any(bad):
        flat = np.where(missing, np.nan, flat)
        try:
            return flat.astype(np.float64).reshape(array.shape), ""
        except OverflowError:
            raise ValueError(
                f"`{name}` must have numbers that float64 can hold. Received: {name} with an "
                "integer beyond 1.8e308"
            ) from None
    first = flat[np.argmax(bad)]
    what = "words" if isinstance(first, str | bytes) else f"values of type {type(first).__name__}"
    where = ""
    if names is not None and array.ndim == 2:
        columns = np.flatnonzero(np.any(bad.reshape(array.shape), axis=0))
        where = f" in the columns {[names[i] for i in columns]}"
    return array, f" with {what}{where}" + (f": {encoder}" if what == "words" else "")


def _is_missing(value):
    return value is None or value is np.ma.masked or type(value).__name__ == "NAType"


def _is_real(value):
    real = isinstance(value, numbers.Real | np.bool_ | decimal.Decimal)
    return real and not isinstance(value, np.timedelta64)


def input_items(x, input_tensors, name="x"):
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


def shape_of(values):
    """Returns the shape of an array, or `None` if NumPy cannot make one array of the values."""
    if _is_read_by_item(values):
        return None
    try:
        return np.shape(values)
    except (TypeError, ValueError, NotImplementedError):
        return None


def check_inputs(x, input_tensors, name="x", standardized=None):
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


def _check_input(values, tensor, name, standardized):
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


def _what_is_bad(values):
    masked = isinstance(values, np.ma.MaskedArray)
    return "masked, NaN or infinite values" if masked else "NaN or infinite values"


def check_size(name, array, largest, columns=None):
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


def check_finite(name, array, columns=None, what="NaN or infinite values"):
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


def _check_none(name, bad, rule, what="NaN or infinite values", columns=None):
    if np.any(bad):
        count, first = np.count_nonzero(bad), np.argwhere(bad)[0]
        column = f", in column {columns[first[1]]!r}" if columns else ""
        raise ValueError(
            f"`{name}` {rule}. Received: {name} with {count} {what}, "
            f"the first at [{', '.join(map(str, first))}]{column}"
        )


def check_not_infinite(name, array):
    """Refuses infinite values where NaN is missing.

    Raises:
        ValueError: If there are any; the message has their number and the place of the first.
    """
    rule = "must not be infinite (NaN marks a missing target)"
    _check_none(name, np.isinf(array), rule, "infinite values")


def check_targets(
    y,
    num_rows,
    num_outputs,
    missing_allowed,
    dtype,
    name="y",
    num_labels=None,
    largest=LARGEST_VALUE,
):
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
    if missing_allowed:
        check_not_infinite(name, array)
    else:
        is_missing = num_labels is None and np.any(np.isnan(array))
        who = " (with a missing target, NaN, `tagi.TAGIModel` can learn)" if is_missing else ""
        _check_none(name, ~np.isfinite(array), f"must be finite{who}", _what_is_bad(y))
    if num_labels is not None:
        check_labels(array, num_labels, name)
    check_size(name, array, largest)
    return _cast(array, dtype)


def _cast(array, dtype):
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


def check_labels(values, num_labels, name="y", what="labels"):
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


def split_rows(arrays, fraction):
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
