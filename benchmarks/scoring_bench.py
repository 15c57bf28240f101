"""Estimators in ScoringBench's own folds and scores, beside its models that need no download.

ScoringBench is a checkout of github.com/jonaslandsgesell/ScoringBench, whose code fits and scores
each fold. The sets are those that packages bring along: its own come from OpenML, PMLB and KEEL.

    pip install torch openml xgboost catboost ISLP
    python benchmarks/scoring_bench.py CHECKOUT --out benchmarks/results/scoring_bench.json

A fold that is in the results file is kept, so that a killed run resumes. The table of
`docs/howto/sklearn.md` is printed at the end.
"""

import argparse
import importlib.util
import json
import pathlib
import sys

import pandas as pd
from sklearn.datasets import load_diabetes
from sklearn.model_selection import KFold

from tfp_fnspace import files
from tfp_fnspace.sklearn import DIWPRegressor, FunctionSpaceRegressor, TAGIRegressor
from tfp_fnspace.sklearn.scoringbench import ScoringBenchRegressor

#: Sets of the package ISLP, and their targets.
ISLP_SETS = {"Auto": "mpg", "Wage": "wage", "Bikeshare": "bikers"}

#: Columns that determine a target by themselves, or name each row.
LEFT_OUT = {"Auto": ["name"], "Wage": ["logwage"], "Bikeshare": ["casual", "registered"]}

#: Most rows of a set, ScoringBench's default, and its seed.
MOST_ROWS, SEED = 3000, 42

#: Scores of ScoringBench in the table, smaller is better. Its log score and CRLS are left out: they
#: put a target beyond the last edge into the last bin, so that narrow histograms gain by misses.
SCORES = ("crps", "wcrps_left", "wcrps_right", "interval_score_90", "rmse")

ESTIMATORS = {
    "FunctionSpaceRegressor": FunctionSpaceRegressor,
    "DIWPRegressor": DIWPRegressor,
    "TAGIRegressor": TAGIRegressor,
}


def sets():
    """Returns {name: (inputs, target)} of data frames; categories are codes, as ScoringBench's."""
    diabetes = load_diabetes(as_frame=True)
    found = {"diabetes": (diabetes.data, diabetes.target)}
    folder = pathlib.Path(importlib.util.find_spec("ISLP").submodule_search_locations[0]) / "data"
    for name, target in ISLP_SETS.items():
        table = pd.read_csv(folder / f"{name}.csv", na_values="?").dropna()
        table = table.drop(columns=[c for c in table if "Unnamed" in c or c in LEFT_OUT[name]])
        if len(table) > MOST_ROWS:
            table = table.sample(MOST_ROWS, random_state=SEED)
        x = table.drop(columns=target)
        codes = {c: pd.Categorical(x[c]).codes for c in x if x[c].dtype.kind not in "iuf"}
        found[name.lower()] = x.assign(**codes).astype(float), table[target].astype(float)
    return found


def models():
    """Returns {name: function that makes a model of ScoringBench}."""
    from scoringbench.wrappers import CatBoostQuantileWrapper, XGBQuantileVectorWrapper

    ours = {
        name: lambda cls=cls: ScoringBenchRegressor(cls(random_state=0))
        for name, cls in ESTIMATORS.items()
    }
    theirs = {
        "CatBoost quantiles": CatBoostQuantileWrapper,
        "XGBoost quantiles": lambda: XGBQuantileVectorWrapper(xgb_params={"device": "cpu"}),
    }
    return {**ours, **theirs}


def run(out, num_folds):
    """Fits and scores each model on each fold that is not in the file yet; returns the records."""
    from scoringbench.cv import run_fold

    records = json.loads(out.read_text()) if out.exists() else []
    done = {(r["set"], r["fold"], r["model"]) for r in records}
    for name, (x, y) in sets().items():
        folds = KFold(num_folds, shuffle=True, random_state=SEED).split(x)
        for fold, (train, test) in enumerate(folds):
            for model, make in models().items():
                if (name, fold, model) in done:
                    continue
                parts = x.iloc[train], x.iloc[test], y.iloc[train], y.iloc[test]
                found = run_fold(*parts, {model: make}, SEED)[model]
                place = {"set": name, "fold": fold, "model": model, "rows": len(x)}
                records.append({**place, **{key: float(value) for key, value in found.items()}})
                with files.replacing(out) as partial:
                    partial.write_text(json.dumps(records, indent=1) + "\n")
    return records


def table(records):
    """Returns the table: means over the folds, and mean ranks over the sets."""
    columns = [*SCORES, "coverage_90", "train_time"]
    means = pd.DataFrame(records).groupby(["set", "model"])[columns].mean()
    titles = [f"mean rank, {score}" for score in SCORES]
    lines = ["| model | " + " | ".join(titles) + " | coverage at 90 % | seconds |"]
    lines.append("|---" * (len(SCORES) + 3) + "|")
    ranks = means[list(SCORES)].groupby("set").rank().groupby("model").mean()
    others = means[["coverage_90", "train_time"]].groupby("model")
    coverage, seconds = others["coverage_90"].mean(), others["train_time"].median()
    for model in ranks.sort_values("crps").index:
        cells = [f"{value:.2f}" for value in (*ranks.loc[model], coverage[model])]
        cells.append(f"{seconds[model]:.1f}")
        lines.append(f"| {model} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n\n" + means.round(4).to_string()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--folds", type=int, default=5)
    arguments = parser.parse_args()
    sys.path.append(str(arguments.checkout))
    print(table(run(arguments.out, arguments.folds)))


if __name__ == "__main__":
    main()
