"""Checks of the arguments of Gram kernels."""

from typing import Any

import numpy as np
import tensorflow as tf

from tfp_fnspace.typing import Tensor


def check_parameter(name: str, value: Any) -> None:
    """Raises a ValueError unless a parameter is None or a scalar that can be positive and finite.

    Args:
        name: Name of the parameter.
        value: Number, tensor or variable (whose value is not inspected).

    Raises:
        ValueError: If it is not a scalar, or is known and not positive and finite.
    """
    if value is None:
        return
    if len(value.shape if hasattr(value, "shape") else np.shape(value)) != 0:
        raise ValueError(f"`{name}` must be a scalar. Received: {name}={value}")
    is_variable = hasattr(value, "assign")  # of TensorFlow or Keras
    known = None if is_variable else tf.get_static_value(tf.convert_to_tensor(value))
    if known is not None and not (np.isfinite(known) and known > 0.0):
        raise ValueError(f"`{name}` must be positive and finite. Received: {name}={value}")


def check_class_name(cls: type, other: type) -> None:
    """Raises a ValueError if a foreign class has the name of a kernel of the library.

    Args:
        cls: Class.
        other: Class that had this name before.

    Raises:
        ValueError: If it has such a name.
    """
    library = "tfp_fnspace."
    if other.__module__.startswith(library) and not cls.__module__.startswith(library):
        raise ValueError(
            "A kernel's class must not have the name of one of the library's kernels, by which "
            f"configurations name it. Received: class {cls.__module__}.{cls.__name__}"
        )


def check_broadcast(g_xx: Tensor, g_xy: Tensor, g_yy: Tensor) -> None:
    """Raises a ValueError unless the static shapes of the norms can broadcast to that of `g_xy`.

    Args:
        g_xx: Tensor.
        g_xy: Tensor.
        g_yy: Tensor.

    Raises:
        ValueError: If they cannot.
    """
    for name, norms in (("g_xx", g_xx), ("g_yy", g_yy)):
        try:
            fits = tf.broadcast_static_shape(norms.shape, g_xy.shape).is_compatible_with(g_xy.shape)
        except ValueError:
            fits = False
        if not fits:
            raise ValueError(
                f"`{name}` must broadcast to the shape of `g_xy`, {g_xy.shape}. "
                f"Received: {name}.shape={norms.shape}"
            )


def check_square(gram: Tensor) -> None:
    """Raises a ValueError unless the static shape of a tensor can be `[..., P, P]`.

    Args:
        gram: Tensor.

    Raises:
        ValueError: If it cannot.
    """
    if gram.shape.rank is None or gram.shape.rank < 2 or not _equal(*gram.shape[-2:]):
        raise ValueError(
            f"A Gram matrix must be square, `[..., P, P]`. Received: shape={gram.shape}"
        )


def check_blocks(ii: Tensor, it: Tensor, tt: Tensor) -> None:
    """Raises a ValueError unless the static shapes of three tensors can be those of `GramBlocks`.

    Args:
        ii: Tensor.
        it: Tensor.
        tt: Tensor.

    Raises:
        ValueError: If they cannot.
    """
    shapes = [block.shape for block in (ii, it, tt)]
    fits = all(shape.rank is not None for shape in shapes) and it.shape.rank >= 2
    fits = fits and tt.shape.rank in (it.shape.rank, it.shape.rank - 1)
    fits = fits and ii.shape.rank == it.shape.rank and _equal(ii.shape[-1], it.shape[-2])
    if not (fits and _equal(tt.shape[-1], it.shape[-1])):
        raise ValueError(
            "Gram blocks must have the shapes ii `[..., P, P]`, it `[..., P, N]`, and tt `[..., N]`"
            f" or `[..., N, N]`. Received: shapes={[str(shape) for shape in shapes]}"
        )


def _equal(first, second):
    """Returns whether two static sizes can be the same."""
    return first is None or second is None or first == second
