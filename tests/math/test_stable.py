"""`tfp_fnspace.math.stable` against slow integrals, and its gradients against differences."""

import numpy as np
import pytest
import stable as reference
import tensorflow as tf
from scipy import special

from tfp_fnspace.math.stable import general, positive, sampling, zolotarev


def double(*values):
    return [tf.constant(value, tf.float64) for value in values]


def outputs(law, *arguments):
    """Log density and both log probabilities, stacked: [3, ...]."""
    if law == "positive":
        low, high = positive.log_probabilities_of_log(*arguments)
        return tf.stack([positive.log_density_of_log(*arguments), low, high])
    low, high = general.log_probabilities(*arguments)
    return tf.stack([general.log_density(*arguments), low, high])


@pytest.mark.parametrize("index", [0.1, 0.3, 0.5, 0.75, 0.95])
def test_positive_law_is_the_integral_of_kanters_representation(index):
    centre = 1.0 if index > 0.9 else 0.5
    x = centre * np.array([0.8, 1.0, 2.0, 30.0])
    log_density, log_cdf, log_above = outputs("positive", *double(np.log(x), index)).numpy()
    expected = np.array([reference.positive_stable(value, index) for value in x])
    np.testing.assert_allclose(np.exp(log_density) / x, expected[:, 0], rtol=2e-7)
    np.testing.assert_allclose(np.exp(log_cdf), expected[:, 1], rtol=1e-8)
    np.testing.assert_allclose(np.exp(log_above), 1.0 - expected[:, 1], rtol=1e-8)


# All points of a grid in one call: eager, the operations of a call cost more than their numbers.
def test_general_law_is_zolotarevs_integral():
    alpha, beta, offset = np.meshgrid(
        [0.4, 0.8, 1.2, 1.7, 1.95], [-0.5, 0.0, 0.7], [-4.01, -1.0, 0.21, 3.0]
    )
    z = beta * np.tan(np.pi * alpha / 2.0) + offset
    log_density, log_cdf, _ = outputs("general", *double(z, alpha, beta)).numpy()
    density, cdf = np.vectorize(reference.zolotarev)(z, alpha, beta)
    np.testing.assert_allclose(np.exp(log_density), density, rtol=3e-7)
    np.testing.assert_allclose(np.exp(log_cdf), cdf, rtol=1e-7)


def test_near_alpha_one_it_is_the_inverted_characteristic_function():
    # Interpolated or not, at the seam, and where SciPy rounds the index to 1.
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
    ("law", "points"),
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
def test_gradients_are_those_of_differences(law, points):
    arguments = double(*np.transpose(points))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(arguments)
        rows = tf.unstack(outputs(law, *arguments))
    step = 2e-5
    for i, argument in enumerate(arguments):
        # Differences of the fourth order.
        shifts = step * tf.constant([[-2.0], [-1.0], [1.0], [2.0]], tf.float64)
        shifted = outputs(law, *arguments[:i], argument + shifts, *arguments[i + 1 :]).numpy()
        expected = np.einsum("osp,s->op", shifted, [1.0, -8.0, 8.0, -1.0]) / (12 * step)
        actual = [tape.gradient(row, argument) for row in rows]
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


def test_gradient_in_alpha_at_one_for_the_symmetric_law():
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
