"""A fuzzer of the boundary: what is handed over is as good as the plain arrays, or is refused.

Each case is drawn by hypothesis: a container, a dtype, units from 1e-44 to 1e38, a fault, an
option, a method. The oracle: the result of the plain float64 arrays (in other units: that result
in these units), or a `ValueError` or `TypeError` that says what was received. `make test` runs a
few cases a model, `make fuzz` 2,000 (`TFP_FNSPACE_FUZZ_CASES`), which are others each time.

Cases reuse one fitted model: what was compiled serves them all, and a case costs milliseconds.
"""

import decimal
import functools
import os
import warnings

import batteries
import keras
import numpy as np
import pandas as pd
import polars as pl
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

CASES = int(os.environ.get("TFP_FNSPACE_FUZZ_CASES", "8"))

#: One model of each method.
NAMES = ["TAGI", "stable_process", "fBNN", "SIP", "DIWP"]

ROWS = 20
COLUMNS, TARGETS = ["size", "age", "rooms", "floor"], ["price", "rent"]
GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(ROWS, 4))
Y = X[:, :2] - X[:, 2:] + 0.1 * GENERATOR.normal(size=(ROWS, 2))


# Containers --------------------------------------------------------------------------------------


def frame(values, names=None):
    names = (COLUMNS if values.shape[1] == 4 else TARGETS) if names is None else names
    return pd.DataFrame(values, columns=names)


def polars_frame(values):
    return pl.DataFrame(values, schema=COLUMNS if values.shape[1] == 4 else TARGETS)


def objects(values, make):
    return [[make(float(value)) for value in row] for row in values]


#: What holds the same numbers as a float64 array.
CONTAINERS = {
    "array": lambda v: v,
    "fortran": np.asfortranarray,
    "reversed_view": lambda v: v[::-1].copy()[::-1],
    "read_only": lambda v: np.broadcast_to(v, v.shape),
    "big_endian": lambda v: v.astype(">f8"),
    "longdouble": lambda v: v.astype(np.longdouble),
    "lists": lambda v: v.tolist(),
    "tuples": lambda v: tuple(map(tuple, v)),
    "rows": list,
    "objects": lambda v: v.astype(object),
    "decimals": lambda v: objects(v, decimal.Decimal),
    "tensor": tf.constant,
    "variable": tf.Variable,
    "frame": frame,
    "frame_without_names": pd.DataFrame,
    "frame_with_other_rows": lambda v: frame(v).set_index(np.arange(len(v))[::-1]),
    "frame_of_floats": lambda v: frame(v).astype("Float64"),
    "frame_of_objects": lambda v: frame(v).astype(object),
    "polars": polars_frame,
    "polars_to_pandas": lambda v: frame(v.copy()),
    "mask_of_nothing": lambda v: np.ma.array(v, mask=False),
    "matrix_in_a_list": lambda v: [v],
}

#: What holds numbers that have been rounded: compared with the array of these.
ROUNDED = {
    "float32": lambda v: v.astype(np.float32),
    "float16": lambda v: np.clip(v, -6e4, 6e4).astype(np.float16),
    "bfloat16": lambda v: tf.cast(v, tf.bfloat16),
    "integers": lambda v: np.round(np.clip(v, -2e9, 2e9)).astype(np.int64),
    "small_integers": lambda v: np.round(np.clip(v, -100, 100)).astype(np.int8),
    "booleans": lambda v: v > 0,
    "nullable_integers": lambda v: frame(np.round(np.clip(v, -2e9, 2e9))).astype("Int64"),
    "polars_float32": lambda v: polars_frame(v.astype(np.float32)),
}


def replaced(values, value):
    changed = np.array(values, np.float64)
    changed[-1, -1] = value
    return changed


def masked(values):
    return np.ma.array(values, mask=replaced(np.zeros_like(values), 1) > 0)


def turned(names):
    return [names[1], names[0], *names[2:]]


#: What must be refused.
FAULTS = {
    "nan": lambda v: replaced(v, np.nan),
    "infinite": lambda v: replaced(v, -np.inf),
    "huge": lambda v: replaced(v, 1e300),
    "masked": masked,
    "nothing": lambda v: None,
    "none_among_numbers": lambda v: [*v.tolist()[:-1], [None] * v.shape[1]],
    "na": lambda v: frame(replaced(v, np.nan)).astype("Float64"),
    "polars_null": lambda v: polars_frame(v).with_columns(
        pl.lit(None).alias("age" if v.shape[1] == 4 else "rent")
    ),
    "complex": lambda v: v + 1j,
    "dates": lambda v: (v * 1e3).astype("datetime64[s]"),
    "durations": lambda v: (v * 1e3).astype("timedelta64[s]"),
    "frame_with_dates": lambda v: frame(v).assign(
        **{"size" if v.shape[1] == 4 else "rent": pd.date_range("2020", periods=len(v))}
    ),
    "polars_with_dates": lambda v: pl.DataFrame(
        frame(v)
        .assign(
            **{
                "age" if v.shape[1] == 4 else "rent": pd.date_range(
                    "2020", periods=len(v)
                ).to_numpy()
            }
        )
        .to_dict("series")
    ),
    "strings": lambda v: v.astype(str),
    "words": lambda v: frame(v).assign(**{"age" if v.shape[1] == 4 else "rent": "red"}),
    "turned": lambda v: frame(v)[turned(list(frame(v).columns))],
    "turned_polars": lambda v: polars_frame(v).select(turned(polars_frame(v).columns)),
    "turned_numbers": lambda v: pd.DataFrame(v)[turned(list(range(v.shape[1])))],
    "other_names": lambda v: frame(v).add_suffix("_old"),
    "one_row": lambda v: v[0],
    "one_column_less": lambda v: v[:, 1:],
    "one_column_more": lambda v: np.hstack([v, v[:, :1]]),
    "no_columns": lambda v: v[:, :0],
    "no_rows": lambda v: v[:0],
    "one_axis_more": lambda v: v[np.newaxis],
    "a_number": lambda v: 1.0,
    "uneven": lambda v: [*v.tolist()[:-1], [1.0]],
    "ragged": lambda v: tf.RaggedTensor.from_tensor(v, lengths=[1] * len(v)),
    "sparse": lambda v: tf.sparse.from_dense(v),
    "symbolic": lambda v: keras.KerasTensor(v.shape),
    "records": lambda v: np.rec.fromarrays(v.T),
    "a_string": lambda v: "data.csv",
    "a_function": lambda v: np.sin,
    "a_set": lambda v: {1.0, 2.0},
    "a_dict": lambda v: {"a": v, 1: v},
    "two_arrays": lambda v: [v, v],
    "beyond_float64": lambda v: [*v.tolist()[:-1], [10**400] * v.shape[1]],
    "an_object": lambda v: [[object()] * v.shape[1]] * len(v),
}

#: Targets that are missing, which TAGI takes.
MISSING = {"nan", "masked", "none_among_numbers", "na", "polars_null"}

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
    "sample_weight": [np.ones(ROWS)],
    "class_weight": [{0: 1.0}],
    "steps_per_epoch": [0, -1, 1, "a"],
    "foo": [1],
}


# Streams -----------------------------------------------------------------------------------------


class Batches(keras.utils.PyDataset):
    """Batches of arrays, `(x,)` or `(x, y)`, by number."""

    def __init__(self, arrays, size):
        super().__init__()
        self.arrays, self.size = arrays, size

    def __len__(self):
        return -(-len(self.arrays[0]) // self.size)

    def __getitem__(self, index):
        part = slice(index * self.size, (index + 1) * self.size)
        return tuple(array[part] for array in self.arrays)


def dataset(arrays, size):
    return tf.data.Dataset.from_tensor_slices(tuple(arrays)).batch(size)


def batches(arrays, size):
    every = Batches(arrays, size)
    return (every[i] for i in range(len(every)))


STREAMS = {"dataset": dataset, "PyDataset": Batches, "generator": batches}
STREAM_FAULTS = ["nan", "infinite", "huge", "one_column_less", "one_column_more", "no_columns"]


# Models ------------------------------------------------------------------------------------------


class Subject:
    """A model fitted to frames, and one that is adapted to whatever a case draws."""

    def __init__(self, name):
        self.name = name

    @functools.cached_property
    def fitted(self):
        model = self.make()
        epochs = {"epochs": 2} if self.name == "stable_process" else {}
        batteries.fit(model, frame(X), frame(Y), **epochs)
        return model

    @functools.cached_property
    def unlearnt(self):
        model = self.make()
        model.adapt(X, Y)
        return model

    @functools.cached_property
    def start(self):
        return self.unlearnt.get_weights()

    @functools.cached_property
    def plain(self):
        return self.learn(X, Y)

    def make(self):
        return batteries.ALL_MODELS[self.name]()

    def forget(self):
        """Makes `unlearnt` what it was, with all that is compiled."""
        self.unlearnt.set_weights(self.start)  # taken at the first call
        for name in ("optimizer", "discriminator_optimizer"):
            optimizer = getattr(self.unlearnt, name, None)
            for variable in getattr(optimizer, "variables", []):
                if "learning_rate" not in variable.path:
                    variable.assign(tf.zeros_like(variable))

    def learn(self, x, y, stream=None):
        """Predictions in the user's units after two epochs from the start, a dict."""
        self.forget()
        self.unlearnt.adapt(x, y)
        data = {"x": x, "y": y, "batch_size": 8}
        if stream is not None:
            data = {"x": stream((x, y), 8)}
        history = self.unlearnt.fit(**data, epochs=2, shuffle=False, verbose=0).history
        assert np.all(np.isfinite(history["loss"]))
        return self.unlearnt.predict(x)

    def call(self, method, x, y, **options):
        """The numbers that a method of the fitted model returns, one array."""
        model = self.fitted
        calls = {
            "predict": lambda: stacked(model.predict(x, **options)),
            "predict_on_batch": lambda: stacked(model.predict_on_batch(x)),
            "predict_distribution": lambda: model.predict_distribution(x, **options).mean().numpy(),
            "sample_functions": lambda: model.sample_functions(x, 2, seed=1),
            "evaluate": lambda: np.array(model.evaluate(x, y, verbose=0, **options)),
            "test_on_batch": lambda: np.array(model.test_on_batch(x, y), np.float64),
        }
        return calls[method]()


METHODS = ["predict", "predict_on_batch", "predict_distribution", "sample_functions"]
SCORES = ["evaluate", "test_on_batch"]


def stacked(outputs):
    return np.stack([np.asarray(values, np.float64) for values in outputs.values()])


SUBJECTS = {}


def subject(name):
    if name not in SUBJECTS:
        SUBJECTS[name] = Subject(name)
    return SUBJECTS[name]


def outcome(call):
    """What a call returns, or `None` if it is refused in words; anything else is a violation."""
    try:
        return call()
    except (ValueError, TypeError) as error:
        assert "Received: " in str(error), f"without 'Received:': {error!r}"
        return None


def must_be_refused(call):
    assert outcome(lambda: (call(), "taken")) is None, "taken without a word"


def assert_same(values, expected, what="another result"):
    assert np.all(np.isfinite(values)), f"not finite: {values}"
    np.testing.assert_allclose(values, expected, rtol=2e-3, atol=2e-4, err_msg=what)


# Cases -------------------------------------------------------------------------------------------

rows = st.sampled_from([1, 7, ROWS])
methods = st.sampled_from(METHODS + SCORES)


def sizes(default):
    return st.sampled_from([None, 1, 7, np.int64(8), ROWS, 10**12] if default else [1, 7, ROWS])


def check_containers(name, draw):
    """Numbers in whatever holds them, to a method of the fitted model."""
    made, count, method = subject(name), draw(rows), draw(methods)
    x, y = X[:count], Y[:count]
    as_x = draw(st.sampled_from(sorted(CONTAINERS | ROUNDED)))
    as_y = draw(st.sampled_from(sorted(CONTAINERS.keys() - {"matrix_in_a_list"})))
    given_x = (CONTAINERS | ROUNDED)[as_x](x)
    if as_x in ROUNDED:
        x = np.asarray(given_x).astype(np.float64)
    options = {}
    if method in ("predict", "evaluate", "predict_distribution"):
        options["batch_size"] = draw(sizes(True))
    values = made.call(method, given_x, CONTAINERS[as_y](y), **options)
    assert_same(values, made.call(method, x, y))


def check_faults(name, draw):
    """Something that must be refused, as inputs or as targets, in any method."""
    made, fault = subject(name), draw(st.sampled_from(sorted(FAULTS)))
    of_targets = draw(st.booleans())
    bad = FAULTS[fault](Y if of_targets else X)
    pair = (X, bad) if of_targets else (bad, Y)
    if of_targets:
        if name == "TAGI" and fault in MISSING:
            made.call("evaluate", *pair)
            return
        ways = [*SCORES, "fit", "validation"]
    else:
        ways = [*METHODS, *SCORES, "fit", "validation", "adapt"]
    if name != "stable_process":
        ways.append("train_on_batch")
    way = draw(st.sampled_from(ways))
    before = made.fitted.steps_seen.numpy()
    must_be_refused(
        {
            "fit": lambda: made.fitted.fit(*pair, verbose=0),
            "validation": lambda: made.fitted.fit(X, Y, validation_data=pair, verbose=0),
            "train_on_batch": lambda: made.fitted.train_on_batch(*pair),
            "adapt": lambda: made.fitted.adapt(*pair),
        }.get(way, lambda: made.call(way, *pair))
    )
    assert made.fitted.steps_seen.numpy() == before, "something was learnt"


def check_far_inputs(name, draw):
    """Inputs of any size: finite predictions, or words."""
    made = subject(name)
    x = X[: draw(rows)] * draw(st.sampled_from([-1.0, 1.0])) * 10.0 ** draw(st.integers(-44, 38))
    if draw(st.booleans()):
        with np.errstate(over="ignore"):
            x = x.astype(np.float32)
    method = draw(st.sampled_from(METHODS))
    values = outcome(lambda: made.call(method, x, None))
    assert values is None or np.all(np.isfinite(values)), f"not finite: {values}"


def check_units(name, draw):
    """Data in other units: the predictions of the same data in plain ones, in these units."""
    if name == "stable_process":
        return check_far_inputs(name, draw)
    made = subject(name)
    model = made.unlearnt
    powers = st.integers(-44, 38)
    of_x, of_y = 10.0 ** draw(powers), 10.0 ** draw(powers)
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    with np.errstate(over="ignore", under="ignore"):
        x, y = (X * of_x).astype(dtype), (Y * of_y).astype(dtype)

    def predictions(x, y):
        made.forget()
        model.adapt(x, y)
        return model.predict(x)

    values = outcome(lambda: predictions(x, y))
    if values is None:
        return None
    plain = predictions(x.astype(np.float64) / of_x, y.astype(np.float64) / of_y)
    for key, expected in plain.items():
        assert_same(values[key].astype(np.float64) / of_y, expected, f"{key} in other units")
    return None


def check_fits(name, draw):
    """Fits to the same numbers in other containers, other units, or in batches."""
    made = subject(name)
    if name == "stable_process":
        return check_containers(name, draw)
    kind = draw(st.sampled_from(["container", "units"] + ["stream"] * (name == "TAGI")))
    if kind == "container":
        as_x, as_y = (
            draw(st.sampled_from(sorted(CONTAINERS.keys() - {"matrix_in_a_list"})))
            for _ in range(2)
        )
        found = made.learn(CONTAINERS[as_x](X), CONTAINERS[as_y](Y))
        unit = 1.0
    elif kind == "units":
        of_x, unit = (10.0 ** draw(st.integers(-44, 38)) for _ in range(2))
        found = outcome(lambda: made.learn(X * of_x, Y * unit))
        if found is None:
            return None
    else:  # datasets only: later epochs need the batches again
        found, unit = (
            made.learn(X, Y, STREAMS[draw(st.sampled_from(["dataset", "PyDataset"]))]),
            1.0,
        )
    for key, expected in made.plain.items():
        values = found[key].astype(np.float64) / unit
        assert np.all(np.isfinite(values)), f"{key} not finite"
        np.testing.assert_allclose(values, expected, rtol=0.02, atol=0.01, err_msg=key)
    return None


def check_streams(name, draw):
    """Batches, good and bad: as arrays are."""
    made, kind = subject(name), draw(st.sampled_from(sorted(STREAMS)))
    method = draw(st.sampled_from(["predict", "evaluate"]))
    dtype = draw(st.sampled_from([np.float32, np.float64, np.float16]))
    size = draw(sizes(False))
    x, y = X.astype(dtype), Y.astype(dtype)
    arrays = (x,) if method == "predict" else (x, y)
    fault = draw(st.sampled_from([None, None, *STREAM_FAULTS]))
    if fault is not None:
        place = draw(st.integers(0, len(arrays) - 1))
        bad = FAULTS[fault](arrays[place])
        if name == "TAGI" and place == 1 and fault == "nan":
            return
        arrays = tuple(bad if i == place else a for i, a in enumerate(arrays))
        must_be_refused(lambda: made.call(method, STREAMS[kind](arrays, size), None))
        return
    values = made.call(method, STREAMS[kind](arrays, size), None)
    assert_same(values, made.call(method, x.astype(np.float64), y.astype(np.float64)))


def check_options(name, draw):
    """An option of `fit` that cannot be honoured."""
    made, option = subject(name), draw(st.sampled_from(sorted(BAD_OPTIONS)))
    value = draw(st.sampled_from(BAD_OPTIONS[option]))
    if name != "stable_process" and option == "batch_size" and draw(st.booleans()):
        method = draw(st.sampled_from(["predict", "evaluate", "predict_distribution"]))
        must_be_refused(lambda: made.call(method, X, Y, batch_size=value))
        return
    before = made.fitted.steps_seen.numpy()
    must_be_refused(lambda: made.fitted.fit(X, Y, verbose=0, **{option: value}))
    assert made.fitted.steps_seen.numpy() == before, "something was learnt"


CHECKS = [
    check_containers,
    check_faults,
    check_faults,
    check_far_inputs,
    check_units,
    check_fits,
    check_streams,
    check_options,
]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
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
        check = data.draw(st.sampled_from(CHECKS))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            check(name, data.draw)

    run()
