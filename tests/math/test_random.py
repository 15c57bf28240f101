"""Normals drawn in bulk have the normal distribution."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from tfp_fnspace.layers.draws import FunctionDraws
from tfp_fnspace.math.random import fast_normal, split

FALSE_FAIL = 1e-6
SEED = tf.constant([1, 2])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_distribution_and_independence_of_the_halves(dtype, assert_mean_close):
    draws = fast_normal([200_001], SEED, dtype).numpy()
    assert draws.dtype == dtype and np.all(np.isfinite(draws))
    assert stats.kstest(draws, "norm").pvalue > FALSE_FAIL
    half = 100_001
    first, second = draws[:100_000], draws[half : half + 100_000]
    products = [first * second, (first**2 - 1) * (second**2 - 1), first**2 * second, first**3]
    assert_mean_close(np.stack(products, axis=1), 0.0)
    uniform = stats.norm.cdf([first, second])  # on a grid, this sees dependence beyond moments
    counts, *_ = np.histogram2d(*uniform, bins=10, range=[[0, 1], [0, 1]])
    assert stats.chisquare(counts.ravel()).pvalue > FALSE_FAIL


def test_shapes_seeds_and_half_precision():
    for shape in ([], [1], [3, 5], [0, 2]):
        assert fast_normal(shape, SEED, "float32").shape == shape
    half = fast_normal([7], SEED, "float16")
    assert half.dtype == "float16"
    np.testing.assert_array_equal(half, tf.cast(fast_normal([7], SEED, "float32"), "float16"))
    assert np.all(fast_normal([7], SEED, "float64") != fast_normal([7], SEED + 1, "float64"))


def test_dynamic_shapes_and_xla():
    @tf.function(input_signature=[tf.TensorSpec([], tf.int32)])
    def dynamic(count):
        return fast_normal([count, 3], SEED, "float32")

    np.testing.assert_array_equal(dynamic(5), fast_normal([5, 3], SEED, "float32"))
    compiled = tf.function(lambda: fast_normal([20_000], SEED, "float32"), jit_compile=True)()
    assert stats.kstest(compiled, "norm").pvalue > FALSE_FAIL  # XLA draws other numbers


def seeds_of_a_scope():
    draws = FunctionDraws(seed=SEED)
    return [draws.next_seed() for _ in range(4)]


@pytest.mark.parametrize("make", [lambda: split(SEED, 4), seeds_of_a_scope])
@pytest.mark.parametrize("jit_compile", [False, True])
def test_draws_of_several_seeds_are_independent(make, jit_compile):
    def draw():
        return [fast_normal([20_000], seed, "float64") for seed in [SEED, *make()]]

    draws = np.stack(tf.function(draw, jit_compile=jit_compile)())
    assert stats.kstest(draws.sum(axis=0) / np.sqrt(len(draws)), "norm").pvalue > FALSE_FAIL
    correlations = np.corrcoef(draws)[np.triu_indices(len(draws), 1)]
    limit = stats.norm.isf(FALSE_FAIL / 2 / len(correlations))
    assert np.max(np.abs(correlations)) < limit / np.sqrt(draws.shape[1])
