"""What newcomers get wrong, and the example that they start from."""

import pathlib
import re

import keras
import numpy as np
import pytest

import tfp_fnspace as fns

README = pathlib.Path(__file__).resolve().parents[1] / "README.md"


class Frame:
    """As much of a data frame as `np.asarray` and the messages look at."""

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
    code = re.search(r"```python\n(.*?)```", README.read_text(), re.DOTALL)[1]
    names = {}
    exec(compile(code, "README.md", "exec"), names)
    x = np.random.default_rng(1).uniform(-3, 3, size=(500, 1))
    y = np.sin(2 * x) + 0.2 * np.random.default_rng(2).normal(size=x.shape)
    scores = names["model"].evaluate(x, y, return_dict=True, verbose=0)
    assert scores["rmse"] < 0.3 and 0.8 < scores["coverage_90"] < 0.97, scores


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
