"""Metrics of predictive distributions, and diagnostics of the convergence of chains.

There are functions of `(y, distribution)`, Keras metrics, `by_group` for groups of rows, and
`rhat`, `ess_bulk` and `ess_tail` for draws.
"""

from tfp_fnspace.metrics.functions import (
    calibration_error,
    crps,
    crps_from_samples,
    dawid_sebastiani_score,
    energy_score,
    interval_censored_nll,
    interval_coverage,
    interval_score,
    interval_width,
    mae,
    nll,
    pinball_loss,
    pit,
    rmse,
)
from tfp_fnspace.metrics.functions_of_classes import (
    accuracy,
    brier_score,
    expected_calibration_error,
)
from tfp_fnspace.metrics.groups import by_group
from tfp_fnspace.metrics.keras_metrics import (
    CRPS,
    MAE,
    NLL,
    RMSE,
    Accuracy,
    BrierScore,
    CalibrationError,
    DawidSebastianiScore,
    EnergyScore,
    ExpectedCalibrationError,
    IntervalCensoredNLL,
    IntervalCoverage,
    IntervalScore,
    IntervalWidth,
    PinballLoss,
)
from tfp_fnspace.metrics.mcmc import ess_bulk, ess_tail, rhat

__all__ = [
    "CRPS",
    "MAE",
    "NLL",
    "RMSE",
    "Accuracy",
    "BrierScore",
    "CalibrationError",
    "DawidSebastianiScore",
    "EnergyScore",
    "ExpectedCalibrationError",
    "IntervalCensoredNLL",
    "IntervalCoverage",
    "IntervalScore",
    "IntervalWidth",
    "PinballLoss",
    "accuracy",
    "brier_score",
    "by_group",
    "calibration_error",
    "crps",
    "crps_from_samples",
    "dawid_sebastiani_score",
    "energy_score",
    "ess_bulk",
    "ess_tail",
    "expected_calibration_error",
    "interval_censored_nll",
    "interval_coverage",
    "interval_score",
    "interval_width",
    "mae",
    "nll",
    "pinball_loss",
    "pit",
    "rhat",
    "rmse",
]
