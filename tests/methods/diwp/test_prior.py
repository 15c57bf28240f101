"""Draws from deep kernel processes: moments, marginals, ranks, seeds."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from tfp_fnspace import diwp, kernels

#: Probability that a statistical test fails although all is right.
FALSE_FAIL = 1e-6

NUM_SAMPLES = 20_000
OPTIONS = {
    "inverse_wishart": {"delta": 12.0},
    "wishart": {"width": 7},
    "residual_wishart": {"width": 6, "residual": 1.5},
}


def kernel_matrix(size=4):
    """Returns a positive definite matrix with unequal variances."""
    root = np.random.default_rng(0).normal(size=(size, size + 2))
    return root @ root.T / size


def draws(process, matrix, num_samples=NUM_SAMPLES, seed=3, **options):
    options = {**OPTIONS[process], **options}
    return diwp.sample_gram(matrix, process, seed=seed, num_samples=num_samples, **options).numpy()


def squares_and_products(matrix):
    diagonal = np.diag(matrix)
    return matrix**2, np.outer(diagonal, diagonal)


# Moments ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("process", OPTIONS)
def test_mean_is_the_kernel_matrix(process, assert_mean_close):
    matrix = kernel_matrix()
    detectable = assert_mean_close(draws(process, matrix), matrix, FALSE_FAIL)
    assert np.max(detectable / np.sqrt(np.outer(np.diag(matrix), np.diag(matrix)))) < 0.05


@pytest.mark.parametrize("width", [2, 7, 4.5])
def test_variance_of_the_wishart_process(width, assert_variance_close):
    matrix = kernel_matrix()
    squares, products = squares_and_products(matrix)  # equation 93
    samples = draws("wishart", matrix, width=width)
    assert_variance_close(samples, (squares + products) / width, FALSE_FAIL)


def test_variance_of_the_inverse_wishart_process(assert_variance_close):
    matrix, delta = kernel_matrix(), 30.0  # the test needs high moments
    squares, products = squares_and_products(matrix)
    expected = ((delta + 2) * squares + delta * products) / ((delta + 1) * (delta - 2))
    samples = draws("inverse_wishart", matrix, delta=delta)
    assert_variance_close(samples, expected, FALSE_FAIL)


@pytest.mark.parametrize(("width", "residual"), [(4, 0.0), (4, 1.0), (9, 2.0)])
def test_variance_of_the_residual_process(width, residual, assert_variance_close):
    matrix = kernel_matrix()
    squares, products = squares_and_products(matrix)
    expected = (squares + products) / width * (1 + 2 * residual**2) / (1 + residual**2) ** 2
    samples = draws("residual_wishart", matrix, width=width, residual=residual)
    assert_variance_close(samples, expected, FALSE_FAIL)


def test_a_diagonal_entry_of_the_residual_process_is_noncentral_chi_squared():
    matrix, width, a = kernel_matrix(), 6, 1.5
    samples = draws("residual_wishart", matrix, 4_000, width=width, residual=a)
    for i in range(len(matrix)):
        scale = matrix[i, i] / (width * (1 + a**2))
        distribution = stats.ncx2(df=width, nc=width * a**2, scale=scale)
        test = stats.kstest(samples[:, i, i], distribution.cdf)
        assert test.pvalue > FALSE_FAIL / len(matrix)


def test_residual_process_without_residual_is_the_wishart_process():
    matrix = kernel_matrix()
    one = draws("residual_wishart", matrix, 4_000, width=6, residual=0.0)
    other = draws("wishart", matrix, 4_000, seed=4, width=6)
    for entry in ((0, 0), (1, 3)):
        test = stats.ks_2samp(one[:, *entry], other[:, *entry])
        assert test.pvalue > FALSE_FAIL / 2


# Distributions ------------------------------------------------------------------------------------


@pytest.mark.parametrize("delta", [0.3, 12.0])
def test_diagonal_of_the_inverse_wishart_process_is_inverse_gamma(delta):
    matrix = kernel_matrix()
    samples = draws("inverse_wishart", matrix, 4_000, delta=delta)
    for i in range(len(matrix)):
        # At one point it is W^-1(delta k, delta + 2).
        distribution = stats.invwishart(df=delta + 2.0, scale=delta * matrix[i, i])
        ours = stats.invgamma(0.5 * (delta + 2.0), scale=0.5 * delta * matrix[i, i])
        at = ours.ppf([0.1, 0.5, 0.9])
        np.testing.assert_allclose([distribution.pdf(v) for v in at], ours.pdf(at), rtol=1e-10)
        assert stats.kstest(samples[:, i, i], ours.cdf).pvalue > FALSE_FAIL / len(matrix)


@pytest.mark.parametrize("process", ["inverse_wishart", "wishart"])
def test_whole_matrix_has_scipys_distribution(process):
    matrix, count = kernel_matrix(3), 4_000
    samples = draws(process, matrix, count)
    if process == "inverse_wishart":
        distribution = stats.invwishart(df=12.0 + 4.0, scale=12.0 * matrix)
    else:
        distribution = stats.wishart(df=7, scale=matrix / 7)
    expected = distribution.rvs(count, random_state=np.random.default_rng(5))
    statistics = {
        "log determinant": lambda g: np.linalg.slogdet(g)[1],
        "correlation": lambda g: g[:, 0, 1] / np.sqrt(g[:, 0, 0] * g[:, 1, 1]),
        "largest eigenvalue": lambda g: np.linalg.eigvalsh(g)[:, -1],
    }
    for name, statistic in statistics.items():
        test = stats.ks_2samp(statistic(samples), statistic(expected))
        assert test.pvalue > FALSE_FAIL / len(statistics), name


@pytest.mark.parametrize("process", OPTIONS)
def test_distribution_of_some_points_does_not_depend_on_the_others(process):
    matrix = kernel_matrix(5)
    whole = draws(process, matrix, 4_000)[:, 1:4, 1:4]
    part = draws(process, matrix[1:4, 1:4], 4_000, seed=8)
    for statistic in (lambda g: np.linalg.slogdet(g)[1], lambda g: g[:, 0, 2]):
        assert stats.ks_2samp(statistic(whole), statistic(part)).pvalue > FALSE_FAIL / 2


def test_narrow_wishart_has_the_rank_of_its_width():
    matrix = kernel_matrix(6)
    for width, rank in ((1, 1), (3, 3), (5, 5), (6, 6)):
        samples = draws("wishart", matrix, 20, width=width)
        assert np.all(np.linalg.matrix_rank(samples, hermitian=True) == rank)


def test_singular_kernel_matrix():
    x = tf.constant(np.random.default_rng(0).normal(size=(20, 2)))
    matrix = tf.matmul(x, x, transpose_b=True)
    for process in OPTIONS:
        samples = draws(process, matrix, 5, **({} if "inverse" in process else {"width": 20}))
        assert np.all(np.isfinite(samples))
        assert np.all(np.linalg.matrix_rank(samples, tol=1e-4, hermitian=True) == 2)


def test_large_delta_and_large_width_give_the_kernel_matrix():
    matrix = kernel_matrix()
    near = {
        "inverse_wishart": {"delta": 1e8},
        "wishart": {"width": 10**8},
        "residual_wishart": {"width": 6, "residual": 1e4},
    }
    for process, options in near.items():
        np.testing.assert_allclose(draws(process, matrix, 3, **options)[0], matrix, atol=3e-3)


# Batches, dtypes, seeds ---------------------------------------------------------------------------


@pytest.mark.parametrize("process", OPTIONS)
def test_batch_of_kernel_matrices(process):
    batch = np.stack([kernel_matrix(), 100.0 * kernel_matrix(), np.eye(4)]).astype(np.float32)
    samples = draws(process, batch, 2)
    assert samples.shape == (2, 3, 4, 4)
    assert samples.dtype == np.float32
    np.testing.assert_allclose(samples, np.swapaxes(samples, -1, -2), rtol=1e-5, atol=1e-4)
    assert np.all(np.trace(samples[:, 1], axis1=1, axis2=2) > 10 * np.trace(samples[0, 2]))


@pytest.mark.parametrize("process", OPTIONS)
def test_seed_decides_in_and_out_of_a_graph(process):
    matrix = tf.constant(kernel_matrix())
    first, other = (draws(process, matrix, 2, seed=seed) for seed in (1, 2))
    np.testing.assert_array_equal(first, draws(process, matrix, 2, seed=1))
    assert not np.any(np.isclose(first, other))
    compiled = tf.function(
        lambda k: diwp.sample_gram(k, process, seed=1, num_samples=2, **OPTIONS[process])
    )
    np.testing.assert_allclose(compiled(matrix), first, rtol=1e-10)


def test_gradient_in_the_kernel_matrix():
    matrix = tf.Variable(kernel_matrix())
    for process in OPTIONS:
        with tf.GradientTape() as tape:
            gram = diwp.sample_gram(matrix, process, seed=0, **OPTIONS[process])
            total = tf.reduce_sum(tf.square(gram))
        gradient = tape.gradient(total, matrix)
        # All three are linear in K along K itself: d total / d log c = 2 total.
        np.testing.assert_allclose(tf.reduce_sum(gradient * matrix), 2.0 * total, rtol=1e-8)


# The whole prior ----------------------------------------------------------------------------------


@pytest.mark.parametrize("process", OPTIONS)
@pytest.mark.parametrize("stack", ["omega", "features"])
def test_prior_has_the_shapes_of_its_layers(process, stack):
    x = np.random.default_rng(0).normal(size=(5, 2, 1)).astype(np.float32)
    draw = diwp.sample_prior(
        x, "relu", depth=2, process=process, stack=stack, units=3, num_samples=4, **OPTIONS[process]
    )
    assert [g.shape for g in draw.grams] == [k.shape for k in draw.kernels] == [(4, 5, 5)] * 3
    assert draw.functions.shape == (4, 5, 3)
    relu = kernels.get("relu")
    for gram, matrix in zip(draw.grams, draw.kernels, strict=True):
        np.testing.assert_allclose(relu.matrix(gram), matrix, rtol=1e-6)
    flat = x[:, :, 0]
    is_fixed = np.allclose(draw.grams[0], flat @ flat.T / 2, rtol=1e-5)
    assert is_fixed == (stack == "features")


def test_omega_layer_is_the_singular_process(assert_mean_close):
    """Equations 94 and 95: X Omega X^T / N_0 is distributed as the process around X X^T / N_0."""
    x = np.random.default_rng(1).normal(size=(6, 3))
    for process in OPTIONS:
        draw = diwp.sample_prior(
            x, "linear", depth=0, process=process, num_samples=4_000, **OPTIONS[process]
        )
        grams = draw.grams[0].numpy()
        assert_mean_close(grams, x @ x.T / 3, FALSE_FAIL / 3)
        part = draws(process, (x @ x.T / 3)[:3, :3], 4_000)  # has full rank
        for entry in ((0, 0), (1, 2)):
            assert stats.ks_2samp(grams[:, *entry], part[:, *entry]).pvalue > FALSE_FAIL / 6


def test_functions_of_one_input_are_of_random_length_scale():
    """With one input and no hidden layer, Omega is the inverse square of a length scale."""
    x, delta = np.array([[0.0], [0.5]]), 6.0
    draw = diwp.sample_prior(
        x, "squared_exponential", depth=0, delta=delta, num_samples=4_000, seed=2
    )
    omega = 4.0 * draw.grams[0].numpy()[:, 1, 1]
    distribution = stats.invgamma(0.5 * (delta + 2.0), scale=0.5 * delta)
    assert stats.kstest(omega, distribution.cdf).pvalue > FALSE_FAIL / 2
    f = draw.functions.numpy()[:, :, 0]
    spread = np.sqrt(2.0 - 2.0 * draw.kernels[0][:, 0, 1].numpy())
    test = stats.kstest((f[:, 0] - f[:, 1]) / spread, stats.norm.cdf)
    assert test.pvalue > FALSE_FAIL / 2


def test_functions_are_independent_given_the_gram_matrices(assert_mean_close):
    x = np.linspace(-1.0, 1.0, 4)[:, np.newaxis]
    draw = diwp.sample_prior(
        x, "squared_exponential", depth=1, delta=4.0, units=NUM_SAMPLES, seed=0
    )
    f = draw.functions.numpy()[0]  # [P, D]
    products = np.einsum("pd,qd->dpq", f, f)
    assert_mean_close(products, draw.kernels[-1].numpy()[0], FALSE_FAIL)


def test_prior_of_fine_grids_has_no_failed_factorisation():
    x = np.linspace(-3.0, 3.0, 150)[:, np.newaxis]
    for dtype in (np.float32, np.float64):
        for process, options in OPTIONS.items():
            options = {**options, "width": 150} if "width" in options else options
            draw = diwp.sample_prior(
                x.astype(dtype), "squared_exponential", depth=2, process=process, **options
            )
            assert np.all(np.isfinite(draw.functions))


def test_prior_is_reproducible():
    x = np.linspace(-1.0, 1.0, 5)[:, np.newaxis]
    one, same, other = (
        diwp.sample_prior(x, "relu", depth=1, delta=3.0, seed=seed).functions for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(one, same)
    assert not np.any(np.isclose(one, other))


# Bad input ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"process": "gamma"}, "`process` must be one of"),
        ({"delta": None}, "`delta` must be a positive finite number"),
        ({"delta": 0.0}, "`delta` must be a positive finite number"),
        ({"process": "wishart", "width": None}, "`width` must be a positive finite number"),
        ({"process": "wishart", "width": 1.5}, "`width` must be an integer if"),
        ({"process": "residual_wishart", "width": 4.5}, "`width` must be a positive integer"),
        ({"process": "residual_wishart", "width": 3}, "`width` must be at least the number"),
        ({"process": "residual_wishart", "width": 4, "residual": -1.0}, "`residual` must be"),
        ({"num_samples": 0}, "`num_samples` must be a positive integer"),
        ({"kernel_matrix": np.ones([2, 3])}, "`kernel_matrix` must have shape"),
        ({"kernel_matrix": np.ones([3])}, "`kernel_matrix` must have shape"),
        ({"kernel_matrix": -np.eye(3)}, "must be finite, positive semidefinite and not zero"),
        ({"kernel_matrix": np.full([2, 2], np.nan)}, "must be finite, positive semidefinite"),
        ({"kernel_matrix": np.zeros([2, 2])}, "must be finite, positive semidefinite and not"),
        ({"seed": (1, 2, 3)}, "`seed` must be an integer or two integers"),
    ],
)
def test_bad_arguments_of_sample_gram(options, message):
    arguments = {"kernel_matrix": kernel_matrix(), "delta": 1.0, **options}
    with pytest.raises(ValueError, match=message):
        diwp.sample_gram(**arguments)


def test_integers_are_refused():
    with pytest.raises(TypeError, match="`kernel_matrix` must be floating"):
        diwp.sample_gram(np.eye(3, dtype=int), delta=1.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"depth": -1}, "`depth` must be a non-negative integer"),
        ({"depth": 1.0}, "`depth` must be a non-negative integer"),
        ({"stack": "gram"}, "`stack` must be one of"),
        ({"kernel": ["relu"]}, "one for each of the depth"),
        ({"units": 0}, "`units` must be a positive integer"),
        ({"num_samples": True}, "`num_samples` must be a positive integer"),
        ({"x": np.ones(3)}, "`x` must have shape"),
        ({"x": np.ones([0, 3])}, "`x` must not be empty"),
        ({"delta": -1.0}, "`delta` must be a positive finite number"),
    ],
)
def test_bad_arguments_of_sample_prior(options, message):
    arguments = {"x": np.ones([3, 1]), "kernel": "relu", "depth": 1, "delta": 1.0, **options}
    with pytest.raises(ValueError, match=message):
        diwp.sample_prior(**arguments)
