"""The equations of TAGI alone: draws, textbook conditioning with explicit covariances, SciPy."""

import numpy as np
import pytest
import tagi as reference
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from tfp_fnspace.methods.tagi import covariance, equations


def random_pair(shape, seed):
    """Returns a mean and a variance as float64 tensors."""
    rng = np.random.default_rng(seed)
    return tf.constant(rng.normal(size=shape)), tf.constant(rng.uniform(0.1, 1.0, size=shape))


def dense(a, w):
    return tf.linalg.matvec(w, a, transpose_a=True)


def assert_same(found, expected, **tolerance):
    for got, want in zip(found, expected, strict=True):
        assert_allclose(got, want, **tolerance)


def test_a_layer_has_the_moments_and_covariances_of_draws(assert_mean_close, assert_variance_close):
    """Equations 3, 4, 6 and 10; false alarms 1e-6 each."""
    pairs = random_pair([3], 0), random_pair([3, 1], 1), random_pair([1], 2)
    rng = np.random.default_rng(3)
    a, w, b = (m + np.sqrt(s) * rng.normal(size=(200_000, *m.shape)) for m, s in pairs)
    z = np.einsum("si,sij->sj", a, w) + b
    mean, variance = equations.bilinear_moments(dense, *pairs[0], *pairs[1:])
    assert_mean_close(z, mean)
    assert_variance_close(z, variance)
    (ma, sa), (mw, sw), _ = pairs
    assert_mean_close((a - ma) * (z - mean), sa * mw[:, 0])
    assert_mean_close((w[..., 0] - mw[:, 0]) * (z - mean), sw[:, 0] * ma)


def smoothed(prior, between, given, posterior):
    """Returns moments of x by equations 15 and 16, given `cov(x, z)` `[X, Z]` and independent z."""
    gain = np.asarray(between) / np.asarray(given[1])
    changes = [np.asarray(new - old) for new, old in zip(posterior, given, strict=True)]
    return prior[0] + gain @ changes[0], prior[1] + gain**2 @ changes[1]


@pytest.mark.parametrize("use_bias", [True, False])
def test_innovations_are_smoothing_with_explicit_covariances(use_bias):
    """One row `z = tanh(u) W + b, y = z + v`: the posterior moments of z, u, W and b."""
    u, kernel, noise = random_pair([3], 0), random_pair([3, 2], 1), 0.3
    bias = random_pair([2], 2) if use_bias else None
    ma, sa, slope = equations.linearized(tf.tanh, *u)
    z = equations.bilinear_moments(dense, ma, sa, kernel, bias)
    y = np.array([0.4, -1.2])
    innovation = (y - z[0]) / (z[1] + noise), -1.0 / (z[1] + noise)
    new_z = z[0] + z[1] / (z[1] + noise) * (y - z[0]), 1.0 / (1.0 / z[1] + 1.0 / noise)
    assert_same(equations.posterior(*z, *innovation), new_z, rtol=1e-12)

    parts = equations.bilinear_innovations(dense, ma, kernel[0], bias and bias[0], *innovation)
    assert len(parts) == (6 if use_bias else 4)
    of_u = equations.activation_innovations(slope, *parts[:2])
    between = (slope * u[1])[:, tf.newaxis] * kernel[0]  # cov(u_i, z_j) = f' Su mw_ij
    assert_same(equations.posterior(*u, *of_u), smoothed(u, between, z, new_z), rtol=1e-12)

    between = np.zeros([3, 2, 2])  # cov(w_ij, z_k) = Sw_ij ma_i for j = k
    for i, j in np.ndindex(3, 2):
        between[i, j, j] = kernel[1][i, j] * ma[i]
    flat = [tf.reshape(part, [6]) for part in kernel]
    expected = smoothed(flat, between.reshape(6, 2), z, new_z)
    found = equations.posterior(*kernel, *parts[2:4])
    assert_same([tf.reshape(part, [6]) for part in found], expected, rtol=1e-12)
    if use_bias:
        expected = smoothed(bias, np.diag(bias[1]), z, new_z)
        assert_same(equations.posterior(*bias, *parts[4:]), expected, rtol=1e-12)


def test_rows_add_up():
    units, kernel = random_pair([4, 3], 0), random_pair([3, 2], 1)
    innovation = random_pair([4, 2], 2)
    together = equations.bilinear_innovations(tf.matmul, units[0], kernel[0], None, *innovation)
    rows = [
        equations.bilinear_innovations(dense, m, kernel[0], None, dm, ds)
        for m, dm, ds in zip(units[0], *innovation, strict=True)
    ]
    of_a, of_w = zip(*((row[:2], row[2:]) for row in rows), strict=True)
    assert_same(together[:2], [np.stack(part) for part in zip(*of_a, strict=True)])
    assert_same(together[2:], [np.sum(part, axis=0) for part in zip(*of_w, strict=True)])


@pytest.mark.parametrize("num_rows", [1, 10, 300])
def test_a_capped_update_is_the_reference(num_rows):
    mean, variance = (part.numpy() for part in random_pair([50], 0))
    rng = np.random.default_rng(1)
    dm, ds = 5.0 * rng.normal(size=50), -10.0 * rng.uniform(size=50)
    cap = equations.cap_factor(num_rows, "float64")
    found = equations.capped_update(mean, variance, dm, ds, cap)
    changes = variance * dm, variance**2 * ds
    assert_same(found, reference.capped_change(mean, variance, *changes, num_rows), rtol=1e-12)


def test_variances_stay_positive_and_constants_stay():
    mean, variance = tf.constant([0.5, 0.5, 0.5]), tf.constant([1.0, 0.01, 0.0])
    dm, ds = tf.ones([3]), tf.constant([-0.5, -200.0, -200.0])
    exact, floor = equations.SMALLEST_SHARE * 0.01, equations.VARIANCE_FLOOR
    found = equations.exact_update(mean, variance, dm, ds)
    assert_same(found, ([1.5, 0.51, 0.5], [0.5, exact, 0.0]), rtol=1e-6)
    found = equations.capped_update(mean, variance, dm, ds, tf.constant(0.1))
    assert_same(found, ([1.5, 0.51, 0.5], [0.5, floor, 0.0]), rtol=1e-6)


def test_prior_variances_of_weights():
    """The Glorot rule keeps the mean of the variances of a forward and a backward pass at 1."""
    for rule in ("glorot", "xavier"):
        variance = equations.prior_variance(rule, 30, 70, 2.0)
        assert_allclose(0.5 * (30 + 70) * variance, 4.0)
    assert_allclose(30 * equations.prior_variance("he", 30, 70, 2.0), 4.0)


def test_learnt_noise_starts_at_its_scale():
    scale, variance = np.array([0.5, 2.0]), 0.7
    mean = equations.log_variance_mean(scale, 0.1, variance)
    noise = stats.lognorm(np.sqrt(variance), scale=np.exp(mean)).mean()
    assert_allclose(0.1**2 + noise, scale**2)
    found = equations.noise_scale(tf.constant(mean), tf.constant(variance, tf.float64), 0.1)
    assert_allclose(found, scale)
    assert_array_equal(found.shape, scale.shape)


def test_full_covariances_of_independent_variables_are_the_diagonal_equations():
    """One row: moments, innovations of the units, and posterior moments of all parameters."""
    units, kernel, bias = random_pair([1, 3], 0), random_pair([3, 2], 1), random_pair([2], 2)
    full = covariance.UnitMoments(units[0], tf.linalg.diag(units[1]))
    both = [tf.concat([w, b[tf.newaxis]], axis=0) for w, b in zip(kernel, bias, strict=True)]
    parameters = tf.reshape(tf.linalg.diag(tf.reshape(both[1], [8])), [4, 2, 4, 2])
    found = [
        covariance.dense_moments(full, kernel, bias),
        covariance.joint_dense_moments(full, kernel, bias, parameters),
    ]
    mean, variance = equations.bilinear_moments(tf.matmul, *units, kernel, bias)
    for z in found:
        assert_same((z.mean, tf.linalg.diag_part(z.covariance)), (mean, variance), rtol=1e-12)

    dm, ds = random_pair([1, 2], 3)
    expected = equations.bilinear_innovations(tf.matmul, units[0], kernel[0], bias[0], dm, -ds)
    vector, matrix = dm, -tf.linalg.diag(ds)
    d, g = covariance.dense_innovation(kernel[0], vector, matrix)
    assert_same((d, tf.linalg.diag_part(g)), expected[:2], rtol=1e-12)
    sums = covariance.parameter_innovations(units[0], vector, matrix, True)
    assert_same(sums, expected[2:], rtol=1e-12)
    inputs = covariance.with_one(units[0], True)
    step, new = covariance.joint_update(parameters, inputs, vector, matrix)
    innovations = [
        tf.concat([w, b[tf.newaxis]], 0) for w, b in zip(sums[:2], sums[2:], strict=True)
    ]
    expected = equations.posterior(*both, *innovations)
    found = both[0] + tf.reshape(step, [4, 2]), tf.reshape(tf.linalg.diag_part(new), [4, 2])
    assert_same(found, expected, rtol=1e-12)
