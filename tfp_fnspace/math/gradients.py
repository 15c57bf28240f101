"""Functions with gradients of their own."""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import tensorflow as tf

_P = ParamSpec("_P")
_T = TypeVar("_T")


def custom_gradient(function: Callable[_P, tuple[_T, Callable[..., Any]]]) -> Callable[_P, _T]:
    """Is `tf.custom_gradient`, of which type checkers do not know what the result returns.

    Args:
        function: Function that returns values, and a function from gradients in them to those in
            its arguments.

    Returns:
        Function that returns the values.
    """
    return tf.custom_gradient(function)
