"""Normal distributions with full covariances, relative to which SIP estimates its divergence."""

import batteries
import keras
import numpy as np
import pytest
import sip_models
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

from tfp_fnspace.methods.sip import Adversarial, AdversarialOfWeights, log_ratio, networks
from tfp_fnspace.methods.sip.contrast import JointNormal

SIZE = 6
GENERATOR = np.random.default_rng(0)


def distribution(seed):
    """Returns mean and Cholesky factor of a correlated normal distribution."""
    random = np.random.default_rng(seed)
    return 0.5 * random.normal(size=SIZE), np.linalg.cholesky(
        np.cov(random.normal(size=(SIZE, 4 * SIZE)))
    )


Q, P = distribution(1), distribution(2)


def draws(of, count, seed, dtype="float64"):
    mean, factor = of
    normal = np.random.default_rng(seed).normal(size=(count, SIZE))
    return tf.constant(mean + normal @ factor.T, dtype)


def divergence(a, b):
    """Computes the KL of normal distributions by NumPy."""
    (mean, factor), (other_mean, other) = a, b
    ratio, shift = np.linalg.solve(other, factor), np.linalg.solve(other, mean - other_mean)
    logs = np.log(np.diag(other)).sum() - np.log(np.diag(factor)).sum()
    return 0.5 * (np.sum(ratio**2) + shift @ shift - SIZE) + logs


def test_divergence_of_many_draws_is_the_closed_form():
    q, p = (JointNormal.of(draws(of, 200_000, i)) for i, of in enumerate((Q, P)))
    assert_allclose(q.divergence(p), divergence(Q, P), rtol=0.02)
    assert_allclose(p.divergence(q), divergence(P, Q), rtol=0.02)


@pytest.mark.parametrize(("of", "other"), [(Q, P), (P, Q), (Q, Q)])
def test_divergence_of_few_draws_has_no_bias(of, other):
    """The mean of 2,000 repetitions is within 4 standard errors: 1 of 16,000 runs fails falsely.

    The plain formula of the moments is more than 20 standard errors away.
    """
    repetitions, counts = 2000, (12, 17)
    drawn = [
        tf.reshape(draws(distribution, repetitions * count, count), [repetitions, count, SIZE])
        for distribution, count in zip((of, other), counts, strict=True)
    ]

    @tf.function(autograph=False)
    def estimates():
        def one(pair):
            a, b = map(JointNormal.of, pair)
            return a.divergence(b), a.mean, a.factor, b.mean, b.factor

        return tf.map_fn(one, tuple(drawn), fn_output_signature=(tf.float64,) * 5)

    values, *moments = (v.numpy() for v in estimates())
    plain = [divergence((m, f), (n, g)) for m, f, n, g in zip(*moments, strict=True)]
    exact = divergence(of, other) if of is not other else 0.0
    error = np.std(values) / repetitions**0.5
    assert abs(np.mean(values) - exact) < 4.0 * error
    assert np.mean(plain) - exact > 20.0 * error


def test_values_are_standardised():
    drawn = draws(Q, 50, 3)
    normal = JointNormal.of(drawn)
    values = normal.standard(drawn).numpy()
    assert_allclose(values.mean(axis=0), 0.0, atol=1e-12)
    assert_allclose(np.cov(values.T), np.eye(SIZE), atol=1e-12)
    with tf.GradientTape() as tape:
        tape.watch(drawn)
        total = tf.reduce_sum(JointNormal.of(drawn).standard(drawn)[0])
    rows = np.abs(tape.gradient(total, drawn).numpy()).sum(axis=1)
    assert rows[0] > 0.0 and np.all(rows[1:] == 0.0)  # gradients take moments as constants


def full(size, noise=1e-2):
    network = networks.mlp(size, 1, units=(8,))
    return log_ratio.LogRatio(network, keras.models.clone_model(network), noise)


def zero(values, training=None):
    return tf.zeros_like(values[:, :1])


def test_blind_discriminators_leave_the_divergence_of_the_normal_distributions():
    """The distribution p includes the noise that it gets; the test takes 20,000 draws."""
    noise = 0.3
    layer = log_ratio.LogRatio(zero, zero, noise)
    q, p = (draws(of, 20_000, i, "float32") for i, of in enumerate((Q, P)))
    found = layer(q, p, tf.constant([0, 1]))
    with_noise = P[0], np.linalg.cholesky(P[1] @ P[1].T + noise * np.eye(SIZE))
    little = Q[0], np.linalg.cholesky(Q[1] @ Q[1].T + 0.01 * noise * np.eye(SIZE))
    assert_allclose(found.forward, divergence(little, with_noise), rtol=0.03)
    assert_allclose(found.reverse, divergence(with_noise, little), rtol=0.03)
    assert_allclose(found.loss, 4.0 * np.log(2.0), rtol=1e-5)
    assert found.num_jittered == 0


def test_few_draws_of_a_distribution_of_fewer_dimensions_have_no_bias():
    """q has half the dimensions of p and 15 draws, like the default sampler with many points.

    The mean of 4,000 repetitions is within 4 standard errors: 1 of 8,000 runs fails falsely.
    """
    noise, repetitions, count = 0.5, 4000, 15
    layer = log_ratio.LogRatio(zero, zero, noise)
    flat = Q[1].copy()
    flat[:, SIZE // 2 :] = 0.0
    drawn = [
        tf.reshape(draws(distribution, repetitions * count, i), [repetitions, count, SIZE])
        for i, distribution in enumerate([(Q[0], flat), P])
    ]

    @tf.function(autograph=False)
    def estimates():
        def one(item):
            q, p, i = item
            found = layer(q, p, tf.stack([i, 7]))
            return found.forward, found.reverse

        items = (*drawn, tf.range(repetitions))
        return tf.map_fn(one, items, fn_output_signature=(tf.float64,) * 2)

    q = Q[0], np.linalg.cholesky(flat @ flat.T + 0.01 * noise * np.eye(SIZE))
    p = P[0], np.linalg.cholesky(P[1] @ P[1].T + noise * np.eye(SIZE))
    for values, exact in zip(estimates(), (divergence(q, p), divergence(p, q)), strict=True):
        error = np.std(values) / repetitions**0.5
        assert abs(np.mean(values) - exact) < 4.0 * error
        assert error < 0.02 * exact


def test_both_divergences_have_gradients_in_both_distributions():
    """Finite differences of the closed form check the mean of q and its scale."""
    layer = log_ratio.LogRatio(zero, zero, 1e-6)
    normal, p = tf.constant(GENERATOR.normal(size=(20_000, SIZE))), draws(P, 20_000, 5)
    factor = tf.constant(Q[1])

    def at(shift, scale):
        return Q[0] + shift, scale * Q[1]

    with tf.GradientTape(persistent=True) as tape:
        parameters = tf.constant([0.0, 1.0], tf.float64)
        tape.watch(parameters)
        shift, scale = tf.unstack(parameters)
        q = Q[0] + shift + scale * tf.matmul(normal, factor, transpose_b=True)
        found = layer(q, p, tf.constant([0, 1]))
    for value, exact in (
        (found.forward, lambda *v: divergence(at(*v), P)),
        (found.reverse, lambda *v: divergence(P, at(*v))),
    ):
        h = 1e-5
        slopes = [
            (exact(h, 1.0) - exact(-h, 1.0)) / (2.0 * h),
            (exact(0.0, 1.0 + h) - exact(0.0, 1.0 - h)) / (2.0 * h),
        ]
        assert_allclose(tape.gradient(value, parameters), slopes, rtol=0.05, atol=0.05)


def test_distributions_of_a_point_are_finite_and_counted():
    """The noise is too small for the values in float32, which stay where they are."""
    layer, q = full(SIZE, 1e-12), tf.Variable(1e3 * tf.ones([20, SIZE]))
    with tf.GradientTape() as tape:
        found = layer(q, 1e3 * tf.ones([20, SIZE]), tf.constant([0, 1]))
        total = found.forward + found.reverse + found.loss
    assert np.all(np.isfinite(tape.gradient(total, q))) and np.isfinite(total)
    assert found.num_jittered > 0


def test_config_keeps_the_noise():
    layer = full(3, 0.07)
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(layer))
    copy.set_weights(layer.get_weights())
    q, p = tf.random.stateless_normal([2, 20, 3], [1, 2])
    arguments = q, p, tf.constant([3, 4])
    assert_array_equal(*(tf.stack(one(*arguments)[:4]) for one in (layer, copy)))
    assert copy.noise == 0.07


# In the model ------------------------------------------------------------------------------------

X = GENERATOR.normal(size=(24, 4)).astype("float32")
Y = np.stack([np.sin(X[:, 0]), X[:, 1] * X[:, 2]], axis=1).astype("float32")


@pytest.mark.slow
def test_model_is_saved_and_goes_on(tmp_path):
    model = batteries.sip_model(adaptive_contrast="full")
    history = model.fit(X, Y, epochs=2, batch_size=12, verbose=0).history
    assert np.all(np.isfinite(history["kl_estimate"])) and history["jittered"] == [0.0, 0.0]
    model.save(tmp_path / "model.keras")
    copy = keras.models.load_model(tmp_path / "model.keras")
    assert copy.divergence.adaptive_contrast == "full" and copy.log_ratio.noise == model.jitter
    runs = [m.fit(X, Y, epochs=1, batch_size=12, verbose=0).history for m in (model, copy)]
    assert_allclose(runs[0]["loss"], runs[1]["loss"], rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "dtype"),
    [
        ({}, "float32"),
        ({"run_eagerly": True}, "float32"),
        pytest.param({"jit_compile": True}, "float64", marks=pytest.mark.exhaustive),
    ],
)
def test_as_many_draws_are_taken_as_the_covariances_need(options, dtype):
    model = sip_models.make_model(
        "bnn", 8, adaptive_contrast="full", num_samples=5, dtype=dtype, seed=0
    )
    model.compile(**options)
    history = model.fit(X, Y, epochs=2, batch_size=12, verbose=0).history
    q, p = model.divergence_draws((0, 1))
    assert q.shape == p.shape == (2 * 8 * 2 + 3, 8 * 2)
    assert np.all(np.isfinite(history["loss"])) and history["jittered"] == [0.0, 0.0]


def test_other_words_are_refused():
    with pytest.raises(ValueError, match="`adaptive_contrast` must be"):
        Adversarial(adaptive_contrast="diagonal")
    with pytest.raises(ValueError, match="`adaptive_contrast` must be"):
        AdversarialOfWeights(adaptive_contrast="full")
