"""Predictive distributions of the likelihoods: mixtures over draws of f, class probabilities."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from normals import expectation
from scipy import special, stats

from tfp_fnspace import likelihoods, metrics
from tfp_fnspace.distributions import marginals, quantile
from tfp_fnspace.math.expectations import normal_nodes
from tfp_fnspace.typing import GaussianMoments

F = np.random.default_rng(0).normal(size=(4, 5, 2))  # [draws, N, D]
Y = np.random.default_rng(1).normal(size=(5, 2))


@pytest.mark.parametrize("known", [True, False])
def test_mixture_of_gaussians(float64, known):
    variance = np.zeros_like(F) if known else np.exp(F) * 0.1
    unit = np.array([2.0, 0.5])
    moments = GaussianMoments(tf.constant(F), None if known else tf.constant(variance))
    distribution = likelihoods.Gaussian([0.7, 1.3]).mixture(moments, unit)
    assert (distribution.batch_shape, distribution.event_shape) == ((5,), (2,))
    scale = np.sqrt(variance + (unit * [0.7, 1.3]) ** 2)
    parts = stats.norm(F, scale).logpdf(Y).sum(-1)
    np.testing.assert_allclose(
        distribution.log_prob(Y), special.logsumexp(parts, axis=0) - np.log(4)
    )
    median = quantile(distribution, 0.5)
    np.testing.assert_allclose(stats.norm(F, scale).cdf(median).mean(0), 0.5, atol=1e-6)
    draws = distribution.sample(20000, seed=1)
    np.testing.assert_allclose(
        metrics.crps(Y, distribution), metrics.crps_from_samples(Y, draws), rtol=0.02
    )


def test_mixture_of_student_t(float64):
    noise = likelihoods.StudentT(4.0, 0.7)
    distribution = noise.mixture(GaussianMoments(tf.constant(F), None))
    parts = stats.t(4.0, F, 0.7).logpdf(Y).sum(-1)
    np.testing.assert_allclose(
        distribution.log_prob(Y), special.logsumexp(parts, axis=0) - np.log(4)
    )
    median = quantile(distribution, 0.5)
    np.testing.assert_allclose(stats.t(4.0, F, 0.7).cdf(median).mean(0), 0.5, atol=1e-6)


def test_mixture_of_student_t_draws_f_alike_at_all_points(float64, assert_mean_close):
    noise = likelihoods.StudentT(4.0, 0.7)
    moments = GaussianMoments(*tf.constant(np.full((2, 4000, 3, 1), [[[[0.5]]], [[[1.5]]]])))
    distribution = noise.mixture(moments, seed=(1, 2))
    values = distribution.components_distribution.distribution.loc
    np.testing.assert_array_equal(values[0], values[2])
    densities = distribution.components_distribution.log_prob(np.full((3, 1, 1), 1.1))[0]
    expected = expectation(stats.t(4.0, 1.1, 0.7).pdf, 0.5, 1.5)
    assert_mean_close(np.exp(densities), expected)


def gaussian_mixture(size, outputs, dtype="float32"):
    """Returns an equal mixture of Gaussians, `[S, 5, D]`, as arrays."""
    rng = np.random.default_rng(5)
    shape = (size, 5, outputs)
    return GaussianMoments(rng.normal(size=shape).astype(dtype), rng.gamma(2.0, size=shape) + 0.1)


def tensors(moments, dtype=tf.float32):
    return GaussianMoments(*(tf.constant(part, dtype) for part in moments))


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("size", [1, 5])
@pytest.mark.parametrize("name", ["Gaussian", "StudentT"])
def test_distribution_has_the_predicted_moments(name, size, outputs):
    noise = likelihoods.Gaussian(0.7) if name == "Gaussian" else likelihoods.StudentT(4.0, 0.7)
    mean, variance = gaussian_mixture(size, outputs)
    unit = np.array([2.0, 0.5][:outputs], "float32")
    distribution = noise.mixture(tensors((mean, variance)), unit, seed=(1, 2))
    np.testing.assert_allclose(distribution.mean(), mean.mean(0), rtol=1e-4, atol=1e-6)
    total = variance.mean(0) + mean.var(0) + noise.noise_variance(unit)
    np.testing.assert_allclose(distribution.stddev(), np.sqrt(total), rtol=1e-4)
    alone = noise.mixture(tensors((mean[:, 1:2], variance[:, 1:2])), unit, seed=(1, 2))
    y = tf.constant(mean[0, 1:2])
    np.testing.assert_allclose(alone.log_prob(y), distribution[1:2].log_prob(y), rtol=1e-5)


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("size", [1, 5])
@pytest.mark.parametrize("name", ["Bernoulli", "Categorical"])
def test_distribution_has_the_predicted_probabilities(name, size, outputs, assert_mean_close):
    """The probabilities are also the means over draws of f."""
    likelihood, link = likelihoods.Bernoulli(), special.expit
    if name == "Categorical":
        likelihood, link = likelihoods.Categorical(), special.softmax
        outputs += 1  # the number of classes
    mean, variance = gaussian_mixture(size, outputs)
    moments = tensors((mean, variance))
    ours = likelihood.uncertainty(moments, seed=(1, 2))["probabilities"]
    distribution = likelihood.mixture(moments, seed=(1, 2))
    np.testing.assert_allclose(likelihood.probabilities(distribution), ours, rtol=1e-5)
    if name == "Bernoulli":
        np.testing.assert_allclose(distribution.mean(), ours, rtol=1e-5)
        np.testing.assert_allclose(distribution.stddev(), np.sqrt(ours * (1.0 - ours)), rtol=1e-5)
    noise = np.random.default_rng(6).normal(size=(4000, *mean.shape))
    f = mean + np.sqrt(variance) * noise
    draws = link(f) if name == "Bernoulli" else link(f, axis=-1)
    draws = draws.mean(1)
    if name == "Bernoulli":
        assert_mean_close(draws, ours)
    else:
        # 800 independent values of logits would have a standard error of 0.4 / 28 = 0.014.
        np.testing.assert_allclose(draws.mean(0), ours, atol=0.03)


@pytest.mark.parametrize("seed", range(4))
def test_one_gaussian_of_logits_is_averaged_well(seed):
    """Two classes are a logistic regression on the difference of the logits."""
    mean, variance = [[[0.4, -0.8]]], [[[2.0, 3.0]]]
    distribution = likelihoods.Categorical().mixture(tensors((mean, variance)), seed=(seed, 2))
    expected = expectation(special.expit, 1.2, 5.0)
    np.testing.assert_allclose(distribution.probs_parameter()[0, 0], expected, atol=0.02)


@pytest.mark.parametrize("ratio", [0.3, 1.0, 3.0])
def test_student_t_noise_about_one_gaussian(ratio, float64):
    y = np.linspace(-3.0, 3.0, 9)[:, np.newaxis] * np.hypot(ratio, 1.0)
    moments = tensors((np.zeros((1, 9, 1)), np.full((1, 9, 1), 4.0 * ratio**2)), tf.float64)
    distribution = likelihoods.StudentT(4.0, 0.5).mixture(moments, unit=4.0, seed=(1, 2))
    for density, value in zip(distribution.prob(2.0 * y).numpy(), y[:, 0], strict=True):
        expected = expectation(stats.t(4.0, value).pdf, 0.0, ratio**2) / 2.0
        np.testing.assert_allclose(density, expected, rtol=0.05 if ratio > 1.0 else 0.01)


@pytest.mark.parametrize("name", ["Gaussian", "StudentT"])
@pytest.mark.parametrize("unit", [1e-6, 1e-4, 1e4])
def test_distribution_does_not_depend_on_the_units(name, unit):
    noise = likelihoods.Gaussian(0.1) if name == "Gaussian" else likelihoods.StudentT(4.0, 0.1)
    mean, variance = gaussian_mixture(1, 2)
    y = mean[0] + 0.1
    distribution = noise.mixture(tensors((mean, variance)), seed=(1, 2))
    scaled = noise.mixture(tensors((mean * unit, variance * unit**2)), unit, seed=(1, 2))
    in_units = scaled.log_prob(tf.constant(y * unit, tf.float32)) + 2.0 * np.log(unit)
    np.testing.assert_allclose(in_units, distribution.log_prob(y), rtol=1e-3, atol=1e-3)


DISTRIBUTIONS = {
    "Gaussian": likelihoods.Gaussian(0.7),
    "StudentT": likelihoods.StudentT(4.0, 0.7),
    "HeteroscedasticGaussian": likelihoods.HeteroscedasticGaussian(),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.slow
def test_values_of_any_dtype(name):
    """Predictions are float64; observations of any dtype lose nothing."""
    outputs = 4 if name == "HeteroscedasticGaussian" else 2
    moments = tensors(gaussian_mixture(3, outputs, "float64"), tf.float64)
    mixture = DISTRIBUTIONS[name].mixture(moments, tf.constant([2.0, 0.5], tf.float64), seed=(1, 2))
    one = mixture.components_distribution[:, 0]
    values = np.round(mixture.mean().numpy())
    by_compiled = tf.function(lambda distribution, y: distribution.log_prob(y))
    for distribution, methods in {
        mixture: ("log_prob", "prob"),
        one: ("log_prob", "prob"),
        marginals(mixture): ("log_prob", "cdf", "log_cdf", "survival_function"),
        marginals(one): ("log_prob", "cdf", "log_cdf", "log_survival_function"),
    }.items():
        for y in (
            tf.constant(values, tf.float32),
            tf.Variable(values, dtype=tf.float32),
            keras.Variable(values, dtype="float32"),
            tf.constant(values, tf.float16),
            tf.constant(values, tf.int32),
            values.astype(np.float32),
            values.astype(int).tolist(),
        ):
            for method in methods:
                expected, found = (getattr(distribution, method)(v) for v in (values, y))
                assert found.dtype == tf.float64
                np.testing.assert_array_equal(found, expected)
        composite = distribution[1:]
        y = tf.constant(values[1:], tf.float32)
        np.testing.assert_allclose(
            by_compiled(composite, y), distribution.log_prob(values)[1:], rtol=1e-12
        )
    if name != "StudentT":  # TFP has no quantiles of it
        q = tf.constant(0.25)
        np.testing.assert_array_equal(marginals(one).quantile(q), marginals(one).quantile(0.25))


@pytest.mark.parametrize("shape", [(1, 200, 2), (100, 2, 3), (7, 30, 1)])
def test_nodes_of_normal_distributions(shape):
    size, nodes, outputs = shape
    z = normal_nodes(*shape, seed=(1, 2), dtype=tf.float64).numpy()
    np.testing.assert_allclose(z.mean(1), 0.0, atol=1e-12)
    midpoints = stats.norm.ppf((np.arange(size * nodes) + 0.5) / (size * nodes))
    for column in np.moveaxis(z, 2, 0):
        np.testing.assert_allclose(np.sort(column, axis=None), midpoints, atol=1e-9)
        parts = np.floor(stats.norm.cdf(np.sort(column, axis=1)) * nodes)
        np.testing.assert_array_equal(parts, np.broadcast_to(np.arange(nodes), (size, nodes)))
    if outputs > 1:
        correlations = np.corrcoef(z.reshape(-1, outputs).T)[np.triu_indices(outputs, 1)]
        assert np.abs(correlations).max() < 5.0 / np.sqrt(size * nodes)


def test_uncertainty_of_binary_outputs(float64):
    mean, variance = F, np.exp(Y) * np.ones_like(F)
    ours = likelihoods.Bernoulli().uncertainty(
        GaussianMoments(tf.constant(mean), tf.constant(variance))
    )
    entropy_of = lambda p: -special.xlogy(p, p) - special.xlogy(1 - p, 1 - p)  # noqa: E731
    probabilities = np.vectorize(lambda m, v: expectation(special.expit, m, v))(mean, variance)
    inner = np.vectorize(lambda m, v: expectation(lambda f: entropy_of(special.expit(f)), m, v))
    np.testing.assert_allclose(ours["probabilities"], probabilities.mean(0), rtol=1e-4)
    total = entropy_of(probabilities.mean(0)).sum(-1)
    np.testing.assert_allclose(ours["entropy"], total, rtol=1e-4)
    information = total - inner(mean, variance).mean(0).sum(-1)
    np.testing.assert_allclose(ours["mutual_information"], information, atol=2e-3)


def test_uncertainty_of_classes(float64):
    logits = np.random.default_rng(4).normal(size=(6, 5, 3))
    ours = likelihoods.Categorical().uncertainty(GaussianMoments(tf.constant(logits), None))
    p = special.softmax(logits, axis=-1)
    np.testing.assert_allclose(ours["probabilities"], p.mean(0), rtol=1e-10)
    total, inner = stats.entropy(p.mean(0), axis=-1), stats.entropy(p, axis=-1).mean(0)
    np.testing.assert_allclose(ours["entropy"], total, rtol=1e-10)
    np.testing.assert_allclose(ours["mutual_information"], total - inner, rtol=1e-8)
    distribution = likelihoods.Categorical().mixture(GaussianMoments(tf.constant(logits), None))
    np.testing.assert_allclose(distribution.probs_parameter(), p.mean(0), rtol=1e-10)


def test_gaussian_logits_are_the_limit_of_many_draws():
    mean = tf.broadcast_to(tf.constant([0.4, -0.8]), (3000, 1, 2))
    variance = tf.broadcast_to(tf.constant([0.5, 1.2]), (3000, 1, 2))
    ours = likelihoods.Categorical().uncertainty(GaussianMoments(mean, variance), seed=(1, 2))
    expected = expectation(special.expit, 1.2, 1.7)
    # A probability's standard deviation is at most 1/2; the bound has 6 errors of 24000 draws.
    np.testing.assert_allclose(ours["probabilities"][0, 0], expected, atol=6 * 0.5 / 24000**0.5)


def test_impossible_labels_have_a_finite_score():
    for likelihood, logits, label in (
        (likelihoods.Categorical(), [[[500.0, 0.0]]], [[1.0]]),
        (likelihoods.Bernoulli(), [[[500.0]]], [[0.0]]),
    ):
        distribution = likelihood.mixture(GaussianMoments(tf.constant(logits), None))
        assert 10.0 < metrics.nll(label, distribution) < 100.0
