"""Every Python block of the README and the docs runs, in order, page by page."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EPOCHS = re.compile(r"\bepochs=(\d+)")
#: More than the burn-in of a stable process.
MOST_EPOCHS = 12
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def pages_with_code():
    return [page for page in PAGES if BLOCK.search(page.read_text())]


def shortened(block):
    """A block with fewer epochs: that it runs is what is tested, not how well it fits."""
    return EPOCHS.sub(lambda found: f"epochs={min(int(found[1]), MOST_EPOCHS)}", block)


def test_there_is_code_to_run():
    names = {page.name for page in pages_with_code()}
    assert {"README.md", "tagi.md"} <= names


@pytest.mark.slow
@pytest.mark.parametrize("page", pages_with_code(), ids=lambda page: page.name)
def test_code_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__docs__"}
    for block in BLOCK.findall(page.read_text()):
        exec(compile(shortened(block), str(page), "exec"), names)
    if "model" in names:  # what a page of regression ends with
        assert names["model"].predict(names["x"])["stddev"].shape == names["y"].shape
