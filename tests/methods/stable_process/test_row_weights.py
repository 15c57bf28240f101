"""Weights of rows in the stable process, against copies of the rows."""

import warnings

import numpy as np
import pytest
import stable_models
import tensorflow as tf
from scipy import stats

from tfp_fnspace import likelihoods
from tfp_fnspace.methods.stable_process import equations, hyperplanes, samplers
from tfp_fnspace.methods.stable_process.samplers import hmc

RNG = np.random.default_rng(0)
X = np.linspace(-2.0, 2.0, 6)[:, np.newaxis]
Y = np.sign(X) + 0.5 * RNG.normal(size=(6, 1))
WEIGHTS = np.array([1.0, 4.0, 1.0, 2.0, 6.0, 1.0])
COPIES = np.repeat(np.arange(6), WEIGHTS.astype(int))
NUM_COPIES = np.sum(WEIGHTS - 1.0)


def test_the_likelihood_of_a_weighted_row_is_that_of_its_copies():
    """As a function of the noise, both are the same up to a constant."""
    root = RNG.normal(size=(6, 6))
    covariance = root @ root.T
    log_noise = np.array([-3.0, -1.0, 0.5, 2.0])
    of_copies = [
        stats.multivariate_normal(
            np.zeros(len(COPIES)),
            covariance[np.ix_(COPIES, COPIES)] + np.exp(v) * np.eye(len(COPIES)),
        ).logpdf(Y[COPIES, 0])
        for v in log_noise
    ]
    factor = equations.covariance_factor(
        tf.constant(np.tile(covariance, (4, 1, 1))),
        tf.constant(np.tile(1.0 / WEIGHTS, (4, 1))),
        tf.constant(log_noise),
        tf.zeros([4], tf.float64),
    )
    ours = equations.log_likelihood(factor, tf.constant(np.tile(Y[:, 0], (4, 1))))
    ours += equations.log_noise_of_copies(tf.constant(log_noise), NUM_COPIES)
    difference = ours.numpy() - of_copies
    np.testing.assert_allclose(difference, difference[0], rtol=1e-9)


def fitted(x, y, weights=None, sampler="grouped", epochs=21, **options):
    of_chains = {"num_chains": 4, "sweeps_per_epoch": 100, "burn_in": 3, "max_draws": 2000}
    options = {"likelihood": likelihoods.Gaussian(0.5, trainable=True), **options}
    partition = hyperplanes.partition(X, kind="exact")
    model = stable_models.make_model(
        partition=partition, sampler=sampler, standardize=False, seed=0, **of_chains, **options
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The chains")
        model.fit(x, y, sample_weight=weights, epochs=epochs, verbose=0)
    return model


def summary(model):
    values = model.stored_values(X)[..., 0]  # [N, S]
    noise = np.log(model.store.stored("noise_scale"))
    return np.concatenate([values.mean(axis=1), values.std(axis=1), [noise.mean(), noise.std()]])


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["grouped", "metropolis"])
def test_the_posterior_given_weights_is_that_given_copies(sampler):
    ours = summary(fitted(X, Y, WEIGHTS, sampler))
    theirs = summary(fitted(X[COPIES], Y[COPIES], None, sampler))
    plain = summary(fitted(X, Y, None, sampler))
    np.testing.assert_allclose(ours, theirs, atol=0.12)
    assert np.max(np.abs(plain - theirs)) > 0.3


def test_the_target_of_hmc_given_weights_is_that_given_copies():
    """All atoms have one scale, so that the order of the patterns does not matter."""
    partition = hyperplanes.partition(X, kind="exact")
    log_noise, log_nu = np.array([-2.0, 0.0, 1.0]), np.array([0.3, -0.5, 0.1])
    found = []
    for rows, shares, num_copies in (
        (COPIES, np.ones(len(COPIES)), 0.0),
        (np.arange(6), 1.0 / WEIGHTS, NUM_COPIES),
    ):
        targets = np.repeat(Y[rows].T, 3, axis=0)
        problem = samplers.make_problem(partition.signs(X[rows]), partition.probabilities, targets)
        state = samplers.initial_state(0, problem, 1.5, np.exp(log_nu), np.exp(log_noise))
        state = state._replace(noise_weights=tf.constant(np.tile(shares, (3, 1))))
        atoms = np.zeros((3, 2 * state.u.shape[1]))
        parts = [atoms, log_noise[:, np.newaxis], log_nu[:, np.newaxis], np.zeros((3, 1))]
        settings = samplers.Settings(nu_prior=(0.0, 1.0), num_copies=num_copies)
        position = tf.constant(np.concatenate(parts, axis=1))
        found.append(hmc.log_target(position, state, problem, settings)[0].numpy())
    difference = found[0] - found[1]
    np.testing.assert_allclose(difference, difference[0], rtol=1e-9)


@pytest.mark.slow
def test_a_change_of_weights_begins_other_chains():
    model = fitted(X, Y, WEIGHTS, epochs=2)
    np.testing.assert_array_equal(model.store.state.noise_weights[0], 1.0 / WEIGHTS)
    epochs = model.store.counter("epochs")
    for weights, expected in ((WEIGHTS, epochs + 2), (None, 2), (np.ones(6), 4), (WEIGHTS, 2)):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The chains")
            model.fit(X, Y, sample_weight=weights, epochs=2, verbose=0)
        assert model.store.counter("epochs") == expected


def test_student_t_noise_refuses_weights():
    model = stable_models.make_model(likelihood=likelihoods.StudentT(4.0, 0.5))
    with pytest.raises(ValueError, match=r"needs Gaussian noise.*Received: likelihood=StudentT"):
        model.fit(X, Y, sample_weight=WEIGHTS, verbose=0)
