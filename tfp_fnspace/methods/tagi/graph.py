"""Checks and conversions of Keras graphs that carry moments and innovations."""

from typing import Any

import keras

from tfp_fnspace.layers.networks import acts_in_training
from tfp_fnspace.methods.tagi.layers.base import TAGILayer, is_pair
from tfp_fnspace.methods.tagi.layers.embedding import Embedding
from tfp_fnspace.model.whole_numbers import MOVES
from tfp_fnspace.typing import GaussianMoments, Network


def ends(inputs: Any, outputs: Any) -> tuple[Any, Any]:
    """Returns inputs and outputs, which may be given as one Keras model.

    Raises:
        TypeError: If there are no outputs, and `inputs` is not a suitable model.
    """
    if outputs is not None:
        return inputs, outputs
    if not _knows_inputs(inputs):
        raise TypeError(
            "`outputs` must be given, or `inputs` be a Keras model of TAGI layers whose inputs are "
            "known (a `keras.Sequential` that begins with `keras.Input(shape)`). Received: "
            f"inputs={inputs!r}, outputs=None"
        )
    return inputs.inputs, inputs.outputs


def _knows_inputs(model):
    return isinstance(model, keras.Model) and bool(getattr(model, "inputs", None))


def tagi_layers(network: Network) -> list[TAGILayer]:
    """Returns the TAGI layers with parameters of a network and its nested models, each once."""
    layers = [layer for layer in network._flatten_layers() if isinstance(layer, TAGILayer)]
    unique = {id(layer): layer for layer in layers if layer.parameters}
    return list(unique.values())


def check_network(network: Network) -> None:
    """Refuses graphs in which TAGI's innovations would be wrong.

    Args:
        network: Functional `keras.Model`.

    Raises:
        ValueError: If an ordinary layer has trainable weights or works on moments, or the
            network does not end in one pair of moments `[N, D]`.
    """
    _check_operations(network, uncertain=set())
    outputs = network.outputs
    histories = [tensor._keras_history for tensor in outputs]
    places = [(h.operation, h.node_index, h.tensor_index) for h in histories]
    operation, node_index, _ = places[0]
    if places != [(operation, node_index, i) for i in range(2)]:
        raise ValueError(
            "The outputs of a TAGI model must be the moments that one TAGI layer returns. "
            f"Received: outputs={outputs}"
        )
    if len(outputs[0].shape) != 2 or outputs[0].shape[-1] is None:
        raise ValueError(
            "The outputs of a TAGI model must have shape (N, D) with D known. "
            f"Received: outputs of shape {outputs[0].shape}"
        )


def _nodes(network):
    """Returns the nodes of a functional graph, each after the nodes that it depends on."""
    depths = network._nodes_by_depth
    return [node for depth in sorted(depths, reverse=True) for node in depths[depth]]


def _functional(model: Network) -> Network | None:
    """Returns the functional graph of a model, or `None` (a sequential model without `Input`)."""
    graph = getattr(model, "_functional", None) or model
    return graph if hasattr(graph, "_nodes_by_depth") else None


def _check_operations(network, uncertain):
    """Checks all operations of a graph, and adds to `uncertain` the ids of tensors with moments."""
    for node in _nodes(network):
        touched = any(id(tensor) in uncertain for tensor in node.input_tensors)
        if isinstance(node.operation, keras.Model):
            moments = _check_nested(node.operation, node.input_tensors, uncertain)
        else:
            _check_operation(node.operation, touched)
            moments = isinstance(node.operation, TAGILayer) and len(node.outputs) == 2
        if touched or moments:
            uncertain.update(id(tensor) for tensor in node.outputs)
    return uncertain


def _check_nested(model, tensors, uncertain):
    """Checks a nested model; returns whether its outputs are moments."""
    graph = _functional(model)
    if graph is None:
        touched = any(id(tensor) in uncertain for tensor in tensors)
        for layer in model.layers:
            _check_operation(layer, touched)
        return any(isinstance(layer, TAGILayer) for layer in model.layers)
    pairs = zip(graph.inputs, tensors, strict=True)
    inside = {id(inner) for inner, outer in pairs if id(outer) in uncertain}
    inside = _check_operations(graph, inside)
    return any(id(tensor) in inside for tensor in graph.outputs)


def _check_operation(operation, touched):
    if isinstance(operation, TAGILayer):
        return
    if getattr(operation, "trainable_weights", None):
        raise ValueError(
            "A TAGI network cannot train ordinary Keras layers: their weights have no "
            "variances. Use the layers of `tfp_fnspace.tagi` (`tagi.from_keras` converts a model), "
            "or freeze the layer with `trainable = False` ahead of the first TAGI layer. "
            f"Received: layer={operation!r}"
        )
    if acts_in_training(operation):
        raise ValueError(
            "A TAGI network runs ordinary Keras layers as in prediction: dropout, noise, "
            "augmentation and moving averages would do nothing. Leave them out, or freeze the "
            "layer with `trainable = False`, which has the same effect. "
            f"Received: layer={operation!r}"
        )
    if touched:
        raise ValueError(
            "Moments pass through TAGI layers only; an ordinary layer or operation treats a "
            "mean and a variance alike. Use the layers of `tfp_fnspace.tagi`. "
            f"Received: layer={operation!r}"
        )


def input_roles(network: Network) -> list[int | None]:
    """Returns the role of each input: `None` for values, `i` for the variance of input i.

    An input is a variance if a TAGI layer takes it as the second tensor of a pair.

    Args:
        network: Functional `keras.Model`.

    Returns:
        List with an entry for each input.
    """
    places = {id(tensor): i for i, tensor in enumerate(network.inputs)}
    roles: list[int | None] = [None] * len(places)
    for node in _nodes(network):
        for mean, variance in _pairs(node):
            if id(mean) in places and id(variance) in places:
                roles[places[id(variance)]] = places[id(mean)]
    return roles


def index_inputs(network: Network) -> list[int | None]:
    """Returns the number of rows of the table that each input indexes, `None` for other inputs.

    Args:
        network: Functional `keras.Model`.

    Returns:
        List with an entry for each input.
    """
    rows = {}
    for node in reversed(_nodes(network)):
        graph = _functional(node.operation) if isinstance(node.operation, keras.Model) else None
        found = [None] * len(node.input_tensors) if graph is None else index_inputs(graph)
        if isinstance(node.operation, Embedding):
            found = [node.operation.input_dim]
        elif type(node.operation).__name__ in MOVES:
            found = [rows.get(id(node.outputs[0]))] * len(node.input_tensors)
        for tensor, size in zip(node.input_tensors, found, strict=True):
            if size is not None:
                rows[id(tensor)] = min(size, rows.get(id(tensor), size))
    return [rows.get(id(tensor)) for tensor in network.inputs]


def computes_with_inputs(layer: keras.layers.Layer) -> bool:
    """Returns whether a layer computes with its inputs as real numbers."""
    moves = type(layer).__name__ in MOVES
    return isinstance(layer, TAGILayer) and not moves and not isinstance(layer, Embedding)


def batch_rows(network: Network) -> int | None:
    """Returns the fixed batch size if a layer keeps a state for each row, else `None`."""
    stateful = any(getattr(layer, "stateful", False) for layer in network._flatten_layers())
    known = [tensor.shape[0] for tensor in network.inputs if tensor.shape[0] is not None]
    return known[0] if stateful and known else None


def _pairs(node):
    """Returns the (mean, variance) pairs among the input tensors of a node."""
    if isinstance(node.operation, TAGILayer):
        taken = (*node.arguments.args, *node.arguments.kwargs.values())
        items = (item for argument in taken for item in node.operation._items(argument))
        return [item for item in items if is_pair(item)]
    graph = _functional(node.operation) if isinstance(node.operation, keras.Model) else None
    if graph is None:
        return []
    inner, outer = input_roles(graph), node.input_tensors
    return [(outer[role], outer[i]) for i, role in enumerate(inner) if role is not None]


def with_uncertain_inputs(network: Network) -> Network:
    """Returns a network of the same layers that takes a mean and a variance for each input.

    Args:
        network: Functional `keras.Model`.

    Returns:
        Functional `keras.Model` with inputs `[mean_0, variance_0, mean_1, ...]`.

    Raises:
        ValueError: If an input goes to anything but TAGI layers.
    """
    inputs, known = [], {}
    for tensor in network.inputs:
        pair = [keras.Input(batch_shape=tensor.shape, dtype=tensor.dtype) for _ in range(2)]
        inputs += pair
        known[id(tensor)] = GaussianMoments(*pair)
    for node in _nodes(network):
        if node.is_input:
            continue
        taken = [known[id(tensor)] for tensor in node.input_tensors]
        if any(map(is_pair, taken)) and not isinstance(node.operation, TAGILayer):
            raise ValueError(
                "Uncertain inputs (`input_stddev`, `infer_inputs`) need TAGI layers from the "
                "inputs on, not in a model inside the model. "
                f"Received: layer={node.operation!r}"
            )
        arguments, options = node.arguments.fill_in(known)
        if len(node.outputs) == 2:
            outputs = keras.tree.flatten(node.operation(*arguments, **options))
            known.update({id(old): new for old, new in zip(node.outputs, outputs, strict=True)})
        else:  # No parameters. Keras expects the same number of outputs at every call, so copy.
            copy = type(node.operation).from_config(node.operation.get_config())
            known[id(node.outputs[0])] = copy(*arguments, **options)
    return keras.Model(inputs, [known[id(tensor)] for tensor in network.outputs])
