"""The commands on a table: what they write, print and refuse."""

import json
import re
import shutil

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from flats import flats

from tfp_fnspace import cli, metrics
from tfp_fnspace.commands import folder, work


def run(capsys, words):
    """Returns the status and what a command prints."""
    capsys.readouterr()
    status = cli.main(words.split())
    out, err = capsys.readouterr()
    return status, out, err


@pytest.mark.slow
def test_the_folder_says_what_it_holds(fitted):
    card = json.loads((fitted / "card.json").read_text())
    assert card["rows"] == {"fit": 90, "calibration": 0, "test": 30}
    assert card["method"] == "tagi" and card["schema"]["target"] == "rent"
    assert sorted(path.name for path in fitted.iterdir()) == [
        *("card.json", "estimator.skops", "test.csv")
    ]


def test_rows_are_kept_for_scores_and_never_fitted(fitted, data):
    kept, table = pd.read_csv(fitted / "test.csv"), pd.read_csv(data)
    assert len(kept) == 30
    assert table["note"].isin(kept["note"]).sum() == 30
    assert folder.load(fitted).estimator.n_features_in_ == 3


def test_predictions_are_those_of_the_estimator(fitted, data, tmp_path, capsys):
    out = tmp_path / "found.csv"
    status, printed, _ = run(capsys, f"predict --model {fitted} --data {data} --out {out}")
    assert status == 0 and "wrote 120 rows" in printed
    found, saved = pd.read_csv(out), folder.load(fitted)
    inputs = saved.schema.inputs(pd.read_csv(data))
    mean, stddev = saved.estimator.predict(inputs, return_std=True)
    np.testing.assert_allclose(found["mean"], mean, rtol=1e-6)
    np.testing.assert_allclose(found["stddev"], stddev, rtol=1e-6)
    quantiles = saved.estimator.predict_quantiles(inputs, [0.05, 0.5, 0.95])
    np.testing.assert_allclose(found[["low", "median", "high"]], quantiles, rtol=1e-6)


def test_a_level_changes_the_intervals_only(fitted, data):
    saved, table = folder.load(fitted), pd.read_csv(data)
    wide, narrow = (work.predictions(saved, table, level) for level in (0.9, 0.5))
    assert np.all(wide["high"] - wide["low"] > narrow["high"] - narrow["low"])
    pd.testing.assert_frame_equal(wide[["mean", "median"]], narrow[["mean", "median"]])


def test_without_a_file_the_first_rows_are_printed(fitted, data, capsys):
    _, printed, _ = run(capsys, f"predict --model {fitted} --data {data}")
    assert len(printed.splitlines()) == 21 and "epistemic_stddev" in printed


@pytest.mark.slow
def test_classes_have_probabilities(classifier, data):
    saved = folder.load(classifier)
    found = work.predictions(saved, pd.read_csv(data), 0.9)
    names = [f"probability of {city}" for city in ("Bern", "Lyon", "Turin")]
    assert list(found.columns) == ["class", *names, "mutual_information"]
    entropy = -np.sum(found[names] * np.log(found[names]), axis=1)
    assert np.all(found["mutual_information"] > 0.0)
    assert np.all(found["mutual_information"] < entropy)
    np.testing.assert_allclose(found[names].sum(axis=1), 1.0)
    best = found[names].to_numpy().argmax(axis=1)
    assert (found["class"] == np.array(["Bern", "Lyon", "Turin"])[best]).all()


def test_scores_are_those_of_the_kept_rows(fitted, capsys):
    status, printed, _ = run(capsys, f"evaluate --model {fitted}")
    saved, kept = folder.load(fitted), pd.read_csv(fitted / "test.csv")
    distribution = saved.estimator.predict_distribution(saved.schema.inputs(kept))
    crps = float(metrics.crps(kept[["rent"]].to_numpy(), distribution))
    assert status == 0
    assert f"crps               {crps:<9.4g}" in printed


def test_scores_of_classes(classifier, data, capsys):
    _, printed, _ = run(capsys, f"evaluate --model {classifier} --data {data}")
    saved, table = folder.load(classifier), pd.read_csv(data)
    right = saved.estimator.predict(saved.schema.inputs(table)) == table["city"].to_numpy()
    assert f"accuracy           {right.mean():.4g}" in printed


def test_a_class_that_the_fit_has_not_seen_is_refused(classifier, tmp_path, capsys):
    path = tmp_path / "new.csv"
    flats().assign(city="Rome").to_csv(path, index=False)
    status, _, err = run(capsys, f"evaluate --model {classifier} --data {path}")
    assert status == 2 and "must have labels of the classes" in err and "['Rome']" in err


@pytest.mark.slow
def test_fit_reports_the_columns_first(data, tmp_path, capsys):
    words = f"fit --data {data} --target rent --method tagi --time-limit 1 --out {tmp_path / 'm'}"
    status, printed, _ = run(capsys, words)
    lines = printed.splitlines()
    assert status == 0
    assert lines[0].endswith("flats.csv: 120 rows")
    assert lines[1].split()[:4] == ["rent", "target", "of", "regression"]
    assert lines[2].split()[:2] == ["size", "number"] and lines[2].endswith("12 missing")
    assert "fitted to 120 rows" in printed


def test_the_same_seed_gives_the_same_split():
    first, second = (work._split(50, 0.2, 0.2, 3) for _ in range(2))
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)
    assert [len(part) for part in first] == [20, 20, 10]
    np.testing.assert_array_equal(np.sort(np.concatenate(first)), np.arange(50))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("fit --data {data} --target Rent --out {new}", r"must have the columns \['Rent'\]"),
        ("fit --data {data} --target rent --out {data}", "which is a file"),
        (
            "fit --data {data} --target rent --out {new} --method gp",
            "`method of regression` must be",
        ),
        (
            "fit --data {data} --target rent --out {new} --test 1.5",
            r"share of the rows in \[0, 1\)",
        ),
        ("fit --data {data} --target rent --out {new} --time-limit 0", "`time_limit` must be"),
        ("predict --model {new} --data {data}", "must be a folder that `fit` has written"),
        ("predict --model {model} --data {data} --level 1.5", "`level` must lie strictly"),
        ("predict --model {model} --data {data} --out x.doc", "ends in .csv"),
        ("evaluate --model {other}", "`data` must be given"),
    ],
)
def test_what_is_wrong_is_one_line_and_nothing_is_written(
    fitted, classifier, data, tmp_path, capsys, words, message
):
    words = words.format(data=data, new=tmp_path / "new", model=fitted, other=classifier)
    status, _, err = run(capsys, words)
    assert status == 2
    assert len(err.splitlines()) == 1
    assert re.search(message, err)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_stopped_fit_leaves_the_old_model(fitted, data, tmp_path, capsys, monkeypatch):
    out = tmp_path / "model"
    shutil.copytree(fitted, out)
    before = (out / "card.json").read_text()

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(work, "_board", stop)
    words = f"fit --data {data} --target rent --method tagi --time-limit 1 --out {out}"
    status, _, err = run(capsys, words)
    assert (status, err) == (130, "stopped\n")
    assert (out / "card.json").read_text() == before
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: (f / "card.json").write_text("{"), "must hold a whole card.json"),
        (lambda f: (f / "card.json").write_text('{"layout": 9}'), "whole card.json.*'schema'"),
        (lambda f: (f / "estimator.skops").write_text("no"), "must be a file that `save` has"),
    ],
)
def test_a_damaged_folder_is_refused(fitted, tmp_path, change, message):
    shutil.copytree(fitted, tmp_path / "model")
    change(tmp_path / "model")
    with pytest.raises(ValueError, match=message):
        folder.load(tmp_path / "model")


@pytest.mark.parametrize(("target", "kind"), [("rent", "Recalibration"), ("city", "Tempering")])
@pytest.mark.slow
def test_calibrated_models_are_saved(data, tmp_path, capsys, target, kind):
    out = tmp_path / "model"
    words = f"fit --data {data} --target {target} --method tagi --time-limit 1 --calibrate"
    status, printed, _ = run(capsys, f"{words} --out {out}")
    saved = folder.load(out)
    assert status == 0 and "calibrated on 24 rows" in printed
    assert saved.card["rows"] == {"fit": 96, "calibration": 24, "test": 0}
    assert type(saved.estimator.model_.adjustment).__name__ == kind
    assert len(work.predictions(saved, pd.read_csv(data), 0.9)) == 120


@pytest.mark.slow
def test_a_class_of_one_row_is_fitted_and_not_calibrated(tmp_path, capsys):
    table = flats(60)
    table.loc[:, "city"] = np.where(np.arange(60) == _split_row(60), "Rome", table["city"])
    table.to_csv(tmp_path / "t.csv", index=False)
    words = f"fit --data {tmp_path / 't.csv'} --target city --method tagi --time-limit 1"
    status, printed, _ = run(capsys, f"{words} --calibrate --out {tmp_path / 'm'}")
    assert status == 0 and "calibrated on 19 rows" in printed
    assert "Rome" in folder.load(tmp_path / "m").estimator.classes_


def _split_row(num_rows):
    """Returns a row that would be kept for calibration."""
    return work._split(num_rows, work.CALIBRATION_SHARE, 0.0, 0)[1][0]


def test_an_exported_saved_model_takes_the_columns_of_the_file(fitted, data, tmp_path, capsys):
    out = tmp_path / "served"
    status, printed, _ = run(capsys, f"export --model {fitted} --format saved_model --out {out}")
    assert status == 0
    assert printed.strip().endswith("as they are: size (number), city (text), new (number)")
    table = pd.read_csv(data)
    served = tf.saved_model.load(str(out))
    sizes, cities, new = (table[name].to_numpy() for name in ("size", "city", "new"))
    tensors = {"size": sizes, "city": cities, "new": new.astype("float64")}
    outputs = served.serve(**{name: tf.constant(values) for name, values in tensors.items()})
    expected = work.predictions(folder.load(fitted), table, 0.9)
    for name in ("mean", "stddev", "epistemic_stddev"):
        error = np.abs(outputs[name] - expected[name]) / expected["stddev"]
        assert np.max(error) < 1e-5
    for i, name in enumerate(("low", "median", "high")):
        error = np.abs(outputs["quantiles"][:, i] - expected[name]) / expected["stddev"]
        assert np.max(error) < 1e-5


def test_an_exported_program_names_the_numbers_it_takes(fitted, tmp_path, capsys):
    out = tmp_path / "model.tflite"
    status, printed, _ = run(capsys, f"export --model {fitted} --format litert --out {out}")
    assert status == 0 and out.exists()
    first, second = printed.splitlines()
    assert first.endswith("numbers: size, new, city_Bern, city_Lyon, city_Turin")
    assert second.startswith("litert has no text, so whoever calls it must encode")
