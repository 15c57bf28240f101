"""Sizes of tensors that are known although the number of rows is not."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfp_fnspace.typing import Array


def known_sizes(operations: Sequence[Any]) -> dict[str, Array]:
    """Returns integers that follow from the known sizes of tensors, by the names of tensors.

    Args:
        operations: Operations of a graph, each after those whose results it takes.
    """
    sizes, whole = {}, {}
    for operation in operations:
        values = _sizes(operation, sizes)
        if values is None:
            continue
        for tensor, value in zip(operation.outputs, values, strict=True):
            sizes[tensor.name] = value
            if all(size is not None for size in np.ravel(value)):
                whole[tensor.name] = np.array(value, tensor.dtype.as_numpy_dtype)
    return whole


def _sizes(operation, sizes):
    """Returns the outputs of an operation on shapes, with `None` for unknown sizes.

    Args:
        operation: An operation.
        sizes: Arrays of integers and `None`, by the names of the tensors that are known so far.

    Returns:
        List of arrays, or `None` if the operation is another one.
    """
    if operation.type == "Shape":
        shape = operation.inputs[0].shape
        return None if shape.rank is None else [np.array(shape.as_list(), object)]
    if operation.type not in ("StridedSlice", "Unpack", "Pack", "ConcatV2"):
        return None
    values = [sizes.get(t.name, _constant_value(t)) for t in operation.inputs]
    if all(t.name not in sizes for t in operation.inputs) or any(v is None for v in values):
        return None
    if operation.type == "StridedSlice":
        return _sliced(operation, *values)
    if operation.type == "Unpack":
        return list(values[0])
    if operation.type == "Pack":
        return [np.array(values, object)]
    return [np.concatenate([np.array(v, object) for v in values[:-1]])]


def _constant_value(tensor):
    return tf.get_static_value(tensor) if tensor.op.type == "Const" else None


def _sliced(operation, value, begin, end, strides):
    masks = {key: operation.get_attr(f"{key}_mask") for key in ("begin", "end", "shrink_axis")}
    if np.ndim(value) != 1 or operation.get_attr("new_axis_mask"):
        return None
    if masks["shrink_axis"]:
        return [value[int(begin[0])]]
    start = None if masks["begin"] else int(begin[0])
    stop = None if masks["end"] else int(end[0])
    return [value[slice(start, stop, int(strides[0]))]]
