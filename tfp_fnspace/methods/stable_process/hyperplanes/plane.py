r"""Partitions of two inputs: the cells are convex polygons on the sphere of (b, w).

The hyperplanes through a point x form the great circle with the normal (1, x)/|(1, x)|. Circles
cut the sphere into polygons of constant sign pattern; a cell is a polygon and its mirror image. The
hemisphere of +1 at one point therefore holds each cell once, and q = area / (2 pi).

The hemisphere is cut by one circle after the other. A cut divides a whole polygon between its two
parts, so that areas add up to 2 pi whatever is decided about a corner near the circle. Where many
circles nearly meet in a corner (points on a line, grids), they are taken to meet there.

Cost: n passes over arrays of O(n^2) corners, and a table of n signs for each polygon; 188 random
points (17,579 cells) take 0.5 s, 400 points 10 s.
"""

from typing import NamedTuple

import numpy as np

from tfp_fnspace.boundary import memory
from tfp_fnspace.methods.stable_process.hyperplanes.atoms import (
    MARGIN,
    Partition,
    normalized,
    unit,
)
from tfp_fnspace.methods.stable_process.hyperplanes.checks import checked_points
from tfp_fnspace.typing import Array, ArrayLike

#: A corner this near to a circle (the sine of an angle) counts as lying on it. Rounding errors of
#: grids and lines are some 1e-16.
TOLERANCE = 4e-15

#: If all circles are this near to having two points in common (root mean square of the sines of
#: their angles), they are moved to have them. Otherwise corners would be unreliable: their errors
#: are 1e-16 divided by this distance.
_COMMON = 1e-11

#: Bytes of a cell while the cells are made, as measured, and of each point of its pattern.
_BYTES_OF_CELL, _BYTES_OF_SIGN = 1500, 4


class Polygons(NamedTuple):
    """Convex polygons on the unit sphere, no edge longer than a quarter of a circle.

    Attributes:
        corners: float64 array `[M, 3]`, polygon after polygon, counterclockwise from outside.
        sizes: int array `[L]`, corners of each polygon; they sum to M.
        above: bool array `[L, n]`, whether the polygon was decided to be above each circle; no two
            rows are equal.
    """

    corners: np.ndarray
    sizes: np.ndarray
    above: np.ndarray

    @property
    def starts(self) -> Array:
        """Index of the first corner of each polygon, `[L]`."""
        return np.cumsum(self.sizes) - self.sizes

    @property
    def following(self) -> Array:
        """Index of the corner that follows each corner around its polygon, `[M]`."""
        following = np.arange(1, len(self.corners) + 1)
        following[np.cumsum(self.sizes) - 1] = self.starts
        return following

    @property
    def preceding(self) -> Array:
        """Index of the corner before each corner, `[M]`."""
        preceding = np.arange(-1, len(self.corners) - 1)
        preceding[self.starts] = np.cumsum(self.sizes) - 1
        return preceding

    def sum(self, values: Array) -> Array:
        """Sums over the corners of each polygon: `[M, ...]` to `[L, ...]`."""
        return np.add.reduceat(values, self.starts, axis=0)


def exact_2d(x: ArrayLike) -> Partition:
    """Returns the exact partition of points in a plane, an atom well inside each polygon.

    Three points are on a line if two of their circles meet within 4e-15 (the sine of an angle) of
    the third. All points are on a line, or equal, if the vectors (1, x)/|(1, x)| are within about
    1e-11 of a plane, or a line, through zero. Cells without a hyperplane 1e-14 away from every
    point are left out: points whose vectors differ by less than 2e-14 count as one. Each such cell,
    and each such point, costs a probability of the order of 1e-14 (of 1e-11 where all points are
    moved to a line); the rest has sum 1. Probabilities go down to 1e-25 where points nearly
    coincide; their logarithms are safe. Values of `x` beyond 1e12 can fail, with an error.

    Args:
        x: Array `[N, 2]` in any order, repetitions allowed.

    Returns:
        `Partition` of kind `"exact"`: `n(n-1)/2 + 1` atoms for n distinct points if no three are on
        a line, fewer otherwise. Patterns are +1 at the first row of `x`.

    Raises:
        MemoryError: If the cells do not fit into memory.
        ValueError: If `x` is not an array of this kind, or too large.
    """
    x = checked_points(x, 2)
    points = np.unique(x, axis=0)
    most_cells = len(points) * (len(points) - 1) // 2 + 1
    memory.check_room(
        f"The exact partition of {len(points):,} points in a plane, up to {most_cells:,} cells,",
        most_cells * (_BYTES_OF_CELL + _BYTES_OF_SIGN * len(points)),
        "take a sampled partition, or fewer rows",
    )
    normals = _normals(points)
    polygons = _arrangement(_without_noise(normals))
    hyperplanes = _centres(polygons)
    areas = _areas(polygons, hyperplanes)
    kept = (_margins(polygons, hyperplanes, normals) > MARGIN) & (areas > 0.0)
    probabilities, hyperplanes = normalized(areas[kept] / (2.0 * np.pi)), hyperplanes[kept]
    first = hyperplanes @ _normals(x[:1]).T  # [L, 1]
    return Partition(np.where(first < 0.0, -hyperplanes, hyperplanes), probabilities, "exact")


def _normals(x):
    """Returns unit normals `[n, 3]` of the great circles of hyperplanes through points `[n, 2]`."""
    return unit(np.concatenate([np.ones((len(x), 1)), x], axis=1))


def _without_noise(normals):
    """Returns unit normals `[n, 3]` without directions in which they spread by less than `_COMMON`.

    Points far from zero, and points on a line, have normals near a plane.
    """
    left, sizes, right = np.linalg.svd(normals, full_matrices=False)
    kept = sizes > _COMMON * np.sqrt(len(normals))
    return normals if kept.all() else unit((left * (sizes * kept)) @ right)


def _arrangement(normals):
    """Returns the polygons into which circles cut the hemisphere around the first normal."""
    pole = normals[0]
    first = unit(np.cross(pole, np.eye(3)[np.argmin(np.abs(pole))]))
    second = np.cross(pole, first)
    above = np.zeros((1, len(normals)), bool)
    above[:, 0] = True
    polygons = Polygons(np.stack([first, second, -first, -second]), np.array([4]), above)
    for index in range(1, len(normals)):
        polygons = _cut(polygons, normals[index], index)
    return polygons


def _cut(polygons, normal, index):
    """Cuts in two each polygon that the great circle with this normal crosses."""
    heights = polygons.corners @ normal
    heights[np.abs(heights) <= TOLERANCE] = 0.0
    lowest = np.minimum.reduceat(heights, polygons.starts)
    highest = np.maximum.reduceat(heights, polygons.starts)
    polygons.above[:, index] = highest > 0.0
    edge_only = (lowest == 0.0) & (highest == 0.0)  # thin, or a hemisphere
    if edge_only.any():
        polygons.above[edge_only, index] = _centres(polygons)[edge_only] @ normal > 0.0
    crossed = (lowest < 0.0) & (highest > 0.0)
    if not crossed.any():
        return polygons
    inside = np.repeat(crossed, polygons.sizes)
    whole, crossing = (
        Polygons(polygons.corners[corners], polygons.sizes[chosen], polygons.above[chosen])
        for corners, chosen in ((~inside, ~crossed), (inside, crossed))
    )
    halves = _halves(crossing, heights[inside], normal)
    for half, is_above in zip(halves, (True, False), strict=True):
        half.above[:, index] = is_above
    return Polygons(*(np.concatenate(parts) for parts in zip(whole, *halves, strict=True)))


def _halves(polygons, heights, normal):
    """Returns the two parts of each polygon, above and below a circle that crosses it.

    Args:
        polygons: `Polygons`, all crossed.
        heights: float64 array `[M]`, signed distances of the corners from the circle.
        normal: float64 array `[3]`, the normal of the circle.

    Returns:
        Two `Polygons`, one part of each polygon in each.
    """
    corners, following = polygons.corners, polygons.following
    heights = _one_run(polygons, heights)
    above = heights > 0.0
    crossing = heights * heights[following] < 0.0
    ends = following[crossing]
    # A corner on the circle is a corner of both parts if it leads to the upper one; otherwise it
    # only touches the circle from below.
    shared = (heights == 0.0) & (above[following] | above[polygons.preceding])
    # The crossing lies between two corners of an edge, with positive weights. Nothing cancels, and
    # it is as near to the circle of the edge as they are.
    meets = corners.copy()
    meets[crossing] = unit(
        np.abs(heights[ends, None]) * corners[crossing]
        + np.abs(heights[crossing, None]) * corners[ends]
    )
    candidates = np.stack([corners, meets], axis=1)  # [M, 2, 3]: each corner, then the crossing
    new = np.stack([shared, crossing], axis=1)
    halves = []
    for kept, inward in ((above | shared, normal), (~above, -normal)):
        taken = np.stack([kept, crossing], axis=1)
        sizes = polygons.sum(taken.sum(axis=1))
        half = Polygons(candidates[taken], sizes, polygons.above.copy())
        halves.append(_with_short_edges(half, new[taken], inward))
    return halves


def _one_run(polygons, heights):
    """Makes the corners above the circle neighbours of each other, as in a convex polygon.

    Where polygons are thin, rounding can put other corners above the circle. They are put on it.

    Args:
        polygons: `Polygons`.
        heights: float64 array `[M]`, some positive in every polygon.

    Returns:
        float64 array `[M]`.
    """
    above = heights > 0.0
    begins = above & ~above[polygons.preceding]
    if np.all(polygons.sum(begins.astype(np.int64)) == 1):
        return heights
    # Number the runs; one that began before its polygon's first corner ends after the last.
    run = np.cumsum(begins)
    last = np.repeat(run[np.cumsum(polygons.sizes) - 1], polygons.sizes)
    before = np.repeat((run - begins)[polygons.starts], polygons.sizes)
    run = np.where(run == before, last, run)
    highest = np.repeat(np.maximum.reduceat(heights, polygons.starts), polygons.sizes)
    of_highest = np.maximum.reduceat(np.where(heights == highest, run, -1), polygons.starts)
    return np.where(above & (run != np.repeat(of_highest, polygons.sizes)), 0.0, heights)


def _with_short_edges(polygons, new, inward):
    """Puts a corner into the middle of a new edge that is longer than a quarter of its circle.

    Points on a line give only polygons with two corners, and a circle goes from tip to tip of such
    polygons. Without a third point the edge would not say which way it goes.

    Args:
        polygons: `Polygons`.
        new: bool array `[M]`, true at the two ends of the new edge of each polygon.
        inward: float64 array `[3]`, normal of the circle on the polygons' side.

    Returns:
        `Polygons`.
    """
    start, end = polygons.corners, polygons.corners[polygons.following]
    long = new & new[polygons.following] & (np.sum(start * end, axis=1) < 0.0)
    if not long.any():
        return polygons
    middles = unit(np.cross(inward, start[long] - end[long]))
    corners = np.insert(polygons.corners, np.flatnonzero(long) + 1, middles, axis=0)
    sizes = polygons.sizes + polygons.sum(long.astype(np.int64))
    return Polygons(corners, sizes, polygons.above)


def _centres(polygons):
    """Returns a unit vector well inside each polygon, `[L, 3]`.

    The vector is the sum of two vectors of the polygon's cone. The centroid of its edges is precise
    for small and thin polygons and vanishes for a hemisphere. The centroid of the area, `(1/2)
    sum_edges length * inward normal`, is the pole of a hemisphere.
    """
    start, end = polygons.corners, polygons.corners[polygons.following]
    edges = np.linalg.norm(end - start, axis=1, keepdims=True) * (start + end)
    normals = np.cross(start, end - start)
    sine = np.linalg.norm(normals, axis=1, keepdims=True)
    angle = np.arctan2(sine, np.sum(start * end, axis=1, keepdims=True))
    per_sine = np.divide(angle, sine, out=np.ones_like(sine), where=sine > 0.0)
    return unit(polygons.sum(edges + per_sine * normals))


def _areas(polygons, centres):
    """Returns areas `[L]`, sums over the triangles from the centre to each edge.

    `tan(area / 2) = det(c, a, b) / (1 + c.a + a.b + b.c)`; with a - c and b - c in the
    determinant a small area has a small relative error too.
    """
    centre = np.repeat(centres, polygons.sizes, axis=0)
    start, end = polygons.corners, polygons.corners[polygons.following]
    volume = np.sum(centre * np.cross(start - centre, end - centre), axis=1)
    cosines = np.sum(centre * start + start * end + end * centre, axis=1)
    return polygons.sum(2.0 * np.arctan2(volume, 1.0 + cosines))


def _margins(polygons, centres, normals):
    """Returns the distance of each centre from the nearest circle, negative on its wrong side.

    Args:
        polygons: `Polygons`.
        centres: float64 array `[L, 3]`, unit vectors.
        normals: float64 array `[n, 3]`, the normals of the points' circles.

    Returns:
        float64 array `[L]`.
    """
    margins = np.full(len(centres), np.inf)
    for normal, above in zip(normals, polygons.above.T, strict=True):
        heights = centres @ normal
        margins = np.minimum(margins, np.where(above, heights, -heights))
    return margins
