"""Keras models as bytes of a `.keras` file, which is what pickles of estimators hold."""

import tempfile
from pathlib import Path

from tfp_fnspace.model import load_model


def as_bytes(model):
    """What `model.save` writes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.keras"
        model.save(path)
        return path.read_bytes()


def from_bytes(content):
    """The model whose `save` has written this."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.keras"
        path.write_bytes(content)
        return load_model(path)
