"""Networks as functions of their weights, for many sets of weights at once."""

import math
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tfp_fnspace.layers import networks
from tfp_fnspace.typing import Config, Shape, Tensor


def frozen_copy(network: keras.layers.Layer | Config) -> keras.layers.Layer:
    """Copies a network, with new weights that are not trained.

    Args:
        network: Keras model or layer, or its serialised form.

    Raises:
        ValueError: If it is something else.
    """
    config = network
    if not isinstance(network, dict):
        config = serialized(network)
        networks.refuse_acting_in_training(network, "functions of drawn weights")
    copy = keras.saving.deserialize_keras_object(config)
    copy.trainable = False
    return copy


def serialized(network: keras.layers.Layer) -> Any:
    """Returns the serialised form of a Keras model or layer.

    Raises:
        ValueError: If it is something else.
    """
    if not isinstance(network, keras.layers.Layer):
        raise ValueError(f"`network` must be a Keras model or layer. Received: network={network!r}")
    return keras.saving.serialize_keras_object(network)


def drawn_variables(network: keras.layers.Layer, input_shape: Shape) -> list[keras.Variable]:
    """Returns the trainable variables of a frozen network, without its moving averages.

    Args:
        network: Result of `frozen_copy`; it is built if necessary.
        input_shape: Shape of its inputs.

    Returns:
        List of `keras.Variable`.
    """
    if not network.built:
        network.build((None, *input_shape[1:]))
    network.trainable = True
    variables = list(network.trainable_variables)
    network.trainable = False
    return variables


def normal_scale(shape: Sequence[int], kernel_gain: float, bias_stddev: float) -> float:
    """Returns the standard deviation of a weight's prior.

    Args:
        shape: Shape of the weight. For rank 2 or more the result is `kernel_gain fan_in^-1/2`,
            where fan_in is the product of all axes but the last. For a lower rank (a bias) it is
            `bias_stddev`.
        kernel_gain: Number.
        bias_stddev: Number.

    Returns:
        Float.
    """
    return kernel_gain / math.sqrt(math.prod(shape[:-1])) if len(shape) > 1 else bias_stddev


def functions(
    network: keras.layers.Layer,
    variables: Sequence[keras.Variable],
    weights: Sequence[Tensor],
    x: Tensor,
) -> Tensor:
    """Evaluates a network at n sets of weights, in one vectorised pass.

    Args:
        network: Keras model or layer.
        variables: Variables that the weights replace.
        weights: List of tensors `[n, ...]`, one for each variable.
        x: Inputs of the network, `[N, ...]`.

    Returns:
        Tensor `[n, N, ...]`.
    """

    def function(weights):
        mapping = list(zip(variables, weights, strict=True))
        with keras.StatelessScope(state_mapping=mapping):
            return network(x, training=False)

    return tf.vectorized_map(function, weights)
