"""Partitions by hyperplanes in plain Python: slow, one vertex or interval at a time.

For two inputs the package cuts a hemisphere by one circle after the other and adds triangles. Here
all vertices come first, and Girard's theorem adds the angles at them.
"""

import itertools
import math
from fractions import Fraction

import numpy as np
from scipy import stats


def kernel(x):
    """Computes E tau(x) tau(x') = 1 - (2/pi) angle((1, x), (1, x')) by cosine, or sine near 1."""
    result = np.empty((len(x), len(x)))
    for i, j in itertools.product(range(len(x)), repeat=2):
        a, b = (np.append(1.0, x[k]) / math.hypot(1.0, *x[k]) for k in (i, j))
        angle = 2.0 * math.atan2(np.linalg.norm(a - b), np.linalg.norm(a + b))
        result[i, j] = 1.0 - 2.0 / math.pi * angle
    return result


def orthants(x):
    """Returns pattern -> probability for two or three points: the normal orthant probability.

    P(Z_1 > 0, Z_2 > 0) = 1/4 + arcsin(r_12) / (2 pi), and for three variables 1/8 + the sum of
    the three arcsin(r_ij) / (4 pi) (e.g. Johnson & Kotz). A pattern and its mirror image together
    have twice that.
    """
    lifted = np.concatenate([np.ones((len(x), 1)), x], axis=1)
    scale = np.sqrt(np.sum(lifted**2, axis=1))
    correlation = lifted @ lifted.T / np.outer(scale, scale)
    result = {}
    for rest in itertools.product((1, -1), repeat=len(x) - 1):
        signs = (1, *rest)
        arcs = sum(
            math.asin(np.clip(signs[i] * signs[j] * correlation[i, j], -1.0, 1.0))
            for i, j in itertools.combinations(range(len(x)), 2)
        )
        constant = {2: 1 / 4 + arcs / (2 * math.pi), 3: 1 / 8 + arcs / (4 * math.pi)}[len(x)]
        result[signs] = 2.0 * constant
    return result


def intervals(x):
    """Returns pattern -> probability for points on a line, in increasing order and distinct.

    The sign changes at -b/w, which is standard Cauchy.
    """
    cdf = stats.cauchy.cdf
    result = {(1,) * len(x): cdf(x[0]) + stats.cauchy.sf(x[-1])}
    for j in range(1, len(x)):
        result[(1,) * j + (-1,) * (len(x) - j)] = cdf(x[j]) - cdf(x[j - 1])
    return result


def polygons(x, tolerance=1e-9):
    """Returns pattern -> probability for distinct points in the plane, by Girard's theorem.

    A vertex is where the circles of two points meet; the set of all circles through it identifies
    it. The circles leave it in directions. Between neighbouring directions lies a wedge of one
    polygon, and a point of the wedge shows the polygon's pattern. Polygons, merged with their
    mirror images, have q = (2 pi + sum over wedges of (angle - pi)) / (2 pi).
    """
    normals = [np.append(1.0, row) / math.hypot(1.0, *row) for row in x]
    angles = {}
    for circles, vertex in _vertices(normals, tolerance).items():
        # These are the directions of each circle in the tangent plane, both ways, as angles.
        across = np.cross(vertex, normals[min(circles)])
        along = np.cross(vertex, across)
        rays = []
        for i in circles:
            tangent = np.cross(vertex, normals[i])
            angle = math.atan2(tangent @ along, tangent @ across)
            rays += [angle % (2 * math.pi), (angle + math.pi) % (2 * math.pi)]
        rays = sorted(rays)
        for start, end in zip(rays, [*rays[1:], rays[0] + 2 * math.pi], strict=True):
            middle = 0.5 * (start + end)
            direction = math.cos(middle) * across + math.sin(middle) * along
            pattern = [
                np.sign(normal @ (direction if i in circles else vertex))
                for i, normal in enumerate(normals)
            ]
            key = tuple(int(sign * pattern[0]) for sign in pattern)
            angles.setdefault(key, []).append(end - start)
    if not angles:
        return {(1,) * len(x): 1.0}
    return {
        # Each polygon of n > 1 circles is met once at v and, mirrored, once at -v: `_vertices`
        # lists one of the two.
        key: (2 * math.pi + sum(angle - math.pi for angle in wedges)) / (2 * math.pi)
        for key, wedges in angles.items()
    }


def _vertices(normals, tolerance):
    """Returns a set of circles -> where they meet (one of the two antipodal points)."""
    vertices = {}
    for i, j in itertools.combinations(range(len(normals)), 2):
        vertex = np.cross(normals[i], normals[j])
        vertex /= np.linalg.norm(vertex)
        through = frozenset(k for k in range(len(normals)) if abs(vertex @ normals[k]) < tolerance)
        vertices[through] = vertex
    return vertices


def num_cells(x):
    """Counts the patterns of points with rational coordinates: 1 + sum over lines of (k - 1).

    The sum is over the lines through at least two of the distinct points, with k points on the line
    (Euler's formula: a line is a vertex in which k circles meet). The arithmetic is exact.
    """
    points = {tuple(Fraction(value) for value in row) for row in x}
    lines = {}
    for a, b in itertools.combinations(points, 2):
        normal = (a[1] - b[1], b[0] - a[0])
        leading = normal[0] if normal[0] != 0 else normal[1]
        normal = (normal[0] / leading, normal[1] / leading)
        offset = normal[0] * a[0] + normal[1] * a[1]
        lines.setdefault((normal, offset), set()).update((a, b))
    return 1 + sum(len(line) - 1 for line in lines.values())


def positive_stable(index, size, rng):
    """Draws with Laplace transform exp(-l^index), by Kanter (1975)."""
    u, e = rng.uniform(size=size), rng.exponential(size=size)
    rest = 1.0 - index
    a = np.sin(index * np.pi * u) ** (index / rest) * np.sin(rest * np.pi * u)
    return (a / np.sin(np.pi * u) ** (1.0 / rest) / e) ** (rest / index)
