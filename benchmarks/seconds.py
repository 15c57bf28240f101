"""Seconds of a whole fit with shipped defaults, beside the alternatives that a user has.

The target is a smooth function of ten columns with noise, with 1,000 and 10,000 training rows. Each
estimator runs in its own process, one at a time, with all cores. The time of imports is not
counted; that of tracing is.

    python benchmarks/seconds.py --out build/seconds [--estimators tagi diwp ngboost]
"""

import argparse
import json
import pathlib

import numpy as np
import pandas as pd

from tfp_fnspace.benchmark import estimators, uci

SIZES, NUM_COLUMNS, NUM_TEST = (1000, 10_000), 10, 500


def write_data(folder):
    """Writes the two sets in the format of `benchmark uci`, and returns their names."""
    folder.mkdir(parents=True, exist_ok=True)
    names = []
    for size in SIZES:
        generator = np.random.default_rng(size)
        x = generator.normal(size=(size + NUM_TEST, NUM_COLUMNS))
        f = np.sin(2.0 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.5 * x[:, 3]
        y = f + (0.2 + 0.1 * np.abs(x[:, 4])) * generator.normal(size=len(x))
        names.append(f"smooth_{size}")
        test = np.arange(size, len(x))[np.newaxis]
        np.savez(folder / f"{names[-1]}.npz", x=x, y=y[:, np.newaxis], test_index=test)
    return names


def table(folder, names):
    """Returns the seconds to fit and to predict, and the scores, as a row for each estimator."""
    rows = []
    for estimator in names:
        row = {"estimator": estimators.title(estimator)}
        for size in SIZES:
            path = uci.Cell(estimator, f"smooth_{size}", 0).path(folder)
            record = json.loads(path.read_text())
            for key in ("fit_seconds", "predict_seconds", "nll"):
                row[f"{key} {size}"] = record.get(key, record["status"])
        rows.append(row)
    return pd.DataFrame(rows).set_index("estimator")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder of the results")
    parser.add_argument("--estimators", nargs="+", default=list(estimators.ESTIMATORS))
    arguments = parser.parse_args()
    sets = write_data(arguments.out / "data")
    uci.run(arguments.estimators, sets, "0", arguments.out / "data", arguments.out)
    print(table(arguments.out, arguments.estimators).round(2).to_string())


if __name__ == "__main__":
    main()
