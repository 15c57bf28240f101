"""Calibration after the fit: what held-out rows say about the uncertainty of a fitted model.

| | learns from held-out rows | result |
|---|---|---|
| `calibrate` | one factor of the spread, or a temperature of class probabilities | a model |
| `recalibrate` | a monotone map of the predicted probabilities | a model |
| `SplitConformal` | a quantile of scaled residuals | intervals with a guaranteed coverage |
| `CVPlus` | the same by cross-validation, without held-out rows | intervals |
| `AdaptiveSets` | a quantile of scores of classes | sets of classes with a guaranteed coverage |

All take a fitted model of this library, or an estimator of `tfp_fnspace.sklearn`. The rows must be
new: the model's residuals at the rows that it was fitted to are too small.
"""

from tfp_fnspace.calibration.adjustments import Recalibration, Scaling, Tempering
from tfp_fnspace.calibration.conformal import SplitConformal
from tfp_fnspace.calibration.cross_conformal import CVPlus
from tfp_fnspace.calibration.fitting import calibrate, recalibrate
from tfp_fnspace.calibration.model import CalibratedModel
from tfp_fnspace.calibration.sets import AdaptiveSets

__all__ = [
    "AdaptiveSets",
    "CVPlus",
    "CalibratedModel",
    "Recalibration",
    "Scaling",
    "SplitConformal",
    "Tempering",
    "calibrate",
    "recalibrate",
]
