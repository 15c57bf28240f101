"""Theorem 2 where everything is normal: a linear model with a full-covariance posterior.

With four rows, a drawn point and five weights, the values of f at five points determine the
weights. So the objective is the log evidence less the divergence of the weights from their exact
posterior.
"""

import fbnn_models
import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from numpy.testing import assert_allclose

from tfp_fnspace import fbnn, layers, likelihoods, processes

NOISE, ROWS = 0.3, 4

GENERATOR = np.random.default_rng(3)
X = GENERATOR.normal(size=(ROWS, 4))
Y = X @ GENERATOR.normal(size=(4, 1)) + NOISE * GENERATOR.normal(size=(ROWS, 1))
FEATURES = np.concatenate([X, np.ones((ROWS, 1))], axis=1)


def posterior():
    """Returns mean and covariance of the weights given the rows; weights and bias ~ N(0, 1)."""
    covariance = np.linalg.inv(np.eye(5) + FEATURES.T @ FEATURES / NOISE**2)
    return covariance @ FEATURES.T @ Y[:, 0] / NOISE**2, covariance


def log_evidence():
    """Returns the log evidence of all rows, in nats."""
    total = FEATURES @ FEATURES.T + NOISE**2 * np.eye(ROWS)
    square = (Y.T @ np.linalg.solve(total, Y)).item()
    return -0.5 * (square + np.linalg.slogdet(total)[1] + ROWS * np.log(2.0 * np.pi))


def divergence(mean, covariance, other_mean, other_covariance):
    """Computes `KL[N || N]` in nats."""
    difference = other_mean - mean
    inverse = np.linalg.inv(other_covariance)
    logs = np.linalg.slogdet(other_covariance)[1] - np.linalg.slogdet(covariance)[1]
    trace = np.trace(inverse @ covariance)
    return 0.5 * (trace + difference @ inverse @ difference - len(mean) + logs)


def make(**options):
    keras.utils.set_random_seed(0)
    layer = layers.VariationalDense(1, posterior="full", prior="standard", dtype="float64")
    prior = processes.GaussianProcess(
        tfp.math.psd_kernels.Linear(1.0, 1.0), jitter=0.0, dtype="float64"
    )
    fixed = {"kl_weight": "data", "num_samples": 100, "standardize": False, "seed": 0}
    fixed.update(injected_noise=0.0, measurement=fbnn.TrainingRows(), dtype="float64")
    fixed["monitor_steps"] = 1
    network = keras.Sequential([keras.Input((4,), dtype="float64"), layer])
    likelihood = likelihoods.Gaussian(NOISE, dtype="float64")
    options = {**fixed, **options}
    return fbnn_models.make_model(network, prior, likelihood=likelihood, **options)


def set_posterior(model, mean, covariance):
    """Sets the model's q to a normal distribution of the weights."""
    raw = np.linalg.cholesky(covariance)
    raw[np.diag_indices(5)] = np.log(np.expm1(np.diag(raw)))  # inverse of softplus
    model.network.layers[0].set_weights([mean[:4, np.newaxis], mean[4:], raw])


def objectives(model, count=400):
    """Returns the objective of the rows in nats; each value has its own draws, `[count]`."""
    x, y, num_rows = tf.constant(X), tf.constant(Y), tf.constant(float(ROWS), tf.float64)

    @tf.function(autograph=False)
    def values(seeds):
        def value(seed):
            return model.objective([x], y, num_rows, seed)[1]["elbo"]

        return ROWS * tf.map_fn(value, seeds, tf.float64, parallel_iterations=1)

    return values(tf.stack([tf.range(count), tf.ones([count], tf.int32)], axis=1)).numpy()


# Distributions of the weights: the exact posterior, one near it, and the prior.
DISTRIBUTIONS = {
    "exact": lambda mean, covariance: (mean, covariance),
    "near": lambda mean, covariance: (mean + 0.1, 1.3 * covariance + 0.01 * np.eye(5)),
    "prior": lambda mean, covariance: (np.zeros(5), np.eye(5)),
}


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_objective_is_the_evidence_less_the_divergence_from_the_posterior(
    distribution, assert_mean_close
):
    exact = posterior()
    chosen = DISTRIBUTIONS[distribution](*exact)
    # Each objective draws a new fifth point; its place makes no difference.
    model = make(measurement=fbnn.Box(1, low=-2.0, high=2.0, dtype="float64"))
    set_posterior(model, *chosen)
    gap = divergence(*chosen, *exact)
    assert (gap < 1e-12) == (distribution == "exact") and gap >= -1e-12
    noticed = assert_mean_close(objectives(model), log_evidence() - gap)
    assert distribution == "prior" or noticed < 0.1  # a larger error, in nats, would be seen


def test_at_the_rows_alone_the_divergence_is_that_of_their_values(assert_mean_close):
    mean, covariance = posterior()
    distribution = mean, 4.0 * covariance
    model = make()
    set_posterior(model, *distribution)
    at_rows = [
        (FEATURES @ m, FEATURES @ v @ FEATURES.T) for m, v in (distribution, (mean, covariance))
    ]
    gap = divergence(*at_rows[0], *at_rows[1])
    assert 0.0 < gap < divergence(*distribution, mean, covariance) - 0.5
    assert_mean_close(objectives(model), log_evidence() - gap)


def test_injected_noise_lowers_the_divergence(assert_mean_close):
    """With noise the objective is no bound: it exceeds the evidence."""
    gamma, (mean, covariance) = 0.5, posterior()
    model = make(injected_noise=gamma)
    set_posterior(model, mean, covariance)
    gram, at_rows = FEATURES @ FEATURES.T, FEATURES @ covariance @ FEATURES.T
    prior = (np.zeros(ROWS), gram)
    noise = gamma**2 * np.eye(ROWS)
    f = FEATURES @ mean
    lowered = divergence(f, at_rows, *prior) - divergence(f, at_rows + noise, 0.0 * f, gram + noise)
    assert lowered > 0.5
    assert_mean_close(objectives(model), log_evidence() + lowered)


@pytest.mark.slow
def test_training_reaches_the_posterior_and_the_evidence():
    model = make()
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay([400, 800], [5e-2, 1e-2, 2e-3])
    model.compile(optimizer=keras.optimizers.Adam(schedule), num_rows=ROWS)
    copies = [np.tile(a, (100, 1)) for a in (X, Y)]  # an epoch is 100 steps on all rows
    history = model.fit(*copies, batch_size=ROWS, epochs=12, shuffle=False, verbose=0).history
    mean, covariance = posterior()
    mean, covariance = FEATURES @ mean, FEATURES @ covariance @ FEATURES.T
    f = model.sample_functions(X, 4000, seed=1)[..., 0]
    stddev = np.sqrt(np.diag(covariance))
    # With 4,000 draws the standard errors are 0.016, 1.1 % and 0.016; the estimator adds the rest.
    assert_allclose((f.mean(axis=0) - mean) / stddev, 0.0, atol=0.1)
    assert_allclose(f.std(axis=0), stddev, rtol=0.06)
    assert_allclose(np.corrcoef(f.T), covariance / np.outer(stddev, stddev), atol=0.08)
    # It is a bound up to the error of the mean of 100 estimates, and tight at the optimum.
    error = objectives(model, 100).std() / 10.0
    bound = ROWS * np.array(history["elbo"])
    assert error < 0.02
    assert np.all(bound < log_evidence() + 5.0 * error)
    assert bound[-1] > log_evidence() - 0.04
