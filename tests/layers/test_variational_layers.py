"""Function-sampled layers: draws against plain loops; estimators; Keras."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from numpy.testing import assert_allclose, assert_array_equal

from tfp_fnspace.layers.convolutions import VariationalConv1D as Conv1D
from tfp_fnspace.layers.convolutions import VariationalConv2D as Conv2D
from tfp_fnspace.layers.dense import VariationalDense as Dense
from tfp_fnspace.layers.draws import function_draws
from tfp_fnspace.layers.embedding import VariationalEmbedding as Embedding
from tfp_fnspace.layers.per_sample import PerSample, RepeatSamples

tfd = tfp.distributions
GENERATOR = np.random.default_rng(0)

#: Name -> constructor of a layer and the shape of its rows.
LAYERS = {
    "Dense": (lambda **o: Dense(3, activation="tanh", **o), (4,)),
    "Dense_sequence": (lambda **o: Dense(3, row_rank=2, use_bias=False, **o), (5, 4)),
    "Dense_full": (lambda **o: Dense(3, posterior="full", prior="he", **o), (4,)),
    "Dense_low_rank": (lambda **o: Dense(2, posterior="low_rank", **o), (4,)),
    "Dense_radial": (
        lambda **o: Dense(2, posterior="radial", prior=tfd.StudentT(3, 0, 1), **o),
        (4,),
    ),
    "Dense_local": (lambda **o: Dense(3, estimator="local_reparameterization", **o), (4,)),
    "Dense_flipout": (lambda **o: Dense(3, estimator="flipout", posterior="radial", **o), (4,)),
    "Conv1D": (lambda **o: Conv1D(3, 2, **o), (6, 2)),
    "Conv1D_dilated": (lambda **o: Conv1D(3, 3, padding="same", dilation_rate=2, **o), (6, 2)),
    "Conv2D": (lambda **o: Conv2D(3, (2, 3), **o), (6, 5, 2)),
    "Conv2D_same": (lambda **o: Conv2D(3, 3, strides=(2, 1), padding="same", **o), (6, 5, 2)),
    "Conv2D_flipout": (lambda **o: Conv2D(3, 2, strides=2, estimator="flipout", **o), (6, 5, 2)),
    "Embedding": (lambda **o: Embedding(7, 3, **o), (4,)),
    "Embedding_local": (lambda **o: Embedding(7, 3, estimator="local_reparameterization", **o), ()),
}


def rows_for(name, shape=(), dtype="float32"):
    size = (*shape, *LAYERS[name][1])
    if name.startswith("Embedding"):
        return GENERATOR.integers(0, 7, size)
    return GENERATOR.normal(size=size).astype(dtype)


def outputs_of(layer, inputs, num_samples=3, seed=0, noise="joint"):
    with function_draws(num_samples, seed, noise) as draws:
        return layer(inputs), draws


def deterministic(layer, weights):
    """Returns the Keras layer that a draw of the weights stands for."""
    if isinstance(layer, Embedding):
        table = weights["embeddings"]
        return lambda x: table[x]
    if isinstance(layer, Dense):
        kernel, bias = weights["kernel"], weights.get("bias", 0.0)
        return lambda x: layer.activation(tf.constant(x @ kernel + bias)).numpy()
    kind = keras.layers.Conv1D if isinstance(layer, Conv1D) else keras.layers.Conv2D
    names = ("filters", "kernel_size", "strides", "padding", "dilation_rate", "activation")
    twin = kind(**{name: getattr(layer, name) for name in names})
    twin.build((None, *([None] * layer.num_axes), weights["kernel"].shape[-2]))
    twin.set_weights([weights["kernel"], weights["bias"]])
    return lambda x: twin(x).numpy()


@pytest.fixture(autouse=True)
def fixed_weights():
    keras.utils.set_random_seed(0)


# One draw, one function --------------------------------------------------------------------------


@pytest.mark.parametrize("name", LAYERS)
def test_each_draw_is_a_deterministic_layer(name, monkeypatch):
    layer = LAYERS[name][0]()
    x = rows_for(name, (5,))
    layer.build(x.shape)
    kept, sample = [], layer.posterior.sample
    monkeypatch.setattr(
        layer.posterior, "sample", lambda *args: kept.append(sample(*args)) or kept[-1]
    )
    ours, draws = outputs_of(layer, x)
    weights = [{k: v[s].numpy() for k, v in kept[0].items()} for s in range(3)]
    expected = np.stack([deterministic(layer, w)(x) for w in weights])
    assert_allclose(ours, expected, rtol=1e-4, atol=1e-5)
    assert np.abs(ours[0] - ours[1]).max() > 1e-3
    assert len(draws.divergences) == 1
    if not isinstance(layer, Embedding):
        x = rows_for(name, (3, 5))
        ours, _ = outputs_of(layer, x)
        expected = np.stack([deterministic(layer, w)(x[s]) for s, w in enumerate(weights)])
        assert_allclose(ours, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", LAYERS)
def test_the_same_seed_is_the_same_function_at_any_rows(name):
    layer = LAYERS[name][0]()
    x = rows_for(name, (5,))
    whole, _ = outputs_of(layer, x)
    repeated, _ = outputs_of(layer, np.concatenate([x[3:], x, x[:1]]))
    assert_allclose(repeated[:, 2:7], whole, rtol=1e-5, atol=1e-6)
    assert_allclose(repeated[:, :2], whole[:, 3:], rtol=1e-5, atol=1e-6)
    other, _ = outputs_of(layer, x, seed=1)
    assert np.abs(other - whole).max() > 1e-3
    outside = layer(x)
    assert outside.shape == (1, *whole.shape[1:])


def test_a_shared_layer_has_one_draw_and_one_divergence():
    x = rows_for("Dense", (5,))
    for estimator in ("function", "flipout", "local_reparameterization"):
        layer = Dense(4, estimator=estimator)
        with function_draws(3, 0) as draws:
            first, second = layer(x), layer(x)
            layer(first)
        assert len(draws.divergences) == 1
        assert np.array_equal(first, second) == (estimator == "function")
    layer = Dense(4)
    with function_draws(3, 0, noise="joint"):
        first = layer(x)
        with function_draws(3, 1, noise="joint"):
            inner = layer(x)
        assert_array_equal(layer(x), first)
    assert np.abs(inner - first).max() > 1e-3


# Estimators --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Dense", "Dense_sequence", "Conv1D", "Conv2D", "Embedding"])
@pytest.mark.parametrize("estimator", ["function", "local_reparameterization", "flipout"])
def test_marginal_moments(name, estimator, assert_mean_close, assert_variance_close):
    make, _ = LAYERS[name]
    if estimator not in make().estimators:
        pytest.skip("the layer has no such estimator")
    layer = Dense(3, estimator=estimator) if name == "Dense" else make(estimator=estimator)
    x = rows_for(name, (2,))
    layer.build(x.shape)
    for raw in layer.posterior._raw_scales.values():
        raw.assign(GENERATOR.normal(-0.5, 0.5, size=raw.shape))
    outer = 1 if estimator != "flipout" else 2000  # a call's draws depend on each other
    inner = 20_000 // outer
    run = tf.function(lambda seed: outputs_of(layer, x, inner, seed, "independent")[0])
    draws = np.stack([run(tf.constant([7, i])) for i in range(outer)])
    mean, variance = (
        part.numpy() for part in (layer._mean(tf.constant(x)), layer._variance(tf.constant(x)))
    )
    if outer == 1:
        assert_mean_close(draws[0], mean)
        assert_variance_close(draws[0], variance)
    else:
        assert_mean_close(draws.mean(axis=1), mean)
        assert_mean_close(np.mean((draws - mean) ** 2, axis=1), variance)


def test_flipout_draws_are_uncorrelated(assert_mean_close):
    layer = Dense(2, estimator="flipout")
    x = np.ones((2, 3), "float32")
    run = tf.function(lambda seed: outputs_of(layer, x, 2, seed, "independent")[0])
    run(tf.constant([0, 0]))
    draws = (
        np.stack([run(tf.constant([7, i])) for i in range(2000)])
        - layer._mean(tf.constant(x)).numpy()
    )
    assert_mean_close(draws[:, 0] * draws[:, 1], 0.0)  # over draws
    assert_mean_close(draws[:, :, 0] * draws[:, :, 1], 0.0)  # over rows


@pytest.mark.parametrize("estimator", ["local_reparameterization", "flipout"])
def test_other_estimators_still_predict_functions(estimator):
    x = np.repeat(rows_for("Dense", (1,)), 2, axis=0)
    layer = Dense(3, estimator=estimator)
    functions, _ = outputs_of(layer, x)
    assert_array_equal(functions[:, 0], functions[:, 1])
    noisy, _ = outputs_of(layer, x, noise="independent")
    assert np.abs(noisy[:, 0] - noisy[:, 1]).max() > 1e-3


def test_all_estimators_report_the_same_exact_divergence():
    layers = [Dense(3, estimator=e, kernel_initializer="ones") for e in Dense.estimators]
    x = rows_for("Dense", (5,))
    values = [outputs_of(layer, x, noise="independent")[1].kl("float32") for layer in layers]
    assert_allclose(values, values[0].numpy(), rtol=1e-6)
    prior = tfd.StudentT(3.0, 0.0, 1.0)
    layers = [
        Dense(3, estimator=e, kernel_initializer="ones", prior=prior) for e in Dense.estimators
    ]
    values = [outputs_of(layer, x, 4000, 0, "independent")[1].kl("float32") for layer in layers]
    assert_allclose(values[:2], values[0].numpy(), rtol=0.02)
    assert_allclose(values[2], values[0].numpy(), rtol=0.5)  # from one draw


def test_divergence_has_the_priors_of_kernel_and_bias():
    layer = Dense(3, prior=tfd.Normal(1.0, 2.0), bias_prior="standard")
    _, draws = outputs_of(layer, rows_for("Dense", (5,)))
    means, variances = layer.posterior.means, layer.posterior.variances()
    expected = 0.0
    for part, prior in (("kernel", tfd.Normal(1.0, 2.0)), ("bias", tfd.Normal(0.0, 1.0))):
        ours = tfd.Normal(means[part].numpy(), np.sqrt(variances[part]))
        expected += np.sum(tfd.kl_divergence(ours, prior))
    assert_allclose(draws.kl("float32"), expected, rtol=1e-5)
    default = Dense(3, prior=tfd.Laplace(0.0, 1.0))
    assert type(default.bias_prior) is tfd.Laplace


# Keras -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LAYERS)
def test_config_and_weights_round_trip(name):
    layer, x = LAYERS[name][0](), rows_for(name, (5,))
    expected, _ = outputs_of(layer, x)
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(layer))
    assert copy.get_config() == layer.get_config()
    outputs_of(copy, x)
    copy.set_weights(layer.get_weights())
    assert_array_equal(outputs_of(copy, x)[0], expected)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("noise", ["independent", "joint"])
def test_every_weight_has_a_gradient(name, noise):
    layer, x = LAYERS[name][0](), rows_for(name, (5,))
    with tf.GradientTape() as tape:
        outputs, draws = outputs_of(layer, x, noise=noise)
        loss = draws.kl("float32") + tf.reduce_sum(tf.sin(outputs))
    variables = layer.trainable_variables
    for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
        assert gradient is not None and np.all(np.isfinite(gradient)), variable.path
        assert np.any(gradient != 0.0), variable.path


def test_gradients_at_inputs_of_zero_are_finite():
    layer = Dense(2, estimator="local_reparameterization", use_bias=False)
    x = tf.zeros([3, 4])
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(outputs_of(layer, x, noise="independent")[0])
    for gradient in tape.gradient(loss, [x, *layer.trainable_variables]):
        assert np.all(np.isfinite(gradient))


@pytest.mark.parametrize("name", ["Dense", "Dense_local", "Dense_flipout", "Conv2D_same"])
def test_gradients_against_finite_differences(name, float64):
    layer, x = LAYERS[name][0](), tf.constant(rows_for(name, (5,), "float64"))

    def loss():
        outputs, draws = outputs_of(layer, x, noise="independent")
        return tf.reduce_sum(tf.sin(outputs)) + draws.kl("float64")

    loss()
    with tf.GradientTape() as tape:
        value = loss()
    variables = layer.trainable_variables
    for variable, gradient in zip(variables, tape.gradient(value, variables), strict=True):
        before, direction = variable.numpy(), GENERATOR.normal(size=variable.shape)
        values = []
        for step in (1e-5, -1e-5):
            variable.assign(before + step * direction)
            values.append(loss().numpy())
        variable.assign(before)
        expected = (values[0] - values[1]) / 2e-5
        assert_allclose(np.sum(gradient * direction), expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("policy", ["float32", "float64", "mixed_float16", "mixed_bfloat16"])
@pytest.mark.parametrize("name", LAYERS)
def test_dtype_policies_and_symbolic_shapes(name, policy):
    layer, x = LAYERS[name][0](dtype=policy), rows_for(name, (5,))
    for noise in ("independent", "joint"):
        outputs, draws = outputs_of(layer, x, noise=noise)
        assert outputs.dtype == layer.compute_dtype and np.all(np.isfinite(outputs))
        assert draws.kl(layer.variable_dtype).dtype == layer.variable_dtype
    shape = layer.compute_output_shape((None, *LAYERS[name][1]))
    assert shape == (None, None, *outputs.shape[2:])
    symbolic = layer(keras.KerasTensor((None, *LAYERS[name][1])))
    assert symbolic.shape == shape and symbolic.dtype == layer.compute_dtype


@pytest.mark.parametrize("name", LAYERS)
def test_graphs_with_unknown_numbers_of_rows(name):
    layer, x = LAYERS[name][0](), rows_for(name, (5,))
    layer.build(x.shape)
    function = tf.function(
        lambda x: outputs_of(layer, x, noise="independent")[0],
        input_signature=[tf.TensorSpec([None, *x.shape[1:]], x.dtype)],
    )
    expected, _ = outputs_of(layer, x, noise="independent")
    assert_allclose(function(x), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYERS)
def test_steps_compile_under_xla(name):
    layer, x = LAYERS[name][0](), tf.constant(rows_for(name, (5,)))
    expected, _ = outputs_of(layer, x)

    def step(x):
        with tf.GradientTape() as tape:
            outputs, draws = outputs_of(layer, x, noise="independent")
            loss = tf.reduce_sum(outputs) + draws.kl("float32")
        return outputs, tape.gradient(loss, layer.trainable_variables)

    outputs, gradients = tf.function(step, jit_compile=True)(x)
    assert outputs.shape == expected.shape
    for value in (outputs, *gradients):
        assert np.all(np.isfinite(value))


def test_networks_survive_saving(tmp_path):
    inputs = keras.Input((6, 5, 2))
    hidden = Conv2D(3, 2, activation="relu", prior=tfd.Laplace(0.0, 1.0))(inputs)
    hidden = PerSample(keras.layers.MaxPooling2D())(hidden)
    hidden = PerSample(keras.layers.Flatten())(hidden)
    plain = RepeatSamples()(keras.layers.Flatten()(inputs))
    hidden = PerSample(keras.layers.Concatenate())([hidden, plain])
    network = keras.Model(inputs, Dense(2, posterior="low_rank")(hidden))
    assert network.output_shape == (None, None, 2)
    x = rows_for("Conv2D", (4,))
    expected, draws = outputs_of(network, x)
    network.save(tmp_path / "n.keras")
    loaded = keras.models.load_model(tmp_path / "n.keras", safe_mode=True)
    ours, others = outputs_of(loaded, x)
    assert_array_equal(ours, expected)
    assert_array_equal(draws.kl("float32"), others.kl("float32"))
    assert len(draws.divergences) == 2


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (lambda: keras.layers.MaxPooling2D(), (6, 5, 2)),
        (lambda: keras.layers.Reshape((10, 6)), (6, 5, 2)),
        (lambda: keras.layers.GlobalAveragePooling1D(), (6, 2)),
        (lambda: keras.layers.Dense(3), (4,)),
    ],
)
def test_per_sample_is_the_layer_on_each_draw(layer, shape):
    layer = layer()
    x = GENERATOR.normal(size=(3, 4, *shape)).astype("float32")
    wrapped = PerSample(layer)
    ours = wrapped(x)
    assert_allclose(ours, np.stack([layer(each) for each in x]), rtol=1e-6, atol=1e-6)
    assert wrapped.compute_output_shape((None, None, *shape)) == (None, None, *ours.shape[2:])
    assert len(wrapped.weights) == len(layer.weights)


# Bad input ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Dense(0), "units=0"),
        (lambda: Dense(2, row_rank=0), "row_rank=0"),
        (lambda: Dense(2, estimator="vi"), "estimator='vi'"),
        (lambda: Dense(2, estimator="local_reparameterization", posterior="radial"), "Radial"),
        (lambda: Dense(2, estimator="flipout", posterior="full"), "FullCovarianceGaussian"),
        (lambda: Conv2D(2, 3, estimator="local_reparameterization"), "local_reparameterization"),
        (lambda: Conv2D(2, (3, 3, 3)), "kernel_size"),
        (lambda: Conv2D(2, 3, padding="causal"), "padding='causal'"),
        (lambda: Conv2D(2, 3, strides=2, dilation_rate=2), "dilation_rate=2"),
        (lambda: Embedding(3, 0), "output_dim=0"),
        (lambda: Embedding(3, 2, use_bias=True), "use_bias=True"),
        (lambda: Dense(2).build((None, 2, 3, 4)), "rank 1.*Received: input_shape"),
        (lambda: Dense(2).build((None, None)), "must be known"),
        (lambda: Conv1D(2, 2).build((None, 3, None)), "must be known"),
    ],
)
def test_bad_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()
    with pytest.raises(TypeError, match="layer=3"):
        PerSample(3)


@pytest.mark.parametrize("activation", ["foo", keras.layers.ReLU, 3])
def test_unknown_activations(activation):
    with pytest.raises(ValueError, match="`activation` must be a function, or the name of one"):
        Dense(3, activation=activation)
