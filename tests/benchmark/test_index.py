"""benchmarks/README.md names every script, and every script that it names is there."""

import re
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


def test_every_script_is_in_the_index():
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\b(\w+\.py)\b", text)) == {path.name for path in FOLDER.rglob("*.py")}


def test_every_script_that_runs_is_in_one_row():
    rows = [
        line
        for line in (FOLDER / "README.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("| ")
    ]
    for path in FOLDER.rglob("*.py"):
        runs = '__name__ == "__main__"' in path.read_text(encoding="utf-8")
        found = [row for row in rows if re.search(rf"\b{re.escape(path.name)}", row)]
        assert len(found) == runs, path.name
