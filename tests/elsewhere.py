"""Runs code of tests in another process."""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent

#: Folders that such code imports from: the package, shared parts of tests, tests of models.
FOLDERS = [HERE.parent, HERE, HERE / "reference", HERE / "model"]

#: The environment of such a process.
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, FOLDERS))}


def run_elsewhere(code, *arguments):
    """Runs code in another process, whose last word must be "done"."""
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=ENVIRONMENT)
    assert done.stdout.split()[-1:] == ["done"], done.stdout + done.stderr[-2000:]
