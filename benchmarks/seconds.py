"""Seconds of a whole fit with shipped defaults, beside the alternatives that a user has.

The target is a smooth function of ten columns with noise, with 1,000 and 10,000 training rows. Each
estimator runs in its own process, one at a time, with all cores. The time of imports is not
counted; that of tracing is.

    python benchmarks/seconds.py [--estimators tagi diwp ngboost] [--out build/seconds]

It writes the seconds into `benchmarks/results/seconds.json` and the table of all of them into
`docs/howto/sklearn.md`. Cells that are in the folder `--out` are kept.
"""

import argparse
import json
import pathlib

import numpy as np
import tables

from tfp_fnspace.benchmark import add_records, estimators, machine, uci, versions

RESULTS, PAGE = "benchmarks/results/seconds.json", pathlib.Path("docs/howto/sklearn.md")
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


def records(folder, names):
    """Returns the seconds to fit and to predict, and the score, of each estimator and size."""
    found = []
    for estimator in names:
        for size in SIZES:
            path = uci.Cell(estimator, f"smooth_{size}", 0).path(folder)
            cell = json.loads(path.read_text())
            keys = ("status", "fit_seconds", "predict_seconds", "nll")
            record = {key: cell[key] for key in keys if key in cell}
            shared = {"versions": versions(), "machine": machine()}
            found.append({"estimator": estimator, "rows": size, **record, **shared})
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default="build/seconds", help="of the cells")
    parser.add_argument("--estimators", nargs="+", default=list(estimators.ESTIMATORS))
    options = parser.parse_args()
    sets = write_data(options.out / "data")
    uci.run(options.estimators, sets, "0", options.out / "data", options.out)
    found = records(options.out, options.estimators)
    for each in found:
        print({key: each[key] for key in each if key not in ("versions", "machine")})
    add_records(RESULTS, found, lambda record: record["estimator"] in options.estimators)
    everything = json.loads(pathlib.Path(RESULTS).read_text())
    PAGE.write_text(tables.with_seconds(PAGE.read_text(encoding="utf-8"), everything))


if __name__ == "__main__":
    main()
