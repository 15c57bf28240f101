"""Stateless seeds, orders and normal draws: the same seed gives the same draws in any process."""

import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tfp_fnspace.boundary.arguments import check_count
from tfp_fnspace.typing import Array, Seed, Tensor

_INT32 = 2**31

_experimental = tf.random.experimental  # pyright: ignore[reportAttributeAccessIssue]


def base_seed(seed: int) -> Array:
    """Returns the two int32 numbers that stand for an integer seed.

    Args:
        seed: Non-negative integer.

    Returns:
        NumPy int32 array `[2]`.

    Raises:
        ValueError: If `seed` is not a non-negative integer.
    """
    check_count("seed", seed, 0)
    return np.random.SeedSequence(int(seed)).generate_state(2).astype(np.int32)


def as_seed(seed: Seed) -> Tensor:
    """Returns a stateless seed as an int32 tensor `[2]`.

    Args:
        seed: Integer, pair of integers, or integer tensor `[2]`.

    Returns:
        int32 tensor `[2]`.

    Raises:
        ValueError: If `seed` has another shape.
    """
    if isinstance(seed, int | np.integer):
        seed = base_seed(seed)
    if not tf.is_tensor(seed):
        # Keras seeds are int64, TFP's and this library's are int32: wrap instead of overflowing.
        values = np.asarray(seed)
        if values.shape != (2,) or not np.issubdtype(values.dtype, np.integer):
            raise ValueError(f"`seed` must be an integer or two integers. Received: seed={seed!r}")
        seed = ((values.astype(np.int64) + _INT32) % (2 * _INT32) - _INT32).astype(np.int32)
    return tf.cast(tf.convert_to_tensor(seed), tf.int32)


def fold_in(seed: Seed, data: int | Tensor) -> Tensor:
    """Returns a new stateless seed from `seed` and an integer.

    Args:
        seed: int32 tensor `[2]`.
        data: Integer or scalar integer tensor.

    Returns:
        int32 tensor `[2]`.
    """
    data = tf.cast(data, tf.int32)
    return _experimental.stateless_fold_in(seed, data)


def split(seed: Seed, num: int) -> list[Tensor]:
    """Returns independent seeds from one, with one draw of random numbers.

    Args:
        seed: int32 tensor `[2]`.
        num: Integer, the number of seeds.

    Returns:
        List of int32 tensors `[2]`.
    """
    return tf.unstack(_experimental.stateless_split(seed, num))


def normal(shape: Sequence[int | Tensor] | Tensor, seed: Seed, dtype: tf.DType | str) -> Tensor:
    """Returns standard normal draws, the same on CPUs and GPUs (XLA has another stream).

    Args:
        shape: Shape, a list or an integer tensor.
        seed: int32 tensor `[2]`.
        dtype: Floating dtype.

    Returns:
        Tensor of that shape.
    """
    return tf.random.stateless_normal(shape, seed, dtype=dtype)


def permutation(seed: Seed, epoch: int, num_rows: int) -> Array:
    """Returns the order in which epoch number `epoch` visits the rows.

    Args:
        seed: Two integers.
        epoch: Non-negative integer.
        num_rows: Number of rows.

    Returns:
        NumPy int32 array `[num_rows]`, a function of the arguments only.
    """
    entropy = [int(part) % (2 * _INT32) for part in seed] + [int(epoch)]
    order = np.random.Generator(np.random.Philox(np.random.SeedSequence(entropy)))
    return order.permutation(num_rows).astype(np.int32)


def fast_normal(
    shape: Sequence[int | Tensor] | Tensor, seed: Seed, dtype: tf.DType | str
) -> Tensor:
    r"""Draws standard normals by the transformation of Box and Muller, in vectorised operations.

    With u, v uniform on (0, 1],

        sqrt(-2 log u) cos(2 pi v),      sqrt(-2 log u) sin(2 pi v)

    are independent standard normals, exactly. The uniforms of a dtype end at its resolution, so
    that no draw is beyond 5.7 in float32 and 8.5 in float64. Half precision is drawn in float32.

    Args:
        shape: Shape, a list of integers and scalar tensors, or an integer tensor.
        seed: int32 tensor `[2]`.
        dtype: Floating dtype.

    Returns:
        Tensor of that shape.

    References:
        Box & Muller (1958), "A note on the generation of random normal deviates", Annals of
        Mathematical Statistics 29.
    """
    dtype = tf.as_dtype(dtype)
    work = dtype if dtype == tf.float64 else tf.float32
    static = tf.TensorShape(tf.get_static_value(tf.convert_to_tensor(shape, tf.int32), True))
    count = static.num_elements()
    if count is None:
        count = tf.reduce_prod(shape)
    half = (count + 1) // 2

    u, v = tf.unstack(tf.random.stateless_uniform([2, half], seed, dtype=work))
    radius = tf.sqrt(-2.0 * tf.math.log(1.0 - u))
    angle = 2.0 * math.pi * v
    values = tf.concat([radius * tf.cos(angle), radius * tf.sin(angle)], axis=0)
    return tf.cast(tf.reshape(values[:count], shape), dtype)
