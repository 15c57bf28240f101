"""Calls of one model from several threads."""

import contextlib
import threading
from collections.abc import Iterator


class Turns:
    """Locks of one model: one thread at a time trains it, and one at a time computes scores.

    Predictions and function draws change nothing and need no lock. Two models never wait for each
    other. A thread that holds one lock may take the other: callbacks of `fit` may evaluate.

    Attributes:
        training: The lock of what changes the model, held in a `with` block.
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
