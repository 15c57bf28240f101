"""Every notebook runs from top to bottom, and is stored with its output."""

import importlib.util
import os
import re
from pathlib import Path

import nbformat
import psutil
import pytest
from exhaustive import sample_of

ROOT = Path(__file__).resolve().parents[1]

_spec = importlib.util.spec_from_file_location("colabs_run", ROOT / "colabs" / "run.py")
colabs = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(colabs)

NOTEBOOKS = colabs.notebooks()
EACH = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)

WARNING = re.compile(r"(?i:warning|deprecat|traceback)|[A-Z]\w*Error\b")


def texts(notebook):
    """Yields the text that the outputs show."""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            yield output.get("text", "")
            yield from (v for k, v in output.get("data", {}).items() if k.startswith("text/"))


def test_there_are_notebooks():
    assert len(NOTEBOOKS) >= 7
    assert sorted(ROOT.glob("colabs/**/*.ipynb")) == NOTEBOOKS  # none is hidden in a subfolder


@EACH
def test_notebook_has_what_its_cells_showed(path):
    notebook = colabs.read(path)
    assert not colabs.is_stale(notebook), "the code is not what ran: make colabs"
    assert "widgets" not in notebook.metadata
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert_shows(notebook)


def test_other_code_than_what_ran_is_noticed():
    notebook = colabs.read(NOTEBOOKS[0])
    notebook.cells[0].source += " "  # the text cells may change
    assert not colabs.is_stale(notebook)
    notebook.cells[2].source += " "
    assert colabs.is_stale(notebook)


def assert_shows(notebook):
    """Checks for pictures, a "runs on" line, no warning, and no path of the machine."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert [output.text for output in outputs if output.get("name") == "stderr"] == []
    shown = [text for text in texts(notebook) if text]
    assert any("runs on" in text for text in shown)
    for text in shown:
        assert not WARNING.search(text), text
        for place in (str(ROOT), os.path.expanduser("~"), "/tmp/", "site-packages"):
            assert place not in text, text


@EACH
def test_notebook_installs_the_package_first_from_what_is_at_hand(path):
    notebook = colabs.read(path)
    title, install = notebook.cells[:2]
    assert title.source.startswith("# ")
    assert 'find_spec("tfp_fnspace")' in install.source
    assert 'glob("tfp_fnspace-*.whl"), here.parent]' in install.source
    sources = "".join(cell.source for cell in notebook.cells)
    assert "git+" not in sources and "colab.research" not in sources  # mkdocs.yml has the addresses


@pytest.mark.slow
def test_kernel_ends_with_its_notebook(tmp_path):
    cell = nbformat.v4.new_code_cell("import os; print(os.getpid())")
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), tmp_path / "pid.ipynb")
    notebook = colabs.execute(tmp_path / "pid.ipynb")
    (text,) = texts(notebook)
    assert not psutil.pid_exists(int(text))
    assert not colabs.is_stale(colabs.read(tmp_path / "pid.ipynb"))


@pytest.mark.slow
@pytest.mark.parametrize("stem", sample_of([path.stem for path in NOTEBOOKS], ["01_tagi"]))
def test_notebook_runs(stem, tmp_path):
    notebook = colabs.execute(colabs.FOLDER / f"{stem}.ipynb", tmp_path / "run.ipynb")
    assert_shows(notebook)
