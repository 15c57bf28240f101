"""`benchmark uci`: scores by brute force; cells are never lost and never run twice.

The code that runs cells is tested with processes that write a record at once; the slow test at
the end runs the real ones.
"""

import functools
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import tensorflow_probability as tfp
from scipy import integrate, stats

from tfp_fnspace.benchmark import cell, estimators, uci
from tfp_fnspace.cli import main

tfd = tfp.distributions

# It logs that it ran, waits unless standard input ends, and writes its record.
CODE = """
import json, os, select, sys
estimator, dataset, split, path, seconds = sys.argv[1:]
with open(os.path.join(os.path.dirname(path), "..", "log"), "a") as log:
    log.write(f"{estimator} {dataset} {split}\\n")
if select.select([sys.stdin], [], [], float(seconds))[0]:
    sys.exit(1)
if dataset == "bad":
    sys.exit("Segmentation fault")
record = {"estimator": estimator, "dataset": dataset, "split": int(split), "status": "done"}
record.update(crps=1.0, nll=2.0, fit_seconds=3.0, predict_seconds=0.5)
with open(path + ".partial", "w") as file:
    json.dump(record, file)
os.rename(path + ".partial", path)
"""


def cells(count, dataset="good"):
    return [uci.Cell("constant", dataset, split) for split in range(count)]


def run(folder, todo, jobs=1, seconds=0.0, echo=lambda line: None):
    def command(c, path):
        return [sys.executable, "-S", "-c", CODE, *map(str, (*c, path, seconds))]

    uci.Run(todo, folder, jobs, command, {c.dataset: 1000 for c in todo}, echo).all()


def started(*arguments, **options):
    """Starts a process that runs cells and can be killed without harm to this one."""
    run_in_it = functools.partial(run, *arguments, **options)
    process = multiprocessing.get_context("fork").Process(target=run_in_it)
    process.start()
    return process


def log(folder):
    return sorted((folder / "log").read_text().splitlines())


def wait_for(condition):
    until = time.monotonic() + 20.0
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


# Cells -----------------------------------------------------------------------------------------


def test_cells_have_files_and_a_finished_run_does_nothing(tmp_path):
    lines = []
    run(tmp_path, cells(3), jobs=2, echo=lines.append)
    assert log(tmp_path) == [f"constant good {k}" for k in range(3)]
    assert sorted(os.listdir(tmp_path / "constant")) == [f"good-{k}.json" for k in range(3)]
    assert lines[0] == "3 cells, 0 of them done before"
    assert lines[3].startswith("[3/3] constant good split ")
    assert lines[3].endswith(": crps 1, nll 2, 3.5 s; about 0.0 min left")
    run(tmp_path, cells(4), echo=lines.append)
    assert lines[4] == "4 cells, 3 of them done before" and len(lines) == 6
    assert len(log(tmp_path)) == 4


def test_a_process_that_dies_is_a_failed_cell_and_the_others_go_on(tmp_path):
    lines = []
    run(tmp_path, [*cells(1, "bad"), *cells(1)], echo=lines.append)
    record = json.loads((tmp_path / "constant" / "bad-0.json").read_text())
    assert record["status"] == "failed" and record["split"] == 0
    assert record["error"].startswith("The process ended with status 1. Segmentation fault")
    assert "failed: The process ended with status 1. Segmentation fault" in lines[1]
    assert (tmp_path / "constant" / "good-0.json").exists()


def test_time_left_is_that_of_the_same_estimator(tmp_path):
    made = uci.Run(
        [uci.Cell("slow", "a", 0), uci.Cell("quick", "b", 0), uci.Cell("new", "b", 0)],
        tmp_path,
        2,
        None,
        {"a": 3000, "b": 9000},
        None,
    )
    made._rates.update(slow=[1.0, 3.0], quick=[0.1])
    rate_of_others = (2.0 + 0.1) / 2.0
    seconds = 2.0 * 6000 + 0.1 * 12_000 + rate_of_others * 12_000
    assert made._minutes_left() == pytest.approx(seconds / 2 / 60)


def test_kill_loses_the_cell_that_was_at_work(tmp_path):
    process = started(tmp_path, cells(4), seconds=0.4)
    wait_for((tmp_path / "constant" / "good-0.json").exists)
    wait_for(lambda: len(log(tmp_path)) == 2)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    done = [p.name for p in (tmp_path / "constant").glob("*.json")]
    assert done == ["good-0.json"]
    run(tmp_path, cells(4))
    assert log(tmp_path) == sorted(f"constant good {k}" for k in (0, 1, 1, 2, 3))
    assert sorted(os.listdir(tmp_path / "constant")) == [f"good-{k}.json" for k in range(4)]


def test_two_processes_do_each_cell_once(tmp_path):
    processes = [started(tmp_path, cells(10), jobs=2, seconds=0.05) for _ in range(2)]
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    assert log(tmp_path) == [f"constant good {k}" for k in range(10)]
    assert sorted(os.listdir(tmp_path / "constant")) == [f"good-{k}.json" for k in range(10)]


def test_what_a_killed_process_was_at_is_taken_by_the_one_that_lives(tmp_path, monkeypatch):
    monkeypatch.setattr(uci, "_WAIT", 0.05)
    process = started(tmp_path, cells(1), seconds=60.0)
    wait_for((tmp_path / "log").exists)
    other = started(tmp_path, cells(1))
    time.sleep(0.2)
    assert other.is_alive() and not (tmp_path / "constant" / "good-0.json").exists()
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    other.join()
    assert other.exitcode == 0 and (tmp_path / "constant" / "good-0.json").exists()


def test_an_interrupt_ends_what_runs_and_records_nothing(tmp_path):
    def stop(line):
        if line.startswith("[1/"):
            signal.pthread_kill(threading.get_ident(), signal.SIGINT)  # not the main thread

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, [*cells(1), *cells(2, "slow")], seconds=1.0, echo=stop)
    time.sleep(1.1)
    assert [p.name for p in (tmp_path / "constant").glob("*.json")] == ["good-0.json"]


# Scores ----------------------------------------------------------------------------------------


def test_scores_by_brute_force():
    y, loc, scale = np.array([[0.3], [2.0], [-1.5]]), [0.0, 1.0, 1.0], [1.0, 0.5, 2.0]
    normals = [stats.norm(m, s) for m, s in zip(loc, scale, strict=True)]
    found = cell.scores(y, tfd.Independent(tfd.Normal(np.c_[loc], np.c_[scale]), 1))

    def crps(t, normal):
        below = integrate.quad(lambda z: normal.cdf(z) ** 2, -30.0, t)[0]
        return below + integrate.quad(lambda z: normal.sf(z) ** 2, t, 30.0)[0]

    pit = np.array([normal.cdf(t) for t, normal in zip(y[:, 0], normals, strict=True)])
    levels = np.arange(1, 20) / 20
    expected = {
        "rmse": np.sqrt(np.mean((y[:, 0] - loc) ** 2)),
        "nll": -np.mean([normal.logpdf(t) for t, normal in zip(y[:, 0], normals, strict=True)]),
        "crps": np.mean([crps(t, normal) for t, normal in zip(y[:, 0], normals, strict=True)]),
        "calibration_error": np.mean([abs(np.mean(pit <= level) - level) for level in levels]),
        "coverage_50": 1 / 3,  # 2 and -1.5 are 2 and 1.25 standard deviations off
        "coverage_90": 2 / 3,
        "width_50": 2 * 0.67448975 * np.mean(scale),
        "width_90": 2 * 1.64485363 * np.mean(scale),
    }
    frequencies = [np.mean(pit <= level) for level in levels]
    np.testing.assert_allclose(found.pop("frequencies"), frequencies, atol=1e-5)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=1e-6), name


def test_scores_that_are_not_finite_are_refused():
    distribution = tfd.Independent(tfd.Normal([[np.nan]], [[1.0]]), 1)
    with pytest.raises(ValueError, match="must be finite. Received: {'rmse': nan"):
        cell.scores([[0.0]], distribution)


@pytest.fixture
def folder(tmp_path):
    """Writes a data set of 30 rows and 2 splits, on a line."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 2))
    y = x @ [[3.0], [1.0]] + 0.1 * rng.normal(size=(30, 1))
    index = np.array([rng.permutation(30)[:6] for _ in range(2)])
    np.savez(tmp_path / "line.npz", x=x, y=y, test_index=index)
    return tmp_path


def test_a_record_says_what_ran_and_how_it_went(folder):
    record = cell.run("linear", "line", 1, folder)
    assert record["status"] == "done" and record["rmse"] < 0.3
    assert record["fit_seconds"] >= 0.0 and record["peak_memory_mb"] > 100
    assert {"scikit-learn", "tensorflow"} <= record["versions"].keys()


class Broken:
    def fit(self, x, y):
        assert y.shape == (24,)
        raise RuntimeError("does not converge")


def test_what_fails_is_a_record_too(folder, monkeypatch):
    monkeypatch.setattr(estimators, "make", lambda name, random_state: Broken())
    record = cell.run("broken", "line", 0, folder)
    assert record["status"] == "failed"
    assert record["error"].endswith("RuntimeError: does not converge\n")


# Command line ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"estimators": "linear,magic"}, "An estimator must be one of ['bayes_by_backprop', "),
        ({"datasets": "line,curve"}, "`name` must be one of ['line'] in "),
        ({"splits": "0-2"}, "numbers and ranges from 0 to 1"),
        ({"jobs": 0}, "`jobs` must be a positive integer. Received: jobs=0"),
        (
            {"shard": "3/2"},
            "`shard` must be i/n with 1 <= i <= n, such as 2/5. Received: shard='3/2'",
        ),
        ({"shard": "half"}, "such as 2/5. Received: shard='half'"),
    ],
)
def test_wrong_words_are_one_line_before_the_first_cell(folder, capsys, changed, message):
    assert main(command(folder, **changed)) == 2
    captured = capsys.readouterr()
    (line,) = captured.err.splitlines()
    assert message in line and captured.out == ""
    assert os.listdir(folder) == ["line.npz"]


def command(folder, **changed):
    options = {"estimators": "linear", "datasets": "line", "data-dir": folder}
    options |= {"out": folder / "out", **changed}
    pairs = [(f"--{name}", str(value)) for name, value in options.items()]
    return ["benchmark", "uci", *(word for pair in pairs for word in pair)]


def test_shards_are_different_cells_and_together_all(folder, monkeypatch):
    ran = []

    class Recorder:
        def __init__(self, cells, *_):
            ran.append([(c.estimator, c.dataset, c.split) for c in cells])

        def all(self):
            pass

    monkeypatch.setattr(uci, "Run", Recorder)
    options = {"estimators": "linear,climatology,exact_gp", "splits": "0-1"}
    for shard in ("1/1", "1/4", "2/4", "3/4", "4/4"):
        assert main(command(folder, shard=shard, **options)) == 0
    every, *parts = ran
    assert len(every) == 6
    assert sorted(cell for part in parts for cell in part) == sorted(every)
    assert [len(part) for part in parts] == [2, 2, 1, 1]


def test_sets_of_several_targets_are_refused(tmp_path, capsys):
    x = np.ones((4, 2))
    np.savez(tmp_path / "line.npz", x=x, y=x, test_index=np.array([[0]]))
    assert main(command(tmp_path)) == 2
    assert "data sets of one target. Received: 'line' with y of shape (4, 2)" in (
        capsys.readouterr().err
    )


@pytest.mark.slow
def test_real_cells_are_fitted_and_summed_up(folder, capsys):
    assert main(command(folder, datasets="all", estimators="linear,climatology", splits="0")) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines[1:3]] == [
        "[1/2] linear line split 0",
        "[2/2] climatology line split 0",
    ]
    assert main(["benchmark", "summary", str(folder / "out")]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[2:]] == [
        "linear",
        "climatology",
    ]


@pytest.mark.slow
def test_a_real_cell_ends_with_the_run_that_started_it(folder):
    path = folder / "out" / "linear" / "line-0.json"
    words = uci._command(uci.Cell("linear", "line", 0), folder, path)
    process = subprocess.Popen(words, stdin=subprocess.PIPE, env=uci._environment(1))
    process.stdin.close()
    assert process.wait() == 1 and not path.exists()
