"""Tables of the functional and sparse implicit methods, for `tables.py`."""

from tables_records import mean_and_error, records

#: Names of the bandits' agents.
AGENTS = {
    "fbnn": "fBNN",
    "bayes_by_backprop": "Bayes by Backprop",
    "greedy": "greedy network",
    "linear": "linear posterior",
}

OPTIMISERS = {
    "fbnn": "fBNN",
    "bayes_by_backprop": "Bayes by Backprop",
    "random_features": "random features",
    "random_search": "random search",
}

STREAMED = {"bayes_by_backprop": "Bayes by Backprop", "fbnn": "fBNN", "sip_bnn": "SIP, BNN"}


def fbnn_speed_table():
    """Milliseconds of a training step of fBNN, and of what is in it."""
    found = [record for record in records("fbnn_speed.json") if "times" in record]
    names = " | ".join(f"{r['network']}: ms | all threads" for r in found)
    lines = [f"| step | {names} |", "|---" * (1 + 2 * len(found)) + "|"]
    for kind in found[0]["times"]:
        cells = []
        for record in found:
            times = record["times"][kind]
            cells += [f"{times['ms']:.1f}" if "ms" in times else "–", f"{times['cpu_ms']:.1f}"]
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    targets = " | ".join(f"{r['target_ms']:.1f} | –" for r in found)
    return "\n".join([*lines, f"| wanted | {targets} |"])


def sip_speed_table():
    """Milliseconds of a step of SIP and its discriminator."""
    lines = ["| prior | batch | ms a step | wanted | authors |", "|---" * 5 + "|"]
    for record in records("sip_speed.json"):
        authors = f"{record['authors']:.0f}" if record["authors"] else "–"
        lines.append(
            f"| {record['prior'].replace('_', ' ')} | {record['batch_size']} "
            f"| {record['milliseconds']:.1f} | {record['target']:.0f} | {authors} |"
        )
    return "\n".join(lines)


def bandits_table():
    """Regret relative to uniform actions, in per cent."""
    found = records("fbnn_bandits.json")
    problems = list(dict.fromkeys(r["problem"] for r in found))
    lines = [f"| | {' | '.join(problems)} |", "|---" * (1 + len(problems)) + "|"]
    for kind, label in (("relative_regret", ""), ("regret_of_the_second_half", ", second half")):
        for method, name in AGENTS.items():
            cells = []
            for problem in problems:
                chosen = [r for r in found if (r["problem"], r["method"]) == (problem, method)]
                mean, error = mean_and_error([r[kind] for r in chosen])
                cells.append(f"{mean:.1f} ± {error:.1f}")
            lines.append(f"| {name}{label} | {' | '.join(cells)} |")
    return "\n".join(lines)


def fbnn_mnist_table():
    """MNIST and Fashion-MNIST of fBNN and Bayes by Backprop."""
    kinds = {
        "accuracy": "accuracy",
        "nll": "NLL",
        "ece": "ECE",
        "auroc_mutual_information": "AUROC, mutual information",
        "auroc_entropy": "AUROC, entropy",
    }
    head = f"| method | epochs | {' | '.join(kinds.values())} | seconds of training |"
    lines = [head, "|---" * (3 + len(kinds)) + "|"]
    for record in records("fbnn_mnist.json"):
        name = AGENTS[record["method"].removesuffix("_longer")]
        scores = " | ".join(f"{record[kind]:.4f}" for kind in kinds)
        seconds = record["seconds_of_training"]
        lines.append(f"| {name} | {record['epochs']} | {scores} | {seconds:,.0f} |")
    return "\n".join(lines)


def optimisation_table():
    """Smallest values that Bayesian optimisation found."""
    found = records("fbnn_bo.json")
    kernels = list(dict.fromkeys(r["kernel"] for r in found))
    lines = [f"| after 10 queries, 30 queries | {' | '.join(kernels)} |"]
    lines.append("|---" * (1 + len(kernels)) + "|")
    for method, name in OPTIMISERS.items():
        cells = []
        for kernel in kernels:
            runs = [r["smallest"] for r in found if (r["kernel"], r["method"]) == (kernel, method)]
            ends = [mean_and_error([run[query] for run in runs]) for query in (10, 30)]
            cells.append(", ".join(f"{mean:.2f} ± {error:.2f}" for mean, error in ends))
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def large_table():
    """Scores after some seconds on sets that are streamed, and memory."""
    lines = [
        "| data | method | rows a step | steps | log-likelihood after 60 s | 120 s | 240 s "
        "| RMSE | CRPS | MiB after 60 s | 240 s |",
        "|---" * 11 + "|",
    ]
    for record in records("large.json"):
        points = {bound: p for p in record["points"] for bound in (60, 120, 240) if near(p, bound)}
        last = points[240]
        scores = " | ".join(f"{points[b]['log_likelihood']:.3f}" for b in (60, 120, 240))
        lines.append(
            f"| {record['data'].replace('_', ' ')} | {STREAMED[record['method']]} "
            f"| {record['batch_size']} | {last['steps']:,} | {scores} | {last['rmse']:.3f} "
            f"| {last['crps']:.3f} | {points[60]['memory_mib']} | {last['memory_mib']} |"
        )
    return "\n".join(lines)


def near(point, bound):
    """Whether a point was taken at these seconds: a first step may take a while."""
    return bound <= point["seconds"] < 1.2 * bound
