"""Operations of a graph, repeated one by one in another graph."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import function_def_to_graph

from tfp_fnspace.typing import Tensor

#: Function of an operation and the tensors that replace its inputs, which returns its outputs,
#: or `None` if the operation should stay as it is.
Rule = Callable[[Any, Sequence[Tensor]], Any]

_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
_LOOPS, _BRANCHES = ("While", "StatelessWhile"), ("If", "StatelessIf", "Case", "StatelessCase")


class Repeat:
    """Repeats operations of a graph and of the functions that it calls.

    Args:
        graph: A `FuncGraph`.
        rules: As for `Graph.repeated`.
        single_precision: As for `Graph.repeated`.
    """

    def __init__(
        self,
        graph: Any,
        rules: Mapping[str, Rule] | None = None,
        single_precision: bool = False,
    ):
        self._graph, self._inner = graph, {}
        self._rules, self._single_precision = dict(rules or {}), single_precision

    @functools.cached_property
    def _library(self):
        functions = self._graph.as_graph_def().library.function
        return {function.signature.name: function for function in functions}

    def __call__(
        self, known: Mapping[str, Tensor], inputs: Sequence[Tensor], outputs: Sequence[Tensor]
    ) -> list[Tensor]:
        """Returns tensors that take the place of outputs, given those of known ones by names.

        Args:
            known: Tensors by the names of those that they replace.
            inputs: Tensors that replace the first inputs of the graph of `outputs`.
            outputs: Tensors of a graph.
        """
        values = dict(known)
        if not outputs:
            return []
        graph = outputs[0].graph
        values.update((t.name, v) for t, v in zip(graph.inputs, inputs, strict=False))
        needed = _needed(outputs, values)
        for operation in graph.get_operations():
            if operation.name in needed:
                arguments = [values[t.name] for t in operation.inputs]
                results = self._repeat(operation, arguments)
                results = results if isinstance(results, list | tuple) else [results]
                values.update((t.name, v) for t, v in zip(operation.outputs, results, strict=True))
        return [values[t.name] for t in outputs]

    def functions_of(self, operation: Any) -> list[Any]:
        """Returns the graphs of the functions that a call, a loop or a branch calls."""
        keys = {"body", "cond"} if operation.type in _LOOPS else {"then_branch", "else_branch"}
        keys |= {"branches", "f"}
        if operation.type not in (*_CALLS, *_LOOPS, *_BRANCHES):
            return []
        found = [operation.get_attr(k) for k in sorted(keys) if k in operation.node_def.attr]
        return [self._function(part.name) for part in tf.nest.flatten(found)]

    def _function(self, name):
        if name not in self._inner:
            definition = self._library[name]
            with self._graph.as_default():  # it has the functions that this one calls
                self._inner[name] = function_def_to_graph.function_def_to_graph(definition)
        return self._inner[name]

    def _repeat(self, operation, inputs):
        kind = operation.type
        found = self._rules[kind](operation, inputs) if kind in self._rules else None
        if found is not None:
            return found
        if kind in _CALLS:
            return self._called(self.functions_of(operation)[0], inputs)
        if kind in _LOOPS:
            return self._loop(operation, inputs)
        if kind in _BRANCHES:
            return self._branch(operation, inputs)
        attributes = {k: v for k, v in operation.node_def.attr.items() if not k.startswith("_")}
        if self._single_precision:
            attributes = {k: _in_single_precision(v) for k, v in attributes.items()}
        graph = tf.compat.v1.get_default_graph()
        return graph.create_op(kind, inputs, attrs=attributes, name=operation.name).outputs

    def _called(self, graph, inputs):
        return self({}, inputs, graph.outputs)

    def _loop(self, operation, inputs):
        body, condition = self.functions_of(operation)
        shapes = [tf.TensorShape(shape) for shape in operation.get_attr("output_shapes")]
        return tf.while_loop(
            lambda *values: self._called(condition, values)[0],
            lambda *values: self._called(body, values),
            list(inputs),
            shape_invariants=shapes or None,
        )

    def _branch(self, operation, inputs):
        graphs = self.functions_of(operation)
        branches = [functools.partial(self._called, graph, inputs[1:]) for graph in graphs]
        if "Case" in operation.type:
            return tf.nest.flatten(tf.switch_case(inputs[0], branches))
        otherwise, then = branches
        return tf.nest.flatten(tf.cond(tf.cast(inputs[0], tf.bool), then, otherwise))


def values_of(function: Any) -> dict[str, Tensor]:
    """Returns what a traced function has captured, by the names of the tensors in its graph."""
    return {inner.name: outer for outer, inner in function.graph.captures}


def _needed(outputs, known):
    """Returns the names of the operations that outputs need, given known tensors."""
    found, left = set(), [t for t in outputs if t.name not in known]
    while left:
        operation = left.pop().op
        if operation.name not in found:
            found.add(operation.name)
            left += [t for t in operation.inputs if t.name not in known]
    return found


def _in_single_precision(attribute):
    """Returns an attribute of an operation with float32 in the place of float64."""
    double, single = tf.float64.as_datatype_enum, tf.float32.as_datatype_enum
    if attribute.WhichOneof("value") == "type" and attribute.type == double:
        return type(attribute)(type=single)
    if attribute.HasField("tensor") and attribute.tensor.dtype == double:
        values = tf.make_ndarray(attribute.tensor).astype("float32")
        return type(attribute)(tensor=tf.make_tensor_proto(values))
    if double in attribute.list.type:
        changed = type(attribute)()
        changed.list.type.extend(single if t == double else t for t in attribute.list.type)
        return changed
    return attribute
