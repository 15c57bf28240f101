"""Bayesian neural networks that reason about functions, for Keras 3 and TensorFlow."""

import os
import sys

__version__ = "0.1.0"

_backend = os.environ.get("KERAS_BACKEND", "tensorflow")
if _backend != "tensorflow":
    raise ImportError(
        "tfp_fnspace runs on Keras's TensorFlow backend: unset KERAS_BACKEND or set it to "
        f"'tensorflow' before Keras is imported. Received: KERAS_BACKEND={_backend!r}"
    )

from tfp_fnspace import startup  # noqa: E402 (the check above must come first)

startup.load_tensorflow_quietly()

import keras  # noqa: E402

if keras.backend.backend() != "tensorflow":
    raise ImportError(
        "tfp_fnspace runs on Keras's TensorFlow backend: set it in ~/.keras/keras.json. "
        f"Received: backend={keras.backend.backend()!r}"
    )

from tfp_fnspace import (  # noqa: E402
    bijectors,
    calibration,
    callbacks,
    datasets,
    decisions,
    distributions,
    kernels,
    layers,
    likelihoods,
    metrics,
    plotting,
    processes,
)
from tfp_fnspace.citations import citation  # noqa: E402
from tfp_fnspace.methods import diwp, fbnn, sip, stable_process, tagi  # noqa: E402
from tfp_fnspace.model import FunctionSpaceModel, load_model  # noqa: E402
from tfp_fnspace.typing import GaussianMoments, GramBlocks  # noqa: E402

# `from tfp_fnspace.tagi import Dense` works: a short name for `tfp_fnspace.methods.tagi`.
sys.modules[f"{__name__}.diwp"] = diwp
sys.modules[f"{__name__}.fbnn"] = fbnn
sys.modules[f"{__name__}.sip"] = sip
sys.modules[f"{__name__}.stable_process"] = stable_process
sys.modules[f"{__name__}.tagi"] = tagi

__all__ = [
    "FunctionSpaceModel",
    "GaussianMoments",
    "GramBlocks",
    "bijectors",
    "calibration",
    "callbacks",
    "citation",
    "datasets",
    "decisions",
    "distributions",
    "diwp",
    "fbnn",
    "kernels",
    "layers",
    "likelihoods",
    "load_model",
    "metrics",
    "plotting",
    "processes",
    "sip",
    "stable_process",
    "tagi",
]
