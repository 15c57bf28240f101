"""Mistakes of newcomers, and the example that they start from."""

import pathlib
import re

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfp_fnspace as fns

README = pathlib.Path(__file__).resolve().parents[1] / "README.md"


class Frame:
    """A data frame with only what `np.asarray` and the messages use."""

    def __init__(self, **columns):
        self.columns = list(columns)
        self.values = list(columns.values())

    def __array__(self, dtype=None, copy=None):
        return np.array(list(zip(*self.values, strict=True)), dtype=object)


def make(scale=0.3):
    inputs = keras.Input((2,))
    likelihood = fns.likelihoods.Gaussian(scale)
    return fns.tagi.TAGIModel(inputs, fns.tagi.Dense(1)(inputs), likelihood=likelihood, seed=0)


def example_data(num_rows=40):
    x = np.random.default_rng(0).normal(size=(num_rows, 2))
    return x, 1e5 * (x[:, :1] - x[:, 1:])


def test_the_example_of_the_readme_fits_its_data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    (code,) = [block for block in blocks if "model.fit(" in block]
    x, y, x_new, y_new, _ = fns.datasets.example_table()
    names = {"fns": fns, "x": x, "y": y, "x_new": x_new, "y_new": y_new}
    exec(compile(code, "README.md", "exec"), names)
    scores = names["model"].evaluate(x_new, y_new, return_dict=True, verbose=0)
    # A straight line has 1270, 671 and 90 %; boosted trees have 707 (scikit-learn's defaults).
    assert scores["rmse"] < 900 and scores["crps"] < 350, scores
    assert 0.8 < scores["coverage_90"] < 0.97, scores


def test_a_noise_in_the_units_of_the_targets_is_warned_of():
    x, y = example_data()
    with pytest.warns(UserWarning, match=r"in standard deviations of the targets.*pass scale=0\."):
        make(scale=15_000.0).fit(x, y, verbose=0)


def test_frames_of_numbers_and_booleans_are_numbers():
    _, y = example_data()
    frame = Frame(size=[0.5, 1.5] * 20, new=[True, False] * 20)
    plain = np.array([[0.5, 1.0], [1.5, 0.0]] * 20)
    ours, theirs = make(), make()
    ours.fit(frame, y, verbose=0)
    theirs.fit(plain, y, verbose=0)
    np.testing.assert_array_equal(ours.predict(plain)["mean"], theirs.predict(plain)["mean"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["TAGI", "DIWP"])
def test_columns_of_a_frame_keep_their_names_and_their_order(name, tmp_path):
    x, y = example_data()
    frame, turned = Frame(size=x[:, 0], age=x[:, 1]), Frame(age=x[:, 1], size=x[:, 0])
    model = make() if name == "TAGI" else fns.diwp.DIWPModel(fns.diwp.DeepKernel(5), seed=0)
    assert model.column_names is None
    model.fit(frame, y, verbose=0)
    model.save(tmp_path / "model.keras")
    rule = r"`x` must have the columns of the data frame .*\['size', 'age'\].*\['age', 'size'\]"
    for each in (model, keras.models.load_model(tmp_path / "model.keras")):
        assert each.column_names == ["size", "age"]
        np.testing.assert_array_equal(each.predict(frame)["mean"], model.predict(x)["mean"])
        for ask in (each.predict, each.predict_distribution, lambda x: model.evaluate(x, y)):
            with pytest.raises(ValueError, match=rule):
                ask(turned)
    fresh = make()
    fresh.adapt(turned, y)
    with pytest.raises(ValueError, match=r"`x` must have the columns"):
        fresh.fit(frame, y, verbose=0)  # its units are those of the other order
    fresh.adapt(frame, y)
    fresh.fit(frame, y, verbose=0)
    assert fresh.column_names == ["size", "age"]


def test_the_column_of_a_missing_value_is_named():
    x, y = example_data()
    x[3, 1] = np.nan
    with pytest.raises(ValueError, match=r"the first at \[3, 1\], in column 'age'"):
        make().fit(Frame(size=x[:, 0], age=x[:, 1]), y)


@pytest.mark.slow
def test_what_is_not_finite_is_nan_in_all_that_is_served(tmp_path):
    x, y = example_data()
    inputs = keras.Input((2,))
    hidden = fns.tagi.Dense(8, activation="relu")(inputs)
    noise = fns.likelihoods.Gaussian(0.3)
    models = {
        "tagi": fns.tagi.TAGIModel(inputs, fns.tagi.Dense(1)(hidden), likelihood=noise, seed=0),
        "sip": fns.sip.SIPModel("bnn", inducing_points=5, num_samples=5, seed=0),
    }
    bad = x[:4].astype("float32")
    bad[1, 0], bad[2, 1], bad[3, 0] = np.nan, np.inf, -np.inf
    for name, model in models.items():
        model.fit(x, y, verbose=0)
        model.export(tmp_path / name, num_samples=3)
        served = tf.saved_model.load(tmp_path / name)
        outputs = {**served.serve(bad), "sample": served.sample(bad, [1, 2])}
        expected = {**model.predict(bad[:1]), "sample": model.sample_functions(bad[:1], 3, (1, 2))}
        for key, values in outputs.items():
            values = np.moveaxis(values, 1, 0) if key == "sample" else values.numpy()
            assert np.all(np.isnan(values[1:])) and np.all(np.isfinite(values[0])), (name, key)
            if key in expected:
                given = np.moveaxis(expected[key], 1, 0) if key == "sample" else expected[key]
                np.testing.assert_allclose(values[0], given[0], rtol=1e-3, atol=1.0)


def test_columns_of_words_are_named():
    _, y = example_data()
    frame = Frame(size=[0.5] * 40, colour=["red", "blue"] * 20)
    with pytest.raises(TypeError, match=r"with words in the columns \['colour'\]"):
        make().fit(frame, y)


def test_transposed_targets_of_a_model_that_learns_its_sizes():
    x, y = example_data()
    with pytest.raises(ValueError, match=r"`y` must have shape \(40, 1\).*of shape \(1, 40\)"):
        fns.diwp.DIWPModel().fit(x, y.T)


@pytest.mark.parametrize("name", ["model.h5", "model.hdf5"])
def test_the_old_format_is_refused(name, tmp_path):
    with pytest.raises(ValueError, match=r"`filepath` must end in \.keras\. Received"):
        make().save(tmp_path / name)


def test_the_progress_bar_counts_batches(capsys):
    x, y = example_data()
    history = make().fit(x, y, batch_size=10, epochs=2, verbose=2)
    assert history.params["steps"] == 4 and len(history.history["loss"]) == 2
    assert capsys.readouterr().out.count("4/4") == 2
