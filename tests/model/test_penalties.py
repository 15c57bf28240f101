"""Regularizers of Keras layers in models that learn by gradients."""

import keras
import numpy as np
import pytest
import sip_models
import tensorflow_probability as tfp
from numpy.testing import assert_allclose

import tfp_fnspace as fns

GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(16, 2)).astype("float32")
Y = np.sin(X[:, :1])
PER_STEP = {"batch_size": 16, "epochs": 1, "verbose": 0}


def hidden(regularizer, **options):
    """Makes a layer whose weights are the same in every model."""
    kernel = keras.initializers.GlorotUniform(seed=1)
    return keras.layers.Dense(
        3, "tanh", kernel_initializer=kernel, kernel_regularizer=regularizer, **options
    )


def variational_network(layer):
    """Puts a deterministic layer below a variational one, with the same start in every model."""
    keras.utils.set_random_seed(0)
    return keras.Sequential([keras.Input((2,)), layer, fns.layers.VariationalDense(1)])


def sampler(layer):
    """Makes the network of a neural sampler, of x and two numbers of noise."""
    kernel = keras.initializers.GlorotUniform(seed=2)
    return keras.Sequential(
        [keras.Input((4,)), layer, keras.layers.Dense(1, kernel_initializer=kernel)]
    )


def fbnn_model(layer):
    """Makes a small fBNN."""
    prior = fns.processes.GaussianProcess(tfp.math.psd_kernels.ExponentiatedQuadratic(1.0, 2.0))
    return fns.fbnn.FBNNModel(variational_network(layer), prior, num_samples=5, seed=0)


def sip_model(layer):
    """Makes a small sparse implicit process."""
    prior = fns.processes.NeuralSamplerProcess(sampler(layer), 2)
    return fns.sip.SIPModel(prior, inducing_points=4, num_samples=5, seed=0)


def vip_model(layer):
    """Makes a small variational implicit process."""
    prior = fns.processes.NeuralSamplerProcess(sampler(layer), 2)
    return fns.sip.VIPModel(prior, num_prior_samples=5, seed=0)


def by_backprop(layer):
    """Makes a small network by Bayes by Backprop."""
    return fns.fbnn.VariationalModel(variational_network(layer), num_samples=5, seed=0)


MODELS = {
    "Bayes by Backprop": by_backprop,
    "fBNN": fbnn_model,
    "SIP": sip_model,
    "VIP": vip_model,
}
EACH = pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)


def first_step(model):
    """Returns the loss of the first step."""
    model.compile(keras.optimizers.SGD(1e-3))
    return model.fit(X, Y, **PER_STEP).history["loss"][0]


@EACH
@pytest.mark.slow
def test_a_regularizer_adds_to_the_loss_and_acts_on_its_weights(make):
    layers = [hidden(None), hidden(keras.regularizers.L2(50.0))]
    start = hidden(None)
    start.build((None, 4 if make in (sip_model, vip_model) else 2))
    kernel = keras.ops.convert_to_numpy(start.kernel)
    losses = [first_step(make(layer)) for layer in layers]
    assert_allclose(losses[1] - losses[0], 50.0 * np.sum(kernel**2), rtol=1e-4)
    plain, shrunk = (keras.ops.convert_to_numpy(layer.kernel) for layer in layers)
    # A step of plain gradient descent is 1e-3 times the gradient, 2 w 50.
    assert_allclose(shrunk - plain, -1e-3 * 100.0 * kernel, atol=1e-5)


@EACH
def test_losses_that_layers_add_are_refused(make):
    model = make(hidden(None, activity_regularizer=keras.regularizers.L2(0.1)))
    with pytest.raises(
        ValueError, match=r"must not add losses .* Received: losses of the layers \['"
    ):
        first_step(model)


def test_frozen_weights_have_no_penalty():
    frozen = hidden(keras.regularizers.L2(50.0))
    frozen.trainable = False
    assert_allclose(first_step(by_backprop(frozen)), first_step(by_backprop(hidden(None))))


@pytest.mark.slow
def test_regularizers_of_the_discriminator_are_the_discriminators():
    models = {}
    for strength in (0.0, 100.0):
        kernels = [keras.initializers.GlorotUniform(seed=seed) for seed in (3, 4)]
        network = keras.Sequential(
            [
                keras.Input((4,)),
                keras.layers.Dense(
                    8,
                    "tanh",
                    kernel_initializer=kernels[0],
                    kernel_regularizer=keras.regularizers.L2(strength),
                ),
                keras.layers.Dense(1, kernel_initializer=kernels[1]),
            ]
        )
        prior = fns.processes.NeuralSamplerProcess(sampler(hidden(None)), 2)
        model = sip_models.make_model(prior, 4, discriminator=network, num_samples=5, seed=0)
        start = keras.ops.convert_to_numpy(network.layers[0].kernel)
        still, moving = keras.optimizers.SGD(0.0), keras.optimizers.SGD(1e-3)
        model.compile(still, discriminator_optimizer=moving)
        history = model.fit(X, Y, **PER_STEP).history
        models[strength] = network.layers[0].kernel, history
    plain, shrunk = (keras.ops.convert_to_numpy(kernel) for kernel, _ in models.values())
    assert_allclose(shrunk, start * 0.8, atol=3e-3)  # each step subtracts 1e-3 * 200 w
    assert_allclose(plain, start, atol=3e-3)
    without, with_one = (history for _, history in models.values())
    assert with_one["loss"] == without["loss"]  # the model's loss is a different one
