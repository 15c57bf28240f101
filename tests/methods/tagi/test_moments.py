"""Forward moments of the TAGI layers: Monte Carlo, integration, finite differences.

Monte Carlo assertions fail by chance once in a million (`false_fail` of the fixtures) per call;
seeds are fixed, so that they either always pass or always fail.
"""

import keras
import numpy as np
import pytest
import tagi as reference
import tensorflow as tf
from numpy.testing import assert_allclose

from tfp_fnspace import tagi
from tfp_fnspace.methods.tagi import propagation
from tfp_fnspace.methods.tagi.layers.activation import EXACT

NUM_DRAWS = 200_000
LINEARIZED = sorted(reference.LINEARIZED)
PIECEWISE = sorted(reference.PIECEWISE)


class Scale(tagi.BilinearLayer):
    """The example of `BilinearLayer`."""

    def create_parameters(self, input_shape):
        self.add_parameters((input_shape[-1],), fan_in=1, fan_out=1)

    def linear_map(self, inputs, kernel):
        return inputs * kernel


class Square(tagi.ElementwiseLayer):
    """The example of `ElementwiseLayer`."""

    def function(self, z):
        return z**2

    def moments(self, mean, variance):
        return mean**2 + variance, 2 * variance**2 + 4 * variance * mean**2, 2 * mean


def rng(seed=0):
    return np.random.default_rng(seed)


def random_moments(shape, seed=0, dtype="float32"):
    generator = rng(seed)
    mean, variance = generator.normal(size=shape), generator.uniform(0.05, 1.5, size=shape)
    return mean.astype(dtype), variance.astype(dtype)


def with_random_parameters(layer, input_shape, seed=7):
    """Builds a layer and gives it moments unlike those of any prior."""
    layer.build(input_shape)
    for i, pair in enumerate(layer.parameters):
        mean, variance = random_moments(pair.mean.shape, seed=seed + i)
        pair.mean.assign(mean)
        pair.variance.assign(variance)
    return layer


def draws(generator, mean, variance, num_draws=NUM_DRAWS):
    mean, variance = np.asarray(mean, float), np.asarray(variance, float)
    return mean + np.sqrt(variance) * generator.normal(size=(num_draws, *mean.shape))


def block_of(layer, activation=None):
    """Returns the layer's parameters as a block of the reference."""
    values = [np.float64(part.numpy()) for pair in layer.parameters for part in pair]
    return reference.Block(*values, activation)


# Dense and user-defined bilinear layers ----------------------------------------------------------


@pytest.mark.parametrize("use_bias", [True, False])
@pytest.mark.parametrize("known", [True, False])
def test_dense_has_the_moments_of_draws(known, use_bias, assert_mean_close, assert_variance_close):
    layer = with_random_parameters(tagi.Dense(2, use_bias=use_bias), (None, 3))
    mean, variance = random_moments((4, 3))
    if known:
        variance = np.zeros_like(mean)
    outputs = layer(mean if known else (mean, variance))
    generator = rng(1)
    inputs = draws(generator, mean, variance)
    kernel = draws(generator, layer.kernel_mean.numpy(), layer.kernel_variance.numpy())
    samples = np.einsum("snd,sdu->snu", inputs, kernel)
    if use_bias:
        bias = draws(generator, layer.bias_mean.numpy(), layer.bias_variance.numpy())
        samples += bias[:, np.newaxis]
    noticed = assert_mean_close(samples, outputs.mean)
    assert np.all(noticed < 0.06)
    noticed = assert_variance_close(samples, outputs.variance)
    assert np.all(noticed < 0.08 * outputs.variance)


@pytest.mark.parametrize("shape", [(4, 3), (4, 5, 3), (2, 2, 5, 3)])
def test_dense_is_the_reference_along_any_leading_axes(shape):
    layer = with_random_parameters(tagi.Dense(2), (None, *shape[1:]))
    mean, variance = random_moments(shape)
    outputs = layer((mean, variance))
    assert outputs.mean.shape == outputs.variance.shape == (*shape[:-1], 2)
    assert layer.compute_output_shape(shape) == (*shape[:-1], 2)
    block = block_of(layer)
    for place in np.ndindex(shape[:-1]):
        expected = reference.dense_moments(block, mean[place], variance[place])
        assert_allclose(outputs.mean[place], expected[0], rtol=1e-5, atol=1e-6)
        assert_allclose(outputs.variance[place], expected[1], rtol=1e-5)


def test_zero_variances_give_a_deterministic_layer():
    layer = with_random_parameters(tagi.Dense(2), (None, 3))
    for pair in layer.parameters:
        pair.variance.assign(tf.zeros_like(pair.variance))
    x = random_moments((4, 3))[0]
    mean, variance = layer(x)
    assert_allclose(mean, x @ layer.kernel_mean.numpy() + layer.bias_mean.numpy(), rtol=1e-5)
    assert_allclose(variance, np.zeros((4, 2)), atol=0.0)
    assert_allclose(layer((x, np.zeros_like(x))).variance, np.zeros((4, 2)), atol=0.0)


def test_a_bilinear_layer_of_the_users_own(assert_mean_close, assert_variance_close):
    layer = with_random_parameters(Scale(), (None, 3))
    mean, variance = random_moments((4, 3))
    outputs = layer((mean, variance))
    assert layer.compute_output_shape((None, 3)) == (None, 3)
    generator = rng(1)
    kernel = draws(generator, layer.kernel_mean.numpy(), layer.kernel_variance.numpy())
    bias = draws(generator, layer.bias_mean.numpy(), layer.bias_variance.numpy())
    samples = draws(generator, mean, variance) * kernel[:, np.newaxis] + bias[:, np.newaxis]
    assert_mean_close(samples, outputs.mean)
    assert_variance_close(samples, outputs.variance)


@pytest.mark.parametrize(
    ("prior", "variance"), [("glorot", 2 / 500), ("xavier", 2 / 500), ("he", 1 / 300)]
)
@pytest.mark.parametrize("redraw", [False, True])
def test_prior_variances_and_means(
    redraw, prior, variance, assert_mean_close, assert_variance_close
):
    layer = tagi.Dense(200, prior=prior, gain=1.5, bias_variance=0.04)
    layer.build((None, 300))
    if redraw:
        before = layer.kernel_mean.numpy()
        layer.redraw(0)
        assert np.mean(before == layer.kernel_mean.numpy()) < 1e-3
    for pair, expected in zip(layer.parameters, [1.5**2 * variance, 0.04], strict=True):
        assert_allclose(pair.variance.numpy(), np.full(pair.variance.shape, expected), rtol=1e-6)
        samples = pair.mean.numpy().ravel()
        assert_mean_close(samples, 0.0)
        assert_variance_close(samples, expected)


# Sampled forward ---------------------------------------------------------------------------------


def test_sampled_dense_has_its_closed_form_moments(assert_mean_close, assert_variance_close):
    """For deterministic inputs the moments of one dense layer are exact."""
    layer = with_random_parameters(tagi.Dense(2), (None, 3))
    x = random_moments((4, 3))[0]
    num_samples = 50_000
    samples = layer.sample(np.repeat(x[np.newaxis], num_samples, axis=0), seed=3).numpy()
    assert samples.shape == (num_samples, 4, 2)
    outputs = layer(x)
    assert_mean_close(samples, outputs.mean)
    assert_variance_close(samples, outputs.variance)
    # Rows share the weights of a draw: cov(z_n, z_m) = x_n Sw x_m + Sb.
    covariance = np.einsum("i,iu,i->u", x[0], layer.kernel_variance.numpy(), x[1])
    centred = samples - samples.mean(axis=0)
    assert_mean_close(centred[:, 0] * centred[:, 1], covariance + layer.bias_variance.numpy())
    # Draws are independent of each other, and so are the outputs.
    assert_mean_close(centred[1:] * centred[:-1], 0.0)
    assert_mean_close(centred[..., 0] * centred[..., 1], 0.0)


def test_sampled_forward_is_a_function_of_its_seed():
    layer = with_random_parameters(tagi.Dense(2, activation="tanh"), (None, 3))
    x = np.repeat(random_moments((1, 4, 3))[0], 5, axis=0)
    first = layer.sample(x, seed=(1, 2))
    assert_allclose(first, layer.sample(x, seed=(1, 2)), atol=0.0)
    assert_allclose(first[:, :2], layer.sample(x[:, :2], seed=(1, 2)), rtol=1e-5, atol=1e-6)
    assert np.all(np.abs(first - layer.sample(x, seed=(1, 3))) > 0.0)


@pytest.mark.parametrize("moments", ["linearized", "exact"])
@pytest.mark.parametrize("name", PIECEWISE)
def test_sampled_activation_is_the_function(name, moments):
    z = random_moments((5, 4, 3))[0]
    functions = reference.PIECEWISE if moments == "exact" else reference.LINEARIZED
    layer = tagi.Activation(name, moments=moments)
    assert_allclose(layer.sample(z, seed=0), functions[name][0](z), rtol=1e-5, atol=1e-7)
    assert_allclose(layer(z[0]), functions[name][0](z[0]), rtol=1e-5, atol=1e-7)


def test_sampled_structure():
    a, b = random_moments((5, 4, 6))
    assert_allclose(tagi.Add().sample([a, b], seed=0), a + b, rtol=1e-6)
    joined = tagi.Concatenate().sample([a, b], seed=0)
    assert_allclose(joined, np.concatenate([a, b], axis=-1))
    reshaped = tagi.Reshape((2, 3)).sample(a, seed=0)
    assert_allclose(reshaped, a.reshape(5, 4, 2, 3))
    assert_allclose(tagi.Flatten().sample(reshaped, seed=0), a)


# Activations -------------------------------------------------------------------------------------

MEANS = np.array([-6.0, -1.5, -1.0, -0.3, 0.0, 0.4, 1.0, 2.0, 5.0])
STDDEVS = np.array([0.1, 0.7, 3.0])


def grid(means=MEANS, stddevs=STDDEVS, dtype="float64"):
    """Returns all pairs as two vectors: means and variances."""
    mean, stddev = (part.ravel() for part in np.meshgrid(means, stddevs))
    return mean.astype(dtype), np.square(stddev).astype(dtype)


@pytest.mark.parametrize("name", PIECEWISE)
def test_exact_moments_are_those_of_draws(name, assert_mean_close, assert_variance_close):
    mean, variance = grid()
    generator = rng(2)
    z = draws(generator, mean, variance, 100_000)
    samples = reference.PIECEWISE[name][0](z)
    layer = tagi.Activation(name, moments="exact", dtype="float64")
    outputs = layer((mean, variance))
    assert_mean_close(samples, outputs.mean)
    assert_variance_close(samples, outputs.variance)
    # slope = cov(z, a)/var(z)
    slope = layer.moments(tf.constant(mean), tf.constant(variance))[2]
    assert_mean_close((z - mean) * (samples - outputs.mean) / variance, slope)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", PIECEWISE)
def test_exact_moments_are_the_integrals(name, dtype):
    stddevs = np.array([0.0, 1e-4, 1e-3, 0.01, 0.1, 0.5, 1.0, 2.0, 5.0])
    mean, variance = grid(np.linspace(-9.0, 9.0, 37), stddevs, dtype)
    pairs = zip(mean.tolist(), variance.tolist(), strict=True)
    rows = [reference.exact_moments(name, *pair) for pair in pairs]
    expected = np.array(rows, float).T
    layer = tagi.Activation(name, moments="exact", dtype=dtype)
    actual = [part.numpy() for part in layer.moments(tf.constant(mean), tf.constant(variance))]
    assert all(part.dtype == dtype for part in actual)
    # Errors are relative to the scale of each moment: |m| + s, S, 1. A variance of 0 counts as
    # 1e-30. In float64 the errors are those of the reference, which rounds m + s n.
    error = 2e-6 if dtype == "float32" else 1e-11
    bounds = {
        "mean": error * (np.abs(mean) + np.sqrt(variance)) + 1e-15,
        "variance": error * variance + 1e-29,
        "slope": max(error, 1e-10),  # the reference's slope divides by s
    }
    for (moment, bound), got, want in zip(bounds.items(), actual, expected, strict=True):
        assert_allclose(np.abs(got - want) / bound, 0.0, atol=1.0, err_msg=moment)
    assert np.all(actual[1] >= 0.0)
    assert np.all((actual[2] >= 0.0) & (actual[2] <= 1.0))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", PIECEWISE)
def test_exact_moments_have_finite_gradients(name, dtype):
    stddevs = np.array([0.0, 1e-15, 1e-8, 1e-4, 0.01, 1.0, 5.0])
    mean, variance = map(tf.constant, grid(np.linspace(-9.0, 9.0, 37), stddevs, dtype))
    layer = tagi.Activation(name, moments="exact", dtype=dtype)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([mean, variance])
        outputs = layer.moments(mean, variance)
    for output in outputs[:2]:
        for gradient in tape.gradient(output, [mean, variance]):
            assert np.all(np.isfinite(gradient))


@pytest.mark.parametrize("name", PIECEWISE)
def test_the_slope_is_the_derivative_of_the_exact_mean(name):
    """Stein: cov(z, f(z))/var(z) = E[f'(z)] = d E[f(z)] / d mean, at a kink as elsewhere."""
    mean, variance = map(tf.constant, grid())
    with tf.GradientTape() as tape:
        tape.watch(mean)
        value, _, slope = EXACT[name][0](mean, variance)
    assert_allclose(tape.gradient(value, mean), slope, atol=1e-12)


@pytest.mark.parametrize("name", PIECEWISE)
@pytest.mark.parametrize("mean", [-3e4, 3e4, 1e6])
def test_exactly_known_units_far_from_the_kinks(mean, name):
    """A unit without variance equals its function, at any size."""
    outputs = tagi.Activation(name, moments="exact")((tf.constant([mean]), tf.constant([0.0])))
    assert_allclose(outputs.mean, reference.PIECEWISE[name][0]([mean]), rtol=1e-6)
    assert_allclose(outputs.variance, [0.0], atol=1e-29)


@pytest.mark.parametrize("name", LINEARIZED)
def test_linearized_moments_use_the_derivative_at_the_mean(name):
    mean, variance = grid()
    mean += 0.05  # off the kinks
    step = 1e-6
    function = reference.LINEARIZED[name][0]
    slope = (function(mean + step) - function(mean - step)) / (2 * step)
    layer = tagi.Activation(name, dtype="float64")
    outputs = layer((mean, variance))
    # TensorFlow's `leaky_relu` has a float32 slope.
    assert_allclose(outputs.mean, function(mean), rtol=1e-7, atol=1e-12)
    assert_allclose(outputs.variance, slope**2 * variance, rtol=1e-7, atol=1e-9)
    actual = layer.moments(tf.constant(mean), tf.constant(variance))[2]
    assert_allclose(actual, slope, rtol=1e-7, atol=1e-9)


def test_linearization_of_a_function_of_the_users_own():
    mean, variance = grid()
    outputs = tagi.Activation(tf.sin, dtype="float64")((mean, variance))
    assert_allclose(outputs.mean, np.sin(mean))
    assert_allclose(outputs.variance, np.cos(mean) ** 2 * variance)


def test_an_elementwise_layer_of_the_users_own(assert_mean_close, assert_variance_close):
    mean, variance = grid(stddevs=np.array([0.3, 1.0]))
    layer = Square(dtype="float64")
    outputs = layer((mean, variance))
    z = draws(rng(3), mean, variance)
    assert_mean_close(z**2, outputs.mean)
    assert_variance_close(z**2, outputs.variance)
    slope = layer.moments(mean, variance)[2]
    assert_mean_close((z - mean) * (z**2 - outputs.mean) / variance, slope)
    assert_allclose(layer(mean), mean**2)


# Structure ---------------------------------------------------------------------------------------


def test_add_has_the_moments_of_draws(assert_mean_close, assert_variance_close):
    first, second = random_moments((4, 3), seed=1), random_moments((4, 3), seed=2)
    known = random_moments((4, 3), seed=3)[0]
    outputs = tagi.Add()([first, second, known])
    generator = rng(4)
    samples = draws(generator, *first) + draws(generator, *second) + known
    assert_mean_close(samples, outputs.mean)
    assert_variance_close(samples, outputs.variance)


@pytest.mark.parametrize("axis", [-1, 1, 2])
def test_concatenate_joins_means_and_variances(axis):
    first, second = random_moments((4, 3, 2), seed=1), random_moments((4, 3, 2), seed=2)
    known = random_moments((4, 3, 2), seed=3)[0]
    outputs = tagi.Concatenate(axis=axis)([first, known, second])
    zero = np.zeros_like(known)
    assert_allclose(outputs.mean, np.concatenate([first[0], known, second[0]], axis=axis))
    assert_allclose(outputs.variance, np.concatenate([first[1], zero, second[1]], axis=axis))


def test_merging_exactly_known_values_gives_a_tensor():
    a, b = random_moments((4, 3))
    assert_allclose(tagi.Add()([a, b]), a + b)
    assert_allclose(tagi.Concatenate()([a, b]), np.concatenate([a, b], axis=-1))


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (tagi.Flatten, (4, 6)),
        (lambda: tagi.Reshape((3, 2)), (4, 3, 2)),
        (lambda: tagi.Reshape((-1, 2, 1)), (4, 3, 2, 1)),
    ],
)
def test_reshaping_moves_means_and_variances_alike(layer, shape):
    mean, variance = random_moments((4, 2, 3))
    outputs = layer()((mean, variance))
    assert_allclose(outputs.mean, mean.reshape(shape))
    assert_allclose(outputs.variance, variance.reshape(shape))
    assert_allclose(layer()(mean), mean.reshape(shape))
    symbolic = layer()((keras.Input((2, 3)), keras.Input((2, 3))))
    assert symbolic[0].shape == symbolic[1].shape == (None, *shape[1:])


# Gradients and innovations -----------------------------------------------------------------------


class Network:
    """A dense layer, an activation, a sum with a reshaped branch, a dense layer; float64."""

    def __init__(self, activation, moments):
        options = {"dtype": "float64"}
        self.first = with_random_parameters(tagi.Dense(3, **options), (None, 2), seed=1)
        self.activation = tagi.Activation(activation, moments=moments, **options)
        self.branch = with_random_parameters(tagi.Dense(3, **options), (None, 2), seed=5)
        self.add = tagi.Add(**options)
        self.last = with_random_parameters(tagi.Dense(2, **options), (None, 3), seed=9)

    def __call__(self, mean, variance):
        hidden = self.activation(self.first((mean, variance)))
        return self.last(self.add([hidden, self.branch((mean, variance))]))

    def variables(self):
        layers = [self.first, self.branch, self.last]
        return [part for layer in layers for pair in layer.parameters for part in pair]


@pytest.mark.parametrize(
    ("activation", "moments"), [("tanh", "linearized"), ("relu", "exact"), ("tanh", "exact")]
)
def test_outside_the_scope_a_tape_sees_true_derivatives(activation, moments):
    network = Network(activation, moments)
    generator = rng(6)
    inputs = [tf.Variable(part) for part in random_moments((4, 2), dtype="float64")]
    weights = [tf.constant(generator.normal(size=(4, 2))) for _ in range(2)]
    variables = [*inputs, *(v.value for v in network.variables())]

    def objective():
        outputs = network(*inputs)
        return tf.add_n([tf.reduce_sum(w * o) for w, o in zip(weights, outputs, strict=True)])

    with tf.GradientTape() as tape:
        value = objective()
    step = 1e-6
    for variable, gradient in zip(variables, tape.gradient(value, variables), strict=True):
        start = variable.numpy()
        direction = generator.normal(size=start.shape)
        ends = []
        for sign in (1.0, -1.0):
            variable.assign(start + sign * step * direction)
            ends.append(objective().numpy())
        variable.assign(start)
        expected = (ends[0] - ends[1]) / (2 * step)
        assert_allclose(np.sum(gradient * direction), expected, rtol=1e-6, atol=1e-8)


def innovations(network, inputs, variables, dm, ds):
    with propagation.innovation_scope(), tf.GradientTape() as tape:
        tape.watch(inputs)
        outputs = network(*inputs)
    return tape.gradient(list(outputs), [*inputs, *variables], output_gradients=[dm, ds])


@pytest.mark.parametrize(
    ("activation", "moments"), [("tanh", "linearized"), ("relu", "exact"), ("sigmoid", "exact")]
)
def test_inside_the_scope_a_tape_carries_innovations(activation, moments):
    """The formulas of METHODS are written out, layer by layer."""
    network = Network(activation, moments)
    mean, variance = random_moments((4, 2), dtype="float64")
    dm, ds = rng(8).normal(size=(4, 2)), -rng(9).uniform(size=(4, 2))
    variables = [v.value for v in network.variables()]
    actual = innovations(network, [tf.constant(mean), tf.constant(variance)], variables, dm, ds)

    z = network.first((mean, variance))
    *hidden, slope = network.activation.moments(*z)
    total = hidden[0] + network.branch((mean, variance)).mean

    def through(layer, a, dm, ds):
        """Returns innovations of the parameters (g_w, h_w, g_b, h_b) and of the input."""
        a, dm, ds = (np.asarray(part) for part in (a, dm, ds))
        w = layer.kernel_mean.numpy()
        return [a.T @ dm, (a**2).T @ ds, dm.sum(0), ds.sum(0)], dm @ w.T, ds @ (w**2).T

    last, q, p = through(network.last, total, dm, ds)
    branch, q_branch, p_branch = through(network.branch, mean, q, p)
    first, q_first, p_first = through(network.first, mean, slope * q, slope**2 * p)
    expected = [q_branch + q_first, p_branch + p_first, *first, *branch, *last]
    for got, want in zip(actual, expected, strict=True):
        assert_allclose(got, want, rtol=1e-10, atol=1e-12)


def test_the_scope_ends_with_its_block_even_after_an_error():
    assert not propagation.innovations_active()
    with pytest.raises(KeyError), propagation.innovation_scope():
        assert propagation.innovations_active()
        raise KeyError
    assert not propagation.innovations_active()


def test_exactly_known_inputs_have_the_innovations_of_zero_variance():
    layer = with_random_parameters(tagi.Dense(2, dtype="float64"), (None, 3))
    x = random_moments((4, 3), dtype="float64")[0]
    dm, ds = rng(8).normal(size=(4, 2)), -rng(9).uniform(size=(4, 2))
    variables = [part.value for pair in layer.parameters for part in pair]
    known = innovations(lambda a: layer(a), [tf.constant(x)], variables, dm, ds)
    pair = innovations(lambda a: layer((a, tf.zeros_like(a))), [tf.constant(x)], variables, dm, ds)
    for got, want in zip(known, pair, strict=True):
        assert_allclose(got, want, rtol=1e-12)
