"""Executes the notebooks of this folder, each in a kernel of its own, top to bottom.

    python colabs/run.py                    all of them, full budget, into build/colabs/full
    python colabs/run.py --budget 0.02      shortened, into build/colabs/short
    python colabs/run.py 01 02              those whose names start so
    python colabs/run.py --missing ...      only those without an executed copy of what they are now

The notebooks in git have no outputs. `docs/site_hooks.py` makes pages of the executed copies.
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
BUILD = ROOT / "build" / "colabs"

#: What notebooks multiply their numbers of epochs by.
BUDGET_VARIABLE = "TFP_FNSPACE_COLAB_BUDGET"
SHORT_BUDGET = 0.02
_TIMEOUT = 1800


def notebooks():
    """The notebooks of this folder, sorted: every one, there is no list to be on."""
    return sorted(FOLDER.glob("*.ipynb"))


def read(path):
    """The notebook in a file."""
    return nbformat.read(path, as_version=4)


def fingerprint(notebook):
    """A hash of the cells' sources."""
    cells = [f"{cell.cell_type}\n{cell.source}" for cell in notebook.cells]
    return hashlib.sha256("\n\0".join(cells).encode()).hexdigest()


def executed_copy(path):
    """The executed copy of a notebook as it is now, a full run rather than a short one, or None."""
    wanted = fingerprint(read(path))
    for kind in ("full", "short"):
        copy = BUILD / kind / path.name
        if copy.exists() and read(copy).metadata.get("fnspace", {}).get("source") == wanted:
            return copy
    return None


def execute(path, budget, folder=None):
    """Runs a notebook and saves it with its outputs.

    Args:
        path: The notebook.
        budget: Its budget, 1 for a full run.
        folder: Where the copy goes; by default where the documentation looks for it.

    Returns:
        The executed notebook.

    Raises:
        nbclient.exceptions.CellExecutionError: If a cell fails.
    """
    from jupyter_client import AsyncKernelManager
    from nbclient import NotebookClient

    notebook = read(path)
    source = fingerprint(notebook)
    environment = {
        **os.environ,
        BUDGET_VARIABLE: str(budget),
        # Fits that are cut short have learnt nothing after so many steps, and say so.
        **({"PYTHONWARNINGS": "ignore:After"} if budget < 1 else {}),
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
    # When cells ran is of no use, and makes every copy different.
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
    notebook.metadata["fnspace"] = {"source": source, "budget": budget}
    folder = Path(folder or BUILD / ("full" if budget >= 1 else "short"))
    folder.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, folder / path.name)
    return notebook


def main(argv=None):
    """Executes what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="beginnings of names; all if none is given")
    parser.add_argument("--budget", type=float, default=1.0)
    parser.add_argument("--missing", action="store_true")
    arguments = parser.parse_args(argv)
    chosen = [p for p in notebooks() if p.name.startswith(tuple(arguments.names) or "")]
    if arguments.missing:
        chosen = [p for p in chosen if executed_copy(p) is None]
    for path in chosen:
        start = time.perf_counter()
        print(f"colabs/{path.name}: running, which says nothing until it is done", flush=True)
        execute(path, arguments.budget)
        folder = BUILD / ("full" if arguments.budget >= 1 else "short")
        seconds = f"{time.perf_counter() - start:.0f} s"
        print(f"colabs/{path.name}: {seconds}; executed in {folder / path.name}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
