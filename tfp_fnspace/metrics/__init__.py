"""How good a predictive distribution is, and whether the chains that made it have converged.

Functions of `(y, distribution)` and Keras metrics; `rhat`, `ess_bulk` and `ess_tail` of draws.
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
