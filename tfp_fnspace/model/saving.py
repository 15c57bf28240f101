"""Models in files: written whole, and read with one clear error."""

import json
import zipfile

import h5py
import keras
import numpy as np

from tfp_fnspace import files

_CONFIG, _NAMES = "config.json", ("class_name", "config")

#: What the folder of an unzipped model may hold.
_ENTRIES = (_CONFIG, "metadata.json", "model.weights.h5", "assets")


def load_model(filepath, custom_objects=None, compile=True):
    """Loads a model from a `.keras` file, as `keras.models.load_model`, with clear errors.

    The file is checked before anything is made of it: that it is whole, to the last bit, and holds
    the configuration of a Keras model. No code of a file is ever run.

    Args:
        filepath: Path of a `.keras` file, or of a folder that `model.save(..., zipped=False)`
            wrote.
        custom_objects: Dict of names and classes of the user's own, unless they are registered
            by `keras.saving.register_keras_serializable`.
        compile: Whether to compile the model as it was.

    Returns:
        The model.

    Raises:
        TypeError: If `filepath` is no path.
        ValueError: If there is no such file, or it is truncated, damaged, or of something else, or
            has weights that are not finite.

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


def _config_of_archive(path):
    """The text of the configuration in a whole `.keras` file, `None` if it has none."""
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


def _check_config(path, text):
    if text is None:
        raise _unusable(path, f"it has no {_CONFIG}")
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _unusable(path, f"its {_CONFIG} is no JSON: {error}") from error
    if not isinstance(config, dict) or not all(name in config for name in _NAMES):
        raise _unusable(path, f"its {_CONFIG} is not that of a Keras model")


def _unusable(path, why, kind=".keras file of a model"):
    rule = f"`filepath` must be a whole {kind}. Received: filepath={str(path)!r}"
    return ValueError(f"{rule}; {why}")


def in_words(read, path, kind="file of weights of this model", **options):
    """Calls a function that reads a file; its errors are about the file, in one sentence.

    Raises:
        FileNotFoundError: If there is none.
        ValueError: If the function raises anything else.
    """
    try:
        return read(path, **options)
    except FileNotFoundError:
        raise
    except Exception as error:
        raise _unusable(path, _reason(error), kind) from error


def _reason(error):
    """What an error says; ours, where Keras has wrapped it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line for line in lines if "Received: " in line]
    return f"{type(error).__name__}: {' '.join(ours[:1] or lines[:2])}"


def check_finite(store):
    """Checks the weights of a whole file before they are loaded.

    Those of metrics, which may be NaN, are in no file.

    Args:
        store: What Keras gives the `load_own_variables` of a model.

    Raises:
        ValueError: With the name and the number of the first weights that are not finite.
    """

    def check(name, item):
        # What is not stored as Keras stores it (compressed, elsewhere) is for Keras to refuse.
        is_plain = isinstance(item, h5py.Dataset) and item.id.get_storage_size() == item.nbytes
        if is_plain and item.dtype.kind == "f":
            values = item[()]
            bad = int(np.sum(~np.isfinite(values)))
            if bad:
                raise ValueError(
                    "Weights must be finite: the training that they come from has failed. "
                    f"Received: weights {name!r} with {bad} of {values.size} that are not"
                )

    file = getattr(store, "h5_file", None)
    if file is not None:
        file.visititems(check)


def is_remote(filepath):
    """Whether Keras writes elsewhere than in the file system."""
    return isinstance(filepath, str) and "://" in filepath


def checked_model_path(filepath, zipped):
    """The path that `save` writes, see there."""
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


def checked_weights_path(filepath, ending=".weights.h5"):
    """The path that `save_weights` writes, see there."""
    path = files.checked_path("filepath", filepath)
    if not path.name.endswith(ending):
        raise ValueError(f"`filepath` must end in {ending}. Received: filepath={str(filepath)!r}")
    return path


def may_write(path, overwrite):
    """Whether nothing is there, or it may be replaced; asks if need be, as Keras does."""
    if overwrite or not path.exists():
        return True
    return input(f"{path} exists. Replace it? [y/n] ").strip().lower() == "y"
