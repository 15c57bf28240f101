"""Arc-cosine kernels against Gaussian integrals; their gradients and limits."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import integrate

from tfp_fnspace.kernels import ArcCosine, ArcCosineKernel

ORDERS = [0, 1, 2]
ANGLES = [0.0, 1e-3, 0.4, np.pi / 2, 2.0, np.pi - 1e-3, np.pi]


def double(value):
    return tf.constant(value, tf.float64)


def gaussian_integral(order, g_xx, g_xy, g_yy):
    """Computes `E[phi(u) phi(v)] / E[phi(z)^2]`, `phi(u) = max(u, 0)^order`, by quadrature.

    In polar coordinates of the plane of x and y the radius and the direction are independent.
    """
    angle = np.arccos(np.clip(g_xy / np.sqrt(g_xx * g_yy), -1.0, 1.0))

    def radial(r):
        return r ** (2 * order + 1) * np.exp(-0.5 * r * r)

    def half_radial(u):
        return u ** (2 * order) * np.exp(-0.5 * u * u) / np.sqrt(2.0 * np.pi)

    def directional(a):  # where both activations are on
        return (np.cos(a) * np.cos(a - angle)) ** order

    radius = integrate.quad(radial, 0.0, np.inf)[0]
    begin, end = angle - np.pi / 2, np.pi / 2
    direction = integrate.quad(directional, begin, end, epsabs=1e-14)[0] / (2.0 * np.pi)
    normaliser = integrate.quad(half_radial, 0.0, np.inf)[0]
    return (g_xx * g_yy) ** (order / 2) * radius * direction / normaliser


def entries(order, *gram, dtype=tf.float64):
    return ArcCosine(order).entries(*(tf.constant(g, dtype) for g in gram))


def gradients(order, *gram, dtype=tf.float64):
    gram = [tf.constant(g, dtype) for g in gram]
    with tf.GradientTape() as tape:
        tape.watch(gram)
        values = ArcCosine(order).entries(*gram)
    return [g.numpy() for g in tape.gradient(values, gram)]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("g_xx", "g_yy"), [(1.0, 1.0), (0.3, 7.0)])
def test_it_is_the_gaussian_integral(order, g_xx, g_yy):
    cross = np.sqrt(g_xx * g_yy) * np.cos(ANGLES)
    expected = [gaussian_integral(order, g_xx, c, g_yy) for c in cross]
    # At an angle of 1e-3 the Gram entry determines the angle to 1e-10, and order 0 is the angle.
    np.testing.assert_allclose(entries(order, g_xx, cross, g_yy), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("order", ORDERS)
def test_it_is_the_mean_product_of_activations(assert_mean_close, order):
    gram = np.array([[1.3, -0.4], [-0.4, 0.6]])
    draws = np.random.default_rng(order).multivariate_normal([0.0, 0.0], gram, 200_000)
    active = np.where(draws > 0.0, draws, 0.0) ** order * (draws > 0.0)
    double_factorial = {0: 1.0, 1: 1.0, 2: 3.0}[order]
    expected = ArcCosine(order).matrix(gram) * double_factorial / 2.0
    assert_mean_close(active[:, :, None] * active[:, None, :], expected, 1e-6)


@pytest.mark.parametrize("order", ORDERS)
def test_diagonal_is_a_power(order):
    norms = np.array([0.0, 1e-6, 0.5, 784.0])
    np.testing.assert_allclose(ArcCosine(order).diagonal(norms), norms**order, rtol=1e-15)
    np.testing.assert_allclose(entries(order, norms, norms, norms), norms**order, rtol=1e-14)


@pytest.mark.parametrize("order", ORDERS)
def test_gradients_are_finite_differences(order):
    rng = np.random.default_rng(3)
    g_xx, g_yy = rng.uniform(0.2, 4.0, 2)
    cross = np.sqrt(g_xx * g_yy) * np.cos(np.array([0.1, 1.0, 1.6, 2.9]))
    gram, step = (np.full(4, g_xx), cross, np.full(4, g_yy)), 1e-5
    for i, ours in enumerate(gradients(order, *gram)):
        up, down = ([g + sign * step * (j == i) for j, g in enumerate(gram)] for sign in (1, -1))
        expected = (entries(order, *up) - entries(order, *down)) / (2 * step)
        np.testing.assert_allclose(ours, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("compiled", [False, True])
def test_second_derivatives_are_right(order, compiled):
    gram = [double(g) for g in (1.5, 0.4, 0.7)]

    def slopes(*gram):
        with tf.GradientTape() as tape:
            tape.watch(gram)
            value = ArcCosine(order).entries(*gram)
        return tape.gradient(value, gram)

    def curvatures(*gram):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(gram)
            first = slopes(*gram)
        return [tape.gradient(slope, gram) for slope in first]

    run = tf.function(curvatures) if compiled else curvatures
    for i, row in enumerate(np.transpose(run(*gram))):
        up, down = (
            slopes(*(g + sign * 1e-5 * (j == i) for j, g in enumerate(gram))) for sign in (1, -1)
        )
        np.testing.assert_allclose(row, np.subtract(up, down) / 2e-5, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("scale", [0.0, 1e-12, 1e-6, 1.0, 784.0, 1e6])
def test_float32_is_finite_at_special_inputs(order, scale):
    # equal, opposite, beyond rounding, collinear of two lengths, one of two inputs zero, orthogonal
    g_xx = scale * np.array([1.0, 1.0, 1.0, 1.0, 1.0, 0.0])
    g_xy = scale * np.array([1.0, -1.0, 1.0 + 2e-7, -1.0 - 2e-7, 0.3, 0.0])
    g_yy = scale * np.array([1.0, 1.0, 1.0, 1.0, 0.09, 1.0])
    values = entries(order, g_xx, g_xy, g_yy, dtype=tf.float32).numpy()
    assert np.all(np.isfinite(values))
    for gradient in gradients(order, g_xx, g_xy, g_yy, dtype=tf.float32):
        assert np.all(np.isfinite(gradient))
    if order == 1:
        np.testing.assert_allclose(values, np.maximum(g_xy, 0.0), rtol=1e-6, atol=1e-7 * scale)


def test_gradients_at_equal_and_opposite_inputs_are_the_limits():
    for sign, weight in ((1.0, 1.0), (-1.0, 0.0)):
        assert gradients(1, 2.0, sign * 2.0, 2.0) == pytest.approx([0.0, weight, 0.0], abs=1e-15)
        expected = [weight * 2.0 / 3.0, weight * 8.0 / 3.0, weight * 2.0 / 3.0]
        assert gradients(2, 2.0, sign * 2.0, 2.0) == pytest.approx(expected, abs=1e-15)
        assert gradients(0, 2.0, sign * 2.0, 2.0) == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
def test_gradient_of_order_zero_has_its_stated_bound(dtype):
    g_xy = 3.0 * (1.0 - np.geomspace(1e-17, 1e-3, 200))
    slopes = gradients(0, np.full(200, 3.0), g_xy, np.full(200, 3.0), dtype=dtype)[1]
    bound = 1.0 / (2.0 * np.pi * np.sqrt(np.finfo(dtype.as_numpy_dtype).eps) * 3.0)
    assert 0.3 * bound < np.max(slopes) <= bound * (1.0 + 1e-6)


def test_order_zero_of_a_zero_input():
    assert entries(0, 0.0, 0.0, 2.0).numpy() == 0.5  # it is orthogonal to all
    assert entries(0, 0.0, 0.0, 0.0).numpy() == 1.0  # it equals itself, as on the diagonal


def test_float32_error_against_float64():
    rng = np.random.default_rng(4)
    x = rng.normal(size=(5000, 13))
    y = x + rng.normal(size=x.shape) * 10.0 ** rng.uniform(-5, 0, size=(5000, 1))
    gram = [np.float32(np.sum(u * v, axis=1) / 13) for u, v in ((x, x), (x, y), (y, y))]
    scale = np.sqrt(np.float64(gram[0]) * gram[2])
    # Order 0 loses the square root of the rounding, 2 sqrt(eps) / pi = 2.2e-4 and a little.
    for order, rounding in ((0, 3e-4), (1, 3e-7), (2, 1e-6)):
        single = entries(order, *gram, dtype=tf.float32).numpy()
        exact = entries(order, *(g.astype(np.float64) for g in gram)).numpy()
        assert np.max(np.abs(single - exact) / scale**order) < rounding


@pytest.mark.parametrize("order", ORDERS)
def test_gradients_sum_over_broadcast_axes(order):
    rng = np.random.default_rng(5)
    x, y = rng.normal(size=(2, 3, 4)), rng.normal(size=(5, 4))
    cross = x @ y.T / 4.0  # [2, 3, 5]
    norms_x, norms_y = np.sum(x**2, -1)[..., None] / 4.0, np.sum(y**2, -1) / 4.0
    broadcast = gradients(order, norms_x, cross, norms_y)
    norms = [np.array(np.broadcast_to(n, cross.shape)) for n in (norms_x, norms_y)]
    full = gradients(order, norms[0], cross, norms[1])
    np.testing.assert_allclose(broadcast[0], full[0].sum(axis=-1, keepdims=True), rtol=1e-12)
    np.testing.assert_allclose(broadcast[1], full[1], rtol=1e-12)
    np.testing.assert_allclose(broadcast[2], full[2].sum(axis=(0, 1)), rtol=1e-12)


# Features form -----------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ORDERS)
def test_features_form_against_integral(order):
    x, y = np.array([0.5, -1.0, 2.0]), np.array([1.5, 0.3, 0.2])
    kernel = ArcCosineKernel(order, amplitude=double(2.0))
    expected = 4.0 * gaussian_integral(order, x @ x, x @ y, y @ y)
    np.testing.assert_allclose(kernel.apply(x, y), expected, rtol=1e-10)


@pytest.mark.parametrize("order", ORDERS)
def test_features_form_shapes(order):
    rng = np.random.default_rng(6)
    x, y = rng.normal(size=(5, 2, 3)), rng.normal(size=(4, 2, 3))
    amplitude = double(rng.uniform(0.5, 2.0, size=(7, 1)))
    kernel = ArcCosineKernel(order, amplitude=amplitude, feature_ndims=2)
    assert kernel.batch_shape == [7, 1]
    assert kernel.feature_ndims == 2
    matrix = kernel.matrix(x, y)
    assert matrix.shape == [7, 1, 5, 4]
    pairs = kernel.apply(x[:, None], y, example_ndims=2)
    np.testing.assert_allclose(matrix, pairs, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(kernel.tensor(x, y, 1, 1), matrix, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(kernel[2].matrix(x, y), matrix[2], rtol=1e-12)


def test_features_form_has_a_trainable_amplitude():
    amplitude = tf.Variable(2.0)
    kernel = ArcCosineKernel(1, amplitude=amplitude)
    with tf.GradientTape() as tape:
        value = kernel.apply([1.0, 0.0], [0.0, 1.0])
    assert value.numpy() == pytest.approx(4.0 / np.pi)
    assert tape.gradient(value, amplitude).numpy() == pytest.approx(4.0 / np.pi)
    assert set(ArcCosineKernel.parameter_properties()) == {"amplitude"}


def test_bad_order_and_amplitude():
    with pytest.raises(ValueError, match=r"`order` must be one of \[0, 1, 2\]. Received: order=3"):
        ArcCosine(3)
    with pytest.raises(ValueError, match=r"`order` must be one of \[0, 1, 2\]. Received: order=-1"):
        ArcCosineKernel(-1)
    with pytest.raises(tf.errors.InvalidArgumentError, match="`amplitude` must be positive"):
        ArcCosineKernel(1, amplitude=-1.0, validate_args=True)
