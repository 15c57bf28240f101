"""SavedModels that plain TensorFlow serves."""

import errno
import os
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from tfp_fnspace import files
from tfp_fnspace.boundary.arguments import check_count
from tfp_fnspace.export import endpoints, graphs

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

    The random numbers behind predictions are drawn once, now: `serve` has no random operation. Its
    derivatives are those of its operations, and that of a square root at 0 is 0.

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
    specs = endpoints.input_specs(model)
    seed = tf.TensorSpec([2], tf.int32, name="seed")
    serve = graphs.frozen(endpoints.serve_of(model), specs)
    sample = graphs.plain(endpoints.sample_of(model, int(num_samples)), [*specs, seed])
    archive: Any = keras.export.ExportArchive()
    # `archive.track(model)` would save every variable twice; endpoints track what they use.
    for name, function, kinds in (("serve", serve, specs), ("sample", sample, [*specs, seed])):
        endpoint = endpoints.with_parameters(function, [spec.name for spec in kinds])
        archive.add_endpoint(name, endpoint, input_signature=kinds)
    with files.replacing(path) as partial:
        try:
            archive.write_out(str(partial), verbose=verbose)
        except tuple(_ERRORS_OF_DISKS) as error:
            raise OSError(_ERRORS_OF_DISKS[type(error)], "the SavedModel does not fit") from error
