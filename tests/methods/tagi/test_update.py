"""The updates of TAGI: hand values, Bayesian linear regression, and the NumPy reference."""

import copy
from itertools import pairwise

import keras
import numpy as np
import pytest
import tagi as reference
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from tfp_fnspace import likelihoods, tagi
from tfp_fnspace.methods.tagi import equations, noise

CLOSE = {"rtol": 1e-9, "atol": 1e-11}  # for float64 models and the reference
FLOAT32_SLOPE = {"rtol": 1e-6, "atol": 1e-8}


def random_block(generator, num_in, num_out, activation=None):
    return reference.Block(
        generator.normal(size=(num_in, num_out)) / np.sqrt(num_in),
        generator.uniform(0.05, 0.3, size=(num_in, num_out)),
        generator.normal(size=num_out) * 0.1,
        generator.uniform(0.05, 0.3, size=num_out),
        activation,
    )


def random_network(widths=(3, 6, 5, 2), names=("relu", "exact tanh"), seed=0):
    generator = np.random.default_rng(seed)
    layers = zip(pairwise(widths), (*names, None), strict=True)
    return [random_block(generator, *width, name) for width, name in layers]


def random_data(num_rows=23, num_inputs=3, num_outputs=2, seed=1):
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(num_rows, num_inputs))
    return x, np.sin(x[:, :1]) + generator.normal(size=(num_rows, num_outputs)) * 0.3


def dense(block, **kwargs):
    """Makes the layer of a block, without a bias if the block knows it to be zero."""
    num_in, num_out = block.kernel_mean.shape
    layer = tagi.Dense(num_out, use_bias=bool(block.bias_variance.any()), **kwargs)
    layer.build((None, num_in))
    assign(layer, block)
    return layer


def assign(layer, block):
    for name, value in zip(block.NAMES, block.parameters(), strict=True):
        if getattr(layer, name) is not None:
            getattr(layer, name).assign(value)


def activation(name):
    moments = "exact" if name.startswith("exact ") else "linearized"
    return tagi.Activation(name.removeprefix("exact "), moments=moments)


def build(network, scale=0.3, pair=False, frozen=(), jit_compile=False, **options):
    """Makes a model with the parameters of a reference network, and returns its dense layers.

    XLA is off by default: compiling takes longer than learning here.
    """
    inputs = keras.Input((len(network[0].kernel_mean),))
    variances = keras.Input(inputs.shape[1:]) if pair else None
    tensor = (inputs, variances) if pair else inputs
    layers = []
    for i, block in enumerate(network):
        layers.append(dense(block, trainable=i not in frozen))
        tensor = layers[-1](tensor)
        if block.activation:
            tensor = activation(block.activation)(tensor)
    options = {"standardize": False, **options}
    model = tagi.TAGIModel(
        [inputs, variances] if pair else inputs,
        tensor,
        likelihood=likelihoods.Gaussian(scale=scale),
        **options,
    )
    model.compile(jit_compile=jit_compile)
    return model, layers


SMALL = {"widths": (3, 4, 2), "names": ("exact tanh",)}


def weight(mean=0.0, variance=1.0):
    """Makes a block of one or several weights, without a bias."""
    mean, variance = (np.atleast_1d(part).astype(float)[:, np.newaxis] for part in (mean, variance))
    return reference.Block(mean, variance, np.zeros(1), np.zeros(1))


def values(layers):
    return [part.numpy() for layer in layers for pair in layer.parameters for part in pair]


def assert_same_posterior(layers, network, **tolerance):
    for i, (layer, block) in enumerate(zip(layers, network, strict=True)):
        for name, expected in zip(block.NAMES, block.parameters(), strict=True):
            if getattr(layer, name) is not None:
                actual = getattr(layer, name).numpy()
                assert_allclose(actual, expected, err_msg=f"{name} of layer {i}", **tolerance)


def learn(model, x, y, batch_size, path):
    """Makes one pass over the rows in their order."""
    if path == "fit":  # the epoch as one compiled loop
        model.fit(x, y, batch_size=batch_size, shuffle=False, verbose=0)
    elif path == "fit by batches":  # a callback at batches makes `fit` use Keras's loop
        callback = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: None)
        model.fit(x, y, batch_size=batch_size, shuffle=False, verbose=0, callbacks=[callback])
    else:
        for start in range(0, len(y), batch_size):
            model.train_on_batch(x[start : start + batch_size], y[start : start + batch_size])


PATHS = ["fit", pytest.param("fit by batches", marks=pytest.mark.slow), "train_on_batch"]


# Hand values -------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("rule", "mean", "variance"),
    [("exact", 2000 / 201, 1 / 201), ("capped", 0.5, 0.5)],  # 9.950 and 0.00498
)
def test_one_weight_two_observations(rule, mean, variance, path):
    model, (layer,) = build([weight()], scale=0.1, update=rule, jit_compile="auto")
    learn(model, np.ones((2, 1)), np.full((2, 1), 10.0), 2, path)
    assert_allclose(layer.kernel_mean.numpy(), [[mean]], rtol=1e-5)
    assert_allclose(layer.kernel_variance.numpy(), [[variance]], rtol=1e-4)


def test_two_weights_are_row_wise_assumed_density_filtering():
    """The result is not the exact posterior, whose variances are 1/(1 + 2/0.01) = 0.005."""
    model, (layer,) = build([weight([0.0, 0.0], [1.0, 1.0])], scale=0.1, update="exact")
    x = np.array([[1.0, 1.0], [1.0, -1.0]])
    learn(model, x, np.ones((2, 1)), 2, "fit")
    assert_allclose(layer.kernel_variance.numpy(), [[0.2537], [0.2537]], atol=5e-5)


@pytest.mark.parametrize("path", PATHS)
def test_exact_update_of_one_weight_is_bayesian_linear_regression(float64, path):
    generator = np.random.default_rng(2)
    x = generator.normal(size=(100, 1))
    y = 0.7 * x + 0.2 * generator.normal(size=(100, 1))
    model, (layer,) = build([weight(0.3, 2.0)], scale=0.2, update="exact")
    learn(model, x, y, 16, path)
    mean, covariance = reference.linear_regression_posterior(x, y[:, 0], 0.2**2, [0.3], [2.0])
    assert_allclose(layer.kernel_mean.numpy()[:, 0], mean, rtol=1e-10)
    assert_allclose(layer.kernel_variance.numpy()[:, 0], covariance[0], rtol=1e-10)


def test_exact_update_of_a_nearly_noiseless_observation(float64):
    """The posterior variance is 1e-8, from a prior variance of 1: one row is enough."""
    model, (layer,) = build([weight()], scale=1e-4, update="exact")
    learn(model, np.ones((1, 1)), np.ones((1, 1)), 1, "fit")
    assert_allclose(layer.kernel_variance.numpy(), [[1.0 / (1.0 + 1e8)]], rtol=1e-6)


def test_exact_update_with_orthogonal_rows_is_bayesian_linear_regression(float64):
    """Each row depends on one weight: no covariance is dropped."""
    x = np.eye(3)[[0, 1, 2, 1, 0, 0]] * np.array([[1.0, -2.0, 0.5, 1.5, 3.0, 0.1]]).T
    y = np.random.default_rng(0).normal(size=(6, 1))
    prior = np.array([0.1, -0.2, 0.3]), np.array([1.0, 0.5, 2.0])
    model, (layer,) = build([weight(*prior)], scale=0.2, update="exact")
    learn(model, x, y, 4, "fit")
    mean, covariance = reference.linear_regression_posterior(x, y[:, 0], 0.2**2, *prior)
    assert_allclose(layer.kernel_mean.numpy()[:, 0], mean, rtol=1e-10)
    assert_allclose(layer.kernel_variance.numpy()[:, 0], np.diag(covariance), rtol=1e-10)


# Splits ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [1, 7, 10])
@pytest.mark.slow
def test_exact_fit_does_not_depend_on_the_batch_size(batch_size):
    """Results are equal to the bit: a compiled epoch takes rows one by one, whatever the batch."""
    posteriors = []
    for size in (23, batch_size):
        model, layers = build(random_network(**SMALL), update="exact", jit_compile="auto")
        learn(model, *random_data(), size, "fit")
        posteriors.append(values(layers))
    for first, second in zip(*posteriors, strict=True):
        assert_array_equal(first, second)


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [1, 7, 10])
@pytest.mark.parametrize("path", ["fit by batches", "train_on_batch"])
def test_exact_batches_do_not_depend_on_the_split(path, batch_size):
    """Results agree to 1e-6 in float32: XLA and TensorFlow's kernels round differently."""
    posteriors = []
    for size, way in ((23, "fit"), (batch_size, path)):
        model, layers = build(random_network(**SMALL), update="exact", jit_compile="auto")
        learn(model, *random_data(), size, way)
        posteriors.append(values(layers))
    for first, second in zip(*posteriors, strict=True):
        assert_allclose(first, second, rtol=1e-5, atol=1e-6)


def test_two_fits_of_one_epoch_are_a_fit_of_two():
    posteriors = []
    for epochs in ([2], [1, 1]):
        model, layers = build(random_network(**SMALL), seed=3)
        for number in epochs:
            model.fit(*random_data(), epochs=number, batch_size=5, verbose=0)
        posteriors.append(values(layers))
    for first, second in zip(*posteriors, strict=True):
        assert_array_equal(first, second)


# Deep networks against the reference -------------------------------------------------------------

NAMES = ["linear", "leaky_relu", "tanh", "sigmoid", "softplus"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("rule", ["capped", "exact"])
def test_deep_network_is_the_reference(float64, rule, path):
    network = random_network()
    x, y = random_data()
    model, layers = build(network, update=rule, jit_compile="auto")
    learn(model, x, y, 5, path)  # 23 rows: the last batch has 3
    if rule == "exact":
        reference.exact_update(network, x, y, 0.3**2)
    else:
        for start in range(0, 23, 5):
            part = slice(start, start + 5)
            reference.capped_update(network, x[part], y[part], 0.3**2)
    assert_same_posterior(layers, network, **CLOSE)
    expected = [reference.forward(network, row)[:2] for row in x]
    prediction = model.predict(x)
    assert_allclose(prediction["mean"], [mean for mean, _ in expected], **CLOSE)
    variance = np.array([variance for _, variance in expected])
    assert_allclose(prediction["epistemic_stddev"] ** 2, variance, **CLOSE)
    assert_allclose(prediction["stddev"] ** 2, variance + 0.3**2, **CLOSE)


@pytest.mark.parametrize("name", [*NAMES, "exact relu", "exact sigmoid"])
def test_every_activation_passes_innovations_as_the_reference_does(float64, name):
    network = random_network(widths=(3, 6, 2), names=(name,))
    x, y = random_data(6)
    model, layers = build(network, update="exact")
    model.train_on_batch(x, y)
    reference.exact_update(network, x, y, 0.3**2)
    # TensorFlow's `leaky_relu` has a float32 slope.
    assert_same_posterior(layers, network, **(CLOSE if name != "leaky_relu" else FLOAT32_SLOPE))


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["capped", "exact"])
def test_float32_is_the_reference_to_its_precision(rule):
    network = random_network()
    x, y = random_data()
    model, layers = build(network, update=rule, jit_compile="auto")
    learn(model, x, y, 23, "fit")
    step = reference.exact_update if rule == "exact" else reference.capped_update
    step(network, x, y, 0.3**2)
    assert_same_posterior(layers, network, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("path", ["fit", "train_on_batch"])
@pytest.mark.parametrize("rule", ["capped", "exact"])
@pytest.mark.slow
def test_residual_branch_and_shared_layer_are_the_hand_written_pass(float64, rule, path):
    generator = np.random.default_rng(4)
    graph = reference.Graph(
        first=random_block(generator, 4, 5),
        shared=random_block(generator, 5, 5),
        branch=random_block(generator, 4, 3),
        last=random_block(generator, 8, 2),
    )
    layers = [dense(block) for block in graph.blocks()]
    first, shared, branch, last = layers
    inputs = keras.Input((4,))
    hidden = tagi.Activation("relu")(first(inputs))
    residual = tagi.Add()([hidden, shared(hidden)])
    side = tagi.Activation("tanh", moments="exact")(branch(inputs))
    outputs = last(tagi.Concatenate()([shared(residual), side]))
    model = tagi.TAGIModel(
        inputs,
        outputs,
        likelihood=likelihoods.Gaussian(scale=0.3),
        update=rule,
        standardize=False,
    )
    x, y = random_data(8, 4, 2)
    expected = np.array([graph.forward(row)["out"] for row in x])
    prediction = model.predict(x)
    assert_allclose(prediction["mean"], expected[:, 0], **CLOSE)
    assert_allclose(prediction["epistemic_stddev"] ** 2, expected[:, 1], **CLOSE)
    learn(model, x, y, 8, path)
    graph.update(x, y, 0.3**2, rule)
    assert_same_posterior(layers, graph.blocks(), **CLOSE)


def test_log_likelihood_and_rmse_are_those_before_each_update(float64):
    """Both are prequential, in the user's units, and means over rows and over entries."""
    network = random_network(**SMALL)
    x, y = random_data()
    y = 5.0 + 10.0 * y
    model, _ = build(network, update="exact", standardize=True)
    history = model.fit(x, y, shuffle=False, verbose=0).history
    unit = y.std(axis=0)
    scaled_x, scaled_y = (x - x.mean(axis=0)) / x.std(axis=0), (y - y.mean(axis=0)) / unit
    log_density, squared = [], []
    for row, target in zip(scaled_x, scaled_y, strict=True):
        mean, variance, _ = reference.forward(network, row)
        distribution = stats.norm(mean * unit, np.sqrt(variance + 0.3**2) * unit)
        log_density.append(distribution.logpdf(target * unit).sum())
        squared.append((unit * (target - mean)) ** 2)
        reference.exact_update(network, row[np.newaxis], target[np.newaxis], 0.3**2)
    assert_allclose(history["log_likelihood"], [np.mean(log_density)], rtol=1e-8)
    assert_allclose(history["loss"], [-np.mean(log_density)], rtol=1e-8)
    assert_allclose(history["rmse"], [np.sqrt(np.mean(squared))], rtol=1e-8)


# Caps --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("num_rows", "cap"), [(1, 0.1), (2, 2.0), (255, 2.0), (256, 3.0), (300, 3.0)]
)
def test_the_cap_is_that_of_the_number_of_rows(num_rows, cap, path):
    model, (layer,) = build([weight(0.0, 0.64)], scale=1.0)
    learn(model, np.ones((num_rows, 1)), np.full((num_rows, 1), 1e6), num_rows, path)
    assert_allclose(layer.kernel_mean.numpy(), [[0.8 / cap]], rtol=1e-5)
    # The variance changes by its own amount if that is below the cap.
    change = min(0.64**2 * num_rows / (0.64 + 1.0), 0.8 / cap)
    expected = 0.64 - change if change < 0.64 else equations.VARIANCE_FLOOR
    assert_allclose(layer.kernel_variance.numpy(), [[expected]], rtol=1e-5)


@pytest.mark.parametrize("path", PATHS)
def test_a_ragged_last_batch_has_the_cap_of_its_own_rows(float64, path):
    """The batches of 11 rows have 10 rows with cap 2, then a single row with cap 0.1."""
    network = [weight(0.0, 1.0)]
    x, y = np.ones((11, 1)), np.full((11, 1), 1e6)
    model, layers = build(network)
    learn(model, x, y, 10, path)
    assert layers[0].kernel_mean.numpy().item() > 5.0  # sqrt(1)/2 + sqrt(S)/0.1, S = 0.5
    reference.capped_update(network, x[:10], y[:10], 0.3**2)
    reference.capped_update(network, x[10:], y[10:], 0.3**2)
    assert_same_posterior(layers, network, rtol=1e-7)  # the cap 0.1 is a float32


def test_a_variance_that_would_vanish_gets_the_floor():
    model, (layer,) = build([weight(0.0, 0.2)], scale=0.01)
    learn(model, np.ones((20, 1)), np.zeros((20, 1)), 20, "fit")
    assert_allclose(layer.kernel_variance.numpy(), [[1e-5]], rtol=1e-6)


@pytest.mark.parametrize("size", [1, 2, 255, 256])
def test_cap_factor(size):
    expected = 0.1 if size == 1 else 2.0 if size < 256 else 3.0
    for number in (size, tf.constant(size)):
        assert equations.cap_factor(number, "float64") == expected
        assert equations.cap_factor(number, "float32") == np.float32(expected)


# Missing targets ---------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["fit", "train_on_batch"])
@pytest.mark.parametrize("rule", ["capped", "exact"])
def test_rows_without_targets_change_nothing(rule, path):
    model, layers = build(random_network(**SMALL), update=rule)
    before = values(layers)
    x, y = random_data(4)
    learn(model, x, np.full_like(y, np.nan), 4, path)
    for first, second in zip(before, values(layers), strict=True):
        assert_array_equal(first, second)


def test_exact_update_skips_a_row_without_targets():
    x, y = random_data(6)
    posteriors = []
    for rows in ([0, 1, 2, 3, 4, 5], [0, 1, 3, 4, 5]):
        targets = y.copy()
        targets[2] = np.nan
        model, layers = build(random_network(**SMALL), update="exact")
        learn(model, x[rows], targets[rows], 3, "fit")
        posteriors.append(values(layers))
    for first, second in zip(*posteriors, strict=True):
        assert_allclose(first, second, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("path", ["fit", "train_on_batch"])
@pytest.mark.parametrize("rule", ["capped", "exact"])
def test_a_missing_output_is_a_missing_innovation(float64, rule, path):
    network = random_network(**SMALL)
    x, y = random_data(7)
    y[np.arange(7), np.arange(7) % 2] = np.nan
    model, layers = build(network, update=rule)
    learn(model, x, y, 7, path)
    step = reference.exact_update if rule == "exact" else reference.capped_update
    step(network, x, y, 0.3**2)
    assert_same_posterior(layers, network, **CLOSE)


def test_history_leaves_missing_targets_out(float64):
    """One output misses half the rows: the means are over the others."""
    network = random_network(widths=(3, 4, 1), names=("tanh",))
    x, y = random_data(8, 3, 1)
    seen = np.arange(0, 8, 2)
    y[1::2] = np.nan
    model, _ = build(network, update="capped")
    history = model.fit(x, y, batch_size=8, verbose=0, shuffle=False).history
    mean, variance = np.array([reference.forward(network, row)[:2] for row in x[seen]]).T[0]
    distribution = stats.norm(mean, np.sqrt(variance + 0.3**2))
    assert_allclose(history["log_likelihood"], [distribution.logpdf(y[seen, 0]).mean()], rtol=1e-9)
    assert_allclose(history["rmse"], [np.sqrt(np.mean((y[seen, 0] - mean) ** 2))], rtol=1e-9)


# Uncertain inputs --------------------------------------------------------------------------------


@pytest.mark.parametrize("stddev", [0.5, [0.5, 0.0, 1.2]])
@pytest.mark.parametrize("rule", ["capped", "exact"])
def test_input_variances_as_a_pair_and_as_a_number_are_the_reference(float64, rule, stddev):
    network = random_network(**SMALL)
    x, y = random_data(7)
    variance = np.broadcast_to(np.square(stddev), x.shape)
    by_number, number_layers = build(network, update=rule, input_stddev=stddev)
    by_pair, pair_layers = build(network, update=rule, pair=True)
    rows = zip(x, variance, strict=True)
    expected = np.array([reference.forward(network, *row)[:2] for row in rows])
    for prediction in (by_number.predict(x), by_pair.predict([x, variance])):
        assert_allclose(prediction["mean"], expected[:, 0], **CLOSE)
        assert_allclose(prediction["epistemic_stddev"] ** 2, expected[:, 1], **CLOSE)
    learn(by_number, x, y, 7, "fit")
    by_pair.fit([x, variance], y, batch_size=7, shuffle=False, verbose=0)
    step = reference.exact_update if rule == "exact" else reference.capped_update
    step(network, x, y, 0.3**2, variance)
    assert_same_posterior(number_layers, network, **CLOSE)
    assert_same_posterior(pair_layers, network, **CLOSE)


def test_units_of_input_variances_when_standardising(float64):
    """`input_stddev` is in model units, a second input in the user's, squared."""
    x, y = random_data(9)
    x = 3.0 + 10.0 * x
    variance = np.broadcast_to((0.5 * x.std(axis=0)) ** 2, x.shape)
    by_number, number_layers = build(random_network(**SMALL), input_stddev=0.5, standardize=True)
    by_pair, pair_layers = build(random_network(**SMALL), pair=True, standardize=True)
    learn(by_number, x, y, 9, "fit")
    by_pair.fit([x, variance], y, batch_size=9, shuffle=False, verbose=0)
    for first, second in zip(values(number_layers), values(pair_layers), strict=True):
        assert_allclose(first, second, **CLOSE)
    first, second = by_number.predict(x), by_pair.predict([x, variance])
    for name in first:
        assert_allclose(first[name], second[name], **CLOSE)


HEADS = {
    "dense": lambda a: tagi.Dense(4)(a),
    "activation": lambda a: tagi.Activation("tanh")(a),
    "flatten": lambda a: tagi.Flatten()(a),
    "reshape": lambda a: tagi.Reshape((3, 2))(a),
    "add": lambda a: tagi.Add()([a, a]),
    "concatenate": lambda a: tagi.Concatenate()([a, a]),
}


@pytest.mark.parametrize("head", sorted(HEADS))
def test_input_noise_passes_whatever_layer_comes_first(head):
    """`input_stddev` acts where the data enter."""
    predictions, x = [], np.random.default_rng(0).normal(size=(4, 2, 3))
    for pair in (False, True):
        inputs, variances = keras.Input((2, 3)), keras.Input((2, 3))
        tensor = HEADS[head]((inputs, variances) if pair else inputs)
        model = tagi.TAGIModel(
            [inputs, variances] if pair else inputs,
            tagi.Dense(1)(tagi.Flatten()(tensor)),
            likelihood=likelihoods.Gaussian(scale=0.3),
            input_stddev=None if pair else [2.0, 1.0, 0.5],
            standardize=False,
            seed=0,
        )
        variance = np.broadcast_to([4.0, 1.0, 0.25], x.shape)
        predictions.append(model.predict([x, variance] if pair else x))
    for name in predictions[0]:
        assert_allclose(*(prediction[name] for prediction in predictions), rtol=1e-5)


def test_input_noise_refuses_an_ordinary_layer_at_the_inputs():
    """An ordinary layer has no rule for variances."""
    inputs = keras.Input((3,))
    outputs = tagi.Dense(1)(keras.layers.Rescaling(10.0)(inputs))
    noise = likelihoods.Gaussian(scale=0.3)
    with pytest.raises(ValueError, match=r"need TAGI layers from the inputs on"):
        tagi.TAGIModel(inputs, outputs, likelihood=noise, input_stddev=1.0)


def test_an_input_of_variances_is_one_inside_a_nested_model_too():
    """The same layers agree with and without nesting."""
    x, y = random_data(8, 3, 1)
    variance = np.random.default_rng(0).uniform(0.1, 1.0, size=x.shape)
    first, last = tagi.Dense(4), tagi.Dense(1)
    parts = [keras.Input((3,)) for _ in range(2)]
    nested = keras.Model(parts, list(first(tuple(parts))))
    predictions = []
    for head in (nested, lambda pair: first(tuple(pair))):
        inputs = [keras.Input((3,)), keras.Input((3,))]
        outputs = last(tuple(head(inputs)))
        model = tagi.TAGIModel(inputs, outputs, likelihood=likelihoods.Gaussian(scale=0.3))
        model.adapt([x, variance], y)
        predictions.append(model.predict([x, variance])["stddev"])
    assert_allclose(*predictions, rtol=1e-5)


# Frozen layers, other inputs ---------------------------------------------------------------------


@pytest.mark.parametrize("path", PATHS)
def test_a_frozen_layer_passes_innovations_and_is_not_changed(float64, path):
    network = random_network()
    x, y = random_data(7)
    model, layers = build(network, frozen={1})
    kept = copy.deepcopy(network[1])
    learn(model, x, y, 7, path)
    reference.capped_update(network, x, y, 0.3**2)
    assert_same_posterior(layers, [network[0], kept, network[2]], **CLOSE)
    for name in kept.NAMES:  # to the bit
        assert_array_equal(getattr(layers[1], name).numpy(), getattr(kept, name))


@pytest.mark.slow
@pytest.mark.parametrize("path", ["fit", "train_on_batch"])
def test_freezing_and_thawing_take_effect_after_compile(path):
    model, layers = build(random_network(**SMALL))
    data = random_data(7)
    learn(model, *data, 7, path)
    for trainable in (False, True):
        layers[1].trainable = trainable
        model.compile()
        before = values(layers)
        learn(model, *data, 7, path)
        changed = [np.any(a != b) for a, b in zip(before, values(layers), strict=True)]
        assert changed == [True] * 4 + [trainable] * 4


def test_integer_inputs_do_not_make_the_targets_integers():
    inputs = keras.Input((1,), dtype="int32")
    outputs = tagi.Dense(1, use_bias=False)(inputs)
    noise_model = likelihoods.Gaussian(scale=0.01)
    model = tagi.TAGIModel(
        inputs, outputs, likelihood=noise_model, update="exact", standardize=False
    )
    model.fit(np.ones((4, 1), int), np.full((4, 1), 0.7), verbose=0)
    assert_allclose(model.predict(np.ones((1, 1), int))["mean"], [[0.7]], atol=0.01)


# Noise -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["fit", "fit by batches"])
def test_annealed_noise_is_set_at_each_epoch(path):
    schedule = keras.optimizers.schedules.ExponentialDecay(2.0, decay_steps=1, decay_rate=0.5)
    network = [weight(0.0, 1.0)]
    model, layers = build(network, scale=7.0, noise=schedule, update="exact")
    seen = []
    record = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: seen.append(float(model.likelihood.scale.numpy())),
        **({} if path == "fit" else {"on_train_batch_end": lambda batch, logs: None}),
    )
    x, y = np.ones((3, 1)), np.full((3, 1), 0.5)
    options = {"shuffle": False, "verbose": 0, "callbacks": [record]}
    model.fit(x, y, epochs=3, **options)
    model.fit(x, y, epochs=1, **options)
    expected = [2.0, 1.0, 0.5, 0.25]
    assert_allclose(seen, expected, rtol=1e-6)
    for scale in expected:  # the epochs learnt with these scales
        reference.exact_update(network, x, y, scale**2)
    assert_same_posterior(layers, network, rtol=1e-5)


def linear_data(num_rows=200, scale=0.3, seed=0):
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(num_rows, 2))
    return x, x @ [[0.8], [-0.5]] + scale * generator.normal(size=(num_rows, 1))


@pytest.mark.parametrize("start", [1.0, 0.05])
def test_cross_validated_noise_is_that_of_the_data(start):
    """From 200 rows a standard deviation has a standard error of 5 %; the bound is four of them."""
    model, _ = build([weight([0.0, 0.0], [1.0, 1.0])], scale=start, noise="cross_validate", seed=1)
    model.update = "exact"
    model.fit(*linear_data(), verbose=0)
    assert_allclose(model.likelihood.scale.numpy(), 0.3, rtol=0.2)
    scales, scores = zip(*model.noise_scores, strict=True)
    assert scales[0] == pytest.approx(start, rel=1e-6)
    best = scales[np.argmax(scores)]
    assert abs(np.log2(best / model.likelihood.scale.numpy())) <= 0.25 + 1e-6  # half a step


def test_cross_validation_puts_the_parameters_back():
    model, layers = build(random_network(**SMALL), noise="cross_validate")
    before, (x, y) = values(layers), random_data()
    arrays = [np.float32(part) for part in (x, y)]
    scale, table = noise.cross_validate(model, arrays[:1], arrays[1], 2, 10, True)
    for first, second in zip(before, values(layers), strict=True):
        assert_array_equal(first, second)
    assert_allclose(model.likelihood.scale.numpy(), 0.3, rtol=1e-6)
    assert scale > 0.0 and len(table) >= 3
    assert int(model.counters.epochs.numpy()) == int(model.counters.steps.numpy()) == 0


@pytest.mark.slow
def test_cross_validated_fit_is_a_fit_with_that_scale_and_happens_once():
    options = {"epochs": 2, "batch_size": 10, "verbose": 0}
    model, layers = build(random_network(**SMALL), noise="cross_validate", seed=5)
    model.fit(*random_data(), **options)
    scale, table = float(model.likelihood.scale.numpy()), model.noise_scores
    other, other_layers = build(random_network(**SMALL), scale=scale, seed=5)
    other.fit(*random_data(), **options)
    for first, second in zip(values(layers), values(other_layers), strict=True):
        assert_allclose(first, second, rtol=1e-5, atol=1e-6)
    model.fit(*random_data(seed=9), **options)
    assert float(model.likelihood.scale.numpy()) == scale and model.noise_scores is table


@pytest.mark.slow
def test_cross_validation_with_missing_targets():
    """A fold without observations has no effect."""
    x, y = linear_data(60)
    y[10:] = np.nan
    for seed in range(3):
        model, _ = build([weight([0, 0], [1, 1])], scale=0.5, noise="cross_validate", seed=seed)
        model.fit(x, y, verbose=0)
        assert np.isfinite(model.likelihood.scale.numpy())
    x, y = x[:10], np.where(np.arange(10)[:, np.newaxis] < 4, y[:10], np.nan)
    model, _ = build([weight([0, 0], [1, 1])], scale=0.5, noise="cross_validate", seed=0)
    model.fit(x, y, verbose=0)
    assert np.isfinite(model.likelihood.scale.numpy())


@pytest.mark.parametrize("start", [1e-4, 0.01, 0.05, 0.3, 0.31, 1.0, 5.0, 20.0])
@pytest.mark.parametrize("best", [0.02, 0.3, 1.7])
def test_search_finds_the_maximum_of_a_concave_score(best, start):
    """The score is the Gaussian log-likelihood of a residual variance best^2, which is skewed."""
    scale, table = noise.search_scale(lambda s, _: -np.log(s) - 0.5 * best**2 / s**2, start)
    assert_allclose(scale, best, rtol=0.05)
    assert table[0][0] == pytest.approx(start)


def test_search_is_exact_for_a_parabola_and_survives_nan():
    scale, _ = noise.search_scale(lambda s, _: -(np.log(s / 0.37) ** 2), 1.0)
    assert_allclose(scale, 0.37, rtol=1e-9)
    scale, _ = noise.search_scale(lambda s, _: np.nan if s < 0.2 else -(np.log(s / 0.4) ** 2), 1.0)
    assert_allclose(scale, 0.4, rtol=0.05)
    with pytest.raises(ValueError, match="no noise scale with a finite"):
        noise.search_scale(lambda s, _: np.nan, 1.0)


# Derivatives -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tanh", "exact relu"])
@pytest.mark.parametrize("input_stddev", [None, 0.5])
@pytest.mark.slow
def test_input_gradient_is_that_of_the_predicted_mean(float64, input_stddev, name):
    x, y = random_data()
    x, y = 3.0 + 10.0 * x, 100.0 * y
    network = random_network(widths=(3, 6, 2), names=(name,))
    model, _ = build(network, standardize=True, input_stddev=input_stddev)
    model.fit(x, y, verbose=0)
    gradient = model.input_gradient(x)
    assert gradient.shape == (23, 2, 3)
    assert_allclose(gradient, model.input_gradient(x, batch_size=5), rtol=1e-12)
    step = 1e-4
    for i in range(3):
        shift = step * np.eye(3)[i]
        ends = [model.predict(x + sign * shift)["mean"] for sign in (1.0, -1.0)]
        assert_allclose(gradient[:, :, i], (ends[0] - ends[1]) / (2 * step), rtol=1e-6, atol=1e-7)
