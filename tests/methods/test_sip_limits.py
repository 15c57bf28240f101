"""SIP where the answer is known: Gaussian processes, and one point with a normal prior."""

import keras
import numpy as np
import pytest
import tensorflow_probability as tfp
import toys
from numpy.testing import assert_allclose
from scipy import optimize

from tfp_fnspace import likelihoods, processes, sip


def gaussian_model(inducing, noise, length_scale=1.0, **options):
    """A Gaussian process as the prior; a sampler and discriminators that can be exact."""
    count = len(inducing)
    discriminator = keras.Sequential(
        [keras.Input((count,)), toys.Products(), keras.layers.Dense(1, kernel_initializer="zeros")]
    )
    sampler = keras.Sequential([keras.Input((count,)), keras.layers.Dense(count)])
    kernel = tfp.math.psd_kernels.ExponentiatedQuadratic(np.float32(1.0), np.float32(length_scale))
    return sip.SIPModel(
        processes.GaussianProcess(kernel),
        inducing,
        sampler,
        discriminator,
        likelihood=likelihoods.Gaussian(noise),
        warm_up=0.0,
        train_prior=False,
        standardize=False,
        seed=0,
        **options,
    )


def train(model, x, y, steps, rates):
    """So many steps on all rows, in one compiled loop; both rates fall to 0."""
    schedules = [keras.optimizers.schedules.CosineDecay(rate, steps) for rate in rates]
    model.compile(*(keras.optimizers.Adam(s) for s in schedules), num_rows=len(x))
    x, y = (np.tile(v, (steps, 1)) for v in (x, y))
    return model.fit(x, y, batch_size=len(x) // steps, shuffle=False, verbose=0).history


# One point ---------------------------------------------------------------------------------------

NOISE = 0.01

#: alpha -> mean and variance at the least objective with the mean of both divergences.
OPTIMA = {0.0: (0.947, 0.097), 0.5: (0.728, 0.424), 1.0: (0.544, 0.649)}


def objective(parameters, alpha, reverse_weight=0.5, forward_weight=0.5):
    """Prior N(0, 1), y = 1, q = N(m, v): minus equation 12, in closed form."""
    m, v = parameters[0], np.exp(parameters[1])
    forward = 0.5 * (v + m**2 - 1.0 - np.log(v))
    reverse = 0.5 * ((1.0 + m**2) / v - 1.0 + np.log(v))
    if alpha == 0.0:
        data = -0.5 * ((1.0 - m) ** 2 + v) / NOISE
    else:
        square = (1.0 - m) ** 2 / (v + NOISE / alpha)
        data = -0.5 * (np.log1p(alpha * v / NOISE) + square) / alpha
    return forward_weight * forward + reverse_weight * reverse - data


def optimum(*arguments):
    found = optimize.minimize(objective, [0.5, -1.0], arguments, method="Nelder-Mead", tol=1e-12).x
    return found[0], np.exp(found[1])


@pytest.mark.parametrize("alpha", OPTIMA)
def test_one_point_reaches_the_optimum_of_the_symmetric_objective(alpha):
    """Mean within 0.01 and variance within 3 %, with adaptive contrast.

    Without it KL(p || q) has no gradient in q: see the next test.
    """
    mean, variance = optimum(alpha)
    assert_allclose((mean, variance), OPTIMA[alpha], atol=6e-4)
    model = gaussian_model(
        [[0.0]], NOISE**0.5, alpha=alpha, num_samples=500, adaptive_contrast=True
    )
    train(model, np.zeros((1, 1)), np.ones((1, 1)), 800, (0.05, 0.05))
    kernel, bias = model.posterior.get_weights()
    print(alpha, bias[0], kernel[0, 0] ** 2, mean, variance)
    assert_allclose(bias[0], mean, atol=0.01)
    assert_allclose(kernel[0, 0] ** 2, variance, rtol=0.03)
