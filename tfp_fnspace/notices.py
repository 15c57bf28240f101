"""Warnings that point to the line of the user's code that they are about."""

import contextlib
import os
import sys
import warnings
from collections.abc import Iterator

import keras
import tensorflow as tf

#: Folders of the code between a user's line and a warning.
_INSIDE = tuple(
    os.path.dirname(os.path.abspath(path)) + os.sep
    for path in (__file__, keras.__file__, tf.__file__)
)


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warns at the innermost line outside this library, Keras and TensorFlow.

    Args:
        message: What is wrong, and what can be done.
        category: Class of the warning.
    """
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_INSIDE):
        frame = frame.f_back
    warnings.warn_explicit(
        message,
        category,
        frame.f_code.co_filename,
        frame.f_lineno,
        module=frame.f_globals.get("__name__"),
        registry=frame.f_globals.setdefault("__warningregistry__", {}),
    )


@contextlib.contextmanager
def without_copy_keyword() -> Iterator[None]:
    """Hides a deprecation warning that is not about the user's code.

    Keras writes variables by `numpy.array`, and NumPy 2 warns for each `tf.Variable` that its
    `__array__` takes no `copy`.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "__array__ implementation doesn't", DeprecationWarning)
        yield
