"""Runs the programs that models are exported to, by their own runtimes."""

import importlib.util
import warnings

import pytest
import tensorflow as tf


def has_onnx():
    """Returns whether programs of ONNX can be made and run here."""
    return all(importlib.util.find_spec(name) for name in ("onnx", "onnxruntime", "tf2onnx"))


NEEDS_ONNX = pytest.mark.skipif(not has_onnx(), reason="onnx, onnxruntime or tf2onnx is missing")


def run_onnx(path, **inputs):
    """Returns the outputs of a program of ONNX by name, computed by onnxruntime."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path))
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


def run_litert(path, **inputs):
    """Returns the outputs of a program of LiteRT by name, computed by its interpreter."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*Interpreter is deprecated")
        interpreter = tf.lite.Interpreter(str(path))
    return interpreter.get_signature_runner()(**inputs)


RUNTIMES = {"onnx": run_onnx, "litert": run_litert}
ENDINGS = {"onnx": "onnx", "litert": "tflite"}
EACH_RUNTIME = pytest.mark.parametrize("kind", [pytest.param("onnx", marks=NEEDS_ONNX), "litert"])
