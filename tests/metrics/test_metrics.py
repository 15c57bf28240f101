"""`tfp_fnspace.metrics` against SciPy, integration, brute force and hand values."""

import itertools

import keras
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import integrate, stats

from tfp_fnspace import metrics
from tfp_fnspace.distributions import quantile

tfd = tfp.distributions

# Function and Keras metric, options, default name: each pair runs through every test below.
PAIRS = {
    "rmse": (metrics.rmse, metrics.RMSE, {}, "rmse"),
    "mae": (metrics.mae, metrics.MAE, {}, "mae"),
    "nll": (metrics.nll, metrics.NLL, {}, "nll"),
    "crps": (metrics.crps, metrics.CRPS, {}, "crps"),
    "coverage": (metrics.interval_coverage, metrics.IntervalCoverage, {}, "coverage_90"),
    "coverage_50": (
        metrics.interval_coverage,
        metrics.IntervalCoverage,
        {"level": 0.5},
        "coverage_50",
    ),
    "width": (metrics.interval_width, metrics.IntervalWidth, {}, "width_90"),
    "width_29": (metrics.interval_width, metrics.IntervalWidth, {"level": 0.29}, "width_29"),
    "interval_score": (metrics.interval_score, metrics.IntervalScore, {}, "interval_score_90"),
    "pinball": (metrics.pinball_loss, metrics.PinballLoss, {"level": 0.9}, "pinball_90"),
    "dawid_sebastiani": (
        metrics.dawid_sebastiani_score,
        metrics.DawidSebastianiScore,
        {},
        "dawid_sebastiani",
    ),
    "calibration": (metrics.calibration_error, metrics.CalibrationError, {}, "calibration_error"),
    "calibration_4": (
        metrics.calibration_error,
        metrics.CalibrationError,
        {"num_levels": 4},
        "calibration_error",
    ),
}
N, K, D = 7, 3, 2


def normal(loc, scale):
    return tfd.Independent(tfd.Normal(loc, scale), 1)


def mixture(probs, loc, scale):
    return tfd.MixtureSameFamily(tfd.Categorical(probs=probs), normal(loc, scale))


def parameters(family, dtype="float64", seed=0):
    """Returns NumPy arguments of `normal` or `mixture`, with N as the first axis."""
    rng = np.random.default_rng(seed)
    shape = (N, D) if family is normal else (N, K, D)
    arrays = [rng.normal(size=shape), rng.uniform(0.3, 2.0, size=shape)]
    if family is mixture:
        arrays.insert(0, rng.dirichlet(np.ones(K), size=N))
    return [a.astype(dtype) for a in arrays]


def targets(dtype="float64"):
    """Returns [N, D] with a missing entry, and a row of which nothing is known."""
    y = np.random.default_rng(1).normal(size=(N, D)).astype(dtype)
    y[2, 1] = np.nan
    y[4] = np.nan
    return y


def crps_by_integration(cdf, y):
    below, _ = integrate.quad(lambda x: cdf(x) ** 2, -np.inf, y, limit=400)
    above, _ = integrate.quad(lambda x: (1.0 - cdf(x)) ** 2, y, np.inf, limit=400)
    return below + above


# Values ------------------------------------------------------------------------------------------


def test_normal_values_are_those_of_scipy():
    loc, scale = parameters(normal)
    y = targets()
    seen = ~np.isnan(y)
    error, distribution = (y - loc)[seen], stats.norm(loc[seen], scale[seen])
    probability = distribution.cdf(y[seen])
    levels = np.arange(1, 20) / 20
    frequency = (probability[:, None] <= levels).mean(axis=0)
    expected = {
        metrics.rmse: np.sqrt(np.mean(error**2)),
        metrics.mae: np.mean(np.abs(error)),
        metrics.nll: -np.sum(distribution.logpdf(y[seen])) / (N - 1),
        metrics.crps: np.mean(
            [
                crps_by_integration(stats.norm(m, s).cdf, t)
                for m, s, t in zip(loc[seen], scale[seen], y[seen], strict=True)
            ]
        ),
        metrics.interval_coverage: np.mean(np.abs(probability - 0.5) <= 0.45),
        metrics.interval_width: np.mean(2 * 1.6448536269514722 * scale[seen]),
        metrics.calibration_error: np.mean(np.abs(frequency - levels)),
    }
    for function, value in expected.items():
        np.testing.assert_allclose(
            function(y, normal(loc, scale)), value, rtol=1e-8, err_msg=function.__name__
        )


def test_mixture_values_are_those_of_scipy():
    probs, loc, scale = parameters(mixture)
    y = targets()
    seen = list(zip(*np.nonzero(~np.isnan(y)), strict=True))
    crps = [
        crps_by_integration(
            lambda x, n=n, d=d: np.dot(probs[n], stats.norm.cdf(x, loc[n, :, d], scale[n, :, d])),
            y[n, d],
        )
        for n, d in seen
    ]
    density = np.nanprod(stats.norm.pdf(y[:, None], loc, scale), axis=-1)  # NaN: factor 1, [N, K]
    known = ~np.isnan(y).all(axis=1)
    distribution = mixture(probs, loc, scale)
    np.testing.assert_allclose(metrics.crps(y, distribution), np.mean(crps), rtol=1e-6)
    np.testing.assert_allclose(
        metrics.nll(y, distribution), -np.mean(np.log(np.sum(probs * density, 1))[known]), rtol=1e-8
    )


def test_nll_of_complete_rows_is_the_joint_log_density():
    y = np.nan_to_num(targets())
    for family in (normal, mixture):
        distribution = family(*parameters(family))
        np.testing.assert_allclose(
            metrics.nll(y, distribution), -np.mean(distribution.log_prob(y)), rtol=1e-8
        )


def test_correlated_outputs_use_complete_rows_only():
    loc, _ = parameters(normal)
    tril = np.array([[1.0, 0.0], [0.8, 0.6]])
    y = targets()
    complete = ~np.isnan(y).any(axis=1)
    expected = -np.mean(
        [
            stats.multivariate_normal.logpdf(t, m, tril @ tril.T)
            for t, m in zip(y[complete], loc[complete], strict=True)
        ]
    )
    actual = metrics.nll(y, tfd.MultivariateNormalTriL(loc, tril))
    np.testing.assert_allclose(actual, expected, rtol=1e-8)


def test_mae_is_about_the_median_and_rmse_about_the_mean():
    # exp(N(0, 1)) has the median 1 and the mean exp(1/2).
    distribution = tfd.Independent(tfd.LogNormal(np.zeros([1, 1]), np.ones([1, 1])), 1)
    np.testing.assert_allclose(metrics.mae([[1.0]], distribution), 0.0, atol=1e-12)
    np.testing.assert_allclose(metrics.rmse([[np.exp(0.5)]], distribution), 0.0, atol=1e-12)


def test_pit_keeps_missing_entries():
    loc, scale = parameters(normal)
    y = targets()
    np.testing.assert_allclose(
        metrics.pit(y, normal(loc, scale)), stats.norm.cdf(y, loc, scale), rtol=1e-9
    )


def test_calibration_error_by_hand():
    # The PIT is 0.1, 0.1, 0.6; at the levels 1/4, 2/4, 3/4 the frequencies are 2/3, 2/3, 1.
    uniform = tfd.Uniform(np.zeros(3), np.ones(3))
    expected = np.mean([2 / 3 - 0.25, 2 / 3 - 0.5, 1 - 0.75])
    np.testing.assert_allclose(
        metrics.calibration_error(np.array([0.1, 0.1, 0.6]), uniform, num_levels=3), expected
    )


@pytest.mark.parametrize(
    ("distribution", "reference"),
    [
        (tfd.Laplace(np.full(3, 0.5), np.float64(2.0)), stats.laplace(0.5, 2.0)),
        (tfd.StudentT(np.float64(3.0), np.full(3, 0.5), np.float64(2.0)), stats.t(3, 0.5, 2.0)),
        (tfd.LogNormal(np.zeros(3), np.float64(0.8)), stats.lognorm(0.8)),
    ],
)
def test_crps_of_other_distributions_by_quadrature(distribution, reference):
    y = reference.ppf([1e-3, 0.4, 1.0 - 1e-6])
    expected = np.mean([crps_by_integration(reference.cdf, t) for t in y])
    np.testing.assert_allclose(metrics.crps(y, distribution), expected, rtol=1e-4)


@pytest.mark.parametrize(
    ("probs", "df", "loc", "scale"),
    [
        ([0.3, 0.7], 4.0, [-10.0, 10.0], [0.1, 0.1]),  # far apart
        ([0.9, 0.1], 1.5, [0.0, 3.0], [1.0, 0.02]),  # heavy tails, different widths
        ([0.99, 0.01], 3.0, [0.0, 30.0], [1.0, 1.0]),  # a rare one
    ],
)
@pytest.mark.slow
def test_crps_of_mixtures_of_other_components(probs, df, loc, scale):
    probs, loc, scale = map(np.asarray, (probs, loc, scale))
    y = np.array([loc[0], loc[1] + scale[1], -50.0 * scale[0], 1e3])
    edges = (loc[:, None] + np.outer(scale, [-5.0, -1.0, 0.0, 1.0, 5.0])).ravel()

    def cdf(x):
        return np.dot(probs, stats.t.cdf(x, df, loc, scale))

    expected = []
    for t in y:
        ends = [-np.inf, *np.unique([*edges, t]), np.inf]
        parts = [
            integrate.quad(lambda x, t=t: (cdf(x) - (x >= t)) ** 2, *pair, limit=400)[0]
            for pair in itertools.pairwise(ends)
        ]
        expected.append(sum(parts))
    ones = np.ones([len(y), 1])
    components = tfd.StudentT(np.float64(df), loc * ones, scale * ones)
    distribution = tfd.MixtureSameFamily(tfd.Categorical(probs=probs * ones), components)
    actual = [metrics.crps(y[i : i + 1], distribution[i : i + 1]) for i in range(len(y))]
    np.testing.assert_allclose(actual, expected, rtol=1e-3)


def test_crps_of_mixtures_of_positive_components():
    loc, y = np.array([0.0, 1.0, 2.0]), np.array([0.1, 3.0, 40.0])
    components = tfd.LogNormal(loc * np.ones([3, 1]), np.float64(0.8))
    distribution = tfd.MixtureSameFamily(tfd.Categorical(logits=np.zeros([3, 3])), components)
    expected = [
        crps_by_integration(lambda x: np.mean(stats.lognorm.cdf(x, 0.8, scale=np.exp(loc))), t)
        for t in y
    ]
    np.testing.assert_allclose(metrics.crps(y, distribution), np.mean(expected), rtol=1e-4)
    assert np.isnan(metrics.crps([-1.0], distribution[:1]))  # it is outside the support


@pytest.mark.parametrize(("dtype", "rtol"), [("float32", 1e-5), ("float64", 1e-12)])
def test_crps_of_samples_by_brute_force(dtype, rtol):
    samples = np.random.default_rng(2).gumbel(size=(50, N, D)).astype(dtype)
    y = targets(dtype)
    pairs = np.abs(samples[:, None] - samples[None]).mean(axis=(0, 1))
    expected = np.nanmean(np.abs(samples - y).mean(axis=0) - 0.5 * pairs)
    actual = metrics.crps_from_samples(y, samples)
    assert actual.dtype == dtype
    np.testing.assert_allclose(actual, expected, rtol=rtol)
    empirical = tfd.Empirical(samples.swapaxes(0, 1), event_ndims=1)
    np.testing.assert_allclose(metrics.crps(y, empirical), expected, rtol=rtol)


def test_crps_of_samples_with_one_output_axis_or_none():
    samples, y = np.random.default_rng(3).normal(size=(9, N, 1)), np.linspace(-1.0, 1.0, N)
    expected = metrics.crps_from_samples(y[:, None], samples)
    np.testing.assert_allclose(metrics.crps_from_samples(y, samples[..., 0]), expected)


def test_intervals_of_samples_are_order_statistics():
    samples = np.random.default_rng(4).permutation(np.arange(1.0, 101.0))[None, :, None]
    empirical = tfd.Empirical(np.repeat(samples, 4, axis=0), event_ndims=1)
    y = np.array([5.0, 95.0, 4.9, 95.1])
    np.testing.assert_allclose(metrics.interval_width(y, empirical), 90.0)
    np.testing.assert_allclose(metrics.interval_coverage(y, empirical), 0.5)


# All of them: shapes, dtypes, batches, compilation -----------------------------------------------


@pytest.mark.parametrize("key", PAIRS)
@pytest.mark.parametrize("family", [normal, mixture])
def test_unequal_batches_add_up_to_all_rows_at_once(key, family):
    function, metric_class, options, name = PAIRS[key]
    arrays, y = parameters(family), targets()
    metric = metric_class(dtype="float64", **options)
    for rows in (slice(0, 1), slice(1, 3), slice(3, N)):
        metric.update_state(y[rows], family(*(a[rows] for a in arrays)))
    expected = function(y, family(*arrays), **options)
    assert metric.name == name
    assert expected.shape == ()
    np.testing.assert_allclose(metric.result(), expected, rtol=1e-9)


@pytest.mark.parametrize("key", PAIRS)
@pytest.mark.parametrize("family", [normal, mixture])
def test_float32_agrees_with_float64_and_xla_with_both(key, family):
    function, _, options, _ = PAIRS[key]

    @tf.function(jit_compile=True)
    def compiled(y, *arrays):
        return function(y, family(*arrays), **options)

    expected = function(targets(), family(*parameters(family)), **options)
    actual = compiled(targets("float32"), *parameters(family, "float32"))
    assert expected.dtype == "float64"
    assert actual.dtype == "float32"
    np.testing.assert_allclose(actual, expected, rtol=1e-4)


@pytest.mark.parametrize("key", PAIRS)
def test_keras_metrics_compile_with_xla_for_any_number_of_rows(key):
    function, metric_class, options, _ = PAIRS[key]
    metric = metric_class(**options)
    spec = tf.TensorSpec([None, D], tf.float32)

    @tf.function(jit_compile=True, input_signature=[spec] * 3)
    def step(y, loc, scale):
        metric.update_state(y, normal(loc, scale))
        return metric.result()

    y, (loc, scale) = targets("float32"), parameters(normal, "float32")
    step(y[:2], loc[:2], scale[:2])
    actual = step(y[2:], loc[2:], scale[2:])
    np.testing.assert_allclose(actual, function(y, normal(loc, scale), **options), rtol=1e-5)
    metric.reset_state()
    assert np.isnan(metric.result())


@pytest.mark.parametrize("key", PAIRS)
def test_one_output_may_come_without_its_axis(key):
    function, _, options, _ = PAIRS[key]
    loc, scale = (a[:, :1] for a in parameters(normal))
    y = targets()[:, :1]
    expected = function(y, normal(loc, scale), **options)
    scalar_event = tfd.Normal(loc[:, 0], scale[:, 0])
    for actual in (
        function(y[:, 0], normal(loc, scale), **options),
        function(y[:, 0], scalar_event, **options),
        function(y, scalar_event, **options),
    ):
        np.testing.assert_allclose(actual, expected, rtol=1e-12)


@pytest.mark.parametrize("key", PAIRS)
def test_nothing_observed_is_nan(key):
    function, _, options, _ = PAIRS[key]
    y = np.full([N, D], np.nan)
    assert np.isnan(function(y, normal(*parameters(normal)), **options))


@pytest.mark.parametrize("key", PAIRS)
def test_keras_metrics_survive_serialisation(key):
    _, metric_class, options, _ = PAIRS[key]
    metric = metric_class(name="other", dtype="float64", **options)
    config = keras.saving.serialize_keras_object(metric)
    assert config["registered_name"] == f"tfp_fnspace>{metric_class.__name__}"
    copy = keras.saving.deserialize_keras_object(config)
    assert type(copy) is metric_class
    assert copy.get_config() == metric.get_config()
    assert copy.get_config().items() >= {"name": "other", "dtype": "float64", **options}.items()


def test_stateless_use_leaves_the_metric_alone():
    metric, (loc, scale) = metrics.CRPS(), parameters(normal, "float32")
    y = targets("float32")
    variables = metric.stateless_update_state(metric.variables, y, normal(loc, scale))
    np.testing.assert_allclose(
        metric.stateless_result(variables), metrics.crps(y, normal(loc, scale)), rtol=1e-6
    )
    assert np.isnan(metric.result())


@pytest.mark.parametrize("key", PAIRS)
def test_weights_of_rows_count_as_copies(key):
    function, metric_class, options, _ = PAIRS[key]
    rng = np.random.default_rng(0)
    y, loc, scale = (rng.normal(size=(N, D)) for _ in range(3))
    y[1, 0] = y[2, :] = np.nan
    weights = np.arange(1, N + 1)
    metric = metric_class(**options)
    for rows in (slice(0, 3), slice(3, N)):
        part = normal(loc[rows], np.exp(scale[rows]))
        metric.update_state(y[rows], part, sample_weight=weights[rows])
    y, loc, scale = (np.repeat(values, weights, axis=0) for values in (y, loc, scale))
    copies = function(y, normal(loc, np.exp(scale)), **options)
    np.testing.assert_allclose(metric.result(), copies, rtol=1e-10)


# Refusals ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", PAIRS)
def test_refuses_moments_instead_of_a_distribution(key):
    _, metric_class, options, _ = PAIRS[key]
    metric = metric_class(**options)
    with pytest.raises(TypeError, match="must be a tfp.distributions.Distribution.*type tuple"):
        metric.update_state(np.zeros([1, 1]), (np.zeros([1, 1]), np.ones([1, 1])))


@pytest.mark.parametrize("key", PAIRS)
def test_refuses_bad_weights(key):
    _, metric_class, options, _ = PAIRS[key]
    metric = metric_class(**options)
    with pytest.raises(ValueError, match="`sample_weight` must hold positive.*first -1 in row 0"):
        metric.update_state([0.0], tfd.Normal([0.0], 1.0), sample_weight=[-1.0])


@pytest.mark.parametrize("shape", [(3,), (3, 1), (3, 3), (2, 2), (3, 2, 1)])
def test_refuses_targets_of_another_shape(shape):
    distribution = normal(np.zeros([3, 2]), np.ones([3, 2]))
    with pytest.raises(ValueError, match="an entry for every output.*Received: y.shape="):
        metrics.rmse(np.zeros(shape), distribution)


def test_samples_have_no_density():
    with pytest.raises(TypeError, match="nll needs a distribution with a density.*Received"):
        metrics.nll([0.0], tfd.Empirical([[1.0, 2.0]]))


def test_refuses_samples_without_rows():
    with pytest.raises(ValueError, match="samples must have shape.*Received: samples.shape="):
        metrics.crps_from_samples([0.0], [1.0, 2.0])


@pytest.mark.parametrize("level", [0.0, 1.0, 90])
@pytest.mark.parametrize(
    "metric_class",
    [metrics.IntervalCoverage, metrics.IntervalWidth, metrics.IntervalScore, metrics.PinballLoss],
)
def test_refuses_levels_outside_the_unit_interval(metric_class, level):
    with pytest.raises(ValueError, match="`level` must lie strictly between.*Received: level="):
        metric_class(level)


@pytest.mark.parametrize("num_levels", [0, -3, 2.5])
def test_refuses_a_number_of_levels_that_is_none(num_levels):
    with pytest.raises(ValueError, match="`num_levels` must be a positive.*Received: num_levels="):
        metrics.CalibrationError(num_levels)


@pytest.mark.parametrize("weights", [{"probs": [0.3, 0.7]}, {"logits": np.float32([0.1, 0.9])}])
@pytest.mark.slow
def test_weights_of_a_mixture_may_have_another_dtype(weights):
    # TFP makes a float32 tensor of a list.
    rng = np.random.default_rng(3)
    loc, scale = rng.normal(size=(N, 2, D)), rng.uniform(0.3, 2.0, size=(N, 2, D))
    y = rng.normal(size=(N, D)).astype(np.float32)
    factor = np.linalg.cholesky(np.eye(D) + 0.5)
    full = tfd.MultivariateNormalTriL(loc, factor)
    for components in [normal(loc, scale), full]:
        mixed = tfd.MixtureSameFamily(tfd.Categorical(**weights), components)
        ((name, values),) = weights.items()
        double = tfd.Categorical(**{name: np.float64(np.float32(values))})
        uniform = tfd.MixtureSameFamily(double, components)
        for function, keras_metric, options, _ in PAIRS.values():
            actual = function(y, mixed, **options)
            assert actual.dtype == tf.float64
            np.testing.assert_allclose(actual, function(y, uniform, **options), rtol=1e-7)
            metric = keras_metric(**options)
            metric.update_state(y, mixed)
            np.testing.assert_allclose(metric.result(), actual, rtol=1e-5)
        np.testing.assert_allclose(metrics.pit(y, mixed), metrics.pit(y, uniform), rtol=1e-6)
        levels = [0.2, 0.5]
        np.testing.assert_allclose(quantile(mixed, levels), quantile(uniform, levels), atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_targets_may_have_another_dtype_than_the_prediction(dtype):
    other = {"float32": "float64", "float64": "float32"}[dtype]
    for family in [normal, mixture]:
        distribution = family(*parameters(family, dtype))
        y = np.linspace(-1.0, 1.0, N * D, dtype=other).reshape(N, D)
        for function, _, options, _ in PAIRS.values():
            actual = function(y, distribution, **options)
            assert actual.dtype == dtype
            same = function(y.astype(dtype), distribution, **options)
            np.testing.assert_array_equal(actual, same)


#: Values that are not numbers, or infinite, and the error text.
NO_OBSERVATIONS = [
    (np.array([["2020-01-01"]] * 3, "datetime64[D]"), TypeError, "of dtype datetime64"),
    (np.ones((3, 1), "timedelta64[s]"), TypeError, "of dtype timedelta64"),
    (np.ones((3, 1), complex), TypeError, "of dtype complex128"),
    ([["a"]] * 3, TypeError, "of dtype <U1"),
    (tf.constant([["a"]] * 3), TypeError, "of dtype string"),
    (None, TypeError, "y=None"),
    ([[np.inf], [1.0], [2.0]], ValueError, "`y` must not be infinite"),
    (tf.constant([[-np.inf], [1.0], [2.0]]), ValueError, "`y` must not be infinite"),
]


def functions_of_y():
    """Yields the public functions, each as a function of y alone."""
    loc = np.zeros((3, 1))
    prediction = tfd.Independent(tfd.Normal(loc, np.ones((3, 1))), 1)
    classes = tfd.Independent(tfd.Bernoulli(logits=loc, dtype=tf.float32), 1)
    of_reals = ["rmse", "mae", "nll", "crps", "interval_coverage", "interval_width"]
    of_reals += ["interval_score", "dawid_sebastiani_score", "energy_score"]
    for name in [*of_reals, "calibration_error", "pit"]:
        yield lambda y, name=name: getattr(metrics, name)(y, prediction)
    for name in ["accuracy", "brier_score", "expected_calibration_error"]:
        yield lambda y, name=name: getattr(metrics, name)(y, classes)
    yield lambda y: metrics.crps_from_samples(y, np.arange(6.0).reshape(2, 3, 1))


@pytest.mark.slow
def test_what_is_masked_or_none_is_missing():
    missing = np.array([[1.0], [np.nan], [0.0]])
    masked = np.ma.array([[1.0], [99.0], [0.0]], mask=[[0], [1], [0]])
    frame = pd.DataFrame({"y": pd.array([1.0, None, 0.0], dtype="Float64")})
    for function in functions_of_y():
        expected = np.asarray(function(missing))
        for y in (masked, frame, [[1.0], [None], [0.0]], tf.constant(missing)):
            np.testing.assert_array_equal(function(y), expected)
        np.testing.assert_array_equal(tf.function(function)(tf.constant(missing)), expected)


@pytest.mark.parametrize(("y", "kind", "said"), NO_OBSERVATIONS)
def test_what_is_no_observation(y, kind, said):
    for function in functions_of_y():
        with pytest.raises(kind, match="`y` must") as info:
            function(y)
        assert said in str(info.value)
    with pytest.raises(TypeError, match="`samples` must"):
        metrics.crps_from_samples(np.zeros(3), np.ones((2, 3), complex))
