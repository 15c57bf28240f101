"""Seconds from a fresh process to its first prediction, by what they are spent on.

Each estimator has its shipped defaults, and a target that is a smooth function of ten columns with
noise, in 1,000 rows. Each run is a process of its own, one at a time, with all cores. `import` is
that of TensorFlow too; `total` is from the start of the process to the end of the first prediction;
what comes after it (a second prediction, files) is not in it.

    python benchmarks/first_answer.py [--only tagi,diwp] [--against ../other/checkout] [--runs 3]

With `--against`, another checkout of the project runs in turn with this one, as "before".
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

RESULTS = pathlib.Path(__file__).parent / "results" / "first_answer.json"
CHECKOUT = pathlib.Path(__file__).resolve().parents[1]

ESTIMATORS = {
    "tagi": "TAGIRegressor",
    "stable_process": "StableProcessRegressor",
    "fbnn": "FBNNRegressor",
    "sip": "SIPRegressor",
    "diwp": "DIWPRegressor",
}
NUM_ROWS, NUM_COLUMNS = 1000, 10


def measure(name, start):
    """Runs a whole session with an estimator and prints the seconds of its parts, as JSON."""
    import numpy as np

    rng = np.random.default_rng(0)
    x = rng.normal(size=(NUM_ROWS, NUM_COLUMNS))
    y = np.sin(2.0 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.2 * rng.normal(size=NUM_ROWS)
    seconds, last = {}, start

    def look(part):
        nonlocal last
        now = time.time()
        seconds[part] = round(now - last, 2)
        last = now

    import tfp_fnspace as fns
    import tfp_fnspace.sklearn as estimators

    look("import")
    estimator = getattr(estimators, ESTIMATORS[name])(random_state=0)
    estimator.fit(x, y)
    look("fit")
    estimator.predict(x[:1])
    look("first predict")
    seconds["total"] = round(last - start, 2)
    estimator.predict(x[:1])
    look("second predict")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.keras")
        estimator.model_.save(path)
        look("save")
        fns.load_model(path)
        look("load")
        estimator.model_.export(os.path.join(folder, "exported"))
        look("export")
    print(json.dumps(seconds))


def run(name, checkout):
    """Returns the seconds of the parts of a session in a new process."""
    script = pathlib.Path(__file__).resolve()
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    command = [sys.executable, str(script), "--measure", name, str(time.time())]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return json.loads(done.stdout.splitlines()[-1])


def medians(runs):
    """Returns the medians over runs, a dict of parts."""
    return {part: sorted(run[part] for run in runs)[len(runs) // 2] for part in runs[0]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join(ESTIMATORS))
    parser.add_argument("--against", type=pathlib.Path, help="another checkout of the project")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        name, start = options.measure
        return measure(name, float(start))
    checkouts = {"now": CHECKOUT}
    if options.against:
        checkouts["before"] = options.against.resolve()
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    for name in options.only.split(","):
        runs = {which: [] for which in checkouts}
        for _ in range(options.runs):
            for which, checkout in checkouts.items():
                runs[which].append(run(name, checkout))
        results[name] = {which: medians(found) for which, found in runs.items()}
        RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        for which, found in results[name].items():
            print(f"{name:18} {which:7} {found}", flush=True)
    return None


if __name__ == "__main__":
    main()
