"""`tfp_fnspace.kernels`: properties of every kernel of Gram matrices."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfp_fnspace as fns
from tfp_fnspace import kernels
from tfp_fnspace.typing import GramBlocks

# Name -> constructor; every generic test runs over these.
KERNELS = {
    "arccosine0": lambda: kernels.ArcCosine(0),
    "arccosine1": lambda: kernels.ArcCosine(1, amplitude=1.3),
    "arccosine2": lambda: kernels.ArcCosine(2, amplitude=0.4),
    "constant": lambda: kernels.Constant(0.7),
    "linear": lambda: kernels.Linear(amplitude=1.7),
    "linear_plain": lambda: kernels.Linear(),
    "matern12": lambda: kernels.Matern(0.5, length_scale=1.4),
    "matern32": lambda: kernels.Matern(1.5, amplitude=0.8, length_scale=0.7),
    "matern52": lambda: kernels.Matern(2.5),
    "rational_quadratic": lambda: kernels.RationalQuadratic(1.2, 0.7, 2.5),
    "rational_quadratic_plain": lambda: kernels.RationalQuadratic(),
    "squared_exponential": lambda: kernels.SquaredExponential(1.2, 0.6),
    "squared_exponential_plain": lambda: kernels.SquaredExponential(),
    "sum": lambda: kernels.ArcCosine(1) + kernels.SquaredExponential(length_scale=0.5) + 0.3,
    "product": lambda: 2.0 * kernels.Matern(2.5) * (kernels.Linear() + 0.1),
}
P, N, D = 6, 9, 4


@pytest.fixture(params=KERNELS)
def kernel(request):
    return KERNELS[request.param]()


def features(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def gram_of(x):
    return x @ np.swapaxes(x, -1, -2) / x.shape[-1]


def norms_of(gram):
    return np.array(np.diagonal(gram, axis1=-2, axis2=-1))


def blocks_of(gram, full):
    tt = gram[..., P:, P:] if full else norms_of(gram)[..., P:]
    return GramBlocks(gram[..., :P, :P], gram[..., :P, P:], tt)


def test_gram_form_is_features_form(kernel):
    x = features(7, D)
    ours = kernel.matrix(gram_of(x))
    feature_kernel = kernel.psd_kernel(num_features=D, dtype=tf.float64)
    # This calls `apply`: TFP's `matrix` puts the root of a rounding error on Matern 1/2's diagonal.
    pairs = feature_kernel.apply(x[:, None], x, example_ndims=2)
    np.testing.assert_allclose(ours, pairs, rtol=1e-10, atol=1e-10)
    y = features(3, D, seed=1)
    cross = kernel.entries(norms_of(gram_of(x))[:, None], x @ y.T / D, norms_of(gram_of(y)))
    np.testing.assert_allclose(cross, feature_kernel.matrix(x, y), rtol=1e-10, atol=1e-10)


def test_features_form_takes_points_with_several_axes(kernel):
    x = features(5, 2, 2)
    feature_kernel = kernel.psd_kernel(num_features=4, feature_ndims=2, dtype=tf.float64)
    pairs = feature_kernel.apply(x[:, None], x, example_ndims=2)
    expected = kernel.matrix(gram_of(x.reshape(5, 4)))
    np.testing.assert_allclose(pairs, expected, rtol=1e-10, atol=1e-10)


def test_matrix_is_symmetric_and_positive_with_exact_diagonal(kernel):
    for num_features in (1, 3, 40):
        gram = gram_of(features(2, 15, num_features)).astype(np.float32)
        gram = 0.5 * (gram + np.swapaxes(gram, -1, -2))
        values = kernel.matrix(gram).numpy()
        # The last bit differs where the processor rounds the tail of an array differently.
        np.testing.assert_array_almost_equal_nulp(values, np.swapaxes(values, -1, -2), nulp=16)
        np.testing.assert_array_equal(norms_of(values), kernel.diagonal(norms_of(gram)))
        in_double = kernel.matrix(gram_of(features(15, num_features))).numpy()
        assert np.min(np.linalg.eigvalsh(in_double)) >= -1e-10 * np.max(np.diag(in_double)) * 15


def test_diagonal_is_the_entry_of_equal_points(kernel):
    norms = np.array([1e-6, 0.3, 1.0, 784.0])
    np.testing.assert_allclose(
        kernel.diagonal(norms), kernel.entries(norms, norms, norms), rtol=1e-12
    )


@pytest.mark.parametrize("full", [False, True])
def test_blocks_are_those_of_the_matrix(kernel, full):
    gram = gram_of(features(3, P + N, D))
    expected = blocks_of(kernel.matrix(gram).numpy(), full)
    ours = kernel.blocks(list(blocks_of(gram, full)))  # Keras turns named tuples into lists
    assert isinstance(ours, GramBlocks)
    for block, expected_block in zip(ours, expected, strict=True):
        assert block.shape == expected_block.shape
        np.testing.assert_allclose(block, expected_block, rtol=1e-13, atol=1e-14)


def test_gradients_through_blocks_are_finite_differences(kernel):
    gram = gram_of(features(P + N, D))
    weights = [features(*block.shape, seed=2) for block in blocks_of(gram, False)]

    def objective(*blocks):
        values = kernel.blocks(blocks)
        return sum(tf.reduce_sum(w * v) for w, v in zip(weights, values, strict=True))

    blocks = [tf.constant(block) for block in blocks_of(gram, False)]
    with tf.GradientTape() as tape:
        tape.watch(blocks)
        value = objective(*blocks)
    ours = tape.gradient(value, blocks, unconnected_gradients="zero")
    for i, block in enumerate(blocks):
        direction = features(*block.shape, seed=3)
        moved = []
        for step in (1e-6, -1e-6):
            moved.append(objective(*blocks[:i], block + step * direction, *blocks[i + 1 :]))
        expected = (moved[0] - moved[1]) / 2e-6
        np.testing.assert_allclose(np.sum(ours[i] * direction), expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("scale", [0.0, 1e-6, 1.0, 784.0, 1e6])
def test_float32_gradients_are_finite_with_duplicates(kernel, scale):
    x = features(P + N, D) * np.sqrt(scale)
    x[P : P + 3], x[1], x[2], x[3], x[P + 3] = x[0], x[0], -x[0], 0.0, 0.0
    gram = gram_of(x).astype(np.float32)
    blocks = [tf.constant(block) for block in blocks_of(gram, True)]
    with tf.GradientTape() as tape:
        tape.watch(blocks)
        values = kernel.blocks(blocks)
    for part in (*values, *tape.gradient(values, blocks, unconnected_gradients="zero")):
        assert np.all(np.isfinite(part))


@pytest.mark.slow
def test_xla_agrees():
    gram = gram_of(features(2, P + N, D)).astype(np.float32)
    blocks = [tf.constant(block) for block in blocks_of(gram, False)]

    def values_and_gradients(function, arguments):
        with tf.GradientTape() as tape:
            tape.watch(arguments)
            values = function(arguments)
        return values, tape.gradient(values, arguments, unconnected_gradients="zero")

    def run(gram, blocks):
        """Returns all kernels' matrices, with equal points on the diagonals, and one's blocks."""
        results = {
            name: values_and_gradients(make().matrix, gram) for name, make in KERNELS.items()
        }
        results["blocks"] = values_and_gradients(KERNELS["sum"]().blocks, blocks)
        return results

    plain, compiled = (
        tf.function(run, jit_compile=jit)(tf.constant(gram), blocks) for jit in (False, True)
    )
    assert plain.keys() == compiled.keys() == {*KERNELS, "blocks"}
    for name, expected in plain.items():
        expected, ours = (tf.nest.flatten(part) for part in (expected, compiled[name]))
        for value, expected_value in zip(ours, expected, strict=True):
            np.testing.assert_allclose(value, expected_value, rtol=2e-5, atol=2e-5, err_msg=name)


def test_sizes_may_be_unknown_beforehand(kernel):
    def slopes(g_xx, g_xy, g_yy):
        with tf.GradientTape() as tape:
            tape.watch([g_xx, g_xy, g_yy])
            value = kernel.entries(g_xx, g_xy, g_yy)
        gram = [g_xx, g_xy, g_yy]
        return tape.gradient(value, gram, unconnected_gradients="zero")

    sizes = [(None, None, 1), (None, None, None), (None, 1, None)]
    traced = tf.function(slopes, [tf.TensorSpec(size, tf.float64) for size in sizes])
    x, y = features(2, 5, D), features(2, 3, D, seed=1)
    inputs = (
        tf.constant(np.sum(x**2, -1)[:, :, None] / D),
        tf.constant(x @ np.swapaxes(y, -1, -2) / D),
        tf.constant(np.sum(y**2, -1)[:, None, :] / D),
    )
    for ours, expected in zip(traced(*inputs), slopes(*inputs), strict=True):
        assert ours.shape == expected.shape
        np.testing.assert_allclose(ours, expected, rtol=1e-12)


def test_serialisation_round_trip(kernel):
    again = kernels.get(kernels.serialize(kernel))
    assert type(again) is type(kernel)
    assert kernels.serialize(again) == kernels.serialize(kernel)
    gram = gram_of(features(4, D))
    np.testing.assert_array_equal(again.matrix(gram), kernel.matrix(gram))


# Stationary kernels ------------------------------------------------------------------------------


def test_squared_exponential_is_its_formula():
    value = kernels.SquaredExponential(amplitude=2.0, length_scale=3.0).entries(1.0, 0.25, 2.0)
    assert value.numpy() == pytest.approx(4.0 * np.exp(-2.5 / 18.0), rel=1e-6)


def test_rational_quadratic_tends_to_the_squared_exponential():
    gram = gram_of(features(5, D))
    ours = kernels.RationalQuadratic(scale_mixture_rate=1e7).matrix(gram)
    np.testing.assert_allclose(ours, kernels.SquaredExponential().matrix(gram), rtol=1e-5)


@pytest.mark.parametrize(
    ("nu", "slope"), [(0.5, 0.0), (1.5, -1.5), (2.5, -5.0 / 6.0)]
)  # the slopes are in R, at R = 0
def test_gradient_of_matern_at_equal_points(nu, slope):
    gram = [tf.constant(2.0)] * 3
    with tf.GradientTape() as tape:
        g_xx, g_xy, g_yy = (tf.identity(g) for g in gram)
        tape.watch([g_xx, g_xy, g_yy])
        value = kernels.Matern(nu).entries(g_xx, g_xy, g_yy)
    assert value.numpy() == 1.0
    ours = tape.gradient(value, [g_xx, g_xy, g_yy])
    np.testing.assert_allclose(ours, [slope, -2.0 * slope, slope], rtol=1e-6)


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
def test_gradient_of_matern_one_half_has_its_stated_bound(dtype):
    g_xy = tf.constant(3.0 - np.geomspace(1e-17, 1e-3, 300), dtype)
    with tf.GradientTape() as tape:
        tape.watch(g_xy)
        value = kernels.Matern(0.5).entries(3.0, g_xy, 3.0)
    slopes = 0.5 * tape.gradient(value, g_xy).numpy()  # R = 6 - 2 G_xy
    bound = 1.0 / (4.0 * np.sqrt(np.finfo(dtype.as_numpy_dtype).eps * 6.0))
    assert 0.3 * bound < np.max(slopes) <= bound * (1.0 + 1e-6)


@pytest.mark.parametrize("name", ["matern12", "matern32", "matern52", "squared_exponential"])
def test_second_derivatives_are_right(name):
    kernel, g_xy = KERNELS[name](), tf.constant([0.2, -0.4], tf.float64)

    def slope(g_xy):
        with tf.GradientTape() as tape:
            tape.watch(g_xy)
            value = kernel.entries(1.5, g_xy, 0.7)
        return tape.gradient(value, g_xy)

    with tf.GradientTape() as tape:
        tape.watch(g_xy)
        first = slope(g_xy)
    expected = (slope(g_xy + 1e-5) - slope(g_xy - 1e-5)) / 2e-5
    np.testing.assert_allclose(tape.gradient(first, g_xy), expected, rtol=1e-6)


# Parameters --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernel_class", "names"),
    [
        (kernels.ArcCosine, ["amplitude"]),
        (kernels.Constant, ["value"]),
        (kernels.Linear, ["amplitude"]),
        (kernels.Matern, ["amplitude", "length_scale"]),
        (kernels.RationalQuadratic, ["amplitude", "length_scale", "scale_mixture_rate"]),
        (kernels.SquaredExponential, ["amplitude", "length_scale"]),
    ],
)
def test_gradients_in_parameters(kernel_class, names):
    gram = gram_of(features(5, D))
    weights = features(5, 5, seed=2)
    values = [tf.constant(1.3 + 0.2 * i, tf.float64) for i in range(len(names))]

    @tf.function
    def objective(*values):
        kernel = kernel_class(**dict(zip(names, values, strict=True)))
        return tf.reduce_sum(weights * kernel.matrix(gram))

    with tf.GradientTape() as tape:
        tape.watch(values)
        total = objective(*values)
    for i, ours in enumerate(tape.gradient(total, values)):
        up, down = (
            objective(*(v + sign * 1e-6 * (i == j) for j, v in enumerate(values)))
            for sign in (1, -1)
        )
        np.testing.assert_allclose(ours, (up - down) / 2e-6, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("variable", [tf.Variable, keras.Variable])
def test_parameters_may_be_variables(variable):
    kernel = kernels.SquaredExponential(length_scale=variable(2.0))
    assert kernel.entries(1.0, 0.0, 1.0).numpy() == pytest.approx(np.exp(-0.25))
    assert kernel.get_config() == {"amplitude": None, "length_scale": 2.0}


def test_a_symbolic_parameter_cannot_be_written_down():
    @tf.function
    def config(length_scale):
        return kernels.SquaredExponential(length_scale=length_scale).get_config()["length_scale"]

    with pytest.raises(ValueError, match=r"`length_scale` must have a value to be serialised"):
        config(tf.constant(2.0))


# Names and composition ---------------------------------------------------------------------------


def test_names():
    expected = {
        "relu": {"class_name": "ArcCosine", "config": {"order": 1, "amplitude": None}},
        "arccosine0": {"class_name": "ArcCosine", "config": {"order": 0, "amplitude": None}},
        "rbf": kernels.serialize(kernels.SquaredExponential()),
        "squared_exponential": kernels.serialize(kernels.SquaredExponential()),
        "matern12": kernels.serialize(kernels.Matern(0.5)),
        "matern52": kernels.serialize(kernels.Matern(2.5)),
        "rational_quadratic": kernels.serialize(kernels.RationalQuadratic()),
    }
    for name, config in expected.items():
        assert kernels.serialize(kernels.get(name)) == config
    kernel = kernels.Linear()
    assert kernels.get(kernel) is kernel


def test_operators_join_entry_by_entry():
    first, second = kernels.ArcCosine(1), kernels.SquaredExponential()
    gram = gram_of(features(5, D))
    a, b = first.matrix(gram).numpy(), second.matrix(gram).numpy()
    for kernel, expected in (
        (first + second, a + b),
        (first * second, a * b),
        (3.0 * first, 3.0 * a),
        (np.float64(3.0) * first, 3.0 * a),
        (first * tf.constant(3.0), 3.0 * a),
        (first + 0.5, a + 0.5),
        (0.5 + first, a + 0.5),
        (first + 2 * second, a + 2.0 * b),
    ):
        np.testing.assert_allclose(kernel.matrix(gram), expected, rtol=1e-14)


# Bad input ---------------------------------------------------------------------------------------


def test_unknown_names_and_configurations():
    with pytest.raises(ValueError, match=r"one of \['arccosine0'.*Received: identifier='rellu'"):
        kernels.get("rellu")
    with pytest.raises(TypeError, match=r"a name or a configuration. Received: identifier=3"):
        kernels.get(3)
    with pytest.raises(ValueError, match=r"one of \['ArcCosine'.*Received: config="):
        kernels.get({"class_name": "Rellu", "config": {}})
    with pytest.raises(ValueError, match=r"must have the keys.*Received: config=\{'order': 1\}"):
        kernels.get({"order": 1})


def test_names_of_the_librarys_kernels_are_taken():
    with pytest.raises(ValueError, match=r"name of one of the library's.*Received: class .*Matern"):
        type("Matern", (kernels.GramKernel,), {"__module__": "users"})
    assert kernels.serialize(kernels.Matern(1.5))["class_name"] == "Matern"
    assert isinstance(kernels.get("matern32"), kernels.Matern)


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf])
def test_parameters_must_be_positive_and_finite(value):
    rule = "`length_scale` must be positive and finite. Received: length_scale="
    with pytest.raises(ValueError, match=rule):
        kernels.Matern(length_scale=value)
    with pytest.raises(ValueError, match=rule):
        kernels.SquaredExponential(length_scale=tf.constant(value))


def test_bad_parameters():
    with pytest.raises(ValueError, match=r"`amplitude` must be a scalar. Received: amplitude="):
        kernels.ArcCosine(amplitude=[1.0, 2.0])
    with pytest.raises(ValueError, match=r"`nu` must be one of \[0.5, 1.5, 2.5\]. Received: nu=1"):
        kernels.Matern(nu=1)
    with pytest.raises(
        ValueError, match=r"`value` must be positive and finite. Received: value=-2"
    ):
        kernels.Linear() * -2.0
    with pytest.raises(ValueError, match=r"`kernels` must not be empty. Received: kernels=\[\]"):
        kernels.Sum([])
    with pytest.raises(TypeError, match=r"`kernels` must be Gram kernels. Received: kernels="):
        kernels.Product([kernels.Linear(), "rbf"])
    with pytest.raises(ValueError, match=r"`num_features` must be at least 1. Received: num_feat"):
        kernels.Linear().psd_kernel(0)


def test_bad_shapes_and_types():
    kernel = kernels.ArcCosine()
    with pytest.raises(ValueError, match=r"must be square.*Received: shape=\(2, 3\)"):
        kernel.matrix(np.zeros((2, 3)))
    with pytest.raises(ValueError, match=r"`g_yy` must broadcast.*Received: g_yy.shape=\(2,\)"):
        kernel.entries(1.0, np.zeros(3), np.zeros(2))
    with pytest.raises(ValueError, match=r"`g_xx` must broadcast.*Received: g_xx.shape=\(3,\)"):
        kernel.entries(np.zeros(3), np.float64(0.0), np.float64(0.0))
    with pytest.raises(TypeError, match=r"`g_xy` must be floating. Received: dtype=int32"):
        kernel.entries(1, 1, 1)


@pytest.mark.parametrize(
    "shapes",
    [
        [(2, 2), (2, 3), (4,)],  # N differs
        [(2, 2), (4, 3), (3,)],  # P differs
        [(2, 2), (2, 3), ()],
        [(5, 2, 2), (2, 3), (3,)],
        [(2, 2), (3,), (3,)],
    ],
)
def test_bad_blocks(shapes):
    with pytest.raises(ValueError, match=r"Gram blocks must have the shapes.*Received: shapes="):
        kernels.ArcCosine().blocks([np.ones(shape) for shape in shapes])


def test_gram_blocks_are_public():
    assert fns.GramBlocks is GramBlocks
    assert GramBlocks._fields == ("ii", "it", "tt")
