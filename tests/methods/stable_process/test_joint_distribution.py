"""Every move of the stable process's samplers leaves the joint distribution invariant.

If (state, y) is drawn from the joint distribution and a move leaves the posterior given y
invariant, then the state after any number of moves has its prior distribution (Geweke 2004). This
reveals every error of a move at once, with independent chains and no burn-in.
"""

import numpy as np
import pytest
import stable_process as reference
import tensorflow as tf
from scipy import stats
from stable_chains import (
    ALPHA_RANGE,
    FIXED,
    NU_PRIOR,
    PROBLEMS,
    compiled,
    everything,
    from_the_joint_distribution,
    partition_of,
    precision_of,
)

from tfp_fnspace.methods.stable_process import equations, samplers
from tfp_fnspace.methods.stable_process.samplers import hyper, relocate
from tfp_fnspace.methods.stable_process.samplers import state as chain

FALSE_FAIL = 1e-6

# Groups are so many that they have different numbers of neighbours.
_SPREAD = np.random.default_rng(3).normal(size=(8, 2)) ** 3
MANY = (_SPREAD[:7], _SPREAD[7:], [0.0] * 7)


def whitened_targets(state, problem):
    masses = tf.exp(chain.log_masses(state.log_scales, problem, state.alpha))
    totals = chain.group_totals(masses, problem)
    factor = chain.covariance_factor(totals, state, problem)
    return tf.linalg.triangular_solve(factor, problem.targets[..., None])[..., 0].numpy()


def check_prior(state, problem, settings, alphas, false_fail=FALSE_FAIL):
    """Runs Kolmogorov-Smirnov tests of all that has a known distribution under the joint one.

    The state alone would not reveal a move that ignores the targets. Therefore the whitened targets
    are tested too: given the state, they are standard normal.

    `false_fail` is the rate of all tests together (Bonferroni).
    """
    assert all(np.all(np.isfinite(value)) for value in state)
    alpha = state.alpha[:, None]
    log_e = equations.log_exponentials_of(state.u, state.log_scales, alpha).numpy()
    real = problem.present.numpy() > 0.0
    u, e = state.u.numpy()[:, real], np.exp(log_e[:, real])
    # All samples are uniform variables, `[B, ...]`.
    samples = [np.concatenate([u, np.exp(-e)], axis=1)]
    # A sum of uniform variables modulo 1 is uniform unless they depend on each other.
    first, second = np.triu_indices(samples[0].shape[1], 1)
    samples.append((samples[0][:, first] + samples[0][:, second]) % 1.0)
    whitened = whitened_targets(state, problem)
    samples.append(stats.norm.cdf(whitened))
    if np.ndim(alphas):
        alpha = (state.alpha.numpy() - alphas[0]) / (alphas[1] - alphas[0])
        samples += [alpha, (alpha + u[:, 0]) % 1.0]
    if settings.infer_noise:
        power = 0.5 if settings.noise_prior == "scale" else 1.0
        samples.append(stats.halfcauchy.cdf(np.exp(power * state.log_noise.numpy())))
    if settings.nu_prior is not None:
        mean, stddev = settings.nu_prior
        samples.append(stats.norm.cdf((state.log_nu.numpy() - mean) / stddev))
    if settings.noise_df is not None:
        gamma = 0.5 * settings.noise_df / state.noise_weights.numpy()
        samples.append(stats.gamma(0.5 * settings.noise_df).cdf(gamma))
    # A few draws of the prior have masses of 1e17 beside noise of 1e-4, so Q is singular in
    # float64. They are left out: so few cannot affect the tests, which notice distances of 0.03 and
    # more.
    exists = np.all(np.isfinite(whitened), axis=1)
    assert np.mean(exists) > 0.998
    values = np.sort(np.column_stack(samples)[exists], axis=0)
    count, tests = values.shape
    below = np.arange(count)[:, np.newaxis] / count
    distance = np.max(np.maximum(values - below, below + 1.0 / count - values))
    pvalue = stats.kstwo(count).sf(distance)  # NaN fails too
    assert pvalue > false_fail / tests, (pvalue, distance)


@pytest.mark.parametrize("name", [*PROBLEMS, "many"])
@pytest.mark.slow
def test_relocation_leaves_the_joint_distribution(name, monkeypatch):
    monkeypatch.setitem(PROBLEMS, "many", MANY)
    state, problem = from_the_joint_distribution(name, 8_000, (0.4, 1.95))
    precision, totals = precision_of(state, problem)
    weighted = tf.linalg.matvec(precision, problem.targets)
    move = tf.function(relocate.relocate, autograph=False)
    u, scales, accepted = move(tf.constant([1, 2]), precision, weighted, state, totals, problem, 40)
    assert 0.2 < np.mean(accepted) < 0.95
    moved = np.mean(np.any(u.numpy() != state.u.numpy(), axis=1))
    assert moved > 0.9
    state = state._replace(u=u, log_scales=scales)
    check_prior(state, problem, FIXED, None)

    # This compares where the largest jump is: the numbers of groups' neighbours matter here.
    atoms = np.argmax(chain.log_masses(scales, problem, state.alpha), axis=1)
    rng, probabilities = np.random.default_rng(5), partition_of(name)[0].probabilities
    alpha = rng.uniform(0.4, 1.95, (200_000, 1))
    masses = reference.positive_stable(rng, alpha, (len(alpha), len(probabilities)))
    masses = np.argmax(masses * probabilities ** (2.0 / alpha), axis=1)
    counts = [
        np.bincount(problem.place.numpy()[masses], minlength=scales.shape[1]),
        np.bincount(atoms, minlength=scales.shape[1]),
    ]
    counts = np.stack(counts)[:, problem.place.numpy()]
    rare = counts[0] < 200
    counts = np.concatenate([counts[:, ~rare], counts[:, rare].sum(axis=1)[:, None]], axis=1)
    counts = counts[:, counts.sum(axis=0) > 0]
    assert stats.chi2_contingency(counts).pvalue > FALSE_FAIL


@pytest.mark.parametrize(
    ("move", "prior"),
    [
        ("alpha", "variance"),  # this move ignores the noise's prior
        ("spectrum", "variance"),
        ("spectrum", "scale"),
        ("factors", "variance"),
        ("factors", "scale"),
    ],
)
@pytest.mark.slow
def test_walks_leave_the_joint_distribution(move, prior):
    settings = everything(prior)
    state, problem = from_the_joint_distribution(
        "three_points", 12_000, ALPHA_RANGE, prior, NU_PRIOR
    )
    step = tf.function(WALKS[move], autograph=False)
    before = state
    for i in range(40 if move == "alpha" else 10):
        state = step(tf.constant([i, 2]), state, problem, settings)
    name = "alpha" if move == "alpha" else "log_noise"
    assert np.mean(getattr(state, name) != getattr(before, name)) > 0.8
    check_prior(state, problem, settings, ALPHA_RANGE)


def walk_alpha(seed, state, problem, settings):
    return hyper.walk_alpha(seed, state, problem, settings)[0]


def walk_on_spectrum(seed, state, problem, settings):
    _, totals = precision_of(state, problem)
    return hyper.walk_on_spectrum(seed, totals, state, problem, settings)[0]


def walk_on_factors(seed, state, problem, settings):
    _, totals = precision_of(state, problem)
    return hyper.walk_on_factors(seed, totals, state, problem, settings)[0]


WALKS = {"alpha": walk_alpha, "spectrum": walk_on_spectrum, "factors": walk_on_factors}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sampler", "name", "prior", "noise_df"),
    [
        # If a sampler has two cases, they have one shape and share what XLA compiles. HMC compiles
        # for each prior: `test_stable_posterior.py` has its other one.
        ("grouped", "plane", "variance", None),
        ("grouped", "plane", "scale", 3.0),
        ("metropolis", "three_points", "variance", None),
        ("metropolis", "three_points", "scale", 3.0),
        pytest.param("hmc", "three_points", "scale", 3.0, marks=pytest.mark.exhaustive),
    ],
)
def test_iterations_leave_the_joint_distribution(sampler, name, prior, noise_df):
    settings, chains = everything(prior, noise_df), 4_000
    state, problem = from_the_joint_distribution(
        name, chains, ALPHA_RANGE, prior, NU_PRIOR, noise_df=noise_df
    )
    if sampler == "hmc":
        state = state._replace(log_steps=state.log_steps - 1.0)
    after, _, info = compiled(samplers.SAMPLERS[sampler])(
        tf.constant([3, 4]), state, problem, settings, 1, 16
    )
    for moved in ("u", "log_scales", "log_noise", "log_nu", "alpha"):
        changed = np.reshape(getattr(after, moved) != getattr(state, moved), (chains, -1))
        assert np.mean(np.any(changed, axis=1)) > 0.8, moved
    check_prior(after, problem, settings, ALPHA_RANGE)
