"""Shared parts of all tests: references, shared folders, statistical assertions, dtypes."""

import os
import pathlib
import sys
import time

import keras
import numpy as np
import pytest
from scipy import stats

ROOT = pathlib.Path(__file__).resolve().parents[1]

# `tests` has no packages, so shared parts are found by path: `import batteries`, `import tagi`. The
# paths are appended, so that nothing there can shadow a module of the standard library.
sys.path += [str(ROOT / "tests"), str(ROOT / "tests" / "reference")]


# Time --------------------------------------------------------------------------------------------


def time_is_over(until, now):
    """Says whether slow tests are skipped; `until` is a string of seconds since 1970, or empty."""
    return bool(until) and now > float(until)


def pytest_runtest_setup(item):
    """Skips slow tests, which run last, where a slow machine has used up CI's time for them."""
    variable = "TFP_FNSPACE_SLOW_TESTS_UNTIL"
    is_slow = item.get_closest_marker("slow") is not None
    if is_slow and time_is_over(os.environ.get(variable), time.time()):
        pytest.skip(f"slow, and the time that {variable} gives slow tests is over")


# Shared folders ----------------------------------------------------------------------------------


def shared_folder(name, variable=None):
    """Returns a folder of data beside the repository, or skips the test."""
    given = os.environ.get(variable) if variable else None
    folder = pathlib.Path(given or ROOT.parent / "shared" / name)
    if not folder.is_dir():
        hint = f"; set {variable} to its path" if variable else ""
        pytest.skip(f"needs the folder {folder}{hint}")
    return folder


@pytest.fixture(scope="session")
def data_folder():
    """Returns the folder of data sets: $TFP_FNSPACE_DATA, or ../shared/data."""
    return shared_folder("data", "TFP_FNSPACE_DATA")


@pytest.fixture(scope="session")
def oracle_folder():
    """Returns the folder with the results of other programs: ../shared/oracles."""
    return shared_folder("oracles")


# Statistical assertions --------------------------------------------------------------------------


def _assert_close(name, estimate, error, expected, false_fail):
    """Compares by Bonferroni over all entries; forgives the rounding of float32 samples."""
    estimate, expected = np.broadcast_arrays(np.asarray(estimate, np.float64), expected)
    quantile = stats.norm.isf(false_fail / (2 * estimate.size))
    bound = quantile * error + 2e-6 * (1.0 + np.abs(expected))
    excess = np.abs(estimate - expected) / bound
    worst = np.unravel_index(np.argmax(excess), excess.shape)
    assert np.all(excess <= 1.0), (  # NaN fails too
        f"the {name} at {worst} is {estimate[worst]:.6g}, expected {expected[worst]:.6g}: off by "
        f"{excess[worst]:.2f} times what {false_fail:g} false alarms allow"
    )
    return bound


def check_mean_close(samples, expected, false_fail=1e-6):
    """Asserts that samples, drawn along axis 0, have the expected mean.

    Fails with probability `false_fail` (over all entries together, by the central limit theorem
    and Bonferroni) when the expectation is right.

    Returns:
        The errors that would have been noticed, an array like `expected`.
    """
    samples = np.asarray(samples, np.float64)
    error = samples.std(axis=0) / np.sqrt(len(samples))
    return _assert_close("mean", samples.mean(axis=0), error, expected, false_fail)


def check_variance_close(samples, expected, false_fail=1e-6):
    """Asserts as `check_mean_close`, for the variance; its error is from the fourth moment."""
    samples = np.asarray(samples, np.float64)
    squares = (samples - samples.mean(axis=0)) ** 2
    error = squares.std(axis=0) / np.sqrt(len(samples))
    variance = squares.sum(axis=0) / (len(samples) - 1)
    return _assert_close("variance", variance, error, expected, false_fail)


@pytest.fixture
def assert_mean_close():
    return check_mean_close


@pytest.fixture
def assert_variance_close():
    return check_variance_close


# Dtypes ------------------------------------------------------------------------------------------


@pytest.fixture
def float64():
    """Makes everything that Keras creates in the test float64."""
    floatx, policy = keras.config.floatx(), keras.config.dtype_policy()
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    yield
    keras.config.set_floatx(floatx)
    keras.config.set_dtype_policy(policy)
