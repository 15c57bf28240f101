"""Integer inputs that are numbers to compute with rather than indices."""

from collections.abc import Callable
from typing import Any

import keras

#: Layers and operations that move entries without changing them.
MOVES = ("Concatenate", "Flatten", "GetItem", "Identity", "RepeatVector", "Reshape")


def with_real_inputs(network: keras.Model, computes: Callable[[Any], bool]) -> keras.Model:
    """Returns a network of the same layers whose inputs can hold standardised values.

    Keras casts the inputs of a model to the dtypes of its input tensors. Integers that a layer
    computes with as with real numbers could therefore not be standardised. Indices stay as they
    are.

    Args:
        network: Functional `keras.Model`.
        computes: Function that tells whether a layer computes with its inputs as with real numbers,
            as Keras's `Dense` does.

    Returns:
        `keras.Model`; the network itself if no input has to change.
    """
    graph: Any = getattr(network, "_functional", None) or network
    taken = _computed_with(graph, computes)
    real = [
        keras.backend.floatx() if layer and "int" in tensor.dtype else tensor.dtype
        for tensor, layer in zip(graph.inputs, taken, strict=True)
    ]
    if real == [tensor.dtype for tensor in graph.inputs]:
        return network
    inputs = [
        keras.Input(batch_shape=tensor.shape, dtype=dtype, name=tensor.name)
        for tensor, dtype in zip(graph.inputs, real, strict=True)
    ]
    packed = keras.tree.pack_sequence_as(graph.input, inputs)
    return keras.models.clone_model(graph, packed, clone_function=lambda layer: layer)


def _computed_with(network: Any, computes: Callable[[Any], bool]) -> list[Any]:
    """Returns, for each input, a layer that computes with it, or `None`."""
    found = {}
    depths = network._nodes_by_depth
    for depth in sorted(depths):  # from the outputs to the inputs
        for node in depths[depth]:
            operation, tensors = node.operation, node.input_tensors
            inner = getattr(operation, "_functional", None) or operation
            if isinstance(operation, keras.Model) and hasattr(inner, "_nodes_by_depth"):
                layers = _computed_with(inner, computes)
            elif computes(operation) or isinstance(operation, keras.layers.Dense):
                layers = [operation] * len(tensors)
            elif type(operation).__name__ in MOVES:
                layers = [found.get(id(node.outputs[0]))] * len(tensors)
            else:
                layers = [None] * len(tensors)
            for tensor, layer in zip(tensors, layers, strict=True):
                if layer is not None:
                    found[id(tensor)] = layer
    return [found.get(id(tensor)) for tensor in network.inputs]
