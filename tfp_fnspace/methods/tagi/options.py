"""Checks of the options of a TAGI model."""

from collections.abc import Sequence
from typing import TypeAlias

import keras
import numpy as np

from tfp_fnspace.boundary.arguments import checked_choice
from tfp_fnspace.likelihoods import Gaussian
from tfp_fnspace.likelihoods.base import Likelihood
from tfp_fnspace.typing import ArrayLike, Config

#: How the scale of the noise is chosen, see `TAGIModel`.
Noise: TypeAlias = str | keras.optimizers.schedules.LearningRateSchedule | None


def checked_noise(noise: Noise | Config) -> Noise:
    """Checks and returns `None`, `"cross_validate"` or a schedule, or the config of a schedule.

    Raises:
        ValueError: If it is something else.
    """
    if isinstance(noise, dict):
        noise = keras.optimizers.schedules.deserialize(noise)
    schedule = keras.optimizers.schedules.LearningRateSchedule
    if noise not in (None, "cross_validate") and not isinstance(noise, schedule):
        raise ValueError(
            "`noise` must be None, 'cross_validate' or a schedule of "
            f"keras.optimizers.schedules. Received: noise={noise!r}"
        )
    return noise


def check_likelihood(likelihood: Likelihood, noise: Noise) -> None:
    """Refuses an observation model without a closed-form update, or without a scale to choose.

    Args:
        likelihood: The given likelihood.
        noise: See `checked_noise`.

    Raises:
        ValueError: If it has no `innovation`, if its scale would have to be learnt and TAGI cannot
            learn it, or if `noise` is set and the likelihood has no scale or a learnt one.
    """
    if not hasattr(likelihood, "innovation"):
        raise ValueError(
            "`likelihood` must have a closed-form update for TAGI, as `likelihoods.Gaussian`, "
            "`LogNormal` and those of censored targets, or `Categorical` and "
            f"`HierarchicalCategorical` for classes. Received: likelihood={likelihood!r}"
        )
    if likelihood.has_link and likelihood.trainable and noise is None:
        name = type(likelihood).__name__
        raise ValueError(
            f"The scale of `{name}` is not learnt by TAGI: keep it by `{name}(..., "
            "trainable=False)`, or choose it by `noise='cross_validate'` or a schedule. "
            "Received: trainable=True with noise=None"
        )
    learns = getattr(likelihood, "learns_scale", False)
    if noise is not None and (learns or not hasattr(likelihood, "set_scale")):
        raise ValueError(
            "`noise` chooses the scale of a likelihood that has a fixed one. Received: "
            f"noise={noise!r} with a {type(likelihood).__name__} whose scale is "
            f"{'learnt' if learns else 'none'}"
        )


def checked_covariance(
    covariance: str, update: str, likelihood: Likelihood, input_roles: Sequence[int | None]
) -> str:
    """Checks and returns `"diagonal"`, `"full"` or `"full_parameters"`.

    Args:
        covariance: The given value.
        update: The update rule of the model.
        likelihood: Observation model.
        input_roles: See `graph.input_roles`.

    Raises:
        ValueError: If it is something else, or the model does not support full covariances.
    """
    checked_choice("covariance", covariance, ("diagonal", "full", "full_parameters"))
    if covariance == "diagonal":
        return covariance
    if not isinstance(likelihood, Gaussian) or likelihood.learns_scale:
        raise ValueError(
            "Full covariances need likelihoods.Gaussian with a fixed scale. "
            f"Received: covariance={covariance!r} with likelihood={likelihood!r}"
        )
    if covariance == "full_parameters" and update != "exact":
        raise ValueError(
            "Full covariances of parameters are learnt from one row at a time, update='exact'. "
            f"Received: update={update!r}"
        )
    if len(input_roles) > 1:
        raise ValueError(
            "Full covariances need a model with one input; `input_stddev` is its noise. "
            f"Received: covariance={covariance!r} with {len(input_roles)} inputs"
        )
    return covariance


def checked_input_stddev(
    input_stddev: ArrayLike,
    input_tensors: Sequence[keras.KerasTensor],
    input_roles: Sequence[int | None],
) -> float | list[float] | None:
    """Checks and returns `None`, a number, or a list with one number per feature.

    Args:
        input_stddev: The given value.
        input_tensors: The symbolic inputs of the network.
        input_roles: See `graph.input_roles`.

    Raises:
        ValueError: If a value is negative or not finite, their number does not match the
            features, or the network has inputs for variances.
    """
    if input_stddev is None:
        return None
    values = np.asarray(input_stddev, np.float64)
    if values.ndim > 1 or not np.all(np.isfinite(values)) or np.any(values < 0.0):
        raise ValueError(
            "`input_stddev` must be a non-negative finite number, or one per feature. "
            f"Received: input_stddev={input_stddev!r}"
        )
    if any(role is not None for role in input_roles):
        raise ValueError(
            "`input_stddev` and an input for the variances exclude each other. "
            f"Received: input_stddev={input_stddev!r}"
        )
    for tensor in input_tensors:
        if values.ndim and values.shape[0] != tensor.shape[-1]:
            raise ValueError(
                f"`input_stddev` must have one value per feature, {tensor.shape[-1]}. "
                f"Received: {values.shape[0]} values"
            )
    return values.tolist()
