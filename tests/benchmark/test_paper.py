"""The protocols of the papers, run by a quick method with known results; the fields of records."""

import json
import pathlib
import platform
import sys
import time
import types

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_fnspace
from tfp_fnspace import benchmark, registry
from tfp_fnspace.benchmark import protocol
from tfp_fnspace.cli import main
from tfp_fnspace.datasets import DATA_DIR_VARIABLE, load

tfd = tfp.distributions

ROOT = pathlib.Path(__file__).resolve().parents[2]

FIELDS = {"variant", "dataset", "split", "rmse", "nll", "crps", "coverage_90", "seconds"}
FIELDS |= {"config", "versions"}


class Constant:
    """Predicts the mean and the standard deviation of the training targets for every x."""

    def __init__(self, y):
        self.loc, self.scale = float(np.mean(y)), float(np.std(y))

    def predict_distribution(self, x):
        loc = tf.fill([len(x), 1], self.loc)
        return tfd.Independent(tfd.Normal(loc, self.scale), 1)


@pytest.fixture
def method(monkeypatch, tmp_path):
    """Registers a method `constant` with a protocol; it counts its fits and fails at some."""
    module = types.ModuleType("constant_method")
    module.fitted, module.fails_at, module.error = [], None, KeyboardInterrupt
    module.file = tmp_path / "constant.toml"

    def fit(x, y, *, units, seed):
        if len(module.fitted) == module.fails_at:
            module.fails_at = None
            raise module.error("fails")
        module.fitted.append(seed)
        return Constant(y), {"rows": len(x)}

    def write(units=(3, 4), more=""):
        module.file.write_text(
            f'method = "constant"\nerrors = "none"\nsettings = {{ units = {list(units)} }}\n{more}'
            "[variants.plain]\n[results.plain]\n"
            'first = { rmse = "1" }\nsecond = { rmse = "2" }\n'
        )

    module.fit, module.write = fit, write
    write()
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(registry.METHODS, "constant", module.__name__)
    return module


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Makes a folder with two data sets of 20 rows and 3 splits of 4 test rows."""
    monkeypatch.delenv(DATA_DIR_VARIABLE, raising=False)
    path = tmp_path / "data" / "uci"
    path.mkdir(parents=True)
    for seed, name in enumerate(["first", "second"]):
        rng = np.random.default_rng(seed)
        index = np.array([rng.permutation(20)[:4] for _ in range(3)])
        x, y = rng.normal(size=(20, 2)), rng.normal(5.0, 2.0, size=(20, 1))
        np.savez(path / f"{name}.npz", x=x, y=y, test_index=index)
    return path


@pytest.fixture
def run(method, folder, tmp_path):
    """Runs `run_paper` on all cells by default; the printed lines are in `run.lines`."""

    def run_paper(names=None, splits="all", **kwargs):
        run_paper.lines.clear()
        arguments = {"data_dir": folder, "out": run_paper.out, "echo": run_paper.lines.append}
        return benchmark.run_paper(method.file, None, names, splits, **{**arguments, **kwargs})

    run_paper.lines, run_paper.out = [], tmp_path / "results" / "uci.json"
    return run_paper


def places(records):
    return [(r["variant"], r["dataset"], r["split"]) for r in records]


# ------------------------------------------------------------------------------- splits


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("all", [0, 1, 2, 3, 4, 5, 6, 7]),
        ("3", [3]),
        ("0-4", [0, 1, 2, 3, 4]),
        ("0,2,5-7", [0, 2, 5, 6, 7]),
        ("5-7,6,0", [0, 5, 6, 7]),
        ("2-2", [2]),
    ],
)
def test_splits_are_read(text, expected):
    assert benchmark.parse_splits(text, 8) == expected


@pytest.mark.parametrize(
    "text", ["", "none", "8", "0-8", "-1", "3-1", "0,", "1-", "1-2-5", "0.5", "All"]
)
def test_wrong_splits_are_refused(text):
    with pytest.raises(ValueError, match=f"from 0 to 7, such as .*Received: splits='{text}'"):
        benchmark.parse_splits(text, 8)


# ------------------------------------------------------------------------------- records


def test_a_record_has_the_documented_fields(method, run):
    (record,) = run(names=["first"], splits="1")
    assert set(record) >= FIELDS
    assert places([record]) == [("plain", "first", 1)]
    assert record["config"] == {"units": [3, 4], "seed": 1}  # the seed is the split
    assert record["chosen"] == {"rows": 16}
    assert record["seconds"] >= 0.0
    assert set(record["machine"]) == {"processor", "cores", "system"}


def test_scores_are_those_of_the_test_rows(method, run, folder):
    (record,) = run(names=["second"], splits="2")
    split = load("second", folder).split(2)
    mean, stddev = split.y_train.mean(), split.y_train.std()
    error = (split.y_test - mean) / stddev
    nll = np.mean(0.5 * error**2 + np.log(stddev) + 0.5 * np.log(2 * np.pi))
    np.testing.assert_allclose(record["rmse"], stddev * np.sqrt(np.mean(error**2)), rtol=1e-5)
    np.testing.assert_allclose(record["nll"], nll, rtol=1e-5)
    assert record["coverage_90"] == np.mean(np.abs(error) < 1.6448536)


@pytest.mark.slow
def test_the_file_holds_the_records(method, run):
    records = run()
    assert json.loads(run.out.read_text()) == records
    assert places(records) == [
        ("plain", name, k) for name in ("first", "second") for k in (0, 1, 2)
    ]
    assert [path.name for path in run.out.parent.iterdir()] == ["uci.json"]


def test_versions_are_those_of_the_modules():
    assert benchmark.versions() == {
        "python": platform.python_version(),
        "tfp_fnspace": tfp_fnspace.__version__,
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
        "tensorflow-probability": tfp.__version__,
        "numpy": np.__version__,
    }


def test_summary_has_mean_and_standard_error_over_splits():
    places = [("TAGI", "boston", 0, 2.0), ("TAGI", "boston", 1, 4.0), ("TAGI", "yacht", 0, 1.0)]
    records = [
        {"variant": v, "dataset": d, "split": k, "rmse": rmse, "nll": -rmse, "seconds": 10.0}
        for v, d, k, rmse in places
    ]
    header, boston, yacht = benchmark.summary(records).splitlines()
    assert header.split() == ["variant", "dataset", "splits", "rmse", "nll", "seconds"]
    assert boston.split() == ["TAGI", "boston", "2", "3.0000±1.0000", "-3.0000±1.0000", "10.0"]
    assert yacht.split() == ["TAGI", "yacht", "1", "1.0000", "-1.0000", "10.0"]


# ------------------------------------------------------------------------------- resuming


@pytest.mark.slow
def test_cells_are_written_one_by_one_and_a_killed_run_resumes(method, run):
    method.fails_at = 2
    with pytest.raises(KeyboardInterrupt):
        run()
    done = json.loads(run.out.read_text())
    assert places(done) == [("plain", "first", 0), ("plain", "first", 1)]

    method.fails_at, method.fitted = None, []
    records = run()
    assert method.fitted == [2, 0, 1, 2]  # the seeds of the cells that were missing
    assert records[:2] == done
    assert len(records) == 6
    assert run.lines[0] == "6 cells, 2 of them done before"


def test_bad_data_in_one_cell_costs_no_other(method, run):
    method.fails_at, method.error = 1, ValueError
    with pytest.raises(ValueError, match=r"Received: \['plain first split 1'\] failed"):
        run()
    assert places(json.loads(run.out.read_text())) == [
        ("plain", "first", 0),
        ("plain", "first", 2),
        ("plain", "second", 0),
        ("plain", "second", 1),
        ("plain", "second", 2),
    ]
    assert "plain first split 1 failed: fails" in run.lines[2]


def test_a_finished_run_fits_nothing(method, run):
    first = run(splits="0")
    method.fitted = []
    assert run(splits="0") == first
    assert method.fitted == []
    assert run.lines == ["2 cells, 2 of them done before"]


def test_changed_settings_run_again_and_replace(method, run):
    run(splits="0,1")
    method.write(units=(5, 4))
    method.fitted.clear()
    records = run(names=["first"], splits="0")
    assert method.fitted == [0]
    assert len(records) == 4
    changed = [r for r in records if r["config"]["units"] == [5, 4]]
    assert places(changed) == [("plain", "first", 0)]


def test_every_cell_prints_its_scores_and_the_time_left(method, run, monkeypatch):
    now = iter(range(0, 6000, 60))
    monkeypatch.setattr(time, "monotonic", lambda: next(now))
    first, second = run(names=["first"], splits="0,1")
    # The clock is read once before the cells and three times in each: begin, end and after it.
    expected = f"rmse {first['rmse']:.4g}, nll {first['nll']:.4g}, 60.0 s; about 3.0 min left"
    assert run.lines[1] == f"[1/2] plain first split 0: {expected}"
    assert run.lines[2].startswith("[2/2] plain first split 1: ")
    assert run.lines[2].endswith("; about 0.0 min left")


def test_a_file_of_something_else_is_refused(method, run):
    run.out.parent.mkdir()
    run.out.write_text('{"a": 1}')
    with pytest.raises(ValueError, match="must hold a JSON list of records. Received: .*uci.json"):
        run()


# ------------------------------------------------------------------------------- protocols


def test_sets_and_variants_have_settings_of_their_own(method):
    method.write(more="[sets.second]\nunits = [9]\n[variants.wide]\nunits = [7]\n")
    found = protocol.read(method.file)
    assert found.datasets() == ["first", "second"]
    assert found.config("plain", "first", 2) == {"units": [3, 4], "seed": 2}
    assert found.config("wide", "first", 0) == {"units": [7], "seed": 0}
    assert found.config("wide", "second", 0) == {"units": [9], "seed": 0}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            "[sets.first]\ndepth = 2\n",
            "must be those of .*fit. Received: .*plain: .*keyword.*'depth'",
        ),
        ("[surprise]\n", r"must be a TOML file of method, errors.*\['surprise'\]"),
        ("method = 1\n", "must be a TOML file of.*Received: '.*constant.toml': "),
        ("[results.other]\n", r"Results must be of variants. Received: .*\['other'\]"),
    ],
)
def test_a_file_of_something_else_is_no_protocol(method, more, message):
    method.write(more=more)
    with pytest.raises(ValueError, match=message):
        protocol.read(method.file)


@pytest.mark.parametrize("name", ["diwp", "fbnn", "sip", "tagi"])
def test_protocols_of_the_checkout_are_settings_of_their_methods(name, monkeypatch):
    monkeypatch.chdir(ROOT)
    found = protocol.read(name)
    assert found.method == name and set(found.results) == set(found.variants)


# ------------------------------------------------------------------------------- where data are


@pytest.mark.parametrize("parent", [False, True])
@pytest.mark.parametrize("environment", [False, True])
def test_the_folder_is_that_of_the_files_or_its_parent(
    method, run, folder, monkeypatch, parent, environment
):
    data_dir = folder.parent if parent else folder
    if environment:
        monkeypatch.setenv(DATA_DIR_VARIABLE, str(data_dir))
        data_dir = None
    assert places(run(names=["first"], splits="0", data_dir=data_dir)) == [("plain", "first", 0)]


# ------------------------------------------------------------------------------- command line


def command(method, folder, out, **changed):
    options = {"datasets": "first", "splits": "0-1", "data-dir": folder, "out": out}
    options |= {name.replace("_", "-"): value for name, value in changed.items()}
    file = options.pop("file", method.file)
    pairs = [(f"--{name}", str(value)) for name, value in options.items() if value is not None]
    return ["benchmark", "paper", str(file), *(word for pair in pairs for word in pair)]


def test_command_prints_cells_summary_and_file(method, folder, tmp_path, capsys):
    out = tmp_path / "uci.json"
    assert main(command(method, folder, out, datasets=None)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "4 cells, 0 of them done before"
    assert [line.split()[0] for line in lines[1:5]] == ["[1/4]", "[2/4]", "[3/4]", "[4/4]"]
    assert [line.split()[:3] for line in lines[6:8]] == [
        ["plain", "first", "2"],
        ["plain", "second", "2"],
    ]
    assert lines[8] == f"results in {out}"
    assert [r["config"]["seed"] for r in json.loads(out.read_text())] == [0, 1, 0, 1]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"variants": "plain,magic"}, "A variant must be one of ['plain']. Received: 'magic'"),
        ({"file": "magic"}, "No such file or directory: 'benchmarks/uci/paper/magic.toml'"),
        ({"datasets": "first,third"}, "`name` must be one of ['first', 'second'] in "),
        ({"splits": "0-3"}, "numbers and ranges from 0 to 2, such as 0-4 or 0,2. Received"),
        ({"data_dir": "/nowhere"}, "must be an existing folder. Received: data_dir='/nowhere'"),
        ({"data_dir": None}, "A data folder must be given"),
    ],
)
def test_wrong_words_end_with_status_2_and_one_line(
    method, folder, tmp_path, capsys, changed, message
):
    out = tmp_path / "uci.json"
    assert main(command(method, folder, out, **changed)) == 2
    captured = capsys.readouterr()
    (line,) = captured.err.splitlines()
    assert line.startswith("error: ")
    assert message in line
    assert captured.out == ""
    assert method.fitted == []  # everything is checked before the first fit
    assert not out.exists()


# --------------------------------------------------------------------------- cells of scripts


def test_cells_that_are_missing_run_and_a_killed_run_goes_on(tmp_path):
    path, ran = tmp_path / "cells.json", []
    cells = [{"name": "a", "seed": 0}, {"name": "b", "seed": 0}, {"name": "b", "seed": 1}]

    def run(name, seed):
        if len(ran) == 2:
            raise KeyboardInterrupt
        ran.append((name, seed))
        return {"score": seed}

    with pytest.raises(KeyboardInterrupt):
        list(benchmark.run_missing(path, cells, run))
    assert ran == [("a", 0), ("b", 0)] and len(benchmark.read_records(path)) == 2
    (record,) = benchmark.run_missing(path, cells, lambda name, seed: {"score": 7, "seconds": 3})
    assert (record["name"], record["seed"], record["score"], record["seconds"]) == ("b", 1, 7, 3)
    assert "versions" in record and "machine" in record
    assert benchmark.read_records(path)[2] == record
    assert list(benchmark.run_missing(path, cells, run)) == []


# ------------------------------------------------------------------------- what is not right


@pytest.mark.parametrize("text", ["[{}]", "[1]", "[null]", '[{"method": "constant"}]', "[[]]"])
def test_a_results_file_without_records_is_one_line(method, folder, tmp_path, capsys, text):
    out = tmp_path / "uci.json"
    out.write_text(text)
    assert main(command(method, folder, out)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "must hold a JSON list of records" in line and "Received: path=" in line
    assert out.read_text() == text and method.fitted == []
