"""The wheel holds the package, all of it, and nothing else."""

import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Copies what packaging reads, to leave no build/ in the checkout."""
    source = tmp_path_factory.mktemp("packaging") / "source"
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "tfp_fnspace", source / "tfp_fnspace", ignore=ignore)
    shutil.copytree(ROOT / "tests", source / "tests", ignore=ignore)  # must stay out of both
    for name in ("setup.py", "pyproject.toml", "MANIFEST.in", "LICENSE", "README.md"):
        shutil.copy(ROOT / name, source / name)
    return source


@pytest.fixture(scope="module")
def wheel(source):
    # Without isolation pip needs no network; setuptools comes with the extra [dev].
    dist = source.parent / "dist"
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
    done = run([*command, "--wheel-dir", str(dist), str(source)])
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = dist.glob("*.whl")
    return path


def run(command, **options):
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **options)


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


def test_archive_of_the_sources_holds_what_builds_the_wheel_and_no_tests(source):
    code = "from setuptools import build_meta; print(build_meta.build_sdist('sources'))"
    done = run([sys.executable, "-c", code], cwd=source)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = (source / "sources").glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    package = [path for path in (ROOT / "tfp_fnspace").rglob("*.*") if path.suffix != ".pyc"]
    needed = {path.relative_to(ROOT).as_posix() for path in package}
    assert needed | {"setup.py", "pyproject.toml", "LICENSE", "README.md"} <= names
    assert not any(name.startswith("tests") for name in names)


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
