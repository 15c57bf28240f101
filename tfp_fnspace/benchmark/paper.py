"""The protocols of the papers on data sets with fixed splits: resumable, a cell at a time."""

import json
import time

import keras
import numpy as np

from tfp_fnspace import metrics, registry
from tfp_fnspace.arguments import check_count, is_number
from tfp_fnspace.benchmark.records import add_records, machine, read_records, versions
from tfp_fnspace.benchmark.selection import load, parse_splits

#: What a cell costs whatever its size (tracing, compiling), in rows: for the time left.
_FIXED_WORK = 3000

#: What a record of `run_uci` must have.
_FIELDS = {
    **dict.fromkeys(("method", "dataset"), str),
    **dict.fromkeys(("rmse", "nll", "seconds"), int | float),
    "split": int,
    "config": dict,
}


def parse_settings(settings):
    """Configuration entries from words such as `epochs=5` or `moments=["linearized"]`.

    Args:
        settings: List of words `key=value`, values in JSON (bare words are strings).

    Returns:
        Dict.

    Raises:
        ValueError: If a word has no `=`.
    """
    values = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not key or not equals:
            raise ValueError(f"A setting must have the form key=value. Received: {setting!r}")
        try:
            values[key] = json.loads(text)
        except json.JSONDecodeError:
            values[key] = text
    return values


def _override(config, overrides):
    unknown = sorted(set(overrides) - set(config))
    if unknown:
        raise ValueError(f"A setting must be one of {sorted(config)}. Received: {unknown}")
    for name, value in overrides.items():
        if value is None and config[name] is not None:
            raise ValueError(
                f"A setting must not be null where it is {config[name]!r} by default. "
                f"Received: {name}=null"
            )
        if is_number(config[name]) and not is_number(value):
            raise ValueError(
                f"A setting must be a number where it is {config[name]!r} by default. "
                f"Received: {name}={value!r}"
            )
    return {**config, **overrides}


def score(model, split):
    """Scores of a fitted model on the test rows of a split, in the user's units."""
    distribution = model.predict_distribution(split.x_test)
    y = np.asarray(split.y_test, np.float64)
    names = ("rmse", "mae", "nll", "crps")
    scores = {name: float(getattr(metrics, name)(y, distribution)) for name in names}
    scores["coverage_90"] = float(metrics.interval_coverage(y, distribution, 0.9))
    scores["width_90"] = float(metrics.interval_width(y, distribution, 0.9))
    return scores


def run_uci(methods, names, splits, data_dir, out, seed=0, overrides=None, echo=print):
    """Fits and scores every method on every split of every data set, in the order given.

    Each cell is written to `out` when it is done; cells that are there with the same
    configuration are kept, so that a killed run resumes.

    Args:
        methods: Names from `registry.METHODS`.
        names: Names of data sets.
        splits: See `parse_splits`.
        data_dir: Folder of `<name>.npz`, or its parent.
        out: Results file, JSON.
        seed: Integer; split k uses `seed + k`.
        overrides: Dict that replaces entries of the method's configuration, by `parse_settings`.
        echo: Function that prints a line.

    Returns:
        List of records.

    Raises:
        ValueError: If a name is unknown, or, after all cells ran, if one had bad data.
    """
    check_count("seed", seed, 0)
    cells, loaded = [], {}
    for method_name in methods:
        recipe = registry.method(method_name)
        for name in names:
            loaded[name] = loaded.get(name) or load(name, data_dir)
            for k in parse_splits(splits, loaded[name].num_splits):
                config = _override(recipe.uci_config(name, seed + k), overrides or {})
                # As JSON gives it back: a tuple would never equal the list of a record.
                cells.append((method_name, name, k, json.loads(json.dumps(config))))
    records = read_records(out, _FIELDS)
    todo = [cell for cell in cells if not any(_same(cell, record) for record in records)]
    echo(f"{len(cells)} cells, {len(cells) - len(todo)} of them done before")
    work = [_FIXED_WORK + len(loaded[name].x) for _, name, _, _ in todo]
    begin, failed = time.monotonic(), []
    for i, (method_name, name, k, config) in enumerate(todo):
        try:
            record = _run_cell(method_name, loaded[name], name, k, config)
        except (ValueError, TypeError) as error:  # bad data in one cell must not cost the others
            failed.append(f"{method_name} {name} split {k}")
            echo(f"[{i + 1}/{len(todo)}] {failed[-1]} failed: {error}")
            continue
        place = method_name, name, k
        records = add_records(out, [record], lambda other, place=place: _same_place(place, other))
        left = (time.monotonic() - begin) * sum(work[i + 1 :]) / sum(work[: i + 1])
        echo(
            f"[{i + 1}/{len(todo)}] {method_name} {name} split {k}: rmse {record['rmse']:.4g}, "
            f"nll {record['nll']:.4g}, {record['seconds']:.1f} s; about {left / 60:.1f} min left"
        )
    if failed:
        raise ValueError(
            f"All cells must be fitted; what failed is above. Received: {failed} failed"
        )
    return records


def _same_place(place, record):
    return place == (record["method"], record["dataset"], record["split"])


def _same(cell, record):
    return _same_place(cell[:3], record) and cell[3] == record["config"]


def _run_cell(method_name, dataset, name, k, config):
    keras.utils.clear_session()
    split = dataset.split(k)
    begin = time.monotonic()
    model, chosen = registry.method(method_name).uci_fit(config, split.x_train, split.y_train)
    seconds = time.monotonic() - begin
    return {
        "method": method_name,
        "dataset": name,
        "split": k,
        **score(model, split),
        "seconds": round(seconds, 3),
        "config": config,
        "chosen": chosen,
        "versions": versions(),
        "machine": machine(),
    }


def summary(records):
    """Mean and standard error over splits, a text table."""
    lines = [f"{'method':<8} {'dataset':<10} {'splits':>6} {'rmse':>16} {'nll':>16} {'seconds':>9}"]
    places = dict.fromkeys((r["method"], r["dataset"]) for r in records)
    for method_name, name in places:
        rows = [r for r in records if (r["method"], r["dataset"]) == (method_name, name)]
        cells = [f"{mean:9.4f}±{error:.4f}" for mean, error in map(_mean, _columns(rows))]
        seconds = np.mean([r["seconds"] for r in rows])
        lines.append(
            f"{method_name:<8} {name:<10} {len(rows):>6} {cells[0]:>16} {cells[1]:>16} "
            f"{seconds:>9.1f}"
        )
    return "\n".join(lines)


def _columns(rows):
    return [[r[key] for r in rows] for key in ("rmse", "nll")]


def _mean(values):
    """Mean and standard error."""
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else float("nan")
    return float(np.mean(values)), float(error)
