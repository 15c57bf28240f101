"""No setting of the package depends on a data set: only `datasets` names them."""

import os
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = pathlib.Path(os.environ.get("TFP_FNSPACE_DATA", ROOT.parent / "shared" / "data"))

#: Names that are also English words: they count only where they are quoted.
WORDS = {"college", "computers", "deliveries", "energy", "houses", "power", "protein"}
WORDS |= {"salaries", "schools", "wine"}


def test_no_data_set_is_named():
    names = {path.stem for part in ("uci", "dev") for path in (DATA / part).glob("*.npz")}
    if not names:
        pytest.skip(f"needs the data sets in {DATA}")
    plain, words = "|".join(sorted(names - WORDS)), "|".join(sorted(names & WORDS))
    pattern = re.compile(rf"\b(?:{plain})\b|[\"'`](?:{words})[\"'`]", re.IGNORECASE)
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sorted((ROOT / "tfp_fnspace").rglob("*.py"))
        if "datasets" not in path.relative_to(ROOT).parts
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line)
    ]
    assert found == []
