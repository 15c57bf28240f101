"""R-hat and effective sample sizes, against closed forms and ArviZ."""

import re
import time

import numpy as np
import pytest
from scipy import integrate, stats

from tfp_fnspace import metrics

FUNCTIONS = {"rhat": metrics.rhat, "bulk": metrics.ess_bulk, "tail": metrics.ess_tail}


def autoregressive(shape, rho, seed):
    """Draws stationary standard normal chains `[chains, draws, ...]` with correlation rho^lag."""
    noise = np.random.default_rng(seed).normal(size=shape)
    x = np.empty(shape)
    x[:, 0] = noise[:, 0]
    for t in range(1, shape[1]):
        x[:, t] = rho * x[:, t - 1] + np.sqrt(1.0 - rho**2) * noise[:, t]
    return x


# Closed forms ------------------------------------------------------------------------------------

# In 400 other entries a single estimate scatters by 2 to 8 % (bulk) or 2 to 10 % (tail), and is
# biased by up to 1.2 % (bulk) or 4 % (tail, a minimum of two). The mean of 100 stays within 5 % and
# 10 % by more than 5.5 standard errors, a false-fail rate below 1e-7.
REPLICATES = 100


@pytest.mark.parametrize("rho", [-0.5, 0.0, 0.5, 0.9])
def test_bulk_size_of_autoregressive_chains(rho):
    draws = autoregressive((4, 5000, REPLICATES), rho, seed=1)
    expected = 20_000 * (1.0 - rho) / (1.0 + rho)
    assert np.mean(metrics.ess_bulk(draws)) == pytest.approx(expected, rel=0.05)


def tail_size(num_draws, rho, level=0.05):
    """Computes S / (1 + 2 sum corr) of the indicators of a Gaussian chain at one quantile."""
    q = stats.norm.ppf(level)

    def slope(r):  # the derivative of P(both below q) in their correlation (Plackett)
        return np.exp(-(q**2) / (1.0 + r)) / (2.0 * np.pi * np.sqrt(1.0 - r**2))

    covariances = [integrate.quad(slope, 0.0, rho**t)[0] for t in range(1, 200)]
    return num_draws / (1.0 + 2.0 * sum(covariances) / (level * (1.0 - level)))


@pytest.mark.parametrize("rho", [-0.5, 0.0, 0.5, 0.9])
def test_tail_size_of_autoregressive_chains(rho):
    draws = autoregressive((4, 5000, REPLICATES), rho, seed=2)
    assert np.mean(metrics.ess_tail(draws)) == pytest.approx(tail_size(20_000, rho), rel=0.10)


def test_rhat_of_independent_draws():
    # For 8 halves of N = 2500 draws, Rhat - 1 is about (X/7 - 1)/(2 N) with X ~ chi^2(7). 1.003 is
    # at X = 112, a false-fail rate below 1e-15 (the largest of 1500 others was 1.0006).
    assert np.max(metrics.rhat(autoregressive((4, 5000, 20), 0.0, seed=3))) < 1.003


def test_rhat_sees_a_shifted_chain():
    draws = autoregressive((4, 1000, 20), 0.0, seed=4)
    draws[3] += 1.0
    assert np.min(metrics.rhat(draws)) > 1.05


def test_rhat_sees_a_wider_chain_by_folding():
    draws = autoregressive((4, 1000, 20), 0.0, seed=5)
    draws[3] *= 3.0
    assert np.min(metrics.rhat(draws)) > 1.05


def test_rhat_sees_a_trend_that_all_chains_share():
    draws = autoregressive((4, 1000, 20), 0.0, seed=6) + np.linspace(0.0, 2.0, 1000)[:, np.newaxis]
    assert np.min(metrics.rhat(draws)) > 1.05


def test_only_ranks_count():
    draws = autoregressive((3, 50, 2), 0.5, seed=7)
    for name in ("bulk", "tail"):
        function = FUNCTIONS[name]
        np.testing.assert_allclose(function(np.exp(5.0 * draws)), function(draws), rtol=1e-10)


# ArviZ -------------------------------------------------------------------------------------------


def oracle_chains():
    x = autoregressive((4, 101), 0.8, seed=0)
    return {
        "autoregressive": x,
        "alternating": autoregressive((4, 200), -0.7, seed=1),
        "one_shifted": x + np.array([0.0, 0.0, 0.0, 1.5])[:, np.newaxis],
        "one_wider": autoregressive((4, 250), 0.3, seed=2) * np.array([[1.0], [1.0], [1.0], [4.0]]),
        "heavy_tails": np.sinh(3.0 * x) * np.exp(x * x),
        "few": autoregressive((2, 9), 0.3, seed=3),
        "ties": np.round(x),
        "two_values": (x > 0.0) * 1.0,
        "largest_often": np.minimum(x, 1.0),
        "one_stands_still": np.concatenate([x[:3], np.ones((1, 101))]),
        "all_stand_still": np.ones((4, 50)) * np.arange(4)[:, np.newaxis],
        "constant": np.ones((4, 50)),
    }


# Values are from arviz 0.23.4 (NumPy 2.4.6): az.rhat(x), az.ess(x, method="bulk" or "tail").
ARVIZ = {
    "autoregressive": (1.0514333412931627, 66.20846602144407, 97.48437361787646),
    "alternating": (1.0087586916014422, 2322.471989593555, 736.8712206061109),
    "one_shifted": (1.2297347341144211, 16.45688136262493, 37.448228953422834),
    "one_wider": (1.2182438886561315, 655.3650501360831, 37.674596596676885),
    "heavy_tails": (1.0514333412931627, 66.20846602144407, 97.48437361787646),
    "few": (1.1875494770272574, 19.265919722494797, 19.265919722494797),
    "ties": (1.0455729246908312, 72.02136795191684, 95.38790141649628),
    "two_values": (1.0366241487340886, 97.41466425412368, 97.41466425412366),
    "largest_often": (1.0482816198917277, 67.71804594456329, 97.48437361787646),
    "one_stands_still": (1.1746140318805096, 23.819708762772223, 85.42644157554517),
    "all_stand_still": (np.inf, 4.545454545454546, 4.545454545454546),
    "constant": (np.nan, 200.0, 200.0),
}


@pytest.mark.parametrize("name", ARVIZ)
def test_values_are_those_of_arviz(name):
    draws = oracle_chains()[name]
    values = [function(draws) for function in FUNCTIONS.values()]
    np.testing.assert_allclose(values, ARVIZ[name], rtol=1e-9)


# Shapes, dtypes and limits -----------------------------------------------------------------------


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0,)])
def test_every_entry_is_on_its_own(name, shape):
    draws = autoregressive((3, 21, *shape), 0.5, seed=8)
    values = FUNCTIONS[name](draws)
    assert values.shape == shape and values.dtype == np.float64
    for place in np.ndindex(shape):
        alone = FUNCTIONS[name](draws[(slice(None), slice(None), *place)])
        np.testing.assert_allclose(values[place], alone, rtol=1e-12)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_parts_do_not_show(name, monkeypatch):
    draws = autoregressive((2, 20, 7), 0.5, seed=9)
    whole = FUNCTIONS[name](draws)
    monkeypatch.setattr("tfp_fnspace.metrics.mcmc._NUMBERS_AT_A_TIME", 80)
    np.testing.assert_allclose(FUNCTIONS[name](draws), whole, rtol=1e-12)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_draws_that_are_not_finite_give_nan_where_they_are(name, value):
    draws = autoregressive((2, 20, 3), 0.5, seed=10)
    before = FUNCTIONS[name](draws)
    draws[1, 7, 1] = value
    values = FUNCTIONS[name](draws)
    np.testing.assert_array_equal(np.isnan(values), [False, True, False])
    np.testing.assert_array_equal(values[[0, 2]], before[[0, 2]])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_chain_and_other_dtypes(name):
    draws = np.round(autoregressive((1, 100), 0.5, seed=11), 2)
    value = FUNCTIONS[name](draws)
    assert np.isfinite(value)
    assert FUNCTIONS[name](draws.tolist()) == value
    np.testing.assert_allclose(FUNCTIONS[name](draws.astype(np.float32)), value, rtol=1e-6)
    np.testing.assert_allclose(FUNCTIONS[name](np.rint(100 * draws).astype(int)), value, rtol=1e-10)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("shape", [(), (100,), (4, 3), (0, 10), (4, 0, 2)])
def test_bad_shapes(name, shape):
    message = f"with at least 4 draws. Received: draws of shape {shape}"
    with pytest.raises(ValueError, match=re.escape(message)):
        FUNCTIONS[name](np.zeros(shape))


def test_speed():
    # Each takes 0.2 to 0.4 s; the bound is for a busy machine.
    draws = autoregressive((4, 2000, 200), 0.5, seed=12)
    begin = time.process_time()
    for function in FUNCTIONS.values():
        function(draws)
    assert time.process_time() - begin < 10.0


def test_one_entry_with_very_many_draws():
    draws = np.random.default_rng(0).normal(size=(4, 100_000, 1))
    assert 3.5e5 < metrics.ess_bulk(draws)[0] < 4.5e5


def test_draws_are_numbers_and_masked_ones_are_not_known():
    draws = np.random.default_rng(0).normal(size=(2, 8))
    assert np.isnan(metrics.rhat(np.ma.array(draws, mask=draws > 1.0)))
    with pytest.raises(TypeError, match="`draws` must be an array of real numbers"):
        metrics.rhat(draws + 1j)
