"""Models of counts, positive, bounded, censored and ordinal targets: what they predict."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import toys
from numpy.testing import assert_allclose, assert_array_equal
from scipy import special, stats

import tfp_fnspace as fns
from tfp_fnspace import diwp, fbnn, layers, likelihoods, stacking, tagi
from tfp_fnspace.distributions import quantile

X = np.random.default_rng(0).uniform(-1.0, 1.0, size=(1000, 2)).astype("float32")
TRUE = 3.0 + X @ np.array([[0.8], [-0.4]])  # the logarithm of a mean, say


def drawn(distribution):
    return distribution.rvs(random_state=1)


#: Name -> constructor, targets, attribute of the parameter and its true value in model units.
CASES = {
    "Poisson": (likelihoods.Poisson, drawn(stats.poisson(np.exp(TRUE))), None, None),
    "NegativeBinomial": (
        likelihoods.NegativeBinomial,
        drawn(stats.nbinom(1 / 0.3, 1 / (1 + 0.3 * np.exp(TRUE)))),
        "dispersion",
        0.3,
    ),
    "LogNormal": (
        likelihoods.LogNormal,
        drawn(stats.lognorm(0.4, scale=np.exp(TRUE))),
        "scale",
        0.4,
    ),
    "Gamma": (likelihoods.Gamma, drawn(stats.gamma(4.0, scale=np.exp(TRUE) / 4.0)), "shape", 4.0),
    "Beta": (
        likelihoods.Beta,
        drawn(stats.beta(*(20.0 * special.expit(s * (TRUE - 2.0)) for s in (1.0, -1.0)))),
        "precision",
        20.0,
    ),
    "CensoredGaussian": (
        lambda: likelihoods.CensoredGaussian(high=3.2),
        np.minimum(drawn(stats.norm(TRUE, 0.3)), 3.2),
        "scale",
        0.3,
    ),
    "CensoredLogNormal": (
        lambda: likelihoods.CensoredLogNormal(high=25.0),
        np.minimum(drawn(stats.lognorm(0.3, scale=np.exp(TRUE))), 25.0),
        "scale",
        0.3,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_linear_model_finds_the_function_and_the_parameter(name):
    make, y, attribute, value = CASES[name]
    model = toys.LinearModel(2, 1, make(), seed=0)
    model.raw.assign(-3.0 * np.eye(3)[np.newaxis])  # little variance of f, as networks start
    history = model.fit(X, y, epochs=50, batch_size=100, verbose=0).history
    f = TRUE - 2.0 if name == "Beta" else TRUE
    mean, variance = model.posterior_moments(X)
    assert_allclose(
        mean[0], f, atol=0.15
    )  # 1000 rows: an error of 0.01 to 0.03, twice that at the ends
    assert np.all(np.sqrt(variance) < 0.1)
    if attribute is not None:
        unit = float(model.units.function_scaler.stddev[0]) if attribute == "scale" else 1.0
        found = float(getattr(model.likelihood, attribute)[0]) * unit
        assert_allclose(found, value, rtol=0.25)
    # The log-likelihood of all rows is that of the data in the user's units.
    density = model.likelihood.conditional(mean[0]).log_prob(y)
    assert_allclose(history["log_likelihood"][-1] / 1000, np.mean(density), atol=0.05)


# All of a model ----------------------------------------------------------------------------------


def network(num_outputs=1):
    keras.utils.set_random_seed(0)
    inputs = keras.Input((2,))
    hidden = layers.VariationalDense(16, activation="tanh")(inputs)
    return inputs, layers.VariationalDense(num_outputs)(hidden)


@pytest.fixture(scope="module")
def counting():
    """Returns a fitted model of counts by draws of weights."""
    noise = likelihoods.Poisson()
    model = fbnn.VariationalModel(network(), likelihood=noise, num_eval_samples=20, seed=0)
    y = CASES["Poisson"][1]
    model.fit(X, y, epochs=30, batch_size=100, verbose=0)
    return model


@pytest.mark.slow
def test_predictions_of_counts(counting):
    y, x = CASES["Poisson"][1], X[:50]
    found, distribution = counting.predict(x), counting.predict_distribution(x)
    f = counting.sample_functions(x, 20, counting.counters.seeds.stream("predict"))
    rates = np.exp(f)
    assert_allclose(found["mean"], rates.mean(axis=0), rtol=1e-5)
    assert_allclose(found["epistemic_stddev"], rates.std(axis=0), rtol=1e-4)
    assert_allclose(found["aleatoric_stddev"] ** 2, found["mean"], rtol=1e-5)
    total = found["epistemic_stddev"] ** 2 + found["aleatoric_stddev"] ** 2
    assert_allclose(found["stddev"] ** 2, total, rtol=1e-5)
    assert_allclose(distribution.mean(), found["mean"], rtol=1e-5)
    assert_allclose(distribution.stddev(), found["stddev"], rtol=1e-5)
    expected = special.logsumexp(stats.poisson(rates).logpmf(y[:50]), axis=0)[:, 0] - np.log(20)
    assert_allclose(distribution.log_prob(y[:50]), expected, rtol=1e-5)
    scores = counting.evaluate(x, y[:50], verbose=0, return_dict=True)
    assert_allclose(scores["nll"], -expected.mean(), rtol=1e-5)
    assert_allclose(found["mean"], np.exp(TRUE[:50]), rtol=0.3)
    assert scores["coverage_90"] > 0.8
    joint = counting.predict_distribution(x[:3], joint=True)
    log_rates = counting.sample_functions(x[:3], 20, counting.counters.seeds.stream("predict"))
    of_joint = stats.poisson(np.exp(log_rates)).logpmf(y[:3]).sum(axis=(1, 2))
    assert_allclose(joint.log_prob(y[:3]), special.logsumexp(of_joint) - np.log(20), rtol=1e-5)


@pytest.mark.slow
def test_saved_and_exported_counts(counting, tmp_path):
    x = X[:10]
    counting.save(tmp_path / "model.keras")
    loaded = fns.load_model(tmp_path / "model.keras")
    assert_array_equal(loaded.predict(x)["mean"], counting.predict(x)["mean"])
    loaded.fit(X, CASES["Poisson"][1], epochs=1, verbose=0)  # the offset is kept
    offset = counting.likelihood.function_scaler.mean
    assert_array_equal(loaded.likelihood.function_scaler.mean, offset)
    counting.export(tmp_path / "served", num_samples=3)
    served = tf.saved_model.load(str(tmp_path / "served"))
    found = served.serve(tf.constant(x))
    for key, values in counting.predict(x).items():
        assert_allclose(found[key], values, rtol=1e-5)
    levels = quantile(counting.predict_distribution(x), [0.05, 0.5, 0.95])
    assert_array_equal(found["quantiles"], np.float32(levels))
    assert_array_equal(np.floor(found["quantiles"]), found["quantiles"])
    f = counting.sample_functions(x, 3, seed=(1, 2))
    assert_allclose(served.sample(tf.constant(x), tf.constant([1, 2])), f, rtol=1e-4)


@pytest.mark.slow
def test_positive_targets_of_a_deep_kernel(tmp_path):
    """Moments of f are Gaussian given each draw: the variances add up by quadrature."""
    kernel = diwp.DeepKernel(10, kernel="squared_exponential", depth=0)
    noise = likelihoods.LogNormal()
    model = diwp.DIWPModel(kernel, likelihood=noise, num_samples=2, num_eval_samples=4, seed=0)
    y = CASES["LogNormal"][1]
    model.fit(X, y, epochs=40, batch_size=200, verbose=0)
    x = X[:20]
    found, (mean, variance) = model.predict(x), model.posterior_moments(x)
    scale = float(noise.scale[0]) * float(noise.function_scaler.stddev[0])
    parts = stats.lognorm(np.sqrt(variance), scale=np.exp(mean + scale**2 / 2))
    expected = parts.mean().mean(axis=0)
    second = np.mean(parts.var() + parts.mean() ** 2, axis=0)
    assert_allclose(found["mean"], expected, rtol=1e-4)
    assert_allclose(found["epistemic_stddev"] ** 2, second - expected**2, rtol=1e-3)
    noise_variance = np.expm1(scale**2) * second
    assert_allclose(found["aleatoric_stddev"] ** 2, noise_variance, rtol=1e-3)
    assert_allclose(model.predict_distribution(x).mean(), expected, rtol=0.02)
    assert_allclose(np.log(found["mean"]) - scale**2 / 2, TRUE[:20], atol=0.4)
    model.save(tmp_path / "model.keras")
    assert_array_equal(fns.load_model(tmp_path / "model.keras").predict(x)["mean"], found["mean"])


def test_a_dataset_gives_the_same_offset():
    y = CASES["NegativeBinomial"][1]
    models = [toys.LinearModel(2, 1, likelihoods.NegativeBinomial(), seed=0) for _ in range(2)]
    models[0].adapt(X, y)
    models[1].adapt(tf.data.Dataset.from_tensor_slices((X, y)).batch(30))
    for model in models:
        assert_allclose(model.units.function_scaler.mean, np.log([y.mean()]), rtol=1e-10)
    assert_allclose(*(model.likelihood.dispersion for model in models), rtol=1e-6)


def test_units_of_the_user_without_standardisation():
    model = toys.LinearModel(2, 1, likelihoods.Poisson(), standardize=False, seed=0)
    model.fit(X, CASES["Poisson"][1], epochs=1, verbose=0)
    assert_array_equal(model.likelihood.function_scaler.mean, [0.0])


# Classes with an order ---------------------------------------------------------------------------


def test_ordinal_against_scipy(float64):
    likelihood = likelihoods.Ordinal(4)
    assert_allclose(likelihood.cuts, special.logit([0.25, 0.5, 0.75]), rtol=1e-12)
    likelihood.set_weights([np.array([-1.0, -0.3, 0.4])])
    cuts = np.cumsum([-1.0, np.exp(-0.3), np.exp(0.4)])
    assert_allclose(likelihood.cuts, cuts)
    f = np.array([[-3.0], [0.2], [5.0], [1.0]])
    labels = np.array([[0], [1], [2], [3]])
    cdf = np.concatenate([np.zeros((4, 1)), stats.logistic.cdf(cuts - f), np.ones((4, 1))], axis=1)
    probabilities = np.diff(cdf, axis=1)
    expected = np.log(probabilities[np.arange(4), labels[:, 0]])
    assert_allclose(likelihood.log_prob(f, labels), expected, rtol=1e-8)
    moments = fns.GaussianMoments(tf.constant(f), tf.constant(np.full_like(f, 0.5)))
    from normals import expectation

    def given(value, k):
        below, above = (np.inf if j > 2 else cuts[j] for j in (k - 1, k))
        lower = 0.0 if k == 0 else stats.logistic.cdf(below - value)
        return np.log(stats.logistic.cdf(above - value) - lower)

    integrals = [expectation(lambda v, k=k: given(v, k), f[k, 0], 0.5) for k in range(4)]
    assert_allclose(likelihood.expected_log_prob(moments, labels), integrals, rtol=1e-6)
    far = likelihood.log_prob(tf.constant([[-200.0], [200.0]], tf.float64), [[1], [1]])
    assert np.isfinite(far).all()


@pytest.mark.slow
def test_a_model_finds_cut_points(tmp_path):
    cuts = np.array([2.2, 3.0, 3.4])
    y = np.sum(drawn(stats.logistic(TRUE, 0.1)) > cuts, axis=1)
    model = toys.LinearModel(2, 1, likelihoods.Ordinal(4), seed=0)
    model.compile(optimizer=keras.optimizers.Adam(0.1))
    model.fit(X, y, epochs=31, batch_size=100, verbose=0)
    found = model.predict(X)["probabilities"]
    bounds = np.array([-np.inf, *cuts, np.inf])
    expected = np.diff(stats.logistic.cdf((bounds - TRUE) / 0.1), axis=1)
    assert_allclose(found, expected, atol=0.25)
    assert np.mean(np.abs(found - expected)) < 0.05
    distances = np.diff(model.likelihood.cuts)
    assert_allclose(distances[0] / distances[1], 2.0, rtol=0.3)
    scores = model.evaluate(X, y, verbose=0, return_dict=True)
    assert_allclose(scores["nll"], -np.mean(np.log(found[np.arange(len(y)), y])), rtol=1e-4)
    model.save(tmp_path / "model.keras")
    assert_array_equal(fns.load_model(tmp_path / "model.keras").predict(X)["probabilities"], found)


# Errors ------------------------------------------------------------------------------------------


def test_models_check_targets():
    y = CASES["Poisson"][1].astype(float)
    y[7] = -1.0
    model = toys.LinearModel(2, 1, likelihoods.Poisson(), seed=0)
    message = "`y` must hold non-negative integers.*others in 1 rows, the first -1 in rows \\[7\\]"
    with pytest.raises(ValueError, match=message):
        model.fit(X, y, verbose=0)
    y[7] = np.nan
    with pytest.raises(ValueError, match="`y` must be finite"):
        model.fit(X, y, verbose=0)
    with pytest.raises(ValueError, match="`batch y` must hold non-negative integers"):
        model.fit(tf.data.Dataset.from_tensor_slices((X, -y)).batch(5), verbose=0)
    with pytest.raises(ValueError, match="`y` must hold non-negative integers"):
        diwp.DIWPModel(likelihood=likelihoods.Poisson()).fit(X, np.full(1000, 0.5), verbose=0)
    model.fit(X, CASES["Poisson"][1], epochs=1, verbose=0)
    with pytest.raises(ValueError, match="`y` must hold non-negative integers"):
        model.evaluate(X, CASES["Poisson"][1] + 0.5, verbose=0)


@pytest.mark.parametrize("make", [likelihoods.Poisson, lambda: likelihoods.Ordinal(3)])
def test_other_methods_say_what_they_take(make):
    inputs = keras.Input((2,))
    with pytest.raises(ValueError, match="must have a closed-form update for TAGI, as `likel"):
        tagi.TAGIModel(inputs, tagi.Dense(1)(inputs), likelihood=make())
    with pytest.raises(TypeError, match="must be tfp_fnspace.likelihoods.Gaussian or StudentT"):
        fns.stable_process.StableProcessModel(likelihood=make())


def test_mixtures_of_models_say_what_they_take():
    model = toys.LinearModel(2, 1, likelihoods.Poisson(), seed=0)
    with pytest.raises(ValueError, match="must have Gaussian predictive.*a member with Poisson"):
        stacking.StackedModel([model], [1.0])


def test_ordinal_takes_one_output():
    with pytest.raises(ValueError, match="must have one output.*Received: 3 outputs"):
        toys.LinearModel(2, 3, likelihoods.Ordinal(3))
    with pytest.raises(ValueError, match="`num_classes` must be an integer of at least 2"):
        likelihoods.Ordinal(1)
