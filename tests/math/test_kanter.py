"""`tfp_fnspace.math.kanter`: values and distribution of Kanter's representation."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from tfp_fnspace.math import kanter

INDICES = [0.05, 0.2, 0.35, 0.5, 0.8, 0.95, 0.999]
U = np.array([1e-12, 1e-3, 0.1, 0.5, 0.9, 0.999, 1.0 - 1e-9])


def double(value):
    return tf.constant(value, tf.float64)


def exact_log_kanter(u, index):
    """Computes Kanter's formula in extended precision."""
    u, a = np.longdouble(u), np.longdouble(index)
    pi = 4.0 * np.arctan(np.longdouble(1.0))
    log_sine = np.log(np.sin(pi * np.minimum(u, 1.0 - u)))
    value = a * np.log(np.sin(a * pi * u)) + (1.0 - a) * np.log(np.sin((1.0 - a) * pi * u))
    return float((value - log_sine) / a)


@pytest.mark.parametrize("index", INDICES)
def test_log_kanter_is_the_formula(index):
    expected = [exact_log_kanter(u, index) for u in U]
    ours = kanter.log_kanter(double(U), double(index))
    # Rounding matters: terms of size 30/index cancel at small u.
    np.testing.assert_allclose(ours, expected, rtol=1e-13, atol=2e-14 / index)


@pytest.mark.parametrize("index", INDICES)
def test_log_exponential_inverts_log_scale(index):
    rng = np.random.default_rng(0)
    u, log_e = rng.uniform(size=50), np.log(rng.standard_exponential(50))
    scale = kanter.log_scale(double(u), double(log_e), double(index))
    back = kanter.log_exponential(double(u), scale, double(index))
    np.testing.assert_allclose(back, log_e, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("index", [0.2, 0.5, 0.8, 0.95])
def test_scales_have_their_laplace_transform(assert_mean_close, index):
    rng = np.random.default_rng(1)
    u, log_e = rng.uniform(size=(200_000, 1)), np.log(rng.standard_exponential((200_000, 1)))
    scales = np.exp(kanter.log_scale(double(u), double(log_e), double(index)).numpy())
    rates = np.array([0.1, 1.0, 3.0])
    assert_mean_close(np.exp(-rates * scales), np.exp(-(rates**index)), 1e-6)


def test_at_index_one_half_it_is_levys_distribution():
    rng = np.random.default_rng(2)
    u, log_e = rng.uniform(size=100_000), np.log(rng.standard_exponential(100_000))
    scales = np.exp(kanter.log_scale(double(u), double(log_e), double(0.5)).numpy())
    assert stats.kstest(scales, stats.levy(scale=0.5).cdf).pvalue > 1e-6
