"""SIP and its baselines at their limits: other dtypes, few draws, foreign networks, powers."""

import keras
import numpy as np
import pytest
import sip_models
import tensorflow as tf
import tensorflow_probability as tfp
from numpy.testing import assert_allclose, assert_array_equal
from scipy import integrate, stats

from tfp_fnspace import likelihoods, processes, sip
from tfp_fnspace.likelihoods.energy import data_term
from tfp_fnspace.typing import GaussianMoments

GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(20, 2))
Y = X @ [[1.0], [-0.5]] + 0.3 * GENERATOR.normal(size=(20, 1))


def dense(num_inputs, num_outputs):
    return keras.Sequential([keras.Input((num_inputs,)), keras.layers.Dense(num_outputs)])


def made(**options):
    small = {"prior": "neural_sampler", "inducing_points": 3, "num_samples": 4}
    return sip_models.make_model(**{**small, "num_eval_samples": 4, "seed": 1, **options})


def vip(**options):
    prior = sip.neural_sampler_prior(2, units=(4,), num_noise=3, seed=0)
    return sip.VIPModel(**{"prior": prior, "num_prior_samples": 5, "seed": 1, **options})


def aadm(**options):
    small = {"network": dense(2, 1), "num_samples": 4, "num_eval_samples": 4, "seed": 1}
    return sip.AADMModel(**{**small, **options})


# Powers of the likelihood -----------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.1, 1.0])
def test_power_of_a_likelihood_without_a_closed_form_is_that_of_the_alpha_asked_for(alpha):
    likelihood = likelihoods.StudentT(scale=0.3, df=4.0)
    model = vip(likelihood=likelihood, alpha=alpha, num_samples=20000, standardize=False)
    model.adapt(X, Y)
    moments = [np.array(v[0, :, 0], np.float64) for v in model._moments(tf.constant(X, tf.float32))]

    def power(f, mean, variance, y, order):
        return stats.norm.pdf(f, mean, variance**0.5) * stats.t.pdf(y, 4.0, f, 0.3) ** order

    exact, errors = [], []
    for mean, variance, y in zip(*moments, Y[:, 0], strict=True):
        ends = mean - 9.0 * variance**0.5, mean + 9.0 * variance**0.5
        peak = [min(max(y, ends[0]), ends[1])]
        first, second = (
            integrate.quad(power, *ends, args=(mean, variance, y, o), points=peak, limit=200)[0]
            for o in (alpha, 2.0 * alpha)
        )
        exact.append(np.log(first) / alpha)
        errors.append(np.sqrt((second / first**2 - 1.0) / model.num_samples) / alpha)
    inputs, targets = (tf.constant(v, tf.float32) for v in (X, Y))
    _, history = model.objective([inputs], targets, 20.0, tf.constant([0, 7]))
    error = np.sqrt(np.sum(np.square(errors))) / len(X)  # of the mean over points; alarms 2e-9
    assert_allclose(history["log_likelihood"], np.mean(exact), atol=6.0 * error + 1e-5)
    expected = likelihood.expected_log_prob(model._moments(inputs), targets)
    assert np.mean(exact) - np.mean(expected) > 20.0 * error  # far from the limit at alpha = 0


@pytest.mark.parametrize("alpha", [1e-7, 1e-5, 1e-3])
def test_small_powers_do_not_cancel_in_float32(alpha):
    means = tf.constant(GENERATOR.normal(size=(50, 6, 1)), tf.float32)
    targets = tf.constant(GENERATOR.normal(size=(6, 1)), tf.float32)
    noise, moments = likelihoods.Gaussian(0.5), GaussianMoments(means, None)
    seed = tf.constant([0, 1])
    limit = data_term(noise, moments, targets, 0.0, seed)
    spread = np.var(noise.log_prob(means, targets), axis=0)  # the next term of the series
    found = data_term(noise, moments, targets, alpha, seed)
    assert_allclose(found, limit + 0.5 * alpha * spread, rtol=1e-5, atol=20.0 * alpha**2 * 50.0)


def test_impossible_data_have_no_power():
    means, targets = tf.fill([3, 2, 1], 1e30), tf.constant([[0.0], [1.0]])
    noise, moments = likelihoods.Gaussian(0.1), GaussianMoments(means, None)
    assert_array_equal(data_term(noise, moments, targets, 1.0, 0), [-np.inf, -np.inf])


def test_joint_distribution_of_a_gaussian_posterior_is_that_of_many_functions():
    model = vip()
    model.fit(X, Y, epochs=2, verbose=0)
    joint, each = (model.predict_distribution(X, joint=j) for j in (True, False))
    # For 200 functions, the standard error of a mean is 0.07 and that of a deviation 5 % of it.
    deviation = each.stddev().numpy()
    assert np.max(np.abs(joint.mean() - each.mean()) / deviation) < 6.0 * 0.071
    assert_allclose(joint.stddev(), deviation, rtol=6.0 * 0.05)


# Seeds and dtypes -------------------------------------------------------------------------------


@pytest.mark.slow
def test_same_seed_is_the_same_run_with_a_users_discriminator_and_contrast():
    network = dense(3, 1)
    found = []
    for _ in range(2):
        copy = keras.models.clone_model(network)
        copy.set_weights(network.get_weights())
        model = made(discriminator=copy, adaptive_contrast=True)
        model.fit(X, Y, epochs=3, verbose=0)
        found.append(model.predict(X)["mean"])
    assert_array_equal(*found)


@pytest.mark.parametrize("cls", [sip.SIPModel, sip.VIPModel])
@pytest.mark.parametrize(("dtype", "prior_dtype"), [("float64", "float32"), ("float32", "float64")])
@pytest.mark.slow
def test_prior_of_another_dtype(cls, dtype, prior_dtype):
    prior = sip.neural_sampler_prior(2, units=(4,), dtype=prior_dtype, seed=0)
    if cls is sip.SIPModel:
        model = sip_models.make_model(prior, 3, num_draws=5, dtype=dtype, seed=1)
    else:
        model = cls(prior, num_prior_samples=5, dtype=dtype, seed=1)
    model.fit(X, Y, epochs=1, verbose=0)
    assert model(X)[0].dtype == dtype  # this is in model units; the user's units are float64
    assert model.sample_functions(X, 2).dtype == model.predict(X)["mean"].dtype == np.float64
    assert model.sample_prior_functions(X, 2).dtype == np.float64


@pytest.mark.slow
def test_gaussian_process_in_float64_below_a_model_in_float32():
    prior = processes.GaussianProcess(processes.ard_squared_exponential(2), dtype="float64")
    model = made(prior=prior)
    model.fit(X, Y, epochs=1, verbose=0)
    assert model(X).dtype == np.float32


@pytest.mark.parametrize("make", [made, vip, aadm])
def test_default_optimizers_scale_the_loss_in_mixed_precision(make):
    if make is vip:
        model = make(prior="neural_sampler", dtype="mixed_float16")
    else:
        model = make(dtype="mixed_float16")
    model.fit(X, Y, epochs=1, verbose=0)
    optimizers = [model.optimizer, getattr(model, "discriminator_optimizer", model.optimizer)]
    assert all(isinstance(each, keras.optimizers.LossScaleOptimizer) for each in optimizers)
    assert np.isfinite(model.history.history["loss"]).all()


# Before training --------------------------------------------------------------------------------


def test_adapt_puts_the_inducing_points_where_they_start():
    points = np.array([[0.0, 1.0], [2.0, 3.0], [-1.0, 0.5]])
    model = made(inducing_points=points)
    model.adapt(X, Y)
    assert_allclose(model.inducing_inputs_in_user_units(), points, rtol=1e-5, atol=1e-6)
    model = made()
    model.adapt(X, Y)
    start = model.inducing_inputs_in_user_units()
    distances = np.linalg.norm(start[:, np.newaxis] - X, axis=-1)
    assert distances.min(axis=1).max() < 1e-5 and len(set(distances.argmin(axis=1))) == 3


@keras.saving.register_keras_serializable(package="test_sip_boundaries")
class OwnClass(keras.Model):
    def call(self, inputs):
        return inputs


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: made(num_samples=1, adaptive_contrast=True), "`num_samples` must be at least 2"),
        (lambda: aadm(num_samples=1), "`num_samples` must be at least 2 with `adaptive_contrast`"),
        (lambda: made(dropout=1.0), "`dropout` must be less than 1. Received: dropout=1.0"),
        (
            lambda: sip.AdversarialOfWeights(dropout=1.0),
            "`dropout` must be less than 1. Received: dropout=1.0",
        ),
        (
            lambda: made(posterior=keras.Sequential([keras.layers.Dense(3)])),
            "`posterior` must be a Keras model that knows the shapes",
        ),
        (lambda: made(discriminator=OwnClass()), "`discriminator` must be a Keras model that"),
        (
            lambda: sip.AdversarialOfWeights(OwnClass()),
            "`discriminator` must be a Keras model that",
        ),
        (
            lambda: made(prior=sip.neural_sampler_prior(3)).fit(X, Y, verbose=0),
            "must take 12 columns, those of x and of its noise. Received: a network that takes 13",
        ),
        (
            lambda: made(prior=sip.bnn_prior(3)).fit(X, Y, verbose=0),
            "must take 2 columns, those of x and of its noise. Received: a network that takes 3",
        ),
        (lambda: vip(num_samples=0), "`num_samples` must be a positive integer"),
    ],
)
def test_what_cannot_work_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.slow
def test_one_draw_without_contrast_is_enough():
    model = made(num_samples=1, num_draws=4)
    model.fit(X, Y, epochs=1, verbose=0)
    assert np.isfinite(model.history.history["loss"]).all()


def test_student_t_process_as_the_prior_differs_from_a_gaussian_one_in_its_draws_only():
    kernel = tfp.math.psd_kernels.ExponentiatedQuadratic(1.0, 1.0)
    priors = [
        processes.StudentTProcess(kernel, 3.0, dtype="float64"),
        processes.GaussianProcess(kernel, dtype="float64"),
    ]
    distributions, draws = [], []
    for prior in priors:
        model = made(prior=prior, standardize=False, dtype="float64")
        model.compile(run_eagerly=True)
        model.adapt(X, Y)
        model.prepare([X], Y, [])
        distributions.append(model.predict_distribution(X))
        draws.append(model.sample_prior_functions(X, 2000, seed=3).ravel())
        assert np.isfinite(model.fit(X, Y, batch_size=20, verbose=0).history["loss"][0])
    assert_allclose(distributions[0].mean(), distributions[1].mean(), rtol=1e-8)
    assert_allclose(distributions[0].stddev(), distributions[1].stddev(), rtol=1e-8)
    heavy, normal = (np.mean(np.abs(d) > 4.0) for d in draws)  # expected: 0.62 % and 0.006 %
    assert heavy > 20.0 * normal and heavy > 0.002
