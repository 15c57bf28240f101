"""Tables of made-up records, whose numbers are worked out by hand."""

import json

import numpy as np
import pandas as pd
import pytest

from tfp_fnspace.benchmark import tables
from tfp_fnspace.cli import main


def write(folder, estimator, dataset, scores, coverage=0.9, seconds=1.0):
    """Writes a record for each split with the given CRPS and 10 times it as NLL; `None` failed."""
    for split, crps in enumerate(scores):
        record = {"estimator": estimator, "dataset": dataset, "split": split}
        if isinstance(crps, str | None):
            record.update(status=crps or "failed", error="x", fit_seconds=seconds)
        else:
            record.update(status="done", crps=crps, nll=10.0 * crps, rmse=1.0)
            record.update(coverage_90=coverage, fit_seconds=seconds, predict_seconds=0.5)
            record.update(coverage_50=0.5, width_90=seconds, calibration_error=0.1)
        path = folder / estimator / f"{dataset}-{split}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record))


@pytest.fixture
def results(tmp_path):
    write(tmp_path, "conformal_boosting", "a", [2.0, 2.0])
    write(tmp_path, "conformal_boosting", "b", [1.0])
    write(tmp_path, "linear", "a", [4.0, 4.0], coverage=0.8, seconds=3.0)
    write(tmp_path, "linear", "b", [0.5], coverage=0.95, seconds=5.0)
    write(tmp_path, "climatology", "a", [5.0, 1.0])
    write(tmp_path, "climatology", "b", [2.0])
    write(tmp_path, "exact_gp", "a", [1.0, None])
    write(tmp_path, "exact_gp", "b", ["declined"])
    return tmp_path


def test_summary(results):
    found = tables.summary(tables.read_cells(results))
    # Set a, split 0: gp, boosting, linear, climatology; split 1: climatology, boosting, linear, gp.
    # Set b: linear, boosting, climatology. First the estimators with both sets, then all on set a.
    expected = {"conformal_boosting": 1.75, "linear": 1.75, "climatology": 2.5}
    shared = {"conformal_boosting": 2.0, "climatology": 2.5, "exact_gp": 2.5, "linear": 3.0}
    for score in ("crps", "nll"):
        assert found[f"rank_{score}"].dropna().to_dict() == expected
        assert found[f"shared_{score}"].to_dict() == shared
    assert found.index[-1] == "exact_gp"  # has no rank on all sets
    linear, gp = found.loc["linear"], found.loc["exact_gp"]
    assert linear["crps"] == pytest.approx(np.sqrt(2.0 * 0.5))
    assert gp["crps"] == pytest.approx(0.5)  # the mean over the split that it has
    assert (gp["sets"], gp["cells"], gp["failed"], gp["declined"]) == (1, 1, 1, 1)
    assert (linear["failed"], linear["width_90"]) == (0, pytest.approx(np.sqrt(3.0 * 5.0)))
    assert linear["cov_90"] == pytest.approx(0.875)
    assert (linear["least"], linear["most"]) == (0.8, 0.95)
    assert linear["seconds"] == 3.5
    assert found["better than linear"].to_dict() == {
        "conformal_boosting": "1/1",
        "linear": "0/0",
        "climatology": "1/1",
        "exact_gp": "1/1",
    }
    assert found.loc["linear", "better than climatology"] == "1/1"


def test_ranks_are_of_the_splits_that_all_have(tmp_path):
    write(tmp_path, "tagi", "a", [1.0, 1.0, 9.0])
    write(tmp_path, "linear", "a", [2.0, 0.5])
    write(tmp_path, "linear", "b", [2.0])
    cells = tables.read_cells(tmp_path)
    assert set(tables.comparable(cells)["estimator"]) == {"linear"}
    shared = tables.comparable(cells, by_all=True)
    assert sorted(zip(shared["estimator"], shared["split"], strict=True)) == [
        ("linear", 0),
        ("linear", 1),
        ("tagi", 0),
        ("tagi", 1),
    ]
    assert tables.mean_ranks(shared, "nll").to_dict() == {"linear": 1.5, "tagi": 1.5}


def test_ranks_have_few_digits():
    """The last digits of a mean differ between machines, and would decide between equal ranks."""
    rows = [
        (name, "a", k, "done", float((name == "linear") == (k > 0)))
        for k in range(3)
        for name in ("tagi", "linear")
    ]
    cells = pd.DataFrame(rows, columns=["estimator", "dataset", "split", "status", "nll"])
    assert tables.mean_ranks(cells, "nll").to_dict() == {"linear": 1.666666667, "tagi": 1.333333333}


@pytest.fixture
def versions(tmp_path):
    """Writes two versions of one estimator, on three sets of two splits."""
    for name, shift in (("first", 0.0), ("second", 0.1)):
        write(tmp_path / name, "tagi", "a", [1.0 - shift, 3.0 - 3.0 * shift])
        write(tmp_path / name, "tagi", "b", [2.0 - shift, 2.0 + shift])
        write(tmp_path / name, "tagi", "c", [1.0 + shift, None if shift else 1.0, "declined"])
    return [tmp_path / "first", tmp_path / "second"]


def test_compare(versions):
    by_set, overall = tables.compare(*map(tables.read_cells, versions))
    a, b, c = (by_set.loc[("tagi", name)] for name in "abc")
    assert (a["splits"], b["splits"], c["splits"]) == (2, 2, 1)
    # The differences are -1 and -3 in NLL; in CRPS -0.1 and -0.3, of a mean of 2. The standard
    # error of two numbers is half of their distance.
    assert (a["nll"], a["nll_se"]) == pytest.approx((-2.0, 1.0))
    assert (a["crps"], a["crps_se"]) == pytest.approx((-0.1, 0.05))
    assert (b["nll"], b["nll_se"]) == pytest.approx((0.0, 1.0), abs=1e-9)
    assert c["crps"] == pytest.approx(0.1)
    nll = overall.loc[("tagi", "nll")]
    assert nll["sets"] == 3
    assert nll["mean"] == pytest.approx(-1.0 / 3.0)
    assert nll["se"] == pytest.approx(np.std([-2.0, 0.0, 1.0], ddof=1) / np.sqrt(3.0))
    # The second wins both splits of a and one of b. It wins none of c, where it failed on one.
    assert nll["rank_b"] == pytest.approx((1.0 + 1.5 + 2.0) / 3.0)
    assert nll["rank_a"] == pytest.approx((2.0 + 1.5 + 1.0) / 3.0)


def test_tests_of_many_sets(tmp_path):
    """The second is better on 9 of 10: sign test 2 (1 + 10) / 2^10; the worse set has rank 1."""
    for name in ("first", "second"):
        for i in range(10):
            shift = (0.01 if i == 0 else -0.1 * i) if name == "second" else 0.0
            write(tmp_path / name, "sip", str(i), [5.0 + shift])
    _, overall = tables.compare(*(tables.read_cells(tmp_path / n) for n in ("first", "second")))
    found = overall.loc[("sip", "crps")]
    assert (found["better"], found["worse"]) == (9, 1)
    assert found["sign"] == pytest.approx(22 / 1024)
    assert found["wilcoxon"] == pytest.approx(4 / 1024)  # the rank sums 0 and 1, two-sided


def test_folders_of_one_estimator_each(results):
    folders = [str(results / name) for name in ("linear", "conformal_boosting")]
    by_set, _ = tables.compare(*map(tables.read_cells, folders))
    assert by_set.loc[("linear", "a"), "crps"] == pytest.approx(-0.5)


def test_commands_print_the_tables(results, versions, capsys):
    assert main(["benchmark", "summary", str(results)]) == 0
    assert "exact_gp" in capsys.readouterr().out
    assert main(["benchmark", "compare", *map(str, versions)]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{versions[1]} less {versions[0]}: nll in nats") and "wilcoxon" in out


@pytest.mark.parametrize("text", ["[]", "{}", "no"])
def test_what_is_no_record_is_one_line(tmp_path, capsys, text):
    (tmp_path / "a.json").write_text(text)
    assert main(["benchmark", "summary", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "must hold one record. Received: path='" in line


def test_an_empty_folder_and_others_without_a_common_cell(tmp_path, results, versions, capsys):
    assert main(["benchmark", "summary", str(tmp_path / "nothing")]) == 2
    assert "must hold <estimator>/<dataset>-<split>.json. Received: folder=" in (
        capsys.readouterr().err
    )
    assert main(["benchmark", "compare", str(results), str(versions[0])]) == 2
    assert "must have cells of an estimator in common. Received: ['climatology', " in (
        capsys.readouterr().err
    )
