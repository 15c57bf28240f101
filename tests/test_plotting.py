import builtins

import keras
import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import tensorflow_probability as tfp
from matplotlib.colors import same_color
from scipy import stats

from tfp_fnspace import datasets, likelihoods, plotting

tfd = tfp.distributions

X = np.linspace(-2.0, 2.0, 41)[:, np.newaxis]
Z_90 = stats.norm.ppf(0.95)


class FakeModel:
    """A fake model with f(x) = sin(x) and known spreads.

    `distribution` maps (mean, stddev) to the distribution of observations.
    """

    def __init__(self, distribution=tfd.Normal, outputs=1):
        self.distribution = distribution
        self.outputs = outputs

    def predict(self, x):
        mean = np.repeat(np.sin(x), self.outputs, axis=1)
        epistemic = 0.3 + 0.1 * mean**2
        aleatoric = np.full_like(mean, 0.4)
        return {
            "mean": mean,
            "stddev": np.hypot(epistemic, aleatoric),
            "epistemic_stddev": epistemic,
            "aleatoric_stddev": aleatoric,
        }

    def predict_distribution(self, x):
        prediction = self.predict(x)
        return tfd.Independent(self.distribution(prediction["mean"], prediction["stddev"]), 1)

    def sample_functions(self, x, num_draws, seed):
        shift = np.random.default_rng(seed).standard_normal((num_draws, 1, 1))
        return np.sin(x) + 0.3 * shift


def two_normals(mean, stddev):
    """Returns 0.3 N(mean - 4, stddev) + 0.7 N(mean + 4, stddev): bimodal and off-centre."""
    return tfd.MixtureSameFamily(
        tfd.Categorical(probs=np.array([0.3, 0.7])),
        tfd.Normal(mean[..., np.newaxis] + np.array([-4.0, 4.0]), stddev[..., np.newaxis]),
    )


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def labelled(ax):
    return dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))


def limits(band, x):
    """Returns the lower and upper edge of a `fill_between` at the sorted inputs."""
    points = band.get_paths()[0].vertices
    edges = [points[np.isclose(points[:, 0], at), 1] for at in x[:, 0]]
    return np.array([e.min() for e in edges]), np.array([e.max() for e in edges])


# ------------------------------------------------------------------------------- band


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


# ------------------------------------------------------------------------------- calibration


def normal(num_rows, outputs=1, scale=1.0):
    zeros = np.zeros((num_rows, outputs))
    return tfd.Independent(tfd.Normal(zeros, scale + zeros), 1)


def test_calibration_of_exact_quantiles_is_the_diagonal():
    y = stats.norm.ppf((np.arange(1000) + 0.5) / 1000)[:, np.newaxis]
    ax = plotting.plot_calibration(y, normal(1000))
    curve = labelled(ax)["model (1000 observations)"]
    np.testing.assert_allclose(curve.get_ydata(), curve.get_xdata(), atol=1e-3)
    assert "calibration error 0.000" in labelled(ax)


def test_calibration_of_too_wide_a_distribution_is_the_known_curve():
    y = stats.norm.ppf((np.arange(1000) + 0.5) / 1000)[:, np.newaxis]
    ax = plotting.plot_calibration(y, normal(1000, scale=2.0))
    levels, observed = labelled(ax)["model (1000 observations)"].get_data()
    # u = Phi(y / 2) <= p exactly if y <= 2 Phi^-1(p).
    expected = stats.norm.cdf(2 * stats.norm.ppf(levels))
    np.testing.assert_allclose(observed, expected, atol=1e-3)
    # The metric takes the nominal levels 0.05, 0.1, ..., 0.95.
    error = np.mean(np.abs(observed - levels)[5:100:5])
    assert f"calibration error {error:.3f}" in labelled(ax)


def test_calibration_shades_the_area_to_the_diagonal():
    ax = plotting.plot_calibration(np.full((10, 1), 0.5), normal(10))
    levels = np.linspace(0, 1, 101)[:, np.newaxis]
    low, high = limits(ax.collections[0], levels)
    observed = levels[:, 0] >= stats.norm.cdf(0.5)
    np.testing.assert_allclose(low, np.minimum(observed, levels[:, 0]))
    np.testing.assert_allclose(high, np.maximum(observed, levels[:, 0]))


def test_calibration_pools_outputs():
    ax = plotting.plot_calibration(np.zeros((10, 3)), normal(10, outputs=3))
    assert "model (30 observations)" in labelled(ax)


def test_calibration_leaves_missing_observations_out():
    y = np.array([[0.5], [np.nan], [-0.5]])
    ax = plotting.plot_calibration(y, normal(3))
    assert "model (2 observations)" in labelled(ax)
    assert labelled(ax)["model (2 observations)"].get_ydata()[-1] == 1.0


def test_calibration_draws_diagonal_and_labels_into_given_axes():
    _, ax = plt.subplots()
    assert plotting.plot_calibration(np.zeros((10, 1)), normal(10), ax=ax) is ax
    np.testing.assert_array_equal(
        labelled(ax)["perfectly calibrated"].get_xydata(), [[0, 0], [1, 1]]
    )
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("nominal probability", "observed frequency")


# ------------------------------------------------------------------------------- history


CURVES = {
    "nll": [3.0, 2.0, 1.0],
    "rmse": [1.5, 1.2, 1.1],
    "val_nll": [3.0, 1.5, 2.5],
    "learning_rate": [1e-3, 1e-3, 1e-4],
}


def test_history_draws_twins_in_one_colour():
    lines = labelled(plotting.plot_history(CURVES))
    assert list(lines) == ["nll", "val_nll", "rmse", "best val_nll: 1.5 at epoch 2"]
    assert same_color(lines["nll"].get_color(), lines["val_nll"].get_color())
    assert not same_color(lines["nll"].get_color(), lines["rmse"].get_color())
    assert lines["nll"].get_linestyle() == "-"
    assert lines["val_nll"].get_linestyle() == "--"
    np.testing.assert_array_equal(lines["val_nll"].get_xydata(), [[1, 3], [2, 1.5], [3, 2.5]])


def test_history_marks_the_best_epoch():
    ax = plotting.plot_history(CURVES, metrics=["nll"])
    marker = labelled(ax)["best val_nll: 1.5 at epoch 2"]
    np.testing.assert_array_equal(marker.get_xydata(), [[2, 1.5]])
    assert ax.get_ylabel() == "nll"


def test_history_without_val_nll_marks_nothing():
    ax = plotting.plot_history(CURVES, metrics=["rmse"])
    assert [line.get_label() for line in ax.lines] == ["rmse"]


def test_history_ignores_epochs_without_a_value():
    ax = plotting.plot_history({"nll": [3.0, 2.0, 1.0], "val_nll": [np.nan, 2.5, np.nan]})
    np.testing.assert_array_equal(labelled(ax)["val_nll"].get_xydata(), [[2, 2.5]])
    assert "best val_nll: 2.5 at epoch 2" in labelled(ax)


def test_history_of_nan_only_marks_nothing():
    ax = plotting.plot_history({"val_nll": [np.nan, np.nan]})
    assert list(labelled(ax)) == ["val_nll"]


def test_history_of_a_continued_keras_fit_counts_on():
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(loss="mse")
    x = np.zeros((4, 1))
    history = model.fit(x, x, epochs=5, initial_epoch=2, validation_data=(x, x), verbose=0)
    lines = labelled(plotting.plot_history(history))
    assert list(lines) == ["loss", "val_loss"]
    np.testing.assert_array_equal(lines["loss"].get_xdata(), [3, 4, 5])


def test_history_refuses_unknown_metric():
    with pytest.raises(ValueError, match=r"has \['nll', 'rmse', 'learning_rate'\]. Received: .*f1"):
        plotting.plot_history(CURVES, metrics=["f1"])


def test_history_refuses_an_empty_record():
    with pytest.raises(ValueError, match=r"`metrics` must name curves .* has \[\]"):
        plotting.plot_history({})


def test_history_refuses_curves_of_different_length():
    with pytest.raises(ValueError, match=r"fill the others with NaN. Received: .*'val_nll': 1"):
        plotting.plot_history({"nll": [2.0, 1.0], "val_nll": [1.0]})


# ------------------------------------------------------------------------------- dependency


def test_missing_matplotlib_is_named(monkeypatch):
    real_import = builtins.__import__

    def without_matplotlib(name, *args, **kwargs):
        if name.startswith("matplotlib"):
            raise ImportError(f"No module named '{name}'")
        return real_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_matplotlib)
    with pytest.raises(ImportError, match=r"pip install matplotlib"):
        plotting.plot_history(CURVES)


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
