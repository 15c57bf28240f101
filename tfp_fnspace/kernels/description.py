"""Conversion of kernels to names and numbers, and back."""

import functools
import inspect
import operator
from collections.abc import Callable, Iterable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_fnspace import kernels
from tfp_fnspace.typing import Config

tfpk = tfp.math.psd_kernels

_COMPOSITES = {"SumKernel": operator.add, "ProductKernel": operator.mul}


def describe(kernel: Any) -> Config:
    """Describes a kernel and its parts by names and arguments that JSON can hold.

    Args:
        kernel: `PositiveSemidefiniteKernel` with known parameters.

    Returns:
        Dict with the keys `kernel`, a name, and `parameters`.

    Raises:
        TypeError: If `kernel` is not such a kernel.
        ValueError: If a parameter has no known value, or a class or function is not known by name.
    """
    if not isinstance(kernel, tfpk.PositiveSemidefiniteKernel):
        raise TypeError(
            "A kernel must be a tfp.math.psd_kernels.PositiveSemidefiniteKernel. "
            f"Received: kernel={kernel!r}"
        )
    name = _name_of(type(kernel))
    defaults = inspect.signature(type(kernel).__init__).parameters
    properties = _properties(type(kernel), None)
    parameters = {}
    for key, value in kernel.parameters.items():
        is_default = key in defaults and value is defaults[key].default
        if value is None or is_default or key in ("name", "validate_args"):
            continue
        parameters[key] = _describe_value(key, value, key in properties)
    return {"kernel": name, "parameters": parameters}


def _describe_value(key, value, is_tensor):
    if isinstance(value, tfpk.PositiveSemidefiniteKernel):
        return describe(value)
    is_list = isinstance(value, list | tuple)
    if is_list and any(isinstance(v, Iterable) or _is_parameter_object(v) for v in value):
        return [_describe_value(key, v, is_tensor) for v in value]
    if not is_tensor and not (is_list or tf.is_tensor(value) or isinstance(value, np.ndarray)):
        return _describe_object(key, value)
    to_numpy = getattr(value, "numpy", None)
    known = value if to_numpy is None else to_numpy()
    if tf.is_tensor(known):
        raise ValueError(f"A kernel's `{key}` must have a known value. Received: {key}={value}")
    return {"tensor": np.asarray(known, np.float64).tolist()}


def _describe_object(key, value):
    description = keras.saving.serialize_keras_object(value)
    if callable(value):
        try:
            keras.saving.deserialize_keras_object(description)
        except (TypeError, ValueError) as error:
            raise ValueError(
                "A kernel's functions must be found by their names, so that models can be saved: "
                "define them in a module or register them by "
                f"keras.saving.register_keras_serializable. Received: {key}={value}"
            ) from error
    return description


def _is_parameter_object(value):
    return isinstance(value, tfpk.PositiveSemidefiniteKernel) or tf.is_tensor(value)


def build(
    description: Config,
    leaf: Callable[[str, Any, Callable[[tf.DType], Any] | None], Any],
    path: str = "",
) -> Any:
    """Builds a kernel from its description.

    Args:
        description: Result of `describe`.
        leaf: Function of a path, a value and a bijector (None, or a function of a dtype) that
            returns each tensor of the kernel.
        path: Path of this kernel in a larger one.

    Returns:
        `PositiveSemidefiniteKernel`.
    """
    cls = _class_of(description["kernel"])
    is_composite = description["kernel"] in _COMPOSITES

    def convert(key, value, here):
        if isinstance(value, list):
            return [convert(key, v, f"{here}/{i}") for i, v in enumerate(value)]
        if isinstance(value, dict) and "kernel" in value:
            return build(value, leaf, f"{here}/")
        if isinstance(value, dict) and "tensor" in value:
            is_known = not is_composite and key in _properties(cls, tf.float64)
            bijector = functools.partial(_bijector, cls, key) if is_known else None
            return leaf(here, value["tensor"], bijector)
        return keras.saving.deserialize_keras_object(value)

    arguments = {
        key: convert(key, value, f"{path}{key}") for key, value in description["parameters"].items()
    }
    if is_composite:
        return functools.reduce(cls, arguments["kernels"])
    return cls(**arguments)


def _bijector(cls, key, dtype):
    return _properties(cls, dtype)[key].default_constraining_bijector_fn()


def _properties(cls, dtype):
    """Returns properties of the tensor parameters of a kernel class, empty if not available."""
    try:
        properties = cls.parameter_properties(dtype=dtype or tf.float64)
    except NotImplementedError:
        return {}
    return {key: value for key, value in properties.items() if value.is_tensor}


def _name_of(cls):
    name = cls.__name__.removeprefix("_NonCompositeTensor").removeprefix("_")
    is_of_tfp = cls.__module__.startswith("tensorflow_probability.")
    is_composite = is_of_tfp and name in _COMPOSITES
    if is_composite or (_public(name) is not None and (is_of_tfp or _public(name) is cls)):
        return name
    registered = keras.saving.get_registered_name(cls)
    if keras.saving.get_registered_object(registered) is not cls:
        raise ValueError(
            "A kernel's class must be one of TFP or of tfp_fnspace.kernels, or registered by "
            f"keras.saving.register_keras_serializable. Received: class={cls.__name__}"
        )
    return registered


def _public(name):
    """Returns the kernel class of features with a name in TFP or here, or None."""
    for module in (tfpk, kernels):
        found = getattr(module, name, None)
        if isinstance(found, type) and issubclass(found, tfpk.PositiveSemidefiniteKernel):
            return found
    return None


def _class_of(name):
    """Returns the class of a kernel; for a sum or a product, a function of two kernels."""
    found = _COMPOSITES.get(name) or _public(name) or keras.saving.get_registered_object(name)
    if found is None:
        raise ValueError(f"A kernel's class must be known by its name. Received: kernel={name!r}")
    return found
