"""Constants of the chains: patterns of the atoms on the data, probabilities, targets."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfp_fnspace.methods.stable_process.samplers.checks import checked_arrays
from tfp_fnspace.typing import ArrayLike

#: Groups whose updates share one product with the precision matrix.
BLOCK = 16

#: About a quarter of the groups is refreshed in an iteration, within these bounds.
_WINDOW_RANGE = (256, 2048)

#: A jump may move to this many nearest groups, by the number of points that change sides.
_NEIGHBOURS = 6

#: The largest prior variance of a group's weight, in mean squares of the targets.
_LARGEST_MASS = 1e9

#: `log q` of fillers: atoms that only fill up a window.
_LOG_NOTHING = -1000.0

_NEIGHBOUR_CHUNK = 2**24


class Problem(NamedTuple):
    """Constants of the sampler.

    Groups lie in windows of equal size, which take turns. Atoms are sorted by group, and each
    window is filled up with groups and atoms without weight. G and L include these fillers.

    Attributes:
        signs: `[N, G]`, the patterns of the groups, +1 for the first point.
        group: `[L]` int32, the group of each atom.
        start: `[G]` int32, the first atom of each group.
        size: `[G]` int32, atoms in each group, 0 for a filler.
        positions: `[A]` int32, 0 to A - 1, A the most atoms in a group.
        windows: `[W]` int32, 0 to W - 1.
        log_probability: `[L]`, `log q` of the atoms.
        present: `[L]`, 1 for atoms, 0 for fillers.
        group_probability: `[G]`, the sums of q.
        cumulative_share: `[L]`, the sum of q over the atoms of a group up to this one, divided by
            the sum over all of them.
        neighbours: `[G, E]` int32, groups near in pattern, a symmetric relation.
        degree: `[G]` int32, how many of them count.
        place: `[L']` int32, where each of the partition's L' atoms is.
        orientation: `[L']`, +1 or -1: the side of an atom's hyperplane on which the first point
            lies.
        targets: `[B, N]`, y of each chain in model units.
        log_largest_mass: `[B]`, where the prior of a group's variance is cut off.
    """

    signs: tf.Tensor
    group: tf.Tensor
    start: tf.Tensor
    size: tf.Tensor
    positions: tf.Tensor
    windows: tf.Tensor
    log_probability: tf.Tensor
    present: tf.Tensor
    group_probability: tf.Tensor
    cumulative_share: tf.Tensor
    neighbours: tf.Tensor
    degree: tf.Tensor
    place: tf.Tensor
    orientation: tf.Tensor
    targets: tf.Tensor
    log_largest_mass: tf.Tensor


def make_problem(signs: ArrayLike, probabilities: ArrayLike, targets: ArrayLike) -> Problem:
    """Groups the atoms by their pattern on the data.

    Args:
        signs: Array `[N, L]` of +1 and -1: the side of each atom's hyperplane on which each point
            lies.
        probabilities: Array `[L]`, q.
        targets: Array `[B, N]`, the targets of each of B chains, in model units.

    Returns:
        `Problem` of TensorFlow constants.

    Raises:
        TypeError: If an array is not of numbers.
        ValueError: If the shapes do not fit, a sign is not -1 or +1, the probabilities are not
            positive with sum 1, or a target is not finite.
    """
    signs, probabilities, targets = checked_arrays(signs, probabilities, targets)
    orientation = signs[0].astype(np.float64)
    signs = signs * signs[:1]
    patterns, group = _distinct_columns(signs)
    num_windows, width, slot = _slots(patterns.shape[1])
    num_groups = num_windows * width
    group = slot[group]
    size = np.bincount(group, minlength=num_groups)
    per_window = size.reshape(num_windows, width)
    length = per_window.sum(axis=1).max()
    start = np.cumsum(per_window, axis=1) - per_window + length * np.arange(num_windows)[:, None]
    start = start.ravel()
    order = np.argsort(group, kind="stable")
    rank = np.arange(len(group)) - (np.cumsum(size) - size)[group[order]]
    place = np.empty(len(group), np.int64)
    place[order] = start[group[order]] + rank
    filled = np.repeat(np.arange(1, num_windows + 1) * width - 1, length)
    filled[place] = group
    log_q = np.full(num_windows * length, _LOG_NOTHING)
    log_q[place] = np.log(probabilities)
    group_q = np.bincount(group, probabilities, minlength=num_groups)
    share = np.where(log_q > _LOG_NOTHING, np.exp(log_q), 0.0)
    share = np.cumsum(share / np.where(group_q > 0.0, group_q, 1.0)[filled])
    share -= np.concatenate([[0.0], share])[start][filled]
    square = np.mean(targets**2, axis=1)
    square = np.where(square > 0.0, square, 1.0)  # constant targets, standardised
    neighbours, degree = _neighbours(patterns)
    problem = Problem(
        signs=_spread(patterns.T.astype(np.float64), slot, num_groups, fill=1.0).T,
        group=filled.astype(np.int32),
        start=start.astype(np.int32),
        size=size.astype(np.int32),
        positions=np.arange(size.max(), dtype=np.int32),
        windows=np.arange(num_windows, dtype=np.int32),
        log_probability=log_q,
        present=(log_q > _LOG_NOTHING).astype(np.float64),
        group_probability=group_q,
        cumulative_share=share,
        neighbours=_spread(slot[neighbours].astype(np.int32), slot, num_groups),
        degree=_spread(degree, slot, num_groups),
        place=place.astype(np.int32),
        orientation=orientation,
        targets=targets,
        log_largest_mass=np.log(_LARGEST_MASS * square),
    )
    return Problem(*map(tf.constant, problem))


def _slots(num_groups):
    """Returns the number and width of the windows, and a slot for each group, at random."""
    window = np.clip(num_groups / 4, *_WINDOW_RANGE)
    num_windows = max(1, round(num_groups / window))
    width = -(-num_groups // (num_windows * BLOCK)) * BLOCK
    order = np.random.default_rng(0).permutation(num_groups)
    slot = np.empty(num_groups, np.int64)
    slot[order] = np.arange(num_groups) % num_windows * width + np.arange(num_groups) // num_windows
    return num_windows, width, slot


def _spread(values, slot, num_groups, fill=0):
    """Returns rows of groups, each at its slot."""
    spread = np.full((num_groups, *values.shape[1:]), fill, values.dtype)
    spread[slot] = values
    return spread


def _distinct_columns(signs):
    """Returns distinct columns `[N, G]`, and the index of each column among them, `[L]`."""
    packed = np.ascontiguousarray(np.packbits(signs > 0, axis=0).T)
    keys = packed.view(np.dtype((np.void, packed.shape[1]))).ravel()
    _, first, index = np.unique(keys, return_index=True, return_inverse=True)
    return signs[:, first], index.ravel()


def _neighbours(patterns):
    """Returns padded lists of the groups with the nearest patterns; tau and -tau count as one."""
    num_groups = patterns.shape[1]
    if num_groups == 1:
        return np.zeros((1, 1), np.int32), np.zeros(1, np.int32)
    count = min(_NEIGHBOURS, num_groups - 1)
    columns = patterns.astype(np.float32)
    rows = max(1, _NEIGHBOUR_CHUNK // num_groups)
    nearest = []
    for start in range(0, num_groups, rows):
        likeness = np.abs(columns[:, start : start + rows].T @ columns)
        own = np.arange(len(likeness))
        likeness[own, start + own] = -1.0
        nearest.append(np.argpartition(-likeness, count - 1, axis=1)[:, :count])
    source = np.repeat(np.arange(num_groups), count)
    edges = np.stack([source, np.concatenate(nearest).ravel()], axis=1)
    edges = np.unique(np.concatenate([edges, edges[:, ::-1]]), axis=0)
    degree = np.bincount(edges[:, 0], minlength=num_groups)
    first = np.cumsum(degree) - degree
    lists = np.zeros((num_groups, degree.max()), np.int32)
    lists[edges[:, 0], np.arange(len(edges)) - first[edges[:, 0]]] = edges[:, 1]
    return lists, degree.astype(np.int32)
