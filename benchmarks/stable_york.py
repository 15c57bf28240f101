"""Nitrogen dioxide in York (section 5 of the stable process paper): predictions and pictures.

The script trains on the 128 sites in standardised units, with alpha, nu and sigma inferred from
those sites only. The partition is the joint exact one of the 128 sites and the 60 validation
inputs. It writes predictive medians and 90 % intervals of the observations. The targets of the
validation sites are not here.

    python benchmarks/stable_york.py --data-dir ../shared/data
    python benchmarks/stable_york.py --validate     # 8 folds of the training sites
"""

import argparse
import pathlib
import time

import numpy as np

from tfp_fnspace.benchmark import add_records, machine, read_records, versions
from tfp_fnspace.stable_process import LogNormal, StableProcessModel

PREDICTIONS = "benchmarks/results/york_predictions.csv"
RESULTS = "benchmarks/results/york.json"
LEVELS = (0.05, 0.5, 0.95)
FOLDS = 8


def load(data_dir):
    """Returns inputs `[128, 2]`, targets `[128]` and validation inputs `[60, 2]`, standardised."""
    folder = pathlib.Path(data_dir) / "stable"
    train, new = (
        np.genfromtxt(folder / f"york_no2_{part}.csv", delimiter=",", names=True)
        for part in ("train", "validation_inputs")
    )
    x, x_new = (np.stack([part["x_std"], part["y_std"]], axis=1) for part in (train, new))
    return x, train["no2_std"], x_new


def fit(x, y, x_new, seed, epochs):
    """Returns the model, and the seconds it took; an epoch is 100 iterations of four chains."""
    begin = time.perf_counter()
    model = StableProcessModel(alpha="infer", nu=LogNormal(0.0, 1.5), standardize=False, seed=seed)
    model.fit(x, y, x_predict=x_new, epochs=epochs, verbose=0)
    return model, time.perf_counter() - begin


def record_of(model, x_new, seconds, **more):
    """Returns what the chains found, and how well they mixed."""
    found = model.diagnostics(x_new)
    draws = model.posterior_draws()
    return {
        **more,
        "rhat": {key: round(float(np.max(v.rhat)), 4) for key, v in found.items()},
        "ess_bulk": {key: round(float(np.min(v.ess_bulk)), 1) for key, v in found.items()},
        "nu_prior": [model.nu.loc, model.nu.scale],
        "posterior_median": {key: round(float(np.median(v)), 4) for key, v in draws.items()},
        "seconds": round(seconds, 1),
        "versions": versions(),
        "machine": machine(),
    }


def predict(data_dir, epochs=30, seed=0):
    """Writes the predictions and their record."""
    x, y, x_new = load(data_dir)
    model, seconds = fit(x, y, x_new, seed, epochs)
    lower, median, upper = model.predict_quantiles(x_new, LEVELS)[:, 0].T
    table = np.stack([x_new[:, 0], x_new[:, 1], median, lower, upper], axis=1)
    header = "x_std,y_std,median,lower,upper"
    np.savetxt(PREDICTIONS, table, delimiter=",", header=header, comments="", fmt="%.10g")
    record = record_of(model, x_new, seconds, part="validation inputs", epochs=epochs, seed=seed)
    add_records(RESULTS, [record], lambda other: other["part"] == record["part"])
    print({key: record[key] for key in ("rhat", "ess_bulk", "posterior_median", "seconds")})
    print(f"wrote {PREDICTIONS}")


def validate(data_dir, epochs=12, seed=0):
    """Computes error and coverage on held-out training sites; folds in the file are kept."""
    x, y, _ = load(data_dir)
    folds = np.array_split(np.random.default_rng(seed).permutation(len(y)), FOLDS)
    for k, test in enumerate(folds):
        if any(r["part"] == f"fold {k}" for r in read_records(RESULTS)):
            continue
        train = np.setdiff1d(np.arange(len(y)), test)
        model, seconds = fit(x[train], y[train], x[test], seed, epochs)
        lower, median, upper = model.predict_quantiles(x[test], LEVELS)[:, 0].T
        errors = np.abs(median - y[test])
        covered = (lower <= y[test]) & (y[test] <= upper)
        record = record_of(
            model,
            x[test],
            seconds,
            part=f"fold {k}",
            epochs=epochs,
            seed=seed,
            sites=len(test),
            mae=round(float(errors.mean()), 4),
            coverage_90=round(float(covered.mean()), 4),
        )
        add_records(RESULTS, [record])
        print(record["part"], record["mae"], record["coverage_90"], f"{seconds:.0f} s", flush=True)
    folds = [r for r in read_records(RESULTS) if "mae" in r]
    for key in ("mae", "coverage_90"):
        print(key, np.average([r[key] for r in folds], weights=[r["sites"] for r in folds]))


def main():
    """Runs what the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data-dir", default="../shared/data")
    parser.add_argument("--validate", action="store_true", help="8 folds of the training sites")
    options = parser.parse_args()
    if options.validate:
        validate(options.data_dir)
    else:
        predict(options.data_dir)


if __name__ == "__main__":
    main()
