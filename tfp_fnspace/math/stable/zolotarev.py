r"""Zolotarev's integrals of stable distributions by Gauss-Legendre quadrature on adapted intervals.

Let Z be stable with index alpha, `rho = P(Z > 0)` and z > 0. With u uniform on (0, 1),
`phi = pi rho u`, `d = pi rho (1 - u)`, `r = alpha / |alpha - 1|` and

    g(u) = level + k(u),
    k(u) = alpha / (alpha - 1) log[sin d / sin(alpha phi)] + log[sin(alpha phi + d) / sin d],

where `level` depends on z and the parameters but not on u (it is -r log z for positive stable
distributions). Then the density of log Z at log z is `r rho D`, and `P(0 < Z < z)` is `rho P` for
alpha < 1 and `rho Q` for alpha > 1:

    D = int_0^1 e^g exp(-e^g) du,    P = int_0^1 exp(-e^g) du,    Q = 1 - P.

g is monotone in u (it increases for alpha < 1, decreases for alpha > 1). In t = logit(u) it is
asymptotically linear at both ends and the integrand of D has a single peak. Bisection finds the
peak and the two points where the integrand is negligible, and the nodes lie in between.

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
import tensorflow_probability as tfp

from tfp_fnspace.math.gradients import custom_gradient
from tfp_fnspace.typing import Tensor

# All t, and all logarithms that are exponentiated, stay where float64 neither over- nor underflows.
_FARTHEST = 700.0
_LARGEST_EXPONENT = 600.0

# exp(-_NEGLIGIBLE), relative to the peak, is left out at either end.
_NEGLIGIBLE = 34.0

# Bisection for the peak works in asinh(t / _FINEST), and for the distance to the ends in its
# logarithm. 2e-4 |t| and 5 % of the distance are near enough for the nodes, unless r exceeds
# thousands.
_FINEST = 1e-3
_FAR = math.asinh(_FARTHEST / _FINEST)
_PEAK_STEPS = 19
_END_STEPS = 9

# A shelf, where g is flat before it falls, is long if the angle falls by this factor along half of
# it. A shorter one needs no separate panels.
_SHORTEST_SHELF = math.exp(-2.0)

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(32)


class Geometry(NamedTuple):
    """Functions of the index and the skewness that the integrals need, tensors of one shape.

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
    """Returns the logarithm of du/dt = u (1 - u)."""
    distance = tf.abs(t)
    return -distance - 2.0 * tf.math.log1p(tf.exp(-distance))


def _log_sine(angle, supplement):
    return tf.math.log(tf.sin(tf.minimum(angle, supplement)))


def _cotangent(angle, supplement):
    cotangent = 1.0 / tf.tan(tf.minimum(angle, supplement))
    return tf.where(angle < supplement, cotangent, -cotangent)


def _kernel(angles, alpha):
    """Returns the kernel k of the module's docstring."""
    log_d = _log_sine(*angles.d)
    power = alpha / (alpha - 1.0)
    return power * (log_d - _log_sine(*angles.phi)) + _log_sine(*angles.total) - log_d


def _kernel_slopes(angles, alpha):
    """Returns the derivatives of k in phi and in d."""
    power = alpha / (alpha - 1.0)
    cot_d, cot_total = _cotangent(*angles.d), _cotangent(*angles.total)
    in_phi = alpha * (cot_total - power * _cotangent(*angles.phi))
    return in_phi, power * cot_d + cot_total - cot_d


def _parameter_slopes(angles, geometry):
    """Returns the derivatives of k in alpha and rho for fixed u."""
    alpha = geometry.alpha
    in_phi, in_d = _kernel_slopes(angles, alpha)
    phi, d = angles.phi[0] / alpha, angles.d[0]
    bracket = _log_sine(*angles.phi) - _log_sine(*angles.d)
    in_alpha = bracket / (alpha - 1.0) ** 2 + phi * in_phi / alpha
    return in_alpha, (phi * in_phi + d * in_d) / geometry.positive


def _exp(g):
    return tf.exp(tf.minimum(g, _LARGEST_EXPONENT))


def _log_integrand(t, level, geometry):
    """Returns the logarithm of the integrand of D in t."""
    angles = _angles(t, geometry)
    g = level + _kernel(angles, geometry.alpha)
    return g - _exp(g) + angles.log_jacobian


def _slope(t, level, geometry):
    """Returns a number with the sign of the slope of D's integrand at t."""
    angles = _angles(t, geometry)
    in_phi, in_d = _kernel_slopes(angles, geometry.alpha)
    steepness = math.pi * geometry.positive * tf.exp(angles.log_jacobian) * (in_phi - in_d)
    excess = 1.0 - _exp(level + _kernel(angles, geometry.alpha))
    return steepness * excess - tf.tanh(0.5 * t)


def _bisect(is_below, low, high, steps):
    """Returns the point between low and high where `is_below` turns from true to false."""

    def halve(low, high):
        middle = 0.5 * (low + high)
        below = is_below(middle)
        return tf.where(below, middle, low), tf.where(below, high, middle)

    low, high = tf.while_loop(lambda low, high: True, halve, (low, high), maximum_iterations=steps)
    return 0.5 * (low + high)


class _Panels(NamedTuple):
    """The intervals in t that the nodes go into.

    Three of them lie about the main peak, `[ends[0], ends[3]]`, and two about the other one,
    `[ends[4], ends[6]]`. The latter are empty where there is only one peak.
    """

    ends: tf.Tensor  # [7, ...]
    any_two: tf.Tensor  # whether there are two peaks anywhere


def _panels(level, geometry, has_light_end):
    level = tf.stop_gradient(level)
    geometry = Geometry(*map(tf.stop_gradient, geometry))
    zero = tf.zeros_like(level)
    sign = _tail_sign(geometry)  # all that follows is in `sign * t`

    def height(t):
        return _log_integrand(sign * t, level, geometry)

    def rises(s):
        return sign * _slope(sign * _FINEST * tf.sinh(s), level, geometry) > 0.0

    def ends_of(peaks, floors):
        """Returns where the integrand falls below floors beside the peaks, [2, peaks, ...]."""
        peaks, floors = tf.stack(peaks), tf.stack(floors)
        side = tf.reshape(tf.constant([-1.0, 1.0], level.dtype), [2] + [1] * peaks.shape.rank)

        def at(log_distance):
            return tf.clip_by_value(peaks + side * tf.exp(log_distance), -_FARTHEST, _FARTHEST)

        nearest = tf.stack(2 * [tf.zeros_like(peaks)]) + math.log(1e-2 * _FINEST)
        farthest = tf.zeros_like(nearest) + math.log(2.0 * _FARTHEST)
        log_distance = _bisect(lambda log: height(at(log)) > floors, nearest, farthest, _END_STEPS)
        return [tf.unstack(ends) for ends in tf.unstack(at(log_distance))]

    def bent(left, right):
        """Returns ends with t = 0 among them: the kernel bends there, where u leaves 0 for 1."""
        bend = tf.clip_by_value(zero, left, right)
        return [left, tf.minimum(main, bend), tf.maximum(main, bend), right]

    if has_light_end:
        main = _FINEST * tf.sinh(_bisect(rises, zero - _FAR, zero + _FAR, _PEAK_STEPS))
        (left,), (right,) = ends_of([main], [height(main) - _NEGLIGIBLE])
        return _Panels(sign * tf.stack(bent(left, right) + 3 * [right]), False)

    middle, knee = (tf.asinh(t / _FINEST) for t in _shelf(geometry))
    has_shelf = knee > middle
    falls_at_knee = ~rises(knee)  # then there is one peak, before it
    end = tf.where(has_shelf, tf.where(falls_at_knee, knee, middle), zero + _FAR)
    main = _bisect(rises, zero - _FAR, end, _PEAK_STEPS)

    def beyond_shelf():
        def is_before(s):
            rising = rises(s)
            return tf.stack([~rising[0], rising[1]])

        starts, ends = tf.stack([middle, knee]), tf.stack([knee, zero + _FAR])
        valley, other = tf.unstack(_bisect(is_before, starts, ends, _PEAK_STEPS))
        return tf.where(falls_at_knee, tf.maximum(main, middle), valley), other

    valley, other = tf.cond(tf.reduce_any(has_shelf), beyond_shelf, lambda: (main, main))
    main, valley, other = (_FINEST * tf.sinh(s) for s in (main, valley, other))
    of_main = height(main)
    of_other = tf.where(has_shelf, height(other), of_main)
    # A low peak at the tail counts, since the slopes in the parameters are high there.
    has_two = has_shelf & (of_main > of_other - _NEGLIGIBLE)
    main = tf.where(has_shelf & ~has_two, other, main)
    floors = [tf.maximum(of_main, of_other) - _NEGLIGIBLE, of_other - _NEGLIGIBLE]
    (left, left_other), (right, right_other) = ends_of([main, other], floors)
    beyond = tf.where(has_two, tf.maximum(left_other, valley), right)
    first = bent(left, tf.where(has_two, tf.minimum(right, valley), right))
    second = [beyond, tf.where(has_two, other, right), tf.where(has_two, right_other, right)]
    return _Panels(sign * tf.stack(first + second), tf.reduce_any(has_two))


def _tail_sign(geometry):
    """Returns the sign of t at the end where g is lowest, the end of the heavy tail."""
    one = tf.ones_like(geometry.alpha)
    return tf.where(geometry.alpha < 1.0, -one, one)


def _shelf(geometry):
    """Returns where g is flat, and where it then falls, if it does, towards the heavy tail's end.

    Let a be the small angle at that end (d for alpha > 1, phi for alpha < 1) and b the angle that
    is left there (pi (1 - alpha rho) / alpha or pi (1 - rho)). For a small a, the slope of g in log
    a is the larger of `alpha a^2` and `alpha b^2 / (|alpha - 1| a)^2`. The two are equal in the
    middle of the shelf. At the knee, where e^g is large, the integrand rises most steeply towards
    the end.

    Returns:
        |t| in the middle and at the knee, two tensors; equal where the shelf is short.
    """
    alpha, positive, negative, rest = geometry
    left_over = math.pi * tf.where(alpha < 1.0, negative, rest / alpha)
    bent = tf.abs(alpha - 1.0)
    middle = tf.sqrt(left_over / bent)
    knee = 0.5 * left_over / bent * tf.minimum(alpha, 1.0)
    is_long = (knee < _SHORTEST_SHELF * middle) & (knee > 1e-250)

    def to_t(angle):
        return tf.math.log(
            tf.maximum(math.pi * positive / tf.where(is_long, angle, 1.0) - 1.0, 1.0)
        )

    middle, knee = to_t(middle), to_t(knee)
    return middle, tf.where(is_long, knee, middle)


def _nodes(low, high):
    """Returns Gauss-Legendre nodes between two points and their log weights, [..., 32]."""
    half = 0.5 * (high - low)[..., None]
    t = 0.5 * (low + high)[..., None] + half * _NODES
    return t, tf.math.log(tf.maximum(tf.abs(half), np.finfo(np.float64).tiny)) + np.log(_WEIGHTS)


def _over_panels(function, panels, add):
    """Adds up what `function` returns for the nodes of the panels and their log weights."""

    def part(i):
        return function(*_nodes(panels.ends[i], panels.ends[i + 1]))

    first = add([part(0), part(1), part(2)])
    if panels.any_two is False:
        return first
    return tf.cond(panels.any_two, lambda: add([first, part(4), part(5)]), lambda: first)


def _with_axis(geometry):
    return Geometry(*(part[..., None] for part in geometry))


def _log_sums(level, geometry, panels, of_tails):
    """Returns a list of log P and log Q if `of_tails`, else of log D."""
    wide = _with_axis(geometry)

    def in_panel(t, log_weight):
        angles = _angles(t, wide)
        g = level[..., None] + _kernel(angles, wide.alpha)
        logs = [-_exp(g), _log1mexp(g)] if of_tails else [g - _exp(g)]
        log_weight += angles.log_jacobian
        return tf.stack([tf.reduce_logsumexp(log_weight + log, axis=-1) for log in logs])

    def add(parts):
        return tf.reduce_logsumexp(tf.stack(parts), axis=0)

    sums = _over_panels(in_panel, panels, add)
    return tf.unstack(add([sums, _log_remainders(level, geometry, panels)]) if of_tails else sums)


def _log_remainders(level, geometry, panels):
    """Returns the logarithms of the parts of P and Q that the panels leave out.

    Where D's integrand is negligible, P's is that of g = -inf or that of g = inf. The former
    applies beyond the end of the heavy tail, the latter at the other end, and one of the two in
    between.
    """
    sign = _tail_sign(geometry)
    light, right, left, heavy = (panels.ends[i] for i in (0, 3, 4, 6))

    def g_at(t):
        return level + _kernel(_angles(t, geometry), geometry.alpha)

    def log_beyond(t):
        """Returns the logarithm of the part of (0, 1) from t to the end of the heavy tail."""
        return -tf.nn.softplus(sign * t)

    nothing = tf.constant(-np.inf, level.dtype)
    gap = tf.where(
        right == left, nothing, tfp.math.log_sub_exp(log_beyond(right), log_beyond(left))
    )
    is_low = g_at(0.5 * (left + right)) < 0.0
    low = [log_beyond(heavy) - _exp(g_at(heavy)), tf.where(is_low, gap, nothing)]
    high = [-tf.nn.softplus(-sign * light), tf.where(is_low, nothing, gap)]
    return tf.reduce_logsumexp(tf.stack([low, high]), axis=1)


def _log1mexp(g):
    """Returns log(1 - exp(-e^g)), also where e^g underflows."""
    safe = tf.maximum(g, -36.0)
    return tf.math.log(-tf.math.expm1(-_exp(safe))) + tf.minimum(g + 36.0, 0.0)


def _mean_slopes(level, geometry, panels, log_density):
    """Averages (1, dk/dalpha, dk/drho) under D's integrand, plain and times 1 - e^g."""
    wide = _with_axis(geometry)

    def in_panel(t, log_weight):
        angles = _angles(t, wide)
        g = level[..., None] + _kernel(angles, wide.alpha)
        log_ratio = log_weight + angles.log_jacobian - log_density[..., None]
        weight = tf.exp(log_ratio + g - _exp(g))
        weights = tf.stack([weight, weight * (1.0 - _exp(g))])[:, None]
        slopes = tf.stack([tf.ones_like(g), *_parameter_slopes(angles, wide)])
        return tf.reduce_sum(weights * slopes, axis=-1)

    return tf.unstack(_over_panels(in_panel, panels, tf.add_n))


def _gradients(upstream, slopes):
    # Far out in a light tail slopes are infinite, also where they are not needed.
    gradients = tf.unstack(tf.math.multiply_no_nan(slopes, upstream))
    # `negative` and `rest` follow from alpha and `positive`, whose slopes include theirs.
    return *gradients, tf.zeros_like(upstream), tf.zeros_like(upstream)


def _broadcast(*tensors):
    shape = tf.shape(tensors[0])
    for tensor in tensors[1:]:
        shape = tf.broadcast_dynamic_shape(shape, tf.shape(tensor))
    return [tf.broadcast_to(tensor, shape) for tensor in tensors]


def log_density_integral(level: Tensor, geometry: Geometry, has_light_end: bool = False) -> Tensor:
    """Returns the logarithm of D of the module's docstring, with gradients.

    Args:
        level: float64 tensor.
        geometry: `Geometry` of float64 tensors that broadcast with `level`. Gradients flow to
            `alpha` and `positive`.
        has_light_end: Whether g is known to be finite at both ends, as for positive distributions.

    Returns:
        Tensor of the broadcast shape.
    """

    @custom_gradient
    def integral(level, *parts):
        geometry = Geometry(*parts)
        panels = _panels(level, geometry, has_light_end)
        (log_density,) = _log_sums(level, geometry, panels, of_tails=False)

        def gradient(upstream):
            (again,) = _log_sums(level, geometry, panels, of_tails=False)
            _, tilted = _mean_slopes(level, geometry, panels, again)
            return _gradients(upstream, tilted)

        return log_density, gradient

    return integral(*_broadcast(level, *geometry))


def log_tail_integrals(
    level: Tensor, geometry: Geometry, has_light_end: bool = False
) -> list[Tensor]:
    """Returns log P and log Q of the module's docstring, with gradients.

    Args:
        level: float64 tensor.
        geometry: `Geometry` of float64 tensors that broadcast with `level`.
        has_light_end: As for `log_density_integral`.

    Returns:
        Two tensors of the broadcast shape.
    """

    @custom_gradient
    def integrals(level, *parts):
        geometry = Geometry(*parts)
        panels = _panels(level, geometry, has_light_end)

        def gradient(*upstream):
            (log_density,) = _log_sums(level, geometry, panels, of_tails=False)
            tails = _log_sums(level, geometry, panels, of_tails=True)
            plain, _ = _mean_slopes(level, geometry, panels, log_density)
            return _gradients(_of_level(upstream, tails, log_density, np.inf), plain)

        low, high = _log_sums(level, geometry, panels, of_tails=True)
        # The smaller one is precise, and both sum to 1.
        smaller = tf.minimum(low, high)
        larger = tf.math.log1p(-tf.exp(smaller))
        pair = tf.where(low <= high, [smaller, larger], [larger, smaller])
        return tf.unstack(pair), gradient

    return integrals(*_broadcast(level, *geometry))


def _of_level(upstream, tails, log_density, largest):
    """Returns the gradient in the level from those of log P and log Q.

    On average over D's integrand, `dP = -D dg` and `dQ = D dg`. Ratios are at most `exp(largest)`.
    """
    low, high = (tf.exp(tf.minimum(log_density - tail, largest)) for tail in tails)
    return upstream[1] * high - upstream[0] * low


def zero_with_gradients(
    is_wanted: Tensor, logs: list[Tensor], level: Tensor, geometry: Geometry, largest: float
) -> list[Tensor]:
    """Returns zeros with the gradients of log D, or log P and log Q, of another level and geometry.

    The gradients are `dD' / D` (`dP' / P`, `dQ' / Q`), where those with a prime are of this level
    and geometry.

    Args:
        is_wanted: Boolean tensor; the gradients are 0 elsewhere.
        logs: A list of log D, or of log P and log Q, by which the derivatives are divided.
        level: float64 tensor of their shape.
        geometry: `Geometry` of tensors of this shape.
        largest: Number: ratios `D' / D` (`D' / P`, `D' / Q`) are `exp(largest)` at most.

    Returns:
        A list as long as `logs`.
    """

    @custom_gradient
    def zeros(level, *parts):
        geometry = Geometry(*parts)

        def slopes(*upstream):
            panels = _panels(level, geometry, has_light_end=False)
            (log_density,) = _log_sums(level, geometry, panels, of_tails=False)
            plain, tilted = _mean_slopes(level, geometry, panels, log_density)
            if len(logs) == 2:
                return plain, _of_level(upstream, logs, log_density, largest)
            return tilted, upstream[0] * tf.exp(tf.minimum(log_density - logs[0], largest))

        def gradient(*upstream):
            def wanted():
                of_parts, of_level = slopes(*upstream)
                return list(_gradients(tf.where(is_wanted, of_level, 0.0), of_parts))

            nothing = [tf.zeros_like(part) for part in (level, *parts)]
            return tf.cond(tf.reduce_any(is_wanted), wanted, lambda: nothing)

        return [tf.zeros_like(log) for log in logs], gradient

    return zeros(*_broadcast(level, *geometry))
