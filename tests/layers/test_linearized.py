"""The expansion of a network in its weights, against a Jacobian in memory and against draws."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import check_mean_close
from numpy.testing import assert_allclose

from tfp_fnspace import layers
from tfp_fnspace.layers import linearized
from tfp_fnspace.layers.linearized import LinearizedNetwork
from tfp_fnspace.tracing import _with_inner_graphs

L = keras.layers
GENERATOR = np.random.default_rng(0)
X, IMAGES = GENERATOR.normal(size=(5, 2)), GENERATOR.normal(size=(3, 4, 4, 1))


pytestmark = pytest.mark.usefixtures("float64")


def network(posterior="factorized", num_outputs=2):
    """Returns a network with a layer that is not random, and one that is called twice."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input((2,))
    hidden = layers.VariationalDense(4, activation="tanh", posterior=posterior)(inputs)
    twice = layers.VariationalDense(4, activation="softplus", posterior=posterior)
    hidden = L.Dense(4)(twice(twice(hidden)))
    return keras.Model(inputs, layers.VariationalDense(num_outputs, posterior=posterior)(hidden))


def images():
    keras.utils.set_random_seed(0)
    inputs = keras.Input((4, 4, 1))
    hidden = layers.VariationalConv2D(2, 3, activation="tanh")(inputs)
    hidden = layers.PerSample(L.Flatten())(hidden)
    return keras.Model(inputs, layers.VariationalDense(2)(hidden))


def by_jacobian(linear, net, x):
    """Returns mean and covariance, with the Jacobian in memory."""
    means = linear._means()
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(means)
        values = linear._values(net, x, means)[0]
        entries = tf.unstack(tf.reshape(values, [-1]))
    gradients = [tape.gradient(entry, means) for entry in entries]
    total = 0.0
    for layer, *rows in zip(linear.layers, *gradients, strict=True):
        flat = [tf.concat([tf.reshape(v, [-1]) for v in row.values()], axis=0) for row in rows]
        root = layer.posterior.times_root(tf.stack(flat))
        total += tf.matmul(root, root, transpose_b=True)
    return values, total


CASES = [
    pytest.param(lambda: (network(), X), id="factorized"),
    pytest.param(lambda: (network("full"), X), id="full", marks=pytest.mark.slow),
    pytest.param(lambda: (network("low_rank", 1), X), id="low_rank", marks=pytest.mark.slow),
    pytest.param(lambda: (images(), IMAGES), id="images", marks=pytest.mark.slow),
]


@pytest.mark.parametrize("most", [2**22, 150])
@pytest.mark.parametrize("make", CASES)
def test_moments_and_their_gradients_are_those_of_a_jacobian(make, most, monkeypatch):
    """With few entries of the Jacobian at once, the covariance is computed in several blocks."""
    monkeypatch.setattr(linearized, "_MOST_ENTRIES", most)
    net, x = make()
    linear, x = LinearizedNetwork(net), tf.constant(x)
    blocks = linearized._Blocks(net(x)[0], sum(v.posterior.size for v in linear.layers))
    assert blocks.is_one == (most == 2**22)
    variables = net.trainable_variables

    def with_gradients(moments_of):
        with tf.GradientTape() as tape:
            tape.watch(x)
            mean, covariance = moments_of()
            total = tf.reduce_sum(tf.sin(mean)) + tf.reduce_sum(tf.sin(30.0 * covariance))
        return mean, covariance, *tape.gradient(total, [x, *variables])

    def traced(moments_of):  # TensorFlow has no second gradient of a convolution without a graph
        return tf.function(lambda: with_gradients(moments_of), autograph=False)()

    ours = traced(lambda: linear.moments(net, x))
    expected = traced(lambda: by_jacobian(linear, net, x))
    assert np.max(np.abs(expected[1])) > 1e-3
    for found, theirs in zip(ours, expected, strict=True):
        assert_allclose(found, theirs, rtol=1e-8, atol=1e-12)


def test_no_tensor_is_a_jacobian(monkeypatch):
    monkeypatch.setattr(linearized, "_MOST_ENTRIES", 3000)
    inputs = keras.Input((2,))
    hidden = layers.VariationalDense(30, activation="tanh")(inputs)
    hidden = layers.VariationalDense(30, activation="tanh")(hidden)
    net = keras.Model(inputs, layers.VariationalDense(1)(hidden))
    linear, x = LinearizedNetwork(net), tf.constant(GENERATOR.normal(size=(10, 2)))

    @tf.function(autograph=False)
    def step():
        with tf.GradientTape() as tape:
            total = tf.reduce_sum(tf.sin(linear.moments(net, x).covariance))
        return tape.gradient(total, net.trainable_variables)

    graphs = _with_inner_graphs(step.get_concrete_function().graph)
    assert len(graphs) > 2  # the bodies of the loops are among them
    sizes = [
        v.shape.num_elements() for g in graphs for op in g.get_operations() for v in op.outputs
    ]
    num_weights = sum(layer.posterior.size for layer in linear.layers)
    assert num_weights <= max(filter(None, sizes)) <= 2 * num_weights


def test_a_network_that_is_linear_in_its_weights_is_its_expansion():
    inputs = keras.Input((2,))
    features = L.Dense(6, activation="tanh")(inputs)
    net = keras.Model(inputs, layers.VariationalDense(2, posterior="full")(features))
    mean, covariance = LinearizedNetwork(net).moments(net, tf.constant(X))
    joint = layers.GaussianOutput(net).joint(tf.constant(X))
    assert_allclose(mean, joint.mean, rtol=1e-12)
    assert_allclose(covariance, joint.covariance(), rtol=1e-10, atol=1e-15)


def test_draws_of_nearly_certain_weights_have_the_covariance_of_the_expansion():
    """The draws' products are tested at 5 standard errors, a false alarm in a million."""
    posterior = layers.FactorizedGaussian(initial_scale=1e-4)
    net, x = network(posterior), tf.constant(X)
    mean, covariance = LinearizedNetwork(net).moments(net, x)
    with layers.function_draws(20_000, seed=1, noise="joint"):
        draws = tf.reshape(net(x) - mean, [20_000, -1]).numpy()
    products = draws[:, :, np.newaxis] * draws[:, np.newaxis]
    check_mean_close(products / np.max(covariance), covariance.numpy() / np.max(covariance))


def test_a_posterior_that_is_not_gaussian_is_refused():
    with pytest.raises(ValueError, match="posteriors are. Received: posteriors .*'Radial'"):
        LinearizedNetwork(network("radial"))
