"""TFP's own property tests of distributions, bijectors and kernels, applied to ours.

They follow `hypothesis_testlib` and the tests that use it in TFP, which its wheel lacks: slices,
broadcast parameters, composite tensors, copies, variables, constraining and event-space bijectors,
joint distributions, dtypes, gradients, seeds, vectorised calls.
"""

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from exhaustive import sample_of

from tfp_fnspace import bijectors, distributions, kernels
from tfp_fnspace.kernels.neural_kernel_network import initial_weights
from tfp_fnspace.methods.stable_process import hyperplanes

tfd, tfb, tfpk = tfp.distributions, tfp.bijectors, tfp.math.psd_kernels

BATCH = (3, 2)
LINE = np.array([[-0.7], [0.4]])
PARTITION = hyperplanes.exact(LINE)


def factors(rng, batch, size=3):
    factor = 0.3 * np.tril(rng.normal(size=(*batch, size, size)), -1)
    return factor + np.eye(size) * rng.uniform(0.5, 1.5, (*batch, size, 1))


def stable(rng, batch):
    return {
        "alpha": rng.uniform(1.1, 1.9, batch),
        "beta": rng.uniform(-0.8, 0.8, batch),
        "loc": rng.normal(size=batch),
        "scale": rng.uniform(0.5, 2.0, batch),
    }


#: Name -> function of a generator and a batch shape to tensor parameters, and other arguments.
DISTRIBUTIONS = {
    "Stable": (stable, {}),
    "PositiveStable": (
        lambda rng, batch: {
            "index": rng.uniform(0.3, 0.8, batch),
            "scale": rng.uniform(0.5, 2.0, batch),
        },
        {},
    ),
    "StableProcess": (
        lambda rng, batch: {
            "alpha": rng.uniform(0.8, 1.9, batch),
            "nu": rng.uniform(0.5, 2.0, batch),
            "observation_noise_scale": rng.uniform(0.2, 0.5, batch),
        },
        {"index_points": LINE, "partition": PARTITION, "num_importance_samples": 50},
    ),
    "Wishart": (
        lambda rng, batch: {"df": rng.uniform(4.5, 7.0, batch), "scale_tril": factors(rng, batch)},
        {},
    ),
    "InverseWishart": (
        lambda rng, batch: {"df": rng.uniform(8.0, 9.0, batch), "scale_tril": factors(rng, batch)},
        {},
    ),
    "SingularWishart": (lambda rng, batch: {"scale_tril": factors(rng, batch)}, {"df": 2}),
}


def build(name, batch=BATCH, dtype=tf.float64, as_leaf=tf.constant, seed=0):
    """Returns a distribution and its tensor parameters by name."""
    make, others = DISTRIBUTIONS[name]
    arrays = make(np.random.default_rng(seed), batch)
    parameters = {key: as_leaf(value, dtype=dtype) for key, value in arrays.items()}
    return getattr(distributions, name)(**parameters, **others), parameters


def test_every_distribution_bijector_and_kernel_is_in_a_list():
    public = [getattr(distributions, name) for name in distributions.__all__]
    names = {c.__name__ for c in public if isinstance(c, type)}
    assert names == set(DISTRIBUTIONS)
    assert set(bijectors.__all__) == set(BIJECTORS)
    psd = tfpk.PositiveSemidefiniteKernel
    public = [getattr(kernels, name) for name in kernels.__all__]
    assert {c.__name__ for c in public if isinstance(c, type) and issubclass(c, psd)} == KERNELS


# Distributions ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.slow
def test_a_slice_has_the_slice_of_the_density(name):
    distribution, _ = build(name)
    x = distribution.sample(seed=1)
    whole = distribution.log_prob(x).numpy()
    event = (slice(None),) * len(distribution.event_shape)
    for index in [(0,), (Ellipsis, 1), (slice(1, None), slice(None, None, -1)), (None, 2)]:
        part = distribution[index]
        assert part.batch_shape == whole[index].shape
        of_x = index + event if Ellipsis in index else index
        np.testing.assert_allclose(part.log_prob(x.numpy()[of_x]), whole[index], rtol=1e-12)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_parameters_broadcast(name):
    full, parameters = build(name)
    first = next(iter(parameters))
    event = len(full.event_shape) if first == "scale_tril" else 0
    one = {first: parameters[first][:1, ..., *(event * [slice(None)])]}
    distribution = full.copy(**one)
    batch = BATCH if len(parameters) > 1 else (1, 2)
    assert distribution.batch_shape == batch
    repeated = full.copy(**{first: tf.repeat(one[first], 3, axis=0)})
    x = full.sample(seed=1)
    np.testing.assert_allclose(distribution.log_prob(x), repeated.log_prob(x), rtol=1e-12)
    assert distribution.sample(2, seed=1).shape == (2, *batch, *full.event_shape)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.slow
def test_it_is_a_composite_tensor(name):
    distribution, _ = build(name)
    x = distribution.sample(seed=1)
    expected = distribution.log_prob(x)
    flat = tf.nest.flatten(distribution, expand_composites=True)
    again = tf.nest.pack_sequence_as(distribution, flat, expand_composites=True)
    np.testing.assert_allclose(again.log_prob(x), expected, rtol=1e-12)
    passed = tf.function(lambda distribution, x: (distribution, distribution.log_prob(x)))
    for _ in range(2):
        returned, value = passed(distribution, x)
        np.testing.assert_allclose(value, expected, rtol=1e-10)
    assert type(returned) is type(distribution)
    assert passed.experimental_get_tracing_count() == 1
    assert tf.function(lambda: build(name)[0])().batch_shape == BATCH


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.slow
def test_variables_are_followed_and_have_gradients(name):
    distribution, variables = build(name, as_leaf=tf.Variable)
    x = distribution.sample(seed=1)
    assert {v.ref() for v in distribution.trainable_variables} == {
        v.ref() for v in variables.values()
    }
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = distribution.log_prob(x)
    for gradient in tape.gradient(value, [x, *variables.values()]):
        assert np.all(np.isfinite(gradient))
    copy = distribution.copy()
    fixed, others = build(name, seed=1)
    for key, variable in variables.items():
        variable.assign(others[key])
    for again in [distribution, copy]:
        np.testing.assert_allclose(again.log_prob(x), fixed.log_prob(x), rtol=1e-12)


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_bijectors_lead_into_support_and_range(name, dtype):
    distribution, parameters = build(name, batch=(), dtype=dtype)
    assert distribution.dtype == dtype
    bijector = distribution.experimental_default_event_space_bijector()
    x = distribution.sample(5, seed=1)
    assert x.dtype == distribution.log_prob(x).dtype == dtype
    real = bijector.inverse(x)
    assert real.dtype == dtype
    np.testing.assert_allclose(bijector.forward(tf.identity(real)), x, rtol=2e-3, atol=1e-4)
    shape = bijector.inverse_event_shape(distribution.event_shape)
    draws = tf.random.stateless_normal((4, *shape), (1, 2), dtype=dtype)
    assert np.all(np.isfinite(distribution.log_prob(bijector.forward(draws))))
    for key, part in type(distribution).parameter_properties(dtype=dtype).items():
        if key not in parameters or key == "df":
            continue
        constrain = part.default_constraining_bijector_fn()
        shape = constrain.inverse_event_shape(parameters[key].shape)
        inside = constrain(tf.random.stateless_normal(shape, (3, 4), dtype=dtype))
        assert inside.dtype == dtype
        distribution.copy(**{key: inside})


SLOW_TO_TRACE = ("Stable", "PositiveStable")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name in SLOW_TO_TRACE else [])
        for name in DISTRIBUTIONS
    ],
)
def test_joint_distributions_hold_it(name):
    distribution, _ = build(name, batch=())

    @tfd.JointDistributionCoroutineAutoBatched
    def joint():
        yield tfd.Sample(tfd.Normal(tf.zeros([], tf.float64), 1.0), 2, name="other")
        yield distribution

    draws = joint.sample(3, seed=1)
    expected = distribution.log_prob(draws[1])
    expected += tf.reduce_sum(tfd.Normal(np.float64(0.0), 1.0).log_prob(draws[0]), axis=-1)
    np.testing.assert_allclose(joint.log_prob(draws), expected, rtol=1e-10)
    bijector = joint.experimental_default_event_space_bijector()
    back = bijector.forward(bijector.inverse(draws))
    np.testing.assert_allclose(back[1], draws[1], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_seeds(name):
    distribution, _ = build(name, batch=())
    draws = [distribution.sample(2, seed=seed).numpy() for seed in [[1, 2], [1, 2], [1, 3]]]
    np.testing.assert_array_equal(draws[0], draws[1])
    assert np.all(draws[0] != draws[2])
    assert np.all(draws[0][0] != draws[0][1])


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", sample_of(DISTRIBUTIONS, [name for name in DISTRIBUTIONS if name != "Stable"])
)
def test_vectorized_map_is_the_batch(name):
    distribution, parameters = build(name, batch=(3,))
    x = distribution.sample(seed=1)

    def one(arguments):
        x, parameters = arguments
        return distribution.copy(**parameters).log_prob(x)

    np.testing.assert_allclose(
        tf.vectorized_map(one, (x, parameters)), distribution.log_prob(x), rtol=1e-10
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", DISTRIBUTIONS)
@hypothesis.settings(max_examples=12, deadline=None, derandomize=True, database=None)
@hypothesis.given(data=st.data())
def test_any_slice_of_any_batch(name, data):
    sizes = data.draw(st.lists(st.integers(1, 3), max_size=3), label="batch")
    distribution, _ = build(name, batch=tuple(sizes))
    x = distribution.sample(seed=1)
    whole = distribution.log_prob(x).numpy()
    picks = [st.integers(0, size - 1) | st.slices(size) for size in sizes]
    index = tuple(data.draw(pick, label="pick") for pick in picks)
    hypothesis.assume(whole[index].size > 0)
    part = distribution[index]
    assert part.batch_shape == whole[index].shape
    np.testing.assert_allclose(part.log_prob(x.numpy()[index]), whole[index], rtol=1e-12)


# Bijectors ----------------------------------------------------------------------------------------

#: Name -> a bijector, points of its domain, and a bijector with the same Jacobian.
BIJECTORS = {
    "PositiveDefiniteInverse": (
        bijectors.PositiveDefiniteInverse(),
        np.eye(3) + 0.2 * np.arange(1.0, 5.0)[:, None, None],
        None,
    ),
    "LowRankOuterProduct": (
        bijectors.LowRankOuterProduct(rank=3),
        np.linspace(-1.0, 2.0, 24).reshape(4, 6) ** 2,
        tfb.Chain([tfb.CholeskyOuterProduct(), tfb.FillScaleTriL(diag_shift=None)]),
    ),
}


@pytest.mark.parametrize("name", BIJECTORS)
def test_bijector(name):
    bijector, points, other = BIJECTORS[name]
    x = tf.constant(points)
    ndims = bijector.forward_min_event_ndims
    y = bijector.forward(x)
    np.testing.assert_allclose(bijector.inverse(tf.identity(y)), x, rtol=1e-9)
    forward = bijector.forward_log_det_jacobian(x, ndims)
    backward = bijector.inverse_log_det_jacobian(tf.identity(y), bijector.inverse_min_event_ndims)
    np.testing.assert_allclose(forward, -backward, rtol=1e-9)
    if other is not None:
        np.testing.assert_allclose(forward, other.forward_log_det_jacobian(x, ndims), rtol=1e-9)
    assert bijector.forward_event_shape(x.shape[1:]) == y.shape[1:]
    assert bijector.inverse_event_shape(y.shape[1:]) == x.shape[1:]
    np.testing.assert_array_equal(bijector.forward_event_shape_tensor(x.shape[1:]), y.shape[1:])
    np.testing.assert_array_equal(bijector.inverse_event_shape_tensor(y.shape[1:]), x.shape[1:])
    tf.nest.assert_same_structure(bijector, bijector.copy(), expand_composites=True)
    passed = tf.function(
        lambda b, x: b.inverse(tf.identity(b.forward(x))),
        input_signature=[bijector._type_spec, tf.TensorSpec(None, tf.float64)],
    )
    np.testing.assert_allclose(passed(bijector, x), x, rtol=1e-9)
    assert bijector.forward(tf.cast(x, tf.float32)).dtype == tf.float32


@pytest.mark.parametrize(("size", "rank"), [(2, 1), (3, 1)])
def test_the_density_of_singular_matrices_integrates_to_one_over_real_vectors(size, rank):
    factor = np.linalg.cholesky(np.eye(size) + 0.3)
    distribution = distributions.SingularWishart(rank, scale_tril=factor)
    bijector = distribution.experimental_default_event_space_bijector()
    # One positive coordinate uses softplus, the others stay as they are: the trapezoidal rule.
    axes = [np.linspace(-14.0, 8.0, 89), *(size - 1) * [np.linspace(-7.0, 7.0, 57)]]
    grid = tf.constant(np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, size))
    log_density = distribution.log_prob(bijector.forward(grid))
    log_density += bijector.forward_log_det_jacobian(grid, 1)
    total = np.sum(np.exp(log_density)) * 0.25**size
    np.testing.assert_allclose(total, 1.0, atol=1e-4)


# Kernels ------------------------------------------------------------------------------------------

KERNELS = {"ArcCosineKernel", "NeuralKernelNetwork"}
X = np.random.default_rng(0).normal(size=(5, 2))


def network(as_leaf=tf.constant, batch=BATCH):
    rng = np.random.default_rng(1)
    weights, biases = ([as_leaf(v) for v in part] for part in initial_weights(2, (4,), seed=0))
    amplitude, slope = (as_leaf(rng.uniform(0.5, 1.5, batch)) for _ in range(2))
    length, bias = as_leaf(np.float64(0.7)), as_leaf(np.float64(0.3))
    primitives = [tfpk.ExponentiatedQuadratic(amplitude, length), tfpk.Linear(bias, slope)]
    return kernels.NeuralKernelNetwork(primitives, weights, biases)


def arc_cosine(order):
    def make(as_leaf=tf.constant, batch=BATCH):
        amplitude = np.random.default_rng(2).uniform(0.5, 1.5, batch)
        return kernels.ArcCosineKernel(order, as_leaf(amplitude))

    return make


MAKERS = {"network": network, **{f"arc-cosine {order}": arc_cosine(order) for order in range(3)}}


@pytest.mark.parametrize("name", MAKERS)
def test_kernel(name):
    kernel = MAKERS[name]()
    matrix = kernel.matrix(X, X).numpy()
    assert matrix.shape == (*BATCH, 5, 5)
    assert kernel.batch_shape == BATCH
    np.testing.assert_array_equal(kernel.batch_shape_tensor(), BATCH)
    assert np.linalg.eigvalsh(matrix).min() > -1e-12 * np.abs(matrix).max()
    diagonal = kernel.apply(X, X, example_ndims=1)
    np.testing.assert_allclose(diagonal, np.diagonal(matrix, axis1=-2, axis2=-1), rtol=1e-7)
    np.testing.assert_allclose(kernel.tensor(X, X, 1, 1), matrix, rtol=1e-7)
    for index in [(0,), (Ellipsis, 1), (slice(1, None), slice(None, None, -1)), (None, 2)]:
        part = kernel[index]
        of_matrix = (*index, slice(None), slice(None)) if Ellipsis in index else index
        np.testing.assert_allclose(part.matrix(X, X), matrix[of_matrix], rtol=1e-12)
    np.testing.assert_allclose(kernel.copy().matrix(X, X), matrix, rtol=1e-12)
    flat = tf.nest.flatten(kernel, expand_composites=True)
    again = tf.nest.pack_sequence_as(kernel, flat, expand_composites=True)
    np.testing.assert_allclose(again.matrix(X, X), matrix, rtol=1e-12)
    passed = tf.function(lambda kernel, x: (kernel, kernel.matrix(x, x)))
    returned, value = passed(kernel, X)
    np.testing.assert_allclose(value, matrix, rtol=1e-10)
    assert type(returned) is type(kernel)
    process = tfd.GaussianProcess(kernel, X, observation_noise_variance=np.float64(0.1))
    assert np.all(np.isfinite(process.log_prob(process.sample(seed=1))))
    for key, properties in type(kernel).parameter_properties(dtype=tf.float64).items():
        if key != "kernels":
            assert properties.default_constraining_bijector_fn() is not None


@pytest.mark.parametrize("name", MAKERS)
def test_variables_of_kernels_are_followed(name):
    kernel = MAKERS[name](as_leaf=tf.Variable)
    variables = kernel.trainable_variables
    assert len(variables) == (1 if name.startswith("arc") else 8)
    assert len(kernel.variables) == len(variables)
    assert all(isinstance(module, tf.Module) for module in kernel.submodules)
    with tf.GradientTape() as tape:
        before = kernel.matrix(X, X)
    assert all(np.all(np.isfinite(g)) for g in tape.gradient(before, variables))
    for variable in variables:
        variable.assign(1.5 * variable)
    fixed = MAKERS[name](as_leaf=lambda value: tf.constant(1.5 * value))
    np.testing.assert_allclose(kernel.matrix(X, X), fixed.matrix(X, X), rtol=1e-12)


@pytest.mark.parametrize(
    "kernel",
    [
        kernels.SquaredExponential(1.3, 0.8),
        kernels.RationalQuadratic(1.3, 0.8, 2.0),
        kernels.Matern(0.5, 1.3, 0.8),
        kernels.Linear(0.7) * kernels.Constant(0.3) + kernels.ArcCosine(2, 0.4),
    ],
)
def test_kernels_of_gram_matrices_become_kernels_of_features(kernel):
    features = kernel.psd_kernel(2, dtype=tf.float64)
    matrix = features.matrix(X, X)
    np.testing.assert_allclose(matrix, kernel.matrix(X @ X.T / 2.0), rtol=1e-9)
    again = tf.function(lambda kernel: kernel.matrix(X, X))(features)
    np.testing.assert_allclose(again, matrix, rtol=1e-10)
    assert features.trainable_variables == ()
