"""Kernels of the distance between two points, computed from Gram entries."""

import math
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_fnspace.boundary.arguments import checked_choice
from tfp_fnspace.kernels.gram import GramKernel
from tfp_fnspace.math.broadcasting import sum_to
from tfp_fnspace.math.gradients import custom_gradient
from tfp_fnspace.typing import ArrayLike, Config

tfpk = tfp.math.psd_kernels


class _Stationary(GramKernel):
    """Kernels `amplitude^2 f(R / length_scale^2)`, `f(0) = 1`."""

    _psd_kernel_class = None

    def __init__(
        self,
        amplitude: ArrayLike | None = None,
        length_scale: ArrayLike | None = None,
        **parameters: Any,
    ):
        super().__init__(amplitude=amplitude, length_scale=length_scale, **parameters)

    def _entries(self, g_xx, g_xy, g_yy):
        exponent = self._exponent(g_xx, g_xy, g_yy)
        length_scale = self._parameter("length_scale", exponent.dtype)
        if length_scale is not None:
            exponent *= tf.math.reciprocal(tf.square(length_scale))
        return self._of_exponent(exponent)

    def _diagonal(self, g_xx):
        return tf.ones_like(g_xx)

    def _exponent(self, g_xx, g_xy, g_yy):
        """Returns `-R / 2`."""
        return _gaussian_exponent(g_xx, g_xy, g_yy)

    def _of_exponent(self, exponent):
        """Returns the function f, given `-R / (2 length_scale^2) <= 0`."""
        raise NotImplementedError

    def _psd_kernel(self, num_features, feature_ndims, dtype):
        parameters = {name: self._parameter(name, dtype) for name in self._parameter_names}
        length_scale = parameters["length_scale"]
        unit = tf.constant(math.sqrt(num_features), dtype)  # R is a mean over the features
        parameters["length_scale"] = unit if length_scale is None else unit * length_scale
        return self._psd_kernel_class(**parameters, feature_ndims=feature_ndims)


class SquaredExponential(_Stationary):
    """`k = amplitude^2 exp(-R / (2 length_scale^2))`, `R = G_xx - 2 G_xy + G_yy` (17).

    If rounding errors make R negative, it is set to 0, with the gradient at `R = 0`.

    Args:
        amplitude: Positive scalar; None is 1.
        length_scale: Positive scalar; None is 1. Distances are divided by the square root of the
            number of features, as Gram entries are means.

    References:
        Aitchison, Yang and Ober (2021), "Deep kernel processes", ICML, section 4.
    """

    _psd_kernel_class = tfpk.ExponentiatedQuadratic

    def __init__(self, amplitude: ArrayLike | None = None, length_scale: ArrayLike | None = None):
        super().__init__(amplitude, length_scale)

    def _of_exponent(self, exponent):
        return tf.exp(exponent)


class RationalQuadratic(_Stationary):
    """`k = amplitude^2 (1 + R / (2 a length_scale^2))^-a`, `R = G_xx - 2 G_xy + G_yy` (17).

    It is a mixture of squared exponentials of many length scales, and tends to a single one as a
    grows.

    Args:
        amplitude: Positive scalar; None is 1.
        length_scale: Positive scalar; None is 1. See `SquaredExponential`.
        scale_mixture_rate: a, a positive scalar; None is 1.

    References:
        Rasmussen and Williams (2006), "Gaussian processes for machine learning", section 4.2.
    """

    _psd_kernel_class = tfpk.RationalQuadratic

    def __init__(
        self,
        amplitude: ArrayLike | None = None,
        length_scale: ArrayLike | None = None,
        scale_mixture_rate: ArrayLike | None = None,
    ):
        super().__init__(amplitude, length_scale, scale_mixture_rate=scale_mixture_rate)

    def _of_exponent(self, exponent):
        rate = self._parameter("scale_mixture_rate", exponent.dtype)
        if rate is None:
            return tf.math.reciprocal(1.0 - exponent)
        return tf.exp(-rate * tf.math.log1p(-exponent / rate))


class Matern(_Stationary):
    """Matern kernel of smoothness 1/2, 3/2 or 5/2, with `R = G_xx - 2 G_xy + G_yy` (17).

        z = sqrt(2 nu R) / length_scale
        nu = 1/2:  k = amplitude^2 exp(-z)
        nu = 3/2:  k = amplitude^2 (1 + z) exp(-z)
        nu = 5/2:  k = amplitude^2 (1 + z + z^2 / 3) exp(-z)

    For nu = 1/2 the slope in R is infinite at `R = 0`. Points that rounding cannot distinguish,
    `R <= 4 eps (G_xx + G_yy)`, count as equal: `k = amplitude^2` with gradient 0, the mean of the
    one-sided derivatives in all directions in which two equal points can separate. The gradient in
    R is therefore at most `amplitude^2 / (4 sqrt(eps (G_xx + G_yy)) length_scale)`. The kernels
    with other nu are smooth.

    Args:
        nu: 0.5, 1.5 or 2.5.
        amplitude: Positive scalar; None is 1.
        length_scale: Positive scalar; None is 1. See `SquaredExponential`.

    Raises:
        ValueError: If `nu` is another number.

    References:
        Rasmussen and Williams (2006), "Gaussian processes for machine learning", section 4.2.
    """

    def __init__(
        self,
        nu: float = 1.5,
        amplitude: ArrayLike | None = None,
        length_scale: ArrayLike | None = None,
    ):
        super().__init__(amplitude, length_scale)
        self.nu = float(checked_choice("nu", nu, sorted(_MATERN)))

    def get_config(self) -> Config:
        return {"nu": self.nu, **super().get_config()}

    def _exponent(self, g_xx, g_xy, g_yy):
        exponent = super()._exponent(g_xx, g_xy, g_yy)
        if self.nu > 0.5:
            return exponent
        resolution = 2.0 * np.finfo(exponent.dtype.as_numpy_dtype).eps
        is_apart = exponent < -resolution * (g_xx + g_yy)
        return tf.where(is_apart, exponent, tf.zeros_like(exponent))

    def _of_exponent(self, exponent):
        return _MATERN[self.nu][0](exponent)

    @property
    def _psd_kernel_class(self):
        return _MATERN[self.nu][1]


@custom_gradient
def _gaussian_exponent(g_xx, g_xy, g_yy):
    """Returns `min(G_xy - (G_xx + G_yy) / 2, 0)`, with the gradient of its first argument."""

    def gradient(upstream):
        return -0.5 * sum_to(upstream, g_xx), upstream, -0.5 * sum_to(upstream, g_yy)

    # The norms are added first: rounding then treats x and y alike, and the matrix is symmetric.
    return tf.minimum(g_xy - (0.5 * g_xx + 0.5 * g_yy), 0.0), gradient


# Derivatives are in the exponent e = -R / 2, where dz / de = -2 nu / z. A z cancels unless nu =
# 1/2.


@custom_gradient
def _matern_one_half(exponent):
    z = tf.sqrt(-2.0 * exponent)
    value = tf.exp(-z)
    return value, lambda upstream: tf.math.divide_no_nan(upstream * value, z)


@custom_gradient
def _matern_three_halves(exponent):
    z = tf.sqrt(-6.0 * exponent)
    decay = tf.exp(-z)
    return (1.0 + z) * decay, lambda upstream: 3.0 * upstream * decay


@custom_gradient
def _matern_five_halves(exponent):
    z = tf.sqrt(-10.0 * exponent)
    decay = tf.exp(-z)
    slope = (1.0 + z) * decay
    value = slope + tf.square(z) * decay / 3.0
    return value, lambda upstream: (5.0 / 3.0) * upstream * slope


# nu -> (function of the exponent, function of features)
_MATERN = {
    0.5: (_matern_one_half, tfpk.MaternOneHalf),
    1.5: (_matern_three_halves, tfpk.MaternThreeHalves),
    2.5: (_matern_five_halves, tfpk.MaternFiveHalves),
}
