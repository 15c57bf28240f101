"""The numbers of a report: scores of all rows, of groups, and of a constant forecast."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow_probability as tfp

from tfp_fnspace import metrics
from tfp_fnspace.distributions import quantile
from tfp_fnspace.typing import Array, ArrayLike, Distribution

tfd = tfp.distributions


class Named(NamedTuple):
    """A score, and how to read it.

    Attributes:
        function: Function of `(y, distribution)`.
        meaning: What it is, and which values are good.
        of_groups: Whether tables of groups have it.
    """

    function: Callable[[Any, Distribution], Any]
    meaning: str
    of_groups: bool = False


#: Scores of numbers, by the names that `evaluate` uses.
OF_NUMBERS = {
    "rmse": Named(metrics.rmse, "root mean squared error of the mean; smaller is better", True),
    "mae": Named(metrics.mae, "mean absolute error of the median; smaller is better"),
    "nll": Named(metrics.nll, "mean negative log density, in nats; smaller is better", True),
    "crps": Named(metrics.crps, "continuous ranked probability score; smaller is better", True),
    "coverage_90": Named(
        metrics.interval_coverage, "share in the 90 % interval; 0.9 is right", True
    ),
    "width_90": Named(metrics.interval_width, "mean width of this interval"),
    "interval_score_90": Named(metrics.interval_score, "its width and misses; smaller is better"),
    "pinball_5": Named(
        functools.partial(metrics.pinball_loss, level=0.05),
        "pinball loss of its lower end, the 5 % quantile; smaller is better",
    ),
    "pinball_95": Named(
        functools.partial(metrics.pinball_loss, level=0.95),
        "pinball loss of its upper end, the 95 % quantile; smaller is better",
    ),
    "dawid_sebastiani": Named(
        metrics.dawid_sebastiani_score,
        "score of the mean and the variance alone; smaller is better",
    ),
    "calibration_error": Named(metrics.calibration_error, "distance from calibration; 0 is best"),
}

#: Further scores of several outputs together.
OF_OUTPUTS = {
    "energy_score": Named(
        metrics.energy_score, "crps of all outputs of a row together; smaller is better"
    ),
}

#: Scores of classes.
OF_CLASSES = {
    "accuracy": Named(metrics.accuracy, "share of right predictions; larger is better", True),
    "nll": Named(metrics.nll, "mean negative log probability, in nats; smaller is better", True),
    "brier": Named(
        metrics.brier_score, "mean squared error of probabilities; smaller is better", True
    ),
    "ece": Named(metrics.expected_calibration_error, "distance from calibration; 0 is best"),
}

#: The groups of `by_prediction`.
_FIFTHS = ("lowest fifth", "second fifth", "middle fifth", "fourth fifth", "highest fifth")

#: Values of each target that stand for its distribution.
_NUM_VALUES = 200


def constant_forecast(y: Array, distribution: Distribution) -> Distribution:
    """Returns the distribution of targets whatever the inputs are, with the batch of another one.

    Args:
        y: Targets `[N, D]`, or labels `[N, 1]`; NaN where missing.
        distribution: A prediction of them.

    Returns:
        For numbers `tfd.Empirical`, with 200 quantiles of each target; for classes the kind of
        `distribution` with the frequencies of the labels.
    """
    if distribution.dtype.is_floating and not _is_binary(distribution):
        levels = (np.arange(_NUM_VALUES) + 0.5) / _NUM_VALUES
        values = np.nanquantile(y, levels, axis=0)  # [S, D]
        return _empirical(np.broadcast_to(values, (len(y), *values.shape)), distribution)
    if _is_binary(distribution):
        shares = np.broadcast_to(np.nanmean(y, axis=0), y.shape)
        return tfd.Independent(tfd.Bernoulli(probs=shares), reinterpreted_batch_ndims=1)
    num_classes = distribution.probs_parameter().shape[-1]
    counts = np.bincount(y[~np.isnan(y)].astype(int), minlength=num_classes)
    return tfd.Categorical(probs=np.broadcast_to(counts / counts.sum(), (len(y), num_classes)))


def _joint_forecast(y, distribution):
    """Returns rows of targets as the forecast of outputs that depend on each other."""
    whole = y[~np.any(np.isnan(y), axis=1)]
    whole = whole if len(whole) else np.full_like(y[:1], np.nan)  # then the score is not known
    chosen = np.linspace(0, len(whole) - 1, min(len(whole), _NUM_VALUES)).astype(int)
    # `tfd.Empirical` draws the same numbers of values for all rows, whose errors would add up.
    order = np.argsort(np.random.default_rng(0).random((len(y), len(chosen))), axis=1)
    return _empirical(whole[chosen][order], distribution)


def _empirical(samples, distribution):
    """Returns samples `[N, S, D]` as a distribution, in the dtype of another one."""
    return tfd.Empirical(samples.astype(distribution.dtype.as_numpy_dtype), event_ndims=1)


def of_all_rows(
    known: dict[str, Named], y: Array, distribution: Distribution, constant: Distribution
) -> list[list[Any]]:
    """Returns a row for each score: name, value, value of the constant forecast, meaning."""
    of_constant = dict.fromkeys(known, constant)
    if isinstance(constant, tfd.Empirical):  # it has no density
        mean, stddev = (np.broadcast_to(v, y.shape) for v in (np.nanmean(y, 0), np.nanstd(y, 0)))
        of_constant["nll"] = tfd.Independent(tfd.Normal(mean, stddev), 1)
        of_constant["energy_score"] = _joint_forecast(y, distribution)
    return [
        [
            name,
            *(float(each.function(y, d)) for d in (distribution, of_constant[name])),
            each.meaning,
        ]
        for name, each in known.items()
    ]


def by_group(
    known: dict[str, Named], y: Array, distribution: Distribution, groups: ArrayLike
) -> tuple[list[str], dict[Any, list[Any]]]:
    """Returns names of columns, and for each group its number of rows and its scores."""
    chosen = {name: each.function for name, each in known.items() if each.of_groups}
    found = [metrics.by_group(each, y, distribution, groups) for each in chosen.values()]
    labels, counts = np.unique(np.asarray(groups), return_counts=True)
    rows = {
        label: [int(count), *(values[label] for values in found)]
        for label, count in zip(labels.tolist(), counts, strict=True)
    }
    return ["rows", *chosen], rows


def by_prediction(
    known: dict[str, Named], y: Array, distribution: Distribution
) -> tuple[list[str], list[list[Any]]]:
    """Returns names of columns, and a row for each fifth of the rows by predicted median.

    Args:
        known: Scores.
        y: Targets `[N, 1]`.
        distribution: A prediction of them.
    """
    median = np.asarray(quantile(distribution, 0.5)).reshape(-1)
    ranks = np.argsort(np.argsort(median, kind="stable"), kind="stable")
    fifths = ranks * len(_FIFTHS) // len(ranks)
    names, rows = by_group(known, y, distribution, fifths)
    ranges = {
        fifth: f"{median[fifths == fifth].min():.4g} to {median[fifths == fifth].max():.4g}"
        for fifth in rows
    }
    table = [[_FIFTHS[fifth], ranges[fifth], *values] for fifth, values in rows.items()]
    return ["rows by prediction", "predicted median", *names], table


def by_output(
    known: dict[str, Named], y: Array, distribution: Distribution, names: Sequence[Any]
) -> tuple[list[str], list[list[Any]]]:
    """Returns names of columns, and a row for each of several outputs."""
    chosen = {name: each.function for name, each in known.items() if each.of_groups}
    table = []
    for d, name in enumerate(names):
        alone = np.where(np.arange(y.shape[1]) == d, y, np.nan)
        values = [float(function(alone, distribution)) for function in chosen.values()]
        table.append([str(name), int(np.sum(~np.isnan(y[:, d]))), *values])
    return ["output", "observed", *chosen], table


def _is_binary(distribution):
    return hasattr(distribution, "reinterpreted_batch_ndims") and isinstance(
        distribution.distribution, tfd.Bernoulli
    )
