"""Calls of one model from several threads."""

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Concatenate, ParamSpec, TypeVar

_Model = TypeVar("_Model")
_P = ParamSpec("_P")
_R = TypeVar("_R")


class Turns:
    """Locks of one model: one thread at a time trains it, and one at a time computes scores.

    Predictions and function draws change nothing and need no lock. Two models never wait for each
    other. A thread that holds one lock may take the other: callbacks of `fit` may evaluate.
    """

    def __init__(self):
        self.training = threading.RLock()
        self._scoring = threading.RLock()
        self._scorer = None

    @contextlib.contextmanager
    def scoring(self) -> Iterator[None]:
        """Reserves the metrics of evaluation for this thread, within a `with` block."""
        with self._scoring:
            outer, self._scorer = self._scorer, threading.get_ident()
            try:
                yield
            finally:
                self._scorer = outer

    @property
    def is_scoring(self) -> bool:
        """Whether this thread is computing scores."""
        return self._scorer == threading.get_ident()


def one_thread_at_a_time(
    method: Callable[Concatenate[_Model, _P], _R],
) -> Callable[Concatenate[_Model, _P], _R]:
    """Decorates a method that trains a model: calls from other threads wait for their turn."""

    @functools.wraps(method)
    def in_turn(self, *args, **kwargs):
        with self.turns.training:
            return method(self, *args, **kwargs)

    return in_turn
