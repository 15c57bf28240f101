"""Rows of `docs/benchmarks.md`, except for the papers' regression sets, for `benchmark report`.

A row says what is compared, the paper's or another program's number, ours, and whether ours is as
good. The tables of latencies and of seconds are for `docs/howto/export.md` and `sklearn.md`, see
`export_latency.py` and `seconds.py`.
"""

import json
import pathlib
import re

import pandas as pd

from tfp_fnspace.benchmark import estimators
from tfp_fnspace.benchmark.paper_rows import printed, verdict, written

RESULTS = pathlib.Path(__file__).resolve().parent / "results"

#: Table 2 of the TAGI paper: test errors in per cent after one epoch and at the chosen one, means
#: and standard deviations of five runs.
TAGI_MNIST = {
    "dense_800": ("784-800-800-11, batch 10", "3.10 ± 0.2", "1.53 ± 0.07"),
    "dense_100": ("784-100-100-11, batch 10", "3.56 ± 0.2", "2.45 ± 0.20"),
    "dense_100_batch_1": ("784-100-100-11, batch 1", "3.39 ± 0.17", "2.29 ± 0.06"),
}

#: Table 2 of the DIWP paper: accuracy, log-likelihood and ELBO of a row.
DIWP_MNIST = {"diwp": ("97.7 %", "-0.089", "-0.198"), "nngp": ("96.5 %", "-0.134", "-0.268")}

#: Variants that table 2 lacks; the defect puts the batch size into the degrees of freedom.
DIWP_STARTS = {
    "diwp_from_delta_1": "DIWP from δ = 1",
    "diwp_defective_from_delta_1": "DIWP from δ = 1 with the defect",
}

#: Table 4 of the fBNN paper, 1 x 50: regret in per cent of that of uniform actions, as means and
#: standard deviations of ten trials. Its statlog is shuttle.
BANDITS = {
    "fbnn": {"mushroom": "21.38 ± 7.00", "shuttle": "8.85 ± 4.55", "wheel": "65.05 ± 20.10"},
    "bayes_by_backprop": {
        "mushroom": "24.41 ± 6.70",
        "shuttle": "25.67 ± 3.46",
        "wheel": "72.37 ± 16.87",
    },
}

METHODS = {"fbnn": "fBNN", "bayes_by_backprop": "Bayes by Backprop"}

#: A relative difference of single runs that means nothing.
_LEVEL = 0.05


def records(name):
    """Returns the records of a results file."""
    return pd.DataFrame(json.loads((RESULTS / f"{name}.json").read_text()))


def compared(ours, theirs, better):
    """Compares single numbers: they are level if they differ by 5 % or less."""
    if abs(ours - theirs) <= _LEVEL * abs(theirs):
        return "level"
    return "yes" if better * (ours - theirs) > 0.0 else "no"


def tagi():
    """Compares MNIST with the paper, and speed with pytagi."""
    tests = records("tagi_mnist").query("stage == 'test'")
    rows = []
    for network, (title, *theirs) in TAGI_MNIST.items():
        found = tests[tests["network"] == network]
        for what, text in zip(("error_after_one_epoch", "error"), theirs, strict=True):
            mean, deviation, digit = printed(text)
            values = found[what].tolist()
            rows.append(
                [
                    f"MNIST, {title}, {what.replace('_', ' ')}, %, {len(values)} seeds",
                    text,
                    written(values),
                    verdict(values, mean, deviation / 5**0.5, digit, -1.0),
                ]
            )
    for record in records("tagi_speed").to_dict("records"):
        rates = {k: v for k, v in record["samples_per_second"].items() if "XLA" not in k}
        ours, theirs = rates.pop("ours"), max(rates.values())
        what = f"{record['case']}, samples a second (pytagi)"
        rows.append([what, f"{theirs:,.0f}", f"{ours:,.0f}", compared(ours, theirs, 1.0)])
    return rows


def stable_process():
    """Compares the nine functions with the best Gaussian process, and speed with Algorithm S.2."""
    ours = records("stable_functions_stable").set_index("function")["paper_error"]
    others = records("stable_functions_baselines").groupby("function", sort=False)["paper_error"]
    rows = [
        [
            f"{name.replace('_', ' ')}, error to new targets (best of four GPs)",
            f"{theirs:.3f}",
            f"{ours[name]:.3f}",
            compared(ours[name], theirs, -1.0),
        ]
        for name, theirs in others.min().items()
    ]
    for record in records("stable_speed").query("chains == 8").to_dict("records"):
        for key, what in {"f_min": "f at the worst point", "sigma": "σ"}.items():
            theirs, mine = record["algorithm_s2"][key], record["ours"][key]
            decimals = 0 if theirs > 10.0 else 2
            rows.append(
                [
                    f"{record['case']}, effective draws of {what} a second (Algorithm S.2)",
                    f"{theirs:,.{decimals}f}",
                    f"{mine:,.{decimals}f}",
                    compared(mine, theirs, 1.0),
                ]
            )
    return rows


def fbnn():
    """Compares bandits with the paper, and optimisation with Bayes by Backprop."""
    found, rows = records("fbnn_bandits"), []
    for method, problems in BANDITS.items():
        for problem, text in problems.items():
            part = found[(found["method"] == method) & (found["problem"] == problem)]
            values = part["relative_regret"].tolist()
            mean, deviation, digit = printed(text)
            rows.append(
                [
                    f"{METHODS[method]}, bandit {problem}, regret, %, {len(values)} trials",
                    text,
                    written(values),
                    verdict(values, mean, deviation / 10**0.5, digit, -1.0),
                ]
            )
    smallest = records("fbnn_bo").assign(last=lambda table: table["smallest"].str[30])
    for kernel, part in smallest.groupby("kernel", sort=False):
        ours, theirs = (
            part.loc[part["method"] == method, "last"].tolist()
            for method in ("fbnn", "bayes_by_backprop")
        )
        error = float(pd.Series(theirs).sem())
        rows.append(
            [
                f"smallest value in 30 queries, {kernel} (Bayes by Backprop), {len(ours)} runs",
                written(theirs),
                written(ours),
                verdict(ours, sum(theirs) / len(theirs), error, 0.0, -1.0),
            ]
        )
    return rows


def sip():
    """Compares speed with the authors' program."""
    return [
        [
            f"prior {record['prior'].replace('_', ' ')}, batch 10, ms a step (authors)",
            f"{record['authors']:.0f}",
            f"{record['milliseconds']:.1f}",
            compared(record["milliseconds"], record["authors"], -1.0),
        ]
        for record in records("sip_speed").dropna(subset=["authors"]).to_dict("records")
    ]


def diwp():
    """Compares MNIST with the paper, and speed with the authors' program."""
    rows, found = [], records("diwp_mnist").set_index("method")
    names = ("accuracy", "log-likelihood", "ELBO of a row")
    for method, theirs in DIWP_MNIST.items():
        accuracy, *others = found.loc[method, ["accuracy", "log_likelihood", "elbo"]]
        ours = [f"{100 * accuracy:.1f} %", *(f"{value:.3f}" for value in others)]
        rows += [
            [f"{method.upper()}, MNIST, {name}, one seed", text, value, "–"]
            for name, text, value in zip(names, theirs, ours, strict=True)
        ]
    rows += [
        [f"{title}, MNIST, {names[-1]}, one seed", DIWP_MNIST["diwp"][-1], f"{elbo:.3f}", "–"]
        for title, elbo in ((DIWP_STARTS[name], found["elbo"][name]) for name in DIWP_STARTS)
    ]
    speed = records("diwp_speed").query(
        "dtype == 'float32' and onednn and threads_of_an_operation == 2"
    )
    for kernel, times in speed.groupby("kernel", sort=False):
        slowest, theirs = times["milliseconds"].max(), times["bayesfunc"].iloc[0]
        rows.append(
            [
                f"{kernel.replace('_', ' ')} kernels, ms a step (bayesfunc)",
                f"{theirs:.0f}",
                f"{slowest:.0f}",
                compared(slowest, theirs, -1.0),
            ]
        )
    return rows


#: Method -> function of its rows.
ROWS = {function.__name__: function for function in (tagi, stable_process, fbnn, sip, diwp)}

#: Names in the table of latencies: of models, and of what answers.
EXPORTED = {
    "tagi": "`TAGIModel`",
    "stable_process": "`StableProcessModel`",
    "variational": "`VariationalModel`",
    "sip": "`SIPModel`",
    "diwp": "`DIWPModel`",
}
ANSWERS = {
    "predict": "Keras `predict`",
    "tf_saved_model": "SavedModel",
    "onnx": "ONNX",
    "litert": "LiteRT",
    "server": "the server",
}


def with_table(page, name, lines, found):
    """Returns the text of a page with another table between its marks.

    Args:
        page: The text of the page.
        name: The name in the first mark, `<!-- table: NAME -->`.
        lines: List of lists of cells, those of the head first.
        found: List of records, with the machine and the versions.
    """
    marks = re.compile(rf"(?<=<!-- table: {name} -->\n).*?(?=<!-- end -->)", re.DOTALL)
    if not marks.search(page):
        raise ValueError("The page must have the marks of the table. Received: a page without them")
    about = {(each["machine"]["processor"], each["versions"]["tensorflow"]) for each in found}
    where = "; ".join(f"{processor}, TensorFlow {version}" for processor, version in sorted(about))
    text = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    return marks.sub(lambda _: f"{text}\n\nMeasured on: {where}.\n", page)


def with_seconds(page, found):
    """Returns the text of a page with the table of seconds.

    Args:
        page: The text of the page.
        found: List of records of `seconds.py`.
    """
    sizes = sorted({each["rows"] for each in found})
    lines = [["", *(f"{size:,} rows" for size in sizes)], ["---", *["---:"] * len(sizes)]]
    for name in dict.fromkeys(each["estimator"] for each in found):
        by_size = {each["rows"]: each for each in found if each["estimator"] == name}
        taken = [by_size[size].get("fit_seconds") for size in sizes]
        cells = ["–" if each is None else f"{each:.2g}" for each in taken]
        lines.append([estimators.title(name), *cells])
    return with_table(page, "seconds", lines, found)


def with_export_latency(page, found):
    """Returns the text of a page with the table of latencies.

    Args:
        page: The text of the page.
        found: List of records of `export_latency.py`.
    """
    by_name = {(each["model"], each["format"]): each for each in found}
    head = ["model", "answers", "kB", "load, ms"]
    head += [f"{n} {rows}, {q}, ms" for n, rows in _LATENCY_ROWS for q in ("p50", "p99")]
    lines = [head, ["---"] * 4 + ["---:"] * 4]
    for model, title in EXPORTED.items():
        for kind, name in ANSWERS.items():
            if (model, kind) in by_name:
                lines.append([title, name, *_latencies(by_name[model, kind])])
    return with_table(page, "export_latency", lines, found)


_LATENCY_ROWS = (("1", "row"), ("1,000", "rows"))


def _latencies(record):
    """Returns the cells of a record."""
    if "reason" in record:
        return ["–"] * 6
    times = [record[f"{q}_ms_{rows}"] for rows in (1, 1000) for q in ("p50", "p99")]
    return [f"{record['kb']:,.0f}", f"{record['load_ms']:,.0f}", *(_short(t) for t in times)]


def _short(milliseconds):
    """Returns a time with two digits at least."""
    return f"{milliseconds:,.0f}" if milliseconds >= 10.0 else f"{milliseconds:.2g}"
