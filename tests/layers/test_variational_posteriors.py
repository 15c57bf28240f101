"""Posteriors of weights: distributions of the draws, entropies, divergences."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import special, stats

from tfp_fnspace.layers import posteriors
from tfp_fnspace.math.regression import LinearRegression

tfd = tfp.distributions

FALSE_FAIL = 1e-6
NAMES = sorted(posteriors.POSTERIORS)
SHAPES = {"kernel": (3, 2), "bias": (2,)}
SEED = tf.constant([3, 4])
PRIORS = {
    "kernel": tfd.Normal(tf.constant(0.1, tf.float64), tf.constant(0.7, tf.float64)),
    "bias": tfd.Normal(tf.constant(0.0, tf.float64), tf.constant(2.0, tf.float64)),
}


def built(name, shapes=SHAPES):
    """Returns a posterior in float64 with weights away from their initial values."""
    posterior = posteriors.get(name)
    layer = keras.layers.Layer(dtype="float64")
    posterior.build(layer, shapes, dict.fromkeys(shapes, "zeros"), 3)
    generator = np.random.default_rng(0)
    for variable in layer.weights:
        variable.assign(variable + generator.normal(size=variable.shape) * 0.3)
    return posterior, layer


def flat(sample):
    return np.concatenate([np.reshape(part, [len(part), -1]) for part in sample.values()], axis=1)


def covariance(posterior):
    """Computes the covariance, a NumPy array `[P, P]`, from the posterior's definition."""
    if isinstance(posterior, posteriors.FullCovarianceGaussian):
        lower = posterior.cholesky().numpy()
        if isinstance(posterior, posteriors.ConditionedGaussian):
            lower = np.tril(posterior._raw_base.numpy()) @ lower
        return lower @ lower.T
    if isinstance(posterior, posteriors.LowRankGaussian):
        scale = np.log1p(np.exp(posterior._raw_scale.numpy())) + 1e-10
        factor = posterior._factor.numpy()
        return np.diag(scale**2) + factor @ factor.T
    variances = [part.numpy().ravel() for part in posterior.variances().values()]
    return np.diag(np.concatenate(variances))


@pytest.mark.parametrize("name", NAMES)
def test_moments_of_the_draws(name, assert_mean_close, assert_variance_close):
    posterior, _ = built(name)
    draws = flat(posterior.sample(SEED, 40_000))
    mean = np.concatenate([v.numpy().ravel() for v in posterior.mean_values().values()])
    expected = covariance(posterior)
    assert_mean_close(draws, mean)
    assert_variance_close(draws, np.diag(expected))
    centred = draws - mean
    products = centred[:, :, np.newaxis] * centred[:, np.newaxis, :]
    assert_mean_close(products.reshape(len(draws), -1), expected.ravel())
    variances = np.concatenate([v.numpy().ravel() for v in posterior.variances().values()])
    np.testing.assert_allclose(variances, np.diag(expected), rtol=1e-12)


@pytest.mark.parametrize("name", [n for n in NAMES if n != "radial"])
def test_gaussian_draws_are_gaussian(name):
    posterior, _ = built(name)
    draws = flat(posterior.deviations(SEED, 20_000))
    whitened = np.linalg.solve(np.linalg.cholesky(covariance(posterior)), draws.T)
    for row in whitened:
        assert stats.kstest(row, "norm").pvalue > FALSE_FAIL / len(whitened)
    squares = np.sum(whitened**2, axis=0)
    assert stats.kstest(squares, stats.chi2(len(whitened)).cdf).pvalue > FALSE_FAIL


def test_radial_draws_have_a_normal_radius_and_a_uniform_direction():
    posterior, _ = built("radial")
    deviations, scales = posterior.deviations(SEED, 20_000), posterior.scales()
    for name, size in (("kernel", 6), ("bias", 2)):
        unit = (deviations[name] / scales[name]).numpy().reshape(-1, size)
        radius = np.linalg.norm(unit, axis=1)
        assert stats.kstest(radius, "halfnorm").pvalue > FALSE_FAIL
        along = unit[:, 0] / radius  # (1 + u) / 2 is Beta((P-1)/2, (P-1)/2)
        distribution = stats.beta((size - 1) / 2, (size - 1) / 2)
        assert stats.kstest((1 + along) / 2, distribution.cdf).pvalue > FALSE_FAIL


def test_radial_of_one_weight_is_gaussian():
    radial, _ = built("radial", {"kernel": (1,)})
    gaussian, _ = built("factorized", {"kernel": (1,)})
    np.testing.assert_allclose(radial.entropy(), gaussian.entropy(), rtol=1e-12)
    np.testing.assert_allclose(*[p.variances()["kernel"] for p in (radial, gaussian)])


@pytest.mark.parametrize("name", [n for n in NAMES if n != "radial"])
def test_gaussian_divergence_is_that_of_tfp(name):
    posterior, _ = built(name)
    mean = np.concatenate([v.numpy().ravel() for v in posterior.mean_values().values()])
    ours = tfd.MultivariateNormalFullCovariance(mean, covariance(posterior))
    loc, scale = np.array([0.1] * 6 + [0.0] * 2), np.array([0.7] * 6 + [2.0] * 2)
    expected = tfd.kl_divergence(ours, tfd.MultivariateNormalDiag(loc, scale))
    # TFP factorises the covariance, whose condition is 4e10 in the case "conditioned".
    np.testing.assert_allclose(posterior.kl(PRIORS, None), expected, rtol=1e-9)
    np.testing.assert_allclose(posterior.entropy(), ours.entropy(), rtol=1e-9)


def test_radial_entropy_and_divergence_by_draws(assert_mean_close):
    posterior, _ = built("radial")
    deviations, scales = posterior.deviations(SEED, 50_000), posterior.scales()
    log_q, log_p = 0.0, 0.0
    for name, size in (("kernel", 6), ("bias", 2)):
        unit = (deviations[name] / scales[name]).numpy().reshape(-1, size)
        radius = np.linalg.norm(unit, axis=1)
        area = 2 * np.pi ** (size / 2) / special.gamma(size / 2)
        log_q += np.log(2 * stats.norm.pdf(radius)) - np.log(area * radius ** (size - 1))
        log_q -= np.sum(np.log(scales[name]))
        weights = posterior.mean_values()[name] + deviations[name]
        log_p += np.sum(PRIORS[name].log_prob(weights), axis=tuple(range(1, weights.ndim)))
    assert_mean_close(-log_q, posterior.entropy().numpy())
    assert_mean_close(log_q - log_p, posterior.kl(PRIORS, None).numpy())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("prior", ["Laplace", "StudentT", "mixture"])
def test_divergence_from_other_priors(name, prior, assert_mean_close):
    one = tf.constant(1.0, tf.float64)
    distribution = {
        "Laplace": tfd.Laplace(0.3 * one, 0.5 * one),
        "StudentT": tfd.StudentT(3.0 * one, 0.0 * one, one),
        "mixture": tfd.MixtureSameFamily(
            tfd.Categorical(probs=tf.constant([0.3, 0.7], tf.float64)),
            tfd.Normal(tf.zeros([2], tf.float64), tf.constant([0.1, 1.0], tf.float64)),
        ),
    }[prior]
    posterior, _ = built(name)
    distributions = {"kernel": distribution, "bias": distribution}
    draws = posterior.sample(SEED, 20_000)
    log_p = distribution.log_prob(flat(draws)).numpy().sum(axis=1)
    exact = prior == "Laplace" and name != "radial"
    kl = posterior.kl(distributions, None if exact else lambda: draws).numpy()
    assert_mean_close(-posterior.entropy().numpy() - log_p, kl)
    if not exact:
        np.testing.assert_allclose(kl, np.mean(-posterior.entropy().numpy() - log_p), rtol=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_gradients_against_finite_differences(name):
    posterior, layer = built(name)

    def loss():
        sample = posterior.sample(SEED, 3)
        parts = [tf.reduce_sum(tf.sin(part)) for part in sample.values()]
        return tf.add_n(parts) + posterior.kl(PRIORS, None)

    with tf.GradientTape() as tape:
        value = loss()
    for variable, gradient in zip(
        layer.trainable_variables, tape.gradient(value, layer.trainable_variables), strict=True
    ):
        before, direction = variable.numpy(), np.random.default_rng(1).normal(size=variable.shape)
        values = []
        for step in (1e-5, -1e-5):
            variable.assign(before + step * direction)
            values.append(loss().numpy())
        variable.assign(before)
        expected = (values[0] - values[1]) / 2e-5
        np.testing.assert_allclose(np.sum(gradient * direction), expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", NAMES)
def test_initial_scale_and_config(name):
    posterior = posteriors.get(posteriors.POSTERIORS[name](initial_scale=0.3))
    copy = posteriors.get(keras.saving.serialize_keras_object(posterior))
    assert type(copy) is type(posterior) and copy.get_config() == posterior.get_config()
    posterior.build(keras.layers.Layer(), SHAPES, dict.fromkeys(SHAPES, "zeros"), 9)
    variance = posterior.variances()["kernel"].numpy()
    scaled = {"radial": 0.01 / 6, "low_rank": 0.0101}.get(name, 0.01)
    np.testing.assert_allclose(variance, scaled, rtol=0.1)
    assert posteriors.get(posterior) is not posterior


@pytest.mark.parametrize("name", NAMES)
def test_root_is_that_of_the_covariance(name):
    posterior, _ = built(name)
    rows = np.random.default_rng(2).normal(size=(2, 3, 8))
    root = posterior.times_root(rows)
    if name == "radial":
        assert root is None
        return
    expected = rows @ covariance(posterior) @ np.swapaxes(rows, 1, 2)
    np.testing.assert_allclose(root @ tf.linalg.matrix_transpose(root), expected, rtol=1e-10)


@pytest.mark.parametrize(("noise", "atol"), [(0.3, 1e-9), (1e-9, 1e-6)])
def test_conditioned_is_a_bayesian_linear_regression(noise, atol):
    posterior, _ = built("conditioned")
    generator = np.random.default_rng(4)
    design, targets = generator.normal(size=(9, 4)), generator.normal(size=(9, 2))
    scales = np.array([0.5, 0.5, 0.5, 2.0])
    regression = LinearRegression(scales, 2)
    regression.update(design, targets)
    posterior.condition(regression, noise)
    scaled = design * scales  # via the covariance of the rows, not of the weights
    gram = scaled @ scaled.T + noise**2 * np.eye(9)
    if noise > 0.1:
        gain = np.linalg.solve(gram, design * scales**2).T
        means = gain @ targets
        expected = np.diag(scales**2) - gain @ design @ np.diag(scales**2)
    else:
        means, expected = np.linalg.lstsq(design, targets, rcond=None)[0], np.zeros((4, 4))
    values = posterior.mean_values()
    np.testing.assert_allclose(values["kernel"], means[:3], atol=atol)
    np.testing.assert_allclose(values["bias"], means[3], atol=atol)
    whole = np.kron(expected, np.eye(2))
    np.testing.assert_allclose(covariance(posterior), whole, atol=atol)


def test_tiny_scales_are_no_nan():
    posterior = posteriors.FactorizedGaussian(1e-6)
    posterior.build(keras.layers.Layer(), SHAPES, dict.fromkeys(SHAPES, "zeros"), 1)
    for raw in posterior._raw_scales.values():
        raw.assign(raw - 200.0)
    assert np.isfinite(posterior.entropy())


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: posteriors.get("gauss"), ValueError, "posterior='gauss'"),
        (lambda: posteriors.get(3), TypeError, "posterior=3"),
        (lambda: posteriors.Radial(0.0), ValueError, "initial_scale=0.0"),
        (lambda: posteriors.LowRankGaussian(rank=0), ValueError, "rank=0"),
    ],
)
def test_bad_arguments(make, error, message):
    with pytest.raises(error, match=message):
        make()
