"""Layers on Gram matrices as Keras layers, and their gradients at edges of the kernels."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

from tfp_fnspace import GaussianMoments, GramBlocks, diwp, kernels
from tfp_fnspace.layers.draws import current_draws, function_draws
from tfp_fnspace.methods.diwp.layers.base import positive

#: Name -> constructor of a layer from blocks to blocks, or from inputs to blocks.
LAYERS = {
    "FeaturesToGram": lambda: diwp.FeaturesToGram(4, constant=True),
    "FeaturesToGram_plain": lambda: diwp.FeaturesToGram(4, learn_scale=False),
    "InverseWishartFeatures": lambda: diwp.InverseWishartFeatures(4, delta=3.0, learn_delta=False),
    "InverseWishartProcess": lambda: diwp.InverseWishartProcess(delta=7.0),
    "InverseWishartProcess_fixed": lambda: diwp.InverseWishartProcess(learn_delta=False),
    "InverseWishartProcess_plain": lambda: diwp.InverseWishartProcess(whiten=False),
    "KernelOfGram": lambda: diwp.KernelOfGram("matern32", learn_amplitude=True),
    "KernelOfGram_sum": lambda: diwp.KernelOfGram(
        kernels.ArcCosine(2) + 0.5 * kernels.SquaredExponential(2.0)
    ),
    "GaussianProcessGram": lambda: diwp.GaussianProcessGram(3, precision="diagonal"),
    "GlobalInducingGP": lambda: diwp.GlobalInducingGP(2, shared_precision=True),
}
X = np.random.default_rng(0).normal(size=(5, 3)).astype("float32")


def example_inputs(name):
    if name.startswith(("FeaturesToGram", "InverseWishartFeatures")):
        return tf.constant(X)
    z = np.random.default_rng(1).normal(size=(9, 6))
    k = (z @ z.T / 6.0 + 0.3 * np.eye(9)).astype("float32")
    return GramBlocks(k[np.newaxis, :4, :4], k[np.newaxis, :4, 4:], np.diag(k)[np.newaxis, 4:])


def outputs_of(layer, inputs, noise="shared", num_samples=3):
    with function_draws(num_samples, (3, 4), noise) as draws:
        return layer(inputs), draws


@pytest.mark.parametrize("name", LAYERS)
def test_config_and_weights_round_trip(name):
    layer, inputs = LAYERS[name](), example_inputs(name)
    expected, draws = outputs_of(layer, inputs)
    config = keras.saving.serialize_keras_object(layer)
    copy = keras.saving.deserialize_keras_object(config)
    assert copy.get_config() == layer.get_config()
    outputs_of(copy, inputs)
    generator = np.random.default_rng(0)
    weights = [w + 0.1 * generator.normal(size=w.shape) for w in layer.get_weights()]
    layer.set_weights(weights)
    copy.set_weights(weights)
    expected, draws = outputs_of(layer, inputs)
    ours, other_draws = outputs_of(copy, list(inputs) if isinstance(inputs, tuple) else inputs)
    for one, other in zip(ours, expected, strict=True):
        assert_array_equal(one, other)
    assert_array_equal(draws.kl("float32"), other_draws.kl("float32"))


@pytest.mark.parametrize("name", LAYERS)
def test_every_weight_is_tracked_and_has_a_gradient(name):
    layer, inputs = LAYERS[name](), example_inputs(name)
    with tf.GradientTape() as tape:
        outputs, draws = outputs_of(layer, inputs, "independent")
        loss = draws.kl("float32") + sum(tf.reduce_sum(tf.sin(part)) for part in outputs)
    variables = layer.trainable_variables
    frozen = "learn_delta" in layer.get_config() and not layer.learn_delta
    assert len(layer.non_trainable_variables) == frozen
    for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
        assert gradient is not None, variable.path
        assert np.all(np.isfinite(gradient)) and np.any(gradient != 0.0), variable.path


@pytest.mark.parametrize("policy", ["float32", "float64", "mixed_float16"])
@pytest.mark.parametrize("name", LAYERS)
def test_dtype_policies_and_symbolic_shapes(name, policy):
    layer = LAYERS[name]()
    layer = type(layer).from_config({**layer.get_config(), "dtype": policy})
    dtype = "float64" if policy == "float64" else "float32"
    inputs = tf.nest.map_structure(lambda part: tf.cast(part, dtype), example_inputs(name))
    for noise in ("independent", "shared"):
        outputs, _ = outputs_of(layer, inputs, noise)
        assert all(part.dtype == dtype for part in outputs)
    symbolic = tf.nest.map_structure(lambda t: keras.KerasTensor(t.shape, dtype=dtype), inputs)
    specs = layer.compute_output_spec(symbolic)
    for spec, actual in zip(specs, outputs, strict=True):
        assert spec.dtype == dtype
        assert all(s in (None, a) for s, a in zip(spec.shape, actual.shape, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in LAYERS if "_" not in n])
def test_same_numbers_under_xla(name):
    """XLA draws other random numbers: the test compares what does not depend on them."""
    layer, inputs = LAYERS[name](), example_inputs(name)
    outputs, draws = outputs_of(layer, inputs)

    @tf.function(jit_compile=True)
    def compiled(inputs):
        outputs, draws = outputs_of(layer, inputs)
        return outputs, draws.kl("float32")

    ours, kl = compiled(inputs)
    assert_allclose(kl, draws.kl("float32"), rtol=1e-4, atol=1e-4)
    for one, other in zip(ours, outputs, strict=True):
        assert one.shape == other.shape and np.all(np.isfinite(one))
        if "Wishart" not in name and name != "GaussianProcessGram":
            assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def network(num_outputs=1, hidden=(), kernel="relu", shape=(3,), points=4, **first):
    return keras.Sequential(
        [
            keras.Input(shape),
            diwp.FeaturesToGram(points, **first),
            diwp.KernelOfGram(kernel),
            *hidden,
            diwp.KernelOfGram(kernel),
            diwp.GlobalInducingGP(num_outputs),
        ]
    )


def test_functional_and_sequential_networks_agree_and_images_are_flattened():
    sequential = network(2, [diwp.InverseWishartProcess()])
    inputs = keras.Input((3, 1, 1))
    tensor = inputs
    for layer in sequential.layers:
        tensor = layer(tensor)
    functional = keras.Model(inputs, tensor)
    first, _ = outputs_of(sequential, X)
    second, _ = outputs_of(functional, X.reshape(5, 3, 1, 1))
    assert isinstance(first, GaussianMoments) and first.mean.shape == (3, 5, 2)
    for one, other in zip(first, second, strict=True):
        assert_allclose(one, other, rtol=1e-6)


@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 3, 2)])
def test_networks_survive_saving(shape, tmp_path):
    net = network(2, [diwp.InverseWishartProcess(), diwp.GaussianProcessGram(3)], shape=shape)
    x = np.random.default_rng(0).normal(size=(5, *shape)).astype("float32")
    before, _ = outputs_of(net, x)
    net.save(tmp_path / "net.keras")
    after, draws = outputs_of(keras.models.load_model(tmp_path / "net.keras"), x)
    assert len(draws.divergences) == 3
    for one, other in zip(after, before, strict=True):
        assert_array_equal(one, other)


def test_network_made_under_half_precision_computes_in_single():
    single = network(2, [diwp.InverseWishartProcess()])
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_float16")
    try:
        half = network(2, [diwp.InverseWishartProcess()])
    finally:
        keras.config.set_dtype_policy(before)
    for one, other in zip(outputs_of(half, X)[0], outputs_of(single, X)[0], strict=True):
        assert one.dtype == "float32"
        assert_array_equal(one, other)


EDGES = {
    "duplicate rows": np.repeat(X[:2], 3, axis=0),
    "opposite rows": np.concatenate([X, -X]),
    "large rows": 1e3 * np.concatenate([X, -X, X[:1]]),
    "small rows": 1e-4 * X,
    "zero rows": np.concatenate([np.zeros((2, 3), "float32"), X]),
}


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("name", ["relu", "squared_exponential", "matern32"])
def test_gradients_of_a_stack_are_finite_in_float32(name, constant, edge):
    x = EDGES[edge]
    hidden = [diwp.InverseWishartProcess(), diwp.KernelOfGram(name), diwp.GaussianProcessGram(3)]
    net = network(2, hidden, name, points=6, constant=constant)
    points = net.layers[0].inducing_inputs
    points.assign(np.resize(x, points.shape))  # equal to data rows and to each other
    with tf.GradientTape() as tape:
        moments, draws = outputs_of(net, x, "independent")
        loss = draws.kl("float32") + tf.reduce_mean(moments.mean**2 + moments.variance)
    assert np.isfinite(loss)
    for weight, gradient in zip(
        net.trainable_weights, tape.gradient(loss, net.trainable_variables), strict=True
    ):
        assert np.all(np.isfinite(gradient)), weight.path
    assert np.all(moments.variance > 0.0) or edge == "zero rows"


@pytest.mark.parametrize(
    "name, make",
    [
        ("units", lambda: diwp.GlobalInducingGP(1.5)),
        ("units", lambda: diwp.GaussianProcessGram(0)),
        ("inducing_points", lambda: diwp.FeaturesToGram(2.7)),
    ],
)
def test_counts_are_integers(name, make):
    with pytest.raises(ValueError, match=f"`{name}` must be a positive integer. Received: {name}="):
        make()


def test_matrices_that_need_jitter_are_counted():
    layer = diwp.InverseWishartProcess()
    k = np.ones((1, 6, 6), "float32")
    k[0, 0, 1] = k[0, 1, 0] = 1.01  # far from positive semidefinite
    blocks = GramBlocks(k[:, :4, :4], k[:, :4, 4:], np.diagonal(k[:, 4:, 4:], axis1=1, axis2=2))
    outputs, draws = outputs_of(layer, blocks)
    assert draws.num_jittered.numpy() == 1
    assert all(np.all(np.isfinite(part)) for part in outputs)


@pytest.mark.parametrize(
    ("log_weight", "expected", "upstream", "passes"),
    [
        (0.5, np.exp(0.5), 1.0, True),
        (0.5, np.exp(0.5), -1.0, True),
        (-20.0, 1e-6, 1.0, False),  # a step downhill would lead further out
        (-20.0, 1e-6, -1.0, True),
        (30.0, 1e10, 1.0, True),
        (30.0, 1e10, -1.0, False),
    ],
)
def test_a_positive_parameter_out_of_bounds_has_the_gradient_that_leads_back(
    log_weight, expected, upstream, passes
):
    weight = tf.constant(log_weight)
    with tf.GradientTape() as tape:
        tape.watch(weight)
        value = positive(weight)
    assert_allclose(value, expected, rtol=1e-5)
    gradient = tape.gradient(value, weight, output_gradients=tf.constant(upstream))
    assert_allclose(gradient, upstream * expected if passes else 0.0, rtol=1e-5)


def test_draws_outside_and_nested():
    assert current_draws().num_samples == 1
    with function_draws(3, (0, 0)) as outer:
        with pytest.raises(RuntimeError), function_draws(5, (0, 0)) as inner:
            assert current_draws() is inner
            raise RuntimeError
        assert current_draws() is outer
    assert current_draws() is not outer


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: diwp.FeaturesToGram(0), "inducing_points"),
        (lambda: diwp.InverseWishartProcess(delta=-1.0), "delta"),
        (lambda: diwp.InverseWishartProcess(delta=np.nan), "delta"),
        (lambda: diwp.GlobalInducingGP(0), "units"),
        (lambda: diwp.GlobalInducingGP(1, precision="low"), "precision"),
        (lambda: diwp.KernelOfGram("unknown"), "unknown"),
        (lambda: diwp.KernelOfGram("relu", dtype="float16"), "dtype"),
    ],
)
def test_bad_arguments_are_refused(make, message):
    with pytest.raises(ValueError, match=f"{message}.*Received|Received.*{message}"):
        make()


# Networks that are given --------------------------------------------------------------------------


def two_inputs():
    inputs = [keras.Input((3,)), keras.Input((3,))]
    x = keras.layers.Add()(inputs)
    for layer in network().layers:
        x = layer(x)
    return keras.Model(inputs, x)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda: "foo",
            TypeError,
            "`network` must be .*DeepKernel or a Keras model. Received: network='foo'",
        ),
        (keras.Sequential, ValueError, "have layers .* with 0 layers and 0 inputs"),
        (lambda: keras.Sequential([keras.Input((3,))]), ValueError, "0 layers and 0 inputs"),
        (
            lambda: keras.Sequential(network().layers),
            ValueError,
            "one `keras.Input`.*4 layers and 0 input",
        ),
        (two_inputs, ValueError, "one `keras.Input`. Received: .* and 2 inputs"),
        (
            lambda: keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)]),
            ValueError,
            "begin with FeaturesToGram or .* Received: Dense ... Dense",
        ),
    ],
)
def test_other_networks_are_refused(make, error, message):
    with pytest.raises(error, match=message):
        diwp.DIWPModel(make())


def test_a_network_goes_without_a_number_of_outputs():
    with pytest.raises(ValueError, match=r"its own number of outputs.*and num_outputs=1"):
        diwp.DIWPModel(network(), num_outputs=1)


def test_network_with_more_inducing_points_than_rows_is_refused():
    model = diwp.DIWPModel(network(points=50))
    with pytest.raises(ValueError, match="50. Received: 40 rows"):
        model.fit(np.ones((40, 3)), np.ones(40), verbose=0)
