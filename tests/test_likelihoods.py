"""Observation models against SciPy; what TAGI makes of them."""

import batteries
import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy import integrate, special, stats

from tfp_fnspace import likelihoods, metrics
from tfp_fnspace.distributions import quantile
from tfp_fnspace.math.quadrature import normal_nodes
from tfp_fnspace.typing import GaussianMoments

#: Name -> constructor from a scale, law of the noise at scale 1.
LIKELIHOODS = {
    "Gaussian": (likelihoods.Gaussian, stats.norm()),
    "StudentT": (lambda scale: likelihoods.StudentT(3.5, scale), stats.t(3.5)),
    "Cauchy": (lambda scale: likelihoods.StudentT(1, scale), stats.cauchy()),
    "StudentT_2": (lambda scale: likelihoods.StudentT(2.0, scale), stats.t(2.0)),
}
F = np.random.default_rng(0).normal(size=(4, 5, 2))  # [draws, N, D]
Y = np.random.default_rng(1).normal(size=(5, 2))


@pytest.fixture(params=LIKELIHOODS)
def case(request):
    return LIKELIHOODS[request.param]


def log_density(law, f, scale):
    return (law.logpdf((Y - f) / scale) - np.log(scale)).sum(-1)


@pytest.mark.parametrize("scale", [0.7, [0.7, 1.3]])
@pytest.mark.parametrize("unit", [1.0, [2.0, 0.5]])
def test_conditional(case, float64, scale, unit):
    make, law = case
    distribution = make(scale).conditional(F, np.array(unit))
    assert (distribution.batch_shape, distribution.event_shape) == ((4, 5), (2,))
    expected = log_density(law, F, np.multiply(scale, unit))
    np.testing.assert_allclose(distribution.log_prob(Y), expected, rtol=1e-10)


@pytest.mark.parametrize("values", [F, F[0]], ids=["draws_of_f", "one_f"])
def test_conditional_with_a_scale_for_every_draw(case, float64, values):
    make, law = case
    likelihood = make(0.7)
    scale = np.array([0.2, 0.5, 1.0, 3.0]).reshape(4, 1, 1)
    distribution = likelihood.conditional(values, np.array([2.0, 0.5]), scale=scale)
    assert (distribution.batch_shape, distribution.event_shape) == ((4, 5), (2,))
    expected = log_density(law, values, scale * [2.0, 0.5])
    np.testing.assert_allclose(distribution.log_prob(Y), expected, rtol=1e-10)
    assert distribution.sample(seed=1).shape == (4, 5, 2)
    assert likelihood.scale.numpy() == np.float64(0.7)


def test_conditional_of_float32_takes_any_scale(case):
    make, _ = case
    distribution = make(0.7).conditional(tf.constant(F, tf.float32), scale=np.full((4, 1, 1), 0.5))
    assert distribution.dtype == tf.float32


def test_noise_variance(case, float64):
    make, law = case
    variance = make([0.7, 1.3]).noise_variance(np.array([2.0, 0.5]))
    # SciPy has no variance of the Cauchy law (nan), infinite ones of the others.
    expected = np.nan_to_num(law.var(), nan=np.inf, posinf=np.inf) * np.array([1.4, 0.65]) ** 2
    np.testing.assert_allclose(variance, expected, rtol=1e-12)


def test_student_t_tends_to_gaussian(float64):
    wide = likelihoods.StudentT(1e9, 0.7).conditional(F).log_prob(Y)
    normal = likelihoods.Gaussian(0.7).conditional(F).log_prob(Y)
    np.testing.assert_allclose(wide, normal, rtol=1e-6)


def test_config_and_weights_round_trip(case):
    make, _ = case
    ours = make([0.7, 1.3])
    ours.set_scale([0.1, 0.2])
    theirs = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(ours))
    assert theirs.get_config() == ours.get_config()
    np.testing.assert_allclose(theirs.scale, [0.7, 1.3], rtol=1e-6)
    theirs.set_weights(ours.get_weights())
    np.testing.assert_array_equal(
        theirs.conditional(F.astype("float32")).log_prob(Y),
        ours.conditional(F.astype("float32")).log_prob(Y),
    )


@pytest.mark.parametrize("scale", [0.0, -1.0, np.nan, np.inf, "wide", [[1.0]], [1.0, 0.0]])
def test_bad_scale(case, scale):
    make, _ = case
    with pytest.raises(ValueError, match="`scale` must be a positive.*Received: scale="):
        make(scale)
    with pytest.raises(ValueError, match="`scale` must be a positive.*Received: scale="):
        make(1.0).set_scale(scale)


@pytest.mark.parametrize("df", [0.0, -1, np.nan, np.inf, True, "3", [3.0], None])
def test_bad_df(df):
    with pytest.raises(ValueError, match="`df` must be a positive finite number. Received: df="):
        likelihoods.StudentT(df)


def test_number_of_scales(case):
    make, _ = case
    make(0.5).check_outputs(3)
    make([0.5, 0.6]).check_outputs(2)
    with pytest.raises(ValueError, match="one per output, 3. Received: 2 scales"):
        make([0.5, 0.6]).check_outputs(3)


def test_tagi_refuses_noise_without_a_closed_form():
    message = "must have a closed-form update for TAGI.*Received: likelihood=<StudentT"
    with pytest.raises(ValueError, match=message):
        batteries.tagi_model(likelihood=likelihoods.StudentT(4.0))


# Expectations over f -----------------------------------------------------------------------------


def expectation(function, mean, variance):
    """`E function(f)`, f ~ N(mean, variance), by adaptive quadrature."""
    if variance == 0.0:
        return function(mean)
    stddev = np.sqrt(variance)
    density = stats.norm(mean, stddev).pdf
    ends = (mean - 12 * stddev, mean + 12 * stddev)
    return integrate.quad(lambda f: density(f) * function(f), *ends, epsabs=1e-10, limit=200)[0]


#: Name -> likelihood, log p(y | f) of one output, targets, relative error of 20 nodes.
EXPECTED = {
    "Gaussian": (
        lambda: likelihoods.Gaussian(0.7),
        lambda y, f: stats.norm(f, 0.7).logpdf(y),
        [-1.0, 0.3, 4.0],
        1e-9,
    ),
    "StudentT": (
        lambda: likelihoods.StudentT(4.0, 0.7),
        lambda y, f: stats.t(4.0, f, 0.7).logpdf(y),
        [-1.0, 0.3, 4.0],
        1e-3,
    ),
    "Bernoulli": (
        likelihoods.Bernoulli,
        lambda y, f: y * f - np.logaddexp(0.0, f),
        [0.0, 1.0],
        1e-5,
    ),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_expected_log_prob_against_adaptive_quadrature(name, float64):
    make, log_density, targets, error = EXPECTED[name]
    likelihood = make()
    for mean in (-2.0, 0.1, 3.0):
        for variance in (0.0, 0.04, 1.0, 1.96):
            for y in targets:
                ours = likelihood.expected_log_prob(
                    GaussianMoments(*tf.constant([[[mean]], [[variance]]], tf.float64)),
                    tf.constant([[y]], tf.float64),
                )
                expected = expectation(lambda f, y=y: log_density(y, f), mean, variance)
                np.testing.assert_allclose(ours, [expected], rtol=error, atol=error)


@pytest.mark.parametrize("name", [*EXPECTED, "Categorical"])
def test_known_function_values(name, float64):
    likelihood = likelihoods.Categorical() if name == "Categorical" else EXPECTED[name][0]()
    targets = np.array([[0.0], [1.0], [0.0], [1.0], [1.0]])
    targets = targets if name == "Categorical" else np.concatenate([targets, 1 - targets], 1)
    ours = likelihood.expected_log_prob(GaussianMoments(tf.constant(F), None), targets)
    assert ours.shape == (4, 5)
    np.testing.assert_allclose(ours, likelihood.log_prob(F, targets), rtol=1e-10)
    if name == "Categorical":
        chosen = np.take_along_axis(F, np.broadcast_to(targets.astype(int), (4, 5, 1)), -1)[..., 0]
        np.testing.assert_allclose(ours, chosen - special.logsumexp(F, axis=-1), rtol=1e-10)
        np.testing.assert_allclose(ours, likelihood.log_prob(F, targets[:, 0]), rtol=1e-12)
    else:
        expected = EXPECTED[name][1](targets, F).sum(-1)
        np.testing.assert_allclose(ours, expected, rtol=1e-10)


@pytest.mark.parametrize("name", [*EXPECTED, "Categorical"])
def test_gradients_are_finite_where_f_is_known(name):
    likelihood = likelihoods.Categorical() if name == "Categorical" else EXPECTED[name][0]()
    mean, variance = tf.constant([[0.3, -40.0]]), tf.zeros((1, 2))
    targets = tf.constant([[1.0]] if name == "Categorical" else [[1.0, 0.0]])
    with tf.GradientTape() as tape:
        tape.watch([mean, variance])
        moments = GaussianMoments(mean, variance)
        value = likelihood.expected_log_prob(moments, targets, seed=(1, 2))
    for gradient in tape.gradient(value, [mean, variance]):
        assert np.all(np.isfinite(gradient))


def test_expected_log_prob_of_classes_by_draws(assert_mean_close):
    """Two classes are a logistic regression on the difference of the logits."""
    mean, variance = np.array([0.4, -0.8]), np.array([0.5, 1.2])
    shape = (20000, 1, 2)
    moments = GaussianMoments(
        tf.constant(np.broadcast_to(mean, shape), tf.float32),
        tf.constant(np.broadcast_to(variance, shape), tf.float32),
    )
    for label, sign in ((0, -1.0), (1, 1.0)):
        draws = likelihoods.Categorical().expected_log_prob(moments, [label], seed=(1, 2))
        assert draws.shape == (20000, 1)
        difference = sign * (mean[1] - mean[0])
        expected = expectation(lambda f: -np.logaddexp(0.0, -f), difference, variance.sum())
        assert_mean_close(draws, [expected])


def test_draws_need_a_seed():
    moments = GaussianMoments(tf.zeros((1, 2)), tf.ones((1, 2)))
    with pytest.raises(ValueError, match="estimated by draws: pass a `seed`. Received: seed=None"):
        likelihoods.Categorical().expected_log_prob(moments, [[1]])


# Mixtures ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("known", [True, False])
def test_mixture_of_gaussians(float64, known):
    variance = np.zeros_like(F) if known else np.exp(F) * 0.1
    unit = np.array([2.0, 0.5])
    moments = GaussianMoments(tf.constant(F), None if known else tf.constant(variance))
    law = likelihoods.Gaussian([0.7, 1.3]).mixture(moments, unit)
    assert (law.batch_shape, law.event_shape) == ((5,), (2,))
    scale = np.sqrt(variance + (unit * [0.7, 1.3]) ** 2)
    parts = stats.norm(F, scale).logpdf(Y).sum(-1)
    np.testing.assert_allclose(law.log_prob(Y), special.logsumexp(parts, axis=0) - np.log(4))
    median = quantile(law, 0.5)
    np.testing.assert_allclose(stats.norm(F, scale).cdf(median).mean(0), 0.5, atol=1e-6)
    draws = law.sample(20000, seed=1)
    np.testing.assert_allclose(metrics.crps(Y, law), metrics.crps_from_samples(Y, draws), rtol=0.02)


def test_mixture_of_student_t(float64):
    noise = likelihoods.StudentT(4.0, 0.7)
    law = noise.mixture(GaussianMoments(tf.constant(F), None))
    parts = stats.t(4.0, F, 0.7).logpdf(Y).sum(-1)
    np.testing.assert_allclose(law.log_prob(Y), special.logsumexp(parts, axis=0) - np.log(4))
    median = quantile(law, 0.5)
    np.testing.assert_allclose(stats.t(4.0, F, 0.7).cdf(median).mean(0), 0.5, atol=1e-6)


def test_mixture_of_student_t_draws_f_alike_at_all_points(float64, assert_mean_close):
    noise = likelihoods.StudentT(4.0, 0.7)
    moments = GaussianMoments(*tf.constant(np.full((2, 4000, 3, 1), [[[[0.5]]], [[[1.5]]]])))
    law = noise.mixture(moments, seed=(1, 2))
    values = law.components_distribution.distribution.loc
    np.testing.assert_array_equal(values[0], values[2])
    densities = law.components_distribution.log_prob(np.full((3, 1, 1), 1.1))[0]
    expected = expectation(stats.t(4.0, 1.1, 0.7).pdf, 0.5, 1.5)
    assert_mean_close(np.exp(densities), expected)


def gaussian_mixture(size, outputs, dtype="float32"):
    """An equal mixture of Gaussians, `[S, 5, D]`: arrays."""
    rng = np.random.default_rng(5)
    shape = (size, 5, outputs)
    return GaussianMoments(rng.normal(size=shape).astype(dtype), rng.gamma(2.0, size=shape) + 0.1)


def tensors(moments, dtype=tf.float32):
    return GaussianMoments(*(tf.constant(part, dtype) for part in moments))


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("size", [1, 5])
@pytest.mark.parametrize("name", ["Gaussian", "StudentT"])
def test_law_has_the_predicted_moments(name, size, outputs):
    noise = likelihoods.Gaussian(0.7) if name == "Gaussian" else likelihoods.StudentT(4.0, 0.7)
    mean, variance = gaussian_mixture(size, outputs)
    unit = np.array([2.0, 0.5][:outputs], "float32")
    law = noise.mixture(tensors((mean, variance)), unit, seed=(1, 2))
    np.testing.assert_allclose(law.mean(), mean.mean(0), rtol=1e-4, atol=1e-6)
    total = variance.mean(0) + mean.var(0) + noise.noise_variance(unit)
    np.testing.assert_allclose(law.stddev(), np.sqrt(total), rtol=1e-4)
    alone = noise.mixture(tensors((mean[:, 1:2], variance[:, 1:2])), unit, seed=(1, 2))
    y = tf.constant(mean[0, 1:2])
    np.testing.assert_allclose(alone.log_prob(y), law[1:2].log_prob(y), rtol=1e-5)


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("size", [1, 5])
@pytest.mark.parametrize("name", ["Bernoulli", "Categorical"])
def test_law_has_the_predicted_probabilities(name, size, outputs, assert_mean_close):
    """And they are the means over draws of f."""
    likelihood, link = likelihoods.Bernoulli(), special.expit
    if name == "Categorical":
        likelihood, link = likelihoods.Categorical(), special.softmax
        outputs += 1  # classes
    mean, variance = gaussian_mixture(size, outputs)
    moments = tensors((mean, variance))
    ours = likelihood.uncertainty(moments, seed=(1, 2))["probabilities"]
    law = likelihood.mixture(moments, seed=(1, 2))
    np.testing.assert_allclose(likelihood.probabilities(law), ours, rtol=1e-5)
    if name == "Bernoulli":
        np.testing.assert_allclose(law.mean(), ours, rtol=1e-5)
        np.testing.assert_allclose(law.stddev(), np.sqrt(ours * (1.0 - ours)), rtol=1e-5)
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
    law = likelihoods.Categorical().mixture(tensors((mean, variance)), seed=(seed, 2))
    expected = expectation(special.expit, 1.2, 5.0)
    np.testing.assert_allclose(law.probs_parameter()[0, 0], expected, atol=0.02)


@pytest.mark.parametrize("ratio", [0.3, 1.0, 3.0])
def test_student_t_noise_about_one_gaussian(ratio, float64):
    y = np.linspace(-3.0, 3.0, 9)[:, np.newaxis] * np.hypot(ratio, 1.0)
    moments = tensors((np.zeros((1, 9, 1)), np.full((1, 9, 1), 4.0 * ratio**2)), tf.float64)
    law = likelihoods.StudentT(4.0, 0.5).mixture(moments, unit=4.0, seed=(1, 2))
    for density, value in zip(law.prob(2.0 * y).numpy(), y[:, 0], strict=True):
        expected = expectation(stats.t(4.0, value).pdf, 0.0, ratio**2) / 2.0
        np.testing.assert_allclose(density, expected, rtol=0.05 if ratio > 1.0 else 0.01)


@pytest.mark.parametrize("name", ["Gaussian", "StudentT"])
@pytest.mark.parametrize("unit", [1e-6, 1e-4, 1e4])
def test_law_does_not_depend_on_the_units(name, unit):
    noise = likelihoods.Gaussian(0.1) if name == "Gaussian" else likelihoods.StudentT(4.0, 0.1)
    mean, variance = gaussian_mixture(1, 2)
    y = mean[0] + 0.1
    law = noise.mixture(tensors((mean, variance)), seed=(1, 2))
    scaled = noise.mixture(tensors((mean * unit, variance * unit**2)), unit, seed=(1, 2))
    in_units = scaled.log_prob(tf.constant(y * unit, tf.float32)) + 2.0 * np.log(unit)
    np.testing.assert_allclose(in_units, law.log_prob(y), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("shape", [(1, 200, 2), (100, 2, 3), (7, 30, 1)])
def test_nodes_of_normal_laws(shape):
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
    law = likelihoods.Categorical().mixture(GaussianMoments(tf.constant(logits), None))
    np.testing.assert_allclose(law.probs_parameter(), p.mean(0), rtol=1e-10)


def test_gaussian_logits_are_the_limit_of_many_draws():
    mean = tf.broadcast_to(tf.constant([0.4, -0.8]), (3000, 1, 2))
    variance = tf.broadcast_to(tf.constant([0.5, 1.2]), (3000, 1, 2))
    ours = likelihoods.Categorical().uncertainty(GaussianMoments(mean, variance), seed=(1, 2))
    expected = expectation(special.expit, 1.2, 1.7)
    # A probability's standard deviation is at most 1/2: 6 standard errors of 24000 draws.
    np.testing.assert_allclose(ours["probabilities"][0, 0], expected, atol=6 * 0.5 / 24000**0.5)


def test_impossible_labels_have_a_finite_score():
    for likelihood, logits, label in (
        (likelihoods.Categorical(), [[[500.0, 0.0]]], [[1.0]]),
        (likelihoods.Bernoulli(), [[[500.0]]], [[0.0]]),
    ):
        law = likelihood.mixture(GaussianMoments(tf.constant(logits), None))
        assert 10.0 < metrics.nll(label, law) < 100.0


# A trained scale ---------------------------------------------------------------------------------


def trained(name, scale, **options):
    make = {"Gaussian": likelihoods.Gaussian, "StudentT": likelihoods.StudentT}[name]
    arguments = (4.0, scale) if name == "StudentT" else (scale,)
    return make(*arguments, trainable=True, **options)


@pytest.mark.parametrize("name", ["Gaussian", "StudentT"])
@pytest.mark.parametrize("scale", [0.002, 0.3, [0.7, 50.0]])
def test_trained_scale(name, scale):
    likelihood = trained(name, scale)
    np.testing.assert_allclose(likelihood.scale, scale, rtol=1e-4)
    (weight,) = likelihood.trainable_variables
    likelihood.set_scale(0.1)
    np.testing.assert_allclose(likelihood.scale, np.full(np.shape(scale), 0.1), rtol=1e-5)
    with tf.GradientTape() as tape:
        value = tf.reduce_sum(likelihood.log_prob(tf.zeros((1, 2)), tf.ones((1, 2))))
    assert np.all(tape.gradient(value, weight.value).numpy() > 0.0)
    weight.assign(tf.fill(weight.shape, -1e4))
    np.testing.assert_allclose(likelihood.scale, np.full(np.shape(scale), 1e-3), rtol=1e-6)


def test_scale_of_other_methods_is_no_trainable_weight():
    likelihood = likelihoods.Gaussian(0.3)
    likelihood.trainable = True  # as `model.trainable = True` does to all its layers
    assert likelihood.trainable_variables == []


@pytest.mark.parametrize("frozen", [False, True])
def test_trained_scale_round_trip(frozen):
    ours = trained("StudentT", 0.3, min_scale=0.05)
    ours.set_scale(0.2)
    ours.trainable = not frozen
    theirs = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(ours))
    theirs.set_weights(ours.get_weights())
    np.testing.assert_array_equal(theirs.scale, ours.scale)
    assert len(theirs.trainable_variables) == len(ours.trainable_variables) == 1 - frozen
    assert theirs.get_config() == ours.get_config()


def test_a_trained_scale_is_above_the_smallest():
    with pytest.raises(ValueError, match="larger than `min_scale`, 0.1. Received: scale=0.1"):
        likelihoods.Gaussian(0.1, trainable=True, min_scale=0.1)
    likelihood = likelihoods.Gaussian(0.2, trainable=True, min_scale=0.1)
    with pytest.raises(ValueError, match="larger than `min_scale`, 0.1. Received: scale=0.05"):
        likelihood.set_scale(0.05)
