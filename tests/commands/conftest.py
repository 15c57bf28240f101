"""A table in a file, and models that the command line has fitted to it."""

import pytest
from flats import flats

from tfp_fnspace import cli


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "flats.csv"
    flats().to_csv(path, index=False)
    return path


@pytest.fixture(scope="session")
def fitted(data):
    """The folder of a regression."""
    out = data.parent / "model"
    words = f"fit --data {data} --target rent --out {out} --method tagi --time-limit 1 --test 0.25"
    assert cli.main(words.split()) == 0
    return out


@pytest.fixture(scope="session")
def classifier(data):
    """The folder of a classification."""
    out = data.parent / "cities"
    words = f"fit --data {data} --target city --out {out} --method tagi --time-limit 1"
    assert cli.main(words.split()) == 0
    return out
