"""Calls of one model from several threads."""

import contextlib
import functools
import threading


class Turns:
    """Locks of one model: one thread at a time trains it, and one computes scores.

    Predictions and function draws change nothing and take no turns, nor do two models wait for each
    other. A thread that has a turn may begin another: callbacks of `fit` may evaluate.
    """

    def __init__(self):
        self.training = threading.RLock()
        self._scoring = threading.RLock()
        self._scorer = None

    @contextlib.contextmanager
    def scoring(self):
        """Inside, the metrics of evaluation belong to this thread."""
        with self._scoring:
            outer, self._scorer = self._scorer, threading.get_ident()
            try:
                yield
            finally:
                self._scorer = outer

    @property
    def is_scoring(self):
        """Whether this thread is computing scores."""
        return self._scorer == threading.get_ident()


def one_thread_at_a_time(method):
    """A method of a model that trains it: calls from other threads wait for their turn."""

    @functools.wraps(method)
    def in_turn(self, *args, **kwargs):
        with self._turns.training:
            return method(self, *args, **kwargs)

    return in_turn
