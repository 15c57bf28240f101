"""Hides lines that TensorFlow's libraries print while they are loaded.

The libraries write to the process's standard error before any of their settings takes effect.
"""

import contextlib
import importlib
import os
import re
import sys
import tempfile
from collections.abc import Iterator

_LINES_OF_LIBRARIES = re.compile(
    rb"WARNING: All log messages before absl|[IW]\d{4} .*\.cc:\d+\] "
    rb"|E\d{4} .*(failed call to cuInit|Unable to register cu\w+ factory)"
)


def load_tensorflow_quietly() -> None:
    """Imports TensorFlow without the lines that its libraries write to standard error.

    Later, only errors are written, unless `TF_CPP_MIN_LOG_LEVEL` is set. Where TensorFlow is loaded
    already, it has written what it had to say.
    """
    if "tensorflow" in sys.modules:
        return
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with without_lines_of_libraries():
        # The first search for a GPU prints that there is none, which is not an error here.
        importlib.import_module("tensorflow").config.list_physical_devices("GPU")


@contextlib.contextmanager
def without_lines_of_libraries() -> Iterator[None]:
    """Holds standard error back; writes it at the end without TensorFlow's own lines."""
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as written:
        os.dup2(written.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
            written.seek(0)
            kept = [line for line in written if not _LINES_OF_LIBRARIES.match(line)]
            os.write(2, b"".join(kept))
