"""Proper scores against the package `scoringrules`, SciPy and closed forms; scores by group."""

import keras
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import stats

from tfp_fnspace import metrics

tfd = tfp.distributions

N, D, S = 9, 3, 64


def normal(loc, scale):
    return tfd.Independent(tfd.Normal(loc, scale), 1)


def parameters(outputs=D, seed=0):
    rng = np.random.default_rng(seed)
    shape = (N, outputs)
    return rng.normal(size=shape), rng.uniform(0.3, 2.0, shape), rng.normal(size=shape)


def with_missing(y):
    """Returns targets with a missing entry, and a row of which nothing is known."""
    y = y.copy()
    y[2, 1], y[4] = np.nan, np.nan
    return y


# Against scoringrules -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sr():
    return pytest.importorskip("scoringrules", reason="needs scoringrules")


def test_scores_of_one_output_are_those_of_scoringrules(sr):
    loc, scale, y = parameters()
    distribution, reference = normal(loc, scale), stats.norm(loc, scale)
    level = 0.8
    low, high = reference.ppf([[[0.1]], [[0.9]]])
    for actual, expected in [
        (metrics.interval_score(y, distribution, level), sr.interval_score(y, low, high, 0.2)),
        (
            metrics.pinball_loss(y, distribution, level),
            sr.quantile_score(y, reference.ppf(level), level),
        ),
        (metrics.crps(y, distribution), sr.crps_normal(y, loc, scale)),
        (metrics.nll(y, distribution) / D, sr.logs_normal(y, loc, scale)),
    ]:
        np.testing.assert_allclose(actual, np.mean(expected), rtol=1e-9)


def test_scores_of_samples_are_those_of_scoringrules(sr):
    samples = np.random.default_rng(1).gumbel(size=(N, S, 1))
    y = parameters(1)[2]
    empirical = tfd.Empirical(samples, event_ndims=1)
    expected = sr.dssuv_ensemble(y[:, 0], samples[..., 0], m_axis=-1, bias=True)
    actual = metrics.dawid_sebastiani_score(y, empirical)
    np.testing.assert_allclose(actual, np.mean(expected), rtol=1e-9)
    expected = np.mean(sr.crps_ensemble(y[:, 0], samples[..., 0]))
    np.testing.assert_allclose(metrics.energy_score(y, empirical), expected, rtol=1e-9)


def test_energy_score_is_that_of_its_draws(sr):
    loc, scale, y = parameters()
    distribution = RecordsDraws(tfd.Normal(loc, scale), 1)
    actual = metrics.energy_score(y, distribution, num_samples=S, seed=3)
    draws = np.concatenate(distribution.drawn)[:S]  # [S, N, D]
    expected = sr.es_ensemble(y, draws, m_axis=0, v_axis=-1, estimator="akr")
    np.testing.assert_allclose(actual, np.mean(expected), rtol=1e-9)


def test_brier_score_of_two_classes_is_that_of_scoringrules(sr):
    rng = np.random.default_rng(2)
    p, y = rng.uniform(size=N), rng.integers(0, 2, N)
    expected = np.mean(sr.brier_score(y, p))
    two = tfd.Categorical(probs=np.c_[1.0 - p, p])
    np.testing.assert_allclose(metrics.brier_score(y, two), expected, rtol=1e-12)
    yes = tfd.Independent(tfd.Bernoulli(probs=tf.constant(p[:, np.newaxis])), 1)
    np.testing.assert_allclose(metrics.brier_score(y[:, np.newaxis], yes), expected, rtol=1e-12)


class RecordsDraws(tfd.Independent):
    """Keeps what is drawn of it."""

    def __init__(self, *args):
        super().__init__(*args)
        self.drawn = []

    def sample(self, *args, **kwargs):
        draw = super().sample(*args, **kwargs)
        self.drawn.append(draw.numpy())
        return draw


# Closed forms and integrals -----------------------------------------------------------------------


def test_dawid_sebastiani_score_of_gaussians_is_the_log_score():
    loc, scale, y = parameters()
    y = with_missing(y)
    known = ~np.isnan(y)
    log_density = stats.norm(loc, scale).logpdf(y)[known]
    expected = -2.0 * np.mean(log_density) - np.log(2.0 * np.pi)
    actual = metrics.dawid_sebastiani_score(y, normal(loc, scale))
    np.testing.assert_allclose(actual, expected, rtol=1e-9)


def test_dawid_sebastiani_score_of_a_mixture_has_its_moments():
    weights, means, stddevs = np.array([0.2, 0.8]), np.array([-1.0, 2.0]), np.array([0.5, 1.5])
    mixture = tfd.MixtureSameFamily(
        tfd.Categorical(probs=weights[np.newaxis]),
        tfd.Independent(tfd.Normal(means[None, :, None], stddevs[None, :, None]), 1),
    )
    mean = weights @ means
    variance = weights @ (stddevs**2 + means**2) - mean**2
    actual = metrics.dawid_sebastiani_score([[3.0]], mixture)
    np.testing.assert_allclose(actual, (3.0 - mean) ** 2 / variance + np.log(variance), rtol=1e-9)


def test_twice_the_integral_of_the_pinball_loss_is_the_crps():
    y, distribution = [[1.3]], normal(np.array([[0.5]]), np.array([[2.0]]))
    nodes, weights = np.polynomial.legendre.leggauss(20)
    kink, value = float(metrics.pit(y, distribution)[0, 0]), 0.0
    for first, last in ((0.0, kink), (kink, 1.0)):
        levels = first + (last - first) * (nodes + 1.0) / 2.0
        losses = [float(metrics.pinball_loss(y, distribution, float(level))) for level in levels]
        value += (last - first) / 2.0 * np.dot(weights, losses)
    np.testing.assert_allclose(2.0 * value, metrics.crps(y, distribution), rtol=1e-3)
    half = metrics.pinball_loss(y, distribution, 0.5)
    np.testing.assert_allclose(2.0 * half, metrics.mae(y, distribution), rtol=1e-12)


def test_interval_score_adds_misses_to_the_width():
    loc, scale, y = parameters()
    y[0], y[1] = 20.0, -20.0
    z = stats.norm.ppf(0.95)
    outside = np.maximum(np.abs(y - loc) - z * scale, 0.0)
    expected = np.mean(2 * z * scale + 20.0 * outside)
    np.testing.assert_allclose(metrics.interval_score(y, normal(loc, scale)), expected, rtol=1e-9)


def test_energy_score_of_standard_normals_has_no_bias():
    """For y = 0 and X ~ N(0, I_D), ||X|| has a chi distribution, and X - X' is wider by sqrt(2)."""
    y = np.zeros((4000, D))
    mean = stats.chi(D).mean()
    expected = mean - 0.5 * np.sqrt(2.0) * mean
    actual = float(metrics.energy_score(y, normal(y, y + 1.0), num_samples=2))
    # Two draws: the mean over all pairs, of which half are of a draw with itself, would be too
    # large by sqrt(2) mean / 4 = 0.56. A row has this variance, from other draws:
    x = np.random.default_rng(0).normal(size=(2, 4000, D))
    values = np.linalg.norm(x, axis=-1).mean(axis=0) - 0.5 * np.linalg.norm(x[1] - x[0], axis=-1)
    assert abs(actual - expected) < stats.norm.isf(5e-7) * np.std(values) / np.sqrt(4000)


def test_energy_score_of_one_output_is_the_crps():
    loc, scale, y = parameters(1)
    y[3] = np.nan
    expected = metrics.crps(y, normal(loc, scale))
    for num_samples in (2, 10):
        actual = metrics.energy_score(y, normal(loc, scale), num_samples, seed=num_samples)
        np.testing.assert_array_equal(actual, expected)
    one = tfd.Normal(loc[:, 0], scale[:, 0])
    np.testing.assert_allclose(metrics.energy_score(y[:, 0], one), expected, rtol=1e-12)


def test_energy_score_leaves_missing_entries_out():
    loc, scale, y = parameters()
    y = with_missing(y)
    distribution = RecordsDraws(tfd.Normal(loc, scale), 1)
    actual = metrics.energy_score(y, distribution, S)
    draws = np.concatenate(distribution.drawn)[:S]  # [S, N, D]
    values = []
    for n in np.delete(np.arange(N), 4):
        x, t = draws[:, n, ~np.isnan(y[n])], y[n, ~np.isnan(y[n])]
        errors = np.mean([np.linalg.norm(x[i] - t) for i in range(S)])
        values.append(errors - 0.5 * np.mean([np.linalg.norm(x[i] - x[i - 1]) for i in range(S)]))
    np.testing.assert_allclose(actual, np.mean(values), rtol=1e-9)


def test_energy_score_sees_correlation():
    """The margins are the same; the sample is drawn from the correlated distribution."""
    factor = np.linalg.cholesky([[1.0, 0.95], [0.95, 1.0]])
    y = np.random.default_rng(0).normal(size=(2000, 2)) @ factor.T
    zeros = np.zeros_like(y)
    right = tfd.MultivariateNormalTriL(zeros, factor)
    assert metrics.energy_score(y, right) < metrics.energy_score(y, normal(zeros, zeros + 1.0))


@pytest.mark.slow
def test_energy_score_of_a_mixture_in_another_dtype_and_in_a_graph():
    rng = np.random.default_rng(0)
    loc, scale = rng.normal(size=(N, 2, D)), rng.uniform(0.3, 2.0, size=(N, 2, D))
    y = parameters()[2]

    def score(probs):
        weights = tfd.Categorical(probs=probs)
        return metrics.energy_score(y, tfd.MixtureSameFamily(weights, normal(loc, scale)), 8)

    expected = score(np.float64(np.float32([0.3, 0.7])))
    np.testing.assert_allclose(score([0.3, 0.7]), expected, rtol=1e-6)
    np.testing.assert_allclose(tf.function(score)(tf.constant([0.3, 0.7])), expected, rtol=1e-6)


def test_brier_score_of_classes():
    rng = np.random.default_rng(0)
    probabilities, y = rng.dirichlet(np.ones(4), size=N), rng.integers(0, 4, N).astype(float)
    y[5] = np.nan
    terms = [
        sum((probabilities[n, k] - (y[n] == k)) ** 2 for k in range(4)) for n in range(N) if n != 5
    ]
    actual = metrics.brier_score(y, tfd.Categorical(probs=probabilities))
    np.testing.assert_allclose(actual, np.mean(terms), rtol=1e-12)


# Keras metrics ------------------------------------------------------------------------------------


def test_energy_score_over_batches_has_new_draws_in_each():
    loc, scale, y = parameters()
    y = with_missing(y)
    metric = metrics.EnergyScore(num_samples=20, seed=5)
    metric.update_state(y, normal(loc, scale))
    expected = metrics.energy_score(y, normal(loc, scale), 20, seed=5)
    np.testing.assert_allclose(metric.result(), expected, rtol=1e-12)
    metric.update_state(y, normal(loc, scale))  # the same rows with other draws
    again = 2.0 * metric.result() - expected
    assert abs(again - expected) > 1e-6
    np.testing.assert_allclose(again, expected, rtol=0.2)
    metric.reset_state()
    metric.update_state(y, normal(loc, scale))
    np.testing.assert_allclose(metric.result(), expected, rtol=1e-12)


def test_energy_score_survives_serialisation_and_compiles_with_xla():
    metric = metrics.EnergyScore(num_samples=20, seed=5, name="es")
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(metric))
    assert copy.get_config() == metric.get_config()
    assert (copy.num_samples, copy.seed, copy.name) == (20, 5, "es")
    loc, scale, y = parameters()
    compiled = tf.function(metric.update_state, jit_compile=True)
    compiled(y, normal(loc, scale))
    # XLA draws from another stream; both are estimates from 20 draws of 9 rows.
    np.testing.assert_allclose(
        metric.result(), metrics.energy_score(y, normal(loc, scale)), rtol=0.2
    )


def test_brier_score_over_batches():
    rng = np.random.default_rng(0)
    probabilities, y = rng.dirichlet(np.ones(3), size=N), rng.integers(0, 3, N)
    metric = metrics.BrierScore()
    for part in (slice(0, 4), slice(4, N)):
        metric.update_state(y[part], tfd.Categorical(probs=probabilities[part]))
    expected = metrics.brier_score(y, tfd.Categorical(probs=probabilities))
    np.testing.assert_allclose(metric.result(), expected, rtol=1e-12)
    assert metric.name == "brier"


# By group -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("score", [metrics.rmse, metrics.nll, metrics.crps])
def test_the_score_of_a_group_is_that_of_its_rows(score):
    loc, scale, y = parameters()
    y = with_missing(y)
    groups = np.array(["b", "a", "b", "c", "d", "a", "c", "b", "a"])
    found = metrics.by_group(score, y, normal(loc, scale), groups)
    assert list(found) == ["a", "b", "c", "d"]
    for label in "abc":
        of = groups == label
        expected = score(y[of], normal(loc[of], scale[of]))
        np.testing.assert_allclose(found[label], expected, rtol=1e-9)
    assert np.isnan(found["d"])  # nothing is known of its row


def test_groups_of_labels_and_of_frames():
    rng = np.random.default_rng(0)
    probabilities, y = rng.dirichlet(np.ones(3), size=N), rng.integers(0, 3, N)
    groups = pd.Series(pd.Categorical(["x", "y", "y"] * 3))
    found = metrics.by_group(metrics.accuracy, y, tfd.Categorical(probs=probabilities), groups)
    hits = probabilities.argmax(axis=1) == y
    assert found == {
        "x": pytest.approx(np.mean(hits[::3])),
        "y": pytest.approx(np.mean(hits[groups == "y"])),
    }
    by_number = metrics.by_group(
        lambda y, d: metrics.brier_score(y, d), y, tfd.Categorical(probs=probabilities), y
    )
    assert list(by_number) == np.unique(y).tolist()


def test_groups_are_refused_unless_there_is_one_for_each_row():
    loc, scale, y = parameters()
    distribution = normal(loc, scale)
    for groups, said in [
        (["a"] * 4, r"a label for each of the 9 rows. Received: groups of shape \(4,\)"),
        (np.zeros((N, 1)), r"Received: groups of shape \(9, 1\)"),
        (["a"] * 8 + [None], "can be sorted, none of them missing"),
        ([1.0] * 8 + [np.nan], "can be sorted, none of them missing"),
        (np.array([1] * 8 + ["a"], object), "can be sorted, none of them missing"),
    ]:
        with pytest.raises(ValueError, match=said):
            metrics.by_group(metrics.rmse, y, distribution, groups)
    with pytest.raises(TypeError, match="`score` must be a function .*score='crps'"):
        metrics.by_group("crps", y, distribution, np.zeros(N))
    with pytest.raises(TypeError, match="distribution must be a tfp.distributions.Distribution"):
        metrics.by_group(metrics.rmse, y, None, np.zeros(N))


@pytest.mark.parametrize("options", [{"num_samples": 1}, {"num_samples": 2.5}, {"seed": -1}])
def test_energy_score_refuses_options(options):
    with pytest.raises(ValueError, match=f"`{next(iter(options))}` must be"):
        metrics.EnergyScore(**options)
