"""`PositiveStable` and `Stable` against closed forms, SciPy, transforms and their own samples."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import integrate, stats

from tfp_fnspace.distributions import PositiveStable, Stable

tfd = tfp.distributions

INDICES = [0.1, 0.3, 0.5, 0.75, 0.95]
FALSE_FAIL = 1e-6  # for each Kolmogorov-Smirnov test


def double(value):
    return tf.constant(value, tf.float64)


def scipy_scale(index):
    """Returns the scale of the positive stable distribution in SciPy's parameterisation."""
    return np.cos(np.pi * index / 2.0) ** (1.0 / index)


def body(distribution, size=4000):
    """Returns points between the 1 and 99 % points of a distribution, from its samples."""
    return np.quantile(distribution.sample(size, seed=5), [0.01, 0.1, 0.35, 0.6, 0.9, 0.99], axis=0)


# Values -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", INDICES)
def test_positive_distribution_is_scipys(index):
    distribution = PositiveStable(double(index), double(3.0))
    x = body(distribution)
    expected = stats.levy_stable(index, 1.0, 0.0, 3.0 * scipy_scale(index))
    np.testing.assert_allclose(distribution.prob(x), expected.pdf(x), rtol=1e-6)
    np.testing.assert_allclose(distribution.cdf(x), expected.cdf(x), rtol=1e-6)
    np.testing.assert_allclose(distribution.survival_function(x), 1.0 - expected.cdf(x), rtol=1e-6)


def test_index_one_half_is_levys_distribution():
    x = np.array([1e-3, 0.02, 0.1, 0.3, 1.0, 5.0, 1e3, 1e10])
    distribution, levy = PositiveStable(double(0.5)), stats.levy(scale=0.5)
    np.testing.assert_allclose(distribution.log_prob(x), levy.logpdf(x), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(distribution.log_cdf(x), levy.logcdf(x), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(distribution.survival_function(x), levy.sf(x), rtol=1e-9)
    np.testing.assert_allclose(
        distribution.log_prob_of_log(np.log(x)), levy.logpdf(x) + np.log(x), rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize("index", INDICES)
def test_laplace_transform(index):
    distribution = PositiveStable(double(index))
    # The trapezoidal rule integrates the density of log s times exp(-lambda s): both ends vanish.
    log_s = np.linspace(-30.0, 30.0, 4001) if index > 0.2 else np.linspace(-110.0, 8.0, 4001)
    density = np.exp(distribution.log_prob_of_log(log_s))
    for rate in [0.1, 1.0, 7.0]:
        integrand = density * np.exp(-rate * np.exp(log_s))
        transform = integrate.trapezoid(integrand, log_s)
        np.testing.assert_allclose(transform, np.exp(-(rate**index)), rtol=1e-7)


@pytest.mark.slow
def test_special_cases_of_the_general_distribution():
    x = np.array([-40.0, -3.0, -0.2, 0.0, 1e-4, 1.0, 2.5, 30.0])
    for distribution, expected in [
        (Stable(double(1.0), 0.0, 0.5, 2.0), stats.cauchy(0.5, 2.0)),
        (Stable(double(2.0), 0.7, 0.5, 2.0), stats.norm(0.5, 2.0 * np.sqrt(2.0))),
        (Stable(double(0.5), 1.0, -41.0, 2.0), stats.levy(-41.0, 2.0)),
        (Stable(double(0.5), -1.0, 41.0, 2.0), stats.levy_l(41.0, 2.0)),
    ]:
        np.testing.assert_allclose(
            distribution.log_prob(x), expected.logpdf(x), rtol=1e-9, atol=1e-9
        )
        np.testing.assert_allclose(distribution.cdf(x), expected.cdf(x), rtol=1e-9, atol=1e-15)
        np.testing.assert_allclose(
            distribution.survival_function(x), expected.sf(x), rtol=1e-8, atol=1e-15
        )


def test_general_distribution_is_scipys():
    # SciPy is right here, but it rounds indices within 0.005 of 1 to 1. It is also slow:
    # `tests/math/test_stable.py` checks more pairs by Zolotarev's integral.
    betas = {
        0.4: [-1.0, 0.7],
        0.8: [-0.5, 1.0],
        1.0: [-1.0, 0.0, 0.7],
        1.2: [-0.5, 1.0],
        1.7: [-1.0, 0.7],
        1.95: [0.0, 1.0],
    }
    pairs = [(alpha, beta) for alpha in betas for beta in betas[alpha]]
    distribution = Stable(*double(np.transpose(pairs)), 1.0, 2.0)
    x = body(distribution)
    density, cdf = distribution.prob(x), distribution.cdf(x)
    for k, pair in enumerate(pairs):
        expected = stats.levy_stable(*pair, 1.0, 2.0)
        message = f"alpha, beta = {pair}"
        np.testing.assert_allclose(density[:, k], expected.pdf(x[:, k]), 1e-6, err_msg=message)
        np.testing.assert_allclose(cdf[:, k], expected.cdf(x[:, k]), 1e-6, err_msg=message)


@pytest.mark.parametrize("index", [0.2, 0.7])
def test_positive_distribution_is_a_case_of_the_general_one(index):
    x = np.array([0.05, 0.4, 3.0, 1e6])
    general = Stable(double(index), 1.0, 0.0, scipy_scale(index))
    special = PositiveStable(double(index))
    np.testing.assert_allclose(general.log_prob(x), special.log_prob(x), rtol=1e-8)
    np.testing.assert_allclose(general.log_cdf(x), special.log_cdf(x), rtol=1e-8)


def test_outside_the_support():
    distribution = PositiveStable(double(0.4))
    np.testing.assert_array_equal(distribution.log_prob([-1.0, 0.0]), [-np.inf, -np.inf])
    np.testing.assert_array_equal(distribution.cdf([-1.0, 0.0]), [0.0, 0.0])
    np.testing.assert_array_equal(distribution.survival_function([-1.0, 0.0]), [1.0, 1.0])
    np.testing.assert_array_equal(Stable(double(0.4), 1.0).prob([-3.0, -0.1]), [0.0, 0.0])
    np.testing.assert_array_equal(Stable(double(0.4), -1.0).cdf([3.0, 0.1]), [1.0, 1.0])


# Moments, shapes, dtypes --------------------------------------------------------------------------


def test_moments():
    distribution = PositiveStable([0.3, 0.5])
    np.testing.assert_array_equal(distribution.mean(), [np.inf, np.inf])
    np.testing.assert_array_equal(distribution.variance(), [np.inf, np.inf])
    distribution = Stable([2.0, 1.5, 1.0, 0.5, 0.5], [0.0, 0.5, 0.0, 1.0, -1.0], 3.0, 2.0)
    np.testing.assert_array_equal(distribution.mean(), [3.0, 3.0, np.nan, np.inf, -np.inf])
    np.testing.assert_array_equal(distribution.variance(), [8.0] + 4 * [np.inf])


def test_an_undefined_mean_may_be_an_error():
    distribution = Stable([0.9], 0.0, allow_nan_stats=False)
    with pytest.raises(tf.errors.InvalidArgumentError, match="undefined for alpha <= 1"):
        distribution.mean()


def test_shapes():
    positive = PositiveStable(tf.fill([3, 1], 0.4), tf.ones([2]))
    assert positive.batch_shape == (3, 2)
    assert positive.event_shape == ()
    assert positive.sample([4, 5], seed=1).shape == (4, 5, 3, 2)
    assert positive.sample_log(4, seed=1).shape == (4, 3, 2)
    assert positive.log_prob(tf.ones([7, 1, 1])).shape == (7, 3, 2)
    assert tfd.Independent(positive, 1).log_prob(tf.ones([3, 2])).shape == (3,)
    general = Stable(tf.fill([3, 1], 1.4), tf.zeros([2]), tf.zeros([4, 1, 1]))
    assert general.batch_shape == (4, 3, 2)
    assert general.sample(5, seed=1).shape == (5, 4, 3, 2)
    assert general.cdf(0.3).shape == (4, 3, 2)
    assert general[0].batch_shape == (3, 2)
    assert general.mean().shape == general.variance().shape == (4, 3, 2)


def test_single_precision_is_as_good_as_the_result():
    x = np.array([0.3, 1.0, 20.0], np.float32)
    for single, exact in [
        (PositiveStable(0.75), PositiveStable(double(0.75))),
        (Stable(0.999, 0.1), Stable(double(np.float32(0.999)), double(np.float32(0.1)))),
    ]:
        assert single.dtype == tf.float32
        np.testing.assert_allclose(single.log_prob(x), exact.log_prob(x), rtol=1e-6)
        np.testing.assert_allclose(single.cdf(x), exact.cdf(x), rtol=1e-6)


@pytest.mark.parametrize(
    "make",
    [PositiveStable, pytest.param(lambda a: Stable(2.0 * a, 0.5), marks=pytest.mark.exhaustive)],
)
@pytest.mark.slow
def test_compiled(make):
    def everything(x, index):
        distribution = make(index)
        # XLA draws other numbers: other tests check their distribution.
        return (
            distribution.log_prob(x),
            distribution.cdf(x),
            tf.math.is_finite(distribution.sample(seed=[1, 2])),
        )

    x, index = double([0.5, 1.0, 2.0]), double([0.3, 0.5, 0.9])
    expected = everything(x, index)
    actual = tf.function(everything, jit_compile=True)(x, index)
    for a, b in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)


# Gradients ----------------------------------------------------------------------------------------


def extreme_gradients(make, parameters, x):
    parameters = [double(p) for p in parameters]
    x = double(x)
    for method in ["log_prob", "cdf", "log_survival_function"]:
        with tf.GradientTape() as tape:
            tape.watch([x, *parameters])
            value = getattr(make(*parameters), method)(x)
        for part in [value, *tape.gradient(value, [x, *parameters])]:
            assert not np.any(np.isnan(part)), method


@pytest.mark.slow
def test_no_gradient_is_nan_at_extreme_points():
    x = np.array([1e-30, 1e-5, 1.0, 1e5, 1e30])
    index, x_grid = np.meshgrid([0.05, 0.5, 0.95], x, indexing="ij")
    extreme_gradients(PositiveStable, [index, 2.0], x_grid)
    alpha, beta, x_grid = np.meshgrid(
        [0.2, 0.95, 1.0, 1.003, 1.5, 2.0], [-1.0, 0.0, 0.99, 1.0], [*-x, 0.0, *x], indexing="ij"
    )
    extreme_gradients(Stable, [alpha, beta, 0.0, 2.0], x_grid)


@pytest.mark.parametrize("alpha", [0.3, 0.6, 0.95])
def test_the_distribution_has_no_density_and_no_gradient_at_the_end_of_its_support(alpha):
    parameters = [double(p) for p in (alpha, 1.0, 0.0, 1.0)]
    x = double([-1.0, 0.0])
    with tf.GradientTape() as tape:
        tape.watch([x, *parameters])
        value = Stable(*parameters).log_prob(x)
    np.testing.assert_array_equal(value, [-np.inf, -np.inf])
    for gradient in tape.gradient(value, [x, *parameters]):
        np.testing.assert_array_equal(gradient, np.zeros_like(gradient))
    np.testing.assert_array_equal(Stable(*parameters).cdf(x), [0.0, 0.0])


def sample_slope(make, parameter, **kwargs):
    with tf.GradientTape() as tape:
        tape.watch(parameter)
        total = tf.reduce_sum(make(parameter, **kwargs))
    return tape.gradient(total, parameter)


@pytest.mark.parametrize("index", [0.3, 0.9])
def test_gradient_of_positive_samples(index):
    def draw(index):
        return PositiveStable(index, double(2.0)).sample_log(20, seed=[3, 4])

    step = 1e-6
    expected = tf.reduce_sum(draw(double(index + step)) - draw(double(index - step))) / (2 * step)
    np.testing.assert_allclose(sample_slope(draw, double(index)), expected, rtol=1e-6)


@pytest.mark.parametrize("which", range(4))
def test_gradient_of_general_samples(which):
    # Four distributions are drawn at once; the parameter of each has its own derivative.
    parameters = [[0.6, 0.96, 1.04, 1.6], 4 * [0.4], 4 * [0.3], 4 * [2.0]]

    def draw(value):
        parts = [double(p) for p in parameters]
        parts[which] = value
        return tf.asinh(Stable(*parts).sample(20, seed=[3, 4]))

    step, value = 1e-6, np.array(parameters[which])
    difference = draw(double(value + step)) - draw(double(value - step))
    expected = tf.reduce_sum(difference, axis=0) / (2 * step)
    np.testing.assert_allclose(sample_slope(draw, double(value)), expected, rtol=1e-6, atol=1e-6)


# Samples ------------------------------------------------------------------------------------------


def check_distribution(samples, cdf):
    assert stats.kstest(np.asarray(samples), cdf).pvalue > FALSE_FAIL


@pytest.mark.parametrize("index", [0.05, 0.5, 0.9])
def test_samples_have_the_positive_distribution(index):
    distribution = PositiveStable(double(index), double(3.0))
    check_distribution(distribution.sample(20000, seed=6), lambda x: distribution.cdf(x).numpy())
    expected = stats.levy_stable(index, 1.0, 0.0, 3.0 * scipy_scale(index))
    check_distribution(distribution.sample(300, seed=7), expected.cdf)


@pytest.mark.parametrize(
    ("alpha", "beta"),
    [(0.4, 1.0), (0.7, -0.5), (0.97, 0.6), (1.0, 0.6), (1.003, 0.6), (1.2, -1.0), (2.0, 0.0)],
)
def test_samples_have_the_general_distribution(alpha, beta):
    distribution = Stable(double(alpha), double(beta), 1.0, 3.0)
    check_distribution(distribution.sample(4000, seed=8), lambda x: distribution.cdf(x).numpy())


@pytest.mark.parametrize(("alpha", "beta"), [(0.7, -0.5), (1.0, 0.6), (1.6, 1.0)])
def test_samples_have_scipys_distribution(alpha, beta):
    distribution = Stable(double(alpha), double(beta), 1.0, 3.0)
    check_distribution(
        distribution.sample(300, seed=9), stats.levy_stable(alpha, beta, 1.0, 3.0).cdf
    )


def test_logarithms_of_samples_are_finite_in_single_precision():
    distribution = PositiveStable(0.05)
    log_s = distribution.sample_log(1_000_000, seed=10)
    assert log_s.dtype == tf.float32
    assert np.all(np.isfinite(log_s))
    assert np.any(np.isinf(distribution.sample(10_000, seed=10)))  # samples themselves overflow


# Parameters ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", [0.0, 1.0, -0.2, 1.5, np.nan, np.inf, [0.5, 2.0]])
def test_refuses_an_index_outside_the_unit_interval(index):
    with pytest.raises(ValueError, match=r"`index` must be in \(0, 1\). Received: index="):
        PositiveStable(index)


@pytest.mark.parametrize("scale", [0.0, -1.0, np.nan, np.inf])
@pytest.mark.parametrize("make", [lambda s: PositiveStable(0.5, s), lambda s: Stable(1.5, 0, 0, s)])
def test_refuses_a_scale_that_is_not_positive(make, scale):
    with pytest.raises(ValueError, match="`scale` must be positive and finite. Received: scale="):
        make(scale)


@pytest.mark.parametrize("alpha", [0.0, -1.0, 2.01, np.nan, np.inf])
def test_refuses_an_alpha_outside_its_range(alpha):
    with pytest.raises(ValueError, match=r"`alpha` must be in \(0, 2\]. Received: alpha="):
        Stable(alpha, 0.0)


@pytest.mark.parametrize("beta", [-1.01, 1.5, np.nan])
def test_refuses_a_beta_outside_its_range(beta):
    with pytest.raises(ValueError, match=r"`beta` must be in \[-1, 1\]. Received: beta="):
        Stable(1.5, beta)


def test_refuses_a_location_that_is_not_finite():
    with pytest.raises(ValueError, match="`loc` must be finite. Received: loc="):
        Stable(1.5, 0.0, np.nan)


def test_refuses_parameters_of_several_dtypes():
    with pytest.raises(TypeError, match="one floating dtype. Received: dtypes="):
        PositiveStable(double(0.5), tf.constant(1.0))


def test_a_variable_is_checked_at_use_and_its_gradient_flows():
    index = tf.Variable(0.5)
    distribution = PositiveStable(index, validate_args=True)
    with tf.GradientTape() as tape:
        value = distribution.log_prob(1.0)
    assert np.isfinite(tape.gradient(value, index))
    index.assign(1.5)
    with pytest.raises(tf.errors.InvalidArgumentError, match="`index` must be in"):
        distribution.log_prob(1.0)


@pytest.mark.parametrize("family", [PositiveStable, Stable])
def test_trainable_version_stays_inside_the_range(family):
    properties = family.parameter_properties(dtype=tf.float64)
    for name, part in properties.items():
        if name != "loc":
            bijector = part.default_constraining_bijector_fn()
            family(
                **{**dict.fromkeys(properties, double(0.5)), name: bijector(double([-3.0, 3.0]))}
            )


def test_what_rounds_to_the_end_of_the_support_is_allowed():
    """TFP's event-space tests draw such points: the exponential of -88 is 0 in float32."""
    distribution = PositiveStable(np.float32(0.55), np.float32(1.3), validate_args=True)
    x = distribution.experimental_default_event_space_bijector()(tf.constant(-88.0))
    assert distribution.log_prob(x) == -np.inf and distribution.cdf(x) == 0.0
    with pytest.raises(tf.errors.InvalidArgumentError, match="must not be negative"):
        distribution.log_prob(-1.0)


def test_support_bijectors():
    positive = PositiveStable(0.5).experimental_default_event_space_bijector()
    assert positive(-3.0) > 0.0
    assert Stable(1.5, 0.0).experimental_default_event_space_bijector()(-3.0) == -3.0
