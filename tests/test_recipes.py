"""Recipes: what they choose, from which rows, and the result."""

import types

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
import tensorflow_probability as tfp
from exhaustive import sample_of

from tfp_fnspace import recipes, trials
from tfp_fnspace.methods.diwp import recipe as diwp
from tfp_fnspace.methods.fbnn import recipe as fbnn
from tfp_fnspace.methods.sip import recipe as sip
from tfp_fnspace.methods.stable_process import recipe as stable_process
from tfp_fnspace.methods.tagi import recipe as tagi

tfd = tfp.distributions

RECIPES = {
    "tagi": tagi,
    "diwp": diwp,
    "fbnn": fbnn,
    "sip": sip,
    "stable_process": stable_process,
}


def rows(count, seed=0):
    """Returns rows of a smooth function with noise of standard deviation 0.1, and its values."""
    generator = np.random.default_rng(seed)
    x = generator.uniform(-2.0, 2.0, size=(count, 2))
    f = np.sin(2.0 * x[:, :1]) + 0.5 * x[:, 1:]
    return x, f + 0.1 * generator.normal(size=f.shape), f


def test_parts_are_a_fifth_or_five_folds_of_one_size_without_overlap():
    (part,) = trials.held_out_parts(1000, seed=3)
    assert len(part) == len(set(part)) == 200
    (part,) = trials.held_out_parts(50_000, seed=3)
    assert len(part) == 2000
    folds = trials.held_out_parts(63, seed=3)
    assert [len(fold) for fold in folds] == [12] * 5
    assert len(set(np.concatenate(folds))) == 60
    assert [len(fold) for fold in trials.held_out_parts(3, seed=3)] == [1, 1, 1]


def shortened(recipe, epochs):
    """Returns the first candidate of a recipe, with few epochs."""
    few = {"epochs": epochs, "epochs_between_looks": epochs}
    return types.SimpleNamespace(
        **{**vars(recipe), "candidates": lambda table: [{**recipe.candidates(table)[0], **few}]}
    )


def first_of(recipe):
    return lambda table: recipe.candidates(table)[:1]


@pytest.mark.slow
@pytest.mark.parametrize("name", sample_of(RECIPES, ["tagi"]))
def test_every_recipe_is_better_than_the_spread_of_the_targets(name):
    x, y, _ = rows(120)
    x_new, y_new, _ = rows(200, seed=1)
    recipe = RECIPES[name]
    first = types.SimpleNamespace(**{**vars(recipe), "candidates": first_of(recipe)})
    fitted = recipes.fit_table(first, x, y, time_limit=300.0)
    found = fitted.model.predict_distribution(x_new).log_prob(y_new).numpy().mean()
    assert found > scipy.stats.norm(y.mean(), y.std()).logpdf(y_new).mean() + 0.5
    assert fitted.settings in [trial.settings for trial in fitted.trials]


@pytest.mark.slow
def test_noise_is_not_scaled_below_its_least():
    x, y = rows(40)[:2]
    table = trials.Table(x, y)
    model = diwp.build(diwp.candidates(table)[0], table, seed=0)
    model.fit(x, y, epochs=1, verbose=0)
    least = model.likelihood.min_scale
    model.likelihood.set_scale(1.1 * least)
    diwp.scale_noise(model, 0.7)
    np.testing.assert_allclose(model.likelihood.scale, 1.01 * least, rtol=1e-3)


@pytest.mark.slow
def test_the_factor_of_the_noise_multiplies_the_noise():
    x, y, _ = rows(40)
    for recipe in (tagi, diwp):
        table = trials.Table(x, y)
        for settings in recipe.candidates(table)[:2]:
            model = recipe.build(settings, table, seed=0)
            model.fit(x, y, epochs=2, verbose=0)
            before = model.predict(x)["aleatoric_stddev"]
            recipe.scale_noise(model, 2.0)
            after = model.predict(x)["aleatoric_stddev"]
            np.testing.assert_allclose(after, 2.0 * before, rtol=0.01)


class _Constant:
    """A stand-in for a model: normal about 0, with a scale that each epoch halves."""

    def __init__(self, log):
        self.log, self.scale, self.stop_training = log, tf.Variable(4.0, dtype=tf.float64), False

    def adapt(self, x, y, sample_weight=None):
        pass

    def get_weights(self):
        return [self.scale.numpy()]

    def set_weights(self, weights):
        self.scale.assign(weights[0])

    def fit(self, x, y, batch_size, epochs, callbacks, verbose, sample_weight=None):
        self.log.append(len(x))
        self.stop_training = False
        for epoch in range(epochs):
            self.scale.assign(self.scale / 2.0)
            for callback in callbacks:
                callback.set_model(self)
                callback.on_epoch_end(epoch)
            if self.stop_training:
                return

    def predictive(self, x):
        return tfd.Independent(tfd.Normal(tf.zeros_like(x), self.scale), 1)


def stand_in(log, most_rows=None, builds=None):
    settings = {"batch_size": 8, "epochs": 20, "epochs_between_looks": 1}

    def scale_noise(model, factor):
        model.scale.assign(model.scale * factor)

    def build(settings, table, seed):
        if builds is not None:
            builds.append(table.num_rows)
        return _Constant(log)

    return types.SimpleNamespace(
        candidates=lambda table: [settings],
        build=build,
        scale_noise=scale_noise,
        BUILDS_FROM_ROWS=builds is not None,
        MOST_ROWS=most_rows,
    )


def test_held_out_rows_count_by_their_weights(monkeypatch):
    """The weights are zero, but for a little, where the targets are large."""
    monkeypatch.setattr(recipes, "warped_table", lambda table, seed: (table, None))
    y = np.where(np.arange(200) % 2, 4.0, 0.5)[:, np.newaxis]
    weights = np.where(y[:, 0] > 1.0, 1e-6, 1.0)
    fits = {
        name: recipes.fit_table(stand_in([]), np.zeros((200, 1)), y, sample_weight=given)
        for name, given in {"weighted": weights, "plain": None}.items()
    }
    # The scale is 2 after one epoch and 0.5 after three; 1.5 is the best factor of 2.
    best = scipy.stats.norm(0.0, 0.5).logpdf(0.5)
    assert fits["weighted"].score == pytest.approx(best, abs=1e-3)
    best = max(scipy.stats.norm(0.0, 2.0 * f).logpdf(y).mean() for f in (1.3, 1.5, 1.75))
    assert fits["plain"].score == pytest.approx(best, abs=1e-3)


def test_epochs_and_factor_are_those_of_the_largest_held_out_density():
    y = 1.05 * scipy.stats.norm.ppf((np.arange(200) + 0.5) / 200)[:, np.newaxis]
    log = []
    fitted = recipes.fit_table(stand_in(log), np.zeros((200, 1)), y)
    # The scale is 2 after one epoch and 1 after two; without 1, 1.15 is the factor next to 1.05.
    scores = {s: scipy.stats.norm(0.0, s).logpdf(y).mean() for s in (0.5, 1.0, 2.0)}
    assert max(scores, key=scores.get) == 1.0
    assert fitted.settings["epochs"] == 2
    assert fitted.settings["noise_factor"] == 1.0
    assert fitted.score == pytest.approx(scores[1.0], abs=1e-9)
    assert log == [160] * 5 + [200]
    assert fitted.model.scale.numpy() == 1.0


def test_a_method_of_few_rows_sees_a_part_of_many():
    log, y = [], np.zeros((900, 1))
    recipes.fit_table(stand_in(log, most_rows=600), y, y)
    assert log == [480, 600]


def test_a_model_of_the_rows_is_built_for_each_of_several_parts_and_once_for_one():
    for num_rows, expected in ((100, [80] * 5 + [100]), (600, [480])):
        log, builds, y = [], [], np.zeros((num_rows, 1))
        recipes.fit_table(stand_in(log, builds=builds), y, y)
        assert builds == expected
        assert log[-1] == num_rows


@pytest.mark.slow
def test_labels_have_log_densities_of_their_own_and_no_factor():
    x, y, _ = rows(60)
    table = trials.Table(x, (y[:, 0] > 0.0).astype(int), 2)
    settings = {**tagi.candidates(table)[-1], "epochs": 2}
    model = tagi.build(settings, table, seed=0)
    model.fit(table.x, table.y, epochs=2, verbose=0)
    expected = np.log(model.predict(x)["probabilities"][np.arange(60), table.y])
    found = trials.Scored(model).log_density(table)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    fitted = recipes.fit_table(shortened(tagi, 2), table.x, table.y, num_classes=2)
    assert fitted.settings["noise_factor"] == 1.0
