"""`tfp_fnspace.math.stable` against slow integrals, and its gradients against differences."""

import numpy as np
import pytest
import stable as reference
import tensorflow as tf
from scipy import special

from tfp_fnspace.math.stable import general, positive, sampling, zolotarev


def double(*values):
    return [tf.constant(value, tf.float64) for value in values]


def outputs(distribution, *arguments):
    """Returns the log density and both log probabilities, stacked: [3, ...]."""
    if distribution == "positive":
        low, high = positive.log_probabilities_of_log(*arguments)
        return tf.stack([positive.log_density_of_log(*arguments), low, high])
    low, high = general.log_probabilities(*arguments)
    return tf.stack([general.log_density(*arguments), low, high])


@pytest.mark.parametrize("index", [0.1, 0.3, 0.5, 0.75, 0.95])
def test_positive_distribution_is_the_integral_of_kanters_representation(index):
    centre = 1.0 if index > 0.9 else 0.5
    x = centre * np.array([0.8, 1.0, 2.0, 30.0])
    log_density, log_cdf, log_above = outputs("positive", *double(np.log(x), index)).numpy()
    expected = np.array([reference.positive_stable(value, index) for value in x])
    np.testing.assert_allclose(np.exp(log_density) / x, expected[:, 0], rtol=2e-7)
    np.testing.assert_allclose(np.exp(log_cdf), expected[:, 1], rtol=1e-8)
    np.testing.assert_allclose(np.exp(log_above), 1.0 - expected[:, 1], rtol=1e-8)


# One call has all points of a grid: an eager call costs more than the numbers in it.
def test_general_distribution_is_zolotarevs_integral():
    alpha, beta, offset = np.meshgrid(
        [0.4, 0.8, 1.2, 1.7, 1.95], [-0.5, 0.0, 0.7], [-4.01, -1.0, 0.21, 3.0]
    )
    z = beta * np.tan(np.pi * alpha / 2.0) + offset
    log_density, log_cdf, _ = outputs("general", *double(z, alpha, beta)).numpy()
    density, cdf = np.vectorize(reference.zolotarev)(z, alpha, beta)
    np.testing.assert_allclose(np.exp(log_density), density, rtol=3e-7)
    np.testing.assert_allclose(np.exp(log_cdf), cdf, rtol=1e-7)


# Each key is z, alpha, beta; each row the logarithm of the density or a probability and its three
# derivatives. They are from mpmath 1.4.1, `quad` of Nolan's integrals in pieces with 40 digits, and
# differences of 1e-12 (1e-9 inside at the ends of the ranges). The bulk and the heavy tail are
# apart.
MPMATH = {
    (20.0, 1.999, 0.0): [
        (-15.862147111, -0.15309528451, -1002.1003339, 0.99999992027),
        (-1.2725241743e-6, 1.2916878994e-7, 0.0012758165437, -1.2725249342e-6),
        (-13.574508727, -0.10150589699, -1002.5866371, 0.99999996091),
    ],
    (8.0, 1.99, 0.0): [
        (-10.606159027, -0.44780484405, -100.95413742, 0.99884035337),
        (-8.8405613577e-5, 2.4765212259e-5, 0.0089847502488, -8.8399972543e-5),
        (-9.3336192908, -0.2801192886, -101.62650018, 0.99989199211),
    ],
    (4.0, 1.5, -0.9999): [
        (-5.3663066276, -3.4325025517, -4.2405497719, 3.2810399126),
        (-0.0012089768882, 0.0046770035055, 0.0041947458224, -0.043621936427),
        (-6.7185852515, -3.8662251746, -3.4675688997, 36.059889324),
    ],
    (1.3, 2.0, 0.7): [
        (-1.68801212, -0.65, 0.866084739, 0.0),
        (-0.197214309, 0.225192922, -0.056304672, 0.0),
        (-1.7204514, -1.03297116, 0.258272338, 0.0),
    ],
    (-3.0, 1.5, 1.0): [
        (-2.76348719, 1.84334585, -4.33658436, 1.59032507),
        (-3.63039465, 2.37954065, -4.52507937, -0.559460353),
        (-0.0268633317, -0.064788714, 0.123206163, 0.0152326529),
    ],
    (0.7, 0.5, 1.0): [
        (-1.09821183, -1.12244898, 2.55779797, 0.494254145),
        (-1.46102772, 1.4373712, -4.04757509, -2.25273565),
        (-0.263962582, -0.434200335, 1.22268936, 0.680505201),
    ],
}


@pytest.mark.slow
def test_values_and_gradients_are_those_of_mpmath():
    expected = np.moveaxis(list(MPMATH.values()), [0, 1, 2], [2, 0, 1])  # [3, 4, points]
    arguments = double(*np.transpose(list(MPMATH)))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(arguments)
        rows = tf.unstack(outputs("general", *arguments))
    for row, (value, *slopes) in zip(rows, expected, strict=True):
        np.testing.assert_allclose(row, value, rtol=3e-8)
        gradients = tape.gradient(row, arguments)
        np.testing.assert_allclose(gradients, slopes, rtol=1e-6, atol=1e-9)


# Points z, alpha, beta and the log density from mpmath 1.4.1: `quad` of the inverted characteristic
# function, 30 digits.
@pytest.mark.parametrize(
    ("point", "expected"),
    [
        ((15.0, 1.995, 0.0), -13.3577391121),
        ((20.0, 1.999, 1.0), -15.1690000114),
        ((50.0, 1.99999, 0.0), -23.2441471062),
        ((3.0, 2.0, 0.5), -3.51551212348),
        ((1.0, 1.97, 0.3), -1.52633234902),
    ],
)
def test_near_alpha_two_bulk_and_tail_are_resolved_together(point, expected):
    np.testing.assert_allclose(general.log_density(*double(*point)), expected, rtol=1e-11)


def test_all_panels_hold_all_digits_for_random_distributions(monkeypatch):
    # The reference has six times as many nodes in the same panels, far from and near both ends.
    rng = np.random.default_rng(0)
    alpha = np.concatenate([2.0 - 10.0 ** rng.uniform(-12.0, -0.3, 60), rng.uniform(0.1, 2.0, 60)])
    beta = rng.choice([-1.0, 1.0], 120) * (1.0 - 10.0 ** rng.uniform(-12.0, 0.0, 120))
    z = rng.choice([-1.0, 1.0], 120) * 10.0 ** rng.uniform(-1.0, 3.0, 120)
    coarse = outputs("general", *double(z, alpha, beta)).numpy()
    nodes, weights = np.polynomial.legendre.leggauss(192)
    monkeypatch.setattr(zolotarev, "_NODES", nodes)
    monkeypatch.setattr(zolotarev, "_WEIGHTS", weights)
    fine = outputs("general", *double(z, alpha, beta)).numpy()
    np.testing.assert_allclose(coarse, fine, rtol=1e-7, atol=1e-7)


@pytest.mark.slow
def test_near_alpha_one_it_is_the_inverted_characteristic_function():
    # The values are interpolated or not, at the seam, and where SciPy rounds the index to 1.
    alpha, beta, offset = np.meshgrid(
        [0.985, 0.9901, 0.999, 1.0, 1.0001, 1.0099, 1.015],
        [-1.0, -0.5, 0.0, 1e-3, 1.0],
        [-0.9, 0.0, 0.9, 3.0],
    )
    shift = np.where(alpha == 1.0, 0.0, beta * np.tan(np.pi * alpha / 2.0))
    z = shift + offset * np.where(beta > 0.0, 1.0, -1.0)
    log_density, log_cdf, _ = outputs("general", *double(z, alpha, beta)).numpy()
    density, cdf = np.vectorize(reference.from_characteristic_function)(z, alpha, beta)
    np.testing.assert_allclose(np.exp(log_density), density, rtol=1e-7)
    np.testing.assert_allclose(np.exp(log_cdf), cdf, rtol=1e-7, atol=1e-10)


def test_the_series_at_zero_meets_the_integral():
    alpha, beta = 1.5, 0.4
    series = general._series(*double(0.0, alpha, beta))
    assert series.is_near
    z = 10.0 ** np.linspace(-9.0, 0.0, 400)
    is_near = general._series(*double(z, alpha, beta)).is_near.numpy()
    last = is_near.sum() - 1
    assert is_near[last]
    assert not is_near[last + 1]
    pair = z[[last, last]] * [1.0, 1.0]
    pair[1] = z[last + 1]
    log_density = general.log_density(*double(pair, alpha, beta)).numpy()
    slope = np.diff(general.log_density(*double([0.0, 1e-3], alpha, beta)))[0] / 1e-3
    np.testing.assert_allclose(np.diff(log_density), slope * np.diff(pair), rtol=0.1)


@pytest.mark.parametrize(
    ("distribution", "points"),
    [
        # log s; index
        (
            "positive",
            [(-0.05, 0.95), (0.4, 0.95), (-1.0, 0.5), (5.0, 0.5), (-3.0, 0.1), (9.0, 0.1)],
        ),
        # z; alpha; beta
        (
            "general",
            [
                (-1.3, 0.4, 0.3),
                (2.0, 0.8, -0.5),
                (1e-5, 1.5, 0.4),
                (0.7, 1.7, 0.9),
                (-2.0, 1.95, 0.0),
                (0.6, 0.7, 0.95),
                (60.0, 1.3, 0.2),
            ],
        ),
    ],
)
@pytest.mark.slow
def test_gradients_are_those_of_differences(distribution, points):
    arguments = double(*np.transpose(points))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(arguments)
        rows = tf.unstack(outputs(distribution, *arguments))
    step = 2e-5
    for i, argument in enumerate(arguments):
        # These are differences of the fourth order.
        shifts = step * tf.constant([[-2.0], [-1.0], [1.0], [2.0]], tf.float64)
        shifted = outputs(
            distribution, *arguments[:i], argument + shifts, *arguments[i + 1 :]
        ).numpy()
        expected = np.einsum("osp,s->op", shifted, [1.0, -8.0, 8.0, -1.0]) / (12 * step)
        actual = [tape.gradient(row, argument) for row in rows]
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


def test_gradient_in_alpha_at_one_for_the_symmetric_distribution():
    arguments = double([-3.0, 0.2, 1.0], 1.0, 0.0)
    with tf.GradientTape() as tape:
        tape.watch(arguments[1])
        total = tf.reduce_sum(general.log_density(*arguments))
    ends = [
        np.log([reference.from_characteristic_function(z, alpha, 0.0)[0] for z in (-3.0, 0.2, 1.0)])
        for alpha in (0.999, 1.001)
    ]
    expected = (ends[1] - ends[0]).sum() / 0.002
    np.testing.assert_allclose(tape.gradient(total, arguments[1]), expected, rtol=1e-4)


def test_second_derivative_in_z():
    (z, alpha, beta) = double(0.7, 1.6, 0.3)
    with tf.GradientTape() as outer:
        outer.watch(z)
        with tf.GradientTape() as inner:
            inner.watch(z)
            value = general.log_density(z, alpha, beta)
        slope = inner.gradient(value, z)
    near = general.log_density(z + np.array([-1e-3, 0.0, 1e-3]), alpha, beta).numpy()
    expected = (near[0] - 2.0 * near[1] + near[2]) / 1e-6
    np.testing.assert_allclose(outer.gradient(slope, z), expected, rtol=1e-4)


def test_more_nodes_change_nothing(monkeypatch):
    arguments = double(np.array([-2.0, -0.1, 0.3, 2.0, 20.0]), np.array([[0.1], [0.5], [0.9]]))
    coarse = outputs("positive", *arguments).numpy()
    nodes, weights = np.polynomial.legendre.leggauss(300)
    monkeypatch.setattr(zolotarev, "_NODES", nodes)
    monkeypatch.setattr(zolotarev, "_WEIGHTS", weights)
    fine = outputs("positive", *arguments).numpy()
    np.testing.assert_allclose(coarse, fine, rtol=1e-8, atol=1e-8)


def test_tails_are_their_leading_terms():
    index = np.array([0.05, 0.3, 0.5, 0.9])
    log_s = 30.0 / index
    _, log_below, log_above = outputs("positive", *double(log_s, index)).numpy()
    expected = -index * log_s - special.gammaln(1.0 - index)
    np.testing.assert_allclose(log_above, expected, rtol=3e-7)
    assert np.all(log_below <= 0.0)
    np.testing.assert_allclose(
        positive.log_density_of_log(*double(log_s, index)), expected + np.log(index), rtol=3e-7
    )


def test_samples_depend_on_alpha_smoothly_at_one():
    uniform, exponential = double([0.03, 0.4, 0.5, 0.97], [0.2, 1.0, 2.0, 0.7])
    alpha = np.array([[1.0 - 1e-6], [1.0], [1.0 + 1e-6]])
    parts = [*double(alpha), tf.constant(0.6, tf.float64)]
    z = sampling.from_uniform_and_exponential(uniform, exponential, *parts).numpy()
    x = z - np.where(alpha == 1.0, 0.0, 0.6 * general.tangent(np.where(alpha == 1.0, 0.5, alpha)))
    np.testing.assert_allclose(x[0], x[1], atol=1e-3)
    np.testing.assert_allclose(x[0] + x[2], 2.0 * x[1], atol=1e-7)


@pytest.mark.parametrize("alpha", [0.951, 1.049])
def test_both_forms_of_a_sample_agree_at_their_seam(alpha, monkeypatch):
    uniform, exponential = double([0.03, 0.4, 0.5, 0.97], [0.2, 1.0, 2.0, 0.7])
    near = sampling.from_uniform_and_exponential(uniform, exponential, *double(alpha, -0.6))
    monkeypatch.setattr(sampling, "_WINDOW", 0.0)
    far = sampling.from_uniform_and_exponential(uniform, exponential, *double(alpha, -0.6))
    np.testing.assert_allclose(near, far, rtol=1e-11)
