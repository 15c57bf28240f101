"""The protocols of the papers on data sets with fixed splits; runs resume cell by cell."""

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from tfp_fnspace import metrics, registry
from tfp_fnspace.benchmark import protocol
from tfp_fnspace.benchmark.records import add_records, machine, read_records, versions
from tfp_fnspace.benchmark.selection import load, parse_splits
from tfp_fnspace.datasets import Split
from tfp_fnspace.model import FunctionSpaceModel

#: Cost of a cell of any size (tracing, compiling), in rows, for estimates of the time left.
_FIXED_WORK = 3000

#: Entries that a record of `run_paper` must have, and their types.
_FIELDS = {
    **dict.fromkeys(("variant", "dataset"), str),
    **dict.fromkeys(("rmse", "nll", "seconds"), int | float),
    "split": int,
    "config": dict,
}


def score(model: FunctionSpaceModel, split: Split) -> dict[str, float]:
    """Scores a fitted model on the test rows of a split, in the user's units."""
    distribution = model.predict_distribution(split.x_test)
    y = np.asarray(split.y_test, np.float64)
    names = ("rmse", "mae", "nll", "crps")
    scores = {name: float(getattr(metrics, name)(y, distribution)) for name in names}
    scores["coverage_90"] = float(metrics.interval_coverage(y, distribution, 0.9))
    scores["width_90"] = float(metrics.interval_width(y, distribution, 0.9))
    return scores


def run_paper(
    file: str | os.PathLike[str],
    variants: Sequence[str] | None,
    names: Sequence[str] | None,
    splits: str,
    data_dir: str | os.PathLike[str] | None,
    out: str | os.PathLike[str],
    echo: Callable[[str], None] = print,
) -> list[dict[str, Any]]:
    """Fits and scores a protocol on every split of every data set, in the order given.

    Each cell is written to `out` when it is done. Cells that are there with the same settings are
    kept, so that a killed run resumes. Split k has seed k.

    Args:
        file: See `protocol.read`.
        variants: Titles of its variants, or `None` for all.
        names: Names of data sets, or `None` for those that have results in the paper.
        splits: See `parse_splits`.
        data_dir: Folder of `<name>.npz`, or its parent.
        out: Results file, JSON.
        echo: Function that prints a line.

    Returns:
        List of records.

    Raises:
        ValueError: If a name is unknown, or if a cell had bad data (after all cells ran).
    """
    found = protocol.read(file)
    if not (names or found.datasets()):
        raise ValueError(
            "Data sets must be given by --datasets, or as [results] of the protocol. "
            f"Received: '{file}', which has no results"
        )
    cells, loaded = [], {}
    for variant in variants or found.variants:
        if variant not in found.variants:
            known = sorted(found.variants)
            raise ValueError(f"A variant must be one of {known}. Received: {variant!r}")
        for name in names or found.datasets():
            loaded[name] = loaded.get(name) or load(name, data_dir)
            for k in parse_splits(splits, loaded[name].num_splits):
                cells.append((variant, name, k, found.config(variant, name, k)))
    records = read_records(out, _FIELDS)
    todo = [cell for cell in cells if not any(_same(cell, record) for record in records)]
    echo(f"{len(cells)} cells, {len(cells) - len(todo)} of them done before")
    work = [_FIXED_WORK + len(loaded[name].x) for _, name, _, _ in todo]
    begin, failed = time.monotonic(), []
    for i, (variant, name, k, config) in enumerate(todo):
        try:
            record = _run_cell(found.method, variant, loaded[name], name, k, config)
        except (ValueError, TypeError) as error:  # bad data in one cell must not cost the others
            failed.append(f"{variant} {name} split {k}")
            echo(f"[{i + 1}/{len(todo)}] {failed[-1]} failed: {error}")
            continue
        place = variant, name, k
        records = add_records(out, [record], lambda other, place=place: _same_place(place, other))
        left = (time.monotonic() - begin) * sum(work[i + 1 :]) / sum(work[: i + 1])
        echo(
            f"[{i + 1}/{len(todo)}] {variant} {name} split {k}: rmse {record['rmse']:.4g}, "
            f"nll {record['nll']:.4g}, {record['seconds']:.1f} s; about {left / 60:.1f} min left"
        )
    if failed:
        raise ValueError(
            f"All cells must be fitted; what failed is above. Received: {failed} failed"
        )
    return records


def _same_place(place, record):
    return place == (record["variant"], record["dataset"], record["split"])


def _same(cell, record):
    return _same_place(cell[:3], record) and cell[3] == record["config"]


def _run_cell(method, variant, dataset, name, k, config):
    keras.utils.clear_session()
    split = dataset.split(k)
    begin = time.monotonic()
    model, chosen = registry.method(method).fit(split.x_train, split.y_train, **config)
    seconds = time.monotonic() - begin
    return {
        "variant": variant,
        "dataset": name,
        "split": k,
        **score(model, split),
        "seconds": round(seconds, 3),
        "config": config,
        "chosen": chosen,
        "versions": versions(),
        "machine": machine(),
    }


def summary(records: Sequence[dict[str, Any]]) -> str:
    """Returns the mean and standard error over splits, a text table."""
    lines = [
        f"{'variant':<24} {'dataset':<10} {'splits':>6} {'rmse':>16} {'nll':>16} {'seconds':>9}"
    ]
    places = dict.fromkeys((r["variant"], r["dataset"]) for r in records)
    for variant, name in places:
        rows = [r for r in records if (r["variant"], r["dataset"]) == (variant, name)]
        cells = [_mean(values) for values in _columns(rows)]
        seconds = np.mean([r["seconds"] for r in rows])
        lines.append(
            f"{variant:<24} {name:<10} {len(rows):>6} {cells[0]:>16} {cells[1]:>16} {seconds:>9.1f}"
        )
    return "\n".join(lines)


def _columns(rows):
    return [[r[key] for r in rows] for key in ("rmse", "nll")]


def _mean(values):
    """Returns the mean, with the standard error if there are several values."""
    mean = f"{np.mean(values):.4f}"
    if len(values) == 1:
        return mean
    return f"{mean}±{np.std(values, ddof=1) / np.sqrt(len(values)):.4f}"
