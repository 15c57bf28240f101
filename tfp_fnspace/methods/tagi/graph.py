"""What a Keras graph must be for moments and innovations to pass through it."""

import keras

from tfp_fnspace.methods.tagi.layers.base import TAGILayer, is_pair


def tagi_layers(network):
    """The TAGI layers with parameters of a network, nested models included, each once."""
    layers = [layer for layer in network._flatten_layers() if isinstance(layer, TAGILayer)]
    unique = {id(layer): layer for layer in layers if layer.parameters}
    return list(unique.values())


def check_network(network):
    """Refuses graphs in which innovations would not mean what TAGI makes of them.

    Args:
        network: Functional `keras.Model`.

    Raises:
        ValueError: If an ordinary layer has trainable weights or works on moments, or the
            network does not end in one pair of moments `[N, D]`.
    """
    _check_operations(network, uncertain=set())
    outputs = network.outputs
    last = outputs[0]._keras_history.operation
    if len(outputs) != 2 or not isinstance(last, TAGILayer | keras.Model):
        raise ValueError(
            "The outputs of a TAGI model must be the moments that one TAGI layer returns. "
            f"Received: outputs={outputs}"
        )
    if len(outputs[0].shape) != 2 or outputs[0].shape[-1] is None:
        raise ValueError(
            "The outputs of a TAGI model must have shape (N, D) with D known. "
            f"Received: outputs of shape {outputs[0].shape}"
        )


def _check_operations(network, uncertain):
    """Walks the graph; `uncertain` holds the ids of the tensors that carry moments."""
    for depth in sorted(network._nodes_by_depth, reverse=True):
        for node in network._nodes_by_depth[depth]:
            operation = node.operation
            touched = any(id(tensor) in uncertain for tensor in node.input_tensors)
            if isinstance(operation, keras.Model):
                _check_nested(operation, touched)
            else:
                _check_operation(operation, touched)
            if touched or isinstance(operation, TAGILayer | keras.Model):
                uncertain.update(id(tensor) for tensor in node.outputs)


def _check_nested(model, touched):
    graph = getattr(model, "_functional", None) or model
    if hasattr(graph, "_nodes_by_depth"):
        _check_operations(graph, {id(tensor) for tensor in graph.inputs if touched})
        return
    for layer in model.layers:  # a sequential model without `Input` has no graph yet
        _check_operation(layer, touched)


def _check_operation(operation, touched):
    if isinstance(operation, TAGILayer):
        return
    if getattr(operation, "trainable_weights", None):
        raise ValueError(
            "A TAGI network cannot train ordinary Keras layers: their weights have no "
            "variances. Use the layers of `tfp_fnspace.tagi`, or freeze the layer with "
            f"`trainable = False` ahead of the first TAGI layer. Received: layer={operation!r}"
        )
    if touched:
        raise ValueError(
            "Moments pass through TAGI layers only; an ordinary layer or operation treats a "
            "mean and a variance alike. Use the layers of `tfp_fnspace.tagi`. "
            f"Received: layer={operation!r}"
        )


def input_roles(network):
    """What each input of a network is: `None` for values, `i` for the variance of input i.

    An input is a variance where a TAGI layer takes it as the second tensor of a pair.

    Args:
        network: Functional `keras.Model`.

    Returns:
        List with an entry for each input.
    """
    places = {id(tensor): i for i, tensor in enumerate(network.inputs)}
    roles = [None] * len(places)
    for nodes in network._nodes_by_depth.values():
        for node in nodes:
            if not isinstance(node.operation, TAGILayer):
                continue
            for item in node.operation._items(node.arguments.args[0]):
                if is_pair(item) and id(item[1]) in places and id(item[0]) in places:
                    roles[places[id(item[1])]] = places[id(item[0])]
    return roles
