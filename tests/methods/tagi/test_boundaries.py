"""TAGI at its limits: inference that must not learn, indices, states, sizes, devices."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

from tfp_fnspace import likelihoods, tagi


def rng(seed=0):
    return np.random.default_rng(seed)


def tagi_model(inputs, outputs, jit_compile=False, **options):
    options = {"likelihood": likelihoods.Gaussian(0.3), "seed": 0, **options}
    model = tagi.TAGIModel(inputs, outputs, **options)
    model.compile(jit_compile=jit_compile)
    return model


def state_of(model):
    return [variable.numpy() for variable in model.parameter_variables]


# Inference of inputs -----------------------------------------------------------------------------


def test_inferring_inputs_leaves_batch_statistics_alone():
    x, y = rng().normal(size=(30, 3)), rng(1).normal(size=(30, 1))
    inputs = keras.Input((3,))
    hidden = tagi.BatchNormalization()(tagi.Dense(5)(inputs))
    model = tagi_model(inputs, tagi.Dense(1)(hidden))
    model.fit(x, y, epochs=2, batch_size=10, verbose=0)
    before = state_of(model)
    several = model.infer_inputs(x[:4], np.full((4, 3), 0.1), y[:4])
    for old, new in zip(before, state_of(model), strict=True):
        assert_array_equal(new, old)
    alone = model.infer_inputs(x[:1], np.full((1, 3), 0.1), y[:1])
    assert np.abs(several.mean - x[:4]).max() > 1e-3
    for one, all_rows in zip(alone, several, strict=True):  # rows do not affect each other
        assert_allclose(one[0], all_rows[0], rtol=1e-5, atol=1e-6)


def test_inferring_inputs_leaves_recurrent_states_alone():
    inputs = keras.Input((4,), batch_size=2)
    layer = tagi.LSTM(3, stateful=True)
    model = tagi_model(inputs, tagi.Dense(1)(layer(tagi.Reshape((4, 1))(inputs))))
    x, y = rng().normal(size=(4, 4)), rng(1).normal(size=(4, 1))
    model.fit(x, y, shuffle=False, verbose=0)
    before = state_of(model)
    first, second = (model.infer_inputs(x[:2], np.full((2, 4), 0.1), y[:2]) for _ in range(2))
    model.input_gradient(x[:2])
    for old, new in zip(before, state_of(model), strict=True):
        assert_array_equal(new, old)
    assert_array_equal(first.mean, second.mean)
    assert len(layer._inbound_nodes) == 2  # the graph of uncertain inputs is made once


def test_a_nested_model_is_named_where_inputs_are_inferred():
    inner = keras.Input((3,))
    block = keras.Model(inner, tagi.Dense(2)(inner))
    inputs = keras.Input((3,))
    model = tagi_model(inputs, tagi.Dense(1)(block(inputs)))
    x, y = rng().normal(size=(6, 3)), rng(1).normal(size=(6, 1))
    model.fit(x, y, verbose=0)
    with pytest.raises(ValueError, match=r"Uncertain inputs .* need TAGI layers from the inputs"):
        model.infer_inputs(x, np.ones_like(x), y)


# Full covariances --------------------------------------------------------------------------------


@pytest.mark.parametrize("covariance", ["full", "full_parameters"])
def test_full_covariances_refuse_a_layer_that_is_used_twice(covariance):
    inputs, shared = keras.Input((2,)), tagi.Dense(2)
    outputs = tagi.Dense(1)(shared(shared(inputs)))
    update = "exact" if covariance == "full_parameters" else "capped"
    with pytest.raises(ValueError, match="every dense layer is used once"):
        tagi_model(inputs, outputs, covariance=covariance, update=update)


def test_full_covariances_take_an_activation_that_is_used_twice():
    inputs, relu = keras.Input((2,)), tagi.Activation("relu")
    outputs = tagi.Dense(1)(relu(tagi.Dense(2)(relu(tagi.Dense(3)(inputs)))))
    model = tagi_model(inputs, outputs, covariance="full")
    assert [type(step).__name__ for step in model.chain.steps].count("Activation") == 2


# Indices -----------------------------------------------------------------------------------------


def embedding_model(**options):
    inputs = keras.Input((3,), dtype="int32")
    hidden = tagi.GlobalAveragePooling1D()(tagi.Embedding(5, 4)(inputs))
    return tagi_model(inputs, tagi.Dense(1)(hidden), **options)


def test_indices_are_not_standardised():
    x = rng().integers(5, size=(200, 3))
    y = 10.0 + 100.0 * (x == 4).sum(axis=1, keepdims=True)
    model = embedding_model(likelihood=likelihoods.Gaussian(0.1))
    model.fit(x, y, epochs=20, batch_size=10, verbose=0)
    assert model.evaluate(x, y, return_dict=True, verbose=0)["rmse"] < 0.2 * y.std()
    assert model.units.target_scaler.enabled
    # The table is the same, one level deeper.
    inner = keras.Input((3,))
    block = keras.Model(inner, tagi.Embedding(5, 4)(inner))
    inputs = [keras.Input((2,)), keras.Input((3,))]
    hidden = tagi.Flatten()(block(inputs[1]))
    outputs = tagi.Dense(1)(tagi.Concatenate()([tagi.Dense(2)(inputs[0]), hidden]))
    model = tagi_model(inputs, outputs)
    assert [scaler.enabled for scaler in model.units.input_scalers] == [True, False]
    assert model.index_inputs == [None, 5]


@pytest.mark.parametrize("dtype", ["int32", "float32"])
@pytest.mark.parametrize("move", ["tagi", "keras", "slice", "join"])
def test_indices_that_are_moved_first_are_indices(move, dtype):
    inputs = keras.Input((3,), dtype=dtype)
    moved = {
        "tagi": lambda: tagi.Reshape((3, 1))(inputs),
        "keras": lambda: keras.layers.Reshape((1, 3))(inputs),
        "slice": lambda: inputs[:, :2],
        "join": lambda: keras.layers.Concatenate()([inputs, inputs]),
    }[move]()
    model = tagi_model(inputs, tagi.Dense(1)(tagi.Flatten()(tagi.Embedding(5, 2)(moved))))
    assert model.index_inputs == [5] and not model.units.input_scalers[0].enabled
    x, y = rng().integers(5, size=(20, 3)), rng(1).normal(size=(20, 1))
    model.fit(x, y, verbose=0)
    with pytest.raises(ValueError, match="integer indices from 0 to 4"):
        model.predict(x + 1)


@pytest.mark.slow
def test_inputs_of_whole_numbers_are_standardised():
    """Integers are treated like real numbers; Keras would cast standardised values to integers."""
    x = rng().integers(0, 100_000, size=(300, 3))
    y = x.sum(axis=1, keepdims=True)
    means = []
    for dtype in ("float32", "int32", "int64"):
        inputs = keras.Input((3,), dtype=dtype)
        outputs = tagi.Dense(1)(keras.layers.Reshape((3,))(inputs))
        model = tagi_model(inputs, outputs, update="exact")
        model.fit(x, y, epochs=20, batch_size=10, verbose=0)
        assert model.units.input_scalers[0].enabled
        assert model.evaluate(x, y, return_dict=True, verbose=0)["rmse"] < 1e-3 * y.std()
        means.append(model.predict(x)["mean"])
    assert_array_equal(means[0], means[1])
    assert_array_equal(means[0], means[2])


@pytest.mark.parametrize("bad", [[0, 1, 5], [0, -1, 2], [0.5, 1, 2]])
def test_indices_outside_the_table_are_refused_before_anything_is_learnt(bad):
    model = embedding_model(jit_compile=True)
    x, y = np.array([[0, 1, 2], bad]), np.zeros((2, 1))
    before = state_of(model)
    for call in (lambda: model.fit(x, y, verbose=0), lambda: model.train_on_batch(x, y)):
        with pytest.raises(ValueError, match="integer indices from 0 to 4|must be whole numbers"):
            call()
    for old, new in zip(before, state_of(model), strict=True):
        assert_array_equal(new, old)
    model.fit(x[:1], y[:1], verbose=0)
    with pytest.raises(ValueError, match="integer indices from 0 to 4|must be whole numbers"):
        model.predict(x)


@pytest.mark.parametrize("jit_compile", [True, False])
def test_indices_of_a_dataset_are_checked_as_those_of_arrays(jit_compile):
    model = embedding_model(jit_compile=jit_compile)
    x, y = np.array([[0, 1, 2], [0, 1, 3], [0, 5, 1]], np.int32), np.zeros((3, 1), np.float32)
    model.fit(x[:2], y[:2], verbose=0)
    before = state_of(model)
    batches = tf.data.Dataset.from_tensor_slices((x[::-1], y)).batch(1)
    for call in (
        lambda: model.fit(batches, verbose=0),
        lambda: model.evaluate(batches, verbose=0),
        lambda: model.predict(batches.map(lambda inputs, _: inputs)),
    ):
        with pytest.raises(ValueError, match=r"`x` must hold integer indices from 0"):
            call()
    for old, new in zip(before, state_of(model), strict=True):
        assert_array_equal(new, old)


# States ------------------------------------------------------------------------------------------


def stateful_model():
    inputs = keras.Input((2, 1), batch_size=5)
    return tagi_model(inputs, tagi.Dense(1)(tagi.LSTM(2, stateful=True)(inputs)))


@pytest.mark.slow
def test_a_stateful_model_takes_whole_batches_of_its_own_size():
    model, x, y = stateful_model(), rng().normal(size=(10, 2, 1)), rng(1).normal(size=(10, 1))
    model.fit(x, y, shuffle=False, verbose=0)
    assert model.predict(x)["mean"].shape == (10, 1)
    assert np.isfinite(model.evaluate(x, y, return_dict=True, verbose=0)["nll"])
    for call in (
        lambda: model.fit(x[:8], y[:8], shuffle=False, verbose=0),
        lambda: model.predict(x[:3]),
        lambda: model.fit(x, y, shuffle=False, validation_split=0.3, verbose=0),
    ):
        with pytest.raises(ValueError, match=r"whole batches .* Received: \d rows, batches of 5"):
            call()
    for call in (
        lambda: model.fit(x, y, batch_size=2, shuffle=False, verbose=0),
        lambda: model.predict(x, batch_size=10),
    ):
        with pytest.raises(ValueError, match=r"`batch_size` must be that .* 5\. Received"):
            call()


def test_a_single_row_is_no_batch_of_a_stateful_layer():
    """The row would fit any number of states; it may be the remainder of a dataset."""
    model, x, y = stateful_model(), rng().normal(size=(6, 2, 1)), rng(1).normal(size=(6, 1))
    batches = tf.data.Dataset.from_tensor_slices((x.astype("float32"), y.astype("float32")))
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError)):
        model.fit(batches.batch(5), verbose=0)
    inputs = keras.Input((2, 1), batch_size=5)
    outputs = tagi.Dense(1)(tagi.LSTM(2, stateful=True)(inputs))
    with pytest.raises(ValueError, match="update='exact' takes rows one by one"):
        tagi_model(inputs, outputs, update="exact")


# Sizes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [tagi.MaxPooling2D, tagi.AveragePooling2D])
def test_windows_larger_than_the_image_are_refused(make):
    with pytest.raises(ValueError, match="(?i)pool_size|negative|computed output"):
        make(3)(keras.Input((2, 2, 1)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tagi.Bidirectional(tagi.Dense(3)), "must be layers fns.tagi.LSTM"),
        (lambda: tagi.Bidirectional(keras.layers.LSTM(2)), "must be layers fns.tagi.LSTM"),
        (lambda: tagi.Bidirectional("lstm"), "must be layers fns.tagi.LSTM"),
        (lambda: tagi.Bidirectional(tagi.LSTM(2), backward_layer=3), "must be layers"),
        (lambda: tagi.Reshape((-1, 0))(keras.Input((4,))), "as many elements as the inputs, 4"),
        (lambda: tagi.Concatenate(-3)([keras.Input((2, 3))] * 2), "not the batch axis"),
        (lambda: tagi.Concatenate(5)([keras.Input((2, 3))] * 2), "must be an axis of the inputs"),
        (
            lambda: tagi.MultiHeadAttention(1, 2)(*[keras.Input((2, 3, 4))] * 2),
            "a value and a key of rank 3",
        ),
        (
            lambda: tagi.MultiHeadAttention(1, 2)(
                keras.Input((2, 3)), keras.Input((4, 3)), keras.Input((5, 3))
            ),
            "the last two of one length",
        ),
    ],
)
def test_layers_that_do_not_fit_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# Convolutions in groups --------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.slow
def test_dilated_convolutions_in_groups_are_those_of_keras_and_learn_under_xla(rank):
    make = {1: "Conv1D", 2: "Conv2D"}[rank]
    options = {"filters": 4, "kernel_size": 3, "groups": 2, "dilation_rate": (3, 2)[:rank]}
    shape = (9, 8)[:rank]
    x, y = rng().normal(size=(12, *shape, 4)).astype("float32"), rng(1).normal(size=(12, 1))
    models = []
    for jit_compile in (True, False):
        inputs = keras.Input(x.shape[1:])
        layer = getattr(tagi, make)(**options)
        outputs = tagi.Dense(1)(tagi.Flatten()(layer(inputs)))
        models.append(tagi_model(inputs, outputs, jit_compile=jit_compile))
        theirs = getattr(keras.layers, make)(**options)
        theirs.build(x.shape)
        theirs.set_weights([layer.kernel_mean.numpy(), layer.bias_mean.numpy()])
        assert_allclose(layer(x).mean, theirs(x), rtol=1e-4, atol=1e-5)
        models[-1].fit(x, y, epochs=2, batch_size=6, verbose=0)
    for compiled, plain in zip(*map(state_of, models), strict=True):
        assert_allclose(compiled, plain, rtol=1e-4, atol=1e-5)


# Devices -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic", "lanczos3", "lanczos5"])
def test_interpolation_is_a_constant_of_the_graph(interpolation):
    """Some devices lack its operations; Keras's layer has the values."""
    layer = tagi.UpSampling2D((2, 3), interpolation=interpolation)
    x = rng().normal(size=(2, 4, 5, 1)).astype("float32")
    call = tf.function(layer).get_concrete_function(tf.TensorSpec(x.shape, tf.float32))
    names = {operation.type for operation in call.graph.get_operations()}
    assert not any("Resize" in name or "Scale" in name for name in names)
    theirs = keras.layers.UpSampling2D((2, 3), interpolation=interpolation)
    assert_allclose(call(x), theirs(x), rtol=1e-4, atol=1e-5)
