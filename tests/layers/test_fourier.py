"""Random Fourier features against the kernels of TFP."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import special

from tfp_fnspace import layers, processes
from tfp_fnspace.kernels import spectral

tfpk = tfp.math.psd_kernels
X = np.random.default_rng(0).normal(size=(5, 2))
AMPLITUDE, LENGTH = np.float64(1.3), np.float64(0.7)
PERIODIC = tfpk.ExpSinSquared(AMPLITUDE, LENGTH, np.float64(1.7))
SMOOTH = tfpk.ExponentiatedQuadratic(AMPLITUDE, LENGTH)
WIDE = tfpk.RationalQuadratic(np.float64(0.6), LENGTH, scale_mixture_rate=np.float64(0.8))
KERNELS = {
    "squared_exponential": SMOOTH,
    "inverse_length": tfpk.ExponentiatedQuadratic(inverse_length_scale=LENGTH),
    "matern_12": tfpk.MaternOneHalf(AMPLITUDE, LENGTH),
    "matern_32": tfpk.MaternThreeHalves(AMPLITUDE, LENGTH),
    "matern_52": tfpk.MaternFiveHalves(AMPLITUDE, LENGTH),
    "rational_quadratic": WIDE,
    "periodic": PERIODIC,
    "short_periodic": tfpk.ExpSinSquared(AMPLITUDE, np.float64(0.1), np.float64(1.7)),
    "constant": tfpk.Constant(np.float64(0.4)),
    "scaled": tfpk.FeatureScaled(SMOOTH, scale_diag=np.array([0.5, 3.0])),
    "sum": SMOOTH + PERIODIC + WIDE,
    "product": SMOOTH * PERIODIC,
    "product_of_sums": (SMOOTH + PERIODIC) * (WIDE + tfpk.Constant(np.float64(0.4))),
}


@pytest.mark.parametrize("name", KERNELS)
def test_products_are_the_kernel_on_average(name, assert_mean_close):
    kernel, units = KERNELS[name], 30_000
    means = []
    for seed in range(40):
        features = layers.RandomFourierFeatures(units // 40, kernel, seed=seed, dtype="float64")
        values = features(X).numpy()
        means.append((values @ values.T).ravel())
    # If there are several kernels, each has an equal share of a layer's units: layers are the
    # draws.
    expected = kernel.matrix(X, X).numpy()
    assert_mean_close(np.array(means), expected.ravel())
    assert np.max(np.std(means, axis=0)) < 0.2 * expected[0, 0]


def test_phases_are_uniform_on_the_circle():
    layer = layers.RandomFourierFeatures(10_000, SMOOTH, seed=0)
    layer.build((None, 2))
    phases = np.asarray(layer.phases)
    assert 0.0 <= phases.min() < 0.01 and 6.27 < phases.max() <= 2.0 * np.pi
    assert abs(np.mean(np.exp(1j * phases))) < 0.05  # the bound is 5 standard deviations


def test_kernel_of_a_process_seed_and_saving(tmp_path):
    prior = processes.GaussianProcess(processes.ard_squared_exponential(2, 1.5, [1.0, 3.0]))
    first = layers.RandomFourierFeatures(5, prior.kernel(), seed=3)
    again = layers.RandomFourierFeatures.from_config(first.get_config())
    np.testing.assert_array_equal(first(X), again(X))
    other = layers.RandomFourierFeatures(5, prior.kernel(), seed=4)
    assert np.max(np.abs(first(X) - other(X))) > 0.1
    np.testing.assert_allclose(first.amplitudes, 1.5 * np.sqrt(2.0 / 5.0), rtol=1e-6)
    model = keras.Sequential([keras.Input((2,)), layers.RandomFourierFeatures(5, SMOOTH)])
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(X), model(X))


def test_without_a_seed_it_follows_that_of_keras():
    values = []
    for _ in range(2):
        keras.utils.set_random_seed(1)
        values.append(layers.RandomFourierFeatures(5, SMOOTH)(X))
    np.testing.assert_array_equal(*values)


def test_trainable_are_frequencies_and_phases_where_asked():
    layer = layers.RandomFourierFeatures(4, SMOOTH, seed=0)
    layer(X)
    assert not layer.trainable_weights
    layer = layers.RandomFourierFeatures(4, SMOOTH, seed=0, trainable=True)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(X))
    names = [weight.name for weight in layer.trainable_weights]
    assert names == ["frequencies", "phases"]
    assert all(np.any(g != 0.0) for g in tape.gradient(loss, layer.trainable_variables))


@pytest.mark.parametrize(
    ("units", "kernel", "error", "message"),
    [
        (0, SMOOTH, ValueError, "units=0"),
        (3, "rbf", TypeError, "kernel='rbf'"),
        (3, tfpk.Linear(), ValueError, "kernel=Linear"),
        (3, tfpk.ExponentiatedQuadratic([1.0, 2.0]), ValueError, r"amplitude=\[1.0, 2.0\]"),
        (3, tfpk.FeatureScaled(SMOOTH, scale_diag=np.ones(3)), ValueError, "takes as many inputs"),
        (3, tfpk.FeatureScaled(SMOOTH, scale_diag=np.ones([2, 1])), ValueError, "a vector"),
        (
            3,
            tfpk.FeatureScaled(SMOOTH, np.ones(2)) + tfpk.FeatureScaled(SMOOTH, np.ones(3)),
            ValueError,
            r"scales of \[2, 3\] inputs",
        ),
        (1, SMOOTH + PERIODIC, ValueError, "units=1 for 2 kernels"),
        (3, tfpk.ExponentiatedQuadratic(length_scale=0.0), ValueError, "length_scale=0.0"),
        (3, tfpk.ExponentiatedQuadratic(feature_ndims=2), ValueError, "feature_ndims=2"),
    ],
)
def test_bad_arguments(units, kernel, error, message):
    with pytest.raises(error, match=message):
        layers.RandomFourierFeatures(units, kernel)(X)


def test_bad_seed_and_unknown_width():
    with pytest.raises(ValueError, match="seed=-1"):
        layers.RandomFourierFeatures(3, SMOOTH, seed=-1)
    with pytest.raises(ValueError, match="must be known"):
        layers.RandomFourierFeatures(3, SMOOTH)(keras.Input((None,)))


def test_inverse_scales_are_those_of_the_inputs():
    options = {"units": 7, "seed": 0}
    scaled = tfpk.FeatureScaled(SMOOTH, scale_diag=np.array([0.5, 4.0]))
    inverse = tfpk.FeatureScaled(SMOOTH, inverse_scale_diag=np.array([2.0, 0.25]))
    one, other = (layers.RandomFourierFeatures(kernel=k, **options)(X) for k in (scaled, inverse))
    np.testing.assert_allclose(one, other, rtol=1e-5)


def test_angles_are_in_full_precision_under_a_half_policy():
    options = {"units": 50, "kernel": tfpk.ExponentiatedQuadratic(length_scale=0.01), "seed": 0}
    half = layers.RandomFourierFeatures(**options, dtype="mixed_bfloat16")(X)
    assert half.dtype == "bfloat16"
    full = layers.RandomFourierFeatures(**options)(X)
    np.testing.assert_allclose(tf.cast(half, "float32"), full, atol=2e-3)


def test_frozen_and_thawed_it_is_not_trained():
    model = keras.Sequential([keras.Input((2,)), layers.RandomFourierFeatures(3, SMOOTH, seed=0)])
    model.trainable = False
    model.trainable = True
    assert model.trainable_variables == []


@pytest.mark.parametrize("length", [0.1, 1.0, 5.0])
def test_weights_of_harmonics_are_bessel_functions(length):
    z = length**-2.0
    count = 20 + int(8.0 * np.sqrt(z))
    expected = special.ive(np.arange(count), z) * np.where(np.arange(count) > 0, 2.0, 1.0)
    found = spectral._fourier_weights(count, z)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    np.testing.assert_allclose(np.sum(found), 1.0, rtol=1e-12)
