"""SavedModels that plain TensorFlow serves."""

import errno
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from tfp_fnspace import files
from tfp_fnspace.boundary.arguments import checked_count
from tfp_fnspace.export import endpoints, graphs
from tfp_fnspace.typing import Tensor

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
    input_signature: Any = None,
) -> None:
    """Writes a SavedModel that loads where neither this library nor Keras is installed.

    Endpoints:

    - `serve(x)` (also `serving_default`): dict of `mean`, `stddev`, `epistemic_stddev`,
      `aleatoric_stddev`, each `[N, D]`, and `quantiles` `[N, D, 3]` at 5, 50 and 95 %; for a
      classifier `probabilities` `[N, D]`, `entropy` and `mutual_information` `[N]`.
    - `sample(x, seed)`: function samples `[S, N, D]`; `seed` is an int32 tensor `[2]`.

    A model with several inputs takes them as separate arguments, before the seed, under the names
    of the inputs if the user gave them, else `x_0`, `x_1` ... Everything is in the user's units.
    Inputs must have the dtypes of `input_signature`, by default `model.served_dtypes`, which are as
    a rule float32 whatever dtype `fit` received. Outputs have the dtype of the model, though units
    are changed in float64. If an input is NaN or infinite, all outputs of its row are NaN.

    The same seed gives the same functions in every call of `sample`, so rows may come in several
    calls. This does not hold for models with `draws_jointly`, whose functions of a call need all
    rows at once.

    The random numbers behind predictions are drawn once, now: `serve` has no random operation. Its
    derivatives are those of its operations, and that of a square root at 0 is 0.

    Args:
        model: Fitted `FunctionSpaceModel`.
        path: Folder to write. A SavedModel that is there is replaced in one step, when the new one
            is complete.
        num_samples: S, the number of functions that `sample` draws.
        verbose: Whether Keras prints the endpoints.
        input_signature: As for `FunctionSpaceModel.export`.

    Raises:
        OSError: If the folder cannot be written; its old content stays as it was.
        TypeError: If `path` is not a path.
        ValueError: If `num_samples` is not a positive integer, the signature does not suit the
            inputs, or the folder holds other things.
    """
    num_samples = checked_count("num_samples", num_samples)
    serve, sample = endpoints.serve_of(model), endpoints.sample_of(model, num_samples)
    specs = endpoints.input_specs(model, input_signature)
    write_saved_model(path, serve, sample, specs, verbose)


def write_saved_model(
    path: str | os.PathLike[str],
    serve: Callable[..., dict[str, Tensor]],
    sample: Callable[..., Tensor],
    specs: Sequence[tf.TensorSpec],
    verbose: bool = False,
) -> None:
    """Writes two functions of tensors as the endpoints of a SavedModel.

    Args:
        path: As for `export_saved_model`.
        serve: Function of the inputs, which returns a dict of tensors. Its random numbers are drawn
            once, now.
        sample: Function of the inputs and a seed, an int32 tensor `[2]`.
        specs: A named `tf.TensorSpec` for each input, a list.
        verbose: As for `export_saved_model`.

    Raises:
        OSError: As for `export_saved_model`.
        TypeError: As for `export_saved_model`.
        ValueError: If the folder holds other things.
    """
    path = files.checked_path("filepath", path)
    files.check_folder(path, _ENTRIES)
    path.parent.mkdir(parents=True, exist_ok=True)
    seed = tf.TensorSpec([2], tf.int32, name="seed")
    endpoints_of = {
        "serve": (graphs.frozen(serve, specs), specs),
        "sample": (graphs.plain(sample, [*specs, seed]), [*specs, seed]),
    }
    archive: Any = keras.export.ExportArchive()
    # `archive.track(model)` would save every variable twice; endpoints track what they use.
    for name, (function, kinds) in endpoints_of.items():
        endpoint = endpoints.with_parameters(function, [spec.name for spec in kinds])
        archive.add_endpoint(name, endpoint, input_signature=kinds)
    with files.replacing(path) as partial:
        try:
            archive.write_out(str(partial), verbose=verbose)
        except tuple(_ERRORS_OF_DISKS) as error:
            raise OSError(_ERRORS_OF_DISKS[type(error)], "the SavedModel does not fit") from error
