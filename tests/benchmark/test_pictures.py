"""Pictures of made-up cells, whose content is worked out by hand."""

import json

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from tfp_fnspace.benchmark import pictures, tables
from tfp_fnspace.cli import main


@pytest.fixture
def folder(tmp_path):
    """Writes three estimators on 8 sets, in the same order on all, and one that declines a set."""
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
    """In Demsar's table 5, q for 3, 5 and 10 classifiers is 2.343, 2.728 and 3.164."""
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


def bars(ax):
    return [line.get_xdata().tolist() for line in ax.lines if line.get_linewidth() == 3.0]


def test_critical_difference_leaves_nobody_out(folder):
    figure = pictures.critical_difference(tables.read_cells(folder), "crps")
    of_all_sets, of_everyone = figure.axes
    first = ["TAGIRegressor  1.00", "conformal boosting  2.00", "linear  3.00"]
    assert [text.get_text() for text in of_all_sets.texts] == first
    assert "on 8 data sets, without those that do not have all: exact GP." in (
        of_all_sets.get_title("left").replace("\n", " ")
    )
    assert [text.get_text() for text in of_everyone.texts] == [*first, "exact GP  4.00"]
    assert "on 7 data sets, those that all have." in of_everyone.get_title("left")
    # The distance is 2.343 sqrt(12 / 48) = 1.17, which joins neighbours but not the first and the
    # last. For four estimators on 7 sets it is 2.569 sqrt(20 / 42) = 1.77.
    assert bars(of_all_sets) == [[1.0, 2.0], [2.0, 3.0]]
    assert bars(of_everyone) == [[1.0, 2.0], [2.0, 3.0], [3.0, 4.0]]
    plt.close(figure)


def test_critical_difference_of_those_who_share_no_set(folder):
    cells = tables.read_cells(folder)
    own = {"tagi": ["set0"], "linear": ["set1", "set2"]}
    parts = [cells[cells["estimator"].eq(k) & cells["dataset"].isin(v)] for k, v in own.items()]
    figure = pictures.critical_difference(pd.concat(parts), "nll")
    (ax,) = figure.axes

    assert ax.get_title("left").endswith(
        "on 0 data sets, without those that do not have all: linear, TAGIRegressor"
    )
    plt.close(figure)


def test_calibration_is_the_distance_from_the_level(folder):
    figure = pictures.calibration(tables.read_cells(folder))
    assert [ax.get_title() for ax in figure.axes] == [
        "TAGIRegressor",
        "conformal boosting",
        "exact GP (7 of 8 sets)",
        "linear",
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
    assert places["exact GP (7 of 8 sets)"] == pytest.approx((1000.0, 2.0))
    plt.close(figure)


def test_labels_hide_neither_points_nor_each_other():
    """Twelve points are so close that only places with lines are free."""
    figure, ax = plt.subplots(figsize=(8.0, 5.0))
    ax.set(xlim=(0.0, 10.0), ylim=(0.0, 10.0))
    random = np.random.default_rng(0)
    points = 5.0 + 0.5 * random.normal(size=(12, 2))
    names = [f"estimator number {k}" for k in range(12)]
    pictures._label(ax, points, names, ["black"] * 12)
    renderer = figure.canvas.get_renderer()
    boxes = [t.get_window_extent(renderer) for t in ax.texts if t.get_text()]
    assert len(boxes) == 12
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
    assert not any(box.contains(*xy) for box in boxes for xy in ax.transData.transform(points))
    plt.close(figure)


def test_command_writes_them(folder, tmp_path, capsys):
    assert main(["benchmark", "pictures", str(folder), "--out", str(tmp_path / "images")]) == 0
    names = ["ranks_crps", "ranks_nll", "calibration", "seconds"]
    expected = [f"wrote {tmp_path / 'images' / name}.png" for name in names]
    assert capsys.readouterr().out.splitlines() == expected
