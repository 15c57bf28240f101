"""A model does not change `trainable` of parts it is given: other models may hold them too."""

import fbnn_models
import keras
import numpy as np
import pytest
import tensorflow_probability as tfp
from batteries import variational_network

import tfp_fnspace as fns
from tfp_fnspace.methods.sip import networks

GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(24, 4)).astype("float32")
Y = np.stack([np.sin(X[:, 0]), X[:, 1]], axis=1).astype("float32")
SMALL = {"num_samples": 6, "num_eval_samples": 6, "seed": 0}


def gaussian_process():
    kernel = tfp.math.psd_kernels.ExponentiatedQuadratic(1.0, 2.0)
    return fns.processes.GaussianProcess(kernel, num_outputs=2)


def implicit_process():
    return networks.neural_sampler_prior(4, 2, units=(3,), num_noise=2, seed=0)


def fbnn_of(prior, **options):
    return fbnn_models.make_model(variational_network(), prior, **SMALL, **options)


def sip_of(prior, **options):
    return fns.sip.SIPModel(prior, 4, **SMALL, **options)


def vip_of(prior, **options):
    return fns.sip.VIPModel(prior, num_prior_samples=4, seed=0, **options)


def fit(model, **options):
    model.compile(keras.optimizers.Adam(0.01), run_eagerly=True)
    model.fit(X, Y, batch_size=12, epochs=1, verbose=0, **options)


def values(part):
    return [weight.numpy() for weight in part.weights]


def moved(part, before):
    return [bool(np.any(a != b)) for a, b in zip(values(part), before, strict=True)]


MODELS = {
    "fBNN": (gaussian_process, fbnn_of),
    "SIP": (implicit_process, sip_of),
    "VIP": (implicit_process, vip_of),
}


@pytest.mark.parametrize("first_trains", [True, False])
@pytest.mark.slow
def test_of_two_models_with_one_prior_one_may_train_it(first_trains):
    prior = gaussian_process()
    flags = first_trains, not first_trains
    models = [fbnn_of(prior, learn_prior=flag) for flag in flags]
    for model in models:
        model.adapt(X, Y)  # this makes what needs sizes
    assert prior.trainable
    for model, trains in zip(models, flags, strict=True):
        before = values(prior)
        fit(model)
        assert any(moved(prior, before)) == trains
    assert prior.trainable


@pytest.mark.parametrize("name", ["SIP", "VIP"])
@pytest.mark.parametrize("trainable", [True, False])
def test_a_prior_is_trained_if_it_is_trainable(name, trainable):
    make_prior, make_model = MODELS[name]
    prior = make_prior()
    prior.trainable = trainable
    model = make_model(prior)
    before = values(prior)
    fit(model)
    assert any(moved(prior, before)) == trainable == prior.trainable


def test_what_a_user_has_frozen_stays_frozen():
    prior = implicit_process()
    prior.network.layers[0].trainable = False
    model = sip_of(prior)
    model.adapt(X, Y)
    before = values(prior)
    fit(model)
    assert moved(prior, before) == [False, False, True, True]
    frozen = gaussian_process()
    frozen.trainable = False
    fbnn_of(frozen, learn_prior=True)
    assert not frozen.trainable


@pytest.mark.parametrize("trainable", [True, False])
def test_a_sampler_is_trained_if_it_is_trainable(trainable):
    posterior = networks.mlp(3, 8, units=(4,), seed=0)
    posterior.trainable = trainable
    model = sip_of(implicit_process(), posterior=posterior)
    before = values(posterior)
    fit(model)
    assert any(moved(posterior, before)) == all(moved(posterior, before)) == trainable


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.slow
def test_a_restored_model_leaves_its_prior_alone_and_goes_on_as_it_was(name, tmp_path):
    make_prior, make_model = MODELS[name]
    prior = make_prior()
    prior.trainable = name == "fBNN"  # which leaves it alone by default
    model = make_model(prior)
    fit(model)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert len(loaded.optimizer.variables) == len(model.optimizer.variables)
    before = values(loaded.prior)
    for each in (model, loaded):
        each.run_eagerly = True
        each.fit(X, Y, batch_size=12, epochs=1, verbose=0)
    assert not any(moved(loaded.prior, before))
    np.testing.assert_allclose(loaded.predict(X)["mean"], model.predict(X)["mean"], rtol=1e-5)


def test_a_model_says_what_it_trains():
    """Each variable is trained or not, as Keras defines it, and the prior's are not."""
    model = fbnn_of(gaussian_process())
    groups = (model.trainable_weights, model.non_trainable_weights)
    trained, left = (set(map(id, group)) for group in groups)
    assert not trained & left and trained | left == set(map(id, model.weights))
    assert set(map(id, model.prior.weights)) <= left
    assert set(map(id, model.network.trainable_weights)) <= trained
    assert trained == set(map(id, model.trainable_variables))
    model.trainable = False
    assert not model.trainable_variables and len(model.non_trainable_weights) == len(model.weights)
