import keras
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import tensorflow_probability as tfp
from figures import FakeModel, X, labelled, limits, two_normals
from scipy import stats

from tfp_fnspace import datasets, likelihoods, plotting

tfd = tfp.distributions

Z_90 = stats.norm.ppf(0.95)


def test_band_shows_every_part_once():
    toy = datasets.cubic()
    ax = plotting.plot_predictive_band(FakeModel(), X, data=toy, true_function=np.sin, num_draws=7)
    assert list(labelled(ax)) == [
        "90 % of y",
        "90 % of f (±1.64 epistemic std.)",
        "draws of f",
        "mean",
        "true function",
        "data",
    ]
    assert len(ax.lines) == 7 + 3
    assert len(ax.collections) == 2
    np.testing.assert_array_equal(labelled(ax)["data"].get_xydata(), np.c_[toy.x, toy.y])
    np.testing.assert_array_equal(labelled(ax)["mean"].get_xydata(), np.c_[X, np.sin(X)])
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("x", "y")
    assert not ax.get_legend().get_frame_on()


def test_band_without_options_shows_prediction_only():
    ax = plotting.plot_predictive_band(FakeModel(), X, num_draws=0)
    assert [line.get_label() for line in ax.lines] == ["mean"]


@pytest.mark.parametrize("level", [0.5, 0.9, 0.99])
def test_outer_band_is_the_quantiles_of_a_normal(level):
    model = FakeModel()
    ax = plotting.plot_predictive_band(model, X, level=level)
    stddev = model.predict(X)["stddev"][:, 0]
    low, high = limits(ax.collections[0], X)
    z = stats.norm.ppf(0.5 + level / 2)
    np.testing.assert_allclose(low, np.sin(X[:, 0]) - z * stddev, rtol=0, atol=1e-7)
    np.testing.assert_allclose(high, np.sin(X[:, 0]) + z * stddev, rtol=0, atol=1e-7)


def test_functions_without_a_mean_have_median_and_quantiles():
    class Heavy(FakeModel):
        def function_quantiles(self, x, levels):
            return np.sin(x)[..., np.newaxis] + 7.0 * (np.array(levels) - 0.4)

    ax = plotting.plot_predictive_band(Heavy(), X, num_draws=0)
    assert list(labelled(ax)) == ["90 % of y", "90 % of f", "median"]
    np.testing.assert_allclose(labelled(ax)["median"].get_xydata(), np.c_[X, np.sin(X) + 0.7])
    outline = labelled(ax)["90 % of f"].get_paths()[0].vertices
    np.testing.assert_allclose(
        outline[:, 1].max() - outline[:, 1].min(), np.ptp(np.sin(X)) + 7.0 * 0.9, rtol=1e-6
    )


def test_inner_band_has_the_epistemic_width_of_the_same_level():
    model = FakeModel()
    ax = plotting.plot_predictive_band(model, X)
    epistemic = model.predict(X)["epistemic_stddev"][:, 0]
    low, high = limits(ax.collections[1], X)
    np.testing.assert_allclose(high - low, 2 * Z_90 * epistemic)


def test_outer_band_is_the_quantiles_of_a_mixture():
    model = FakeModel(two_normals)
    ax = plotting.plot_predictive_band(model, X)
    stddev = model.predict(X)["stddev"][:, 0]
    for edge, probability in zip(limits(ax.collections[0], X), (0.05, 0.95), strict=True):
        centred = edge - np.sin(X[:, 0])
        cdf = 0.3 * stats.norm.cdf(centred + 4, scale=stddev)
        cdf += 0.7 * stats.norm.cdf(centred - 4, scale=stddev)
        np.testing.assert_allclose(cdf, probability, atol=1e-7)


def test_outer_band_exists_without_a_finite_variance_in_float32():
    model = FakeModel(lambda mean, _: tfd.Cauchy(np.float32(mean), np.float32(1.0)))
    ax = plotting.plot_predictive_band(model, X, level=0.99)
    low, high = limits(ax.collections[0], X)
    expected = stats.cauchy.ppf(0.995)
    # float32 resolves 1 - 0.995 = 0.005 to 6e-8, which moves the quantile by 1e-5 of itself.
    np.testing.assert_allclose(low, np.sin(X[:, 0]) - expected, rtol=1e-4)
    np.testing.assert_allclose(high, np.sin(X[:, 0]) + expected, rtol=1e-4)


def test_band_sorts_the_inputs():
    shuffled = np.random.default_rng(0).permutation(X)
    ax = plotting.plot_predictive_band(FakeModel(), shuffled)
    np.testing.assert_array_equal(labelled(ax)["mean"].get_xdata(), X[:, 0])


def test_band_passes_the_seed_on():
    seeds = [(0, 0), (0, 0), (1, 2)]
    axes = [plotting.plot_predictive_band(FakeModel(), X, seed=seed) for seed in seeds]
    first, again, other = (ax.lines[0].get_ydata() for ax in axes)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_band_draws_into_given_axes():
    _, ax = plt.subplots()
    assert plotting.plot_predictive_band(FakeModel(), X, ax=ax) is ax


@pytest.mark.parametrize("x", [np.zeros((5, 2)), np.zeros(5), np.zeros((0, 1))])
def test_band_refuses_inputs_that_are_no_column(x):
    with pytest.raises(ValueError, match=r"`x` must have shape \[N, 1\].*Received: shape="):
        plotting.plot_predictive_band(FakeModel(), x)


def test_band_refuses_two_outputs():
    with pytest.raises(ValueError, match=r"\['mean'\]` must have .*Received: shape=\(41, 2\)"):
        plotting.plot_predictive_band(FakeModel(outputs=2), X)


def test_band_refuses_data_with_two_columns():
    with pytest.raises(ValueError, match=r"`data x` must have .*Received: shape=\(49, 2\)"):
        plotting.plot_predictive_band(FakeModel(), X, data=datasets.step_2d())


@pytest.mark.parametrize("level", [0.0, 1.0, 90])
def test_band_refuses_level(level):
    with pytest.raises(ValueError, match=f"`level` must lie .*Received: level={level}"):
        plotting.plot_predictive_band(FakeModel(), X, level=level)


def test_band_refuses_negative_number_of_draws():
    with pytest.raises(ValueError, match="`num_draws` must be a non-negative integer. Rec.*-1"):
        plotting.plot_predictive_band(FakeModel(), X, num_draws=-1)


def test_draws_of_a_model_with_a_link_are_on_the_scale_of_the_targets():
    model = FakeModel()
    model.likelihood = likelihoods.Poisson()
    ax = plotting.plot_predictive_band(model, X, num_draws=2, seed=3)
    means = np.exp(model.sample_functions(X, 2, 3))
    for line, mean in zip(ax.lines, means, strict=False):  # the line of the mean comes after them
        np.testing.assert_allclose(line.get_ydata(), mean[:, 0])


def test_a_model_along_one_of_its_inputs():
    class Plane(FakeModel):
        """Has f(x) = sin(x_1) + x_0, which the mean of x_0 shifts."""

        def predict(self, x):
            assert x.shape[1] == 2
            found = super().predict(x[:, 1:])
            return {**found, "mean": found["mean"] + x[:, :1]}

        def sample_functions(self, x, num_draws, seed):
            return super().sample_functions(x[:, 1:], num_draws, seed) + x[:, :1]

    rows = np.array([[1.0, 7.0], [3.0, 9.0]])
    along = plotting.AlongInput(Plane(), rows, column=1)
    ax = plotting.plot_predictive_band(along, X)
    mean = labelled(ax)["mean"]
    np.testing.assert_allclose(mean.get_ydata(), np.sin(X[:, 0]) + 2.0)
    np.testing.assert_allclose(along.predict_distribution(X).mean(), np.sin(X) + 2.0)
    at_a_row = plotting.AlongInput(Plane(), rows, column=1, at=rows[1])
    np.testing.assert_allclose(at_a_row.predict(X)["mean"], np.sin(X) + 3.0)
    assert ax.get_xlabel() == "x"
    with pytest.raises(ValueError, match=r"`at` must have a value for each of the 2 inputs"):
        plotting.AlongInput(Plane(), rows, column=1, at=[1.0])
    with pytest.raises(ValueError, match=r"`x` must have shape \[N, D_in\] with the column"):
        plotting.AlongInput(Plane(), rows, column=2)


def test_a_column_of_a_frame_is_found_by_its_name():
    class Frame:
        columns = ("size", "age")

        def __array__(self, dtype=None, copy=None):
            return np.array([[1, 7], [2, 8]], dtype)

    along = plotting.AlongInput(FakeModel(), Frame(), column="age")
    np.testing.assert_array_equal(along._rows(X[:2]), [[1.5, X[0, 0]], [1.5, X[1, 0]]])
    assert along.input_name == "age"
    with pytest.raises(ValueError, match=r"with the column.*column='colour'"):
        plotting.AlongInput(FakeModel(), Frame(), column="colour")


def test_points_that_are_missing_are_not_shown():
    y = np.ma.array(np.sin(X), mask=X > 1.0)
    ax = plotting.plot_predictive_band(FakeModel(), X, data=(X, y), num_draws=0)
    shown = labelled(ax)["data"].get_ydata()
    np.testing.assert_array_equal(shown, np.where(X > 1.0, np.nan, np.sin(X))[:, 0])
    for x, data, said in [
        (np.ma.array(X, mask=X > 1.0), None, "`x` must be finite"),
        (X + 0j, None, "of dtype complex128"),
        (X, (X, X.astype("datetime64[s]")), "`data y` must .* dtype datetime64"),
        (X, (X, np.where(X > 1.0, np.inf, X)), "`data y` must not be infinite"),
        (X, (X, X[:3]), "`data` must have a y for each x"),
        (X, 3.0, "`data` must be a pair"),
    ]:
        with pytest.raises((TypeError, ValueError), match=said):
            plotting.plot_predictive_band(FakeModel(), x, data=data)


def test_what_is_no_model():
    inputs = keras.Input((1,))
    network = keras.Model(inputs, keras.layers.Dense(1)(inputs))
    for model in (FakeModel, network, "model", None):
        with pytest.raises(TypeError, match=r"`model` must be a FunctionSpaceModel \(an instance"):
            plotting.plot_predictive_band(model, X)
        with pytest.raises(TypeError, match=r"`model` must be a FunctionSpaceModel \(an instance"):
            plotting.AlongInput(model, X, 0)


def test_the_other_inputs_of_a_series_go_by_its_index():
    frame = pd.DataFrame({"size": [1.0, 2.0], "age": [7.0, 8.0]})
    row = pd.Series({"age": 5.0, "size": 3.0})
    for at in (row, row[["size", "age"]], [3.0, 5.0], pd.Series([3.0, 5.0])):
        along = plotting.AlongInput(FakeModel(), frame, "size", at=at)
        np.testing.assert_array_equal(along.center, [3.0, 5.0])
    for at, said in [
        (row.rename({"age": "rooms"}), "`at` must have the names of the columns"),
        (pd.Series({"size": 1.0, "age": np.nan}), "`at` must be finite"),
        (np.ma.array([1.0, 2.0], mask=[1, 0]), "`at` must be finite"),
    ]:
        with pytest.raises(ValueError, match=said):
            plotting.AlongInput(FakeModel(), frame, "size", at=at)
    with pytest.raises(ValueError, match=r"`x` must be finite.*in column 'age'"):
        plotting.AlongInput(FakeModel(), frame.where(frame < 8.0), "size")
    along = plotting.AlongInput(FakeModel(), frame, "size")
    with pytest.raises(ValueError, match="`x` must be finite"):
        along.predict(np.ma.array(X, mask=X > 1.0))
