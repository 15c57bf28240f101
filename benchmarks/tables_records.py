"""Results files and their statistics, for the tables of `tables.py`."""

import json
import math
import pathlib
import statistics

RESULTS = pathlib.Path(__file__).resolve().parent / "results"


def records(name):
    """The records of a results file; none if nothing is there yet."""
    path = RESULTS / name
    return json.loads(path.read_text()) if path.exists() else []


def mean_and_error(values):
    """Mean and standard error of the mean."""
    return statistics.mean(values), statistics.stdev(values) / math.sqrt(len(values))
