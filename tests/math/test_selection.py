import numpy as np
import pytest
from numpy.testing import assert_array_equal

from tfp_fnspace.math.selection import greedy_rows

X = np.random.default_rng(0).normal(size=(40, 3))


def kernel(x):
    differences = x[:, np.newaxis] - x[np.newaxis]
    return np.exp(-0.5 * np.sum(differences**2, axis=-1) / x.shape[1])


def variances_given(k, rows):
    """Computes the variances at all rows given the values at some, by solving."""
    return np.diag(k - k[:, rows] @ np.linalg.solve(k[np.ix_(rows, rows)], k[rows]))


@pytest.mark.parametrize("offset", [0.0, 30.0])
def test_each_row_has_the_greatest_variance_given_those_before(offset):
    rows, k = greedy_rows(X + offset, 12), kernel(X)
    assert rows[0] == 0  # all variances are equal at first
    for i in range(1, 12):
        left = variances_given(k, rows[:i])
        assert left[rows[i]] > left.max() - 1e-9
    assert len(set(rows)) == 12


def test_they_leave_less_than_random_rows():
    k = kernel(X)
    left = variances_given(k, greedy_rows(X, 12)).sum()
    draws = [np.random.default_rng(i).permutation(40)[:12] for i in range(20)]
    assert left < 0.9 * min(variances_given(k, rows).sum() for rows in draws)


def test_copies_come_last_in_their_order():
    x = np.concatenate([X[:4], X[:4], X[:4]])
    assert sorted(greedy_rows(x, 4)) == [0, 1, 2, 3]
    assert_array_equal(greedy_rows(x, 7)[4:], [4, 5, 6])
    assert_array_equal(np.sort(greedy_rows(x, 12)), np.arange(12))
    assert_array_equal(greedy_rows(np.ones([3, 2]), 3), [0, 1, 2])
