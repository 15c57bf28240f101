"""Programs of XLA run by JAX, without TensorFlow, compute what TensorFlow does."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from elsewhere import ENVIRONMENT

pytest.importorskip("jax", minversion="0.10")

SCRIPTS = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu"

#: Hides what JAX's side must do without.
RUN = """
import runpy
import sys

sys.modules["tensorflow"] = sys.modules["keras"] = None
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run(*command):
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        capture_output=True,
        text=True,
        check=False,
        env={**ENVIRONMENT, "JAX_PLATFORMS": "cpu"},
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    return done.stdout


def rows_of(folder):
    printed = run("-c", RUN, SCRIPTS / "run.py", folder).splitlines()[1:]
    return {line.split()[0]: float(line.split("differs by ")[1].split()[0]) for line in printed}


def write(folder, model):
    """Writes programs in float64: in float32, rounding alone reaches 1e-4 of a deviation."""
    size = "--rows", 40, "--columns", 4
    run(SCRIPTS / "programs.py", folder, "--models", model, *size, "--floatx", "float64")


@pytest.mark.slow
def test_programs_equal_tensorflow_and_a_wrong_output_is_found(tmp_path):
    write(tmp_path, "tagi")
    found = rows_of(tmp_path)
    assert set(found) == {"tagi-predict", "tagi-train"}
    assert max(found.values()) <= 1e-9
    path = tmp_path / "tagi-predict.npz"
    arrays = dict(np.load(path))
    arrays["out1"] = arrays["out1"] + 1e-3
    np.savez(path, **arrays)
    with pytest.raises(AssertionError, match="tagi-predict"):
        rows_of(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["stable_process", "fbnn", "sip", "diwp"])
def test_programs_of_other_methods_equal_tensorflow(tmp_path, model):
    write(tmp_path, model)
    found = rows_of(tmp_path)
    assert set(found) == {f"{model}-predict", f"{model}-train"}
    assert max(found.values()) <= 1e-9
