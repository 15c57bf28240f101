"""Fitted estimators in files that run no code when they are read.

A file has the format of skops, a zip archive of JSON and arrays. The model is in it as the bytes of
its `.keras` file.
"""

import os
from typing import Any

from sklearn.utils.validation import check_is_fitted

from tfp_fnspace import files

#: Types in a file that are allowed beside those that skops trusts: this library's, and dtypes.
_OURS, _DTYPES = "tfp_fnspace.", "numpy.dtype"


def save(estimator: Any, path: str | os.PathLike[str]) -> None:
    """Writes a fitted estimator to a file; an existing file is replaced in one step.

    Args:
        estimator: Estimator of `tfp_fnspace.sklearn`.
        path: Path that ends in `.skops`.

    Raises:
        ImportError: If skops is missing.
        OSError: If the file cannot be written; an existing file is then unchanged.
        ValueError: If the path ends in something else, or the estimator is not fitted.
    """
    skops = _skops()
    check_is_fitted(estimator)
    path = _checked(path)
    with files.replacing(path) as partial:
        skops.dump(estimator, partial)


def load(path: str | os.PathLike[str]) -> Any:
    """Reads an estimator that `save` has written.

    Args:
        path: Path that ends in `.skops`.

    Returns:
        The fitted estimator.

    Raises:
        FileNotFoundError: If there is no such file.
        ImportError: If skops is missing.
        ValueError: If the file is not whole, or has types of other libraries.
    """
    skops = _skops()
    path = _checked(path)
    if not path.is_file():
        raise FileNotFoundError(f"`path` must be a file. Received: path={str(path)!r}")
    try:
        types = skops.get_untrusted_types(file=path)
        trusted = [name for name in types if name.startswith(_OURS) or name == _DTYPES]
        return skops.load(path, trusted=trusted)
    except Exception as error:
        raise ValueError(
            "`path` must be a file that `save` has written. "
            f"Received: path={str(path)!r}: {type(error).__name__}: {error}"
        ) from error


def _checked(path):
    path = files.checked_path("path", path)
    if path.suffix != ".skops":
        raise ValueError(f"`path` must end in .skops. Received: path={str(path)!r}")
    return path


def _skops():
    try:
        import skops.io
    except ImportError as error:
        raise ImportError(
            'Files of estimators need skops: `pip install "tfp_fnspace[cli]"`. '
            f"Received: {type(error).__name__}: {error}"
        ) from error
    return skops.io
