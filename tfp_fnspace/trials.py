"""Trials of candidates on held-out rows, which give epochs, noise and log density."""

import time
import warnings
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Self

import keras
import numpy as np
import tensorflow as tf

from tfp_fnspace.model import FunctionSpaceModel, GradientModel
from tfp_fnspace.tracing import traced
from tfp_fnspace.typing import Array

#: With at least this many rows one part is held out; with fewer rows there are `_NUM_FOLDS` folds.
_ROWS_FOR_ONE_PART = 500
_NUM_FOLDS = 5

#: The fraction of the rows that is held out, and the most rows that are held out.
_HELD_OUT, _MOST_HELD_OUT = 0.2, 2000

#: Factors of the standard deviation of the noise, one of which held-out rows choose. A network that
#: has seen a row is closer to it than to others, so it underestimates the noise.
_NOISE_FACTORS = (1.0, 0.7, 0.85, 1.15, 1.3, 1.5, 1.75, 2.0, 2.5, 3.0)

#: A trial ends after this many looks at held-out rows without a better density. Time ends it only
#: after the second number of looks, since a network that has only begun to learn says nothing about
#: a candidate.
_PATIENCE, _LEAST_LOOKS = 10, 5


@dataclass(frozen=True)
class Table:
    """The rows that a model is fitted to.

    Attributes:
        x: Inputs `[N, X]`, float64; or a list of their means and variances, both `[N, X]`.
        y: Targets `[N, D]`, or labels `[N]`, integers from 0.
        num_classes: Number of classes, or `None` for regression.
        log_jacobian: Term to add to the log density of the targets of each row, `[N]`, because they
            are warped; `None` adds nothing.
        row_weights: Positive weights `[N]`; a row of weight w counts as w copies. `None` stands for
            ones.
    """

    x: np.ndarray | list
    y: np.ndarray
    num_classes: int | None = None
    log_jacobian: np.ndarray | None = None
    row_weights: np.ndarray | None = None

    @property
    def inputs(self) -> list[Array]:
        """List of the arrays of inputs."""
        return self.x if isinstance(self.x, list) else [self.x]

    @property
    def num_rows(self) -> int:
        return len(self.y)

    @property
    def num_inputs(self) -> int:
        return self.inputs[0].shape[1]

    @property
    def num_outputs(self) -> int:
        return self.num_classes or self.y.shape[1]

    @property
    def has_variances(self) -> bool:
        """Whether the inputs are means and variances."""
        return isinstance(self.x, list)

    def rows(self, index: Array) -> "Table":
        """Returns the table of some rows."""
        inputs = [values[index] for values in self.inputs]
        x = inputs if self.has_variances else inputs[0]
        others = [
            None if values is None else values[index]
            for values in (self.log_jacobian, self.row_weights)
        ]
        return Table(x, self.y[index], self.num_classes, *others)


@dataclass(frozen=True)
class Trial:
    """The result of a candidate on held-out rows.

    Attributes:
        recipe: Module of the recipe.
        settings: The settings of the candidate, with the best number of epochs.
        rows: Numbers of the held-out rows `[H]`.
        log_density: Log density of their targets, `[H]`.
        seconds: Duration of the trial.
        model: A model that may be fitted again, or `None` if one has to be built.
        row_weights: Weights of the held-out rows `[H]`, or `None`.
    """

    recipe: ModuleType
    settings: dict
    rows: np.ndarray
    log_density: np.ndarray
    seconds: float
    model: "Reusable | None" = None
    row_weights: np.ndarray | None = None

    @property
    def score(self) -> float:
        """(Weighted) mean held-out log density, in nats."""
        return float(np.average(self.log_density, weights=self.row_weights))


def held_out_parts(num_rows: int, seed: int) -> list[Array]:
    """Returns row numbers to hold out: one array, or one for each fold if there are few rows.

    Args:
        num_rows: Number of rows, at least 2.
        seed: Non-negative integer.
    """
    order = np.random.default_rng(seed).permutation(num_rows)
    if num_rows < _ROWS_FOR_ONE_PART:
        # Folds have equal sizes, so that nothing is traced again; the remaining rows always train.
        size = max(num_rows // _NUM_FOLDS, 1)
        return [order[i * size : (i + 1) * size] for i in range(min(_NUM_FOLDS, num_rows))]
    return [order[: min(int(_HELD_OUT * num_rows), _MOST_HELD_OUT)]]


def tried(
    recipe: ModuleType, table: Table, settings: dict[str, Any], seconds: float, seed: int
) -> Trial:
    """Fits a candidate without each held-out part in turn.

    Args:
        recipe: Module of a recipe, see `recipes`.
        table: `Table`.
        settings: Settings of the candidate.
        seconds: Time for all parts together; tracing and the first epoch of each part are extra.
        seed: Non-negative integer.

    Returns:
        `Trial`.
    """
    begin = time.monotonic()
    parts = held_out_parts(table.num_rows, seed)
    trains = [table.rows(np.setdiff1d(np.arange(table.num_rows), part)) for part in parts]
    # If there is one part, the model built from its training rows also serves for all rows.
    is_reusable = len(parts) == 1 or not recipe.BUILDS_FROM_ROWS
    reusable = Reusable(recipe, trains[0], table, settings, seed) if is_reusable else None
    candidates, paths = [], []
    for i, (part, train) in enumerate(zip(parts, trains, strict=True)):
        if i and not reusable and time.monotonic() > begin + seconds:
            break  # each part needs a model, so fewer parts must suffice
        if reusable:
            candidates.append(reusable.put_back())
        else:
            candidates.append(Scored(recipe.build(settings, train, seed)))
        path = Path(candidates[-1], table.rows(part), settings, begin + seconds, len(parts) - i)
        paths.append(path)
        with warnings.catch_warnings():  # the last fit gives the warnings
            warnings.simplefilter("ignore", UserWarning)
            fit(candidates[-1].model, settings, train, path)
    parts = parts[: len(paths)]
    # All parts share one number of epochs, since the best of each would be too optimistic. If a
    # path ended before the others, its last look stands for the missing ones.
    longest = max(paths, key=len)
    looks = range(len(longest))
    sums = [sum(path.total(path.at(look)[0]) for path in paths) for look in looks]
    best, epochs = int(np.argmax(sums)), longest.epochs
    epochs = _of_all_rows(epochs[best], settings["batch_size"], trains[0].num_rows, table.num_rows)
    if best + 1 == len(sums) and any(path.is_late for path in paths):
        epochs = min(2 * epochs, settings["epochs"])  # still improving when time was over
    densities = []
    for part, path, scored in zip(parts, paths, candidates, strict=True):
        scored.model.set_weights(path.at(best)[1])
        densities.append(_densities_by_factor(recipe, scored, table.rows(part)))
    densities = np.concatenate(densities, axis=1)  # [factors, H]
    rows = np.concatenate(parts)
    weights = table.rows(rows).row_weights
    factor = int(np.argmax(np.average(densities, axis=1, weights=weights)))
    chosen = {**settings, "epochs": epochs, "noise_factor": _NOISE_FACTORS[factor]}
    seconds = time.monotonic() - begin
    return Trial(recipe, chosen, rows, densities[factor], seconds, reusable, weights)


def least_epochs(settings: dict[str, Any]) -> int:
    """Returns the number of epochs of a fit before time may end it."""
    return _LEAST_LOOKS * settings["epochs_between_looks"]


def _of_all_rows(epochs, batch_size, num_rows, num_all_rows):
    """Returns the epochs of all rows with the same number of steps.

    TAGI treats a row that it sees again as a new row.
    """
    steps = epochs * _batches(num_rows, batch_size)
    return max(round(steps / _batches(num_all_rows, batch_size)), 1)


def _batches(num_rows, batch_size):
    return 1 if batch_size is None else -(-num_rows // batch_size)


class Scored:
    """A model with a function for the log densities of rows, which is traced once.

    Args:
        model: `FunctionSpaceModel`.
    """

    def __init__(self, model: FunctionSpaceModel):
        self.model = model
        self._function = traced(
            lambda inputs, y: model.predictive(inputs).log_prob(y), reduce_retracing=True
        )

    def log_density(self, table: Table) -> Array:
        """Returns the log density of the targets of a table, `[N]`, float64.

        For warped targets it is the log density of the original targets.

        Args:
            table: `Table`.
        """
        inputs = [tf.constant(values) for values in table.inputs]
        values = self._function(inputs if table.has_variances else inputs[0], tf.constant(table.y))
        values = values.numpy().astype(np.float64)
        values += 0.0 if table.log_jacobian is None else table.log_jacobian
        # A density of 0 or NaN at one row must lose to any number, but stay comparable.
        return np.maximum(np.nan_to_num(values, nan=-np.inf), -1e6)


class Reusable(Scored):
    """A model that is reset before each fit, so that its steps are traced once.

    Args:
        recipe: Module of a recipe.
        train: `Table` of the rows from which the model is built.
        table: `Table` of all rows, whose moments standardise its data.
        settings: Settings of the candidate.
        seed: Non-negative integer.
    """

    def __init__(
        self, recipe: ModuleType, train: Table, table: Table, settings: dict[str, Any], seed: int
    ):
        super().__init__(recipe.build(settings, train, seed))
        self.model.adapt(table.x, table.y, sample_weight=table.row_weights)
        self._weights = self.model.get_weights()
        self._of_optimizer = None

    def put_back(self) -> Self:
        """Resets the model to its state after it was built, and returns this object."""
        self.model.set_weights(self._weights)
        optimizer = getattr(self.model, "optimizer", None)
        if isinstance(self.model, GradientModel) and optimizer is not None:
            optimizer.build(self.model.trained_parts()["model"])
            if self._of_optimizer is None:
                self._of_optimizer = [variable.numpy() for variable in optimizer.variables]
            for variable, value in zip(optimizer.variables, self._of_optimizer, strict=True):
                variable.assign(value)
        return self


def _densities_by_factor(recipe, scored, held_out):
    """Returns the held-out log densities for each factor of the noise, `[factors, H]`."""
    fitted, found = scored.model.get_weights(), []
    for factor in _factors(held_out):
        scored.model.set_weights(fitted)
        if factor != 1.0:
            recipe.scale_noise(scored.model, factor)
        found.append(scored.log_density(held_out))
    return np.stack(found)


def _factors(table):
    """Returns the factors to try; labels have no noise that could be too small."""
    return _NOISE_FACTORS if table.num_classes is None else _NOISE_FACTORS[:1]


def fit(
    model: FunctionSpaceModel,
    settings: dict[str, Any],
    table: Table,
    callback: keras.callbacks.Callback,
) -> None:
    """Fits a model as the settings say."""
    model.fit(
        table.x,
        table.y,
        sample_weight=table.row_weights,
        batch_size=settings["batch_size"],
        epochs=settings["epochs"],
        callbacks=[callback],
        verbose=0,
    )


class Path(keras.callbacks.Callback):
    """Records held-out log densities and weights during a fit, which it ends early or in time.

    Args:
        scored: `Scored` of the model that is fitted.
        held_out: `Table`.
        settings: Settings of the candidate.
        deadline: Time by which all remaining fits must have ended.
        fits_left: Number of remaining fits, this one included. They share the time after its first
            epoch, which traces.

    Attributes:
        epochs: List of the numbers of epochs after which held-out rows were scored, the looks.
        log_densities: List of arrays `[H]`, one for each look.
        weights: List of lists of arrays, one for each look.
        is_late: Whether the fit ended because of time.
    """

    allows_ahead = True  # it uses the weights every `looks_every` epochs

    def __init__(
        self,
        scored: Scored,
        held_out: Table,
        settings: dict[str, Any],
        deadline: float,
        fits_left: int,
    ):
        super().__init__()
        self.scored, self.held_out, self.settings = scored, held_out, settings
        self.deadline, self.fits_left, self.ends = deadline, fits_left, None
        self.looks_every = settings["epochs_between_looks"]
        self.epochs, self.log_densities, self.weights, self.is_late = [], [], [], False

    def __len__(self):
        return len(self.epochs)

    def at(self, look: int) -> tuple[Array, list[Array]]:
        """Returns the log densities and weights of a look, or of the last look before it."""
        look = min(look, len(self) - 1)
        return self.log_densities[look], self.weights[look]

    def total(self, log_density: Array) -> float:
        """Returns the (weighted) sum of held-out log densities `[H]`."""
        weights = self.held_out.row_weights
        return np.sum(log_density if weights is None else weights * log_density)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        now = time.monotonic()
        if self.ends is None:
            self.ends = now + max(self.deadline - now, 0.0) / self.fits_left
        is_last = epoch + 1 == self.settings["epochs"]
        if not is_last and (epoch + 1) % self.looks_every:
            return
        self.is_late = now > self.ends and epoch + 1 >= least_epochs(self.settings)
        self.epochs.append(epoch + 1)
        self.log_densities.append(self.scored.log_density(self.held_out))
        self.weights.append(self.model.get_weights())
        since_best = len(self) - 1 - int(np.argmax([self.total(d) for d in self.log_densities]))
        self.model.stop_training = self.is_late or since_best >= _PATIENCE
