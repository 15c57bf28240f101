"""The penalty on the distribution of a prior's weights, and the divergence that it uses."""

import keras
import numpy as np
import pytest
import sip_models
import tensorflow as tf
import tensorflow_probability as tfp
from numpy.testing import assert_allclose
from scipy import stats

from tfp_fnspace import layers, processes, sip

GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(20, 3))
Y = X @ [[1.0], [-0.5], [0.2]] + 0.3 * GENERATOR.normal(size=(20, 1))


def made(prior=None, **options):
    """Makes a small model, adapted and eager."""
    small = {"inducing_points": 3, "num_samples": 4, "num_eval_samples": 4, "seed": 1}
    prior = sip.bnn_prior(3, units=(5,), seed=2, dtype="float64") if prior is None else prior
    model = sip_models.make_model(prior, dtype="float64", **{**small, **options})
    model.compile(keras.optimizers.Adam(0.05), run_eagerly=True)
    model.adapt(X, Y)
    return model


def divergence_of_normals(network):
    """Computes the KL from N(0, 1 / fan_in) of kernels and N(0, 1) of biases by NumPy."""
    total = 0.0
    for layer in network.layers:
        means, variances = layer.posterior.mean_values(), layer.posterior.variances()
        for name, mean in means.items():
            mean, variance = mean.numpy(), variances[name].numpy()
            prior = 1.0 / mean.shape[0] if name == "kernel" else 1.0
            total += 0.5 * np.sum((variance + mean**2) / prior - 1.0 - np.log(variance / prior))
    return total


# The divergence ----------------------------------------------------------------------------------


def test_divergence_of_normal_weights_is_in_closed_form():
    process = sip.bnn_prior(3, 2, units=(5, 4), seed=0, dtype="float64")
    assert process.has_weight_divergence
    found = process.weight_divergence(X, seed=0)
    assert_allclose(found, divergence_of_normals(process.network), rtol=1e-10)
    assert_allclose(process.weight_divergence(X[:1], seed=1), found, rtol=1e-12)


@pytest.mark.slow
def test_divergence_from_a_users_prior():
    """The divergence from a Student t distribution is checked by quadrature and 4,000 seeds."""
    prior = tfp.distributions.StudentT(np.float64(3.0), np.float64(0.0), np.float64(0.5))
    posterior = layers.FactorizedGaussian(initial_scale=0.7)
    layer = layers.VariationalDense(2, posterior=posterior, prior=prior, dtype="float64")
    network = keras.Sequential([keras.Input((3,), dtype="float64"), layer])
    process = processes.VariationalProcess(network, 2, dtype="float64")
    means, variances = layer.posterior.mean_values(), layer.posterior.variances()
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    expected = 0.0
    for name, mean in means.items():
        scale = np.sqrt(variances[name].numpy())[..., np.newaxis]
        w = mean.numpy()[..., np.newaxis] + scale * nodes
        ratio = stats.norm.logpdf(scale * nodes, 0.0, scale) - stats.t.logpdf(w, 3.0, 0.0, 0.5)
        expected += np.sum(ratio @ weights) / np.sqrt(2.0 * np.pi)
    divergence = tf.function(lambda seed: process.weight_divergence(X, tf.stack([0, seed])))
    draws = np.array([divergence(seed) for seed in tf.range(4000)])
    assert draws.std() > 0.1
    assert abs(draws.mean() - expected) < 4.9 * draws.std() / np.sqrt(4000)  # false alarms: 1e-6


@pytest.mark.parametrize(
    "process",
    [
        processes.PiecewiseConstant(),
        processes.GaussianProcess(tfp.math.psd_kernels.ExponentiatedQuadratic()),
        sip.neural_sampler_prior(1, units=(4,)),
    ],
    ids=lambda process: type(process).__name__,
)
def test_other_processes_have_none(process):
    assert not process.has_weight_divergence
    with pytest.raises(NotImplementedError, match="no learned distribution"):
        process.weight_divergence(np.zeros((2, 1)), seed=0)


# The penalty -------------------------------------------------------------------------------------


def test_loss_has_the_divergence_over_the_rows():
    losses = []
    for penalty in (0.0, 0.7):
        model = made(prior_penalty=penalty)
        model.prepare([X], Y, [])
        inputs = model.units.scaled([tf.constant(X)])
        targets = model.units.target_scaler(tf.constant(Y))
        losses_of, history = model.objective(inputs, targets, tf.constant(20.0, tf.float64), [0, 3])
        assert ("prior_divergence" in history) == (penalty > 0.0)
        losses.append(losses_of["model"])
    expected = divergence_of_normals(model.prior.network)
    assert_allclose(history["prior_divergence"], expected, rtol=1e-10)
    assert_allclose(losses[1] - losses[0], 0.7 * expected / 20.0, rtol=1e-10)


@pytest.mark.slow
def test_a_large_penalty_keeps_the_prior_at_its_own_distribution():
    """Only the layers' priors themselves have no divergence."""
    model = made(prior_penalty=1e4)
    model.compile(keras.optimizers.Adam(0.05))
    before = float(model.prior.weight_divergence(X, 0))
    model.fit(X, Y, batch_size=20, epochs=200, verbose=0)
    assert model.prior.weight_divergence(X, 0) < 0.01 < 0.2 * before
    for layer in model.prior.network.layers:
        assert_allclose(layer.posterior.mean_values()["kernel"], 0.0, atol=0.05)


def test_config_and_history():
    model = made(prior_penalty=0.3)
    history = model.fit(X, Y, batch_size=20, epochs=1, verbose=0).history
    assert history["prior_divergence"][0] > 0.0
    config = model.get_config()
    assert sip.SIPModel.from_config(config).divergence.prior_penalty == 0.3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prior_penalty": -1.0}, "`prior_penalty` must be a finite number of at least 0"),
        (
            {"prior": "neural_sampler", "prior_penalty": 0.1},
            "`prior_penalty` must be 0 unless .*Received: prior_penalty=0.1, prior=neural_sampler",
        ),
        (
            {"prior": processes.PiecewiseConstant(), "prior_penalty": 0.1},
            "Received: prior_penalty=0.1, prior=PiecewiseConstant",
        ),
    ],
)
def test_bad_penalties_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        made(**options)
