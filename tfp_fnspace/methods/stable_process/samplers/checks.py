"""Checks of the samplers' arguments: arrays, numbers and static shapes, outside of graphs."""

import math
from typing import Any

import numpy as np

from tfp_fnspace.boundary import arrays, data
from tfp_fnspace.boundary.arguments import is_number
from tfp_fnspace.methods.stable_process.hyperplanes.checks import checked_probabilities
from tfp_fnspace.typing import Array, ArrayLike


def _pair(value):
    values = list(value) if isinstance(value, list | tuple | np.ndarray) else []
    if len(values) != 2 or not all(map(is_number, values)):
        return None
    return float(values[0]), float(values[1])


def checked_alpha_interval(name: str, interval: Any) -> tuple[float, float]:
    """Returns the ends of an interval in [0, 2], two floats.

    Raises:
        ValueError: If it is something else.
    """
    pair = _pair(interval)
    if pair is None or not 0.0 <= pair[0] < pair[1] <= 2.0:
        raise ValueError(
            f"`{name}` must be an interval (low, high) with 0 <= low < high <= 2. "
            f"Received: {name}={interval!r}"
        )
    return pair


def checked_nu_prior(moments: Any) -> tuple[float, float]:
    """Returns the mean and standard deviation of log nu, two floats.

    Raises:
        ValueError: If they are something else.
    """
    pair = _pair(moments)
    if pair is None or not np.all(np.isfinite(pair)) or not pair[1] > 0.0:
        raise ValueError(
            "`nu_prior` must be the mean and the positive standard deviation of log nu. "
            f"Received: nu_prior={moments!r}"
        )
    return pair


def check_type(name: str, value: Any, cls: type) -> None:
    """Refuses a value that is not an object of a class.

    Raises:
        TypeError: With the types.
    """
    if not isinstance(value, cls):
        raise TypeError(
            f"`{name}` must be a {cls.__name__}. Received: {name} of type {type(value).__name__}"
        )


def check_one_step(one_step: Any) -> None:
    """Refuses a value that cannot be called, such as the name of a sampler.

    Raises:
        TypeError: With the value.
    """
    if not callable(one_step):
        raise TypeError(
            "`one_step` must be a function, such as a value of `samplers.SAMPLERS`. "
            f"Received: one_step={one_step!r}"
        )


def _checked_matrix(name, values, shape, rows=None, columns=None):
    """Returns an array of the shape that `shape` describes; no axis is empty."""
    array = arrays.as_array(values, name)
    fits = array.ndim == 2 and 0 not in array.shape
    fits = fits and rows in (None, array.shape[0]) and columns in (None, array.shape[1])
    if not fits:
        raise ValueError(f"`{name}` must have shape {shape}. Received: {name}.shape={array.shape}")
    return array


def checked_arrays(
    signs: ArrayLike, probabilities: ArrayLike, targets: ArrayLike
) -> tuple[Array, Array, Array]:
    """Returns the checked arrays of a problem.

    Args:
        signs: Array `[N, L]`.
        probabilities: Array `[L]`.
        targets: Array `[B, N]`.

    Returns:
        int8 array `[N, L]`, float64 arrays `[L]` and `[B, N]`.

    Raises:
        TypeError: If they are not numbers.
        ValueError: If a shape does not fit, a sign is not -1 or +1, the probabilities are not
            positive with sum 1, or a target is not finite.
    """
    signs = _checked_matrix("signs", signs, "[N, L], N and L at least 1")
    wrong = np.count_nonzero(np.abs(signs) != 1)
    if wrong:
        raise ValueError(f"`signs` must be -1 or +1. Received: signs with {wrong} other values")
    rows, atoms = signs.shape
    probabilities = checked_probabilities(probabilities, atoms)
    shape = f"[B, {rows}], B at least 1 and a column for each row of `signs`"
    targets = _checked_matrix("targets", targets, shape, columns=rows).astype(np.float64)
    data.check_finite("targets", targets)
    return signs.astype(np.int8), probabilities, targets


def checked_per_chain(name: str, value: ArrayLike, chains: int, largest: float = math.inf) -> Array:
    """Returns a positive number for each chain.

    Args:
        name: Name of the argument, for messages.
        value: Number, or array `[B]`.
        chains: B.
        largest: The largest allowed value; by default any finite one.

    Returns:
        float64 array `[B]`.

    Raises:
        TypeError: If the values are not numbers.
        ValueError: If the shape is wrong, or a value is out of range.
    """
    values = arrays.as_array(value, name).astype(np.float64)
    if values.shape not in ((), (chains,)):
        raise ValueError(
            f"`{name}` must be a number or have shape [{chains}], one for each chain. "
            f"Received: {name}.shape={values.shape}"
        )
    wrong = values[~((values > 0.0) & (values <= largest) & np.isfinite(values))]
    if wrong.size:
        rule = "in (0, 2]" if largest == 2.0 else "positive and finite"
        raise ValueError(f"`{name}` must be {rule}. Received: {name}={wrong.flat[0]:g}")
    return np.broadcast_to(values, [chains])
