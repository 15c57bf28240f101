"""Wishart distributions against SciPy, closed-form moments, marginals and each other."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import special, stats

from tfp_fnspace.distributions import InverseWishart, Wishart

tfd = tfp.distributions

FALSE_FAIL = 1e-6  # for each statistical test
SIZES = [1, 2, 5, 20, 50]
DISTRIBUTIONS = [(InverseWishart, stats.invwishart), (Wishart, stats.wishart)]
DEGREES = [0.05, 0.5, 1.0, 3.7, 30.0]  # above k - 1
STATISTICS = ["log_det", "entries"]


def double(value):
    return tf.constant(value, tf.float64)


def positive_definite(k, seed=0):
    a = np.random.default_rng(seed).normal(size=(k, 2 * k))
    return a @ a.T / (2 * k)


def compiled(function, mode):
    return tf.function(function, jit_compile=mode == "xla")


FAMILIES = pytest.mark.parametrize(("family", "reference"), DISTRIBUTIONS)


# Densities ----------------------------------------------------------------------------------------


@FAMILIES
@pytest.mark.parametrize("k", SIZES)
def test_density_is_scipys(family, reference, k):
    scale, x = positive_definite(k, 1), positive_definite(k, 2)
    for dtype, rtol in [("float64", 1e-6), ("float32", 1e-3)]:
        for excess in DEGREES:
            df = float(np.float32(k - 1 + excess))
            expected = reference(df, scale).logpdf(x)
            distribution = family(tf.constant(df, dtype), tf.constant(scale, dtype))
            np.testing.assert_allclose(distribution.log_prob(x.astype(dtype)), expected, rtol=rtol)
            root, factor = (np.linalg.cholesky(m).astype(dtype) for m in (scale, x))
            distribution = family(
                tf.constant(df, dtype), scale_tril=root, input_output_cholesky=True
            )
            np.testing.assert_allclose(distribution.log_prob(factor), expected, rtol=rtol)


@pytest.mark.parametrize(
    ("family", "reference", "dtype", "mode"),
    [
        (*DISTRIBUTIONS[0], "float32", "graph"),
        (*DISTRIBUTIONS[0], "float64", "graph"),
        (*DISTRIBUTIONS[1], "float32", "graph"),
        (*DISTRIBUTIONS[1], "float64", "graph"),
        (*DISTRIBUTIONS[0], "float32", "xla"),
        (*DISTRIBUTIONS[1], "float64", "xla"),
    ],
)
@pytest.mark.slow
def test_samples_marginals_and_densities(family, reference, dtype, mode):
    """Compiles all that a distribution does once, and checks samples by their diagonal.

    The diagonal is inverse gamma((nu-k+1)/2, psi/2), or gamma(nu/2, 2 v).
    """
    k, degrees, seed = 3, [2.6, 5.5], [1, 2]
    scale = positive_definite(k, 3)
    x = np.stack([positive_definite(k, seed) for seed in range(3)])

    def draw(df, scale, x):
        factors = family(df, scale, input_output_cholesky=True)
        matrices = family(df, scale)
        factor, log_prob = factors.experimental_sample_and_log_prob(4000, seed=seed)
        density = matrices.log_prob(x[:, tf.newaxis])
        return factor, log_prob, matrices.sample(4000, seed=seed), density

    parts = compiled(draw, mode)(*(tf.constant(v, dtype) for v in (degrees, scale, x)))
    assert {part.dtype for part in parts} == {tf.as_dtype(dtype)}
    factor, log_prob, matrix, density = (part.numpy() for part in parts)
    np.testing.assert_array_equal(np.triu(factor, 1), np.zeros((4000, 2, k, k)))
    diagonal = np.float64(np.diagonal(matrix, 0, 2, 3))
    for d, df in enumerate(degrees):
        for i in range(k):
            if family is InverseWishart:
                distribution = stats.invgamma((df - k + 1) / 2, scale=scale[i, i] / 2)
            else:
                distribution = stats.gamma(df / 2, scale=2 * scale[i, i])
            assert stats.kstest(diagonal[:, d, i], distribution.cdf).pvalue > FALSE_FAIL
        expected = reference(df, scale).logpdf(np.moveaxis(x, 0, -1))
        rtol = 1e-3 if dtype == "float32" else 1e-6
        np.testing.assert_allclose(density[:, d], expected, rtol=rtol)
    drawn = np.float64(factor[:6, 1])
    drawn = drawn @ np.swapaxes(drawn, -1, -2)
    expected = reference(degrees[1], scale).logpdf(np.moveaxis(drawn, 0, -1))
    tolerance = 1e-3 if dtype == "float32" else 1e-8
    np.testing.assert_allclose(log_prob[:6, 1], expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("family", [InverseWishart, Wishart])
def test_sampling_with_density_factorises_nothing(family):
    distribution = family(5.0, scale_tril=tf.eye(3), input_output_cholesky=True)
    graph = tf.function(lambda: distribution.experimental_sample_and_log_prob(4, seed=[1, 2]))
    operations = {op.type for op in graph.get_concrete_function().graph.get_operations()}
    assert "Cholesky" not in operations
    assert ("MatrixTriangularSolve" in operations) == (family is InverseWishart)


@pytest.mark.parametrize("family", [InverseWishart, Wishart])
def test_single_precision_at_the_edge(family):
    """Factors and densities stay finite where the matrices themselves overflow float32."""
    k, df = 50, np.float32(49.01)
    distribution = family(df, scale_tril=tf.eye(k), input_output_cholesky=True)
    factor, log_prob = distribution.experimental_sample_and_log_prob(500, seed=[3, 4])
    assert np.all(np.isfinite(factor)) and np.all(np.isfinite(log_prob))
    assert np.all(tf.linalg.diag_part(factor) > 0.0)
    diagonal = np.float64(tf.linalg.diag_part(factor))
    assert diagonal.min() < 1e-9 or diagonal.max() > 1e9  # the test is at the edge


# Moments and marginals ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "mode"),
    [
        (InverseWishart, "graph"),
        (Wishart, "graph"),
        pytest.param(InverseWishart, "xla", marks=pytest.mark.slow),
    ],
)
def test_close_to_the_edge_in_single_precision(family, mode):
    """The diagonal's distributions are right near df = k - 1; densities and gradients are finite.

    There log |G| is a sum of independent log chi^2, one of them with df 0.05.
    """
    k, df = 5, 4.05

    def draw(df, root):
        with tf.GradientTape() as tape:
            tape.watch([df, root])
            distribution = family(df, scale_tril=root, input_output_cholesky=True)
            factor, log_prob = distribution.experimental_sample_and_log_prob(4000, seed=[7, 8])
            total = tf.reduce_sum(log_prob)
        return factor, log_prob, tape.gradient(total, [df, root])

    factor, log_prob, gradients = compiled(draw, mode)(tf.constant(df), tf.eye(k))
    for part in (log_prob, *gradients):
        assert part.dtype == tf.float32
        assert np.all(np.isfinite(part))
    # The lower right element of the inverse of G is chi^2(df); of a Wishart matrix the upper left
    # is.
    diagonal = np.float64(np.diagonal(factor, 0, 1, 2))
    squares = diagonal[:, ::-1] ** -2 if family is InverseWishart else diagonal**2
    for i in range(k - 1):  # the one with df 0.05 underflows
        assert stats.kstest(squares[:, i], stats.chi2(df - i).cdf).pvalue > FALSE_FAIL


@FAMILIES
def test_sample_moments(family, reference, assert_mean_close, assert_variance_close):
    k, df = 3, 14.3
    scale = positive_definite(k, 6)
    distribution = family(double(df), double(scale))
    samples = distribution.sample(20000, seed=[9, 1])
    assert_mean_close(samples, distribution.mean().numpy(), FALSE_FAIL)
    assert_variance_close(samples, distribution.variance().numpy(), FALSE_FAIL)
    theirs = reference(df, scale)
    np.testing.assert_allclose(distribution.mean(), theirs.mean(), rtol=1e-10)
    np.testing.assert_allclose(distribution.mode(), theirs.mode(), rtol=1e-10)
    np.testing.assert_allclose(distribution.variance(), theirs.var(), rtol=1e-10)
    roots = family(double(df), double(scale), input_output_cholesky=True)
    for name in ["mean", "mode"]:
        root = getattr(roots, name)()
        np.testing.assert_allclose(
            root @ tf.transpose(root), getattr(distribution, name)(), rtol=1e-10
        )


def test_undefined_moments():
    distribution = InverseWishart([3.0, 3.5, 5.5], scale_tril=tf.eye(2))
    assert np.all(np.isnan(distribution.mean()[0])) and np.all(np.isfinite(distribution.mean()[1:]))
    assert np.all(np.isnan(distribution.variance()[0])) and np.all(
        np.isfinite(distribution.variance()[2])
    )
    np.testing.assert_array_equal(distribution.variance()[1], np.full((2, 2), np.inf))
    assert np.all(np.isnan(Wishart(2.9, scale_tril=tf.eye(2)).mode()))


@pytest.mark.parametrize(
    "moment",
    [
        lambda s: InverseWishart(3.0, scale_tril=s, allow_nan_stats=False).mean,
        lambda s: InverseWishart(3.0, scale_tril=s, allow_nan_stats=False).variance,
        lambda s: Wishart(2.9, scale_tril=s, allow_nan_stats=False).mode,
    ],
)
def test_an_undefined_moment_may_be_an_error(moment):
    with pytest.raises(tf.errors.InvalidArgumentError, match="is undefined for df <"):
        moment(tf.eye(2))()


# Gradients ----------------------------------------------------------------------------------------


def exact_expectation(family, df, scale, what):
    """Returns E log |G| and E [G^-1]_00 + [G^-1]_01 (of X for Wishart) in closed form."""
    k = len(scale)
    sign = -1.0 if family is InverseWishart else 1.0
    if what == "log_det":
        digammas = np.sum(special.digamma((df - np.arange(k)) / 2)) + k * np.log(2.0)
        return np.linalg.slogdet(scale)[1] + sign * digammas
    mean = df * (np.linalg.inv(scale) if family is InverseWishart else scale)
    return mean[0, 0] + mean[0, 1]


def statistic(family, factor, what):
    if what == "log_det":
        return 2.0 * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(factor)), axis=-1)
    if family is InverseWishart:
        identity = tf.eye(factor.shape[-1], batch_shape=factor.shape[:-2], dtype=factor.dtype)
        matrix = tf.linalg.cholesky_solve(factor, identity)
    else:
        matrix = tf.matmul(factor, factor, transpose_b=True)
    return matrix[..., 0, 0] + matrix[..., 0, 1]


@pytest.mark.parametrize("family", [InverseWishart, Wishart])
@pytest.mark.parametrize("mode", ["graph", pytest.param("xla", marks=pytest.mark.slow)])
def test_gradients_of_expectations(family, mode, assert_mean_close):
    k, number = 3, 20000
    degrees = np.array([2.6, 8.0])
    root = np.linalg.cholesky(positive_definite(k, 8))

    def gradients(df, root):
        results = {}
        with tf.GradientTape(persistent=True) as tape:
            tape.watch([df, root])
            distribution = family(df, scale_tril=root, input_output_cholesky=True)
            factor = distribution.sample(seed=[2, 3])
            totals = {w: tf.reduce_sum(statistic(family, factor, w)) for w in STATISTICS}
        for what, total in totals.items():
            results[what] = tape.gradient(total, [df, root])
        return results

    # Each sample has its own row, which gives gradients of samples and not of their sum.
    rows = np.tile(degrees, [number, 1]), np.tile(root, [number, 2, 1, 1])
    results = compiled(gradients, mode)(*map(double, rows))
    step = 1e-5

    def slopes(at, what):
        """Takes central differences of the exact expectation along `at(df, step) = (df, root)`."""
        ends = [[at(df, step), at(df, -step)] for df in degrees]
        ends = [[exact_expectation(family, df, r @ r.T, what) for df, r in e] for e in ends]
        return (np.array(ends) @ [1.0, -1.0]) / (2.0 * step)

    for what in STATISTICS:
        in_df, in_root = results[what]
        assert_mean_close(in_df, slopes(lambda df, h: (df + h, root), what), FALSE_FAIL)
        for i, j in zip(*np.tril_indices(k), strict=True):
            unit = np.zeros((k, k))
            unit[i, j] = 1.0
            expected = slopes(lambda df, h, unit=unit: (df, root + h * unit), what)
            assert_mean_close(in_root[..., i, j], expected, FALSE_FAIL)


@FAMILIES
def test_gradients_of_the_density(family, reference):
    df, scale, x = 4.3, positive_definite(3, 1), positive_definite(3, 2)
    parts = [double(df), double(scale)]
    with tf.GradientTape() as tape:
        tape.watch(parts)
        value = family(*parts).log_prob(double(x))
    in_df, in_scale = tape.gradient(value, parts)
    step, unit = 1e-5, np.zeros((3, 3))
    unit[0, 1] = unit[1, 0] = 1.0
    difference = reference(df + step, scale).logpdf(x) - reference(df - step, scale).logpdf(x)
    np.testing.assert_allclose(in_df, difference / (2 * step), rtol=1e-6)
    above, below = (reference(df, scale + h * unit).logpdf(x) for h in (step, -step))
    actual = np.sum(unit * in_scale.numpy())
    np.testing.assert_allclose(actual, (above - below) / (2 * step), rtol=1e-6)


# Divergence ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", [InverseWishart, Wishart])
def test_divergence_is_the_mean_log_ratio(family, assert_mean_close):
    a = family(double(5.3), double(positive_definite(3, 1)))
    b = family(double(7.1), double(positive_definite(3, 2)))
    x, log_a = a.experimental_sample_and_log_prob(20000, seed=[4, 5])
    divergence = a.kl_divergence(b).numpy()
    assert divergence > 0.1
    assert_mean_close(log_a - b.log_prob(x), divergence, FALSE_FAIL)
    np.testing.assert_allclose(a.kl_divergence(a), 0.0, atol=1e-12)


# Parameters and shapes ----------------------------------------------------------------------------


@pytest.mark.parametrize("family", [InverseWishart, Wishart])
def test_shapes(family):
    distribution = family(tf.fill([3, 1], 5.0), scale_tril=tf.eye(4, batch_shape=[2]))
    assert distribution.batch_shape == (3, 2) and distribution.event_shape == (4, 4)
    assert distribution.sample([5, 6], seed=1).shape == (5, 6, 3, 2, 4, 4)
    x, log_prob = distribution.experimental_sample_and_log_prob([5], seed=1)
    assert x.shape == (5, 3, 2, 4, 4) and log_prob.shape == (5, 3, 2)
    np.testing.assert_allclose(distribution.log_prob(x), log_prob, rtol=1e-3, atol=1e-3)
    assert distribution.mode().shape == distribution.variance().shape == (3, 2, 4, 4)
    assert distribution[0].batch_shape == (2,)
    assert distribution.kl_divergence(distribution).shape == (3, 2)
    bijector = distribution.experimental_default_event_space_bijector()
    assert np.all(np.isfinite(distribution.log_prob(bijector(tf.linspace(-2.0, 2.0, 10)))))


@pytest.mark.parametrize("family", [InverseWishart, Wishart])
def test_a_distribution_passes_a_function_boundary(family):
    distribution = family(double(5.0), double(positive_definite(3)))
    x = double(positive_definite(3, 1))
    expected = distribution.log_prob(x)
    np.testing.assert_allclose(
        tf.function(lambda distribution: distribution.log_prob(x))(distribution), expected
    )


@pytest.mark.parametrize("df", [2.0, 1.0, -3.0, np.nan, np.inf, [4.0, 1.5]])
@pytest.mark.parametrize("family", [InverseWishart, Wishart])
def test_refuses_too_few_degrees_of_freedom(family, df):
    with pytest.raises(ValueError, match="`df` must be finite and greater than .* Received: df="):
        family(df, scale_tril=tf.eye(3))


@pytest.mark.parametrize(
    "make", [lambda **k: InverseWishart(5.0, **k), lambda **k: Wishart(5, **k)]
)
@pytest.mark.parametrize(
    ("scale", "message"),
    [
        ({}, "Exactly one of `scale` and `scale_tril`"),
        ({"scale": np.eye(2), "scale_tril": np.eye(2)}, "Exactly one of `scale` and `scale_tril`"),
        ({"scale": np.ones((2, 3))}, r"`scale` must have shape .* Received: scale.shape=\(2, 3\)"),
        ({"scale_tril": np.ones(2)}, r"`scale_tril` must have shape .* Received: scale_tril.shape"),
        ({"scale": -np.eye(2)}, "`scale` must be symmetric positive definite. Received: scale="),
        ({"scale": np.array([[2.0, 1.0], [0.0, 2.0]])}, "`scale` must be symmetric positive def"),
        ({"scale": np.full((2, 2), np.nan)}, "`scale` must be symmetric positive definite"),
        ({"scale_tril": np.diag([1.0, 0.0])}, "`scale_tril` must be of positive diagonal. Recei"),
    ],
)
def test_refuses_a_bad_scale(make, scale, message):
    with pytest.raises(ValueError, match=message):
        make(**scale)


def test_variables_are_checked_at_use_and_gradients_flow():
    df, scale = tf.Variable(5.0), tf.Variable(tf.eye(2))
    distribution = InverseWishart(df, scale, validate_args=True)
    with tf.GradientTape() as tape:
        value = distribution.log_prob(tf.eye(2))
    assert all(np.all(np.isfinite(g)) for g in tape.gradient(value, [df, scale]))
    df.assign(0.5)
    with pytest.raises(tf.errors.InvalidArgumentError, match="`df` must be greater than k - 1"):
        distribution.log_prob(tf.eye(2))
    df.assign(5.0)
    scale.assign(-tf.eye(2))
    with pytest.raises(tf.errors.InvalidArgumentError, match="`scale` must be positive definite"):
        distribution.log_prob(tf.eye(2))


def test_what_lies_above_the_diagonal_of_a_factor_is_ignored():
    root = np.array([[1.0, 9.0], [0.3, 2.0]])
    given, clean = (Wishart(double(3.0), scale_tril=r) for r in (root, np.tril(root)))
    np.testing.assert_array_equal(given.mean(), clean.mean())
