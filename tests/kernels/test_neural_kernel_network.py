"""Neural kernel networks: values by hand, positive definiteness, gradients, errors."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from numpy.testing import assert_allclose

from tfp_fnspace.kernels import NeuralKernelNetwork
from tfp_fnspace.kernels.neural_kernel_network import initial_weights
from tfp_fnspace.processes import GaussianProcess, KernelWeights

tfpk = tfp.math.psd_kernels
X = np.random.default_rng(0).normal(size=(9, 2))


def primitives(dtype=np.float64):
    return [
        tfpk.ExponentiatedQuadratic(dtype(1.1), dtype(0.5)),
        tfpk.Linear(dtype(0.3), dtype(0.7)),
        tfpk.ExpSinSquared(dtype(1.0), dtype(0.8), dtype(2.0)),
    ]


def network(units=(8, 4), seed=0, **options):
    weights, biases = initial_weights(3, units, seed)
    return NeuralKernelNetwork(primitives(), weights, biases, **options)


def by_hand(kernel, x, y):
    hidden = [float(k.apply(x, y)) for k in kernel.kernels]
    for layer, weights in enumerate(kernel.weights):
        if layer > 0:
            hidden = [hidden[2 * j] * hidden[2 * j + 1] for j in range(len(hidden) // 2)]
        bias = np.zeros(len(weights)) if kernel.biases is None else kernel.biases[layer].numpy()
        hidden = [
            sum(w * h for w, h in zip(row, hidden, strict=True)) + b
            for row, b in zip(weights.numpy(), bias, strict=True)
        ]
    return hidden[0]


@pytest.mark.parametrize("units", [(), (2,), (8, 4), (6, 4, 2)])
def test_it_is_the_network_by_hand(units):
    kernel = network(units)
    expected = [[by_hand(kernel, x, y) for y in X[:3]] for x in X]
    assert_allclose(kernel.matrix(X, X[:3]), expected, rtol=1e-12)
    assert_allclose(kernel.apply(X[:3], X[:3]), np.diag(expected[:3]), rtol=1e-12)
    assert_allclose(kernel.tensor(X, X[:3], 1, 1), expected, rtol=1e-12)


def test_one_layer_without_biases_is_a_sum():
    kernel = NeuralKernelNetwork(primitives(), [np.array([[0.5, 2.0, 0.1]])])
    expected = sum(w * k.matrix(X, X) for w, k in zip([0.5, 2.0, 0.1], primitives(), strict=True))
    assert_allclose(kernel.matrix(X, X), expected, rtol=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_it_is_positive_semidefinite(seed):
    x = np.random.default_rng(seed).normal(size=(40, 2))
    matrix = network(seed=seed).matrix(x, x).numpy()
    assert_allclose(matrix, matrix.T, rtol=1e-12)
    values = np.linalg.eigvalsh(matrix)
    assert values[0] > -1e-12 * values[-1]


def test_primitives_may_have_batches():
    batch = tfpk.ExponentiatedQuadratic(np.array([1.0, 2.0]), np.array([[0.5], [0.6], [0.7]]))
    weights, biases = initial_weights(2, (4,))
    kernel = NeuralKernelNetwork([batch, tfpk.Linear(np.float64(0.3))], weights, biases)
    assert kernel.batch_shape == (3, 2)
    assert_allclose(kernel.batch_shape_tensor(), [3, 2])
    single = NeuralKernelNetwork(
        [tfpk.ExponentiatedQuadratic(np.float64(2.0), np.float64(0.7)), kernel.kernels[1]],
        weights,
        biases,
    )
    assert_allclose(kernel.matrix(X, X)[2, 1], single.matrix(X, X), rtol=1e-12)


def test_float32_gradients_are_finite_at_equal_and_opposite_inputs():
    layer = KernelWeights(NeuralKernelNetwork(primitives(np.float32), *initial_weights(3)))
    x = tf.constant(np.concatenate([X, X, -X]), tf.float32)
    with tf.GradientTape() as tape:
        tape.watch(x)
        total = tf.reduce_sum(tf.sin(layer.kernel().matrix(x, x)))
    gradients = tape.gradient(total, [x, *layer.trainable_variables])
    assert len(layer.trainable_variables) == 7 + 6
    assert all(g is not None and np.all(np.isfinite(g)) for g in gradients)


def test_trained_weights_stay_non_negative():
    layer = KernelWeights(network((4,)))
    layer.set_weights([w - 30.0 for w in layer.get_weights()])
    kernel = layer.kernel()
    assert all(np.all(w >= 0.0) for w in [*kernel.weights, *kernel.biases])


@pytest.mark.slow
def test_a_fit_finds_structure_that_one_primitive_has_not():
    x = np.linspace(-2.0, 2.0, 40)[:, np.newaxis]
    y = (1.0 + x[:, 0]) * np.sin(2.0 * np.pi * x[:, 0])
    y += 0.1 * np.random.default_rng(0).normal(size=40)
    smooth = GaussianProcess(tfpk.ExponentiatedQuadratic(1.0, 0.5), dtype="float64").fit(x, y)
    composed = NeuralKernelNetwork(
        [tfpk.Linear(0.5, 0.5), tfpk.ExpSinSquared(1.0, 1.0, 1.0)], *initial_weights(2, (4,))
    )
    composed = GaussianProcess(composed, dtype="float64").fit(x, y)
    assert composed.log_marginal_likelihood > smooth.log_marginal_likelihood + 5.0


@pytest.mark.parametrize(
    ("weights", "biases", "match"),
    [
        ([], None, "`weights` must have the shapes"),
        ([np.ones((1, 2))], None, "`weights` must have the shapes"),
        ([np.ones((3, 3)), np.ones((1, 1))], None, "`weights` must have the shapes"),
        ([np.ones((4, 3)), np.ones((2, 2))], None, "`weights` must have the shapes"),
        ([-np.ones((1, 3))], None, "`weights` must be at least 0"),
        ([np.ones((1, 3))], [np.ones(2)], "`biases` must have the shapes"),
        ([np.ones((1, 3))], [-np.ones(1)], "`biases` must be at least 0"),
    ],
)
def test_bad_arguments(weights, biases, match):
    with pytest.raises(ValueError, match=match):
        NeuralKernelNetwork(primitives(), weights, biases)


def test_bad_units_and_kernels():
    with pytest.raises(ValueError, match="`units` must be"):
        initial_weights(3, (3,))
    with pytest.raises(ValueError, match="`kernels` must be"):
        NeuralKernelNetwork([], [np.ones((1, 0))])
