"""Checks of users' networks: what they are, and how their Keras layers act in training."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfp_fnspace.layers.draws import function_draws
from tfp_fnspace.layers.variational import VariationalLayer
from tfp_fnspace.typing import Network

#: Layers whose training pass changes what they do in prediction.
_LEARNS_IN_A_PASS = (keras.layers.BatchNormalization, keras.layers.SpectralNormalization)


def functional(network: Network | Sequence[Any]) -> Network:
    """Returns a network that is given as a Keras model or as its inputs and outputs.

    Raises:
        TypeError: If it is something else, or a model that is not built.
    """
    if isinstance(network, tuple | list) and len(network) == 2:
        network = keras.Model(*network, name="network")
    if not isinstance(network, keras.Model) or not getattr(network, "inputs", None):
        raise TypeError(
            "`network` must be a built Keras model, or its symbolic inputs and outputs. "
            f"Received: network={network!r}"
        )
    return network


def seed_generators(model: keras.Model) -> list[keras.random.SeedGenerator]:
    """Returns a list of the `SeedGenerator` objects in the Keras layers of a model."""
    return [
        value
        for layer in model._flatten_layers()
        for value in vars(layer).values()
        if isinstance(value, keras.random.SeedGenerator)
    ]


def acts_in_training(layer: keras.layers.Layer) -> bool:
    """Returns whether a Keras layer behaves differently in training than in prediction.

    Args:
        layer: Keras layer; its inner layers are not considered.

    Returns:
        False for frozen layers (`trainable = False`), which do not change, and for layers of this
        library.
    """
    if not getattr(layer, "trainable", False) or isinstance(layer, VariationalLayer):
        return False
    if isinstance(layer, _LEARNS_IN_A_PASS):
        return True
    rates = [getattr(layer, name, None) for name in ("dropout", "recurrent_dropout")]
    rates = [rate for rate in rates if isinstance(rate, int | float)]
    draws = any(isinstance(v, keras.random.SeedGenerator) for v in vars(layer).values())
    return draws and (not rates or any(rates))


def refuse_acting_in_training(network: keras.layers.Layer, where: str) -> None:
    """Refuses networks whose function in training differs from that in prediction.

    Args:
        network: Keras model or layer.
        where: What it is the network of, for the message.

    Raises:
        ValueError: If there are such layers; the message names them.
    """
    found = [
        f"{layer.name} ({type(layer).__name__})"
        for layer in network._flatten_layers()
        if acts_in_training(layer)
    ]
    if found:
        raise ValueError(
            f"The network of {where} must be the same function of each row in training as in "
            "prediction. Dropout, noise, augmentation and moving averages are allowed only in "
            "layers that are frozen (`trainable = False`), which run as in prediction. "
            f"Received: layers {found}"
        )
    refuse_states(network, where)


def refuse_states(network: keras.layers.Layer, where: str) -> None:
    """Refuses recurrent layers that pass a state from batch to batch.

    Args:
        network: Keras model or layer.
        where: What it is the network of, for the message.

    Raises:
        ValueError: If there are such layers; the message names them.
    """
    found = [v.name for v in network._flatten_layers() if getattr(v, "stateful", False)]
    if found:
        raise ValueError(
            f"The rows of {where} are drawn in any order: its network must not have recurrent "
            f"layers with `stateful=True`. Received: layers {found}"
        )


def refuse_mixed_rows(network: Network) -> None:
    """Refuses networks of function draws in which a row sees the other rows of its batch.

    Layers behind a random one see `[S, N, ...]`. Those that treat the second axis as a part of a
    row (recurrent and attention layers, `GroupNormalization`, `Flatten`) would mix the rows. The
    network is tried on a row between two others, and between two more. As many rows are rounded in
    the same way, so that its outputs for that row are equal however steep it is.

    Args:
        network: Keras model from `[N, ...]` to `[S, N, D]`.

    Raises:
        ValueError: If its outputs for that row differ.
    """
    generator = np.random.default_rng(0)
    rows = [_rows_for(tensor, generator) for tensor in network.inputs]
    if any(values is None for values in rows):
        return

    def functions(which):
        inputs = [tf.constant(values[which]) for values in rows]
        packed = inputs[0]
        if not isinstance(network, keras.Sequential):
            packed = keras.tree.pack_sequence_as(network.input, inputs)
        with function_draws(2, 0, noise="joint"):
            return tf.cast(network(packed, training=False), tf.float64).numpy()

    try:
        found, other = functions([0, 1, 2]), functions([3, 1, 4])
    except (ValueError, TypeError, tf.errors.OpError):
        return  # not for rows like these; the user's rows will show what is wrong
    size = np.abs(found).max(initial=0.0)
    is_half = "16" in network.outputs[0].dtype
    same = found.shape[:2] == other.shape[:2] == (2, 3)
    if same and np.isfinite(size):
        tolerance = size * (0.05 if is_half else 1e-3)
        same = np.allclose(found[:, 1], other[:, 1], rtol=0.0, atol=tolerance)
    if not same:
        raise ValueError(
            "The function values of a row must not depend on the other rows of its batch. Layers "
            "behind a random one see the draws [S, N, ...]: put those that treat the second axis "
            "as a part of a row (recurrent, attention, pooling, `Flatten`, `GroupNormalization`) "
            "into `fns.layers.PerSample(layer)`. Received: network "
            f"{network.name!r} with layers {[layer.name for layer in network.layers]}"
        )


def _rows_for(tensor, generator):
    """Returns five rows to try a network on, or None if the input takes no numbers."""
    shape = (5, *(4 if size is None else size for size in tensor.shape[1:]))
    dtype = keras.backend.standardize_dtype(tensor.dtype)
    if "float" in dtype:
        return generator.normal(size=shape).astype("float32")
    return generator.integers(0, 2, shape).astype(dtype) if "int" in dtype else None
