"""Arc-cosine kernels of Gram entries, and of features as a TFP kernel."""

import math
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_fnspace.boundary.arguments import checked_choice
from tfp_fnspace.kernels.gram import GramKernel
from tfp_fnspace.math.broadcasting import sum_to
from tfp_fnspace.math.gradients import custom_gradient
from tfp_fnspace.math.parameters import as_parameter, is_deferred
from tfp_fnspace.typing import ArrayLike, Config

tfpk = tfp.math.psd_kernels


class ArcCosine(GramKernel):
    r"""Kernel of an infinitely wide layer with the activation `max(u, 0)^order`.

    With the angle t between x and y and `s = sqrt(G_xx G_yy) sin t`,

        s = sqrt(max(G_xx G_yy - G_xy^2, 0)),   t = atan2(s, G_xy)
        order 0 (step):            k = (pi - t) / pi
        order 1 (ReLU):            k = (s + (pi - t) G_xy) / pi
        order 2 (squared ReLU):    k = (3 s G_xy + (pi - t) (G_xx G_yy + 2 G_xy^2)) / (3 pi)

    times `amplitude^2`. These are `E[phi(u) phi(v)] / E[phi(z)^2]` for Gaussian (u, v) with the
    covariance G and standard normal z, so `k(x, x) = G_xx^order`. This is Cho and Saul's kernel,
    for order 2 divided by 3. There is no jitter. In float32 the entries may lie between 1e-18 and
    1e18.

    The gradients have closed forms:

        order 0:  dk/dG_xy = 1 / (pi s),       dk/dG_xx = -G_xy / (2 pi s G_xx)
        order 1:  dk/dG_xy = (pi - t) / pi,    dk/dG_xx = s / (2 pi G_xx)
        order 2:  dk/dG_xy = 4 k_1 / 3,        dk/dG_xx = (s G_xy / G_xx + (pi - t) G_yy) / (3 pi)

    For order 0 they are infinite at equal and opposite inputs. Inputs that rounding cannot
    distinguish from these, `sin^2 t <= 4 eps`, count as equal (opposite), with gradient 0. This is
    the mean of the one-sided derivatives in all directions in which the two inputs can separate.
    The gradient in G_xy is therefore at most `1 / (2 pi sqrt(eps G_xx G_yy))`. At a zero input the
    derivative in its own Gram entry is infinite (order 1) or does not exist (order 0), and is
    returned as 0. For order 0 a zero input counts as orthogonal to all inputs but zero.

    Args:
        order: 0, 1 or 2.
        amplitude: Positive scalar; None is 1.

    Raises:
        ValueError: If `order` is another number.

    References:
        Cho and Saul (2009), "Kernel methods for deep learning", NIPS.
        Aitchison, Yang and Ober (2021), "Deep kernel processes", ICML, section 4.
    """

    def __init__(self, order: int = 1, amplitude: ArrayLike | None = None):
        super().__init__(amplitude=amplitude)
        self.order = int(checked_choice("order", order, _ORDERS))

    def get_config(self) -> Config:
        return {"order": self.order, **super().get_config()}

    def _entries(self, g_xx, g_xy, g_yy):
        return _ORDERS[self.order](g_xx, g_xy, g_yy)

    def _diagonal(self, g_xx):
        return _power(g_xx, self.order)

    def _psd_kernel(self, num_features, feature_ndims, dtype):
        amplitude = self._parameter("amplitude", dtype)
        scale = tf.constant(num_features ** (-0.5 * self.order), dtype)
        scale = scale if amplitude is None else amplitude * scale
        return ArcCosineKernel(self.order, amplitude=scale, feature_ndims=feature_ndims)


class ArcCosineKernel(tfpk.AutoCompositeTensorPsdKernel):
    r"""Arc-cosine kernel of features, in the form for TFP's Gaussian processes.

        k(x, y) = amplitude^2 E[phi(w . x) phi(w . y)] / E[phi(z)^2],   phi(u) = max(u, 0)^order,

    where w and z are standard normal. With the angle t between x and y,

        k(x, y) = amplitude^2 (|x| |y|)^order J(t) / J(0),
        J(t) = pi - t,    sin t + (pi - t) cos t,    3 sin t cos t + (pi - t) (1 + 2 cos^2 t)

    for order 0, 1, 2. Values and gradients at special inputs are those of `ArcCosine`.

    Args:
        order: 0, 1 or 2.
        amplitude: Positive floating tensor whose shape is the batch shape; None is 1.
        feature_ndims: Number of axes of a point that hold features.
        validate_args: Whether to check the amplitude when it is used.
        name: Name of the operations.

    Raises:
        ValueError: If `order` is another number.

    Example:
    ```python
    kernel = ArcCosineKernel(order=1, amplitude=2.0)
    kernel.matrix([[1.0, 0.0]], [[0.0, 1.0]])  # [[4 / pi]]
    ```

    References:
        Cho and Saul (2009), "Kernel methods for deep learning", NIPS.
    """

    def __init__(
        self,
        order: int = 1,
        amplitude: ArrayLike | None = None,
        feature_ndims: int = 1,
        validate_args: bool = False,
        name: str = "ArcCosineKernel",
    ):
        parameters = dict(locals())
        self._order = int(checked_choice("order", order, _ORDERS))
        with tf.name_scope(name) as name:
            self._amplitude = amplitude if amplitude is None else as_parameter(amplitude)
            super().__init__(
                feature_ndims=feature_ndims,
                dtype=None if amplitude is None else self._amplitude.dtype,
                name=name,
                validate_args=validate_args,
                parameters=parameters,
            )

    @classmethod
    def _parameter_properties(cls, dtype):
        return dict(
            amplitude=tfp.util.ParameterProperties(
                default_constraining_bijector_fn=tfp.bijectors.Softplus
            )
        )

    @property
    def order(self) -> int:
        """Power of the activation."""
        return self._order

    @property
    def amplitude(self) -> Any:
        """Square root of the factor of the kernel, or None."""
        return self._amplitude

    def _apply(self, x1, x2, example_ndims=0):
        x1, x2 = (self._one_feature_axis(x) for x in (x1, x2))
        norms = (tf.reduce_sum(tf.square(x), axis=-1) for x in (x1, x2))
        return self._of_gram(*norms, tf.reduce_sum(x1 * x2, axis=-1), example_ndims)

    def _matrix(self, x1, x2):
        x1, x2 = (self._one_feature_axis(x) for x in (x1, x2))
        norms_1, norms_2 = (tf.reduce_sum(tf.square(x), axis=-1) for x in (x1, x2))
        inner = tf.matmul(x1, x2, transpose_b=True)
        return self._of_gram(norms_1[..., :, tf.newaxis], norms_2[..., tf.newaxis, :], inner, 2)

    def _of_gram(self, norms_1, norms_2, inner, example_ndims):
        values = _ORDERS[self.order](norms_1, inner, norms_2)
        if self.amplitude is None:
            return values
        scale = tf.square(tf.convert_to_tensor(self.amplitude))
        return values * scale[(..., *[tf.newaxis] * example_ndims)]

    def _one_feature_axis(self, x):
        """Reshapes points so that their features are in one axis."""
        kept, features = tf.split(tf.shape(x), [-1, self.feature_ndims])
        return tf.reshape(x, tf.concat([kept, [tf.reduce_prod(features)]], axis=0))

    def _parameter_control_dependencies(self, is_init):
        if not self.validate_args or self.amplitude is None:
            return []
        if is_init == is_deferred(self.amplitude):
            return []
        message = "`amplitude` must be positive."
        return [tf.debugging.assert_positive(self.amplitude, message=message)]


@custom_gradient
def _order_zero(g_xx, g_xy, g_yy):
    product = g_xx * g_yy
    squared = product - tf.square(g_xy)
    resolution = 4.0 * np.finfo(product.dtype.as_numpy_dtype).eps
    is_apart = squared > resolution * product
    sine = tf.sqrt(tf.where(is_apart, squared, tf.zeros_like(squared)))
    orthogonal = tf.where(g_xx == g_yy, tf.zeros_like(sine), 0.5 * math.pi * tf.ones_like(sine))
    angle = tf.where(product > 0.0, tf.atan2(sine, g_xy), orthogonal)

    def gradient(upstream):
        slope = tf.math.divide_no_nan(upstream / math.pi, sine)
        radial = -0.5 * slope * g_xy
        return (
            tf.math.divide_no_nan(sum_to(radial, g_xx), g_xx),
            slope,
            tf.math.divide_no_nan(sum_to(radial, g_yy), g_yy),
        )

    return 1.0 - angle / math.pi, gradient


@custom_gradient
def _order_one(g_xx, g_xy, g_yy):
    # All is divided by pi at the start, where tensors are small; the angle is unaffected.
    shares = g_xx * (1.0 / math.pi), g_yy * (1.0 / math.pi)
    opposite = g_xy * (-1.0 / math.pi)
    sine = tf.sqrt(tf.nn.relu(shares[0] * shares[1] - tf.square(opposite)))
    angle = tf.atan2(sine, opposite)  # pi - t

    def gradient(upstream):
        radial = upstream * sine
        return (
            tf.math.divide_no_nan(sum_to(radial, g_xx), 2.0 * g_xx),
            upstream * angle * (1.0 / math.pi),
            tf.math.divide_no_nan(sum_to(radial, g_yy), 2.0 * g_yy),
        )

    return sine - angle * opposite, gradient


@custom_gradient
def _order_two(g_xx, g_xy, g_yy):
    squared, sine, weight = _sine_and_weight(g_xx, g_xy, g_yy)
    of_order_one = sine * (1.0 / math.pi) + weight * g_xy

    def gradient(upstream):
        radial = upstream * sine * g_xy
        direct = upstream * weight

        def in_norm(norms, other_norms):
            through_angle = tf.math.divide_no_nan(sum_to(radial, norms), math.pi * norms)
            return (through_angle + sum_to(direct * other_norms, norms)) / 3.0

        return in_norm(g_xx, g_yy), (4.0 / 3.0) * upstream * of_order_one, in_norm(g_yy, g_xx)

    return g_xy * of_order_one + weight * squared / 3.0, gradient


_ORDERS = {0: _order_zero, 1: _order_one, 2: _order_two}


def _sine_and_weight(g_xx, g_xy, g_yy):
    """Returns `s^2`, `s` and `(pi - t) / pi`."""
    # Terms of nearly equal inputs cancel here. Forms without cancellation (from R) are not better
    # in practice: the rounding of the Gram entries themselves is as large, and its effect on orders
    # 1 and 2 is of size t^3.
    squared = tf.nn.relu(g_xx * g_yy - tf.square(g_xy))
    sine = tf.sqrt(squared)
    return squared, sine, tf.atan2(sine, -g_xy) * (1.0 / math.pi)


def _power(values, order):
    return (tf.ones_like, tf.identity, tf.square)[order](values)
