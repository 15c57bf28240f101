"""Functions that TensorFlow traces once for each model."""

import functools
import types
import weakref

import tensorflow as tf
import tensorflow_probability as tfp
from tensorflow.python.framework import ops


def collectable(function):
    """A function whose graphs go when nobody uses them any more.

    TensorFlow registers what `tf.custom_gradient` defines in a graph for as long as the process
    lives, and with it the tensors that the gradient uses: no such graph is ever collected, nor
    what it is part of, an epoch with its loops say. Keras's optimizers alone define one in each
    step. Here the graph itself holds its gradients and the register knows them weakly, for as long
    as there is the graph to differentiate. The cache that the bijectors of TFP share, which holds
    tensors likewise, forgets those of the graph.

    Args:
        function: A function that is traced, from within or as a whole.

    Returns:
        The function, which does that after each trace.
    """

    @functools.wraps(function)
    def collectable_function(*args, **kwargs):
        result = function(*args, **kwargs)
        if not tf.executing_eagerly():
            graphs = _with_inner_graphs(tf.compat.v1.get_default_graph())
            for graph in graphs:
                _hold_gradients(graph)
            _forget_in_bijectors(graphs)
        return result

    return collectable_function


def _with_inner_graphs(graph):
    """A graph and those of its loops, branches and calls, a list."""
    found, left = {}, [graph]
    while left:
        graph = left.pop()
        if graph is not None and id(graph) not in found:
            found[id(graph)] = graph
            called = getattr(graph, "_functions", {}).values()
            left += [getattr(part, "_cached_graph", None) for part in called]
    return list(found.values())


# What other versions of TensorFlow and TFP may not have is let be: the graphs then stay.


def _hold_gradients(graph):
    """Lets a graph hold its custom gradients."""
    registered = getattr(getattr(ops, "gradient_registry", None), "_registry", {})
    names = [_gradient_name(op) for op in graph.get_operations() if op.type == "IdentityN"]
    held = [_weakly(registered, name) for name in names if name in registered]
    graph._fns_gradients = [*getattr(graph, "_fns_gradients", ()), *filter(None, held)]


def _forget_in_bijectors(graphs):
    """Drops what the cache of TFP's bijectors has of graphs that are traced to the end."""
    graphs = {id(graph) for graph in graphs}
    cached = getattr(vars(tfp.bijectors.Bijector).get("_cache"), "storage", {})
    for key in list(cached):
        tensors = [reference() for reference in getattr(key, "ref_set", ())]
        if any(id(getattr(tensor, "graph", None)) in graphs for tensor in tensors):
            key.cancel()
            cached.pop(key, None)


def _gradient_name(op):
    """The name under which the gradient of an operation is registered, `None` if its own."""
    try:
        name = op.get_attr("_gradient_op_type").decode()
    except ValueError:
        return None
    return name if name.startswith("CustomGradient-") else None


def _weakly(registered, name):
    """Replaces a registered gradient by one that lives as long as the result, the gradient."""
    gradient = registered[name]["type"]
    if hasattr(gradient, "_fns_is_weak"):
        return None
    reference = weakref.ref(gradient, lambda _: registered.pop(name, None))

    @tf.autograph.experimental.do_not_convert
    def gradient_of_live_graph(op, *result_gradients):
        return reference()(op, *result_gradients)

    gradient_of_live_graph._fns_is_weak = True
    registered[name] = {**registered[name], "type": gradient_of_live_graph}
    return gradient


def traced(function, **options):
    """`tf.function` of a function of one model, `collectable` and without autograph.

    TensorFlow counts traces by the code of a function, over all models of a process: it warns from
    the fifth model on of "triggered tf.function retracing", though each is traced once. A partial
    function has no code, and is counted by itself.

    Args:
        function: The function, a method of the model say.
        **options: Of `tf.function`.

    Returns:
        The traced function.
    """
    return tf.function(functools.partial(collectable(function)), autograph=False, **options)


def traced_for_all(function, **options):
    """`tf.function` of a function that all models share, without autograph.

    It is traced for the shapes of each model's data, which is no reason to warn.
    """
    function = tf.function(function, autograph=False, **options)
    function._omit_frequent_tracing_warning = True
    return function


class _Key:
    """What traces are counted for; unlike the function itself, no cycle of references."""


def count_apart(function):
    """Lets TensorFlow count the traces of functions that Keras has made for a model by themselves.

    Args:
        function: What `make_train_function` and the like have made: a function with the traced ones
            in its closure, or a traced one.

    Returns:
        The function.
    """
    seen, left = set(), [function]
    while left:
        part = left.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, tf.types.experimental.PolymorphicFunction):
            part._key_for_call_stats = _Key()  # in place of its code
            left.append(part.python_function)
        elif isinstance(part, types.FunctionType):
            left += [cell.cell_contents for cell in part.__closure__ or ()]
    return function
