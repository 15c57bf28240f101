"""Tables of the functional and sparse implicit methods, for `tables.py`."""

from tables_records import mean_and_error, records

#: Names of the bandits' agents.
AGENTS = {
    "fbnn": "fBNN",
    "bayes_by_backprop": "Bayes by Backprop",
    "greedy": "greedy network",
    "linear": "linear posterior",
}


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
    """Regret relative to uniform actions, in per cent, and the paper's."""
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
