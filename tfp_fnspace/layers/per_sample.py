"""Deterministic layers in a network of function draws."""

import inspect
from collections.abc import Sequence
from typing import Any, Self

import keras
import tensorflow as tf

from tfp_fnspace.layers import calls
from tfp_fnspace.layers.draws import current_draws
from tfp_fnspace.typing import Config, Shape, Tensor

#: Part of the error about a mask.
_INSTEAD = "Recurrent layers and GlobalAveragePooling1D do."


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class PerSample(keras.layers.Layer):
    """Applies a layer to each draw; the batch axis of Keras then holds draws and rows together.

    Layers behind the first random one see `[S, N, ...]`. Layers that act entry by entry work as
    they are. Pooling, `Flatten`, `Reshape`, `Concatenate`, recurrent and similar layers must be
    wrapped in this one. The dtype policy is that of the layer.

    Args:
        layer: Keras layer without an axis of draws.
        **kwargs: `name`, `dtype`.

    Call arguments:
        inputs: Tensor `[S, N, ...]`, or a list of them.
        mask: Boolean tensor `[N, T]` that says which steps of a row count, in all draws, for a
            layer that uses masks. Keras passes it on.

    Returns:
        Tensor `[S, N, ...]`.

    Raises:
        TypeError: If `layer` is not a layer.
        ValueError: If inputs have a mask that `layer` ignores.

    Example:
        >>> hidden = layers.VariationalConv2D(8, 3, activation="relu")(keras.Input((28, 28, 1)))
        >>> hidden = PerSample(keras.layers.MaxPooling2D())(hidden)  # [S, N, 13, 13, 8]
    """

    def __init__(self, layer: keras.layers.Layer, **kwargs: Any):
        if not isinstance(layer, keras.layers.Layer):
            raise TypeError(f"`layer` must be a Keras layer. Received: layer={layer!r}")
        super().__init__(**{"name": f"each_{layer.name}", "autocast": False, **kwargs})
        self.layer = layer

    def __call__(self, inputs: Any, **kwargs: Any) -> Any:
        calls.refuse_moments(self, inputs)
        if isinstance(inputs, list | tuple) or not self.layer.supports_masking:
            calls.refuse_masks(self.layer, inputs, _INSTEAD)
        return super().__call__(inputs, **kwargs)

    def build(self, input_shape: Shape | Sequence[Shape]) -> None:
        if not self.layer.built:  # a shared layer, or that of a loaded one, is built
            self.layer.build(_each_shape(_without_draws, input_shape))

    def call(self, inputs: Tensor | Sequence[Tensor], mask: Tensor | None = None) -> Tensor:
        several = isinstance(inputs, list | tuple)
        tensors = [tf.convert_to_tensor(x) for x in (inputs if several else [inputs])]
        shape = tf.shape(tensors[0])[:2]
        folded = [
            tf.ensure_shape(
                tf.reshape(x, tf.concat([[shape[0] * shape[1]], tf.shape(x)[2:]], axis=0)),
                [None, *x.shape[2:]],
            )
            for x in tensors
        ]
        options = {}
        if not several and mask is not None and self._takes_mask:
            options["mask"] = tf.tile(tf.cast(mask, tf.bool), [shape[0], 1])
        outputs = self.layer(folded if several else folded[0], **options)
        unfolded = tf.reshape(outputs, tf.concat([shape, tf.shape(outputs)[1:]], axis=0))
        return tf.ensure_shape(unfolded, [*tensors[0].shape[:2], *outputs.shape[1:]])

    @property
    def _takes_mask(self):
        return "mask" in inspect.signature(self.layer.call).parameters

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Any:
        if all(mask is None for mask in keras.tree.flatten(previous_mask)):
            return None
        return self.layer.compute_mask(inputs, previous_mask)

    def compute_output_spec(self, inputs: Any, mask: Any = None) -> keras.KerasTensor:
        shapes = keras.tree.map_structure(lambda x: tuple(x.shape), inputs)
        each = keras.tree.map_structure(
            lambda x: keras.KerasTensor(_without_draws(x.shape), x.dtype), inputs
        )
        dtype = self.layer.compute_output_spec(each).dtype
        return keras.KerasTensor(self.compute_output_shape(shapes), dtype)

    def compute_output_shape(self, input_shape: Any) -> Shape:
        first = input_shape[0] if _is_several(input_shape) else input_shape
        inner = self.layer.compute_output_shape(_each_shape(_without_draws, input_shape))
        return (*first[:2], *inner[1:])

    def get_config(self) -> Config:
        return {**super().get_config(), "layer": keras.saving.serialize_keras_object(self.layer)}

    @classmethod
    def from_config(cls, config: Config, custom_objects: dict[str, Any] | None = None) -> Self:
        layer = keras.saving.deserialize_keras_object(
            config["layer"], custom_objects=custom_objects
        )
        return cls(**{**config, "layer": layer})


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class RepeatSamples(keras.layers.Layer):
    """Adds an axis of draws to tensors without one: `[N, ...]` to `[S, N, ...]`.

    It is for branches of a network that merge with a random one.

    Args:
        **kwargs: `name`, `dtype`.

    Call arguments:
        inputs: Tensor `[N, ...]`.

    Returns:
        Tensor `[S, N, ...]`, S equal copies.
    """

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        self.built = True

    def __call__(self, inputs: Any, **kwargs: Any) -> Any:
        calls.refuse_moments(self, inputs)
        return super().__call__(inputs, **kwargs)

    def call(self, inputs: Tensor) -> Tensor:
        x = tf.convert_to_tensor(inputs)[tf.newaxis]
        return tf.repeat(x, current_draws().num_samples, axis=0)

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Any:
        return previous_mask  # the mask of the rows holds for all draws

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (None, *input_shape)


def _is_several(shape):
    return len(shape) > 0 and isinstance(shape[0], list | tuple)


def _each_shape(function, shape):
    return [function(each) for each in shape] if _is_several(shape) else function(shape)


def _without_draws(shape):
    return (None, *shape[2:])
