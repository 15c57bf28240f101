"""Packaging of tfp_fnspace: name, dependency ranges and extras.

Tool settings (ruff, pytest, coverage) are in pyproject.toml; the exact versions the tests are run
with are in constraints.txt.
"""

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).resolve().parent


def read_version() -> str:
    """Reads `__version__` from the package without importing it (which would need TensorFlow)."""
    text = (HERE / "tfp_fnspace" / "__init__.py").read_text(encoding="utf-8")
    match = re.search(r"""^__version__\s*(?::\s*\w+\s*)?=\s*["']([^"']+)["']""", text, re.MULTILINE)
    if match is None:
        raise RuntimeError('tfp_fnspace/__init__.py must hold a line `__version__ = "x.y.z"`.')
    return match.group(1)


def read_long_description() -> str:
    """Returns the README, or nothing where it is absent."""
    readme = HERE / "README.md"
    return readme.read_text(encoding="utf-8") if readme.exists() else ""


DEMO = ["matplotlib>=3.8", "scikit-learn>=1.6"]
NOTEBOOKS = [  # colabs/run.py and its test
    "ipykernel>=6.29",
    "nbclient>=0.10",
    "nbformat>=5.10",
    *DEMO,
]
SKLEARN = ["scikit-learn>=1.6"]
CLI = [  # `python -m tfp_fnspace fit` and the other commands for tables
    "pandas>=2.1",
    "pyarrow>=14",  # Parquet, Feather, Arrow
    "skops>=0.11",  # estimators in files that run no code
    *DEMO,
]
SERVE = [
    "fastapi>=0.110",
    "uvicorn>=0.29",
    "prometheus-client>=0.20",
    *CLI,
]
EXPORT = ["tf2onnx>=1.17", "onnx>=1.17", "onnxruntime>=1.20"]  # `export(format="onnx")`
TRACKING = [  # what watches `fit` or chooses settings, in the tests and on the page of tracking
    "mlflow-skinny>=3.3",
    "sqlalchemy>=2.0",  # with alembic, mlflow's local store
    "alembic>=1.13",
    "optuna>=4.0",
    "keras-tuner>=1.4.7",
    "tensorboard>=2.18",
]
BENCH = [  # what `benchmark uci` compares with, its tables and pictures
    "ngboost>=0.5",
    "pandas>=2.1",
    "scipy>=1.12",
    *DEMO,
]
DEV = [
    "pytest>=8",
    "pytest-xdist>=3.5",
    "pytest-cov>=5",  # `make coverage`
    "ruff>=0.6",
    "basedpyright>=1.30",  # the type checker of `make check`
    "pre-commit>=3.5",
    "scipy>=1.12",
    "diptest>=0.8",  # benchmarks/sip_figures.py tests for two modes
    "setuptools>=77.0.3",  # tests/test_packaging.py builds the wheel without a network
    "psutil>=5.9",  # tests/test_colabs.py looks for kernels that are left
    "packaging>=24",  # tests/lowest_versions.py
    "hypothesis>=6.100",  # property tests and the fuzzer
    "scoringrules>=0.10",  # tests of proper scores
    "pandas>=2.1",  # tests of data frames
    "polars>=1.0",
    "mapie>=1.0",  # conformal wrappers that must take the estimators as they are
    "crepes>=0.7",
    "skpro>=2.9",  # the adapter
    "httpx>=0.27",  # tests of the server
    "jax>=0.4.38",  # benchmarks/gpu/run.py, which needs 0.10
    *BENCH,
    *TRACKING,
    *EXPORT,
    *SERVE,
    *NOTEBOOKS,
]
DOCS = [
    "mkdocs-material>=9.5",
    "mkdocstrings[python]>=0.26",
    "latex2mathml>=3.77",
    "nbconvert>=7.16",
]

setup(
    name="tfp_fnspace",
    version=read_version(),
    description=(
        "Bayesian neural networks that reason about functions: five published methods as Keras 3 "
        "layers and models on TensorFlow Probability"
    ),
    long_description=read_long_description(),
    long_description_content_type="text/markdown",
    author="The tfp_fnspace authors",
    license="Apache-2.0",
    license_files=["LICENSE"],
    packages=find_packages(include=["tfp_fnspace", "tfp_fnspace.*"]),
    package_data={"tfp_fnspace": ["py.typed", "datasets/*.csv", "datasets/*.LICENSE"]},
    include_package_data=False,
    zip_safe=False,
    python_requires=">=3.11",
    install_requires=[
        "tensorflow>=2.18,<3",
        "keras>=3.10,<4",
        "tensorflow-probability[tf]>=0.25,<1",
        "numpy>=1.26,<3",
        # TFP 0.25 imports distutils, which Python 3.12 dropped and setuptools provides. TensorFlow
        # brings setuptools up to 2.21, no longer from 2.22 on.
        'setuptools>=65; python_version >= "3.12"',
    ],
    entry_points={"console_scripts": ["tfp-fnspace=tfp_fnspace.cli:main"]},
    extras_require={
        "demo": DEMO,
        "export": EXPORT,
        "notebooks": NOTEBOOKS,
        "sklearn": SKLEARN,
        "cli": CLI,
        "serve": SERVE,
        "bench": BENCH,
        "dev": DEV,
        "docs": DOCS,
    },
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Operating System :: MacOS",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3 :: Only",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Scientific/Engineering :: Mathematics",
        "Typing :: Typed",
    ],
)
