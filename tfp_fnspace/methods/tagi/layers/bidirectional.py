"""A recurrent layer in both directions of time."""

from typing import Any

import keras
import tensorflow as tf

from tfp_fnspace.boundary.arguments import checked_choice
from tfp_fnspace.methods.tagi import propagation
from tfp_fnspace.methods.tagi.layers.base import Inputs, TAGILayer, mean_shape, one_mask
from tfp_fnspace.methods.tagi.layers.recurrent import LSTM
from tfp_fnspace.typing import Config, GaussianMoments, Shape


@keras.saving.register_keras_serializable(package="tfp_fnspace.tagi")
class Bidirectional(TAGILayer):
    """Runs a recurrent layer forward and a second one backward in time, and merges them.

    The two layers have separate weights. Their outputs are treated as independent, although they
    share inputs: `"sum"` and `"ave"` add variances, and `"mul"` is the product of Gaussians.

    Args:
        layer: `LSTM`.
        merge_mode: `"concat"`, `"sum"`, `"ave"` or `"mul"`.
        backward_layer: `LSTM` that runs backwards; by default a new one like `layer`.
        **kwargs: `name`, `dtype`.

    Call arguments:
        inputs: `(mean, variance)` pair of tensors `[N, T, D]`, or one tensor.
        mask: As for `LSTM`.

    Returns:
        `GaussianMoments` of tensors `[N, U]`, or `[N, T, U]` in the order of the inputs if the
        layers return sequences; U is twice the units for `"concat"`.

    Attributes:
        forward_layer, backward_layer: The two layers.

    Raises:
        ValueError: If `merge_mode` is unknown or the layers do not fit together.
    """

    heeds_masks = True

    def __init__(
        self,
        layer: LSTM | Config,
        merge_mode: str = "concat",
        *,
        backward_layer: LSTM | Config | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.merge_mode = checked_choice("merge_mode", merge_mode, ("concat", "sum", "ave", "mul"))
        self.forward_layer, self.backward_layer = map(_deserialized, (layer, backward_layer))
        parts = [self.forward_layer, self.backward_layer or self.forward_layer]
        if not all(isinstance(part, LSTM) for part in parts):
            raise ValueError(
                "`layer` and `backward_layer` must be layers fns.tagi.LSTM. "
                f"Received: layer={layer!r}, backward_layer={backward_layer!r}"
            )
        if self.backward_layer is None:
            config = self.forward_layer.get_config()
            changes = {
                "name": f"backward_{config['name']}",
                "go_backwards": not config["go_backwards"],
            }
            self.backward_layer = type(self.forward_layer).from_config({**config, **changes})
        first, second = self.forward_layer, self.backward_layer
        same = first.return_sequences == second.return_sequences
        if not same or first.go_backwards == second.go_backwards:
            raise ValueError(
                "The layers must differ in `go_backwards` and agree in `return_sequences`. "
                f"Received: layer={first.get_config()}, backward_layer={second.get_config()}"
            )

    def build(self, input_shape: Shape) -> None:
        for layer in (self.forward_layer, self.backward_layer):
            if not layer.built:  # those of a loaded layer are built
                layer.build(input_shape)

    def _mask_behind(self, mask):
        return self.forward_layer._mask_behind(mask)

    def call(self, inputs: Inputs, mask: Any = None) -> GaussianMoments:
        mask = one_mask(mask)
        first, second = (
            layer(inputs, mask=mask) for layer in (self.forward_layer, self.backward_layer)
        )
        if self.backward_layer.return_sequences:
            second = GaussianMoments(*(tf.reverse(part, [1]) for part in second))
        if self.merge_mode == "mul":
            return GaussianMoments(*propagation.product(tf.multiply, first, second))
        pairs = list(zip(first, second, strict=True))
        if self.merge_mode == "concat":
            return GaussianMoments(*(tf.concat(pair, axis=-1) for pair in pairs))
        mean, variance = (tf.add(*pair) for pair in pairs)
        if self.merge_mode == "ave":
            mean, variance = mean / 2.0, variance / 4.0
        return GaussianMoments(mean, variance)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        shapes = [
            layer.compute_output_shape(mean_shape(input_shape))
            for layer in (self.forward_layer, self.backward_layer)
        ]
        units = [shape[-1] for shape in shapes]
        return (*shapes[0][:-1], sum(units) if self.merge_mode == "concat" else units[0])

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "layer": keras.saving.serialize_keras_object(self.forward_layer),
            "merge_mode": self.merge_mode,
            "backward_layer": keras.saving.serialize_keras_object(self.backward_layer),
        }


def _deserialized(layer):
    return keras.saving.deserialize_keras_object(layer) if isinstance(layer, dict) else layer
