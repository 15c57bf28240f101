"""Handling of Ctrl-C only at moments when the state of a model is consistent.

While `deferred` runs in the main thread, the first Ctrl-C waits for the next `check`. The second is
raised at once or, if a block is `held`, at its end. Programs with their own handler for SIGINT keep
it.
"""

import contextlib
import signal
import threading
import time
from collections.abc import Iterator


class _State:
    """The state of the process's signals, shared by all of its threads."""

    presses, held, since = 0, 0, 0.0


def _on_signal(signum, frame):
    _State.presses += 1
    if _State.presses == 1:
        _State.since = time.monotonic()
    elif not _State.held:
        _raise()


def _raise():
    _State.presses = 0
    raise KeyboardInterrupt


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Makes Ctrl-C wait for `check`, or for the end of the block, where it is raised."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield  # not the main thread, inside another `deferred`, or with the user's handler
        return
    _State.presses = 0
    signal.signal(signal.SIGINT, _on_signal)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        pending, _State.presses = _State.presses, 0
    if pending:
        raise KeyboardInterrupt


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Protects a block from Ctrl-C, however often it is pressed; keep the block short."""
    with deferred():
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        _State.held += 1
        try:
            yield
        finally:
            _State.held -= 1
        if _State.presses > 1 and not _State.held:
            _raise()


def check(patience: float = 0.0) -> None:
    """Raises `KeyboardInterrupt` if one has waited for at least `patience` seconds.

    Args:
        patience: Seconds.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    if _State.presses and time.monotonic() - _State.since >= patience:
        _raise()
