"""What an exported model offers: functions of tensors, with the names and kinds of these."""

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tfp_fnspace.tracing import collectable
from tfp_fnspace.typing import Tensor

if TYPE_CHECKING:
    from tfp_fnspace.model import FunctionSpaceModel


def input_specs(model: "FunctionSpaceModel", input_signature: Any = None) -> list[tf.TensorSpec]:
    """Returns the named kinds of the inputs.

    Args:
        model: Fitted `FunctionSpaceModel`.
        input_signature: As for `FunctionSpaceModel.export`.

    Returns:
        List of `tf.TensorSpec`. By default the number of rows is free, and the dtypes are
        `model.served_dtypes`.

    Raises:
        ValueError: If the signature does not suit the inputs.
    """
    names = ["x"] if len(model.input_tensors) == 1 else _input_names(model.input_tensors)
    specs = [
        tf.TensorSpec((None, *tensor.shape[1:]), dtype, name=name)
        for name, tensor, dtype in zip(names, model.input_tensors, model.served_dtypes, strict=True)
    ]
    if input_signature is None:
        return specs
    given = tf.nest.flatten(input_signature)
    if len(given) != len(specs) or not all(map(_suits, given, specs)):
        needed = ", ".join(f"{spec.shape} {spec.dtype.name}" for spec in specs)
        raise ValueError(
            "`input_signature` must have a spec with a shape and a dtype for each input, like "
            f"{needed}; the number of rows may be fixed, and real inputs may have another dtype of "
            f"numbers. Received: input_signature={input_signature!r}"
        )
    return [
        tf.TensorSpec((one.shape[0], *spec.shape[1:]), one.dtype, name=spec.name)
        for one, spec in zip(given, specs, strict=True)
    ]


def _suits(given, spec):
    """Returns whether a user's spec suits the default one of an input."""
    if getattr(given, "shape", None) is None or getattr(given, "dtype", None) is None:
        return False
    dtype, is_real = tf.as_dtype(given.dtype), spec.dtype.is_floating
    has_dtype = dtype.is_integer or (is_real and dtype.is_floating)
    return has_dtype and spec.shape.is_compatible_with(given.shape)


def serve_of(model: "FunctionSpaceModel") -> Callable[..., dict[str, Tensor]]:
    """Returns the function from inputs to the tensors of `serve`, NaN where an input is unknown."""

    def serve(*inputs):
        outputs = model.served_outputs(inputs[0] if len(inputs) == 1 else list(inputs))
        known = _finite_rows(inputs)
        return {name: _nan_unless(known, _served(model, v), 0) for name, v in outputs.items()}

    return serve


def sample_of(model: "FunctionSpaceModel", num_samples: int) -> Callable[..., Tensor]:
    """Returns the function from inputs and a seed to functions, NaN where an input is unknown."""

    def sample(*inputs):
        *inputs, seed = inputs
        x = inputs[0] if len(inputs) == 1 else inputs
        functions = _served(model, model.draw_functions(x, num_samples, seed))
        return _nan_unless(_finite_rows(inputs), functions, 1)

    return sample


def check_served_range(model: "FunctionSpaceModel") -> None:
    """Refuses to export a model whose targets the served dtype cannot hold.

    Args:
        model: Fitted `FunctionSpaceModel`.

    Raises:
        ValueError: If the targets are too large or too small.
    """
    scaler = model.units.target_scaler
    unit, mean = scaler.stddev.numpy(), scaler.mean.numpy()
    held = np.finfo(model.variable_dtype)
    # This leaves room for values thousands of units away, and for small parts of a unit.
    largest = np.maximum(unit, np.abs(mean)) > 1e-4 * held.max
    bad = np.flatnonzero(largest | (unit < 1e4 * held.tiny))
    if len(bad):
        raise ValueError(
            f"`export` serves {model.variable_dtype}, which cannot hold these targets: multiply "
            f"them by a number. Received: means={mean[bad].tolist()} and standard "
            f"deviations={unit[bad].tolist()} in columns {bad.tolist()}"
        )


def with_parameters(function: Callable[..., Any], names: Sequence[str]) -> Callable[..., Any]:
    """Returns a function with named parameters, so that an endpoint can be called by name."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    signature = inspect.Signature([inspect.Parameter(name, kind) for name in names])

    @collectable
    def endpoint(*arguments, **named):
        bound = signature.bind(*arguments, **named)
        return function(*bound.arguments.values())

    endpoint.__signature__ = signature  # pyright: ignore[reportAttributeAccessIssue]
    return endpoint


def _served(model, values):
    return tf.cast(values, model.variable_dtype)


def _finite_rows(inputs):
    """Returns whether all values of a row are finite, `[N]`."""
    rows = [tf.reshape(x, [tf.shape(x)[0], -1]) for x in inputs if x.dtype.is_floating]
    finite = [tf.reduce_all(tf.math.is_finite(x), axis=1) for x in rows]
    return (
        tf.reduce_all(tf.stack(finite), axis=0)
        if finite
        else tf.fill([tf.shape(inputs[0])[0]], True)
    )


def _nan_unless(known, values, axis):
    """Returns values with NaN in the unknown rows along an axis."""
    shape = [-1 if i == axis else 1 for i in range(values.shape.rank)]
    nan = tf.constant(float("nan"), values.dtype)
    return tf.where(tf.reshape(known, shape), values, nan)


def _input_names(tensors):
    """Returns the names that the user gave the inputs, or `x_0`, `x_1` ..."""
    names = [tensor.name for tensor in tensors]
    # Keras counts the names that it makes up, so that they differ from export to export.
    made_up = any(name.startswith(("keras_tensor", "input_layer")) for name in names)
    usable = all(name.isidentifier() for name in names) and not made_up
    return names if usable else [f"x_{i}" for i in range(len(names))]
