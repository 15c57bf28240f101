"""Calibration after the fit on the development sets: coverage and CRPS before and after.

    python benchmarks/calibration.py [--data-dir ../shared/data/dev] [--only mcycle,houses]

A `TAGIRegressor` with 5 seconds is fitted to four fifths of the training rows of a split, drawn at
random. The other fifth is for `calibrate` by the CRPS and by the NLL, for `recalibrate` and for
`SplitConformal`, each by itself. `coverage` is the share of test rows inside the 90 % interval, and
`p` that of the exact two-sided binomial test of 0.9, for the rows of both splits together. It takes
the rows for independent given the held-out ones, so that `p` below 0.05 is more frequent than 1 in
20 where these are few. `p given n` of conformal intervals does not: their coverage has a beta
distribution that the number n of held-out rows determines, and the number of rows inside is
beta-binomial. A set with fewer than 20 held-out rows has no map. Cells that are in the file are
kept.
"""

import argparse
import os

import numpy as np
from scipy import stats

from tfp_fnspace import calibration, datasets, metrics
from tfp_fnspace.benchmark import parse_splits, read_records, run_missing
from tfp_fnspace.distributions import quantile
from tfp_fnspace.sklearn import TAGIRegressor

RESULTS = "benchmarks/results/calibration.json"
LEVEL, SECONDS, LEAST_ROWS = 0.9, 5.0, 20

#: Which predictions have coverages, and which of them a CRPS.
KINDS = ("before", "crps", "nll", "map", "conformal")
SCORED = KINDS[:-1]


def inside(estimator, x, y):
    """Returns the number of targets inside the central interval."""
    levels = [0.5 - 0.5 * LEVEL, 0.5 + 0.5 * LEVEL]
    low, high = np.moveaxis(quantile(estimator.predict_distribution(x), levels).numpy(), -1, 0)
    return int(np.sum((low <= y) & (y <= high)))


def run(data_dir, dataset, split):
    """Fits, calibrates and scores one split of a set."""
    x, y, x_test, y_test = datasets.load(dataset, data_dir).split(split)
    order = np.random.default_rng(split).permutation(len(x))
    held, kept = np.split(order, [len(x) // 5])
    fitted = TAGIRegressor(time_limit=SECONDS, random_state=0).fit(x[kept], y[kept])
    rows = x[held], y[held]
    found = {"before": fitted}
    for score in ("crps", "nll"):
        found[score] = calibration.calibrate(fitted, *rows, by=score)
    if len(held) >= LEAST_ROWS:
        found["map"] = calibration.recalibrate(fitted, *rows)
    record = {"rows": len(x_test), "held_out": len(held)}
    for name, estimator in found.items():
        record[f"inside_{name}"] = inside(estimator, x_test, y_test)
        crps = metrics.crps(y_test, estimator.predict_distribution(x_test))
        record[f"crps_{name}"] = float(crps)
    low, high = calibration.SplitConformal(fitted, *rows).interval(x_test, LEVEL)
    record["inside_conformal"] = int(np.sum((low <= y_test) & (y_test <= high)))
    record["factor"] = float(found["crps"].model_.adjustment.scale[0])
    return record


def conformal_p(records):
    """Returns the two-sided p-value of the rows inside conformal intervals, over all splits.

    With n held-out rows and `k = ceil(0.9 (n + 1))`, the coverage has a Beta(k, n + 1 - k)
    distribution. Splits are taken for independent.

    References:
        Vovk (2012), "Conditional validity of inductive conformal predictors", ACML.
    """
    chances = np.ones(1)
    for record in records:
        n = record["held_out"]
        k = int(np.ceil((n + 1) * LEVEL - 1e-9))
        count = stats.betabinom(record["rows"], k, n + 1 - k)
        chances = np.convolve(chances, count.pmf(np.arange(record["rows"] + 1)))
    number = sum(record["inside_conformal"] for record in records)
    tails = np.sum(chances[: number + 1]), np.sum(chances[number:])
    return min(1.0, 2.0 * min(tails))


def summary(records):
    """Returns a line for each set, and a line of means: name, coverages, p-values and ratios."""
    lines = []
    for name in sorted({record["dataset"] for record in records}):
        own = [record for record in records if record["dataset"] == name]
        line = {"dataset": name, "factor": np.mean([record["factor"] for record in own])}
        for kind in KINDS:
            counted = [record for record in own if f"inside_{kind}" in record]
            number = sum(record[f"inside_{kind}"] for record in counted)
            rows = sum(record["rows"] for record in counted)
            line[kind] = number / rows if rows else np.nan
            line[f"p {kind}"] = stats.binomtest(number, rows, LEVEL).pvalue if rows else np.nan
        line["p given n"] = conformal_p(own)
        for kind in SCORED[1:]:
            pairs = [(r[f"crps_{kind}"], r["crps_before"]) for r in own if f"crps_{kind}" in r]
            ratios = [after / before for after, before in pairs]
            line[f"crps {kind}"] = np.mean(ratios) if ratios else np.nan
        lines.append(line)
    names = [name for name in lines[0] if name != "dataset"]
    means = {name: np.nanmean([line[name] for line in lines]) for name in names}
    return [*lines, {"dataset": "mean", **means}]


def print_table(lines):
    """Prints the lines of `summary`; the CRPS are relative to those before."""
    names = [name for name in lines[0] if name != "dataset"]
    print(f"{'':14}" + "".join(f"{name:>12}" for name in names))
    for line in lines:
        print(f"{line['dataset']:14}" + "".join(f"{line[name]:12.3f}" for name in names))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", default="../shared/data/dev")
    parser.add_argument("--out", default=RESULTS)
    parser.add_argument("--only", help="names of sets, with commas; by default all")
    parser.add_argument("--splits", default="0-1")
    options = parser.parse_args()
    folder = os.path.abspath(options.data_dir)
    names = options.only.split(",") if options.only else datasets.available(folder)
    cells = [
        {"dataset": name, "split": split}
        for name in names
        for split in parse_splits(options.splits, datasets.load(name, folder).num_splits)
    ]
    for record in run_missing(options.out, cells, lambda **cell: run(folder, **cell)):
        print(record["dataset"], record["split"], f"{record['seconds']} s", flush=True)
    print_table(summary(read_records(options.out)))


if __name__ == "__main__":
    main()
