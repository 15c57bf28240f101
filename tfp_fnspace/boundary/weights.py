"""Weights of rows and of classes."""

from typing import Any

import numpy as np

from tfp_fnspace.boundary import arguments
from tfp_fnspace.boundary.arrays import as_array
from tfp_fnspace.typing import Array, ArrayLike

#: The largest weight; sums of more rows than fit into memory are then finite in float32.
LARGEST_WEIGHT = 1e9


def checked_weights(
    sample_weight: ArrayLike,
    num_rows: int,
    name: str = "sample_weight",
    whole: bool = False,
) -> Array:
    """Checks weights of rows.

    Args:
        sample_weight: Array `[N]`.
        num_rows: N.
        name: Name of the argument, for messages.
        whole: Whether weights must be whole numbers, because rows are counted one by one.

    Returns:
        float64 array `[N]`.

    Raises:
        TypeError: If the weights are not real numbers.
        ValueError: If the shape is wrong, or a weight is NaN, infinite, zero, negative, too large,
            or not whole although it must be.
    """
    weights = as_array(sample_weight, name)
    if weights.shape != (num_rows,):
        raise ValueError(
            f"`{name}` must have shape ({num_rows},), a weight for each row. "
            f"Received: {name} of shape {weights.shape}"
        )
    weights = weights.astype(np.float64)
    good = (weights > 0.0) & (weights <= LARGEST_WEIGHT)
    rule = f"positive numbers up to {LARGEST_WEIGHT:g}: leave out rows of weight zero"
    if whole and np.all(good):
        good = weights == np.floor(weights)
        rule = "whole numbers, since update='exact' learns the copies of a row one by one"
    if not np.all(good):
        bad = np.flatnonzero(~good)
        raise ValueError(
            f"`{name}` must hold {rule}. Received: {name} with {len(bad)} others, the first "
            f"{weights[bad[0]]:g} in row {bad[0]}"
        )
    return weights


def weights_of_classes(class_weight: Any, labels: Array, num_labels: int) -> Array:
    """Returns the weights of rows that follow from their classes.

    Args:
        class_weight: Dict from labels to positive numbers; a label that is missing has weight 1.
        labels: Array `[N, 1]` of labels.
        num_labels: Number of classes.

    Returns:
        float64 array `[N]`.

    Raises:
        ValueError: If `class_weight` is not a dict, a key is not a label, or a weight is not a
            positive finite number.
    """
    if not isinstance(class_weight, dict):
        raise ValueError(
            "`class_weight` must be a dict from labels to positive numbers. "
            f"Received: class_weight={class_weight!r}"
        )
    table = np.ones(num_labels)
    for label, weight in class_weight.items():
        if not arguments.is_integer(label) or not 0 <= label < num_labels:
            raise ValueError(
                f"`class_weight` must have integers from 0 to {num_labels - 1} as keys. "
                f"Received: class_weight with the key {label!r}"
            )
        table[label] = arguments.checked_positive(f"class_weight[{label}]", weight)
    return table[labels[:, 0].astype(int)]
