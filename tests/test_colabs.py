"""Every notebook runs top to bottom with a shortened budget, and is stored as it should be."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import psutil
import pytest

ROOT = Path(__file__).resolve().parents[1]

_spec = importlib.util.spec_from_file_location("colabs_run", ROOT / "colabs" / "run.py")
colabs = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(colabs)

NOTEBOOKS = colabs.notebooks()
EACH = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)

WARNING = re.compile(r"(?i:warning|deprecat|traceback)|[A-Z]\w*Error\b")


def texts(notebook):
    """What the outputs show as text."""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            yield output.get("text", "")
            yield from (v for k, v in output.get("data", {}).items() if k.startswith("text/"))


def test_there_are_notebooks():
    assert len(NOTEBOOKS) >= 7
    assert sorted(ROOT.glob("colabs/**/*.ipynb")) == NOTEBOOKS  # none is hidden in a folder


@EACH
def test_notebook_is_stored_without_outputs(path):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [] and cell["execution_count"] is None
    assert "widgets" not in notebook["metadata"] and "fnspace" not in notebook["metadata"]


@EACH
def test_notebook_installs_the_package_first_from_what_is_at_hand(path):
    notebook = colabs.read(path)
    title, install = notebook.cells[:2]
    assert title.source.startswith("# ")
    assert 'find_spec("tfp_fnspace")' in install.source
    assert 'glob("tfp_fnspace-*.whl"), here.parent]' in install.source
    sources = "".join(cell.source for cell in notebook.cells)
    assert "git+" not in sources and "colab.research" not in sources  # addresses: mkdocs.yml
    assert colabs.BUDGET_VARIABLE in sources


def test_kernel_ends_with_its_notebook(tmp_path):
    cell = nbformat.v4.new_code_cell("import os; print(os.getpid())")
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), tmp_path / "pid.ipynb")
    notebook = colabs.execute(tmp_path / "pid.ipynb", 1.0, tmp_path / "out")
    (text,) = texts(notebook)
    assert not psutil.pid_exists(int(text))


@pytest.mark.slow
@EACH
def test_notebook_runs(path):
    # The copy stays where the documentation looks for it: `make docs` need not run it again.
    budget = str(colabs.SHORT_BUDGET)
    command = [sys.executable, str(ROOT / "colabs" / "run.py"), "--budget", budget, path.name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-5000:]
    notebook = colabs.read(colabs.BUILD / "short" / path.name)
    assert notebook.metadata["fnspace"]["source"] == colabs.fingerprint(colabs.read(path))
    shown = [text for text in texts(notebook) if text]
    assert any("runs on" in text for text in shown)
    pictures = [
        output
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if "image/png" in output.get("data", {})
    ]
    assert pictures
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            assert output.get("name") != "stderr", output.text
    for text in shown:
        assert not WARNING.search(text), text
        for place in (str(ROOT), os.path.expanduser("~"), "/tmp/", "site-packages"):
            assert place not in text, text
