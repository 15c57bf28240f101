"""What can be said of a model and its data before an hour is spent on a fit."""

import time
import warnings as python_warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tfp_fnspace.boundary import columns, streams
from tfp_fnspace.model import fitting
from tfp_fnspace.typing import Array, ArrayLike, Rows

if TYPE_CHECKING:
    from tfp_fnspace.model.base import FunctionSpaceModel

#: Rows that the trial epochs see; fewer if the model learns from all rows at once.
_MOST_ROWS, _MOST_ROWS_AT_ONCE = 1000, 100

#: Standard deviations of columns that a network takes without standardisation.
_GOOD_SPREADS = 0.1, 10.0

#: A value this many standard deviations from the mean is called far.
_FAR = 20.0

#: A target with at most this many different values, each taken by ten rows on average, is discrete.
_FEW_VALUES = 20

#: Fewer rows than this of a class say little about it.
_FEW_ROWS = 5

#: Predictions before training are called too narrow (too wide) if the central half of the targets
#: is this many times wider (narrower) than that of the predictions.
_OTHER_SCALE = 10.0


@dataclass(frozen=True)
class CheckUp:
    """What `FunctionSpaceModel.check` found; `print` shows all of it.

    Attributes:
        facts: List of sentences that say what the model and the data are, and what a fit costs.
        warnings: List of sentences about what is probably wrong, and what can be done.
    """

    facts: list[str]
    warnings: list[str]

    def __str__(self) -> str:
        found = [f"Warning: {text}" for text in self.warnings] or ["Nothing looks wrong."]
        return "\n".join([*self.facts, *found])

    __repr__ = __str__


def check_up(model: "FunctionSpaceModel", x: Rows, y: ArrayLike, batch_size: int | None) -> CheckUp:
    """Returns the result of `FunctionSpaceModel.check`."""
    if streams.is_stream(x):
        raise ValueError(
            f"`check` must be given arrays, such as a few batches of a stream. Received: x={x!r}"
        )
    facts: list[str] = []
    warnings: list[str] = []
    names = columns.column_names(x)
    with model.distribute_strategy.scope():
        trial = copy_of(model, x, y)
    first = not trial.has_units
    inputs, targets = trial.checks.data(x, y, first=first, learnt=True)
    facts += [_shapes(inputs, targets), _size(trial)]
    for array, scaler in zip(inputs, trial.units.input_scalers, strict=True):
        if "float" in str(array.dtype) and array.ndim == 2:
            warnings += _about_inputs(array, names, bool(scaler.enabled))
    if trial.likelihood.is_classifier:
        warnings += _about_labels(targets, trial.checks.num_labels)
    else:
        values = trial.likelihood.values_near(targets)
        facts.append(_range_of(values))
        warnings += _about_targets(values, trial)
    if not trial.is_ready:
        trial.adapt(trial.checks.pack(inputs), targets)
    most = _MOST_ROWS_AT_ONCE if trial.needs_steps else _MOST_ROWS
    chosen = np.random.default_rng(0).permutation(len(targets))[:most]
    part = trial.checks.pack([array[chosen] for array in inputs]), targets[chosen]
    if not trial.needs_steps:
        _look_at_predictions(trial, *part, facts, warnings)
    _try_to_fit(trial, part, batch_size, len(targets), facts, warnings)
    return CheckUp(facts, warnings)


def copy_of(model: "FunctionSpaceModel", x: Rows, y: ArrayLike) -> "FunctionSpaceModel":
    """Returns a copy of a model with the same weights, so that the model itself stays as it is."""
    copy = type(model).from_config(model.get_config())
    if model.compiled:
        copy.compile_from_config(model.get_compile_config())
    fitting.learn_shapes(copy, x, y)
    if model.has_shapes:
        for own, weight in zip(copy.weights, model.weights, strict=True):
            own.assign(weight)
    return copy


# Data ---------------------------------------------------------------------------------------------


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("" if number == 1 else "s")


def _shapes(inputs: list[Array], targets: Array) -> str:
    shapes = " and ".join(str(array.shape[1:]) for array in inputs)
    kinds = "shape" if len(inputs) == 1 else "shapes"
    rows, width = targets.shape
    return (
        f"Data: {_count(rows, 'row')}, inputs of {kinds} {shapes}, {_count(width, 'target column')}"
    )


def _size(model: "FunctionSpaceModel") -> str:
    count = sum(int(np.prod(weight.shape)) for weight in model.weights)
    size = sum(int(np.prod(w.shape)) * np.dtype(str(w.dtype)).itemsize for w in model.weights)
    kind = type(model.likelihood).__name__
    return f"Model: {type(model).__name__}, {kind} likelihood, {count:,} numbers, {_bytes(size)}"


def _bytes(size: float) -> str:
    for unit in ("B", "kB", "MB"):
        if size < 1000.0:
            return f"{size:.3g} {unit}"
        size /= 1000.0
    return f"{size:.3g} GB"


def _range_of(targets: Array) -> str:
    low, high = np.nanmin(targets), np.nanmax(targets)
    mean, stddev = np.nanmean(targets), np.nanstd(targets, axis=0).mean()
    return f"Targets: {low:.4g} to {high:.4g}, mean {mean:.4g}, standard deviation {stddev:.4g}"


def _named(chosen: Array, names: Any) -> str:
    """Returns the names of columns, at most five of them."""
    found = np.flatnonzero(chosen).tolist()
    shown = ", ".join(repr(names[i]) if names else str(i) for i in found[:5])
    word = "column" if len(found) == 1 else "columns"
    return f"{word} {shown}" + (f" and {len(found) - 5} more" if len(found) > 5 else "")


def _about_inputs(array: Array, names: Any, standardized: bool) -> list[str]:
    """Returns warnings of the columns `[N, X]` of an input."""
    found, values = [], array.astype(np.float64)
    mean, stddev = values.mean(axis=0), values.std(axis=0)
    constant = stddev == 0.0
    spread = np.where(constant, 1.0, stddev)
    if np.any(constant):
        found.append(f"Input {_named(constant, names)}: all values are equal, which tells nothing")
    far = np.max(np.abs(values - mean) / spread, axis=0) > _FAR
    if np.any(far):
        found.append(
            f"Input {_named(far, names)}: a value is over {_FAR:g} standard deviations from the "
            "mean. Is it an error? If not, take the logarithm, or ranks"
        )
    low, high = _GOOD_SPREADS
    odd = ~constant & ((stddev < low) | (stddev > high) | (np.abs(mean) > high * spread))
    if np.any(odd) and not standardized:
        found.append(
            f"Input {_named(odd, names)}: the scale is far from 1 (standard deviations of "
            f"{stddev[odd].min():.3g} to {stddev[odd].max():.3g}), and the model does not "
            "standardise: pass standardize=True, or standardise the inputs"
        )
    if len(values) < values.shape[1]:
        found.append(f"There are fewer rows, {len(values):,}, than inputs, {values.shape[1]:,}")
    return found


def _about_targets(targets: Array, model: "FunctionSpaceModel") -> list[str]:
    """Returns warnings of the targets `[N, D]` of a regression."""
    found = []
    is_linked = model.likelihood.has_link
    for i, column in enumerate(targets.T):
        name = f"Target column {i}" if targets.shape[1] > 1 else "The target"
        column = column[~np.isnan(column)]
        stddev = column.std()
        if not stddev:
            found.append(f"{name}: all values are equal")
            continue
        values = np.unique(column)
        is_few = len(values) <= min(_FEW_VALUES, len(column) / 10)
        if is_few and not is_linked and np.all(values == np.round(values)):
            found.append(
                f"{name} takes {len(values)} whole values only: are they labels of classes "
                "(likelihoods.Categorical), grades (Ordinal) or counts (Poisson)?"
            )
        if not is_linked and np.max(np.abs(column - column.mean())) > _FAR * stddev:
            positive = ", LogNormal or Gamma" if values[0] > 0.0 else ""
            found.append(
                f"{name}: a value is over {_FAR:g} standard deviations from the mean. Consider "
                f"likelihoods.StudentT{positive}, or the estimators, which warp such targets"
            )
        low, high = _GOOD_SPREADS
        if not (model.standardize or is_linked or low <= stddev <= high):
            found.append(
                f"{name}: the standard deviation is {stddev:.3g}, and the model does not "
                "standardise: pass standardize=True, or standardise the targets"
            )
    return found


def _about_labels(targets: Array, num_labels: int | None) -> list[str]:
    """Returns warnings of labels."""
    if targets.shape[1] != 1 or not num_labels:
        return []
    counts = np.bincount(targets[:, 0].astype(np.int64), minlength=num_labels)
    rare = counts < _FEW_ROWS
    if not np.any(rare):
        return []
    labels = _named(rare, None).replace("column", "label")
    return [f"Of {labels} there are fewer than {_FEW_ROWS} rows each"]


# Predictions --------------------------------------------------------------------------------------


def _look_at_predictions(
    model: "FunctionSpaceModel",
    x: Rows,
    targets: Array,
    facts: list[str],
    warnings: list[str],
) -> None:
    """Compares what the model predicts before training with the targets."""
    start = "after its training so far" if model.counters.has_steps else "before training"
    if model.likelihood.is_classifier:
        probabilities = model.predict(x)["probabilities"]
        if not np.all(np.isfinite(probabilities)):
            warnings.append(f"Predictions {start} are not finite")
            return
        mean = ", ".join(f"{p:.2f}" for p in probabilities.mean(axis=0)[:10])
        facts.append(f"Predictions {start}: mean probabilities {mean}")
        return
    found = model.predict_quantiles(x, [0.05, 0.25, 0.75, 0.95])
    if not np.all(np.isfinite(found)):
        warnings.append(f"Predictions {start} are not finite")
        return
    targets = model.likelihood.values_near(targets)
    low, high = found[..., 0].min(), found[..., 3].max()
    inside = (targets >= found[..., 0]) & (targets <= found[..., 3])
    share = np.mean(inside[~np.isnan(targets)])
    facts.append(
        f"Predictions {start}: 90 % intervals within {low:.4g} to {high:.4g}; "
        f"{100 * share:.0f} % of the targets are in theirs"
    )
    if model.counters.has_steps:
        return
    width = np.median(found[..., 2] - found[..., 1], axis=0)
    quartiles = np.nanquantile(targets, [0.25, 0.75], axis=0)
    ratio = width / np.maximum(quartiles[1] - quartiles[0], np.finfo(np.float64).tiny)
    for is_odd, word in ((ratio > _OTHER_SCALE, "wider"), (ratio < 1 / _OTHER_SCALE, "narrower")):
        if np.any(is_odd) and np.all(quartiles[1] > quartiles[0]):
            warnings.append(
                f"Predictions before training are over {_OTHER_SCALE:g} times {word} than the "
                "targets: scale the prior or the noise, or standardise"
            )


# A short fit --------------------------------------------------------------------------------------


def _try_to_fit(
    model: "FunctionSpaceModel",
    part: tuple[Any, Array],
    batch_size: int | None,
    num_rows: int,
    facts: list[str],
    warnings: list[str],
) -> None:
    """Fits a copy for three epochs, and says what this took and whether all is finite."""
    x, y = part
    rows = len(y)
    given: dict[str, Any] = {} if batch_size is None else {"batch_size": batch_size}
    before = [weight.numpy() for weight in model.trainable_variables]
    options: dict[str, Any] = {"verbose": 0, **given}
    memory = PeakMemory()
    try:
        with python_warnings.catch_warnings():
            python_warnings.simplefilter("ignore")  # of chains that are too short, say
            first, _ = _timed(lambda: model.fit(x, y, epochs=1, **options))
            again, history = _timed(lambda: model.fit(x, y, epochs=2, **options))
    except FloatingPointError as error:
        warnings.append(f"The first epochs failed: {error}")
        return
    each, compiling = again / 2.0, max(first - again / 2.0, 0.0)
    scaled = each * num_rows / rows
    facts.append(
        f"Time: {_duration(each)} for an epoch of {rows:,} rows, after {_duration(compiling)} of "
        "preparation and compilation"
        + (f"; {_duration(scaled)} or more for one of {num_rows:,}" if num_rows > rows else "")
    )
    used = memory.grown()
    if used is not None:
        facts.append(f"Memory: up to {_bytes(used)} more during these epochs (peak of the process)")
    names = [name for name in ("elbo", "log_likelihood", "loss") if name in history.history]
    facts.append(
        "After three epochs: "
        + ", ".join(f"{name} {history.history[name][-1]:.4g}" for name in names)
    )
    after = [weight.numpy() for weight in model.trainable_variables]
    bad = [w.path for w, v in zip(model.trainable_variables, after, strict=True) if not _finite(v)]
    if bad:
        warnings.append(f"Weights are not finite after three epochs: {', '.join(bad[:5])}")
    still = [
        weight.path
        for weight, old, new in zip(model.trainable_variables, before, after, strict=True)
        if old.size and np.array_equal(old, new)
    ]
    if still and hasattr(model, "trained_parts") and len(before) == len(after):
        warnings.append(f"No gradient reaches the weights {', '.join(still[:5])}")


def _duration(seconds: float) -> str:
    if seconds < 60.0:
        return f"{seconds:.2g} s"
    return f"{seconds / 60.0:.1f} min"


def _finite(values: Array) -> bool:
    return bool(np.all(np.isfinite(values.astype(np.float64))))


def _timed(function: Callable[[], Any]) -> tuple[float, Any]:
    begin = time.perf_counter()
    result = function()
    return time.perf_counter() - begin, result


class PeakMemory:
    """The growth of this process's memory up to its peak, where Linux tells it."""

    def __init__(self):
        self.before = None
        try:
            with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
                file.write("5")  # the peak starts anew
            self.before = self._read("VmRSS")
        except OSError:
            return

    def grown(self) -> float | None:
        """Returns the peak minus what there was at the start, in bytes; `None` if unknown."""
        return None if self.before is None else max(self._read("VmHWM") - self.before, 0.0)

    @staticmethod
    def _read(name: str) -> float:
        with open("/proc/self/status", encoding="ascii") as file:
            (line,) = [line for line in file if line.startswith(name + ":")]
        return 1024.0 * float(line.split()[1])
