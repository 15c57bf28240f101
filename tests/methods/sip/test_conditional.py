"""The distribution of a process given its values at inducing points.

Exact Gaussian processes are the reference.
"""

import warnings

import keras
import numpy as np
import pytest
import sip_models
import tensorflow as tf
import tensorflow_probability as tfp
from numpy.testing import assert_allclose, assert_array_equal
from scipy import special, stats

from tfp_fnspace import likelihoods, processes
from tfp_fnspace.methods.sip import equations, given_prior

JITTER = 1e-5
Z = np.linspace(-2.0, 2.0, 5)[:, np.newaxis]
X = np.linspace(-2.5, 2.5, 6)[:, np.newaxis]


def kernel(a, b):
    return 1.3**2 * np.exp(-0.5 * (a - b.T) ** 2 / 0.8**2)


def exact(mean=0.0):
    """Returns weights `[M, N]`, variances `[N]` and covariance `[N, N]` at X given values at Z."""
    zz = kernel(Z, Z) + JITTER * np.eye(len(Z))
    weights = np.linalg.solve(zz, kernel(Z, X))
    covariance = kernel(X, X) - kernel(X, Z) @ weights
    return weights, np.diag(covariance), covariance


def gaussian_process(num_outputs=1, **options):
    kernel = tfp.math.psd_kernels.ExponentiatedQuadratic(np.float64(1.3), np.float64(0.8))
    return processes.GaussianProcess(kernel, num_outputs, jitter=0.0, dtype="float64", **options)


def test_distribution_from_moments_is_that_of_the_gaussian_process():
    prior = gaussian_process(2, mean=0.7)
    moments = given_prior.exact_moments(prior, tf.constant(X), tf.constant(Z))
    for ours, theirs in ((moments.zz, (Z, Z)), (moments.zx, (Z, X))):
        assert_allclose(ours, np.tile(kernel(*theirs), (2, 1, 1)), rtol=1e-10)
    assert_allclose(moments.xx, np.full((2, 6), 1.3**2), rtol=1e-10)
    conditional = equations.conditional(moments, JITTER)
    weights, variance, _ = exact()
    u = np.random.default_rng(0).normal(size=(3, 5, 2))
    mean, spread = equations.mixture(conditional, tf.constant(u))
    assert_allclose(mean, 0.7 + np.einsum("mn,smd->snd", weights, u - 0.7), rtol=1e-7, atol=1e-9)
    assert_allclose(spread, np.tile(variance[:, np.newaxis], (3, 1, 2)), rtol=1e-6)
    assert_array_equal(conditional.num_jittered, 0)
    assert_allclose(conditional.jitter, JITTER)


def test_moments_of_draws():
    at_x, at_z = np.random.default_rng(0).normal(size=(9, 11, 2)), None
    at_x, at_z = at_x[:, :6], at_x[:, 6:]
    moments = equations.empirical_moments(tf.constant(at_x), tf.constant(at_z))
    for d in range(2):
        both = np.cov(at_z[..., d].T, at_x[..., d].T, bias=True)
        assert_allclose(moments.zz[d], both[:5, :5])
        assert_allclose(moments.zx[d], both[:5, 5:])
        assert_allclose(moments.xx[d], np.diag(both)[5:])
    assert_allclose(moments.mean_x, at_x.mean(axis=0))
    assert_allclose(moments.mean_z, at_z.mean(axis=0))


def test_distribution_from_draws_converges_at_the_rate_of_a_root():
    """The slope of log error on log S is -1/2 within 5 standard errors of 60 runs.

    By chance that fails 5 times in 1e6 (Student's t, 59 degrees of freedom). The standard error
    must be below 0.025, so that a slope that is off by 0.13 is seen.
    """
    runs, counts = 60, np.array([200, 2000, 20_000])
    weights, variance, _ = exact()
    points = np.concatenate([Z, X])
    factor = np.linalg.cholesky(kernel(points, points) + 1e-9 * np.eye(11))
    random, u = np.random.default_rng(1), np.array([1.0, -1.0, 0.5, 0.0, -0.5])
    expected = np.concatenate([weights.T @ u, variance])
    log_errors = []
    for count in counts:
        f = random.normal(size=(count * runs, 11)) @ factor.T
        f = tf.constant(f.reshape(count, runs, 11).transpose(0, 2, 1))  # the runs are outputs
        conditional = equations.conditional(equations.empirical_moments(f[:, 5:], f[:, :5]), JITTER)
        mean, spread = equations.mixture(
            conditional, tf.constant(np.tile(u[:, np.newaxis], (1, 1, runs)))
        )
        error = np.concatenate([mean[0], spread[0]]) - expected[:, np.newaxis]
        log_errors.append(np.log(np.sqrt(np.mean(error**2, axis=0))))
    slopes = np.polyfit(np.log(counts), np.stack(log_errors), 1)[0]
    standard_error = slopes.std(ddof=1) / np.sqrt(runs)
    assert standard_error < 0.025
    assert abs(slopes.mean() + 0.5) < 5.0 * standard_error
    assert np.exp(np.mean(log_errors[-1])) < 0.02  # it tends to the exact distribution


def test_draws_of_the_gaussian_process_have_the_empirical_moments():
    """A function is linear in the coefficients: the unit vectors' sum is the exact covariance."""
    f = np.random.default_rng(0).normal(size=(7, 4, 2))
    at_zero = equations.gaussian_process_draws(tf.constant(f), tf.zeros([1, 2, 7], tf.float64))
    assert_allclose(at_zero[0], f.mean(axis=0))
    units = np.eye(14).reshape(14, 2, 7)
    g = equations.gaussian_process_draws(tf.constant(f), tf.constant(units)) - at_zero
    covariance = np.einsum("snd,sme->ndme", g, g)
    for d in range(2):
        assert_allclose(covariance[:, d, :, d], np.cov(f[..., d].T, bias=True), atol=1e-12)
    assert_allclose(covariance[:, 0, :, 1], 0.0, atol=1e-12)


def test_matheron_draws_have_the_conditional_distribution(assert_mean_close):
    """Mean and covariance of 20,000 draws have a false-fail rate of 1e-6 each."""
    random = np.random.default_rng(0)
    f = random.normal(size=(40, 11, 2)) @ np.array([[1.0, 0.4], [0.0, 1.0]])
    at_x, at_z = tf.constant(f[:, 5:]), tf.constant(f[:, :5])
    jitter, u = 0.3, random.normal(size=(5, 2))  # a large jitter shows in the draws
    conditional = equations.conditional(equations.empirical_moments(at_x, at_z), jitter)
    count = 20_000
    coefficients = tf.constant(random.normal(size=(count, 2, 40)))
    at = [equations.gaussian_process_draws(values, coefficients) for values in (at_x, at_z)]
    many = tf.constant(np.tile(u, (count, 1, 1)))
    samples = equations.matheron_draws(
        conditional, many, *at, tf.constant(random.normal(size=(count, 5, 2)))
    ).numpy()
    means, covariance = [], np.zeros((12, 12))
    for d in range(2):
        both = np.cov(f[..., d].T, bias=True)
        weights = np.linalg.solve(both[:5, :5] + jitter * np.eye(5), both[:5, 5:])
        means.append(f[:, 5:, d].mean(axis=0) + weights.T @ (u[:, d] - f[:, :5, d].mean(axis=0)))
        covariance[d::2, d::2] = both[5:, 5:] - weights.T @ both[:5, 5:]
    expected = np.stack(means, axis=1)
    assert_mean_close(samples, expected)
    centred = (samples - expected).reshape(count, 12)
    assert_mean_close(centred[:, :, np.newaxis] * centred[:, np.newaxis], covariance)
    assert_allclose(
        equations.mixture(conditional, many[:1]).variance[0],
        np.diag(covariance).reshape(6, 2),
        rtol=1e-6,
    )


# Degenerate covariances --------------------------------------------------------------------------


@pytest.mark.parametrize("case", ["duplicates", "more points than draws", "a constant prior"])
@pytest.mark.parametrize("jitter", [1e-5, 1e-12])
def test_degenerate_covariances_are_counted_and_finite(case, jitter):
    f = tf.random.stateless_normal([8, 30, 2], [1, 2])
    if case == "duplicates":
        f = tf.concat([tf.repeat(f[:, :3], 2, axis=1), f[:, 20:]], axis=1)
    elif case == "a constant prior":
        f *= 0.0
    size = {"duplicates": 6}.get(case, 20)
    at_z, at_x = tf.Variable(f[:, :size]), f[:, size:]
    with tf.GradientTape() as tape:
        conditional = equations.conditional(equations.empirical_moments(at_x, at_z), jitter)
        mean, variance = equations.mixture(conditional, at_z)
        total = tf.reduce_sum(mean**2) + tf.reduce_sum(variance)
    for value in (*conditional, mean, variance, tape.gradient(total, at_z)):
        assert np.all(np.isfinite(value))
    assert np.all(variance >= 0.0)
    if jitter == 1e-5:
        assert conditional.num_jittered == 0
        assert_allclose(conditional.jitter, jitter)
    elif case != "a constant prior":  # a constant prior has a factor, which is jitter only
        assert conditional.num_jittered == 2 and np.all(conditional.jitter > 10.0 * jitter)


# In the model ------------------------------------------------------------------------------------


def model_with(prior, sampler_scale=0.0, **options):
    """Makes a float64 model whose u is known or normal, in the units of the data."""
    posterior = keras.Sequential(
        [keras.Input((3,), dtype="float64"), keras.layers.Dense(5, dtype="float64")]
    )
    model = sip_models.make_model(
        prior,
        Z,
        posterior,
        likelihood=likelihoods.Gaussian(0.4, dtype="float64"),
        standardize=False,
        num_samples=8,
        dtype="float64",
        seed=0,
        **options,
    )
    model.adapt(X, np.zeros((6, 1)))
    model.prepare([X], np.zeros((6, 1)), [])
    kernels, bias = posterior.get_weights()
    posterior.set_weights([sampler_scale * kernels, np.linspace(-1.0, 1.0, 5)])
    return model


def test_functions_of_a_model_with_known_u_have_the_exact_distribution(assert_mean_close):
    """The test draws 4,000 functions; its false-fail rates are 1e-6 each."""
    model = model_with(gaussian_process(), num_eval_samples=4)
    weights, variance, covariance = exact()
    expected = weights.T @ np.linspace(-1.0, 1.0, 5)[:, np.newaxis]
    assert_allclose(model.predict(X)["mean"], expected, rtol=1e-6, atol=1e-6)
    assert_allclose(model.predict(X)["epistemic_stddev"][:, 0], np.sqrt(variance), rtol=1e-5)
    samples = model.sample_functions(X, 4000, seed=5)
    assert_mean_close(samples, expected)
    centred = samples[..., 0] - expected[:, 0]
    assert_mean_close(centred[:, :, np.newaxis] * centred[:, np.newaxis], covariance)


@pytest.mark.parametrize("kind", ["bnn", "neural_sampler"])
def test_functions_do_not_depend_on_how_x_is_batched(kind):
    model = model_with(kind, sampler_scale=1.0)
    x = np.linspace(-3.0, 3.0, 12)[:, np.newaxis]
    whole = model.sample_functions(x, 20, seed=(1, 2))
    order = np.random.default_rng(0).permutation(12)
    parts = [model.sample_functions(x[i : i + 5], 20, seed=(1, 2)) for i in (0, 5, 10)]
    assert_allclose(np.concatenate(parts, axis=1), whole, rtol=1e-8, atol=1e-8)
    assert_allclose(
        model.sample_functions(x[order], 20, seed=(1, 2)), whole[:, order], rtol=1e-8, atol=1e-8
    )
    assert np.abs(model.sample_functions(x, 20, seed=(1, 3)) - whole).max() > 1e-2


def test_functions_and_the_mixture_are_of_one_distribution(
    assert_mean_close, assert_variance_close
):
    """With an implicit prior, 5,000 functions agree with the mixture over 5,000 u, rate 1e-6 each.

    The mixture's own error is at most that of the functions, so the bound is taken twice.
    """
    model = model_with("neural_sampler", sampler_scale=0.3, num_eval_samples=5000)
    outputs, samples = model.predict(X), model.sample_functions(X, 5000, seed=3)
    bound = assert_mean_close(samples, samples.mean(axis=0))
    assert np.all(np.abs(samples.mean(axis=0) - outputs["mean"]) < 2.0 * bound)
    spread = outputs["epistemic_stddev"] ** 2
    bound = assert_variance_close(samples, samples.var(axis=0, ddof=1))
    assert np.all(np.abs(samples.var(axis=0) - spread) < 2.0 * bound)


def test_density_of_the_predictive_mixture_is_that_of_scipy():
    model = model_with(gaussian_process(), sampler_scale=1.5, num_eval_samples=30)
    means, variances = (v.numpy()[..., 0] for v in model.posterior_moments(tf.constant(X)))
    assert means.std(axis=0).min() > 0.05  # the components differ
    distribution, y = model.predict_distribution(X), np.linspace(-2.0, 2.0, 6)[:, np.newaxis]
    components = stats.norm(means.T, np.sqrt(variances.T + 0.4**2))
    logs = special.logsumexp(components.logpdf(y), axis=1) - np.log(30)
    assert_allclose(distribution.log_prob(y), logs, rtol=1e-8)
    assert_allclose(distribution.cdf(y), components.cdf(y).mean(axis=1), rtol=1e-8)
    assert_allclose(distribution.mean()[:, 0], means.mean(axis=0), rtol=1e-8)


def test_jitter_that_is_added_is_in_the_history_with_a_warning():
    x = np.repeat([[0.0], [1.0]], 10, axis=0)
    small = {"num_samples": 8, "jitter": 1e-12, "seed": 0, "standardize": False}
    model = sip_models.make_model("neural_sampler", 12, **small)
    model.compile(run_eagerly=True)
    with pytest.warns(RuntimeWarning, match="and got more .* in epoch 1") as said:
        history = model.fit(x, x, epochs=1, batch_size=10, verbose=0).history
    assert sum("of the draws that predictions use" in str(w.message) for w in said) == 1
    assert history["jittered"] == [1.0] and np.isfinite(history["loss"][0])
    model = sip_models.make_model("neural_sampler", 12, **{**small, "jitter": 1e-5})
    model.compile(run_eagerly=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        assert model.fit(x, x, batch_size=10, verbose=0).history["jittered"] == [0.0]
