import numpy as np
import pandas as pd
import polars as pl
import pytest
import tensorflow_probability as tfp
from figures import labelled, limits

from tfp_fnspace import plotting

tfd = tfp.distributions


def rows(num_rows=120, seed=0):
    """Returns inputs, of which the second has five values, targets and a prediction."""
    rng = np.random.default_rng(seed)
    x = np.c_[rng.normal(size=num_rows), rng.integers(0, 5, num_rows)]
    mean, stddev = x[:, :1], 0.5 + np.abs(x[:, 1:])
    y = mean + stddev * rng.normal(size=(num_rows, 1)) * (1.0 + x[:, 1:])
    return x, y, tfd.Independent(tfd.Normal(mean, stddev), 1), (y - mean) / stddev


def brute_force(values, z, least):
    """Returns the mean and standard deviation of a window around each value."""
    order = np.argsort(values, kind="stable")
    values, z, found = values[order], z[order], []
    for value in np.unique(values):
        places = np.flatnonzero(values == value)
        more = max(least - len(places), 0)
        first = max(places[0] - more // 2, 0)
        last = min(places[-1] + more - more // 2, len(z) - 1)
        window = z[first : last + 1]
        found.append((value, window.mean(), window.std()))
    return np.array(found).T


@pytest.mark.parametrize("column", [0, 1])
def test_band_is_the_running_mean_and_standard_deviation(column):
    x, y, distribution, z = rows()
    ax = plotting.plot_residuals(x, y, distribution, column)
    at, mean, spread = brute_force(x[:, column], z[:, 0], 20)
    np.testing.assert_allclose(ax.lines[1].get_xydata(), np.c_[at, mean], atol=1e-9)
    low, high = limits(ax.collections[0], at[:, np.newaxis])
    np.testing.assert_allclose(low, mean - spread, atol=1e-9)
    np.testing.assert_allclose(high, mean + spread, atol=1e-9)
    points = labelled(ax)["rows (120)"].get_xydata()
    np.testing.assert_allclose(points, np.c_[x[:, column], z[:, 0]], rtol=1e-9)
    assert (ax.get_xlabel(), ax.get_ylabel()) == (f"input {column}", "(y − mean) / stddev")


def test_a_tenth_of_many_rows_is_a_window():
    x, y, distribution, z = rows(500)
    ax = plotting.plot_residuals(x, y, distribution, 0)
    at, mean, _ = brute_force(x[:, 0], z[:, 0], 50)
    np.testing.assert_allclose(ax.lines[1].get_xydata(), np.c_[at, mean], atol=1e-9)


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_columns_of_frames_go_by_name_and_missing_values_are_left_out(frame):
    x, y, distribution, z = rows()
    x[3, 0], y[7] = np.nan, np.nan
    table = frame({"size": x[:, 0], "age": x[:, 1]})
    ax = plotting.plot_residuals(table, y, distribution, "size")
    kept = np.delete(np.arange(120), [3, 7])
    points = labelled(ax)["rows (118)"].get_xydata()
    np.testing.assert_allclose(points, np.c_[x[kept, 0], z[kept, 0]], rtol=1e-9)
    assert ax.get_xlabel() == "size"


@pytest.mark.parametrize("kind", ["pandas", "polars", "array"])
def test_words_have_a_mean_and_a_standard_deviation_each(kind):
    x, y, distribution, z = rows()
    words = np.array(["b", "a", "d", "c", "e"], object)[x[:, 1].astype(int)]
    words[0] = None
    table = {
        "pandas": lambda: pd.DataFrame({"w": pd.Categorical(words)}),
        "polars": lambda: pl.DataFrame({"w": words.tolist()}),
        "array": lambda: words[:, np.newaxis],
    }[kind]()
    ax = plotting.plot_residuals(table, y, distribution, 0)
    expected = [z[words == word].mean() for word in "abcde"]
    bars = labelled(ax)["mean ± standard deviation"]
    np.testing.assert_allclose(bars[0].get_xydata(), np.c_[range(5), expected], atol=1e-9)
    assert [label.get_text() for label in ax.get_xticklabels()] == list("abcde")


def test_outputs_are_pooled():
    y = np.random.default_rng(0).normal(size=(30, 2))
    distribution = tfd.Independent(tfd.Normal(np.zeros((30, 2)), np.ones((30, 2))), 1)
    ax = plotting.plot_residuals(np.arange(30.0)[:, np.newaxis], y, distribution, 0)
    np.testing.assert_allclose(labelled(ax)["rows (60)"].get_ydata(), y.reshape(-1))


def test_residuals_refuse():
    x, y, distribution, _ = rows()
    for inputs, column, said in [
        (x, 2, r"`x` must have shape \[N, D_in\] with the column"),
        (x, "size", r"with the column. Received: x of shape \(120, 2\), column='size'"),
        (x[:, 0], 0, r"`x` must have shape \[N, D_in\]"),
        (x[:5], 0, "`x` must have a row for each row of `y`"),
        (np.full((120, 1), np.nan), 0, "There must be a row with a known input"),
    ]:
        with pytest.raises(ValueError, match=said):
            plotting.plot_residuals(inputs, y, distribution, column)
    cauchy = tfd.Independent(tfd.Cauchy(np.zeros((120, 1)), np.float64(1.0)), 1)
    with pytest.raises(ValueError, match="with mean and standard deviation"):
        plotting.plot_residuals(x, y, cauchy, 0)
