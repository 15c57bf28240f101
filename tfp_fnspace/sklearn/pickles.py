"""Keras models as the bytes of a `.keras` file, which pickles of estimators hold."""

import tempfile
from pathlib import Path
from typing import Any

from tfp_fnspace.model import FunctionSpaceModel, load_model


def as_bytes(model: FunctionSpaceModel) -> bytes:
    """Returns the bytes that `model.save` writes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.keras"
        model.save(path)
        return path.read_bytes()


def from_bytes(content: bytes) -> FunctionSpaceModel:
    """Returns the model that `as_bytes` has converted to these bytes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.keras"
        path.write_bytes(content)
        model: Any = load_model(path)
        return model
