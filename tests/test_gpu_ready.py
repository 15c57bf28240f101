"""Every op of the training and prediction graphs has a GPU kernel, and the graphs compile.

The CUDA build of TensorFlow lists its GPU kernels on machines without a GPU.
"""

import batteries
import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import kernels

import tfp_fnspace as fns
from tfp_fnspace.methods.stable_process import chains as chains_of
from tfp_fnspace.methods.stable_process import samplers
from tfp_fnspace.methods.tagi import inverse

#: Ops that the runtime itself handles on any device.
_NO_KERNEL_NEEDED = {"Placeholder", "NoOp", "_Arg", "_Retval"}


def make_model(update="capped"):
    inputs = keras.Input((4,))
    hidden = fns.tagi.Dense(8, activation="relu")(inputs)
    exact = fns.tagi.Activation("tanh", moments="exact")
    branch = fns.tagi.Dense(8, activation=exact)(hidden)
    merged = fns.tagi.Concatenate()([fns.tagi.Add()([hidden, branch]), branch])
    softplus = fns.tagi.Dense(8, activation="softplus")(fns.tagi.Flatten()(merged))
    outputs = fns.tagi.Dense(2)(softplus)
    model = fns.tagi.TAGIModel(
        inputs, outputs, likelihood=fns.likelihoods.Gaussian(0.3), update=update, seed=0
    )
    model.compile()
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(20, 4)), rng.normal(size=(20, 2))
    model.adapt(x, y)
    return model, tf.constant(x, tf.float32), tf.constant(y, tf.float32)


def make_model_of_chains():
    """Makes a model with layers of images and sequences."""
    inputs = keras.Input((6,))
    chains = [batteries.Chain(recipe)(inputs) for recipe in batteries.CHAINS]
    outputs = fns.tagi.Dense(2)(fns.tagi.Concatenate()(chains))
    noise = fns.likelihoods.Gaussian(0.3)
    return fns.tagi.TAGIModel(inputs, outputs, likelihood=noise, standardize=False, seed=0)


def make_models_of_outputs():
    """Makes TAGI models of its likelihoods (`Categorical` is like `Remax`); full covariances."""
    inputs = keras.Input((4,))
    noise = fns.likelihoods
    models = [
        (2, noise.HeteroscedasticGaussian(), {}),
        (1, noise.Gaussian(0.3, trainable=True), {}),
        (3, noise.HierarchicalCategorical(3), {}),
        (3, noise.Remax(), {}),
        (1, noise.Gaussian(0.3), {"covariance": "full_parameters", "update": "exact"}),
    ]
    made = []
    for units, likelihood, options in models:
        outputs = fns.tagi.Dense(units)(fns.tagi.Dense(3, activation="relu")(inputs))
        options = {"standardize": False, "seed": 0, **options}
        made.append(fns.tagi.TAGIModel(inputs, outputs, likelihood=likelihood, **options))
        made[-1].compile()
    return made


def outputs_functions(x, y, seed):
    models = make_models_of_outputs()
    labels = tf.cast(y[:, :1] > 0.0, tf.float32)
    last = models[-1]

    def train(a, b, c):
        return [m.train_step((a, c if m.likelihood.is_classifier else b)) for m in models]

    return {
        "outputs_train_step": (train, (x, y[:, :1], labels)),
        "outputs_predict_step": (lambda a: [m.predict_step((a,)) for m in models], (x,)),
        "joint_draw_functions": (lambda a: last.draw_functions(a, 3, seed), (x,)),
    }


def graph_functions():
    """Returns name -> (traceable function, arguments) for what runs on a device."""
    model, x, y = make_model()
    chains, six = make_model_of_chains(), tf.concat([x, x[:, :2]], axis=1)
    exact, _, _ = make_model(update="exact")
    seed = tf.constant([1, 2])
    return {
        "train_step": (lambda a, b: model.train_step((a, b)), (x, y)),
        "train_step_exact": (lambda a, b: exact.train_step((a, b)), (x, y)),
        "test_step": (lambda a, b: model.test_step((a, b)), (x, y)),
        "predict_step": (lambda a: model.predict_step((a,)), (x,)),
        "draw_functions": (lambda a: model.draw_functions(a, 3, seed), (x,)),
        "input_gradient": (lambda a: inverse.jacobian(model, a), (x,)),
        "chains_train_step": (lambda a, b: chains.train_step((a, b)), (six, y)),
        "chains_draw_functions": (lambda a: chains.draw_functions(a, 3, seed), (six,)),
        **outputs_functions(x, y, seed),
        **stable_functions(x, y),
    }


def stable_functions(x, y):
    model, seed = batteries.stable_model(), tf.constant([1, 2])
    batteries.fit(model, x.numpy(), y.numpy(), epochs=1)
    store = model.store
    arrays = store.x.numpy(), store.y.numpy()
    problem = chains_of.make_problem(store.partition, *arrays, model.chains.num_chains)
    return {
        "stable_test_step": (lambda a, b: model.test_step((a, b)), (x, y)),
        "stable_predict_step": (lambda a: model.predict_step((a,)), (x,)),
        "stable_draw_functions": (lambda a: model.draw_functions(a, 3, seed), (x,)),
        "stable_chains": (stable_chains, (seed, store.state, problem)),
    }


def stable_chains(seed, state, problem):
    """Runs all that the sampler can do."""
    settings = samplers.Settings(noise_df=4.0, alpha_range=(0.2, 2.0), nu_prior=(0.0, 1.0))
    return samplers.run(seed, state, problem, settings, 2, 2)


NAMES = [
    "train_step",
    "train_step_exact",
    "test_step",
    "predict_step",
    "draw_functions",
    "input_gradient",
    "outputs_train_step",
    "outputs_predict_step",
    "stable_test_step",
    "stable_predict_step",
    "stable_draw_functions",
]


def ops_of(function, arguments):
    """Returns the names of all ops of a traced function and of the functions it calls."""
    graph = tf.function(function, autograph=False).get_concrete_function(*arguments).graph
    definition = graph.as_graph_def()
    nodes = [node.op for node in definition.node]
    nodes += [node.op for f in definition.library.function for node in f.node_def]
    called = {f.signature.name for f in definition.library.function}
    return set(nodes) - called - _NO_KERNEL_NEEDED


def devices_of(op):
    return {kernel.device_type for kernel in kernels.get_registered_kernels_for_op(op).kernel}


@pytest.fixture(scope="module")
def functions():
    return graph_functions()


@pytest.fixture(scope="module")
def cuda_build():
    if not tf.test.is_built_with_cuda():
        pytest.skip("this build of TensorFlow has no GPU kernels to list")


#: Functions that are not compiled below: the battery of layers compiles these, and the sampler's
#: chains bring their own XLA clusters.
ONLY_LISTED = [
    "chains_train_step",
    "chains_draw_functions",
    "joint_draw_functions",
    "stable_chains",
]


@pytest.mark.parametrize("name", [*NAMES, *ONLY_LISTED])
@pytest.mark.slow
def test_every_op_has_a_gpu_kernel(functions, cuda_build, name):
    found = ops_of(*functions[name])
    assert {"MatMul", "Sqrt"} & found, "the graph looks empty"
    missing = {op: devices_of(op) for op in found if not {"GPU", "DEFAULT"} & devices_of(op)}
    assert not missing


def test_the_check_finds_an_op_without_a_gpu_kernel(cuda_build):
    found = ops_of(tf.strings.length, (tf.constant(["a"]),))
    assert not {"GPU", "DEFAULT"} & devices_of("StringLength")
    assert "StringLength" in found


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.slow
def test_graph_compiles_under_xla(functions, name):
    function, arguments = functions[name]
    compiled = tf.function(function, autograph=False, jit_compile=True)(*arguments)
    for value in tf.nest.flatten(compiled):
        assert np.all(np.isfinite(value))
    if name in (
        "predict_step",
        "input_gradient",
        "stable_predict_step",
    ):  # XLA draws other random numbers
        for value, plain in zip(
            tf.nest.flatten(compiled), tf.nest.flatten(function(*arguments)), strict=True
        ):
            np.testing.assert_allclose(value, plain, rtol=1e-4, atol=1e-5)
