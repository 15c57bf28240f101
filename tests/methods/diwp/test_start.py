"""Fitted starts, compared with another fit, SciPy and dense formulas."""

import diwp_models
import keras
import numpy as np
import pytest
import tensorflow as tf
from exhaustive import sample_of
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from tfp_fnspace import diwp, kernels, likelihoods
from tfp_fnspace.methods.diwp import model as module
from tfp_fnspace.methods.diwp.start import fitted_start
from tfp_fnspace.model import inducing
from tfp_fnspace.processes import GaussianProcess, ard_squared_exponential

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(40, 2))
Y = np.stack([np.sin(2.0 * X[:, 0]) + X[:, 1], np.cos(X[:, 0])], axis=1)
Y += [0.1, 0.3] * RANDOM.normal(size=Y.shape)
OPTIONS = {"depth": 0, "kernel": "squared_exponential", "constant": False, "standardize": False}
OPTIONS.update(dtype="float64", seed=0, fit="marginal_likelihood", rows="greedy")


FITTED = diwp.Start(fit="marginal_likelihood")


def noise(scale=0.3, **options):
    return likelihoods.Gaussian(scale=scale, trainable=True, dtype="float64", **options)


def started(y=Y, x=X, likelihood=None, **options):
    """Returns a model before its first step, and its objective there, per row."""
    model = diwp_models.make_model(
        **{**OPTIONS, "hidden": "none", "likelihood": likelihood or noise(), **options}
    )
    model.adapt(x, y)
    x, y = x.astype(model.variable_dtype), y.astype(model.variable_dtype)
    model.prepare([x], y, [])
    seed = tf.constant([0, 0])
    _, parts = model.objective([tf.constant(x)], tf.constant(y), float(len(x)), seed)
    return model, {name: float(value) for name, value in parts.items()}


def composed_kernel(model, x):
    """Computes the model's kernel matrix in NumPy: squared exponentials, one after the other."""
    features, *inner = model.network.layers[:-1]
    z = x * features.scale.numpy() + features.bias.numpy()
    k = z @ z.T / x.shape[1]
    for layer in inner:
        if isinstance(layer, diwp.KernelOfGram):
            norms = np.diag(k)
            k = np.exp(-0.5 * (norms[:, np.newaxis] + norms - 2.0 * k))
            if layer.learn_amplitude:
                k = k * np.exp(2.0 * layer.log_amplitude.numpy())
    return k


def log_density(y, k, scale):
    """Computes SciPy's log density, summed over outputs."""
    scales = np.broadcast_to(scale, y.shape[1:])
    covariances = [k + s**2 * np.eye(len(y)) for s in scales]
    distributions = [stats.multivariate_normal(np.zeros(len(y)), c) for c in covariances]
    return sum(
        distribution.logpdf(column) for distribution, column in zip(distributions, y.T, strict=True)
    )


@pytest.mark.slow
def test_with_one_kernel_it_is_the_gaussian_process_of_another_fit():
    y = Y[:, :1]
    process = GaussianProcess(ard_squared_exponential(2), dtype="float64")
    expected = process.fit(X, y).log_marginal_likelihood
    model, parts = started(y, inducing_points=40)
    assert_allclose(40 * parts["elbo"], expected, atol=0.02)
    assert_allclose(model.likelihood.scale, process.noise_scale, rtol=0.02)
    x = RANDOM.normal(size=(7, 2))
    k, cross = process.kernel().matrix(X, X), process.kernel().matrix(X, x).numpy()
    mean = cross.T @ np.linalg.solve(k + float(process.noise_scale) ** 2 * np.eye(40), y)
    assert_allclose(model.predict(x)["mean"], mean, atol=0.02)


@pytest.mark.slow
def test_all_points_have_the_log_evidence():
    """Two outputs have their own noise; SciPy gives the log density."""
    model, parts = started(inducing_points=40, depth=2, likelihood=noise([0.3, 0.3]))
    scale = model.likelihood.scale.numpy()
    assert 0.05 < scale[0] < 0.2 < scale[1] < 0.45
    expected = log_density(Y, composed_kernel(model, X), scale)
    assert_allclose(40 * parts["elbo"], expected, atol=1e-2)
    assert 40 * parts["elbo"] < expected + 1e-6


@pytest.mark.slow
def test_few_points_have_the_collapsed_bound(monkeypatch):
    """Titsias's bound by dense formulas: v and A belong to the best posterior of all rows."""
    monkeypatch.setattr(module, "MAX_ROWS", 20)
    model, parts = started(inducing_points=6, depth=1)
    assert model.rows_to_prepare == 20
    points = model.inducing_inputs_in_user_units()
    assert all(np.min(np.max(np.abs(X - z), axis=1)) < 1e-9 for z in points)
    assert_allclose(40 * parts["elbo"], dense_bound(model, points), atol=0.02)


def dense_bound(model, points):
    """Computes Titsias's bound of all rows with two outputs."""
    size = len(points)
    k = composed_kernel(model, np.concatenate([points, X]))
    zz, zx, xx = k[:size, :size], k[:size, size:], k[size:, size:]
    q = zx.T @ np.linalg.solve(zz, zx)
    scale = float(model.likelihood.scale)
    return log_density(Y, q, scale) - 2 * np.trace(xx - q) / (2.0 * scale**2)


@pytest.mark.slow
def test_points_that_move_have_a_larger_bound():
    """Finds a maximum in the points, the scales of the inputs and the noise together."""
    _, before = started(inducing_points=6, depth=1)
    model, parts = started(inducing_points=6, depth=1, fit="lower_bound")
    points = model.inducing_inputs_in_user_units()
    assert any(np.min(np.max(np.abs(X - z), axis=1)) > 1e-3 for z in points)
    bound = dense_bound(model, points)
    assert_allclose(40 * parts["elbo"], bound, atol=0.02)
    assert bound > 40 * before["elbo"] + 1.0
    for step in 0.02 * np.concatenate([np.eye(12), -np.eye(12)]):
        assert dense_bound(model, points + step.reshape(6, 2)) < bound + 2e-3
    features, likelihood = model.network.layers[0], model.likelihood
    scale, noise_scale = features.scale.numpy(), likelihood.scale.numpy()
    for factor in (0.98, 1.02):
        likelihood.set_scale(factor * noise_scale)
        assert dense_bound(model, points) < bound + 2e-3
        likelihood.set_scale(noise_scale)
        for i in range(2):
            features.scale.assign(np.where(np.arange(2) == i, factor, 1.0) * scale)
            assert dense_bound(model, points) < bound + 2e-3
        features.scale.assign(scale)


@pytest.mark.exhaustive
def test_points_move_where_rows_have_copies_and_each_output_its_noise():
    rows = tf.constant(np.repeat(X[:20], 2, axis=0)), tf.constant(np.repeat(Y[:20], 2, axis=0))
    stack = network(diwp.KernelOfGram("relu", dtype="float64"))
    bounds = [
        fitted_start(stack, noise([0.3, 0.3]), *rows, 40, 8, True, move=move).bound
        for move in (False, True)
    ]
    assert bounds[1] > bounds[0] + 0.1


@pytest.mark.slow
@pytest.mark.parametrize("before", sample_of([True, False], [True]))
def test_layers_that_are_frozen_stay(before):
    """Layers are frozen before they are built, when their weights do not know of it, or after."""
    features = diwp.FeaturesToGram(8, dtype="float64", trainable=not before)
    layers = [
        keras.Input([2], dtype="float64"),
        features,
        diwp.KernelOfGram("relu", dtype="float64"),
    ]
    stack = keras.Sequential([*layers, diwp.GlobalInducingGP(2, dtype="float64")])
    features.trainable = False
    start = fitted_start(stack, noise(), tf.constant(X), tf.constant(Y), 40, 8, True, move=True)
    assert all(np.any(np.all(z == X, axis=1)) for z in start.inducing_inputs)
    assert_array_equal(start.weights[0], features.scale)


@pytest.mark.parametrize(
    ("stack", "depth"),
    [("features", 2), pytest.param("omega", 0, marks=pytest.mark.exhaustive)],
)
@pytest.mark.slow
def test_the_process_starts_where_its_limit_does(stack, depth, monkeypatch):
    """With a large delta the bound is that of the process without random matrices."""
    found = []

    def record(*args, **options):
        found.append(fitted_start(*args, **options))
        return found[0]

    monkeypatch.setattr(module, "fitted_start", record)
    options = {"hidden": "inverse_wishart", "stack": stack, "num_samples": 50, "delta": 1e7}
    _, process = started(inducing_points=10, depth=depth, **options)
    monkeypatch.setattr(module, "fitted_start", lambda *args, **options: found[0])
    _, limit = started(inducing_points=10, depth=depth)
    assert_allclose(process["elbo"], limit["elbo"], atol=0.01)
    assert_allclose(40 * limit["elbo"], found[0].bound, atol=0.02)


@pytest.mark.exhaustive
def test_a_hundred_steps_from_there_are_ahead_of_as_many_from_rows():
    elbos = {}
    for init in (None, "marginal_likelihood"):
        model = diwp_models.make_model(
            inducing_points=15, hidden="none", seed=0, fit=init, rows="greedy"
        )
        elbos[init] = model.fit(X, Y, batch_size=40, epochs=100, verbose=0).history["elbo"]
    assert elbos["marginal_likelihood"][0] > elbos[None][-1]
    assert elbos["marginal_likelihood"][-1] > elbos["marginal_likelihood"][0]


@pytest.mark.exhaustive
def test_few_points_do_not_start_at_what_only_all_rows_prefer():
    """On a lattice the likeliest kernel of all rows is too rough for ten, worse than from rows."""
    random = np.random.default_rng(1)
    x = random.integers(0, 4, size=(150, 4)).astype(float)
    y = np.sin(2.0 * x[:, :1] + x[:, 1:2]) + 0.5 * x[:, 2:3] * (x[:, 3:] > 1)
    y += 0.03 * random.normal(size=y.shape)
    elbos = {}
    for init, epochs in ((None, 300), ("marginal_likelihood", 1)):
        options = {"inducing_points": 10, "seed": 0, "dtype": "float64", "fit": init}
        model = diwp_models.make_model(**options, hidden="none", rows="greedy")
        elbos[init] = model.fit(x, y, batch_size=150, epochs=epochs, verbose=0).history["elbo"]
    assert elbos["marginal_likelihood"][0] > elbos[None][-1]


@pytest.mark.exhaustive
def test_layers_add_less_than_little_noise():
    """Each layer adds its jitter: 1e-9 would cost 0.022 a row here, 1e-11 costs 0.0004."""
    x = np.random.default_rng(0).uniform(-2.0, 2.0, (80, 3))
    y = np.sign(x[:, :1]) * np.abs(np.sin(2.0 * x[:, 1:2]))
    options = {"likelihood": likelihoods.Gaussian(0.01, dtype="float64"), "kernel": "relu"}
    options.update(depth=2, inducing_points=70)
    _, limit = started(y, x, **options)
    _, parts = started(y, x, hidden="inverse_wishart", delta=1e8, learn_delta=False, **options)
    assert abs(parts["elbo"] - limit["elbo"]) < 1e-3


@pytest.mark.slow
def test_copies_of_rows_are_seen_once():
    x, y = np.repeat(X[:20], 2, axis=0), np.repeat(Y[:20], 2, axis=0)
    model, parts = started(y, x, inducing_points=30, dtype="float32", likelihood=None)
    assert len(np.unique(model.inducing_inputs_in_user_units(), axis=0)) == 20
    assert np.isfinite(parts["elbo"])
    rows, num_distinct = inducing.rows_of_a_fit(x, y, 30, model.counters.seeds)
    assert num_distinct == 20 == len(np.unique(x[rows[:20]], axis=0))
    assert_array_equal(np.sort(rows), np.arange(40))


@pytest.mark.slow
def test_measurements_that_are_repeated_tell_the_noise():
    """Six inputs, measured thirty times each, tell the noise to a twentieth; allows 5 errors."""
    random = np.random.default_rng(1)
    x = np.repeat(np.linspace(-2.0, 2.0, 6), 30)[:, np.newaxis]
    y = np.sin(x) + 0.5 * random.normal(size=x.shape)
    model, _ = started(y, x, inducing_points=6, rows="random")
    assert_allclose(np.sort(model.inducing_inputs_in_user_units(), axis=0), x[::30], atol=1e-9)
    assert_allclose(model.likelihood.scale, 0.5, rtol=5 * 0.053)


@pytest.mark.slow
@pytest.mark.parametrize("case", sample_of(["constant", "exact"], ["exact"]))
def test_without_noise_it_starts_above_its_least(case):
    y = np.full([40, 1], 3.0) if case == "constant" else X[:, :1] ** 2
    model, parts = started(
        y, inducing_points=15, standardize=None, dtype="float32", likelihood=None
    )
    least = model.likelihood.min_scale
    assert least < float(model.likelihood.scale) < 100 * least
    assert np.isfinite(parts["elbo"])


@pytest.mark.slow
def test_what_is_frozen_stays():
    features = diwp.FeaturesToGram(8, dtype="float64")
    kernel = diwp.KernelOfGram("relu", learn_amplitude=True, dtype="float64")
    layers = [keras.Input([2], dtype="float64"), features, kernel]
    stack = keras.Sequential([*layers, diwp.GlobalInducingGP(2, dtype="float64")])
    features.scale.assign([0.7, 1.2])
    kernel.log_amplitude.assign(1.0)
    features.trainable = kernel.trainable = False
    fixed = likelihoods.Gaussian(scale=0.2, dtype="float64")
    for likelihood in (fixed, noise()):
        rows = tf.constant(X), tf.constant(Y)
        start = fitted_start(stack, likelihood, *rows, 40, 8, True)
        assert_allclose(start.weights[0], [0.7, 1.2])
        assert_allclose(start.weights[-1], 1.0)
        assert start.bound < start.log_marginal_likelihood
    assert abs(start.noise_scale - 0.3) > 0.05  # the second one is learned


@pytest.mark.slow
def test_a_dataset_gives_its_first_batches():
    options = {"inducing_points": 6, "hidden": "none", "learn_scale": False}
    model = diwp_models.make_model(**{**OPTIONS, "likelihood": noise(), **options})
    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(8)
    history = model.fit(data, epochs=2, verbose=0).history
    assert model.rows_to_prepare == 500 and np.all(np.isfinite(history["loss"]))
    assert abs(float(model.likelihood.scale) - 0.3) > 0.1


@pytest.mark.parametrize("precision", ["full", "diagonal"])
@pytest.mark.parametrize("shared", [True, False])
def test_what_a_posterior_is_assigned(precision, shared):
    layer = diwp.GlobalInducingGP(2, precision=precision, shared_precision=shared, dtype="float64")
    layer.build([(1, 4, 4), (1, 4, None), (1, None)])
    v = RANDOM.normal(size=(2, 4))
    t = np.tril(RANDOM.normal(size=(2, 4, 4)), -1) + np.eye(4) * [[0.5], [2.0]][0]
    layer.posterior.assign(v, t)
    a = t @ np.swapaxes(t, -1, -2)
    if shared:
        a = np.mean(a, axis=0, keepdims=True)
    if precision == "diagonal":
        a = np.stack([np.diag(1.0 / np.diag(np.linalg.inv(each))) for each in a])
    factor = layer.posterior.noise_factor.numpy()
    assert_allclose(factor @ np.swapaxes(factor, -1, -2), a, rtol=1e-10, atol=1e-12)
    assert_array_equal(layer.posterior.v, v)


def network(*layers):
    first = [keras.Input([2], dtype="float64"), diwp.FeaturesToGram(8, dtype="float64")]
    return keras.Sequential([*first, *layers, diwp.GlobalInducingGP(2, dtype="float64")])


@pytest.mark.exhaustive
def test_networks_of_ones_own_start_there_too():
    kernel = diwp.KernelOfGram(kernels.Matern(1.5), learn_amplitude=True, dtype="float64")
    model = diwp.DIWPModel(network(kernel), likelihood=noise(), start=FITTED, dtype="float64")
    history = model.fit(X, Y, epochs=2, verbose=0).history
    assert float(kernel.log_amplitude) != 0.0 and np.all(np.isfinite(history["loss"]))


def test_the_default_rates_are_a_tenth_from_there():
    rates = [
        diwp.DIWPModel(start=diwp.Start(fit=fit)).default_optimizer(10).learning_rate
        for fit in (None, "marginal_likelihood", "lower_bound")
    ]
    assert_allclose(rates, [1e-2, 1e-3, 1e-3])


@pytest.mark.parametrize("init", ["marginal_likelihood", "lower_bound"])
def test_config_keeps_the_start(init):
    model = diwp.DIWPModel(start=diwp.Start("greedy", init))
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(model))
    assert copy.get_config() == model.get_config() and copy.start == model.start


class Twice(diwp.KernelOfGram):
    """A user's layer with an unknown mean."""


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"fit": "zeros"}, ValueError, "`fit` must be .*Received: fit='zeros'"),
        (
            {"likelihood": likelihoods.StudentT(df=4.0)},
            ValueError,
            "needs Gaussian noise. Received: .*StudentT",
        ),
        ({"hidden": "gaussian_process"}, ValueError, "Received: hidden='gaussian_process'"),
        (
            {"fit": "lower_bound", "hidden": "gaussian_process"},
            ValueError,
            r'`Start\(fit="lower_bound"\)` needs random matrices',
        ),
        ({"likelihood": "gaussian"}, TypeError, "`likelihood` must be .*Received: .*gaussian"),
        (
            {"network": 3},
            TypeError,
            "`network` must be .*DeepKernel or a Keras.*Received: network=3",
        ),
    ],
)
def test_bad_arguments_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        diwp_models.make_model(**{"fit": "marginal_likelihood", **options})


@pytest.mark.parametrize(
    "layer",
    [Twice("relu", dtype="float64"), diwp.GaussianProcessGram(2, dtype="float64")],
    ids=["own", "sampled features"],
)
def test_layers_that_have_no_such_limit_are_refused(layer):
    with pytest.raises(ValueError, match=f"of layers of `diwp`.*with {type(layer).__name__}"):
        diwp.DIWPModel(network(layer), start=FITTED)
