r"""Zolotarev's integrals of stable laws by Gauss-Legendre quadrature on adapted intervals.

Let Z be stable with index alpha, `rho = P(Z > 0)` and z > 0. With u uniform on (0, 1),
`phi = pi rho u`, `d = pi rho (1 - u)`, `r = alpha / |alpha - 1|` and

    g(u) = level + k(u),
    k(u) = alpha / (alpha - 1) log[sin d / sin(alpha phi)] + log[sin(alpha phi + d) / sin d],

where `level` depends on z and the parameters and not on u (-r log z for positive stable laws), the
density of log Z at log z is `r rho D` and `P(0 < Z < z)` is `rho P` for alpha < 1 and `rho Q` for
alpha > 1:

    D = int_0^1 e^g exp(-e^g) du,    P = int_0^1 exp(-e^g) du,    Q = 1 - P.

g is monotone in u (it increases for alpha < 1, decreases for alpha > 1). In t = logit(u) it is
asymptotically linear at both ends and the integrand of D has a single peak: bisection finds the
peak and the two points where the integrand is negligible, and the nodes go in between.

References:
    Zolotarev (1986), "One-dimensional stable distributions", section 2.2.
    Nolan (2020), "Univariate stable distributions", section 3.2.
    Kanter (1975), "Stable densities under change of scale and total variation inequalities",
    Annals of Probability 3(4), for rho = 1.
"""

import math
from typing import NamedTuple

import numpy as np
import tensorflow as tf

# All t, and all logarithms that are exponentiated, stay where float64 neither over- nor underflows.
_FARTHEST = 700.0
_LARGEST_EXPONENT = 600.0

# exp(-_NEGLIGIBLE), relative to the peak, is left out at either end.
_NEGLIGIBLE = 34.0

# Bisection for the peak is in asinh(t / _FINEST), for its distance to the ends in its logarithm:
# 2e-4 |t| and 5 % of the distance are near enough for the nodes, unless r exceeds thousands.
_FINEST = 1e-3
_PEAK_STEPS = 19
_END_STEPS = 9

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(32)


class Geometry(NamedTuple):
    """What the integrals need to know of the index and the skewness, tensors of one shape.

    `negative` and `rest` are functions of the other two that would lose digits if they were
    computed from them.
    """

    alpha: tf.Tensor  # in (0, 1) or (1, 2]
    positive: tf.Tensor  # rho in (0, 1]
    negative: tf.Tensor  # 1 - rho
    rest: tf.Tensor  # 1 - alpha rho


class _Angles(NamedTuple):
    """The angles of k, each with its supplement to pi."""

    phi: tuple  # alpha phi
    d: tuple
    total: tuple  # alpha phi + d
    log_jacobian: tf.Tensor  # log du/dt = log u (1 - u)


def _angles(t, geometry):
    alpha, positive, negative, rest = geometry
    smaller = tf.exp(-tf.abs(t))
    larger = math.pi * positive / (1.0 + smaller)
    smaller *= larger
    phi = tf.where(t > 0.0, larger, smaller)
    d = tf.where(t > 0.0, smaller, larger)
    # Every sum has terms of one sign, so that small angles keep their digits.
    below = alpha < 1.0
    bent = tf.abs(alpha - 1.0)
    within = alpha * phi
    total = tf.where(below, within + d, math.pi * positive + bent * phi)
    outside = tf.where(below, math.pi * negative + bent * phi, math.pi * rest + bent * d)
    return _Angles(
        phi=(within, math.pi * rest + alpha * d),
        d=(d, math.pi * negative + phi),
        total=(total, outside),
        log_jacobian=_log_jacobian(t),
    )


def _log_jacobian(t):
    """Logarithm of du/dt = u (1 - u)."""
    distance = tf.abs(t)
    return -distance - 2.0 * tf.math.log1p(tf.exp(-distance))


def _log_sine(angle, supplement):
    return tf.math.log(tf.sin(tf.minimum(angle, supplement)))


def _cotangent(angle, supplement):
    cotangent = 1.0 / tf.tan(tf.minimum(angle, supplement))
    return tf.where(angle < supplement, cotangent, -cotangent)


def _kernel(angles, alpha):
    """The kernel k of the module's docstring."""
    log_d = _log_sine(*angles.d)
    power = alpha / (alpha - 1.0)
    return power * (log_d - _log_sine(*angles.phi)) + _log_sine(*angles.total) - log_d


def _kernel_slopes(angles, alpha):
    """Derivatives of k in phi and in d."""
    power = alpha / (alpha - 1.0)
    cot_d, cot_total = _cotangent(*angles.d), _cotangent(*angles.total)
    in_phi = alpha * (cot_total - power * _cotangent(*angles.phi))
    return in_phi, power * cot_d + cot_total - cot_d


def _parameter_slopes(angles, geometry):
    """Derivatives of k in alpha and rho for fixed u."""
    alpha = geometry.alpha
    in_phi, in_d = _kernel_slopes(angles, alpha)
    phi, d = angles.phi[0] / alpha, angles.d[0]
    bracket = _log_sine(*angles.phi) - _log_sine(*angles.d)
    in_alpha = bracket / (alpha - 1.0) ** 2 + phi * in_phi / alpha
    return in_alpha, (phi * in_phi + d * in_d) / geometry.positive


def _exp(g):
    return tf.exp(tf.minimum(g, _LARGEST_EXPONENT))


def _log_integrand(t, level, geometry):
    """Logarithm of the integrand of D in t."""
    angles = _angles(t, geometry)
    g = level + _kernel(angles, geometry.alpha)
    return g - _exp(g) + angles.log_jacobian


def _rises(t, level, geometry):
    """Whether the integrand of D increases at t."""
    angles = _angles(t, geometry)
    in_phi, in_d = _kernel_slopes(angles, geometry.alpha)
    steepness = math.pi * geometry.positive * tf.exp(angles.log_jacobian) * (in_phi - in_d)
    excess = 1.0 - _exp(level + _kernel(angles, geometry.alpha))
    return steepness * excess > tf.tanh(0.5 * t)


def _bisect(is_below, low, high, steps):
    """The point between low and high where `is_below` turns from true to false."""

    def halve(low, high):
        middle = 0.5 * (low + high)
        below = is_below(middle)
        return tf.where(below, middle, low), tf.where(below, high, middle)

    low, high = tf.while_loop(lambda low, high: True, halve, (low, high), maximum_iterations=steps)
    return 0.5 * (low + high)


def _panels(level, geometry):
    """The ends of three intervals in t: [4, ...]."""
    level = tf.stop_gradient(level)
    geometry = Geometry(*map(tf.stop_gradient, geometry))
    zero = tf.zeros_like(level)
    far = zero + math.asinh(_FARTHEST / _FINEST)
    peak = _FINEST * tf.sinh(
        _bisect(lambda s: _rises(_FINEST * tf.sinh(s), level, geometry), -far, far, _PEAK_STEPS)
    )
    floor = _log_integrand(peak, level, geometry) - _NEGLIGIBLE
    side = tf.reshape(tf.constant([-1.0, 1.0], level.dtype), [2] + [1] * level.shape.rank)

    def is_nearer_than_end(log_distance):
        t = tf.clip_by_value(peak + side * tf.exp(log_distance), -_FARTHEST, _FARTHEST)
        return _log_integrand(t, level, geometry) > floor

    nearest = tf.stack([zero, zero]) + math.log(1e-2 * _FINEST)
    farthest = tf.stack([zero, zero]) + math.log(2.0 * _FARTHEST)
    distance = tf.exp(_bisect(is_nearer_than_end, nearest, farthest, _END_STEPS))
    left, right = tf.unstack(tf.clip_by_value(peak + side * distance, -_FARTHEST, _FARTHEST))
    # The kernel bends at t = 0, where u changes from small to near 1.
    bend = tf.clip_by_value(zero, left, right)
    return tf.stack([left, tf.minimum(peak, bend), tf.maximum(peak, bend), right])


def _nodes(low, high):
    """Gauss-Legendre nodes on an interval and the logarithms of their weights: [..., 32]."""
    half = 0.5 * (high - low)[..., None]
    t = 0.5 * (low + high)[..., None] + half * _NODES
    return t, tf.math.log(tf.maximum(half, np.finfo(np.float64).tiny)) + np.log(_WEIGHTS)


def _with_axis(geometry):
    return Geometry(*(part[..., None] for part in geometry))


def _log_sums(level, geometry, panels, of_tails):
    """A list of log P and log Q if `of_tails`, else of log D."""
    wide = _with_axis(geometry)
    sums = []
    for i in range(3):
        t, log_weight = _nodes(panels[i], panels[i + 1])
        angles = _angles(t, wide)
        g = level[..., None] + _kernel(angles, wide.alpha)
        log_weight += angles.log_jacobian
        logs = [-_exp(g), _log1mexp(g)] if of_tails else [g - _exp(g)]
        sums.append([tf.reduce_logsumexp(log_weight + log, axis=-1) for log in logs])
    if of_tails:
        sums.append(_log_remainders(level, geometry, panels))
    return [tf.reduce_logsumexp(tf.stack(parts), axis=0) for parts in zip(*sums, strict=True)]


def _log_remainders(level, geometry, panels):
    """Logarithms of what the panels leave out of P and of Q.

    Beyond the panels P's integrand is constant where g is low, Q's is 1 where g is high, and
    neither counts at the other end.
    """
    log_left, log_right = -tf.nn.softplus(-panels[0]), -tf.nn.softplus(panels[3])
    below = geometry.alpha < 1.0
    end = tf.where(below, panels[0], panels[3])
    g = level + _kernel(_angles(end, geometry), geometry.alpha)
    return [tf.where(below, log_left, log_right) - _exp(g), tf.where(below, log_right, log_left)]


def _log1mexp(g):
    """log(1 - exp(-e^g)), also where e^g underflows."""
    safe = tf.maximum(g, -36.0)
    return tf.math.log(-tf.math.expm1(-_exp(safe))) + tf.minimum(g + 36.0, 0.0)


def _mean_slopes(level, geometry, panels, log_density):
    """Averages of (1, dk/dalpha, dk/drho) under D's integrand, plain and times 1 - e^g."""
    wide = _with_axis(geometry)
    plain, tilted = 0.0, 0.0
    for i in range(3):
        t, log_weight = _nodes(panels[i], panels[i + 1])
        angles = _angles(t, wide)
        g = level[..., None] + _kernel(angles, wide.alpha)
        log_ratio = log_weight + angles.log_jacobian - log_density[..., None]
        weight = tf.exp(log_ratio + g - _exp(g))
        slopes = tf.stack([tf.ones_like(g), *_parameter_slopes(angles, wide)])
        plain += tf.reduce_sum(weight * slopes, axis=-1)
        tilted += tf.reduce_sum(weight * (1.0 - _exp(g)) * slopes, axis=-1)
    return plain, tilted


@tf.custom_gradient
def _log_density(level, *parts):
    geometry = Geometry(*parts)
    panels = _panels(level, geometry)
    (log_density,) = _log_sums(level, geometry, panels, of_tails=False)

    def gradient(upstream):
        (again,) = _log_sums(level, geometry, panels, of_tails=False)
        _, tilted = _mean_slopes(level, geometry, panels, again)
        return _gradients(upstream, tilted)

    return log_density, gradient


@tf.custom_gradient
def _log_tails(level, *parts):
    geometry = Geometry(*parts)
    panels = _panels(level, geometry)

    def gradient(of_low, of_high):
        (log_density,) = _log_sums(level, geometry, panels, of_tails=False)
        log_low, log_high = _log_sums(level, geometry, panels, of_tails=True)
        plain, _ = _mean_slopes(level, geometry, panels, log_density)
        # On average over D's integrand dP = -D dg and dQ = D dg.
        upstream = of_high * tf.exp(log_density - log_high) - of_low * tf.exp(log_density - log_low)
        return _gradients(upstream, plain)

    low, high = _log_sums(level, geometry, panels, of_tails=True)
    # The smaller one has the digits, and both sum to 1.
    smaller = tf.minimum(low, high)
    larger = tf.math.log1p(-tf.exp(smaller))
    pair = tf.where(low <= high, [smaller, larger], [larger, smaller])
    return tf.unstack(pair), gradient


def _gradients(upstream, slopes):
    # Far out in a light tail slopes are infinite, also where nobody asks for them.
    gradients = tf.unstack(tf.math.multiply_no_nan(slopes, upstream))
    # `negative` and `rest` follow from alpha and `positive`, whose slopes hold all of it.
    return *gradients, tf.zeros_like(upstream), tf.zeros_like(upstream)


def _broadcast(*tensors):
    shape = tf.shape(tensors[0])
    for tensor in tensors[1:]:
        shape = tf.broadcast_dynamic_shape(shape, tf.shape(tensor))
    return [tf.broadcast_to(tensor, shape) for tensor in tensors]


def log_density_integral(level, geometry):
    """Logarithm of D of the module's docstring, with gradients.

    Args:
        level: float64 tensor.
        geometry: `Geometry` of float64 tensors that broadcast with `level`. Gradients flow to
            `alpha` and `positive`.

    Returns:
        Tensor of the broadcast shape.
    """
    return _log_density(*_broadcast(level, *geometry))


def log_tail_integrals(level, geometry):
    """Logarithms of P and Q of the module's docstring; all else as for `log_density_integral`.

    Args:
        level: float64 tensor.
        geometry: `Geometry` of float64 tensors that broadcast with `level`.

    Returns:
        Two tensors of the broadcast shape.
    """
    return _log_tails(*_broadcast(level, *geometry))
