"""Effective samples a second of the stable process, beside Algorithm S.2 of the paper in NumPy.

Both sample the same posterior of the paper's two examples, with alpha = 1.1 and nu = 1, and sigma
inferred; f is recorded at the training and the new points. Algorithm S.2 is
`tests/reference/stable_process.py` with one BLAS thread, which is its fastest here. Its four chains
run one after the other in one process, so their number does not change its effective samples a
second. Our chains run in one batch of four or eight, and are timed after the block that compiles.
The result is the smallest number of bulk effective samples a second over all points.

    python benchmarks/stable_speed.py --data-dir ../shared/data
    python benchmarks/stable_speed.py --cost        # milliseconds against n and groups, and a plot
    python benchmarks/stable_speed.py --partitions  # seconds of exact partitions

Run it with nothing else running.
"""

import argparse
import pathlib
import sys
import time

import numpy as np
import stable_functions
import tensorflow as tf
from threadpoolctl import threadpool_limits

from tfp_fnspace.benchmark import add_records, machine, read_records, versions, write_records
from tfp_fnspace.math.random import as_seed, fold_in
from tfp_fnspace.methods.stable_process import hyperplanes, samplers
from tfp_fnspace.metrics import ess_bulk, rhat

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "reference"))

RESULTS = "benchmarks/results/stable_speed.json"
COST_RESULTS = "benchmarks/results/stable_cost.json"
PARTITION_RESULTS = "benchmarks/results/stable_partitions.json"
COST_PLOT = "docs/images/stable_cost.png"
ALPHA, NU, CHAINS = 1.1, 1.0, 4

#: The numbers of our chains.
BATCHES = (4, 8)

#: Function, iterations and burn-in of Algorithm S.2; draws, iterations between two draws and burn-
#: in of ours; and the ratios that we mean to reach, of f and of sigma.
CASES = {
    "1-D": ("line_three_jumps", 20_000, 2000, 8000, 1, 1000, 50.0, 20.0),
    "2-D": ("plane_quadrants", 3600, 600, 6000, 1, 1000, 50.0, 100.0),
}


def summarise(f, sigma, seconds, iterations):
    """Returns effective samples a second; f `[chains, draws, points]`, sigma `[chains, draws]`."""
    per_point = ess_bulk(f) / seconds
    return {
        "seconds": round(seconds, 2),
        "milliseconds_per_iteration": round(1e3 * seconds / iterations, 4),
        "f_min": round(float(per_point.min()), 3),
        "f_median": round(float(np.median(per_point)), 3),
        "sigma": round(float(ess_bulk(sigma[..., np.newaxis])[0] / seconds), 3),
        "rhat_f_max": round(float(rhat(f).max()), 4),
        "rhat_sigma": round(float(rhat(sigma[..., np.newaxis])[0]), 4),
    }


def run_reference(data, partition, iterations, burn_in):
    """Runs Algorithm S.2; an iteration is one of one chain."""
    import stable_process

    signs = partition.signs(np.concatenate([data.x, data.x_new]))
    begin, f, sigma = time.perf_counter(), [], []
    with threadpool_limits(1):
        for seed in range(CHAINS):
            draws = stable_process.algorithm_s2(
                data.y, signs, partition.probabilities, ALPHA, NU, iterations, seed
            )
            f.append(draws["f"][burn_in:].astype(np.float32))
            sigma.append(draws["sigma"][burn_in:])
    seconds = (time.perf_counter() - begin) * (iterations - burn_in) / iterations
    return summarise(np.stack(f), np.stack(sigma), seconds, CHAINS * (iterations - burn_in))


def chains_of(data, partition, settings, name="grouped", count=1, thin=1, chains=CHAINS):
    """Returns a compiled block of draws `(seed, state) -> (state, f, sigma)`, and a first state."""
    problem = samplers.make_problem(
        partition.signs(data.x), partition.probabilities, np.tile(data.y, (chains, 1))
    )
    points = np.concatenate([data.x, data.x_new])
    signs = tf.constant(partition.signs(points), tf.float32)

    @tf.function(autograph=False)
    def block(seed, state):
        state, draws, _ = samplers.run(
            seed, state, problem, settings, count, thin, one_step=samplers.SAMPLERS[name]
        )
        f = tf.matmul(tf.reshape(draws.weights, [count * chains, -1]), signs, transpose_b=True)
        return state, tf.reshape(f, [count, chains, -1]), draws.noise_scale

    return block, samplers.initial_state(as_seed(0), problem, ALPHA, NU, 1.0)


def run_ours(data, partition, draws, thin, burn_in, chains, name="grouped"):
    """Runs the library's sampler; an iteration is one of one chain, all chains at a time."""
    size = 100
    settings = samplers.Settings(adapt_for=burn_in)
    block, state = chains_of(data, partition, settings, name, size, thin, chains)
    for k in range(-(-burn_in // (size * thin))):
        state, _, _ = block(fold_in(as_seed(1), k), state)
    f, sigma = [], []
    begin = time.perf_counter()
    for k in range(draws // size):
        state, values, scales = block(fold_in(as_seed(2), k), state)
        f.append(values.numpy())
        sigma.append(scales.numpy())
    seconds = time.perf_counter() - begin
    f, sigma = (np.swapaxes(np.concatenate(part), 0, 1) for part in (f, sigma))
    return summarise(f, sigma, seconds, chains * draws * thin)


def compare(case, data_dir, echo=print):
    """Runs both programs on one example, in turn; a record for each number of chains."""
    function, iterations, burn_in, draws, thin, our_burn_in, *targets = CASES[case]
    data = stable_functions.problem(function, data_dir)
    partition = hyperplanes.partition(data.x, "exact", x_predict=data.x_new)
    runs = {}
    for chains in BATCHES:
        runs[chains] = run_ours(data, partition, draws, thin, our_burn_in, chains)
        echo(f"{case} ours, {chains} chains: {runs[chains]}")
    reference = run_reference(data, partition, iterations, burn_in)
    echo(f"{case} Algorithm S.2: {reference}")
    return [
        {
            "case": case,
            "function": function,
            "atoms": partition.num_atoms,
            "groups": len(partition.groups(data.x).probabilities),
            "alpha": ALPHA,
            "nu": NU,
            "chains": chains,
            "ours": {**ours, "draws": draws, "thin": thin, "burn_in": our_burn_in},
            "algorithm_s2": {**reference, "iterations": iterations, "burn_in": burn_in},
            "ratio_f_min": round(ours["f_min"] / reference["f_min"], 1),
            "ratio_sigma": round(ours["sigma"] / reference["sigma"], 1),
            "target_ratios": targets,
            "versions": versions(),
            "machine": machine(),
        }
        for chains, ours in runs.items()
    ]


# Partitions --------------------------------------------------------------------------------------

#: Numbers of inputs and of points, and the seconds that we mean to stay below.
PARTITIONS = ((1, 1000, 0.1), (2, 188, 3.0))


def time_partitions(out=PARTITION_RESULTS):
    """Times exact partitions of random points: the first of a process, and the best of 5."""
    records = []
    for num_inputs, n, target in PARTITIONS:
        x = np.random.default_rng(0).normal(size=(n, num_inputs))
        seconds = []
        for _ in range(6):
            begin = time.perf_counter()
            partition = hyperplanes.exact(x)
            seconds.append(round(time.perf_counter() - begin, 4))
        records.append(
            {
                "inputs": num_inputs,
                "points": n,
                "atoms": partition.num_atoms,
                "total": float(partition.probabilities.sum()),
                "seconds_first": seconds[0],
                "seconds": min(seconds[1:]),
                "target": target,
                "versions": versions(),
                "machine": machine(),
            }
        )
    write_records(out, records)
    return records


# Cost --------------------------------------------------------------------------------------------

#: Inputs, numbers of training points, samplers; HMC takes up to `_HMC_GROUPS` groups.
COSTS = {
    1: ((10, 30, 100, 300, 1000), ("grouped", "metropolis", "hmc")),
    2: ((10, 20, 40, 70, 100, 128), ("grouped", "metropolis", "hmc")),
}
_HMC_GROUPS = 100


def cost(num_inputs, n, name, iterations=20):
    """Returns milliseconds of an iteration of four chains, without draws of f."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1.0, 1.0, (n, num_inputs))
    y = 5.0 * (x[:, 0] > 0.0) + 0.5 * rng.standard_normal(n)
    partition = hyperplanes.exact(x)
    groups = len(partition.groups(x).probabilities)
    data = stable_functions.Problem(x, y, x[:1], None)
    block, state = chains_of(data, partition, samplers.Settings(), name, 1, iterations)
    state, _, _ = block(as_seed(0), state)
    begin = time.perf_counter()
    block(as_seed(1), state)[1].numpy()
    milliseconds = 1e3 * (time.perf_counter() - begin) / iterations
    return {
        "inputs": num_inputs,
        "n": n,
        "groups": groups,
        "sampler": name,
        "milliseconds": round(milliseconds, 3),
        "versions": versions(),
        "machine": machine(),
    }


def run_costs(echo=print, out=COST_RESULTS):
    """Runs all of `COSTS`, and keeps cells that are in the file."""
    records = read_records(out)
    done = {(r["inputs"], r["n"], r["sampler"]) for r in records}
    for num_inputs, (sizes, names) in COSTS.items():
        for n in sizes:
            for name in names:
                too_slow = name == "hmc" and n**num_inputs > _HMC_GROUPS
                if (num_inputs, n, name) not in done and not too_slow:
                    records.append(cost(num_inputs, n, name))
                    echo({k: records[-1][k] for k in ("inputs", "n", "sampler", "milliseconds")})
                    add_records(out, records[-1:])
    return records


def plot_costs(records, path=COST_PLOT):
    """Plots milliseconds an iteration against n, a panel for each number of inputs."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
    for panel, num_inputs in zip(panels, COSTS, strict=True):
        for name in COSTS[num_inputs][1]:
            rows = [r for r in records if (r["inputs"], r["sampler"]) == (num_inputs, name)]
            line = sorted((r["n"], r["milliseconds"]) for r in rows)
            panel.loglog(*zip(*line, strict=True), "o-", label=name)
        panel.set_title("one input: n groups" if num_inputs == 1 else "two inputs: n²/2 groups")
        panel.set_xlabel("training points n")
        panel.grid(True, which="both", alpha=0.3)
    panels[0].set_ylabel("milliseconds an iteration, 4 chains")
    panels[0].legend()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main():
    """Runs what the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data-dir", default="../shared/data")
    parser.add_argument("--cost", action="store_true", help="cost against n, and its plot")
    parser.add_argument("--partitions", action="store_true", help="seconds of exact partitions")
    parser.add_argument("--out", default=RESULTS)
    options = parser.parse_args()
    if options.partitions:
        for record in time_partitions():
            print(record)
        return
    if options.cost:
        plot_costs(run_costs())
        return
    records = []
    for case in CASES:
        for record in compare(case, options.data_dir):
            records.append(record)
            print(
                f"{case}, {record['chains']} chains: f at the worst point "
                f"{record['ratio_f_min']}x (target {record['target_ratios'][0]:g}x), sigma "
                f"{record['ratio_sigma']}x (target {record['target_ratios'][1]:g}x)",
                flush=True,
            )
        write_records(options.out, records)


if __name__ == "__main__":
    main()
