"""SavedModels of estimators: columns of a table in, and out what the estimator itself predicts."""

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from export_runtimes import run_litert
from linear_estimators import LinearClassifier, LinearRegressor

from tfp_fnspace import calibration
from tfp_fnspace.export import endpoints
from tfp_fnspace.sklearn import FunctionSpaceRegressor, TAGIClassifier, TAGIRegressor
from tfp_fnspace.sklearn.served import encoded, tensor_names
from tfp_fnspace.sklearn.tables import TableEncoder, table_values

CITIES, FLOORS = ["Bern", "Lyon", "Turin"], [0, 1, 2]


def table(num_rows=80, seed=0, gaps=True):
    """Returns a table with two kinds of categories, a heavy tail and gaps, and a target."""
    rng = np.random.default_rng(seed)
    size, city = rng.uniform(30.0, 150.0, num_rows), rng.choice(CITIES, num_rows)
    price = np.exp(3.0 * rng.normal(size=num_rows))
    y = 200.0 + 9.0 * size + 300.0 * (city == "Bern") + rng.normal(0.0, 60.0, num_rows)
    if gaps:
        size[::7], price[::5] = np.nan, np.nan
    columns = {
        "net size (m²)": size,
        "City": pd.Categorical(city),
        "floor": pd.Categorical(rng.choice(FLOORS, num_rows)),
        "price": price,
        "new": rng.random(num_rows) < 0.2,
    }
    return pd.DataFrame(columns), y


NAMES = ["net_size__m__", "City", "floor", "price", "new"]


def new_rows():
    """Returns rows with words that no fit has seen, and with gaps in each column."""
    found, _ = table(12, seed=1)
    found["City"] = [None, "Rome", *found["City"][2:]]
    found["floor"] = pd.Series([1, 7, None, *found["floor"][3:]], dtype=object)
    found["new"] = [np.nan, *found["new"][1:].astype(float)]
    found.loc[0, "net size (m²)"] = 200.0 + 1.0 / 3.0
    return found


def column(values):
    """Returns a column as a client would send it: numbers, or text that is empty for a gap."""
    if values.name not in ("City", "floor"):
        return tf.constant(values.to_numpy(np.float64))
    missing = values.isna()
    return tf.constant(["" if m else str(v) for v, m in zip(values, missing, strict=True)])


def sent(rows):
    """Returns what a client would send, by the names of tensors."""
    return {name: column(rows[key]) for name, key in zip(NAMES, rows.columns, strict=True)}


def words(rows):
    """Returns the rows with all that estimators take as a category."""
    return rows.assign(City=rows["City"].astype(object), floor=rows["floor"].astype(object))


def exported(estimator, folder, **options):
    estimator.export(folder / "served", **options)
    return tf.saved_model.load(str(folder / "served"))


def check_regression(estimator, served, rows, most=1e-5):
    """Compares what is served with what the estimator predicts, in its standard deviations."""
    outputs = served.signatures["serving_default"](**sent(rows))
    expected = estimator.predict_moments(words(rows))
    expected["quantiles"] = estimator.predict_quantiles(words(rows), [0.05, 0.5, 0.95])
    assert set(outputs) == set(expected)
    for name, values in expected.items():
        unit = expected["stddev"]
        unit = unit[..., np.newaxis] if name == "quantiles" else unit
        assert outputs[name].shape == values.shape
        assert np.max(np.abs(outputs[name] - values) / unit) < most, name


def own_difference(estimator, rows):
    """Returns how far TensorFlow's graph of a model is from its eager result, in its deviations.

    Factors in float32 of nearly singular matrices differ from graph to graph.
    """
    serve = endpoints.serve_of(estimator.model_)
    (x,) = encoded(estimator.encoder_, [column(rows[key]) for key in rows])
    graph, eager = tf.function(serve, autograph=False)(x), serve(x)
    unit = eager["stddev"].numpy()
    differences = [graph[name] - eager[name] for name in ("mean", "stddev", "epistemic_stddev")]
    return max(float(np.max(np.abs(values) / unit)) for values in differences)


# The encoder


@pytest.mark.parametrize("uncertain", [False, True])
@pytest.mark.parametrize("gaps", [False, True])
def test_a_graph_encodes_as_the_encoder_does(uncertain, gaps):
    values, is_category = table_values(table(gaps=gaps)[0].assign(empty=np.nan))
    encoder = TableEncoder(uncertain=uncertain).fit(values, is_category)
    assert np.isfinite(encoder.scales_).tolist() == [False, True, False, False]
    rows = new_rows().assign(empty=[1.0, *[np.nan] * 11])
    expected = encoder.transform(table_values(words(rows), is_category)[0])
    expected = expected if isinstance(expected, list) else [expected]
    found = encoded(encoder, [column(rows[key]) for key in rows])
    assert len(found) == len(expected) == 1 + uncertain
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def test_tables_of_one_kind():
    rows, _ = table()
    for keys in (["net size (m²)", "price"], ["City", "floor"]):
        values, is_category = table_values(rows[keys])
        encoder = TableEncoder().fit(values, is_category)
        (found,) = encoded(encoder, [column(rows[key]) for key in keys])
        np.testing.assert_allclose(found, encoder.transform(values), rtol=1e-12)


def test_names_of_tensors():
    columns = ["a b", "a_b", "a-b", "größe", "2nd", "class", "seed", "", 7]
    expected = ["a_b", "a_b_", "a_b__", "gr__e", "x_2nd", "x_class", "x_seed", "x_", "x_7"]
    assert tensor_names(columns) == expected


# Estimators


@pytest.fixture(scope="module")
def linear(tmp_path_factory):
    estimator = LinearRegressor().fit(*table())
    return estimator, exported(estimator, tmp_path_factory.mktemp("linear"), num_samples=4)


@pytest.mark.slow
def test_a_regressor_takes_columns_and_gives_its_predictions(linear):
    check_regression(*linear, new_rows())


def test_samples_are_those_of_the_estimator(linear):
    estimator, served = linear
    rows = new_rows()
    drawn = served.sample(**sent(rows), seed=tf.constant([1, 2]))
    expected = estimator.sample_functions(words(rows), 4, seed=(1, 2))
    assert drawn.shape == (4, 12, 1)
    np.testing.assert_allclose(drawn, expected, rtol=1e-6)


def test_the_signature_is_one_of_rows(linear):
    """As TensorFlow Serving's REST interface needs it: rows in, and as many rows out."""
    estimator, served = linear
    signature = served.signatures["serving_default"]
    specs = signature.structured_input_signature[1]
    assert {name: (spec.shape.as_list(), spec.dtype.name) for name, spec in specs.items()} == {
        name: ([None], "string" if name in ("City", "floor") else "float64") for name in NAMES
    }
    body = """{"instances": [
        {"net_size__m__": 81.5, "City": "Bern", "floor": "2", "price": 1.0, "new": 1},
        {"net_size__m__": 40, "City": "", "floor": "", "price": 2.5, "new": 0}]}"""
    instances = json.loads(body)["instances"]
    tensors = {
        name: tf.constant([each[name] for each in instances], spec.dtype)
        for name, spec in specs.items()
    }
    outputs = signature(**tensors)
    assert {len(values) for values in outputs.values()} == {2}
    rows = pd.DataFrame(
        {
            "net size (m²)": [81.5, 40.0],
            "City": pd.Categorical(["Bern", None]),
            "floor": pd.Categorical([2, None]),
            "price": [1.0, 2.5],
            "new": [True, False],
        }
    )
    np.testing.assert_allclose(outputs["mean"], estimator.predict(rows), rtol=1e-6)


def test_an_infinite_number_makes_its_row_nan(linear):
    _, served = linear
    rows = new_rows()
    rows.loc[3, "price"] = np.inf
    for values in served.serve(**sent(rows)).values():
        bad = np.isnan(values.numpy().reshape(12, -1))
        assert bad[3].all() and not np.delete(bad, 3, axis=0).any()


@pytest.mark.slow
def test_targets_with_columns(tmp_path):
    rows, y = table()
    estimator = LinearRegressor().fit(rows, np.stack([y, -y], axis=1))
    served = exported(estimator, tmp_path)
    check_regression(estimator, served, new_rows())
    assert served.serve(**sent(new_rows()))["quantiles"].shape == (12, 2, 3)


def test_arrays_have_numbered_columns(tmp_path):
    x = np.random.default_rng(0).normal(size=(30, 2))
    estimator = LinearRegressor().fit(x, x[:, 0] - x[:, 1])
    served = exported(estimator, tmp_path)
    outputs = served.serve(x_0=tf.constant(x[:, 0]), x_1=tf.constant(x[:, 1]))
    np.testing.assert_allclose(outputs["mean"], estimator.predict(x), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("of_numbers", [False, True])
@pytest.mark.slow
def test_a_classifier_gives_probabilities_and_labels(of_numbers, tmp_path):
    rows, y = table()
    labels = np.digitize(y, [800.0, 1200.0]) + 5
    labels = labels if of_numbers else np.array(["low", "middle", "high"])[labels - 5]
    estimator = LinearClassifier().fit(rows, labels)
    served = exported(estimator, tmp_path)
    outputs = served.serve(**sent(new_rows()))
    expected = estimator.predict_proba(words(new_rows()))
    np.testing.assert_allclose(outputs["probabilities"], expected, atol=1e-6)
    found = outputs["labels"].numpy()
    found = found if of_numbers else found.astype(str)
    np.testing.assert_array_equal(found, np.tile(estimator.classes_, (12, 1)))


@pytest.mark.parametrize("gaps", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_tagi_takes_a_gap_as_a_gaussian_whether_training_had_any(gaps, tmp_path):
    estimator = TAGIRegressor(time_limit=1.0, random_state=0).fit(*table(gaps=gaps))
    assert estimator.encoder_.has_variances_ == gaps
    served = exported(estimator, tmp_path)
    check_regression(estimator, served, new_rows())
    whole = table(12, seed=1, gaps=False)[0]
    check_regression(estimator, served, whole)
    narrow = served.serve(**sent(whole))["epistemic_stddev"]
    wide = served.serve(**sent(whole.assign(price=np.nan)))["epistemic_stddev"]
    assert np.mean(wide > narrow) > 0.5


@pytest.mark.slow
def test_a_calibrated_estimator(tmp_path):
    rows, y = table()
    estimator = calibration.recalibrate(LinearRegressor().fit(rows[:50], y[:50]), rows[50:], y[50:])
    check_regression(estimator, exported(estimator, tmp_path), new_rows())


@pytest.mark.exhaustive
def test_tagi_of_classes(tmp_path):
    rows, _ = table()
    estimator = TAGIClassifier(time_limit=1.0, random_state=0)
    estimator.fit(rows.drop(columns="City"), rows["City"].astype(str))
    tensors = sent(new_rows())
    del tensors["City"]
    served = exported(estimator, tmp_path)
    outputs = served.serve(**tensors)
    expected = estimator.predict_proba(words(new_rows()).drop(columns="City"))
    np.testing.assert_allclose(outputs["probabilities"], expected, atol=1e-5)


@pytest.mark.slow
def test_several_methods_at_once(tmp_path):
    estimator = FunctionSpaceRegressor(time_limit=2.0, random_state=0).fit(*table())
    most = max(1e-5, 3.0 * own_difference(estimator, new_rows()))
    check_regression(estimator, exported(estimator, tmp_path), new_rows(), most)


ELSEWHERE = """
import json, sys
for name in ("keras", "tf_keras", "sklearn", "pandas", "tfp_fnspace", "tensorflow_probability"):
    sys.modules[name] = None
import tensorflow as tf
served = tf.saved_model.load(sys.argv[1])
specs = served.signatures["serving_default"].structured_input_signature[1]
row = json.loads(sys.argv[2])
tensors = {key: tf.constant([value], specs[key].dtype) for key, value in row.items()}
print(served.serve(**tensors)["mean"][0].numpy())
"""


@pytest.mark.slow
def test_a_process_without_this_library_and_scikit_learn(linear, tmp_path):
    estimator, _ = linear
    estimator.export(tmp_path / "served")
    row = dict(zip(NAMES, [81.5, "Lyon", "1", 2.0, 0.0], strict=True))
    command = [sys.executable, "-I", "-c", ELSEWHERE, str(tmp_path / "served"), json.dumps(row)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = pd.DataFrame([row.values()], columns=table()[0].columns).assign(floor=[1])
    np.testing.assert_allclose(float(done.stdout), estimator.predict(words(rows))[0], rtol=1e-6)


@pytest.mark.slow
def test_a_program_takes_what_the_encoder_makes(tmp_path):
    rows, y = table(gaps=False)
    estimator = LinearRegressor().fit(rows, y)
    path = tmp_path / "m.tflite"
    estimator.export(path, format="litert")
    x = estimator.encoder_.transform(table_values(rows)[0])
    mean, stddev = estimator.predict(rows, return_std=True)
    assert np.max(np.abs(run_litert(path, x=x)["mean"][:, 0] - mean) / stddev) < 1e-5


# Errors


def test_what_is_wrong_is_named(linear, tmp_path):
    estimator, _ = linear
    with pytest.raises(ValueError, match="`format` must be"):
        estimator.export(tmp_path / "served", format="torch")
    with pytest.raises(ValueError, match="`num_samples` must be"):
        estimator.export(tmp_path / "served", num_samples=0)
    with pytest.raises(ValueError, match="is not fitted"):
        LinearRegressor().export(tmp_path / "served")
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ValueError, match="`filepath` must be a new or empty folder"):
        estimator.export(tmp_path)
