"""Layers that enlarge images, which are linear maps with known coefficients."""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tfp_fnspace.boundary.arguments import check_count, checked_choice
from tfp_fnspace.methods.tagi.layers.convolution import Sizes, checked_sizes
from tfp_fnspace.methods.tagi.layers.structure import ConstantMapLayer
from tfp_fnspace.typing import Config


@keras.saving.register_keras_serializable(package="tfp_fnspace.tagi")
class ZeroPadding2D(ConstantMapLayer):
    """Adds rows and columns of exactly known zeros, with mean 0 and variance 0.

    Args:
        padding: Integer, a pair (rows, columns), or a pair of pairs ((top, bottom), (left,
            right)) of non-negative integers.
        data_format: `None` or `"channels_last"`.
        **kwargs: `name`, `dtype`.

    Call arguments:
        inputs: `(mean, variance)` pair of tensors `[N, H, W, C]`, or one tensor.

    Returns:
        `GaussianMoments` of tensors `[N, top + H + bottom, left + W + right, C]` (a tensor for a
        tensor).

    Raises:
        ValueError: If `padding` is none of these.
    """

    def __init__(
        self,
        padding: Sizes | Sequence[Sequence[int]] = (1, 1),
        data_format: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        checked_choice("data_format", data_format, (None, "channels_last"))
        pair = padding if isinstance(padding, list | tuple) else (padding, padding)
        sides = [side if isinstance(side, list | tuple) else (side, side) for side in pair]
        if [len(side) for side in sides] != [2, 2]:
            raise ValueError(
                "`padding` must be an integer, a pair of them, or two pairs. "
                f"Received: padding={padding!r}"
            )
        for size in (size for side in sides for size in side):
            check_count("padding", size, least=0)
        self.padding = tuple(map(tuple, sides))

    def _map(self, tensor):
        return tf.pad(tensor, [(0, 0), *self.padding, (0, 0)])

    def get_config(self) -> Config:
        return {**super().get_config(), "padding": self.padding}


@keras.saving.register_keras_serializable(package="tfp_fnspace.tagi")
class UpSampling2D(ConstantMapLayer):
    """Enlarges images by repeating or interpolating pixels.

    An interpolation is a matrix along each axis, `R_h x R_w^T`; for variances, its elements are
    squared. Copies of a pixel, and interpolated neighbours, are correlated; only their variances
    are kept.

    Args:
        size: Factor, an integer or a pair (rows, columns).
        data_format: `None` or `"channels_last"`.
        interpolation: `"nearest"`, `"bilinear"`, `"bicubic"`, `"lanczos3"` or `"lanczos5"`.
        **kwargs: `name`, `dtype`.

    Call arguments:
        inputs: `(mean, variance)` pair of tensors `[N, H, W, C]`, or one tensor. H and W must be
            known except with `"nearest"`.

    Returns:
        `GaussianMoments` of tensors `[N, size[0] * H, size[1] * W, C]` (a tensor for a tensor).

    Raises:
        ValueError: If an argument is not as described.
    """

    def __init__(
        self,
        size: Sizes = (2, 2),
        data_format: str | None = None,
        interpolation: str = "nearest",
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        checked_choice("data_format", data_format, (None, "channels_last"))
        self.size = checked_sizes("size", size, 2)
        methods = ("nearest", "bilinear", "bicubic", "lanczos3", "lanczos5")
        self.interpolation = checked_choice("interpolation", interpolation, methods)

    def _map(self, tensor):
        return self._resize(tensor, tf.identity)

    def _squared_map(self, tensor):
        return self._resize(tensor, tf.square)

    def _resize(self, tensor, function):
        if self.interpolation == "nearest":  # coefficients 0 and 1
            return tf.repeat(tf.repeat(tensor, self.size[0], axis=1), self.size[1], axis=2)
        if None in tensor.shape[1:3]:
            raise ValueError(
                f"interpolation={self.interpolation!r} needs images of a known size. "
                f"Received: shape={tuple(tensor.shape)}"
            )
        rows, columns = (
            tf.cast(function(self._matrix(length, factor)), tensor.dtype)
            for length, factor in zip(tensor.shape[1:3], self.size, strict=True)
        )
        return tf.einsum("ph,nhwc,qw->npqc", rows, tensor, columns)

    def _matrix(self, length, factor):
        """Returns the interpolation of each unit vector, `[factor * length, length]`.

        It is a constant of the graph, since not every device has the operations of every
        interpolation.
        """
        size, method = (factor * length, 1), self.interpolation
        with tf.init_scope(), tf.device("CPU"):
            unit_vectors = tf.eye(length)[:, :, tf.newaxis, tf.newaxis]
            resized = tf.image.resize(unit_vectors, size, method=method).numpy()
        return resized[:, :, 0, 0].T

    def get_config(self) -> Config:
        return {**super().get_config(), "size": self.size, "interpolation": self.interpolation}
