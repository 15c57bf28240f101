"""Theorem 2 where everything is normal: a linear model with a full-covariance posterior."""

import keras
import numpy as np
import pytest
import tensorflow_probability as tfp
from numpy.testing import assert_allclose

from tfp_fnspace import fbnn, layers, likelihoods, processes

NOISE = 0.3


def problem():
    """Rows, targets, posterior mean and covariance of f, and the log evidence of a row.

    Four rows and five weights: as many values of f as the kernel of a linear model has rank for.
    """
    random = np.random.default_rng(3)
    x = random.normal(size=(4, 4))
    y = x @ random.normal(size=(4, 1)) + NOISE * random.normal(size=(4, 1))
    gram = 1.0 + x @ x.T  # weights and bias ~ N(0, 1)
    total = gram + NOISE**2 * np.eye(4)
    gain = gram @ np.linalg.inv(total)
    evidence = -0.5 * (y.T @ np.linalg.solve(total, y)).item()
    evidence -= 0.5 * (np.linalg.slogdet(total)[1] + 4.0 * np.log(2.0 * np.pi))
    return x, y, (gain @ y)[:, 0], gram - gain @ gram, evidence / 4.0


def trained(x, y, **options):
    """A model after 1,200 steps, and its history."""
    keras.utils.set_random_seed(0)
    layer = layers.VariationalDense(1, posterior="full", prior="standard", dtype="float64")
    network = keras.Sequential([keras.Input((4,), dtype="float64"), layer])
    prior = processes.GaussianProcess(
        tfp.math.psd_kernels.Linear(1.0, 1.0), jitter=0.0, dtype="float64"
    )
    model = fbnn.FBNNModel(
        network,
        prior,
        likelihoods.Gaussian(NOISE, dtype="float64"),
        fbnn.TrainingRows(),
        kl_weight="data",
        num_samples=100,
        standardize=False,
        seed=0,
        dtype="float64",
        **options,
    )
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay([400, 800], [5e-2, 1e-2, 2e-3])
    model.compile(optimizer=keras.optimizers.Adam(schedule))
    return model, model.fit(x, y, batch_size=4, epochs=1200, verbose=0).history


@pytest.mark.slow
def test_training_reaches_the_posterior_and_the_evidence():
    x, y, mean, covariance, evidence = problem()
    model, history = trained(x, y, injected_noise=0.0)
    f = model.sample_functions(x, 4000, seed=1)[..., 0]
    stddev = np.sqrt(np.diag(covariance))
    # Of 4,000 draws the standard errors are 0.016, 1.1 % and 0.016; the rest is the estimator's.
    assert_allclose((f.mean(axis=0) - mean) / stddev, 0.0, atol=0.1)
    assert_allclose(f.std(axis=0), stddev, rtol=0.06)
    correlations = covariance / np.outer(stddev, stddev)
    assert_allclose(np.corrcoef(f.T), correlations, atol=0.08)
    # A bound, up to the error of the mean of 100 estimates, and tight at the optimum.
    elbo = np.array(history["elbo"]).reshape(12, 100)
    error = elbo.std(axis=1, ddof=1) / 10.0
    assert np.all(elbo.mean(axis=1) < evidence + 5.0 * error)
    assert elbo[-1].mean() > evidence - 0.01


@pytest.mark.slow
def test_injected_noise_lowers_the_divergence():
    """The objective is then no bound: it passes the evidence."""
    x, y, _, _, evidence = problem()
    _, history = trained(x, y, injected_noise=0.5)
    elbo = np.array(history["elbo"][-100:])
    assert elbo.mean() > evidence + 0.01
