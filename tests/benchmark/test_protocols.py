"""The methods fit by the protocols of the checkout, with a short budget."""

import pathlib

import keras
import numpy as np
import pytest

from tfp_fnspace import registry
from tfp_fnspace.benchmark import protocol

FOLDER = pathlib.Path(__file__).resolve().parents[2] / protocol.FOLDER
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(3.0, 2.0, size=(40, 2))
Y = 10.0 + np.sin(X[:, :1]) + 0.3 * RANDOM.normal(size=(40, 1))

SHORT = {
    "diwp": {"steps": 20, "inducing_points": 8, "num_samples": 2, "num_eval_samples": 3},
    "fbnn": {"epochs": 2, "num_samples": 8},
    "sip": {"epochs": 1, "inducing_points": 4, "num_samples": 4, "num_eval_samples": 4},
    "tagi": {"epochs": 2, "units": 4},
}


def fitted(name, variant=0, **changed):
    found = protocol.read(FOLDER / f"{name}.toml")
    config = found.config(list(found.variants)[variant], "none", 1)
    return registry.method(name).fit(X, Y, **{**config, **SHORT[name], **changed})


@pytest.mark.slow
def test_diwp():
    model, chosen = fitted("diwp", num_samples=1, batch_size=15)
    history = model.history.history
    assert len(history["loss"]) == 7  # at least 20 steps, 3 an epoch
    values = np.subtract(history["log_likelihood"], history["kl"])
    assert chosen["objective"] == pytest.approx(values[-1], rel=1e-5)  # over the last tenth
    assert float(model.optimizer.learning_rate) == pytest.approx(0.001)
    network = keras.saving.deserialize_keras_object(model.get_config()["network"])
    assert (network.hidden, model.alpha, network.whiten) == ("inverse_wishart", 0.0, False)
    assert len(chosen["delta"]) == 2 and chosen["noise_scale"] > 0.0


@pytest.mark.slow
def test_fbnn_has_a_fitted_prior_that_bounds_the_noise():
    model, chosen = fitted("fbnn")
    assert float(model.prior.noise_scale) == pytest.approx(chosen["prior_noise_scale"])
    assert model.likelihood.min_scale == pytest.approx(chosen["prior_noise_scale"])
    assert chosen["prior_noise_scale"] == pytest.approx(0.3 / Y.std(), rel=0.3)
    assert len(model.history.epoch) == 2 and model.get_config()["kl_weight"] == "batch"


@pytest.mark.slow
def test_bayes_by_backprop_depends_on_the_seed_alone():
    means = [fitted("fbnn", 1)[0].predict(X)["mean"] for _ in range(2)]
    np.testing.assert_array_equal(*means)
    model, chosen = fitted("fbnn", 1, min_scale=0.2)
    assert type(model).__name__ == "VariationalModel"
    assert 0.2 < chosen["noise_scale"] < 0.45


@pytest.mark.slow
def test_sip():
    model, chosen = fitted("sip", 1)
    assert type(model.prior).__name__ == "NeuralSamplerProcess"
    assert int(model.counters.steps.numpy()) == 4 and model.alpha == 0.5
    assert chosen["noise_scale"] > 0.0 and np.isfinite(chosen["log_likelihood"])


def test_tagi_and_targets_of_several_columns():
    config = protocol.read(FOLDER / "tagi.toml").config("TAGI", "protein", 0)
    assert config["units"] == 100
    model, chosen = registry.method("tagi").fit(X, np.hstack([Y, -Y]), **config | SHORT["tagi"])
    assert model.predict(X)["mean"].shape == (40, 2)
    assert 0.0 < chosen["noise_scale"] < 2.0 and np.isfinite(chosen["held_out_log_likelihood"])
