"""Choice of the hyperplanes that stand for a random one: exact, refined or sampled."""

import numpy as np

from tfp_fnspace.boundary.arguments import checked_choice, checked_count
from tfp_fnspace.methods.stable_process.hyperplanes.atoms import (
    KINDS,
    Partition,
    canonical,
    keys,
    unit,
)
from tfp_fnspace.methods.stable_process.hyperplanes.checks import (
    checked_points,
)
from tfp_fnspace.methods.stable_process.hyperplanes.line import exact_1d, split
from tfp_fnspace.methods.stable_process.hyperplanes.plane import exact_2d
from tfp_fnspace.typing import ArrayLike

#: Default number of atoms: an entry of the kernel has a Monte Carlo error of at most 0.022.
NUM_ATOMS = 2_000

#: `kind="auto"` takes the exact partition of two inputs up to this number of cells (200 points).
MAX_CELLS = 20_000

_EXACT = {1: exact_1d, 2: exact_2d}


def exact(x: ArrayLike) -> Partition:
    """Returns the exact partition of the rows of `x`: `exact_1d` or `exact_2d`.

    Args:
        x: Array `[N, 1]` or `[N, 2]` in any order, repetitions allowed.

    Returns:
        `Partition` of kind `"exact"`.

    Raises:
        ValueError: If `x` has more than two columns, or is no finite matrix.
    """
    x = checked_points(x)
    if x.shape[1] not in _EXACT:
        raise ValueError(
            "An exact partition must be of one or two inputs; take 'sampled'. "
            f"Received: x.shape={x.shape}"
        )
    return _EXACT[x.shape[1]](x)


def sampled(num_inputs: int, num_atoms: int, seed: int) -> Partition:
    """Returns random hyperplanes, equally probable: any number of inputs, Monte Carlo error.

    Args:
        num_inputs: I >= 1.
        num_atoms: R >= 1.
        seed: Non-negative integer.

    Returns:
        `Partition` of kind `"sampled"`, R atoms with q = 1/R.

    Raises:
        ValueError: If an argument is not an integer in its range.
    """
    num_inputs = checked_count("num_inputs", num_inputs)
    num_atoms = checked_count("num_atoms", num_atoms)
    rng = np.random.default_rng(checked_count("seed", seed, 0))
    hyperplanes = unit(rng.standard_normal((num_atoms, num_inputs + 1)))
    return Partition(hyperplanes, np.full(num_atoms, 1.0 / num_atoms), "sampled")


def refine(partition: Partition, x: ArrayLike, num_atoms: int, seed: int) -> Partition:
    """Adds atoms inside the cells of an exact partition, so that it describes new points.

    The distribution at the rows of `x` stays exact. With two inputs, `num_atoms` random hyperplanes
    are drawn and those inside a cell share its probability; a cell without any keeps its own
    hyperplane. With one input nothing is random: an interval of probability q is cut into `ceil(q *
    num_atoms)` equal parts of arctan x.

    Args:
        partition: `exact(x)`.
        x: Array `[N, I]`, I = 1 or 2.
        num_atoms: Positive integer; at most this many atoms are added to those of the cells.
        seed: Non-negative integer, not used for one input.

    Returns:
        `Partition` of kind `"refined"`, the atoms of a cell next to each other.

    Raises:
        ValueError: If the partition is not exact or was not made from these points, or an argument
            is not an integer in its range.
    """
    x = checked_points(x, partition.num_inputs)
    num_atoms = checked_count("num_atoms", num_atoms)
    seed = checked_count("seed", seed, 0)
    cells = keys(canonical(partition.signs(x)))
    _check_cells(partition, cells)
    if partition.num_inputs == 1:
        return split(x, num_atoms, "refined")
    draws = sampled(partition.num_inputs, num_atoms, seed)
    cell = _find(keys(canonical(draws.signs(x))), cells)
    hyperplanes = draws.hyperplanes[cell >= 0]  # the others are in cells too thin to be listed
    cell = cell[cell >= 0]
    missed = np.setdiff1d(np.arange(len(cells)), cell)
    cell = np.concatenate([cell, missed])
    hyperplanes = np.concatenate([hyperplanes, partition.hyperplanes[missed]])
    order = np.argsort(cell, kind="stable")
    share = partition.probabilities / np.bincount(cell)
    return Partition(hyperplanes[order], share[cell[order]], "refined")


def _check_cells(partition, cells):
    """Checks that a partition is exact: it has one atom for each pattern."""
    if partition.kind != "exact":
        raise ValueError(
            f"`partition` must be exact. Received: partition of kind {partition.kind!r}"
        )
    num_patterns = len(np.unique(cells))
    if num_patterns != len(cells):
        raise ValueError(
            "`partition` must be the exact partition of `x`. "
            f"Received: {len(cells)} atoms with {num_patterns} patterns on x"
        )


def _find(wanted, distinct):
    """Returns the index in `distinct` of each of the `wanted`, -1 where it is not there."""
    unique, inverse = np.unique(np.concatenate([distinct, wanted]), return_inverse=True)
    inverse = inverse.reshape(-1)
    index = np.full(len(unique), -1)
    index[inverse[: len(distinct)]] = np.arange(len(distinct))
    return index[inverse[len(distinct) :]]


def partition(
    x: ArrayLike,
    kind: str = "auto",
    num_atoms: int = NUM_ATOMS,
    seed: int = 0,
    x_predict: ArrayLike | None = None,
) -> Partition:
    """Returns the hyperplanes that a model of data at `x` uses.

    Args:
        x: Array `[N, I]`, the points of the data.
        kind: `"exact"`: the exact partition of `x` and `x_predict` (I = 1 or 2; n distinct points
            in the plane make up to `n(n-1)/2 + 1` atoms). `"refined"`: the same, with more atoms
            inside the cells for other points. `"sampled"`: random hyperplanes. `"auto"`: with
            `x_predict` the exact partition, if I = 1, or if I = 2 and it has at most `MAX_CELLS`
            cells; otherwise the refined partition of `x` on the same conditions; otherwise sampled.
        num_atoms: Positive integer: the number of atoms of `"sampled"`, or of additional ones of
            `"refined"`.
        seed: Non-negative integer.
        x_predict: Array `[M, I]`, the points at which the model will predict, or `None`.

    Returns:
        `Partition`; the same arguments give the same one.

    Raises:
        ValueError: If an array is not a finite matrix, the widths differ, I > 2 for `"exact"` or
            `"refined"`, or another argument is not as described.
    """
    x = checked_points(x)
    checked_choice("kind", kind, ("auto", *KINDS))
    num_atoms = checked_count("num_atoms", num_atoms)
    seed = checked_count("seed", seed, 0)
    if x_predict is not None:
        joint = np.concatenate([x, checked_points(x_predict, x.shape[1], "x_predict")])
    else:
        joint = x
    if kind == "auto":
        kind, joint = _automatic(x, joint)
    if kind == "sampled":
        return sampled(x.shape[1], num_atoms, seed)
    cells = exact(joint)
    return cells if kind == "exact" else refine(cells, joint, num_atoms, seed)


def _automatic(x, joint):
    """Returns the kind that `"auto"` stands for, and the points it is for."""
    if joint is not x and _is_cheap(joint):
        return "exact", joint
    return ("refined" if _is_cheap(x) else "sampled"), x


def _is_cheap(x):
    """Returns whether an exact partition of `x` exists and is small."""
    if x.shape[1] != 2:
        return x.shape[1] == 1
    num_points = len(np.unique(x, axis=0))
    return num_points * (num_points - 1) // 2 + 1 <= MAX_CELLS
