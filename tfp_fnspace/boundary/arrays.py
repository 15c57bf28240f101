"""Anything that holds numbers, as a numeric NumPy array."""

import decimal
import numbers
from typing import Any

import numpy as np
import tensorflow as tf

from tfp_fnspace.boundary.columns import Names, column_names, is_series
from tfp_fnspace.typing import Array, ArrayLike

#: How to convert words to numbers, in columns of inputs and in labels.
_ENCODE_COLUMNS = "`pandas.get_dummies` makes numbers of them"
_ENCODE_LABELS = (
    "`pandas.factorize(y)[0]`, scikit-learn's `LabelEncoder` or `keras.layers.StringLookup` makes "
    "integers of them"
)

#: What can be done about a dtype, by its kind.
_REMEDIES = {
    "M": " (dates): `(x - start) / np.timedelta64(1, 'D')` makes days of them",
    "m": " (durations): `x / np.timedelta64(1, 's')` makes seconds of them",
    "c": ": the real and the imaginary part are two columns",
    "V": ": `numpy.lib.recfunctions.structured_to_unstructured` makes columns of fields",
}

#: Prefixes of the names of dtypes of dates, times and durations, in pandas and polars.
_TIMES = ("date", "time", "duration", "period", "interval")


def as_array(values: ArrayLike, name: str, labels: bool = False) -> Array:
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


def _converted(values: ArrayLike, name: str) -> Array:
    """Returns an array, which is masked where `values` are."""
    try:
        parts = values if isinstance(values, list | tuple) else [values]
        masked = any(isinstance(part, np.ma.MaskedArray) for part in parts)
        one_of_each_type = {type(part): part for part in [values, *parts]}.values()
        array, endless = None, [type(p).__name__ for p in one_of_each_type if is_read_by_item(p)]
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


def is_read_by_item(value: Any) -> bool:
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


def _refuse_times(values: ArrayLike, name: str) -> None:
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


def _numbers_in(array: Array, names: Names | None, name: str, encoder: str) -> tuple[Array, str]:
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


def _is_missing(value: Any) -> bool:
    return value is None or value is np.ma.masked or type(value).__name__ == "NAType"


def _is_real(value: Any) -> bool:
    real = isinstance(value, numbers.Real | np.bool_ | decimal.Decimal)
    return real and not isinstance(value, np.timedelta64)


def places_of(labels: ArrayLike, classes: ArrayLike) -> Array:
    """Returns the place of each label among the classes, in the shape of the labels.

    Args:
        labels: Labels of classes, numbers or words.
        classes: The known labels `[K]`, in their order.

    Raises:
        ValueError: If a label is none of the classes.
    """
    labels, classes = np.asarray(labels), np.asarray(classes)
    known = np.isin(labels, classes)
    if not np.all(known):
        raise ValueError(
            "`y` must have labels of the classes that the estimator was fitted to. "
            f"Received: y with {np.unique(labels[~known]).tolist()}, classes={classes.tolist()}"
        )
    order = np.argsort(classes)
    return order[np.searchsorted(classes, labels, sorter=order)]


def checked_levels(levels: Any) -> list[float]:
    """Returns levels of quantiles as a list.

    Raises:
        TypeError: If they are not numbers.
        ValueError: If there is none, or one is not in (0, 1).
    """
    values = np.atleast_1d(as_array(levels, "levels").astype(np.float64))
    if values.ndim != 1 or not values.size or not np.all((values > 0.0) & (values < 1.0)):
        raise ValueError(
            "`levels` must lie strictly in (0, 1): a number, or a list of one at least. "
            f"Received: levels={levels!r}"
        )
    return values.tolist()
