"""Records of results: runs, versions and machines, in files that many processes add to."""

import importlib
import json
import os
import pathlib
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from tfp_fnspace import files

_PACKAGES = ("tfp_fnspace", "tensorflow", "keras", "tensorflow-probability", "numpy")


def versions() -> dict[str, str]:
    """Returns versions of Python and of the packages that a number depends on."""
    # The versions are those of the modules: this package need not be installed, and TensorFlow's
    # distribution goes by several names.
    modules = {name: importlib.import_module(name.replace("-", "_")) for name in _PACKAGES}
    found = {name: module.__version__ for name, module in modules.items()}
    return {"python": platform.python_version(), **found}


def machine() -> dict[str, Any]:
    """Returns a description of the machine on which the numbers were measured."""
    return {"processor": _processor(), "cores": os.cpu_count(), "system": platform.system()}


def _processor():
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def read_records(
    path: str | os.PathLike[str], fields: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """Returns the records of a results file, none if there is no file.

    Args:
        path: The results file.
        fields: Dict from the names that each record must have to the types of their values.

    Raises:
        ValueError: If the file is not a JSON list of such records.
    """
    path = pathlib.Path(path)
    if not path.exists():
        return []
    try:
        records = json.loads(path.read_text())
    except (ValueError, RecursionError):
        records = None
    rule = "A results file must hold a JSON list of records"
    if not isinstance(records, list):
        raise ValueError(f"{rule}. Received: path='{path}'")
    for i, record in enumerate(records):
        if not isinstance(record, dict):
            raise ValueError(f"{rule}. Received: path='{path}', {record!r:.80} in place {i}")
        for name, kind in (fields or {}).items():
            if name not in record or not isinstance(record[name], kind):
                raise ValueError(
                    f"{rule} with {sorted(fields)}. "
                    f"Received: path='{path}', {name}={record.get(name)!r:.80} in place {i}"
                )
    return records


def write_records(path: str | os.PathLike[str], records: Sequence[dict[str, Any]]) -> None:
    """Writes a results file in one step, so that a killed run leaves a complete file."""
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with files.locked(path):
        _write(path, records)


def add_records(
    path: str | os.PathLike[str],
    records: Iterable[dict[str, Any]],
    replaced: Callable[[dict[str, Any]], bool] = lambda record: False,
) -> list[dict[str, Any]]:
    """Adds records to a results file, to which many processes may add at a time.

    Args:
        path: The results file.
        records: The new records.
        replaced: Function of a record that returns whether to drop it.

    Returns:
        All records of the new file.
    """
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with files.locked(path):
        records = [r for r in read_records(path) if not replaced(r)] + list(records)
        _write(path, records)
    return records


def _write(path, records):
    with files.replacing(path) as partial:
        partial.write_text(json.dumps(records, indent=1) + "\n")


def run_missing(
    path: str | os.PathLike[str],
    cells: Iterable[dict[str, Any]],
    run: Callable[..., dict[str, Any]],
) -> Iterator[dict[str, Any]]:
    """Runs the cells that a results file does not have, and writes it after each.

    Args:
        path: The results file.
        cells: Dicts that identify the cell of a record, such as `{"method": "diwp", "seed": 0}`.
        run: Function of the entries of a cell that returns a dict of results.

    Yields:
        The new records: cell, results, seconds of the whole cell, versions and machine.
    """
    for cell in cells:
        records = read_records(path)
        if any(all(name in r and r[name] == v for name, v in cell.items()) for r in records):
            continue
        begin = time.monotonic()
        record = {**cell, **run(**cell)}
        record.setdefault("seconds", round(time.monotonic() - begin, 1))
        record.update(versions=versions(), machine=machine())
        add_records(path, [record])
        yield record
