"""Observation models against SciPy, and TAGI's use of them.

Their predictive distributions are in test_predictive_distributions.py.
"""

import batteries
import keras
import numpy as np
import pytest
import tensorflow as tf
from normals import expectation
from scipy import integrate, special, stats

from tfp_fnspace import diwp, fbnn, layers, likelihoods, sip, tagi
from tfp_fnspace.typing import GaussianMoments

#: Name -> constructor from a scale, distribution of the noise at scale 1.
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


def log_density(noise, f, scale):
    return (noise.logpdf((Y - f) / scale) - np.log(scale)).sum(-1)


def test_student_noise_is_gaussian_noise_of_gamma_precision(float64):
    df, scale, residual = 3.5, 0.7, 1.2
    precision = stats.gamma(df / 2.0, scale=2.0 / (df * scale**2))
    mixed, _ = integrate.quad(
        lambda tau: precision.pdf(tau) * stats.norm.pdf(residual, 0.0, tau**-0.5), 0.0, np.inf
    )
    distribution = likelihoods.StudentT(df, scale).conditional(np.zeros((1, 1)))
    np.testing.assert_allclose(distribution.log_prob([[residual]]), np.log(mixed), rtol=1e-7)


@pytest.mark.parametrize("scale", [0.7, [0.7, 1.3]])
@pytest.mark.parametrize("unit", [1.0, [2.0, 0.5]])
def test_conditional(case, float64, scale, unit):
    make, noise = case
    distribution = make(scale).conditional(F, np.array(unit))
    assert (distribution.batch_shape, distribution.event_shape) == ((4, 5), (2,))
    expected = log_density(noise, F, np.multiply(scale, unit))
    np.testing.assert_allclose(distribution.log_prob(Y), expected, rtol=1e-10)


@pytest.mark.parametrize("values", [F, F[0]], ids=["draws_of_f", "one_f"])
def test_conditional_with_a_scale_for_every_draw(case, float64, values):
    make, noise = case
    likelihood = make(0.7)
    scale = np.array([0.2, 0.5, 1.0, 3.0]).reshape(4, 1, 1)
    distribution = likelihood.conditional(values, np.array([2.0, 0.5]), scale=scale)
    assert (distribution.batch_shape, distribution.event_shape) == ((4, 5), (2,))
    expected = log_density(noise, values, scale * [2.0, 0.5])
    np.testing.assert_allclose(distribution.log_prob(Y), expected, rtol=1e-10)
    assert distribution.sample(seed=1).shape == (4, 5, 2)
    assert likelihood.scale.numpy() == np.float64(0.7)


def test_conditional_of_float32_takes_any_scale(case):
    make, _ = case
    distribution = make(0.7).conditional(tf.constant(F, tf.float32), scale=np.full((4, 1, 1), 0.5))
    assert distribution.dtype == tf.float32


def test_noise_variance(case, float64):
    make, noise = case
    variance = make([0.7, 1.3]).noise_variance(np.array([2.0, 0.5]))
    # SciPy's variance of the Cauchy distribution is nan, and those of the others are infinite.
    expected = np.nan_to_num(noise.var(), nan=np.inf, posinf=np.inf) * np.array([1.4, 0.65]) ** 2
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


@pytest.mark.parametrize(
    "scale",
    [
        *(0.0, -1.0, np.nan, np.inf, "wide", "0.5", [[1.0]], [1.0, 0.0]),
        *(True, None, 1j, np.timedelta64(3, "s"), np.ma.array([1.0, 2.0], mask=[0, 1])),
    ],
    ids=str,
)
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


#: Name -> likelihood, log p(y | f) of one output, targets, relative error with 20 nodes.
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
@pytest.mark.slow
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
    likelihood.trainable = True  # `model.trainable = True` does this to all its layers
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


# A scale for each output -------------------------------------------------------------------------


def test_separate_scales_wait_for_the_number_of_outputs():
    likelihood = likelihoods.Gaussian(0.3, trainable=True, separate=True)
    np.testing.assert_allclose(likelihood.scale, 0.3)
    assert likelihood.weights == []
    likelihood.build((None, 3))
    np.testing.assert_allclose(likelihood.scale, [0.3] * 3, rtol=1e-6)
    likelihood.set_scale([0.1, 0.2, 0.4])
    loaded = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(likelihood))
    loaded.set_weights(likelihood.get_weights())
    np.testing.assert_array_equal(loaded.scale, likelihood.scale)
    with pytest.raises(ValueError, match="one per output, 2. Received: 3 scales"):
        likelihood.check_outputs(2)


def default_models(num_outputs):
    inputs = keras.Input((1,))
    network = keras.Model(inputs, layers.VariationalDense(num_outputs)(inputs))
    plain = keras.Model(inputs, keras.layers.Dense(num_outputs)(inputs))
    learned = likelihoods.Gaussian(0.3, trainable=True, separate=True)
    return [
        fbnn.VariationalModel(network),
        sip.AADMModel(plain),
        sip.VIPModel(),
        sip.SIPModel(inducing_points=3),
        diwp.DIWPModel(diwp.DeepKernel(3)),
        tagi.TAGIModel(inputs, tagi.Dense(num_outputs)(inputs), likelihood=learned),
    ]


@pytest.mark.parametrize("num_outputs", [1, 3])
def test_every_model_has_a_scale_for_each_column_by_default(num_outputs):
    x, y = np.linspace(0.0, 1.0, 5)[:, np.newaxis], np.eye(5)[:, :num_outputs]
    for model in default_models(num_outputs):
        model.adapt(x, y)
        shape = () if num_outputs == 1 else (num_outputs,)
        assert tuple(model.likelihood.scale.shape) == shape
        np.testing.assert_allclose(model.likelihood.scale, np.full(shape, 0.3), rtol=1e-5)


@pytest.mark.slow
def test_the_default_learns_the_noise_of_each_column():
    """A scale from 300 rows has a standard error of 4 %: 16 % fails once in 5,000 seeds."""
    rng, noise = np.random.default_rng(0), np.array([0.05, 0.6, 1.0])
    x = rng.uniform(-2.0, 2.0, size=(300, 1))
    y = np.sin(2.0 * x) + noise * rng.normal(size=(300, 3))
    model = diwp.DIWPModel(diwp.DeepKernel(20, "squared_exponential", depth=0), seed=0)
    model.compile(optimizer=keras.optimizers.Adam(0.05))
    model.fit(x, y, epochs=60, batch_size=100, verbose=0)
    scales = model.likelihood.scale.numpy() * model.units.target_unit.numpy()
    np.testing.assert_allclose(scales, noise, rtol=0.16)
    np.testing.assert_allclose(model.predict(x[:2])["aleatoric_stddev"], [scales] * 2, rtol=1e-5)
