"""Tables of the cells that `benchmark uci` wrote, with pandas."""

import json
import os
import pathlib
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

#: The estimator to which scores are relative, and those that every method must beat.
_REFERENCE, _MUST_BEAT = "conformal_boosting", ("linear", "climatology")

_KEYS = ["dataset", "split"]


def read_cells(folder: str | os.PathLike[str]) -> pd.DataFrame:
    """Returns the cells of a folder, one row for each.

    Args:
        folder: Folder of `<estimator>/<dataset>-<split>.json`, or of one estimator.

    Returns:
        Data frame with the columns of `cell.run`, and `seconds` of fit and prediction.

    Raises:
        ValueError: If there are none, or a file is not a record.
    """
    folder = pathlib.Path(folder)
    paths = sorted([*folder.glob("*/*.json"), *folder.glob("*.json")])
    records = [_read(path) for path in paths]
    if not records:
        raise ValueError(
            f"A folder of results must hold <estimator>/<dataset>-<split>.json. "
            f"Received: folder='{folder}'"
        )
    cells = pd.DataFrame(records).reindex(columns=_columns(records))
    return cells.assign(seconds=cells["fit_seconds"] + cells["predict_seconds"])


def _read(path):
    try:
        record = json.loads(path.read_text())
        if {"estimator", "status", *_KEYS} <= record.keys():
            return record
    except (ValueError, AttributeError):
        pass
    raise ValueError(f"A file of results must hold one record. Received: path='{path}'")


def _columns(records):
    needed = ["rmse", "nll", "crps", "coverage_50", "coverage_90", "width_90", "calibration_error"]
    needed += ["fit_seconds", "predict_seconds", "machine", "threads"]
    return list(dict.fromkeys([name for record in records for name in record] + needed))


def comparable(cells: pd.DataFrame, by_all: bool = False) -> pd.DataFrame:
    """Returns cells on which ranks are fair: each estimator in them has all of these splits.

    Args:
        cells: See `read_cells`.
        by_all: Whether to keep all estimators, on the data sets that every one of them has.
            Otherwise all data sets are kept, with the estimators that have each of them. An
            estimator has a data set that it failed on, but not one that it declined.

    Returns:
        The cells of the splits that all of these estimators have.
    """
    tried: Any = cells[cells["status"] != "declined"]
    axis, other = ("dataset", "estimator") if by_all else ("estimator", "dataset")
    counts = tried.groupby(axis)[other].nunique()
    kept = tried[tried[axis].isin(counts.index[counts == cells[other].nunique()])]
    counts = kept.groupby(_KEYS)["estimator"].transform("nunique")
    return kept[counts == kept["estimator"].nunique()]


def mean_ranks(cells: pd.DataFrame, score: str) -> pd.Series:
    """Averages ranks of each estimator over the splits of a data set, then over data sets.

    Failed cells have the worst rank. Equal scores share the mean of their ranks.

    Args:
        cells: See `comparable`.
        score: Column; smaller is better.

    Returns:
        Series by estimator, rounded to 9 digits: how sums are rounded must not decide between
        equal ranks, since it differs between machines.
    """
    values: Any = cells[score].where(cells["status"] == "done")
    ranks = values.groupby([cells[key] for key in _KEYS]).rank(na_option="bottom")
    by_set = ranks.groupby([cells["estimator"], cells["dataset"]]).mean()
    return by_set.groupby("estimator").mean().round(9)


def summary(cells: pd.DataFrame) -> pd.DataFrame:
    """Returns a row for each estimator, means over data sets of means over splits.

    Args:
        cells: See `read_cells`.

    Returns:
        Data frame, sorted by rank: the number of data `sets`; the numbers of `cells` that were
        done, that the estimator `declined` and that `failed`; mean ranks in NLL and CRPS, `rank_*`
        on all data sets among the estimators that have all of them, `shared_*` on the data sets
        that all estimators have; the geometric means of `rmse`, `crps` and `width_90` relative to
        conformal boosting's on the same cells; coverage of the 50 and 90 % intervals, and the
        `least` and `most` coverage of the latter on a data set; `calibration`, the error of
        `cell.scores`; the median `seconds` of a cell; and the numbers of data sets on which its
        CRPS/NLL is better than that of each of the plainest two.
    """
    done = cells[cells["status"] == "done"]
    by_set: Any = done.groupby(["estimator", "dataset"])
    coverage = by_set["coverage_90"].mean().groupby("estimator")
    ranked, shared = comparable(cells), comparable(cells, by_all=True)
    counts = pd.crosstab(cells["estimator"], cells["status"])
    counts = counts.reindex(columns=["done", "declined", "failed"], fill_value=0)
    table = pd.DataFrame(
        {
            "sets": done.groupby("estimator")["dataset"].nunique(),
            "cells": counts["done"],
            "declined": counts["declined"],
            "failed": counts["failed"],
            "rank_nll": mean_ranks(ranked, "nll"),
            "rank_crps": mean_ranks(ranked, "crps"),
            "shared_nll": mean_ranks(shared, "nll"),
            "shared_crps": mean_ranks(shared, "crps"),
            "rmse": _relative(done, "rmse"),
            "crps": _relative(done, "crps"),
            "width_90": _relative(done, "width_90"),
            "cov_50": by_set["coverage_50"].mean().groupby("estimator").mean(),
            "cov_90": coverage.mean(),
            "least": coverage.min(),
            "most": coverage.max(),
            "calibration": by_set["calibration_error"].mean().groupby("estimator").mean(),
            "seconds": done.groupby("estimator")["seconds"].median(),
        }
    )
    for other in _MUST_BEAT:
        wins = [
            _against(done, other, score, np.subtract).lt(0.0).groupby("estimator").sum()
            for score in ("crps", "nll")
        ]
        wins = [column.reindex(table.index, fill_value=0).astype(str) for column in wins]
        table[f"better than {other}"] = wins[0] + "/" + wins[1]
    table["sets"] = table["sets"].fillna(0).astype(int)
    order = ["rank_nll", "shared_nll", "crps"]
    return (
        table.rename_axis("estimator").sort_values(["estimator"]).sort_values(order, kind="stable")
    )


def _relative(done, score):
    ratio = _against(done, _REFERENCE, score, lambda ours, theirs: np.log(ours / theirs))
    return np.exp(ratio.groupby("estimator").mean())


def _against(done, other, score, difference) -> Any:
    """Returns `difference(ours, theirs)` by set, of mean scores over the splits that both have."""
    theirs = done[done["estimator"] == other][[*_KEYS, score]]
    both = done.merge(theirs, on=_KEYS, suffixes=("", "_of_other"))
    means = both.groupby(["estimator", "dataset"])[[score, f"{score}_of_other"]].mean()
    return difference(means[score], means[f"{score}_of_other"])


def compare(first: pd.DataFrame, second: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Returns paired differences of two versions, second less first, on cells that both have.

    The differences in CRPS are relative to the mean CRPS of the first on the data set, those in NLL
    are in nats. A cell in which one of them failed counts for the ranks only.

    Args:
        first: See `read_cells`.
        second: See `read_cells`. Versions of an estimator have its name in both. If each folder
            holds only one estimator, their names may differ.

    Returns:
        Two data frames. By estimator and data set: `splits`, and mean `nll`, `crps` with their
        standard errors over splits. By estimator and score: `sets`, mean difference over sets and
        its standard error (`se`), sets on which the second is `better` and `worse`, the two-sided
        `sign` and `wilcoxon` tests of these means, and the mean ranks (1 or 2, of cells) of both.

    Raises:
        ValueError: If they have no cell in common.
    """
    names = [cells["estimator"].unique() for cells in (first, second)]
    if [len(name) for name in names] == [1, 1]:
        second = second.assign(estimator=names[0][0])
    usable = [cells[cells["status"] != "declined"] for cells in (first, second)]
    pairs = usable[0].merge(usable[1], on=["estimator", *_KEYS], suffixes=("_a", "_b"))
    if pairs.empty:
        raise ValueError(
            "Two folders must have cells of an estimator in common. "
            f"Received: {sorted(names[0])} and {sorted(names[1])}"
        )
    by_set = [_by_set(pairs, score) for score in ("nll", "crps")]
    table = by_set[0].join(by_set[1].drop(columns="splits"))
    rows = [
        {
            "estimator": estimator,
            "score": score,
            **_tests(part[score]),
            **_ranks(pairs[pairs["estimator"] == estimator], score),
        }
        for estimator, part in table.groupby("estimator")
        for score in ("nll", "crps")
    ]
    return table, pd.DataFrame(rows).set_index(["estimator", "score"])


def _by_set(pairs, score):
    done = pairs[(pairs["status_a"] == "done") & (pairs["status_b"] == "done")]
    keys = [done["estimator"], done["dataset"]]
    difference = done[f"{score}_b"] - done[f"{score}_a"]
    if score == "crps":
        difference /= done[f"{score}_a"].groupby(keys).transform("mean")
    groups = difference.groupby(keys)
    found = {"splits": groups.size(), score: groups.mean(), f"{score}_se": groups.sem()}
    return pd.DataFrame(found)


def _tests(differences):
    differences = differences.dropna()
    better, worse = int((differences < 0.0).sum()), int((differences > 0.0).sum())
    decided = better + worse
    return {
        "sets": len(differences),
        "mean": differences.mean(),
        "se": differences.sem(),
        "better": better,
        "worse": worse,
        "sign": stats.binomtest(better, decided).pvalue if decided else 1.0,
        "wilcoxon": stats.wilcoxon(differences)[1] if decided else 1.0,  # the p-value
    }


def _ranks(pairs, score):
    versions = [
        pd.DataFrame(
            {
                "estimator": version,
                **{key: pairs[key] for key in _KEYS},
                "status": pairs[f"status{suffix}"],
                score: pairs[f"{score}{suffix}"],
            }
        )
        for version, suffix in (("rank_a", "_a"), ("rank_b", "_b"))
    ]
    return mean_ranks(pd.concat(versions, ignore_index=True), score).to_dict()


def as_text(table: pd.DataFrame) -> str:
    """Returns a whole table in plain text, with three decimals."""
    return table.to_string(float_format="{:.3f}".format)
