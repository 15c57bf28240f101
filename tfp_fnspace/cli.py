"""Command line: `python -m tfp_fnspace demo | benchmark`."""

import argparse
import sys
from collections.abc import Sequence

from tfp_fnspace import benchmark, demo
from tfp_fnspace.benchmark import estimators, uci
from tfp_fnspace.benchmark.records import versions


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        return options.run(options)
    except (ValueError, OSError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m tfp_fnspace",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,  # keeps the lines of versions
    )
    shown = "\n".join(f"{name} {number}" for name, number in versions().items())
    parser.add_argument("--version", action="version", version=shown)
    commands = parser.add_subparsers(required=True, metavar="command")
    _add_demo(commands)
    kinds = commands.add_parser("benchmark", help="fit and score on data sets with fixed splits")
    kinds = kinds.add_subparsers(required=True, metavar="kind")
    for add in (_add_uci, _add_summary, _add_pictures, _add_compare, _add_paper, _add_report):
        add(kinds)
    return parser


def _add_demo(commands):
    parser = commands.add_parser("demo", help="fit, score, plot, export and serve on real data")
    parser.add_argument("--output-dir", default="build/demo", help="folder for plot and model")
    parser.set_defaults(run=lambda options: demo.run(options.output_dir))


def _add_uci(kinds):
    parser = kinds.add_parser(
        "uci", help="shipped defaults on regression sets <name>.npz with x, y, test_index"
    )
    known = ",".join(estimators.ESTIMATORS)
    parser.add_argument("--estimators", default=known, help=f"comma-separated, of {known}")
    _add_data(parser)
    parser.add_argument("--out", required=True, help="folder of the results; a killed run resumes")
    parser.add_argument("--jobs", type=int, default=1, help="cells at a time")
    parser.set_defaults(run=_run_uci)


def _add_data(parser):
    parser.add_argument("--datasets", required=True, help="comma-separated names")
    parser.add_argument("--splits", default="all", help="all, or such as 0-4 or 0,2")
    parser.add_argument("--data-dir", help="folder of the files (or TFP_FNSPACE_DATA)")


def _run_uci(options):
    uci.run(
        options.estimators.split(","),
        options.datasets.split(","),
        options.splits,
        options.data_dir,
        options.out,
        jobs=options.jobs,
        echo=_print,
    )
    print(f"results in {options.out}")
    return 0


def _add_summary(kinds):
    parser = kinds.add_parser("summary", help="a row for each estimator of a folder of results")
    parser.add_argument("folder")
    parser.set_defaults(run=_run_summary)


def _run_summary(options):
    from tfp_fnspace.benchmark import tables  # needs pandas, which is optional

    print(tables.as_text(tables.summary(tables.read_cells(options.folder))))
    return 0


def _add_pictures(kinds):
    parser = kinds.add_parser("pictures", help="ranks, calibration and seconds of a results folder")
    parser.add_argument("folder")
    parser.add_argument("--out", required=True, help="folder of the pictures")
    parser.set_defaults(run=_run_pictures)


def _run_pictures(options):
    from tfp_fnspace.benchmark import pictures, tables  # need packages that are optional

    for path in pictures.write(tables.read_cells(options.folder), options.out):
        print(f"wrote {path}")
    return 0


def _add_compare(kinds):
    parser = kinds.add_parser("compare", help="paired differences of two folders of results")
    parser.add_argument("first")
    parser.add_argument("second")
    parser.set_defaults(run=_run_compare)


def _run_compare(options):
    from tfp_fnspace.benchmark import tables  # needs pandas, which is optional

    found = tables.compare(*map(tables.read_cells, (options.first, options.second)))
    print(f"{options.second} less {options.first}: nll in nats, crps relative to the first's")
    print("\n\n".join(map(tables.as_text, found)))
    return 0


def _print(line):
    print(line, flush=True)


def _add_paper(kinds):
    parser = kinds.add_parser("paper", help="the protocol of a paper")
    parser.add_argument(
        "protocol", help="TOML file, or in a checkout a name in benchmarks/uci/paper"
    )
    parser.add_argument("--variants", help="comma-separated titles in the file (default: all)")
    parser.add_argument("--datasets", help="comma-separated names (default: those of the paper)")
    parser.add_argument("--splits", default="all", help="all, or such as 0-4 or 0,2")
    parser.add_argument("--data-dir", help="folder of the files (or TFP_FNSPACE_DATA)")
    parser.add_argument("--out", required=True, help="results, JSON; a killed run resumes")
    parser.set_defaults(run=_run_paper)


def _run_paper(options):
    records = benchmark.run_paper(
        options.protocol,
        options.variants and options.variants.split(","),
        options.datasets and options.datasets.split(","),
        options.splits,
        options.data_dir,
        options.out,
        echo=_print,
    )
    print(benchmark.summary(records))
    print(f"results in {options.out}")
    return 0


def _add_report(kinds):
    parser = kinds.add_parser("report", help="in a checkout: its page of benchmarks and pictures")
    parser.set_defaults(run=_run_report)


def _run_report(options):
    from tfp_fnspace.benchmark import report  # needs packages that are optional

    for path in report.write():
        print(f"wrote {path}")
    return 0
