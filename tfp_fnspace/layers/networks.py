"""What the networks that users give may contain: how their Keras layers act in training."""

import keras
import numpy as np
import tensorflow as tf

from tfp_fnspace.layers.draws import function_draws
from tfp_fnspace.layers.variational import VariationalLayer

#: Layers whose pass in training changes what they do in prediction.
_LEARNS_IN_A_PASS = (keras.layers.BatchNormalization, keras.layers.SpectralNormalization)


def seed_generators(model):
    """The states of the noise of the Keras layers of a model, a list of `SeedGenerator`."""
    return [
        value
        for layer in model._flatten_layers()
        for value in vars(layer).values()
        if isinstance(value, keras.random.SeedGenerator)
    ]


def acts_in_training(layer):
    """Whether a Keras layer does something else in training than in prediction.

    Args:
        layer: Keras layer, without the layers that it has.

    Returns:
        False for those that are frozen (`trainable = False`), which stay what they are, and for
        layers of this library.
    """
    if not getattr(layer, "trainable", False) or isinstance(layer, VariationalLayer):
        return False
    if isinstance(layer, _LEARNS_IN_A_PASS):
        return True
    rates = [getattr(layer, name, None) for name in ("dropout", "recurrent_dropout")]
    rates = [rate for rate in rates if isinstance(rate, int | float)]
    draws = any(isinstance(v, keras.random.SeedGenerator) for v in vars(layer).values())
    return draws and (not rates or any(rates))


def refuse_acting_in_training(network, where):
    """Refuses networks that are another function in training than in prediction.

    Args:
        network: Keras model or layer.
        where: What it is the network of, for the message.

    Raises:
        ValueError: With the layers that act otherwise in training.
    """
    found = [
        f"{layer.name} ({type(layer).__name__})"
        for layer in network._flatten_layers()
        if acts_in_training(layer)
    ]
    if found:
        raise ValueError(
            f"The network of {where} must be the same function of each row in training as in "
            "prediction: dropout, noise, augmentation and moving averages have no place in it, "
            "but in layers that are frozen (`trainable = False`) and run as in prediction. "
            f"Received: layers {found}"
        )
    refuse_states(network, where)


def refuse_states(network, where):
    """Refuses recurrent layers that hand on a state from batch to batch.

    Args:
        network: Keras model or layer.
        where: What it is the network of, for the message.

    Raises:
        ValueError: With the layers that do.
    """
    found = [v.name for v in network._flatten_layers() if getattr(v, "stateful", False)]
    if found:
        raise ValueError(
            f"The rows of {where} are drawn in any order: its network must not have recurrent "
            f"layers with `stateful=True`. Received: layers {found}"
        )


def refuse_mixed_rows(network):
    """Refuses networks of function draws in which a row sees the other rows of its batch.

    Layers behind one that draws see `[S, N, ...]`, and those that take the second axis for a part
    of a row (recurrent and attention layers, `GroupNormalization`, `Flatten`) would mix the rows.
    The network is asked for three rows, and for the second of them alone.

    Args:
        network: Keras model from `[N, ...]` to `[S, N, D]`.

    Raises:
        ValueError: If what it says of that one differs.
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
        together, alone = functions(slice(0, 3)), functions(slice(1, 2))
    except (ValueError, TypeError, tf.errors.OpError):
        return  # not for rows like these: what is wrong shows with the user's
    size = np.abs(together).max(initial=0.0)
    is_half = "16" in network.outputs[0].dtype
    same = together.shape[:2] == (2, 3) and alone.shape[:2] == (2, 1)
    if same and np.isfinite(size):
        tolerance = size * (0.05 if is_half else 1e-3)
        same = np.allclose(together[:, 1:2], alone, rtol=0.0, atol=tolerance)
    if not same:
        raise ValueError(
            "The function values of a row must not depend on the other rows of its batch. Layers "
            "behind a random one see the draws [S, N, ...]: put those that take the second axis "
            "for a part of a row (recurrent, attention, pooling, `Flatten`, `GroupNormalization`) "
            "into `fns.layers.PerSample(layer)`. Received: network "
            f"{network.name!r} with layers {[layer.name for layer in network.layers]}"
        )


def _rows_for(tensor, generator):
    """Three rows that a network may be tried on, None where it takes no numbers."""
    shape = (3, *(4 if size is None else size for size in tensor.shape[1:]))
    dtype = keras.backend.standardize_dtype(tensor.dtype)
    if "float" in dtype:
        return generator.normal(size=shape).astype("float32")
    return generator.integers(0, 2, shape).astype(dtype) if "int" in dtype else None
