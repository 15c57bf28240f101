"""Benchmarks on data sets with fixed splits.

`uci` runs estimators with shipped defaults beside what a user would pick instead, a file a cell;
`tables` compares and sums up what it wrote. `paper` has the protocols of the papers; scripts under
`benchmarks/` use what is imported here.
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
