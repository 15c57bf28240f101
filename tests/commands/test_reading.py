"""Tables in files."""

import numpy as np
import pandas as pd
import pytest

from tfp_fnspace.commands import reading


def frame():
    return pd.DataFrame({"size": [1.5, np.nan, 3.0], "city": ["Bern", None, "Lyon"]})


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.parquet", "t.feather"])
def test_what_is_written_is_read(tmp_path, name):
    reading.write(frame(), tmp_path / name)
    found = reading.read(tmp_path / name)
    pd.testing.assert_frame_equal(found, frame(), check_dtype=False)


def test_arrays_of_npz_are_columns(tmp_path):
    path = tmp_path / "t.npz"
    x = np.arange(6.0).reshape(3, 2)
    np.savez(path, x=x, y=np.ones((3, 1)), city=np.array(["a", "b", "c"]))
    found = reading.read(path)
    assert list(found.columns) == ["x_0", "x_1", "y", "city"]
    np.testing.assert_array_equal(found[["x_0", "x_1"]], x)


def test_npz_is_written_as_it_is_read(tmp_path):
    table = frame()[["size"]]
    reading.write(table, tmp_path / "t.npz")
    pd.testing.assert_frame_equal(reading.read(tmp_path / "t.npz"), table)


def test_an_existing_file_survives_a_failed_write(tmp_path, monkeypatch):
    path = tmp_path / "t.csv"
    reading.write(frame(), path)
    before = path.read_text()

    def fail(self, path, **options):
        path.write_text("half")
        raise OSError("disk")

    monkeypatch.setattr(pd.DataFrame, "to_csv", fail)
    with pytest.raises(OSError, match="disk"):
        reading.write(frame(), path)
    assert path.read_text() == before
    assert [each.name for each in tmp_path.iterdir()] == ["t.csv"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.txt", "a\n1\n", "ends in .csv, .parquet, .feather or .npz. Received: '.*t.txt'"),
        ("t.csv", "", "must be a table in a csv file. Received: .*No columns"),
        ("t.csv", "a,b\n", "must have rows"),
        ("t.csv", "a, a\n1,2\n", r"different names. Received: \['a'\]"),
        ("t.csv", "a\n1\n2,3,4\n", "must be a table in a csv file. Received: .*line 3"),
        ("t.parquet", "no", "must be a table in a parquet file"),
        ("t.npz", "no", "must be a table in a npz file"),
    ],
)
def test_files_that_are_no_tables_are_refused(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(ValueError, match=message):
        reading.read(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="must be a file. Received: data='.*t.csv'"):
        reading.read(tmp_path / "t.csv")
