"""`StableProcess` against transforms, SciPy, NumPy conditioning and wide finite networks."""

import types

import numpy as np
import pytest
import stable_process as reference
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import special, stats

from tfp_fnspace.distributions import Stable, StableProcess
from tfp_fnspace.distributions.stable_process import density
from tfp_fnspace.methods.stable_process import hyperplanes

tfd = tfp.distributions

FALSE_FAIL = 1e-6
LINE = np.array([[0.2], [-0.5], [1.5], [3.0]])
PLANE = np.array([[0.2, 0.1], [-0.5, 1.0], [1.5, -0.3]])


def double(value):
    return tf.constant(value, tf.float64)


def make(x, alpha, nu=1.3, noise=0.4, partition=None, **kwargs):
    partition = hyperplanes.exact(x) if partition is None else partition
    return StableProcess(x, double(alpha), double(nu), double(noise), partition, **kwargs)


def angle_kernel(x):
    """Computes `1 - (2/pi) angle((1, x), (1, x'))`."""
    x = np.concatenate([np.ones([len(x), 1]), x], axis=1)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return 1.0 - 2.0 / np.pi * np.arccos(np.clip(x @ x.T, -1.0, 1.0))


def check_errors(estimate, error, expected, expected_error=0.0, false_fail=FALSE_FAIL):
    """Fails with that probability over all entries together."""
    quantile = stats.norm.isf(false_fail / (2 * np.size(estimate)))
    assert np.all(np.abs(estimate - expected) <= quantile * np.hypot(error, expected_error))


# Samples -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.3, 1.0, 1.6, 2.0])
@pytest.mark.parametrize("x", [LINE, PLANE], ids=["line", "plane"])
def test_samples_have_the_exact_characteristic_function(assert_mean_close, x, alpha):
    distribution = make(x, alpha)
    y = distribution.sample(100_000, seed=1).numpy()
    t = np.random.default_rng(2).normal(size=(6, len(x)))
    exact = np.exp(distribution.log_characteristic_function(t))
    assert exact.shape == (6,)
    noticed = assert_mean_close(np.cos(y @ t.T), exact, FALSE_FAIL)
    assert np.max(noticed) < 0.013
    assert_mean_close(np.sin(y @ t.T), 0.0, FALSE_FAIL)


def test_characteristic_function_is_an_average_over_random_hyperplanes(assert_mean_close):
    # This is equation 3, and uses no partition.
    alpha, nu, noise = 1.3, 0.7, 0.2
    distribution = make(PLANE, alpha, nu, noise)
    t = np.array([[0.3, -1.0, 0.8], [1.0, 1.0, -0.5]])
    h = np.random.default_rng(3).normal(size=(200_000, 3))
    signs = np.sign(h[:, :1] + h[:, 1:] @ PLANE.T)
    exact = -distribution.log_characteristic_function(t) - 0.5 * noise**2 * np.sum(t**2, axis=1)
    assert_mean_close((nu / 2) ** (alpha / 2) * np.abs(signs @ t.T) ** alpha, exact, FALSE_FAIL)


@pytest.mark.parametrize("alpha", [0.3, 1.0, 1.6])  # 2 is in `test_index_two_is_a_gaussian_process`
def test_one_point_is_symmetric_stable(alpha):
    nu = 1.7
    f = make(LINE, alpha, nu, 0.0).sample(4000, seed=4)
    marginal = Stable(double(alpha), double(0.0), double(0.0), double(np.sqrt(nu / 2.0)))
    for column in f.numpy().T[::3]:
        pvalue = stats.kstest(column, lambda v: marginal.cdf(v).numpy()).pvalue
        assert pvalue > FALSE_FAIL


@pytest.mark.parametrize("alpha", [0.8, 1.5])
def test_covariances_have_the_marginals_of_corollary_1(alpha):
    # S(alpha/2, nu, beta) is nu times a stable variable of scale cos(pi alpha / 4)^(2/alpha).
    nu, noise = 1.7, 0.4
    distribution = make(LINE[:2], alpha, nu, noise)
    q = distribution.covariance(distribution.sample_scales(4000, seed=5)).numpy()
    scale = double(nu * np.cos(np.pi * alpha / 4.0) ** (2.0 / alpha))
    for values, beta in [(q[:, 0, 0] - noise**2, 1.0), (q[:, 0, 1], angle_kernel(LINE[:2])[0, 1])]:
        marginal = Stable(double(alpha / 2.0), double(beta), double(0.0), scale)
        assert stats.kstest(values, lambda v, m=marginal: m.cdf(v).numpy()).pvalue > FALSE_FAIL


@pytest.mark.parametrize("alpha", [0.6, 1.1, 1.8])
def test_wide_networks_have_this_limit(assert_mean_close, alpha):
    # Proposition 1: with p units the characteristic function is the mean of exp(-v_p). Here v_p is
    # the average of p draws of (nu/2)^(alpha/2) |t.tau|^alpha, each between 0 and 1.5. The
    # difference is about their variance / (2p), less than 0.003.
    nu, units, networks = 1.3, 100, 12_000
    rng = np.random.default_rng(6)
    signs = np.sign(np.einsum("npi,ji->npj", rng.normal(size=(networks, units, 3)), _ones(PLANE)))
    weights = stats.levy_stable.rvs(alpha, 0.0, size=(networks, units), random_state=rng)
    f = np.sqrt(nu / 2.0) * units ** (-1.0 / alpha) * np.einsum("np,npj->nj", weights, signs)
    t = np.array([[0.5, -0.4, 0.3], [0.2, 0.6, -0.7], [1.0, 0.0, 0.0]])
    distribution = make(PLANE, alpha, nu, 0.0)
    values = np.cos(f @ t.T)
    exact = np.exp(distribution.log_characteristic_function(t))
    error = stats.norm.isf(FALSE_FAIL / 6) * values.std(axis=0) / np.sqrt(networks)
    assert np.all(np.abs(values.mean(axis=0) - exact) < error + 0.003)
    assert np.max(error) < 0.04


def _ones(x):
    return np.concatenate([np.ones([len(x), 1]), x], axis=1)


def test_atoms_with_one_pattern_are_merged_without_a_change_of_the_distribution():
    exact = hyperplanes.exact(LINE)
    refined = hyperplanes.refine(exact, LINE, 500, seed=0)
    t = np.random.default_rng(7).normal(size=(5, 4))
    distributions = [make(LINE, 0.9, partition=p) for p in (exact, refined)]
    values = [distribution.log_characteristic_function(t) for distribution in distributions]
    np.testing.assert_allclose(*values, rtol=1e-9)
    np.testing.assert_allclose(
        *[distribution.log_prob(t) for distribution in distributions], rtol=1e-8
    )
    assert distributions[1].sample_scales(3, seed=1).shape == (3, refined.num_atoms)


def test_small_indices_overflow_to_infinities_not_to_nan():
    distribution = make(LINE, 0.004)
    y = distribution.sample(1000, seed=8)
    assert not np.any(np.isnan(y))
    assert np.any(np.isinf(y))
    assert not np.any(np.isnan(distribution.log_prob_with_error(double([0.1, 1.0, 2.0, 3.0]))))
    single = StableProcess(LINE.tolist(), 0.1, 1.0, 0.5, hyperplanes.exact(LINE))
    assert single.dtype == tf.float32
    assert np.all(np.isfinite(single.sample_scales(1000, seed=9)))
    assert not np.any(np.isnan(single.sample(1000, seed=9)))


# Densities ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [0.3, 2.0])
def test_one_point_at_index_one_is_voigt(noise):
    nu = 1.3
    distribution = make(LINE[:1], 1.0, nu, noise)
    y = np.array([-6.0, -0.5, 0.0, 1.0, 30.0])
    expected = np.log(special.voigt_profile(y, noise, np.sqrt(nu / 2.0)))
    estimate, error = distribution.log_prob_with_error(y[:, np.newaxis], 200_000, seed=10)
    check_errors(estimate, error, expected)
    assert np.max(error) < 0.012
    estimate, error = distribution.log_prob_with_error(y[:, np.newaxis])
    np.testing.assert_array_equal(distribution.log_prob(y[:, np.newaxis]), estimate)
    check_errors(estimate, error, expected)


def test_one_point_without_noise_is_stable():
    y = np.array([[-3.0], [0.0], [1.0], [1e6]])
    distribution = make(LINE[:1], [[1.0], [2.0]], [0.5, 2.0], 0.0)
    stddev = np.sqrt([0.5, 2.0])
    actual = distribution.log_prob(y[:, np.newaxis, np.newaxis])
    assert actual.shape == (4, 2, 2)
    np.testing.assert_allclose(actual[:, 0], stats.cauchy.logpdf(y, 0.0, stddev / np.sqrt(2.0)))
    np.testing.assert_allclose(actual[:, 1], stats.norm.logpdf(y, 0.0, stddev), rtol=1e-9)


@pytest.mark.parametrize("x", [LINE, PLANE], ids=["line", "plane"])
def test_index_two_is_a_gaussian_process(assert_variance_close, x):
    nu, noise = 1.3, 0.4
    distribution = make(x, 2.0, nu, noise)
    covariance = nu * angle_kernel(x) + noise**2 * np.eye(len(x))
    normal = stats.multivariate_normal(np.zeros(len(x)), covariance)
    y = np.random.default_rng(11).normal(size=(5, len(x)))
    estimate, error = distribution.log_prob_with_error(y)
    np.testing.assert_allclose(estimate, normal.logpdf(y), rtol=1e-6)
    np.testing.assert_allclose(error, 0.0, atol=1e-6)
    np.testing.assert_allclose(distribution.covariance(), covariance, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(distribution.variance(), np.diagonal(covariance), rtol=1e-6)
    np.testing.assert_array_equal(
        distribution.sample_scales(3, seed=1), np.zeros([3, distribution.partition.num_atoms])
    )
    characteristic = -0.5 * np.einsum("ki,ij,kj->k", y, covariance, y)
    np.testing.assert_allclose(
        distribution.log_characteristic_function(y), characteristic, rtol=1e-6
    )
    assert_variance_close(distribution.sample(50_000, seed=12), np.diagonal(covariance), FALSE_FAIL)


@pytest.mark.parametrize("alpha", [0.5, 1.1, 1.8])
@pytest.mark.parametrize("size", [2, 3])
def test_density_of_a_few_points_is_the_references(size, alpha):
    nu, noise = 1.3, 0.5
    y = np.array([[0.4, -0.3, 2.0], [-1.5, 1.0, 0.5]])[:, :size]
    x = LINE[:size]
    signs, probabilities = reference.line_partition(x[:, 0])
    estimate, error = make(x, alpha, nu, noise).log_prob_with_error(y, 50_000, seed=13)
    expected = [
        reference.importance_posterior(row, signs, probabilities, alpha, nu, noise, 50_000, 14)
        for row in y
    ]
    expected = np.array([result["log_evidence"] for result in expected])
    check_errors(estimate, error, *expected.T)
    assert np.max(error) < 0.05


def test_density_without_noise():
    # Two points: f = (b1 + b2, b1 - b2) with independent symmetric stable b of scales c
    # q^(1/alpha).
    alpha, nu = 1.4, 0.8
    distribution = make(LINE[:2], alpha, nu, 0.0)
    q = 0.5 + 0.5 * angle_kernel(LINE[:2])[0, 1]
    f = np.array([[0.5, 0.2], [2.0, -1.0]])
    expected = -np.log(2.0)
    for b, p in [(f.sum(axis=1) / 2.0, q), ((f[:, 0] - f[:, 1]) / 2.0, 1.0 - q)]:
        scale = np.sqrt(nu / 2.0) * p ** (1.0 / alpha)
        expected = expected + stats.levy_stable.logpdf(b, alpha, 0.0, 0.0, scale)
    estimate, error = distribution.log_prob_with_error(f, 100_000, seed=15)
    check_errors(estimate, error, expected)


def test_chunks_do_not_change_the_estimate(monkeypatch):
    distribution = make(PLANE, [[1.1], [0.7]], [1.0, 2.0, 3.0], num_importance_samples=5000)
    y = np.random.default_rng(16).normal(size=(4, 5, 1, 1, 3))
    whole, error = distribution.log_prob_with_error(y)
    assert whole.shape == error.shape == (4, 5, 2, 3)
    np.testing.assert_array_equal(distribution.log_prob(y), whole)
    one = make(PLANE, 0.7, 3.0, num_importance_samples=5000).log_prob_with_error(y[1, 2, 0, 0])
    check_errors(one[0], one[1], whole[1, 2, 1, 2], error[1, 2, 1, 2])
    monkeypatch.setattr(density, "_CHUNK", 300_000)
    chunked, chunked_error = distribution.log_prob_with_error(y)
    check_errors(chunked, chunked_error, whole, error)
    np.testing.assert_allclose(chunked_error, error, rtol=0.5)


# Given the scales --------------------------------------------------------------------------------


@pytest.mark.parametrize("include_noise", [True, False])
def test_conditional_distribution_is_gaussian_conditioning(include_noise):
    alpha, nu, noise = 1.2, 0.9, 0.3
    both = np.array([[0.1], [-1.0], [0.8], [2.0], [-0.3]])
    observed, new = both[:3], both[3:]
    partition = hyperplanes.exact(both)
    distribution = make(new, alpha, nu, noise, partition)
    log_s = distribution.sample_scales(4, seed=17).numpy()
    y = np.array([1.0, -2.0, 0.5])
    signs, q = partition.signs(both).astype(float), partition.probabilities
    d = nu * q ** (2.0 / alpha) * np.exp(log_s)
    covariance = np.einsum("il,kl,jl->kij", signs, d, signs)
    q_oo = covariance[:, :3, :3] + noise**2 * np.eye(3)
    q_new = covariance[:, 3:, 3:] + include_noise * noise**2 * np.eye(2)
    gain = covariance[:, 3:, :3] @ np.linalg.inv(q_oo)
    conditional = distribution.conditional(log_s, observed, y, include_noise)
    np.testing.assert_allclose(conditional.mean(), gain @ y, rtol=1e-8, atol=1e-10)
    expected = q_new - gain @ covariance[:, :3, 3:]
    np.testing.assert_allclose(conditional.covariance(), expected, rtol=1e-8, atol=1e-10)
    assert np.all(np.diagonal(conditional.scale.to_dense(), axis1=-2, axis2=-1) >= 0.0)
    given = distribution.given_scales(log_s, include_noise)
    np.testing.assert_allclose(given.covariance(), q_new, rtol=1e-10)
    np.testing.assert_allclose(distribution.covariance(log_s, include_noise), q_new, rtol=1e-12)
    z = np.array([0.3, -0.8])
    normals = [stats.multivariate_normal(np.zeros(2), part) for part in q_new]
    np.testing.assert_allclose(given.log_prob(z), [n.logpdf(z) for n in normals], rtol=1e-8)


def test_a_variance_that_dwarfs_all_others_leaves_the_rest():
    # Atom 0 does not separate the two points and has variance 1e20. In the limit y2 given y1 is y1
    # plus a difference that comes from the other atom and the noise.
    distribution = make(LINE[:1], 1.0, 1.0, 0.1, hyperplanes.exact(LINE[:2]))
    same = distribution.partition.signs(LINE[:2]).prod(axis=0) > 0
    log_d = np.where(same, np.log(1e20), np.log(0.2))
    log_s = log_d - 2.0 * np.log(distribution.partition.probabilities)
    conditional = distribution.conditional(log_s, LINE[1:2], [3.0])
    np.testing.assert_allclose(conditional.mean(), [3.0], rtol=1e-6)
    np.testing.assert_allclose(conditional.variance(), [4 * 0.2 + 2 * 0.01], rtol=1e-5)


def test_more_points_than_atoms_can_be_sampled_without_noise():
    x = np.linspace(-1.0, 1.0, 40)[:, np.newaxis]
    distribution = make(x, 1.1, partition=hyperplanes.sampled(1, 10, seed=0))
    log_s = distribution.sample_scales(seed=18)
    f = distribution.conditional(log_s, x[:20], np.ones(20), include_noise=False).sample(5, seed=19)
    assert f.shape == (5, 40)
    assert np.all(np.isfinite(f))
    assert len(np.unique(np.round(f[0], 9))) <= 11


def test_posterior_by_weighted_scales(assert_mean_close):
    # Self-normalised importance sampling of Proposition 2 is compared with the reference's.
    alpha, nu, noise = 1.2, 1.0, 0.5
    signs, probabilities = reference.line_partition(LINE[:3, 0])
    y = np.array([0.5, -1.0])
    levels = np.array([-1.0, 0.0, 1.0])
    expected, expected_error = reference.importance_posterior(
        y, signs, probabilities, alpha, nu, noise, 100_000, 20, levels
    )["cdf"]
    partition = hyperplanes.exact(LINE[:3])
    new, old = (make(x, alpha, nu, noise, partition) for x in (LINE[2:3], LINE[:2]))
    log_s = new.sample_scales(100_000, seed=21)
    weights = old.given_scales(log_s).prob(y).numpy()
    conditional = new.conditional(log_s, LINE[:2], y, include_noise=False)
    normal = tfd.Normal(conditional.mean()[:, :1], conditional.stddev()[:, :1])
    cdf = normal.cdf(levels).numpy()
    estimate = weights @ cdf / weights.sum()
    error = np.sqrt(weights**2 @ (cdf - estimate) ** 2) / weights.sum()
    check_errors(estimate, error, expected[2], expected_error[2])


# Shapes, dtypes, moments, compilation ------------------------------------------------------------


def test_batches():
    distribution = make(LINE, [[1.1], [2.0]], 1.0, [0.3, 0.5, 0.7])
    assert distribution.batch_shape == (2, 3)
    assert distribution.event_shape == (4,)
    assert distribution[0].batch_shape == (3,)
    assert distribution.sample([5, 6], seed=1).shape == (5, 6, 2, 3, 4)
    log_s = distribution.sample_scales([5, 6], seed=1)
    assert log_s.shape == (5, 6, 2, 3, 4)
    assert distribution.covariance(log_s).shape == (5, 6, 2, 3, 4, 4)
    assert distribution.given_scales(np.zeros(4)).batch_shape == (2, 3)
    assert distribution.conditional(np.zeros(4), LINE[:2], np.zeros(2)).batch_shape == (2, 3)
    conditional = distribution.conditional(np.zeros(4), LINE[:2], np.zeros([7, 1, 1, 2]))
    assert conditional.mean().shape == (7, 2, 3, 4)
    assert distribution.log_prob(np.zeros(4)).shape == (2, 3)
    assert distribution.log_characteristic_function(np.zeros([7, 1, 1, 4])).shape == (7, 2, 3)
    assert distribution.mean().shape == distribution.variance().shape == (2, 3, 4)
    assert distribution.covariance().shape == (2, 3, 4, 4)


def test_moments():
    distribution = make(LINE[:2], [2.0, 1.5, 1.0], 1.3, 0.0)
    expected = [[0.0, 0.0], [0.0, 0.0], [np.nan, np.nan]]
    np.testing.assert_array_equal(distribution.mean(), expected)
    np.testing.assert_allclose(distribution.variance(), [[1.3, 1.3], 2 * [np.inf], 2 * [np.inf]])
    heavy = [[np.inf, np.nan], [np.nan, np.inf]]
    np.testing.assert_array_equal(distribution.covariance()[1:], [heavy, heavy])
    strict = make(LINE[:2], 0.9, allow_nan_stats=False)
    with pytest.raises(tf.errors.InvalidArgumentError, match="undefined for alpha <= 1"):
        strict.mean()
    with pytest.raises(tf.errors.InvalidArgumentError, match="undefined for alpha < 2"):
        strict.covariance()


def test_dtypes():
    partition = hyperplanes.exact(LINE)
    assert StableProcess(LINE, 1.1, partition=partition).dtype == tf.float64
    assert StableProcess(LINE.tolist(), 1.1, partition=partition).dtype == tf.float32
    single = StableProcess(LINE, tf.constant(1.1), 1.3, 0.4, partition)
    exact = make(LINE, np.float32(1.1), np.float32(1.3), np.float32(0.4))
    y = np.array([0.4, -0.3, 2.0, 1.0])
    log_s = exact.sample_scales(seed=22).numpy()
    for method, argument in [
        ("log_prob", y),
        ("log_characteristic_function", y),
        ("covariance", log_s),
    ]:
        actual = getattr(single, method)(argument.astype(np.float32))
        assert actual.dtype == tf.float32
        np.testing.assert_allclose(actual, getattr(exact, method)(argument), rtol=2e-6)
    assert single.conditional(log_s.astype(np.float32), LINE[:2], [1.0, 2.0]).dtype == tf.float32
    assert single.sample(seed=1).dtype == tf.float32


def test_variables_count_when_they_are_used():
    nu, noise = (tf.Variable(v, dtype=tf.float64) for v in (1.3, 0.0))
    distribution = StableProcess(LINE, double(1.1), nu, noise, hyperplanes.exact(LINE))
    y = np.ones(4)
    before = distribution.log_prob(y)
    nu.assign(2.6)
    noise.assign(0.4)
    assert distribution.log_prob(y) != before
    np.testing.assert_allclose(distribution.log_prob(y), make(LINE, 1.1, 2.6).log_prob(y))
    assert set(map(id, distribution.trainable_variables)) == {id(nu), id(noise)}
    # A noise that is a variable is not taken to be 0 for good because it is 0 once.
    noise.assign(0.0)
    single = StableProcess(LINE[:1], double(1.1), nu, noise, hyperplanes.exact(LINE[:1]))
    before = single.log_prob(y[:1])
    noise.assign(3.0)
    assert single.log_prob(y[:1]) < before - 0.5


@pytest.mark.slow
def test_compiled():
    x = PLANE[:2]
    partition = hyperplanes.exact(x)

    def everything(y, alpha, log_s):
        distribution = StableProcess(x, alpha, double(1.3), double(0.4), partition, 100)
        conditional = distribution.conditional(log_s, x[:1], y[:1])
        with tf.GradientTape() as tape:
            tape.watch(alpha)
            average = distribution.log_prob(y)
        # XLA draws other numbers: the density is compared at alpha = 2, where they do not matter.
        return (
            tf.where(alpha >= 2.0, average, tf.zeros_like(average)),
            conditional.mean(),
            tf.abs(conditional.stddev()),
            distribution.log_characteristic_function(y),
            tf.math.is_finite(distribution.sample(seed=[1, 2])),
            tf.math.is_finite(tape.gradient(average, alpha)),
        )

    arguments = double(np.ones(len(x))), double([1.1, 2.0]), double(np.zeros(partition.num_atoms))
    expected = everything(*arguments)
    actual = tf.function(everything, jit_compile=True)(*arguments)
    for a, b in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("shape", [[None, 3], None])
def test_shapes_that_are_unknown_until_run(shape):
    distribution = make(PLANE, [1.1, 2.0], num_importance_samples=100)
    y = np.random.default_rng(25).normal(size=(4, 1, 3))
    if shape is not None:
        distribution, y = distribution[0], y[:, 0]
    compiled = tf.function(
        distribution.log_prob, input_signature=[tf.TensorSpec(shape, tf.float64)]
    )
    np.testing.assert_allclose(compiled(y), distribution.log_prob(y), rtol=1e-12)


# Gradients ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["sample", "log_prob", "mean of the conditional"])
@pytest.mark.parametrize("alpha", [0.6, 1.0, 1.7])
def test_gradients_are_finite_differences(method, alpha):
    partition = hyperplanes.exact(LINE)
    y = double([0.4, -0.3, 2.0, 1.0])
    log_s = double(np.random.default_rng(23).normal(size=partition.num_atoms))

    def value(parameters):
        distribution = StableProcess(LINE, *parameters, partition, num_importance_samples=200)
        if method == "sample":
            return tf.reduce_sum(tf.tanh(distribution.sample(50, seed=[0, 24])))
        if method == "log_prob":
            return distribution.log_prob(y)
        return tf.reduce_sum(distribution.conditional(log_s, LINE[:2], y[:2]).mean())

    parameters = [double(alpha), double(1.3), double(0.4)]
    with tf.GradientTape() as tape:
        tape.watch(parameters)
        result = value(parameters)
    gradients = tape.gradient(result, parameters)
    step = 1e-6
    for k, gradient in enumerate(gradients):
        ends = [
            value([p + sign * step * (j == k) for j, p in enumerate(parameters)])
            for sign in (1.0, -1.0)
        ]
        np.testing.assert_allclose(gradient, (ends[0] - ends[1]) / (2 * step), rtol=1e-5, atol=1e-7)


# Errors ------------------------------------------------------------------------------------------


def given(hyperplanes, probabilities):
    return types.SimpleNamespace(hyperplanes=hyperplanes, probabilities=probabilities)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"alpha": 0.0}, r"`alpha` must be in \(0, 2\]. Received: alpha=0.0"),
        ({"alpha": 2.1}, r"`alpha` must be in \(0, 2\]. Received: alpha=2.1"),
        ({"alpha": np.nan}, r"`alpha` must be in \(0, 2\]. Received: alpha=nan"),
        ({"nu": 0.0}, "`nu` must be positive and finite. Received: nu=0.0"),
        ({"nu": np.inf}, "`nu` must be positive and finite. Received: nu=inf"),
        ({"observation_noise_scale": -1.0}, "must be at least 0 and finite. Received: observation"),
        ({"index_points": LINE[:, 0]}, r"`index_points` must have shape \[N, 1\].*Received.*\(4,"),
        ({"index_points": PLANE}, r"must have shape \[N, 1\].*Received: index_points.shape=\(3, 2"),
        ({"index_points": LINE[:0]}, r"N at least 1.*Received: index_points.shape=\(0, 1\)"),
        ({"index_points": [[np.nan], [1.0]]}, "must be finite. Received: index_points with 1"),
        ({"partition": None}, "must have the attributes `hyperplanes`.*Received: partition=None"),
        (
            {"partition": given(np.ones([2, 2]), [1.0])},
            r"hyperplanes.shape=\(2, 2\), pro",
        ),
        ({"partition": given(np.ones([2, 2]), [0.5, 0.6])}, "of sum 1. Received.*sum 1.1"),
        ({"num_importance_samples": 0}, "positive integer. Received: num_importance_samples=0"),
    ],
)
def test_errors_of_the_constructor(arguments, message):
    good = {"index_points": LINE, "alpha": 1.1, "partition": hyperplanes.exact(LINE)}
    with pytest.raises(ValueError, match=message):
        StableProcess(**{**good, **arguments})


def test_a_partition_is_required():
    with pytest.raises(ValueError, match="stable_process.partition.*Received: partition=None"):
        StableProcess(LINE, 1.1)


def test_points_must_be_known():
    @tf.function
    def function(x):
        return StableProcess(x, 1.1, partition=hyperplanes.exact(LINE)).sample(seed=1)

    with pytest.raises(ValueError, match="`index_points` must have a known value. Received"):
        function(tf.constant(LINE))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda distribution: distribution.covariance(np.zeros(3)),
            r"`log_scales` must have shape \[..., 4\].*\(3,\)",
        ),
        (
            lambda distribution: distribution.given_scales(0.0),
            r"`log_scales` must have shape \[..., 4\].*\(\)",
        ),
        (
            lambda distribution: distribution.conditional(np.zeros(4), LINE[:2], np.zeros(3)),
            r"`observations` must.*2",
        ),
        (
            lambda distribution: distribution.conditional(np.zeros(4), PLANE, np.zeros(3)),
            "`observation_index_points`",
        ),
        (
            lambda distribution: distribution.log_prob_with_error(np.zeros(4), 0),
            "positive.*Received: num_samples=0",
        ),
    ],
)
def test_errors_of_the_methods(call, message):
    distribution = make(LINE, 1.1)
    with pytest.raises(ValueError, match=message):
        call(distribution)


def test_singular_covariances_without_noise():
    repeated = LINE[[0, 1, 1]]
    distribution = make(repeated, 1.1, 1.0, 0.0)
    message = "must be positive where the covariance is singular.*3 points with 2 independent"
    with pytest.raises(ValueError, match=message):
        distribution.log_prob(np.zeros(3))
    with pytest.raises(ValueError, match=message):
        distribution.conditional(np.zeros(2), repeated, np.zeros(3))
    assert distribution.sample(5, seed=1).shape == (5, 3)


def test_checks_of_variables():
    alpha = tf.Variable(1.0)
    distribution = StableProcess(LINE, alpha, partition=hyperplanes.exact(LINE), validate_args=True)
    distribution.sample(seed=1)
    alpha.assign(2.5)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"must be in \(0, 2\]"):
        distribution.sample(seed=1)
