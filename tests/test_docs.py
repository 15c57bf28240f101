"""Every Python block of the README and the docs runs, in order, page by page."""

import pathlib
import re

import pytest
from exhaustive import sample_of

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EPOCHS = re.compile(r"\bepochs=(\d+)")
#: More epochs than the burn-in of a stable process.
MOST_EPOCHS = 12
#: Pages that take long, and whose calls other tests make.
EXHAUSTIVE = {"sip.md", "sklearn.md", "stable_process.md", "writing_a_layer.md"}
#: Packages that the tests' environment may lack, by the pages that need them.
NEEDS = {"botorch.md": ("botorch", "ax"), "export.md": ("onnxruntime",)}
TIME_LIMIT = re.compile(r"\btime_limit=(\d+)")
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def pages_with_code():
    """Returns the pages with code, except those whose code the README has."""
    first = set(BLOCK.findall(PAGES[0].read_text()))
    return [PAGES[0]] + [page for page in PAGES if set(BLOCK.findall(page.read_text())) - first]


def shortened(block):
    """Returns a block with fewer epochs and seconds; tests run it, but do not judge its fit."""
    block = EPOCHS.sub(lambda found: f"epochs={min(int(found[1]), MOST_EPOCHS)}", block)
    if "Chains(" in block:
        block = block.replace("Chains(", "Chains(sweeps_per_epoch=5, ")
    else:
        short = "StableProcessModel(chains=fns.stable_process.Chains(sweeps_per_epoch=5), "
        block = block.replace("StableProcessModel(", short)
    return TIME_LIMIT.sub("time_limit=1", block)


def test_there_is_code_to_run():
    names = {page.name for page in pages_with_code()}
    assert {"README.md", "tagi.md"} <= names


NAMES = [page.relative_to(ROOT).as_posix() for page in pages_with_code()]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", sample_of(NAMES, [name for name in NAMES if name.split("/")[-1] not in EXHAUSTIVE])
)
def test_code_blocks_run(name, tmp_path, monkeypatch):
    page = ROOT / name
    for package in NEEDS.get(page.name, ()):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__docs__"}
    for block in BLOCK.findall(page.read_text()):
        exec(compile(shortened(block), str(page), "exec"), names)
    if "model" in names:  # a page of regression ends with a model
        assert len(names["model"].predict(names["x"])["stddev"]) == len(names["y"])
