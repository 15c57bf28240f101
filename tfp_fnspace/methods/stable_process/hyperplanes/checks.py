"""Checks of the arguments of partitions."""

import numpy as np

from tfp_fnspace.typing import Array, ArrayLike

#: Squares of larger coordinates come near the end of float64; no data need them.
_LARGEST = 1e100


def checked_points(x: ArrayLike, num_inputs: int | None = None, name: str = "x") -> Array:
    """Returns points as a float64 matrix.

    Args:
        x: Array `[N, I]`, N >= 1, I >= 1.
        num_inputs: I, or `None` for any.
        name: Name of the points in error messages.

    Returns:
        float64 array `[N, I]`.

    Raises:
        ValueError: If the shape is another, or a value is not a number of reasonable size.
    """
    try:
        points = np.asarray(x, np.float64)
    except (TypeError, ValueError):
        kind = type(x).__name__
        raise ValueError(f"`{name}` must be numeric. Received: {name} of type {kind}") from None
    if points.ndim != 2 or 0 in points.shape:
        raise ValueError(
            f"`{name}` must have shape [N, I], N and I at least 1. "
            f"Received: {name}.shape={points.shape}"
        )
    if num_inputs is not None and points.shape[1] != num_inputs:
        raise ValueError(
            f"`{name}` must have {num_inputs} columns. Received: {name}.shape={points.shape}"
        )
    wrong = np.count_nonzero(~(np.abs(points) <= _LARGEST))
    if wrong:
        raise ValueError(
            f"`{name}` must be finite, at most {_LARGEST:g} in size. "
            f"Received: {name} with {wrong} other values"
        )
    return points


def checked_probabilities(probabilities: ArrayLike, num_atoms: int) -> Array:
    """Returns probabilities of atoms as a float64 array `[L]`.

    Raises:
        ValueError: If the shape is another, or they are not positive with sum 1.
    """
    try:
        values = np.asarray(probabilities, np.float64)
    except (TypeError, ValueError):
        kind = type(probabilities).__name__
        raise ValueError(
            f"`probabilities` must be numeric. Received: probabilities of type {kind}"
        ) from None
    if values.shape != (num_atoms,):
        raise ValueError(
            f"`probabilities` must have shape [{num_atoms}]. "
            f"Received: probabilities.shape={values.shape}"
        )
    total = np.sum(values)
    if not np.all(values > 0.0) or not abs(total - 1.0) < 1e-9:
        raise ValueError(
            "`probabilities` must be positive with sum 1. Received: probabilities with sum "
            f"{total:.6g}, smallest {np.min(values):.6g}"
        )
    return values
