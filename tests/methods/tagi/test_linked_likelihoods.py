"""Positive and censored targets for TAGI: innovations against quadrature, models against Gaussian.

All likelihoods here are Gaussian about f, for targets or their logarithms, up to censoring.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal
from scipy import integrate, optimize, special, stats

import tfp_fnspace as fns
from tfp_fnspace import likelihoods, tagi
from tfp_fnspace.math.truncated import log_prob_derivatives
from tfp_fnspace.methods.tagi import noise, runs
from tfp_fnspace.typing import GaussianMoments

INF = np.inf
LOW, HIGH = 0.5, 3.0

#: Name -> constructor.
MADE = {
    "LogNormal": likelihoods.LogNormal,
    "CensoredGaussian": lambda *args, **kw: likelihoods.CensoredGaussian(LOW, HIGH, *args, **kw),
    "CensoredLogNormal": lambda *args, **kw: likelihoods.CensoredLogNormal(LOW, HIGH, *args, **kw),
    "IntervalCensoredGaussian": likelihoods.IntervalCensoredGaussian,
    "IntervalCensoredLogNormal": likelihoods.IntervalCensoredLogNormal,
}


@pytest.fixture(params=MADE)
def name(request):
    return request.param


def limits_of(name, y):
    """Returns what targets `[N, 1]` of a likelihood say of f + v: a pair of arrays `[N]`."""
    if name.startswith("Interval"):
        low, high = y.T
    else:
        low = high = y[:, 0]
    if name.startswith("Censored"):
        low, high = np.where(y[:, 0] <= LOW, -INF, low), np.where(y[:, 0] >= HIGH, INF, high)
        low, high = np.where(y[:, 0] >= HIGH, HIGH, low), np.where(y[:, 0] <= LOW, LOW, high)
    if name.endswith("LogNormal"):
        with np.errstate(divide="ignore", invalid="ignore"):
            low, high = (np.where(v > 0.0, np.log(v), -INF) for v in (low, high))
    return low, high


def targets_of(name, rng, size):
    """Returns targets `[N, 1]`, or `[N, 2]` of limits, of all kinds."""
    y = np.exp(rng.normal(0.3, 1.0, size=(size, 1)))
    if name.startswith("Censored"):
        return np.clip(y, LOW, HIGH)
    if not name.startswith("Interval"):
        return y
    low, kind = y[:, 0], rng.integers(4, size=size)
    high = np.where(kind < 2, low * (1.0 + 10.0 ** rng.uniform(-3.0, 1.0, size=size)), low)
    no_limit = 0.0 if name.endswith("LogNormal") else -INF
    low = np.where(kind == 2, no_limit, low)
    return np.stack([low, np.where(rng.uniform(size=size) < 0.2, INF, high)], axis=1)


# Innovations -------------------------------------------------------------------------------------


def log_observed(low, high, mean, scale):
    """Computes the log density of z = low = high, or log P(low < z < high), in SciPy."""
    if low == high:
        return stats.norm(mean, scale).logpdf(low)
    a, b = (low - mean) / scale, (high - mean) / scale
    swaps = a > -b  # the smaller tails
    a, b = np.where(swaps, -b, a), np.where(swaps, -a, b)
    upper, lower = special.log_ndtr(b), special.log_ndtr(a)
    return upper + np.log1p(-np.exp(lower - upper))


def innovation_by_quadrature(low, high, mean, variance, scale):
    """Computes the innovations from the moments of the posterior of f, a smooth density."""
    stddev = np.sqrt(variance)

    def log_posterior(f):
        return log_observed(low, high, f, scale) + stats.norm(mean, stddev).logpdf(f)

    reach = max(abs(v - mean) for v in (low, high, mean) if np.isfinite(v)) + 10.0 * stddev
    ends = {"bounds": (mean - reach, mean + reach), "method": "bounded"}
    mode = optimize.minimize_scalar(lambda f: -log_posterior(f), **ends).x
    f = mode + stddev * np.linspace(-10.0, 10.0, 8001)
    density = np.exp(log_posterior(f) - log_posterior(mode))
    total = integrate.trapezoid(density, f)
    found = integrate.trapezoid(density * f, f) / total
    spread = integrate.trapezoid(density * (f - found) ** 2, f) / total
    return (found - mean) / variance, (spread - variance) / variance**2


def test_innovations_are_those_of_the_posterior(name, float64):
    rng, size = np.random.default_rng(0), 60
    scale, offset, spread = 0.6, 0.3, 1.4
    likelihood = MADE[name](scale=scale)
    likelihood.build((None, 1))
    likelihood.function_scaler.mean.assign([offset])
    likelihood.function_scaler.stddev.assign([spread])
    y = targets_of(name, rng, size)
    # Many means are 10 and more standard deviations of the observation off.
    mean, variance = 4.0 * rng.normal(size=size), rng.uniform(0.05, 1.0, size=size)
    moments = GaussianMoments(*(tf.constant(v[:, np.newaxis]) for v in (mean, variance)))
    first, second = likelihood.innovation(moments, tf.constant(y))
    low, high = limits_of(name, y)
    in_units = offset + spread * mean, spread**2 * variance, np.full(size, spread * scale)
    expected = [innovation_by_quadrature(*v) for v in zip(low, high, *in_units, strict=True)]
    expected = np.array(expected) * [spread, spread**2]
    assert_allclose(first[:, 0], expected[:, 0], rtol=1e-7, atol=1e-9)
    assert_allclose(second[:, 0], expected[:, 1], rtol=1e-6, atol=1e-8)
    density = likelihood.log_predictive(
        GaussianMoments(*(tf.constant(v[:, np.newaxis]) for v in in_units[:2])), tf.constant(y)
    )
    stddev = np.sqrt(in_units[1] + in_units[2] ** 2)
    values = zip(low, high, in_units[0], stddev, strict=True)
    logs = np.array([log_observed(*v) for v in values])
    if name.endswith("LogNormal"):
        logs = np.where(low == high, logs - low, logs)  # the Jacobian of the logarithm
    assert_allclose(density[:, 0], logs, rtol=1e-6, atol=1e-6)


def derivatives(low, high, dtype="float64"):
    """Returns the derivatives for z ~ N(0, 1)."""
    zeros = np.zeros(np.shape(low))
    values = tf.constant(zeros, dtype), tf.constant(zeros + 1.0, dtype)
    return [v.numpy() for v in log_prob_derivatives(*values, *map(tf.constant, (low, high)))]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_no_limits_say_nothing(dtype):
    for found in derivatives(np.array([-INF]), np.array([INF]), dtype):
        assert_array_equal(found, [0.0])


def test_far_tails():
    """The hazard of N(0, 1) is x + 1/x - 2/x^3 + ..., an interval there is an exponential."""
    x = np.array([20.0, 1e2, 1e4, 1e8, 1e17])
    first, second = derivatives(x, np.full(5, INF))
    assert_allclose(first, x + 1.0 / x - 2.0 / x**3, rtol=1e-6)
    assert_allclose(second, -1.0 + 1.0 / x**2 - 6.0 / x**4, rtol=1e-5)
    assert_allclose(first[0] - x[0], 1.0 / x[0] - 2.0 / x[0] ** 3 + 10.0 / x[0] ** 5, rtol=1e-5)
    mirrored = derivatives(np.full(5, -INF), -x)
    assert_array_equal(mirrored[0], -first)
    assert_array_equal(mirrored[1], second)
    width = np.array([1e-2, 1e-4, 1e-8])  # as far as the tail is long
    first, second = derivatives(np.array([1e2, 1e4, 1e8]), np.array([1e2, 1e4, 1e8]) + width)
    assert np.all(np.isfinite(first))
    assert_allclose(second, -1.0, rtol=1e-3)
    mean = 1.0 - 1.0 / np.expm1(1.0)  # of the exponential on [0, 1]
    assert_allclose((first[0] - 1e2) / width[0], mean, rtol=1e-3)


def test_derivatives_meet_where_their_formulas_change(float64):
    """The steps are so small that a smooth function has none of the size of the tolerance."""
    step = 1e-9
    for low, high in [(3.0, INF), (-4.0, 4.0), (-3.0, 5.0), (0.0, np.sqrt(80.0)), (4.0, 8.4)]:
        sides = [derivatives(np.array([low + d]), np.array([high + d])) for d in (-step, step)]
        assert_allclose(sides[0], sides[1], atol=1e-8)
        wider = [derivatives(np.array([low]), np.array([high + d])) for d in (-step, step)]
        assert_allclose(wider[0], wider[1], atol=1e-8)


def test_float32_is_float64_with_fewer_digits():
    rng = np.random.default_rng(0)
    low = (rng.normal(size=5000) * np.exp(rng.uniform(-3.0, 8.0, size=5000))).astype("float32")
    width = np.exp(rng.uniform(-14.0, 6.0, size=5000))
    high = np.where(rng.uniform(size=5000) < 0.2, INF, low + width)
    expected, found = derivatives(low.astype("float64"), high), None
    found = derivatives(low.astype("float64"), high, "float32")
    assert_allclose(found[0], expected[0], rtol=1e-5, atol=1e-6)
    assert_allclose(found[1], expected[1], rtol=1e-4, atol=1e-6)
    assert np.all((found[1] <= 0.0) & (found[1] >= -1.0))


# Models ------------------------------------------------------------------------------------------


def line(size=60, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(size, 2))
    f = 0.5 + x @ np.array([[0.6, 0.2], [-0.3, 0.4]])
    return x, f + 0.3 * rng.normal(size=f.shape)


def linear_model(likelihood, num_outputs=2, **options):
    inputs = keras.Input((2,))
    outputs = tagi.Dense(num_outputs)(inputs)
    model = tagi.TAGIModel(inputs, outputs, likelihood=likelihood, seed=0, **options)
    model.compile(jit_compile=False)
    return model


def parameters(model):
    return [variable.numpy() for variable in model.parameter_variables]


def as_limits(y):
    return np.concatenate([y, y], axis=1)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("update", ["capped", "exact"])
@pytest.mark.parametrize("missing", [False, True])
def test_log_normal_is_gaussian_for_logarithms(update, missing):
    x, logs = line()
    if missing:
        logs[::4, 1] = logs[1::5, 0] = logs[7] = np.nan
    weights = np.random.default_rng(1).integers(1, 4, size=len(x))
    options = {"epochs": 3, "batch_size": 16, "sample_weight": weights, "verbose": 0}
    gaussian = linear_model(likelihoods.Gaussian([0.4, 0.4]), update=update)
    expected = gaussian.fit(x, logs, **options).history
    made = {"LogNormal": (likelihoods.LogNormal, np.exp(logs))}
    if not missing:
        interval = likelihoods.IntervalCensoredLogNormal
        made["IntervalCensoredLogNormal"] = interval, as_limits(np.exp(logs))
    for likelihood, y in made.values():
        model = linear_model(likelihood(scale=0.4, trainable=False), update=update)
        history = model.fit(x, y, **options).history
        for ours, theirs in zip(parameters(model), parameters(gaussian), strict=True):
            assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)
        rows = weights * np.any(~np.isnan(logs), axis=1)
        jacobian = weights @ np.nansum(logs, axis=1) / np.sum(rows)
        found = np.array(history["log_likelihood"]) + jacobian
        assert_allclose(found, expected["log_likelihood"], rtol=1e-7)
        assert ("rmse" in history) == (y.shape == logs.shape)


@pytest.mark.usefixtures("float64")
def test_limits_that_no_target_reaches_are_none():
    x, y = line()
    gaussian = linear_model(likelihoods.Gaussian(0.4))
    expected = gaussian.fit(x, y, epochs=3, batch_size=16, verbose=0).history
    fixed = {"scale": 0.4, "trainable": False}
    censored = likelihoods.CensoredGaussian(-1e3, 1e3, **fixed)
    for likelihood, targets in (
        (censored, y),
        (likelihoods.IntervalCensoredGaussian(**fixed), as_limits(y)),
    ):
        model = linear_model(likelihood)
        history = model.fit(x, targets, epochs=3, batch_size=16, verbose=0).history
        for ours, theirs in zip(parameters(model), parameters(gaussian), strict=True):
            assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)
        for key in history:
            assert_allclose(history[key], expected[key], rtol=1e-7)
        found, means = model.predict(x), gaussian.predict(x)
        for key in found:
            assert_allclose(found[key], means[key], rtol=1e-6)


def test_history_has_the_scores_of_evaluate(name):
    """A batch is scored before it is learnt; all rows are one batch."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, 2)), targets_of(name, rng, 30)
    model = linear_model(MADE[name](trainable=False), 1)
    model.adapt(x, y)
    before = model.evaluate(x, y, return_dict=True, verbose=0)
    history = model.fit(x, y, batch_size=30, verbose=0).history
    assert_allclose(history["log_likelihood"], [-before["nll"]], rtol=1e-5)
    if not name.startswith("Interval"):
        assert_allclose(history["rmse"], [before["rmse"]], rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("is_positive", [False, True])
def test_censored_targets_show_the_line_beyond_the_limit(is_positive):
    """A third of the targets are cut; the errors are in standard deviations of the noise."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1.0, 1.0, size=(400, 2))
    f = 1.0 + x @ np.array([[1.0], [-0.5]])
    cut = np.minimum(f + 0.3 * rng.normal(size=f.shape), 1.2)
    limits = np.concatenate([cut, np.where(cut < 1.2, cut, INF)], axis=1)
    scale = 0.3 / cut.std()
    fixed = {"scale": scale, "trainable": False}
    if is_positive:
        cut, limits = np.exp(cut), np.exp(limits)
        censored = likelihoods.CensoredLogNormal(high=np.exp(1.2), **fixed)
        interval, plain = (
            likelihoods.IntervalCensoredLogNormal(**fixed),
            likelihoods.LogNormal(**fixed),
        )
    else:
        censored = likelihoods.CensoredGaussian(high=1.2, **fixed)
        interval, plain = (
            likelihoods.IntervalCensoredGaussian(**fixed),
            likelihoods.Gaussian(scale),
        )
    errors = []
    for likelihood, y in (
        (censored, cut),
        (interval, limits),
        (plain, cut),
    ):
        model = linear_model(likelihood, 1)
        model.fit(x, y, epochs=20, batch_size=10, verbose=0)
        found = model.function_moments(tf.constant(x)).mean
        errors.append(np.sqrt(np.mean((found - f) ** 2)) / 0.3)
    # Seen: 0.13 with either kind of limits, and 1.2 without them.
    assert errors[0] < 0.25
    assert errors[1] < 0.25
    assert errors[2] > 0.7


@pytest.fixture(scope="module")
def fitted():
    """Returns a model of censored positive targets, and its rows."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 2)), targets_of("CensoredLogNormal", rng, 60)
    inputs = keras.Input((2,))
    outputs = tagi.Dense(1)(tagi.Dense(5, "relu")(inputs))
    likelihood = likelihoods.CensoredLogNormal(LOW, HIGH)
    decay = keras.optimizers.schedules.ExponentialDecay(1.0, decay_steps=1, decay_rate=0.8)
    model = tagi.TAGIModel(inputs, outputs, likelihood=likelihood, noise=decay, seed=0)
    model.fit(x, y, epochs=4, verbose=0)
    return model, x, y


def test_predictions_have_closed_forms(fitted):
    model, x, _ = fitted
    mean, variance = model.posterior_moments(tf.constant(x))
    scale = 0.8**3 * model.units.function_scaler.stddev.numpy()
    free = stats.lognorm(np.sqrt(variance + scale**2), scale=np.exp(mean))
    distribution = model.predict_distribution(x, batch_size=7)
    values = np.full((60, 1), 1.3)
    assert_allclose(distribution.log_prob(values), free.logpdf(1.3)[:, 0], rtol=1e-5)
    at_limit = distribution.log_prob(np.full((60, 1), HIGH))
    assert_allclose(at_limit, free.logsf(HIGH)[:, 0], rtol=1e-5)
    for level in (0.05, 0.5, 0.95):
        expected = np.clip(free.ppf(level), LOW, HIGH)
        assert_allclose(model.predict_quantiles(x, level), expected[..., np.newaxis], rtol=1e-5)
    found = model.predict(x)
    assert_allclose(found["mean"], distribution.mean(), rtol=1e-5)
    assert_allclose(found["stddev"], distribution.stddev(), rtol=1e-4)
    with pytest.raises(ValueError, match="`joint` must be False for TAGIModel"):
        model.predict_distribution(x, joint=True)


@pytest.mark.slow
def test_a_model_is_saved_and_served(fitted, tmp_path):
    model, x, y = fitted
    model.save(tmp_path / "m.keras")
    loaded = fns.load_model(tmp_path / "m.keras")
    outputs, again = model.predict(x), loaded.predict(x)
    for key in outputs:
        assert_array_equal(again[key], outputs[key])
    assert_allclose(loaded.likelihood.scale, [0.8**3], rtol=1e-5)
    loaded.fit(x, y, epochs=1, verbose=0)  # the schedule goes on
    assert_allclose(loaded.likelihood.scale, [0.8**4], rtol=1e-5)
    model.export(tmp_path / "served", num_samples=3)
    saved = tf.saved_model.load(str(tmp_path / "served"))
    served = saved.serve(x.astype("float32"))
    for key, value in outputs.items():
        assert_allclose(served[key], value, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", ["LogNormal", "CensoredGaussian", "IntervalCensoredLogNormal"])
def test_cross_validation_chooses_the_scale(name, monkeypatch):
    """Runs that are made at once are those that are made one by one."""
    seen, learnt = [], runs.Runs.learnt
    monkeypatch.setattr(
        runs.Runs, "learnt", lambda self, scales: seen.append(len(scales)) or learnt(self, scales)
    )
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(23, 2)), targets_of(name, rng, 23)

    def cross_validated():
        inputs = keras.Input((2,))
        model = tagi.TAGIModel(
            inputs, tagi.Dense(1)(inputs), likelihood=MADE[name](), noise="cross_validate", seed=0
        )
        model.adapt(x, y)
        return noise.cross_validate(model, [x], y, 2, 5, True, num_folds=3)

    scale, table = cross_validated()
    assert np.all(scale > 0.0)
    monkeypatch.setattr(runs, "_LEAST_STEPS", 0)
    assert set(seen) == {1}
    found, again = cross_validated()
    assert seen[-1] > 1
    assert_allclose(found, scale, rtol=1e-6)
    assert_allclose(again, table, rtol=1e-6)


def test_fit_cross_validates():
    x, logs = line()
    model = linear_model(likelihoods.LogNormal(scale=1.0), noise="cross_validate", update="exact")
    model.fit(x, np.exp(logs), epochs=1, verbose=0)
    unit = model.units.function_scaler.stddev.numpy()
    # One factor is searched for both columns. The noise is 0.3, and the estimate is of 60 rows.
    assert 0.2 < np.mean(model.likelihood.scale * unit) < 0.45
    assert len(model.noise_scores) > 3


# Errors ------------------------------------------------------------------------------------------


def test_a_scale_that_is_not_learnt_is_refused(name):
    rule = f"The scale of `{name}` is not learnt by TAGI: .*trainable=False.*'cross_validate'"
    with pytest.raises(ValueError, match=rule):
        linear_model(MADE[name]())


def test_limits_have_no_missing_targets():
    x, y = line()
    model = linear_model(likelihoods.IntervalCensoredGaussian(trainable=False))
    limits = as_limits(y)
    limits[3, 0] = np.nan
    with pytest.raises(ValueError, match="must not be NaN"):
        model.fit(x, limits, verbose=0)


def test_a_column_without_values_is_refused():
    x, y = line()
    model = linear_model(likelihoods.LogNormal(trainable=False))
    with pytest.raises(ValueError, match=r"at least one observed value.*without one=\[1\]"):
        model.fit(x, np.where([True, False], np.exp(y), np.nan), verbose=0)


@pytest.mark.parametrize("scale", [0.0, -1.0, np.nan, [[1.0]]])
def test_set_scale_takes_positive_numbers(scale):
    likelihood = likelihoods.LogNormal(trainable=False)
    likelihood.build((None, 1))
    with pytest.raises(ValueError, match="`scale` must be a positive finite number"):
        likelihood.set_scale(scale)
