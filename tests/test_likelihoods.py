"""Observation models against SciPy; what TAGI makes of them."""

import batteries
import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from tfp_fnspace import likelihoods

#: Name -> constructor from a scale, law of the noise at scale 1.
LIKELIHOODS = {
    "Gaussian": (likelihoods.Gaussian, stats.norm()),
    "StudentT": (lambda scale: likelihoods.StudentT(3.5, scale), stats.t(3.5)),
    "Cauchy": (lambda scale: likelihoods.StudentT(1, scale), stats.cauchy()),
    "StudentT_2": (lambda scale: likelihoods.StudentT(2.0, scale), stats.t(2.0)),
}
F = np.random.default_rng(0).normal(size=(4, 5, 2))  # [draws, N, D]
Y = np.random.default_rng(1).normal(size=(5, 2))


@pytest.fixture(params=LIKELIHOODS)
def case(request):
    return LIKELIHOODS[request.param]


def log_density(law, f, scale):
    return (law.logpdf((Y - f) / scale) - np.log(scale)).sum(-1)


@pytest.mark.parametrize("scale", [0.7, [0.7, 1.3]])
@pytest.mark.parametrize("unit", [1.0, [2.0, 0.5]])
def test_conditional(case, float64, scale, unit):
    make, law = case
    distribution = make(scale).conditional(F, np.array(unit))
    assert (distribution.batch_shape, distribution.event_shape) == ((4, 5), (2,))
    expected = log_density(law, F, np.multiply(scale, unit))
    np.testing.assert_allclose(distribution.log_prob(Y), expected, rtol=1e-10)


@pytest.mark.parametrize("values", [F, F[0]], ids=["draws_of_f", "one_f"])
def test_conditional_with_a_scale_for_every_draw(case, float64, values):
    make, law = case
    likelihood = make(0.7)
    scale = np.array([0.2, 0.5, 1.0, 3.0]).reshape(4, 1, 1)
    distribution = likelihood.conditional(values, np.array([2.0, 0.5]), scale=scale)
    assert (distribution.batch_shape, distribution.event_shape) == ((4, 5), (2,))
    expected = log_density(law, values, scale * [2.0, 0.5])
    np.testing.assert_allclose(distribution.log_prob(Y), expected, rtol=1e-10)
    assert distribution.sample(seed=1).shape == (4, 5, 2)
    assert likelihood.scale.numpy() == np.float64(0.7)


def test_conditional_of_float32_takes_any_scale(case):
    make, _ = case
    distribution = make(0.7).conditional(tf.constant(F, tf.float32), scale=np.full((4, 1, 1), 0.5))
    assert distribution.dtype == tf.float32


def test_noise_variance(case, float64):
    make, law = case
    variance = make([0.7, 1.3]).noise_variance(np.array([2.0, 0.5]))
    # SciPy has no variance of the Cauchy law (nan), infinite ones of the others.
    expected = np.nan_to_num(law.var(), nan=np.inf, posinf=np.inf) * np.array([1.4, 0.65]) ** 2
    np.testing.assert_allclose(variance, expected, rtol=1e-12)


def test_student_t_tends_to_gaussian(float64):
    wide = likelihoods.StudentT(1e9, 0.7).conditional(F).log_prob(Y)
    normal = likelihoods.Gaussian(0.7).conditional(F).log_prob(Y)
    np.testing.assert_allclose(wide, normal, rtol=1e-6)


def test_config_and_weights_round_trip(case):
    make, _ = case
    ours = make([0.7, 1.3])
    ours.set_scale([0.1, 0.2])
    theirs = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(ours))
    assert theirs.get_config() == ours.get_config()
    np.testing.assert_allclose(theirs.scale, [0.7, 1.3], rtol=1e-6)
    theirs.set_weights(ours.get_weights())
    np.testing.assert_array_equal(
        theirs.conditional(F.astype("float32")).log_prob(Y),
        ours.conditional(F.astype("float32")).log_prob(Y),
    )


@pytest.mark.parametrize("scale", [0.0, -1.0, np.nan, np.inf, "wide", [[1.0]], [1.0, 0.0]])
def test_bad_scale(case, scale):
    make, _ = case
    with pytest.raises(ValueError, match="`scale` must be a positive.*Received: scale="):
        make(scale)
    with pytest.raises(ValueError, match="`scale` must be a positive.*Received: scale="):
        make(1.0).set_scale(scale)


@pytest.mark.parametrize("df", [0.0, -1, np.nan, np.inf, True, "3", [3.0], None])
def test_bad_df(df):
    with pytest.raises(ValueError, match="`df` must be a positive finite number. Received: df="):
        likelihoods.StudentT(df)


def test_number_of_scales(case):
    make, _ = case
    make(0.5).check_outputs(3)
    make([0.5, 0.6]).check_outputs(2)
    with pytest.raises(ValueError, match="one per output, 3. Received: 2 scales"):
        make([0.5, 0.6]).check_outputs(3)


def test_tagi_refuses_noise_without_a_closed_form():
    message = "must have a closed-form update for TAGI.*Received: likelihood=<StudentT"
    with pytest.raises(ValueError, match=message):
        batteries.tagi_model(likelihood=likelihoods.StudentT(4.0))
