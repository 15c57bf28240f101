"""Ctrl-C at moments when the state of a model is whole.

While `deferred` runs in the main thread, the first Ctrl-C waits for the next `check`, and the
second is raised at once, unless a block is `held`: then at its end. Programs with a handler of
their own for SIGINT keep it.
"""

import contextlib
import signal
import threading
import time


class _State:
    """What is known of the process's signals, of which there is one set."""

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
def deferred():
    """Makes Ctrl-C wait for `check`, or for the end of the block, where it is raised."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield  # in a thread that is never interrupted, in another `deferred`, or as the user wants
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
def held():
    """A block that Ctrl-C does not tear apart, pressed however often; keep it short."""
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


def check(patience=0.0):
    """Raises `KeyboardInterrupt` if one has waited for so many seconds.

    Args:
        patience: Seconds.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    if _State.presses and time.monotonic() - _State.since >= patience:
        _raise()
