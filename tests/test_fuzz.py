"""A fuzzer of the boundary: what is handed over works like the plain arrays, or is refused.

Hypothesis draws each case: a container, a dtype, units, a fault, an option, a method. The oracle
is the result of the plain float64 arrays (in other units: that result in these units), or a
`ValueError` or `TypeError` that says what was received. `reason_to_refuse` says when good numbers
may be refused. `make test` runs a few cases of three models. `make fuzz` runs 2,000 of each
(`TFP_FNSPACE_FUZZ_CASES`), and different ones each time.

Cases reuse compiled models, so a case costs milliseconds.
"""

import functools
import os
import typing
import warnings

import batteries
import keras
import numpy as np
import pytest
import tensorflow as tf
from exhaustive import sample_of
from handed_over import (
    BAD_STREAMS,
    CONTAINERS,
    FAULTS,
    FAULTS_IN_STREAMS,
    LASTING_STREAMS,
    MISSING,
    OF_COLUMNS,
    ROUNDED,
    STREAMS,
    frame,
    generator,
    replaced,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tfp_fnspace.model.gradient import GradientModel

CASES = int(os.environ.get("TFP_FNSPACE_FUZZ_CASES", "3"))

#: One model of each method, and Bayes by Backprop.
NAMES = batteries.KINDS

ROWS, BATCH = 20, 8
GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(ROWS, 4))
Y = X[:, :2] - X[:, 2:] + 0.1 * GENERATOR.normal(size=(ROWS, 2))

#: The number of validation rows, and the share that `validation_split` takes of all rows.
HELD_OUT, SPLIT = 7, 0.25
SPLIT_AT = int(ROWS * (1 - SPLIT))


def many_scales(shape):
    signs = GENERATOR.choice([-1.0, 1.0], size=shape)
    return signs * 10.0 ** GENERATOR.uniform(-12.0, 12.0, size=shape)


def of_columns(first, others):
    return np.hstack([first, others])


#: Data to learn from: inputs and targets.
DATA = {
    "plain": (X, Y),
    "one_far_away": (replaced(X, 1e3), replaced(Y, -1e4)),
    "many_scales": (many_scales(X.shape), many_scales(Y.shape)),
    "whole_numbers": (np.round(X), np.round(2 * Y)),
    "constant_column": (np.hstack([X[:, :3], np.full((ROWS, 1), 3.0)]), Y),
}

#: Further data that only TAGI learns from.
WITH_MISSING = {"missing": (X, replaced(Y, np.nan))}


# When good numbers may be refused ----------------------------------------------------------------

#: The largest number, the standard deviations that have units, and the number of them that is far.
#: Beyond these, what models compute (squares, for example) leaves float64, or float32 in model
#: units.
LARGEST, UNITS, FAR = 1e100, (1e-100, 1e100), 1e9


def reason_to_refuse(*arrays):
    """Returns why data to learn from may be refused, or `None` if they must be accepted.

    Args:
        *arrays: Arrays `[N, D]` in the user's units and dtype; NaN is missing.
    """
    for array in arrays:
        values = array.astype(np.float64)
        if np.any(np.isinf(values)):
            return "its dtype cannot hold them"
        largest = np.nanmax(np.abs(values), axis=0)
        if np.any(largest > LARGEST):
            return "their squares leave float64"
        spread = np.nanstd(values / np.maximum(largest, 1e-300), axis=0) * largest
        if np.any((spread > 0) & ((spread < UNITS[0]) | (spread > UNITS[1]))):
            return "the square of a standard deviation leaves float64"
    return None


def reason_to_refuse_far(values, train):
    """Returns why data of a fitted model may be refused, or `None` if they must be accepted.

    Args:
        values: Inputs, or targets to validate on, `[M, D]`; NaN is missing.
        train: What the model was fitted to, `[N, D]`.
    """
    if np.any(np.isinf(values)):
        return "its dtype cannot hold them"
    train = train.astype(np.float64)
    stddev = np.nanstd(train, axis=0)
    stddev = np.where(stddev > 0.0, stddev, 1.0)  # for a constant column
    if np.any(np.abs(values.astype(np.float64) - np.nanmean(train, axis=0)) > FAR * stddev):
        return "they are too many standard deviations away for float32"
    return None


class Refusal(typing.NamedTuple):
    """An error with a message in words."""

    message: str


def outcome(call):
    """Returns what a call returns, or a `Refusal`; any other error is a violation."""
    try:
        return call()
    except (ValueError, TypeError) as error:
        assert "Received: " in str(error), f"without 'Received:': {error!r}"
        return Refusal(str(error))


def must_be_refused(call):
    found = outcome(call)
    assert isinstance(found, Refusal), "taken without a word"


def must_be_taken(found, reason):
    """Returns whether there is a result; a refusal must have a reason."""
    refused = isinstance(found, Refusal)
    assert not refused or reason, f"refused without a reason: {found}"
    return not refused


# Units -------------------------------------------------------------------------------------------


class Units(typing.NamedTuple):
    """Units and zeros of the columns of inputs and targets: `(values + zero) * unit`."""

    x_unit: np.ndarray
    x_zero: np.ndarray
    y_unit: np.ndarray
    y_zero: np.ndarray

    def of(self, x, y, dtype=np.float64):
        with np.errstate(over="ignore", under="ignore"):
            x = ((x + self.x_zero) * self.x_unit).astype(dtype)
            return x, ((y + self.y_zero) * self.y_unit).astype(dtype)

    def plain(self, x, y):
        x, y = x.astype(np.float64), y.astype(np.float64)
        return x / self.x_unit - self.x_zero, y / self.y_unit - self.y_zero

    def plain_result(self, name, values, is_observed):
        """Converts a method's result to plain units; `None` if it has none that can be compared."""
        values = np.asarray(values, np.float64)
        if name in ("mean", "functions"):
            return values / self.y_unit - self.y_zero
        if "stddev" in name:
            return values / self.y_unit
        if name in ("nll", "loss"):
            return values - np.mean(is_observed @ np.log(self.y_unit))
        if name in ("rmse", "crps", "noise_scale"):
            same = np.ptp(self.y_unit) == 0.0
            return values / self.y_unit[0] if same else None
        return values


PLAIN = Units(np.ones(4), np.zeros(4), np.ones(2), np.zeros(2))


# Models ------------------------------------------------------------------------------------------


class Subject:
    """A model fitted to frames, and one that learns again in every case."""

    def __init__(self, name):
        self.name = name
        self.of_all_rows = name in batteries.MODELS_OF_ALL_ROWS
        self.data = DATA | WITH_MISSING if name == "TAGI" else DATA
        self.reference = functools.cache(self._reference)

    def make(self):
        return batteries.ALL_MODELS[self.name]()

    @functools.cached_property
    def fitted(self):
        model = self.make()
        batteries.fit(model, frame(X), frame(Y), **({"epochs": 2} if self.of_all_rows else {}))
        return model

    @functools.cached_property
    def _learner(self):
        model = self.make()
        model.adapt(X, Y)
        return model, model.get_weights()

    def new(self):
        """Returns a model that has seen nothing, with all that is compiled."""
        if self.of_all_rows:  # all models share the compiled chains
            return self.make()
        model, weights = self._learner
        model.set_weights(weights)
        for scaler in [*model.units.input_scalers, model.units.target_scaler]:
            scaler.adapted.assign(0)
            scaler.column_names = None
        for name in ("optimizer", "discriminator_optimizer"):
            for variable in getattr(getattr(model, name, None), "variables", []):
                if "learning_rate" not in variable.path:
                    variable.assign(tf.zeros_like(variable))
        return model

    def learn(self, x, y, way="arrays", **options):
        """Returns a new model after two epochs, and their history.

        Args:
            x, y: Inputs and targets; arrays unless `way` is `"arrays"`.
            way: `"arrays"`, a name in `STREAMS`, or `"train_on_batch"`.
            **options: Options of `fit`.
        """
        model = self.new()
        options = {"epochs": 2, "verbose": 0, **options}
        if not self.of_all_rows:
            options["shuffle"] = False
        if way == "arrays":
            if not self.of_all_rows:
                options.setdefault("batch_size", BATCH)
            return model, model.fit(x, y, **options).history
        num_batches = -(-len(x) // BATCH)
        if way in LASTING_STREAMS:
            stream = STREAMS[way]((x, y), BATCH, np.asarray)
            return model, model.fit(stream, **options).history
        model.adapt(x, y)
        if isinstance(model, GradientModel):
            model.counters.rows.assign(len(x))
        if way == "train_on_batch":
            for batch in generator((x, y), BATCH, np.asarray, 2):
                model.train_on_batch(*batch)
            return model, {}
        if way == "generator":
            stream = generator((x, y), BATCH, np.asarray, 2)
        else:
            stream = STREAMS[way]((x, y), BATCH)
        return model, model.fit(stream, steps_per_epoch=num_batches, **options).history

    def _reference(self, data, num_rows, way, method):
        return self.results_of(*self.data[data], num_rows, way, method)

    def results_of(self, x, y, num_rows, way, method):
        """Returns a method's results after a model has learnt from plain arrays' first rows."""
        model, _ = self.learn(x[:num_rows], y[:num_rows], way)
        return results(model, method, x, y)


METHODS = ["predict", "predict_on_batch", "predict_distribution", "sample_functions"]
SCORES = ["evaluate", "test_on_batch"]


def results(model, method, x, y=None, **options):
    """Returns what a method of a model returns, as a dict of arrays."""

    def distribution():
        found = model.predict_distribution(x, **options)
        return {"mean": found.mean().numpy(), "stddev": found.stddev().numpy()}

    scores = {"return_dict": True, **options}
    calls = {
        "predict": lambda: model.predict(x, **options),
        "predict_on_batch": lambda: model.predict_on_batch(x),
        "predict_distribution": distribution,
        "sample_functions": lambda: {"functions": model.sample_functions(x, 2, seed=1)},
        "evaluate": lambda: model.evaluate(x, y, verbose=0, **scores),
        # There are no repeated rows here: at those, joint draws depend on rounding.
        "few_functions": lambda: {"functions": model.sample_functions(x[:HELD_OUT], 2, seed=1)},
        "held_out": lambda: model.evaluate(x[:HELD_OUT], y[:HELD_OUT], verbose=0, **scores),
        "split": lambda: model.evaluate(x[SPLIT_AT:], y[SPLIT_AT:], verbose=0, **scores),
        "test_on_batch": lambda: model.test_on_batch(x, y, **scores),
    }
    return {key: np.asarray(value) for key, value in calls[method]().items()}


@functools.cache
def subject(name):
    return Subject(name)


def assert_same(found, expected, units=PLAIN, y=Y, rtol=2e-3, atol=2e-4):
    """Compares results in plain units; y are the targets of scores, NaN where missing."""
    assert found.keys() == expected.keys()
    for key, values in found.items():
        assert np.all(np.isfinite(values)), f"{key} not finite: {values}"
        plain = units.plain_result(key, values, ~np.isnan(y))
        within = {"rtol": rtol, "atol": atol}
        if key == "coverage_90":  # a target at the edge of its interval may be in or out
            within = {"rtol": 0.0, "atol": 1.1 / (HELD_OUT * y.shape[1])}
        if plain is not None:
            np.testing.assert_allclose(plain, expected[key], **within, err_msg=key)


# Cases -------------------------------------------------------------------------------------------

rows = st.sampled_from([1, 7, ROWS])
methods = st.sampled_from(METHODS + SCORES)
containers = st.sampled_from(sorted(CONTAINERS))
containers_of_targets = st.sampled_from(sorted(CONTAINERS.keys() - {"matrix_in_a_list"}))
powers = st.one_of(st.integers(-44, 38), st.just(0), st.integers(-130, 130))
zeros = st.sampled_from([0.0, 0.0, 1.0, -1e3, 1e8])


def check_containers(name, draw):
    """Passes numbers in any container to a method of the fitted model."""
    model, count, method = subject(name).fitted, draw(rows), draw(methods)
    x, y = X[:count], Y[:count]
    as_x = draw(st.sampled_from(sorted(CONTAINERS | ROUNDED)))
    given_x, given_y = (CONTAINERS | ROUNDED)[as_x](x), CONTAINERS[draw(containers_of_targets)](y)
    if as_x in ROUNDED:
        x = np.asarray(given_x).astype(np.float64)
    options = {}
    if method in ("predict", "evaluate", "predict_distribution"):
        options["batch_size"] = draw(st.sampled_from([None, 1, 7, np.int64(8), ROWS, 10**12]))
    found = results(model, method, given_x, given_y, **options)
    assert_same(found, results(model, method, x, y))


def check_faults(name, draw):
    """Passes something that must be refused, as inputs or as targets, to any method."""
    made, fault = subject(name), draw(st.sampled_from(sorted(FAULTS)))
    of_targets = draw(st.booleans())
    bad = FAULTS[fault](Y if of_targets else X)
    pair = (X, bad) if of_targets else (bad, Y)
    ways = [*SCORES, "fit", "train_on_batch", "validation", "first_validation"]
    if fault not in OF_COLUMNS:
        ways += ["first_fit", "first_adapt"]
    if not of_targets:
        ways += [*METHODS, "adapt"]
    if name == "TAGI" and of_targets and fault in MISSING:
        ways = ["missing"]
    way = draw(st.sampled_from(ways))
    new = made.make() if way.startswith("first") else None
    before = made.fitted.counters.steps.numpy()
    calls = {
        "fit": lambda: made.fitted.fit(*pair, verbose=0),
        "validation": lambda: made.fitted.fit(X, Y, validation_data=pair, verbose=0),
        "train_on_batch": lambda: made.fitted.train_on_batch(*pair),
        "adapt": lambda: made.fitted.adapt(*pair),
        "first_fit": lambda: new.fit(*pair, verbose=0),
        "first_adapt": lambda: new.adapt(*pair),
        "first_validation": lambda: new.fit(frame(X), frame(Y), validation_data=pair, verbose=0),
    }
    if way == "missing":
        assert np.all(np.isfinite(results(made.fitted, "evaluate", *pair)["nll"]))
        return
    must_be_refused(calls.get(way, lambda: results(made.fitted, way, *pair)))
    assert made.fitted.counters.steps.numpy() == before, "something was learnt"
    if new is not None:
        assert not new.counters.steps.numpy(), "something was learnt"


def check_far_inputs(name, draw):
    """Passes inputs of any size: predictions are finite and as in float64, or refused in words."""
    model = subject(name).fitted
    unit = 10.0 ** draw(st.one_of(st.integers(-44, 8), st.integers(-320, 305)))
    x = X[: draw(rows)] * draw(st.sampled_from([-1.0, 1.0])) * unit
    if draw(st.booleans()):
        with np.errstate(over="ignore"):
            x = x.astype(np.float32)
    method = draw(st.sampled_from(METHODS))
    found = outcome(lambda: results(model, method, x))
    if must_be_taken(found, reason_to_refuse_far(x, X)):
        assert_same(found, results(model, method, x.astype(np.float64)), rtol=1e-6, atol=1e-6)
        if "aleatoric_stddev" in found:
            parts = np.hypot(found["epistemic_stddev"], found["aleatoric_stddev"])
            np.testing.assert_allclose(found["stddev"], parts, rtol=1e-3)


def drawn_units(draw):
    def column(size):
        if draw(st.booleans()):
            return np.full(size, 10.0 ** draw(powers)), np.full(size, draw(zeros))
        units, each = zip(*[(10.0 ** draw(powers), draw(zeros)) for _ in range(size)], strict=True)
        return np.array(units), np.array(each)

    return Units(*column(4), *column(2))


#: Options of `fit` that change nothing. The last turns the compiled epoch into a loop over batches.
NEUTRAL_OPTIONS = [
    {},
    {"epochs": np.int32(2)},
    {"initial_epoch": np.int64(0)},
    {"callbacks": []},
    {"callbacks": keras.callbacks.History()},
    {"callbacks": [keras.callbacks.TerminateOnNaN()]},
    {"validation_freq": 2},
    {"callbacks": [keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: None)]},
]


def check_fits(name, draw):
    """Fits to data in other containers, units or batches, with validation data."""
    made = subject(name)
    base = draw(st.sampled_from(sorted(made.data)))
    units = drawn_units(draw) if draw(st.booleans()) else PLAIN
    dtype = draw(st.sampled_from([np.float64, np.float64, np.float32]))
    ways = ["arrays", "arrays"]
    if not made.of_all_rows:
        ways += [*STREAMS, "train_on_batch"]
    way = draw(st.sampled_from(ways))
    validation = draw(st.sampled_from([None, "data", "stream", "split"]))
    if way == "train_on_batch":
        validation = None
    elif validation == "split" and way != "arrays":
        validation = "data"
    options = {} if way == "train_on_batch" else draw(st.sampled_from(NEUTRAL_OPTIONS))

    x, y = units.of(*made.data[base], dtype)
    held_out = x[:HELD_OUT], y[:HELD_OUT]
    given_x, given_y = x, y
    if way == "arrays":
        given_x = CONTAINERS[draw(containers)](x)
        given_y = CONTAINERS[draw(containers_of_targets)](y)
    if validation == "data":
        options = {**options, "validation_data": tuple(held_out)}
        as_x, as_y = CONTAINERS[draw(containers)], CONTAINERS[draw(containers_of_targets)]
        options["validation_data"] = (as_x(held_out[0]), as_y(held_out[1]))
    elif validation == "stream":
        stream = STREAMS[draw(st.sampled_from(LASTING_STREAMS))]
        options = {**options, "validation_data": stream(held_out, 3, np.asarray)}
    elif validation == "split":
        options = {**options, "validation_split": SPLIT}

    found = outcome(lambda: made.learn(given_x, given_y, way, **options))
    num_rows = SPLIT_AT if validation == "split" else ROWS
    reason = reason_to_refuse(x[:num_rows], y[:num_rows]) or reason_to_refuse(x, y)
    for array in (x, y):
        reason = reason or reason_to_refuse_far(array[num_rows:], array[:num_rows])
    if not must_be_taken(found, reason):
        return
    model, history = found
    by_arrays = way == "arrays" or getattr(model, "rows_to_prepare", ROWS) > BATCH
    how = num_rows, "arrays" if by_arrays else "train_on_batch"
    method = draw(st.sampled_from([*METHODS[:-1], *SCORES, "few_functions"]))
    found = results(model, method, x, y)  # before this model becomes another one
    assert np.all(np.isfinite(sum(history.values(), []))), history
    if np.any(np.nanmax(y[:num_rows], axis=0) == np.nanmin(y[:num_rows], axis=0)):
        return  # the dtype made a column constant, and such a column has no units
    if np.any((np.ptp(x[:num_rows], axis=0) == 0.0) & (np.ptp(x, axis=0) > 0.0)):
        return  # nor has a column of inputs that is constant in the rows learnt from, and not after

    def expected(of):
        if is_as_drawn(units, dtype):
            return made.reference(base, *how, of)
        return made.results_of(*units.plain(x, y), *how, of)

    assert_same(found, expected(method), units, y, rtol=0.02, atol=0.01)
    if validation is not None:
        scores = {k[4:]: v[-1] for k, v in history.items() if k.startswith("val_")}
        part = "split" if validation == "split" else "held_out"
        of_part = y[SPLIT_AT:] if part == "split" else y[:HELD_OUT]
        assert_same(scores, expected(part), units, of_part, rtol=0.02, atol=0.01)


def is_as_drawn(units, dtype):
    """Returns whether data in these units equal those in plain units up to little rounding."""
    if dtype == np.float64:
        return True
    unit = np.append(units.x_unit, units.y_unit)
    zero = np.append(units.x_zero, units.y_zero)
    return bool(np.all((unit > 1e-36) & (unit < 1e37) & (np.abs(zero) <= 1.0)))


def check_streams(name, draw):
    """Predicts and scores good and bad batches: the results are those of arrays."""
    model, kind = subject(name).fitted, draw(st.sampled_from(sorted(STREAMS)))
    method = draw(st.sampled_from(["predict", "evaluate"]))
    dtype = draw(st.sampled_from([np.float32, np.float64, np.float16]))
    size, hold = draw(rows), CONTAINERS[draw(containers_of_targets)]
    x, y = X.astype(dtype), Y.astype(dtype)
    arrays = (x,) if method == "predict" and draw(st.booleans()) else (x, y)
    steps = -(-ROWS // size) if kind == "endless_dataset" else None
    fault = draw(st.sampled_from([None, None, *FAULTS_IN_STREAMS]))
    if fault is None:
        found = results(model, method, STREAMS[kind](arrays, size, hold), steps=steps)
        expected = results(model, method, x.astype(np.float64), y.astype(np.float64))
        assert_same(found, expected)
        return
    place = draw(st.integers(0, len(arrays) - 1))
    if place == 1 and (method == "predict" or (name == "TAGI" and fault == "nan")):
        return
    bad = FAULTS[fault](arrays[place])
    arrays = tuple(bad if i == place else a for i, a in enumerate(arrays))
    stream = STREAMS[kind](arrays, size, np.asarray)
    must_be_refused(lambda: results(model, method, stream, steps=steps))


def check_bad_streams(name, draw):
    """Passes streams that must be refused, to `fit` and others; the model stays finite."""
    made = subject(name)
    model = made.new()
    if draw(st.booleans()) and not made.of_all_rows:
        model.adapt(X, Y)
    if draw(st.booleans()):
        kind = draw(st.sampled_from(sorted(BAD_STREAMS)))
        stream = BAD_STREAMS[kind](X, Y)
    else:
        fault, place = draw(st.sampled_from(FAULTS_IN_STREAMS)), draw(st.integers(0, 1))
        if name == "TAGI" and place == 1 and fault == "nan":
            return
        kind = draw(st.sampled_from(["dataset", "dataset_of_unknown_shapes", "PyDataset"]))
        arrays = [X, Y]
        arrays[place] = FAULTS[fault](arrays[place])
        stream = STREAMS[kind](tuple(arrays), BATCH, np.asarray)
    way = draw(st.sampled_from(["fit", "adapt", "validation", "evaluate"]))
    calls = {
        "fit": lambda: model.fit(stream, verbose=0),
        "adapt": lambda: model.adapt(stream),
        "validation": lambda: model.fit(X, Y, validation_data=stream, verbose=0),
        "evaluate": lambda: made.fitted.evaluate(stream, verbose=0),
    }
    must_be_refused(calls[way])
    assert all(np.all(np.isfinite(weight)) for weight in model.get_weights())


#: Options of methods that must be refused.
BAD_OPTIONS = {
    "batch_size": [0, -1, 2.0, "8", True, [8], np.nan],
    "epochs": [0, -1, 2.0, "8", None, np.inf],
    "initial_epoch": [-1, 0.5, "a", None],
    "callbacks": [3, "stop", keras.callbacks.EarlyStopping, [print], {"a": 1}],
    "validation_split": [1.0, -0.5, 2, 1.0 - 1e-9],
    "validation_data": [
        3,
        (X,),
        (X, Y, Y),
        (X, Y[:-1]),
        (X[:, 1:], Y),
        (replaced(X, np.nan), Y),
        "a",
    ],
    "validation_freq": [0, -1, 1.5, "a"],
    "sample_weight": [np.zeros(ROWS), np.ones(ROWS + 1), np.ones((ROWS, 2)), -np.ones(ROWS), "a"],
    "class_weight": [3, {0: 0.0}, {-1: 1.0}, {"a": 1.0}],
    "steps_per_epoch": [0, -1, 1, "a"],
    "foo": [1],
}


def check_options(name, draw):
    """Passes an option of `fit` that cannot be honoured."""
    model, option = subject(name).fitted, draw(st.sampled_from(sorted(BAD_OPTIONS)))
    value = draw(st.sampled_from(BAD_OPTIONS[option]))
    if option == "batch_size" and draw(st.booleans()):
        method = draw(st.sampled_from(["predict", "evaluate", "predict_distribution"]))
        must_be_refused(lambda: results(model, method, X, Y, batch_size=value))
        return
    before = model.counters.steps.numpy()
    must_be_refused(lambda: model.fit(X, Y, verbose=0, **{option: value}))
    assert model.counters.steps.numpy() == before, "something was learnt"


CHECKS = [
    check_fits,
    check_containers,
    check_faults,
    check_faults,
    check_far_inputs,
    check_streams,
    check_bad_streams,
    check_options,
]


def checks(name):
    """Returns the checks of a model; fits of the stable process compile each time."""
    return CHECKS if name in batteries.MODELS_OF_ALL_ROWS else [check_fits, *CHECKS]


@pytest.mark.slow
@pytest.mark.parametrize("name", sample_of(NAMES, ["TAGI", "stable_process", "variational"]))
def test_what_is_handed_over_is_as_good_as_plain_arrays_or_is_refused(name):
    @settings(
        max_examples=CASES,
        derandomize="TFP_FNSPACE_FUZZ_CASES" not in os.environ,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def run(data):
        check = data.draw(st.sampled_from(checks(name)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            check(name, data.draw)

    run()
