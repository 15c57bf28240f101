"""A Gaussian process fitted to rows."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tfp_fnspace.processes.fitted import fitted_prior
from tfp_fnspace.processes.gaussian import GaussianProcess

GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(3.0, 2.0, size=(40, 2))
Y = 10.0 + np.sin(X[:, :1]) + 0.3 * GENERATOR.normal(size=(40, 1))


@pytest.mark.slow
def test_prior_is_fitted_in_standardised_units():
    prior = fitted_prior(X, Y, 1000, seed=0)
    assert_allclose(prior.noise_scale, 0.3 / Y.std(), rtol=0.3)
    # The second input has no effect, so its length is the larger one.
    lengths = [w for w in prior.trainable_weights if w.shape == (2,)]
    assert len(lengths) == 1 and float(lengths[0][1]) > float(lengths[0][0])
    twice = fitted_prior(np.tile(X, (2, 1)), np.tile(Y, (2, 1)), 1000, seed=0)
    assert_allclose(twice.noise_scale, prior.noise_scale, rtol=1e-3)
    few = fitted_prior(X, Y, 10, seed=0)
    assert abs(float(few.noise_scale) - float(prior.noise_scale)) > 1e-4


def test_lengths_have_a_minimum(monkeypatch):
    """A fit may end at any length scale of a column that has two values."""

    def fit(process, *_, **__):
        process.kernel_weights.parameter_weights["scale_diag"].assign([-15.0, 0.5])

    monkeypatch.setattr(GaussianProcess, "fit", fit)
    lengths = fitted_prior(X, Y, dtype="float64").kernel().scale_diag
    assert_allclose(lengths, [1e-3, np.log1p(np.exp(0.5))], rtol=1e-6)
