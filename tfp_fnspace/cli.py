"""Fit, calibrate, evaluate, export and serve models of tables, without writing a program.

    tfp-fnspace fit --data train.csv --target price --calibrate --test 0.2 --out model
    tfp-fnspace evaluate --model model --report report.html
    tfp-fnspace predict --model model --data new.csv --out predictions.csv
    tfp-fnspace serve --model model

`python -m tfp_fnspace` is the same command. Each command explains itself with `--help`.
"""

import argparse
import sys
import warnings
from collections.abc import Sequence

from tfp_fnspace import benchmark, demo
from tfp_fnspace.benchmark import estimators, uci
from tfp_fnspace.benchmark.records import versions
from tfp_fnspace.commands import work

#: Exit status of a command that Ctrl-C stopped, as shells have it.
_STOPPED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            return options.run(options)
        except (ValueError, OSError, ImportError, NotImplementedError) as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            print("stopped", file=sys.stderr)
            return _STOPPED


def _show_warning(message, category, filename, lineno, file=None, line=None):
    """Prints a warning without the line of code that gave it, below a progress bar."""
    print(f"\nwarning: {message}", file=sys.stderr)


def _parser():
    parser = argparse.ArgumentParser(
        prog="tfp-fnspace",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,  # keeps the lines of versions
    )
    shown = "\n".join(f"{name} {number}" for name, number in versions().items())
    parser.add_argument("--version", action="version", version=shown)
    commands = parser.add_subparsers(required=True, metavar="command")
    for add in (_add_fit, _add_predict, _add_evaluate, _add_export, _add_serve, _add_demo):
        add(commands)
    kinds = _command(
        commands,
        "benchmark",
        "fit and score on data sets with fixed splits",
        "uci --datasets all --splits 0 --out results",
    )
    kinds = kinds.add_subparsers(required=True, metavar="kind")
    for add in (_add_uci, _add_summary, _add_pictures, _add_compare, _add_paper, _add_report):
        add(kinds)
    return parser


def _command(commands, name, about, example):
    """Adds a command, whose help ends with an example."""
    return commands.add_parser(
        name,
        help=about,
        description=f"{about[0].upper()}{about[1:]}.",
        epilog=f"example:\n  %(prog)s {example}".rstrip(),  # `prog` is all words of the command
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def _command_on_model(commands, name, about, example):
    """Adds a command that reads what `fit` has written."""
    parser = _command(commands, name, about, f"--model model {example}")
    parser.add_argument("--model", required=True, help="folder that `fit` has written")
    return parser


def _add_fit(commands):
    parser = _command(
        commands,
        "fit",
        "fit a model to a table, within a time limit",
        "--data train.csv --target price --time-limit 60 --out model",
    )
    parser.add_argument("--data", required=True, help="table: .csv, .parquet, .feather or .npz")
    parser.add_argument("--target", required=True, help="name of the column to predict")
    parser.add_argument("--out", required=True, help="folder to write")
    parser.add_argument(
        "--method",
        default="auto",
        help="auto (default; several methods, weighed by held-out rows), tagi, diwp, fbnn, sip or "
        "stable_process",
    )
    parser.add_argument(
        "--task",
        choices=("regression", "classification"),
        help="default: classification of words, regression of numbers",
    )
    parser.add_argument(
        "--time-limit",
        type=float,
        default=60.0,
        help="about so many seconds; a step that has begun is finished (default: 60)",
    )
    parser.add_argument(
        "--calibrate",
        action="store_true",
        help="keep a fifth of the rows out of the fit and calibrate the model on them",
    )
    parser.add_argument(
        "--test", type=float, default=0.0, help="share of the rows that is kept for `evaluate`"
    )
    parser.add_argument("--categories", default="", help="columns of numbers that are categories")
    parser.add_argument("--drop", default="", help="columns to leave out, comma-separated")
    parser.add_argument("--seed", type=int, default=0, help="of all random choices (default: 0)")
    parser.set_defaults(run=_run_fit)


def _run_fit(options):
    work.fit(
        options.data,
        options.target,
        options.out,
        method=options.method,
        task=options.task,
        time_limit=options.time_limit,
        calibrate=options.calibrate,
        test=options.test,
        categories=_names(options.categories),
        drop=_names(options.drop),
        seed=options.seed,
        echo=_print,
    )
    return 0


def _names(text):
    return [name.strip() for name in text.split(",") if name.strip()]


def _add_predict(commands):
    parser = _command_on_model(
        commands,
        "predict",
        "predict the rows of a table, with intervals",
        "--data new.csv --out predictions.csv",
    )
    parser.add_argument("--data", required=True, help="table; it need not have the target")
    parser.add_argument("--out", help="table to write (default: print the first rows)")
    parser.add_argument(
        "--level", type=float, default=0.9, help="probability of the intervals (default: 0.9)"
    )
    parser.set_defaults(run=_run_predict)


def _run_predict(options):
    work.predict(options.model, options.data, options.out, level=options.level, echo=_print)
    return 0


def _add_evaluate(commands):
    parser = _command_on_model(
        commands,
        "evaluate",
        "score a model on rows that it has not seen",
        "--data test.csv --report report.html",
    )
    parser.add_argument(
        "--data", help="table with the target (default: the rows that `fit --test` kept)"
    )
    parser.add_argument("--report", help="page of scores and pictures to write, .html")
    parser.set_defaults(run=_run_evaluate)


def _run_evaluate(options):
    work.evaluate(options.model, options.data, options.report, echo=_print)
    return 0


def _add_export(commands):
    parser = _command_on_model(
        commands,
        "export",
        "write the model for programs without this library",
        "--format onnx --out model.onnx",
    )
    parser.add_argument("--out", required=True, help="folder, .onnx file or .tflite file to write")
    parser.add_argument(
        "--format",
        default="saved_model",
        choices=("saved_model", "onnx", "litert"),
        help="default: saved_model",
    )
    parser.set_defaults(run=_run_export)


def _run_export(options):
    name = options.format
    name = "tf_saved_model" if name == "saved_model" else name  # Keras's name for it
    work.export(options.model, options.out, name, echo=_print)
    return 0


def _add_serve(commands):
    parser = _command_on_model(
        commands,
        "serve",
        "answer requests over HTTP: JSON or Arrow in, predictions out",
        "--port 8000",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address (default: this machine only)")
    parser.add_argument("--port", type=int, default=8000, help="default: 8000")
    parser.set_defaults(run=_run_serve)


def _run_serve(options):
    from tfp_fnspace.commands import server  # needs packages that are optional

    server.run(options.model, options.host, options.port, echo=_print)
    return 0


def _add_demo(commands):
    parser = _command(
        commands, "demo", "run the other commands on real data", "--output-dir build/demo"
    )
    parser.add_argument("--output-dir", default="build/demo", help="folder for models and pictures")
    parser.set_defaults(run=lambda options: demo.run(options.output_dir, main))


def _add_uci(kinds):
    parser = _command(
        kinds,
        "uci",
        "shipped defaults on regression sets <name>.npz with x, y, test_index",
        "--datasets all --splits 0-4 --estimators tagi,linear --out results",
    )
    known = ",".join(estimators.ESTIMATORS)
    parser.add_argument("--estimators", default=known, help=f"comma-separated, of {known}")
    _add_data(parser)
    parser.add_argument("--out", required=True, help="folder of the results; a killed run resumes")
    parser.add_argument("--jobs", type=int, default=1, help="cells at a time")
    parser.add_argument("--shard", default="1/1", help="2/5 is the second of five parts")
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
        shard=options.shard,
        echo=_print,
    )
    print(f"results in {options.out}")
    return 0


def _add_summary(kinds):
    parser = _command(
        kinds, "summary", "a row for each estimator of a folder of results", "results"
    )
    parser.add_argument("folder")
    parser.set_defaults(run=_run_summary)


def _run_summary(options):
    from tfp_fnspace.benchmark import tables  # needs pandas, which is optional

    print(tables.as_text(tables.summary(tables.read_cells(options.folder))))
    return 0


def _add_pictures(kinds):
    parser = _command(
        kinds,
        "pictures",
        "ranks, calibration and seconds of a results folder",
        "results --out pictures",
    )
    parser.add_argument("folder")
    parser.add_argument("--out", required=True, help="folder of the pictures")
    parser.set_defaults(run=_run_pictures)


def _run_pictures(options):
    from tfp_fnspace.benchmark import pictures, tables  # need packages that are optional

    for path in pictures.write(tables.read_cells(options.folder), options.out):
        print(f"wrote {path}")
    return 0


def _add_compare(kinds):
    parser = _command(
        kinds, "compare", "paired differences of two folders of results", "results-old results-new"
    )
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
    parser = _command(
        kinds,
        "paper",
        "the protocol of a paper",
        "tagi --splits 0-4 --out results.json",
    )
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
    parser = _command(kinds, "report", "in a checkout: its page of benchmarks and pictures", "")
    parser.set_defaults(run=_run_report)


def _run_report(options):
    from tfp_fnspace.benchmark import report  # needs packages that are optional

    for path in report.write():
        print(f"wrote {path}")
    return 0
