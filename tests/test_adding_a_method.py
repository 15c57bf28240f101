"""docs/adding_a_method.md works: its files, put into a copy of the package, form a method."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import test_layering
import test_types
from scipy import stats

ROOT = Path(__file__).resolve().parents[1]
TITLED = re.compile(r'^```\w+ title="([^"]+)"\n(.*?)^```', re.MULTILINE | re.DOTALL)

# The copy is imported in another process, because these tests import the package itself.
CODE = """
import sys

import keras
import numpy as np
import tensorflow as tf

import tfp_fnspace as fns
from tfp_fnspace.cli import main
from tfp_fnspace.linear import LinearModel

assert fns.__file__.startswith(sys.argv[1]), fns.__file__
with np.load("data/plane.npz") as arrays:
    x, y = arrays["x"], arrays["y"]
model = LinearModel(2, fns.likelihoods.Gaussian(scale=0.5), standardize=False, seed=0)
model.fit(x, y, epochs=1500, batch_size=len(x), verbose=0)
elbo = model.history.history["elbo"][-1]
found = model.predict(x)
np.savez("found.npz", elbo=elbo, **found, draws=model.sample_functions(x, 2000, seed=1))
# History is in the user's units: of targets in other units the density of a row is another.
histories = []
for unit in (1.0, 100.0):
    other = LinearModel(2, fns.likelihoods.Gaussian(scale=0.5), seed=0)
    histories.append(other.fit(x, unit * y, epochs=2, batch_size=20, verbose=0).history)
for name, shift in {"loss": 1.0, "elbo": -1.0, "log_likelihood": -1.0, "kl": 0.0}.items():
    expected = np.array(histories[0][name]) + shift * np.log(100.0)
    np.testing.assert_allclose(histories[1][name], expected, rtol=1e-4, err_msg=name)
model.save("linear.keras")
again = keras.models.load_model("linear.keras").predict(x)
np.testing.assert_array_equal(again["mean"], found["mean"])
model.export("served")
loaded = tf.saved_model.load("served")
served = loaded.serve(tf.constant(x, tf.float32))
np.testing.assert_allclose(served["stddev"], found["stddev"], rtol=1e-5)
sys.exit(main(["benchmark", "paper", sys.argv[1] + "/benchmarks/uci/paper/linear.toml",
               "--data-dir", "data", "--out", "records.json"]))
"""


#: Runs tests over the example, which is put into the batteries as the page says.
TESTS = """
import sys

import batteries
import pytest

with open(sys.argv[1]) as file:
    exec(file.read(), vars(batteries))
batteries.ALL_MODELS["linear"] = batteries.linear_model
options = ["-q", "-p", "no:cacheprovider", "-m", "", "-k", "linear"]
sys.exit(pytest.main([*options, *sys.argv[2:]]))
"""


def run(code, package, folder, *arguments):
    """Runs a program that imports the copy; returns what it printed."""
    paths = os.pathsep.join(map(str, [package.parent, ROOT / "tests"]))
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """Copies the package and adds the files of the page, and its pieces to files that exist."""
    copy = tmp_path_factory.mktemp("copy") / "tfp_fnspace"
    shutil.copytree(ROOT / "tfp_fnspace", copy, ignore=shutil.ignore_patterns("__pycache__"))
    blocks = TITLED.findall((ROOT / "docs" / "adding_a_method.md").read_text(encoding="utf-8"))
    assert len(blocks) == 7
    for name, text in blocks:
        path = copy.parent / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(text if path.stat().st_size == 0 else f"\n{text}")
    return copy


@pytest.mark.slow
def test_imports_of_the_new_method_run_down(package):
    found = test_layering.read_package(package)
    assert "tfp_fnspace.methods.linear.model" in found.modules
    levels, upward = test_layering.LEVELS, test_layering.LAZY_UPWARD
    assert test_layering.level_problems(found, levels, upward) == []


def test_the_files_of_the_page_are_written_as_those_of_the_package(package):
    files = sorted((package / "methods" / "linear").glob("*.py"))
    assert [path.name for path in files] == ["__init__.py", "benchmark.py", "model.py"]
    assert [line for path in files for line in test_types.missing(path, False)] == []
    config = f"--config={ROOT / 'pyproject.toml'}"
    for command in (["check"], ["format", "--check"]):
        lint = [sys.executable, "-m", "ruff", *command, "--no-cache", config, *map(str, files)]
        done = subprocess.run(lint, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_what_the_new_method_says_of_itself_is_true(package):
    """It takes the likelihoods that it names, and no other."""
    said = ROOT / "tests" / "test_about.py"
    found = run(TESTS, package, package.parent, "tests/batteries.py", said)
    assert "2 passed" in found


@pytest.mark.slow
def test_new_method_keeps_the_contract_and_has_the_exact_posterior(package, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 2))
    y = 1.0 + x @ [[2.0], [-1.0]] + 0.5 * rng.normal(size=(40, 1))
    (tmp_path / "data").mkdir()
    arrays = {"x": x, "y": y, "test_index": np.arange(8)[np.newaxis]}
    np.savez(tmp_path / "data" / "plane.npz", **arrays)
    run(CODE, package, tmp_path, package.parent)
    assert '"variant": "linear"' in (tmp_path / "records.json").read_text()

    # The posterior in closed form has the prior N(0, I) and noise variance 0.25.
    features = np.column_stack([np.ones(40), x])
    covariance = np.linalg.inv(features.T @ features / 0.25 + np.eye(3))
    mean = features @ covariance @ features.T @ y / 0.25
    stddev = np.sqrt(np.einsum("np,pq,nq->n", features, covariance, features))[:, np.newaxis]
    evidence = stats.multivariate_normal.logpdf(
        y[:, 0], cov=features @ features.T + 0.25 * np.eye(40)
    )
    with np.load(tmp_path / "found.npz") as found:
        # The bound equals the evidence where the posterior is exact.
        np.testing.assert_allclose(found["elbo"], evidence / 40.0, rtol=1e-3)
        np.testing.assert_allclose(found["mean"], mean, atol=0.01 * stddev.max())
        np.testing.assert_allclose(found["epistemic_stddev"], stddev, rtol=0.02)
        # With 2,000 draws a standard deviation has a relative error of 1.6 %.
        np.testing.assert_allclose(found["draws"].std(axis=0), stddev, rtol=0.08)
