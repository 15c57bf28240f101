"""Samples a second of `TAGIModel.fit` on NumPy arrays, beside pytagi in the same run.

Each measurement runs in its own process. The two programs take turns, and medians and ratios are
reported. Ours is timed through the public `fit` after one epoch that compiles, and pytagi through
its training loop of forward, update, backward and step.

    pip install pytagi nvidia-nccl-cu12        # and Debian's libopenmpi3
    python benchmarks/tagi_speed.py --out benchmarks/results/tagi_speed.json

Run it with nothing else running.
"""

import argparse
import json
import os
import pathlib
import site
import statistics
import subprocess
import sys
import time
from typing import NamedTuple


class Case(NamedTuple):
    """A network (its sizes if it is dense, none for the convolutional one), and how it is run."""

    sizes: list[int] | None
    batch_size: int
    rows: int  # ours
    epochs: int  # ours, after one that compiles
    their_rows: int
    threads: list[int]  # of pytagi, that compete
    target: float  # the ratio that we mean to reach


CASES = {
    "784-100-100-11 batch 10": Case([784, 100, 100, 11], 10, 20000, 2, 5000, [2], 5.0),
    "784-100-100-11 batch 128": Case([784, 100, 100, 11], 128, 20000, 4, 10240, [2], 5.0),
    "784-800-800-11 batch 10": Case([784, 800, 800, 11], 10, 5000, 2, 500, [2], 8.0),
    "784-800-800-11 batch 128": Case([784, 800, 800, 11], 128, 10240, 2, 1024, [2], 8.0),
    "13-50-1 batch 10": Case([13, 50, 1], 10, 20000, 20, 100000, [1, 2], 1.0),
    "convolutional batch 16": Case(None, 16, 3200, 2, 160, [1, 2], 5.0),
}


def data(case):
    """Returns random inputs (28 x 28 x 1 for the convolutional network) and targets, float32."""
    import numpy as np

    rng = np.random.default_rng(0)
    num_rows = max(case.rows, case.their_rows)
    shape = (case.sizes[0],) if case.sizes else (28, 28, 1)
    x = rng.normal(size=(num_rows, *shape)).astype("float32")
    return x, rng.normal(size=(num_rows, case.sizes[-1] if case.sizes else 11)).astype("float32")


def our_layers(case, inputs):
    """Returns a network's layers; the convolutional one has 32 filters of 4 x 4 and 64 of 5 x 5."""
    from tfp_fnspace import tagi

    units = inputs
    if case.sizes:
        for size in case.sizes[1:-1]:
            units = tagi.Dense(size, activation="relu")(units)
        return tagi.Dense(case.sizes[-1])(units)
    units = tagi.Conv2D(32, 4, activation="relu")(tagi.ZeroPadding2D(1)(units))
    units = tagi.AveragePooling2D(3, strides=2)(units)
    units = tagi.Conv2D(64, 5, activation="relu")(units)
    units = tagi.Flatten()(tagi.AveragePooling2D(3, strides=2)(units))
    return tagi.Dense(11)(tagi.Dense(150, activation="relu")(units))


def their_layers(case):
    """Returns the same network of pytagi."""
    from pytagi.nn import AvgPool2d, Conv2d, Linear, ReLU

    if case.sizes:
        pairs = zip(case.sizes[:-1], case.sizes[1:], strict=True)
        dense = [layer for pair in pairs for layer in (ReLU(), Linear(*pair))]
        return dense[1:]
    return [
        Conv2d(1, 32, 4, padding=1, in_width=28, in_height=28),
        ReLU(),
        AvgPool2d(3, 2),
        Conv2d(32, 64, 5),
        ReLU(),
        AvgPool2d(3, 2),
        Linear(64 * 4 * 4, 150),
        ReLU(),
        Linear(150, 11),
    ]


def run_ours(case, jit_compile="auto"):
    """Returns samples a second of `fit`, and the seconds of the first epoch with compilation."""
    import keras

    import tfp_fnspace as fns

    x, y = (array[: case.rows] for array in data(case))
    inputs = keras.Input(x.shape[1:])
    noise = fns.likelihoods.Gaussian(scale=0.1)
    model = fns.tagi.TAGIModel(inputs, our_layers(case, inputs), likelihood=noise, seed=0)
    model.compile(jit_compile=jit_compile)
    begin = time.perf_counter()
    model.fit(x, y, batch_size=case.batch_size, epochs=1, verbose=0)
    first = time.perf_counter() - begin
    begin = time.perf_counter()
    model.fit(x, y, batch_size=case.batch_size, epochs=case.epochs, verbose=0)
    return case.rows * case.epochs / (time.perf_counter() - begin), first


def run_pytagi(case, threads):
    """Returns samples a second of pytagi's training loop, after one batch."""
    import numpy as np
    from pytagi.nn import OutputUpdater, Sequential

    network = Sequential(*their_layers(case))
    network.set_threads(threads)
    updater = OutputUpdater(network.device)
    x, y = data(case)
    size = case.batch_size
    variance = np.full(size * y.shape[1], 0.01, "float32")

    def learn(start):
        network(x[start : start + size].ravel())
        updater.update(
            output_states=network.output_z_buffer,
            mu_obs=y[start : start + size].ravel(),
            var_obs=variance,
            delta_states=network.input_delta_z_buffer,
        )
        network.backward()
        network.step()

    learn(0)
    starts = range(0, case.their_rows - size + 1, size)
    begin = time.perf_counter()
    for start in starts:
        learn(start)
    return len(starts) * size / (time.perf_counter() - begin)


def child(program, case, threads):
    """Makes one measurement, and prints it as JSON."""
    if program != "pytagi":
        rate, first = run_ours(CASES[case], True if program == "ours, XLA" else "auto")
        print(json.dumps({"rate": rate, "first_epoch_seconds": first}))
    else:
        print(json.dumps({"rate": run_pytagi(CASES[case], threads)}))


def measure(program, case, threads=0):
    """Runs `child` in a new process; `None` if pytagi cannot run."""
    environment = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3")
    folders = [*site.getsitepackages(), site.getusersitepackages()]
    libraries = [str(pathlib.Path(folder) / "nvidia/nccl/lib") for folder in folders]
    paths = [*libraries, environment.get("LD_LIBRARY_PATH", "")]
    environment["LD_LIBRARY_PATH"] = ":".join(path for path in paths if path)
    command = [sys.executable, __file__, "--child", program, case, str(threads)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stderr.strip().splitlines()[-1], file=sys.stderr)
        return None
    return json.loads(done.stdout.strip().splitlines()[-1])


def compare(case, repeats):
    """Returns a record of the medians and of the ratio to pytagi's best number of threads."""
    thread_counts = CASES[case].threads
    rates = {"ours": [], **{f"pytagi, {n} threads": [] for n in thread_counts}}
    first = []
    for _ in range(repeats):
        ours = measure("ours", case)
        rates["ours"].append(ours["rate"])
        first.append(ours["first_epoch_seconds"])
        if CASES[case].sizes is None:  # "auto" does not do this on a CPU
            compiled = measure("ours, XLA", case)["rate"]
            rates.setdefault("ours, XLA", []).append(compiled)
        for threads in thread_counts:
            theirs = measure("pytagi", case, threads)
            if theirs:
                rates[f"pytagi, {threads} threads"].append(theirs["rate"])
    medians = {name: statistics.median(values) for name, values in rates.items() if values}
    best = max((rate for name, rate in medians.items() if "pytagi" in name), default=None)
    return {
        "case": case,
        "samples_per_second": medians,
        "all_samples_per_second": rates,
        "first_epoch_seconds": statistics.median(first),
        "ratio": medians["ours"] / best if best else None,
        "target_ratio": CASES[case].target,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="benchmarks/results/tagi_speed.json")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", help="cases whose name has this text; the others are kept")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        program, case, threads = options.child
        return child(program, case, int(threads))
    from tfp_fnspace.benchmark import add_records, machine, versions

    for case in (name for name in CASES if (options.only or "") in name):
        record = compare(case, options.repeats)
        record.update(versions=versions(), machine=machine())
        add_records(options.out, [record], lambda other, case=case: other["case"] == case)
        rates = ", ".join(f"{k} {v:,.0f}/s" for k, v in record["samples_per_second"].items())
        ratio = f"{record['ratio']:.1f}x" if record["ratio"] else "pytagi did not run"
        print(f"{case}: {rates}; ratio {ratio} (target {record['target_ratio']:g}x)", flush=True)
    print(f"results in {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
