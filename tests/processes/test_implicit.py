"""Processes without a density: piecewise functions, random networks, a user's function."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from numpy.testing import assert_allclose
from scipy import stats

from tfp_fnspace.processes import (
    BNNProcess,
    CallableProcess,
    NeuralSamplerProcess,
    PiecewiseConstant,
    PiecewiseLinear,
)

tfd = tfp.distributions
FALSE_FAIL = 1e-6
GRID = np.linspace(0.0, 1.0, 2001)[:, np.newaxis]


@keras.saving.register_keras_serializable("test_implicit")
def lines(x, n, seed):
    return tf.random.stateless_normal([n, 1, 1], seed, dtype=x.dtype) * x[:, :1]


@keras.saving.register_keras_serializable("test_implicit")
def standard_density(f, x, noise_scale):
    return -0.5 * tf.reduce_sum(f**2, axis=[-2, -1]) / (1.0 + noise_scale**2)


@keras.saving.register_keras_serializable("test_implicit")
def laplace_prior(path, shape):
    return tfd.Laplace(tf.zeros(shape), 0.5)


def network(num_inputs, num_outputs=1):
    layers = [keras.layers.Dense(7, activation="tanh"), keras.layers.Dense(num_outputs)]
    return keras.Sequential([keras.Input((num_inputs,)), *layers])


#: Name -> (constructor, width of x, outputs).
PROCESSES = {
    "constant": (lambda: PiecewiseConstant(num_outputs=2), 1, 2),
    "linear": (lambda: PiecewiseLinear(rate=1.5, low=-1.0, value_high=3.0), 1, 1),
    "bnn": (lambda: BNNProcess(network(3, 2), num_outputs=2), 3, 2),
    "bnn_laplace": (lambda: BNNProcess(network(3), weight_prior=laplace_prior), 3, 1),
    "neural_sampler": (lambda: NeuralSamplerProcess(network(5), num_noise=2), 3, 1),
    "neural_sampler_dropout": (
        lambda: NeuralSamplerProcess(network(5, 2), num_noise=2, num_outputs=2, dropout=0.3),
        3,
        2,
    ),
    "callable": (lambda: CallableProcess(lines), 3, 1),
    "callable_density": (lambda: CallableProcess(lines, standard_density), 3, 1),
}


@pytest.mark.parametrize("name", PROCESSES)
def test_contract(name, tmp_path):
    make, width, num_outputs = PROCESSES[name]
    process = make()
    x = np.random.default_rng(0).uniform(0.0, 1.0, (6, width)).astype("float32")
    x[4] = x[1]
    f = process.sample(x, 50, seed=(1, 2)).numpy()
    assert f.shape == (50, 6, num_outputs)
    assert np.all(np.isfinite(f))
    assert_allclose(f[:, 4], f[:, 1], atol=1e-6)  # each draw is one function
    assert np.ptp(f, axis=0).min() > 0.0
    assert_allclose(process.sample(x, 50, seed=(1, 2)), f, atol=1e-6)
    assert np.abs(process.sample(x, 50, seed=(1, 3)) - f).max() > 1e-3
    in_graph = tf.function(lambda x, n: process.sample(x, n, (1, 2)))
    assert_allclose(in_graph(x, tf.constant(50)), f, atol=1e-5)
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(process))
    copy.sample(x, 1, seed=0)
    copy.set_weights(process.get_weights())
    assert_allclose(copy.sample(x, 50, seed=(1, 2)), f, atol=1e-6)


@pytest.mark.parametrize("name", ["constant", "bnn", "neural_sampler", "callable"])
def test_without_a_density(name):
    make, width, num_outputs = PROCESSES[name]
    process = make()
    assert not process.has_density
    assert not process.has_moments
    with pytest.raises(NotImplementedError, match="has no density"):
        process.log_prob(np.zeros((6, num_outputs)), np.zeros((6, width)))
    with pytest.raises(NotImplementedError, match="moments"):
        process.moments(np.zeros((6, width)))


def test_a_users_density_has_a_score():
    process = CallableProcess(lines, standard_density)
    f = np.random.default_rng(0).normal(size=(3, 6, 1))
    x = np.zeros((6, 1))
    assert_allclose(process.score(f, x, 0.5), -f / 1.25, rtol=1e-5)
    assert_allclose(process.log_prob(f, x), -0.5 * (f**2).sum(axis=(1, 2)), rtol=1e-5)


# Piecewise ---------------------------------------------------------------------------------------


def jumps(f):
    """Returns where functions `[n, N]` jump, as a boolean array."""
    return np.abs(np.diff(f, axis=1)) > 1e-6


def test_constant_functions_have_poisson_many_uniform_jumps():
    f = PiecewiseConstant(dtype="float64").sample(GRID, 4000, seed=0).numpy()[..., 0]
    where = jumps(f)
    counts = where.sum(axis=1)
    # Two of 3 jumps are in one of 2000 cells, and look like one, with probability below 0.003.
    observed = np.bincount(np.minimum(counts, 9), minlength=10)
    expected = stats.poisson(3.0).pmf(np.arange(9))
    expected = 4000 * np.append(expected, 1.0 - expected.sum())
    assert stats.chisquare(observed, expected).pvalue > FALSE_FAIL
    places = GRID[np.nonzero(where)[1], 0] + np.random.default_rng(0).uniform(0, 5e-4, where.sum())
    assert stats.kstest(places, "uniform").pvalue > FALSE_FAIL
    assert stats.kstest(f[:, 700], "uniform").pvalue > FALSE_FAIL
    # A stretch t is one piece with probability exp(-3 t), which is the correlation.
    same = np.mean(f[:, 400] == f[:, 1000])
    bound = stats.norm.isf(FALSE_FAIL / 2) * np.sqrt(0.25 / 4000)
    assert abs(same - np.exp(-3.0 * 0.3)) < bound


def test_linear_functions_end_at_zero_and_bend_poisson_often():
    f = PiecewiseLinear(dtype="float64").sample(GRID, 3000, seed=1).numpy()[..., 0]
    assert_allclose(f[:, -1], 0.0, atol=1e-12)
    assert stats.kstest(f[:, 0], "uniform").pvalue > FALSE_FAIL
    bends = np.abs(np.diff(f, 2, axis=1)) > 1e-9
    # A knot between grid points bends two second differences, so the test counts runs.
    counts = (bends & ~np.pad(bends, ((0, 0), (1, 0)))[:, :-1]).sum(axis=1)
    straight = np.mean(counts == 0)
    bound = stats.norm.isf(FALSE_FAIL / 2) * np.sqrt(0.05 / 3000)
    assert abs(straight - np.exp(-3.0)) < bound
    # Knots in adjacent cells merge, which loses about 3^2 / 2000.
    error = stats.norm.isf(FALSE_FAIL / 2) * np.sqrt(3.0 / 3000)
    assert abs(counts.mean() - 3.0) < error + 0.02
    assert np.all((f >= 0.0) & (f <= 1.0))


def test_linear_functions_are_the_interpolation_of_their_knots():
    process = PiecewiseLinear(dtype="float64")
    number = tf.constant([[0], [2], [3]])
    places = tf.constant([[[0.9, 0.2, 0.4]], [[0.7, 0.1, 0.5]], [[0.6, 0.3, 0.8]]], tf.float64)
    values = tf.constant(np.random.default_rng(2).uniform(size=(3, 1, 4)))
    ours = process._at(tf.constant(GRID[:, 0]), number, places, values)
    for s in range(3):
        n = int(number[s, 0])
        knots = np.concatenate([[0.0], np.sort(places[s, 0, :n]), [1.0]])
        heights = np.append(values[s, 0, : n + 1], 0.0)
        assert_allclose(ours[s, 0], np.interp(GRID[:, 0], knots, heights), atol=1e-12)


def test_beyond_the_interval():
    x = np.array([[-3.0], [0.0], [1.0], [5.0]])
    for process in (PiecewiseConstant(), PiecewiseLinear()):
        f = process.sample(x, 20, seed=0).numpy()
        assert_allclose(f[:, 0], f[:, 1])
        assert_allclose(f[:, 3], f[:, 2])


@pytest.mark.parametrize("cls", [PiecewiseConstant, PiecewiseLinear])
def test_piecewise_in_xla(cls):
    run = tf.function(lambda x: cls().sample(x, 10, seed=0), jit_compile=True)
    assert run(tf.constant(GRID[:5], tf.float32)).shape == (10, 5, 1)


# Networks ----------------------------------------------------------------------------------------


def test_a_linear_network_has_the_moments_of_its_prior(assert_mean_close):
    dense = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    process = BNNProcess(dense, kernel_gain=2.0, bias_stddev=0.5)
    x = np.random.default_rng(3).normal(size=(4, 3)).astype("float32")
    f = process.sample(x, 50_000, seed=0).numpy()[..., 0]
    assert_mean_close(f, 0.0, FALSE_FAIL)
    expected = 4.0 / 3.0 * x @ x.T + 0.25
    assert_mean_close(f[:, :, None] * f[:, None, :], expected, FALSE_FAIL)


def test_bnn_is_the_network_at_drawn_weights():
    given = network(3)
    before = given.get_weights()
    process = BNNProcess(given, weight_prior=laplace_prior)
    x = np.random.default_rng(4).normal(size=(6, 3)).astype("float32")
    f = process.sample(x, 2, seed=5).numpy()
    weights = [process._weight(v, 2, s) for v, s in zip(process._drawn, seeds(5, 4), strict=True)]
    for s in range(2):
        given.set_weights([w[s] for w in weights])
        assert_allclose(given(x), f[s], atol=1e-5)
    assert given.trainable_variables  # the user's network is unchanged
    assert not process.trainable_variables
    given.set_weights(before)


def seeds(seed, count):
    from tfp_fnspace.math import random

    return random.split(random.as_seed(seed), count)


def test_convolutional_networks():
    layers = [keras.layers.Conv2D(4, 3, activation="relu"), keras.layers.Flatten()]
    net = keras.Sequential([keras.Input((6, 6, 1)), *layers, keras.layers.Dense(2)])
    x = np.random.default_rng(5).normal(size=(3, 6, 6, 1)).astype("float32")
    assert BNNProcess(net, num_outputs=2).sample(x, 5, seed=0).shape == (5, 3, 2)


def test_the_neural_sampler_trains():
    process = NeuralSamplerProcess(network(4), num_noise=1)
    x = np.ones((5, 3), "float32")
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(process.sample(x, 8, seed=0) ** 2)
    gradients = tape.gradient(loss, process.trainable_variables)
    assert len(gradients) == 4
    assert all(g is not None for g in gradients)


@pytest.mark.parametrize("jit", [False, True])
def test_masks_of_dropout_belong_to_a_function(jit, assert_mean_close):
    net, rate = network(4), 0.3
    for layer in net.layers:  # noise has no effect: only masks differ
        kernel, bias = layer.get_weights()
        kernel[3:4] = kernel[3:4] if layer is net.layers[-1] else 0.0
        layer.set_weights([kernel, bias + 0.2])
    process = NeuralSamplerProcess(net, num_noise=1, dropout=rate)
    x = np.random.default_rng(6).normal(size=(5, 3)).astype("float32")
    draw = tf.function(lambda x: process.sample(x, 50_000, seed=0), jit_compile=jit)
    f = draw(x).numpy()[..., 0]
    hidden = net.layers[0](np.concatenate([x, np.zeros((5, 1), "float32")], axis=1)).numpy()
    kernel, bias = net.layers[1].get_weights()
    parts = hidden * kernel[:, 0]
    mean = parts.sum(axis=1) + bias
    assert_mean_close(f, mean, FALSE_FAIL)
    covariance = rate / (1.0 - rate) * parts @ parts.T
    centred = f - mean
    assert_mean_close(centred[:, :, None] * centred[:, None, :], covariance, FALSE_FAIL)
    assert_allclose(draw(x[3:]).numpy()[..., 0], f[:, 3:], atol=1e-5)


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: PiecewiseConstant(rate=0.0), ValueError, "`rate` must be"),
        (lambda: PiecewiseLinear(low=1.0), ValueError, "`high` must be"),
        (lambda: BNNProcess("net"), ValueError, "`network` must be"),
        (lambda: BNNProcess(network(1), kernel_gain=0.0), ValueError, "`kernel_gain` must be"),
        (lambda: NeuralSamplerProcess(network(2), 0), ValueError, "`num_noise` must be"),
        (lambda: NeuralSamplerProcess(network(2), dropout=1.0), ValueError, "`dropout` must be"),
        (
            lambda: NeuralSamplerProcess(keras.layers.Dense(1), dropout=0.1),
            ValueError,
            "`network` must be a `keras.Sequential`",
        ),
        (lambda: CallableProcess("f"), TypeError, "`function` must be callable"),
    ],
)
def test_bad_options(make, error, match):
    with pytest.raises(error, match=match):
        make()


@pytest.mark.parametrize(
    ("process", "x", "match"),
    [
        (PiecewiseConstant(), np.zeros((3, 2)), r"points of the shape \[N, 1\]"),
        (NeuralSamplerProcess(network(3), 1), np.zeros((3, 2, 2)), r"points of the shape \[N, I\]"),
        (CallableProcess(lines, num_outputs=2), np.zeros((3, 2)), "`function` must return"),
    ],
)
def test_bad_points(process, x, match):
    with pytest.raises(ValueError, match=match):
        process.sample(x, 2, seed=0)


def test_networks_of_other_width_are_refused():
    process = BNNProcess(network(2), num_outputs=3)
    with pytest.raises(ValueError, match="must have 3 outputs"):
        process.sample(np.zeros((3, 2)), 2, seed=0)
