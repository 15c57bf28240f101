"""Tables of TAGI but that of the paper's regression sets, for `tables.py`."""

import statistics

from tables_records import mean_and_error, records

#: Table 2 of the paper: test errors in per cent after one epoch and at the chosen one.
PAPER = {
    "dense_800": ("3.10 ± 0.2", "1.53 ± 0.07"),
    "dense_100": ("3.56 ± 0.2", "2.45 ± 0.20"),
    "dense_100_batch_1": ("3.39 ± 0.17", "2.29 ± 0.06"),
}
NETWORKS = {
    "dense_800": "784-800-800-11",
    "dense_100": "784-100-100-11",
    "dense_100_batch_1": "784-100-100-11",
    "convolutional": "convolutional",
}


def speed_table():
    """Rows for `tagi_speed.json`."""
    found = records("tagi_speed.json")
    lines = [
        "| network, on two CPU cores (pytagi's CUDA was not measured) | ours, samples/s | pytagi, "
        "samples/s | ratio | target | first epoch with compilation, s |",
        "|---|---|---|---|---|---|",
    ]
    for record in found:
        rates = dict(record["samples_per_second"])
        ours = rates.pop("ours")
        rates.pop("ours, XLA", None)
        theirs = ", ".join(f"{rate:,.0f} ({name[8:]})" for name, rate in rates.items())
        lines.append(
            f"| {record['case']} | {ours:,.0f} | {theirs} | {record['ratio']:.1f} "
            f"| {record['target_ratio']:g} | {record['first_epoch_seconds']:.1f} |"
        )
    return "\n".join(lines)


def mnist_table():
    """Test errors of MNIST beside table 2 of the paper, and Fashion-MNIST told apart."""
    lines = [
        "| network | batch | noise | seeds | error after one epoch, % | paper | error, % | paper "
        "| epochs | NLL | AUROC of Fashion-MNIST | seconds of the first epoch | seconds |",
        "|---" * 13 + "|",
    ]
    tests = [record for record in records("tagi_mnist.json") if record["stage"] == "test"]
    for network, title in NETWORKS.items():
        rows = [row for row in tests if row["network"] == network]
        if not rows:
            continue

        def spread(key, form, rows=rows):
            values = [row[key] for row in rows]
            deviation = f" ± {statistics.stdev(values):{form}}" if len(values) > 1 else ""
            return f"{statistics.mean(values):{form}}{deviation}"

        first, best = PAPER.get(network, ("–", "–"))
        epochs = ", ".join(str(row["epoch"]) for row in rows)
        seconds = statistics.mean(row["seconds_of_training"] for row in rows)
        lines.append(
            f"| {title} | {rows[0]['batch_size']} | {rows[0]['scale']} | {len(rows)} "
            f"| {spread('error_after_one_epoch', '.2f')} | {first} "
            f"| {spread('error', '.2f')} | {best} | {epochs} | {spread('nll', '.3f')} "
            f"| {spread('auroc_entropy', '.3f')} "
            f"| {min(row['seconds_of_first_epoch'] for row in rows):.1f} | {seconds:.0f} |"
        )
    return "\n".join(lines)


def heteroscedastic_table():
    """Learnt noise beside constant noise, on the same splits."""
    lines = [
        "| data set | splits | log-likelihood, noise learnt | constant | difference "
        "| RMSE, noise learnt | constant |",
        "|---" * 7 + "|",
    ]
    constant = {(r["dataset"], r["split"]): r for r in records("uci_tagi.json")}
    learnt = records("uci_tagi_heteroscedastic.json")
    for name in dict.fromkeys(row["dataset"] for row in learnt):
        pairs = [(row, constant[name, row["split"]]) for row in learnt if row["dataset"] == name]
        gain, error = mean_and_error([b["nll"] - a["nll"] for a, b in pairs])
        (ours, other), (rmse, other_rmse) = (
            [mean_and_error([pair[i][key] for pair in pairs])[0] for i in (0, 1)]
            for key in ("nll", "rmse")
        )
        lines.append(
            f"| {name} | {len(pairs)} | {-ours:.3f} | {-other:.3f} | {gain:+.3f} ± {error:.3f} "
            f"| {rmse:.3f} | {other_rmse:.3f} |"
        )
    return "\n".join(lines)
