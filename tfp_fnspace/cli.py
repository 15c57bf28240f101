"""Command line: `python -m tfp_fnspace demo | benchmark`."""

import argparse
import sys

from tfp_fnspace import benchmark, demo, registry


def main(arguments=None):
    """Runs a command; returns the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        return options.run(options)
    except (ValueError, OSError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _parser():
    parser = argparse.ArgumentParser(prog="python -m tfp_fnspace", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="command")
    _add_demo(commands)
    kinds = commands.add_parser("benchmark", help="fit and score on data sets with fixed splits")
    _add_uci(kinds.add_subparsers(required=True, metavar="kind"))
    return parser


def _add_demo(commands):
    parser = commands.add_parser("demo", help="fit, score, plot, export and serve on real data")
    parser.add_argument("--output-dir", default="build/demo", help="folder for plot and model")
    parser.set_defaults(run=lambda options: demo.run(options.output_dir))


def _add_uci(kinds):
    parser = kinds.add_parser("uci", help="regression sets <name>.npz with x, y, test_index")
    known = ",".join(sorted(registry.METHODS))
    parser.add_argument("--methods", default=known, help=f"comma-separated, of {known}")
    parser.add_argument("--datasets", required=True, help="comma-separated names")
    parser.add_argument("--splits", default="all", help="all, or such as 0-4 or 0,2")
    parser.add_argument("--data-dir", help="folder of the files (or TFP_FNSPACE_DATA)")
    parser.add_argument("--out", required=True, help="results, JSON; a killed run resumes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="replaces an entry of the configuration (JSON value); may be repeated",
    )
    parser.set_defaults(run=_run_uci)


def _run_uci(options):
    records = benchmark.run_uci(
        options.methods.split(","),
        options.datasets.split(","),
        options.splits,
        options.data_dir,
        options.out,
        seed=options.seed,
        overrides=benchmark.parse_settings(options.set),
        echo=lambda line: print(line, flush=True),
    )
    print(benchmark.summary(records))
    print(f"results in {options.out}")
    return 0
