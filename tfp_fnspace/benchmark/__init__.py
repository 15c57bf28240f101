"""Benchmarks on data sets with fixed splits.

`uci` runs estimators with shipped defaults beside the alternatives that a user would pick, and
writes one file for each cell. `tables` compares and sums up these files. `paper` has the protocols
of the papers. Scripts under `benchmarks/` use the names that are imported here.
"""

from tfp_fnspace.benchmark.paper import run_paper, score, summary
from tfp_fnspace.benchmark.records import (
    add_records,
    machine,
    read_records,
    run_missing,
    versions,
    write_records,
)
from tfp_fnspace.benchmark.selection import parse_splits

__all__ = [
    "add_records",
    "machine",
    "parse_splits",
    "read_records",
    "run_missing",
    "run_paper",
    "score",
    "summary",
    "versions",
    "write_records",
]
