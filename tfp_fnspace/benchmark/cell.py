"""One cell: an estimator on a split, in its own process, which writes one file.

`python -m tfp_fnspace.benchmark.cell ESTIMATOR DATASET SPLIT DATA_DIR FILE` ends when its standard
input ends, so that it does not outlive the run that started it.
"""

import importlib.metadata
import json
import math
import os
import pathlib
import sys
import threading
import time
import traceback
from typing import Any

import numpy as np

from tfp_fnspace import files, metrics
from tfp_fnspace.benchmark import estimators
from tfp_fnspace.benchmark.records import machine, versions
from tfp_fnspace.benchmark.rivals.base import Declined
from tfp_fnspace.benchmark.selection import load
from tfp_fnspace.typing import ArrayLike, Distribution

try:
    import resource
except ImportError:  # Windows
    resource = None

#: Levels at which the frequencies of the probability integral transform are kept.
LEVELS = np.arange(1, 20) / 20

_PACKAGES_OF_RIVALS = ("scikit-learn", "scipy", "ngboost")


def run(
    estimator: str, dataset: str, split: int, data_dir: str | os.PathLike[str] | None
) -> dict[str, Any]:
    """Fits and scores an estimator on a split.

    Args:
        estimator: Name from `estimators.ESTIMATORS`; its seed is the number of the split.
        dataset: Name of the data set.
        split: Number of the split.
        data_dir: Folder of the data.

    Returns:
        A record: `estimator`, `dataset`, `split`, `status` ("done", "failed" or "declined"); the
        entries of `scores` if it is done, else `error`; `fit_seconds`, `predict_seconds`,
        `cpu_seconds` of both, `peak_memory_mb` of the process, `threads`, `versions`, `machine`.
    """
    record = {"estimator": estimator, "dataset": dataset, "split": split}
    begin, begin_cpu = time.perf_counter(), time.process_time()
    try:
        rows = load(dataset, data_dir).split(split)
        model = estimators.make(estimator, random_state=split)
        begin, begin_cpu = time.perf_counter(), time.process_time()
        model.fit(rows.x_train, rows.y_train[:, 0])
        record["fit_seconds"] = round(time.perf_counter() - begin, 3)
        begin = time.perf_counter()
        distribution = model.predict_distribution(rows.x_test)
        record["predict_seconds"] = round(time.perf_counter() - begin, 3)
        record["cpu_seconds"] = round(time.process_time() - begin_cpu, 3)
        record.update(scores(rows.y_test, distribution), status="done")
    except Declined as error:
        record.update(status="declined", error=str(error))
    except Exception as error:  # the other cells go on after any error, and the table reports it
        lines = "".join(traceback.format_exception(error))
        record.update(status="failed", error=lines[-2000:])
        record.setdefault("fit_seconds", round(time.perf_counter() - begin, 3))
    record["peak_memory_mb"] = _peak_memory()
    record["threads"] = os.environ.get("OMP_NUM_THREADS")
    record["versions"] = versions() | _versions_of_rivals()
    return {**record, "machine": machine()}


def scores(y: ArrayLike, distribution: Distribution) -> dict[str, Any]:
    """Returns scores of a predictive distribution, in the user's units.

    Args:
        y: Targets `[N, 1]`.
        distribution: Batch `[N]`, event `[1]`.

    Returns:
        Dict of `rmse`, `nll`, `crps`, `coverage_50`, `coverage_90`, `width_50`, `width_90` (means),
        `calibration_error`, the mean distance of the frequencies of the PIT from the levels
        0.05, 0.1, ..., 0.95, and `frequencies`, these 19 numbers.

    Raises:
        ValueError: If a score is not finite.
    """
    y = np.asarray(y, np.float64)
    names = ("rmse", "nll", "crps", "calibration_error")
    found = {name: float(getattr(metrics, name)(y, distribution)) for name in names}
    for level in (50, 90):
        options = (y, distribution, level / 100)
        found[f"coverage_{level}"] = float(metrics.interval_coverage(*options))
        found[f"width_{level}"] = float(metrics.interval_width(*options))
    if not all(math.isfinite(value) for value in found.values()):
        raise ValueError(f"All scores must be finite. Received: {found}")
    frequencies = np.mean(np.asarray(metrics.pit(y, distribution)) <= LEVELS, axis=0)
    return {**found, "frequencies": frequencies.round(5).tolist()}


def _peak_memory():
    if resource is None:
        return None
    parts = 1024**2 if sys.platform == "darwin" else 1024  # of an MB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // parts


def _versions_of_rivals():
    found = {}
    for name in _PACKAGES_OF_RIVALS:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def write(path: pathlib.Path, record: dict[str, Any]) -> None:
    """Writes a record in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with files.replacing(path) as partial:
        partial.write_text(json.dumps(record, indent=1) + "\n")


def _end_with_the_run():
    sys.stdin.buffer.read()
    os._exit(1)


def main(estimator: str, dataset: str, split: str, data_dir: str, path: str) -> None:
    """Runs a cell and writes its record."""
    threading.Thread(target=_end_with_the_run, daemon=True).start()
    write(files.checked_path("path", path), run(estimator, dataset, int(split), data_dir or None))


if __name__ == "__main__":
    main(*sys.argv[1:])
