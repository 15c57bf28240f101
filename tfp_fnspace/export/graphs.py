"""Graphs that are repeated operation by operation, with some of their tensors frozen.

A graph that is repeated has no custom gradients: its derivatives are those of its operations.
"""

import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tfp_fnspace.export.repeat import Repeat, Rule, values_of
from tfp_fnspace.export.sizes import known_sizes
from tfp_fnspace.tracing import traced
from tfp_fnspace.typing import Array, Tensor

#: Names of operations that draw random numbers, or that make the keys of such draws.
RANDOM = re.compile(r"Random|Rng|Multinomial|TruncatedNormal|Shuffle|^Stateless(?!If|While|Case)")

#: Dtypes of what is not numbers.
_HANDLES = (tf.resource, tf.variant)


class Graph:
    """The graph of a traced function, without its calls of other functions.

    Args:
        function: A function of tensors.
        specs: A list of `tf.TensorSpec`, one for each argument.

    Attributes:
        inputs: Symbolic arguments, a list of tensors of the graph.
        outputs: Symbolic results, a list of tensors of the graph.
    """

    def __init__(self, function: Callable[..., Any], specs: Sequence[tf.TensorSpec]):
        with_calls = traced(function, input_signature=specs).get_concrete_function()
        self._structure = with_calls.structured_outputs
        repeat, captured = Repeat(with_calls.graph), values_of(with_calls)

        def without_calls(*inputs):
            values = repeat(captured, inputs, with_calls.outputs)
            _watch(with_calls.graph.variables)
            return values

        self._flat = traced(without_calls, input_signature=specs).get_concrete_function()
        self._captured, self._as_it_is = values_of(self._flat), Repeat(self._flat.graph)
        count = len(self._flat.inputs) - len(self._captured)
        self.inputs, self.outputs = self._flat.inputs[:count], self._flat.outputs

    @functools.cached_property
    def static(self) -> dict[str, Array]:
        """Integers that follow from the known sizes, by the names of tensors."""
        return known_sizes(self.operations)

    @property
    def operations(self) -> list[Any]:
        """The operations of the graph, each after those whose results it takes."""
        return self._flat.graph.get_operations()

    def evaluated(self, names: Iterable[str]) -> dict[str, Array]:
        """Returns the values of tensors that do not depend on the inputs, by their names."""
        names = list(names)
        wanted = [self._flat.graph.get_tensor_by_name(name) for name in names]

        def values():
            known = {name: tf.constant(value) for name, value in self.static.items()}
            return self._as_it_is({**self._captured, **known}, [], wanted)

        found = traced(values)()
        return {name: value.numpy() for name, value in zip(names, found, strict=True)}

    def repeated(
        self,
        inputs: Sequence[Tensor],
        known: Mapping[str, Tensor] | None = None,
        rules: Mapping[str, Rule] | None = None,
        single_precision: bool = False,
    ) -> Any:
        """Repeats the operations of the graph in the current one.

        Args:
            inputs: Tensors that take the place of the inputs.
            known: Tensors that take the place of others of the graph, by their names.
            rules: Dict from types of operations to rules that replace them.
            single_precision: Whether what is float64 becomes float32.

        Returns:
            What the function returns.
        """
        repeat = Repeat(self._flat.graph, rules, single_precision)
        known = {t.name: v for t, v in zip(self.inputs, inputs, strict=True)} | dict(known or {})
        values = repeat({**self._captured, **known}, [], self.outputs)
        _watch(self._flat.graph.variables)
        return tf.nest.pack_sequence_as(self._structure, values)

    def cut(self, is_wanted: Callable[[str], bool]) -> list[str]:
        """Finds where what does not depend on the inputs enters what does.

        Args:
            is_wanted: Function of the name of a type of operations. Only results that depend on
                such an operation are found.

        Returns:
            The names of these tensors.
        """
        static = self.static
        dependent, wanted = {t.name for t in self.inputs}, set()
        found = {}
        for operation in self.operations:
            if not dependent.isdisjoint(t.name for t in operation.outputs):
                continue  # an input
            names = [t.name for t in operation.inputs]
            results = [t.name for t in operation.outputs]
            if not dependent.isdisjoint(names):
                dependent.update(set(results) - static.keys())
                found.update((n, None) for n in names if n in wanted)
            elif self._includes(operation, is_wanted) or not wanted.isdisjoint(names):
                numbers = [t.name for t in operation.outputs if t.dtype not in _HANDLES]
                wanted.update(set(numbers) - static.keys())
        found.update((t.name, None) for t in self.outputs if t.name in wanted)
        return list(found)

    def _includes(self, operation, is_wanted):
        graphs = self._as_it_is.functions_of(operation)
        inner = [part for graph in graphs for part in graph.get_operations()]
        return is_wanted(operation.type) or any(self._includes(o, is_wanted) for o in inner)


def _root(operation, inputs):
    """Returns a square root whose derivative at 0 is 0 instead of infinite.

    Kernels have such roots at equal points, where the custom gradient that is left out would
    multiply them by 0.
    """
    (value,) = inputs
    is_zero = tf.equal(value, 0.0)
    positive = tf.where(is_zero, tf.ones_like(value), value)
    return tf.where(is_zero, tf.zeros_like(value), tf.sqrt(positive))


#: Rules that change derivatives and no values.
_DERIVATIVES = {"Sqrt": _root}


def frozen(function: Callable[..., Any], specs: Sequence[tf.TensorSpec]) -> Callable[..., Any]:
    """Returns a function whose random numbers are constants.

    What the function computes from random numbers, and not from its arguments, is computed once.
    Large results are kept as variables, so that a SavedModel has them in its checkpoint. Draws
    whose number depends on the arguments stay as they are.

    Args:
        function: Function of tensors.
        specs: A list of `tf.TensorSpec`, one for each argument.

    Returns:
        Function of the same arguments.
    """
    graph = Graph(function, specs)
    names = graph.cut(lambda kind: RANDOM.search(kind) is not None)
    draws = {n: tf.Variable(v, trainable=False) for n, v in graph.evaluated(names).items()}

    def frozen_function(*inputs):
        known = {n: tf.convert_to_tensor(v) for n, v in draws.items()}
        return graph.repeated(inputs, known, _DERIVATIVES)

    return frozen_function


def kinds_of(function: Any) -> set[str]:
    """Returns the types of the operations of a concrete function, and of those that it calls."""
    definition = function.graph.as_graph_def()
    inner = [node for part in definition.library.function for node in part.node_def]
    return {node.op for node in [*definition.node, *inner]}


def plain(function: Callable[..., Any], specs: Sequence[tf.TensorSpec]) -> Callable[..., Any]:
    """Returns a function without custom gradients; arguments as for `frozen`."""
    graph = Graph(function, specs)
    return lambda *inputs: graph.repeated(inputs, rules=_DERIVATIVES)


def _watch(variables):
    """Tells the current graph of the variables whose handles it has captured."""
    graph: Any = tf.compat.v1.get_default_graph()
    captured = {id(outer) for outer, _ in graph.captures}
    for variable in variables:
        if id(variable.handle) in captured:
            graph.watch_variable(variable)
