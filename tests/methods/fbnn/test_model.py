"""`FBNNModel`: the parts of its objective, priors, measurement points, saving, bad input."""

import warnings

import batteries
import fbnn_models
import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from numpy.testing import assert_allclose, assert_array_equal

from tfp_fnspace import fbnn, layers, likelihoods, processes

tfpk = tfp.math.psd_kernels

GENERATOR = np.random.default_rng(0)
X = GENERATOR.uniform(-2.0, 2.0, size=(40, 2)).astype("float32")
Y = (np.sin(2.0 * X[:, :1]) + 0.1 * GENERATOR.normal(size=(40, 1))).astype("float32")


def network(units=8, num_inputs=2, num_outputs=1, **options):
    keras.utils.set_random_seed(0)
    hidden = layers.VariationalDense(units, activation="tanh", **options)
    last = layers.VariationalDense(num_outputs, **options)
    return keras.Sequential([keras.Input((num_inputs,)), hidden, last])


def gaussian_process(**options):
    return processes.GaussianProcess(tfpk.ExponentiatedQuadratic(1.0, 0.7), **options)


def make(prior=None, net=None, eager=False, **options):
    small = {"num_samples": 8, "num_eval_samples": 20, "seed": 0}
    net = network() if net is None else net
    model = fbnn_models.make_model(net, prior or gaussian_process(), **{**small, **options})
    model.compile(optimizer=keras.optimizers.Adam(0.01), run_eagerly=eager)
    return model


def fit(model, x=X, y=Y, epochs=1, batch_size=20, **options):
    return model.fit(x, y, epochs=epochs, batch_size=batch_size, verbose=0, **options)


# What is learnt ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_it_learns_and_reports_the_parts_of_its_objective():
    model = make(num_samples=20, measurement=fbnn.Box(3))
    before = model.evaluate(X, Y, verbose=0, return_dict=True) if model.is_ready else None
    assert before is None
    history = fit(model, epochs=60).history
    parts = {name: np.asarray(values) for name, values in history.items()}
    # Both batches of an epoch have lambda = 1/20.
    assert_allclose(parts["elbo"], parts["log_likelihood"] - parts["kl_estimate"] / 20.0, rtol=1e-4)
    assert_allclose(parts["loss"], -parts["elbo"], rtol=1e-4)
    assert parts["elbo"][-5:].mean() > parts["elbo"][:5].mean() + 0.5
    assert model.evaluate(X, Y, verbose=0, return_dict=True)["rmse"] < 0.9 * Y.std()


@pytest.mark.slow
def test_defaults_come_near_to_the_posterior_of_the_process():
    """NumPy has the posterior. The same steps of Adam with 1e-3 leave means 1.9 deviations away."""
    rng = np.random.default_rng(0)
    x, places = rng.uniform(-2.0, 2.0, size=(40, 1)), np.linspace(-1.8, 1.8, 30)[:, np.newaxis]
    y = np.sin(2.0 * x) + 0.2 * rng.normal(size=x.shape)

    def covariance(a, b):
        return np.exp(-0.5 * ((a - b.T) / 0.7) ** 2)

    weights = np.linalg.solve(covariance(x, x) + 0.04 * np.eye(40), covariance(x, places))
    stddev = np.sqrt(1.0 - np.sum(covariance(x, places) * weights, axis=0))
    model = fbnn.FBNNModel(
        network(30, num_inputs=1),
        gaussian_process(),
        likelihood=likelihoods.Gaussian(0.2),
        kl_weight="data",
        num_samples=50,
        standardize=False,
        seed=0,
    )
    model.compile()
    fit(model, x, y, epochs=1000, batch_size=40)
    found = model.predict(places)
    error = (found["mean"][:, 0] - weights.T @ y[:, 0]) / stddev
    assert np.sqrt(np.mean(error**2)) < 0.8
    assert 0.8 < np.median(found["epistemic_stddev"][:, 0] / stddev) < 1.25


@pytest.mark.parametrize("kl_weight, weight", [("batch", 1 / 20), ("data", 1 / 40), (0.3, 0.3)])
def test_weights_of_the_divergence(kl_weight, weight):
    model = make(kl_weight=kl_weight, kl_annealing_steps=4, eager=True)
    history = fit(model).history  # two steps, with a quarter and a half of the weight
    elbo, likelihood, kl = (history[name][0] for name in ("elbo", "log_likelihood", "kl_estimate"))
    assert_allclose(elbo, likelihood - weight * kl, rtol=1e-4)
    assert -history["loss"][0] > elbo  # the weight of the divergence is not full yet


@pytest.mark.slow
def test_the_divergence_is_monitored_at_every_so_many_steps():
    """Training does not depend on it, and its value stays until the next one is due."""
    every, third = (make(monitor_steps=steps) for steps in (1, 3))
    histories = [fit(model, epochs=5, batch_size=40).history for model in (every, third)]
    for one, other in zip(every.network.weights, third.network.weights, strict=True):
        assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    exact, kept = (np.array(history["kl_estimate"]) for history in histories)
    assert_allclose(kept, exact[[0, 0, 0, 3, 3]], rtol=1e-4)
    assert np.all(np.diff(exact) != 0.0)
    assert_allclose(histories[0]["log_likelihood"], histories[1]["log_likelihood"], rtol=1e-4)


@pytest.mark.slow
def test_gradient_of_the_objective_is_that_of_its_parts():
    """At lambda = 0 the divergence has no effect; the loss is the likelihood's alone."""
    with_kl, without = (make(kl_weight=weight, eager=True) for weight in (1.0, 0.0))
    fit(with_kl)
    fit(without)
    assert not np.allclose(with_kl.network.get_weights()[0], without.network.get_weights()[0])
    changed = make(kl_weight=0.0, prior=gaussian_process(mean=100.0), eager=True)
    fit(changed)
    for one, other in zip(
        without.network.get_weights(), changed.network.get_weights(), strict=True
    ):
        assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_the_prior_is_fitted_first_trained_or_left_alone():
    fixed, fitted, trained = gaussian_process(), gaussian_process(), gaussian_process()
    before = [value.copy() for value in fixed.get_weights()]
    fit(make(fixed, eager=True))
    assert_array_equal(np.concatenate([v.ravel() for v in fixed.get_weights()]), flat(before))
    fit(make(fitted, fit_prior=True, eager=True))
    alone = gaussian_process()
    x, y = (X - X.mean(axis=0)) / X.std(axis=0), (Y - Y.mean(axis=0)) / Y.std(axis=0)
    alone.fit(x, y)
    assert_allclose(flat(fitted.get_weights()), flat(alone.get_weights()), atol=2e-2)
    noise = trained.noise_scale
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # the noise has no gradient
        warnings.filterwarnings("ignore", "After 6 steps")  # 6 steps are few
        fit(make(trained, learn_prior=True, eager=True), epochs=3)
    moved = {w.name: w.numpy() for w in trained.trainable_weights}
    assert sorted(moved) == ["amplitude", "length_scale"]
    for weight in gaussian_process().trainable_weights:
        assert abs(moved[weight.name] - weight.numpy()) > 1e-3
    assert trained.noise_scale == noise


def flat(values):
    return np.concatenate([np.ravel(value) for value in values])


@pytest.mark.parametrize(
    "options",
    [
        {"divergence": "regularized", "injected_noise": 0.1},
        {"divergence": "linearized", "injected_noise": 0.1},
        {"measurement": fbnn.Adversarial(3)},
        {"measurement": fbnn.Normal(3)},
        {"measurement": fbnn.DataStream(3)},
        {"likelihood": likelihoods.StudentT(df=4.0, scale=0.3)},
        {"prior": processes.StudentTProcess(tfpk.MaternThreeHalves(1.0, 0.5))},
        {"prior": processes.PiecewiseConstant(2.0), "net": "one input"},
    ],
)
def test_kinds_of_models_train(options):
    options = dict(options)
    x = X
    if options.get("net"):
        options["net"], x = network(num_inputs=1), X[:, :1]
    model = make(eager=True, **options)
    history = fit(model, x, epochs=2).history
    assert np.all(np.isfinite(history["loss"])) and np.all(np.isfinite(history["kl_estimate"]))
    assert np.all(np.isfinite(model.predict(x)["stddev"]))


def test_adversarial_points_move():
    model = make(measurement=fbnn.Adversarial(3, step_size=0.05), eager=True)
    fit(model)
    before = model.measurement.places.numpy()
    fit(model)
    assert np.all(np.abs(model.measurement.places.numpy() - before).max(axis=0) > 1e-4)


def test_adversarial_points_of_another_dtype_than_the_model():
    double = {"dtype": "float64"}
    points = fbnn.Adversarial(3, step_size=0.05)
    model = make(gaussian_process(**double), network(**double), True, measurement=points, **double)
    loss = fit(model).history["loss"]
    before = points.places.numpy()
    assert before.dtype == "float32" and np.all(np.isfinite(loss))
    fit(model)
    assert np.all(np.abs(points.places.numpy() - before).max(axis=0) > 1e-4)


def test_images_and_classes():
    images = GENERATOR.normal(size=(24, 6, 6, 1)).astype("float32")
    labels = (images.mean(axis=(1, 2, 3)) > 0.0).astype("int32")
    net = keras.Sequential(
        [
            keras.Input((6, 6, 1)),
            layers.VariationalConv2D(2, 3, activation="relu"),
            layers.PerSample(keras.layers.Flatten()),
            layers.VariationalDense(2),
        ]
    )
    prior = processes.GaussianProcess(
        tfpk.ExponentiatedQuadratic(1.0, 5.0, feature_ndims=3), num_outputs=2
    )
    model = make(prior, net, True, likelihood=likelihoods.Categorical(), measurement=fbnn.Box(2))
    history = fit(model, images, labels, batch_size=8).history
    assert np.isfinite(history["loss"][0])
    assert model.predict(images)["probabilities"].shape == (24, 2)


@pytest.mark.slow
def test_a_yes_or_no_is_learnt():
    labels = (X[:, :1] > 0.0).astype("int32")
    options = {"likelihood": likelihoods.Bernoulli(), "measurement": fbnn.Box(3)}
    model = make(num_samples=20, kl_weight="data", **options)
    fit(model, X, labels, epochs=150)
    probabilities = model.predict(X)["probabilities"]
    assert np.all((probabilities > 0.0) & (probabilities < 1.0))
    assert np.mean((probabilities > 0.5) == labels) > 0.9


# As a Keras model --------------------------------------------------------------------------------


@pytest.mark.slow
def test_saved_models_predict_and_go_on(tmp_path):
    model = make(fit_prior=True)
    fit(model)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert_array_equal(loaded.predict(X)["mean"], model.predict(X)["mean"])
    assert_array_equal(flat(loaded.prior.get_weights()), flat(model.prior.get_weights()))
    for one in (model, loaded):
        fit(one)
    assert_allclose(loaded.predict(X)["mean"], model.predict(X)["mean"], rtol=1e-5, atol=1e-6)


def test_config():
    options = {"share": 0.9, "bandwidth": 1.5, "whiten": False, "monitor_steps": 7}
    model = make(kl_weight="data", fit_prior=True, **options)
    copy = fbnn.FBNNModel.from_config(model.get_config())
    assert copy.divergence == model.divergence == fbnn.Stein(**options) and copy.fit_prior
    assert copy.get_config()["kl_weight"] == "data"
    assert isinstance(copy.prior, processes.GaussianProcess)
    assert copy.measurement.num_points == 5


@pytest.mark.parametrize(
    "options, error, message",
    [
        ({"kl_weight": "rows"}, ValueError, "`kl_weight` must be one of"),
        ({"kl_weight": -1.0}, ValueError, "`kl_weight` must be a finite number"),
        ({"monitor_steps": 0}, ValueError, "monitor_steps=0"),
        ({"num_samples": 3}, ValueError, "`num_samples` must be at least 4"),
        ({"injected_noise": -0.1}, ValueError, "`injected_noise` must be a finite number"),
        ({"prior": 3.0}, TypeError, "`prior` must be one of"),
        ({"prior": gaussian_process(num_outputs=2)}, ValueError, "`prior` must have 1 outputs"),
        ({"measurement": 5}, TypeError, "`measurement` must be a `MeasurementSet`"),
        (
            {"prior": processes.PiecewiseConstant(2.0), "learn_prior": True},
            ValueError,
            "`learn_prior` needs a prior with a density",
        ),
        (
            {"prior": processes.PiecewiseConstant(2.0), "fit_prior": True},
            ValueError,
            "`fit_prior` needs a prior with `fit`",
        ),
    ],
)
def test_bad_arguments(options, error, message):
    with pytest.raises(error, match=message):
        make(**options)


def test_one_trace_for_all_sizes_of_batches():
    model = make()
    traces = []
    objective = model.objective

    def counted(*arguments):
        traces.append(1)
        return objective(*arguments)

    vars(model)["objective"] = counted
    fit(model, epochs=2, batch_size=16)  # batches of 16, 16 and 8 rows
    fit(model, epochs=1, batch_size=13)
    assert len(traces) == 1
    assert tf.executing_eagerly()


@pytest.mark.slow
def test_streams_of_batches_are_traced_once_and_equal_arrays():
    """One graph trains on datasets of any length, with batches of different sizes."""
    rng, traces = np.random.default_rng(0), []
    models = [batteries.fbnn_model(standardize=False) for _ in range(2)]
    x, y = rng.normal(size=(20, 4)), rng.normal(size=(20, 2))  # batches of 8, 8 and 4 rows
    x, y = x.astype("float32"), y.astype("float32")
    models[0].fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0)
    objective = models[1].objective
    vars(models[1])["objective"] = lambda *args: traces.append(1) or objective(*args)
    models[1].measurement.adapt(x)  # a dataset would show only its first batch
    batches = tf.data.Dataset.from_tensor_slices((x, y)).batch(8)
    models[1].fit(batches, epochs=1, verbose=0)
    first = len(traces)
    models[1].fit(batches, epochs=1, verbose=0)
    longer = batches.repeat(20)
    assert first <= 2 and len(traces) == first
    assert_allclose(
        models[0].predict(x)["mean"], models[1].predict(x)["mean"], rtol=1e-4, atol=1e-5
    )
    models[1].fit(longer, epochs=1, verbose=0)
    assert len(traces) == first


def test_the_divergence_is_an_object():
    with pytest.raises(TypeError, match="`divergence` must be a Stein.*Received: divergence='st"):
        fbnn.FBNNModel(network(), gaussian_process(), divergence="stein")
    with pytest.raises(TypeError, match="positional"):
        fbnn.FBNNModel(network(), gaussian_process(), likelihoods.Gaussian(0.2))
