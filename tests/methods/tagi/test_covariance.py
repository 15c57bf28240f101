"""Full covariances: exact regression, explicit conditioning, draws, figure 8; inverse problems."""

import keras
import numpy as np
import pytest
import tagi as reference
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

from tfp_fnspace import likelihoods, tagi

CLOSE = {"rtol": 1e-8, "atol": 1e-10}


def data(num_rows=7, num_inputs=2, num_outputs=2, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(num_rows, num_inputs)), rng.normal(size=(num_rows, num_outputs))


def build(widths, activations=(), use_bias=True, scale=0.3, seed=0, **options):
    """Returns a model of dense layers in sequence, and these layers."""
    tensor = inputs = keras.Input((widths[0],))
    layers = []
    for i, units in enumerate(widths[1:]):
        layers.append(tagi.Dense(units, use_bias=use_bias))
        tensor = layers[-1](tensor)
        if i < len(activations):
            tensor = tagi.Activation(activations[i])(tensor)
    options = {"standardize": False, "covariance": "full", **options}
    model = tagi.TAGIModel(
        inputs, tensor, likelihood=likelihoods.Gaussian(scale), seed=seed, **options
    )
    model.compile(jit_compile=False)
    return model, layers


# Regression --------------------------------------------------------------------------------------


def test_one_layer_is_exact_bayesian_regression(float64):
    model, (layer,) = build([3, 2], update="exact", covariance="full_parameters")
    prior = [
        np.concatenate([pair[i].numpy().reshape(-1, 2) for pair in layer.parameters])
        for i in (0, 1)
    ]
    x, y = data(12, 3)
    model.fit(x, y, batch_size=5, shuffle=False, verbose=0)
    rows = np.c_[x, np.ones(12)]
    found = model.chain._parameter_covariance(layer).numpy()
    for j in range(2):
        mean, covariance = reference.linear_regression_posterior(
            rows, y[:, j], 0.09, prior[0][:, j], prior[1][:, j]
        )
        assert_allclose(layer.kernel_mean.numpy()[:, j], mean[:3], **CLOSE)
        assert_allclose(layer.bias_mean.numpy()[j], mean[3], **CLOSE)
        assert_allclose(found[:, j, :, j], covariance, **CLOSE)
        assert_allclose(layer.bias_variance.numpy()[j], covariance[3, 3], **CLOSE)
        expected = np.einsum("ni,ij,nj->n", rows, covariance, rows)
        assert_allclose(model.predict(x)["epistemic_stddev"][:, j] ** 2, expected, **CLOSE)
    assert_allclose(found[:, 0, :, 1], 0.0, atol=1e-12)


def test_draws_of_joint_parameters_have_their_spread(float64, assert_variance_close):
    """A linear model has the moments of its draws; false alarms 1e-6."""
    model, _ = build([3, 2], update="exact", covariance="full_parameters")
    x, y = data(12, 3)
    model.fit(x, y, shuffle=False, verbose=0)
    draws = model.sample_functions(x, 20000, seed=1)
    assert_variance_close(draws, model.predict(x)["epistemic_stddev"] ** 2 + 1e-6)


# Explicit covariances ----------------------------------------------------------------------------


def products(mean, covariance, kernel, parameters):
    """Applies equations 3 to 6 and 10 entry by entry to `sum_i a_i w_ij`, a and w independent.

    `parameters[i, j, l, k]` is cov(w_ij, w_lk). The bias is a row with a = 1 and no variance of a.
    """
    rows, units = kernel.shape
    out = np.zeros((units, units))
    for j in range(units):
        for k in range(units):
            for i in range(rows):
                for m in range(rows):
                    c, s = parameters[i, j, m, k], covariance[i, m]
                    out[j, k] += c * s + c * mean[i] * mean[m] + s * kernel[i, j] * kernel[m, k]
    return mean @ kernel, out


def explicit_row(blocks, x, variance, y, noise_variance):
    """Returns new moments of all parameters after one row, by matrices of covariances.

    `blocks` are `(kernel with the bias as last row, covariance [I, J, I, J], name)`.
    """
    variance = np.broadcast_to(variance, x.shape)
    mean, covariance = np.append(x, 1.0), np.diag(np.append(variance, 0.0))
    seen = []
    for kernel, parameters, name in blocks:
        z, sz = products(mean, covariance, kernel, parameters)
        seen.append((mean, covariance, z, sz))
        function, derivative = reference.LINEARIZED[name]
        slope = np.append(derivative(z), 0.0)
        mean = np.append(function(z), 1.0)
        covariance = slope[:, None] * np.pad(sz, [(0, 1), (0, 1)]) * slope
    gain = sz @ np.linalg.inv(sz + noise_variance * np.eye(len(z)))  # equation 14
    new, new_covariance = z + gain @ (y - z), sz - gain @ sz
    results = []
    for (kernel, parameters, _), (a, _, _, sz) in zip(blocks[::-1], seen[::-1], strict=True):
        z = a @ kernel
        change = np.linalg.solve(sz, new - z)
        inner = np.linalg.solve(sz, np.linalg.solve(sz, new_covariance - sz).T)
        cross = np.einsum("ijlk,l->ijk", parameters, a).reshape(kernel.size, -1)  # cov(w, z)
        full = parameters.reshape(kernel.size, kernel.size) + cross @ inner @ cross.T
        results.insert(0, (kernel + (cross @ change).reshape(kernel.shape), full))
        place = len(results)
        if place == len(blocks):
            break
        _, _, below, s_below = seen[-place - 1]
        slope = reference.LINEARIZED[blocks[-place - 1][2]][1](below)
        cross = s_below * slope @ kernel[:-1]  # cov(z below, z)
        new, new_covariance = below + cross @ change, s_below + cross @ inner @ cross.T
    return results


@pytest.mark.parametrize("rule", ["full", "full_parameters"])
def test_rows_are_learnt_by_the_equations_with_matrices(float64, rule):
    model, layers = build(
        [2, 3, 3, 2], ["tanh", "relu"], update="exact", covariance=rule, input_stddev=0.4
    )
    blocks = []
    for layer, name in zip(layers, ["tanh", "relu", "linear"], strict=True):
        mean, variance = (
            np.concatenate([p[i].numpy().reshape(-1, layer.units) for p in layer.parameters])
            for i in (0, 1)
        )
        covariance = np.diag(variance.ravel()).reshape(mean.shape * 2)
        blocks.append((mean, covariance, name))
    x, y = data(3)
    model.fit(x, y, shuffle=False, verbose=0)
    for row, target in zip(x, y, strict=True):
        learnt = explicit_row(blocks, row, 0.16, target, 0.09)
        for i, (kernel, full) in enumerate(learnt):
            if rule == "full":
                full = np.diag(np.diag(full))
            blocks[i] = kernel, full.reshape(kernel.shape * 2), blocks[i][2]
    for layer, (kernel, covariance, _) in zip(layers, blocks, strict=True):
        size = kernel.size
        variance = np.diag(covariance.reshape(size, size)).reshape(kernel.shape)
        assert_allclose(layer.kernel_mean.numpy(), kernel[:-1], **CLOSE)
        assert_allclose(layer.bias_mean.numpy(), kernel[-1], **CLOSE)
        assert_allclose(layer.kernel_variance.numpy(), variance[:-1], **CLOSE)
        assert_allclose(layer.bias_variance.numpy(), variance[-1], **CLOSE)
        if rule == "full_parameters":
            assert_allclose(model.chain._parameter_covariance(layer), covariance, **CLOSE)


def test_moments_of_a_linear_network_are_those_of_its_draws(
    assert_mean_close, assert_variance_close
):
    """Uncertain inputs correlate the units, which then matters. False alarms are 1e-6 each."""
    model, layers = build([2, 4, 1], input_stddev=0.8)
    independent, others = build([2, 4, 1], input_stddev=0.8, covariance="diagonal")
    for layer in layers + others:  # well known: most spread is from the inputs
        layer.kernel_variance.assign(0.05 * layer.kernel_variance)
    x = data(5)[0]
    outputs, draws = model.predict(x), model.sample_functions(x, 40000, seed=1)
    assert_mean_close(draws, outputs["mean"])
    bound = assert_variance_close(draws, outputs["epistemic_stddev"] ** 2)
    other = independent.predict(x)["epistemic_stddev"] ** 2
    assert np.max(np.abs(other - outputs["epistemic_stddev"] ** 2) / bound) > 5.0


def test_known_inputs_and_one_hidden_layer_need_no_covariances(float64):
    """The units of the layer are independent then: the two rules agree, batch by batch."""
    x, y = data(9, 2, 1)
    runs = []
    for rule in ("full", "diagonal"):
        model, layers = build([2, 5, 1], ["relu"], covariance=rule)
        model.fit(x, y, batch_size=4, epochs=2, verbose=0)
        runs.append([v.numpy() for layer in layers for v in layer.weights])
    for ours, theirs in zip(*runs, strict=True):
        assert_allclose(ours, theirs, **CLOSE)


def test_figure_8():
    """x^3 is a row of ReLUs with known weights; x has a standard deviation of 0.2."""
    knots = np.linspace(-1.0, 1.0, 81)
    slopes = np.diff(knots**3) / np.diff(knots)
    grid = 0.5 * (knots[1:] + knots[:-1])[::4, np.newaxis]
    spread = {}
    for rule in ("full", "diagonal"):
        model, (first, last) = build([1, 80, 1], ["relu"], input_stddev=0.2, covariance=rule)
        first.kernel_mean.assign(np.ones((1, 80)))
        first.bias_mean.assign(-knots[:-1])
        last.kernel_mean.assign(np.diff(slopes, prepend=0.0)[:, np.newaxis])
        last.bias_mean.assign([-1.0])
        for layer in (first, last):
            layer.kernel_variance.assign(tf.zeros_like(layer.kernel_variance))
            layer.bias_variance.assign(tf.zeros_like(layer.bias_variance))
        outputs = model.predict(grid)
        assert_allclose(outputs["mean"], grid**3, atol=2e-3)
        spread[rule] = outputs["epistemic_stddev"]
    reference_spread = 0.6 * grid**2
    assert_allclose(spread["full"], reference_spread, atol=2e-3)
    assert np.abs(spread["diagonal"] - reference_spread).max() > 0.3


# Inverse problems --------------------------------------------------------------------------------


def known_weights(layers):
    for layer in layers:
        layer.kernel_variance.assign(tf.zeros_like(layer.kernel_variance))
        layer.bias_variance.assign(tf.zeros_like(layer.bias_variance))


def exact_inputs(layers, mean, variance, y, noise_variance):
    """Returns the posterior of a linear network's inputs by textbook formulas; NaN is missing."""
    matrix, offset = np.eye(len(mean)), np.zeros(len(mean))
    for layer in layers:
        matrix = matrix @ layer.kernel_mean.numpy()
        offset = offset @ layer.kernel_mean.numpy() + layer.bias_mean.numpy()
    seen = ~np.isnan(y)
    design, residual = matrix[:, seen].T, (y - offset)[seen]
    precision = np.diag(1.0 / variance) + design.T @ design / noise_variance
    covariance = np.linalg.inv(precision)
    information = mean / variance + design.T @ residual / noise_variance
    return covariance @ information, np.diag(covariance)


def test_inputs_of_a_linear_network(float64):
    model, layers = build([3, 4, 2])
    known_weights(layers)
    x, y = data(5, 3)
    y[2, 0] = np.nan
    variance = np.random.default_rng(1).uniform(0.1, 2.0, size=x.shape)
    found = model.infer_inputs(x, variance, y)
    for i in range(5):
        mean, spread = exact_inputs(layers, x[i], variance[i], y[i], 0.09)
        assert_allclose(found.mean[i], mean, **CLOSE)
        assert_allclose(found.variance[i], spread, **CLOSE)


def test_inputs_are_in_the_users_units(float64):
    """With one output, independent units lose nothing in a network of one layer."""
    model, layers = build([3, 1], covariance="diagonal", standardize=True)
    known_weights(layers)
    x, y = data(20, 3, 1)
    shift, unit = [10.0, 0.0, -3.0], [5.0, 1.0, 0.1]
    x, y = shift + unit * x, 7.0 + 30.0 * y
    model.adapt(x, y)
    variance = np.square(unit) * np.array([0.5, 1.0, 2.0]) * np.ones_like(x)
    found = model.infer_inputs(x, variance, y)
    scales = x.std(axis=0)
    for i in range(20):
        mean, spread = exact_inputs(
            layers,
            (x[i] - x.mean(axis=0)) / scales,
            variance[i] / scales**2,
            (y[i] - y.mean()) / y.std(),
            0.09,
        )
        assert_allclose(found.mean[i], x.mean(axis=0) + scales * mean, rtol=1e-6)
        assert_allclose(found.variance[i], scales**2 * spread, rtol=1e-6)


@pytest.mark.parametrize("rule", ["full", "diagonal"])
def test_without_targets_or_with_known_inputs_nothing_changes(rule):
    model, _ = build([2, 5, 2], ["relu"], covariance=rule)
    x, y = data()
    variance = np.ones_like(x)
    found = model.infer_inputs(x, variance, np.full_like(y, np.nan))
    assert_allclose(found.mean, x, rtol=1e-6)
    assert_allclose(found.variance, variance, rtol=1e-6)
    found = model.infer_inputs(x, 0.0 * variance, y)
    assert_allclose(found.mean, x, rtol=1e-6)


def test_bad_priors_of_inputs():
    model, _ = build([2, 2])
    x, y = data()
    with pytest.raises(ValueError, match="`x_variance` must have the shape of `x_mean` and no neg"):
        model.infer_inputs(x, -np.ones_like(x), y)


# The model ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_saved_and_served(tmp_path):
    options = {"update": "exact", "covariance": "full_parameters", "standardize": True}
    model, _ = build([2, 4, 2], ["relu"], **options)
    x, y = data(20)
    y[3, 1] = np.nan
    model.fit(x, y, epochs=2, verbose=0)
    outputs = model.predict(x)
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    for key, value in loaded.predict(x).items():
        assert_array_equal(value, outputs[key])
    for each in (model, loaded):
        each.fit(x, y, verbose=0)
    assert_array_equal(model.predict(x)["mean"], loaded.predict(x)["mean"])
    model.export(tmp_path / "served", num_samples=3)
    served = tf.saved_model.load(str(tmp_path / "served"))
    assert_allclose(
        served.serve(x.astype("float32"))["mean"], model.predict(x)["mean"], rtol=1e-5, atol=1e-6
    )
    assert served.sample(x.astype("float32"), tf.constant([1, 2])).shape == (3, 20, 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"covariance": "none"}, "`covariance` must be one of .*Received: covariance='none'"),
        ({"covariance": "full_parameters"}, "update='exact'. Received: update='capped'"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        build([2, 2], **options)


def test_covariances_that_cannot_fit_are_refused_before_they_are_made():
    rule = "covariances of all parameters.*narrower layers.*Received: .* GiB are free"
    with pytest.raises(MemoryError, match=rule):  # 10^12 entries
        build([1000, 1000], update="exact", covariance="full_parameters")


def test_only_rows_of_dense_layers():
    inputs = keras.Input((2,))
    hidden = tagi.Dense(2)(inputs)
    options = {"covariance": "full", "likelihood": likelihoods.Gaussian(0.3)}
    with pytest.raises(ValueError, match="one after the other. Received: layer=<Add"):
        tagi.TAGIModel(inputs, tagi.Add()([hidden, tagi.Dense(2)(hidden)]), **options)
    options["likelihood"] = likelihoods.Gaussian(0.3, trainable=True)
    with pytest.raises(ValueError, match="a fixed scale. Received: covariance='full'"):
        tagi.TAGIModel(inputs, hidden, **options)
