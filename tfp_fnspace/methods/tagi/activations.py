r"""Moments of activation functions of Gaussian variables.

Every function takes the mean and the variance of a Gaussian `z` and returns three tensors of
the same shape: the mean and the variance of the activation `a`, and the slope
`cov(z, a) / var(z)` by which innovations travel back through it.

References:
    Goulet, Nguyen & Amiri (2021), "Tractable Approximate Gaussian Inference for Bayesian Neural
    Networks", equations 11 and 12 (linearised); the exact ones are moments of a clipped Gaussian.
"""

import math

import tensorflow as tf

#: Elementwise functions that an activation may name.
FUNCTIONS = {
    "linear": tf.identity,
    "relu": tf.nn.relu,
    "leaky_relu": tf.nn.leaky_relu,
    "tanh": tf.tanh,
    "sigmoid": tf.sigmoid,
    "softplus": tf.nn.softplus,
}


def linearized(function, mean, variance):
    r"""Moments after linearising an elementwise function at the mean.

    `E[a] = f(m)`, `var[a] = f'(m)^2 S`, slope `f'(m)` (equations 11 and 12).

    Args:
        function: Elementwise TensorFlow function.
        mean: Tensor, `m`.
        variance: Tensor of the same shape, `S`, or `None` for exactly known values.

    Returns:
        Mean, variance (`None` if it was) and slope, each of the shape of `mean`.
    """
    with tf.GradientTape() as tape:
        tape.watch(mean)
        value = function(mean)
    slope = tape.gradient(value, mean)
    return value, None if variance is None else tf.square(slope) * variance, slope


def _standard_normal(x):
    """Density and distribution function of N(0, 1)."""
    density = tf.exp(-0.5 * tf.square(x)) / math.sqrt(2.0 * math.pi)
    return density, 0.5 * tf.math.erfc(-x / math.sqrt(2.0))


def clipped_moments(mean, variance, low, high=None):
    r"""Exact moments of `clip(z, low, high)` for `z ~ N(mean, variance)`.

    With `alpha = (low - m)/s`, `beta = (high - m)/s` and `n ~ N(0, 1)`, the moments of
    `clip(n, alpha, beta)` are taken about `c = clip(0, alpha, beta)`, the image of the mean:
    far from the kinks every term is then small, so float32 does not cancel.

    Args:
        mean: Tensor.
        variance: Tensor of the same shape, non-negative.
        low: Lower bound, a number.
        high: Upper bound, a number, or `None` for none.

    Returns:
        Mean, variance and slope `P(low < z < high)`, each of the shape of `mean`.
    """
    tiny = tf.constant(1e-30, mean.dtype)
    stddev = tf.sqrt(tf.maximum(variance, tiny))
    alpha = (low - mean) / stddev
    density_low, below = _standard_normal(alpha)
    if high is None:
        centre = tf.maximum(alpha, 0.0)
        # 1 - P(z < low), from its own tail: no cancellation.
        inside = _standard_normal(-alpha)[1]
        edges, second_edges = density_low, alpha * density_low
        first_above = second_above = tf.zeros_like(mean)
    else:
        beta = (high - mean) / stddev
        density_high, above = _standard_normal(-beta)
        centre = tf.clip_by_value(tf.zeros_like(mean), alpha, beta)
        inside = tf.where(mean > high, _standard_normal(beta)[1] - below, (1.0 - above) - below)
        edges = density_low - density_high
        # beta * density is 0 far out, where beta itself may be infinite.
        second_edges = alpha * density_low - beta * density_high
        first_above = (beta - centre) * above
        second_above = tf.square(beta - centre) * above
    inside = tf.maximum(inside, 0.0)
    first = (alpha - centre) * below + first_above - centre * inside + edges
    second = (
        tf.square(alpha - centre) * below
        + second_above
        + inside
        + second_edges
        - 2.0 * centre * edges
        + tf.square(centre) * inside
    )
    centre_value = tf.maximum(mean, low) if high is None else tf.clip_by_value(mean, low, high)
    spread = tf.maximum(second - tf.square(first), 0.0)
    return centre_value + stddev * first, tf.square(stddev) * spread, inside


def _exact_relu(mean, variance):
    return clipped_moments(mean, variance, 0.0)


def _exact_tanh(mean, variance):
    return clipped_moments(mean, variance, -1.0, 1.0)


def _exact_sigmoid(mean, variance):
    centre, spread, slope = clipped_moments(mean, variance, -1.0, 1.0)
    return 0.5 * (1.0 + centre), 0.25 * spread, 0.5 * slope


def _clip(x):
    return tf.clip_by_value(x, -1.0, 1.0)


#: Piecewise-linear functions whose Gaussian moments are exact: name -> (moments, function).
EXACT = {
    "relu": (_exact_relu, tf.nn.relu),
    "tanh": (_exact_tanh, _clip),
    "sigmoid": (_exact_sigmoid, lambda x: 0.5 * (1.0 + _clip(x))),
}
