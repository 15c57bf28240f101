r"""Kanter's representation of positive stable variables, in logarithms.

`s = B(u) e^{-(1-a)/a}` with u uniform on (0, 1) and e standard exponential has the Laplace
transform `E exp(-l s) = exp(-l^a)`, 0 < a < 1, where

    B(u) = sin(a pi u) sin((1-a) pi u)^{(1-a)/a} / sin(pi u)^{1/a},

so that s is a smooth function of (u, e, a). Given u, `e = (B(u)/s)^{a/(1-a)}`: the joint density
of (u, log s) is `r e exp(-e)`, r = a/(1-a), in closed form, where the density of s alone is not.

References:
    Kanter (1975), "Stable densities under change of scale and total variation inequalities",
    Annals of Probability 3(4).
"""

import math

import tensorflow as tf


def log_kanter(u, index):
    """`log B(u)`.

    Args:
        u: Tensor in (0, 1).
        index: a in (0, 1), tensor that broadcasts with `u`.

    Returns:
        Tensor of the broadcast shape.
    """
    rest = 1.0 - index
    # sin(pi u) from the nearer end: 1 - u is exact where sin(pi u) is small.
    log_sine = tf.math.log(tf.sin(math.pi * tf.minimum(u, 1.0 - u)))
    return (
        tf.math.log(tf.sin(index * math.pi * u))
        + (rest * tf.math.log(tf.sin(rest * math.pi * u)) - log_sine) / index
    )


def log_scale(u, log_exponential, index):
    """`log s` from the uniform u and the logarithm of the exponential e.

    Args:
        u: Tensor in (0, 1).
        log_exponential: `log e`, tensor of the same shape.
        index: a in (0, 1), tensor that broadcasts with `u`.

    Returns:
        Tensor of the broadcast shape.
    """
    return log_kanter(u, index) - (1.0 - index) / index * log_exponential


def log_exponential(u, log_scale, index):
    """`log e` for given u and log s: the inverse of `log_scale` in its second argument."""
    return index / (1.0 - index) * (log_kanter(u, index) - log_scale)


def log_kanter_slope(u, index):
    """`log(d log B / du)`: B grows with u.

    Args:
        u: Tensor in (0, 1).
        index: a in (0, 1), tensor that broadcasts with `u`.

    Returns:
        Tensor of the broadcast shape.
    """
    rest = 1.0 - index

    def cotangent(share):
        return tf.cos(share * math.pi * u) / tf.sin(share * math.pi * u)

    whole = tf.cos(math.pi * u) / tf.sin(math.pi * tf.minimum(u, 1.0 - u))
    slope = index * cotangent(index) + (tf.square(rest) * cotangent(rest) - whole) / index
    return tf.math.log(math.pi * slope)


def inverse_kanter(log_value, index, tolerance=1e-10, max_iterations=60):
    """u with `log B(u) = log_value`, by Newton's method on the logit of u.

    `log B` is a convex function of the logit, above its asymptote on the right: from the
    asymptote the iterates fall to the solution and never pass it.

    Args:
        log_value: Tensor.
        index: a in (0, 1), tensor of the same shape.
        tolerance: Largest last step of any entry that has a solution.
        max_iterations: Bound on the number of iterations.

    Returns:
        Tensor of the same shape; arbitrary below `log_kanter_minimum`, where no u exists.
    """
    rest = 1.0 - index
    sines = tf.math.log(tf.sin(math.pi * index)) + rest / index * tf.math.log(
        tf.sin(math.pi * rest)
    )
    logit = index * (log_value - sines) + math.log(math.pi)
    logit = tf.clip_by_value(logit, -30.0, 35.0)

    def step(i, logit, change):
        u = tf.sigmoid(logit)
        slope = tf.exp(log_kanter_slope(u, index)) * u * (1.0 - u)
        new = tf.maximum(logit - (log_kanter(u, index) - log_value) / slope, -8.0)
        return i + 1, new, logit - new

    def unfinished(i, logit, change):
        moving = tf.abs(change) > tolerance  # false for NaN
        return (i < max_iterations) & tf.reduce_any(moving)

    _, logit, _ = tf.while_loop(unfinished, step, (0, logit, tf.ones_like(logit)))
    return tf.sigmoid(logit)


def log_kanter_minimum(index):
    """The limit of `log B(u)` at u = 0, its smallest value."""
    return tf.math.log(index) + (1.0 - index) / index * tf.math.log1p(-index)
