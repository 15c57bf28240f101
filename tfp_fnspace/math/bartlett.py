r"""Triangular factors of standard Wishart matrices, and the functions in their densities.

Bartlett's decomposition exists in two orders. For real df = nu > k - 1 both

    W = T T^T,  T lower triangular,  T_ii^2 ~ chi^2(nu - i),          i = 0 ... k-1,
    W = U U^T,  U upper triangular,  U_ii^2 ~ chi^2(nu - (k-1-i)),

with independent standard normal entries off the diagonal, are W(I_k, nu). An inverse Wishart matrix
needs the upper one: with Psi = L L^T,

    G = L U^-T U^-1 L^T ~ W^-1(Psi, nu),  tr(Psi G^-1) = ||U||_F^2,
    log |G| = log |Psi| - 2 sum_i log U_ii,

and L U^-T is lower triangular with a positive diagonal. So it is the Cholesky factor of G, and the
density of G is known without a factorisation.

References:
    Bartlett (1933), "On the theory of statistical regression", Proceedings of the Royal Society
    of Edinburgh 53.
    Marsaglia & Tsang (2000), "A simple method for generating gamma variables", ACM Transactions
    on Mathematical Software 26.
    Muirhead (1982), "Aspects of multivariate statistical theory", theorems 2.1.12 and 3.2.14.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfp_fnspace.math import linalg, random
from tfp_fnspace.math.gradients import custom_gradient
from tfp_fnspace.math.random import fast_normal
from tfp_fnspace.typing import Seed, Tensor

#: Number of candidates for a gamma draw.
_CANDIDATES = 10

_LARGE = 200.0


class WishartFactor(NamedTuple):
    """A triangular factor of a standard Wishart matrix.

    Attributes:
        factor: `[..., k, k]`, triangular. Its diagonal is at least the root of the smallest normal
            number, so that neither it nor its inverse overflows.
        log_diagonal: `[..., k]`, the logarithm of the diagonal without that bound. Close to nu =
            k - 1, a diagonal element may be smaller than any positive float32.
    """

    factor: tf.Tensor
    log_diagonal: tf.Tensor


def lower_factor(
    seed: Seed, df: Tensor, size: int | Tensor, shape: Sequence[int | Tensor] | Tensor = ()
) -> WishartFactor:
    """Returns lower triangular T with `T T^T ~ W(I, df)`, reparameterised in df.

    Args:
        seed: int32 tensor `[2]`.
        df: Degrees of freedom nu > k - 1, real, floating tensor `[...]`.
        size: k, integer or integer tensor.
        shape: Shape of the sample, put before that of `df`.

    Returns:
        `WishartFactor` with parts of shape `shape + [..., k, k]` and `shape + [..., k]`.
    """
    df = degrees(df, size)
    return _factor(seed, df, shape, lambda x: tf.linalg.band_part(x, -1, 0))


def upper_factor(
    seed: Seed, df: Tensor, size: int | Tensor, shape: Sequence[int | Tensor] | Tensor = ()
) -> WishartFactor:
    """Returns upper triangular U with `U U^T ~ W(I, df)`, reparameterised in df."""
    df = tf.reverse(degrees(df, size), axis=[-1])
    return _factor(seed, df, shape, lambda x: tf.linalg.band_part(x, 0, -1))


def solve_upper_factor(seed: Seed, df: Tensor, values: Tensor) -> Tensor:
    """Returns `U^-1 B` for the draw U of `upper_factor`, with cheaper gradients in df and B.

    Args:
        seed: int32 tensor `[2]`.
        df: Degrees of freedom nu > k - 1, real, floating scalar tensor.
        values: B, `[..., k, n]`; a draw for each member of the batch.

    Returns:
        Tensor `[..., k, n]`.
    """
    shape = tf.shape(values)
    df = tf.reverse(degrees(df, shape[-2]), axis=[-1])
    normal, diagonal, _ = _parts(seed, df, shape[:-1])
    return linalg.solve_upper(normal, diagonal, values)


def _factor(seed, df, shape, triangle):
    shape = tf.concat([tf.cast(shape, tf.int32), tf.shape(df)], axis=0)
    normal, diagonal, log_diagonal = _parts(seed, df, shape)
    return WishartFactor(tf.linalg.set_diag(triangle(normal), diagonal), log_diagonal)


def _parts(seed, df, shape):
    """Returns normal draws `shape + [k]`, the diagonal, and its unbounded logarithm, `shape`."""
    seeds = random.split(seed, 2)
    log_diagonal = 0.5 * _log_chi_squared(seeds[0], df, shape)
    normal = fast_normal(tf.concat([shape, shape[-1:]], 0), seeds[1], df.dtype)
    smallest = 0.5 * math.log(np.finfo(df.dtype.as_numpy_dtype).tiny)
    diagonal = tf.exp(tf.maximum(log_diagonal, tf.constant(smallest, df.dtype)))
    return normal, diagonal, log_diagonal


def _log_chi_squared(seed, df, shape):
    """Returns the logarithms of chi^2 draws, finite for every df > 0 and with finite gradients.

    If g ~ Gamma(a + 1) and u is uniform, then `g u^(1/a) ~ Gamma(a)`. TFP's gradient of a Gamma(a)
    draw is NaN for small a. The gradient of g never is, and that of u^(1/a) is explicit.
    """
    half, seeds = 0.5 * df, random.split(seed, 2)
    log_g = log_gamma(tf.broadcast_to(half + 1.0, shape), seeds[0])
    uniform = tf.random.stateless_uniform(shape, seeds[1], dtype=df.dtype)
    log_u = tf.math.log1p(-uniform)  # `uniform` may be 0, never 1
    return math.log(2.0) + log_g + log_u / half


@custom_gradient
def log_gamma(concentration: Tensor, seed: Seed) -> tuple[Tensor, Callable[..., Any]]:
    """Returns logarithms of Gamma(a) draws, a >= 1, with first derivatives that hold for all a.

    The draws come from the rejection method of Marsaglia & Tsang (2000) with a fixed number of
    candidates and no loop. XLA can compile this for any shape, which it cannot for
    `tf.random.stateless_gamma`. A candidate is accepted with probability 0.95 or more, so the
    probability that none is accepted is 2e-12 or less; the last one is then taken.

    Args:
        concentration: a, floating tensor.
        seed: int32 tensor `[2]`.

    Returns:
        Tensor of the same shape.
    """
    dtype, seeds = concentration.dtype, random.split(seed, 2)
    shape = tf.concat([[_CANDIDATES], tf.shape(concentration)], axis=0)
    x = fast_normal(shape, seeds[0], dtype)
    u = tf.random.stateless_uniform(shape, seeds[1], dtype=dtype)
    d = concentration - 1.0 / 3.0
    t = x / (3.0 * tf.sqrt(d))
    log_v = 3.0 * tf.math.log1p(tf.maximum(t, np.finfo(dtype.as_numpy_dtype).eps - 1.0))
    # This is d - d v + d log v, with expm1 because d may be large.
    log_ratio = 0.5 * tf.square(x) - d * (tf.math.expm1(log_v) - log_v)
    accepted = (t > -1.0) & (tf.math.log1p(-u) < log_ratio)
    number = tf.argmax(tf.cast(accepted[:-1], tf.int32), axis=0, output_type=tf.int32)
    number = tf.where(tf.reduce_any(accepted[:-1], axis=0), number, _CANDIDATES - 1)
    chosen = tf.one_hot(number, _CANDIDATES, axis=0, on_value=True, off_value=False, dtype=tf.bool)
    log_g = tf.math.log(d) + tf.reduce_sum(tf.where(chosen, log_v, tf.zeros_like(log_v)), axis=0)

    def gradient(upstream):
        return upstream * _slope(concentration, log_g), None

    return log_g, gradient


def _slope(a, log_g):
    """Returns `d log g / d a` at fixed probability `P(Gamma(a) <= g)`.

    For a > 200 the transformation of Wilson and Hilferty is used, `g = d (1 + x / (3 sqrt d))^3`
    with x nearly standard normal and d = a - 1/3; its relative error is O(a^-2). TensorFlow's slope
    is off by 18 % at 1e5 in float32, and its time under XLA grows with a.
    """
    is_small = a < _LARGE
    at = tf.where(is_small, a, tf.ones_like(a))
    g = tf.exp(tf.where(is_small, log_g, tf.zeros_like(a)))
    exact = tf.raw_ops.RandomGammaGrad(alpha=at, sample=g) / g
    d = a - 1.0 / 3.0
    cube_root = tf.exp((log_g - tf.math.log(d)) / 3.0)
    return tf.where(is_small, exact, (1.5 / cube_root - 0.5) / d)


def degrees(df: Tensor, size: int | Tensor) -> Tensor:
    """Returns `df - i`, i = 0 ... k-1.

    Args:
        df: Floating tensor `[...]`.
        size: k, integer or integer tensor.

    Returns:
        Tensor `[..., k]`.
    """
    df = tf.convert_to_tensor(df)
    return df[..., tf.newaxis] - tf.cast(tf.range(size), df.dtype)


def log_multigamma(df: Tensor, size: int | Tensor) -> Tensor:
    """Returns `log Gamma_k(df / 2)`, the multivariate gamma function.

    Args:
        df: Floating tensor `[...]`, greater than k - 1.
        size: k, integer or integer tensor.

    Returns:
        Tensor `[...]`.
    """
    half = 0.5 * degrees(df, size)
    k = tf.cast(size, half.dtype)
    constant = 0.25 * math.log(math.pi) * k * (k - 1.0)
    return constant + tf.reduce_sum(tf.math.lgamma(half), axis=-1)


def multidigamma(df: Tensor, size: int | Tensor) -> Tensor:
    """Returns `psi_k(df / 2)`, the derivative of the logarithm of `Gamma_k` at df / 2.

    Args:
        df: Floating tensor `[...]`, greater than k - 1.
        size: k, integer or integer tensor.

    Returns:
        Tensor `[...]`.
    """
    return tf.reduce_sum(tf.math.digamma(0.5 * degrees(df, size)), axis=-1)
