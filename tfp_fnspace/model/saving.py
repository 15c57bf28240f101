"""Files of models, which are written whole and read with clear errors."""

import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import h5py
import keras
import numpy as np

from tfp_fnspace import callbacks, files, notices
from tfp_fnspace.boundary import arguments

_T = TypeVar("_T")

_CONFIG, _NAMES = "config.json", ("class_name", "config")

#: What the folder of an unzipped model may hold.
_ENTRIES = (_CONFIG, "metadata.json", "model.weights.h5", "assets")


def load_model(
    filepath: str | os.PathLike[str],
    custom_objects: dict[str, Any] | None = None,
    compile: bool = True,
) -> Any:
    """Loads a model from a `.keras` file, as `keras.models.load_model` does, with clear errors.

    The file is checked before it is used: it must be whole, to the last bit, and hold the
    configuration of a Keras model. Code in a file is never run.

    Args:
        filepath: Path of a `.keras` file, or of a folder that `model.save(..., zipped=False)`
            wrote.
        custom_objects: Dict from names to the user's own classes, unless these are registered by
            `keras.saving.register_keras_serializable`.
        compile: Whether to compile the model as it was compiled when saved.

    Returns:
        The model.

    Raises:
        TypeError: If `filepath` is not a path.
        ValueError: If there is no such file, if it is truncated, damaged or of another kind, or if
            it has weights that are not finite.

    Example:
        >>> inputs, noise = keras.Input((1,)), tfp_fnspace.likelihoods.Gaussian(0.3)
        >>> outputs = tfp_fnspace.tagi.Dense(1)(inputs)
        >>> model = tfp_fnspace.tagi.TAGIModel(inputs, outputs, likelihood=noise)
        >>> model.save("m.keras")
        >>> model = tfp_fnspace.load_model("m.keras")
    """
    path = files.checked_path("filepath", filepath)
    if path.is_dir():
        config = path / _CONFIG
        text = config.read_bytes() if config.is_file() else None
    else:
        text = _config_of_archive(path)
    _check_config(path, text)
    options = {"custom_objects": custom_objects, "compile": compile, "safe_mode": True}
    return in_words(keras.models.load_model, path, ".keras file of a model", **options)


def _config_of_archive(path: Path) -> bytes | None:
    """Returns the text of the configuration in a whole `.keras` file, `None` if it has none."""
    if path.suffix != ".keras":
        raise _unusable(path, "its name does not end in .keras")
    if not path.is_file():
        raise _unusable(path, "there is no such file")
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
            text = archive.read(_CONFIG) if _CONFIG in archive.namelist() else None
    except (zipfile.BadZipFile, zipfile.LargeZipFile, EOFError, NotImplementedError) as error:
        raise _unusable(path, f"it is no whole zip archive: {error}") from error
    except (OSError, RuntimeError, ValueError, OverflowError) as error:
        raise _unusable(path, f"it cannot be read: {error}") from error
    if damaged is not None:
        raise _unusable(path, f"{damaged} in it is damaged")
    return text


def _check_config(path: Path, text: bytes | None) -> None:
    if text is None:
        raise _unusable(path, f"it has no {_CONFIG}")
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _unusable(path, f"its {_CONFIG} is no JSON: {error}") from error
    if not isinstance(config, dict) or not all(name in config for name in _NAMES):
        raise _unusable(path, f"its {_CONFIG} is not that of a Keras model")


def _unusable(
    path: str | os.PathLike[str], why: str, kind: str = ".keras file of a model"
) -> ValueError:
    rule = f"`filepath` must be a whole {kind}. Received: filepath={str(path)!r}"
    return ValueError(f"{rule}; {why}")


def in_words(
    read: Callable[..., _T],
    path: str | os.PathLike[str],
    kind: str = "file of weights of this model",
    **options: Any,
) -> _T:
    """Calls a function that reads a file; errors name the file and the reason in one sentence.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the function raises anything else.
    """
    try:
        return read(path, **options)
    except FileNotFoundError:
        raise
    except Exception as error:
        raise _unusable(path, _reason(error), kind) from error


def _reason(error: Exception) -> str:
    """Returns the message of an error, or our message where Keras has wrapped it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line for line in lines if "Received: " in line]
    return f"{type(error).__name__}: {' '.join(ours[:1] or lines[:2])}"


def check_finite(store: Any) -> None:
    """Checks the weights of a whole file before they are loaded.

    The weights of metrics may be NaN, but no file holds them.

    Args:
        store: The argument that Keras passes to `load_own_variables` of a model.

    Raises:
        ValueError: If weights are not finite; the message names the first of them.
    """

    def check(name, item):
        # Keras itself refuses what is stored in another way (compressed or elsewhere).
        is_plain = isinstance(item, h5py.Dataset) and item.id.get_storage_size() == item.nbytes
        if is_plain and item.dtype.kind == "f":
            values = item[()]
            bad = int(np.sum(~np.isfinite(values)))
            if bad:
                raise ValueError(
                    "Weights must be finite: the training that produced them has failed. Received: "
                    f"weights {name!r} with {bad} of {values.size} that are not"
                )

    file = getattr(store, "h5_file", None)
    if file is not None:
        file.visititems(check)


def save(
    model: keras.Model,
    filepath: str | os.PathLike[str],
    overwrite: bool = True,
    zipped: bool | None = None,
    **kwargs: Any,
) -> None:
    """Writes a `.keras` file or a folder, see `FunctionSpaceModel.save`."""
    write = keras.Model.save
    if _is_remote(filepath):
        return write(model, filepath, overwrite=overwrite, zipped=zipped, **kwargs)
    path = _checked_model_path(filepath, zipped)
    if _may_write(path, overwrite):
        with files.replacing(path) as partial, notices.without_copy_keyword():
            callbacks.check_room(model, partial)
            write(model, partial, zipped=zipped, **kwargs)


def save_weights(
    model: keras.Model,
    filepath: str | os.PathLike[str],
    overwrite: bool = True,
    max_shard_size: float | None = None,
) -> None:
    """Writes the weights, see `FunctionSpaceModel.save_weights`."""
    write = keras.Model.save_weights
    if _is_remote(filepath):
        return write(model, filepath, overwrite, max_shard_size)
    if max_shard_size is None:
        path = _checked_weights_path(filepath)
        if _may_write(path, overwrite):
            with files.replacing(path) as partial:
                callbacks.save_weights(model, partial)
        return
    arguments.checked_positive("max_shard_size", max_shard_size)
    path = _checked_weights_path(filepath, ".weights.json")
    if _may_write(path, overwrite):
        with files.replacing_several(path) as partial, notices.without_copy_keyword():
            callbacks.check_room(model, partial, max_shard_size)
            write(model, partial, max_shard_size=max_shard_size)


def load_weights(model: keras.Model, filepath: str | os.PathLike[str], **options: Any) -> None:
    """Reads the weights, see `FunctionSpaceModel.load_weights`."""
    before = [(weight, weight.numpy()) for weight in model.weights]

    def read(path, **options):
        return keras.Model.load_weights(model, path, **options)

    try:
        in_words(read, filepath, **options)
    except ValueError:
        for weight, value in before:  # Keras has loaded some of them
            weight.assign(value)
        raise


def _is_remote(filepath: Any) -> bool:
    """Returns whether Keras writes to a place outside the file system."""
    return isinstance(filepath, str) and "://" in filepath


def _checked_model_path(filepath: Any, zipped: bool | None) -> Path:
    """Returns the checked path for `save`, see there."""
    path = files.checked_path("filepath", filepath)
    if zipped is not None and not zipped:
        if path.suffix == ".keras":
            raise ValueError(
                "`filepath` of a folder must not end in .keras. "
                f"Received: filepath={str(filepath)!r}, zipped={zipped}"
            )
        files.check_folder(path, _ENTRIES)
    elif path.suffix != ".keras":
        raise ValueError(f"`filepath` must end in .keras. Received: filepath={str(filepath)!r}")
    return path


def _checked_weights_path(filepath: Any, ending: str = ".weights.h5") -> Path:
    """Returns the checked path for `save_weights`, see there."""
    path = files.checked_path("filepath", filepath)
    if not path.name.endswith(ending):
        raise ValueError(f"`filepath` must end in {ending}. Received: filepath={str(filepath)!r}")
    return path


def _may_write(path: Path, overwrite: bool) -> bool:
    """Returns whether `path` may be written; asks the user if necessary, as Keras does."""
    if overwrite or not path.exists():
        return True
    return input(f"{path} exists. Replace it? [y/n] ").strip().lower() == "y"
