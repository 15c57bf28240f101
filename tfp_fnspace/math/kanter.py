r"""Kanter's representation of positive stable variables, in logarithms.

`s = B(u) e^{-(1-a)/a}` with u uniform on (0, 1) and e standard exponential has the Laplace
transform `E exp(-l s) = exp(-l^a)`, 0 < a < 1, where

    B(u) = sin(a pi u) sin((1-a) pi u)^{(1-a)/a} / sin(pi u)^{1/a},

so that s is a smooth function of (u, e, a). Given u, `e = (B(u)/s)^{a/(1-a)}`. The joint density of
(u, log s) therefore has the closed form `r e exp(-e)`, r = a/(1-a); the density of s alone has
none.

References:
    Kanter (1975), "Stable densities under change of scale and total variation inequalities",
    Annals of Probability 3(4).
"""

import math

import tensorflow as tf

from tfp_fnspace.typing import Tensor


def log_kanter(u: Tensor, index: Tensor) -> Tensor:
    """Returns `log B(u)`.

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


def log_scale(u: Tensor, log_exponential: Tensor, index: Tensor) -> Tensor:
    """Returns `log s` from the uniform u and the logarithm of the exponential e.

    Args:
        u: Tensor in (0, 1).
        log_exponential: `log e`, tensor of the same shape.
        index: a in (0, 1), tensor that broadcasts with `u`.

    Returns:
        Tensor of the broadcast shape.
    """
    return log_kanter(u, index) - (1.0 - index) / index * log_exponential


def log_exponential(u: Tensor, log_scale: Tensor, index: Tensor) -> Tensor:
    """Returns `log e` for given u and log s: the inverse of `log_scale` in its second argument."""
    return index / (1.0 - index) * (log_kanter(u, index) - log_scale)
