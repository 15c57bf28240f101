"""Parameters of distributions: their dtype, their ranges, and checks of their values."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_fnspace.math.parameters import as_parameter, is_deferred

tfb = tfp.bijectors


class Rule(NamedTuple):
    """The range of a parameter."""

    holds: Callable[[Any], Any]  # from an array or a tensor to booleans
    words: str  # for the error about a value known in the constructor
    short: str  # for the assertion about a value known later
    bijector: Callable[[tf.DType], Any] | None = None  # from the real line; None if there is none


STABLE_INDEX = Rule(
    lambda v: (v > 0.0) & (v <= 2.0),
    "in (0, 2]",
    "in (0, 2]",
    lambda dtype: tfb.Sigmoid(tf.zeros([], dtype), tf.constant(2.0, dtype)),
)
UNIT_INTERVAL = Rule(
    lambda v: (v > 0.0) & (v < 1.0), "in (0, 1)", "in (0, 1)", lambda _: tfb.Sigmoid()
)
SKEWNESS = Rule(lambda v: abs(v) <= 1.0, "in [-1, 1]", "in [-1, 1]", lambda _: tfb.Tanh())
FINITE = Rule(lambda v: abs(v) < np.inf, "finite", "finite")
POSITIVE = Rule(
    lambda v: (v > 0.0) & (v < np.inf), "positive and finite", "positive", lambda _: tfb.Softplus()
)
NON_NEGATIVE = Rule(
    lambda v: (v >= 0.0) & (v < np.inf),
    "at least 0 and finite",
    "at least 0",
    lambda _: tfb.Softplus(),
)


class CheckedParameters:
    """Mixin of distributions that checks the parameters named in `_RULES`.

    It comes before the distribution among the bases. TFP requires `_parameter_properties` in every
    class with a constructor, so each class calls `properties_of`.
    """

    _RULES: ClassVar[dict[str, Rule]] = {}
    validate_args: bool  # of the distribution

    def _store_parameters(self, dtype, **values):
        """Sets `_<name>` to the result of `as_parameter` for each value, and checks known values.

        Args:
            dtype: Floating dtype.
            **values: Arguments of the constructor.

        Raises:
            ValueError: If a known value breaks its rule.
        """
        for name, value in values.items():
            setattr(self, f"_{name}", as_parameter(value, dtype))
        for name, rule in self._RULES.items():
            check_known_parameter(name, getattr(self, f"_{name}"), rule.holds, rule.words)

    def _parameter_control_dependencies(self, is_init):
        if not self.validate_args:
            return []
        rules = (
            (getattr(self, f"_{name}"), rule.holds, f"`{name}` must be {rule.short}.")
            for name, rule in self._RULES.items()
        )
        return assertions(is_init, *rules)


def parameter(name: str, doc: str) -> property:
    """Makes a property that reads `_<name>`.

    Args:
        name: Name of the parameter.
        doc: Docstring.

    Returns:
        Property.
    """

    def read(self: Any) -> Any:
        return getattr(self, f"_{name}")

    return property(read, doc=doc)


def properties_of(rules: Mapping[str, Rule], dtype: tf.DType) -> dict[str, Any]:
    """Returns the result of TFP's `_parameter_properties` for parameters without event axes.

    Args:
        rules: Dict of `Rule`.
        dtype: Floating dtype.

    Returns:
        Dict of `tfp.util.ParameterProperties`.
    """

    def properties(rule):
        if rule.bijector is None:
            return tfp.util.ParameterProperties()
        return tfp.util.ParameterProperties(
            default_constraining_bijector_fn=lambda: rule.bijector(dtype)
        )

    return {name: properties(rule) for name, rule in rules.items()}


def common_dtype(*values: Any) -> tf.DType:
    """Returns the dtype of the values that have one, or float32 if none has.

    Args:
        *values: Numbers, arrays, tensors or variables.

    Returns:
        Floating `tf.DType`.

    Raises:
        TypeError: If they differ, or are not floating.
    """
    found = {tf.as_dtype(value.dtype) for value in values if hasattr(value, "dtype")}
    if len(found) > 1 or any(not dtype.is_floating for dtype in found):
        raise TypeError(
            "Parameters must have one floating dtype. "
            f"Received: dtypes={sorted(dtype.name for dtype in found)}"
        )
    return found.pop() if found else tf.float32


def check_known_parameter(name: str, value: Any, is_valid: Callable[[Any], Any], rule: str) -> None:
    """Raises a ValueError if a parameter has a known value and breaks its rule.

    Args:
        name: Name of the parameter.
        value: Tensor, or `tf.Variable` (whose value is never known).
        is_valid: Function from a NumPy array to an array of booleans.
        rule: The rule in words.

    Raises:
        ValueError: If `is_valid` is false anywhere.
    """
    known = None if is_deferred(value) else tf.get_static_value(value)
    if known is not None and not np.all(is_valid(known)):
        raise ValueError(f"`{name}` must be {rule}. Received: {name}={known}")


def assertions(is_init: bool, *rules: tuple[Any, Callable[[Any], Any], str]) -> list[Any]:
    """Returns assertions: for tensors in the constructor, for variables at every use.

    Args:
        is_init: Whether the constructor calls this.
        *rules: Triples of a parameter, a function to booleans, and a message.

    Returns:
        List of operations.
    """
    return [
        tf.debugging.Assert(tf.reduce_all(is_valid(tf.convert_to_tensor(value))), [message, value])
        for value, is_valid, message in rules
        if is_init != is_deferred(value)
    ]
