import base64
import re
import types
from datetime import UTC, datetime
from html.parser import HTMLParser

import keras
import numpy as np
import pandas as pd
import pytest
import tensorflow_probability as tfp
from scipy import stats

import tfp_fnspace as fns
from tfp_fnspace import metrics, plotting
from tfp_fnspace.plotting import page, report, score_tables

tfd = tfp.distributions


class Reader(HTMLParser):
    """Reads a page: tables, texts, pictures; refuses tags that are not closed in order."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tables, self.attributes, self.texts = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.attributes += [(tag, *pair) for pair in attrs]
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("th", "td"):
            self.tables[-1][-1].append("")
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("th", "td"):
            self.tables[-1][-1][-1] += data
        if self.open and self.open[-1] in ("p", "h1", "h2", "title", "figcaption"):
            self.texts.append(data)

    def table(self, number):
        """Returns {heading of a row: {heading of a column: text}}."""
        (head, *rows) = self.tables[number]
        return {row[0]: dict(zip(head[1:], row[1:], strict=True)) for row in rows}

    @property
    def pictures(self):
        return [value for tag, key, value in self.attributes if (tag, key) == ("img", "src")]


def read(path):
    text = path.read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>")
    found = Reader(text)
    # Nothing is fetched: no address is in an attribute, nor in the style.
    assert all(picture.startswith("data:image/png;base64,") for picture in found.pictures)
    assert not re.search(r"https?://|@import|url\(|<script|<link", text)
    assert ("meta", "name", "viewport") in found.attributes
    captions = [value for tag, key, value in found.attributes if (tag, key) == ("img", "alt")]
    assert len(captions) == len(found.pictures) and all(captions)
    for picture in found.pictures:
        data = base64.b64decode(picture.partition(",")[2])
        assert data.startswith(b"\x89PNG") and data.endswith(b"IEND\xaeB`\x82")
    return found


RNG = np.random.default_rng(0)
ROWS = pd.DataFrame({"size": RNG.uniform(-2, 2, 60), "a<b & c": RNG.normal(size=60)})
Y = np.sin(ROWS[["size"]].to_numpy()) + 0.1 * RNG.normal(size=(60, 1))


@pytest.fixture(scope="module")
def model():
    inputs = keras.Input((2,))
    hidden = fns.tagi.Dense(10, activation="relu")(inputs)
    noise = fns.likelihoods.Gaussian(0.3)
    network = fns.tagi.TAGIModel(inputs, fns.tagi.Dense(1)(hidden), likelihood=noise, seed=0)
    network.fit(ROWS, Y, epochs=3, batch_size=10, verbose=0)
    return network


@pytest.mark.slow
def test_report_of_a_regression(model, tmp_path):
    path = tmp_path / "report.html"
    groups = np.where(ROWS["size"] > 0, "right", "left")
    found = plotting.write_report(model, ROWS, Y, path, groups=groups, title="Rents & more")
    assert found == path
    seen = read(path)
    assert seen.texts[:2] == ["Rents & more", "Rents & more"]
    what = "TAGIModel with the likelihood Gaussian. 60 rows, 2 inputs (size, a<b & c), 1 target."
    assert what in seen.texts
    # Curve, PIT, sharpness; residuals and partial dependence of two inputs.
    assert len(seen.pictures) == 3 + 2 + 2
    scores = seen.table(0)
    for name, value in model.evaluate(ROWS, Y, return_dict=True, verbose=0).items():
        if name != "loss":
            np.testing.assert_allclose(float(scores[name]["model"]), value, rtol=1e-3)
    of_group = metrics.by_group(metrics.crps, Y, model.predict_distribution(ROWS), groups)
    for name, row in seen.table(1).items():
        np.testing.assert_allclose(float(row["crps"]), of_group[name], rtol=1e-3)
        assert int(row["rows"]) == np.sum(groups == name)
    fifths = seen.table(2)
    assert [int(row["rows"]) for row in fifths.values()] == [12] * 5
    median = np.sort(model.predict(ROWS)["mean"][:, 0])
    low, high = fifths["lowest fifth"]["predicted median"].split(" to ")
    np.testing.assert_allclose([float(low), float(high)], median[[0, 11]], rtol=1e-3)


def test_columns_are_chosen_by_name(model, tmp_path):
    path = plotting.write_report(model, ROWS, Y, tmp_path / "r.html", columns=["size"])
    assert "Residuals by size" in read(path).texts
    assert "Residuals by a<b & c" not in read(path).texts


def test_the_model_writes_the_page_itself(model, tmp_path, monkeypatch):
    noon = types.SimpleNamespace(now=lambda: datetime(2026, 1, 2, 12, 5, tzinfo=UTC))
    monkeypatch.setattr(report, "datetime", types.SimpleNamespace(datetime=noon))
    options = {"columns": ["size"], "title": "Rents"}
    path = model.report(ROWS, Y, tmp_path / "method.html", **options)
    same = plotting.write_report(model, ROWS, Y, tmp_path / "function.html", **options)
    assert path.read_text() == same.read_text()
    assert "Written on 2026-01-0" in path.read_text()


def test_an_existing_page_stays_if_the_report_fails(model, tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("old")
    monkeypatch.setattr(page, "page", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        plotting.write_report(model, ROWS, Y, path, columns=[])
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_report_refuses(model, tmp_path):
    path = tmp_path / "report.html"
    for y, options, said in [
        (Y[:5], {}, "y must have an entry for every output"),
        (np.full((60, 1), np.nan), {}, "`y` must have an observation"),
        (Y, {"columns": ["age"]}, "`x` must have shape .* with the column. Received: .*'age'"),
        (Y, {"groups": ["a"]}, "`groups` must have a label for each of the 60 rows"),
    ]:
        with pytest.raises(ValueError, match=said):
            plotting.write_report(model, ROWS, y, path, **options)
    with pytest.raises(TypeError, match="`path` must be a path"):
        plotting.write_report(model, ROWS, Y, 3)
    with pytest.raises(TypeError, match="`model` must be a FunctionSpaceModel"):
        plotting.write_report(keras.Sequential(), ROWS, Y, path)
    assert not path.exists()


@pytest.mark.slow
def test_report_of_an_estimator_of_classes(tmp_path):
    from tfp_fnspace.sklearn import TAGIClassifier

    labels = np.where(ROWS["size"] > 0.5, "large", "small")
    table = ROWS.assign(kind=pd.Categorical(RNG.choice(["x", "y"], 60)))
    estimator = TAGIClassifier(time_limit=1.0, random_state=0).fit(table, labels)
    seen = read(plotting.write_report(estimator, table, labels, tmp_path / "r.html"))
    assert seen.texts[1] == "Report of a TAGIClassifier"
    assert any("TAGIClassifier, whose model is a TAGIModel with" in text for text in seen.texts)
    assert len(seen.pictures) == 1 + 3  # reliability, and partial dependence of three inputs
    places = (labels == "small").astype(int)
    found = estimator.model_.evaluate(
        estimator.encoder_.transform(estimator._values(table)[0]),
        places,
        return_dict=True,
        verbose=0,
    )
    for name in ("accuracy", "nll", "ece"):
        np.testing.assert_allclose(float(seen.table(0)[name]["model"]), found[name], rtol=1e-3)
    share = max(places.mean(), 1.0 - places.mean())
    np.testing.assert_allclose(float(seen.table(0)["accuracy"]["constant"]), share, rtol=1e-3)
    of_class = seen.table(1)
    assert set(of_class) <= {"large", "small"}
    assert sum(int(row["rows"]) for row in of_class.values()) == 60
    with pytest.raises(ValueError, match=r"labels of the classes.*y with \['huge'\], classes="):
        plotting.write_report(estimator, table, ["huge"] * 60, tmp_path / "r.html")


class Images:
    """A fake regression of images with two outputs."""

    likelihood = fns.likelihoods.Gaussian(1.0)

    def predict(self, x):
        raise NotImplementedError

    def sample_functions(self, x, num_samples, seed):
        raise NotImplementedError

    def predict_distribution(self, x):
        mean = np.stack([x.mean(axis=(1, 2)), x.max(axis=(1, 2))], axis=1)
        return tfd.Independent(tfd.Normal(mean, np.float64(1.0)), 1)


def test_inputs_that_are_no_table_have_no_pictures(tmp_path):
    x = RNG.normal(size=(40, 3, 3))
    y = RNG.normal(size=(40, 2))
    y[3, 0] = np.nan
    seen = read(plotting.write_report(Images(), x, y, tmp_path / "r.html"))
    assert len(seen.pictures) == 3
    assert "The inputs are no table, so there are no pictures by input." in seen.texts
    by_output = seen.table(1)
    assert [row["observed"] for row in by_output.values()] == ["39", "40"]
    of_all, distribution = seen.table(0), Images().predict_distribution(x)
    score = metrics.energy_score(y, distribution)
    np.testing.assert_allclose(float(of_all["energy_score"]["model"]), score, rtol=1e-3)
    expected = np.sqrt(np.mean((y[:, 1] - x.max(axis=(1, 2))) ** 2))
    np.testing.assert_allclose(float(by_output["1"]["rmse"]), expected, rtol=1e-3)
    with pytest.raises(ValueError, match="`columns` must be None for inputs that are no table"):
        plotting.write_report(Images(), x, y, tmp_path / "r.html", columns=[0])


def test_the_constant_forecast_is_the_distribution_of_the_targets():
    y = stats.lognorm(1.0).ppf((np.arange(400) + 0.5) / 400)[:, np.newaxis]
    distribution = tfd.Independent(tfd.Normal(np.zeros((400, 1)), np.ones((400, 1))), 1)
    constant = score_tables.constant_forecast(y, distribution)
    known = score_tables.OF_NUMBERS
    rows = {row[0]: row[1:] for row in score_tables.of_all_rows(known, y, distribution, constant)}
    # The CRPS of the distribution of the targets is half their mean difference.
    expected = 0.5 * np.mean(np.abs(y - y.T))
    np.testing.assert_allclose(rows["crps"][1], expected, rtol=5e-3)
    width = np.diff(np.quantile(y, [0.05, 0.95]))[0]
    np.testing.assert_allclose(rows["width_90"][1], width, rtol=0.05)
    np.testing.assert_allclose(rows["rmse"][1], np.std(y), rtol=5e-3)
    low, high = y - np.quantile(y, [0.05, 0.95])[:, np.newaxis, np.newaxis]
    for name, error, level in (("pinball_5", low, 0.05), ("pinball_95", high, 0.95)):
        expected = np.mean(np.maximum(level * error, (level - 1.0) * error))
        np.testing.assert_allclose(rows[name][1], expected, rtol=0.02)
    expected = 1.0 + np.log(np.var(y))
    np.testing.assert_allclose(rows["dawid_sebastiani"][1], expected, rtol=0.02)
    normal = stats.norm(0.0, 1.0).ppf([0.05, 0.95])
    np.testing.assert_allclose(
        [rows[name][0] for name in ("pinball_5", "pinball_95", "dawid_sebastiani")],
        [
            np.mean(np.maximum(0.05 * (y - normal[0]), -0.95 * (y - normal[0]))),
            np.mean(np.maximum(0.95 * (y - normal[1]), -0.05 * (y - normal[1]))),
            np.mean(y**2),
        ],
        rtol=1e-5,
    )
    nll = -stats.norm(y.mean(), y.std()).logpdf(y).mean()
    np.testing.assert_allclose(rows["nll"][1], nll, rtol=1e-6)


def test_the_constant_forecast_of_several_outputs_keeps_what_they_have_in_common():
    first = np.random.default_rng(1).normal(size=(300, 1))
    y = np.hstack([first, -first])
    distribution = tfd.Independent(tfd.Normal(np.zeros((300, 2)), np.ones((300, 2))), 1)
    constant = score_tables.constant_forecast(y, distribution)
    ((_, of_model, of_constant, _),) = score_tables.of_all_rows(
        score_tables.OF_OUTPUTS, y, distribution, constant
    )
    # On the line (a, -a) the energy score is the CRPS of a times the root of 2.
    expected = np.sqrt(2.0) * 0.5 * np.mean(np.abs(first - first.T))
    np.testing.assert_allclose(of_constant, expected, rtol=0.05)
    assert of_constant < of_model
    y[::2, 0] = y[1::2, 1] = np.nan  # no row is whole
    ((_, _, unknown, _),) = score_tables.of_all_rows(
        score_tables.OF_OUTPUTS, y, distribution, constant
    )
    assert np.isnan(unknown)
