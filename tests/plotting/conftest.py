"""Closes the figures of a test."""

import figures  # noqa: F401 (chooses a backend without windows)
import matplotlib.pyplot as plt
import pytest


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")
