"""The inverse Wishart process layer against SciPy's draws and densities."""

import diwp as reference
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose
from scipy import stats

from tfp_fnspace import diwp
from tfp_fnspace.distributions import InverseWishart
from tfp_fnspace.layers.draws import FunctionDraws, function_draws
from tfp_fnspace.typing import GramBlocks

#: Probability that a statistical assertion fails although the distribution is right.
FALSE_FAIL = 1e-6


def same_distribution(first, second):
    """Asserts, by Kolmogorov and Smirnov, that two columns of draws have the same distribution."""
    assert stats.ks_2samp(first, second).pvalue > FALSE_FAIL


def has_distribution(draws, distribution):
    assert stats.kstest(draws, distribution.cdf).pvalue > FALSE_FAIL


def kernel_matrix(size, seed=0, length_scale=1.0):
    x = np.random.default_rng(seed).normal(size=(size, 2)) / length_scale
    return 1.5 * reference.squared_exponential(x @ x.T) + 0.2 * np.eye(size)


def blocks_of(k, num_inducing, joint=False, dtype="float64"):
    ii, it, tt = reference.split(k, num_inducing)
    parts = (ii, it, tt if joint else np.diag(tt))
    return GramBlocks(*(tf.constant(part[np.newaxis], dtype) for part in parts))


def make_layer(num_inducing, delta=3.0, prior=True, dtype="float64", **options):
    """Makes a layer whose posterior at the inducing points is the prior or differs from it."""
    layer = diwp.InverseWishartProcess(delta=delta, dtype=dtype, **options)
    layer.build([(1, num_inducing, num_inducing), (1, num_inducing, None), (1, None)])
    generator = np.random.default_rng(4)
    layer.posterior.assign_v((not prior) * generator.normal(size=[num_inducing] * 2))
    layer.posterior.log_gamma.assign(-30.0 if prior else np.log(2.5))
    return layer


def draw(layer, blocks, num_samples, noise="independent", seed=(1, 2)):
    """Returns NumPy blocks and the divergence."""
    with function_draws(num_samples, seed, noise) as draws:
        outputs = layer(blocks)
    return GramBlocks(*(part.numpy() for part in outputs)), float(draws.kl("float64"))


# The posterior at the inducing points ------------------------------------------------------------


@pytest.fixture(scope="module", params=[True, False], ids=["whitened", "plain"])
def posterior(request):
    """Returns draws of q(G_ii), the divergence, and the parameters of q and p in SciPy's terms."""
    k = kernel_matrix(4)
    layer = make_layer(3, prior=False, whiten=request.param)
    blocks, kl = draw(layer, blocks_of(k, 3), 20_000)
    v = layer.posterior.v.numpy()
    if request.param:
        v = np.linalg.cholesky(k[:3, :3]) @ v
    p = {"df": 3.0 + 4.0, "scale": 3.0 * k[:3, :3]}
    q = {"df": 3.0 + 2.5 + 4.0, "scale": p["scale"] + v @ v.T}
    return blocks.ii, kl, q, p


def test_inducing_draws_have_the_distribution_of_equation_21(posterior, assert_mean_close):
    drawn, _, q, _ = posterior
    assert_mean_close(drawn, q["scale"] / (q["df"] - 4.0), FALSE_FAIL)
    inverse = np.linalg.inv(drawn)
    assert_mean_close(inverse, q["df"] * np.linalg.inv(q["scale"]), FALSE_FAIL)
    expected = reference.inverse_wishart(q["df"], q["scale"], 20_000, seed=5)
    for statistic in (
        np.linalg.slogdet,
        lambda g: (None, g[:, 0, 1]),
        lambda g: (None, g[:, 2, 2]),
    ):
        same_distribution(statistic(drawn)[1], statistic(expected)[1])
    has_distribution(
        drawn[:, 1, 1], stats.invgamma((q["df"] - 2.0) / 2.0, scale=q["scale"][1, 1] / 2.0)
    )


def test_divergence_is_the_mean_difference_of_log_densities(posterior, assert_mean_close):
    drawn, kl, q, p = posterior
    draws = np.moveaxis(drawn, 0, -1)
    ratio = stats.invwishart(**q).logpdf(draws) - stats.invwishart(**p).logpdf(draws)
    assert_mean_close(ratio, kl, FALSE_FAIL)
    distribution_q, distribution_p = (
        InverseWishart(np.float64(distribution["df"]), distribution["scale"])
        for distribution in (q, p)
    )
    assert_allclose(kl, distribution_q.kl_divergence(distribution_p), rtol=1e-7)


def test_divergence_of_the_prior_is_zero_and_nowhere_negative():
    k = kernel_matrix(4)
    assert abs(draw(make_layer(3), blocks_of(k, 3), 1)[1]) < 1e-5
    for delta in (1e-3, 1.0, 1e4, 1e8):
        assert draw(make_layer(3, delta=delta, prior=False), blocks_of(k, 3), 1)[1] > 0.0


def test_whitened_posterior_is_the_plain_one_in_other_coordinates():
    k = kernel_matrix(5)
    layers = [make_layer(3, prior=False, whiten=whiten) for whiten in (True, False)]
    whitened = layers[0].posterior.v.numpy()
    layers[1].posterior.assign_v(np.linalg.cholesky(k[:3, :3]) @ whitened)
    (first, kl), (second, plain_kl) = (draw(layer, blocks_of(k, 3), 7) for layer in layers)
    for ours, expected in zip(first, second, strict=True):
        assert_allclose(ours, expected, rtol=1e-6, atol=1e-7)  # the tolerance is for the jitter
    assert_allclose(kl, plain_kl, rtol=1e-6)


def test_size_of_a_whitened_v_is_that_of_the_divergence_for_any_matrix():
    """If most eigenvalues are tiny, small entries of a plain V are far from the prior."""
    k, kl = difficult_matrix(12), {}
    for whiten in (True, False):
        layer = make_layer(10, delta=40.0, prior=False, whiten=whiten)
        layer.posterior.log_gamma.assign(-30.0)
        layer.posterior.assign_v(1e-3 * layer.posterior.v)
        kl[whiten] = draw(layer, blocks_of(k, 10), 1)[1]
        if whiten:
            assert_allclose(kl[whiten], draw(layer, blocks_of(np.eye(12), 10), 1)[1], rtol=1e-9)
    assert kl[True] < 1e-6 and kl[False] > 10.0


def difficult_matrix(size):
    """Returns a matrix most of whose eigenvalues are below the jitter of either dtype."""
    x = np.linspace(-1.0, 1.0, size + 2)[:, np.newaxis]
    return reference.squared_exponential(x @ x.T)


@pytest.mark.parametrize("whiten", [True, False])
def test_gradients_of_the_divergence_are_those_of_finite_differences(whiten):
    layer = make_layer(10, delta=40.0, prior=False, whiten=whiten)
    weights = [layer.posterior.log_delta, layer.posterior.log_gamma, layer.posterior.v_in_units]
    layer.posterior.log_gamma.assign(0.3)
    layer.posterior.assign_v((0.3 if whiten else 1e-3) * layer.posterior.v)

    def divergence(log_size):
        blocks = blocks_of(difficult_matrix(12), 10)
        with function_draws(1, (0, 0)) as draws:
            layer(GramBlocks(*(tf.exp(log_size) * part for part in blocks)))
            return draws.kl("float64")

    log_size = tf.Variable(np.float64(0.2))
    with tf.GradientTape() as tape:
        value = divergence(log_size)
    variables = [weight.value for weight in weights] + [log_size]
    gradients = tape.gradient(value, variables, unconnected_gradients="zero")
    generator = np.random.default_rng(0)
    for variable, gradient in zip(variables, gradients, strict=True):
        direction, before = generator.normal(size=variable.shape), variable.numpy()
        # If V is not whitened, its part along the least eigenvalues of K has only five digits.
        step = 1e-6 if before.ndim else 3e-2
        values = []
        for sign in (1.0, -1.0):
            variable.assign(before + sign * step * direction)
            values.append(float(divergence(log_size)))
        variable.assign(before)
        slope = (values[0] - values[1]) / (2.0 * step)
        assert_allclose(np.sum(gradient * direction), slope, rtol=2e-3)
    assert (float(gradients[-1]) == 0.0) == whiten  # it does not depend on K


@pytest.mark.parametrize("whiten", [True, False])
@pytest.mark.parametrize("delta", [1.0, 100.0, 1e4, 1e8])
def test_float32_divergence_of_a_difficult_matrix(delta, whiten):
    """The log-determinant less the trace in float32 would be off by 200 at delta = 1e8."""
    x = np.linspace(-3.0, 3.0, 42)[:, np.newaxis]
    k = reference.squared_exponential(x @ x.T) + 1e-3 * np.eye(42)
    values, slopes = {}, {}
    for dtype in ("float32", "float64"):
        layer = make_layer(40, delta=delta, prior=False, dtype=dtype, whiten=whiten)
        layer.posterior.assign_v(0.02 * layer.posterior.v)
        with tf.GradientTape() as tape, function_draws(1, (0, 0)) as draws:
            layer(blocks_of(k, 40, dtype=dtype))
            kl = draws.kl(dtype)
        values[dtype], slopes[dtype] = kl, tape.gradient(kl, layer.posterior.log_delta.value)
    assert_allclose(values["float32"], values["float64"], rtol=0.03, atol=1e-4)
    atol = 0.02 * values["float64"] + 1e-4
    assert_allclose(slopes["float32"], slopes["float64"], rtol=0.03, atol=atol)


# The data given the inducing points --------------------------------------------------------------


def conditional_parts(blocks, k, point):
    """Returns g_tt.i and, standardised by equation 107, `G_ii^-1 g_it`, of one point's draws."""
    solved = np.linalg.solve(blocks.ii, blocks.it[:, :, point, np.newaxis])[..., 0]
    variance = blocks.tt[:, point] - np.sum(solved * blocks.it[:, :, point], axis=1)
    size = blocks.ii.shape[-1]
    ii, it, _ = reference.split(k, size)
    centred = solved - np.linalg.solve(ii, it[:, point])
    return variance, centred @ np.linalg.cholesky(ii) / np.sqrt(variance)[:, np.newaxis]


@pytest.mark.parametrize("prior", [True, False])
@pytest.mark.parametrize("noise", ["independent", "shared"])
def test_point_given_inducing_points_is_that_of_equations_105_to_107(prior, noise):
    k = kernel_matrix(5)
    blocks, _ = draw(make_layer(3, prior=prior), blocks_of(k, 3), 8000, noise)
    ii, it, tt = reference.split(k, 3)
    schur = tt - it.T @ np.linalg.solve(ii, it)
    for point in (0, 1):
        variance, white = conditional_parts(blocks, k, point)
        has_distribution(
            variance, stats.invgamma((3.0 + 3 + 2) / 2.0, scale=3.0 * schur[point, point] / 2.0)
        )
        has_distribution(np.sqrt(3.0) * white.ravel(), stats.norm())
        dependence = np.corrcoef([*white.T, np.log(variance), np.log(blocks.ii[:, 0, 0])])
        assert np.abs(dependence - np.eye(5)).max() < 5.5 / np.sqrt(8000)


def test_point_and_inducing_points_are_a_principal_block_of_the_process():
    k = kernel_matrix(7)
    blocks, _ = draw(make_layer(2), blocks_of(k, 2), 8000)
    for point in (0, 4):
        rows = [0, 1, 2 + point]
        expected = reference.process_draws(k, 3.0, 8000, seed=6)[:, rows][:, :, rows]
        ours = np.zeros_like(expected)
        ours[:, :2, :2], ours[:, :2, 2] = blocks.ii, blocks.it[:, :, point]
        ours[:, 2, :2], ours[:, 2, 2] = blocks.it[:, :, point], blocks.tt[:, point]
        for direction in ([1, 0, 0], [0, 0, 1], [1, 0, 1], [0, 1, -1], [1, 1, 1]):
            same_distribution(
                *(np.einsum("i,sij,j->s", direction, g, direction) for g in (ours, expected))
            )
        same_distribution(ours[:, 0, 2], expected[:, 0, 2])
        same_distribution(np.linalg.slogdet(ours)[1], np.linalg.slogdet(expected)[1])


@pytest.mark.parametrize(
    ("noise", "sizes"), [("independent", (7, 1000)), ("shared", (7, 1000)), ("joint", (7, 60))]
)
@pytest.mark.slow
def test_distribution_of_a_point_is_the_same_in_any_batch(noise, sizes):
    k = kernel_matrix(2 + max(sizes))
    layer = make_layer(2, prior=False)
    for size in sizes:
        count = 20_000 if size < 10 else 2000  # as many as memory allows
        alone, _ = draw(layer, blocks_of(k[:3, :3], 2), count, "independent", seed=(9, 9))
        rows = slice(0, 2 + size)
        batch, _ = draw(layer, blocks_of(k[rows, rows], 2, noise == "joint"), count, noise)
        diagonal = batch.tt[:, 0, 0] if noise == "joint" else batch.tt[:, 0]
        same_distribution(diagonal, alone.tt[:, 0])
        for i in (0, 1):
            same_distribution(batch.it[:, i, 0], alone.it[:, i, 0])


def test_shared_noise_gives_the_same_draws_in_any_batch():
    k = kernel_matrix(40)
    layer = make_layer(5, prior=False)
    whole, _ = draw(layer, blocks_of(k, 5), 4, "shared")
    rows = [*range(5), 30, 12]
    part, _ = draw(layer, blocks_of(k[np.ix_(rows, rows)], 5), 4, "shared")
    assert_allclose(part.it, whole.it[:, :, [25, 7]], rtol=1e-9)
    assert_allclose(part.tt, whole.tt[:, [25, 7]], rtol=1e-9)


def test_joint_draws_are_the_process_at_all_points():
    k = kernel_matrix(4)
    blocks, _ = draw(make_layer(2), blocks_of(k, 2, joint=True), 8000, "joint")
    rows = [np.concatenate([blocks.ii, blocks.it], axis=2)]
    rows.append(np.concatenate([np.swapaxes(blocks.it, 1, 2), blocks.tt], axis=2))
    ours = np.concatenate(rows, axis=1)
    expected = reference.process_draws(k, 3.0, 8000, seed=7)
    for direction in ([0, 0, 1, 0], [0, 0, 1, 1], [0, 0, 1, -1], [1, 0, 1, -1], [1, 1, 1, 1]):
        same_distribution(
            *(np.einsum("i,sij,j->s", direction, g, direction) for g in (ours, expected))
        )
    same_distribution(np.linalg.slogdet(ours)[1], np.linalg.slogdet(expected)[1])
    same_distribution(*(np.linalg.slogdet(g[:, 2:, 2:])[1] for g in (ours, expected)))
    same_distribution(ours[:, 2, 3], expected[:, 2, 3])


def test_the_size_of_the_batch_would_change_the_degrees_of_freedom(assert_mean_close):
    k = kernel_matrix(8)
    ii, it, tt = reference.split(k, 2)
    schur = (tt - it.T @ np.linalg.solve(ii, it))[0, 0]
    for size in (1, 6):
        rows = slice(0, 2 + size)
        for defect in (False, True):
            layer = make_layer(2)
            if defect:  # of the authors' program
                layer.points_of_a_conditional = lambda it: tf.shape(it)[-1]
            blocks, _ = draw(layer, blocks_of(k[rows, rows], 2), 20_000)
            variance, _ = conditional_parts(blocks, k[rows, rows], 0)
            points = size if defect else 1
            assert_mean_close(variance, 3.0 * schur / (3.0 + 2 + points - 1.0), FALSE_FAIL)


def test_large_delta_is_the_kernel_matrix_itself():
    k = kernel_matrix(6)
    blocks, _ = draw(make_layer(3, delta=1e9), blocks_of(k, 3), 5)
    ii, it, tt = reference.split(k, 3)
    for ours, expected in zip(blocks, (ii, it, np.diag(tt)), strict=True):
        assert_allclose(ours, np.broadcast_to(expected, ours.shape), atol=1e-3)


def test_omega_is_inverse_wishart_on_the_inputs(assert_mean_close):
    layer = diwp.InverseWishartFeatures(3, learn_scale=False, delta=4.0, dtype="float64")
    x = np.random.default_rng(0).normal(size=(2, 2))
    layer.build((None, 2))
    layer.posterior.assign_v(np.zeros((2, 2)))
    layer.posterior.log_gamma.assign(-30.0)
    with function_draws(20_000, (3, 4)):
        blocks = layer(x)
    z = np.concatenate([layer.inducing_inputs.numpy(), x])
    omega = reference.process_draws(np.eye(2), 4.0, 20_000, seed=3)
    expected = z @ omega @ z.T / 2.0
    assert_mean_close(blocks.ii.numpy(), (z @ z.T / 2.0)[:3, :3], FALSE_FAIL)
    same_distribution(blocks.ii.numpy()[:, 0, 1], expected[:, 0, 1])
    same_distribution(blocks.it.numpy()[:, 2, 1], expected[:, 2, 4])
    same_distribution(blocks.tt.numpy()[:, 0], expected[:, 3, 3])


# Noise of the points -----------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 5])
def test_draws_of_a_point_in_different_layers_are_independent(count):
    draws = FunctionDraws(10_000, (1, 2))
    calls = [draws.point_normal([10_000, 2, tf.constant(count)], "float64") for _ in range(11)]
    columns = np.stack([call.numpy()[:, :, -1] for call in calls], axis=1).reshape(10_000, -1)
    assert columns.shape == (10_000, 22)
    has_distribution(columns[:, :8].ravel(), stats.norm())
    assert np.abs(np.corrcoef(columns.T) - np.eye(22)).max() < 6.0 / np.sqrt(10_000)
    first = calls[0].numpy()[:, 0]
    assert first.shape == (10_000, count)
    if count > 1:  # within a layer, points are independent
        assert np.abs(np.corrcoef(first.T) - np.eye(count)).max() < 6.0 / np.sqrt(10_000)


def test_kinds_of_noise():
    shapes = {"independent": (3, 2, 4), "shared": (3, 2, 1), "joint": (3, 2, 4)}
    for noise, shape in shapes.items():
        assert FunctionDraws(3, (1, 2), noise).point_normal([3, 2, 4], "float32").shape == shape
