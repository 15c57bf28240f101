"""The wheel holds the package, all of it, and nothing else."""

import re
import shutil
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Builds the wheel from a copy of what packaging reads, to leave no build/ in the checkout."""
    folder = tmp_path_factory.mktemp("packaging")
    source = folder / "source"
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "tfp_fnspace", source / "tfp_fnspace", ignore=ignore)
    shutil.copytree(ROOT / "tests", source / "tests", ignore=ignore)  # must stay out of the wheel
    for name in ("setup.py", "pyproject.toml", "LICENSE", "README.md"):
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, source / name)
    # Without isolation pip needs no network; setuptools comes with the extra [dev].
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
    command += ["--wheel-dir", str(folder / "dist"), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = (folder / "dist").glob("*.whl")
    return path


@pytest.fixture(scope="module")
def names(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="module")
def metadata(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


def test_wheel_holds_every_module_and_the_typing_marker(names):
    sources = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tfp_fnspace").rglob("*.py")}
    assert sources
    assert sources - names == set()
    assert "tfp_fnspace/py.typed" in names


def test_wheel_holds_nothing_but_the_package(names):
    assert {name.split("/")[0].split("-")[0] for name in names} == {"tfp_fnspace"}
    others = {n for n in names if ".dist-info/" not in n and not n.endswith((".py", "py.typed"))}
    table = "tfp_fnspace/datasets/example_table"
    assert others == {f"{table}.csv", f"{table}.LICENSE"}


def test_wheel_carries_the_licence(names):
    assert any(re.search(r"\.dist-info/(licenses/)?LICENSE$", name) for name in names)


def test_metadata(metadata):
    version = re.search(r'__version__ = "(.+)"', (ROOT / "tfp_fnspace/__init__.py").read_text())
    assert metadata["Name"].replace("-", "_") == "tfp_fnspace"
    assert metadata["Version"] == version.group(1)
    assert metadata["Requires-Python"] == ">=3.11"
    extras = {"bench", "cli", "demo", "dev", "docs", "export", "notebooks", "serve", "sklearn"}
    assert set(metadata.get_all("Provides-Extra")) == extras


def test_dependencies_have_ranges_and_tfp_brings_tf_keras(metadata):
    needed = [r for r in metadata.get_all("Requires-Dist") if "extra ==" not in r]
    ranged = [r for r in needed if not r.startswith("setuptools")]
    assert len(ranged) == 4
    assert all(">=" in r and "<" in r for r in ranged)
    # `import tensorflow_probability` fails without tf-keras.
    assert any(r.startswith("tensorflow-probability[tf]") for r in needed)


def test_slow_tests_are_skipped_when_their_time_is_over(request):
    plugins = request.config.pluginmanager.get_plugins()
    (shared,) = [p for p in plugins if hasattr(p, "time_is_over")]
    assert shared.time_is_over("1000", now=1000.5)
    assert not shared.time_is_over("1000", now=999.5)
    assert not shared.time_is_over(None, now=1e10)
