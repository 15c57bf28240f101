"""Operations that converters lack, from those that they have, to the rounding of float32."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfp_fnspace.typing import Tensor

# Coefficients from the highest power down, of Moshier's Cephes library (`ndtrf.c`):
# erfc(x) = exp(-x^2) / x P(1 / x^2) for 1 < x < 2, with Q in place of P beyond, and
# erf(x) = x T(x^2) for |x| < 1.
_P = (
    2.326819970068386e-2,
    -1.387039388740657e-1,
    3.687424674597105e-1,
    -5.824733027278666e-1,
    6.210004621745983e-1,
    -4.944515323274145e-1,
    3.404879937665872e-1,
    -2.741127028184656e-1,
    5.638259427386472e-1,
)
_Q = (
    -1.047766399936249e1,
    1.297719955372516e1,
    -7.495518717768503e0,
    2.921019019210786e0,
    -1.015265279202700e0,
    4.218463358204948e-1,
    -2.820767439740514e-1,
    5.641895067754075e-1,
)
_T = (
    7.853861353153693e-5,
    -8.010193625184903e-4,
    5.188327685732524e-3,
    -2.685381193529856e-2,
    1.128358514861418e-1,
    -3.761262582423300e-1,
    1.128379165726710e0,
)

# Taylor series about 0, for |x| < 0.1 and |x| < 0.25.
_LOG1P = (*(float((-1) ** (k + 1)) / k for k in range(8, 0, -1)), 0.0)
_EXPM1 = (*(1.0 / math.factorial(k) for k in range(8, 0, -1)), 0.0)

#: Numbers of a sorted row whose length is not known before it is searched.
_LONGEST_ROW = 2**20


class NoCounterpartError(Exception):
    """Something that a runtime cannot compute, named by the message."""


def erf(x: Tensor) -> Tensor:
    """Returns the error function."""
    tail = 1.0 - _erfc_of_large(tf.abs(x))
    return tf.where(tf.abs(x) < 1.0, _erf_of_small(x), tf.where(x < 0.0, -tail, tail))


def erfc(x: Tensor) -> Tensor:
    """Returns `1 - erf(x)`, without cancellation."""
    tail = _erfc_of_large(tf.abs(x))
    tail = tf.where(x < 0.0, 2.0 - tail, tail)
    return tf.where(tf.abs(x) < 1.0, 1.0 - _erf_of_small(x), tail)


def _erf_of_small(x):
    x = tf.clip_by_value(x, -1.0, 1.0)
    return x * _polynomial(_T, x * x)


def _erfc_of_large(x):
    x = tf.maximum(x, 1.0)
    inverse = 1.0 / x
    square = inverse * inverse
    factor = tf.where(x < 2.0, _polynomial(_P, square), _polynomial(_Q, square))
    return tf.exp(-x * x) * inverse * factor


def log1p(x: Tensor) -> Tensor:
    """Returns `log(1 + x)`, also for small x."""
    return tf.where(tf.abs(x) < 0.1, _polynomial(_LOG1P, x), tf.math.log(1.0 + x))


def expm1(x: Tensor) -> Tensor:
    """Returns `exp(x) - 1`, also for small x."""
    return tf.where(tf.abs(x) < 0.25, _polynomial(_EXPM1, x), tf.exp(x) - 1.0)


def softplus(x: Tensor) -> Tensor:
    """Returns `log(1 + exp(x))`."""
    return tf.maximum(x, 0.0) + log1p(tf.exp(-tf.abs(x)))


def sinh(x: Tensor) -> Tensor:
    """Returns the hyperbolic sine."""
    power = expm1(tf.abs(x))
    half = 0.5 * (power + power / (power + 1.0))
    return tf.where(x < 0.0, -half, half)


def asinh(x: Tensor) -> Tensor:
    """Returns the inverse of `sinh`."""
    size = tf.abs(x)
    value = log1p(size + size * size / (1.0 + tf.sqrt(size * size + 1.0)))
    return tf.where(x < 0.0, -value, value)


def _polynomial(coefficients, x):
    value = tf.zeros_like(x) + coefficients[0]
    for coefficient in coefficients[1:]:
        value = value * x + coefficient
    return value


def divided(x: Tensor, y: Tensor) -> Tensor:
    """Returns `x / y`, and 0 where y is 0."""
    is_zero = tf.equal(y, 0.0)
    return tf.where(is_zero, 0.0, x / tf.where(is_zero, 1.0, y))


def times_log(x: Tensor, y: Tensor) -> Tensor:
    """Returns `x log y`, and 0 where x is 0."""
    is_zero = tf.equal(x, 0.0)
    return tf.where(is_zero, 0.0, x * tf.math.log(tf.where(is_zero, 1.0, y)))


def broadcast_shape(first: Tensor, second: Tensor) -> Tensor:
    """Returns the shape of what broadcasts two shapes, whose ranks are known."""
    first, second = (tf.convert_to_tensor(v) for v in (first, second))
    rank = max(first.shape[0], second.shape[0])
    ones = [tf.ones([rank - v.shape[0]], v.dtype) for v in (first, second)]
    first, second = (tf.concat([o, v], 0) for o, v in zip(ones, (first, second), strict=True))
    return tf.where(tf.equal(first, 1), second, first)


def solved(operation: Any, inputs: Sequence[Tensor]) -> Tensor:
    """Returns the solution of triangular systems whose matrices are constants.

    Raises:
        NoCounterpartError: If a matrix is not constant.
    """
    matrix = tf.get_static_value(inputs[0])
    if matrix is None:
        raise NoCounterpartError("triangular systems that depend on the inputs")
    keep = np.tril if operation.get_attr("lower") else np.triu
    matrix = keep(matrix.astype(np.float64))
    if operation.get_attr("adjoint"):
        matrix = np.swapaxes(matrix, -2, -1)
    return tf.matmul(tf.constant(np.linalg.inv(matrix), inputs[1].dtype), inputs[1])


def with_new_axes(operation: Any, inputs: Sequence[Tensor]) -> Tensor | None:
    """Returns `x[..., None, :]` and the like by `expand_dims`; `None` for other slices."""
    value, count = inputs[0], inputs[1].shape[0]
    masks = {
        key: operation.get_attr(f"{key}_mask")
        for key in ("begin", "end", "new_axis", "shrink_axis", "ellipsis")
    }
    kept = masks["begin"] & masks["end"] | masks["new_axis"] | masks["ellipsis"]
    if not masks["new_axis"] or masks["shrink_axis"] or kept != 2**count - 1:
        return None
    is_new, is_rest = (
        [bool(masks[key] >> i & 1) for i in range(count)] for key in ("new_axis", "ellipsis")
    )
    in_rest = value.shape.rank - (count - sum(is_new) - sum(is_rest))
    axis = 0
    for new, rest in zip(is_new, is_rest, strict=True):
        if new:
            value = tf.expand_dims(value, axis)
        axis += in_rest if rest else 1
    return value


def gathered(operation: Any, inputs: Sequence[Tensor]) -> Tensor | None:
    """Returns entries of each row of `[..., M]` at places of its own; `None` for other gathers."""
    values, places, axis = inputs
    count = operation.get_attr("batch_dims")
    if not count or values.shape.rank != count + 1 or tf.get_static_value(axis) not in (-1, count):
        return None
    rows = tf.reshape(places, [-1, tf.shape(places)[-1]])
    found = _at(tf.reshape(values, [-1, tf.shape(values)[-1]]), rows)
    found = tf.reshape(found, tf.shape(places))
    found.set_shape(operation.outputs[0].shape)
    return found


def lower_bound(ordered: Tensor, values: Tensor) -> Tensor:
    """Returns how many numbers of each sorted row `[B, M]` lie below values `[B, V]`."""
    size = tf.shape(ordered)[-1]
    bits = (ordered.shape[-1] or _LONGEST_ROW).bit_length()
    found = tf.zeros_like(values, tf.int32)
    for step in (2**bit for bit in reversed(range(bits))):
        last = found + (step - 1)
        is_below = _at(ordered, tf.minimum(last, size - 1)) < values
        found = tf.where(tf.logical_and(last < size, is_below), found + step, found)
    return found


def _at(values, places):
    """Returns the entries of each row of `[B, M]` at places `[B, V]`."""
    starts = tf.range(tf.shape(values)[0])[:, tf.newaxis] * tf.shape(values)[-1]
    return tf.gather(tf.reshape(values, [-1]), places + starts)


def _same(operation, inputs):
    return list(inputs)


def _of(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda operation, inputs: function(*inputs)


def _leaky(operation, inputs):
    gradient, features = inputs
    return tf.where(features > 0.0, gradient, operation.get_attr("alpha") * gradient)


#: Type of operations -> the rule that replaces it.
RULES = {
    "AddN": lambda operation, inputs: sum(inputs[1:], inputs[0]),
    "Asinh": _of(asinh),
    "BroadcastArgs": _of(broadcast_shape),
    "CheckNumerics": _same,
    "Cosh": _of(lambda x: 0.5 * (tf.exp(x) + tf.exp(-x))),
    "DivNoNan": _of(divided),
    "Erf": _of(erf),
    "Erfc": _of(erfc),
    "Expm1": _of(expm1),
    "GatherV2": gathered,
    "Identity": _same,
    "IdentityN": _same,
    "Inv": _of(lambda x: 1.0 / x),
    "IsFinite": _of(lambda x: tf.abs(x) < math.inf),
    "IsNan": _of(lambda x: tf.logical_not(tf.abs(x) <= math.inf)),
    "LeakyReluGrad": _leaky,
    "Log1p": _of(log1p),
    "LowerBound": _of(lower_bound),
    "MatrixTriangularSolve": solved,
    "PreventGradient": _same,
    "Reciprocal": _of(lambda x: 1.0 / x),
    "ReluGrad": _of(lambda gradient, features: tf.where(features > 0.0, gradient, 0.0)),
    "SigmoidGrad": _of(lambda y, gradient: gradient * y * (1.0 - y)),
    "Sinh": _of(sinh),
    "Softplus": _of(softplus),
    "SoftplusGrad": _of(lambda gradient, features: gradient * tf.sigmoid(features)),
    "StopGradient": _same,
    "StridedSlice": with_new_axes,
    "TanhGrad": _of(lambda y, gradient: gradient * (1.0 - y * y)),
    "Xlogy": _of(times_log),
}
