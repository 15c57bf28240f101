"""Held-out rows and what is predicted for them, for models and for estimators."""

from typing import Any, NamedTuple

import numpy as np

from tfp_fnspace.boundary import arguments, arrays
from tfp_fnspace.calibration.adjustments import Recalibration, Scaling, Tempering
from tfp_fnspace.calibration.model import CalibratedModel
from tfp_fnspace.model import FunctionSpaceModel
from tfp_fnspace.typing import Array, ArrayLike, Distribution, Rows


class HeldOut(NamedTuple):
    """Held-out targets and their predictions.

    Attributes:
        distribution: Predictive distribution, batch `[N]`.
        targets: `[N, D]`, NaN where missing; `[N, 1]` of positions of classes.
    """

    distribution: Distribution
    targets: Array


def is_estimator(model: Any) -> bool:
    """Returns whether this is an estimator of `tfp_fnspace.sklearn`."""
    return hasattr(model, "with_model")


def fitted_model(model: Any) -> FunctionSpaceModel:
    """Returns a model itself, or the model of a fitted estimator."""
    return model.model_ if is_estimator(model) else model


def held_out(model: Any, x: Rows, y: ArrayLike) -> HeldOut:
    """Checks held-out rows and predicts them.

    Args:
        model: Fitted model, or fitted estimator.
        x: Inputs.
        y: Targets.

    Returns:
        `HeldOut`.

    Raises:
        TypeError: If `model` is neither.
        ValueError: If it is not fitted, its targets are limits, or the data are bad.
    """
    if is_estimator(model):
        distribution = model.predict_distribution(x)
        width = fitted_model(model).num_target_columns
        return HeldOut(distribution, targets_of(model, y, distribution.batch_shape[0], width))
    arguments.check_model(model, "predict", "predict_distribution", "predicted")
    model.check_ready()
    if model.likelihood.targets_are_limits:
        raise ValueError(
            "Calibration must have the values of targets, not limits. "
            f"Received: a model with the likelihood {type(model.likelihood).__name__}"
        )
    inputs, targets = model.checks.data(x, y)
    return HeldOut(model.predict_distribution(model.checks.pack(inputs)), targets)


def targets_of(estimator: Any, y: ArrayLike, num_rows: int, num_columns: int) -> Array:
    """Returns the targets of any estimator of scikit-learn as `[N, D]`, labels as positions.

    Args:
        estimator: Fitted estimator.
        y: Targets, as for `fit`.
        num_rows: N.
        num_columns: D.

    Raises:
        TypeError: If targets of a regression are not numbers.
        ValueError: If a target is not finite, or a label is unknown, or the shape is wrong.
    """
    if hasattr(estimator, "classes_"):
        targets = arrays.places_of(y, estimator.classes_)
    else:
        targets = arrays.as_array(y, "y").astype(np.float64)
        bad = np.sum(~np.isfinite(targets))
        if bad:
            raise ValueError(f"`y` must be finite. Received: y with {bad} values that are not")
    if targets.shape not in ((num_rows,), (num_rows, num_columns)) or (
        targets.ndim == 1 and num_columns > 1
    ):
        raise ValueError(
            f"`y` must have shape ({num_rows}, {num_columns}), a row for each row of the inputs. "
            f"Received: y of shape {targets.shape}"
        )
    return targets.reshape(num_rows, num_columns)


def adjusted(model: Any, adjustment: Scaling | Recalibration | Tempering) -> Any:
    """Returns a `CalibratedModel`, or a copy of an estimator that has one."""
    calibrated = CalibratedModel(fitted_model(model), adjustment)
    return model.with_model(calibrated) if is_estimator(model) else calibrated
