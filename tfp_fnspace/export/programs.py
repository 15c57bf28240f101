"""Programs of ONNX and LiteRT, which run where TensorFlow is not installed."""

import importlib
import os
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tfp_fnspace import files
from tfp_fnspace.export import endpoints
from tfp_fnspace.export.elementary import RULES, NoCounterpartError
from tfp_fnspace.export.graphs import RANDOM, Graph, kinds_of
from tfp_fnspace.tracing import traced

if TYPE_CHECKING:
    from tfp_fnspace.model import FunctionSpaceModel

#: Format -> how the names of its files end.
ENDINGS = {"onnx": ".onnx", "litert": ".tflite"}

#: Version of ONNX's operations, which onnxruntime has had since 2022.
_OPSET = 17


def export_program(
    model: "FunctionSpaceModel",
    path: str | os.PathLike[str],
    kind: str,
    input_signature: Any = None,
) -> None:
    """Writes the endpoint `serve` as a program of ONNX or LiteRT.

    Inputs and outputs have the names, shapes and dtypes of `serve`. All is computed in float32,
    also what models compute in float64. What does not depend on the inputs is computed now. The
    program has only operations of its own runtime.

    Args:
        model: Fitted `FunctionSpaceModel`.
        path: File to write, whose name ends in `.onnx` or `.tflite`. A file that is there is
            replaced in one step.
        kind: `"onnx"` or `"litert"`.
        input_signature: As for `FunctionSpaceModel.export`.

    Raises:
        ImportError: If the converter is not installed.
        NotImplementedError: If the model computes something that has no counterpart.
        OSError: If the file cannot be written; an existing file is then unchanged.
        TypeError: If `path` is not a path.
        ValueError: If the path has another ending, or the signature does not suit the inputs.
    """
    path = files.checked_path("filepath", path)
    if path.suffix != ENDINGS[kind]:
        raise ValueError(
            f"`filepath` must end in {ENDINGS[kind]} if `format` is {kind!r}. "
            f"Received: filepath={str(path)!r}"
        )
    specs = endpoints.input_specs(model, input_signature)
    convert = {"onnx": _onnx, "litert": _litert}[kind]
    try:
        program = convert(_serve(model, specs), specs)
    except NoCounterpartError as error:
        raise NotImplementedError(
            f"`export` of this {type(model).__name__} must be a SavedModel: {kind} has no "
            f"counterpart of {error}. Received: format={kind!r}"
        ) from error
    path.parent.mkdir(parents=True, exist_ok=True)
    with files.replacing(path) as partial:
        partial.write_bytes(program)


def _serve(model, specs):
    """Returns `serve` as a traced function of operations that converters take."""
    graph = Graph(endpoints.serve_of(model), specs)
    held = {**graph.static, **graph.evaluated(graph.cut(lambda kind: True))}

    def serve(*inputs):
        inputs = [tf.cast(x, tf.float32) if x.dtype == tf.float64 else x for x in inputs]
        known = {name: _constant(value) for name, value in held.items()}
        return graph.repeated(inputs, known, RULES, single_precision=True)

    names = [spec.name for spec in specs]
    function = traced(endpoints.with_parameters(serve, names), input_signature=specs)
    if any(RANDOM.search(kind) for kind in kinds_of(function.get_concrete_function())):
        raise NoCounterpartError("random numbers for each row")
    return function


def _constant(value):
    return tf.constant(value.astype(np.float32) if value.dtype == np.float64 else value)


def _onnx(function, specs):
    try:
        definitions = importlib.import_module("onnx").defs
        converter: Any = importlib.import_module("tf2onnx.convert")
    except ImportError as error:
        raise ImportError(
            'The format "onnx" needs tf2onnx: `pip install "tfp_fnspace[export]"`'
        ) from error
    program, _ = converter.from_function(function, specs, opset=_OPSET)
    known = {node.op_type: definitions.has(node.op_type) for node in _nodes(program.graph)}
    _refuse(name for name, has in known.items() if not has)
    return program.SerializeToString()


def _nodes(graph):
    """Yields the nodes of a graph of ONNX, and those of its loops and branches."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _nodes(attribute.g)


def _litert(function, specs):
    holder: Any = tf.Module()
    holder.serve = function
    converter = tf.lite.TFLiteConverter.from_concrete_functions(
        [function.get_concrete_function()], holder
    )
    try:
        return converter.convert()
    except Exception as error:
        _refuse(re.findall(r"'tf\.(\w+)' op", str(error)))
        raise


def _refuse(names):
    names = sorted(set(names))
    if names:
        raise NoCounterpartError(f"TensorFlow's {', '.join(names)}")
