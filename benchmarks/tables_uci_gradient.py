"""UCI tables of the functional and sparse implicit methods, for `tables.py`."""

import statistics

from tables_records import mean_and_error, records

#: Results of the methods that train by gradients, and of what they are compared with.
FILES = ("uci_fbnn.json", "uci_sip.json", "uci_gp.json", "uci_given_gp.json")

#: Name in the results -> name in the tables.
NAMES = {
    "fbnn": "fBNN",
    "bayes_by_backprop": "Bayes by Backprop",
    "exact_gp": "exact GP",
    "given_gp": "exact GP, its prior",
    "sip_bnn": "SIP, BNN",
    "sip_ns": "SIP, neural sampler",
    "vip": "VIP",
    "aadm": "AADM",
    "avb": "AVB",
}

#: Data set -> RMSE and log-likelihood of tables 1 and 2 of the fBNN paper (other splits).
PAPER_FBNN = {
    "boston": (2.378, -2.301),
    "energy": (0.412, -0.684),
    "wine": (0.673, -1.040),
    "yacht": (0.607, -1.033),
    "naval": (1.2e-4, 7.130),
    "protein": (4.326, -2.892),
}

#: The same of the SIP paper: RMSE of the neural sampler, log-likelihood of the BNN (80/20 splits).
PAPER_SIP = {
    "boston": (2.29, -2.51),
    "energy": (0.836, -1.002),
    "wine": (0.625, -0.972),
    "yacht": (0.54, -0.207),
    "power": (3.87, -2.761),
    "naval": (None, 7.28),
}


def cells():
    """(method, data set) -> split -> record."""
    found = {}
    for record in (r for name in FILES for r in records(name)):
        found.setdefault((record["method"], record["dataset"]), {})[record["split"]] = record
    return found


def fbnn_uci_table():
    """fBNN, Bayes by Backprop, an exact Gaussian process and that which is the prior of fBNN."""
    return _table(("fbnn", "bayes_by_backprop", "exact_gp", "given_gp"), PAPER_FBNN)


def sip_uci_table():
    """SIP, its baselines, Bayes by Backprop and fBNN."""
    methods = ("sip_bnn", "sip_ns", "vip", "aadm", "avb", "bayes_by_backprop", "fbnn")
    return _table(methods, PAPER_SIP, "neural sampler", "BNN")


def _table(methods, paper, of_rmse="", of_log_likelihood=""):
    """Rows of the methods and the paper's, whose two numbers may be of different methods."""
    found, reference = cells(), "bayes_by_backprop"
    lines = [
        "| data set | method | splits | log-likelihood | more than Bayes by Backprop's | CRPS "
        "| RMSE | within 90 % | seconds |",
        "|---" * 9 + "|",
    ]
    for dataset, (rmse, log_likelihood) in paper.items():
        digits = ".5f" if dataset == "naval" else ".3f"  # its targets span 0.05
        for method in methods:
            rows = found.get((method, dataset), {})
            if not rows:
                continue
            base = found.get((reference, dataset), {})
            gains = [base[s]["nll"] - rows[s]["nll"] for s in rows if s in base]
            gain = _text(gains, "+.3f") if method != reference and gains else "–"
            styles = {"nll": ".3f", "crps": digits, "rmse": digits}
            values = {
                key: _text([-r[key] if key == "nll" else r[key] for r in rows.values()], style)
                for key, style in styles.items()
            }
            within, seconds = (
                format(statistics.mean(r[key] for r in rows.values()), style)
                for key, style in (("coverage_90", ".0%"), ("seconds", ".0f"))
            )
            lines.append(
                f"| {dataset} | {NAMES[method]} | {len(rows)} | {values['nll']} | {gain} "
                f"| {values['crps']} | {values['rmse']} | {within.replace('%', ' %')} "
                f"| {seconds} |"
            )
        if any((method, dataset) in found for method in methods):
            error = "" if rmse is None else format(rmse, digits)
            if of_rmse == of_log_likelihood:
                paper_rows = [("the paper's", f"{log_likelihood:.3f}", error)]
            else:
                paper_rows = [
                    (f"the paper's, {of_log_likelihood}", f"{log_likelihood:.3f}", ""),
                    (f"the paper's, {of_rmse}", "", error),
                ]
            for name, value, error in paper_rows:
                lines.append(f"| {dataset} | {name} | | {value} | | | {error} | | |")
    return "\n".join(lines)


def _text(values, style):
    """A mean, with its standard error where there are two values or more."""
    if len(values) < 2:
        return format(values[0], style)
    mean, spread = mean_and_error(values)
    return f"{mean:{style}} ± {spread:{style.lstrip('+')}}"
