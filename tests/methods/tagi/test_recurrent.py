"""LSTM, both directions, attention: against Keras's layers, a NumPy reference, and draws.

Monte Carlo assertions fail by chance once in a million (`false_fail` of the fixtures) per call;
seeds are fixed.
"""

import keras
import numpy as np
import pytest
import tagi_attention as reference_attention
import tagi_recurrent as reference
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

from tfp_fnspace import likelihoods, tagi
from tfp_fnspace.methods.tagi import propagation
from tfp_fnspace.methods.tagi.layers import attention

STEPS, FEATURES, UNITS = 4, 2, 3


def rng(seed=0):
    return np.random.default_rng(seed)


def random_moments(shape, seed=0):
    generator = rng(seed)
    return 0.7 * generator.normal(size=shape), generator.uniform(0.02, 0.5, size=shape)


def randomize(layers):
    """Gives random moments to all parameters of some layers."""
    for i, pair in enumerate(pair for layer in layers for pair in layer.parameters):
        mean, variance = random_moments(pair.mean.shape, seed=7 + i)
        pair.mean.assign(mean)
        pair.variance.assign(variance)


def known(layers):
    for pair in (pair for layer in layers for pair in layer.parameters):
        pair.variance.assign(tf.zeros_like(pair.variance))


def lstm(batch_size=None, **options):
    layer = tagi.LSTM(UNITS, dtype="float64", **options)
    layer.build((batch_size, STEPS, FEATURES))
    randomize([layer])
    return layer


def keras_weights(layer):
    """Returns the means in Keras's order: kernel, recurrent kernel, bias."""
    kernel, *bias, recurrent = (pair.mean.numpy() for pair in layer.parameters)
    return [kernel, recurrent, *bias]


def innovations(outputs_of, inputs, layers, dm, ds):
    inputs = [tf.convert_to_tensor(part) for part in inputs]
    pairs = [pair for layer in layers for pair in layer.parameters]
    variables = [part.value for pair in pairs for part in pair]
    with propagation.innovation_scope(), tf.GradientTape() as tape:
        tape.watch(inputs)
        outputs = outputs_of(tuple(inputs))
    return tape.gradient(list(outputs), [*inputs, *variables], output_gradients=[dm, ds])


# Exactly known weights ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"return_sequences": True, "go_backwards": True},
        {"use_bias": False, "activation": "relu", "recurrent_activation": "tanh"},
    ],
    ids=["plain", "backwards", "other"],
)
def test_exactly_known_weights_give_keras_lstm(options):
    layer = lstm(**options)
    known([layer])
    theirs = keras.layers.LSTM(UNITS, dtype="float64", **options)
    x = rng(1).normal(size=(3, STEPS, FEATURES))
    theirs.build(x.shape)
    theirs.set_weights(keras_weights(layer))
    mean, variance = layer(x)
    assert_allclose(mean, theirs(x), rtol=1e-10, atol=1e-12)
    assert_array_equal(variance, np.zeros_like(variance))
    assert layer.compute_output_shape(x.shape) == mean.shape
    assert_allclose(layer.sample(x[np.newaxis], seed=0)[0], theirs(x), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("mode", ["concat", "sum", "ave", "mul"])
def test_exactly_known_weights_give_keras_bidirectional(mode):
    options = {"return_sequences": mode == "concat"}
    ours = tagi.Bidirectional(tagi.LSTM(UNITS, dtype="float64", **options), mode, dtype="float64")
    theirs = keras.layers.Bidirectional(keras.layers.LSTM(UNITS, **options), mode, dtype="float64")
    x = rng(1).normal(size=(3, STEPS, FEATURES))
    ours.build(x.shape)
    theirs.build(x.shape)
    layers = [ours.forward_layer, ours.backward_layer]
    randomize(layers)
    known(layers)
    theirs.set_weights([w for layer in layers for w in keras_weights(layer)])
    mean, variance = ours(x)
    assert_allclose(mean, theirs(x), rtol=1e-6, atol=1e-7)
    assert_array_equal(variance, np.zeros_like(variance))
    assert ours.compute_output_shape(x.shape) == mean.shape


def attention_layer(**options):
    layer = tagi.MultiHeadAttention(2, 3, dtype="float64", **options)
    layer.build((None, STEPS, 4), (None, 5, FEATURES))
    dense = [layer.query_dense, layer.key_dense, layer.value_dense, layer.output_dense]
    randomize(dense)
    return layer, dense


@pytest.mark.parametrize("options", [{}, {"value_dim": 2, "use_bias": False, "output_shape": 5}])
def test_exactly_known_weights_give_keras_attention(options):
    layer, dense = attention_layer(**options)
    known(dense)
    theirs = keras.layers.MultiHeadAttention(2, 3, dtype="float64", **options)
    query, value = rng(1).normal(size=(3, STEPS, 4)), rng(2).normal(size=(3, 5, FEATURES))
    theirs.build(query.shape, value.shape)
    weights = [pair.mean.numpy() for part in dense for pair in part.parameters]
    shapes = [w.shape for w in theirs.get_weights()]
    theirs.set_weights([w.reshape(shape) for w, shape in zip(weights, shapes, strict=True)])
    for call in ({}, {"use_causal_mask": True}):
        mean, variance = layer(query, value, **call)
        assert_allclose(mean, theirs(query, value, **call), rtol=1e-5, atol=1e-6)
        assert_array_equal(variance, np.zeros_like(variance))
    assert layer.compute_output_shape(query.shape) == mean.shape


# The reference -----------------------------------------------------------------------------------


def reference_weights(layer):
    kernel, bias, recurrent = ([part.numpy() for part in pair] for pair in layer.parameters)
    return {"kernel": kernel, "bias": bias, "recurrent": recurrent}


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("sequences", [True, False])
def test_lstm_is_the_reference_forward_and_backward(sequences, graph):
    """Innovations of a weight are summed over rows and over all time steps."""
    layer = lstm(return_sequences=sequences)
    weights = reference_weights(layer)
    mean, variance = random_moments((2, STEPS, FEATURES))
    shape = (2, STEPS, UNITS) if sequences else (2, UNITS)
    dm, ds = rng(5).normal(size=shape), -rng(6).uniform(size=shape)

    def run(m, s, dm, ds):
        outputs = layer((m, s))
        return outputs, innovations(layer, (m, s), [layer], dm, ds)

    run = tf.function(run, autograph=False) if graph else run
    outputs, actual = run(*(tf.constant(part) for part in (mean, variance, dm, ds)))
    totals = {name: [0.0, 0.0] for name in weights}
    for row in range(2):
        steps = reference.forward(weights, mean[row], variance[row])
        units = [np.array([step["h"][part] for step in steps]) for part in (0, 1)]
        out = np.zeros((2, STEPS, UNITS))
        for part, cotangent in zip(out, (dm[row], ds[row]), strict=True):
            part[... if sequences else -1] = cotangent
        for got, want in zip(outputs, units, strict=True):
            assert_allclose(got[row], want if sequences else want[-1], rtol=1e-10)
        sums, *of_inputs = reference.backward(weights, steps, *out)
        for got, want in zip(actual[:2], of_inputs, strict=True):
            assert_allclose(got[row], want, rtol=1e-9, atol=1e-12)
        totals = {n: [a + b for a, b in zip(totals[n], sums[n], strict=True)] for n in sums}
    expected = [part for name in ("kernel", "bias", "recurrent") for part in totals[name]]
    for got, want in zip(actual[2:], expected, strict=True):
        assert_allclose(got, want, rtol=1e-9, atol=1e-12)


def test_a_model_updates_the_weights_as_the_reference(float64):
    inputs = keras.Input((STEPS, FEATURES))
    layer = tagi.LSTM(1)
    outputs = layer(inputs)
    randomize([layer])
    noise = likelihoods.Gaussian(scale=0.3)
    model = tagi.TAGIModel(inputs, outputs, likelihood=noise, update="exact")
    model.compile(jit_compile=False)
    weights = reference_weights(layer)
    x, y = rng(1).normal(size=(1, STEPS, FEATURES)), 0.4
    model.train_on_batch(x, np.array([[y]]))
    steps = reference.forward(weights, x[0])
    mean, variance = (part[0] for part in steps[-1]["h"])
    q, p = np.zeros((STEPS, 1)), np.zeros((STEPS, 1))
    q[-1], p[-1] = (y - mean) / (variance + 0.09), -1.0 / (variance + 0.09)
    sums, *_ = reference.backward(weights, steps, q, p)
    for name, after in reference_weights(layer).items():
        prior_mean, prior_variance = weights[name]
        assert_allclose(after[0], prior_mean + prior_variance * sums[name][0], rtol=1e-9)
        assert_allclose(after[1], prior_variance + prior_variance**2 * sums[name][1], rtol=1e-9)


@pytest.mark.slow
def test_a_missing_target_is_as_if_its_row_were_absent():
    x, y = rng(1).normal(size=(6, STEPS, FEATURES)), rng(2).normal(size=(6, 1))
    gone = np.array([1, 4])
    masked = y.copy()
    masked[gone] = np.nan
    learnt = []
    for rows, targets in ((x, masked), (np.delete(x, gone, axis=0), np.delete(y, gone, axis=0))):
        inputs = keras.Input((STEPS, FEATURES))
        model = tagi.TAGIModel(
            inputs,
            tagi.Dense(1)(tagi.LSTM(UNITS)(inputs)),
            likelihood=likelihoods.Gaussian(0.3),
            standardize=False,
            seed=0,
        )
        model.compile(jit_compile=False)
        before = [variable.numpy() for variable in model.parameter_variables]
        model.fit(rows, targets, batch_size=6, shuffle=False, verbose=0)
        learnt.append([variable.numpy() for variable in model.parameter_variables])
    for start, first, second in zip(before, *learnt, strict=True):
        assert np.any(first != start)
        assert_allclose(first, second, rtol=1e-5, atol=1e-6)


# Draws -------------------------------------------------------------------------------------------


def test_product_has_the_moments_of_draws(assert_mean_close, assert_variance_close):
    first, second = random_moments((4, 3), seed=1), random_moments((4, 3), seed=2)
    outputs = propagation.product(
        tf.multiply, *(tuple(map(tf.constant, pair)) for pair in (first, second))
    )
    generator = rng(3)
    samples = np.prod(
        [m + np.sqrt(s) * generator.normal(size=(100_000, 4, 3)) for m, s in (first, second)],
        axis=0,
    )
    assert_mean_close(samples, outputs[0])
    assert_variance_close(samples, outputs[1])


def test_lstm_has_the_moments_of_its_draws(assert_mean_close, assert_variance_close):
    """Moments are exact for two steps, linear gates and only the recurrent kernel uncertain."""
    layer = lstm(activation="linear", recurrent_activation="linear")
    for pair in layer.parameters[:2]:
        pair.variance.assign(tf.zeros_like(pair.variance))
    x = rng(1).normal(size=(2, 2, FEATURES))
    outputs = layer(x)
    samples = layer.sample(np.repeat(x[np.newaxis], 20_000, axis=0), seed=2)
    assert_mean_close(samples, outputs.mean)
    assert_variance_close(samples, outputs.variance)


def test_attention_to_one_position_has_the_moments_of_its_draws(
    assert_mean_close, assert_variance_close
):
    layer, _ = attention_layer()
    query, value = rng(1).normal(size=(2, 1, 4)), rng(2).normal(size=(2, 1, FEATURES))
    outputs = layer(query, value)
    num_draws = 20_000
    copies = [np.repeat(part, num_draws, axis=0) for part in (query, value)]
    copies = [part.reshape(2, num_draws, *part.shape[1:]).swapaxes(0, 1) for part in copies]
    with propagation.sampling_scope([1, 2], num_draws, layer._flatten_layers()):
        samples = layer(*(propagation.fold(tf.constant(part)) for part in copies)).mean
    samples = propagation.unfold(samples, num_draws)
    assert_mean_close(samples, outputs.mean)
    assert_variance_close(samples, outputs.variance)


def test_attention_is_the_reference_forward_and_backward():
    """The case has two heads, several positions, and all weights uncertain."""
    layer, dense = attention_layer(value_dim=2)
    weights = {
        name: [tuple(part.numpy() for part in pair) for pair in part_layer.parameters]
        for name, part_layer in zip(("query", "key", "value", "output"), dense, strict=True)
    }
    query, value = rng(1).normal(size=(2, STEPS, 4)), rng(2).normal(size=(2, 5, FEATURES))
    dm, ds = rng(3).normal(size=(2, STEPS, 4)), -rng(4).uniform(size=(2, STEPS, 4))
    outputs = layer(query, value)
    actual = innovations(lambda inputs: layer(*inputs), (query, value), dense, dm, ds)
    totals = [0.0] * 16
    for row in range(2):
        want, changes = reference_attention.attention(
            weights, query[row], value[row], 2, dm[row], ds[row]
        )
        for got, part in zip(outputs, want, strict=True):
            assert_allclose(got[row], part, rtol=1e-9)
        for got, (first, _) in zip(actual[:2], changes["inputs"], strict=True):
            assert_allclose(got[row], first, rtol=1e-9, atol=1e-12)
        found = [part for name in weights for pair in changes[name] for part in pair]
        totals = [a + b for a, b in zip(totals, found, strict=True)]
    for got, part in zip(actual[2:], totals, strict=True):
        assert_allclose(got, part, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("mode", ["concat", "sum", "ave", "mul"])
def test_both_directions_have_the_moments_of_draws(assert_mean_close, assert_variance_close, mode):
    """Known inputs, linear gates and uncertain recurrent kernels make the two independent."""
    linear = {"activation": "linear", "recurrent_activation": "linear", "dtype": "float64"}
    layer = tagi.Bidirectional(tagi.LSTM(UNITS, **linear), mode, dtype="float64")
    x = rng(1).normal(size=(2, 2, FEATURES))
    layer.build(x.shape)
    randomize([layer.forward_layer, layer.backward_layer])
    for part in (layer.forward_layer, layer.backward_layer):
        for pair in part.parameters[:2]:
            pair.variance.assign(tf.zeros_like(pair.variance))
    outputs = layer(x)
    samples = layer.sample(np.repeat(x[np.newaxis], 20_000, axis=0), seed=2)
    assert_mean_close(samples, outputs.mean)
    assert_variance_close(samples, outputs.variance)


def merged(mode, first, second):
    """Merges moments of two independent Gaussians in NumPy."""
    if mode == "concat":
        return [np.concatenate(pair, axis=-1) for pair in zip(first, second, strict=True)]
    if mode == "mul":
        return reference.product(*first, *second)
    scale = 0.5 if mode == "ave" else 1.0
    return [scale * (first[0] + second[0]), scale**2 * (first[1] + second[1])]


@pytest.mark.parametrize("mode", ["concat", "sum", "ave", "mul"])
def test_both_directions_are_the_reference(mode):
    layer = tagi.Bidirectional(
        tagi.LSTM(UNITS, return_sequences=True, dtype="float64"), mode, dtype="float64"
    )
    mean, variance = random_moments((1, STEPS, FEATURES))
    layer.build(mean.shape)
    randomize([layer.forward_layer, layer.backward_layer])
    outputs = layer((mean, variance))
    units = []
    for part, order in ((layer.forward_layer, 1), (layer.backward_layer, -1)):
        steps = reference.forward(reference_weights(part), mean[0, ::order], variance[0, ::order])[
            ::order
        ]
        units.append([np.array([step["h"][i] for step in steps]) for i in (0, 1)])
    for got, want in zip(outputs, merged(mode, *units), strict=True):
        assert_allclose(got[0], want, rtol=1e-9)


def test_softmax_is_linearised_with_its_whole_jacobian():
    mean, variance = (tf.constant(part) for part in random_moments((2, 5)))
    p, spread = (part.numpy() for part in attention._softmax(mean, variance))
    with propagation.innovation_scope(), tf.GradientTape() as tape:
        tape.watch([mean, variance])
        outputs = attention._softmax(mean, variance)
    dm, ds = rng(5).normal(size=(2, 5)), -rng(6).uniform(size=(2, 5))
    actual = tape.gradient(list(outputs), [mean, variance], output_gradients=[dm, ds])
    for row in range(2):
        jacobian = np.diag(p[row]) - np.outer(p[row], p[row])
        assert_allclose(spread[row], jacobian**2 @ variance[row].numpy(), rtol=1e-10)
        assert_allclose(actual[0][row], jacobian.T @ dm[row], rtol=1e-10)
        assert_allclose(actual[1][row], (jacobian**2).T @ ds[row], rtol=1e-10)


def test_softmax_has_the_moments_of_draws(assert_mean_close, assert_variance_close):
    """The scores' stddev is 0.02: linearisation is off by some 0.0004 of the stddevs of p."""
    mean = random_moments((2, 5))[0]
    p, spread = attention._softmax(tf.constant(mean), tf.constant(np.full(mean.shape, 4e-4)))
    scores = mean + 0.02 * rng(3).normal(size=(20_000, *mean.shape))
    samples = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
    assert_mean_close(samples, p)
    assert_variance_close(samples, spread)


def test_attention_passes_innovations_of_scores_values_and_weights():
    """With small variances, they are the exact gradient of the means to first order in dm."""
    layer, dense = attention_layer()
    query, value = rng(1).normal(size=(2, STEPS, 4)), rng(2).normal(size=(2, 5, FEATURES))
    dm = rng(3).normal(size=(2, STEPS, 4))
    actual = innovations(
        lambda inputs: layer(inputs[0], inputs[1]), (query, value), dense, dm, 0.0 * dm
    )
    means = [pair.mean.value for part in dense for pair in part.parameters]
    sources = [tf.constant(query), tf.constant(value)]
    with tf.GradientTape() as tape:
        tape.watch(sources)
        outputs = layer(*sources).mean
    expected = tape.gradient(outputs, [*sources, *means], output_gradients=tf.constant(dm))
    for got, want in zip([*actual[:2], *actual[2::2]], expected, strict=True):
        assert_allclose(got, want, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_both_directions_and_attention_to_another_series_are_loaded(tmp_path):
    first, second = keras.Input((3, 2)), keras.Input((4, 1))
    hidden = tagi.Bidirectional(tagi.LSTM(2, return_sequences=True))(first)
    hidden = tagi.MultiHeadAttention(2, 2)(hidden, second)
    outputs = tagi.Dense(1)(tagi.Flatten()(hidden))
    noise = likelihoods.Gaussian(0.2)
    model = tagi.TAGIModel([first, second], outputs, likelihood=noise, seed=0)
    assert len(model.tagi_layers) == 2 + 4 + 1
    x = [rng(0).normal(size=(3, 3, 2)), rng(1).normal(size=(3, 4, 1))]
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    assert_array_equal(loaded.predict(x)["stddev"], model.predict(x)["stddev"])
    draws = model.sample_functions(x, 2, seed=3)
    assert_array_equal(loaded.sample_functions(x, 2, seed=3), draws)
    assert np.ptp(draws, axis=0).min() > 0.0


# State -------------------------------------------------------------------------------------------


def test_a_stateful_lstm_goes_on_where_it_ended():
    mean, variance = random_moments((2, 2 * STEPS, FEATURES))
    whole = lstm()((mean, variance))
    layer = lstm(batch_size=2, stateful=True)
    halves = [(mean[:, part], variance[:, part]) for part in (slice(STEPS), slice(STEPS, None))]
    first, second = (layer(half) for half in halves)
    for got, want in zip(second, whole, strict=True):
        assert_allclose(got, want, rtol=1e-10)
    state = [variable.numpy() for variable in layer.state]
    assert_array_equal(state[0], second.mean)
    layer.sample(mean[np.newaxis, :, :STEPS], seed=0)
    assert_array_equal(layer.state[0], state[0])  # draws leave it alone
    layer.reset_state()
    assert_array_equal(layer(halves[0]).mean, first.mean)


def test_a_stateful_model_learns_and_keeps_its_state(tmp_path):
    inputs = keras.Input((2, 1), batch_size=1)
    layer = tagi.LSTM(3, stateful=True)
    model = tagi.TAGIModel(
        inputs, tagi.Dense(1)(layer(inputs)), likelihood=likelihoods.Gaussian(0.2), seed=0
    )
    model.compile(jit_compile=False)
    wave = np.sin(np.arange(40.0))
    x, y = wave[:-2].reshape(-1, 2, 1), wave[2::2].reshape(-1, 1)
    model.fit(x, y, batch_size=1, shuffle=False, verbose=0)
    assert np.all(layer.state[1].numpy() > 0.0)
    assert any(variable is layer.state[0] for variable in model.parameter_variables)
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    assert_array_equal(loaded.predict(x[:1])["mean"], model.predict(x[:1])["mean"])


def test_the_prior_of_the_forget_gate_is_open():
    layer = tagi.LSTM(200)
    layer.build((None, 3, 2))
    for seed in (None, 0):
        if seed is not None:
            assert layer.fresh
            layer.redraw(seed)
        gates = layer.bias_mean.numpy().reshape(4, 200).mean(axis=1)
        assert_allclose(gates, [0.0, 1.0, 0.0, 0.0], atol=0.05)
    assert_allclose(layer.recurrent_kernel_variance.numpy(), 2 / (2 + 200 + 200), rtol=1e-6)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tagi.LSTM(0), r"`units` must be a positive integer"),
        (lambda: tagi.LSTM(2).build((None, 3)), r"LSTM needs inputs of rank 3"),
        (lambda: tagi.LSTM(2, stateful=True).build((None, 3, 1)), r"needs inputs with a batch"),
        (lambda: tagi.Bidirectional(tagi.LSTM(2), "max"), r"`merge_mode` must be one of"),
        (
            lambda: tagi.Bidirectional(tagi.LSTM(2), backward_layer=tagi.LSTM(2)),
            r"must differ in `go_backwards`",
        ),
        (lambda: tagi.MultiHeadAttention(2, 0), r"`key_dim` must be a positive integer"),
    ],
)
def test_arguments_are_checked(make, message):
    with pytest.raises(ValueError, match=message):
        make()
