"""The scale of homoscedastic noise: a schedule, or cross-validation (section 4.2 of the paper)."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from tfp_fnspace.datasets import k_fold
from tfp_fnspace.methods.tagi import runs
from tfp_fnspace.metrics import scores as metric_scores
from tfp_fnspace.tracing import traced
from tfp_fnspace.typing import Array

if TYPE_CHECKING:
    from tfp_fnspace.methods.tagi.model import TAGIModel

#: Ratio of neighbouring candidates, and the most candidates in one direction (a factor of 2^20).
_RATIO = 2.0**-0.5
_MOST_STEPS = 40

#: Number of scores below the best after which a direction of the search ends.
_PATIENCE = 2


class Schedule(keras.callbacks.Callback):
    """Sets the scale of the noise before each epoch.

    Args:
        schedule: `keras.optimizers.schedules.LearningRateSchedule` of the number of finished
            epochs.
    """

    allows_ahead = True

    def __init__(self, schedule: keras.optimizers.schedules.LearningRateSchedule):
        super().__init__()
        self.schedule = schedule

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        model = self.model
        model.likelihood.set_scale(float(self.schedule(model.counters.epochs.numpy())))


def search_scale(
    score: Callable[[float, list[float]], float], start: float
) -> tuple[float, list[tuple[float, float]]]:
    """Maximises a smooth unimodal score over a positive scale.

    It scores the grid `start 2^(-k/2)` downwards until two candidates in a row fall below the best.
    If the start is the best, it does the same upwards. It returns the vertex of the parabola
    through the best candidate and its neighbours in log scale.

    Args:
        score: Function of a scale, and of the scales that follow it if the search goes on in its
            direction. Higher is better; NaN counts as minus infinity.
        start: First candidate, positive.

    Returns:
        The scale, and a list of `(scale, score)` in the order of evaluation.

    Raises:
        ValueError: If no candidate has a finite score.
    """
    scores = {}

    def walk(direction):
        step, misses = direction, 0
        while misses < _PATIENCE and abs(step) <= _MOST_STEPS:
            evaluate(step, direction)
            misses = misses + 1 if scores[step] < max(scores.values()) else 0
            step += direction

    def evaluate(step, direction):
        steps = range(step, direction * (_MOST_STEPS + 1), direction)
        scale, *following = (start * _RATIO**k for k in steps)
        value = float(score(scale, following))
        scores[step] = value if math.isfinite(value) else -math.inf

    evaluate(0, +1)
    walk(+1)
    if max(scores, key=scores.get) == 0:
        walk(-1)
    best = max(scores, key=scores.get)
    if scores[best] == -math.inf:
        raise ValueError(
            "Cross-validation found no noise scale with a finite held-out log-likelihood. "
            f"Received: start={start!r}"
        )
    table = [(start * _RATIO**step, value) for step, value in scores.items()]
    return start * _RATIO ** (best + _vertex(scores, best)), table


def _vertex(scores, best):
    """Returns the vertex of the parabola through the best step and its neighbours, as an offset."""
    below, above = scores.get(best - 1, -math.inf), scores.get(best + 1, -math.inf)
    curvature = below - 2.0 * scores[best] + above
    if not math.isfinite(curvature) or curvature == 0.0:
        return 0.0
    return 0.5 * (below - above) / curvature


def cross_validate(
    model: "TAGIModel",
    inputs: list[Array],
    targets: Array,
    epochs: int,
    batch_size: int,
    shuffle: bool,
    num_folds: int = 5,
    verbose: int | str = 0,
    row_weights: Array | None = None,
) -> tuple[Array, list[tuple[float, float]]]:
    """Chooses the noise scale with the best held-out log-likelihood over k folds.

    Every fold and candidate starts from the model's present parameters and learns for the same
    number of epochs as `fit`. The parameters are restored at the end. If a likelihood has a scale
    for each output, their ratios are kept and one factor is searched.

    Args:
        model: `TAGIModel`.
        inputs: List of arrays `[N, ...]` in the user's units.
        targets: Array `[N, D]` in the user's units.
        epochs: Epochs of each run.
        batch_size: Rows in a batch.
        shuffle: Whether each epoch permutes the rows.
        num_folds: Number of folds; fewer if there are fewer rows.
        verbose: As in Keras's `fit`; unless it is 0, each candidate prints a line.
        row_weights: Array `[N]`, or `None`. Held-out rows count by their weights, too.

    Returns:
        The scale in model units, with the shape of the likelihood's scale, and the table of `(mean
        scale, mean held-out log-likelihood)`.

    Raises:
        ValueError: If there are fewer than two rows.
    """
    if len(targets) < 2:
        raise ValueError(
            f"noise='cross_validate' needs at least 2 rows. Received: {len(targets)} rows"
        )
    learner = model.epochs.learner(inputs, targets, batch_size, row_weights)
    folds = k_fold(len(targets), min(num_folds, len(targets)), seed=model.counters.seeds.number())
    limits = model.likelihood.targets_are_limits
    of_targets = metric_scores.interval_censored_nll() if limits else metric_scores.nll()
    negative_log_likelihood = traced(
        lambda x, y, *weights: metric_scores.evaluate(of_targets, y, model.predictive(x), *weights),
        reduce_retracing=True,
    )
    observed = ~np.all(np.isnan(targets), axis=1)
    counts = np.ones(len(targets)) if row_weights is None else row_weights
    initial = [variable.numpy() for variable in model.parameter_variables]
    initial_scale = model.likelihood.scale.numpy()
    start = float(np.mean(initial_scale))
    of_folds = runs.Runs(model, learner, [train for train, _ in folds], epochs, shuffle)
    learnt_ahead = {}

    def score(scale, following):
        if scale not in learnt_ahead:
            together = [scale, *following][: of_folds.at_once]
            found = of_folds.learnt([initial_scale * (one / start) for one in together])
            learnt_ahead.update(zip(together, found, strict=True))
        model.likelihood.set_scale(initial_scale * (scale / start))
        total = 0.0
        for values, (_, held_out) in zip(learnt_ahead.pop(scale), folds, strict=True):
            runs.assign(model, values)
            rows = held_out[observed[held_out]]
            if len(rows):
                x = [tf.constant(a[rows]) for a in inputs]
                held = [tf.constant(a[rows]) for a in (targets, row_weights) if a is not None]
                total -= np.sum(counts[rows]) * float(negative_log_likelihood(x, *held))
        mean = total / np.sum(counts[observed])
        if verbose:
            print(f"noise scale {scale:.4g}: held-out log-likelihood {mean:.4f}", flush=True)
        return mean

    try:
        scale, table = search_scale(score, start)
    finally:
        runs.assign(model, initial)
        model.likelihood.set_scale(initial_scale)
    return initial_scale * (scale / start), table
