"""How good a predictive distribution is: functions of `(y, distribution)` and Keras metrics."""

from tfp_fnspace.metrics.functions import (
    calibration_error,
    crps,
    crps_from_samples,
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
    CalibrationError,
    IntervalCoverage,
    IntervalWidth,
)

__all__ = [
    "CRPS",
    "MAE",
    "NLL",
    "RMSE",
    "CalibrationError",
    "IntervalCoverage",
    "IntervalWidth",
    "calibration_error",
    "crps",
    "crps_from_samples",
    "interval_coverage",
    "interval_width",
    "mae",
    "nll",
    "pit",
    "rmse",
]
