"""Figures of models and of predictions, and a report of a model on one page.

matplotlib is imported when a function is called, so that the package works without it. Every
function draws into `ax`, or into a new figure, and returns the axes. `write_report` puts scores and
figures into one HTML file.
"""

from tfp_fnspace.plotting.bands import AlongInput, plot_predictive_band
from tfp_fnspace.plotting.calibration import (
    plot_calibration,
    plot_pit_histogram,
    plot_reliability,
    plot_sharpness,
)
from tfp_fnspace.plotting.dependence import plot_partial_dependence
from tfp_fnspace.plotting.history import plot_history
from tfp_fnspace.plotting.pictures import PredictivePictures
from tfp_fnspace.plotting.report import write_report
from tfp_fnspace.plotting.residuals import plot_residuals

__all__ = [
    "AlongInput",
    "PredictivePictures",
    "plot_calibration",
    "plot_history",
    "plot_partial_dependence",
    "plot_pit_histogram",
    "plot_predictive_band",
    "plot_reliability",
    "plot_residuals",
    "plot_sharpness",
    "write_report",
]
