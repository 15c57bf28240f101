"""Normalisations and embedding: against Keras's layers, draws, and formulas written out.

Monte Carlo assertions fail by chance once in a million (`false_fail` of the fixtures) per call;
seeds are fixed.
"""

import contextlib

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

from tfp_fnspace import likelihoods, tagi
from tfp_fnspace.methods.tagi import propagation

SHAPE = (5, 4, 3)

#: Name -> class, arguments, axes that the statistics are taken over.
LAYERS = {
    "LayerNormalization": ("LayerNormalization", {}, (2,)),
    "LayerNormalization_axes": ("LayerNormalization", {"axis": [1, 2], "epsilon": 0.1}, (1, 2)),
    "LayerNormalization_bare": ("LayerNormalization", {"center": False, "scale": False}, (2,)),
    "RMSNormalization": ("RMSNormalization", {}, (2,)),
    "RMSNormalization_axes": ("RMSNormalization", {"axis": [1, 2]}, (1, 2)),
    "BatchNormalization": ("BatchNormalization", {}, (0, 1)),
    "BatchNormalization_axis": ("BatchNormalization", {"axis": 1, "momentum": 0.6}, (0, 2)),
    "BatchNormalization_bare": ("BatchNormalization", {"center": False, "scale": False}, (0, 1)),
}
BATCH = [name for name in LAYERS if name.startswith("Batch")]


def rng(seed=0):
    return np.random.default_rng(seed)


def random_moments(shape=SHAPE, seed=0):
    generator = rng(seed)
    return generator.normal(size=shape) + 0.7, generator.uniform(0.05, 1.5, size=shape)


def build(name, **options):
    """Makes the float64 layer with random moments, if it has parameters that learn."""
    kind, arguments, axes = LAYERS[name]
    layer = getattr(tagi, kind)(**arguments, **options, dtype="float64")
    layer.build((None, *SHAPE[1:]))
    for i, moments in enumerate(layer.parameters):
        if moments.variance.numpy().any():
            mean, variance = random_moments(moments.mean.shape, seed=7 + i)
            moments.mean.assign(mean)
            moments.variance.assign(variance)
    return layer, axes


def keras_layer(name, layer):
    """Returns Keras's layer with the means as weights."""
    kind, arguments, _ = LAYERS[name]
    theirs = getattr(keras.layers, kind)(**arguments, dtype="float64")
    theirs.build((None, *SHAPE[1:]))
    learnt = [pair for pair in layer.parameters if pair.variance.numpy().any()]
    for variable, pair in zip(theirs.trainable_variables, learnt, strict=True):
        variable.assign(np.reshape(pair.mean, variable.shape))
    return theirs


def run(layer, inputs, learn):
    """Returns the outputs of a model that learns or of one that predicts."""
    with propagation.innovation_scope() if learn else contextlib.nullcontext():
        return layer(inputs)


def values(layer):
    """Returns means and variances of scale and shift (0 for a missing one), to broadcast."""
    pairs = [[part.numpy() for part in pair] for pair in layer.parameters]
    return pairs if len(pairs) == 2 else [*pairs, [0.0, 0.0]]


def statistics(name, axes, mean, variance):
    """Returns centre and factor as documented."""
    centre = 0.0 if name.startswith("RMS") else mean.mean(axis=axes, keepdims=True)
    square = ((mean - centre) ** 2 + variance).mean(axis=axes, keepdims=True)
    epsilon = LAYERS[name][1].get("epsilon", 1e-6 if name.startswith("RMS") else 1e-3)
    return centre, 1.0 / np.sqrt(square + epsilon)


@pytest.mark.parametrize("name", LAYERS)
def test_exactly_known_values_give_keras_layer(name):
    layer, _ = build(name)
    theirs = keras_layer(name, layer)
    for pair in layer.parameters:
        pair.variance.assign(tf.zeros_like(pair.variance))
    x = random_moments()[0]
    for learn in (True, False) if name in BATCH else (False,):
        mean, variance = run(layer, x, learn)
        expected = theirs(x, training=True) if learn else theirs(x)
        assert_allclose(mean, expected, rtol=1e-8, atol=1e-12)
        assert_array_equal(variance, np.zeros(SHAPE))
        if name in BATCH:
            for ours, moving in zip(layer.state, theirs.non_trainable_variables, strict=True):
                assert_allclose(np.ravel(ours), moving, rtol=1e-10)
    assert_allclose(layer.sample(x[np.newaxis], seed=0)[0], theirs(x), rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("name", LAYERS)
def test_moments_are_those_of_draws(name, assert_mean_close, assert_variance_close):
    """If the statistics are known, the draws are z = (a - c) r w + b."""
    layer, axes = build(name)
    mean, variance = random_moments()
    outputs = run(layer, (mean, variance), learn=True)
    centre, factor = statistics(name, axes, mean, variance)
    (mw, sw), (mb, sb) = values(layer)
    generator = rng(3)

    def draws(m, s):
        return m + np.sqrt(s) * generator.normal(size=(20_000, *np.shape(m)))

    rank = len(SHAPE)  # of all parts, so that draws add one more axis
    w, b = (
        draws(*(np.reshape(part, (1,) * (rank - np.ndim(part)) + np.shape(part)) for part in pair))
        for pair in ((mw, sw), (mb, sb))
    )
    samples = (draws(mean, variance) - centre) * factor * w + b
    assert_mean_close(samples, outputs.mean)
    assert_variance_close(samples, outputs.variance)


@pytest.mark.parametrize("kind", ["LayerNormalization", "RMSNormalization"])
def test_the_statistics_of_many_units_are_known(kind):
    """Draws, each normalised by its own statistics, have the moments of the layer."""
    mean, variance = random_moments((1, 1000))
    outputs = getattr(tagi, kind)(scale_variance=1e-12)((mean, variance))
    samples = mean + np.sqrt(variance) * rng(1).normal(size=(2000, 1000))
    samples = getattr(keras.layers, kind)(dtype="float64")(samples).numpy()
    bias_variance = 0.01 if kind == "LayerNormalization" else 0.0
    ratio = samples.var(axis=0) / (outputs.variance[0].numpy() - bias_variance)
    assert_allclose(ratio.mean(), 1.0, atol=0.01)  # 0.5 without Sa in the statistics
    assert_allclose(ratio, 1.0, atol=0.2)
    assert_allclose(samples.mean(axis=0), outputs.mean[0], atol=0.1)
    total = np.square(outputs.mean) + outputs.variance
    assert_allclose(np.mean(total) - bias_variance, 1.0, rtol=2e-3)


def test_batch_statistics_are_those_of_draws(assert_mean_close):
    """The moving averages take the mean of draws, and the draws' spread about it."""
    layer = tagi.BatchNormalization(momentum=0.0, dtype="float64")
    mean, variance = random_moments((6, 4, 3))
    layer.build(mean.shape)
    with propagation.innovation_scope():
        layer((tf.constant(mean), tf.constant(variance)))
    samples = mean + np.sqrt(variance) * rng(1).normal(size=(20_000, *mean.shape))
    centre = layer.moving_mean.numpy()
    assert_mean_close(samples.mean(axis=(1, 2)), centre)
    assert_mean_close(np.square(samples - centre).mean(axis=(1, 2)), layer.moving_variance)


@pytest.mark.parametrize("name", LAYERS)
def test_innovations_are_those_of_a_known_scale_and_shift(name):
    layer, axes = build(name)
    mean, variance = random_moments()
    dm, ds = rng(5).normal(size=SHAPE), -rng(6).uniform(size=SHAPE)
    inputs = [tf.constant(mean), tf.constant(variance)]
    variables = [part.value for pair in layer.parameters for part in pair]
    with propagation.innovation_scope(), tf.GradientTape() as tape:
        tape.watch(inputs)
        outputs = layer(tuple(inputs))
    actual = tape.gradient(list(outputs), [*inputs, *variables], output_gradients=[dm, ds])
    centre, factor = statistics(name, axes, mean, variance)
    normalized, scale = (mean - centre) * factor, values(layer)[0][0]

    def to_parameters(part):
        shape = np.shape(scale)
        while part.ndim > len(shape):
            part = part.sum(axis=0)
        ones = tuple(i for i, size in enumerate(shape) if size == 1)
        return part.sum(axis=ones, keepdims=True)

    expected = [factor * scale * dm, (factor * scale) ** 2 * ds]
    expected += [to_parameters(normalized * dm), to_parameters(normalized**2 * ds)]
    expected += [to_parameters(dm), to_parameters(ds)]
    for got, want in zip(actual, expected[: len(actual)], strict=True):
        assert_allclose(got, want, rtol=1e-9, atol=1e-12)


def test_outside_the_scope_a_tape_sees_that_statistics_move():
    layer, _ = build("LayerNormalization")
    mean = tf.constant(random_moments((1, 1, 3))[0])
    with tf.GradientTape() as tape:
        tape.watch(mean)
        value = tf.reduce_sum(layer(mean).mean * [[[1.0, -2.0, 0.5]]])
    step = 1e-6
    expected = []
    for unit in np.eye(3)[:, np.newaxis, np.newaxis]:
        ends = [np.sum(layer(mean + s * step * unit).mean * [1.0, -2.0, 0.5]) for s in (1, -1)]
        expected.append((ends[0] - ends[1]) / (2 * step))
    assert value.shape == ()
    assert_allclose(np.ravel(tape.gradient(value, mean)), expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["LayerNormalization_bare", "BatchNormalization_bare"])
def test_without_a_scale_nothing_is_learnt(name):
    layer, _ = build(name)
    assert len(layer.parameters) == 1
    assert_array_equal(layer.kernel_mean, np.ones_like(layer.kernel_mean))
    assert_array_equal(layer.kernel_variance, np.zeros_like(layer.kernel_variance))
    assert layer.bias_mean is None


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tagi.LayerNormalization(epsilon=0.0), r"`epsilon` must be a positive"),
        (lambda: tagi.RMSNormalization(scale_variance=-1), r"`scale_variance` must be a positive"),
        (lambda: tagi.BatchNormalization(axis=[1, 2]), r"`axis` must be one integer"),
        (lambda: tagi.BatchNormalization(momentum=1.0), r"`momentum` less than 1"),
        (lambda: tagi.LayerNormalization(axis=0).build((None, 3)), r"other than the first"),
        (lambda: tagi.LayerNormalization().build((None, None)), r"have known sizes"),
        (lambda: tagi.Embedding(0, 3), r"`input_dim` must be a positive integer"),
        (lambda: tagi.Embedding(5, 3)((np.ones((2, 3)), np.ones((2, 3)))), r"not moments"),
    ],
)
def test_arguments_are_checked(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# Batches -----------------------------------------------------------------------------------------


def batch_model(update="capped", num_rows=23):
    inputs = keras.Input((3,))
    normalization = tagi.BatchNormalization(momentum=0.8)
    hidden = normalization(tagi.Dense(4, activation="relu")(inputs))
    outputs = tagi.Dense(1)(hidden)
    model = tagi.TAGIModel(
        inputs,
        outputs,
        likelihood=likelihoods.Gaussian(scale=0.3),
        update=update,
        standardize=False,
        seed=0,
    )
    model.compile(jit_compile=False)
    x = rng(1).normal(size=(num_rows, 3))
    return model, normalization, x, x[:, :1] - 0.5 * x[:, 1:2]


def test_rows_that_pad_a_batch_do_not_count():
    """A compiled epoch pads its last batch, of 3 rows, to 10; batches one by one do not."""
    first, _, x, y = batch_model()
    second, *_ = batch_model()
    first.fit(x, y, batch_size=10, shuffle=False, verbose=0)
    for start in (0, 10, 20):
        second.train_on_batch(x[start : start + 10], y[start : start + 10])
    assert len(first.parameter_variables) == 4 + 4 + 2 + 4
    for ours, theirs in zip(first.parameter_variables, second.parameter_variables, strict=True):
        assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_exact_updates_do_not_depend_on_the_split():
    first, normalization, x, y = batch_model("exact", 8)
    second, *_ = batch_model("exact", 8)
    first.fit(x, y, batch_size=8, shuffle=False, verbose=0)
    for start in range(0, 8, 4):
        second.train_on_batch(x[start : start + 4], y[start : start + 4])
    assert np.all(normalization.moving_mean.numpy() != 0.0)
    for ours, theirs in zip(first.parameter_variables, second.parameter_variables, strict=True):
        assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_one_row_is_normalised_by_the_moving_averages():
    layer, _ = build("BatchNormalization_axis")
    moving_mean, moving_variance = random_moments(layer.moving_mean.shape, seed=9)
    layer.moving_mean.assign(moving_mean)
    layer.moving_variance.assign(moving_variance)
    mean, variance = random_moments((1, *SHAPE[1:]))
    expected = layer((mean, variance))
    outputs = run(layer, (mean, variance), learn=True)
    for got, want in zip(outputs, expected, strict=True):
        assert_allclose(got, want, rtol=1e-12)
    square = np.mean((mean - moving_mean) ** 2 + variance, axis=(0, 2)).reshape(-1, 1)
    assert_allclose(layer.moving_mean, 0.6 * moving_mean + 0.4 * mean[0].mean(-1, keepdims=True))
    assert_allclose(layer.moving_variance, 0.6 * moving_variance + 0.4 * square)


def test_a_frozen_layer_keeps_its_moving_averages():
    layer, _ = build("BatchNormalization", trainable=False)
    run(layer, random_moments(), learn=True)
    assert_array_equal(layer.moving_mean, np.zeros_like(layer.moving_mean))


# Embedding ---------------------------------------------------------------------------------------


def embedding():
    layer = tagi.Embedding(6, 2, dtype="float64")
    indices = np.array([[0, 3, 3], [5, 0, 3]])
    layer.build(indices.shape)
    mean, variance = random_moments((6, 2))
    layer.kernel_mean.assign(mean)
    layer.kernel_variance.assign(variance)
    return layer, indices


@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_embedding_looks_up_rows(dtype):
    layer, indices = embedding()
    theirs = keras.layers.Embedding(6, 2, dtype="float64")
    theirs.build(indices.shape)
    theirs.set_weights([layer.kernel_mean.numpy()])
    mean, variance = layer(indices.astype(dtype))
    assert_array_equal(mean, theirs(indices))
    assert_array_equal(variance, layer.kernel_variance.numpy()[indices])
    symbolic = layer(keras.Input((3,), dtype=dtype))
    assert symbolic[0].shape == symbolic[1].shape == (None, 3, 2)


def test_a_row_of_the_table_gets_the_innovations_of_all_its_places():
    layer, indices = embedding()
    dm, ds = rng(5).normal(size=(2, 3, 2)), -rng(6).uniform(size=(2, 3, 2))
    variables = [layer.kernel_mean.value, layer.kernel_variance.value]
    with propagation.innovation_scope(), tf.GradientTape() as tape:
        outputs = layer(indices)
    actual = tape.gradient(list(outputs), variables, output_gradients=[dm, ds])
    expected = np.zeros((2, 6, 2))
    for place in np.ndindex(2, 3):
        expected[0][indices[place]] += dm[place]
        expected[1][indices[place]] += ds[place]
    for got, want in zip(actual, expected, strict=True):
        assert_allclose(got, want, rtol=1e-12)


def test_embedding_has_the_moments_of_its_draws(assert_mean_close, assert_variance_close):
    layer, indices = embedding()
    samples = layer.sample(np.repeat(indices[np.newaxis], 4000, axis=0), seed=3).numpy()
    assert_array_equal(samples[:, 0, 1], samples[:, 1, 2])  # one function has one row of the table
    outputs = layer(indices)
    assert_mean_close(samples, outputs.mean)
    assert_variance_close(samples, outputs.variance)


def test_a_model_of_words_learns_and_loads(tmp_path):
    words = rng(0).integers(0, 5, size=(60, 3))
    y = np.array([-1.0, 0.0, 2.0, 0.5, -2.0])[words].sum(axis=1, keepdims=True)
    inputs = keras.Input((3,), dtype="int32")
    hidden = tagi.GlobalAveragePooling1D()(tagi.Embedding(5, 2)(inputs))
    noise = likelihoods.Gaussian(scale=0.1)
    model = tagi.TAGIModel(
        inputs, tagi.Dense(1)(hidden), likelihood=noise, standardize=False, seed=0
    )
    history = model.fit(words, y, epochs=10, batch_size=10, verbose=0).history
    assert history["rmse"][-1] < 0.5 * history["rmse"][0]
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    assert_array_equal(loaded.predict(words)["stddev"], model.predict(words)["stddev"])
    draws = model.sample_functions(words, 3, seed=1)
    assert_allclose(model.sample_functions(words[4:6], 3, seed=1), draws[:, 4:6], rtol=1e-5)
