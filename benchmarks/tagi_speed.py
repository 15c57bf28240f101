"""Samples a second of `TAGIModel.fit` on NumPy arrays, beside pytagi in the same run.

Each measurement is a process of its own; the two programs take turns, and medians and ratios are
reported. Ours is timed through the public `fit` after one epoch that compiles; pytagi through its
training loop of forward, update, backward and step.

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

#: Network, batch size, rows and epochs for us, rows for pytagi, thread counts of pytagi that
#: compete, and the ratio that we mean to reach.
CASES = {
    "784-100-100-11 batch 10": ([784, 100, 100, 11], 10, 20000, 2, 5000, [2], 5.0),
    "784-100-100-11 batch 128": ([784, 100, 100, 11], 128, 20000, 4, 10240, [2], 5.0),
    "784-800-800-11 batch 10": ([784, 800, 800, 11], 10, 5000, 2, 500, [2], 8.0),
    "784-800-800-11 batch 128": ([784, 800, 800, 11], 128, 10240, 2, 1024, [2], 8.0),
    "13-50-1 batch 10": ([13, 50, 1], 10, 20000, 20, 100000, [1, 2], 1.0),
}


def data(sizes, num_rows):
    """Random inputs and targets, float32."""
    import numpy as np

    rng = np.random.default_rng(0)
    x = rng.normal(size=(num_rows, sizes[0])).astype("float32")
    return x, rng.normal(size=(num_rows, sizes[-1])).astype("float32")


def run_ours(sizes, batch_size, num_rows, epochs):
    """Samples a second of `fit`, and the seconds of the first epoch with compilation."""
    import keras

    import tfp_fnspace as fns

    inputs = units = keras.Input((sizes[0],))
    for size in sizes[1:-1]:
        units = fns.tagi.Dense(size, activation="relu")(units)
    outputs = fns.tagi.Dense(sizes[-1])(units)
    noise = fns.likelihoods.Gaussian(scale=0.1)
    model = fns.tagi.TAGIModel(inputs, outputs, likelihood=noise, seed=0)
    x, y = data(sizes, num_rows)
    begin = time.perf_counter()
    model.fit(x, y, batch_size=batch_size, epochs=1, verbose=0)
    first = time.perf_counter() - begin
    begin = time.perf_counter()
    model.fit(x, y, batch_size=batch_size, epochs=epochs, verbose=0)
    return num_rows * epochs / (time.perf_counter() - begin), first


def run_pytagi(sizes, batch_size, num_rows, threads):
    """Samples a second of pytagi's training loop, after a few batches."""
    import numpy as np
    from pytagi.nn import Linear, OutputUpdater, ReLU, Sequential

    layers = []
    for i, (fan_in, fan_out) in enumerate(zip(sizes[:-1], sizes[1:], strict=True)):
        layers += [ReLU()] if i else []
        layers.append(Linear(fan_in, fan_out))
    network = Sequential(*layers)
    network.set_threads(threads)
    updater = OutputUpdater(network.device)
    x, y = data(sizes, num_rows)
    variance = np.full(batch_size * sizes[-1], 0.01, "float32")

    def learn(start):
        network(x[start : start + batch_size].ravel())
        updater.update(
            output_states=network.output_z_buffer,
            mu_obs=y[start : start + batch_size].ravel(),
            var_obs=variance,
            delta_states=network.input_delta_z_buffer,
        )
        network.backward()
        network.step()

    learn(0)
    starts = range(0, num_rows - batch_size + 1, batch_size)
    begin = time.perf_counter()
    for start in starts:
        learn(start)
    return len(starts) * batch_size / (time.perf_counter() - begin)


def child(program, case, threads):
    """One measurement, printed as JSON."""
    sizes, batch_size, num_rows, epochs, their_rows, _, _ = CASES[case]
    if program == "ours":
        rate, first = run_ours(sizes, batch_size, num_rows, epochs)
        print(json.dumps({"rate": rate, "first_epoch_seconds": first}))
    else:
        print(json.dumps({"rate": run_pytagi(sizes, batch_size, their_rows, threads)}))


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
    """A record of the medians and of the ratio to pytagi's best number of threads."""
    thread_counts = CASES[case][5]
    rates = {"ours": [], **{f"pytagi, {n} threads": [] for n in thread_counts}}
    first = []
    for _ in range(repeats):
        ours = measure("ours", case)
        rates["ours"].append(ours["rate"])
        first.append(ours["first_epoch_seconds"])
        for threads in thread_counts:
            theirs = measure("pytagi", case, threads)
            if theirs:
                rates[f"pytagi, {threads} threads"].append(theirs["rate"])
    medians = {name: statistics.median(values) for name, values in rates.items() if values}
    best = max((rate for name, rate in medians.items() if name != "ours"), default=None)
    return {
        "case": case,
        "samples_per_second": medians,
        "all_samples_per_second": rates,
        "first_epoch_seconds": statistics.median(first),
        "ratio": medians["ours"] / best if best else None,
        "target_ratio": CASES[case][6],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="benchmarks/results/tagi_speed.json")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        program, case, threads = options.child
        return child(program, case, int(threads))
    from tfp_fnspace.benchmark import machine, versions, write_records

    records = []
    for case in CASES:
        record = compare(case, options.repeats)
        records.append({**record, "versions": versions(), "machine": machine()})
        write_records(options.out, records)
        rates = ", ".join(f"{k} {v:,.0f}/s" for k, v in record["samples_per_second"].items())
        ratio = f"{record['ratio']:.1f}x" if record["ratio"] else "pytagi did not run"
        print(f"{case}: {rates}; ratio {ratio} (target {record['target_ratio']:g}x)", flush=True)
    print(f"results in {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
