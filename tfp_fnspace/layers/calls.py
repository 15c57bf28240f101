"""What layers of this library cannot be called with, by Keras or by users, and say so."""

import keras
from keras.src.backend.common import global_state

from tfp_fnspace.typing import GaussianMoments


def plain_keras_model():
    """The compiled Keras model, none of this library, that now trains or scores layers, or None.

    Keras tells the layers of a model, while it trains or scores it, whether it trains; the models
    of this library call networks of such layers without. The class of a user whose `call` has no
    argument `training`, or whose own loop leaves it out, tells its layers nothing.
    """
    context = global_state.get_global_attribute("current_call_ctx")
    model = getattr(context, "entry_layer", None)
    if not isinstance(model, keras.Model) or not model.compiled:
        return None
    if getattr(model, "trains_bayesian_layers", False):
        return None
    is_of_a_user = not type(model).__module__.startswith("keras.")
    return model if is_of_a_user or context.get_value("training") is not None else None


def refuse_keras_training(layer, instead):
    """Refuses the `fit` and `evaluate` of a compiled Keras model that is none of this library.

    Args:
        layer: Keras layer that is about to be called.
        instead: What trains such layers, for the message.

    Raises:
        ValueError: If it is called by one.
    """
    model = plain_keras_model()
    if model is not None:
        raise ValueError(
            f"A layer that returns no plain tensors cannot be trained or scored by a plain Keras "
            f"model: use {instead}. Received: layer {layer.name!r} of type {type(layer).__name__} "
            f"in {type(model).__name__} {model.name!r}"
        )


def refuse_moments(layer, inputs):
    """Refuses the moments that TAGI layers make: other layers take values or draws.

    Args:
        layer: Keras layer that is about to be called.
        inputs: Its first argument.

    Raises:
        TypeError: If they are moments.
    """
    if isinstance(inputs, GaussianMoments):
        shape = tuple(inputs.mean.shape)
        raise TypeError(
            "A layer behind TAGI layers, whose outputs are means and variances, must be one of "
            f"`fns.tagi` too. Received: layer {layer.name!r} of type {type(layer).__name__} with "
            f"inputs of type GaussianMoments of shape {shape}"
        )


def masks_of(*inputs):
    """The masks that Keras keeps with tensors of any structure, each once, a list."""
    masks = [getattr(tensor, "_keras_mask", None) for tensor in keras.tree.flatten(inputs)]
    return list({id(mask): mask for mask in masks if mask is not None}.values())


def refuse_masks(layer, inputs, instead):
    """Refuses inputs with a mask, which a layer would not heed: padding would change the answer.

    Args:
        layer: Keras layer that is about to be called.
        inputs: Its arguments.
        instead: What takes masks, for the message.

    Raises:
        ValueError: If a tensor has one.
    """
    if masks_of(inputs):
        raise ValueError(
            f"A layer of type {type(layer).__name__} does not heed masks: padded steps would "
            f"change the answer. {instead} Received: layer {layer.name!r} behind `Masking` or an "
            "`Embedding` with mask_zero=True"
        )


def refuse_masked_units(network, standardize):
    """Refuses `Masking` of inputs that are standardised, whose padding has another value.

    Args:
        network: Keras model.
        standardize: Whether its inputs are standardised.

    Raises:
        ValueError: If both is the case.
    """
    masking = [v.name for v in network._flatten_layers() if isinstance(v, keras.layers.Masking)]
    if standardize and masking:
        raise ValueError(
            "A network with `Masking` takes inputs as they are, `standardize=False`: standardised "
            "padding has another value than the one that is masked. "
            f"Received: standardize={standardize!r}, layers {masking}"
        )
