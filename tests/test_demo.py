"""The demo, as `make demo` runs it."""

import re
import shlex
import sys

import numpy as np
import pandas as pd
import pytest

from tfp_fnspace import demo
from tfp_fnspace.cli import main

NAMES = ("mean", "stddev", "quantiles", "sample", "sample_again")


@pytest.mark.slow
def test_demo_fits_scores_plots_exports_and_serves_by_commands(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(demo, "_METHODS", {"TAGI": ("tagi", 5)})
    folder = tmp_path / "new" / "demo"
    assert main(["demo", "--output-dir", str(folder)]) == 0
    out, errors = capsys.readouterr()

    commands = [shlex.split(line) for line in re.findall(r"\$ (tfp-fnspace .*)", out)]
    assert [words[1] for words in commands] == ["fit", "evaluate", "predict", "export"]
    predictions = pd.read_csv(folder / "predictions.csv")
    assert len(predictions) == 250 and {"mean", "low", "high"} <= set(predictions)
    assert (folder / "demo.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / "served" / "saved_model.pb").is_file()

    rmse, nll, crps, inside = scores("TAGI", out)
    line = scores("straight line", out)
    assert rmse < 0.8 * line[0] and nll < line[1] - 0.5 and crps < 0.7 * line[2]
    assert 80.0 < inside <= 100.0
    assert scores("mean and spread of y", out)[0] > 2.0 * line[0]
    shown = float(re.search(r"^  crps +(\S+) ", out, re.MULTILINE)[1])  # of the rows in the file
    assert abs(shown - crps) < 0.1

    assert "without tfp_fnspace, keras and tf_keras" in out
    assert "agreement: the served model is the same to 1e-05" in out
    assert "error:" not in errors
    seconds = [float(s) for s in re.findall(r"^\[ *(\d+\.\d) s\]", out, re.MULTILINE)]
    assert len(seconds) == 9
    assert seconds == sorted(seconds)


def scores(name, out):
    """Returns the numbers of a line of the table, without the seconds."""
    row = re.search(re.escape(name) + r"\s+(\S+)\s+(\S+)\s+(\S+)\s+(\S+) %\s+\S+$", out, re.M)
    return np.array(row.groups(), float)


def test_demo_ends_with_the_status_of_a_command_that_fails(tmp_path, capsys):
    assert demo.run(tmp_path / "demo", lambda words: 2 if words[0] == "fit" else 0) == 2
    assert "what each method says" not in capsys.readouterr().out


@pytest.fixture
def outputs():
    rng = np.random.default_rng(0)
    arrays = {name: rng.normal(100.0, 10.0, size=(5, 3)) for name in NAMES}
    return {**arrays, "sample_again": arrays["sample"]}


def test_equal_outputs_agree(outputs, capsys):
    assert demo._compare(outputs, outputs) == 0
    assert "agreement" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["mean", "stddev", "quantiles", "sample"])
@pytest.mark.parametrize("wrong", [1e-4, np.nan])
def test_an_output_that_differs_is_named_and_ends_with_status_1(outputs, capsys, name, wrong):
    there = {key: value.copy() for key, value in outputs.items()}
    there[name][2, 1] += wrong * np.max(outputs[name])
    there["sample_again"] = there["sample"]
    assert demo._compare(outputs, there) == 1
    out, errors = capsys.readouterr()
    assert f"error: the served {name} must agree to 1e-05. Received: " in errors
    assert "agreement" not in out


def test_samples_that_differ_from_call_to_call_end_with_status_1(outputs, capsys):
    there = {**outputs, "sample_again": outputs["sample"] + 1e-7}
    assert demo._compare(outputs, there) == 1
    assert "must return the same functions for the same seed" in capsys.readouterr().err


@pytest.mark.slow
def test_a_model_that_cannot_be_served_is_an_error(tmp_path):
    with pytest.raises(ChildProcessError, match="(?s)failed to serve .*nothing.*does not exist"):
        demo._serve_elsewhere(tmp_path / "nothing", np.zeros((2, 10), np.float32))


@pytest.mark.parametrize("package", ["matplotlib", "pandas", "sklearn", "skops"])
def test_missing_packages_are_named_with_the_extra(tmp_path, monkeypatch, capsys, package):
    monkeypatch.setitem(sys.modules, package, None)
    assert main(["demo", "--output-dir", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert 'pip install ".[cli]"' in error
    assert package in error
    assert not (tmp_path / "out").exists()
