"""Measurement sets: their distributions, what they keep of the data, and the adversarial set."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from tfp_fnspace.methods.fbnn import functional_kl
from tfp_fnspace.methods.fbnn.adversarial import Adversarial, gradient_ascent
from tfp_fnspace.methods.fbnn.measurement import (
    Box,
    CallableSet,
    DataStream,
    Normal,
    TrainingRows,
)
from tfp_fnspace.processes import GaussianProcess, ard_squared_exponential

FALSE_FAIL = 1e-6
ROWS = np.random.default_rng(0).normal(size=(40, 3)) * [1.0, 2.0, 0.0] + [0.0, 5.0, 1.0]


@keras.saving.register_keras_serializable("test_measurement")
def corners(num_points, seed):
    return tf.cast(tf.random.stateless_uniform([num_points, 3], seed) > 0.5, tf.float32)


#: Name -> (constructor, number of points).
SETS = {
    "rows": (TrainingRows, 0),
    "box": (lambda: Box(7), 7),
    "box_given": (lambda: Box(7, low=-1.0, high=[1.0, 2.0, 3.0]), 7),
    "normal": (lambda: Normal(7), 7),
    "normal_given": (lambda: Normal(7, 0.5, [1.0, 2.0, 3.0]), 7),
    "callable": (lambda: CallableSet(7, corners), 7),
    "stream": (lambda: DataStream(7, capacity=20), 7),
    "adversarial": (lambda: Adversarial(7), 7),
}


@pytest.mark.parametrize("name", SETS)
def test_contract(name):
    make, count = SETS[name]
    measurement = make()
    measurement.adapt(ROWS)
    batch = ROWS[:5].astype("float32")
    points = measurement.points(batch, seed=1)
    assert points.shape == (5 + count, 3)
    assert points.dtype == tf.float32
    assert_array_equal(points[:5], batch)
    assert_array_equal(points, measurement.points(batch, seed=1))
    in_graph = tf.function(measurement.points)
    assert_allclose(in_graph(batch, tf.constant([3, 4])), measurement.points(batch, (3, 4)), 1e-6)
    if name not in ("rows", "adversarial"):
        assert np.abs(points - measurement.points(batch, seed=2)).max() > 0.0
    assert not measurement.trainable_variables
    config = keras.saving.serialize_keras_object(measurement)
    copy = keras.saving.deserialize_keras_object(config)
    assert copy.built or name in ("rows", "callable")
    copy.set_weights(measurement.get_weights())
    assert copy.get_config() == measurement.get_config()
    assert_array_equal(copy.points(batch, seed=1), points)


def test_box_is_the_papers(assert_mean_close):
    box = Box(20_000)
    assert not box.ready
    box.adapt(tf.data.Dataset.from_tensor_slices((ROWS, ROWS[:, 0])).batch(7))
    assert box.ready
    low, high = ROWS.min(axis=0), ROWS.max(axis=0)
    width = high - low
    assert_allclose(box.limits, [low - width / 2, high + width / 2], rtol=1e-5)
    drawn = box.points(ROWS[:1], seed=0).numpy()[1:]
    for i in range(2):
        distribution = stats.uniform(low[i] - width[i] / 2, 2 * width[i])
        assert stats.kstest(drawn[:, i], distribution.cdf).pvalue > FALSE_FAIL
    assert_allclose(drawn[:, 2], 1.0)  # a constant column stays constant
    assert stats.spearmanr(drawn[:, 0], drawn[:, 1]).pvalue > FALSE_FAIL


def test_normal_has_the_moments_of_the_data():
    measurement = Normal(20_000)
    for start in range(0, 40, 9):
        measurement.adapt(ROWS[start : start + 9])
    loc, scale = measurement.vectors
    assert_allclose(loc, ROWS.mean(axis=0), rtol=1e-5, atol=1e-6)
    assert_allclose(scale, ROWS.std(axis=0), rtol=1e-4, atol=1e-4)
    drawn = measurement.points(ROWS[:1], seed=0).numpy()[1:, 1]
    distribution = stats.norm(ROWS[:, 1].mean(), ROWS[:, 1].std())
    assert stats.kstest(drawn, distribution.cdf).pvalue > FALSE_FAIL


def test_given_values_are_kept():
    box = Box(3, low=0.0, high=1.0)
    box.adapt(ROWS)
    assert_allclose(box.limits, [np.zeros(3), np.ones(3)])


def test_reservoir_keeps_every_row_equally_often():
    rows = np.arange(50.0)[:, np.newaxis]
    counts = np.zeros(50)
    for seed in range(200):
        measurement = DataStream(5, capacity=10, seed=seed)
        for start in range(0, 50, 8):
            measurement.adapt(rows[start : start + 8])
        kept = measurement.rows.numpy()[:, 0].astype(int)
        assert len(set(kept)) == 10
        counts[kept] += 1
    # Counts are Binomial(200, 1/5) and negatively correlated: Bonferroni over rows.
    bound = stats.norm.isf(FALSE_FAIL / 100) * np.sqrt(200 * 0.2 * 0.8)
    assert np.all(np.abs(counts - 40.0) < bound)


def test_stream_draws_only_rows_that_were_seen():
    measurement = DataStream(100, capacity=1000)
    assert not measurement.ready
    measurement.adapt(ROWS)
    drawn = measurement.points(ROWS[:1], seed=0).numpy()[1:]
    distance = np.abs(drawn[:, np.newaxis] - ROWS[np.newaxis]).sum(axis=-1)
    assert distance.min(axis=1).max() < 1e-5
    assert len(set(distance.argmin(axis=1))) > 20


# Adversarial -------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_ascent_finds_a_maximum_in_any_units(scale):
    def function(x):
        return -scale * tf.reduce_sum((x - [0.3, 20.0]) ** 2 / [1.0, 1e4])

    start = tf.constant([[0.9, -80.0], [0.1, 90.0]])
    low, high = tf.constant([0.0, -100.0]), tf.constant([1.0, 100.0])
    points = gradient_ascent(function, start, low, high, step_size=0.01, num_steps=300)
    assert_allclose(points, [[0.3, 20.0]] * 2, atol=0.02 * 200.0)
    assert_allclose(points[:, 0], 0.3, atol=0.05)


def test_ascent_stays_in_the_box_and_stops_without_a_gradient():
    low, high = tf.zeros(2), tf.ones(2)
    start = tf.fill([3, 2], 0.5)
    assert_allclose(gradient_ascent(tf.reduce_sum, start, low, high, 0.2, 10), 1.0)
    flat = gradient_ascent(lambda x: tf.reduce_sum(0.0 * x), start, low, high, 0.2, 10)
    assert_array_equal(flat, start)
    broken = gradient_ascent(lambda x: tf.reduce_sum(x * np.nan), start, low, high, 0.2, 10)
    assert_array_equal(broken, start)


def test_adversarial_points_raise_the_divergence():
    # q is the prior times (1 + x / 2), so it is further from the prior the larger x is.
    prior = GaussianProcess(ard_squared_exponential(1, 1.0, 0.3), dtype="float64")
    measurement = Adversarial(3, low=-1.0, high=1.0, step_size=0.02, num_steps=20, dtype="float64")
    measurement.build((None, 1))
    measurement.restart(seed=0)

    def divergence(points):
        f = prior.sample(points, 400, seed=1) * (1.0 + 0.5 * points)
        return functional_kl.kl_estimate(f, points, prior, seed=2, injected_noise=0.1)

    before = measurement.points(np.zeros((0, 1)), seed=0)
    measurement.ascend(divergence)
    after = measurement.points(np.zeros((0, 1)), seed=0)
    assert divergence(after) > divergence(before) + 0.05
    assert np.all(np.abs(after) <= 1.0)


# Errors ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: Box(0), ValueError, "`num_points` must be"),
        (lambda: Box(3, low=0.0), ValueError, "must both be given"),
        (lambda: Box(3, low=1.0, high=0.0), ValueError, "`low` must be at most"),
        (lambda: Box(3, margin=-1.0), ValueError, "`margin` must be"),
        (lambda: Normal(3, 0.0, 0.0), ValueError, "`scale` must be positive"),
        (lambda: CallableSet(3, "f"), TypeError, "`function` must be callable"),
        (lambda: DataStream(3, capacity=0), ValueError, "`capacity` must be"),
        (lambda: Adversarial(3, step_size=0.0), ValueError, "`step_size` must be"),
        (lambda: Adversarial(3, num_steps=0), ValueError, "`num_steps` must be"),
        (lambda: Box(3).adapt(np.zeros(4)), ValueError, "Rows must be finite"),
        (lambda: Box(3).adapt(np.full((4, 2), np.inf)), ValueError, "Rows must be finite"),
        (lambda: TrainingRows().points(np.zeros(3), 0), ValueError, "Rows must have the shape"),
        (
            lambda: CallableSet(3, corners).points(np.zeros((2, 4)), 0),
            ValueError,
            "Measurement points must have",
        ),
    ],
)
def test_errors(make, error, match):
    with pytest.raises(error, match=match):
        make()
