"""Priors of weights as rules and as serialised data."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import optimize

from tfp_fnspace.layers import VariationalDense, priors

tfd = tfp.distributions


@pytest.mark.parametrize(
    ("rule", "scale"),
    [("fan_in", 0.5), ("he", 0.5**0.5), ("glorot", 0.1**0.5), ("standard", 1.0)],
)
def test_rules(rule, scale):
    distribution = priors.distribution(priors.checked(rule), 4, 16, "float64")
    assert distribution.dtype == "float64"
    np.testing.assert_allclose(
        [distribution.mean(), distribution.stddev()], [0.0, scale], rtol=1e-12
    )
    assert priors.deserialize(priors.serialize(rule)) == rule


@pytest.mark.parametrize("start", [None, 0.3])
def test_learnt_scales_have_the_least_divergence(start):
    """SciPy's search finds the same scales among those that an input's weights share."""
    rng = np.random.default_rng(0)
    mean, stddev = rng.normal(size=(4, 3)), rng.uniform(0.1, 1.0, size=(4, 3))
    center = np.zeros_like(mean) if start is None else np.full_like(mean, start)
    distribution = priors.learnt(tf.constant(mean), tf.constant(stddev**2), [1], start and center)
    assert distribution.scale.shape == (4, 1)
    for row in range(4):

        def divergence(log_scale, row=row):
            prior = tfd.Normal(center[row], np.exp(log_scale))
            return np.sum(tfd.kl_divergence(tfd.Normal(mean[row], stddev[row]), prior))

        best = np.exp(optimize.minimize_scalar(divergence, bounds=(-3, 3), method="bounded").x)
        np.testing.assert_allclose(distribution.scale[row, 0], best, rtol=1e-3)
    wide = priors.learnt(tf.constant(mean), tf.constant(stddev**2), [0, 1], least=7.0)
    np.testing.assert_allclose(wide.scale, [[7.0]])


def test_priors_that_a_layer_learns():
    keras.utils.set_random_seed(0)
    x = np.ones((2, 4), "float32")
    free, relevant, start = (VariationalDense(3, prior=p) for p in (None, "relevance", "start"))
    for layer in (free, relevant, start):
        layer(x)
    assert free.weight_priors()["kernel"].stddev() == 0.5
    assert free.weight_priors("relevance")["kernel"].scale.shape == (4, 1)
    kernel = relevant.posterior.means["kernel"]
    kernel.assign(tf.concat([kernel[:1], 0.0 * kernel[1:]], axis=0))
    scales = relevant.weight_priors()["kernel"].scale
    assert scales[0] > 2.0 * scales[1] and relevant.weight_priors()["bias"].stddev() == 1.0
    before = np.array(start.posterior.means["kernel"])
    start.posterior.set_means(kernel=before + 1.0)  # stands for training
    distribution = start.weight_priors()["kernel"]
    np.testing.assert_array_equal(distribution.loc, before)
    np.testing.assert_allclose(distribution.scale, 1.0, rtol=0.01)
    start.start_at(kernel=before)
    least = 0.2 * np.sqrt(np.mean(before**2))
    np.testing.assert_allclose(start.weight_priors()["kernel"].scale, least, rtol=1e-5)
    np.testing.assert_allclose(start.weight_priors()["bias"].scale, least, rtol=1e-5)
    with pytest.raises(ValueError, match="`bias_prior` must not be 'relevance'.*Received: bias"):
        VariationalDense(1, bias_prior="relevance")


DISTRIBUTIONS = {
    "Normal": lambda: tfd.Normal(0.5, 2.0),
    "integers": lambda: tfd.Normal(0, 1),
    "Laplace": lambda: tfd.Laplace(0.0, np.float32(0.5)),
    "StudentT": lambda: tfd.StudentT(df=3.0, loc=0.0, scale=1.5),
    "mixture": lambda: tfd.MixtureSameFamily(
        tfd.Categorical(probs=[0.25, 0.75]), tfd.Normal([0.0, 0.0], [0.1, 1.0])
    ),
    "Horseshoe": lambda: tfd.Horseshoe(0.7),
    "variable": lambda: tfd.Normal(0.0, keras.Variable(3.0)),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_distributions_survive_as_data_in_any_dtype(name):
    original = DISTRIBUTIONS[name]()
    prior = priors.checked(original)
    config = priors.serialize(prior)
    values = np.array([-1.3, 0.2, 2.0], "float32")
    for dtype in ("float32", "float64"):
        distribution = priors.distribution(priors.deserialize(config), 3, 3, dtype)
        assert distribution.dtype == dtype
        ours = priors.log_prob(distribution, values.astype(dtype))
        assert ours.dtype == dtype
        np.testing.assert_allclose(ours, original.log_prob(values), rtol=1e-5)


def test_other_distributions_work_but_are_not_saved():
    flow = tfd.TransformedDistribution(tfd.Normal(0.0, 1.0), tfp.bijectors.Scale(2.0))
    distribution = priors.distribution(priors.checked(flow), 1, 1, "float64")
    expected = tfd.Normal(0.0, 2.0).log_prob([0.5])
    np.testing.assert_allclose(priors.log_prob(distribution, np.array([0.5])), expected, rtol=1e-6)
    with pytest.raises(ValueError, match="to be saved must be a TFP distribution.*Received: prior"):
        priors.serialize(flow)


@pytest.mark.parametrize(
    ("prior", "error", "message"),
    [
        ("lecun", ValueError, "prior='lecun'"),
        (1.0, TypeError, "prior=1.0"),
        (tfd.Normal([0.0, 1.0], 1.0), ValueError, r"batch_shape=\(2,\)"),
        (tfd.MultivariateNormalDiag([0.0], [1.0]), ValueError, r"event_shape=\(1,\)"),
        ({"class_name": "os", "parameters": {}}, ValueError, "'os'"),
    ],
)
def test_bad_priors(prior, error, message):
    with pytest.raises(error, match=message):
        priors.checked(prior)
