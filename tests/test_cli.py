"""The command line itself; benchmark/ and test_demo.py test what `benchmark` and `demo` do."""

import argparse
import os
import shlex
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import tfp_fnspace
from tfp_fnspace import cli, demo, startup

ROOT = Path(__file__).resolve().parents[1]


def stopped(capsys, *arguments):
    """Returns exit status, output and errors of words at which argparse stops."""
    with pytest.raises(SystemExit) as stop:
        cli.main(list(arguments))
    return stop.value.code, *capsys.readouterr()


def test_help_lists_the_commands(capsys):
    status, out, _ = stopped(capsys, "--help")
    assert status == 0
    assert out.startswith("usage: tfp-fnspace")
    for command in ("fit", "predict", "evaluate", "export", "serve", "demo", "benchmark"):
        assert f"\n    {command}" in out


def test_version_lists_what_a_report_of_a_fault_needs(capsys):
    status, out, _ = stopped(capsys, "--version")
    names = [line.split()[0] for line in out.splitlines()]
    assert status == 0
    assert names[:4] == ["python", "tfp_fnspace", "tensorflow", "keras"]
    assert f"tfp_fnspace {tfp_fnspace.__version__}" in out


def test_help_of_uci_lists_the_methods(capsys):
    status, out, _ = stopped(capsys, "benchmark", "uci", "--help")
    assert status == 0
    assert "tagi" in out and "ngboost" in out and "TFP_FNSPACE_DATA" in out


def subparsers(parser):
    """Yields the parsers of all commands and of their kinds."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield each
                yield from subparsers(each)


def test_every_help_ends_with_an_example_that_can_be_typed():
    parser = cli._parser()
    found = list(subparsers(parser))
    assert {"tfp-fnspace demo", "tfp-fnspace benchmark paper"} < {each.prog for each in found}
    for each in found:
        *_, heading, example = each.format_help().splitlines()
        assert heading == "example:", each.prog
        assert f"{example} ".startswith(f"  {each.prog} ")
        program, *words = shlex.split(example)
        assert program == "tfp-fnspace" and callable(parser.parse_args(words).run)


def test_help_of_fit_says_that_a_step_that_has_begun_is_finished(capsys):
    _, out, _ = stopped(capsys, "fit", "--help")
    assert "about so many seconds; a step that has begun is finished" in " ".join(out.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: command"),
        (["fly"], "invalid choice: 'fly'"),
        (["benchmark"], "the following arguments are required: kind"),
        (["benchmark", "uci"], "the following arguments are required: --datasets, --out"),
        (["demo", "--colour", "red"], "unrecognized arguments: --colour red"),
    ],
)
def test_wrong_words_show_the_usage_and_end_with_status_2(capsys, arguments, message):
    status, out, err = stopped(capsys, *arguments)
    assert (status, out) == (2, "")
    assert err.startswith("usage: tfp-fnspace")
    assert message in err


def test_demo_gets_its_folder_and_the_commands_and_gives_its_status(monkeypatch):
    given = []
    monkeypatch.setattr(demo, "run", lambda *arguments: given.append(arguments) or 1)
    assert cli.main(["demo"]) == 1
    assert cli.main(["demo", "--output-dir", "elsewhere"]) == 1
    assert given == [("build/demo", cli.main), ("elsewhere", cli.main)]


@pytest.mark.parametrize("error", [ValueError, FileNotFoundError, ImportError])
def test_expected_errors_are_one_line_and_status_2(monkeypatch, capsys, error):
    def fail(*_):
        raise error("Rule. Received: x=1")

    monkeypatch.setattr(demo, "run", fail)
    assert cli.main(["demo"]) == 2
    assert capsys.readouterr().err == "error: Rule. Received: x=1\n"


def test_warnings_are_a_line_without_the_source(monkeypatch, capsys):
    def warn(*_):
        warnings.warn("The noise is at its floor.", stacklevel=2)
        return 0

    monkeypatch.setattr(demo, "run", warn)
    before = warnings.showwarning
    assert cli.main(["demo"]) == 0
    assert capsys.readouterr().err == "\nwarning: The noise is at its floor.\n"
    assert warnings.showwarning is before


def test_defects_keep_their_traceback(monkeypatch):
    def fail(*_):
        raise ZeroDivisionError

    monkeypatch.setattr(demo, "run", fail)
    with pytest.raises(ZeroDivisionError):
        cli.main(["demo"])


@pytest.mark.slow
def test_python_dash_m_passes_the_status_on_and_leaves_out_what_libraries_say(tmp_path):
    environment = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}
    environment["PYTHONPATH"] = str(ROOT)
    command = [sys.executable, "-m", "tfp_fnspace", "benchmark", "uci", "--datasets", "boston"]
    command += ["--estimators", "linear"]
    command += ["--data-dir", str(tmp_path / "nowhere"), "--out", str(tmp_path / "out.json")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "error: `data_dir` (or TFP_FNSPACE_DATA) must be an existing folder." in line


@pytest.mark.slow
def test_a_program_that_imports_this_package_first_writes_nothing_else(tmp_path):
    """No lines of TensorFlow's libraries, no CUDA error."""
    code = (
        "import tfp_fnspace as fns, keras, numpy as np\n"
        "inputs = keras.Input((2,))\n"
        "model = fns.tagi.TAGIModel(inputs, fns.tagi.Dense(1)(inputs))\n"
        "x = np.random.default_rng(0).normal(size=(20, 2))\n"
        "model.fit(x, x[:, 0], epochs=2, verbose=0)\n"
    )
    environment = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}
    environment["PYTHONPATH"] = str(ROOT)
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_others_write_while_libraries_load_is_kept(capfd):
    with startup.without_lines_of_libraries():
        os.write(2, b"I0000 00:00:17.5 1 port.cc:153] oneDNN is on\nSegmentation fault\n")
        os.write(2, b"E0000 00:00:17.6 1 cuda_platform.cc:52] failed call to cuInit: UNKNOWN\n")
        os.write(2, b"E0000 00:00:17.7 1 gpu.cc:9] out of memory\n")
    kept = "Segmentation fault\nE0000 00:00:17.7 1 gpu.cc:9] out of memory\n"
    assert capfd.readouterr().err == kept
