"""Pictures of made-up cells: what is in them is worked out by hand."""

import json

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest

from tfp_fnspace.benchmark import pictures, tables
from tfp_fnspace.cli import main


@pytest.fixture
def folder(tmp_path):
    """Three estimators on 8 sets, always in the same order, and one that declines one set."""
    order = ("tagi", "conformal_boosting", "linear", "exact_gp")
    for place, estimator in enumerate(order):
        for k in range(8):
            record = {"estimator": estimator, "dataset": f"set{k}", "split": 0, "status": "done"}
            record |= {"crps": 1.0 + place, "nll": 1.0 - place, "rmse": 1.0, "coverage_90": 0.9}
            record |= {"fit_seconds": 10.0**place, "predict_seconds": 0.0}
            record["frequencies"] = list(np.arange(1, 20) / 20 + 0.05)
            if estimator == "exact_gp" and k == 3:
                record = {**record, "status": "declined", "error": "x"}
            path = tmp_path / estimator / f"set{k}-0.json"
            path.parent.mkdir(exist_ok=True)
            path.write_text(json.dumps(record))
    return tmp_path


def test_distance_is_that_of_the_tables():
    """Demsar's table 5: q for 3, 5 and 10 classifiers is 2.343, 2.728 and 3.164."""
    for k, q in {3: 2.343, 5: 2.728, 10: 3.164}.items():
        expected = q * np.sqrt(k * (k + 1) / (6 * 14))
        assert pictures.nemenyi_distance(k, 14) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(
    ("ranks", "groups"),
    [
        ([1.0, 2.5, 4.0], []),
        ([1.0, 1.5, 4.0], [(0, 1)]),
        ([1.0, 2.0, 3.0], [(0, 1), (1, 2)]),
        ([1.0, 1.2, 1.4, 2.3], [(0, 2), (2, 3)]),
        ([1.0, 1.0, 1.0], [(0, 2)]),
    ],
)
def test_groups_within_a_distance(ranks, groups):
    assert pictures.level_groups(ranks, 1.0) == groups


def test_critical_difference_has_the_estimators_of_all_sets(folder):
    figure = pictures.critical_difference(tables.read_cells(folder), "crps")
    (ax,) = figure.axes
    assert [text.get_text() for text in ax.texts] == [
        "tagi  1.00",
        "conformal_boosting  2.00",
        "linear  3.00",
    ]
    # 2.343 sqrt(12 / 48) = 1.17: neighbours are joined, the first and the last are not.
    bars = [line.get_xdata().tolist() for line in ax.lines if line.get_linewidth() == 3.0]
    assert bars == [[1.0, 2.0], [2.0, 3.0]]
    plt.close(figure)


def test_calibration_is_the_distance_from_the_level(folder):
    figure = pictures.calibration(tables.read_cells(folder))
    assert [ax.get_title() for ax in figure.axes] == [
        "conformal_boosting",
        "exact_gp",
        "linear",
        "tagi",
    ]
    np.testing.assert_allclose(figure.axes[0].lines[0].get_ydata(), 0.05)
    plt.close(figure)


def test_quality_against_seconds(folder):
    figure = pictures.quality_against_seconds(tables.read_cells(folder))
    places = {
        text.get_text(): tuple(float(line.get_data()[k][0]) for k in (0, 1))
        for text, line in zip(figure.axes[0].texts, figure.axes[0].lines, strict=True)
    }
    assert places["linear"] == pytest.approx((100.0, 1.5))
    assert places["exact_gp (7 of 8 sets)"] == pytest.approx((1000.0, 2.0))
    plt.close(figure)


def test_command_writes_them(folder, tmp_path, capsys):
    assert main(["benchmark", "pictures", str(folder), "--out", str(tmp_path / "images")]) == 0
    names = ["ranks_crps", "ranks_nll", "calibration", "seconds"]
    expected = [f"wrote {tmp_path / 'images' / name}.png" for name in names]
    assert capsys.readouterr().out.splitlines() == expected
