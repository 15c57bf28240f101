"""Cross-validation in one computation: equal to runs that are made one by one."""

import keras
import numpy as np
import pytest
from numpy.testing import assert_allclose

from tfp_fnspace import likelihoods, tagi
from tfp_fnspace.methods.tagi import noise, runs

GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(23, 4))
Y = np.sin(X[:, :2]) + 0.3 * GENERATOR.normal(size=(23, 2))
MISSING = np.where(GENERATOR.uniform(size=Y.shape) < 0.3, np.nan, Y)
WEIGHTS = GENERATOR.integers(0, 4, size=23).astype(np.float64)


def dense(inputs):
    hidden = tagi.Dense(5, "relu")(inputs)
    return tagi.Dense(2)(tagi.Dense(4, "tanh")(hidden))


def normalized(inputs):
    hidden = tagi.BatchNormalization()(tagi.Dense(5, "relu")(inputs))
    return tagi.Dense(2)(tagi.LayerNormalization()(hidden))


def recurrent(inputs):
    steps = keras.layers.Reshape((2, 2))(inputs)
    return tagi.Dense(2)(tagi.LSTM(3)(steps))


def attentive(inputs):
    units = tagi.Dense(4)(keras.layers.Reshape((2, 2))(inputs))
    units = tagi.MultiHeadAttention(num_heads=1, key_dim=2)(units, units)
    return tagi.Dense(2)(tagi.GlobalAveragePooling1D()(units))


def made(network, **options):
    inputs = keras.Input((4,))
    noise_of_columns = likelihoods.Gaussian([0.5, 0.8])
    return tagi.TAGIModel(inputs, network(inputs), likelihood=noise_of_columns, seed=1, **options)


def cross_validated(model, y, row_weights, batch_size, epochs=2):
    model.adapt(X, y)
    scale, table = noise.cross_validate(
        model, [X], y, epochs, batch_size, True, num_folds=3, row_weights=row_weights
    )
    return scale, np.array(table)


CASES = {
    "dense": (dense, Y, None, {}, 5),
    "missing targets": (dense, MISSING, None, {}, 5),
    "weights": (dense, MISSING, WEIGHTS, {}, 5),
    "exact": (dense, Y, None, {"update": "exact"}, 5),
    "exact, weights": (dense, Y, WEIGHTS, {"update": "exact"}, 5),
    "states": (normalized, Y, None, {}, 4),
    "attention": (attentive, Y, None, {}, 5),
    "uncertain inputs": (dense, Y, None, {"input_stddev": 0.1}, 5),
}


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(
    ("network", "y", "weights", "options", "batch_size"), CASES.values(), ids=CASES
)
def test_all_folds_and_scales_at_once_are_runs_one_by_one(
    network, y, weights, options, batch_size, monkeypatch
):
    expected = cross_validated(made(network, **options), y, weights, batch_size)
    seen, learnt = [], runs.Runs.learnt
    monkeypatch.setattr(runs, "_LEAST_STEPS", 0)
    monkeypatch.setattr(
        runs.Runs, "learnt", lambda self, scales: seen.append(len(scales)) or learnt(self, scales)
    )
    found = cross_validated(made(network, **options), y, weights, batch_size)
    assert seen[0] == 4  # scales at once
    for one, other in zip(found, expected, strict=True):
        assert_allclose(one, other, rtol=1e-9)


def scales_at_once(model, epochs=2):
    learner = model.epochs.learner([np.float32(X)], np.float32(Y), 5)
    return runs.Runs(model, learner, [np.arange(15), np.arange(8, 23)], epochs, True).at_once


def test_only_long_runs_of_programs_of_xla_are_made_at_once(monkeypatch):
    model = made(dense)
    model.adapt(X, Y)
    assert scales_at_once(model) == 1
    assert scales_at_once(model, epochs=10_000) == 4
    monkeypatch.setattr(runs, "_MOST_NUMBERS", 500)  # two folds of a network of 122 numbers
    assert scales_at_once(model, epochs=10_000) == 2
    model.compile(jit_compile=False)
    assert scales_at_once(model, epochs=10_000) == 1


def test_recurrent_networks_run_one_by_one():
    """TensorFlow cannot make several loops one."""
    model = made(recurrent)
    model.adapt(X, Y)
    assert scales_at_once(model, epochs=10_000) == 1
