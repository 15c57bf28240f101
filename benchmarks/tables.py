"""Writes the tables of `docs/benchmarks.md` from the files in `benchmarks/results`.

python benchmarks/tables.py            # rewrites the tables between their markers
python benchmarks/tables.py --check    # exit status 1 if a table is stale
"""

import argparse
import json
import math
import pathlib
import re
import statistics
import sys

from tables_gradient import (
    bandits_table,
    fbnn_mnist_table,
    fbnn_speed_table,
    large_table,
    optimisation_table,
    sip_speed_table,
)
from tables_records import RESULTS, mean_and_error, records
from tables_tagi import heteroscedastic_table, mnist_table, speed_table
from tables_uci_gradient import fbnn_uci_table, sip_uci_table

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "benchmarks.md"

#: Table 1 of the TAGI paper: (mean, standard deviation, unit of the last printed digit) of the
#: RMSE and of the log-likelihood, and the number of folds.
PAPER = {
    "boston": ((2.98, 0.86, 0.01), (-2.58, 0.45, 0.01), 20),
    "energy": ((1.46, 0.22, 0.01), (-1.81, 0.14, 0.01), 20),
    "power": ((4.12, 0.16, 0.01), (-2.83, 0.04, 0.01), 20),
    "wine": ((0.63, 0.04, 0.01), (-0.96, 0.06, 0.01), 20),
    "yacht": ((1.02, 0.42, 0.01), (-1.49, 0.45, 0.01), 20),
    "naval": ((0.01, 6e-3, 0.01), (2.10, 0.57, 0.01), 20),
    "protein": ((4.70, 0.02, 0.01), (-2.97, 4e-3, 0.01), 5),
}


#: Table 1 of the DIWP paper: log-likelihoods of DIWP, two printed digits.
DIWP_PAPER = {
    "relu": {
        "yacht": -0.64,
        "energy": -0.71,
        "boston": -2.40,
        "wine": -0.95,
        "power": -2.81,
        "naval": 5.95,
        "protein": -2.81,
    },
    "squared_exponential": {
        "yacht": -0.39,
        "energy": -0.70,
        "boston": -2.40,
        "wine": -1.00,
        "power": -2.78,
        "naval": 5.92,
        "protein": -2.74,
    },
}
DIWP_METHODS = {
    "diwp": "DIWP",
    "nngp": "NNGP",
    "diwp_defective": "DIWP with the defect",
    "diwp_bound": "DIWP, bound",
    "diwp_defective_bound": "DIWP with the defect, bound",
    "diwp_from_delta_1": "DIWP from δ = 1",
    "diwp_defective_from_delta_1": "DIWP with the defect, from δ = 1",
    "deep_gp": "deep GP",
    "exact_gp": "exact GP",
}


def as_good(ours, error, paper, folds, larger_is_better):
    """The rule of the design: as good within 2 standard errors plus half a printed digit."""
    mean, deviation, digit = paper
    slack = 2.0 * math.hypot(error, deviation / math.sqrt(folds)) + digit / 2.0
    return ours >= mean - slack if larger_is_better else ours <= mean + slack


def uci_table(name):
    """Rows for a results file of `benchmark paper`."""
    records = json.loads((RESULTS / name).read_text())
    lines = [
        "| data set | splits | RMSE | paper | log-likelihood | paper | as good | CRPS "
        "| 90 % coverage | seconds |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for dataset, (rmse, likelihood, folds) in PAPER.items():
        rows = [record for record in records if record["dataset"] == dataset]
        if not rows:
            continue
        ours = {
            key: mean_and_error([row[key] for row in rows])
            for key in ("rmse", "nll", "crps", "coverage_90", "seconds")
        }
        digits = 5 if dataset == "naval" else 3
        verdict = as_good(*ours["rmse"], rmse, folds, False) and as_good(
            -ours["nll"][0], ours["nll"][1], likelihood, folds, True
        )
        lines.append(
            f"| {dataset} | {len(rows)} "
            f"| {ours['rmse'][0]:.{digits}f} ± {ours['rmse'][1]:.{digits}f} | {rmse[0]:g} "
            f"| {-ours['nll'][0]:.3f} ± {ours['nll'][1]:.3f} | {likelihood[0]:g} "
            f"| {'yes' if verdict else 'no'} | {ours['crps'][0]:.{digits}f} "
            f"| {100 * ours['coverage_90'][0]:.1f} % | {ours['seconds'][0]:.0f} |"
        )
    return "\n".join(lines)


def stable_functions_table():
    """Errors on the nine functions, training seed 0."""
    records = [
        record
        for kind in ("baselines", "stable")
        for record in json.loads((RESULTS / f"stable_functions_{kind}.json").read_text())
        if record["seed"] == 0
    ]
    methods = list(dict.fromkeys(record["method"] for record in records))
    lines = [
        "| function | " + " | ".join(method.replace("_", " ") for method in methods) + " "
        "| largest R-hat of f |",
        "|---" * (len(methods) + 2) + "|",
    ]
    for name in dict.fromkeys(record["function"] for record in records):
        rows = {r["method"]: r for r in records if r["function"] == name}
        cells = [f"{rows[m]['error']:.3f} / {rows[m]['paper_error']:.3f}" for m in methods]
        rhat = rows["stable_process"]["rhat"]["f"]
        lines.append(f"| {name.replace('_', ' ')} | " + " | ".join(cells) + f" | {rhat:.3f} |")
    return "\n".join(lines)


def stable_speed_table():
    """Effective samples a second beside Algorithm S.2."""
    records = json.loads((RESULTS / "stable_speed.json").read_text())
    lines = [
        "| example | program | ms/iteration of a chain | f, worst point | f, median | sigma "
        "| largest R-hat of f |",
        "|---|---|---|---|---|---|---|",
    ]
    for record in records:
        ours = f"grouped, {record['chains']} chains in a batch"
        for key, name in (("ours", ours), ("algorithm_s2", "Algorithm S.2, NumPy")):
            row = record[key]
            lines.append(
                f"| {record['case']} | {name} | {row['milliseconds_per_iteration']:.2f} "
                f"| {row['f_min']:.2f} | {row['f_median']:.1f} | {row['sigma']:.1f} "
                f"| {row['rhat_f_max']:.3f} |"
            )
        lines.append(
            f"| {record['case']} | ratio (target) | | {record['ratio_f_min']:.0f} "
            f"({record['target_ratios'][0]:.0f}) | | {record['ratio_sigma']:.0f} "
            f"({record['target_ratios'][1]:.0f}) | |"
        )
    return "\n".join(lines)


def stable_cost_table():
    """Milliseconds of an iteration of four chains, by sampler."""
    records = json.loads((RESULTS / "stable_cost.json").read_text())
    samplers = list(dict.fromkeys(record["sampler"] for record in records))
    times = {
        (record["inputs"], record["n"], record["groups"], record["sampler"]): record["milliseconds"]
        for record in records
    }
    lines = [
        f"| inputs | n | groups | {' | '.join(samplers)} |",
        "|---" * (len(samplers) + 3) + "|",
    ]
    for size in dict.fromkeys(key[:3] for key in times):
        cells = [f"{times[*size, s]:,.1f}" if (*size, s) in times else "–" for s in samplers]
        lines.append(f"| {' | '.join(f'{count:,}' for count in size)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def stable_partitions_table():
    """Seconds of exact partitions of random points."""
    lines = ["| inputs | points | atoms | seconds | the first time | target |", "|---" * 6 + "|"]
    for r in json.loads((RESULTS / "stable_partitions.json").read_text()):
        lines.append(
            f"| {r['inputs']} | {r['points']:,} | {r['atoms']:,} | {r['seconds']:.4f} "
            f"| {r['seconds_first']:.4f} | {r['target']:g} |"
        )
    return "\n".join(lines)


def stable_uci_table():
    """The stable process with sampled hyperplanes beside an exact GP, on the splits of both."""
    methods = {"stable process": "uci_stable.json", "exact GP": "uci_gp.json"}
    records = {
        (record["dataset"], method, record["split"]): record
        for method, name in methods.items()
        for record in json.loads((RESULTS / name).read_text())
    }
    lines = [
        "| data set | method | splits | compared | RMSE | log-likelihood | CRPS | 90 % coverage "
        "| seconds |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for dataset in dict.fromkeys(dataset for dataset, _, _ in records):
        splits = {
            method: {k for name, m, k in records if (name, m) == (dataset, method)}
            for method in methods
        }
        common = sorted(set.intersection(*splits.values()))
        for method in methods:
            rows = [records[dataset, method, k] for k in common]
            cells = _score_cells(rows) if rows else ["–"] * 5
            counts = f"{len(splits[method])} | {len(common)}"
            lines.append(f"| {dataset} | {method} | {counts} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def diwp_uci_table(kernel, variant="", beside=None):
    """Deep inverse Wishart processes, their baselines, and the exact GP, on the same splits.

    `beside` is another variant, whose processes with and without the defect are shown too.
    """
    cells = {}
    for kind in [variant] if beside is None else [variant, beside]:
        start = f"uci_diwp_{kind}{kernel}"
        for record in records(f"{start}.json") + records(f"{start}_baselines.json"):
            suffix = "" if kind == variant else f"_{kind.rstrip('_')}"
            method = (record["dataset"], record["method"] + suffix)
            cells.setdefault(method, {})[record["split"]] = record
    for record in records("uci_gp.json"):
        cells.setdefault((record["dataset"], record["method"]), {})[record["split"]] = record
    lines = [
        "| data set | method | splits | RMSE | log-likelihood | DIWP's less this | the paper's "
        "| as good | CRPS | 90 % coverage | seconds |",
        "|---" * 11 + "|",
    ]
    for dataset, paper in DIWP_PAPER[kernel].items():
        own = cells.get((dataset, "diwp"), {})
        for method, name in DIWP_METHODS.items():
            rows = cells.get((dataset, method), {})
            if not rows or (not own and method == "exact_gp"):
                continue
            rmse, likelihood, *rest = _score_cells(list(rows.values()))
            others = ["", f"{paper:.2f}", _diwp_verdict(own, paper)]
            if method != "diwp":
                others = [_paired(rows, own), "", ""]
            columns = [dataset, name, len(rows), rmse, likelihood, *others, *rest]
            lines.append("| " + " | ".join(map(str, columns)) + " |")
    return "\n".join(lines)


def diwp_speed_table():
    """Milliseconds of a training step."""
    lines = [
        "| processor | kernel | dtype | oneDNN | threads of an operation | ms a step "
        "| one step an epoch |",
        "|---" * 7 + "|",
    ]
    for record in records("diwp_speed.json"):
        lines.append(
            f"| {record['machine']['processor']} | {record['kernel'].replace('_', ' ')} "
            f"| {record['dtype']} | {'on' if record['onednn'] else 'off'} "
            f"| {record['threads_of_an_operation']} | {record['milliseconds']:.1f} "
            f"| {record['milliseconds_one_step_an_epoch']:.1f} |"
        )
    return "\n".join(lines)


def diwp_mnist_table():
    """MNIST beside table 2 of the paper."""
    paper = {"diwp": "97.7 % / -0.089 / -0.198", "nngp": "96.5 % / -0.134 / -0.268"}
    lines = [
        "| method | accuracy | log-likelihood | ELBO of a row | the paper's three | δ | seconds |",
        "|---" * 7 + "|",
    ]
    for record in records("diwp_mnist.json"):
        deltas = ", ".join(f"{delta:,.{0 if delta > 10 else 2}f}" for delta in record["delta"])
        lines.append(
            f"| {DIWP_METHODS[record['method']]} | {100 * record['accuracy']:.2f} % "
            f"| {record['log_likelihood']:.3f} | {record['elbo']:.3f} "
            f"| {paper.get(record['method'], '')} | {deltas} | {record['seconds']:.0f} |"
        )
    return "\n".join(lines)


def _diwp_verdict(rows, paper):
    """Whether the log-likelihood is as good as the paper's, by `as_good`; one split cannot say."""
    if len(rows) < 2:
        return "–"
    ours = mean_and_error([-row["nll"] for row in rows.values()])
    return "yes" if as_good(*ours, (paper, 0.0, 0.01), 1, True) else "no"


def _paired(rows, own):
    """Mean over the common splits of the log-likelihood's difference, with its standard error."""
    common = [rows[k]["nll"] - own[k]["nll"] for k in sorted(rows) if k in own]
    if not common:
        return "–"
    error = f" ± {mean_and_error(common)[1]:.3f}" if len(common) > 1 else ""
    return f"{statistics.mean(common):+.3f}{error}"


def stable_atoms_table():
    """RMSE at alpha = 2 with the exact kernel and with sampled hyperplanes."""
    records = json.loads((RESULTS / "stable_atoms.json").read_text())
    kinds = list(records[0]["rmse"])
    heads = ["exact kernel", *(f"{int(kind):,} atoms" for kind in kinds[1:])]
    lines = [f"| data set | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    for dataset in dict.fromkeys(record["dataset"] for record in records):
        rows = [record["rmse"] for record in records if record["dataset"] == dataset]
        cells = (f"{statistics.mean(row[kind] for row in rows):.2f}" for kind in kinds)
        lines.append(f"| {dataset} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _score_cells(rows):
    """RMSE, log-likelihood, CRPS, coverage and seconds; a single split has no standard error."""

    def mean(key, form, sign=1.0):
        return format(sign * statistics.mean(row[key] for row in rows), form)

    digits = ".6f" if rows[0]["dataset"] == "naval" else ".3f"  # its targets span 0.05
    errors = [
        f" ± {mean_and_error([row[key] for row in rows])[1]:{form}}" if len(rows) > 1 else ""
        for key, form in (("rmse", digits), ("nll", ".3f"))
    ]
    return [
        mean("rmse", digits) + errors[0],
        mean("nll", ".3f", -1.0) + errors[1],
        mean("crps", digits),
        mean("coverage_90", ".1%").replace("%", " %"),
        mean("seconds", ".0f"),
    ]


TABLES = {
    "uci": lambda: uci_table("uci_tagi.json"),
    "uci-linearized": lambda: uci_table("uci_tagi_linearized.json"),
    "uci-heteroscedastic": heteroscedastic_table,
    "tagi-mnist": mnist_table,
    "speed": speed_table,
    "stable-functions": stable_functions_table,
    "stable-speed": stable_speed_table,
    "stable-cost": stable_cost_table,
    "stable-partitions": stable_partitions_table,
    "stable-atoms": stable_atoms_table,
    "stable-uci": stable_uci_table,
    "diwp-uci-relu": lambda: diwp_uci_table("relu", beside="bound_"),
    "diwp-uci-squared-exponential": lambda: diwp_uci_table("squared_exponential", beside="bound_"),
    "diwp-uci-bound-relu": lambda: diwp_uci_table("relu", "bound_"),
    "diwp-uci-bound-squared-exponential": lambda: diwp_uci_table("squared_exponential", "bound_"),
    "diwp-uci-fitted-relu": lambda: diwp_uci_table("relu", "fitted_"),
    "diwp-uci-fitted": lambda: diwp_uci_table("squared_exponential", "fitted_"),
    "diwp-uci-at-rows-relu": lambda: diwp_uci_table("relu", "at_rows_"),
    "diwp-uci-at-rows": lambda: diwp_uci_table("squared_exponential", "at_rows_"),
    "diwp-uci-paper-relu": lambda: diwp_uci_table("relu", "paper_"),
    "diwp-uci-paper-squared-exponential": lambda: diwp_uci_table("squared_exponential", "paper_"),
    "diwp-uci-whitened": lambda: diwp_uci_table("squared_exponential", "whitened_"),
    "diwp-uci-whitened-relu": lambda: diwp_uci_table("relu", "whitened_"),
    "diwp-uci-greedy": lambda: diwp_uci_table("squared_exponential", "greedy_"),
    "diwp-uci-greedy-relu": lambda: diwp_uci_table("relu", "greedy_"),
    "diwp-uci-more-points": lambda: diwp_uci_table("squared_exponential", "150_points_"),
    "diwp-uci-batches-relu": lambda: diwp_uci_table("relu", "batches_"),
    "diwp-uci-batches-squared-exponential": lambda: diwp_uci_table(
        "squared_exponential", "batches_"
    ),
    "diwp-speed": diwp_speed_table,
    "diwp-mnist": diwp_mnist_table,
    "fbnn-uci": fbnn_uci_table,
    "fbnn-speed": fbnn_speed_table,
    "fbnn-bandits": bandits_table,
    "fbnn-bo": optimisation_table,
    "fbnn-mnist": fbnn_mnist_table,
    "sip-uci": sip_uci_table,
    "sip-speed": sip_speed_table,
    "large": large_table,
}


def rendered(text):
    """The page with all tables made anew."""
    for name, make in TABLES.items():
        pattern = re.compile(rf"(?<=<!-- {name} -->\n).*?(?=<!-- end -->)", re.DOTALL)
        if not pattern.search(text):
            raise ValueError(f"{PAGE} must have the marker <!-- {name} -->.")
        text = pattern.sub(make() + "\n", text, count=1)
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    text = PAGE.read_text()
    new = rendered(text)
    if options.check:
        return int(new != text)
    PAGE.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
