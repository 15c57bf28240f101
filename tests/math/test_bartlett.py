"""Bartlett's factors: distributions of their entries and gradients in df.

They are tested in both orders and in single precision.
"""

import numpy as np
import pytest
import tensorflow as tf
from scipy import special, stats

from tfp_fnspace.math import bartlett

FALSE_FAIL = 1e-6  # for each statistical test
SEED = tf.constant([1, 2])

DRAWS = {"lower": bartlett.lower_factor, "upper": bartlett.upper_factor}
BOTH = pytest.mark.parametrize("order", DRAWS)


def drawn(order, df, size, shape, jit_compile=False):
    return tf.function(lambda df: DRAWS[order](SEED, df, size, shape), jit_compile=jit_compile)(df)


# Both orders share all random code: XLA compiles each dtype and each order once.
@pytest.mark.parametrize(
    ("order", "dtype", "jit_compile", "number"),
    [
        ("lower", "float32", False, 20_000),
        ("lower", "float64", False, 20_000),
        ("upper", "float32", False, 20_000),
        ("upper", "float64", False, 20_000),
        pytest.param("upper", "float32", True, 20_000, marks=pytest.mark.slow),
        # XLA's derivative of gamma draws takes long in float64.
        pytest.param("lower", "float64", True, 20_000, marks=pytest.mark.slow),
    ],
)
def test_distributions_of_the_entries_and_gradient_in_df(
    order, dtype, jit_compile, number, assert_mean_close
):
    k, excess = 3, np.array([0.05, 0.5, 20.0, 1e3, 1e5, 1e8])
    df = tf.constant(np.tile(k - 1 + excess, [number, 1]), dtype)

    @tf.function(jit_compile=jit_compile)
    def parts_and_gradient(df):
        with tf.GradientTape() as tape:
            tape.watch(df)
            parts = DRAWS[order](SEED, df, k)
            total = 2.0 * tf.reduce_sum(parts.log_diagonal)
        return *parts, tape.gradient(total, df)

    factor, log_diagonal, gradient = parts_and_gradient(df)
    assert factor.dtype == log_diagonal.dtype == gradient.dtype == dtype

    one_df = 2.5
    np.testing.assert_array_equal(df[:, 1], one_df)
    one, its_log_diagonal = np.float64(factor[:, 1]), log_diagonal[:, 1]
    for i in range(k):
        for j in range(k):
            entry = one[:, i, j]
            if i == j:
                degree = one_df - i if order == "lower" else one_df - (k - 1 - i)
                assert stats.kstest(entry**2, stats.chi2(degree).cdf).pvalue > FALSE_FAIL
            elif (i > j) == (order == "lower"):
                assert stats.kstest(entry, stats.norm.cdf).pvalue > FALSE_FAIL
            else:
                np.testing.assert_array_equal(entry, 0.0)
    np.testing.assert_allclose(np.exp(its_log_diagonal), np.diagonal(one, 0, 1, 2), rtol=1e-5)

    degrees = np.float64(df[0])[:, np.newaxis] - np.arange(k)  # k - 1 + excess was rounded
    step = 1e-5 * excess
    above, below = (
        special.digamma((degrees + h[:, np.newaxis]) / 2).sum(axis=-1) for h in (step, -step)
    )
    # Multiplied by df - (k - 1), the gradient has order one for every df.
    expected = excess * (above - below) / (2.0 * step)
    assert_mean_close(excess * gradient.numpy(), expected, FALSE_FAIL)


@BOTH
def test_product_is_standard_wishart(order, assert_mean_close, assert_variance_close):
    k, df = 4, 5.7
    factor, _ = drawn(order, tf.constant(df, tf.float64), k, [20000])
    product = tf.matmul(factor, factor, transpose_b=True)
    distribution = stats.wishart(df, np.eye(k))
    assert_mean_close(product, distribution.mean(), FALSE_FAIL)
    assert_variance_close(product, distribution.var(), FALSE_FAIL)
    correlated = product[:, 0, 0] * product[:, 3, 3]  # the factors are independent
    assert_mean_close(correlated, df**2, FALSE_FAIL)


@pytest.mark.parametrize(
    ("order", "jit_compile"), [("lower", False), ("upper", False), ("upper", True)]
)
@pytest.mark.slow
def test_no_underflow_in_single_precision(order, jit_compile):
    df = tf.constant([49.001, 49.05, 60.0])
    factor, log_diagonal = drawn(order, df, 50, [400], jit_compile)
    assert factor.shape == (400, 3, 50, 50) and log_diagonal.shape == (400, 3, 50)
    assert np.all(np.isfinite(factor)) and np.all(np.isfinite(log_diagonal))
    diagonal = tf.linalg.diag_part(factor)
    assert np.all(diagonal > 0.0) and np.all(np.isfinite(1.0 / diagonal))
    assert np.min(log_diagonal) < np.log(np.finfo(np.float32).tiny)  # without logarithms it would


def test_seeds():
    df = tf.constant(4.5)
    first, again = (bartlett.upper_factor(SEED, df, 3).factor for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, bartlett.upper_factor(SEED + 1, df, 3).factor)


@pytest.mark.parametrize("k", [1, 2, 5, 50])
def test_multivariate_gamma_function(k):
    df = np.array([k - 0.95, k + 3.3])
    actual = bartlett.log_multigamma(tf.constant(df), k)
    expected = [special.multigammaln(d / 2, k) for d in df]
    np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-12)
    half_step = 1e-5
    above, below = (
        np.array([special.multigammaln(d / 2 + h, k) for d in df]) for h in (half_step, -half_step)
    )
    slope = (above - below) / (2.0 * half_step)
    np.testing.assert_allclose(bartlett.multidigamma(tf.constant(df), k), slope, rtol=1e-5)


@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_solution_with_the_upper_factor(jit_compile):
    values = np.random.default_rng(0).normal(size=(7, 3, 2))

    def solve(df):
        return bartlett.solve_upper_factor(SEED, df, tf.constant(values))

    def solve_with_factor(df):
        factor = bartlett.upper_factor(SEED, df, 3, [7]).factor
        return tf.linalg.triangular_solve(factor, tf.constant(values), lower=False)

    @tf.function(jit_compile=jit_compile)
    def values_and_slopes(df):
        results = []
        for function in (solve, solve_with_factor):
            with tf.GradientTape() as tape:
                tape.watch(df)
                value = function(df)
            results.append((value, tape.gradient(value, df)))
        return results

    results = values_and_slopes(tf.constant(4.5, tf.float64))
    for actual, expected in zip(*results, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-10)
