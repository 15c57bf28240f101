"""Posteriors of the stable process's samplers against a truth that is not a Markov chain.

The truth is quadrature for one point, importance sampling with 10^7 draws for two and three points
(`reference/stable_posterior.json`), and simulation-based calibration.
"""

import functools

import numpy as np
import pytest
import stable_posterior as oracles
import stable_process as reference
import tensorflow as tf
from exhaustive import sample_of
from scipy import stats
from stable_chains import (
    ALPHA_RANGE,
    ALPHAS,
    CHAINS,
    FIXED,
    LEVELS,
    NOISE_ONLY,
    NU_PRIOR,
    PROBLEMS,
    compiled,
    everything,
    run_chains,
)

from tfp_fnspace import metrics
from tfp_fnspace.methods.stable_process import hyperplanes, samplers
from tfp_fnspace.methods.stable_process.samplers import grouped

#: False-fail rate of comparing a posterior with its oracle, for all its entries together.
FALSE_FAIL_OF_CHAINS = 1e-4


@functools.cache
def truths():
    return oracles.read()


def check_chains(values, expected, expected_error=0.0):
    """Compares means over all draws `[K, B, ...]` of B independent chains with the truth.

    The chains' means are independent, so Student's t gives the rate of false alarms whatever
    the autocorrelation: `FALSE_FAIL_OF_CHAINS` over all entries (Bonferroni).
    """
    means = np.asarray(values, np.float64).mean(axis=0)
    error = means.std(axis=0, ddof=1) / np.sqrt(len(means))
    quantile = stats.t(len(means) - 1).isf(FALSE_FAIL_OF_CHAINS / (2 * np.size(error)))
    excess = np.abs(means.mean(axis=0) - expected) / np.hypot(error, expected_error)
    assert np.all(excess < quantile), (excess, quantile)


def check_posterior(f, y, truth):
    """Compares the mean of f at the training points, and the distribution function everywhere."""
    cdf, error = truth["cdf"]
    common = (cdf > 0.02) & (cdf < 0.98)  # the central limit theorem needs some draws on both sides
    below = f[..., np.newaxis] <= LEVELS
    check_chains(below[..., common], cdf[common], error[common])
    mean, mean_error = (part[: len(y)] for part in truth["mean"])
    check_chains(f[..., : len(y)], mean, mean_error)


# The posterior of a few points ------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("y", [1.2, -4.0])
def test_one_point_is_voigt(y, monkeypatch):
    levels = y * np.array([0.2, 0.6, 0.8, 1.0, 1.1])
    monkeypatch.setitem(PROBLEMS, "one_point", ([0.7], [0.0, 1.3], [y]))
    f, _, _, _ = run_chains("one_point", FIXED, 64, 250, thin=2, alphas=[1.0])
    truth = reference.voigt_posterior(y, 1.0, 0.5, levels)
    common = (truth["cdf"] > 0.02) & (truth["cdf"] < 0.98)
    check_chains(f[:, :, 0, None] <= levels[common], truth["cdf"][common])
    check_chains(f[:, :, 0], truth["mean"])


@pytest.mark.slow
@pytest.mark.parametrize("name", sample_of(PROBLEMS, [n for n in PROBLEMS if n != "two_points"]))
def test_known_hyper_parameters_at_training_and_new_points(name):
    # The rows of `three_points` are not sorted.
    y = np.array(PROBLEMS[name][2])
    f, _, _, _ = run_chains(name, FIXED, CHAINS, 350)
    for k, alpha in enumerate(ALPHAS):
        check_posterior(f[:, 32 * k : 32 * (k + 1)], y, truths()[f"{name}, alpha {alpha}"])


@pytest.mark.slow
@pytest.mark.parametrize("prior", ["variance", "scale"])
def test_noise_and_hyper_parameters_too(prior):
    name = {"variance": "two_points", "scale": "plane"}[prior]
    f, draws, _, _ = run_chains(name, everything(prior), CHAINS, 500, thin=2)
    truth = truths()[f"{name}, all inferred"]
    cdf, error = truth["cdf"]
    common = (cdf > 0.02) & (cdf < 0.98)
    check_chains((f[..., None] <= LEVELS)[..., common], cdf[common], error[common])
    check_chains(np.log(draws.noise_scale), *truth["log_noise_scale"])
    check_chains(draws.alpha, *truth["alpha"])
    check_chains(np.log(draws.nu), *truth["log_nu"])


@pytest.mark.slow
@pytest.mark.parametrize("sampler", samplers.SAMPLERS)
def test_every_sampler_has_the_posterior(sampler):
    truth = truths()["three_points, noise inferred"]
    f, parts, _, _ = run_chains(
        "three_points",
        NOISE_ONLY,
        CHAINS,
        200,
        thin=2,
        alphas=[1.1],
        one_step=samplers.SAMPLERS[sampler],
    )
    cdf, error = truth["cdf"]
    common = (cdf > 0.02) & (cdf < 0.98)
    check_chains((f[..., None] <= LEVELS)[..., common], cdf[common], error[common])
    check_chains(np.log(parts.noise_scale), *truth["log_noise_scale"])


@pytest.mark.slow
def test_samplers_agree(monkeypatch):
    """R-hat is computed from two long chains of two samplers, eight points and a jump between them.

    HMC, whose compilation would take most of the time, is compared with the truth alone, in
    `test_every_sampler_has_the_posterior`.
    """
    x, y = np.linspace(-1.4, 1.4, 8), np.array([0.3, -0.2, 0.1, 0.4, 3.1, 2.8, 3.3, 2.9])
    monkeypatch.setitem(PROBLEMS, "jump", (x, [0.0], y))
    draws = []
    for seed, name in enumerate(["grouped", "metropolis"]):
        f, parts, _, _ = run_chains(
            "jump",
            NOISE_ONLY,
            2,
            400,
            thin=4,
            alphas=[1.1],
            one_step=samplers.SAMPLERS[name],
            seed=seed,
        )
        draws.append(np.concatenate([f, np.log(parts.noise_scale)[..., None]], axis=-1))
    assert np.all(metrics.rhat(np.concatenate(draws, axis=1).swapaxes(0, 1)) <= 1.05)


# Simulation-based calibration --------------------------------------------------------------------


@pytest.mark.exhaustive
def test_simulation_based_calibration():
    """Ranks of 200 truths among 63 draws are uniform (Talts et al. 2018).

    The tests are chi-square on 8 bins, and Kolmogorov-Smirnov, which sees shifts. The data sets
    are the chains of one batch. False alarms have the rate 1e-3 over all ranks and both tests. The
    other prior of the noise is in `test_noise_and_hyper_parameters_too` and in
    `test_stable_joint_distribution.py`.
    """
    chains, bins, prior = 200, 8, "variance"
    rng = np.random.default_rng(7)
    x = np.sort(rng.normal(size=9))[:, None]
    partition = hyperplanes.exact(x)
    rows = [0, 1, 2, 3, 5, 6, 7, 8]  # the fifth is new
    signs = partition.signs(x).astype(np.float64)
    truth = reference.simulate(
        rng, signs, partition.probabilities, ALPHA_RANGE, NU_PRIOR, None, prior, chains
    )
    y = truth["f"] + np.sqrt(truth["noise"])[:, None] * rng.normal(size=truth["f"].shape)
    problem = samplers.make_problem(signs[rows], partition.probabilities, y[:, rows])
    start = rng.uniform(*ALPHA_RANGE, chains)
    state = samplers.initial_state([1, 2], problem, start, 1.0, np.mean(y**2, axis=1) + 1e-6)
    settings = everything(prior)._replace(adapt_for=250)
    _, draws, _ = compiled(grouped.one_step)(tf.constant([3, 4]), state, problem, settings, 84, 12)
    draws = [part.numpy()[21:] for part in draws]
    f = draws[0].astype(np.float64) @ signs.T
    ranks = {
        "f": np.sum(f[..., 3] < truth["f"][:, 3], axis=0),
        "new f": np.sum(f[..., 4] < truth["f"][:, 4], axis=0),
        "noise": np.sum(draws[1] < np.sqrt(truth["noise"]), axis=0),
        "alpha": np.sum(draws[2] < truth["alpha"], axis=0),
        "nu": np.sum(draws[3] < truth["nu"], axis=0),
    }
    for name, rank in ranks.items():
        counts = np.bincount(rank * bins // 64, minlength=bins)
        found = stats.chisquare(counts), stats.kstest((rank + 0.5) / 64, "uniform")
        assert min(test.pvalue for test in found) > 1e-3 / (2 * len(ranks)), (name, counts, found)
