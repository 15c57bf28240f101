"""Starting, running and moving the chains of a model."""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from tfp_fnspace.methods.stable_process import equations, samplers
from tfp_fnspace.methods.stable_process.hyperplanes import Partition
from tfp_fnspace.methods.stable_process.hyperplanes import partition as choose_partition
from tfp_fnspace.methods.stable_process.hyperplanes.choose import NUM_ATOMS
from tfp_fnspace.methods.stable_process.options import LogNormal, Uniform
from tfp_fnspace.methods.stable_process.samplers import SAMPLERS
from tfp_fnspace.methods.stable_process.samplers import state as chain
from tfp_fnspace.methods.stable_process.samplers.hyper import smallest_log_noise
from tfp_fnspace.methods.stable_process.store import ChainStore
from tfp_fnspace.tracing import traced_for_all
from tfp_fnspace.typing import Array, ArrayLike, Seed

if TYPE_CHECKING:
    from tfp_fnspace.methods.stable_process.model import StableProcessModel

#: Smallest variance at which inferred noise starts, in units of the smallest allowed one.
_START = 100.0


@functools.lru_cache(maxsize=64)
def compiled_run(
    sampler: str, settings: samplers.Settings, count: int, thin: int
) -> Callable[..., tuple[samplers.ChainState, samplers.Draws, samplers.Info]]:
    """Returns `samplers.run` as a graph, traced once for each set of shapes.

    Args:
        sampler: A key of `samplers.SAMPLERS`.
        settings: `samplers.Settings`.
        count: Number of draws.
        thin: Iterations before each draw.

    Returns:
        Function `(seed, state, problem) -> (state, Draws, Info)`.
    """
    run = functools.partial(
        samplers.run, settings=settings, count=count, thin=thin, one_step=SAMPLERS[sampler]
    )
    return traced_for_all(run)


def make_partition(model: "StableProcessModel", x: Array, x_predict: Array, seed: int) -> Partition:
    """Returns the partition for data in model units; `x_predict` `[M, I]` may have no rows."""
    how = model.partition
    if isinstance(how, Partition):
        return how
    return choose_partition(
        x,
        kind=how if isinstance(how, str) else how.kind,
        num_atoms=NUM_ATOMS if isinstance(how, str) else how.num_atoms,
        seed=seed,
        x_predict=x_predict if len(x_predict) else None,
    )


def make_problem(partition: Partition, x: Array, y: Array, chains: int) -> samplers.Problem:
    """Returns the sampler's problem: each column of `y` `[N, D]` for `chains` chains in turn."""
    targets = np.repeat(y.T, chains, axis=0)
    return samplers.make_problem(partition.signs(x), partition.probabilities, targets)


def starting_values(model: "StableProcessModel", outputs: int) -> tuple[Array, Array, Array]:
    """Returns alpha, nu and the noise variance at which the chains start, `[B]` each.

    An inferred parameter starts at a different value in each chain, so that R-hat sees whether the
    chains meet.
    """
    copies, alpha, nu = model.chains.num_chains, model.alpha, model.nu
    share = np.tile(np.arange(1, copies + 1) / (copies + 1.0), outputs)
    if isinstance(alpha, Uniform):
        alpha = alpha.low + (alpha.high - alpha.low) * share
    if isinstance(nu, LogNormal):
        nu = np.exp(nu.loc + nu.scale * tf.math.ndtri(share).numpy())
    variance = np.repeat(noise_scales(model, outputs) ** 2, copies)
    return np.broadcast_to(alpha, share.shape), np.broadcast_to(nu, share.shape), variance


def initial_state(
    model: "StableProcessModel",
    seed: Seed,
    problem: samplers.Problem,
    alpha: ArrayLike,
    nu: ArrayLike,
    variance: Array,
) -> samplers.ChainState:
    """Returns `samplers.initial_state`; inferred noise starts where its walk may go."""
    if model.likelihood.trainable:
        variance = np.maximum(variance, _START * np.exp(smallest_log_noise(problem).numpy()))
    return samplers.initial_state(seed, problem, alpha, nu, variance)


def noise_scales(model: "StableProcessModel", outputs: int) -> Array:
    """Returns the likelihood's scale of each output, `[D]`."""
    return np.broadcast_to(np.asarray(model.likelihood.scale, np.float64), outputs)


def warm_state(
    model: "StableProcessModel",
    seed: Seed,
    store: ChainStore,
    problem: samplers.Problem,
    partition: Partition,
    x: Array,
) -> samplers.ChainState:
    """Returns a state on new data that keeps noise, alpha, nu, steps and masses of the old one.

    The mass of an old atom goes to an atom of the new problem with the same pattern on the new
    points. The largest masses come first. New atoms that get no mass keep their draw from the
    prior.

    Args:
        model: The model, which says what is inferred.
        seed: int32 tensor `[2]`.
        store: `ChainStore` of the old data.
        problem: `samplers.Problem` of the new data.
        partition: Its `Partition`.
        x: The new points in model units.

    Returns:
        `ChainState`.
    """
    old = store.state
    nu, variance = (tf.exp(value).numpy() for value in (old.log_nu, old.log_noise))
    start = initial_state(model, seed, problem, old.alpha.numpy(), nu, variance)
    old_problem = make_problem(
        store.partition, store.x.numpy(), store.y.numpy(), store.sizes["chains"]
    )
    masses = chain.log_masses(old.log_scales, old_problem, old.alpha)
    masses = tf.gather(masses, old_problem.place, axis=1).numpy()
    old_group, new_group = _common_groups(store.partition.signs(x), partition.signs(x))
    slots = problem.place.numpy()
    log_q = problem.log_probability.numpy()[slots]
    scales = start.log_scales.numpy()
    for b, alpha in enumerate(old.alpha.numpy()):
        givers, takers = _pairs(masses[b], old_group, new_group)
        scales[b, slots[takers]] = equations.log_scales_of_masses(
            masses[b, givers], log_q[takers], alpha
        )
    return start._replace(log_scales=tf.constant(scales), log_steps=old.log_steps)


def _common_groups(first, second):
    """Returns numbers for the patterns in two sets of columns; tau and -tau count as one."""
    columns = np.concatenate([first * first[:1], second * second[:1]], axis=1)
    packed = np.ascontiguousarray(np.packbits(columns > 0, axis=0).T)
    keys = packed.view(np.dtype((np.void, packed.shape[1]))).ravel()
    _, index = np.unique(keys, return_inverse=True)
    index = index.ravel()
    return index[: first.shape[1]], index[first.shape[1] :]


def _pairs(masses, old_group, new_group):
    """Returns pairs of atoms of one group: the k-th largest old one, the k-th new one."""
    givers = np.lexsort([-masses, old_group])
    takers = np.argsort(new_group, kind="stable")
    giver_key = _ranked(old_group[givers])
    taker_key = _ranked(new_group[takers])
    _, i, j = np.intersect1d(giver_key, taker_key, assume_unique=True, return_indices=True)
    return givers[i], takers[j]


def _ranked(groups):
    """Returns a number for each (group, place in the group) of sorted group numbers."""
    first = np.searchsorted(groups, groups)
    return groups.astype(np.int64) * (1 << 32) + np.arange(len(groups)) - first
