"""The package as a whole: the cost and the names of an import, and several devices."""

import subprocess
import sys
from pathlib import Path

import pytest

import tfp_fnspace as fns

#: What a method does not need, and an import of the package must not load.
HEAVY = {
    *("matplotlib", "sklearn", "pandas", "scipy", "torch", "optuna", "mlflow", "fastapi"),
    *("uvicorn", "pyarrow", "onnx", "onnxruntime", "skops"),
}


def run(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()[-1]


@pytest.mark.slow
def test_import_is_light_and_methods_are_modules_under_short_names():
    found = run(
        "import sys, tensorflow, tensorflow_probability; before = set(sys.modules)\n"
        "import tfp_fnspace\n"
        "new = {name.split('.')[0] for name in set(sys.modules) - before}\n"
        # This is refused once devices are in use, as they would be by a tensor that a module makes.
        "tensorflow.config.set_logical_device_configuration(\n"
        "    tensorflow.config.list_physical_devices('CPU')[0],\n"
        "    [tensorflow.config.LogicalDeviceConfiguration()] * 2)\n"
        "from tfp_fnspace.tagi import Dense\n"
        "import tfp_fnspace.tagi as short, tfp_fnspace.methods.tagi as full\n"
        f"print(sorted(new & {HEAVY}),\n"
        "      short is full and Dense is full.Dense)"
    )
    assert found == "[] True"


def test_the_citation_names_the_present_version():
    citation = Path(__file__).resolve().parents[1] / "CITATION.cff"
    assert f"\nversion: {fns.__version__}\n" in citation.read_text(encoding="utf-8")


def test_public_names_have_docstrings():
    for module in (fns, fns.tagi, fns.likelihoods, fns.metrics, fns.datasets, fns.plotting):
        assert module.__doc__
        for name in getattr(module, "__all__", []):
            assert getattr(module, name).__doc__, f"{module.__name__}.{name}"
