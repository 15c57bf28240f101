"""Every Python block of the README and the docs runs, in order, page by page."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def pages_with_code():
    return [page for page in PAGES if BLOCK.search(page.read_text())]


def test_there_is_code_to_run():
    names = {page.name for page in pages_with_code()}
    assert {"README.md", "tagi.md"} <= names


@pytest.mark.slow
@pytest.mark.parametrize("page", pages_with_code(), ids=lambda page: page.name)
def test_code_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__docs__"}
    for block in BLOCK.findall(page.read_text()):
        exec(compile(block, str(page), "exec"), names)
    model = names["model"]
    assert model.predict(names["x"])["stddev"].shape == names["y"].shape
