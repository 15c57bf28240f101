"""Tables in files: CSV, Parquet, Feather and npz."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tfp_fnspace import files


def read(path: str | os.PathLike[str]) -> Any:
    """Reads a table.

    Args:
        path: File whose name ends in `.csv` (also `.csv.gz` and others that pandas reads),
            `.parquet`, `.feather` or `.npz`. In an npz, each array `[N]` is a column, and an array
            `[N, P]` named `x` is the columns `x_0`, `x_1` ...

    Returns:
        `pandas.DataFrame` with column names that are strings.

    Raises:
        FileNotFoundError: If there is no such file.
        ImportError: If pandas, or PyArrow for Parquet and Feather, is missing.
        ValueError: If the name ends in something else, or the file is not a table.
    """
    import pandas

    path = files.checked_path("data", path)
    kind = _kind(path)
    readers: dict[str, Callable[..., Any]] = {
        "csv": pandas.read_csv,
        "parquet": pandas.read_parquet,
        "feather": pandas.read_feather,
        "npz": _read_npz,
    }
    if not path.is_file():
        raise FileNotFoundError(f"`data` must be a file. Received: data={str(path)!r}")
    try:
        table = readers[kind](path)
    except (ValueError, OSError) as error:  # also the errors of pandas's parser
        reason = str(error).strip().splitlines()
        raise ValueError(
            f"`data` must be a table in a {kind} file. "
            f"Received: data={str(path)!r}: {reason[-1] if reason else type(error).__name__}"
        ) from error
    table.columns = [str(name).strip() for name in table.columns]
    names = list(table.columns)
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ValueError(f"The columns must have different names. Received: {repeated} repeated")
    if not len(table):
        raise ValueError(f"The table must have rows. Received: data={str(path)!r} with none")
    return table


def write(table: Any, path: str | os.PathLike[str]) -> None:
    """Writes a table as `read` reads it; an existing file is replaced in one step.

    Args:
        table: `pandas.DataFrame`.
        path: File whose name ends in `.csv`, `.parquet`, `.feather` or `.npz`.

    Raises:
        OSError: If the file cannot be written; an existing file is then unchanged.
        ValueError: If the name ends in something else.
    """
    path = files.checked_path("out", path)
    kind = _kind(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with files.replacing(path) as partial:
        if kind == "csv":
            table.to_csv(partial, index=False)
        elif kind == "npz":
            np.savez(partial, **{str(name): table[name].to_numpy() for name in table.columns})
        else:
            getattr(table, f"to_{kind}")(partial)


def check_name(path: str | os.PathLike[str]) -> None:
    """Refuses the name of a file that `write` cannot write.

    Raises:
        ValueError: If the name ends in something else.
    """
    _kind(files.checked_path("out", path))


def _kind(path: Path) -> str:
    for kind in ("csv", "parquet", "feather", "npz"):
        if f".{kind}" in [suffix.lower() for suffix in path.suffixes]:
            return kind
    raise ValueError(
        "A table must be a file whose name ends in .csv, .parquet, .feather or .npz. "
        f"Received: {str(path)!r}"
    )


def _read_npz(path):
    import pandas

    columns = {}
    with np.load(path, allow_pickle=False) as arrays:
        for name in arrays.files:
            array = arrays[name]
            if array.ndim == 1:
                columns[name] = array
            elif array.ndim == 2:
                names = (
                    [name] if array.shape[1] == 1 else [f"{name}_{i}" for i in range(len(array[0]))]
                )
                columns.update(zip(names, array.T, strict=True))
            else:
                raise ValueError(f"array {name!r} has shape {array.shape}, not [N] or [N, P]")
    return pandas.DataFrame(columns)
