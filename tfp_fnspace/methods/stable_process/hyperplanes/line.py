r"""Partitions of one input: a hyperplane changes sign at the point -b/w, which is Cauchy.

With phi = arctan x, that point is uniform in phi on a circle of length pi. The points
x_1 < ... < x_n cut this circle into n intervals,

    q_j = (phi_{j+1} - phi_j) / pi,   j < n,        q_n = 1 - (phi_n - phi_1) / pi,

The last interval runs through infinity; a hyperplane in it changes no sign between the points. (The
paper's section S.1 has the signs of q_n wrong.)
"""

from typing import NamedTuple

import numpy as np

from tfp_fnspace.methods.stable_process import equations
from tfp_fnspace.methods.stable_process.hyperplanes.atoms import MARGIN, Partition, normalized
from tfp_fnspace.methods.stable_process.hyperplanes.checks import checked_points
from tfp_fnspace.typing import Array, ArrayLike


class Intervals(NamedTuple):
    """The intervals between neighbouring points on the circle of phi = arctan x.

    Attributes:
        starts: float64 array `[L]`, in radians.
        lengths: float64 array `[L]`, in radians, positive, sum pi.
    """

    starts: np.ndarray
    lengths: np.ndarray


def exact_1d(x: ArrayLike) -> Partition:
    """Returns the exact partition of points on a line.

    One atom lies in the middle (in phi) of each interval. Points that differ by less than 2e-14 in
    arctan x count as one point: float64 cannot tell a hyperplane in the interval between them from
    its neighbours, so the interval is left out.

    Args:
        x: Array `[N, 1]` in any order, repetitions allowed.

    Returns:
        `Partition` of kind `"exact"`, as many atoms as distinct points. Patterns are +1 at the
        first row of `x`.

    Raises:
        ValueError: If `x` is not an array of this kind.
    """
    x = checked_points(x, 1)
    return split(x, 1, "exact")


def split(x: Array, num_atoms: int, kind: str) -> Partition:
    """Returns the exact partition, each interval cut into `ceil(q * num_atoms)` equal parts.

    Args:
        x: float64 array `[N, 1]`.
        num_atoms: Approximate number of parts of the whole circle.
        kind: Kind of the partition.

    Returns:
        `Partition`.
    """
    intervals = _resolved(np.unique(x))
    probabilities = normalized(intervals.lengths / np.pi)
    parts = np.ceil(probabilities * num_atoms).astype(np.int64)
    owner = np.repeat(np.arange(len(parts)), parts)
    position = np.arange(len(owner)) - np.repeat(np.cumsum(parts) - parts, parts)
    middle = (position + 0.5) / parts[owner]
    hyperplanes = _changing_at(intervals.starts[owner] + middle * intervals.lengths[owner])
    first = hyperplanes[:, :1] + hyperplanes[:, 1:] * x[0, 0]
    return Partition(
        np.where(first < 0.0, -hyperplanes, hyperplanes), (probabilities / parts)[owner], kind
    )


def _changing_at(phi):
    """Returns unit vectors (b, w) that change sign at tan phi, as -sin(phi - arctan x) does."""
    return np.stack([-np.sin(phi), np.cos(phi)], axis=-1)


def _resolved(points):
    """Returns the intervals whose middle has the right signs at both ends, by a margin.

    Args:
        points: float64 array `[n]`, increasing.

    Returns:
        `Intervals`.
    """
    following = np.roll(points, -1)
    # -1 for the last interval, which ends at the mirror image of the first point.
    side = np.ones(len(points))
    side[-1] = -1.0
    size, next_size = np.hypot(1.0, points), np.hypot(1.0, following)
    lengths = equations.separation(points, following, side)
    starts = np.arctan(points)
    bias, weight = _changing_at(starts + 0.5 * lengths).T
    # Values are monotone in the point: signs that are right at both ends are right everywhere.
    before = -(bias + weight * points) / size
    after = side * (bias + weight * following) / next_size
    kept = np.minimum(before, after) > MARGIN
    return Intervals(starts[kept], lengths[kept])
