"""Metrics of predictive distributions, and diagnostics of the convergence of chains.

There are functions of `(y, distribution)`, Keras metrics, and `rhat`, `ess_bulk` and `ess_tail` for
draws.
"""

from tfp_fnspace.metrics.functions import (
    accuracy,
    calibration_error,
    crps,
    crps_from_samples,
    expected_calibration_error,
    interval_coverage,
    interval_width,
    mae,
    nll,
    pit,
    rmse,
)
from tfp_fnspace.metrics.keras_metrics import (
    CRPS,
    MAE,
    NLL,
    RMSE,
    Accuracy,
    CalibrationError,
    ExpectedCalibrationError,
    IntervalCoverage,
    IntervalWidth,
)
from tfp_fnspace.metrics.mcmc import ess_bulk, ess_tail, rhat

__all__ = [
    "CRPS",
    "MAE",
    "NLL",
    "RMSE",
    "Accuracy",
    "CalibrationError",
    "ExpectedCalibrationError",
    "IntervalCoverage",
    "IntervalWidth",
    "accuracy",
    "calibration_error",
    "crps",
    "crps_from_samples",
    "ess_bulk",
    "ess_tail",
    "expected_calibration_error",
    "interval_coverage",
    "interval_width",
    "mae",
    "nll",
    "pit",
    "rhat",
    "rmse",
]
