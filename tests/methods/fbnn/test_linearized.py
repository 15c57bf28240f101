"""`Linearized`: the divergence of a network's expansion in its weights."""

import math

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from fbnn_models import make_model
from numpy.testing import assert_allclose

from tfp_fnspace import fbnn, layers, likelihoods, processes

GENERATOR = np.random.default_rng(0)
X = GENERATOR.uniform(-2.0, 2.0, (20, 1))
Y = np.sin(2.0 * X) + 0.1 * GENERATOR.normal(size=(20, 1))


def process():
    kernel = tfp.math.psd_kernels.ExponentiatedQuadratic(np.float64(1.0), np.float64(0.7))
    return processes.GaussianProcess(kernel, dtype="float64")


def network(hidden=layers.VariationalDense, posterior="factorized"):
    keras.utils.set_random_seed(0)
    inputs = keras.Input((1,), dtype="float64")
    options = {"activation": "tanh", "dtype": "float64"}
    features = hidden(30, **options)(inputs)
    outputs = layers.VariationalDense(1, posterior=posterior, dtype="float64")(features)
    return inputs, outputs


def make(net, prior=None, divergence="linearized", **options):
    given = {"likelihood": likelihoods.Gaussian(0.1, dtype="float64"), "dtype": "float64"}
    fixed = {"standardize": False, "measurement": fbnn.TrainingRows(), "seed": 0}
    return make_model(net, prior or process(), divergence, **{**given, **fixed, **options})


def divergence_of(model):
    """Returns the divergence in an objective, and its gradient."""
    x, y = tf.constant(X), tf.constant(Y)
    with tf.GradientTape() as tape:
        _, parts = model.objective([x], y, tf.constant(20.0, tf.float64), tf.constant([1, 2]))
    kl = parts["kl_estimate"]
    return kl, tape.gradient(kl, model.network.trainable_variables)


def test_it_is_the_closed_form_for_a_network_that_is_linear_in_its_weights():
    """Its noise of `sqrt(20) gamma` is the `injected_noise` of the closed form."""
    nets = [network(keras.layers.Dense, "full") for _ in range(2)]
    ours = make(nets[0], injected_noise=0.05)
    theirs = make(nets[1], divergence="closed_form", injected_noise=0.05 * math.sqrt(20.0))
    (kl, gradient), (expected, their_gradient) = divergence_of(ours), divergence_of(theirs)
    assert_allclose(kl, expected, rtol=1e-7)  # a number for the noise is read in float32
    for found, other in zip(gradient, their_gradient, strict=True):
        assert_allclose(found, other, rtol=1e-6, atol=1e-9)


def test_it_is_what_draws_of_nearly_certain_weights_estimate():
    """`kl_estimate` from 4,000 draws has a standard error of 0.015 here; six are allowed."""
    posterior = layers.FactorizedGaussian(initial_scale=1e-2)
    model = make(network(posterior=posterior), injected_noise=0.02)
    model.network.layers[1].posterior._raw_scales["kernel"].assign_sub(tf.fill([1, 30], 3.0))
    kl, _ = divergence_of(model)
    points = model.points(tf.constant(X), tf.constant([0, 0]))
    with layers.function_draws(4000, seed=3, noise="joint"):
        values = model.network(points)
    estimate = fbnn.kl_estimate(values, points, model.prior, 1, 0.02 * math.sqrt(20.0))
    assert_allclose(kl, estimate, atol=0.09)


@pytest.mark.slow
def test_a_fit_follows_the_prior_and_is_restored(tmp_path):
    """Between -0.6 and 0.6 there are no rows, where the exact process is less certain too."""
    x = X[np.abs(X[:, 0]) > 0.6]
    y = np.sin(2.0 * x)
    model = make(network(), num_samples=20, measurement=fbnn.Box(10), kl_weight="data")
    model.compile(keras.optimizers.Adam(1e-2))
    history = model.fit(x, y, epochs=600, batch_size=len(x), verbose=0).history
    assert history["elbo"][-1] > history["elbo"][0]
    assert not np.any(history["jittered"])
    stddev = model.predict(np.array([[0.0], [1.0]]))["epistemic_stddev"][:, 0]
    exact = process()
    k = exact.kernel().matrix(np.vstack([[[0.0], [1.0]], x]), np.vstack([[[0.0], [1.0]], x]))
    k = k.numpy()
    gain = np.linalg.solve(k[2:, 2:] + 0.01 * np.eye(len(x)), k[2:, :2])
    expected = np.sqrt(np.diag(k[:2, :2] - k[:2, 2:] @ gain))
    assert expected[0] > 2.0 * expected[1] and stddev[0] > 2.0 * stddev[1]
    model.save(tmp_path / "m.keras")
    restored = keras.models.load_model(tmp_path / "m.keras")
    assert restored.divergence == fbnn.Linearized()
    np.testing.assert_array_equal(restored.predict(x)["mean"], model.predict(x)["mean"])


def test_what_it_cannot_do_is_refused():
    prior = processes.PiecewiseConstant(2.0)
    with pytest.raises(ValueError, match="`Linearized` needs a Gaussian process as prior"):
        make(network(), prior)
    with pytest.raises(ValueError, match="Gaussian only if all posteriors are"):
        make(network(posterior="radial"))
    with pytest.raises(TypeError, match="ClosedForm or Linearized of"):
        fbnn.FBNNModel(network(), process(), divergence="linearized")


def test_one_draw_is_enough_for_a_step():
    model = make(network(), num_samples=1)
    model.compile(keras.optimizers.Adam(1e-3), run_eagerly=True)
    assert np.all(np.isfinite(model.fit(X, Y, epochs=1, verbose=0).history["loss"]))
