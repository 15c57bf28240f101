"""The page of benchmarks of a checkout, made from its committed results, and its pictures.

`benchmarks/page.md.in` is the page without its tables. A line `{{common GROUP}}` stands for the
table of the cells in `benchmarks/uci/results` on the data sets that `benchmarks/uci/sets.toml`
lists for GROUP. A line `{{method NAME}}` stands for the paper's numbers beside ours, from
`benchmarks/uci/paper` and from `ROWS[NAME]` in `benchmarks/tables.py`.
"""

import importlib.util
import os
import pathlib
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from tfp_fnspace import files
from tfp_fnspace.benchmark import paper_rows, protocol, tables
from tfp_fnspace.benchmark.estimators import title

_PAGE, _IMAGES = pathlib.Path("docs/benchmarks.md"), pathlib.Path("docs/images/benchmark")
_CELLS, _SETS = pathlib.Path("benchmarks/uci/results"), pathlib.Path("benchmarks/uci/sets.toml")
_TEMPLATE, _TABLES = pathlib.Path("benchmarks/page.md.in"), pathlib.Path("benchmarks/tables.py")

#: Pages with a short table, and the lines around it.
_SHORT = (pathlib.Path("README.md"), pathlib.Path("docs/which_method.md"))
_BEGIN, _END = "<!-- table: begin -->", "<!-- table: end -->"

_PAIR = ["dataset", "split"]

#: Column of the common table -> column of `tables.summary`, and its format.
_COLUMNS = {
    "sets": ("sets", "{:d}"),
    "cells": ("cells", "{:d}"),
    "rank, NLL": ("rank_nll", "{:.2f}"),
    "rank, CRPS": ("rank_crps", "{:.2f}"),
    "shared, NLL": ("shared_nll", "{:.2f}"),
    "shared, CRPS": ("shared_crps", "{:.2f}"),
    "RMSE": ("rmse", "{:.2f}"),
    "CRPS": ("crps", "{:.2f}"),
    "width": ("width_90", "{:.2f}"),
    "50 %": ("cov_50", "{:.0%}"),
    "90 %": ("cov_90", "{:.0%}"),
    "least": ("least", "{:.0%}"),
    "most": ("most", "{:.0%}"),
    "calibration": ("calibration", "{:.3f}"),
    "seconds": ("seconds", "{:.2g}"),
    "beats linear": ("better than linear", "{}"),
    "beats climatology": ("better than climatology", "{}"),
}


def write(root: str | os.PathLike[str] = ".") -> Iterator[pathlib.Path]:
    """Writes the page, the pictures, and the short tables on pages that have marks for them.

    Args:
        root: Folder of the checkout.

    Yields:
        Paths of the files that were written.

    Raises:
        ValueError: If the folder is not a checkout, or the data set of a result is in no group.
    """
    root = pathlib.Path(root)
    groups = read_groups(root)
    yield _replace(root / _PAGE, page(root))
    for name, cells in groups.items():
        if cells is not None:
            from tfp_fnspace.benchmark import pictures  # needs Matplotlib

            yield from pictures.write(cells, root / _IMAGES, f"{name}_")
    for path in _SHORT:
        text = (root / path).read_text(encoding="utf-8") if (root / path).exists() else ""
        if _BEGIN in text and _END in text and any(cells is not None for cells in groups.values()):
            before, rest = text.split(_BEGIN, 1)
            after = rest.split(_END, 1)[1]
            short = short_table(groups)
            yield _replace(root / path, f"{before}{_BEGIN}\n{short}\n{_END}{after}")


def _replace(path, text):
    with files.replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")
    return path


def read_groups(root: str | os.PathLike[str]) -> dict[str, pd.DataFrame | None]:
    """Returns a dict from names of groups to their cells, `None` for a group without cells.

    Args:
        root: Folder of the checkout.

    Raises:
        ValueError: See `write`.
    """
    root = pathlib.Path(root)
    if not (root / _TEMPLATE).exists():
        raise ValueError(
            f"The report must be made in a checkout, which has {_TEMPLATE}. Received: root='{root}'"
        )
    sets = tomllib.loads((root / _SETS).read_text(encoding="utf-8"))
    if not list((root / _CELLS).glob("*/*.json")):
        return dict.fromkeys(sets)
    cells = tables.read_cells(root / _CELLS)
    unknown = set(cells["dataset"]) - {name for names in sets.values() for name in names}
    if unknown:
        raise ValueError(
            f"{_SETS} must have all data sets. Received: {sorted(unknown)} in no group"
        )
    parts: dict[str, Any] = {
        group: cells[cells["dataset"].isin(names)] for group, names in sets.items()
    }
    return {group: part if len(part) else None for group, part in parts.items()}


def page(root: str | os.PathLike[str] = ".") -> str:
    """Returns the text of the page.

    Args:
        root: Folder of the checkout.
    """
    root = pathlib.Path(root)
    groups, rows = read_groups(root), _rows(root / _TABLES)
    makers = {
        "common": lambda group: common_table(groups[group], group),
        "method": lambda name: method_table(
            root / protocol.FOLDER / f"{name}.toml", rows.get(name, list)()
        ),
    }
    text = (root / _TEMPLATE).read_text(encoding="utf-8")
    return re.sub(
        r"^\{\{(\w+) (\w+)\}\}$", lambda match: makers[match[1]](match[2]), text, flags=re.MULTILINE
    )


def _rows(path):
    spec = importlib.util.spec_from_file_location("benchmarks_tables", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.ROWS


def _markdown(head, rows):
    return "\n".join(
        ["| " + " | ".join(map(str, row)) + " |" for row in (head, ["---"] * len(head), *rows)]
    )


def method_table(path: pathlib.Path, rows: Sequence[Sequence[Any]]) -> str:
    """Returns the table of a method.

    Args:
        path: The protocol; the results are beside it, in JSON. A method may have none.
        rows: Further rows: name, the number of the paper or another program, ours, whether it is as
            good.
    """
    found, missing = paper_rows.rows(path) if path.exists() else ([], "")
    table = _markdown(["what", "paper or reference", "ours", "as good"], [*found, *rows])
    return f"{table}\n\n{missing}" if missing else table


def common_table(cells: pd.DataFrame | None, group: str) -> str:
    """Returns the table of a group of data sets, sentences about its cells, and its pictures.

    Args:
        cells: See `tables.read_cells`; `None` if nothing was run.
        group: Its name.
    """
    if cells is None:
        return "No cell of this table has been run yet."
    found = tables.summary(cells)
    columns = dict(_COLUMNS)
    if all(found["rank_nll"].notna()):  # everyone has all data sets
        del columns["shared, NLL"], columns["shared, CRPS"]
    body = [
        [title(name), *(_cell(row[column], style) for column, style in columns.values())]
        for name, row in found.iterrows()
    ]
    images = " ".join(
        f"![{text}]({_IMAGES.relative_to('docs')}/{group}_{name}.png)"
        for name, text in {
            "ranks_nll": "Mean ranks in NLL, and which are told apart",
            "ranks_crps": "Mean ranks in CRPS, and which are told apart",
            "calibration": "Frequencies of targets below quantiles, less their levels",
            "seconds": "CRPS against seconds",
        }.items()
    )
    parts = [_markdown(["estimator", *columns], body), which_cells(cells), images]
    return "\n\n".join(parts)


def _cell(value, style):
    if isinstance(value, float) and np.isnan(value):
        return "–"
    if style == "{:.2g}" and value >= 10.0:
        style = "{:.0f}"
    return style.format(value).replace("%", " %")


def which_cells(cells: pd.DataFrame) -> str:
    """Returns sentences about the cells that exist, and those that are missing."""
    splits = cells.groupby("dataset")["split"].nunique()
    shared = tables.comparable(cells, by_all=True)["dataset"].nunique()
    ranked = tables.comparable(cells)
    least, most = int(splits.min()), int(splits.max())
    number = f"{least}" if least == most else f"{least} to {most}"
    sentences = [
        f"Data sets: {len(splits)}; splits of each: {number}; estimators: "
        f"{cells['estimator'].nunique()}; cells: {len(cells)}. Ranks are on the "
        f"{len(ranked[_PAIR].drop_duplicates())} of {len(cells[_PAIR].drop_duplicates())} splits "
        f"that all who have a rank have, shared ones on data sets that everyone has: {shared}."
    ]
    processors = sorted({machine["processor"] for machine in cells["machine"].dropna()})
    threads = sorted(set(cells["threads"].dropna()))
    if processors:  # a cell whose process ended has neither
        sentences.append(
            f"Processors: {', '.join(processors)}; threads of a cell: {', '.join(threads)}."
        )
    names = sorted(splits.index)
    for estimator, part in cells.groupby("estimator"):
        parts = {
            "declines": part.loc[part["status"] == "declined", "dataset"],
            "failed on": part.loc[part["status"] == "failed", "dataset"],
            "has not been run on": [name for name in names if name not in set(part["dataset"])],
        }
        said = [f"{text} {', '.join(sorted(set(of)))}" for text, of in parts.items() if len(of)]
        if said:
            sentences.append(f"{title(estimator)} {'; '.join(said)}.")
    return " ".join(sentences)


def short_table(groups: Mapping[str, pd.DataFrame | None]) -> str:
    """Returns the table of the README: ranks on each group of data sets.

    Ranks on the data sets that all estimators have are in brackets if they differ.

    Args:
        groups: See `read_groups`.
    """
    found = {group: tables.summary(c) for group, c in groups.items() if c is not None}
    columns = ("rank in NLL", "rank in CRPS", "seconds")
    head = [f"{group} sets: {column}" for group in found for column in columns]
    names = dict.fromkeys(name for table in found.values() for name in table.index)
    body = [
        [title(name), *(cell for table in found.values() for cell in _short_cells(table, name))]
        for name in names
    ]
    return _markdown(["estimator", *head], body)


def _short_cells(table, name):
    if name not in table.index:
        return ["–"] * 3
    row, everyone = table.loc[name], table["rank_nll"].notna().all()
    ranks = []
    for score in ("nll", "crps"):
        shared = "" if everyone else f" ({_cell(row[f'shared_{score}'], '{:.2f}')})"
        ranks.append(_cell(row[f"rank_{score}"], "{:.2f}") + shared)
    return [*ranks, _cell(row["seconds"], "{:.2g}")]
