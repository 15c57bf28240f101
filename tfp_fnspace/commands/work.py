"""The work of the commands `fit`, `predict`, `evaluate` and `export`."""

import itertools
import os
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from tfp_fnspace import calibration, metrics
from tfp_fnspace.benchmark.records import versions
from tfp_fnspace.boundary import arguments, arrays
from tfp_fnspace.commands import folder, reading
from tfp_fnspace.commands.folder import Saved
from tfp_fnspace.commands.schema import CATEGORY, Schema

#: Share of the rows that `fit` keeps to calibrate the model, and the least number of them.
CALIBRATION_SHARE, _LEAST_ROWS = 0.2, 20

Echo = Callable[[str], None]


def estimator_of(method: str, task: str, time_limit: float, seed: int) -> Any:
    """Returns an estimator that is not fitted.

    Args:
        method: `"auto"` for several methods at once, or the name of a method.
        task: `"regression"` or `"classification"`.
        time_limit: About the seconds of its `fit`; a step that has begun is finished.
        seed: Its `random_state`.

    Raises:
        ValueError: If the method is unknown, or has no estimator for the task.
    """
    from tfp_fnspace import sklearn

    ending = "Regressor" if task == "regression" else "Classifier"
    classes = [getattr(sklearn, name) for name in sklearn.__all__ if name.endswith(ending)]
    known = {each.method or "auto": each for each in classes}
    arguments.checked_choice(f"method of {task}", method, sorted(known))
    return known[method](time_limit=time_limit, random_state=seed, verbose=1)


def fit(
    data: str | os.PathLike[str],
    target: str,
    out: str | os.PathLike[str],
    *,
    method: str = "auto",
    task: str | None = None,
    time_limit: float = 60.0,
    calibrate: bool = False,
    test: float = 0.0,
    categories: Sequence[str] = (),
    drop: Sequence[str] = (),
    seed: int = 0,
    echo: Echo = print,
) -> None:
    """Fits an estimator to a table and writes it to a folder.

    Args:
        data: File of the table, see `reading.read`.
        target: Name of the target.
        out: Folder to write, see `folder.save`.
        method: As for `estimator_of`.
        task: As for `Schema.of`.
        time_limit: About the seconds of the fit; a step that has begun is finished.
        calibrate: Whether to keep a fifth of the rows out of the fit and calibrate on them.
        test: Share of the rows that are kept for `evaluate`, in [0, 1).
        categories: As for `Schema.of`.
        drop: As for `Schema.of`.
        seed: Non-negative integer.
        echo: Function that prints a line.

    Raises:
        ValueError: If the table, a name or a setting is bad.
    """
    out = folder.check(out)
    table = reading.read(data)
    schema = Schema.of(table, target, task, categories, drop)
    estimator = estimator_of(method, schema.task, time_limit, seed)
    echo(f"{data}: {len(table)} rows")
    for line in schema.lines(table):
        echo(line)
    known, _ = schema.targets(table)
    table = table[known].reset_index(drop=True)
    rows, kept, tested = _split(len(table), CALIBRATION_SHARE if calibrate else 0.0, test, seed)
    if schema.task == "classification":  # the fit has all classes that are calibrated
        _, y = schema.targets(table)
        is_known = np.isin(y[kept], y[rows])
        rows, kept = np.sort(np.concatenate([rows, kept[~is_known]])), kept[is_known]
    begin = time.monotonic()
    estimator.fit(schema.inputs(table.iloc[rows]), schema.targets(table.iloc[rows])[1])
    seconds = time.monotonic() - begin
    echo(f"fitted to {len(rows)} rows in {seconds:.0f} s")
    for line in _board(estimator):
        echo(line)
    if calibrate:
        estimator = _calibrated(estimator, schema, table.iloc[kept], echo)
    card = {
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "data": str(data),
        "rows": {"fit": len(rows), "calibration": len(kept), "test": len(tested)},
        "method": method,
        "seconds": round(seconds, 1),
        "versions": versions(),
    }
    test_rows = table.iloc[tested] if len(tested) else None
    folder.save(out, Saved(estimator, schema, card), test_rows)
    echo(f"wrote {out}{os.sep}")
    if len(tested):
        echo(f"{len(tested)} rows were kept for scores: tfp-fnspace evaluate --model {out}")


def _split(num_rows, for_calibration, for_test, seed):
    """Returns the numbers of the rows to fit, to calibrate and to test, three arrays."""
    if not 0.0 <= for_test < 1.0:
        raise ValueError(f"`test` must be a share of the rows in [0, 1). Received: test={for_test}")
    order = np.random.default_rng(seed).permutation(num_rows)
    num_tested = round(for_test * num_rows)
    left = num_rows - num_tested
    num_kept = max(round(for_calibration * left), _LEAST_ROWS) if for_calibration else 0
    if left - num_kept < 2:
        raise ValueError(
            "The table must have more rows than are kept for calibration and scores. "
            f"Received: {num_rows} rows, {num_kept} and {num_tested} of them kept"
        )
    parts = np.split(order, [num_tested, num_tested + num_kept])
    tested, kept, rows = (np.sort(part) for part in parts)
    return rows, kept, tested


def _board(estimator):
    """Yields lines of what was tried."""
    board = getattr(estimator, "leaderboard_", [])
    for each in (each for each in board if each["weight"]):
        score = f"held-out log density alone {each['log_density']:.4g} nats"
        yield f"  {100 * each['weight']:3.0f} % {each['method']}, {score}"


def _calibrated(estimator, schema, table, echo):
    inputs, (_, y) = schema.inputs(table), schema.targets(table)
    if schema.task == "classification":
        found = calibration.calibrate(estimator, inputs, y)
        (temperature,) = found.model_.adjustment.temperature
        echo(f"calibrated on {len(y)} rows: temperature {temperature:.3g}")
        return found
    inside = metrics.interval_coverage(y[:, None], estimator.predict_distribution(inputs), 0.9)
    echo(
        f"calibrated on {len(y)} rows; {float(inside):.0%} were inside their 90 % intervals before"
    )
    return calibration.recalibrate(estimator, inputs, y)


def predict(
    model: str | os.PathLike[str],
    data: str | os.PathLike[str],
    out: str | os.PathLike[str] | None,
    *,
    level: float = 0.9,
    echo: Echo = print,
) -> None:
    """Predicts the rows of a table.

    Args:
        model: Folder of a fitted model.
        data: File of the table; it need not have the target.
        out: File to write, or `None` to print the first rows only.
        level: Probability of the intervals, in (0, 1).
        echo: Function that prints a line.

    Raises:
        ValueError: If the table or a setting is bad.
    """
    if out is not None:
        reading.check_name(out)
    saved = folder.load(model)
    table = reading.read(data)
    found = predictions(saved, table, level)
    if out is None:
        echo(found.head(20).to_string(index=False, float_format="%.6g"))
        return
    reading.write(found, out)
    echo(f"wrote {len(found)} rows of {', '.join(found.columns)} to {out}")


def predictions(saved: Saved, table: Any, level: float) -> Any:
    """Returns the predictions of the rows of a table, a `pandas.DataFrame`.

    Args:
        saved: `Saved`.
        table: `pandas.DataFrame`.
        level: Probability of the intervals.

    Returns:
        For regression, columns `mean`, `stddev` (of an observation), `epistemic_stddev`, `median`,
        `low` and `high`, which enclose the central interval. For classes, `class`, a column
        `probability of <class>` for each, and `mutual_information` in nats.
    """
    import pandas

    arguments.checked_level(level)
    inputs = saved.schema.inputs(table)
    if saved.schema.task == "classification":
        classes = saved.estimator.classes_
        found = saved.estimator.predict_entropies(inputs)
        probabilities = found["probabilities"]
        names = [f"probability of {name}" for name in classes]
        columns = dict(zip(names, probabilities.T, strict=True))
        columns["mutual_information"] = found["mutual_information"]
        return pandas.DataFrame({"class": classes[probabilities.argmax(axis=1)], **columns})
    moments = saved.estimator.predict_moments(inputs)
    tail = (1.0 - level) / 2.0
    low, median, high = saved.estimator.predict_quantiles(inputs, [tail, 0.5, 1.0 - tail]).T
    spreads = {name: moments[name] for name in ("mean", "stddev", "epistemic_stddev")}
    return pandas.DataFrame({**spreads, "median": median, "low": low, "high": high})


def predictions_of_each(saved: Saved, tables: Sequence[Any], level: float) -> list[Any]:
    """Returns the predictions of several tables, which are predicted together.

    Args:
        saved: `Saved`.
        tables: `pandas.DataFrame`s of objects.
        level: Probability of the intervals.

    Returns:
        List with the predictions of each table, or with the error of a table that has none.
    """
    import pandas

    try:
        found = predictions(saved, pandas.concat(tables, ignore_index=True), level)
    except Exception as error:  # any error, since the others are predicted nevertheless
        if len(tables) == 1:
            return [error]
        half = len(tables) // 2  # one bad table of many then costs few predictions
        parts = tables[:half], tables[half:]
        return [each for part in parts for each in predictions_of_each(saved, part, level)]
    ends = itertools.accumulate(map(len, tables), initial=0)
    return [found.iloc[a:b] for a, b in itertools.pairwise(ends)]


def evaluate(
    model: str | os.PathLike[str],
    data: str | os.PathLike[str] | None = None,
    report: str | os.PathLike[str] | None = None,
    echo: Echo = print,
) -> None:
    """Scores a model on the rows of a table, and writes a page of pictures.

    Args:
        model: Folder of a fitted model.
        data: File of the table with the target; by default the rows that `fit` kept.
        report: HTML file to write, or `None`.
        echo: Function that prints a line.

    Raises:
        ValueError: If the table is bad.
    """
    saved = folder.load(model)
    data = folder.test_rows(model) if data is None else data
    table = reading.read(data)
    known, y = saved.schema.targets(table)
    inputs = saved.schema.inputs(table[known])
    echo(f"{data}: {len(y)} rows")
    known = _known_scores(saved.schema)
    for name, value in scores(saved, inputs, y).items():
        echo(f"  {name:<18} {value:<9.4g}  {known[name].meaning}")
    if report is not None:
        from tfp_fnspace import plotting

        plotting.write_report(saved.estimator, inputs, y, report)
        echo(f"wrote {report}")


def scores(saved: Saved, inputs: Any, y: Any) -> dict[str, float]:
    """Returns scores by their names, in the units of the target and in nats.

    Args:
        saved: `Saved`.
        inputs: Table of inputs.
        y: Targets of the task.

    Raises:
        ValueError: If a label is none of the classes of the fit.
    """
    if saved.schema.task == "classification":
        y = arrays.places_of(y, saved.estimator.classes_)
    else:
        y = y[:, np.newaxis]
    distribution = saved.estimator.predict_distribution(inputs)
    known = _known_scores(saved.schema)
    return {name: float(each.function(y, distribution)) for name, each in known.items()}


def _known_scores(schema):
    from tfp_fnspace.plotting import score_tables

    is_of_classes = schema.task == "classification"
    return score_tables.OF_CLASSES if is_of_classes else score_tables.OF_NUMBERS


def export(
    model: str | os.PathLike[str],
    out: str | os.PathLike[str],
    format: str = "tf_saved_model",
    echo: Echo = print,
) -> None:
    """Writes the model of a folder for programs without this library.

    Args:
        model: Folder of a fitted model.
        out: Folder of the SavedModel, or file, to write.
        format: As for `FunctionSpaceModel.export`.
        echo: Function that prints a line.

    Raises:
        ImportError: If a package is missing.
        NotImplementedError: If the model has something that the format cannot express.
        ValueError: If the folder to write holds other things, or the format does not fit the name.
    """
    from tfp_fnspace.sklearn.served import tensor_names

    saved = folder.load(model)
    saved.estimator.export(out, format=format)
    columns = [column.name for column in saved.schema.used]
    if format == "tf_saved_model":
        kinds = ["text" if column.kind == CATEGORY else "number" for column in saved.schema.used]
        pairs = zip(tensor_names(columns), kinds, strict=True)
        shown = ", ".join(f"{name} ({kind})" for name, kind in pairs)
        echo(f"wrote {out}, which takes the columns as they are: {shown}")
        return
    names = ", ".join(saved.estimator.encoder_.get_feature_names_out(columns))
    echo(f"wrote {out}, which takes the columns encoded as these numbers: {names}")
    echo(f"{format} has no text, so whoever calls it must encode; a SavedModel encodes by itself")
