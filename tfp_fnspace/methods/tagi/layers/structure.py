r"""Layers that move or add units, which are linear maps with known coefficients.

A map with coefficients c acts on variances with c^2. The ordinary derivative of each part is
therefore also the rule by which innovations pass back.
"""

import math
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tfp_fnspace.methods.tagi import propagation
from tfp_fnspace.methods.tagi.layers.base import (
    Inputs,
    TAGILayer,
    is_pair,
    mean_shape,
    traced_shape,
)
from tfp_fnspace.typing import Config, GaussianMoments, Shape, Tensor


class ConstantMapLayer(TAGILayer):
    """Base of layers that apply a linear map with known coefficients c to one input.

    Means go through the map, variances through the map with the coefficients c^2. The two are the
    same if all coefficients are 0 or 1.
    """

    makes_moments = False

    def _map(self, tensor):
        raise NotImplementedError

    def _squared_map(self, tensor):
        """Applies the map with squared coefficients."""
        return self._map(tensor)

    def call(self, inputs: Inputs) -> GaussianMoments | Tensor:
        mean, variance = self._unpack(inputs)
        if variance is None:
            return self._map(mean)
        return GaussianMoments(self._map(mean), self._squared_map(variance))

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        """Returns the shape of the output's mean and variance, given that of the input's mean."""
        return traced_shape(self._map, [mean_shape(input_shape)], self.variable_dtype)


class _ReshapingLayer(ConstantMapLayer):
    """Base of layers that reshape moments to `(N, *_target(shape without N))`."""

    def _target(self, shape):
        raise NotImplementedError

    def _map(self, tensor):
        return tf.reshape(tensor, [tf.shape(tensor)[0], *self._target(tensor.shape[1:])])

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        batch, *shape = mean_shape(input_shape)
        return (batch, *self._target(shape))


@keras.saving.register_keras_serializable(package="tfp_fnspace.tagi")
class Flatten(_ReshapingLayer):
    """Flattens all axes but the first, of the mean and of the variance.

    Args:
        **kwargs: `name`, `dtype`.

    Call arguments:
        inputs: `(mean, variance)` pair of tensors `[N, ...]`, or one tensor.

    Returns:
        `GaussianMoments` of tensors `[N, D]` (a tensor for a tensor).

    Raises:
        ValueError: If an axis other than the first has no known size.
    """

    def _target(self, shape):
        return (_known_size(self, shape),)

    def get_config(self) -> Config:
        return super().get_config()  # Keras needs this for a class without arguments


@keras.saving.register_keras_serializable(package="tfp_fnspace.tagi")
class Reshape(_ReshapingLayer):
    """Reshapes the mean and the variance.

    Args:
        target_shape: Tuple of integers without the batch axis; one may be -1.
        **kwargs: `name`, `dtype`.

    Call arguments:
        inputs: `(mean, variance)` pair of tensors `[N, ...]`, or one tensor.

    Returns:
        `GaussianMoments` of tensors `[N, *target_shape]` (a tensor for a tensor).

    Raises:
        ValueError: If the sizes do not match, or an axis of the inputs has no known size.
    """

    def __init__(self, target_shape: Sequence[int], **kwargs: Any):
        super().__init__(**kwargs)
        self.target_shape = tuple(target_shape)

    def _target(self, shape):
        size = _known_size(self, shape)
        known = math.prod(d for d in self.target_shape if d != -1)
        target = tuple(size // max(known, 1) if d == -1 else d for d in self.target_shape)
        if math.prod(target) != size:
            raise ValueError(
                f"`target_shape` must have as many elements as the inputs, {size}. "
                f"Received: target_shape={self.target_shape}"
            )
        return target

    def get_config(self) -> Config:
        return {**super().get_config(), "target_shape": self.target_shape}


def _known_size(layer, shape):
    if any(size is None for size in shape):
        raise ValueError(
            f"{type(layer).__name__} needs inputs whose axes, except the first, have known "
            f"sizes. Received: shape={('N', *shape)}"
        )
    return math.prod(shape)


class _MergingLayer(TAGILayer):
    """Base of layers with several inputs, each of them moments or an exactly known tensor.

    A step of the outputs counts if it counts in all inputs.
    """

    heeds_masks = True
    makes_moments = False

    def _items(self, inputs):
        if not isinstance(inputs, list | tuple) or len(inputs) < 2:
            raise ValueError(
                f"{type(self).__name__} merges a list of at least two inputs. "
                f"Received: inputs={inputs!r}"
            )
        return list(inputs)

    def _shapes(self, inputs):
        return [(item[0] if is_pair(item) else item).shape for item in self._items(inputs)]

    def _merge(self, tensors):
        raise NotImplementedError

    def call(self, inputs: Sequence[Inputs]) -> GaussianMoments | Tensor:
        means, variances = zip(*map(self._unpack, self._items(inputs)), strict=True)
        mean = self._merge(means)
        if any(map(is_pair, inputs)) and propagation.sampling_active():
            return GaussianMoments(mean, tf.zeros_like(mean))
        if not any(map(is_pair, inputs)):
            return mean
        known = [
            tf.zeros_like(m) if v is None else v for m, v in zip(means, variances, strict=True)
        ]
        return GaussianMoments(mean, self._merge(known))


@keras.saving.register_keras_serializable(package="tfp_fnspace.tagi")
class Add(_MergingLayer):
    """Sum of Gaussian units, `m = sum m_i`, `S = sum S_i`.

    The branches are treated as independent. The covariance of branches that share an ancestor (a
    residual connection) is dropped, as everywhere in TAGI's diagonal approximation.

    Args:
        **kwargs: `name`, `dtype`.

    Call arguments:
        inputs: List of at least two `(mean, variance)` pairs or tensors, of one shape.

    Returns:
        `GaussianMoments` of the same shape (a tensor if all inputs are tensors).
    """

    def _merge(self, tensors):
        return tf.add_n(tensors)

    def compute_output_shape(self, input_shape: Sequence[Shape]) -> Shape:
        shapes = [mean_shape(shape) for shape in input_shape]
        if any(shape[1:] != shapes[0][1:] for shape in shapes):
            raise ValueError(f"Add needs inputs of one shape. Received: shapes={shapes}")
        return shapes[0]

    def get_config(self) -> Config:
        return super().get_config()


@keras.saving.register_keras_serializable(package="tfp_fnspace.tagi")
class Concatenate(_MergingLayer):
    """Joins Gaussian units along an axis.

    Args:
        axis: Axis to join along, an integer other than the batch axis 0.
        **kwargs: `name`, `dtype`.

    Call arguments:
        inputs: List of at least two `(mean, variance)` pairs or tensors that agree in all other
            axes.

    Returns:
        `GaussianMoments` (a tensor if all inputs are tensors).
    """

    def __init__(self, axis: int = -1, **kwargs: Any):
        super().__init__(**kwargs)
        if axis == 0:
            raise ValueError(f"`axis` must not be the batch axis. Received: axis={axis!r}")
        self.axis = int(axis)

    @property
    def heeds_masks(self) -> bool:
        return self.axis == -1  # along other axes, steps would be joined or become units

    def _merge(self, tensors):
        return tf.concat(tensors, axis=self.axis)

    def compute_output_shape(self, input_shape: Sequence[Shape]) -> Shape:
        shapes = [list(mean_shape(shape)) for shape in input_shape]
        rank = len(shapes[0])
        if self.axis % rank == 0 or not -rank <= self.axis < rank:
            raise ValueError(
                "`axis` must be an axis of the inputs, not the batch axis. Received: "
                f"axis={self.axis}, shapes={[mean_shape(shape) for shape in input_shape]}"
            )
        sizes = [shape.pop(self.axis) for shape in shapes]
        if any(shape[1:] != shapes[0][1:] for shape in shapes):
            raise ValueError(
                f"Concatenate needs inputs that agree in all axes but {self.axis}. "
                f"Received: shapes={[mean_shape(shape) for shape in input_shape]}"
            )
        joined = list(mean_shape(input_shape[0]))
        joined[self.axis] = None if None in sizes else sum(sizes)
        return tuple(joined)

    def get_config(self) -> Config:
        return {**super().get_config(), "axis": self.axis}
