"""Arrays and data frames that users hand over: the right value, or one clear error."""

import array
import collections
import decimal
import fractions
import linecache
import pathlib
import re
import warnings
from types import SimpleNamespace

import batteries
import keras
import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
import tensorflow as tf
from exhaustive import sample_of
from scipy import stats

import tfp_fnspace as fns
from tfp_fnspace.boundary import arrays, columns
from tfp_fnspace.model import checks, progress

X = np.random.default_rng(0).normal(size=(20, 4))
Y = X[:, :2] + 0.1
NAMES = ["size", "age", "rooms", "floor"]

#: The tests here need no more, since all models share this code.
METHODS = batteries.KINDS


def fitted_model(name, x=X, y=Y):
    model = batteries.ALL_MODELS[name]()
    batteries.fit(model, x, y, epochs=1 if name != "stable_process" else 2)
    return model


@pytest.fixture(scope="module")
def models():
    """Returns a function from names to fitted models, which it makes on demand."""
    made = {}

    def get(name):
        if name not in made:
            made[name] = fitted_model(name, frame(), target_frame())
        return made[name]

    return get


def frame(order=NAMES, make=pd.DataFrame):
    return make({name: X[:, NAMES.index(name)] for name in order})


def target_frame(order=("price", "rent"), make=pd.DataFrame):
    return make({name: Y[:, ["price", "rent"].index(name)] for name in order})


def refused(function, *arguments, kind=ValueError, **options):
    """Returns the message of a refusal, which ends in what was received."""
    with pytest.raises(kind, match="Received: ") as caught:
        function(*arguments, **options)
    return str(caught.value)


# Columns -----------------------------------------------------------------------------------------

TURNED = [NAMES[1], NAMES[0], *NAMES[2:]]


def entries(model):
    """Returns every method that takes inputs, and those that take targets too."""
    of_x = [model.predict, model.predict_on_batch, model.predict_distribution]
    of_x += [lambda x: model.sample_functions(x, 2)]
    of_xy = [lambda x, y: model.evaluate(x, y, verbose=0), model.test_on_batch]
    of_xy += [lambda x, y: model.fit(x, y, verbose=0)]
    of_xy += [lambda x, y: model.fit(X, Y, validation_data=(x, y), verbose=0)]
    if isinstance(model, fns.stable_process.StableProcessModel):
        of_x += [model.stored_values, model.predict_quantiles, model.function_quantiles]
    else:
        of_xy += [model.train_on_batch]
    if isinstance(model, fns.tagi.TAGIModel):
        of_x += [model.input_gradient, lambda x: model.infer_inputs(X, x, Y)]
        of_xy += [lambda x, y: model.infer_inputs(x, np.abs(X), y)]
    if isinstance(model, fns.sip.SIPModel):
        of_x += [lambda x: model.sample_prior_functions(x, 2)]
    return of_x, of_xy


@pytest.mark.parametrize("name", sample_of(METHODS, ["TAGI", "SIP", "stable_process"]))
@pytest.mark.slow
def test_columns_in_another_order_are_refused_everywhere(name, models):
    model = models(name)
    assert model.column_names == NAMES and model.target_names == ["price", "rent"]
    before = [v.copy() for v in model.get_weights()]
    rule = re.escape(
        f"must have the columns of the data frame that the model was fitted to, in "
        f"their order, {NAMES}"
    )
    of_targets = r"must have the columns .*, in their order, \['price', 'rent'\]"
    of_x, of_xy = entries(model)
    for make in (pd.DataFrame, pl.DataFrame):
        bad, bad_targets = frame(TURNED, make), target_frame(("rent", "price"), make)
        for call in of_x:
            assert re.search(rule, refused(call, bad))
        for call in of_xy:
            assert re.search(rule, refused(call, bad, Y))
            assert re.search(of_targets, refused(call, X, bad_targets))
    for ours, theirs in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    for good in (frame(), frame(make=pl.DataFrame), pd.DataFrame(X), X.tolist()):
        np.testing.assert_allclose(model.predict(good)["mean"], model.predict(X)["mean"])


@pytest.mark.parametrize("name", ["TAGI", "stable_process"])
def test_columns_of_a_first_fit_are_compared_with_its_own_validation_data(name):
    model = batteries.ALL_MODELS[name]()
    for validation in [(frame(TURNED), Y), (frame(), target_frame(("rent", "price")))]:
        message = refused(model.fit, frame(), target_frame(), validation_data=validation, verbose=0)
        assert message.startswith("`validation ")
    if name == "stable_process":
        fresh = batteries.ALL_MODELS[name](partition="auto")
        assert "`x_predict`" in refused(fresh.fit, frame(), Y, x_predict=frame(TURNED), verbose=0)


def test_columns_of_adapt_are_those_of_the_model():
    model = batteries.tagi_model()
    model.adapt(frame(), target_frame())
    assert "`x` must have the columns" in refused(model.predict, frame(TURNED))
    assert "`x` must have the columns" in refused(model.fit, frame(TURNED), Y, verbose=0)
    model.adapt(frame(TURNED), Y)  # nothing is learnt yet, so these are new units
    assert model.column_names == TURNED and model.target_names is None
    model.predict(frame(TURNED))


@pytest.mark.parametrize("learn", ["fit", "train_on_batch"])
def test_columns_of_the_first_frame_that_is_learnt_are_remembered(learn):
    model = batteries.tagi_model()
    model.adapt(X, Y)
    model.predict(frame(TURNED))  # nothing has named the columns
    getattr(model, learn)(frame(), target_frame())
    assert model.column_names == NAMES and model.target_names == ["price", "rent"]
    assert "`x` must have the columns" in refused(model.predict, frame(TURNED))
    turned = frame(), target_frame(("rent", "price"))
    assert "`y` must have the columns" in refused(model.evaluate, *turned, verbose=0)


def test_columns_of_every_input_are_compared_and_saved(tmp_path):
    inputs = [keras.Input((2,), name="a"), keras.Input((2,), name="b")]
    outputs = fns.tagi.Dense(1)(fns.tagi.Concatenate()([fns.tagi.Dense(2)(x) for x in inputs]))
    model = fns.tagi.TAGIModel(inputs, outputs, likelihood=fns.likelihoods.Gaussian(0.3))
    parts = [frame()[NAMES[:2]], frame()[NAMES[2:]]]
    series = pd.Series(Y[:, 0], name="price")
    model.fit(parts, series, verbose=0)
    model.save(tmp_path / "model.keras")
    for each in (model, keras.models.load_model(tmp_path / "model.keras")):
        assert each.target_names == ["price"]
        turned = parts[1][parts[1].columns[::-1]]
        assert "['rooms', 'floor']" in refused(each.predict, [parts[0], turned])
        assert "['rooms', 'floor']" in refused(each.predict, {"a": parts[0], "b": turned})
        assert "['price']" in refused(each.evaluate, parts, series.rename("rent"), verbose=0)
        assert "['price']" in refused(each.evaluate, parts, pl.Series("rent", Y[:, 0]), verbose=0)
        each.evaluate(parts, Y[:, 0], verbose=0)


def test_numbers_and_tuples_are_names_too():
    levels = pd.MultiIndex.from_tuples([("a", 1), ("a", 2), ("b", 1), ("b", 2)])
    years = [2019, 2020, 2021, 2022]
    for names, others in [
        (levels, levels[[1, 0, 2, 3]]),
        (years, years[::-1]),
        ([0, "a", 1.5, 2],) * 2,
    ]:
        given = columns.column_names(pd.DataFrame(X, columns=names))
        assert columns.from_bytes(columns.as_bytes(given)) == given
        columns.check_names(given, given, "x")
        if others is not names:
            other = pd.DataFrame(X, columns=others)
            refused(columns.check_column_names, other, given, "x")
        columns.check_column_names(pd.DataFrame(X), given, "x")  # no names
        columns.check_column_names(X, given, "x")
    # These are the numbers of the columns, which say nothing unless their order is another one.
    for expected in (None, (0, 1, 2, 3)):
        columns.check_column_names(pd.DataFrame(X), expected, "x")
        columns.check_column_names(pd.DataFrame(X, columns=years), expected, "x")
        refused(columns.check_column_names, pd.DataFrame(X)[[1, 0, 2, 3]], expected, "x")
    refused(columns.check_column_names, pd.DataFrame(X), (1, 0, 2, 3), "x")
    assert columns.names_to_keep(pd.DataFrame(X)) is None


def test_inducing_points_and_figures_have_the_columns_of_the_model(models):
    model = batteries.sip_model(inducing_points=frame(TURNED)[:5])
    assert "`inducing_points` must have the columns" in refused(model.fit, frame(), Y, verbose=0)
    assert "`x` must have" in refused(
        fns.plotting.AlongInput, models("TAGI"), frame(TURNED), column=0
    )


# Values ------------------------------------------------------------------------------------------

MASKED = np.ma.array(X, mask=np.arange(80).reshape(20, 4) == 13)
WITHOUT = np.where(MASKED.mask, np.nan, X)

#: Pairs of an object and an equal array.
SAME = {
    "float16": (X.astype(np.float16), X.astype(np.float16).astype(float)),
    "longdouble": (X.astype(np.longdouble), X),
    "booleans": (X > 0, (X > 0).astype(float)),
    "objects": (X.astype(object), X),
    "decimals": ([[decimal.Decimal(float(v)) for v in row] for row in X], X),
    "fractions": ([[fractions.Fraction(float(v)) for v in row] for row in X], X),
    "tensor": (tf.constant(X), X),
    "bfloat16": (tf.cast(X, tf.bfloat16), tf.cast(tf.cast(X, tf.bfloat16), tf.float64).numpy()),
    "frame_of_decimals": (pd.DataFrame(X).map(decimal.Decimal), X),
    "nullable_frame": (
        pd.DataFrame(np.arange(80).reshape(20, 4)).astype("Int64"),
        np.arange(80.0).reshape(20, 4),
    ),
    "polars": (pl.DataFrame(X), X),
    "nothing_masked": (np.ma.array(X, mask=False), X),
    "masked": (MASKED, WITHOUT),
    "list_of_masked": (list(MASKED), WITHOUT),
    "nullable_frame_with_na": (pd.DataFrame(WITHOUT).astype("Float64"), WITHOUT),
    "nullable_integers": (
        pd.DataFrame({"a": pd.array([1, None], dtype="Int64")}),
        [[1.0], [np.nan]],
    ),
    "nullable_booleans": (
        pd.DataFrame({"a": pd.array([True, None], dtype="boolean")}),
        [[1.0], [np.nan]],
    ),
    "polars_nulls": (pl.DataFrame({"a": [1, None]}), [[1.0], [np.nan]]),
    "none": ([[1.0], [None]], [[1.0], [np.nan]]),
    "masked_integers": (np.ma.array([[1], [2]], mask=[[0], [1]]), [[1.0], [np.nan]]),
}


@pytest.mark.parametrize("case", SAME)
def test_what_is_taken_as_an_array(case):
    values, expected = SAME[case]
    array = arrays.as_array(values, "x")
    assert type(array) is np.ndarray
    np.testing.assert_array_equal(array.astype(np.float64), np.asarray(expected, np.float64))


DATES = pd.date_range("2020", periods=20)
WITH_DATES = {"when": DATES.to_numpy(), "size": X[:, 0]}


#: Objects that are refused, and a part of the error text.
class Endless:
    """A sequence by its methods, which never raises at its end."""

    def __len__(self):
        return 3

    def __getitem__(self, index):
        return 1.0


REFUSED = {
    "datetimes": ((X * 1e3).astype("datetime64[s]"), "(dates)"),
    "timedeltas": ((X * 1e3).astype("timedelta64[s]"), "(durations)"),
    "timedelta_objects": ((X * 1e3).astype("timedelta64[s]").astype(object), "timedelta"),
    "numpy_timedeltas_in_lists": ([[np.timedelta64(1, "s")]], "(durations)"),
    "frame_with_dates": (pd.DataFrame(WITH_DATES), "['when']"),
    "polars_with_dates": (pl.DataFrame(WITH_DATES), "['when']"),
    "frame_with_durations": (pd.DataFrame({"a": DATES - DATES[0], "b": 1.0}), "['a']"),
    "frame_of_durations": (pd.DataFrame({"a": DATES - DATES[0]}), "['a']"),
    "polars_durations": (pl.DataFrame({"a": (DATES - DATES[0]).to_numpy()}), "['a']"),
    "series_of_dates": (pd.Series(DATES), "(dates)"),
    "complex": (X.astype(complex), "dtype complex128"),
    "complex_objects": (X.astype(complex).astype(object), "values of type complex"),
    "strings": (X.astype(str), "`pandas.get_dummies`"),
    "bytes": (X.astype("S"), "`pandas.get_dummies`"),
    "a_string": ("abc", "dtype <U3"),
    "words_among_numbers": ([[1.0, "a"]], "dtype <U"),
    "frame_with_words": (pd.DataFrame({"a": ["u", "v"], "b": 1.0}), "words in the columns ['a']"),
    "polars_with_words": (pl.DataFrame({"a": ["u", "v"], "b": [1.0, 2.0]}), "in the columns ['a']"),
    "categories": (pd.DataFrame({"a": pd.Categorical(["u", "v"])}), "words in the columns ['a']"),
    "records": (np.rec.fromarrays(X.T), "structured_to_unstructured"),
    "ragged": (tf.ragged.constant([[1.0, 2.0], [3.0]]), "RaggedTensor: `to_tensor`"),
    "sparse_tensor": (tf.sparse.from_dense(X), "SparseTensor"),
    "sparse_matrix": (scipy.sparse.csr_matrix(X), "`toarray`"),
    "symbolic": (keras.Input((4,)), "type KerasTensor"),
    "unequal_rows": ([[1.0, 2.0], [3.0]], "unequal lengths"),
    "objects": ([[object()]], "values of type object"),
    "set": ({1.0, 2.0}, "type set"),
    "function": (np.sin, "type ufunc"),
    "none": (None, "x=None"),
    "endless": (Endless(), "type Endless: NumPy cannot convert"),
    "endless_rows": ([Endless(), Endless()], "NumPy cannot convert Endless"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_array_of_numbers(case):
    values, said = REFUSED[case]
    message = refused(arrays.as_array, values, "x", kind=TypeError)
    assert message.startswith("`x` must be an array of") and said in message


def test_containers_that_numpy_reads():
    numbers = [1.0, 2.0]
    for make in (tuple, collections.deque, collections.UserList, lambda v: array.array("d", v)):
        np.testing.assert_array_equal(arrays.as_array(make(numbers), "x"), numbers)
    np.testing.assert_array_equal(arrays.as_array(memoryview(b"ab"), "x"), [97, 98])
    fit = batteries.tagi_model().fit
    assert "NumPy cannot convert" in refused(fit, Endless(), kind=TypeError)
    assert "NumPy cannot convert Endless" in refused(fit, [Endless()], Y, kind=TypeError)


@pytest.mark.parametrize("name", METHODS)
def test_the_only_input_may_be_in_a_list_or_dict_also_at_first(name):
    """Also of models that learn their shapes from it."""
    for given in ([X], (X,), [X.tolist()], [frame()], {"x": X}):
        model = batteries.ALL_MODELS[name]()
        if isinstance(given, dict) and model.units is not None:
            given = {model.input_tensors[0].name: X}
        model.adapt(given, Y)
        assert model.units.input_scalers[0].mean.shape == (4,)
        np.testing.assert_allclose(model.units.input_scalers[0].mean, X.mean(axis=0), rtol=1e-6)


def test_a_list_of_one_row_of_two_axes_is_a_row():
    x, y = np.arange(6.0).reshape(1, 2, 3), [1.0]
    likelihood = fns.likelihoods.Gaussian(0.3)
    inputs, targets = checks.first_data(x.tolist(), y, likelihood, "float32")
    np.testing.assert_array_equal(inputs, x)
    assert targets.shape == (1, 1)
    with pytest.raises(ValueError, match=r"keys of the model's inputs, \['x'\]"):
        checks.first_data({"age": X}, Y, likelihood, "float32")


def test_whole_numbers_beyond_float64():
    assert "float64 can hold" in refused(arrays.as_array, [[10**400]], "x")


@pytest.mark.slow
def test_masked_inputs_are_refused_and_masked_targets_are_missing():
    masked = np.ma.array(Y, mask=np.arange(40).reshape(20, 2) % 7 == 3)
    missing = np.where(masked.mask, np.nan, Y)
    under = np.ma.array(np.where(masked.mask, 1e6, Y), mask=masked.mask)
    fits = []
    for targets in (missing, masked, under, pd.DataFrame(missing).astype("Float64")):
        model = batteries.tagi_model()
        model.fit(X, targets, verbose=0)
        fits.append([model.predict(X)["mean"], model.evaluate(X, targets, verbose=0)])
    for fit in fits[1:]:
        np.testing.assert_array_equal(fit[0], fits[0][0])
        assert fit[1] == fits[0][1]
    assert "1 masked, NaN or" in refused(model.predict, MASKED)


@pytest.mark.parametrize("name", [n for n in METHODS if n != "TAGI"])
def test_methods_without_missing_targets_name_the_one_that_takes_them(name):
    model = batteries.ALL_MODELS[name]()
    for targets in (np.where(Y > 0.5, np.nan, Y), np.ma.array(Y, mask=Y > 0.5)):
        message = refused(model.fit, X, targets, verbose=0)
        assert "`y` must be finite" in message and "`tagi.TAGIModel`" in message


def test_a_single_row_and_no_columns(models):
    for name in ("TAGI",):
        message = refused(models(name).predict, X[0])
        assert "`x[np.newaxis]` is an array of a single row" in message
    for make in (fns.diwp.DIWPModel, fns.sip.SIPModel, fns.stable_process.StableProcessModel):
        assert "at least one column" in refused(make().fit, X[:, :0], Y, verbose=0)


def classifiers():
    inputs = keras.Input((4,))
    likelihood = fns.likelihoods.Categorical()
    yield fns.tagi.TAGIModel(inputs, fns.tagi.Dense(3)(inputs), likelihood=likelihood)
    yield fns.diwp.DIWPModel(num_outputs=3, likelihood=fns.likelihoods.Categorical())
    yield fns.sip.SIPModel(num_outputs=3, likelihood=fns.likelihoods.Categorical())
    network = inputs, fns.layers.VariationalDense(3)(inputs)
    yield fns.fbnn.VariationalModel(network, likelihood=fns.likelihoods.Categorical())


def test_labels_that_are_words_or_one_hot():
    labels = np.arange(20) % 3
    words = np.array(["ham", "spam", "eggs"])[labels]
    for model in classifiers():
        message = refused(model.fit, X, np.eye(3)[labels], verbose=0)
        assert "labels, not one-hot" in message and "y of shape (20, 3)" in message
        for given in (words, words.tolist(), pd.Series(words), pl.Series(words), words[:, None]):
            message = refused(model.fit, X, given, kind=TypeError, verbose=0)
            for encoder in ("`pandas.factorize", "`LabelEncoder`", "`keras.layers.StringLookup`"):
                assert encoder in message, message
    assert pd.factorize(words)[0].tolist() == labels.tolist()  # the message promises this


# Arguments ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", METHODS)
def test_what_is_no_callback(name):
    import tf_keras  # comes with TFP, and is slow to import

    model = batteries.ALL_MODELS[name]()
    for given in (
        3,
        "stop",
        keras.callbacks.EarlyStopping,
        {},
        print,
        tf_keras.callbacks.History(),
    ):
        for callbacks in (given, [given]):
            message = refused(model.fit, X, Y, callbacks=callbacks, kind=TypeError, verbose=0)
            assert message.startswith("`callbacks` must be a callback of Keras or a list of them")
    assert "not the class" in refused(
        model.fit, X, Y, callbacks=keras.callbacks.EarlyStopping, kind=TypeError
    )
    message = refused(model.fit, X, Y, foo=1, kind=TypeError)
    assert message == "`fit` takes no `foo`. Received: foo=1"


def test_sizes_of_batches(models):
    model = models("TAGI")
    expected = model.predict(X)["mean"]
    for size in (np.int64(8), np.uint8(8), 10**12, 2**80):
        np.testing.assert_allclose(model.predict(X, batch_size=size)["mean"], expected, rtol=1e-5)
        model.evaluate(X, Y, batch_size=size, verbose=0)
        model.predict_distribution(X, batch_size=size)
    for size in (0, -1, 8.0, "8", True):
        for call in (model.predict, model.predict_distribution, model.evaluate, model.fit):
            targets = [] if call in (model.predict, model.predict_distribution) else [Y]
            message = refused(call, X, *targets, batch_size=size)
            assert message.startswith("`batch_size` must be a positive integer. Received: batch")
    fits = []
    for size in (20, np.int64(20), 10**12):
        fresh = batteries.tagi_model()
        fresh.fit(X, Y, batch_size=size, epochs=np.int64(2), verbose=0)
        fits.append(fresh.predict(X)["mean"])
    np.testing.assert_array_equal(fits[0], fits[1])
    np.testing.assert_array_equal(fits[0], fits[2])
    for option in ("validation_freq", "validation_batch_size", "validation_steps"):
        assert f"`{option}` must be a positive" in refused(
            model.fit, X, Y, validation_data=(X, Y), verbose=0, **{option: 0}
        )
    assert "`evaluate` takes no `foo`" in refused(model.evaluate, X, Y, foo=1, kind=TypeError)
    assert "`callbacks` must be" in refused(model.evaluate, X, Y, callbacks=3, kind=TypeError)
    assert "`callbacks` must be" in refused(model.predict, X, callbacks=3, kind=TypeError)
    assert "`steps` must be" in refused(model.predict, X, steps="a")


def test_classes_and_keras_2_in_place_of_objects():
    import tf_keras

    for make in (batteries.tagi_model, fns.diwp.DIWPModel, fns.sip.SIPModel):
        message = refused(make, likelihood=fns.likelihoods.Gaussian, kind=TypeError)
        assert "an object, `Gaussian(...)`, not the class" in message
    model = fns.diwp.DIWPModel()
    assert "an object, `Adam(...)`" in refused(model.compile, keras.optimizers.Adam)
    assert "`tf_keras`" in refused(model.compile, tf_keras.optimizers.Adam())
    assert "`tf_keras`" in refused(model.compile, metrics=[tf_keras.metrics.MeanAbsoluteError()])
    assert "`metrics` must be" in refused(model.compile, metrics=["foo"])
    model.compile(metrics="mae")
    old = tf_keras.Input((4,))
    for layer in (fns.tagi.Dense(2), fns.layers.VariationalDense(2)):
        assert "not of `tf_keras`" in refused(layer, old, kind=TypeError)


# Warnings ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_warnings_name_the_line_of_the_caller():
    model = batteries.diwp_model(inducing_points=30)  # more than the number of rows
    with pytest.warns(UserWarning, match="The first data have 20 rows") as caught:
        model.fit(X, Y, verbose=0)
    (found,) = [w for w in caught if "The first data" in str(w.message)]
    assert found.filename == __file__
    assert "model.fit(X, Y" in linecache.getline(found.filename, found.lineno)


def test_no_warning_is_made_elsewhere():
    package = pathlib.Path(fns.__file__).parent
    using = [p.name for p in package.rglob("*.py") if "warnings.warn" in p.read_text()]
    assert using == ["notices.py"]


def test_metrics_of_compile_without_validation_are_said_to_be_nowhere():
    model = batteries.tagi_model()
    model.compile(metrics=["mae"])
    with pytest.warns(UserWarning, match=r"\['mean_absolute_error'\], are for `evaluate`"):
        history = model.fit(X, Y, verbose=0).history
    assert "mean_absolute_error" not in history
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        history = model.fit(X, Y, validation_data=(X, Y), verbose=0).history
    assert "val_mean_absolute_error" in history


def _trained(likelihood, steps, epochs):
    """Returns an object with the attributes that `warn_of_no_progress` uses."""
    counters = SimpleNamespace(steps=tf.Variable(steps), epochs=tf.Variable(epochs))
    units = SimpleNamespace(target_scaler=tf.identity, log_target_unit=0.0)
    return SimpleNamespace(likelihood=likelihood, counters=counters, units=units)


def test_a_constant_is_what_training_is_compared_with():
    """SciPy finds the best constant for each kind of likelihood, to 1e-5."""
    generator = np.random.default_rng(0)
    y = generator.normal(size=(200, 2)).astype("float32") * [1.0, 2.0] + 3.0
    labels = generator.integers(0, 3, size=(200, 1)).astype("float32")
    gaussian = stats.norm(y.mean(0), 0.3).logpdf(y).sum(axis=1).mean()
    fitted = stats.norm(y.mean(0), y.std(0)).logpdf(y).sum(axis=1).mean()
    entropy = stats.entropy(np.bincount(labels[:, 0].astype(int)))
    ones = (labels == 1.0).mean()
    binary = -stats.entropy([ones, 1.0 - ones])
    cases = [
        (fns.likelihoods.Gaussian(0.3), y, gaussian),
        (fns.likelihoods.HeteroscedasticGaussian(), y, fitted),
        (fns.likelihoods.Categorical(), labels, -entropy),
        (fns.likelihoods.Bernoulli(), (labels == 1.0).astype("float32"), binary),
    ]
    for likelihood, targets, expected in cases:
        targets = targets.astype("float32")
        constant = progress._of_constant(likelihood, tf.constant(targets))
        np.testing.assert_allclose(constant, expected, rtol=1e-5)
        for part, steps, epochs, warned in [
            (0.0, 10, 3, True),
            (0.05, 10, 3, True),
            (0.2, 10, 3, False),
            (0.0, 400, 3, False),
            (0.0, 10, 2, False),
        ]:
            model = _trained(likelihood, steps, epochs)
            history = {"log_likelihood": [-99.0, expected - part * expected]}
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                progress.warn_of_no_progress(model, history, targets)
            assert [w.filename for w in caught] == [__file__] * warned


@pytest.mark.parametrize("name", ["variational", "DIWP"])
@pytest.mark.slow
def test_a_fit_that_has_learnt_nothing_says_so(name):
    model = batteries.ALL_MODELS[name]()
    model.compile(keras.optimizers.Adam(1e-7))
    with pytest.warns(
        UserWarning, match=r"After 3 steps .* more epochs, or a larger learning"
    ) as w:
        model.fit(X, np.random.default_rng(3).normal(size=(20, 2)), epochs=3, verbose=0)
    assert __file__ in [each.filename for each in w]
