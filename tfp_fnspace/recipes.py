"""From a table to a fitted model without manual settings: the common part of all recipes.

A recipe is a module of three functions and two constants. `candidates(table)` returns a list of
settings, dicts that JSON can hold, the most promising first. `build(settings, table, seed)` returns
a compiled model that is not fitted. `scale_noise(model, factor)` multiplies the standard deviation
of a fitted model's noise. `BUILDS_FROM_ROWS` says whether `build` looks at values; if so, each of
several held-out parts needs its own model. `MOST_ROWS` is the largest number of rows that a method
uses, or `None`; from a larger table it uses a random part.

Each candidate is tried on held-out rows. They determine the number of epochs, and by how much the
noise is too small. The candidate with the best mean held-out log density is fitted to all rows. If
the data favour it, the targets are warped first (`warping.chosen_warp`).
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import keras
import numpy as np

from tfp_fnspace.model import FunctionSpaceModel
from tfp_fnspace.trials import Table, Trial, fit, least_epochs, tried
from tfp_fnspace.typing import Array
from tfp_fnspace.warping import Warp, WarpedModel, chosen_warp

#: The share of the time that trials may take; the rest is for the fit to all rows.
TIME_FOR_TRIALS = 0.6

#: A learnt noise scale must exceed its minimum by at least this factor.
_ABOVE_LEAST = 1.01


@dataclass(frozen=True)
class Fitted:
    """A model that is fitted to all rows.

    Attributes:
        model: `FunctionSpaceModel`.
        settings: The chosen settings, a dict that JSON can hold.
        score: Mean held-out log density of these settings, in nats.
        trials: List of `Trial`, one for each candidate that was tried.
    """

    model: FunctionSpaceModel
    settings: dict | list
    score: float
    trials: list


def fit_table(
    recipe: ModuleType,
    x: Array | list[Array],
    y: Array,
    *,
    time_limit: float = 60.0,
    seed: int = 0,
    num_classes: int | None = None,
    report: Callable[[float, str], None] | None = None,
    sample_weight: Array | None = None,
) -> Fitted:
    """Chooses settings on held-out rows and fits a model with them to all rows.

    Args:
        recipe: Module of a recipe, for example `tfp_fnspace.methods.tagi.recipe`.
        x: Inputs `[N, X]`, or a list of their means and variances.
        y: Targets `[N, D]`, or integer labels `[N]`.
        time_limit: Seconds for trials and fit together. A step that has begun is finished.
        seed: Non-negative integer.
        num_classes: Number of classes, for classification.
        report: Function of the completed fraction, from 0 to 1, and a text; `None` reports nothing.
        sample_weight: Positive weights `[N]`. A row of weight w counts as w copies of it, which are
            held out together.

    Returns:
        `Fitted`.
    """
    begin = time.monotonic()
    table = Table(x, y, num_classes, row_weights=sample_weight)
    if recipe.MOST_ROWS is not None and table.num_rows > recipe.MOST_ROWS:
        rows = np.random.default_rng(seed).choice(table.num_rows, recipe.MOST_ROWS, replace=False)
        table = table.rows(np.sort(rows))
    table, warp = warped_table(table, seed)
    seconds = time_limit * TIME_FOR_TRIALS
    trials = try_candidates(candidates_of(recipe, table), table, seconds, seed, report)
    best = max(trials, key=lambda trial: trial.score)
    model = fit_as_tried(best, table, time_limit - (time.monotonic() - begin), seed)
    if report is not None:
        report(1.0, "fitted to all rows")
    return Fitted(unwarped(model, warp), best.settings, best.score, trials)


def warped_table(table: Table, seed: int) -> tuple[Table, Warp | None]:
    """Warps the targets of a table if the data favour it.

    Args:
        table: `Table`.
        seed: Non-negative integer.

    Returns:
        `Table`, and the `warping.Warp` or `None`.
    """
    is_regression = table.num_classes is None
    warp = chosen_warp(table.inputs[0], table.y, seed).warp if is_regression else None
    if warp is None:
        return table, None
    of_warp = warp.log_jacobian(table.y)
    return Table(table.x, warp(table.y), None, of_warp, table.row_weights), warp


def unwarped(model: FunctionSpaceModel, warp: Warp | None) -> FunctionSpaceModel:
    """Returns the model of the targets, given a model of the warped targets."""
    return model if warp is None else WarpedModel(model, *warp)


def candidates_of(recipe: ModuleType, table: Table) -> list[tuple[ModuleType, dict[str, Any]]]:
    """Returns the candidates of a recipe, the best first, as pairs of the recipe and settings."""
    return [(recipe, settings) for settings in recipe.candidates(table)]


def try_candidates(
    candidates: Sequence[tuple[ModuleType, dict[str, Any]]],
    table: Table,
    seconds: float,
    seed: int,
    report: Callable[[float, str], None] | None = None,
    at_least: int = 1,
) -> list[Trial]:
    """Tries candidates in order, as many as the time allows.

    Args:
        candidates: List of pairs of a recipe and settings.
        table: `Table`.
        seconds: Time for all trials. A candidate begins only if the time left suffices for the
            longest trial of its recipe so far. It ends when the time is over.
        seed: Non-negative integer.
        report: As for `fit_table`.
        at_least: How many are tried whatever time they take; they share the time.

    Returns:
        List of `Trial`.
    """
    begin, trials, longest = time.monotonic(), [], {}
    for i, (recipe, settings) in enumerate(candidates):
        left = seconds - (time.monotonic() - begin)
        is_sure = i < at_least
        if not is_sure and longest.get(id(recipe), 0.0) > left:
            continue
        share = left / (at_least - i) if is_sure else left
        trials.append(tried(recipe, table, settings, max(share, 0.0), seed))
        longest[id(recipe)] = max(longest.get(id(recipe), 0.0), trials[-1].seconds)
        if report is not None:
            part = TIME_FOR_TRIALS * (i + 1) / len(candidates)
            report(part, f"held-out log density {trials[-1].score:.4g}")
    return trials


def fit_as_tried(trial: Trial, table: Table, seconds: float, seed: int) -> FunctionSpaceModel:
    """Fits a model with the settings of a trial to all rows.

    Args:
        trial: `Trial`.
        table: `Table`.
        seconds: Time after which the fit ends at the next epoch.
        seed: Non-negative integer.

    Returns:
        Fitted model.
    """
    model = trial.model.put_back().model if trial.model else None
    model = model or trial.recipe.build(trial.settings, table, seed)
    stop = _StopAt(time.monotonic() + seconds, least_epochs(trial.settings))
    fit(model, trial.settings, table, stop)
    if trial.settings["noise_factor"] != 1.0:
        trial.recipe.scale_noise(model, trial.settings["noise_factor"])
    return model


def scale_learnt_noise(model: FunctionSpaceModel, factor: float) -> None:
    """Multiplies the standard deviation of a Gaussian likelihood's noise, down to its minimum.

    Args:
        model: Fitted model with `likelihoods.Gaussian`, whose scale is trained by gradients.
        factor: Positive number.
    """
    likelihood = model.likelihood
    scale = factor * keras.ops.convert_to_numpy(likelihood.scale)
    likelihood.set_scale(np.maximum(scale, _ABOVE_LEAST * likelihood.min_scale))


class _StopAt(keras.callbacks.Callback):
    """Ends `fit` after the epoch in which a deadline passes, if there were enough epochs."""

    allows_ahead = True

    def __init__(self, ends, least_epochs):
        super().__init__()
        self.ends, self.least_epochs = ends, least_epochs

    def on_epoch_end(self, epoch, logs=None):
        if time.monotonic() > self.ends and epoch + 1 >= self.least_epochs:
            self.model.stop_training = True
