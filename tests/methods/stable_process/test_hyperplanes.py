"""Partitions by random hyperplanes: closed forms, simulation, and another algorithm.

The distribution is known without any partition: the kernel of a random hyperplane is an angle, and
for two or three points the probabilities are arcsines. Statistical assertions fail by chance once
in a million (`FALSE_FAIL`); seeds are fixed, so that they either always pass or always fail.
"""

import hyperplanes as reference
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from tfp_fnspace.methods.stable_process import hyperplanes
from tfp_fnspace.methods.stable_process.hyperplanes import atoms, plane

FALSE_FAIL = 1e-6


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def grid(size):
    """Returns points of a grid on [-1, 1]^2; its lines are straight up to rounding only."""
    axis = np.linspace(-1.0, 1.0, size)
    return np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)


def circle(num_points, radius=1.0):
    angle = 2.0 * np.pi * np.arange(num_points) / num_points
    return radius * np.stack([np.cos(angle), np.sin(angle)], axis=1)


def line(num_points):
    return np.array([1.0, 2.0]) + normal(num_points, 1) * np.array([0.3, -0.7])


# Points whose cells float64 all tells apart.
PLAIN = {
    "1d_one": np.array([[0.7]]),
    "1d_two_equal": np.array([[-0.7], [-0.7]]),
    "1d_sorted": np.linspace(-2.0, 3.0, 11)[:, None],
    "1d_unsorted": normal(30, 1),
    "1d_repeated": np.repeat(normal(8, 1), [1, 3, 1, 2, 1, 1, 2, 1], axis=0)[::-1],
    "1d_tiny": 1e-3 * normal(20, 1),
    "1d_large": 1e3 * normal(20, 1),
    "1d_offset": 1e3 + normal(20, 1),
    "1d_integers": np.arange(-3, 4)[:, None],
    "2d_one": np.array([[0.3, -2.0]]),
    "2d_origin": np.zeros((1, 2)),
    "2d_two": np.array([[0.3, -2.0], [1.0, 1.0]]),
    "2d_two_equal": np.array([[0.3, -2.0], [0.3, -2.0]]),
    "2d_opposite": np.array([[1e3, 0.0], [-1e3, 0.0], [0.0, 1e3]]),
    "2d_random": normal(14, 2),
    "2d_grid": grid(4),
    "2d_line": line(9),
    "2d_vertical": np.stack([np.full(6, 0.4), normal(6)], axis=1),
    "2d_line_and_point": np.concatenate([line(6), [[0.0, 0.0]]]),
    "2d_repeated": np.repeat(normal(6, 2), [1, 2, 1, 3, 1, 1], axis=0)[::-1],
    "2d_circle": circle(12),
    "2d_circle_and_centre": np.concatenate([circle(8, radius=2.0), [[0.0, 0.0]]]),
    "2d_tiny": 1e-3 * normal(10, 2),
    "2d_large": 1e3 * normal(10, 2),
    "2d_offset": 1e3 + normal(10, 2),
    "2d_scales": normal(10, 2) * np.array([1e-2, 1e2]),
}

# Points with cells near or beyond the resolution of float64.
DEGENERATE = {
    "1d_nearly_equal": np.repeat(normal(10, 1), 3, axis=0) + 1e-14 * normal(30, 1, seed=1),
    "1d_far": 1e8 + normal(20, 1),
    "1d_huge": np.array([[-1e100], [1e100], [0.0], [1e99]]),
    "2d_equal_1e-14": np.repeat(normal(10, 2), 3, axis=0) + 1e-14 * normal(30, 2, seed=1),
    "2d_equal_1e-9": np.repeat(normal(10, 2), 3, axis=0) + 1e-9 * normal(30, 2, seed=1),
    "2d_line_1e-15": line(30) + 1e-15 * normal(30, 2, seed=1),
    "2d_line_1e-13": line(30) + 1e-13 * normal(30, 2, seed=1),
    "2d_line_1e-7": line(30) + 1e-7 * normal(30, 2, seed=1),
    "2d_far": 1e6 + normal(20, 2),
    "2d_very_far": 1e10 + normal(20, 2),
    "2d_offset_1e8": 1e8 * normal(1, 2) + normal(20, 2, seed=1),
    "2d_two_clusters": np.concatenate([normal(10, 2), 1e7 + normal(10, 2, seed=1)]),
    "2d_lattice_1e-13": np.rint(2 * normal(30, 2)) / 3 + 1e-13 * normal(30, 2, seed=1),
    "2d_hair": normal(20, 2) * np.array([1e-7, 1e5]),
    "2d_speck": 1e-9 * normal(20, 2),
    "2d_huge": 1e99 * normal(10, 2),
    "2d_float32_grid": grid(7).astype(np.float32),
    "2d_rotated_grid": grid(6) @ np.array([[0.8, 0.6], [-0.6, 0.8]]) * 1.7 + 100.0,
}

ALL = PLAIN | DEGENERATE
PLANE = sorted(name for name in PLAIN if name.startswith("2d"))


def by_pattern(partition, x):
    """Returns pattern (+1 at the first point) -> probability."""
    groups = partition.groups(x)
    patterns = map(tuple, groups.signs.T.tolist())
    return dict(zip(patterns, groups.probabilities, strict=True))


def kernel(partition, x):
    signs = partition.signs(x).astype(np.float64)
    return (signs * partition.probabilities) @ signs.T


def check_same(result, expected, atol):
    assert result.keys() == expected.keys()
    for pattern, probability in expected.items():
        assert abs(result[pattern] - probability) <= atol, pattern


# Exact partitions --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_exact_partition_is_one(name):
    x = ALL[name]
    partition = hyperplanes.exact(x)
    assert partition.kind == "exact"
    assert partition.num_inputs == x.shape[1]
    assert partition.hyperplanes.shape == (partition.num_atoms, x.shape[1] + 1)
    assert partition.hyperplanes.dtype == partition.probabilities.dtype == np.float64
    assert_allclose(np.linalg.norm(partition.hyperplanes, axis=1), 1.0, rtol=1e-14)
    assert np.all(partition.probabilities > 0.0)
    assert abs(partition.probabilities.sum() - 1.0) < 1e-10


@pytest.mark.parametrize("name", ALL)
def test_kernel_is_the_angle_between_points(name):
    x = ALL[name]
    assert_allclose(kernel(hyperplanes.exact(x), x), reference.kernel(x), atol=1e-11)


@pytest.mark.parametrize("name", ALL)
def test_every_atom_has_a_pattern_of_its_own(name):
    x = ALL[name]
    partition = hyperplanes.exact(x)
    groups = partition.groups(x)
    assert_array_equal(groups.index, np.arange(partition.num_atoms))
    assert_array_equal(groups.signs, partition.signs(x))  # it is +1 at the first point already
    assert_allclose(groups.probabilities, partition.probabilities, rtol=1e-14)


@pytest.mark.parametrize("seed", range(40))
def test_nearly_degenerate_points(seed):
    """Near-coincidences have every size, from far above rounding to below it."""
    rng = np.random.default_rng(seed)
    size, noise = rng.integers(3, 30), 10.0 ** rng.uniform(-17, -6)
    near = [
        lambda x: x[rng.integers(size, size=size)],  # repeated points
        lambda x: x[:, :1] * rng.normal(size=2),  # a line
        lambda x: np.rint(2 * x) / 3,  # a lattice
        lambda x: np.where(np.arange(size)[:, None] % 2, x, x[:1]),  # one point, many times
    ][seed % 4](rng.normal(size=(size, 2)))
    x = (near + noise * rng.normal(size=(size, 2))) * 10.0 ** rng.uniform(-4, 4)
    x += 10.0 ** rng.uniform(-3, 6) * rng.normal(size=2) * (seed // 4 % 2)
    partition = hyperplanes.exact(x)
    assert partition.groups(x).signs.shape[1] == partition.num_atoms
    assert_allclose(kernel(partition, x), reference.kernel(x), atol=1e-10)


@pytest.mark.parametrize("name", sorted(PLAIN))
def test_atoms_keep_away_from_points(name):
    x = PLAIN[name]
    lifted = np.concatenate([np.ones((len(x), 1)), x], axis=1)
    lifted /= np.linalg.norm(lifted, axis=1, keepdims=True)
    partition = hyperplanes.exact(x)
    margin = np.abs(partition.hyperplanes @ lifted.T).min(axis=1)
    # An inscribed circle of radius r has q >= r^2 / 2.
    assert np.all(margin > 10 * atoms.MARGIN)
    assert np.all(partition.probabilities > margin**2 / 2)


@pytest.mark.parametrize("name", PLANE)
def test_plane_agrees_with_vertices_and_angles(name):
    x = PLAIN[name]
    distinct, back = np.unique(x, axis=0, return_inverse=True)
    back = back.reshape(-1)
    expected = {
        tuple(int(pattern[i] * pattern[back[0]]) for i in back): probability
        for pattern, probability in reference.polygons(distinct, tolerance=1e-12).items()
    }
    check_same(by_pattern(hyperplanes.exact(x), x), expected, atol=1e-9)


@pytest.mark.parametrize("name", sorted(PLAIN.keys() - set(PLANE)))
def test_line_agrees_with_cauchy_distribution(name):
    x = np.unique(PLAIN[name])[:, None]
    expected = reference.intervals(x[:, 0])
    check_same(by_pattern(hyperplanes.exact(x), x), expected, atol=1e-13)


@pytest.mark.parametrize("num_points", [2, 3])
@pytest.mark.parametrize("num_inputs", [1, 2])
@pytest.mark.parametrize("scale", [1e-2, 1.0, 1e2])
def test_probabilities_of_two_and_three_points_are_arcsines(num_points, num_inputs, scale):
    x = scale * normal(num_points, num_inputs, seed=3)
    expected = reference.orthants(x)
    # If three points are on a line, one of the four patterns does not occur.
    expected = {pattern: value for pattern, value in expected.items() if value > 1e-10}
    check_same(by_pattern(hyperplanes.exact(x), x), expected, atol=1e-12)


@pytest.mark.parametrize("name", ["1d_unsorted", "1d_large", "2d_random", "2d_grid", "2d_line"])
def test_probabilities_are_frequencies_of_random_hyperplanes(name):
    """A chi-square test; patterns expected fewer than ten times are counted together."""
    x, num_draws = PLAIN[name], 100_000
    draws = normal(num_draws, x.shape[1] + 1, seed=5)
    signs = np.where(draws[:, 1:] @ x.T + draws[:, :1] > 0.0, 1, -1)
    patterns, found = np.unique(signs * signs[:, :1], axis=0, return_counts=True)
    probabilities = by_pattern(hyperplanes.exact(x), x)
    counts = dict.fromkeys(probabilities, 0)
    counts |= dict(zip(map(tuple, patterns.tolist()), found, strict=True))
    assert counts.keys() == probabilities.keys()  # every pattern may occur
    expected = num_draws * np.array(list(probabilities.values()))
    counts = np.array(list(counts.values()))
    rare = expected < 10
    together = np.append(expected[~rare], expected[rare].sum())
    observed = np.append(counts[~rare], counts[rare].sum())
    used = together > 0.0
    assert stats.chisquare(observed[used], together[used]).pvalue > FALSE_FAIL


# Numbers of cells --------------------------------------------------------------------------------


NUM_CELLS = {
    "line_of_points": (hyperplanes.exact_1d, normal(50, 1), 50),
    "line_repeated": (hyperplanes.exact_1d, np.array([[1.0], [0.0], [1.0]]), 2),
    "one": (hyperplanes.exact_2d, np.ones((1, 2)), 1),
    "two_equal": (hyperplanes.exact_2d, np.ones((2, 2)), 1),
    "two": (hyperplanes.exact_2d, np.eye(2), 2),
    "collinear": (hyperplanes.exact_2d, line(30), 30),
    "nearly_collinear": (hyperplanes.exact_2d, line(30) + 1e-8 * normal(30, 2), 436),
    "circle": (hyperplanes.exact_2d, circle(40), 781),
    "circle_and_centre": (
        # The centre is also on the 20 lines through opposite points.
        hyperplanes.exact_2d,
        np.concatenate([circle(40), [[0, 0]]]),
        1 + (40 * 39 // 2 - 20) + 20 * 2,
    ),
    "grid": (hyperplanes.exact_2d, grid(7), 749),
    "grids": (hyperplanes.exact_2d, np.concatenate([grid(7), grid(9)]), 4_849),
    "general_position": (hyperplanes.exact_2d, normal(188, 2), 17_579),
}


@pytest.mark.parametrize("name", NUM_CELLS)
def test_number_of_cells(name):
    make, x, expected = NUM_CELLS[name]
    assert make(x).num_atoms == expected


INTEGERS = {
    "grid": np.rint(3 * grid(7)),
    "grids": np.rint(12 * np.concatenate([grid(7), grid(9)])),
    "random": np.random.default_rng(0).integers(-4, 5, size=(25, 2)),
    "tall": np.random.default_rng(1).integers([0, -20], [3, 20], size=(25, 2)),
}


@pytest.mark.parametrize("name", INTEGERS)
def test_number_of_cells_in_exact_arithmetic(name):
    x = INTEGERS[name].astype(int)
    assert hyperplanes.exact(x).num_atoms == reference.num_cells(x.tolist())
    # A third is not exact in float64, so the points are on lines only up to rounding.
    assert hyperplanes.exact(x / 3).num_atoms == reference.num_cells(x.tolist())


# Symmetries --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PLAIN)
def test_order_of_points_does_not_matter(name):
    x = PLAIN[name]
    order = np.random.default_rng(2).permutation(len(x))
    expected = {
        tuple(pattern[i] * pattern[order[0]] for i in order): probability
        for pattern, probability in by_pattern(hyperplanes.exact(x), x).items()
    }
    check_same(by_pattern(hyperplanes.exact(x[order]), x[order]), expected, atol=1e-13)


@pytest.mark.parametrize("name", PLANE)
def test_rotation_leaves_probabilities(name):
    x = PLAIN[name]
    rotation = np.array([[0.6, 0.8], [-0.8, 0.6]])
    result = hyperplanes.exact(x @ rotation)
    check_same(by_pattern(result, x @ rotation), by_pattern(hyperplanes.exact(x), x), atol=1e-11)


@pytest.mark.parametrize("name", PLAIN)
def test_repeating_points_changes_nothing(name):
    x = PLAIN[name]
    expected, result = (hyperplanes.exact(points) for points in (x, np.concatenate([x, x])))
    assert_array_equal(result.hyperplanes, expected.hyperplanes)
    assert_array_equal(result.probabilities, expected.probabilities)


def test_points_on_an_axis_are_one_input():
    x = PLAIN["1d_unsorted"]
    flat = np.concatenate([x, np.zeros_like(x)], axis=1)
    # If (b, w_1) is normal, w_2 does not affect the signs.
    expected, result = by_pattern(hyperplanes.exact(x), x), hyperplanes.exact(flat)
    check_same(by_pattern(result, flat), expected, atol=1e-14)


# Sampled and refined atoms -----------------------------------------------------------------------


@pytest.mark.parametrize("num_inputs", [1, 2, 5])
def test_sampled_kernel(num_inputs, assert_mean_close):
    x = normal(6, num_inputs, seed=4)
    partition = hyperplanes.sampled(num_inputs, 50_000, seed=1)
    signs = partition.signs(x).T.astype(np.float64)
    products = signs[:, :, None] * signs[:, None, :]  # [R, N, N]
    assert_mean_close(products, reference.kernel(x), FALSE_FAIL)
    assert_allclose(kernel(partition, x), products.mean(axis=0), atol=1e-12)


def test_sampled_atoms_are_equally_probable_and_reproducible():
    first, again, other = (hyperplanes.sampled(3, 40, seed=seed) for seed in (1, 1, 2))
    assert first.kind == "sampled"
    assert_array_equal(first.probabilities, np.full(40, 1 / 40))
    assert_allclose(np.linalg.norm(first.hyperplanes, axis=1), 1.0)
    assert_array_equal(first.hyperplanes, again.hyperplanes)
    assert np.all(first.hyperplanes != other.hyperplanes)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("num_atoms", [1, 300])
def test_refined_distribution_is_exact_at_the_points(name, num_atoms):
    x = ALL[name]
    cells = hyperplanes.exact(x)
    partition = hyperplanes.refine(cells, x, num_atoms, seed=0)
    assert partition.kind == "refined"
    assert cells.num_atoms <= partition.num_atoms <= cells.num_atoms + num_atoms
    assert abs(partition.probabilities.sum() - 1.0) < 1e-10
    check_same(by_pattern(partition, x), by_pattern(cells, x), atol=1e-13)
    assert np.all(np.diff(partition.groups(x).index) >= 0)  # atoms of a cell are neighbours


def test_refined_atoms_of_a_line_are_evenly_spread():
    x = np.array([[0.0], [1.0]])  # q is 1/4 between the points and 3/4 beyond
    partition = hyperplanes.refine(hyperplanes.exact(x), x, num_atoms=12, seed=0)
    assert_allclose(partition.probabilities, np.full(12, 1 / 12))
    changes = np.arctan2(-partition.hyperplanes[:, 0], partition.hyperplanes[:, 1]) % np.pi
    assert_allclose(np.sort(changes), (np.arange(12) + 0.5) * np.pi / 12)


def test_refined_line_is_near_the_distribution_elsewhere():
    x, num_atoms = normal(10, 1), 200
    partition = hyperplanes.refine(hyperplanes.exact(x), x, num_atoms, seed=0)
    new = np.concatenate([normal(50, 1, seed=1), 1e3 * normal(5, 1)])
    # A point is wrong about at most the atom whose part it lies in.
    assert_allclose(kernel(partition, new), reference.kernel(new), atol=4 / num_atoms)


def test_refined_plane_is_near_the_distribution_elsewhere():
    x, num_atoms = normal(10, 2), 5_000
    exact = hyperplanes.exact(x)
    refined = hyperplanes.refine(exact, x, num_atoms, seed=0)
    new = normal(20, 2, seed=1)
    expected = reference.kernel(new)
    # The cells' fixed probabilities leave less variance than `num_atoms` signs have, at most 1
    # each. The bound is Bonferroni over the entries.
    bound = stats.norm.isf(FALSE_FAIL / (2 * expected.size)) / np.sqrt(num_atoms)
    errors = np.abs(kernel(refined, new) - expected)
    assert np.all(errors < bound)
    assert errors.max() < 0.3 * np.abs(kernel(exact, new) - expected).max()


def test_refined_atoms_are_uniform_in_their_cell(assert_mean_close):
    """With one point and one cell, the atoms are random hyperplanes of the whole sphere."""
    x = np.array([[0.5, -1.0]])
    partition = hyperplanes.refine(hyperplanes.exact(x), x, num_atoms=20_000, seed=3)
    assert_array_equal(partition.probabilities, np.full(20_000, 1 / 20_000))
    assert_mean_close(partition.hyperplanes**2, 1 / 3, FALSE_FAIL)


def test_refine_discards_draws_in_cells_that_are_not_listed():
    x = normal(4, 2)
    exact = hyperplanes.exact(x)
    kept = np.arange(1, exact.num_atoms)
    share = exact.probabilities[kept] / exact.probabilities[kept].sum()
    fewer = hyperplanes.Partition(exact.hyperplanes[kept], share, "exact")
    partition = hyperplanes.refine(fewer, x, num_atoms=1_000, seed=0)
    check_same(by_pattern(partition, x), by_pattern(fewer, x), atol=1e-14)


# Marginals of the random covariance (Corollary 1) ------------------------------------------------


@pytest.fixture(scope="module", params=[0.6, 1.0, 1.5])
def covariance(request):
    """Returns draws of sum_l q_l^(2/alpha) s_l tau_l(x_i) tau_l(x_j), three points; p and alpha."""
    alpha, num_draws = request.param, 50_000
    x = np.array([[0.2, -0.3], [1.5, 0.4], [-1.0, 0.8]])
    partition = hyperplanes.exact(x)
    rng = np.random.default_rng(0)
    scales = reference.positive_stable(alpha / 2, (num_draws, partition.num_atoms), rng)
    scales *= partition.probabilities ** (2 / alpha)
    signs = partition.signs(x).astype(np.float64)
    draws = np.einsum("sl,il,jl->sij", scales, signs, signs)
    return draws, 0.5 * (1.0 + reference.kernel(x)), alpha


def test_diagonal_of_covariance_is_one_stable_scale(covariance, assert_mean_close):
    draws, _, alpha = covariance
    diagonal = draws[:, 1, 1]
    rates = np.array([0.1, 1.0, 5.0])
    laplace = np.exp(-rates * diagonal[:, None])
    assert_mean_close(laplace, np.exp(-(rates ** (alpha / 2))), FALSE_FAIL)
    single = reference.positive_stable(alpha / 2, 50_000, np.random.default_rng(1))
    assert stats.ks_2samp(diagonal, single).pvalue > FALSE_FAIL
    if alpha == 1.0:
        assert stats.kstest(diagonal, stats.levy(scale=0.5).cdf).pvalue > FALSE_FAIL


@pytest.mark.parametrize("pair", [(0, 1), (0, 2), (1, 2)])
def test_off_diagonal_of_covariance_is_a_skewed_stable_variable(
    covariance, pair, assert_mean_close
):
    draws, same_side, alpha = covariance
    entry, p, index = draws[:, *pair], same_side[pair], alpha / 2
    # It is p^(1/a) S - (1-p)^(1/a) S', where E exp(itS) = exp(-(-it)^a).
    t = np.array([0.3, 1.0, 3.0])
    expected = np.exp(-p * (-1j * t) ** index - (1 - p) * (1j * t) ** index)
    angle = entry[:, None] * t
    assert_mean_close(np.cos(angle), expected.real, FALSE_FAIL)
    assert_mean_close(np.sin(angle), expected.imag, FALSE_FAIL)
    # SciPy's scale of exp(-(-it)^a) is cos(pi a / 2)^(1/a).
    scale = np.cos(np.pi * index / 2) ** (1 / index)
    distribution = stats.levy_stable(index, 2 * p - 1, scale=scale)
    assert stats.ks_2samp(entry, distribution.rvs(50_000, random_state=2)).pvalue > FALSE_FAIL


# Signs and groups --------------------------------------------------------------------------------


def test_zero_is_positive():
    partition = hyperplanes.Partition(np.array([[0.0, 1], [0, -1]]), np.full(2, 0.5), "sampled")
    signs = partition.signs([[0.0], [-0.0], [2.0], [-2.0]])
    assert signs.dtype == np.int8
    assert_array_equal(signs.T, [[1, 1, 1, -1], [1, 1, -1, 1]])


@pytest.mark.parametrize("block", [1, 100, 10**6])
def test_signs_in_blocks_of_points(monkeypatch, block):
    partition, x = hyperplanes.sampled(3, 50, seed=0), normal(23, 3)
    expected = np.sign(x @ partition.hyperplanes[:, 1:].T + partition.hyperplanes[:, 0])
    monkeypatch.setattr(atoms, "_BLOCK", block)
    assert_array_equal(partition.signs(x), expected)


@pytest.mark.parametrize("num_points", [1, 7, 8, 9, 200])
def test_groups_merge_atoms_with_one_pattern(num_points):
    x = normal(num_points, 3)
    partition = hyperplanes.sampled(3, 300, seed=0)
    groups = partition.groups(x)
    signs = partition.signs(x)
    assert groups.signs.dtype == np.int8 and groups.index.dtype == np.int32
    assert_array_equal(groups.signs[:, groups.index], signs * signs[0])
    assert len(np.unique(groups.signs, axis=1).T) == groups.signs.shape[1]
    for group, probability in enumerate(groups.probabilities):
        members = groups.index == group
        assert_allclose(probability, partition.probabilities[members].sum())
    # Groups are numbered in the order of first appearance.
    _, first = np.unique(groups.index, return_index=True)
    assert np.all(np.diff(first) > 0)


def test_groups_of_some_points_of_an_exact_partition_are_its_coarser_partition():
    x, x_new = normal(8, 2), normal(9, 2, seed=1)
    joint = hyperplanes.exact(np.concatenate([x, x_new]))
    check_same(by_pattern(joint, x), by_pattern(hyperplanes.exact(x), x), atol=1e-13)


# The entry point ---------------------------------------------------------------------------------


RULES = {  # arguments -> kind, function that makes the same partition
    "line": ((normal(5, 1),), {}, "refined"),
    "line_long": ((normal(2_000, 1),), {}, "refined"),
    "line_predict": ((normal(5, 1),), {"x_predict": normal(7, 1, seed=1)}, "exact"),
    "plane": ((normal(5, 2),), {}, "refined"),
    "plane_predict": ((normal(5, 2),), {"x_predict": normal(7, 2, seed=1)}, "exact"),
    "plane_many": ((normal(201, 2),), {}, "sampled"),
    "plane_many_equal": ((np.repeat(normal(5, 2), 60, axis=0),), {}, "refined"),
    "plane_predict_many": ((normal(5, 2),), {"x_predict": normal(200, 2, seed=1)}, "refined"),
    "plane_many_predict": ((normal(300, 2),), {"x_predict": normal(2, 2)}, "sampled"),
    "space": ((normal(5, 3),), {}, "sampled"),
    "space_predict": ((normal(5, 3),), {"x_predict": normal(7, 3)}, "sampled"),
    "exact": ((normal(5, 2), "exact"), {}, "exact"),
    "refined": ((normal(5, 2), "refined"), {"x_predict": normal(3, 2)}, "refined"),
    "sampled": ((normal(5, 1), "sampled"), {}, "sampled"),
    "lists_of_integers": (([[0, 1], [2, 3]],), {}, "refined"),
}


@pytest.mark.parametrize("name", RULES)
def test_rules_of_partition(name):
    args, options, expected = RULES[name]
    partition, again = (hyperplanes.partition(*args, num_atoms=50, **options) for _ in range(2))
    assert partition.kind == expected
    assert_array_equal(partition.hyperplanes, again.hyperplanes)
    assert_array_equal(partition.probabilities, again.probabilities)


def test_partition_makes_what_its_kind_says():
    x, x_new = normal(6, 2), normal(4, 2, seed=1)
    joint = np.concatenate([x, x_new])
    exact = hyperplanes.exact(joint)
    pairs = [
        (hyperplanes.partition(x, "exact", x_predict=x_new), exact),
        (hyperplanes.partition(x, x_predict=x_new), exact),
        (hyperplanes.partition(x, "exact"), hyperplanes.exact(x)),
        (
            hyperplanes.partition(x, "refined", 70, 3, x_predict=x_new),
            hyperplanes.refine(exact, joint, 70, 3),
        ),
        (
            hyperplanes.partition(x, "auto", 70, 3),
            hyperplanes.refine(hyperplanes.exact(x), x, 70, 3),
        ),
        (hyperplanes.partition(x, "sampled", 70, 3), hyperplanes.sampled(2, 70, 3)),
    ]
    for result, expected in pairs:
        assert result.kind == expected.kind
        assert_array_equal(result.hyperplanes, expected.hyperplanes)
        assert_array_equal(result.probabilities, expected.probabilities)


# Bad input ---------------------------------------------------------------------------------------

X = normal(5, 2)
EXACT = hyperplanes.exact(X)
UNIT = np.array([[1.0, 0.0], [0.0, 1.0]])

BAD = {
    "rank_1": (lambda: hyperplanes.partition(X[:, 0]), r"shape \[N, I\].*x\.shape=\(5,\)"),
    "rank_3": (lambda: hyperplanes.partition(X[None]), r"shape \[N, I\].*x\.shape=\(1, 5, 2\)"),
    "no_points": (lambda: hyperplanes.partition(X[:0]), r"at least 1.*x\.shape=\(0, 2\)"),
    "no_inputs": (lambda: hyperplanes.partition(X[:, :0]), r"at least 1.*x\.shape=\(5, 0\)"),
    "nan": (lambda: hyperplanes.partition(X * np.nan), r"`x` must be finite.*x with 10 other"),
    "inf": (lambda: hyperplanes.partition(X + [0, np.inf]), r"`x` must be finite.*x with 5 other"),
    "huge": (lambda: hyperplanes.partition(1e200 * X), r"at most 1e\+100.*x with 10 other"),
    "text": (lambda: hyperplanes.partition([["a"]]), r"`x` must be numeric.*x of type list"),
    "kind": (lambda: hyperplanes.partition(X, "best"), r"one of \['auto'.*kind='best'"),
    "kind_of_rule": (lambda: hyperplanes.partition(X, None), r"`kind` must.*kind=None"),
    "atoms_zero": (
        lambda: hyperplanes.partition(X, num_atoms=0),
        r"positive integer.*num_atoms=0",
    ),
    "atoms_float": (lambda: hyperplanes.partition(X, num_atoms=9.0), r"integer.*num_atoms=9\.0"),
    "atoms_bool": (lambda: hyperplanes.partition(X, num_atoms=True), r"integer.*num_atoms=True"),
    "seed": (lambda: hyperplanes.partition(X, seed=-1), r"`seed`.*non-negative.*seed=-1"),
    "predict_width": (
        lambda: hyperplanes.partition(X, x_predict=normal(3, 1)),
        r"`x_predict` must have 2 columns.*x_predict\.shape=\(3, 1\)",
    ),
    "predict_nan": (
        lambda: hyperplanes.partition(X, "sampled", x_predict=X * np.nan),
        r"`x_predict` must be finite.*x_predict with 10 other",
    ),
    "exact_space": (
        lambda: hyperplanes.partition(normal(4, 3), "exact"),
        r"one or two inputs; take 'sampled'.*x\.shape=\(4, 3\)",
    ),
    "refined_space": (
        lambda: hyperplanes.partition(normal(4, 3), "refined"),
        r"one or two inputs; take 'sampled'.*x\.shape=\(4, 3\)",
    ),
    "exact_1d": (lambda: hyperplanes.exact_1d(X), r"must have 1 columns.*x\.shape=\(5, 2\)"),
    "exact_2d": (lambda: hyperplanes.exact_2d(X[:, :1]), r"have 2 columns.*x\.shape=\(5, 1\)"),
    "sampled_inputs": (lambda: hyperplanes.sampled(0, 5, 0), r"positive integer.*num_inputs=0"),
    "refine_kind": (
        lambda: hyperplanes.refine(hyperplanes.sampled(2, 5, 0), X, 5, 0),
        r"`partition` must be exact.*kind 'sampled'",
    ),
    "refine_points": (
        lambda: hyperplanes.refine(EXACT, X[:4], 5, 0),
        r"exact partition of `x`.*11 atoms with 7 patterns",
    ),
    "signs_width": (lambda: EXACT.signs(X[:, :1]), r"must have 2 columns.*x\.shape=\(5, 1\)"),
    "groups_nan": (lambda: EXACT.groups(X * np.nan), r"`x` must be finite"),
    "atoms_shape": (
        lambda: hyperplanes.Partition(np.ones(3), np.ones(3) / 3, "exact"),
        r"\[L, I\+1\].*hyperplanes\.shape=\(3,\)",
    ),
    "probabilities_shape": (
        lambda: hyperplanes.Partition(UNIT, np.ones(3) / 3, "exact"),
        r"shape \[2\].*probabilities\.shape=\(3,\)",
    ),
    "probabilities_sum": (
        lambda: hyperplanes.Partition(UNIT, np.ones(2), "exact"),
        r"positive with sum 1.*sum 2, smallest 1",
    ),
    "probabilities_zero": (
        lambda: hyperplanes.Partition(UNIT, np.array([1.0, 0.0]), "exact"),
        r"positive with sum 1.*smallest 0",
    ),
    "probabilities_nan": (
        lambda: hyperplanes.Partition(UNIT, np.array([1.0, np.nan]), "exact"),
        r"positive with sum 1.*smallest nan",
    ),
    "partition_kind": (
        lambda: hyperplanes.Partition(UNIT, np.ones(2) / 2, "auto"),
        r"`kind` must be one of \['exact'.*kind='auto'",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_gets_one_clear_error(name):
    call, message = BAD[name]
    with pytest.raises(ValueError, match=message) as error:
        call()
    assert "Received: " in str(error.value)


def test_lost_probability_is_an_error_and_not_a_wrong_distribution(monkeypatch):
    """This never happens with the tolerances as they are; absurd ones make cells go missing."""
    monkeypatch.setattr(plane, "MARGIN", 0.1)
    with pytest.raises(ValueError, match=r"hold all of the probability.*total probability of 0\."):
        hyperplanes.exact(normal(10, 2))


def test_cells_that_cannot_fit_are_refused_before_they_are_made(monkeypatch):
    monkeypatch.setattr(plane.memory, "free_bytes", lambda: 2.0**20)
    hyperplanes.exact(normal(20, 2))  # 191 cells
    rule = "60 points in a plane, up to 1,771 cells.*sampled partition.*Received: .* GiB"
    with pytest.raises(MemoryError, match=rule):
        hyperplanes.exact(normal(60, 2))
