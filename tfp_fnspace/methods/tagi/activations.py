r"""Moments of activation functions of Gaussian variables.

Every function takes the mean and the variance of a Gaussian `z`. It returns three tensors of the
same shape: the mean and the variance of the activation `a`, and the slope `cov(z, a) / var(z)`, by
which innovations pass back through it.

References:
    Goulet, Nguyen & Amiri (2021), "Tractable Approximate Gaussian Inference for Bayesian Neural
    Networks", equations 11 and 12 (linearised moments). The exact moments are those of a clipped
    Gaussian.
"""

import tensorflow as tf

from tfp_fnspace.math.clipped_normal import clipped_moments

#: Elementwise functions by name, for activations.
FUNCTIONS = {
    "linear": tf.identity,
    "relu": tf.nn.relu,
    "leaky_relu": tf.nn.leaky_relu,
    "tanh": tf.tanh,
    "sigmoid": tf.sigmoid,
    "softplus": tf.nn.softplus,
}


def linearized(function, mean, variance):
    r"""Returns the moments after linearising an elementwise function at the mean.

    `E[a] = f(m)`, `var[a] = f'(m)^2 S`, slope `f'(m)` (equations 11 and 12).

    Args:
        function: Elementwise TensorFlow function.
        mean: Tensor, `m`.
        variance: Tensor of the same shape, `S`, or `None` for exactly known values.

    Returns:
        Mean, variance (`None` if the given one is) and slope, each with the shape of `mean`.

    Raises:
        ValueError: If the function has no gradient.
    """
    with tf.GradientTape() as tape:
        tape.watch(mean)
        value = function(mean)
    slope = tape.gradient(value, mean)
    if slope is None:
        raise ValueError(
            "An activation must be differentiable in TensorFlow. "
            f"Received: activation={function!r}, which has no gradient"
        )
    return value, None if variance is None else tf.square(slope) * variance, slope


def _exact_relu(mean, variance):
    return clipped_moments(mean, variance, 0.0)


def _exact_tanh(mean, variance):
    return clipped_moments(mean, variance, -1.0, 1.0)


def _exact_sigmoid(mean, variance):
    centre, spread, slope = clipped_moments(mean, variance, -1.0, 1.0)
    return 0.5 * (1.0 + centre), 0.25 * spread, 0.5 * slope


def _clip(x):
    return tf.clip_by_value(x, -1.0, 1.0)


#: Piecewise-linear functions with exact Gaussian moments: name -> (moments, function).
EXACT = {
    "relu": (_exact_relu, tf.nn.relu),
    "tanh": (_exact_tanh, _clip),
    "sigmoid": (_exact_sigmoid, lambda x: 0.5 * (1.0 + _clip(x))),
}
