"""Convolutions, pooling and images: against Keras's layers, draws, and explicit covariances.

Keras's layer of the same name, applied to unit vectors, gives the coefficients of a linear map.
Moments and innovations are then those of a sum of products, written out. Monte Carlo assertions
fail by chance once in a million (`false_fail` of the fixtures) per call; seeds are fixed.
"""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal
from scipy import integrate, stats

from tfp_fnspace import likelihoods, tagi
from tfp_fnspace.methods.tagi import propagation

NUM_DRAWS = 20_000

#: Name -> class, arguments, shape of one row.
CONVOLUTIONS = {
    "Conv1D": ("Conv1D", {"filters": 2, "kernel_size": 2}, (4, 2)),
    "Conv1D_causal": (
        "Conv1D",
        {"filters": 2, "kernel_size": 2, "padding": "causal", "dilation_rate": 2},
        (4, 2),
    ),
    "Conv2D": ("Conv2D", {"filters": 2, "kernel_size": 2}, (3, 4, 2)),
    "Conv2D_strides_same": (
        "Conv2D",
        {"filters": 2, "kernel_size": (3, 2), "strides": 2, "padding": "same", "use_bias": False},
        (4, 3, 2),
    ),
    "Conv2D_groups_dilation": (
        "Conv2D",
        {"filters": 4, "kernel_size": 2, "groups": 2, "dilation_rate": (1, 2)},
        (3, 3, 4),
    ),
    "Conv3D": ("Conv3D", {"filters": 2, "kernel_size": (1, 2, 2)}, (2, 2, 3, 2)),
    "DepthwiseConv2D": ("DepthwiseConv2D", {"kernel_size": 2, "depth_multiplier": 2}, (3, 3, 2)),
    "Conv2DTranspose": (
        "Conv2DTranspose",
        {
            "filters": 2,
            "kernel_size": 3,
            "strides": 2,
            "padding": "same",
            "output_padding": 1,
        },
        (2, 3, 1),
    ),
    "Conv2DTranspose_dilation": (
        "Conv2DTranspose",
        {"filters": 1, "kernel_size": (2, 3), "dilation_rate": (2, 1)},
        (2, 3, 2),
    ),
}

#: The same for layers without parameters.
MAPS = {
    "AveragePooling1D": ("AveragePooling1D", {"pool_size": 2, "padding": "same"}, (5, 2)),
    "AveragePooling2D": ("AveragePooling2D", {"pool_size": (2, 3)}, (5, 6, 2)),
    "AveragePooling2D_same": (
        "AveragePooling2D",
        {"pool_size": 3, "strides": 2, "padding": "same"},
        (5, 6, 2),
    ),
    "GlobalAveragePooling1D": ("GlobalAveragePooling1D", {}, (5, 2)),
    "GlobalAveragePooling2D": ("GlobalAveragePooling2D", {"keepdims": True}, (5, 6, 2)),
    "UpSampling2D": ("UpSampling2D", {"size": (2, 3)}, (2, 3, 2)),
    "UpSampling2D_bilinear": ("UpSampling2D", {"interpolation": "bilinear"}, (2, 3, 2)),
    "UpSampling2D_bicubic": ("UpSampling2D", {"interpolation": "bicubic"}, (4, 3, 1)),
    "ZeroPadding2D": ("ZeroPadding2D", {"padding": ((1, 2), (0, 1))}, (2, 3, 2)),
}

MAXIMA = {
    "MaxPooling2D": ("MaxPooling2D", {}, (4, 6, 2)),
    "MaxPooling2D_same": (
        "MaxPooling2D",
        {"pool_size": (3, 2), "strides": 2, "padding": "same"},
        (4, 5, 2),
    ),
}


def rng(seed=0):
    return np.random.default_rng(seed)


def random_moments(shape, seed=0):
    generator = rng(seed)
    return generator.normal(size=shape), generator.uniform(0.05, 1.5, size=shape)


def pair_of_layers(entry):
    """Returns our float64 layer with random moments, and Keras's with the means as weights."""
    name, arguments, shape = entry
    ours = getattr(tagi, name)(**arguments, dtype="float64")
    theirs = getattr(keras.layers, name)(**arguments, dtype="float64")
    ours.build((None, *shape))
    theirs.build((None, *shape))
    for i, moments in enumerate(ours.parameters):
        mean, variance = random_moments(moments.mean.shape, seed=7 + i)
        moments.mean.assign(mean)
        moments.variance.assign(variance)
    theirs.set_weights([moments.mean.numpy() for moments in ours.parameters])
    return ours, theirs


def response(layer):
    """Returns a function that applies Keras's layer to rows and flattens to `[N, outputs]`."""
    # On a CPU, TensorFlow has some of these layers only under XLA.
    xla = getattr(layer, "groups", 1) > 1 or isinstance(layer, keras.layers.Conv2DTranspose)
    compiled = tf.function(layer, autograph=False, jit_compile=xla)
    return lambda inputs: compiled(tf.constant(inputs)).numpy().reshape(len(inputs), -1)


def coefficients(layer, shape):
    """Returns T in `z_o = sum_ik T_oik a_i w_k` by unit kernels and inputs; the bias's places."""
    kernel, *bias = layer.get_weights()
    unit_inputs = np.eye(np.prod(shape)).reshape(-1, *shape)
    zero = [np.zeros_like(part) for part in bias]
    columns, respond = [], response(layer)
    for unit in np.eye(kernel.size):
        layer.set_weights([unit.reshape(kernel.shape), *zero])
        columns.append(respond(unit_inputs).T)
    places = np.zeros((len(columns[0]), 0))
    if bias:
        channel = np.arange(len(columns[0])) % bias[0].size  # channels are last
        places = channel[:, np.newaxis] == np.arange(bias[0].size)
    layer.set_weights([kernel, *bias])
    return np.stack(columns, axis=-1), places.astype(float)


def flat_parameters(layer):
    """Returns flat means and variances of the kernel and the bias (empty without one)."""
    values = [[part.numpy().ravel() for part in moments] for moments in layer.parameters]
    return values if len(values) == 2 else [*values, [np.zeros(0)] * 2]


@pytest.fixture(params=CONVOLUTIONS)
def convolution(request):
    entry = CONVOLUTIONS[request.param]
    return (*pair_of_layers(entry), entry[2])


# Layers with a kernel ----------------------------------------------------------------------------


def test_exactly_known_weights_give_keras_layer(convolution):
    ours, theirs, shape = convolution
    x = rng(1).normal(size=(3, *shape))
    for moments in ours.parameters:
        moments.variance.assign(tf.zeros_like(moments.variance))
    mean, variance = ours(x)
    expected = response(theirs)(x).reshape(ours.compute_output_shape((3, *shape)))
    assert_allclose(mean, expected, rtol=1e-10, atol=1e-12)
    assert_array_equal(variance, np.zeros_like(variance))
    sample = ours.sample(x[np.newaxis], seed=0)
    assert_allclose(sample[0], expected, rtol=1e-10, atol=1e-12)


def test_convolution_has_the_moments_of_draws(
    convolution, assert_mean_close, assert_variance_close
):
    ours, theirs, shape = convolution
    products, places = coefficients(theirs, shape)
    assert set(np.unique(products)) == {0.0, 1.0}  # the rule of `BilinearLayer` needs this
    mean, variance = random_moments((1, *shape), seed=3)
    outputs = ours((mean, variance))
    (mw, sw), (mb, sb) = flat_parameters(ours)
    generator = rng(4)

    def draws(m, s):
        return m + np.sqrt(s) * generator.normal(size=(NUM_DRAWS, m.size))

    a, w, b = draws(mean.ravel(), variance.ravel()), draws(mw, sw), draws(mb, sb)
    pairs = (a[:, :, np.newaxis] * w[:, np.newaxis]).reshape(NUM_DRAWS, -1)
    samples = pairs @ products.reshape(len(products), -1).T + b @ places.T
    assert_mean_close(samples, outputs.mean.numpy().ravel())
    noticed = assert_variance_close(samples, outputs.variance.numpy().ravel())
    assert np.all(noticed < 0.2 * outputs.variance.numpy().ravel())


def innovations(layer, inputs, dm, ds):
    """Returns innovations of the inputs and of the layer's parameters."""
    inputs = [tf.constant(part) for part in inputs]
    variables = [part.value for moments in layer.parameters for part in moments]
    with propagation.innovation_scope(), tf.GradientTape() as tape:
        tape.watch(inputs)
        outputs = layer(tuple(inputs))
    cotangents = [np.reshape(part, outputs.mean.shape) for part in (dm, ds)]
    return tape.gradient(list(outputs), [*inputs, *variables], output_gradients=cotangents)


def test_innovations_are_those_of_explicit_covariances(convolution):
    """Equations 15 and 16: cov(w_k, z_o) = Sw_k sum_i T_oik ma_i; the same for the inputs."""
    ours, theirs, shape = convolution
    products, places = coefficients(theirs, shape)
    mean, variance = random_moments((2, *shape), seed=3)
    dm, ds = rng(5).normal(size=(2, len(products))), -rng(6).uniform(size=(2, len(products)))
    actual = innovations(ours, (mean, variance), dm, ds)
    (mw, _), _ = flat_parameters(ours)
    to_kernel = np.einsum("oik,ni->nok", products, mean.reshape(2, -1))
    to_inputs = products @ mw
    expected = [
        (dm @ to_inputs).reshape(mean.shape),
        (ds @ to_inputs**2).reshape(mean.shape),
        np.einsum("nok,no->k", to_kernel, dm).reshape(ours.kernel_mean.shape),
        np.einsum("nok,no->k", to_kernel**2, ds).reshape(ours.kernel_mean.shape),
    ]
    if ours.use_bias:
        expected += [np.sum(dm @ places, axis=0), np.sum(ds @ places, axis=0)]
    for got, want in zip(actual, expected, strict=True):
        assert_allclose(got, want, rtol=1e-9, atol=1e-12)


def test_one_output_is_conditioned_exactly(float64):
    """One output, known inputs and one row give Gaussian conditioning, without a cap."""
    inputs = keras.Input((3, 2, 2))
    layer = tagi.Conv2D(1, (3, 2))
    noise = likelihoods.Gaussian(scale=0.4)
    model = tagi.TAGIModel(inputs, tagi.Flatten()(layer(inputs)), likelihood=noise, update="exact")
    model.compile(jit_compile=False)
    before = flat_parameters(layer)
    x, y = rng(1).normal(size=(1, 3, 2, 2)), np.array([[1.7]])
    model.train_on_batch(x, y)
    mean, variance = (np.concatenate([w, b]) for w, b in zip(*before, strict=True))
    row = np.append(x.ravel(), 1.0)
    covariance = np.diag(variance)
    gain = covariance @ row / (row @ covariance @ row + 0.4**2)
    expected = (
        mean + gain * (1.7 - row @ mean),
        np.diag(covariance - np.outer(gain, row * variance)),
    )
    after = flat_parameters(layer)
    for part, want in zip(zip(*after, strict=True), expected, strict=True):
        assert_allclose(np.concatenate(part), want, rtol=1e-10)


def test_prior_variances_count_places_and_channels():
    built = {
        (2 / (9 * 2 + 9 * 4)): (tagi.Conv2D(4, 3), (None, 5, 5, 2)),
        (2 / (9 * 1 + 9 * 2)): (tagi.Conv2D(4, 3, groups=2), (None, 5, 5, 2)),
        (1 / 4): (tagi.DepthwiseConv2D(2, prior="he"), (None, 5, 5, 2)),
        (1 / (4 * 2 / 4)): (tagi.Conv2DTranspose(4, 2, strides=2, prior="he"), (None, 5, 5, 2)),
    }
    for variance, (layer, shape) in built.items():
        layer.build(shape)
        assert_allclose(layer.kernel_variance.numpy(), variance, rtol=1e-6)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tagi.Conv2D(0, 3), r"`filters` must be a positive integer"),
        (lambda: tagi.Conv2D(4, (3, 3, 3)), r"`kernel_size` must have 2 integers"),
        (lambda: tagi.Conv2D(4, 3, padding="causal"), r"`padding` must be one of.*causal"),
        (lambda: tagi.Conv2D(4, 3, groups=3), r"`groups` must divide `filters`"),
        (lambda: tagi.Conv2D(4, 3, strides=2, dilation_rate=2), r"cannot both exceed 1"),
        (lambda: tagi.Conv2D(4, 3, data_format="channels_first"), r"`data_format` must be one of"),
        (lambda: tagi.Conv2D(4, 3, groups=2).build((None, 5, 5, 3)), r"must divide the number of"),
        (lambda: tagi.Conv2D(4, 3).build((None, 5, 3)), r"needs inputs of rank 4.*\(None, 5, 3\)"),
        (lambda: tagi.DepthwiseConv2D(3, strides=(1, 2)), r"`strides` must be equal"),
        (lambda: tagi.ZeroPadding2D((1, 2, 3)), r"`padding` must be an integer, a pair"),
        (lambda: tagi.UpSampling2D(interpolation="cubic"), r"`interpolation` must be one of"),
        (lambda: tagi.MaxPooling2D(moments="sampled"), r"`moments` must be one of"),
        (lambda: tagi.Conv2D(4, 3, activation=tagi.Activation), r"`activation` must .*not the cl"),
        (lambda: tagi.Dense(4, activation=tagi.Activation), r"`activation` must .*not the class"),
    ],
)
def test_arguments_are_checked(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# Linear maps with known coefficients -------------------------------------------------------------


@pytest.mark.parametrize("name", MAPS)
def test_known_maps_of_moments_and_innovations(name):
    """With `z = C a`, C m and C^2 S go forward, and C^T dm and (C^2)^T dS go backward."""
    kind, arguments, shape = MAPS[name]
    ours, theirs = (getattr(m, kind)(**arguments, dtype="float64") for m in (tagi, keras.layers))
    matrix = response(theirs)(np.eye(np.prod(shape)).reshape(-1, *shape)).T
    mean, variance = random_moments((2, *shape))
    outputs = ours((mean, variance))
    assert_allclose(outputs.mean, theirs(mean), rtol=1e-6, atol=1e-6)  # Keras resizes in float32
    got = outputs.variance.numpy().reshape(2, -1)
    assert_allclose(got, variance.reshape(2, -1) @ (matrix**2).T, rtol=1e-6, atol=1e-12)
    assert_allclose(ours(mean), outputs.mean, rtol=1e-12)
    assert ours.compute_output_shape((None, *shape)) == (None, *outputs.mean.shape[1:])
    dm, ds = rng(5).normal(size=(2, len(matrix))), -rng(6).uniform(size=(2, len(matrix)))
    actual = innovations(ours, (mean, variance), dm, ds)
    for part, want in zip(actual, (dm @ matrix, ds @ matrix**2), strict=True):
        assert_allclose(part.numpy().reshape(2, -1), want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", [name for name in MAPS if MAPS[name][0] != "ZeroPadding2D"])
def test_known_maps_have_the_moments_of_draws(name, assert_mean_close, assert_variance_close):
    kind, arguments, shape = MAPS[name]
    mean, variance = random_moments((1, *shape))
    outputs = getattr(tagi, kind)(**arguments)((mean, variance))
    draws = mean + np.sqrt(variance) * rng(1).normal(size=(5000, *shape))
    samples = getattr(keras.layers, kind)(**arguments)(draws).numpy()
    assert_mean_close(samples, outputs.mean[0])
    assert_variance_close(samples, outputs.variance[0])


# The maximum -------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["linearized", "exact"])
@pytest.mark.parametrize("name", MAXIMA)
def test_maximum_of_known_values_is_keras_layer(name, rule):
    kind, arguments, shape = MAXIMA[name]
    x = rng(1).normal(size=(3, *shape)) - 5.0  # padding with zeros would win
    expected = getattr(keras.layers, kind)(**arguments)(x)
    layer = getattr(tagi, kind)(**arguments, moments=rule)
    assert_allclose(layer(x), expected, rtol=1e-6)
    mean, variance = layer((x, np.zeros_like(x)))
    assert_allclose(mean, expected, rtol=1e-6)
    assert_allclose(variance, np.zeros_like(variance), atol=1e-20)
    assert_allclose(layer.sample(x[np.newaxis], seed=0)[0], expected, rtol=1e-6)


def test_linearized_maximum_passes_the_unit_with_the_largest_mean():
    mean, variance = random_moments((2, 4, 4, 1))
    layer = tagi.MaxPooling2D(dtype="float64")
    outputs = layer((mean, variance))
    dm, ds = rng(5).normal(size=(2, 2, 2, 1)), -rng(6).uniform(size=(2, 2, 2, 1))
    actual = innovations(layer, (mean, variance), dm, ds)
    expected = np.zeros((2, *mean.shape))
    for n, i, j in itertools.product(range(2), repeat=3):
        window = mean[n, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2, 0]
        row, column = np.unravel_index(np.argmax(window), (2, 2))
        place = (n, 2 * i + row, 2 * j + column, 0)
        assert outputs.mean[n, i, j, 0] == mean[place]
        assert outputs.variance[n, i, j, 0] == variance[place]
        expected[0][place], expected[1][place] = dm[n, i, j, 0], ds[n, i, j, 0]
    for got, want in zip(actual, expected, strict=True):
        assert_array_equal(got, want)


def test_gaussian_maximum_of_two_is_exact(assert_mean_close, assert_variance_close):
    """Windows of two agree with draws in moments and slopes cov(max, a)/var(a)."""
    mean, variance = random_moments((1, 2, 6, 3))
    layer = tagi.MaxPooling2D((2, 1), moments="exact", dtype="float64")
    outputs = layer((mean, variance))
    draws = mean + np.sqrt(variance) * rng(2).normal(size=(100_000, 2, 6, 3))
    samples = draws.max(axis=1, keepdims=True)
    assert_mean_close(samples, outputs.mean[0])
    assert_variance_close(samples, outputs.variance[0])
    ones = np.ones((1, 1, 6, 3))
    slope, square = innovations(layer, (mean, variance), ones, ones)
    assert_mean_close((draws - mean) * (samples - outputs.mean) / variance, slope[0])
    assert_allclose(square, np.square(slope), rtol=1e-12)


def test_gaussian_maximum_of_nine_is_close():
    """Moments of the largest of nine standard normal values are within 2 % and 20 %."""
    n = np.linspace(-8.0, 8.0, 4001)
    density = 9 * stats.norm.pdf(n) * stats.norm.cdf(n) ** 8
    first, second = (integrate.trapezoid(n**power * density, n) for power in (1, 2))
    mean, variance = tagi.MaxPooling2D(3, moments="exact")(
        (np.zeros((1, 3, 3, 1)), np.ones((1, 3, 3, 1)))
    )
    assert_allclose(np.squeeze(mean), first, rtol=0.02)
    assert_allclose(np.squeeze(variance), second - first**2, rtol=0.2)


def test_gaussian_maximum_has_finite_derivatives():
    mean, variance = random_moments((2, 3, 3, 1))
    mean, variance = tf.constant(mean, tf.float32), tf.constant(variance * 1e-12, tf.float32)
    with tf.GradientTape() as tape:
        tape.watch([mean, variance])
        outputs = tagi.MaxPooling2D(2, padding="same", moments="exact")((mean, variance))
    for gradient in tape.gradient(outputs.mean, [mean, variance]):
        assert np.all(np.isfinite(gradient))


# A network of images -----------------------------------------------------------------------------


@pytest.mark.slow
def test_a_network_of_images_learns():
    x = rng(0).uniform(size=(40, 6, 6, 1))
    y = x[:, 1:4, 1:4].mean(axis=(1, 2)) * 10.0
    images = keras.Input((6, 6, 1))
    hidden = tagi.Conv2D(4, 3, padding="same", activation="relu")(images)
    hidden = tagi.MaxPooling2D()(tagi.BatchNormalization()(hidden))
    outputs = tagi.Dense(1)(tagi.Flatten()(hidden))
    noise = likelihoods.Gaussian(scale=0.3)
    model = tagi.TAGIModel(images, outputs, likelihood=noise, standardize=True, seed=0)
    model.compile(jit_compile=True)
    history = model.fit(x, y, batch_size=11, epochs=8, verbose=0).history
    assert history["rmse"][-1] < 0.9 * history["rmse"][0]
    draws = model.sample_functions(x[:6], 3, seed=1)
    assert_allclose(model.sample_functions(x[2:4], 3, seed=1), draws[:, 2:4], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("gpus", [0, 1])
def test_xla_compiles_loops_of_convolutions_on_a_gpu_only(gpus, monkeypatch):
    images = keras.Input((3, 3, 1))
    outputs = tagi.Dense(1)(tagi.Flatten()(tagi.Conv2D(2, 2)(images)))
    model = tagi.TAGIModel(images, outputs, likelihood=likelihoods.Gaussian(scale=0.3))
    monkeypatch.setattr(
        tf.config, "list_physical_devices", lambda kind=None: [None] * gpus * (kind == "GPU")
    )
    x, y = np.zeros((2, 3, 3, 1), "float32"), np.zeros((2, 1), "float32")
    compiled = model.epochs.learner([x], y, 2).function._jit_compile
    assert compiled is bool(gpus) and model.epochs.fuses_updates is not compiled
    model.compile(jit_compile=True)
    assert model.epochs.learner([x], y, 2).function._jit_compile and not model.epochs.fuses_updates
