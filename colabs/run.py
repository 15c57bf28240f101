"""Runs the notebooks of this folder, each in a kernel of its own, and keeps what they show in them.

    python colabs/run.py            all of them
    python colabs/run.py 01 02      those whose names start so
    python colabs/run.py --stale    those whose code is not what ran

A notebook notes a hash of the code that ran: `make docs` and `tests/test_colabs.py` refuse one
whose code has changed since.
"""

import argparse
import hashlib
import os
import sys
import tempfile
import time
from pathlib import Path

try:
    import nbformat
except ImportError as error:
    sys.exit(f"error: notebooks need more packages, `pip install '.[notebooks]'`: {error}")

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "colabs"
_TIMEOUT = 1800


def notebooks():
    """The notebooks of this folder, sorted: every one, there is no list to be on."""
    return sorted(FOLDER.glob("*.ipynb"))


def read(path):
    """The notebook in a file."""
    return nbformat.read(path, as_version=4)


def fingerprint(notebook):
    """A hash of the code cells."""
    cells = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    return hashlib.sha256("\n\0".join(cells).encode()).hexdigest()


def is_stale(notebook):
    """Whether the outputs of a notebook are not those of its code."""
    return notebook.metadata.get("fnspace", {}).get("source") != fingerprint(notebook)


def execute(path, destination=None):
    """Runs a notebook and writes it with its outputs.

    Args:
        path: The notebook.
        destination: Where it is written, by default where it was.

    Returns:
        The executed notebook.

    Raises:
        nbclient.exceptions.CellExecutionError: If a cell fails; then nothing is written.
    """
    from jupyter_client import AsyncKernelManager
    from nbclient import NotebookClient

    notebook = read(path)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    }
    options = {
        "timeout": _TIMEOUT,
        "resources": {"metadata": {"path": str(FOLDER)}},
        # What TensorFlow's libraries say while they load is not the notebook's.
        "extra_arguments": ["--IPKernelApp.capture_fd_output=False"],
    }
    with tempfile.TemporaryDirectory() as sockets:
        # Through files: no port is opened.
        connection = os.path.join(sockets, "kernel.json")
        kernel = AsyncKernelManager(transport="ipc", connection_file=connection)
        client = NotebookClient(notebook, km=kernel, **options)
        client.execute(env=environment, cleanup_kc=True)  # a kernel that is given else lives on
    # When cells ran, and by which Python, is of no use and makes every run different.
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
    notebook.metadata["language_info"] = {"name": "python"}
    notebook.metadata["fnspace"] = {"source": fingerprint(notebook)}
    nbformat.write(notebook, destination or path)
    return notebook


def main(argv=None):
    """Runs what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="beginnings of names; all if none is given")
    parser.add_argument("--stale", action="store_true", help="only those that have changed")
    arguments = parser.parse_args(argv)
    chosen = [p for p in notebooks() if p.name.startswith(tuple(arguments.names) or "")]
    if arguments.stale:
        chosen = [p for p in chosen if is_stale(read(p))]
    for path in chosen:
        start = time.perf_counter()
        print(f"colabs/{path.name}: running, which says nothing until it is done", flush=True)
        execute(path)
        print(f"colabs/{path.name}: {time.perf_counter() - start:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
