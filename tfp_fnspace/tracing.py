"""Functions that TensorFlow traces once for each model."""

import functools
import types
import weakref
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import tensorflow as tf
import tensorflow_probability as tfp
from tensorflow.python.framework import ops

P = ParamSpec("P")
R = TypeVar("R")


def collectable(function: Callable[P, R]) -> Callable[P, R]:
    """Returns a function whose graphs are freed when nothing uses them any more.

    TensorFlow registers the gradients that `tf.custom_gradient` defines in a graph for as long as
    the process lives, and with them the tensors that they use. So a graph with a custom gradient is
    never collected, nor a graph that contains it, such as an epoch with its loops. Keras's
    optimizers alone define one in each step. Here the graph itself holds its gradients, and the
    register refers to them weakly while the graph exists. The cache that the bijectors of TFP share
    also holds tensors; it forgets those of the graph.

    Args:
        function: A function that is traced, alone or inside another one.

    Returns:
        The function, which does this after each trace.
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
    """Returns a graph and those of its loops, branches and calls, a list."""
    found, left = {}, [graph]
    while left:
        graph = left.pop()
        if graph is not None and id(graph) not in found:
            found[id(graph)] = graph
            called = getattr(graph, "_functions", {}).values()
            left += [getattr(part, "_cached_graph", None) for part in called]
    return list(found.values())


# Attributes that other versions of TensorFlow and TFP lack are skipped: the graphs then stay.


def _hold_gradients(graph):
    """Lets a graph hold its custom gradients."""
    registered = getattr(getattr(ops, "gradient_registry", None), "_registry", {})
    names = [_gradient_name(op) for op in graph.get_operations() if op.type == "IdentityN"]
    held = [_weakly(registered, name) for name in names if name in registered]
    graph._fns_gradients = [*getattr(graph, "_fns_gradients", ()), *filter(None, held)]


def _forget_in_bijectors(graphs):
    """Drops tensors of graphs that are completely traced from the cache of TFP's bijectors."""
    graphs = {id(graph) for graph in graphs}
    cached = getattr(vars(tfp.bijectors.Bijector).get("_cache"), "storage", {})
    for key in list(cached):
        tensors = [reference() for reference in getattr(key, "ref_set", ())]
        if any(id(getattr(tensor, "graph", None)) in graphs for tensor in tensors):
            key.cancel()
            cached.pop(key, None)


def _gradient_name(op):
    """Returns the name of an operation's custom gradient, `None` if it has none."""
    try:
        name = op.get_attr("_gradient_op_type").decode()
    except ValueError:
        return None
    return name if name.startswith("CustomGradient-") else None


def _weakly(registered, name):
    """Replaces a registered gradient by a weak one; returns the gradient, which keeps it alive."""
    gradient = registered[name]["type"]
    if hasattr(gradient, "_fns_is_weak"):
        return None
    reference = weakref.ref(gradient, lambda _: registered.pop(name, None))

    @tf.autograph.experimental.do_not_convert
    def gradient_of_live_graph(op, *result_gradients):
        return reference()(op, *result_gradients)

    vars(gradient_of_live_graph).update(_fns_is_weak=True)
    registered[name] = {**registered[name], "type": gradient_of_live_graph}
    return gradient


def traced(function: Callable[..., Any], **options: Any) -> Any:
    """Returns `tf.function` of a function of one model, `collectable` and without autograph.

    TensorFlow counts traces by the code of a function, over all models of a process. So it warns of
    "triggered tf.function retracing" from the fifth model on, though each is traced once. A partial
    function has no code and is counted separately.

    Args:
        function: The function, for example a method of the model.
        **options: Options of `tf.function`.

    Returns:
        The traced function.
    """
    return tf.function(functools.partial(collectable(function)), autograph=False, **options)


def traced_for_all(function: Callable[..., Any], **options: Any) -> Any:
    """Returns `tf.function` of a function that all models share, without autograph.

    It is traced for the shapes of each model's data, which is not a reason to warn.
    """
    found: Any = tf.function(function, autograph=False, **options)
    found._omit_frequent_tracing_warning = True
    return found


class _Key:
    """A key for counts of traces; unlike the function itself, it makes no cycle of references."""


def count_apart(function: Callable[..., Any]) -> Callable[..., Any]:
    """Lets TensorFlow count separately the traces of functions that Keras made for a model.

    Args:
        function: A result of `make_train_function` or a similar method: a function with the traced
            ones in its closure, or a traced one.

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
            found: Any = part
            found._key_for_call_stats = _Key()  # in place of its code
            left.append(found.python_function)
        elif isinstance(part, types.FunctionType):
            left += [cell.cell_contents for cell in part.__closure__ or ()]
    return function
