"""The Cholesky factor with adaptive jitter: values, what it reports, gradients, cost."""

import numpy as np
import pytest
import tensorflow as tf

from tfp_fnspace.math import linalg

DTYPES = ["float32", "float64"]
JIT = [None, False, True]  # eager, tf.function, XLA
CASES = [(None, "float32"), (None, "float64"), (False, "float32"), (False, "float64")]


def compiled(function, jit):
    return function if jit is None else tf.function(function, jit_compile=jit)


def positive_definite(k, batch=(), seed=0):
    a = np.random.default_rng(seed).normal(size=(*batch, k, 2 * k))
    return a @ np.swapaxes(a, -1, -2) / (2 * k)


def not_quite(k, dtype, seed=0):
    """Returns a matrix of rank k - 1 with mean diagonal 3; its least eigenvalue is just below 0."""
    rotation = np.linalg.qr(np.random.default_rng(seed).normal(size=(k, k)))[0]
    values = np.linspace(1.0, 5.0, k)
    values[0] = -30.0 * k * np.finfo(dtype).eps
    matrix = (rotation * values) @ rotation.T
    return matrix * 3.0 / np.mean(np.diag(matrix))


@pytest.mark.parametrize(("jit", "dtype"), CASES)
def test_a_good_matrix_gets_its_factor_and_no_jitter(jit, dtype):
    matrix = positive_definite(5, (2, 3))
    result = compiled(linalg.cholesky, jit)(tf.constant(matrix, dtype))
    tolerance = 1e-5 if dtype == "float32" else 1e-12
    np.testing.assert_allclose(result.factor, np.linalg.cholesky(matrix), atol=tolerance)
    np.testing.assert_array_equal(result.jitter, np.zeros((2, 3)))


def check_mended(factor, jitter, bad, dtype):
    """Checks that a matrix of `not_quite` got the smallest jitter that helps, and that factor."""
    k = len(bad)
    assert 0.0 < jitter < 3e4 * np.finfo(dtype).eps
    tenths = np.log10(jitter / np.trace(bad) * k) + (6 if dtype == "float32" else 12)
    np.testing.assert_allclose(tenths, np.round(tenths), atol=1e-4)  # 1, 10, 100 ... times s m
    expected = bad + jitter * np.eye(k)
    rounding = 100.0 * np.finfo(dtype).eps
    np.testing.assert_allclose(linalg.outer_product(factor), expected, atol=rounding)
    np.testing.assert_array_equal(np.triu(factor, 1), 0.0)


@pytest.mark.parametrize(("jit", "dtype"), CASES)
def test_a_bad_member_gets_the_smallest_jitter_that_helps(jit, dtype):
    good, bad = positive_definite(20), not_quite(20, dtype)
    batch = tf.constant([good, bad, good], dtype)
    assert np.isnan(tf.linalg.cholesky(batch)[1, -1, -1])  # this is the failure to repair
    factor, jitter = compiled(linalg.cholesky, jit)(batch)
    assert jitter[0] == jitter[2] == 0.0
    rounding = 100.0 * np.finfo(dtype).eps
    np.testing.assert_allclose(linalg.outer_product(factor)[0], good, atol=rounding)
    check_mended(factor[1], jitter[1].numpy(), bad, dtype)


def hopeless(k):
    """Returns matrices that are not finite, or far from positive semidefinite."""
    return np.stack([np.full((k, k), np.nan), -1e9 * (np.ones((k, k)) - np.eye(k))])


@pytest.mark.parametrize("jit", [None, False])
def test_what_no_jitter_helps_is_reported(jit):
    batch = np.concatenate([[np.eye(3)], hopeless(3)])
    factor, jitter = compiled(linalg.cholesky, jit)(tf.constant(batch))
    np.testing.assert_array_equal(jitter, [0.0, np.inf, np.inf])
    np.testing.assert_array_equal(factor[0], np.eye(3))
    assert np.all(np.isnan(tf.linalg.diag_part(factor)[1:]))


def test_good_bad_and_hopeless_members_compiled_by_xla():
    good, bad = positive_definite(20), not_quite(20, "float32")
    batch = tf.constant([good, bad, *hopeless(20)], tf.float32)
    factor, jitter = compiled(linalg.cholesky, True)(batch)
    np.testing.assert_array_equal(jitter.numpy()[[0, 2, 3]], [0.0, np.inf, np.inf])
    np.testing.assert_allclose(factor[0], np.linalg.cholesky(good), atol=1e-5)
    check_mended(factor[1], jitter[1].numpy(), bad, "float32")
    assert np.all(np.isnan(tf.linalg.diag_part(factor)[2:]))


@pytest.mark.parametrize("matrix", [np.zeros((3, 3)), np.ones((3, 3)), -np.eye(3)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_singular_and_negative_matrices_get_a_factor(matrix, dtype):
    factor, jitter = linalg.cholesky(tf.constant(matrix, dtype))
    assert jitter > 0.0
    expected = matrix + jitter * np.eye(3)
    np.testing.assert_allclose(linalg.outer_product(factor), expected, atol=1e-5)


def test_a_good_matrix_costs_one_factorisation():
    calls = []
    plain = tf.linalg.cholesky

    def counted(matrix):
        calls.append(1)
        return plain(matrix)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tf.linalg, "cholesky", counted)
        linalg.cholesky(tf.constant(positive_definite(4)))
    assert len(calls) == 1


def weighted(matrix):
    """Returns a scalar function of every entry of the factor; it symmetrises the matrix first."""
    matrix = 0.5 * (matrix + tf.linalg.matrix_transpose(matrix))
    factor, jitter = linalg.cholesky(matrix)
    weights = tf.constant(np.random.default_rng(1).normal(size=factor.shape[-2:]), matrix.dtype)
    return tf.reduce_sum(tf.sin(factor) * weights), jitter


@pytest.mark.parametrize("jit", JIT)
def test_gradient_is_that_of_tensorflow_for_the_matrix_with_jitter(jit):
    matrices = tf.constant([*positive_definite(8, (3,)), not_quite(8, "float64")])

    def gradient(matrix):
        with tf.GradientTape() as tape:
            tape.watch(matrix)
            value, jitter = weighted(matrix)
        return tape.gradient(value, matrix), jitter

    def reference(matrix):
        with tf.GradientTape() as tape:
            tape.watch(matrix)
            factor = tf.linalg.cholesky(0.5 * (matrix + tf.linalg.matrix_transpose(matrix)))
            weights = np.random.default_rng(1).normal(size=(8, 8))
            value = tf.reduce_sum(tf.sin(factor) * weights)
        return tape.gradient(value, matrix)

    actual, jitter = compiled(gradient, jit)(matrices)
    np.testing.assert_array_equal(jitter > 0.0, [False, False, False, True])
    expected = reference(matrices + jitter[:, tf.newaxis, tf.newaxis] * np.eye(8))
    np.testing.assert_allclose(actual[:3], expected[:3], atol=1e-10)
    atol = 1e-6 * np.max(np.abs(expected[3]))
    np.testing.assert_allclose(actual[3], expected[3], rtol=1e-3, atol=atol)


def test_second_derivatives():
    matrix = tf.constant(positive_definite(3))

    def hessian(function):
        with tf.GradientTape() as outer:
            outer.watch(matrix)
            with tf.GradientTape() as inner:
                inner.watch(matrix)
                symmetric = 0.5 * (matrix + tf.transpose(matrix))
                value = tf.reduce_sum(tf.sin(function(symmetric)))
            gradient = inner.gradient(value, matrix)
        return outer.jacobian(gradient, matrix)

    actual = hessian(lambda m: linalg.cholesky(m).factor)
    np.testing.assert_allclose(actual, hessian(tf.linalg.cholesky), atol=1e-10)


def test_log_determinant():
    matrix = positive_definite(5, (2,))
    factor = linalg.cholesky(tf.constant(matrix)).factor
    np.testing.assert_allclose(linalg.log_determinant(factor), np.linalg.slogdet(matrix)[1])


@pytest.mark.parametrize("jit", JIT)
def test_log_determinant_of_a_matrix_has_its_inverse_as_gradient(jit):
    plain, needs_jitter = positive_definite(8, (2,)), not_quite(8, "float64")

    def value_and_gradient(matrix):
        with tf.GradientTape() as tape:
            tape.watch(matrix)
            value, jitter = linalg.log_determinant_of(matrix)
        return value, jitter, tape.gradient(value, matrix)

    matrices = tf.constant([*plain, needs_jitter])
    value, jitter, gradient = compiled(value_and_gradient, jit)(matrices)
    np.testing.assert_array_equal(jitter > 0.0, [False, False, True])
    np.testing.assert_allclose(value[:2], np.linalg.slogdet(plain)[1], rtol=1e-12)
    np.testing.assert_allclose(gradient[:2], np.linalg.inv(plain), rtol=1e-8, atol=1e-12)
    raised = needs_jitter + jitter[2] * np.eye(8)
    np.testing.assert_allclose(gradient[2], np.linalg.inv(raised), rtol=1e-2)


def test_second_derivative_of_a_log_determinant():
    matrix = tf.constant(positive_definite(3))
    with tf.GradientTape() as outer:
        outer.watch(matrix)
        with tf.GradientTape() as inner:
            inner.watch(matrix)
            value = linalg.log_determinant_of(0.5 * (matrix + tf.transpose(matrix))).value
        gradient = inner.gradient(value, matrix)
    actual, inverse = outer.jacobian(gradient, matrix), np.linalg.inv(matrix)
    expected = -0.5 * (
        np.einsum("ik,lj->ijkl", inverse, inverse) + np.einsum("il,kj->ijkl", inverse, inverse)
    )
    np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-10)


def test_inverse():
    matrix = positive_definite(5, (2,))
    factor = linalg.cholesky(tf.constant(matrix)).factor
    np.testing.assert_allclose(linalg.inverse(factor) @ matrix, [np.eye(5)] * 2, atol=1e-12)


def gradients_of(function, *arguments):
    """Returns the gradients of a nonlinear function of `function`'s output in all arguments."""
    tensors = [tf.constant(value) for value in arguments]
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        result = function(*tensors)
        weights = tf.cast(tf.reshape(tf.range(tf.size(result)), tf.shape(result)), result.dtype)
        value = tf.reduce_sum(tf.sin(result) * (1.0 + weights))
    return result, tape.gradient(value, tensors)


@pytest.mark.parametrize("jit", JIT)
@pytest.mark.parametrize(
    "function, plain",
    [
        (linalg.outer_product, lambda a: a @ tf.linalg.matrix_transpose(a)),
        (linalg.squared_column_norms, lambda a: tf.reduce_sum(a**2, axis=-2)),
    ],
)
def test_products_and_their_gradients(function, plain, jit):
    matrix = np.random.default_rng(0).normal(size=(2, 3, 4))
    actual, gradients = gradients_of(compiled(function, jit), matrix)
    expected, expected_gradients = gradients_of(plain, matrix)
    np.testing.assert_allclose(actual, expected, rtol=1e-12)
    np.testing.assert_allclose(gradients[0], expected_gradients[0], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("jit", JIT)
def test_a_matrix_with_its_diagonal_has_the_gradients_of_both(jit):
    def joined(parts):
        def function(a):
            same, diagonal = parts(a)
            return tf.reduce_sum(same, axis=-1) + tf.square(diagonal)

        return function

    matrix = np.random.default_rng(2).normal(size=(2, 3, 3))
    actual, gradients = gradients_of(compiled(joined(linalg.with_diagonal), jit), matrix)
    expected, expected_gradients = gradients_of(
        joined(lambda a: (a, tf.linalg.diag_part(a))), matrix
    )
    np.testing.assert_allclose(actual, expected, rtol=1e-12)
    np.testing.assert_allclose(gradients[0], expected_gradients[0], rtol=1e-10)


@pytest.mark.parametrize("jit", JIT)
def test_solution_of_an_upper_triangle_and_its_gradients(jit):
    random = np.random.default_rng(1)
    above, diagonal = random.normal(size=(2, 4, 4)), random.uniform(1.0, 2.0, size=(2, 4))
    values = random.normal(size=(2, 4, 3))

    def plain(above, diagonal, values):
        upper = tf.linalg.band_part(above, 0, -1) - tf.linalg.diag(tf.linalg.diag_part(above))
        return tf.linalg.inv(upper + tf.linalg.diag(diagonal)) @ values

    arguments = (above, diagonal, values)
    actual, gradients = gradients_of(compiled(linalg.solve_upper, jit), *arguments)
    expected, expected_gradients = gradients_of(plain, *arguments)
    np.testing.assert_allclose(actual, expected, rtol=1e-10)
    for gradient, its_expected in zip(gradients[1:], expected_gradients[1:], strict=True):
        np.testing.assert_allclose(gradient, its_expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("jit", JIT)
def test_log_determinant_and_trace_at_all_sizes(jit, dtype):
    """Compares with the eigenvalues in float64, where the terms need no difference."""
    w = np.random.default_rng(0).normal(size=(12, 12)) / 12.0
    tolerance = {"float32": 3e-3, "float64": 1e-7}[dtype]

    def terms(w):
        gram = tf.matmul(w, w, transpose_b=True)
        factor = tf.linalg.cholesky(tf.eye(12, dtype=dtype) + gram)
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(w)
            excess, trace = linalg.log_determinant_and_trace(w, gram, factor)
        return excess, trace, tape.gradient(excess, w), tape.gradient(trace, w)

    terms = compiled(terms, jit)
    for size in (1e-5, 1e-3, 0.1, 0.2, 1.0, 30.0):  # of W; the norm of A is about 0.3 size^2
        left, singular, right = np.linalg.svd(size * w)
        squares = singular**2
        series = squares**2 / 2.0 - squares**3 / 1.5 + 0.75 * squares**4
        excess = np.where(squares < 1e-3, series, np.log1p(squares) - squares / (1.0 + squares))
        expected = [np.sum(excess), np.sum(squares / (1.0 + squares))]
        for slope in (squares / (1.0 + squares) ** 2, 1.0 / (1.0 + squares) ** 2):
            expected.append(left * (2.0 * slope * singular) @ right)
        for ours, theirs in zip(terms(tf.constant(size * w, dtype)), expected, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=tolerance * np.abs(theirs).max())
