"""A model's scores, calibration and pictures on one page."""

import datetime
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tfp_fnspace import files
from tfp_fnspace.boundary import arguments, arrays
from tfp_fnspace.boundary.columns import column_names
from tfp_fnspace.metrics import scores
from tfp_fnspace.metrics.scores_of_classes import class_probabilities
from tfp_fnspace.plotting import page, score_tables, style, tables
from tfp_fnspace.plotting.calibration import (
    plot_calibration,
    plot_pit_histogram,
    plot_reliability,
    plot_sharpness,
)
from tfp_fnspace.plotting.dependence import likelihood_of_classes, plot_partial_dependence
from tfp_fnspace.plotting.residuals import plot_residuals
from tfp_fnspace.typing import ArrayLike, Distribution

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Inputs with pictures, if the user does not choose.
_MOST_COLUMNS = 8

#: Rows that a partial dependence averages over if functions are drawn jointly, in cubic time.
_JOINT_ROWS = 20

#: The least rows that are split into fifths.
_LEAST_ROWS = 25

#: Sizes of pictures in inches, such that their text can be read on a phone.
_SIZE, _SQUARE = (4.8, 3.8), (4.6, 4.6)


class _Rows(NamedTuple):
    """Rows and their predictions.

    Attributes:
        model: The model or the estimator.
        x: Inputs, as given.
        y: Targets `[N, D]`, or labels from 0; float64, NaN where missing.
        distribution: Prediction of the targets.
        constant: The constant forecast.
        classes: Likelihood of a classifier, else `None`.
    """

    model: Any
    x: Any
    y: np.ndarray
    distribution: Distribution
    constant: Distribution
    classes: Any


def write_report(
    model: Any,
    x: ArrayLike,
    y: ArrayLike,
    path: str | os.PathLike[str],
    *,
    groups: ArrayLike | None = None,
    columns: Sequence[int | str] | None = None,
    title: str | None = None,
) -> Path:
    """Writes scores, calibration and pictures of a model to one HTML file that reads offline.

    The scores are those of `evaluate` and others, beside those of a constant forecast: the
    distribution of the same targets whatever the inputs are. There are scores by group, and by
    fifths of the prediction, by output or by predicted class. The pictures are those of this module
    that suit the model. Pictures by input need a table of inputs. Classes have no residuals.

    Take rows that the model has not seen: only they tell how good it is. The time grows with the
    number of groups, and with the number of inputs that have pictures.

    Args:
        model: Fitted `FunctionSpaceModel`, or an estimator of `tfp_fnspace.sklearn`.
        x: Rows, as for `predict`; the names of a data frame are shown.
        y: Targets `[N, D]` or `[N]`, as for `fit`.
        path: Path of the file; an existing one is replaced in one step.
        groups: Labels of groups of rows `[N]`, numbers or words, for a table of their scores.
        columns: Inputs with pictures, by number or by name; None takes the first eight.
        title: Title of the page; None makes one of the model's class.

    Returns:
        The path.

    Raises:
        TypeError: If the model is not one, or the data or the path are of a wrong type.
        ValueError: If x and y do not fit the model, or a column or a label is missing.
        OSError: If the file cannot be written; an existing one is then unchanged.
        ImportError: If matplotlib is not installed.

    Example:
        >>> x, y, x_test, y_test, names = tfp_fnspace.datasets.example_table()
        >>> model = tfp_fnspace.diwp.DIWPModel(tfp_fnspace.diwp.DeepKernel(20, hidden="none"))
        >>> history = model.fit(x, y, epochs=20, batch_size=500)
        >>> path = tfp_fnspace.plotting.write_report(
        ...     model, x_test, y_test, "report.html", columns=[0]
        ... )
    """
    arguments.check_model(model, "predict", "predict_distribution", "sample_functions")
    path = files.checked_path("path", path)
    shown, note = _columns(x, columns)
    rows = _rows(model, x, y)
    parts = [*_summary(rows), *_scores(rows, groups), *_calibration(rows)]
    parts += _by_input(rows, shown, note)
    text = page.page(title or f"Report of a {type(model).__name__}", parts)
    with files.replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")
    return path


def _columns(x, columns):
    """Returns the inputs with pictures, and a sentence on those without."""
    if not tables.is_table(x):
        if columns is not None:
            raise ValueError(
                f"`columns` must be None for inputs that are no table. Received: columns={columns}"
            )
        return [], "The inputs are no table, so there are no pictures by input."
    if columns is not None:
        return [tables.column_of(x, column).number for column in columns], ""
    total = tables.num_columns(x)
    note = f"These are the first {_MOST_COLUMNS} of {total} inputs; `columns` chooses others."
    return list(range(min(total, _MOST_COLUMNS))), note if total > _MOST_COLUMNS else ""


def _rows(model, x, y):
    """Predicts, and checks that the targets fit."""
    classes = likelihood_of_classes(model)
    if hasattr(model, "classes_"):
        y = arrays.places_of(y, model.classes_).reshape(-1)
    distribution = model.predict_distribution(x)
    targets, _, _ = scores.align(y, distribution)
    targets = np.asarray(targets, np.float64).reshape(len(targets), -1)
    if np.all(np.isnan(targets)):
        raise ValueError("`y` must have an observation. Received: y without known values")
    constant = score_tables.constant_forecast(targets, distribution)
    return _Rows(model, x, targets, distribution, constant, classes)


def _summary(rows):
    now = datetime.datetime.now().astimezone()
    of_model = getattr(rows.model, "model_", rows.model)
    model = _in_words(of_model)
    if of_model is not rows.model:
        model = f"{type(rows.model).__name__}, whose model is a {model}"
    names = [str(name) for name in column_names(rows.x) or []]
    inputs = f"{len(names)} inputs ({', '.join(names)})" if names else "inputs without names"
    if not names and tables.is_table(rows.x):
        inputs = f"{tables.num_columns(rows.x)} inputs"
    targets = f"{rows.y.shape[1]} target" + "s" * (rows.y.shape[1] > 1)
    what = f"{model}. {len(rows.y)} rows, {inputs}, {targets}."
    note = f"Written on {now:%Y-%m-%d at %H:%M %Z}."
    return [page.paragraph(what), page.paragraph(note, note=True)]


def _in_words(model):
    """Returns the class of a model and its likelihood, or what it is made of."""
    name, member = type(model).__name__, getattr(model, "member", None)
    members = getattr(model, "members", [member] if member is not None else [])
    if members:
        return f"{name} of {' and '.join(map(_in_words, members))}"
    return f"{name} with the likelihood {type(model.likelihood).__name__}"


def _scores(rows, groups):
    """Returns the parts of the page with tables of scores."""
    known = score_tables.OF_NUMBERS if rows.classes is None else score_tables.OF_CLASSES
    if rows.classes is None and rows.y.shape[1] > 1:
        known = known | score_tables.OF_OUTPUTS
    what = rows.y, rows.distribution
    of_all = score_tables.of_all_rows(known, *what, rows.constant)
    parts = [page.heading("Scores"), page.table(["", "model", "constant", "meaning"], of_all)]
    text = "constant: a forecast of the same distribution for all rows, that of these targets."
    if rows.classes is None:
        text += " Its nll is that of a normal distribution with their mean and standard deviation."
    parts.append(page.paragraph(text, note=True))
    if groups is not None:
        names, found = score_tables.by_group(known, *what, groups)
        table = [[str(label), *values] for label, values in found.items()]
        parts += [page.heading("Scores by group"), page.table(["group", *names], table)]
    if rows.y.shape[1] > 1:
        of_model = getattr(rows.model, "model_", rows.model)
        outputs = getattr(of_model, "target_names", None) or range(rows.y.shape[1])
        table = score_tables.by_output(known, *what, outputs)
        parts += [page.heading("Scores by output"), page.table(*table)]
    elif rows.classes is not None:
        parts += [page.heading("Scores by predicted class"), page.table(*_by_class(rows, known))]
    elif len(rows.y) >= _LEAST_ROWS:
        table = score_tables.by_prediction(known, *what)
        parts += [page.heading("Scores by size of the prediction"), page.table(*table)]
    return parts


def _by_class(rows, known):
    """Returns the columns and rows of the table of scores by predicted class."""
    _, probabilities, _ = class_probabilities(rows.y, rows.distribution)
    predicted = np.argmax(probabilities, axis=-1).reshape(-1)
    names, found = score_tables.by_group(known, rows.y, rows.distribution, predicted)
    classes = getattr(rows.model, "classes_", range(probabilities.shape[-1]))
    table = [[str(classes[label]), *values] for label, values in found.items()]
    return ["predicted class", *names], table


def _calibration(rows):
    """Returns the part of the page with pictures of all rows."""
    y, distribution = rows.y, rows.distribution
    if rows.classes is not None:
        is_binary = class_probabilities(y, distribution)[1].shape[-1] == 2
        label = 1 if is_binary else None
        caption = "Reliability: how often predictions come true. The diagonal is right."
        found = [_drawn(caption, _SQUARE, plot_reliability, y, distribution, label=label)]
        return [page.heading("Calibration"), page.pictures(found)]
    found = [
        _drawn(
            "Calibration: the share of observations below each quantile. The diagonal is right.",
            _SQUARE,
            plot_calibration,
            y,
            distribution,
        ),
        _drawn(
            "PIT: flat is right, a hump says too wide, a U too narrow, a slope too high or low.",
            _SIZE,
            plot_pit_histogram,
            y,
            distribution,
        ),
        _drawn(
            "Sharpness: the lower curve is the better one. The reference is the constant forecast.",
            _SIZE,
            plot_sharpness,
            y,
            distribution,
            rows.constant,
        ),
    ]
    return [page.heading("Calibration and sharpness"), page.pictures(found)]


def _by_input(rows, shown, note):
    """Returns the parts of the page with pictures for each input."""
    parts = []
    names = [tables.column_of(rows.x, number).name for number in shown]
    if shown and rows.classes is None:
        found = [
            _drawn(
                f"Residuals by {name}",
                _SIZE,
                plot_residuals,
                rows.x,
                rows.y,
                rows.distribution,
                number,
            )
            for number, name in zip(shown, names, strict=True)
        ]
        parts += [page.heading("Residuals by input"), page.pictures(found)]
        text = "Right is a mean of 0 and a standard deviation of 1 everywhere."
        parts.append(page.paragraph(text, note=True))
    if shown:
        is_joint = getattr(rows.model, "model_", rows.model).draws_jointly
        fewer = {"num_rows": _JOINT_ROWS} if is_joint else {}
        found = [
            _drawn(
                f"Average prediction by {name}",
                _SIZE,
                plot_partial_dependence,
                rows.model,
                rows.x,
                number,
                **fewer,
            )
            for number, name in zip(shown, names, strict=True)
        ]
        parts += [page.heading("Partial dependence"), page.pictures(found)]
        text = "The average over rows when one input is moved. The band is epistemic."
        parts.append(page.paragraph(text, note=True))
    return [*parts, *([page.paragraph(note, note=True)] if note else [])]


def _drawn(
    caption: str, size: tuple[float, float], draw: Callable[..., Any], *args: Any, **options: Any
) -> tuple["Figure", str]:
    """Returns a figure and its caption."""
    figure = style.figure(size)
    draw(*args, ax=figure.subplots(), **options)
    return figure, caption
