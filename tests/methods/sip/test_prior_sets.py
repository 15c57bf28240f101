"""`num_eval_sets`: predictions by the moments of several sets of prior draws."""

import keras
import numpy as np
import pytest
import sip_models
import tensorflow as tf
import tensorflow_probability as tfp
from numpy.testing import assert_allclose, assert_array_equal

from tfp_fnspace import likelihoods, processes, sip
from tfp_fnspace.math.random import fold_in

X = np.linspace(-2.0, 2.0, 7)[:, np.newaxis]
Z = np.array([[-1.5], [-0.2], [1.1]])
U = np.array([[1.0, -0.3], [0.4, 0.8], [-0.7, 0.2]])
JITTER, DRAWS = 1e-2, 6


def model_with(prior="neural_sampler", spread=0.0, **options):
    """Makes a float64 model of two outputs whose u is `U`, or normal about it for a spread."""
    posterior = keras.Sequential(
        [keras.Input((4,), dtype="float64"), keras.layers.Dense(6, dtype="float64")]
    )
    model = sip_models.make_model(
        prior,
        Z,
        posterior,
        likelihood=likelihoods.Gaussian(0.4, dtype="float64"),
        num_outputs=2,
        standardize=False,
        jitter=JITTER,
        num_samples=5,
        num_draws=DRAWS,
        dtype="float64",
        seed=0,
        **{"num_eval_samples": 8, **options},
    )
    model.adapt(X, np.zeros((7, 2)))
    model.prepare([X], np.zeros((7, 2)), [])
    kernels, bias = posterior.get_weights()
    posterior.set_weights([spread * kernels, U.reshape(bias.shape)])
    return model


def distributions_of_sets(model, num_sets, u):
    """Returns mean and variance of f given u `[n, M, D]`, u_s by set s mod B, by NumPy."""
    seed = model.counters.seeds.stream("prior")
    draws = model.prior.sample(np.concatenate([Z, X]), num_sets * DRAWS, seed).numpy()
    means, variances = np.empty((2, len(u), len(X), 2))
    for s, values in enumerate(u):
        of_set = draws[s % num_sets :: num_sets]
        for d in range(2):
            covariance = np.cov(of_set[:, :, d].T, bias=True)
            middle = of_set[:, :, d].mean(axis=0)
            weights = np.linalg.solve(covariance[:3, :3] + JITTER * np.eye(3), covariance[:3, 3:])
            means[s, :, d] = middle[3:] + weights.T @ (values[:, d] - middle[:3])
            explained = np.sum(covariance[:3, 3:] * weights, axis=0)
            variances[s, :, d] = np.diag(covariance)[3:] - explained
    return means, variances


@pytest.mark.parametrize("spread", [0.0, 1.0])
@pytest.mark.parametrize("prior", ["bnn", "neural_sampler"])
@pytest.mark.parametrize("num_sets", [1, 4])
def test_the_mixture_goes_through_the_sets(prior, num_sets, spread):
    model = model_with(prior, spread, num_eval_sets=num_sets)
    seed = fold_in(tf.convert_to_tensor(model.counters.seed_state), -1)
    u = model.posterior_draws(8, seed, False).numpy()
    assert np.ptp(u, axis=0).max() > 0.1 or spread == 0.0
    means, variances = distributions_of_sets(model, num_sets, u)
    assert num_sets == 1 or means.std(axis=0).max() > 0.05  # the sets differ
    mixture = model.posterior_moments(tf.constant(X))
    assert_allclose(mixture.mean, means, rtol=1e-7, atol=1e-9)
    assert_allclose(mixture.variance, variances, rtol=1e-7, atol=1e-9)
    outputs = model.predict(X)
    assert_allclose(outputs["mean"], means.mean(axis=0), rtol=1e-5, atol=1e-6)
    deviation = np.sqrt(variances.mean(axis=0) + means.var(axis=0))
    assert_allclose(outputs["epistemic_stddev"], deviation, rtol=1e-5)


def test_draws_that_are_no_multiple_of_the_sets():
    model = model_with(num_eval_sets=3)
    means, _ = distributions_of_sets(model, 3, np.tile(U, (8, 1, 1)))
    mixture = model.posterior_moments(tf.constant(X))  # 8 draws
    assert_allclose(mixture.mean, means, rtol=1e-7, atol=1e-9)
    assert model.sample_functions(X, 4, seed=1).shape == (4, 7, 2)


def test_functions_have_the_distribution_of_the_mixture(assert_mean_close):
    """The test draws 6,000 functions; its false-fail rates are 1e-6 each."""
    model = model_with(num_eval_sets=3)
    means, variances = distributions_of_sets(model, 3, np.tile(U, (3, 1, 1)))
    samples = model.sample_functions(X, 6000, seed=3)
    assert_mean_close(samples, means.mean(axis=0))
    squares = (samples - means.mean(axis=0)) ** 2
    assert_mean_close(squares, variances.mean(axis=0) + means.var(axis=0))


@pytest.mark.slow
def test_single_functions_are_of_each_set(assert_mean_close):
    """The test makes 600 calls for one function; its false-fail rate is 1e-6."""
    model = model_with(num_eval_sets=3)
    means, _ = distributions_of_sets(model, 3, np.tile(U, (3, 1, 1)))
    x = tf.constant(X)
    draw = tf.function(lambda seed: model.draw_functions(x, 1, seed))
    samples = np.concatenate([draw(tf.constant([k, 7])) for k in range(600)])
    bound = assert_mean_close(samples, means.mean(axis=0))
    assert np.any(np.abs(means[0] - means.mean(axis=0)) > 2.0 * bound)  # set 0 alone differs


def test_functions_do_not_depend_on_how_x_is_batched():
    model = model_with(spread=1.0, num_eval_sets=3)
    whole = model.sample_functions(X, 10, seed=(1, 2))
    parts = [model.sample_functions(X[i : i + 3], 10, seed=(1, 2)) for i in (0, 3, 6)]
    assert_allclose(np.concatenate(parts, axis=1), whole, rtol=1e-8, atol=1e-8)
    assert np.abs(model.sample_functions(X, 10, seed=(1, 3)) - whole).max() > 1e-2


def test_few_draws_and_many_sets_are_predicted_for_batches_of_enough_rows():
    model = model_with(num_eval_sets=2000)
    assert 3 <= model.predict_batch_size < 20  # each batch also has the prior at 3 points
    assert model_with().predict_batch_size > 1000


@pytest.mark.parametrize("kind", ["fixed draws", "exact moments"])
def test_it_has_no_effect_where_moments_are_always_the_same(kind):
    options = {"fixed": True}
    if kind == "exact moments":
        kernel = tfp.math.psd_kernels.ExponentiatedQuadratic(np.float64(1.3), np.float64(0.8))
        options = {"prior": processes.GaussianProcess(kernel, 2, dtype="float64")}
    one, many = (model_with(num_eval_sets=count, **options) for count in (1, 5))
    for key, value in one.predict(X).items():
        assert_array_equal(many.predict(X)[key], value)
    assert_array_equal(one.sample_functions(X, 4, seed=1), many.sample_functions(X, 4, seed=1))


@pytest.mark.slow
def test_it_is_saved_and_exported(tmp_path):
    model = sip_models.make_model(
        "bnn", 4, num_samples=6, num_eval_samples=5, num_eval_sets=3, seed=0
    )
    model.compile(run_eagerly=True)
    model.fit(X, np.sin(X), batch_size=4, verbose=0)
    model.save(tmp_path / "m.keras")
    again = keras.models.load_model(tmp_path / "m.keras")
    assert again.prior_draws.num_eval_sets == 3
    model.export(str(tmp_path / "served"), verbose=False)
    served, x = tf.saved_model.load(str(tmp_path / "served")), tf.constant(X, tf.float32)
    for key, value in model.predict(X).items():
        assert_array_equal(again.predict(X)[key], value)
        assert_allclose(served.serve(x)[key], value, rtol=1e-4, atol=1e-5)
    functions = served.sample(x, seed=tf.constant([1, 2]))
    assert_allclose(functions, model.sample_functions(X, len(functions), (1, 2)), atol=1e-4)


def test_it_is_a_count():
    with pytest.raises(ValueError, match="`num_eval_sets` .*Received"):
        sip.PriorDraws(num_eval_sets=0)
