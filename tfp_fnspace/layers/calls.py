"""Checks of how layers of this library are called, by Keras or by users."""

from typing import Any

import keras
from keras.src.backend.common import global_state

from tfp_fnspace.typing import GaussianMoments, Tensor


def plain_keras_model() -> keras.Model | None:
    """Returns the compiled plain Keras model that now trains or scores layers, or None.

    While Keras trains or scores a model, it passes `training` to the layers. The models of this
    library call networks of such layers without it. A user's class passes nothing to its layers if
    its `call` has no argument `training`, or if its own loop leaves the argument out.
    """
    context = global_state.get_global_attribute("current_call_ctx")
    model = getattr(context, "entry_layer", None)
    if not isinstance(model, keras.Model) or not model.compiled:
        return None
    if getattr(model, "trains_bayesian_layers", False):
        return None
    is_of_a_user = not type(model).__module__.startswith("keras.")
    return model if is_of_a_user or context.get_value("training") is not None else None


def refuse_keras_training(layer: keras.layers.Layer, instead: str) -> None:
    """Refuses the `fit` and `evaluate` of a compiled Keras model from outside this library.

    Args:
        layer: Keras layer that is about to be called.
        instead: What trains such layers, for the message.

    Raises:
        ValueError: If the layer is called by one.
    """
    model = plain_keras_model()
    if model is not None:
        raise ValueError(
            "A layer that does not return plain tensors cannot be trained or scored by a plain "
            f"Keras model: use {instead}. Received: layer {layer.name!r} of type "
            f"{type(layer).__name__} in {type(model).__name__} {model.name!r}"
        )


def refuse_moments(layer: keras.layers.Layer, inputs: Any) -> None:
    """Refuses the moments that TAGI layers return: other layers take values or draws.

    Args:
        layer: Keras layer that is about to be called.
        inputs: Its first argument.

    Raises:
        TypeError: If the inputs are moments.
    """
    if isinstance(inputs, GaussianMoments):
        shape = tuple(inputs.mean.shape)
        raise TypeError(
            "A layer behind TAGI layers, whose outputs are means and variances, must be one of "
            f"`fns.tagi` too. Received: layer {layer.name!r} of type {type(layer).__name__} with "
            f"inputs of type GaussianMoments of shape {shape}"
        )


def masks_of(*inputs: Any) -> list[Tensor]:
    """Returns a list of the masks that Keras keeps with tensors of any structure, each once."""
    masks = [getattr(tensor, "_keras_mask", None) for tensor in keras.tree.flatten(inputs)]
    return list({id(mask): mask for mask in masks if mask is not None}.values())


def refuse_masks(layer: keras.layers.Layer, inputs: Any, instead: str) -> None:
    """Refuses inputs with a mask that a layer would ignore, since padding would change its outputs.

    Args:
        layer: Keras layer that is about to be called.
        inputs: Its arguments.
        instead: What takes masks, for the message.

    Raises:
        ValueError: If a tensor has a mask.
    """
    if masks_of(inputs):
        raise ValueError(
            f"A layer of type {type(layer).__name__} does not heed masks: padded steps would "
            f"change the answer. {instead} Received: layer {layer.name!r} behind `Masking` or an "
            "`Embedding` with mask_zero=True"
        )


def refuse_masked_units(network: keras.Model, standardize: bool) -> None:
    """Refuses `Masking` of standardised inputs, whose padding has another value.

    Args:
        network: Keras model.
        standardize: Whether its inputs are standardised.

    Raises:
        ValueError: If the network has `Masking` and its inputs are standardised.
    """
    masking = [v.name for v in network._flatten_layers() if isinstance(v, keras.layers.Masking)]
    if standardize and masking:
        raise ValueError(
            "A network with `Masking` needs inputs as they are, `standardize=False`: standardised "
            "padding has another value than the one that is masked. "
            f"Received: standardize={standardize!r}, layers {masking}"
        )
