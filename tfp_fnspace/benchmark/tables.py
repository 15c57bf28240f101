"""Tables of the cells that `benchmark uci` wrote, with pandas."""

import json
import pathlib

import numpy as np
import pandas as pd
from scipy import stats

#: What the others are measured by.
_REFERENCE, _MUST_BEAT = "conformal_boosting", ("linear", "climatology")

_KEYS = ["dataset", "split"]


def read_cells(folder):
    """The cells of a folder, a row each.

    Args:
        folder: Folder of `<estimator>/<dataset>-<split>.json`, or of one estimator.

    Returns:
        Data frame with the columns of `cell.run`, and `seconds` of fit and prediction.

    Raises:
        ValueError: If there are none, or a file is no record.
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
    needed = ["rmse", "nll", "crps", "coverage_90", "fit_seconds", "predict_seconds"]
    return list(dict.fromkeys([name for record in records for name in record] + needed))


def mean_ranks(cells, score):
    """Mean rank of each estimator: over the splits of a data set, then over the data sets.

    Ranks are of the estimators that a cell has: those that failed have the worst rank, those that
    declined none. Equal scores share the mean of their ranks.

    Args:
        cells: See `read_cells`.
        score: Column; smaller is better.

    Returns:
        Series by estimator.
    """
    cells = cells[cells["status"] != "declined"]
    values = cells[score].where(cells["status"] == "done")
    ranks = values.groupby([cells[key] for key in _KEYS]).rank(na_option="bottom")
    by_set = ranks.groupby([cells["estimator"], cells["dataset"]]).mean()
    return by_set.groupby("estimator").mean()


def summary(cells):
    """A row for each estimator.

    Args:
        cells: See `read_cells`.

    Returns:
        Data frame by estimator, ordered by the rank in CRPS: `sets` with a score, cells that
        `failed`; `crps`, the geometric mean over sets of the CRPS relative to conformal boosting on
        the same splits; `rank_crps`, `rank_nll` (`mean_ranks`); `cov_90`, the mean over sets of the
        coverage at 90 %, `least` and `most` of a set; median `seconds` of a cell; and the number of
        sets on which CRPS and NLL are `better than` those of `linear` and of `climatology`, as
        "CRPS/NLL".
    """
    done = cells[cells["status"] == "done"]
    coverage = done.groupby(["estimator", "dataset"])["coverage_90"].mean().groupby("estimator")
    ratio = _against(done, _REFERENCE, "crps", lambda ours, theirs: np.log(ours / theirs))
    table = pd.DataFrame(
        {
            "sets": done.groupby("estimator")["dataset"].nunique(),
            "failed": (cells["status"] == "failed").groupby(cells["estimator"]).sum(),
            "crps": np.exp(ratio.groupby("estimator").mean()),
            "rank_crps": mean_ranks(cells, "crps"),
            "rank_nll": mean_ranks(cells, "nll"),
            "cov_90": coverage.mean(),
            "least": coverage.min(),
            "most": coverage.max(),
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
    table[["sets", "failed"]] = table[["sets", "failed"]].fillna(0).astype(int)
    return table.sort_values("rank_crps")


def of_all_sets(cells):
    """The cells of the estimators that have one for each data set and split, declined nowhere."""
    tried = cells[cells["status"] != "declined"].groupby("estimator").size()
    whole = tried.index[tried == len(cells[_KEYS].drop_duplicates())]
    return cells[cells["estimator"].isin(whole)]


def _against(done, other, score, difference):
    """`difference(ours, theirs)` of mean scores over the splits that both have, by set."""
    theirs = done[done["estimator"] == other][[*_KEYS, score]]
    both = done.merge(theirs, on=_KEYS, suffixes=("", "_of_other"))
    means = both.groupby(["estimator", "dataset"])[[score, f"{score}_of_other"]].mean()
    return difference(means[score], means[f"{score}_of_other"])


def compare(first, second):
    """Paired differences of two versions, the second less the first, on the cells that both have.

    The differences in CRPS are relative to the mean CRPS of the first on the data set, those in NLL
    in nats. A cell in which one of them failed counts for the ranks only.

    Args:
        first: See `read_cells`.
        second: See `read_cells`. Versions of an estimator have its name in both; where each folder
            holds one estimator only, names may differ.

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
        "wilcoxon": stats.wilcoxon(differences).pvalue if decided else 1.0,
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


def as_text(table):
    """A table in plain text, all of it, with three decimals."""
    return table.to_string(float_format="{:.3f}".format)
