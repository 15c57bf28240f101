import numpy as np
import pandas as pd
import polars as pl
import pytest
import tensorflow_probability as tfp
from figures import labelled, limits
from scipy import special

from tfp_fnspace import likelihoods, plotting

tfd = tfp.distributions


class Product:
    """Draws f(x) = a x_0 x_1 + b, with random a and b; a row in a frame or an array."""

    outputs = 1

    def values(self, x):
        x = np.asarray(x, np.float64)
        return x[:, :1] * x[:, 1:2] * np.arange(1.0, self.outputs + 1.0)

    def predict(self, x):
        return {"mean": self.values(x)}

    def predict_distribution(self, x):
        return tfd.Independent(tfd.Normal(self.values(x), np.float64(1.0)), 1)

    def sample_functions(self, x, num_samples, seed):
        a, b = np.random.default_rng(seed).normal([[1.0], [0.0]], size=(2, num_samples))
        return a[:, np.newaxis, np.newaxis] * self.values(x) + b[:, np.newaxis, np.newaxis]


class Classes(Product):
    """Has the values of `Product` as logits of three classes."""

    outputs, num_target_columns = 3, 1
    likelihood = likelihoods.Categorical()

    def predict_distribution(self, x):
        return tfd.Categorical(logits=self.values(x))


X = np.random.default_rng(0).normal(size=(30, 2))


def moved(x, column, value):
    x = np.array(x)
    x[:, column] = value
    return x


def test_curve_and_band_are_averages_of_mean_and_of_each_function():
    model = Product()
    ax = plotting.plot_partial_dependence(model, X, 0, num_points=50, num_samples=40, seed=(1, 2))
    values = np.unique(X[:, 0])
    averages = []  # [G, S], one value and one function after the other
    for value in values:
        functions = model.sample_functions(moved(X, 0, value), 40, (1, 2))
        averages.append([np.mean(function) for function in functions])
    mean = [np.mean(moved(X, 0, value).prod(axis=1)) for value in values]
    np.testing.assert_allclose(labelled(ax)["mean"].get_xydata(), np.c_[values, mean], rtol=1e-9)
    low, high = limits(ax.collections[0], values[:, np.newaxis])
    expected = np.quantile(averages, [0.05, 0.95], axis=1)
    np.testing.assert_allclose([low, high], expected, rtol=1e-6, atol=1e-9)
    assert list(labelled(ax)) == ["90 % of the average of f", "mean", "rows"]
    assert ax.get_xlabel() == "input 0"


def test_errors_that_rows_do_not_share_average_out():
    class Independent(Product):
        def sample_functions(self, x, num_samples, seed):
            return np.random.default_rng(seed).normal(size=(num_samples, len(x), 1))

    ax = plotting.plot_partial_dependence(Independent(), X, 0, num_samples=500)
    low, high = limits(ax.collections[0], labelled(ax)["mean"].get_xdata()[:, np.newaxis])
    # The average of 30 rows has standard deviation 0.18; a band of the mean row would have 1.
    width = 2 * 1.645 / np.sqrt(30)
    np.testing.assert_allclose(np.mean(high - low), width, rtol=0.1)


def test_rows_and_values_are_at_equal_distances():
    x = np.c_[np.arange(101.0)[::-1], np.arange(101.0)]
    ax = plotting.plot_partial_dependence(Product(), x, 1, num_points=5, num_rows=3)
    expected = np.c_[[0, 25, 50, 75, 100], np.mean([100, 50, 0]) * np.array([0, 25, 50, 75, 100])]
    np.testing.assert_allclose(labelled(ax)["mean"].get_xydata(), expected)


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_models_get_frames_like_those_of_the_user(frame):
    words = ["b", "a", "b", "c"]

    class Frames(Product):
        def values(self, x):
            assert type(x) is frame
            assert list(x.columns) == ["n", "w"]
            number = np.asarray(x["n"], np.float64)
            return (number * [ord(word) for word in x["w"]])[:, np.newaxis]

    table = frame({"n": [1, 2, 3, 4], "w": words})
    if frame is pd.DataFrame:
        table = table.astype({"w": "category"}).set_index(pd.Index([7, 7, 8, 9]))
    ax = plotting.plot_partial_dependence(Frames(), table, "w")
    expected = [2.5 * ord(word) for word in "abc"]
    np.testing.assert_allclose(labelled(ax)["mean"].get_xydata(), np.c_[range(3), expected])
    assert [label.get_text() for label in ax.get_xticklabels()] == list("abc")
    ax = plotting.plot_partial_dependence(Frames(), table, "n")
    expected = np.arange(1, 5) * np.mean([ord(word) for word in words])
    np.testing.assert_allclose(labelled(ax)["mean"].get_ydata(), expected)
    assert ax.get_xlabel() == "n"


def test_classes_have_the_averages_of_probabilities():
    model = Classes()
    ax = plotting.plot_partial_dependence(model, X, 0, num_points=4, num_samples=20)
    assert [name for name in labelled(ax) if "class" in name] == [
        f"mean, class {k}" for k in range(3)
    ]
    line = labelled(ax)["mean, class 2"]
    for i, value in enumerate(line.get_xdata()):
        inputs = moved(X, 0, value)
        mean = special.softmax(model.values(inputs), axis=1)[:, 2].mean()
        np.testing.assert_allclose(line.get_ydata()[i], mean, rtol=1e-9)
        functions = model.sample_functions(inputs, 20, (0, 0))
        averages = special.softmax(functions, axis=2)[..., 2].mean(axis=1)
        low, high = limits(ax.collections[2], line.get_xdata()[:, np.newaxis])
        expected = np.quantile(averages, [0.05, 0.95])
        np.testing.assert_allclose([low[i], high[i]], expected, rtol=1e-6)


def test_of_two_classes_the_second_is_shown():
    class Two(Classes):
        outputs = 2

    ax = plotting.plot_partial_dependence(Two(), X, 1, num_points=3)
    assert list(labelled(ax)) == ["90 % of the average of the probability", "mean, class 1", "rows"]


def test_outputs_have_a_curve_each():
    class Several(Product):
        outputs, target_names = 2, ["width", "height"]

    ax = plotting.plot_partial_dependence(Several(), X, 0, num_points=3)
    width, height = (labelled(ax)[f"mean, {name}"].get_ydata() for name in ("width", "height"))
    np.testing.assert_allclose(height, 2 * width)


def test_partial_dependence_refuses():
    model = Product()
    for options, said in [
        ({"column": 2}, r"`x` must have shape \[N, D_in\] with the column"),
        ({"column": 0, "num_points": 0}, "`num_points` must be a positive integer"),
        ({"column": 0, "num_rows": 0}, "`num_rows` must be a positive integer"),
        ({"column": 0, "num_samples": 0}, "`num_samples` must be a positive integer"),
        ({"column": 0, "level": 0}, "`level` must lie strictly between"),
    ]:
        with pytest.raises(ValueError, match=said):
            plotting.plot_partial_dependence(model, X, **options)
    with pytest.raises(ValueError, match="The column must have a known value"):
        plotting.plot_partial_dependence(model, np.full((3, 2), np.nan), 0)
    with pytest.raises(TypeError, match="`model` must be a FunctionSpaceModel"):
        plotting.plot_partial_dependence(object(), X, 0)
