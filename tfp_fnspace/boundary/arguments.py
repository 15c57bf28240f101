"""Checks of single arguments, whose errors state the rule and what was received."""

import math
import numbers
from collections.abc import Iterable
from typing import Any

import numpy as np


def is_number(value: Any) -> bool:
    """Returns whether a value is a real number and not a boolean."""
    # NumPy treats a duration as an integer.
    no_numbers = bool | np.bool_ | np.timedelta64
    return isinstance(value, numbers.Real) and not isinstance(value, no_numbers)


def is_integer(value: Any) -> bool:
    """Returns whether a value has an integer type; booleans do not count."""
    return isinstance(value, int | np.integer) and is_number(value)


def check_count(name: str, value: Any, least: int = 1) -> None:
    """Refuses values that are not integers of at least `least`.

    Args:
        name: Name of the argument.
        value: The given value.
        least: The smallest allowed value.

    Raises:
        ValueError: If it is something else; the message has the name and the value.
    """
    if not is_integer(value) or value < least:
        rules = {0: "a non-negative integer", 1: "a positive integer"}
        rule = rules.get(least, f"an integer of at least {least}")
        raise ValueError(f"`{name}` must be {rule}. Received: {name}={value!r}")


def checked_count(name: str, value: Any, least: int = 1) -> int:
    """Returns a checked Python integer (see `check_count`)."""
    check_count(name, value, least)
    return int(value)


def checked_number(
    name: str, value: Any, above: float = -math.inf, inclusive: bool = False
) -> float:
    """Checks and returns a finite number above a limit.

    Args:
        name: Name of the argument.
        value: The given value.
        above: The limit.
        inclusive: Whether the limit itself is allowed.

    Returns:
        Float.

    Raises:
        ValueError: If it is something else.
    """
    number = _as_float(value)
    if not math.isfinite(number) or not (number >= above if inclusive else number > above):
        word = "of at least" if inclusive else "greater than"
        rule = "" if above == -math.inf else f" {word} {above:g}"
        raise ValueError(f"`{name}` must be a finite number{rule}. Received: {name}={value!r}")
    return number


def checked_positive(name: str, value: Any) -> float:
    """Checks and returns a positive finite number.

    Args:
        name: Name of the argument.
        value: The given value.

    Returns:
        Float.

    Raises:
        ValueError: If it is something else.
    """
    number = _as_float(value)
    if not 0.0 < number < math.inf:
        raise ValueError(f"`{name}` must be a positive finite number. Received: {name}={value!r}")
    return number


def checked_fraction(name: str, value: Any) -> float:
    """Checks and returns a number from 0 to 1.

    Raises:
        ValueError: If it is something else.
    """
    number = checked_number(name, value, 0.0, inclusive=True)
    if number > 1.0:
        raise ValueError(f"`{name}` must be at most 1. Received: {name}={value!r}")
    return number


def checked_rate(name: str, value: Any) -> float:
    """Checks and returns a number from 0 to less than 1.

    Raises:
        ValueError: If it is something else.
    """
    number = checked_fraction(name, value)
    if number == 1.0:
        raise ValueError(f"`{name}` must be less than 1. Received: {name}={value!r}")
    return number


def checked_level(level: Any) -> float:
    """Checks and returns a probability strictly between 0 and 1.

    Raises:
        ValueError: If it is something else.
    """
    if not is_number(level) or not 0.0 < level < 1.0:
        raise ValueError(f"`level` must lie strictly between 0 and 1. Received: level={level!r}")
    return float(level)


def checked_choice(name: str, value: Any, choices: Iterable[Any]) -> Any:
    """Checks and returns one of several strings or numbers.

    Args:
        name: Name of the argument.
        value: The given value, of any type.
        choices: Iterable of the allowed values.

    Returns:
        The value.

    Raises:
        ValueError: If it is something else.
    """
    choices = list(choices)
    try:
        known = value in frozenset(choices)
    except TypeError:  # values without a hash, such as lists and arrays
        known = False
    if not known:
        rule = f"one of {choices}" if len(choices) > 1 else repr(*choices)
        raise ValueError(f"`{name}` must be {rule}. Received: {name}={value!r}")
    return value


def check_verbose(verbose: Any) -> None:
    """Refuses values of `verbose` that Keras does not know.

    Raises:
        ValueError: If it is another value.
    """
    checked_choice("verbose", verbose, ("auto", 0, 1, 2))


def _as_float(value: Any) -> float:
    """Returns a float: NaN for other types, infinity for integers beyond the largest float."""
    try:
        return float(value) if is_number(value) else math.nan
    except OverflowError:
        return math.inf


def refuse_unknown(method: str, options: dict[str, Any]) -> None:
    """Refuses arguments that a method does not have.

    Args:
        method: Name of the method.
        options: Dict of these arguments.

    Raises:
        TypeError: If there are any.
    """
    if options:
        given = ", ".join(f"{name}={value!r}" for name, value in options.items())
        raise TypeError(f"`{method}` takes no `{next(iter(options))}`. Received: {given}")


def what_it_is(value: Any) -> str:
    """Returns a hint for messages if a class, or an object of `tf_keras`, was given.

    It is a clause that begins with a colon and has no full stop, or an empty string.
    """
    cls = value if isinstance(value, type) else type(value)
    bases = cls.__mro__ if hasattr(cls, "__mro__") else ()
    if any(base.__module__.split(".")[0] == "tf_keras" for base in bases):
        return ": objects of `tf_keras`, Keras 2, are none of Keras 3 (`import keras`)"
    if isinstance(value, type):
        return f": an object, `{value.__name__}(...)`, not the class"
    return ""


def check_model(model: Any, *methods: str) -> None:
    """Refuses objects that are not models of this library, judging by the methods they need.

    Args:
        model: What was given.
        *methods: Names of the methods that are called.

    Raises:
        TypeError: If it is a class, or lacks one of these methods.
    """
    has_all = all(callable(getattr(model, name, None)) for name in methods)
    if isinstance(model, type) or not has_all:
        what = model if isinstance(model, type) else type(model)
        raise TypeError(
            f"`model` must be a FunctionSpaceModel (an instance){what_it_is(model)}. Received: "
            f"model={what.__name__}{'' if isinstance(model, type) else ' object'}"
        )


def refuse_old_tensors(values: Any) -> None:
    """Refuses symbolic tensors of `tf_keras`, which layers of Keras 3 cannot take.

    Args:
        values: Nested tuples, lists and dicts of tensors and other things.

    Raises:
        TypeError: If there are any.
    """
    if isinstance(values, dict):
        values = tuple(values.values())
    if isinstance(values, tuple | list):
        for value in values:
            refuse_old_tensors(value)
    elif type(values).__module__.startswith("tf_keras"):
        raise TypeError(
            "Inputs of a layer must be tensors, or symbolic tensors of Keras 3 (`keras.Input`), "
            f"not of `tf_keras`. Received: inputs of type {type(values).__module__}."
            f"{type(values).__name__}"
        )
