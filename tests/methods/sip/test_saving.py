"""Saved SIP models and their compiled epochs; the batteries test the rest."""

import batteries
import keras
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from tfp_fnspace import sip

GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(24, 4)).astype("float32")
Y = np.stack([np.sin(X[:, 0]), X[:, 1] * X[:, 2]], axis=1).astype("float32")
OPTIONS = {"batch_size": 10, "verbose": 0}


def make(**options):
    return batteries.sip_model(**{"adaptive_contrast": True, **options})


@pytest.mark.slow
def test_keras_file_keeps_both_optimizers_and_training_goes_on(tmp_path):
    model = make(kl_annealing=0.5)  # Keras does not save dropout's state
    model.compile(
        keras.optimizers.Adam(0.01), discriminator_optimizer=keras.optimizers.RMSprop(0.002)
    )
    model.fit(X, Y, epochs=2, **OPTIONS)
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras", safe_mode=True)
    assert isinstance(loaded.discriminator_optimizer, keras.optimizers.RMSprop)
    for part in ("", "optimizer", "discriminator_optimizer"):
        ours, theirs = ((getattr(m, part) if part else m).variables for m in (loaded, model))
        assert len(ours) == len(theirs) > 5
        for one, other in zip(ours, theirs, strict=True):
            assert_array_equal(one, other)
    assert loaded.get_compile_config() == model.get_compile_config()
    for each in (model, loaded):
        each.fit(X, Y, epochs=2, **OPTIONS)
    assert_array_equal(loaded.predict(X)["mean"], model.predict(X)["mean"])
    for ours, theirs in zip(loaded.weights, model.weights, strict=True):
        assert_array_equal(ours, theirs)


@pytest.mark.parametrize("prior", ["bnn", "neural_sampler"])
def test_default_networks_are_kept(prior, tmp_path):
    model = sip.SIPModel(prior, inducing_points=X[:4], num_samples=6, num_eval_samples=5, seed=0)
    model.compile(run_eagerly=True)
    model.fit(X, Y, **OPTIONS)
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras", safe_mode=True)
    assert loaded.get_config() == model.get_config()
    assert_array_equal(loaded.predict(X)["stddev"], model.predict(X)["stddev"])
    draws = [m.sample_prior_functions(X, 3, seed=1) for m in (model, loaded)]
    assert_array_equal(*draws)


@pytest.mark.slow
def test_one_seed_is_one_run_with_default_networks():
    runs = []
    for seed in (0, 0, 1):
        model = sip.SIPModel("bnn", 4, num_samples=6, num_eval_samples=5, seed=seed)
        model.compile(run_eagerly=True)
        model.fit(X, Y, **OPTIONS)
        runs.append(model.predict(X)["mean"])
    assert_array_equal(runs[0], runs[1])
    assert np.abs(runs[0] - runs[2]).max() > 1e-3


@pytest.mark.slow
def test_compiled_epochs_equal_the_loop_over_batches_and_trace_once():
    models, traces = [make() for _ in range(2)], []
    objective = models[0].objective
    vars(models[0])["objective"] = lambda *a: traces.append(1) or objective(*a)
    callback = keras.callbacks.LambdaCallback(on_train_batch_end=lambda b, logs: None)
    histories = [
        model.fit(X, Y, epochs=2, callbacks=extra, **OPTIONS).history
        for model, extra in zip(models, ([], [callback]), strict=True)
    ]
    for name, values in histories[0].items():
        assert_allclose(values, histories[1][name], rtol=1e-4, atol=1e-5)
    models[0].fit(X, Y, batch_size=7, verbose=0)
    assert len(traces) == 1
