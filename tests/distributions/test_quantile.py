"""`tfp_fnspace.distributions.quantile` against SciPy, NumPy and root finding."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import optimize, stats

from tfp_fnspace.distributions.quantile import marginal_cdf, marginals, quantile

tfd = tfp.distributions

LEVELS = [0.001, 0.05, 0.5, 0.9, 0.999]
N, K, D = 4, 3, 2


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def normal_parameters(rng, *shape, dtype="float64"):
    return rng.normal(size=shape).astype(dtype), rng.uniform(0.2, 2.0, size=shape).astype(dtype)


def vector_mixture(rng, dtype="float64"):
    """Returns weights [N, K], means and standard deviations [N, K, D], and their mixture."""
    loc, scale = normal_parameters(rng, N, K, D, dtype=dtype)
    probs = rng.dirichlet(np.ones(K), size=N).astype(dtype)
    mixture = tfd.MixtureSameFamily(
        tfd.Categorical(probs=probs), tfd.Independent(tfd.Normal(loc, scale), 1)
    )
    return probs, loc, scale, mixture


def mixture_quantile(probs, loc, scale, level):
    def excess(x):
        return np.dot(probs, stats.norm.cdf(x, loc, scale)) - level

    return optimize.brentq(excess, -50.0, 50.0, xtol=1e-13)


def test_independent_normal_has_the_quantiles_of_scipy(rng):
    loc, scale = normal_parameters(rng, N, D)
    actual = quantile(tfd.Independent(tfd.Normal(loc, scale), 1), LEVELS)
    expected = stats.norm.ppf(LEVELS, loc[..., None], scale[..., None])
    assert actual.shape == (N, D, len(LEVELS))
    np.testing.assert_allclose(actual, expected, rtol=1e-9)


def test_scalar_level_has_no_level_axis(rng):
    loc, scale = normal_parameters(rng, N, D)
    nested = tfd.Independent(tfd.Independent(tfd.Normal(loc, scale), 0), 1)
    actual = quantile(nested, 0.8)
    np.testing.assert_allclose(actual, stats.norm.ppf(0.8, loc, scale), rtol=1e-9)


@pytest.mark.parametrize(("dtype", "atol"), [("float32", 2e-4), ("float64", 1e-10)])
def test_vector_mixture_by_root_finding(rng, dtype, atol):
    probs, loc, scale, mixture = vector_mixture(rng, dtype)
    actual = quantile(mixture, LEVELS)
    assert actual.dtype == dtype
    assert actual.shape == (N, D, len(LEVELS))
    for n, d, q in np.ndindex(*actual.shape):
        expected = mixture_quantile(probs[n], loc[n, :, d], scale[n, :, d], LEVELS[q])
        np.testing.assert_allclose(actual[n, d, q], expected, atol=atol)


def test_scalar_mixture_agrees_with_its_vector_form(rng):
    probs, loc, scale, mixture = vector_mixture(rng)
    scalar = tfd.MixtureSameFamily(
        tfd.Categorical(probs=np.repeat(probs[:, None], D, axis=1)),
        tfd.Normal(loc.swapaxes(1, 2), scale.swapaxes(1, 2)),
    )
    np.testing.assert_allclose(quantile(scalar, 0.3), quantile(mixture, 0.3), rtol=1e-10)
    np.testing.assert_allclose(
        quantile(tfd.Independent(scalar, 1), 0.3), quantile(mixture, 0.3), rtol=1e-10
    )


def test_weights_and_scales_may_be_shared_by_all_rows(rng):
    loc, _ = normal_parameters(rng, N, K, D)
    parts = tfd.Independent(tfd.Normal(loc, np.float64(0.5)), 1)
    probs = np.array([0.2, 0.3, 0.5])
    actual = quantile(tfd.MixtureSameFamily(tfd.Categorical(probs=probs), parts), 0.7)
    expected = mixture_quantile(probs, loc[1, :, 1], 0.5, 0.7)
    np.testing.assert_allclose(actual[1, 1], expected, rtol=1e-9)


def test_mixture_of_cauchys_needs_no_moments():
    parts = tfd.Independent(tfd.Cauchy([[[0.0], [1e6]]], [[[1.0], [1.0]]]), 1)
    mixture = tfd.MixtureSameFamily(tfd.Categorical(probs=[0.5, 0.5]), parts)
    # Half the mass is near 0: level 0.25 is (nearly) the median of the first component.
    np.testing.assert_allclose(quantile(mixture, 0.25), [[0.0]], atol=1e-3)


@pytest.mark.parametrize(
    ("distribution", "reference"),
    [
        (tfd.LogLogistic(np.float64(0.0), np.float64(0.4)), stats.fisk(2.5)),
        (tfd.InverseGaussian(np.float64(1.0), np.float64(2.0)), stats.invgauss(0.5, scale=2.0)),
        (tfd.Pareto(np.float64(1.5), np.float64(1.0)), stats.pareto(1.5)),
    ],
)
def test_without_closed_form_the_bracket_grows_as_far_as_needed(distribution, reference):
    np.testing.assert_allclose(quantile(distribution, LEVELS), reference.ppf(LEVELS), rtol=1e-8)


class FarLogistic(tfd.Distribution):
    """A distribution that has only its distribution function, and is no composite tensor."""

    def __init__(self, loc):
        self.loc = loc
        super().__init__(
            loc.dtype, tfd.NOT_REPARAMETERIZED, validate_args=False, allow_nan_stats=True
        )

    def _batch_shape(self):
        return self.loc.shape

    def _batch_shape_tensor(self):
        return tf.shape(self.loc)

    def _event_shape(self):
        return tf.TensorShape([])

    def _cdf(self, x):
        return tf.sigmoid(x - self.loc)


def test_a_distribution_function_is_enough():
    loc = np.array([[1e4, -3.0], [0.0, -1e5]])
    independent = tfd.Independent(FarLogistic(tf.constant(loc)), 1)
    expected = stats.logistic.ppf(LEVELS, loc[..., None])
    np.testing.assert_allclose(quantile(independent, LEVELS), expected, rtol=1e-9, atol=1e-9)


def test_multivariate_normal_has_normal_marginals(rng):
    loc, _ = normal_parameters(rng, N, D)
    tril = np.array([[1.0, 0.0], [2.0, 0.5]])
    actual = quantile(tfd.MultivariateNormalTriL(loc, tril), 0.9)
    expected = stats.norm.ppf(0.9, loc, np.sqrt(np.diag(tril @ tril.T)))
    np.testing.assert_allclose(actual, expected, rtol=1e-9)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_samples_have_order_statistics(rng, dtype):
    samples = rng.normal(size=(N, 100, D)).astype(dtype)
    actual = quantile(tfd.Empirical(samples, event_ndims=1), [0.05, 0.333, 0.95])
    expected = np.quantile(samples, [0.05, 0.333, 0.95], axis=1, method="inverted_cdf")
    np.testing.assert_allclose(actual, np.moveaxis(expected, 0, -1))
    by_output = tfd.Independent(tfd.Empirical(samples.swapaxes(1, 2)), 1)
    np.testing.assert_allclose(quantile(by_output, 0.333), expected[1])


def test_marginal_cdf_inverts_the_quantiles(rng):
    *_, mixture = vector_mixture(rng)
    values = quantile(mixture, LEVELS)
    for i, level in enumerate(LEVELS):
        probability = marginal_cdf(mixture, values[..., i])
        np.testing.assert_allclose(probability, np.full([N, D], level), rtol=1e-9)


def test_marginals_of_a_mixture_keep_its_moments(rng):
    *_, mixture = vector_mixture(rng)
    scalar = marginals(mixture)
    assert scalar.batch_shape == (N, D)
    assert scalar.event_shape == ()
    np.testing.assert_allclose(scalar.mean(), mixture.mean(), rtol=1e-10)
    np.testing.assert_allclose(scalar.variance(), mixture.variance(), rtol=1e-10)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_compiled_quantiles_are_the_eager_ones(rng, jit_compile):
    probs, loc, scale, mixture = vector_mixture(rng)

    @tf.function(
        jit_compile=jit_compile,
        input_signature=[tf.TensorSpec([None, *t.shape[1:]], t.dtype) for t in (probs, loc, scale)],
    )
    def compiled(probs, loc, scale):
        parts = tfd.Independent(tfd.Normal(loc, scale), 1)
        return quantile(tfd.MixtureSameFamily(tfd.Categorical(probs=probs), parts), LEVELS)

    np.testing.assert_allclose(compiled(probs, loc, scale), quantile(mixture, LEVELS), atol=1e-10)


def test_growing_brackets_compile_with_xla():
    @tf.function(jit_compile=True)
    def compiled(scale):
        return quantile(tfd.Pareto(tf.constant([1.5, 3.0]), scale), LEVELS)

    expected = stats.pareto(np.array([[1.5], [3.0]])).ppf(LEVELS)
    np.testing.assert_allclose(compiled(tf.ones([2])), expected, rtol=1e-3)


def test_refuses_what_is_no_distribution():
    with pytest.raises(
        TypeError, match="must be a tfp.distributions.Distribution.*Received.*tuple"
    ):
        quantile((0.0, 1.0), 0.5)


def test_refuses_unknown_marginals():
    with pytest.raises(TypeError, match="marginals are known for.*Received: distribution="):
        quantile(tfd.Dirichlet([[1.0, 2.0]]), 0.5)


def test_refuses_components_that_cannot_be_split_by_output():
    scaled = tfd.TransformedDistribution(tfd.Normal(tf.zeros([1, 2, 3]), 1.0), tfp.bijectors.Exp())
    mixture = tfd.MixtureSameFamily(tfd.Categorical(probs=[0.5, 0.5]), tfd.Independent(scaled, 1))
    with pytest.raises(TypeError, match="an entry per output.*Received: components"):
        quantile(mixture, 0.5)


def test_refuses_a_distribution_without_distribution_function():
    with pytest.raises(TypeError, match="distribution function.*Received: marginals"):
        marginal_cdf(tfd.Skellam([1.0], [2.0]), [1.0])


@pytest.mark.parametrize("q", [0.0, 1.0, -0.1, [0.5, 1.2], float("nan")])
def test_refuses_levels_outside_the_unit_interval(q):
    with pytest.raises(ValueError, match="q must lie strictly between 0 and 1. Received: q="):
        quantile(tfd.Normal([0.0], 1.0), q)


def test_refuses_levels_with_two_axes():
    with pytest.raises(ValueError, match=r"q must be a scalar or have shape \[Q\]. Received"):
        quantile(tfd.Normal([0.0], 1.0), [[0.5]])
