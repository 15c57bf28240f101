"""Noise that TAGI learns (AGVI): the step against exact conditioning; models that find it."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from normals import expectation
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from tfp_fnspace import likelihoods, tagi
from tfp_fnspace.likelihoods.variance_inference import noise_innovation
from tfp_fnspace.typing import GaussianMoments


def step(mean, variance, log_mean, log_variance, y, min_variance=0.0):
    """Returns innovations of z and w as NumPy arrays."""
    parts = noise_innovation(
        GaussianMoments(tf.constant(mean), tf.constant(variance)),
        GaussianMoments(tf.constant(log_mean), tf.constant(log_variance)),
        tf.constant(y),
        min_variance,
    )
    return [[value.numpy() for value in pair] for pair in parts]


def random_case(size=50, seed=0):
    rng = np.random.default_rng(seed)
    mean, log_mean, y = rng.normal(size=(3, size))
    variance, log_variance = rng.uniform(0.02, 1.0, size=(2, size))
    return mean, variance, log_mean, log_variance, 2.0 * y


def conditional(prior, given, covariance, posterior_of_given):
    """Smooths Gaussian x given a new distribution of g (textbook); all are (mean, variance)."""
    gain = covariance / given[1]
    mean = prior[0] + gain * (posterior_of_given[0] - given[0])
    return mean, prior[1] + gain**2 * (posterior_of_given[1] - given[1])


# The step ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("min_variance", [0.0, 0.3])
def test_step_is_a_chain_of_gaussian_conditionals(min_variance):
    mz, sz, mw, sw, y = random_case()
    log_normal = stats.lognorm(np.sqrt(sw), scale=np.exp(mw))
    noise = min_variance + log_normal.mean(), log_normal.var()
    total = sz + noise[0]
    z = conditional((mz, sz), (mz, total), sz, (y, 0.0))
    v = conditional((0.0, noise[0]), (mz, total), noise[0], (y, 0.0))
    square = v[0] ** 2 + v[1], 2.0 * v[1] ** 2 + 4.0 * v[1] * v[0] ** 2
    prior_square = noise[0], 3.0 * noise[1] + 2.0 * noise[0] ** 2
    new_noise = conditional(noise, prior_square, noise[1], square)
    w = conditional((mw, sw), noise, sw * log_normal.mean(), new_noise)
    of_z, of_w = step(mz, sz, mw, sw, y, min_variance)
    for (mean, variance), (dm, ds), posterior in (((mz, sz), of_z, z), ((mw, sw), of_w, w)):
        assert_allclose(mean + variance * dm, posterior[0], rtol=1e-10)
        assert_allclose(variance + variance**2 * ds, posterior[1], rtol=1e-8, atol=1e-12)


def test_moments_of_the_squared_noise(assert_mean_close, assert_variance_close):
    """Steps 2 and 3 agree with draws; false alarms 1e-6 each."""
    rng = np.random.default_rng(0)
    w = rng.normal(-0.4, 0.5, size=10**6)
    u = np.exp(w)
    square = u * rng.normal(size=w.shape) ** 2
    distribution = stats.lognorm(0.5, scale=np.exp(-0.4))
    assert_mean_close(square, distribution.mean())
    assert_variance_close(square, 3.0 * distribution.var() + 2.0 * distribution.mean() ** 2)
    assert_mean_close(
        (square - distribution.mean()) * (u - distribution.mean()), distribution.var()
    )
    assert_mean_close((w + 0.4) * (u - distribution.mean()), 0.25 * distribution.mean())


def test_known_noise_level_gives_the_exact_score_and_fisher_information():
    """As Sw -> 0 it gives the derivative of log N(y; mz, Sz + exp w) in w, and -E of its square."""
    mz, sz, mw, _, y = random_case()
    tiny = np.full_like(mz, 1e-12)

    def of_w(targets):
        return step(mz, sz, mw, tiny, targets)[1]

    total = sz + np.exp(mw)
    score = 0.5 * np.exp(mw) / total * ((y - mz) ** 2 / total - 1.0)
    assert_allclose(of_w(y)[0], score, rtol=1e-9, atol=1e-12)
    nodes, weights = np.polynomial.hermite_e.hermegauss(5)  # exact for degree 2 in y
    mean = sum(
        weight * of_w(mz + np.sqrt(total) * node)[1]
        for node, weight in zip(nodes, weights / weights.sum(), strict=True)
    )
    assert_allclose(mean, -0.5 * (np.exp(mw) / total) ** 2, rtol=1e-9)


@pytest.mark.parametrize("residual", [0.0, 0.7, 1.5])
def test_step_is_close_to_the_posterior_by_quadrature(residual):
    """Noise is N(0, exp w) about a nearly known value, w ~ N(-0.5, 0.2); errors in stddevs of w."""
    mz, sz, mw, sw = 0.2, 0.1, -0.5, 0.2
    w = np.linspace(-5.0, 4.0, 4001)
    density = stats.norm(mw, np.sqrt(sw)).pdf(w)
    density *= stats.norm(mz, np.sqrt(sz + np.exp(w))).pdf(mz + residual)
    density /= density.sum()
    mean = density @ w
    variance = density @ (w - mean) ** 2
    dm, ds = step(*(np.array([v]) for v in (mz, sz, mw, sw, mz + residual)))[1]
    errors = (mw + sw * dm[0] - mean) / np.sqrt(sw), (sw + sw**2 * ds[0] - variance) / sw
    # Errors seen: (0.04, -0.06), (0.00, -0.02) and (-0.08, 0.12).
    assert np.all(np.abs(errors) < 0.15)


def test_step_is_finite_in_float32_at_extremes():
    grid = np.array([-1e3, -50.0, 0.0, 50.0, 1e3], np.float32)
    sizes = np.array([1e-30, 1e-6, 1.0, 1e4], np.float32)
    mz, sz, mw, sw = np.meshgrid(grid, sizes, grid, sizes)
    parts = step(mz, sz, mw, sw, np.zeros_like(mz), 1e-4)
    assert all(np.all(np.isfinite(value)) for pair in parts for value in pair)


def test_recursion_over_known_residuals_finds_the_variance():
    """With one w and z known, 4000 draws of N(0, 0.25) correct a prior that is off by factor 4."""
    draws = np.random.default_rng(0).normal(0.0, 0.5, size=4000)
    w, variance = np.array([0.0]), np.array([1.0])
    for y in draws:
        dm, ds = noise_innovation_of_w(w, variance, y)
        w, variance = w + variance * dm, variance + variance**2 * ds
    # The estimate's stddev is sqrt(2/4000) = 0.022 in log variance; the bound is 6 of them.
    assert abs(w[0] + variance[0] / 2 - np.log(np.mean(draws**2))) < 0.02
    assert abs(w[0] - np.log(0.25)) < 6 * 0.0224
    assert_allclose(variance, 2.0 / 4000, rtol=0.05)  # the inverse Fisher information


def noise_innovation_of_w(w, variance, y):
    """Computes it in NumPy with z = 0 known: share 0, U = M."""
    prior = 3.0 * np.expm1(variance) + 2.0
    return (y**2 / np.exp(w + variance / 2) - 1.0) / prior, -1.0 / prior


def test_the_loop_above_is_the_step():
    zero, w, variance = np.zeros(1), np.array([0.3]), np.array([0.2])
    assert_allclose(
        np.ravel(step(zero, zero, w, variance, np.array([0.8]))[1]),
        np.ravel(noise_innovation_of_w(w, variance, 0.8)),
    )


# The likelihood ----------------------------------------------------------------------------------


def test_predictive_has_the_moments_of_the_distribution(float64):
    mz, sz, mw, sw = 0.3, 0.4, -0.2, 0.5
    moments = GaussianMoments(*(tf.constant(np.array([v])) for v in ([mz, mw], [sz, sw])))
    distribution = likelihoods.HeteroscedasticGaussian(0.1).predictive(moments, unit=[1.0])
    assert_allclose(distribution.mean(), [[mz]])
    expected = sz + 0.01 + expectation(np.exp, mw, sw)
    assert_allclose(distribution.variance(), [[expected]], rtol=1e-8)


# Models ------------------------------------------------------------------------------------------


def known_noise(count=400, seed=0):
    """Draws y = 20 sin 2x + v, v ~ N(0, (1 + 9 [x > 0] x)^2) on [-2, 2]."""
    x = np.random.default_rng(seed).uniform(-2.0, 2.0, size=(count, 1))
    stddev = noise_curve(x)
    return x, 20.0 * np.sin(2.0 * x) + stddev * np.random.default_rng(seed + 1).normal(size=x.shape)


def noise_curve(x):
    return 1.0 + 9.0 * np.maximum(x, 0.0)


def model_of(likelihood, num_outputs):
    inputs = keras.Input((1,))
    activation = tagi.Activation("relu", moments="exact")
    hidden = tagi.Dense(40, activation=activation, bias_variance=0.5)(inputs)
    return tagi.TAGIModel(inputs, tagi.Dense(num_outputs)(hidden), likelihood=likelihood, seed=0)


@pytest.mark.slow
def test_noise_curve_is_recovered_saved_and_served(tmp_path):
    x, y = known_noise()
    model = model_of(likelihoods.HeteroscedasticGaussian(), 2)
    model.fit(x, y, epochs=30, batch_size=10, verbose=0)
    test_x, test_y = known_noise(seed=2)
    outputs = model.predict(test_x)
    true = noise_curve(test_x)
    # The error is integrated over the inputs, relative to the mean noise. Seen: 0.17.
    assert np.abs(outputs["aleatoric_stddev"] - true).mean() / true.mean() < 0.25
    nll = -stats.norm(outputs["mean"], outputs["stddev"]).logpdf(test_y).mean()
    constant = stats.norm(20.0 * np.sin(2.0 * test_x), np.sqrt(np.mean(true**2)))
    assert nll < -constant.logpdf(test_y).mean() - 0.2  # the truth with the best constant noise
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras").predict(test_x)
    model.export(tmp_path / "served", num_samples=3)
    saved = tf.saved_model.load(str(tmp_path / "served"))
    served = saved.serve(test_x.astype("float32"))
    for key, value in outputs.items():
        assert_array_equal(loaded[key], value)
        assert_allclose(served[key], value, rtol=1e-4, atol=1e-4)


def line(count, noise, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 2))
    return x, x @ [[1.0, 0.5], [-2.0, 1.0]] + noise * rng.normal(size=(count, 2))


def linear_model(likelihood, **options):
    inputs = keras.Input((2,))
    outputs = tagi.Dense(2)(inputs)
    model = tagi.TAGIModel(
        inputs, outputs, likelihood=likelihood, standardize=False, seed=0, **options
    )
    model.compile(jit_compile=False)
    return model


@pytest.mark.parametrize("scale", [0.7, [0.7, 0.7]])
def test_constant_noise_is_learnt(scale):
    noise = np.array([0.1, 0.3])
    x, y = line(600, noise)
    model = linear_model(likelihoods.Gaussian(scale, trainable=True), update="exact")
    model.fit(x, y, epochs=1, batch_size=100, verbose=0)
    expected = np.sqrt(np.mean(noise**2)) if np.ndim(scale) == 0 else noise
    assert_allclose(model.likelihood.scale.numpy(), expected, rtol=0.2)  # it starts 7 times off
    aleatoric = model.predict(x)["aleatoric_stddev"]
    assert_allclose(aleatoric, np.broadcast_to(model.likelihood.scale, (600, 2)), rtol=1e-5)


def test_noise_is_learnt_by_default():
    """Targets in the thousands have noise with standard deviations of 300 and 30."""
    x, y = line(400, 0.3)
    y = 5000.0 + y * [1000.0, 100.0]
    inputs = keras.Input((2,))
    model = tagi.TAGIModel(inputs, tagi.Dense(2)(inputs), update="exact", seed=0)
    model.compile(jit_compile=False)
    model.fit(x, y, epochs=1, verbose=0)
    assert_allclose(model.predict(x[:1])["aleatoric_stddev"], [[300.0, 30.0]], rtol=0.2)
    start = tagi.TAGIModel(inputs, tagi.Dense(2)(inputs), noise="cross_validate").likelihood
    assert not start.learns_scale  # it is chosen instead


def test_frozen_noise_stays(tmp_path):
    x, y = line(40, 0.3)
    model = linear_model(likelihoods.Gaussian(0.7, trainable=True))
    model.fit(x, y, verbose=0)
    learnt = model.likelihood.scale.numpy()
    assert learnt < 0.7
    model.likelihood.trainable = False
    model.compile(jit_compile=False)
    model.fit(x, y, verbose=0)
    assert_array_equal(model.likelihood.scale, learnt)
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    assert_allclose(loaded.likelihood.scale, learnt)
    for ours, theirs in zip(model.learned_noise.weights, loaded.learned_noise.weights, strict=True):
        assert_array_equal(ours, theirs)


def test_a_missing_target_says_nothing_of_value_and_noise():
    x, y = line(20, 0.3)
    y[:, 1] = np.nan
    inputs = keras.Input((2,))
    value, noise = tagi.Dense(2), tagi.Dense(2)
    outputs = tagi.Concatenate()([value(inputs), noise(inputs)])
    likelihood = likelihoods.HeteroscedasticGaussian()
    model = tagi.TAGIModel(inputs, outputs, likelihood=likelihood, standardize=False, seed=0)
    model.compile(jit_compile=False)
    before = [layer.kernel_mean.numpy() for layer in (value, noise)]
    model.fit(x, y, batch_size=10, verbose=0)
    for layer, old in zip((value, noise), before, strict=True):
        assert_array_equal(layer.kernel_mean.numpy()[:, 1], old[:, 1])
        assert np.all(layer.kernel_mean.numpy()[:, 0] != old[:, 0])


@pytest.mark.parametrize(
    ("likelihood", "what"),
    [
        (lambda: likelihoods.Gaussian(1.0, trainable=True), "Gaussian whose scale is learnt"),
        (lambda: likelihoods.HeteroscedasticGaussian(), "HeteroscedasticGaussian .* is none"),
    ],
)
def test_a_scale_is_chosen_once(likelihood, what):
    with pytest.raises(ValueError, match=f"`noise` chooses the scale of .*Received: .*{what}"):
        linear_model(likelihood(), noise="cross_validate")
