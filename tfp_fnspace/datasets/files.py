"""Benchmark files with fixed splits, and folds of rows for model choice."""

import os
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tfp_fnspace.boundary.arguments import check_count, is_integer

#: Environment variable that names the folder of the files.
DATA_DIR_VARIABLE = "TFP_FNSPACE_DATA"

_ARRAYS = ("x", "y", "test_index")

#: Errors of NumPy and zipfile for files that are damaged or of another kind.
_UNREADABLE = (OSError, ValueError, EOFError, NotImplementedError, zipfile.BadZipFile, zlib.error)


class Split(NamedTuple):
    """One division of a benchmark into training and test rows.

    Attributes:
        x_train: `[N_train, X]` inputs, rows in the order of the file.
        y_train: `[N_train, D]` targets.
        x_test: `[N_test, X]` inputs, rows in the order of the file's `test_index`.
        y_test: `[N_test, D]` targets.
    """

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray


@dataclass(frozen=True, eq=False)
class Benchmark:
    """A data set with fixed splits, as read by `load`.

    Attributes:
        name: Name under which it was loaded.
        x: `[N, X]` inputs in the units of the file.
        y: `[N, D]` targets in the units of the file.
        test_index: `[num_splits, N_test]` row numbers of the test part of each split.
    """

    name: str
    x: np.ndarray
    y: np.ndarray
    test_index: np.ndarray

    @property
    def num_splits(self) -> int:
        """Number of fixed splits."""
        return len(self.test_index)

    def split(self, k: int) -> Split:
        """Returns the rows of split `k`: the test rows in the file's list, all others for training.

        Args:
            k: Number of the split, 0 <= k < `num_splits`.

        Returns:
            `Split` of copies in the units of the file.

        Raises:
            ValueError: If `k` is not the number of a split.
        """
        if not is_integer(k) or not 0 <= k < self.num_splits:
            raise ValueError(
                f"`k` must be an integer from 0 to {self.num_splits - 1} for '{self.name}'. "
                f"Received: k={k!r}"
            )
        test = self.test_index[k]
        train = np.setdiff1d(np.arange(len(self.x)), test)
        return Split(self.x[train], self.y[train], self.x[test], self.y[test])


def load(name: str, data_dir: str | os.PathLike[str] | None = None) -> Benchmark:
    """Reads the benchmark `<data_dir>/<name>.npz`.

    The file holds `x` `[N, X]`, `y` `[N, D]` or `[N]`, and `test_index` `[num_splits, N_test]` or
    `[N_test]` (one split). float32 and float64 are kept, other numbers become float64. Nothing is
    standardised and nothing is ever written.

    Example:
        >>> boston = load("boston", "data/uci")  # or load("uci/boston", "data")
        >>> x_train, y_train, x_test, y_test = boston.split(0)

    Args:
        name: Path of the file below `data_dir`, without `.npz`: `"boston"` when `data_dir` is the
            folder of the file, `"uci/boston"` when it is the parent of `uci`.
        data_dir: Folder; by default the environment variable `TFP_FNSPACE_DATA`.

    Returns:
        `Benchmark` with `x` `[N, X]`, `y` `[N, D]`, `num_splits` and `split(k)`.

    Raises:
        FileNotFoundError: If the folder or the file is missing; in the latter case it lists the
            files.
        ValueError: If no folder is given at all, or the file lacks an array, or an array has the
            wrong type or shape, or test indices are out of range or repeated.
    """
    folder = _data_folder(data_dir)
    path = folder / f"{name}.npz"
    if not path.is_file():
        raise FileNotFoundError(
            f"`name` must be one of {available(folder)} in '{folder}'. Received: name={name!r}"
        )
    if not zipfile.is_zipfile(path):
        raise ValueError(f"A data file must be a complete .npz archive. Received: path='{path}'")
    x, y, test_index = _read_arrays(path)
    x, y = _real_matrices(x, y, path)
    return Benchmark(str(name), x, y, _checked_test_index(test_index, len(x), path))


def available(data_dir: str | os.PathLike[str] | None = None) -> list[str]:
    """Returns the names that `load` accepts: files in the folder and in folders inside it.

    Args:
        data_dir: Folder; by default the environment variable `TFP_FNSPACE_DATA`.

    Returns:
        Sorted names such as `"boston"` or `"uci/boston"`; archives without the arrays `x`, `y` and
        `test_index` are left out.

    Raises:
        FileNotFoundError: If the folder is missing.
        ValueError: If no folder is given at all.
    """
    folder = _data_folder(data_dir)
    paths = [*folder.glob("*.npz"), *folder.glob("*/*.npz")]
    names = (path.relative_to(folder).as_posix() for path in paths if _has_the_arrays(path))
    return sorted(name.removesuffix(".npz") for name in names)


def k_fold(num_rows: int, num_folds: int, seed: int = 0) -> list[tuple[np.ndarray, np.ndarray]]:
    """Returns random folds of the rows 0 ... num_rows - 1 for cross-validation.

    Every row is a validation row exactly once; fold sizes differ by at most one.

    Args:
        num_rows: Number of rows, at least 2.
        num_folds: Number of folds, 2 <= num_folds <= num_rows.
        seed: Seed of `numpy.random.default_rng`.

    Returns:
        `num_folds` pairs `(train_index, valid_index)` of sorted row numbers.

    Raises:
        ValueError: If `num_rows` or `num_folds` is out of range.
    """
    check_count("num_rows", num_rows, 2)
    if not is_integer(num_folds) or not 2 <= num_folds <= num_rows:
        raise ValueError(
            f"`num_folds` must be an integer from 2 to `num_rows`={num_rows}. "
            f"Received: num_folds={num_folds!r}"
        )
    order = np.random.default_rng(seed).permutation(num_rows)
    folds = [np.sort(fold) for fold in np.array_split(order, num_folds)]
    return [(np.setdiff1d(order, valid), valid) for valid in folds]


# --------------------------------------------------------------------------- helpers


def _data_folder(data_dir):
    data_dir = data_dir or os.environ.get(DATA_DIR_VARIABLE)
    if not data_dir:
        raise ValueError(
            "A data folder must be given, either as the argument `data_dir` or as the environment "
            f"variable {DATA_DIR_VARIABLE}. Received: data_dir={data_dir!r}"
        )
    folder = Path(data_dir)
    if not folder.is_dir():
        raise FileNotFoundError(
            f"`data_dir` (or {DATA_DIR_VARIABLE}) must be an existing folder. "
            f"Received: data_dir='{folder}'"
        )
    return folder


def _has_the_arrays(path):
    # The archive's directory is enough: reading the arrays of every file would take seconds.
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return {f"{key}.npy" for key in _ARRAYS} <= set(archive.namelist())


def _read_arrays(path):
    """Returns the arrays of a file."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            names = sorted(archive.files)
            arrays = [archive[key] for key in _ARRAYS if key in names]
    except (
        OSError,
        ValueError,
        EOFError,
        NotImplementedError,
        zipfile.BadZipFile,
        zlib.error,
    ) as e:
        raise ValueError(
            "A data file must be a whole .npz archive of numbers. "
            f"Received: path='{path}', which cannot be read: {e}"
        ) from e
    missing = [key for key in _ARRAYS if key not in names]
    if missing:
        raise ValueError(
            f"A data file must hold the arrays 'x', 'y' and 'test_index'; {missing} missing. "
            f"Received: path='{path}' with {names}"
        )
    return arrays


def _real_matrices(x, y, path):
    y = y[:, np.newaxis] if y.ndim == 1 else y
    if x.ndim != 2 or y.ndim != 2 or len(x) != len(y) or x.size == 0 or y.size == 0:
        raise ValueError(
            "`x` must have shape [N, X] and `y` shape [N, D] or [N] with the same N, none empty. "
            f"Received: x.shape={x.shape}, y.shape={y.shape} in '{path}'"
        )
    return _real(x, "x", path), _real(y, "y", path)


def _real(values, name, path):
    if values.dtype.kind not in "fiub":
        raise ValueError(
            f"`{name}` must hold real numbers. Received: {name}.dtype={values.dtype} in '{path}'"
        )
    return values if values.dtype in (np.float32, np.float64) else values.astype(np.float64)


def _checked_test_index(test_index, num_rows, path):
    test_index = test_index[np.newaxis] if test_index.ndim == 1 else test_index
    if test_index.ndim != 2 or test_index.size == 0 or test_index.dtype.kind not in "iu":
        raise ValueError(
            "`test_index` must hold integers in shape [num_splits, N_test] or [N_test]. Received: "
            f"test_index.shape={test_index.shape}, dtype={test_index.dtype} in '{path}'"
        )
    low, high = test_index.min(), test_index.max()
    if low < 0 or high >= num_rows:
        raise ValueError(
            f"`test_index` must lie between 0 and {num_rows - 1}, the rows of `x`. "
            f"Received: test_index from {low} to {high} in '{path}'"
        )
    if (np.diff(np.sort(test_index, axis=1), axis=1) == 0).any():
        raise ValueError(
            "`test_index` must not name a row twice in one split. "
            f"Received: test_index with repeated rows in '{path}'"
        )
    if test_index.shape[1] == num_rows:
        raise ValueError(
            "`test_index` must leave rows to train on. "
            f"Received: {num_rows} test rows of {num_rows} in '{path}'"
        )
    return test_index
