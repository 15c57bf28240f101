"""Thompson sampling and max-value entropy search on function samples."""

from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from tfp_fnspace import decisions, diwp, fbnn, layers, likelihoods
from tfp_fnspace.math.random import as_seed, fold_in


class Bowls:
    """Functions `height - |x - centre_s|^2` times a sign, centres in the unit box by the seed."""

    draws_smooth_functions = True
    num_outputs = 1

    def __init__(self, sign=1.0):
        self.sign = sign
        self.input_tensors = [keras.KerasTensor((None, 2), "float64")]

    def centres(self, num_samples, seed):
        return tf.random.stateless_uniform([num_samples, 2], seed, dtype=tf.float64)

    def draw_functions(self, x, num_samples, seed):
        offsets = x[0] - self.centres(num_samples, seed)[:, tf.newaxis]
        return self.sign * (tf.reduce_sum(offsets**2, axis=-1, keepdims=True) - 3.0)

    def predict(self, x, verbose):
        """Known where x_0 is below 0.9; the mean falls with x_1."""
        stddev = np.where(x[:, :1] < 0.9, 1e-6, 1.0)
        return {"mean": -1e-3 * x[:, 1:], "epistemic_stddev": stddev}


class IndependentRewards:
    """Draws N(mean of the action, 1), independent between draws."""

    means = np.array([0.0, 0.5, -0.5])

    def __init__(self):
        self.seen = None

    def sample_functions(self, rows, num_samples, seed):
        self.seen = rows
        noise = tf.random.stateless_normal([num_samples, len(rows), 1], seed).numpy()
        return rows[:, -3:] @ self.means[:, None] + noise

    def fit(self, x, y, **options):
        self.fitted = (x, y, options)
        return "history"


# Max-value entropy search -------------------------------------------------------------------------


@pytest.mark.parametrize("minimize", [True, False])
def test_acquisition_is_the_entropy_lost_by_cutting_off(minimize):
    mean, stddev = np.array([0.3, -1.0, 2.0]), np.array([0.5, 1.0, 0.1])
    optima = np.array([-0.5, -1.2, 0.1])
    ours = decisions.max_value_entropy(mean, stddev, optima, minimize)
    ends = (optima, 50.0) if minimize else (-50.0, optima)
    cut = [(end - mean[:, None]) / stddev[:, None] for end in ends]
    lost = stats.norm.entropy() - stats.truncnorm(*np.broadcast_arrays(*cut)).entropy()
    assert_allclose(ours, lost.mean(axis=1), rtol=1e-7, atol=1e-10)


def test_acquisition_is_finite_far_from_the_optimum():
    ours = decisions.max_value_entropy([0.0, 1e3, -1e3], [1.0, 1e-3, 1.0], [0.0])
    assert np.all(np.isfinite(ours)) and np.all(ours >= 0.0)
    assert_allclose(ours[:2], [np.log(2.0), 0.0], atol=1e-12)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_optima_of_known_functions(sign):
    model = Bowls(sign)
    low, high = np.array([0.0, 0.5]), np.array([1.0, 2.0])  # cuts some centres off
    found = decisions.sample_optima(
        model, low, high, num_functions=6, num_starts=5, num_steps=200, minimize=sign > 0.0, seed=3
    )
    # Each function's own constrained optimum: its centre, moved to the box.
    values = [np.sum((c - np.clip(c, low, high)) ** 2) - 3.0 for c in _centres(model, found, low)]
    assert_allclose(found.values, sign * np.array(values), atol=1e-3)
    assert np.all((found.x >= low) & (found.x <= high))


def _centres(model, found, low):
    """The centres of the functions that were drawn; x_0 of an optimum is never cut off."""
    centres = model.centres(6, fold_in(as_seed(3), 1)).numpy()
    assert_allclose(found.x[:, 0], centres[:, 0], atol=0.02)
    assert np.any(centres[:, 1] < low[1]) and np.any(centres[:, 1] > low[1])
    return centres


def test_optima_of_a_network_are_not_above_those_of_a_grid():
    keras.utils.set_random_seed(0)
    network = keras.Sequential(
        [
            keras.Input((1,)),
            layers.VariationalDense(20, activation="tanh", prior="standard"),
            layers.VariationalDense(1, prior="standard"),
        ]
    )
    model = fbnn.VariationalModel(network, likelihoods.Gaussian(0.1), seed=0)
    x = np.linspace(-1.0, 1.0, 30)[:, np.newaxis]
    model.fit(x, np.sin(4.0 * x), epochs=2, verbose=0)
    found = decisions.sample_optima(model, [-1.0], [1.0], num_functions=4, seed=5)
    grid = np.linspace(-1.0, 1.0, 2001, dtype=np.float32)[:, np.newaxis]
    values = model.draw_functions([tf.constant(grid)], 4, fold_in(as_seed(5), 1)).numpy()[..., 0]
    assert_allclose(found.values, values.min(axis=1), atol=1e-3)


def test_suggestion_is_where_something_is_to_be_learnt():
    x = decisions.suggest(Bowls(), [0.0, 0.0], [1.0, 1.0], num_steps=20, seed=1)
    assert x.shape == (2,) and x[0] >= 0.9
    same = decisions.suggest(Bowls(), [0.0, 0.0], [1.0, 1.0], num_steps=20, seed=1)
    assert_array_equal(x, same)


def test_entropy_search_refuses():
    with pytest.raises(ValueError, match=r"shape \(N,\).*Received: shapes \(2,\), \(3,\)"):
        decisions.max_value_entropy([0.0, 1.0], [1.0, 1.0, 1.0], [0.0])
    with pytest.raises(ValueError, match="`stddev` must be positive. Received: stddev with 0"):
        decisions.max_value_entropy([0.0], [0.0], [0.0])
    with pytest.raises(ValueError, match=r"low < high. Received: low=\[0.0, 1.0\]"):
        decisions.sample_optima(Bowls(), [0.0, 1.0], [1.0, 1.0])
    with pytest.raises(ValueError, match="`num_starts` must be a positive integer"):
        decisions.sample_optima(Bowls(), [0.0, 0.0], [1.0, 1.0], num_starts=0)
    with pytest.raises(ValueError, match="differentiable functions.*Received: DIWPModel"):
        decisions.suggest(diwp.DIWPModel(), [0.0], [1.0])
    wide = SimpleNamespace(
        draws_smooth_functions=True, input_tensors=Bowls().input_tensors, num_outputs=2
    )
    with pytest.raises(ValueError, match="one output. Received: .* and 2 outputs"):
        decisions.sample_optima(wide, [0.0, 0.0], [1.0, 1.0])


# Thompson sampling --------------------------------------------------------------------------------


def observed(num_actions=3, **options):
    bandit = decisions.ContextualBandit(IndependentRewards(), num_actions, **options)
    contexts = np.zeros((num_actions, 2))
    bandit.observe(contexts, np.arange(num_actions), np.arange(num_actions))
    return bandit


def test_actions_are_chosen_as_often_as_they_are_best():
    """At 1e-6 for each action; the model's draws are independent between contexts."""
    bandit = observed(initial_pulls=0)
    bandit.fit(epochs=3)
    batches = [bandit.choose(np.zeros((20, 2))) for _ in range(200)]
    counts = np.bincount(np.concatenate(batches), minlength=3)
    z = np.random.default_rng(0).normal(size=(2_000_000, 3)) + IndependentRewards.means
    expected = np.bincount(np.argmax(z, axis=1), minlength=3) / len(z)
    low, high = stats.binom.interval(1.0 - 1e-6, 4000, expected)
    assert np.all((counts >= low) & (counts <= high))


def test_rows_and_what_the_model_is_fitted_to():
    bandit = observed()
    assert bandit.num_observations == 3
    expected = np.array([[5.0, 6.0, 1, 0, 0], [5.0, 6.0, 0, 1, 0], [5.0, 6.0, 0, 0, 1]])
    assert_array_equal(bandit.rows([[5.0, 6.0]]), expected)
    assert_array_equal(bandit.rows([[5.0, 6.0]], [2]), expected[2:])
    bandit.observe([[5.0, 6.0]], [1], [7.0])
    assert bandit.fit(epochs=4) == "history"
    x, y, options = bandit.model.fitted
    assert x.shape == (4, 5) and options == {"epochs": 4}
    assert_array_equal(x[3], expected[1])
    assert_array_equal(y[:, 0], [0.0, 1.0, 2.0, 7.0])


def test_first_choices_take_all_actions_in_turn():
    bandit = observed(initial_pulls=2)
    first = [bandit.choose(np.zeros((1, 2)))[0] for _ in range(12)]
    for turn in range(4):  # not fitted: no other rule
        assert sorted(first[3 * turn : 3 * turn + 3]) == [0, 1, 2]
    again = observed(initial_pulls=2)
    again.fit()
    assert_array_equal(again.choose(np.zeros((6, 2))), first[:6])
    assert again.model.seen is not None


def test_choices_depend_on_the_seed_only():
    def choices(seed):
        bandit = observed(seed=seed, initial_pulls=0)
        bandit.fit()
        return np.concatenate([bandit.choose(np.zeros((10, 2))) for _ in range(3)])

    assert_array_equal(choices(1), choices(1))
    assert np.any(choices(1) != choices(2))


def test_bandit_refuses():
    with pytest.raises(ValueError, match="`num_actions` must be an integer of at least 2"):
        decisions.ContextualBandit(IndependentRewards(), 1)
    bandit = decisions.ContextualBandit(IndependentRewards(), 3)
    with pytest.raises(ValueError, match="`fit` needs observations. Received: none"):
        bandit.fit()
    with pytest.raises(ValueError, match=r"`contexts` must have shape \(N, C\)"):
        bandit.choose(np.zeros(3))
    with pytest.raises(ValueError, match="`actions` must hold integer labels from 0 to 2"):
        bandit.observe(np.zeros((1, 2)), [3], [1.0])
    with pytest.raises(ValueError, match="`rewards` must be finite"):
        bandit.observe(np.zeros((1, 2)), [2], [np.nan])
    with pytest.raises(ValueError, match=r"`rewards` must have shape \(2, 1\)"):
        bandit.observe(np.zeros((2, 2)), [2, 1], [1.0])
    assert bandit.num_observations == 0  # nothing of a refused call is kept
