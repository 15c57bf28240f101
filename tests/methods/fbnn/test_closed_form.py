"""fBNN of networks whose functions are Gaussian, in closed form."""

import fbnn_models
import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from exhaustive import sample_of
from numpy.testing import assert_allclose

from tfp_fnspace import fbnn, layers, likelihoods, processes
from tfp_fnspace.layers.gaussian_output import JointGaussian
from tfp_fnspace.methods.fbnn.functional_kl import gaussian_kl, kl_surrogate

tfd = tfp.distributions
tfpk = tfp.math.psd_kernels

GENERATOR = np.random.default_rng(0)
X = GENERATOR.uniform(-2.0, 2.0, size=(12, 1))
NOISE = 0.05
Y = np.sin(2.0 * X) + NOISE * GENERATOR.normal(size=X.shape)


def network(units=60, outputs=1, posterior="conditioned", dtype="float64", **options):
    keras.utils.set_random_seed(0)
    inputs = keras.Input((1,), dtype=dtype)
    kernel = tfpk.ExponentiatedQuadratic(1.0, 0.8)
    hidden = layers.RandomFourierFeatures(units, kernel, seed=0, dtype=dtype)(inputs)
    options = {"prior": "standard", "dtype": dtype, **options}
    return inputs, layers.VariationalDense(outputs, posterior=posterior, **options)(hidden)


def process(outputs=1, dtype="float64"):
    kernel = tfpk.ExponentiatedQuadratic(np.float64(1.0), np.float64(0.8))
    return processes.GaussianProcess(kernel, num_outputs=outputs, dtype=dtype)


def make(parts=None, **options):
    fixed = {"prior": process(), "likelihood": likelihoods.Gaussian(NOISE, dtype="float64")}
    fixed.update(measurement=fbnn.Box(20, margin=0.0), divergence="closed_form", kl_weight="data")
    fixed.update(injected_noise=0.2 * NOISE, standardize=False, seed=0, dtype="float64")
    options = {**fixed, **options}
    return fbnn_models.make_model(network() if parts is None else parts, **options)


def exact_posterior(x):
    """Returns mean and variance of f by the Gaussian process itself."""
    kernel = tfpk.ExponentiatedQuadratic(np.float64(1.0), np.float64(0.8))
    distribution = tfd.GaussianProcessRegressionModel(
        kernel, x, X, Y[:, 0], observation_noise_variance=NOISE**2, predictive_noise_variance=0.0
    )
    return distribution.mean().numpy(), distribution.variance().numpy()


@pytest.mark.parametrize("posterior", ["conditioned", "factorized", "full", "low_rank"])
@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("use_bias", [True, False])
def test_moments_are_those_of_draws(posterior, outputs, use_bias, assert_mean_close):
    model = keras.Model(*network(6, outputs, posterior, use_bias=use_bias))
    generator = np.random.default_rng(1)
    for weight in model.layers[-1].weights:
        weight.assign(weight + 0.3 * generator.normal(size=weight.shape))
    joint = layers.GaussianOutput(model).joint(tf.constant(X[:3]))
    with layers.function_draws(40_000, seed=1, noise="joint"):
        draws = model(X[:3]).numpy()
    assert_mean_close(draws, joint.mean.numpy())
    flat = (draws - joint.mean.numpy()).reshape(len(draws), -1)
    products = flat[:, :, np.newaxis] * flat[:, np.newaxis]
    root = joint.root.numpy().reshape(3 * outputs, -1)
    assert_mean_close(products, root @ root.T)
    expected = np.diag(root @ root.T).reshape(3, outputs)
    assert_allclose(joint.variance(), expected, rtol=1e-10)


@pytest.mark.parametrize("outputs", [1, 2])
def test_divergence_is_that_of_tfp(outputs):
    prior, size = process(outputs), 4 * outputs
    mean = GENERATOR.normal(size=(4, outputs))
    root = GENERATOR.normal(size=(size, size))
    gamma = 0.3
    parts = mean, root.reshape(4, outputs, size)
    joint = JointGaussian(*map(tf.constant, parts))
    ours = gaussian_kl(joint.mean, joint.covariance(), X[:4], prior, gamma)
    assert ours.num_jittered == 0
    one = prior.moments(X[:4], gamma)[1].numpy()[0]
    q = tfd.MultivariateNormalFullCovariance(mean.ravel(), root @ root.T + gamma**2 * np.eye(size))
    p = tfd.MultivariateNormalFullCovariance(np.zeros(size), np.kron(one, np.eye(outputs)))
    assert_allclose(ours.kl, tfd.kl_divergence(q, p), rtol=1e-7)
    joint = JointGaussian(*(tf.constant(v, tf.float32) for v in parts))
    narrow = gaussian_kl(joint.mean, joint.covariance(), X[:4], prior, gamma).kl
    assert narrow.dtype == tf.float32  # the computation is in float64
    assert_allclose(narrow, ours.kl, rtol=1e-5)


@pytest.mark.parametrize("gamma", [1e-2, 1e-3, 1e-4])
def test_divergence_of_a_float32_network_is_right_with_little_noise(gamma):
    """NumPy computes it in float64 from the network's own moments; the prior is in float64."""
    output = layers.GaussianOutput(keras.Model(*network(100, dtype="float32")))
    points = np.linspace(-2.0, 2.0, 30)[:, np.newaxis]
    joint = output.joint(tf.constant(points, tf.float32))
    mean, root = (np.asarray(v, np.float64) for v in joint)
    p = process().moments(points, gamma)[1].numpy()[0]
    q = root[:, 0] @ root[:, 0].T + gamma**2 * np.eye(30)
    solved = np.linalg.solve(p, np.concatenate([q, mean], axis=1))
    logs = np.linalg.slogdet(p)[1] - np.linalg.slogdet(q)[1]
    expected = 0.5 * (np.trace(solved[:, :30]) + mean[:, 0] @ solved[:, 30] - 30.0 + logs)
    kl, num_jittered = gaussian_kl(joint.mean, joint.covariance(), points, process(), gamma)
    assert_allclose(kl, expected, rtol=1e-4)
    assert num_jittered == 0


def test_gradient_of_a_float32_network_and_prior_is_not_turned_by_rounding():
    """With five features at 40 points and gamma 1e-3, C has condition 1e7; NumPy is in float64."""
    kernel, gamma = tfpk.ExponentiatedQuadratic(1.0, 0.1), np.float32(1e-3)
    points = np.random.default_rng(1).uniform(-3.0, 3.0, (40, 4)).astype(np.float32)
    prior = processes.GaussianProcess(kernel)
    root = np.random.default_rng(2).normal(size=(40, 1, 5)).astype(np.float32)
    mean, parts = tf.zeros([40, 1]), tf.constant(root)
    with tf.GradientTape() as tape:
        tape.watch(parts)
        covariance = JointGaussian(mean, parts).covariance()
        divergence = gaussian_kl(mean, covariance, points, prior, gamma)
    p = prior.moments(points, gamma)[1].numpy()[0].astype(np.float64)
    flat = root[:, 0].astype(np.float64)
    c = flat @ flat.T + np.float64(gamma) ** 2 * np.eye(40)
    expected = np.linalg.solve(p, flat) - np.linalg.solve(c, flat)
    assert_allclose(tape.gradient(divergence.kl, parts)[:, 0], expected, rtol=1e-5, atol=1e-6)


def test_covariance_that_is_none_is_counted_and_said():
    """With five features, twelve rows, twenty points and no noise the divergence is infinite."""
    model = make(network(5), injected_noise=0.0)
    model.compile(optimizer=keras.optimizers.Adam(1e-3))
    with pytest.warns(RuntimeWarning, match="not positive definite"):
        history = model.fit(X, Y, batch_size=12, epochs=1, verbose=0).history
    assert history["jittered"] == [1.0]


@pytest.mark.slow
def test_gradient_is_what_the_stein_estimator_estimates():
    model = keras.Model(*network(8, posterior="full"))
    output, points = layers.GaussianOutput(model), tf.constant(X[:4])
    output.layer.posterior._raw.assign_add(0.1 * np.eye(9))
    with tf.GradientTape() as tape:
        joint = output.joint(points)
        kl = gaussian_kl(joint.mean, joint.covariance(), points, process(), 0.3).kl
    exact = tape.gradient(kl, model.trainable_variables)
    with tf.GradientTape() as tape:
        with layers.function_draws(2000, seed=0, noise="joint"):
            values = model(points)
        loss = kl_surrogate(values, points, process(), 1, 0.3, share=0.999, bandwidth=2.0)
    estimated = tape.gradient(loss, model.trainable_variables)
    exact, estimated = (np.concatenate([np.ravel(g) for g in gs]) for gs in (exact, estimated))
    cosine = exact @ estimated / np.linalg.norm(exact) / np.linalg.norm(estimated)
    assert cosine > 0.9


def test_start_is_the_regression_on_the_features():
    model = make(fit_output=True)
    model.compile(optimizer=keras.optimizers.Adam(0.0))
    model.fit(X, Y, batch_size=12, epochs=1, verbose=0)
    features = model.network.layers[1](X).numpy()
    features = np.concatenate([features, np.ones((12, 1))], axis=1)
    gram = features @ features.T + NOISE**2 * np.eye(12)
    mean = features @ features.T @ np.linalg.solve(gram, Y)
    distribution = model.predict_distribution(X)
    assert_allclose(distribution.mean(), mean, atol=1e-6)
    variance = np.diag(
        features @ features.T @ (np.eye(12) - np.linalg.solve(gram, gram - NOISE**2 * np.eye(12)))
    )
    assert_allclose(distribution.variance()[:, 0], variance + NOISE**2, rtol=1e-5)


@pytest.mark.slow
def test_noise_starts_at_the_best_of_each_output():
    """Each output has its own noise and its own posterior of the weights."""
    both = np.concatenate([np.cos(X) + 0.3 * GENERATOR.normal(size=X.shape), Y], axis=1)

    def fitted(columns, scale, outputs):
        likelihood = likelihoods.Gaussian(scale, trainable=True, min_scale=0.01, dtype="float64")
        options = {"prior": process(outputs), "likelihood": likelihood, "fit_output": True}
        model = make(network(outputs=outputs), **options)
        model.compile(optimizer=keras.optimizers.Adam(0.0))
        model.fit(X, columns, batch_size=12, epochs=1, verbose=0)
        distribution = model.predict_distribution(X)
        return (
            distribution.mean().numpy(),
            distribution.variance().numpy(),
            model.likelihood.scale.numpy(),
        )

    means, variances, scales = fitted(both, [0.5, 0.5], 2)
    assert scales[0] > 2.0 * scales[1] > 0.02
    for d in range(2):
        mean, variance, scale = fitted(both[:, d : d + 1], 0.5, 1)
        assert_allclose(scales[d], scale, rtol=1e-6)
        assert_allclose(means[:, d], mean[:, 0], atol=1e-6)
        assert_allclose(variances[:, d], variance[:, 0], rtol=1e-5)


def started(data, **fit_options):
    """Returns the predictive means where training has not moved the start."""
    model = make(fit_output=True, measurement=fbnn.Box(20, [-2.0], [2.0]))
    model.compile(optimizer=keras.optimizers.Adam(0.0), num_rows=12)
    model.fit(*data, epochs=1, verbose=0, **fit_options)
    return model.predict_distribution(X).mean().numpy()


@pytest.mark.slow
def test_start_of_a_dataset_is_that_of_its_rows(monkeypatch):
    expected = started((X, Y), batch_size=12)
    monkeypatch.setattr("tfp_fnspace.methods.fbnn.closed_form._ROWS_OF_FEATURES", 5)
    assert_allclose(started((X, Y), batch_size=12), expected, atol=1e-6)
    dataset = tf.data.Dataset.from_tensor_slices((X, Y)).batch(5)
    assert_allclose(started((dataset,)), expected, atol=1e-6)
    first = started((X[:5], Y[:5]), batch_size=5)
    assert np.max(np.abs(first - expected)) > 0.1
    endless = started((dataset.repeat(),), steps_per_epoch=1)  # the start takes its first batch
    assert_allclose(endless, first, atol=1e-6)


def test_training_ends_near_the_gaussian_process():
    """The regression on the features, where training starts, is not near it."""
    model = make(network(100), fit_output=True)
    grid = np.linspace(-2.0, 2.0, 30)[:, np.newaxis]
    mean, variance = exact_posterior(grid)

    def distance():
        """Adds the divergence's root mean square terms, in units of the exact distribution."""
        moments = model.function_moments(tf.constant(grid))
        means, variances = moments.mean.numpy()[:, 0], moments.variance.numpy()[:, 0]
        error = np.sqrt(np.mean((means - mean) ** 2 / (variance + NOISE**2)))
        ratio = (variances + NOISE**2) / (variance + NOISE**2)
        return error + np.sqrt(np.mean(np.log(ratio) ** 2))

    model.compile(optimizer=keras.optimizers.Adam(0.0))
    model.fit(X, Y, batch_size=12, epochs=1, verbose=0)
    start = distance()
    model.optimizer.learning_rate = 0.03
    history = model.fit(X, Y, batch_size=12, epochs=600, verbose=0).history
    assert start > 0.5 and distance() < 0.25
    total = np.asarray(process().moments(X, NOISE)[1])[0]
    square = (Y.T @ np.linalg.solve(total, Y)).item()
    log_evidence = -0.5 * (square + np.linalg.slogdet(2.0 * np.pi * total)[1])
    bounds = 12 * np.array(history["elbo"])
    # gamma, a fifth of the noise, slightly lowers the divergence.
    assert bounds[0] < log_evidence - 2.0
    assert log_evidence - 0.7 < bounds[-1] < log_evidence + 0.2


def test_predictions_are_gaussian_and_those_of_draws(assert_mean_close):
    model = make()
    distribution = model.predict_distribution(X)
    assert (
        distribution.mixture_distribution.event_shape == []
        and distribution.components_distribution is not None
    )
    assert distribution.components_distribution.batch_shape[-1] == 1
    draws = model.sample_functions(X, 20_000, seed=0)
    assert_mean_close(draws[..., 0], distribution.mean().numpy()[:, 0])
    moments = model.function_moments(tf.constant(X))
    assert_mean_close((draws[..., 0] - moments.mean[:, 0]) ** 2, moments.variance.numpy()[:, 0])


@pytest.mark.parametrize(
    ("parts", "options", "message"),
    [
        (lambda: network(posterior="radial"), {}, "posterior=Radial"),
        (lambda: network(activation="tanh"), {}, "activation=tanh"),
        (lambda: network(activation=keras.layers.LeakyReLU()), {}, "activation=<LeakyReLU"),
        (lambda: _squashed(), {}, r"last layer end \(Activation\)"),
        (lambda: _with(keras.layers.Dropout(0.5)), {}, "random layers"),
        (lambda: _with(layers.RepeatSamples()), {}, r"features of shape \(None, None, 1\)"),
        (lambda: _twice(), {}, r"random layers before the last \['last'\]"),
        (
            lambda: _deep(),
            {},
            r"random layers before the last \['first'\]",
        ),
        (
            network,
            {"prior": processes.StudentTProcess(tfpk.ExponentiatedQuadratic())},
            "needs a Gaussian",
        ),
        (
            network,
            {"likelihood": likelihoods.StudentT(df=4.0), "fit_output": True},
            "likelihood='?StudentT",
        ),
    ],
)
def test_bad_arguments(parts, options, message):
    with pytest.raises(ValueError, match=message):
        make(parts(), **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"posterior": "full"}, "posterior=FullCovarianceGaussian"),
        ({"prior": tfd.Laplace(0.0, 1.0)}, "normal prior with mean 0"),
    ],
)
def test_layer_that_cannot_start_at_a_regression(options, message):
    with pytest.raises(ValueError, match=message):
        make(network(**options), fit_output=True)


def test_last_layer_that_other_networks_have_too(assert_mean_close):
    """The layer's first call belongs to another network."""
    inputs = keras.Input((1,), dtype="float64")
    last = layers.VariationalDense(1, posterior="full", dtype="float64")
    last(inputs)
    model = keras.Model(inputs, last(keras.layers.Lambda(lambda x: x**3)(inputs)))
    mean = layers.GaussianOutput(model).joint(tf.constant(X)).mean
    with layers.function_draws(20_000, seed=1, noise="joint"):
        assert_mean_close(model(X).numpy(), mean.numpy())


@pytest.mark.slow
@pytest.mark.parametrize(
    "divergence",
    sample_of(["closed_form", "linearized", "regularized"], ["closed_form", "linearized"]),
)
def test_compiles_by_xla(divergence):
    model = make(
        network(dtype="float32"), divergence=divergence, injected_noise=0.1, dtype="float32"
    )
    model.compile(optimizer=keras.optimizers.Adam(1e-3), jit_compile=True)
    assert np.isfinite(model.fit(X, Y, batch_size=12, verbose=0).history["loss"]).all()


@pytest.mark.parametrize(("narrow", "wide"), [("float32", "float64"), ("float64", "float32")])
def test_network_of_another_dtype_than_the_model(narrow, wide):
    likelihood = likelihoods.Gaussian(NOISE, dtype=wide)
    model = make(network(dtype=narrow), dtype=wide, likelihood=likelihood)
    model.compile(optimizer=keras.optimizers.Adam(1e-3))
    model.fit(X, Y, batch_size=12, verbose=0)
    assert model(X).dtype == wide and model.predict_distribution(X).mean().dtype == "float64"


def test_frozen_and_thawed_it_trains_what_it_did():
    model = make(fit_output=True)
    model.compile(optimizer=keras.optimizers.Adam(1e-3))
    before = [weight.name for weight in model.trainable_variables]
    model.network.trainable = False
    model.network.trainable = True
    assert [weight.name for weight in model.trainable_variables] == before
    assert sorted(before) == ["raw_cholesky", "shift"]
    model.fit(X, Y, batch_size=12, verbose=0)


def _with(layer):
    inputs = keras.Input((1,), dtype="float64")
    return inputs, layers.VariationalDense(1, dtype="float64")(layer(inputs))


def _squashed():
    inputs, outputs = network()
    return inputs, keras.layers.Activation("tanh", name="end", dtype="float64")(outputs)


def _twice():
    inputs = keras.Input((1,), dtype="float64")
    last = layers.VariationalDense(1, dtype="float64", name="last")
    return inputs, last(keras.layers.Lambda(lambda x: x[0])(last(inputs)))


def _deep():
    inputs = keras.Input((1,), dtype="float64")
    hidden = layers.VariationalDense(3, name="first", dtype="float64")(inputs)
    return inputs, layers.VariationalDense(1, dtype="float64")(hidden)
