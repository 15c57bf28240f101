"""Datasets, generators and single batches: the promises about arrays hold for them too."""

import batteries
import keras
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
import toys
from exhaustive import sample_of

import tfp_fnspace as fns

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 4)).astype("float32")
Y = np.stack([X[:, 0], X[:, 1] - X[:, 2]], axis=1)


class Rows(keras.utils.PyDataset):
    """Yields batches of 10 rows."""

    def __init__(self, x=X, y=Y):
        super().__init__()
        self.x, self.y = x, y

    def __len__(self):
        return 3

    def __getitem__(self, index):
        rows = slice(10 * index, 10 * index + 10)
        return self.x[rows], self.y[rows]


def dataset(x=X, y=Y):
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(10)


def generator(x=X, y=Y, epochs=1):
    for _ in range(epochs):
        for start in range(0, 30, 10):
            yield x[start : start + 10], y[start : start + 10]


def changed(array, value):
    array = array.copy()
    array[17, 1] = value
    return array


@pytest.fixture
def model():
    return batteries.tagi_model()


@pytest.fixture(scope="module")
def fitted():
    model = batteries.tagi_model()
    model.fit(X, Y, epochs=1, verbose=0)
    return model


STREAMS = {
    "tf.data": lambda: dataset(),
    "PyDataset": lambda: Rows(),
    "generator": lambda: generator(epochs=2),
}


@pytest.mark.parametrize("kind", STREAMS)
def test_streams_equal_arrays_in_the_same_order(model, kind):
    arrays = batteries.tagi_model()
    arrays.fit(X, Y, batch_size=10, epochs=2, shuffle=False, verbose=0)
    if kind == "generator":
        model.adapt(X, Y)
    options = {"steps_per_epoch": 3} if kind == "generator" else {}
    model.fit(STREAMS[kind](), epochs=2, verbose=0, **options)
    np.testing.assert_allclose(
        arrays.predict(X)["mean"], model.predict(X)["mean"], rtol=1e-4, atol=1e-4
    )


def test_scores_of_streams_and_batches_equal_those_of_arrays(fitted):
    expected = fitted.evaluate(X, Y, return_dict=True, verbose=0)
    assert all(isinstance(value, float) for value in expected.values())
    for stream in (dataset(), Rows()):
        scores = fitted.evaluate(stream, return_dict=True, verbose=0)
        np.testing.assert_allclose(list(scores.values()), list(expected.values()), rtol=1e-5)
    scores = fitted.test_on_batch(X, Y, return_dict=True)
    np.testing.assert_allclose(scores["nll"], expected["nll"], rtol=1e-5)
    np.testing.assert_allclose(
        fitted.predict_on_batch(X)["mean"], fitted.predict(X)["mean"], rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("kind", ["tf.data", "PyDataset"])
@pytest.mark.parametrize("use", ["fit", "evaluate"])
def test_streams_with_bad_values_are_refused(use, kind):
    model = batteries.tagi_model(standardize=False)
    make = {"tf.data": dataset, "PyDataset": Rows}[kind]
    rule = r"`batch x` must be finite\. Received: .* 1 NaN .* the first at \[7, 1\], in batch 1"
    with pytest.raises(ValueError, match=rule):
        getattr(model, use)(make(x=changed(X, np.nan)), verbose=0)


def test_streams_with_infinite_targets_are_refused():
    model = batteries.tagi_model(standardize=False)
    with pytest.raises(ValueError, match=r"`batch y` must not be infinite"):
        model.fit(dataset(y=changed(Y, np.inf)), verbose=0)
    assert np.all(np.isfinite(model.predict(X)["mean"]))


def test_streams_may_have_missing_targets(model):
    arrays, y = batteries.tagi_model(), changed(Y, np.nan)
    arrays.fit(X, y, batch_size=10, shuffle=False, verbose=0)
    model.fit(dataset(y=y), verbose=0)
    np.testing.assert_allclose(
        arrays.predict(X)["mean"], model.predict(X)["mean"], rtol=1e-4, atol=1e-4
    )


def test_prediction_refuses_a_stream_with_bad_values(fitted):
    stream = tf.data.Dataset.from_tensor_slices(changed(X, np.inf)).batch(10)
    with pytest.raises(ValueError, match=r"`batch x` must be finite"):
        fitted.predict(stream)


WIDTHS = {
    "predict": lambda m: m.predict(tf.data.Dataset.from_tensor_slices(X[:, :1]).batch(10)),
    "predict_on_batch": lambda m: m.predict_on_batch(X[:, :1]),
    "call": lambda m: m(X[:, :1]),
    "evaluate": lambda m: m.evaluate(dataset(x=X[:, :1]), verbose=0),
    "fit": lambda m: m.fit(dataset(x=X[:, :1]), verbose=0),
}


@pytest.mark.parametrize("use", WIDTHS)
def test_inputs_of_another_width_are_refused(fitted, use):
    with pytest.raises(ValueError, match=r"must have shape \('N', 4\)\.?\s+Received"):
        WIDTHS[use](fitted)


TARGETS = {
    "fit": lambda m: m.fit(dataset(y=Y[:, :1]), verbose=0),
    "train_step": lambda m: m.train_step((X, Y[:, :1])),
    "test_on_batch": lambda m: m.test_on_batch(X, Y[:, :1]),
}


@pytest.mark.parametrize("use", TARGETS)
def test_targets_of_another_width_are_refused(fitted, use):
    with pytest.raises(ValueError, match=r"`y` must have shape"):
        TARGETS[use](fitted)


@pytest.mark.parametrize("method", ["predict_on_batch", "test_on_batch"])
def test_unfitted_model_is_refused(model, method):
    arguments = (X,) if method == "predict_on_batch" else (X, Y)
    with pytest.raises(ValueError, match=r"The model is not fitted"):
        getattr(model, method)(*arguments)


def test_inputs_by_name():
    a, b = keras.Input((2,), name="a"), keras.Input((2,), name="b")
    outputs = fns.tagi.Dense(2)(fns.tagi.Concatenate()([a, b]))
    model = fns.tagi.TAGIModel([a, b], outputs, likelihood=fns.likelihoods.Gaussian(0.3), seed=0)
    named = {"b": X[:, 2:], "a": X[:, :2]}
    model.fit(named, Y, verbose=0)
    model.fit(tf.data.Dataset.from_tensor_slices((named, Y)).batch(10), verbose=0)
    expected = model.predict([X[:, :2], X[:, 2:]])["mean"]
    np.testing.assert_array_equal(model.predict(named)["mean"], expected)
    stream = tf.data.Dataset.from_tensor_slices(named).batch(10)
    np.testing.assert_allclose(model.predict(stream)["mean"], expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match=r"`x` must have the keys of the model's inputs"):
        model.predict({"a": X[:, :2], "c": X[:, 2:]})


def test_an_own_train_step_is_called():
    calls = []

    class Counting(fns.tagi.TAGIModel):
        def train_step(self, data):
            calls.append(1)
            return super().train_step(data)

    inputs = keras.Input((4,))
    noise = fns.likelihoods.Gaussian(0.3)
    model = Counting(inputs, fns.tagi.Dense(2)(inputs), likelihood=noise)
    model.compile(run_eagerly=False)
    model.fit(X, Y, batch_size=10, verbose=0)
    assert calls


@pytest.mark.parametrize(
    "strategy", [tf.distribute.OneDeviceStrategy, tf.distribute.MirroredStrategy]
)
def test_strategies_of_one_replica(strategy):
    plain = batteries.tagi_model()
    plain.fit(X, Y, epochs=2, verbose=0)
    devices = "CPU:0" if strategy is tf.distribute.OneDeviceStrategy else ["CPU:0"]
    with strategy(devices).scope():
        model = batteries.tagi_model()
        model.compile()
    model.fit(X, Y, epochs=2, verbose=0)
    np.testing.assert_allclose(
        plain.predict(X)["mean"], model.predict(X)["mean"], rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize(
    "callback",
    [
        keras.callbacks.ReduceLROnPlateau("val_nll"),
        keras.callbacks.LearningRateScheduler(lambda epoch: 0.1),
    ],
)
def test_schedules_of_a_learning_rate_are_refused(model, callback):
    with pytest.raises(ValueError, match=r"TAGI has no learning rate to schedule.*Received"):
        model.fit(X, Y, callbacks=[callback], verbose=0)


def test_adapt_after_learning_is_refused(fitted):
    with pytest.raises(ValueError, match=r"`adapt` would change the units of what the model has"):
        fitted.adapt(X, Y)


def test_all_layers_frozen_learn_nothing(fitted):
    model = batteries.tagi_model()
    model.network.trainable = False
    model.fit(X, Y, epochs=1, verbose=0)
    before = [variable.numpy() for layer in model.tagi_layers for variable in layer.weights]
    model.fit(X, Y, epochs=1, verbose=0)
    after = [variable.numpy() for layer in model.tagi_layers for variable in layer.weights]
    for ours, theirs in zip(before, after, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("likelihood", ["gaussian", 0.3])
def test_likelihood_must_be_one(likelihood):
    with pytest.raises(TypeError, match=r"`likelihood` must be one of `tfp_fnspace.likelihoods`"):
        batteries.tagi_model(likelihood=likelihood)


def test_likelihood_scales_must_match_the_outputs():
    noise = fns.likelihoods.Gaussian([0.1, 0.2, 0.3])
    with pytest.raises(ValueError, match=r"one per output, 2\. Received: 3 scales"):
        batteries.tagi_model(likelihood=noise)


def test_seed_keeps_assigned_weights():
    inputs = keras.Input((4,))
    layer = fns.tagi.Dense(2)
    outputs = layer(inputs)
    layer.kernel_mean.assign(np.ones((4, 2)))
    fns.tagi.TAGIModel(inputs, outputs, likelihood=fns.likelihoods.Gaussian(0.3), seed=0)
    np.testing.assert_array_equal(layer.kernel_mean, np.ones((4, 2)))


def test_served_endpoints_by_name(fitted, tmp_path):
    fitted.export(tmp_path / "served", num_samples=3)
    loaded = tf.saved_model.load(str(tmp_path / "served"))
    outputs = loaded.serve(x=X)
    np.testing.assert_array_equal(
        loaded.signatures["serving_default"](x=X)["mean"], outputs["mean"]
    )
    sample = loaded.sample(x=X, seed=tf.constant([1, 2]))
    np.testing.assert_array_equal(sample, loaded.sample(X, seed=tf.constant([1, 2])))


def test_a_subclass_of_our_metrics_sees_the_distribution():
    class Mine(fns.metrics.NLL):
        pass

    model = batteries.tagi_model()
    model.compile(metrics=[Mine(name="mine")])
    model.fit(X, Y, verbose=0)
    scores = model.evaluate(X, Y, return_dict=True, verbose=0)
    assert scores["mine"] == scores["nll"]


def test_one_element_list_for_one_input(fitted):
    np.testing.assert_array_equal(fitted.predict([X])["mean"], fitted.predict(X)["mean"])


def test_cross_validation_says_what_it_does(capsys):
    model = batteries.tagi_model(noise="cross_validate")
    model.fit(X, Y, epochs=2, batch_size=10, verbose=2)
    lines = [line for line in capsys.readouterr().out.splitlines() if "held-out" in line]
    assert len(lines) == len(model.noise_scores) >= 3


# What is no batch of inputs and targets ----------------------------------------------------------


class Items(keras.utils.PyDataset):
    """A `PyDataset` of given batches; the last one raises `error`, if given."""

    def __init__(self, items, error=None, **options):
        super().__init__(**options)
        self.items, self.error, self.epochs = items, error, []

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        if self.error is not None and index == len(self) - 1:
            raise self.error
        return self.items[index]

    def on_epoch_begin(self):
        self.epochs.append("begin")

    def on_epoch_end(self):
        self.epochs.append("end")


class DataLoader:
    """Like PyTorch's: it can be read again, and yields lists."""

    def __init__(self, items):
        self.items = items

    def __iter__(self):
        return iter([list(item) if isinstance(item, tuple) else item for item in self.items])

    def __len__(self):
        return len(self.items)


class Mine(Exception):
    """An error that belongs to the user."""


def in_batches(*arrays):
    return [tuple(a[i : i + 10] for a in arrays) for i in range(0, 30, 10)]


def slices(*parts):
    return tf.data.Dataset.from_tensor_slices(parts)


def failing(items=None, error=None):
    yield from in_batches(X, Y) if items is None else items
    raise Mine("words of mine") if error is None else error


def linear_model(num_outputs=2, eager=False, **options):
    noise = fns.likelihoods.Gaussian(0.3)
    model = toys.LinearModel(4, num_outputs, noise, seed=0, **options)
    model.compile(keras.optimizers.Adam(0.05), num_rows=30, run_eagerly=eager)
    return model


@pytest.fixture(scope="module")
def linear():
    model = linear_model()
    model.fit(X, Y, verbose=0)
    return model


#: Name -> function that gives a model a stream.
USES = {
    "fit": lambda model, x: model.fit(x, verbose=0),
    "adapt": lambda model, x: linear_model().adapt(x),
    "validation": lambda model, x: model.fit(X, Y, validation_data=x, verbose=0),
    "evaluate": lambda model, x: model.evaluate(x, verbose=0),
    "predict": lambda model, x: model.predict(x),
}
RAGGED = tf.ragged.constant([[1.0, 2.0], [3.0]] * 5)
BAD_DATASETS = {
    "four parts": (lambda: slices(X, Y, Y, Y).batch(10), "pair .* Received: 4 parts"),
    "strings": (lambda: slices(X.astype(str), Y).batch(10), "real numbers. Received: x of"),
    "complex": (lambda: slices(X.astype(complex), Y).batch(10), "real numbers. Received: x of"),
    "ragged": (lambda: slices(RAGGED, Y[:10]).batch(5), "dense .* Received: .*to_tensor"),
    "sparse": (lambda: slices(tf.sparse.from_dense(X), Y).batch(9), "dense .* Rec.*to_dense"),
    "windows": (lambda: slices(X, Y).window(10), "dense .* Received: .*flat_map"),
    "single rows": (lambda: slices(X, Y), r"must have shape \('N', 4\)\. Received: x of shape"),
    "numbers": (lambda: slices(X[:, 0], Y), r"`dataset.batch\(32\)` makes them. Received"),
    "another width": (lambda: slices(X[:, :3], Y).batch(10), r"\('N', 4\)\. Received"),
    "no batches": (lambda: slices(X, Y).batch(10).take(0), "at least one batch. Received"),
    "infinite": (lambda: slices(changed(X, np.inf), Y).batch(10), "finite.*Rec.*in batch 1"),
    "too large": (
        lambda: slices(changed(X.astype("float64"), 1e300), Y).batch(10),
        "`batch x` must be.*Received.*in batch 1",
    ),
    "without rows": (
        lambda: slices(X, Y).batch(10).concatenate(tf.data.Dataset.from_tensors((X[:0], Y[:0]))),
        "at least one row. Received.*in batch 3",
    ),
}


def test_targets_in_a_dict_are_refused(linear):
    dataset = tf.data.Dataset.from_tensor_slices((X, {"price": Y})).batch(10)
    with pytest.raises(TypeError, match="`y` in a dataset must be one tensor .* Received: .*dict"):
        linear.fit(dataset, verbose=0)


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("kind", BAD_DATASETS)
def test_datasets_of_anything_but_batches_of_numbers_are_refused(linear, kind, use):
    make, words = BAD_DATASETS[kind]
    with pytest.raises((TypeError, ValueError), match=words):
        USES[use](linear, make())


BAD_ITEMS = {
    "four parts": (in_batches(X, Y, Y, Y), "pair .* Received: 4 parts"),
    "numbers": ([1.0, 2.0], "Received"),
    "strings": (["some", "words"], "Received"),
    "masked": ([(np.ma.array(X, mask=X > 1), Y)], "finite. Received: .* in batch 0"),
    "dates": ([(X, Y), (X.astype("datetime64[s]"), Y)], "real numbers. Received.* in batch 1"),
    "none": ([], "at least one batch. Received"),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("kind", BAD_ITEMS)
def test_python_streams_of_anything_else_are_refused(linear, kind, use):
    items, words = BAD_ITEMS[kind]
    for make in (Items, DataLoader, iter) if use in ("evaluate", "predict") else (Items,):
        with pytest.raises((TypeError, ValueError), match=words):
            USES[use](linear, make(items))


@pytest.mark.parametrize("use", ["fit", "adapt", "validation", "evaluate"])
def test_weights_are_checked_wherever_they_are_used(linear, use):
    """This model is evaluated with weights, but does not learn from them."""
    batches = in_batches(X, Y, Y)
    words = r"`batch sample_weight` must have shape \(\d+,\).* Received: .* in batch 0"
    if use in ("fit", "adapt"):
        words = "a pair .* this model does not learn from weights of rows. Received: 3 parts"
    for stream in (slices(X, Y, Y).batch(10), Items(batches)):
        with pytest.raises(ValueError, match=words):
            USES[use](linear, stream)


def test_loaders_have_no_weights(linear):
    with pytest.raises(ValueError, match=r"Weights need arrays, .* Received: x=DataLoader with w"):
        USES["evaluate"](linear, DataLoader(in_batches(X, Y, np.ones(len(X)))))
    USES["evaluate"](linear, iter(in_batches(X, Y, np.ones(len(X)))))


ONLY_WITH_TARGETS = {
    "x alone": (in_batches(X, Y)[0][0], r"must be a pair \(x, y\) .* Received: one part"),
    "two rows alone": (X[:2], r"must be a pair \(x, y\) .* Received: one part"),
    "two rows of lists": (X[:2].tolist(), r"must be a pair \(x, y\) .* Received: one part"),
    "by name": ({"x": X, "y": Y}, r"must be a pair \(x, y\) .* Received: one part of type dict"),
    "other rows": ((X[:10], Y[:9]), r"must have shape \(10, 2\).*Received: .* in batch 0"),
    "missing": ((X, changed(Y, np.nan)), "`batch y` must be finite.*Received: .* in batch 0"),
    "another width": ((X, X), "`batch y` must have shape.*Received"),
    "dates": ((X, Y.astype("timedelta64[s]")), "real numbers. Received"),
}


@pytest.mark.parametrize("kind", ONLY_WITH_TARGETS)
def test_targets_of_streams_are_checked_wherever_they_are_used(linear, kind):
    item, words = ONLY_WITH_TARGETS[kind]
    for use in ("fit", "adapt", "validation", "evaluate"):
        with pytest.raises((TypeError, ValueError), match=words):
            USES[use](linear, Items([item]))


def test_predictions_of_pairs_are_those_of_their_inputs(linear):
    expected = linear.predict(X)["mean"]
    for stream in (
        slices(X, Y).batch(10),
        Items(in_batches(X, Y)),
        iter(in_batches(X)),
        DataLoader([x for (x,) in in_batches(X)]),
    ):
        np.testing.assert_allclose(linear.predict(stream)["mean"], expected, rtol=1e-5, atol=1e-6)


# What is one -------------------------------------------------------------------------------------


def without_shapes():
    kinds = {"output_types": (tf.float32, tf.float32)}
    return tf.data.Dataset.from_generator(lambda: iter(in_batches(X, Y[:, 0])), **kinds)


ONE_COLUMN = {
    "dataset": lambda: slices(X, Y[:, 0]).batch(10),
    "float64": lambda: slices(X.astype("float64"), Y[:, 0].astype("float64")).batch(10),
    "no shapes": without_shapes,
    "PyDataset": lambda: Items(in_batches(X, Y[:, 0])),
    "threads": lambda: Items(in_batches(X, Y[:, 0]), workers=2),
    "processes": lambda: Items(in_batches(X, Y[:, 0]), workers=2, use_multiprocessing=True),
    "generator": lambda: iter(in_batches(X, Y[:, 0])),
    "loader": lambda: DataLoader(in_batches(X, Y[:, 0])),
    "frames": lambda: Items([(pd.DataFrame(x), pd.Series(y)) for x, y in in_batches(X, Y[:, 0])]),
}


@pytest.fixture(scope="module")
def with_arrays():
    model = linear_model(num_outputs=1, standardize=False, eager=True)
    history = model.fit(X, Y[:, :1], batch_size=10, shuffle=False, verbose=0).history
    return history["loss"], model.evaluate(X, Y[:, 0], return_dict=True, verbose=0)["nll"]


@pytest.mark.filterwarnings("ignore:Your input ran out of data", "ignore:After 3 steps")
@pytest.mark.parametrize("kind", ONE_COLUMN)
def test_targets_without_a_second_axis_are_one_column(with_arrays, kind):
    model, make = linear_model(num_outputs=1, standardize=False, eager=True), ONE_COLUMN[kind]
    history = model.fit(make(), validation_data=make(), verbose=0).history
    loss, nll = with_arrays
    np.testing.assert_allclose(history["loss"], loss, rtol=1e-5)
    np.testing.assert_allclose(history["val_nll"], [nll], rtol=1e-4)


def test_epochs_of_a_py_dataset_begin_and_end(linear):
    items = Items(in_batches(X, Y))
    linear.fit(items, epochs=2, verbose=0)
    assert items.epochs.count("begin") == 2 and items.epochs[-1] == "end"


def test_columns_of_frames_in_streams_are_compared(linear):
    frame, targets = pd.DataFrame(X, columns=list("abcd")), pd.DataFrame(Y, columns=["u", "v"])
    good, other = (frame, targets), (frame[list("dcba")], targets)
    model = linear_model()
    with pytest.raises(ValueError, match=r"columns.*Received: columns=\['d', .* in batch 1"):
        model.fit(Items([good, other]), verbose=0)
    model.fit(Items([good, good]), verbose=0)
    assert model.column_names == list("abcd")
    swapped = (frame, targets[["v", "u"]])
    for item in (other, swapped):
        for use in ("fit", "validation", "evaluate"):
            with pytest.raises(ValueError, match=r"Received: columns=.* in batch 0"):
                USES[use](model, Items([item]))
    with pytest.raises(ValueError, match=r"Received: columns=.* in batch 0"):
        model.predict(iter([other[:1]]))


# Ends, lengths, and errors of others -------------------------------------------------------------


@pytest.mark.parametrize("use", [use for use in USES if use != "adapt"])
@pytest.mark.slow
def test_errors_in_python_streams_keep_their_type(linear, use):
    items = in_batches(X, Y) * 2
    error = Mine("words of mine")
    streams = [
        Items(items, error),
        Items(items, error, workers=2),
        Items(items, error, workers=2, use_multiprocessing=True),
    ]
    if use != "validation":
        streams += [failing(), failing(error=IndexError("words of mine"))]
    for stream in streams:
        with pytest.raises((Mine, IndexError), match="words of mine"):
            USES[use](linear, stream)


def test_errors_in_functions_of_a_dataset_keep_their_words(linear):
    specs = tuple(tf.TensorSpec((None, width)) for width in (4, 2))
    stream = tf.data.Dataset.from_generator(failing, output_signature=specs)
    with pytest.raises(tf.errors.OpError, match="words of mine"):
        linear.evaluate(stream, verbose=0)


@pytest.mark.parametrize("use", [use for use in USES if use != "adapt"])
def test_ends_of_streams_that_are_none_are_refused(linear, use):
    batches = slices(X, Y).batch(10)
    counted = batches.apply(tf.data.experimental.assert_cardinality(5))
    for stream, words in {
        batches.filter(lambda *_: False): "at least one batch. Received",
        batches.repeat(): "without an end needs `(steps|steps_per_epoch|validation_steps)`. Rec",
        counted: "as its cardinality says. Received: .* 5 elements but .* only 3",
    }.items():
        with pytest.raises(ValueError, match=words):
            USES[use](linear, stream)


def test_a_generator_has_one_pass(linear):
    with pytest.raises(ValueError, match=r"one pass.*`steps_per_epoch`.*Received: .* 2 epochs"):
        linear.fit(generator(), epochs=2, verbose=0)
    with pytest.raises(ValueError, match=r"one pass.*`validation_steps`.*Received: .* 2 epochs"):
        linear.fit(X, Y, epochs=2, validation_data=generator(), verbose=0)
    with tf.distribute.OneDeviceStrategy("CPU:0").scope():
        model = linear_model()
    with pytest.raises(ValueError, match="devices of a strategy.* Received: a generator"):
        model.fit(generator(), verbose=0)


# All models --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    sample_of(
        [n for n in batteries.ALL_MODELS if n.count("_") != 2], ["TAGI", "SIP", "stable_process"]
    ),
)
def test_all_models_refuse_bad_streams(name):
    model, make = batteries.ALL_MODELS[name](), batteries.ALL_MODELS[name]
    batteries.fit(model, X, Y, epochs=2)
    large = changed(X.astype("float64"), 1e300)
    for use, call in USES.items():
        if use == "adapt":
            continue
        bad = [
            slices(large, Y).batch(10),
            slices(X[:, :3], Y).batch(10),
            Items([(X, Y), (X.astype(str), Y)]),
        ]
        if use != "predict":  # which takes inputs only, and drops bad weights with the targets
            bad.append(slices(X, Y, Y[:, 0]).batch(10))
        for stream in bad:
            with pytest.raises((TypeError, ValueError), match="Received"):
                if use == "validation":
                    batteries.fit(model, X, Y, validation_data=stream, epochs=2)
                else:
                    call(model, stream)
    assert np.all(np.isfinite(model.predict(X)["mean"]))
    unfitted = make()
    if name != "stable_process":
        with pytest.raises(ValueError, match=r"must be a pair \(x, y\)"):
            unfitted.fit(tf.data.Dataset.from_tensor_slices(X).batch(2), verbose=0)


@pytest.mark.parametrize("count", [None, 2.0, "2"])
def test_a_dataset_of_items_says_how_many_batches_it_has(linear, count):
    class Uncounted(keras.utils.PyDataset):
        def __getitem__(self, index):
            return np.ones((2, 1)), np.ones((2, 1))

    class Counted(Uncounted):
        def __len__(self):
            return count

    dataset = Uncounted() if count is None else Counted()
    for call in (linear.fit, linear.predict, linear.evaluate):
        with pytest.raises(TypeError, match="`PyDataset` must have `__len__`, the number"):
            call(dataset)


def test_how_much_to_print_is_checked(linear):
    x = np.ones((2, 1))
    for call in (linear.fit, linear.evaluate, lambda x, y, **options: linear.predict(x, **options)):
        with pytest.raises(ValueError, match="`verbose` must be one of .*Received: verbose='loud'"):
            call(x, x, verbose="loud")
    with pytest.raises(ValueError, match="`jit_compile` must be one of .*Received: jit_compile='x"):
        linear.compile(jit_compile="x")
