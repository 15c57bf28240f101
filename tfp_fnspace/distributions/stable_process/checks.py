"""Checks of the arguments of a stable process."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfp_fnspace.distributions._parameters import common_dtype
from tfp_fnspace.typing import Array, ArrayLike, Tensor


def common_dtype_with(index_points: ArrayLike, *parameters: ArrayLike) -> tf.DType:
    """Returns the dtype of the parameters; if none has one, that of the points if floating."""
    if any(hasattr(value, "dtype") for value in parameters):
        return common_dtype(*parameters)
    given = getattr(index_points, "dtype", None)
    is_floating = given is not None and tf.as_dtype(given).is_floating
    return common_dtype(index_points) if is_floating else tf.float32


def checked_partition(partition: Any) -> tuple[Array, Array]:
    """Checks and returns hyperplanes `[L, I+1]` and probabilities `[L]` as float64 arrays."""
    if not (hasattr(partition, "hyperplanes") and hasattr(partition, "probabilities")):
        raise ValueError(
            "`partition` must have the attributes `hyperplanes` and `probabilities`; "
            "`tfp_fnspace.stable_process.partition(x)` makes one. "
            f"Received: partition={partition!r}"
        )
    hyperplanes = np.asarray(partition.hyperplanes, np.float64)
    probabilities = np.asarray(partition.probabilities, np.float64)
    if hyperplanes.ndim != 2 or probabilities.shape != hyperplanes.shape[:1]:
        raise ValueError(
            "`partition` must have hyperplanes [L, I+1] and probabilities [L]. Received: "
            f"hyperplanes.shape={hyperplanes.shape}, probabilities.shape={probabilities.shape}"
        )
    if not (np.all(probabilities > 0.0) and abs(probabilities.sum() - 1.0) < 1e-6):
        raise ValueError(
            "`partition` must have positive probabilities of sum 1. "
            f"Received: probabilities with sum {probabilities.sum():.6g}"
        )
    return hyperplanes, probabilities


def checked_points(points: ArrayLike, name: str, width: int) -> Array:
    """Checks and returns points as a float64 array `[N, I]`, I = `width`."""
    known = tf.get_static_value(points) if tf.is_tensor(points) else points
    if known is None:
        raise ValueError(f"`{name}` must have a known value. Received: {name}={points}")
    known = np.asarray(known, np.float64)
    if known.ndim != 2 or len(known) < 1 or known.shape[1] != width:
        raise ValueError(
            f"`{name}` must have shape [N, {width}], N at least 1, for this partition. "
            f"Received: {name}.shape={known.shape}"
        )
    if not np.all(np.isfinite(known)):
        count = np.count_nonzero(~np.isfinite(known))
        raise ValueError(f"`{name}` must be finite. Received: {name} with {count} other values")
    return known


def checked_rows(values: ArrayLike, name: str, length: int, dtype: tf.DType) -> Tensor:
    """Checks and returns a tensor `[..., length]`; values without a dtype get `dtype`."""
    values = tf.convert_to_tensor(values, dtype_hint=dtype)
    if values.shape.rank == 0 or values.shape[-1] not in (None, length):
        raise ValueError(
            f"`{name}` must have shape [..., {length}]. Received: {name}.shape={values.shape}"
        )
    return values


def is_noiseless(noise_scale: Any, which: Callable[[Array], Any]) -> bool:
    """Returns whether any or all (`which`) of the noise scales are known to be 0."""
    noise = tf.get_static_value(noise_scale)
    return noise is not None and bool(which(noise == 0.0))


def check_regular(noise_scale: Any, signs: Array) -> None:
    """Checks that there is a density.

    Without noise there is one only if as many patterns as points are independent.
    """
    size = signs.shape[1]
    if is_noiseless(noise_scale, np.any) and np.linalg.matrix_rank(signs) < size:
        raise ValueError(
            "`observation_noise_scale` must be positive where the covariance is singular "
            f"(repeated points, or fewer patterns than points). Received: "
            f"observation_noise_scale={tf.get_static_value(noise_scale)}, "
            f"{size} points with {np.linalg.matrix_rank(signs)} independent patterns"
        )
