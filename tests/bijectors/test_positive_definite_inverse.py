"""The inverse of a positive definite matrix against the autodiff Jacobian and SciPy's densities."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import stats

from tfp_fnspace.bijectors import PositiveDefiniteInverse
from tfp_fnspace.distributions import Wishart

tfd = tfp.distributions
tfb = tfp.bijectors


def positive_definite(k, batch=(), seed=0):
    a = np.random.default_rng(seed).normal(size=(*batch, k, 2 * k))
    return a @ np.swapaxes(a, -1, -2) / (2 * k)


def jacobian_of_lower_triangles(function, matrix):
    """Returns the Jacobian in the k (k + 1) / 2 coordinates of the lower triangle."""
    rows, columns = np.tril_indices(matrix.shape[-1])
    places = np.stack([rows, columns], axis=-1)
    coordinates = tf.constant(matrix[rows, columns])
    with tf.GradientTape() as tape:
        tape.watch(coordinates)
        lower = tf.scatter_nd(places, coordinates, matrix.shape)
        diagonal = tf.linalg.diag(tf.linalg.diag_part(lower))
        image = tf.gather_nd(function(lower + tf.transpose(lower) - diagonal), places)
    return tape.jacobian(image, coordinates)


@pytest.mark.parametrize("k", [1, 2, 4])
def test_log_determinant_is_that_of_the_autodiff_jacobian(k):
    matrix = positive_definite(k)
    bijector = PositiveDefiniteInverse()
    jacobian = jacobian_of_lower_triangles(bijector.forward, matrix)
    expected = np.linalg.slogdet(jacobian)[1]
    np.testing.assert_allclose(bijector.forward_log_det_jacobian(matrix), expected, rtol=1e-10)
    image = np.linalg.inv(matrix)
    np.testing.assert_allclose(bijector.inverse_log_det_jacobian(image), -expected, rtol=1e-10)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_values_batches_and_shapes(jit_compile):
    matrix = positive_definite(3, (2, 4))
    # The objects are new each time, because a bijector caches what it maps.
    forward = tf.function(lambda x: PositiveDefiniteInverse().forward(x), jit_compile=jit_compile)
    inverse = tf.function(lambda x: PositiveDefiniteInverse().inverse(x), jit_compile=jit_compile)
    np.testing.assert_allclose(forward(matrix), np.linalg.inv(matrix), rtol=1e-9)
    np.testing.assert_allclose(inverse(matrix), np.linalg.inv(matrix), rtol=1e-9)
    assert PositiveDefiniteInverse().forward_log_det_jacobian(matrix).shape == (2, 4)


def test_it_maps_the_wishart_density_to_the_inverse_one():
    scale, x = positive_definite(3), positive_definite(3, seed=1)
    direct = Wishart(tf.constant(4.5, tf.float64), np.linalg.inv(scale))
    mapped = tfd.TransformedDistribution(direct, PositiveDefiniteInverse())
    expected = stats.invwishart(4.5, scale).logpdf(x)
    np.testing.assert_allclose(mapped.log_prob(x), expected, rtol=1e-9)


def test_what_is_not_positive_definite_is_refused():
    with pytest.raises(tf.errors.InvalidArgumentError, match="must be positive definite"):
        PositiveDefiniteInverse(validate_args=True).forward(tf.constant([[1.0, 2.0], [2.0, 1.0]]))


def test_what_is_taken_from_tfp():
    """TFP already has a scale with a floor and a triangle with a positive diagonal."""
    x = tf.constant([-2.0, 0.3, 5.0], tf.float64)
    floored = tfb.Softplus(low=tf.constant(0.01, tf.float64))
    np.testing.assert_allclose(floored.forward(x), 0.01 + np.log1p(np.exp(x)))
    slope = 1.0 / (1.0 + np.exp(-x))
    np.testing.assert_allclose(floored.forward_log_det_jacobian(x, 0), np.log(slope))
    triangle = tfb.FillScaleTriL(diag_shift=None)
    factor = triangle.forward(x)
    assert factor[0, 1] == 0.0 and np.all(np.diag(factor) > 0.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        image = tf.gather_nd(triangle.forward(tf.identity(x)), [[0, 0], [1, 0], [1, 1]])
    expected = np.linalg.slogdet(tape.jacobian(image, x))[1]
    np.testing.assert_allclose(triangle.forward_log_det_jacobian(x), expected)
