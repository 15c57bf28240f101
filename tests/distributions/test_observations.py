"""Distributions of observations, against SciPy."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from tfp_fnspace.distributions import observations

PAIRS = {
    "LogNormal": (
        lambda a, b: observations.LogNormal(a, b),
        lambda a, b: stats.lognorm(b, 0.0, np.exp(a)),
    ),
    "Gamma": (lambda a, b: observations.Gamma(a, b), lambda a, b: stats.gamma(a, 0.0, 1.0 / b)),
    "Beta": (lambda a, b: observations.Beta(a, b), lambda a, b: stats.beta(a, b)),
}


@pytest.mark.parametrize("name", PAIRS)
def test_distribution_functions_of_impossible_values_are_zero_or_one(name):
    ours, theirs = (make(*map(np.float64, (0.8, 1.7))) for make in PAIRS[name])
    x = np.array([-3.0, -1e-30, 0.0, 0.2, 0.99, 1.0, 1.5, 30.0])
    np.testing.assert_allclose(ours.cdf(x), theirs.cdf(x), rtol=1e-12)
    np.testing.assert_allclose(ours.survival_function(x), theirs.sf(x), rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("name", PAIRS)
def test_their_gradients_are_finite(name):
    x = tf.constant([-3.0, 0.0, 0.5, 1.0, 2.0], tf.float64)
    make = PAIRS[name][0]
    with tf.GradientTape() as tape:
        parameters = [tf.constant(v, tf.float64) for v in (0.8, 1.7)]
        tape.watch([x, *parameters])
        total = tf.reduce_sum(make(*parameters).cdf(x))
    gradients = tape.gradient(total, [x, *parameters])
    assert all(np.all(np.isfinite(part)) for part in gradients)
    np.testing.assert_array_equal(gradients[0][:2], 0.0)
