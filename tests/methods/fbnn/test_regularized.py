"""`fbnn.Regularized` against normal distributions by NumPy; the view of adversarial points."""

import fbnn_models
import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from numpy.testing import assert_allclose

from tfp_fnspace import fbnn, layers, likelihoods, processes
from tfp_fnspace.math.random import fold_in

tfpk = tfp.math.psd_kernels

GAMMA, NUM_SAMPLES, MOST = 0.1, 40, 19
X = np.random.default_rng(0).uniform(-2.0, 2.0, size=(65, 1))


def model_of_gaussian_functions(**options):
    """Makes cosines with a random last layer, whose functions have a known joint distribution."""
    kernel = tfpk.ExponentiatedQuadratic(np.float64(1.0), np.float64(0.4))
    inputs = keras.Input((1,), dtype="float64")
    features = layers.RandomFourierFeatures(30, kernel, seed=0)(inputs)
    outputs = layers.VariationalDense(1, posterior="full", prior="standard")(features)
    prior = processes.GaussianProcess(
        tfpk.ExponentiatedQuadratic(np.float64(1.0), np.float64(0.7)), dtype="float64"
    )
    options = {"measurement": fbnn.TrainingRows(), "standardize": False, "seed": 0, **options}
    model = fbnn_models.make_model(
        (inputs, outputs),
        prior,
        likelihood=likelihoods.Gaussian(0.3),
        injected_noise=GAMMA,
        num_samples=NUM_SAMPLES,
        **options,
    )
    # The weights are far from the initial point, where they hardly spread.
    rng = np.random.default_rng(1)
    for weight in outputs._keras_history.operation.trainable_weights:
        weight.assign(weight.numpy() + 0.3 * rng.normal(size=weight.shape))
    return model


def exact_divergence(model, x):
    """Computes by NumPy the divergence with noise of variance len(x) gamma^2 at the points."""
    mean, root = (v.numpy()[:, 0] for v in layers.GaussianOutput(model.network).joint(x))
    noise = len(x) * GAMMA**2 * np.eye(len(x))
    ours = root @ root.T + noise
    theirs = np.exp(-0.5 * (x - x.T) ** 2 / 0.7**2) + model.prior.jitter * np.eye(len(x)) + noise
    solved = np.linalg.solve(theirs, np.column_stack([ours, mean]))
    log_det = np.linalg.slogdet(theirs)[1] - np.linalg.slogdet(ours)[1]
    return 0.5 * (np.trace(solved[:, :-1]) + mean @ solved[:, -1] - len(x) + log_det)


@pytest.fixture(scope="module")
def regularized():
    floatx, policy = keras.config.floatx(), keras.config.dtype_policy()
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    yield model_of_gaussian_functions(divergence="regularized")
    keras.config.set_floatx(floatx)
    keras.config.set_dtype_policy(policy)


@pytest.mark.parametrize("num_points", [12, 65])
@pytest.mark.slow
def test_divergence_is_that_at_the_points_used_with_the_noise_of_so_many(
    regularized, num_points, assert_mean_close
):
    """Brute force over sets of points gives the exact value. FALSE_FAIL = 2e-6 for two sizes."""
    model, x = regularized, X[:num_points]
    targets, rows = tf.zeros([num_points, 1], tf.float64), tf.constant(1.0, tf.float64)

    @tf.function(autograph=False)
    def estimates():
        return tf.map_fn(
            lambda i: model.objective([tf.constant(x)], targets, rows, tf.stack([i, 3]))[1][
                "kl_estimate"
            ],
            tf.range(500),
            fn_output_signature=tf.float64,
        )

    found = estimates().numpy()
    rng, count = np.random.default_rng(2), min(num_points, MOST)
    exact = [exact_divergence(model, x[rng.permutation(num_points)[:count]]) for _ in range(500)]
    assert_mean_close(found - np.array(exact), 0.0, 1e-6)
    # It is also nearly the value at all points; the estimate's own error is some 2 %.
    assert_allclose(found.mean(), exact_divergence(model, x), rtol=0.15)


@pytest.mark.slow
def test_every_point_gets_a_gradient_in_some_step(regularized):
    """The probability that one of 65 is in none of 40 sets of 19 is 65 (46 / 65)^40 = 6e-5."""
    values = tf.random.stateless_normal([NUM_SAMPLES, 65, 1], [0, 1], dtype=tf.float64)
    reached = []
    for step in range(40):
        with tf.GradientTape() as tape:
            tape.watch(values)
            kl, _ = regularized._divergence(values, tf.constant(X), tf.stack([step, 0]))
        gradient = tape.gradient(kl, values).numpy()
        reached.append(np.any(gradient != 0.0, axis=(0, 2)))
    assert np.all(np.sum(reached, axis=1) == MOST)
    assert np.all(np.any(reached, axis=0))


@pytest.mark.parametrize("divergence", ["stein", "regularized", "closed_form", "linearized"])
def test_adversarial_points_go_up_the_objective_s_divergence(divergence, float64):
    """At the points of a step, the function that `ascend` gets equals the step's divergence."""
    measurement = fbnn.Adversarial(4, low=-2.0, high=2.0, margin=0.0)
    every_step = {"monitor_steps": 1} if divergence == "stein" else {}
    model = model_of_gaussian_functions(
        divergence=divergence, measurement=measurement, **every_step
    )
    seen, x = [], tf.constant(X[:10])
    measurement.ascend = lambda divergence: seen.append(
        (divergence, divergence(measurement.points(x, 0)[10:]))
    )
    targets = tf.zeros([10, 1], tf.float64)
    seed = fold_in(tf.constant([1, 2]), 0)
    _, parts = model.objective([x], targets, tf.constant(10.0, tf.float64), seed)
    ((divergence, value),) = seen
    assert_allclose(value, parts["kl_estimate"], rtol=1e-9)
    # The divergence at the rows alone differs: the rows affect where the points go.
    places = measurement.points(x, 0)[10:]
    with tf.GradientTape() as tape:
        tape.watch(places)
        total = divergence(places)
    assert np.any(tape.gradient(total, places).numpy() != 0.0)
