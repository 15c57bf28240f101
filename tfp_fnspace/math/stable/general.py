r"""Stable distributions of any index and skewness: densities, probabilities and samples.

The standard variable Z has the characteristic function, for `tau = beta tan(pi alpha / 2)`,

    E exp(i t Z) = exp[-|t|^alpha (1 - i sign(t) tau)],                     alpha != 1
    E exp(i t Z) = exp[-|t| (1 + i beta (2/pi) sign(t) log|t|)],            alpha = 1.

`X = Z - tau` (`X = Z` for alpha = 1) is continuous in alpha at 1: Nolan's "0-parameterisation".

* The density is Zolotarev's integral on the side of 0 where z is (`zolotarev.py`).
* Near z = 0 the integral gives no digits of the derivative; a power series does.
* Near alpha = 1 the integral degenerates. There the logarithms at six indices on both sides of 1
  are interpolated for fixed x, at which they are smooth in alpha.

References:
    Nolan (2020), "Univariate stable distributions", sections 1.3 and 3.2.
    Zolotarev (1986), "One-dimensional stable distributions", sections 2.2 to 2.4.
    Chambers, Mallows and Stuck (1976), "A method for simulating stable random variables",
    Journal of the American Statistical Association 71.
"""

import math
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_fnspace.math.stable.zolotarev import (
    Geometry,
    log_density_integral,
    log_tail_integrals,
    zero_with_gradients,
)
from tfp_fnspace.typing import Tensor

# From log|z| = _FAR / alpha on, the logarithms of density and tail are linear to all digits.
_FAR = 600.0

# Half the width of the interval about alpha = 1 with interpolation, and its Chebyshev nodes.
_WINDOW = 0.01
_NODES = np.cos(np.pi * (np.arange(6) + 0.5) / 6)

# An interpolated logarithm below this is a light tail, where polynomials in alpha do not help.
_LIGHT = -600.0

# The series at 0 has this many terms; the first one left out is 1e-12 of the first.
_TERMS = 6
_LAST_TERM = 1e-12

# At alpha = 2 and |beta| = 1, gradients in alpha and beta are taken this far inside. The tails
# there are at most exp(_LARGEST_RATIO) times the density (probability) at the end, so that float32
# holds them.
_INSIDE = 1e-10
_LARGEST_RATIO = 60.0


def tangent(alpha: Tensor) -> Tensor:
    """Returns tan(pi alpha / 2), exact near its pole at alpha = 1."""
    return -1.0 / tf.tan(0.5 * math.pi * (alpha - 1.0))


class _Side(NamedTuple):
    """The distribution on one side of 0, the positive one after a reflection."""

    z: tf.Tensor  # > 0
    log_z: tf.Tensor  # no farther out than the quadrature reaches
    is_positive: tf.Tensor  # of the z before reflection
    is_empty: tf.Tensor
    log_cosine: tf.Tensor  # of arctan(tau)
    geometry: Geometry

    @property
    def level(self):
        alpha = self.geometry.alpha
        return alpha / (alpha - 1.0) * (self.log_z + self.log_cosine) - self.log_cosine

    @property
    def tail(self):
        """The term that the linear tail adds to the logarithms."""
        return self.geometry.alpha * (self.log_z - tf.math.log(self.z))


def _geometry(alpha, beta):
    """Returns `Geometry` of the positive side."""
    # Both are exact where they vanish, at alpha = 2 and alpha = 1.
    sine = tf.sin(0.5 * math.pi * tf.minimum(alpha, 2.0 - alpha))
    cosine = -tf.sin(0.5 * math.pi * (alpha - 1.0))
    sign = tf.sign(cosine)

    def angles(beta):
        # arctan(tau) + pi alpha / 2 by the addition theorem, so that it vanishes at beta = -1.
        return (
            (1.0 + beta) * sine * tf.abs(cosine),
            sign * (tf.square(cosine) - beta * tf.square(sine)),
        )

    opposite, adjacent = angles(beta)
    positive = tf.atan2(opposite, adjacent) / (math.pi * alpha)
    negative = tf.atan2(*angles(-beta)) / (math.pi * alpha)
    return Geometry(alpha, positive, negative, tf.atan2(opposite, -adjacent) / math.pi)


def _side(z, alpha, beta):
    # For alpha < 1, beta = 1 the distribution has no density at 0.
    is_positive = (z > 0.0) | ((z == 0.0) & ~((alpha < 1.0) & (beta >= 1.0)))
    sign = tf.where(is_positive, tf.ones_like(z), -tf.ones_like(z))
    z = tf.maximum(sign * z, 1e-280)
    geometry = _geometry(alpha, sign * beta)
    is_empty = geometry.positive < 1e-250
    # Any distribution and any point will do there: the results are not used.
    half = tf.constant(0.5, z.dtype)
    geometry = Geometry(
        alpha,
        tf.where(is_empty, half, geometry.positive),
        tf.where(is_empty, half, geometry.negative),
        tf.where(is_empty, 1.0 - half * alpha, geometry.rest),
    )
    z = tf.where(is_empty, tf.ones_like(z), z)
    log_z = tf.minimum(tf.math.log(z), _FAR / alpha)
    log_cosine = -0.5 * tf.math.log1p(tf.square(beta * tangent(alpha)))
    return _Side(z, log_z, is_positive, is_empty, log_cosine, geometry)


# Near z = 0 --------------------------------------------------------------------------------------


class _Series(NamedTuple):
    """Power series of the density at 0: log f(0), and the terms divided by f(0), [6, ...]."""

    is_near: tf.Tensor
    log_first: tf.Tensor
    terms: tf.Tensor


def _series(z, alpha, beta):
    """Returns the series for theta = arctan(tau) / alpha and c = cos arctan(tau).

    f(z) = sum_k Gamma((k+1)/alpha) c^{(k+1)/alpha} cos((k+1) theta - k pi/2) z^k / (pi alpha k!)
    """
    tau = beta * tangent(alpha)
    log_c = -0.5 * tf.math.log1p(tf.square(tau))
    theta = tf.atan(tau) / alpha
    first = tf.maximum(tf.cos(theta), 1e-3)  # smaller ones are left to the integral

    def log_size(k):
        lgamma = tf.math.lgamma
        return (
            lgamma((k + 1.0) / alpha)
            - lgamma(1.0 / alpha)
            + k / alpha * log_c
            - math.lgamma(k + 1.0)
        )

    log_radius = (math.log(_LAST_TERM) - log_size(_TERMS)) / _TERMS + tf.math.log(first)
    is_near = (tf.abs(z) < tf.exp(log_radius)) & (tf.cos(theta) > 1e-3)
    scaled = tf.where(is_near, z, tf.zeros_like(z)) * tf.exp(-log_radius)
    # `scaled**0` would have the gradient NaN at 0.
    powers = [tf.ones_like(z)]
    for _ in range(1, _TERMS):
        powers.append(powers[-1] * scaled)
    terms = [
        tf.exp(log_size(k) + k * log_radius)
        * tf.cos((k + 1.0) * theta - 0.5 * math.pi * k)
        / first
        * power
        for k, power in enumerate(powers)
    ]
    log_first = tf.math.lgamma(1.0 + 1.0 / alpha) + log_c / alpha + tf.math.log(first / math.pi)
    return _Series(is_near, log_first, tf.stack(terms))


# Away from alpha = 1 -----------------------------------------------------------------------------


def _integrals(z, alpha, beta, function):
    """Returns the side of z, and the list of logarithms of integrals that `function` returns.

    At the ends of the ranges of alpha and beta, gradients in them are taken from inside. The
    integral at an end lacks the heavy tail that begins to grow there, but the derivatives contain
    it.
    """
    side = _side(z, alpha, beta)
    at_end = (alpha >= 2.0) | (tf.abs(beta) >= 1.0)

    def held(value):
        return tf.where(at_end, tf.stop_gradient(value), value)

    integrated = _side(z, held(alpha), held(beta))
    values = function(integrated.level, integrated.geometry)
    step = tf.constant(_INSIDE, z.dtype)
    inner = _side(
        held(z),
        tf.where(alpha >= 2.0, alpha - step, alpha),
        tf.where(tf.abs(beta) >= 1.0, beta - step * beta, beta),
    )
    fixed = [tf.stop_gradient(value) for value in values]
    is_wanted = at_end & ~side.is_empty
    zeros = zero_with_gradients(is_wanted, fixed, inner.level, inner.geometry, _LARGEST_RATIO)
    return side, [value + zero for value, zero in zip(values, zeros, strict=True)]


def _direct_log_density(z, alpha, beta):
    series = _series(z, alpha, beta)
    near = series.log_first + tf.math.log(tf.reduce_sum(series.terms, axis=0))
    away = tf.where(series.is_near, tf.ones_like(z), z)
    side, (integral,) = _integrals(
        away, alpha, beta, lambda *arguments: [log_density_integral(*arguments)]
    )
    log_factor = tf.math.log(alpha / tf.abs(alpha - 1.0) * side.geometry.positive)
    far = log_factor + integral - tf.math.log(side.z) + side.tail
    nothing = tf.constant(-np.inf, z.dtype)
    return tf.where(series.is_near, near, tf.where(side.is_empty, nothing, far))


def _direct_log_probabilities(z, alpha, beta):
    """Returns both logarithms, log P(Z <= z) and log P(Z > z), stacked."""
    series = _series(z, alpha, beta)
    order = tf.reshape(tf.range(1.0, _TERMS + 1.0, dtype=z.dtype), [-1] + [1] * z.shape.rank)
    excess = z * tf.exp(series.log_first) * tf.reduce_sum(series.terms / order, axis=0)
    whole = _geometry(alpha, beta)
    excess = tf.where(series.is_near, excess, tf.zeros_like(excess))
    near = tf.stack([whole.negative + excess, whole.positive - excess])
    near = tf.math.log(tf.where(series.is_near, near, tf.ones_like(near)))

    away = tf.where(series.is_near, tf.ones_like(z), z)
    side, (log_low, log_high) = _integrals(away, alpha, beta, log_tail_integrals)
    below = alpha < 1.0
    log_low, log_high = (
        tf.where(below, log_low, log_high),
        tf.where(below, log_high, log_low),
    )
    log_positive = tf.math.log(side.geometry.positive)
    outside = log_positive + log_high + side.tail
    # Nothing is added to the logarithm of a light tail, however far out.
    rest = side.geometry.negative
    log_rest = tf.math.log(tf.where(rest > 0.0, rest, tf.ones_like(rest)))
    inside = log_positive + log_low
    # `rest` is 0 at the end of beta's range only, and has a gradient there.
    at_none = inside + rest * tf.exp(tf.minimum(-inside, _LARGEST_RATIO))
    inside = tf.where(rest > 0.0, tfp.math.log_add_exp(log_rest, inside), at_none)
    outside = tf.where(side.is_empty, tf.constant(-np.inf, z.dtype), outside)
    inside = tf.where(side.is_empty, tf.zeros_like(z), inside)
    far = tf.stack(
        [
            tf.where(side.is_positive, inside, outside),
            tf.where(side.is_positive, outside, inside),
        ]
    )
    return tf.where(series.is_near, near, far)


# Near alpha = 1 ----------------------------------------------------------------------------------


def _interpolate(function, z, alpha, beta, axis):
    """Interpolates `function(z, alpha, beta)`, whose values have their alphas on `axis`."""
    is_one = tf.equal(alpha, 1.0)
    tau = beta * tangent(tf.where(is_one, tf.constant(0.5, z.dtype), alpha))
    x = tf.where(is_one, z, z - tau)
    column = [-1] + [1] * z.shape.rank
    nodes = tf.constant(1.0 + _WINDOW * _NODES, z.dtype)
    near = tf.reshape(nodes, column) + tf.zeros_like(z)
    values = function(x + beta * tangent(near), near, beta + tf.zeros_like(near))
    weights = tf.stack(_lagrange((alpha - 1.0) / _WINDOW))
    nearest = tf.one_hot(
        tf.argmin(tf.abs(near - alpha), axis=0), len(_NODES), axis=0, dtype=z.dtype
    )
    smooth = tf.maximum(values, _LIGHT)
    is_light = tf.reduce_any(values < _LIGHT, axis=axis)
    polynomial = tf.reduce_sum(weights * smooth, axis=axis)
    picked = tf.reduce_sum(tf.where(nearest > 0.0, values, tf.zeros_like(values)), axis=axis)
    return tf.where(is_light, picked, polynomial)


def _lagrange(position):
    """Returns Lagrange's polynomials of `_NODES` at `position`."""
    polynomials = []
    for i, node in enumerate(_NODES):
        others = np.delete(_NODES, i)
        factors = [(position - other) / (node - other) for other in others]
        polynomials.append(math.prod(factors[1:], start=factors[0]))
    return polynomials


def _for_any_alpha(function, z, alpha, beta, axis):
    is_near = tf.abs(alpha - 1.0) < _WINDOW

    direct = function(z, tf.where(is_near, tf.constant(0.5, z.dtype), alpha), beta)

    def mixed():
        middle = tf.where(is_near, alpha, tf.ones_like(alpha))
        return tf.where(is_near, _interpolate(function, z, middle, beta, axis), direct)

    return tf.cond(tf.reduce_any(is_near), mixed, lambda: direct)


def _broadcast(*tensors):
    shape = tf.shape(tensors[0])
    for tensor in tensors[1:]:
        shape = tf.broadcast_dynamic_shape(shape, tf.shape(tensor))
    return [tf.broadcast_to(tensor, shape) for tensor in tensors]


def log_density(z: Tensor, alpha: Tensor, beta: Tensor) -> Tensor:
    """Returns the logarithm of the density of Z at z.

    Args:
        z: float64 tensor.
        alpha: In (0, 2], float64 tensor that broadcasts with `z`.
        beta: In [-1, 1], float64 tensor that broadcasts with `z`.

    Returns:
        Tensor of the broadcast shape.
    """
    return _for_any_alpha(_direct_log_density, *_broadcast(z, alpha, beta), axis=0)


def log_probabilities(z: Tensor, alpha: Tensor, beta: Tensor) -> list[Tensor]:
    """Returns `log P(Z <= z)` and `log P(Z > z)`, for the same arguments as `log_density`.

    Returns:
        Two tensors of the broadcast shape.
    """
    both = _for_any_alpha(_direct_log_probabilities, *_broadcast(z, alpha, beta), axis=1)
    return tf.unstack(tf.minimum(both, 0.0))  # rounding may exceed 1
