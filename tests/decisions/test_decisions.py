"""Thompson sampling and max-value entropy search on function samples."""

from types import SimpleNamespace

import keras
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal
from scipy import integrate, stats

from tfp_fnspace import decisions, diwp, fbnn, layers, likelihoods
from tfp_fnspace.decisions import entropy_search
from tfp_fnspace.math.random import as_seed, fold_in


class Bowls:
    """Functions `height - |x - centre_s|^2` times a sign; seeds draw centres in the unit box."""

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
        """Returns moments: f is known where x_0 is below 0.9, and the mean falls with x_1."""
        stddev = np.where(x[:, :1] < 0.9, 1e-6, 1.0)
        return {"mean": -1e-3 * x[:, 1:], "epistemic_stddev": stddev}


class IndependentRewards:
    """Draws N(mean of the action, 1), independently for each draw."""

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


@pytest.mark.parametrize("noise", [0.0, 1e-9])
def test_acquisition_grows_as_a_logarithm_far_beyond_the_optimum(noise):
    """What is left of f is then an exponential distribution with a mean of 1 / |g|."""
    gap = np.array([1e3, 1e4, 1e5, 9e5])
    ours = decisions.max_value_entropy(-gap, np.ones(4), [0.0], noise_scale=noise)
    assert_allclose(ours, np.log(gap * np.sqrt(2.0 * np.pi)) - 0.5, rtol=1e-3)


@pytest.mark.parametrize("minimize", [True, False])
@pytest.mark.parametrize("noise", [0.01, 0.3, 2.0])
def test_acquisition_with_noise_is_the_entropy_that_a_measurement_loses(noise, minimize):
    """A fine grid gives the density of a measurement where f is cut off, and its entropy."""
    mean, stddev = np.array([0.3, -1.0, 4.0, -3.0]), np.array([0.5, 1.0, 0.5, 1.0])
    optima, sign = np.array([-0.5, 0.1]), 1.0 if minimize else -1.0
    ours = decisions.max_value_entropy(sign * mean, stddev, sign * optima, minimize, noise)
    total = np.hypot(stddev, noise)[:, None, None]
    m, s, y = mean[:, None, None], stddev[:, None, None], optima[:, None]
    v = np.maximum(m, y) + 12.0 * total * np.linspace(-1.0, 1.0, 40_001)
    below = (m + (s / total) ** 2 * (v - m) - y) / (s * noise / total)
    log_density = stats.norm.logcdf(below) - stats.norm.logcdf((m - y) / s)
    log_density += stats.norm.logpdf(v, m, total)
    entropy = integrate.trapezoid(-np.exp(log_density) * log_density, v, axis=-1)
    lost = stats.norm.entropy(scale=total[:, :, 0]) - entropy
    assert_allclose(ours, lost.mean(axis=1), rtol=1e-2, atol=1e-6)


def test_noise_hides_what_there_is_to_learn():
    """Large noise hides it by the square of the share of f; no noise is the limit of little."""
    none, little, much, more = (
        decisions.max_value_entropy([0.3, 5.0], [0.5, 0.5], [0.0], noise_scale=noise)
        for noise in (0.0, 1e-6, 50.0, [100.0, 100.0])
    )
    assert_allclose(little, none, rtol=1e-3)
    assert_allclose(much / more, 4.0, rtol=2e-2)
    far = decisions.max_value_entropy([-100.0, 100.0], [1.0, 1.0], [0.0], noise_scale=0.1)
    assert np.all(np.isfinite(far)) and far[0] > 1.0 and far[1] < 1e-12
    known = decisions.max_value_entropy([1.0, 1.0], [1e-300, 0.5], [0.0], noise_scale=0.1)
    assert known[0] == 0.0 and known[1] > 0.0


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_optima_of_known_functions(sign):
    model = Bowls(sign)
    low, high = np.array([0.0, 0.5]), np.array([1.0, 2.0])  # cuts off some centres
    found = decisions.sample_optima(
        model, low, high, num_functions=6, num_starts=5, num_steps=200, minimize=sign > 0.0, seed=3
    )
    # Each function's own constrained optimum is its centre, moved to the box.
    values = [np.sum((c - np.clip(c, low, high)) ** 2) - 3.0 for c in _centres(model, found, low)]
    assert_allclose(found.values, sign * np.array(values), atol=1e-3)
    assert np.all((found.x >= low) & (found.x <= high))


def _centres(model, found, low):
    """Returns the centres of the drawn functions; x_0 of an optimum is never cut off."""
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
    model = fbnn.VariationalModel(network, likelihood=likelihoods.Gaussian(0.1), seed=0)
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


def test_what_was_measured_is_not_suggested_again():
    options = {"num_steps": 20, "seed": 1}
    x = decisions.suggest(Bowls(), [0.0, 0.0], [1.0, 1.0], **options)
    measured = [x]
    for _ in range(3):
        x = decisions.suggest(Bowls(), [0.0, 0.0], [1.0, 1.0], measured=measured, **options)
        apart = np.abs(np.array(measured) - x).max(axis=1)
        assert np.all(apart >= 0.02 - 1e-9) and x[0] >= 0.9
        measured.append(x)
    grid = np.stack(np.meshgrid(*[np.linspace(0.0, 1.0, 61)] * 2), axis=-1).reshape(-1, 2)
    with pytest.raises(ValueError, match="must leave a part .* near to all .* candidates"):
        decisions.suggest(Bowls(), [0.0, 0.0], [1.0, 1.0], measured=grid, num_steps=1)
    with pytest.raises(ValueError, match="`measured` must be finite"):
        decisions.suggest(Bowls(), [0.0, 0.0], [1.0, 1.0], measured=[[np.nan, 0.0]])


def test_a_noisy_measurement_is_not_made_where_f_is_known_well():
    """Where x_0 is below a half f is slightly lower, and nearly all variance there is noise."""

    class Noisy(Bowls):
        def predict(self, x, verbose):
            known = x[:, :1] < 0.5
            return {
                "mean": np.where(known, -3.0, -2.9),
                "epistemic_stddev": np.where(known, 0.02, 0.1),
                "aleatoric_stddev": np.full(known.shape, 0.3),
            }

    assert decisions.suggest(Noisy(), [0.0, 0.0], [1.0, 1.0], num_steps=20)[0] >= 0.5


# Against random search ----------------------------------------------------------------------------


def branin(x):
    a, b = 15.0 * x[..., 0] - 5.0, 15.0 * x[..., 1]
    curve = b - 5.1 * a**2 / (4.0 * np.pi**2) + 5.0 * a / np.pi - 6.0
    return curve**2 + 10.0 * (1.0 - 1.0 / (8.0 * np.pi)) * np.cos(a) + 10.0


def valley(x):
    a, b = 2.0 * x[..., 0] - 1.0, 2.0 * x[..., 1] - 1.0
    return np.log1p(20.0 * (b - a**2) ** 2 + (0.5 - a) ** 2)


def three_wells(x):
    centres, depths = np.array([[0.2, 0.3], [0.8, 0.2], [0.6, 0.8]]), np.array([1.0, 0.8, 1.2])
    squares = np.sum((x[..., np.newaxis, :] - centres) ** 2, axis=-1)
    return -np.sum(depths * np.exp(-12.0 * squares), axis=-1)


NUM_COSINES = 80


class Cosines:
    """Bayesian linear regression on random cosines: a correct posterior at no cost."""

    draws_smooth_functions, num_outputs, noise = True, 1, 0.03

    def __init__(self, x, y):
        rng = np.random.default_rng(0)
        self.input_tensors = [keras.KerasTensor((None, 2), "float64")]
        self.frequencies = rng.normal(size=(2, NUM_COSINES)) / 0.3
        self.phases = rng.uniform(0.0, 2.0 * np.pi, NUM_COSINES)
        self.shift, self.unit = y.mean(), y.std()
        features, target = self.features(x).numpy(), (y - self.shift) / self.unit
        precision = features.T @ features / self.noise**2 + np.eye(NUM_COSINES)
        covariance = np.linalg.inv(precision)
        self.mean = covariance @ features.T @ target / self.noise**2
        self.root = np.linalg.cholesky(covariance + 1e-12 * np.eye(NUM_COSINES))

    def features(self, x):
        return tf.cos(tf.matmul(x, self.frequencies) + self.phases) / np.sqrt(NUM_COSINES / 2)

    def draw_functions(self, x, num_samples, seed):
        noise = tf.random.stateless_normal([NUM_COSINES, num_samples], seed, dtype=tf.float64)
        weights = self.mean[:, np.newaxis] + tf.matmul(self.root, noise)
        values = tf.transpose(tf.matmul(self.features(x[0]), weights))
        return self.shift + self.unit * values[..., tf.newaxis]

    def predict(self, x, verbose):
        features = self.features(x).numpy()
        stddev = np.linalg.norm(features @ self.root, axis=1, keepdims=True)
        return {
            "mean": self.shift + self.unit * (features @ self.mean)[:, np.newaxis],
            "epistemic_stddev": self.unit * stddev,
            "aleatoric_stddev": np.full((len(x), 1), self.unit * self.noise),
        }


@pytest.mark.slow
def test_suggestions_find_lower_values_than_random_search(monkeypatch):
    """Ten calls follow six random starts; `chances` are the chances that random calls do as well.

    If the suggestions are no better than random calls these six probabilities are uniform or
    larger, and their mean is below 1/6 in 1 of 720 cases (Irwin and Hall). The seeds are fixed, so
    the test always fails or always passes. Twelve trial runs, including these six, had a mean of
    0.14 and a standard deviation of 0.15.
    """
    small = {"num_functions": 5, "num_starts": 10, "num_steps": 6, "num_candidates": 500}
    small["learning_rate"] = 0.1
    box = np.random.default_rng(1).uniform(size=(5000, 10, 2))
    chances = []
    monkeypatch.setattr(entropy_search, "traced", lambda step: step)  # tracing takes longer
    for function in (branin, valley, three_wells):
        by_chance = function(box).min(axis=1)
        for seed in range(2):
            x = np.random.default_rng(seed).uniform(size=(6, 2))
            start = function(x).min()
            for call in range(10):
                model = Cosines(x, function(x))
                new = decisions.suggest(
                    model, [0, 0], [1, 1], seed=(seed, call), measured=x, **small
                )
                x = np.concatenate([x, new[np.newaxis]])
            found = function(x).min()
            chances.append(np.mean(np.minimum(by_chance, start) <= found))
    assert np.mean(chances) < 1.0 / 6.0


def test_entropy_search_refuses():
    with pytest.raises(ValueError, match=r"shape \(N,\).*Received: shapes \(2,\), \(3,\)"):
        decisions.max_value_entropy([0.0, 1.0], [1.0, 1.0, 1.0], [0.0])
    with pytest.raises(ValueError, match="`stddev` must be positive. Received: stddev with 0"):
        decisions.max_value_entropy([0.0], [0.0], [0.0])
    for bad in ({"mean": [np.nan]}, {"stddev": [np.inf]}, {"optima": [np.inf]}):
        arguments = {"mean": [0.0], "stddev": [1.0], "optima": [0.0], **bad}
        with pytest.raises(ValueError, match=f"`{next(iter(bad))}` must be finite. Received"):
            decisions.max_value_entropy(**arguments)
    for noise in (-1.0, [1.0, 2.0]):
        with pytest.raises(ValueError, match=r"`noise_scale` must be a number or of shape \(1,\)"):
            decisions.max_value_entropy([0.0], [1.0], [0.0], noise_scale=noise)
    broken = Bowls(np.nan)
    with pytest.raises(ValueError, match="must draw functions with finite values.*Bowls"):
        decisions.sample_optima(broken, [0.0, 0.0], [1.0, 1.0], num_steps=1)
    with pytest.raises(ValueError, match=r"low < high. Received: low=\[0.0, 1.0\]"):
        decisions.sample_optima(Bowls(), [0.0, 1.0], [1.0, 1.0])
    with pytest.raises(ValueError, match="`num_starts` must be a positive integer"):
        decisions.sample_optima(Bowls(), [0.0, 0.0], [1.0, 1.0], num_starts=0)
    with pytest.raises(ValueError, match="differentiable functions.*Received: DIWPModel"):
        decisions.suggest(diwp.DIWPModel(), [0.0], [1.0])
    wide = Bowls()
    wide.num_outputs = 2
    with pytest.raises(ValueError, match="one output. Received: .* and 2 outputs"):
        decisions.sample_optima(wide, [0.0, 0.0], [1.0, 1.0])


# Thompson sampling --------------------------------------------------------------------------------


def observed(num_actions=3, **options):
    bandit = decisions.ContextualBandit(IndependentRewards(), num_actions, **options)
    contexts = np.zeros((num_actions, 2))
    bandit.observe(contexts, np.arange(num_actions), np.arange(num_actions))
    return bandit


def test_actions_are_chosen_as_often_as_they_are_best():
    """Each action is tested at 1e-6; the model's draws are independent between contexts."""
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
    for turn in range(4):  # without a fit there is no other rule
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
    assert bandit.num_observations == 0  # a refused call leaves no trace


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e39])
def test_bandit_refuses_contexts_that_no_fit_would_survive(bad):
    bandit = observed(initial_pulls=0)
    bandit.fit()
    before = bandit.choose(np.zeros((1, 2)))
    for call in (
        lambda: bandit.observe([[0.0, bad]], [1], [1.0]),
        lambda: bandit.choose([[bad, 0.0]]),
        lambda: bandit.rows([[0.0, 0.0], [0.0, bad]]),
    ):
        with pytest.raises(ValueError, match="`contexts` must be .* Received: contexts with 1"):
            call()
    with pytest.raises(ValueError, match="`rewards` must be .* Received: rewards with 1"):
        bandit.observe(np.zeros((1, 2)), [1], [bad])
    assert bandit.num_observations == 3 and np.all(np.isfinite(bandit.observations[0]))
    # A refused call is no choice: the next choice is the same as without it.
    again = observed(initial_pulls=0)
    again.fit()
    assert_array_equal(again.choose(np.zeros((1, 2))), before)
    assert_array_equal(bandit.choose(np.zeros((9, 2))), again.choose(np.zeros((9, 2))))


def test_bandit_refuses_contexts_of_another_width_or_order():
    bandit = observed()
    with pytest.raises(ValueError, match=r"shape \(N, 2\), N at least 1. .* shape \(1, 3\)"):
        bandit.choose(np.zeros((1, 3)))
    model = SimpleNamespace(
        input_tensors=[keras.KerasTensor((None, 6))], fit=id, sample_functions=id
    )
    with pytest.raises(ValueError, match=r"shape \(N, 4\)"):
        decisions.ContextualBandit(model, 2).choose(np.zeros((1, 3)))
    frame = pd.DataFrame({"a": [0.0], "b": [1.0]})
    named = decisions.ContextualBandit(IndependentRewards(), 3)
    named.observe(frame, [1], [0.5])
    assert_array_equal(named.observations[0], [[0.0, 1.0, 0.0, 1.0, 0.0]])
    with pytest.raises(ValueError, match=r"in their order, \['a', 'b'\].*Received: columns"):
        named.choose(frame[["b", "a"]])


def test_what_is_no_model():
    network = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    for model in (IndependentRewards, keras.Sequential, network, "model", None):
        for call in (
            lambda model=model: decisions.ContextualBandit(model, 2),
            lambda model=model: decisions.suggest(model, [0.0], [1.0]),
            lambda model=model: decisions.sample_optima(model, [0.0], [1.0]),
        ):
            with pytest.raises(TypeError, match=r"`model` must be a FunctionSpaceModel \(an inst"):
                call()
