"""The default sampler: groups are refreshed in one compiled sweep, jumps are relocated."""

import functools

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_fnspace.methods.stable_process import equations
from tfp_fnspace.methods.stable_process.samplers import functions, hyper
from tfp_fnspace.methods.stable_process.samplers import state as chain
from tfp_fnspace.methods.stable_process.samplers.problem import Problem
from tfp_fnspace.methods.stable_process.samplers.relocate import relocate
from tfp_fnspace.methods.stable_process.samplers.sweep import refresh_groups
from tfp_fnspace.tracing import traced_for_all
from tfp_fnspace.typing import Seed

#: Chains are split into shards if a sweep of one chain takes more products than this.
_WORK_OF_A_SHARD = 200_000

#: Most rows for which noise and nu walk on an eigendecomposition. With more rows it would take most
#: of an iteration, and a few Cholesky factors take its place.
_SPECTRUM_ROWS = 150


def one_step(
    seed: Seed, state: chain.ChainState, problem: Problem, settings: chain.Settings
) -> tuple[chain.ChainState, chain.Info]:
    """Runs one iteration of every chain, as `samplers` describes it.

    It updates in turn: noise and nu by random walks; the scales of each group of atoms, refreshed
    from the prior; the places of jumps among atoms and groups; alpha; the weights of Student-t
    noise.
    """
    seeds = tfp.random.split_seed(seed, n=5)
    masses = tf.exp(chain.log_masses(state.log_scales, problem, state.alpha))
    totals = chain.group_totals(masses, problem)
    rows = state.noise_weights.shape[1]
    walk = hyper.walk_on_spectrum if rows <= _SPECTRUM_ROWS else hyper.walk_on_factors
    state, precision, likelihood, accept_noise, accept_nu = walk(
        seeds[0], totals, state, problem, settings
    )
    state, accept_scales, accept_relocations = _move_scales(
        seeds[1], precision, totals, state, problem, settings
    )
    accept_alpha = tf.zeros_like(accept_noise)
    if settings.alpha_range is not None:
        state, accept_alpha = hyper.walk_alpha(seeds[2], state, problem, settings)
    if settings.noise_df is not None:
        _, f = functions.draw_weights(seeds[3], state, problem)
        weights = hyper.draw_noise_weights(seeds[4], state, problem.targets - f, settings.noise_df)
        state = state._replace(noise_weights=weights)
    accepted = [accept_noise, accept_nu, accept_alpha]
    state = state._replace(
        log_steps=hyper.adapt(state, accepted, settings), iteration=state.iteration + 1
    )
    return state, chain.Info(likelihood, accept_scales, accept_relocations, *accepted)


def _move_scales(seed, precision, totals, state, problem, settings):
    """Refreshes the groups of one window and relocates jumps.

    Returns:
        The state with new u and log s, and the shares of accepted moves, `[B]` each.
    """
    chains = state.u.shape[0]
    windows = problem.windows.shape[0]
    window = state.iteration % windows
    atoms, groups = state.u.shape[1] // windows, problem.size.shape[0] // windows
    count = settings.proposals
    seeds = tfp.random.split_seed(seed, n=4)
    u = chain.uniform([count, chains, atoms], seeds[0])
    e = chain.uniform([count, chains, atoms], seeds[1])
    log_uniforms = tf.math.log(chain.uniform([count, chains, groups], seeds[2]))
    log_q = tf.reshape(problem.log_probability, [windows, atoms])[window]
    scales, masses = _compiled_scales(u, e, log_q, state.alpha)
    members = tf.reshape(problem.group, [windows, atoms])[window] - window * groups
    proposals = chain.sum_over(masses, members, groups)  # [K, B, groups]
    moved = _in_shards(
        functools.partial(_compiled_moves, _relocations(settings, problem)),
        _shards(chains, problem),
        [
            *((part, 0) for part in (precision, totals)),
            *((part, 1) for part in (u, scales, proposals, log_uniforms)),
            *((part, 0 if part.shape.rank else None) for part in state),
            *((part, 0) for part in problem[-2:]),
        ],
        problem,
        seeds[3],
    )
    u, scales, accept_scales, accept_relocations = moved
    return state._replace(u=u, log_scales=scales), accept_scales, accept_relocations


def _shards(chains, problem):
    """Returns how many parts run in parallel: two if the work outweighs splitting them."""
    rows, groups = problem.signs.shape
    return 2 if chains % 2 == 0 and rows * rows * groups > _WORK_OF_A_SHARD else 1


def _relocations(settings, problem):
    """Returns the moves of jumps in an iteration: more groups allow more; each costs O(N^2)."""
    if settings.relocations is not None:
        return settings.relocations
    rows, groups = problem.signs.shape
    moves = min(64, max(12, groups // 12))
    return max(8, min(moves, moves * 64 // rows))


def _in_shards(function, shards, parts, problem, seed):
    """Runs a function on parts of the chains, in parallel on the cores of a CPU.

    Args:
        function: Takes the parts, the constants of the problem and a seed.
        shards: Number of parts.
        parts: List of pairs: a tensor and its axis of the chains, `None` if it has none.
        problem: `Problem`, whose last two fields are among the parts.
        seed: int32 tensor `[2]`.

    Returns:
        The results of the parts, put together along the first axis.
    """
    if shards == 1:
        return function(*(part for part, _ in parts), *problem[:-2], seed)
    seeds = tfp.random.split_seed(seed, n=shards)
    split = [
        [part] * shards if axis is None else tf.split(part, shards, axis=axis)
        for part, axis in parts
    ]
    results = [
        function(*(part[i] for part in split), *problem[:-2], seeds[i]) for i in range(shards)
    ]
    return [tf.concat(part, axis=0) for part in zip(*results, strict=True)]


@functools.partial(traced_for_all, jit_compile=True)
def _compiled_scales(u, e, log_q, alpha):
    alpha = alpha[:, tf.newaxis]
    scales = equations.log_scales_of(u, tf.math.log(-tf.math.log(e)), alpha)
    return scales, tf.exp(equations.log_masses(scales, log_q, alpha))


@functools.partial(traced_for_all, jit_compile=True)
def _compiled_moves(relocations, precision, totals, u, scales, proposals, log_uniforms, *rest):
    fields = len(chain.ChainState._fields)
    state = chain.ChainState(*rest[:fields])
    targets, log_largest_mass, *constants, seed = rest[fields:]
    problem = Problem(*constants, targets, log_largest_mass)
    chains, windows = precision.shape[0], problem.windows.shape[0]
    # Gathered, not sliced: XLA would compile again for every start of a slice.
    window = state.iteration % windows

    totals = tf.reshape(totals, [chains, windows, -1])
    current = tf.gather(totals, window, axis=1)
    log_nu = state.log_nu[:, tf.newaxis]
    too_large = tf.math.log(proposals) + log_nu > log_largest_mass[:, tf.newaxis]
    changes = tf.exp(log_nu) * (proposals - current)
    changes = tf.where(too_large, tf.constant(float("nan"), changes.dtype), changes)
    signs = tf.reshape(problem.signs, [-1, windows, proposals.shape[-1]])
    signs = tf.gather(signs, window, axis=1)
    precision, weighted, chosen = refresh_groups(
        precision, tf.linalg.matvec(precision, targets), signs, changes, log_uniforms
    )
    sizes = tf.gather(tf.reshape(problem.size, [windows, -1]), window)
    real = tf.cast(sizes > 0, precision.dtype)
    accepted = tf.linalg.matvec(tf.cast(chosen > 0, precision.dtype), real) / tf.reduce_sum(real)

    members = tf.gather(tf.reshape(problem.group, [windows, -1]), window)
    members -= window * proposals.shape[-1]
    taken = tf.gather(chosen, members, axis=1)
    here = tf.equal(problem.windows, window)[:, tf.newaxis]

    def put(whole, number, candidates):
        split = tf.reshape(whole, [chains, windows, -1])
        new = _select(number, tf.gather(split, window, axis=1), candidates)
        return tf.reshape(tf.where(here, new[:, tf.newaxis], split), [chains, -1])

    state = state._replace(
        u=put(state.u, taken, u), log_scales=put(state.log_scales, taken, scales)
    )
    totals = put(totals, chosen, proposals)
    u, scales, relocated = relocate(seed, precision, weighted, state, totals, problem, relocations)
    return u, scales, accepted, relocated


def _select(number, current, proposals):
    """Returns `current` where `number` is 0, else proposal `number - 1`."""
    for k in range(proposals.shape[0]):
        current = tf.where(number == k + 1, proposals[k], current)
    return current
