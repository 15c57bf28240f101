"""From a table to a fitted model, without a setting by hand: what the recipes of methods share.

A recipe is a module of three functions. `candidates(table)` is a list of settings, dicts that JSON
can hold, the most likely first; `build(settings, table, seed)` is a compiled model that is not
fitted; `scale_noise(model, factor)` multiplies the standard deviation of a fitted model's noise.
`BUILDS_FROM_ROWS` says whether `build` looks at values: then held-out rows ask for another model.
Each candidate is tried on held-out rows, which tell the number of epochs and by how much the noise
is too small; the best by their mean log density is fitted to all rows.
"""

import time
from dataclasses import dataclass

import keras
import numpy as np

#: From so many rows on a part is held out; with fewer rows there are `_NUM_FOLDS` folds.
_ROWS_FOR_ONE_PART = 500
_NUM_FOLDS = 5

#: The part of the rows that is held out, and the most rows that it has.
_HELD_OUT, _MOST_HELD_OUT = 0.2, 2000

#: The part of the time that trials may take; the rest is for the fit to all rows.
TIME_FOR_TRIALS = 0.6

#: Factors of the standard deviation of the noise, one of which held-out rows choose: a network that
#: has seen a row is closer to it than to others, and takes its noise for smaller than it is.
_NOISE_FACTORS = (1.0, 0.7, 0.85, 1.15, 1.3, 1.5, 1.75, 2.0, 2.5, 3.0)

#: A learnt scale of the noise must lie above its least one, at least by this factor.
_ABOVE_LEAST = 1.01

#: Epochs without a better held-out density after which a trial ends.
_PATIENCE = 10


@dataclass(frozen=True)
class Table:
    """The rows that a model is fitted to.

    Attributes:
        x: Inputs `[N, X]`, float64; or a list of their means and variances, both `[N, X]`.
        y: Targets `[N, D]`, or labels `[N]`, integers from 0.
        num_classes: Number of classes, or `None` of a regression.
    """

    x: np.ndarray | list
    y: np.ndarray
    num_classes: int | None = None

    @property
    def inputs(self):
        """List of the arrays of inputs."""
        return self.x if isinstance(self.x, list) else [self.x]

    @property
    def num_rows(self):
        return len(self.y)

    @property
    def num_inputs(self):
        return self.inputs[0].shape[1]

    @property
    def num_outputs(self):
        return self.num_classes or self.y.shape[1]

    @property
    def has_variances(self):
        """Whether the inputs are means and variances."""
        return isinstance(self.x, list)

    def rows(self, index):
        """The table of some rows."""
        inputs = [values[index] for values in self.inputs]
        x = inputs if self.has_variances else inputs[0]
        return Table(x, self.y[index], self.num_classes)


@dataclass(frozen=True)
class Trial:
    """What held-out rows say of a candidate.

    Attributes:
        settings: The settings of the candidate, with the number of epochs that was best.
        rows: Numbers of the held-out rows `[H]`.
        log_density: Log density of their targets, `[H]`.
        seconds: What the trial took.
    """

    settings: dict
    rows: np.ndarray
    log_density: np.ndarray
    seconds: float

    @property
    def score(self):
        """Mean held-out log density, in nats."""
        return float(np.mean(self.log_density))


@dataclass(frozen=True)
class Fitted:
    """A model that is fitted to all rows.

    Attributes:
        model: `FunctionSpaceModel`.
        settings: What was chosen, a dict that JSON can hold.
        score: Mean held-out log density of the choice, in nats.
        trials: List of `Trial`, one for each candidate that was tried.
    """

    model: keras.Model
    settings: dict
    score: float
    trials: list


def fit_table(recipe, x, y, *, time_limit=60.0, seed=0, num_classes=None, report=None):
    """Chooses settings on held-out rows and fits a model with them to all rows.

    Args:
        recipe: Module of a recipe, `tfp_fnspace.methods.tagi.recipe` for example.
        x: Inputs `[N, X]`, or a list of their means and variances.
        y: Targets `[N, D]`, or integer labels `[N]`.
        time_limit: Seconds that trials and fit are to take together. What has begun is finished.
        seed: Non-negative integer.
        num_classes: Number of classes, of a classification.
        report: Function of the part that is done, from 0 to 1, and a text; `None` reports nothing.

    Returns:
        `Fitted`.
    """
    begin = time.monotonic()
    table = Table(x, y, num_classes)
    trials = try_candidates(recipe, table, time_limit * TIME_FOR_TRIALS, seed, report)
    best = max(trials, key=lambda trial: trial.score)
    model = fit_as_tried(recipe, table, best, time_limit - (time.monotonic() - begin), seed)
    if report is not None:
        report(1.0, "fitted to all rows")
    return Fitted(model, best.settings, best.score, trials)


def held_out_parts(num_rows, seed):
    """Row numbers to hold out: a list of one array or, of few rows, of one for each fold.

    Args:
        num_rows: Number of rows, at least 2.
        seed: Non-negative integer.
    """
    order = np.random.default_rng(seed).permutation(num_rows)
    if num_rows < _ROWS_FOR_ONE_PART:
        # Of one size, so that nothing is traced anew: the rows that are left over always train.
        size = max(num_rows // _NUM_FOLDS, 1)
        return [order[i * size : (i + 1) * size] for i in range(min(_NUM_FOLDS, num_rows))]
    return [order[: min(int(_HELD_OUT * num_rows), _MOST_HELD_OUT)]]


def try_candidates(recipe, table, seconds, seed, report=None):
    """Tries the candidates of a recipe in their order until the time is over, the first always.

    Args:
        recipe: Module of a recipe.
        table: `Table`.
        seconds: Time for all trials. A candidate begins only if the longest one so far would fit.
        seed: Non-negative integer.
        report: As for `fit_table`.

    Returns:
        List of `Trial`, at least one.
    """
    begin, trials = time.monotonic(), []
    candidates = recipe.candidates(table)
    for i, settings in enumerate(candidates):
        left = seconds - (time.monotonic() - begin)
        if trials and max(trial.seconds for trial in trials) > left:
            break
        trials.append(_try(recipe, table, settings, max(left, 0.5 * seconds), seed))
        if report is not None:
            report((i + 1) / (len(candidates) + 1), f"held-out log density {trials[-1].score:.4g}")
    return trials


def _try(recipe, table, settings, seconds, seed):
    """Fits a candidate without each held-out part in turn."""
    begin = time.monotonic()
    parts = held_out_parts(table.num_rows, seed)
    model_for, tried, paths = _model_for(recipe, table, settings, seed), [], []
    for i, part in enumerate(parts):
        train = table.rows(np.setdiff1d(np.arange(table.num_rows), part))
        ends = begin + seconds * (i + 1) / len(parts)
        tried.append(model_for(train))
        paths.append(_path(tried[-1], settings, train, table.rows(part), ends))
    # One number of epochs for all parts: the best of each would promise too much.
    sums = [sum(sum(path.log_densities[i]) for path in paths) for i in range(min(map(len, paths)))]
    best, epochs = int(np.argmax(sums)), min(paths, key=len).epochs
    is_cut = any(path.is_late for path in paths)
    densities = []
    for part, path, model in zip(parts, paths, tried, strict=True):
        model.set_weights(path.weights[best])
        densities.append(_densities_by_factor(recipe, model, table.rows(part)))
    densities = np.concatenate(densities, axis=1)  # [factors, H]
    factor = int(np.argmax(densities.mean(axis=1)))
    chosen = {
        **settings,
        # Where time ended a fit that was getting better, it ends the last fit too.
        "epochs": settings["epochs"] if is_cut and best + 1 == len(sums) else epochs[best],
        "noise_factor": _NOISE_FACTORS[factor],
    }
    return Trial(chosen, np.concatenate(parts), densities[factor], time.monotonic() - begin)


def _model_for(recipe, table, settings, seed):
    """A function of the rows to train on that gives a model which has not learnt from any.

    It is one model, put back each time, so that its steps are traced once; where `build` looks at
    the rows, a model for each call.
    """
    if recipe.BUILDS_FROM_ROWS:
        return lambda train: recipe.build(settings, train, seed)
    model = recipe.build(settings, table, seed)
    model.adapt(table.x, table.y)
    initial = model.get_weights()

    def put_back(_):
        model.set_weights(initial)
        return model

    return put_back


def _densities_by_factor(recipe, model, held_out):
    """Held-out log densities for each factor of the noise, `[factors, H]`."""
    fitted, found = model.get_weights(), []
    for factor in _factors(held_out):
        model.set_weights(fitted)
        if factor != 1.0:
            recipe.scale_noise(model, factor)
        found.append(log_density(model, held_out))
    return np.stack(found)


def _factors(table):
    """Labels have no noise that could be too small."""
    return _NOISE_FACTORS if table.num_classes is None else _NOISE_FACTORS[:1]


def _path(model, settings, train, held_out, ends):
    """Fits, and keeps what held-out rows said after which epochs, a `_Path`."""
    path = _Path(held_out, settings, ends)
    model.fit(
        train.x,
        train.y,
        batch_size=settings["batch_size"],
        epochs=settings["epochs"],
        callbacks=[path],
        verbose=0,
    )
    return path


class _Path(keras.callbacks.Callback):
    """Held-out log densities and weights along a fit; ends it when they fall, or in time.

    Attributes:
        epochs: Numbers of epochs after which rows were looked at, a list.
        log_densities: Arrays `[H]`, one for each.
        weights: Lists of arrays, one for each.
        is_late: Whether time ended the fit.
    """

    def __init__(self, held_out, settings, ends):
        super().__init__()
        self.held_out, self.settings, self.ends = held_out, settings, ends
        self.epochs, self.log_densities, self.weights, self.is_late = [], [], [], False

    def __len__(self):
        return len(self.epochs)

    def on_epoch_end(self, epoch, logs=None):
        self.is_late = time.monotonic() > self.ends
        is_last = self.is_late or epoch + 1 == self.settings["epochs"]
        if not is_last and (epoch + 1) % self.settings["epochs_between_looks"]:
            return
        self.epochs.append(epoch + 1)
        self.log_densities.append(log_density(self.model, self.held_out))
        self.weights.append(self.model.get_weights())
        since_best = len(self) - 1 - int(np.argmax([d.mean() for d in self.log_densities]))
        self.model.stop_training = self.is_late or since_best >= _PATIENCE


def fit_as_tried(recipe, table, trial, seconds, seed):
    """A model with the settings of a trial, fitted to all rows.

    Args:
        recipe: Module of a recipe.
        table: `Table`.
        trial: `Trial`.
        seconds: Time after which the fit ends at the next epoch.
        seed: Non-negative integer.

    Returns:
        Fitted model.
    """
    model = recipe.build(trial.settings, table, seed)
    model.fit(
        table.x,
        table.y,
        batch_size=trial.settings["batch_size"],
        epochs=trial.settings["epochs"],
        callbacks=[_StopAt(time.monotonic() + seconds)],
        verbose=0,
    )
    if trial.settings["noise_factor"] != 1.0:
        recipe.scale_noise(model, trial.settings["noise_factor"])
    return model


def scale_learnt_noise(model, factor):
    """Multiplies the standard deviation of a Gaussian likelihood's noise, down to its least one.

    Args:
        model: Fitted model with `likelihoods.Gaussian`, its scale trained by gradients.
        factor: Positive number.
    """
    likelihood = model.likelihood
    scale = factor * keras.ops.convert_to_numpy(likelihood.scale)
    likelihood.set_scale(np.maximum(scale, _ABOVE_LEAST * likelihood.min_scale))


def log_density(model, table):
    """Log density of the targets of a table under a fitted model, `[N]`, float64."""
    distribution = model.predict_distribution(table.x)
    values = distribution.log_prob(table.y).numpy().astype(np.float64)
    # A density of 0 or NaN at one row must lose to any number, and stay comparable.
    return np.maximum(np.nan_to_num(values, nan=-np.inf), -1e6)


class _StopAt(keras.callbacks.Callback):
    """Ends `fit` after the epoch in which a time is passed."""

    def __init__(self, ends):
        super().__init__()
        self.ends = ends

    def on_epoch_end(self, epoch, logs=None):
        if time.monotonic() > self.ends:
            self.model.stop_training = True
