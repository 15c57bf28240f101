"""SavedModels that plain TensorFlow serves."""

import errno
import inspect
import os
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from tfp_fnspace import files
from tfp_fnspace.boundary.arguments import check_count
from tfp_fnspace.tracing import collectable

if TYPE_CHECKING:
    from tfp_fnspace.model import FunctionSpaceModel

#: TensorFlow's classes for two errors of the system.
_ERRORS_OF_DISKS = {
    tf.errors.ResourceExhaustedError: errno.ENOSPC,
    tf.errors.OutOfRangeError: errno.EFBIG,
}

#: Names that the folder of a SavedModel may hold.
_ENTRIES = ("saved_model.pb", "fingerprint.pb", "variables", "assets", "assets.extra", "debug")


def export_saved_model(
    model: "FunctionSpaceModel",
    path: str | os.PathLike[str],
    num_samples: int = 100,
    verbose: bool = False,
) -> None:
    """Writes a SavedModel that loads where neither this library nor Keras is installed.

    Endpoints:

    - `serve(x)` (also `serving_default`): dict of `mean`, `stddev`, `epistemic_stddev`,
      `aleatoric_stddev`, each `[N, D]`, and `quantiles` `[N, D, 3]` at 5, 50 and 95 %; for a
      classifier `probabilities` `[N, D]`, `entropy` and `mutual_information` `[N]`.
    - `sample(x, seed)`: function samples `[S, N, D]`; `seed` is an int32 tensor `[2]`.

    A model with several inputs takes them as separate arguments, before the seed, under the names
    of the inputs if the user gave them, else `x_0`, `x_1` ... Everything is in the user's units.
    Inputs must have the dtypes `model.served_dtypes`, as a rule float32 whatever dtype `fit`
    received. Outputs have the dtype of the model, though units are changed in float64. If an input
    is NaN or infinite, all outputs of its row are NaN.

    The file holds what first derivatives of the outputs need, and not second ones. So TensorFlow
    warns of "ops with unsaved custom gradients" when it loads some models.

    Args:
        model: Fitted `FunctionSpaceModel`.
        path: Folder to write. A SavedModel that is there is replaced in one step, when the new one
            is complete.
        num_samples: S, the number of functions that `sample` draws.
        verbose: Whether Keras prints the endpoints.

    Raises:
        OSError: If the folder cannot be written; its old content stays as it was.
        TypeError: If `path` is not a path.
        ValueError: If `num_samples` is not a positive integer, or the folder holds other things.
    """
    check_count("num_samples", num_samples)
    path = files.checked_path("filepath", path)
    files.check_folder(path, _ENTRIES)
    path.parent.mkdir(parents=True, exist_ok=True)
    names = ["x"] if len(model.input_tensors) == 1 else _input_names(model.input_tensors)
    specs = [
        tf.TensorSpec((None, *tensor.shape[1:]), dtype, name=name)
        for name, tensor, dtype in zip(names, model.input_tensors, model.served_dtypes, strict=True)
    ]

    def as_served(values):
        return tf.cast(values, model.variable_dtype)

    def serve(*inputs):
        outputs = model.served_outputs(inputs[0] if len(inputs) == 1 else list(inputs))
        known = _finite_rows(inputs)
        return {name: _nan_unless(known, as_served(v), 0) for name, v in outputs.items()}

    def sample(*inputs):
        *inputs, seed = inputs
        x = inputs[0] if len(inputs) == 1 else inputs
        functions = as_served(model.draw_functions(x, int(num_samples), seed))
        return _nan_unless(_finite_rows(inputs), functions, 1)

    archive: Any = keras.export.ExportArchive()
    # `archive.track(model)` would save every variable twice; endpoints track what they use.
    archive.add_endpoint("serve", _with_parameters(serve, names), input_signature=specs)
    seed_spec = tf.TensorSpec([2], tf.int32, name="seed")
    endpoint = _with_parameters(sample, [*names, "seed"])
    archive.add_endpoint("sample", endpoint, input_signature=[*specs, seed_spec])
    with files.replacing(path) as partial:
        try:
            archive.write_out(str(partial), verbose=verbose)
        except tuple(_ERRORS_OF_DISKS) as error:
            raise OSError(_ERRORS_OF_DISKS[type(error)], "the SavedModel does not fit") from error


def check_served_range(model: "FunctionSpaceModel") -> None:
    """Refuses to export a model whose targets the served dtype cannot hold.

    Args:
        model: Fitted `FunctionSpaceModel`.

    Raises:
        ValueError: If the targets are too large or too small.
    """
    scaler = model.units.target_scaler
    unit, mean = scaler.stddev.numpy(), scaler.mean.numpy()
    held = np.finfo(model.variable_dtype)
    # This leaves room for values thousands of units away, and for small parts of a unit.
    largest = np.maximum(unit, np.abs(mean)) > 1e-4 * held.max
    bad = np.flatnonzero(largest | (unit < 1e4 * held.tiny))
    if len(bad):
        raise ValueError(
            f"`export` serves {model.variable_dtype}, which cannot hold these targets: multiply "
            f"them by a number. Received: means={mean[bad].tolist()} and standard "
            f"deviations={unit[bad].tolist()} in columns {bad.tolist()}"
        )


def _finite_rows(inputs):
    """Returns whether all values of a row are finite, `[N]`."""
    rows = [tf.reshape(x, [tf.shape(x)[0], -1]) for x in inputs if x.dtype.is_floating]
    finite = [tf.reduce_all(tf.math.is_finite(x), axis=1) for x in rows]
    return (
        tf.reduce_all(tf.stack(finite), axis=0)
        if finite
        else tf.fill([tf.shape(inputs[0])[0]], True)
    )


def _nan_unless(known, values, axis):
    """Returns values with NaN in the unknown rows along an axis."""
    shape = [-1 if i == axis else 1 for i in range(values.shape.rank)]
    nan = tf.constant(float("nan"), values.dtype)
    return tf.where(tf.reshape(known, shape), values, nan)


def _input_names(tensors):
    """Returns the names that the user gave the inputs, or `x_0`, `x_1` ..."""
    names = [tensor.name for tensor in tensors]
    # Keras counts the names that it makes up, so that they differ from export to export.
    made_up = any(name.startswith(("keras_tensor", "input_layer")) for name in names)
    usable = all(name.isidentifier() for name in names) and not made_up
    return names if usable else [f"x_{i}" for i in range(len(names))]


def _with_parameters(function, names):
    """Returns `function` with named parameters, so that the endpoint can be called by name."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    signature = inspect.Signature([inspect.Parameter(name, kind) for name in names])

    @collectable
    def endpoint(*arguments, **named):
        bound = signature.bind(*arguments, **named)
        return function(*bound.arguments.values())

    endpoint.__signature__ = signature
    return endpoint
