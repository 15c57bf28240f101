import matplotlib.pyplot as plt
import numpy as np
import pytest
import tensorflow_probability as tfp
from figures import labelled, limits, normal
from scipy import stats

from tfp_fnspace import metrics, plotting
from tfp_fnspace.plotting.calibration import _binomial_band

tfd = tfp.distributions


# ------------------------------------------------------------------------------- curve


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


# ------------------------------------------------------------------------------- PIT histogram


def test_bars_are_the_density_of_the_pit():
    y = np.random.default_rng(0).normal(size=(60, 2))
    y[3, 1] = np.nan
    ax = plotting.plot_pit_histogram(y, normal(60, 2, scale=2.0), num_bins=5)
    u = stats.norm.cdf(y[~np.isnan(y)] / 2.0)
    counts = [np.sum((u >= b / 5) & (u < (b + 1) / 5)) for b in range(5)]
    bars = list(ax.containers[0])
    np.testing.assert_allclose([b.get_height() for b in bars], 5 * np.array(counts) / 119)
    np.testing.assert_allclose([b.get_x() for b in bars], np.arange(5) / 5)
    assert "model (119 observations)" in labelled(ax)


def test_band_of_the_pit_has_binomial_quantiles():
    ax = plotting.plot_pit_histogram(np.zeros((80, 1)), normal(80), num_bins=4, level=0.8)
    band = labelled(ax)["all bars of 80 % of calibrated models"]
    low, high = stats.binom.ppf([0.2 / 8, 1.0 - 0.2 / 8], 80, 0.25) / 80 * 4
    corners = band.get_path().transformed(band.get_patch_transform()).vertices
    np.testing.assert_allclose([corners[:, 1].min(), corners[:, 1].max()], [low, high])


def test_all_bars_of_a_calibrated_forecast_are_in_the_band_as_often_as_it_says():
    num_bins, num_rows, repeats, false_fail = 10, 100, 2000, 1e-6
    low, high = _binomial_band([num_rows], [1.0 / num_bins], 0.9, num_bins)
    u = np.random.default_rng(0).uniform(size=(repeats, num_rows))
    counts = np.stack([np.histogram(row, num_bins, (0.0, 1.0))[0] for row in u]) / num_rows
    inside = np.sum(np.all((counts >= low) & (counts <= high), axis=1))
    assert inside >= stats.binom.ppf(false_fail, repeats, 0.9)
    # A band of 90 % for each bar by itself would hold all of them much less often.
    assert np.mean(np.all(np.abs(counts - 0.1) <= 1.645 * 0.03, axis=1)) < 0.6


@pytest.mark.parametrize(("count", "p"), [(1, 0.3), (7, 1e-9), (50, 0.02), (300, 0.97), (9, 1.0)])
def test_quantiles_are_those_of_scipy(count, p):
    low, high = _binomial_band([count], [p], 0.9, 1)
    np.testing.assert_array_equal(
        np.round(np.r_[low, high] * count), stats.binom.ppf([0.05, 0.95], count, p)
    )


def test_pit_histogram_refuses():
    y, distribution = np.zeros((5, 1)), normal(5)
    for options, said in [
        ({"num_bins": 0}, "`num_bins` must be a positive integer"),
        ({"level": 1.0}, "`level` must lie strictly between 0 and 1"),
    ]:
        with pytest.raises(ValueError, match=said):
            plotting.plot_pit_histogram(y, distribution, **options)
    with pytest.raises(ValueError, match="`y` must have an observation"):
        plotting.plot_pit_histogram(np.full((5, 1), np.nan), distribution)


# ------------------------------------------------------------------------------- reliability


def classes(num_rows=200, num_classes=3, seed=0):
    """Returns probabilities and labels of which the last is missing."""
    rng = np.random.default_rng(seed)
    probabilities = rng.dirichlet(np.ones(num_classes), size=num_rows)
    labels = np.array([rng.choice(num_classes, p=p) for p in probabilities], float)
    labels[-1] = np.nan
    return probabilities, labels


def by_bin(probabilities, right, num_bins):
    """Returns mean probability, share of hits and count of each bin that is used."""
    found = []
    for b in range(num_bins):
        inside = (probabilities > b / num_bins) & (probabilities <= (b + 1) / num_bins)
        if inside.any():
            found.append((probabilities[inside].mean(), right[inside].mean(), inside.sum()))
    return np.array(found).T


@pytest.mark.parametrize("label", [None, 0, 2])
def test_points_are_shares_by_probability(label):
    probabilities, labels = classes()
    ax = plotting.plot_reliability(
        labels, tfd.Categorical(probs=probabilities), label=label, num_bins=7
    )
    chosen = probabilities.argmax(axis=1) if label is None else np.full(200, label)
    p = probabilities[np.arange(200), chosen][:-1]
    mean, share, count = by_bin(p, (labels == chosen)[:-1], 7)
    (line,) = [line for name, line in labelled(ax).items() if name.startswith("model")]
    np.testing.assert_allclose(line.get_xydata(), np.c_[mean, share], rtol=1e-12)
    assert [text.get_text() for text in ax.texts] == [f"{n:.0f}" for n in count]
    bars = labelled(ax)["all points of 90 % of calibrated models"]
    tail = 0.1 / (2 * len(mean))
    low, high = (stats.binom.ppf(q, count.astype(int), mean) / count for q in (tail, 1 - tail))
    np.testing.assert_allclose([b.get_y() for b in bars], low, atol=1e-12)
    np.testing.assert_allclose([b.get_height() for b in bars], high - low, atol=1e-12)


def test_confidence_has_the_calibration_error_of_the_metric():
    probabilities, labels = classes()
    distribution = tfd.Categorical(probs=probabilities)
    error = float(metrics.expected_calibration_error(labels, distribution))
    ax = plotting.plot_reliability(labels, distribution)
    assert f"model (expected calibration error {error:.3f})" in labelled(ax)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("confidence", "share of right predictions")


def test_yes_or_no_outputs_are_pooled():
    rng = np.random.default_rng(1)
    p = rng.uniform(size=(50, 2))
    y = (rng.uniform(size=(50, 2)) < p).astype(float)
    y[0, 1] = np.nan
    distribution = tfd.Independent(tfd.Bernoulli(probs=p), 1)
    ax = plotting.plot_reliability(y, distribution, label=1, num_bins=4)
    known = ~np.isnan(y)
    mean, share, _ = by_bin(p[known], y[known] == 1, 4)
    line = labelled(ax)["model (99 observations)"]
    np.testing.assert_allclose(line.get_xydata(), np.c_[mean, share], rtol=1e-6)  # TFP has float32


def test_reliability_refuses():
    probabilities, labels = classes()
    distribution = tfd.Categorical(probs=probabilities)
    for label in (3, -1, "a"):
        with pytest.raises(ValueError, match=r"`label` must be one of \[0, 1, 2\]. Received: labe"):
            plotting.plot_reliability(labels, distribution, label=label)
    with pytest.raises(TypeError, match="Scores of classes need tfd.Categorical"):
        plotting.plot_reliability(np.zeros((5, 1)), normal(5))


# ------------------------------------------------------------------------------- sharpness


def test_points_are_coverage_and_width():
    rng = np.random.default_rng(2)
    scale = rng.uniform(0.5, 2.0, size=(40, 1))
    y = rng.normal(size=(40, 1))
    distribution = tfd.Independent(tfd.Normal(np.zeros((40, 1)), scale), 1)
    ax = plotting.plot_sharpness(y, distribution, normal(40, scale=3.0))
    levels = np.r_[np.arange(1, 10) / 10, 0.95]
    z = stats.norm.ppf(0.5 + levels / 2)
    for name, s in [("model", scale), ("reference", np.full((40, 1), 3.0))]:
        expected = np.c_[np.mean(np.abs(y / s) <= z, axis=0), 2 * z * s.mean()]
        np.testing.assert_allclose(labelled(ax)[name].get_xydata(), expected, rtol=1e-12)
    nominal = labelled(ax)["model, if it were calibrated"]
    np.testing.assert_allclose(nominal.get_xydata(), np.c_[levels, 2 * z * scale.mean()])
    assert [text.get_text() for text in ax.texts] == ["50 %", "80 %", "90 %", "95 %"]


def test_sharpness_without_a_reference_has_one_curve_and_its_nominal_one():
    ax = plotting.plot_sharpness(np.zeros((10, 1)), normal(10))
    assert list(labelled(ax)) == ["model, if it were calibrated", "model"]
