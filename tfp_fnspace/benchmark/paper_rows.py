"""The numbers of a paper beside those of `benchmark paper`."""

import decimal
import math
import os
import pathlib
import statistics
from collections.abc import Sequence

from tfp_fnspace.benchmark import protocol
from tfp_fnspace.benchmark.records import read_records

#: Score in a protocol -> its title, its key in records, its sign there, the better sign.
_SCORES = {
    "rmse": ("RMSE", "rmse", 1.0, -1.0),
    "log_likelihood": ("log-likelihood", "nll", -1.0, 1.0),
}


def rows(path: str | os.PathLike[str]) -> tuple[list[list[str]], str]:
    """Returns rows of a table, and a sentence about missing ones.

    Args:
        path: The protocol. The records are in the file beside it that ends in `.json`. Records with
            other settings than those of the protocol do not count.

    Returns:
        List of lists of four strings: the name of the run, the paper's number, ours with its
        standard error, whether it is as good. A sentence that names the runs that are missing,
        empty if there are none.
    """
    path = pathlib.Path(path)
    found = protocol.read(path)
    records = read_records(path.with_suffix(".json"))
    table, missing = [], {}
    for variant, results in found.results.items():
        for dataset, theirs in results.items():
            kept = [
                record
                for record in records
                if (record["variant"], record["dataset"]) == (variant, dataset)
                and record["config"] == found.config(variant, dataset, record["split"])
            ]
            if not kept:
                missing.setdefault(variant, []).append(dataset)
            else:
                cells = [_cells(s, theirs, kept, found.errors) for s in _SCORES if s in theirs]
                names, *columns = (" / ".join(column) for column in zip(*cells, strict=True))
                number = f"{len(kept)} split{'s' if len(kept) > 1 else ''}"
                table.append([f"{variant}, {dataset}, {names}, {number}", *columns])
    said = [f"{variant} on {', '.join(names)}" for variant, names in missing.items()]
    return table, f"Not run: {'; '.join(said)}." if said else ""


def _cells(score, theirs, records, errors):
    name, key, sign, better = _SCORES[score]
    values = [sign * record[key] for record in records]
    mean, error, digit = printed(theirs[score])
    if errors == "deviation" and error:
        error /= math.sqrt(theirs["runs"])
    return [
        name,
        theirs[score],
        written(values),
        verdict(values, mean, error, digit, better),
    ]


def printed(text: str) -> tuple[float, float, float]:
    """Returns a printed number, its error after ± and a unit of its last digit."""
    mean, _, error = (part.strip() for part in text.partition("±"))
    digit = 10.0 ** decimal.Decimal(mean).as_tuple().exponent
    return float(mean), float(error or 0.0), digit


def written(values: Sequence[float]) -> str:
    """Returns the mean and standard error, with three significant digits or decimals."""
    mean = statistics.mean(values)
    decimals = 3 if abs(mean) >= 0.1 else 3 - math.floor(math.log10(abs(mean) or 1.0))
    error = f" ± {_error(values):.{decimals}f}" if len(values) > 1 else ""
    return f"{mean:.{decimals}f}{error}"


def _error(values):
    return statistics.stdev(values) / math.sqrt(len(values))


def verdict(values: Sequence[float], mean: float, error: float, digit: float, better: float) -> str:
    """Returns whether our number is as good as a printed one.

    The two are level if they differ by at most two standard errors of the difference and half a
    unit of the last printed digit. One value alone cannot decide this.

    Args:
        values: Our values.
        mean: The printed number.
        error: Its standard error, 0 if there is none.
        digit: A unit of its last digit.
        better: 1 where larger is better, else -1.

    Returns:
        `"yes"`, `"level"`, `"no"` or a dash.
    """
    if len(values) < 2:
        return "–"
    slack = 2.0 * math.hypot(_error(values), error) + digit / 2.0
    gain = better * (statistics.mean(values) - mean)
    return "level" if abs(gain) <= slack else "yes" if gain > 0.0 else "no"
