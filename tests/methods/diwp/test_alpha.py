"""Objectives of `DIWPModel` between the lower bound and the density of the data."""

import diwp_models
import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose
from scipy import integrate, stats

from tfp_fnspace import diwp, likelihoods

GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(12, 2)) * [1.0, 10.0]
Y = 100.0 + 20.0 * np.sin(X[:, :1]) + GENERATOR.normal(size=(12, 1))
SMALL = {"inducing_points": 4, "depth": 1, "num_samples": 3, "num_eval_samples": 20, "seed": 0}


def make_model(**options):
    """Makes a model that was not trained."""
    model = diwp_models.make_model(**{**SMALL, **options})
    model.compile(run_eagerly=True)
    model.adapt(X, Y)
    return model


def objective(model):
    """Returns the loss and its parts in the user's units, always with the same seed."""
    inputs = model.units.scaled(tf.constant(X, tf.float32))
    targets = model.units.target_scaler(tf.constant(Y, tf.float32))
    loss, parts = model.objective(inputs, targets, 12.0, tf.constant([1, 2]))
    parts = model.units.logs({"loss": loss, **parts})
    return float(parts.pop("loss")), {name: float(part) for name, part in parts.items()}


def test_one_without_random_matrices_is_the_predictive_density():
    model = make_model(hidden="none", alpha=1.0)
    outputs = model.predict(X, verbose=0)
    densities = stats.norm(outputs["mean"], outputs["stddev"]).logpdf(Y)
    _, parts = objective(model)
    assert_allclose(parts["log_likelihood"], densities.mean(), rtol=0.0, atol=1e-4)


def test_one_is_the_predictive_density_of_the_process():
    """Both estimates have 4,000 samples, with different noise at the points.

    Over five seeds of the model the difference was up to 0.005. The bound is 4.3 lower on average,
    and that average has a heavy tail.
    """
    model = make_model(delta=2.0, alpha=1.0, num_samples=4000, num_eval_samples=4000)
    densities = model.predict_distribution(X).log_prob(tf.constant(Y, tf.float64))
    _, parts = objective(model)
    assert_allclose(parts["log_likelihood"], np.mean(densities), atol=0.02)
    bound = make_model(delta=2.0, num_samples=4000)
    assert objective(bound)[1]["log_likelihood"] < parts["log_likelihood"] - 1.0


@pytest.mark.parametrize("alpha", [0.5, 1.0])
def test_powers_of_a_gaussian_process_against_quadrature(alpha):
    """Noise without a closed form takes 40,000 draws of f; the false-fail rate is 2e-9."""
    noise = likelihoods.StudentT(4.0, 0.5)
    model = make_model(hidden="none", alpha=alpha, likelihood=noise, num_samples=40_000)
    mean, variance = (v[0, :, 0] for v in model(tf.constant(X, tf.float32)))
    y = model.units.target_scaler(tf.constant(Y, tf.float32)).numpy()[:, 0]
    f = mean[:, np.newaxis] + np.sqrt(variance)[:, np.newaxis] * np.linspace(-8.0, 8.0, 4001)
    density = stats.norm(mean[:, np.newaxis], np.sqrt(variance)[:, np.newaxis]).pdf(f)
    power = stats.t(4.0, f, 0.5).pdf(y[:, np.newaxis]) ** alpha
    first, second = (integrate.simpson(density * power**k, x=f, axis=-1) for k in (1, 2))
    exact = np.log(first) / alpha - np.log(Y.std())
    errors = np.sqrt((second / first**2 - 1.0) / 40_000) / alpha
    _, parts = objective(model)
    error = np.sqrt(np.sum(np.square(errors))) / len(Y)  # of the mean over independent points
    assert error < 0.01
    assert_allclose(parts["log_likelihood"], exact.mean(), atol=6.0 * error + 1e-4)


def test_zero_is_the_limit_and_objectives_rise_with_alpha():
    found = [objective(make_model(delta=2.0, alpha=a)) for a in (0.0, 1e-4, 0.1, 0.5, 1.0)]
    terms = [parts["log_likelihood"] for _, parts in found]
    assert np.all(np.diff(terms) > 0.0)  # as do means of powers
    assert_allclose(terms[1], terms[0], atol=0.01 * (terms[-1] - terms[0]))
    assert len({parts["kl"] for _, parts in found}) == 1


@pytest.mark.slow
def test_history_has_a_bound_where_there_is_one():
    for alpha in (0.0, 0.5):
        history = make_model(alpha=alpha).fit(X, Y, epochs=2, batch_size=6, verbose=0).history
        assert ("elbo" in history) == (alpha == 0.0)
        objectives = np.subtract(history["log_likelihood"], history["kl"])
        assert_allclose(np.negative(history["loss"]), objectives, rtol=1e-5)


def test_config():
    model = diwp_models.make_model(**SMALL, alpha=0.5)
    config = model.get_config()
    assert diwp.DIWPModel.from_config(config).alpha == config.pop("alpha") == 0.5
    assert diwp.DIWPModel.from_config(config).alpha == 0.0  # an older config has no alpha


@pytest.mark.parametrize("alpha", [-0.1, 1.5, None])
def test_alpha_is_a_fraction(alpha):
    with pytest.raises((TypeError, ValueError), match="`alpha` must be"):
        diwp.DIWPModel(alpha=alpha)


def test_one_draw_is_refused_where_it_would_be_the_bound():
    noise = {"num_samples": 1, "likelihood": likelihoods.StudentT(4.0, 0.5)}
    with pytest.raises(ValueError, match="at least 2.*num_samples=1, alpha=0.5"):
        diwp.DIWPModel(alpha=0.5, **noise)
    assert diwp.DIWPModel(**noise).alpha == 0.0
    assert diwp.DIWPModel(alpha=0.5, num_samples=1).alpha == 0.5  # a closed form needs one draw


@pytest.mark.slow
def test_training_moves_noise_of_the_likelihood_into_f():
    scales, random = [], np.random.default_rng(1)
    x = random.normal(size=(60, 2))
    y = np.sin(3.0 * x[:, :1]) + 0.3 * random.normal(size=(60, 1))
    for alpha in (0.0, 1.0):
        model = diwp_models.make_model(
            **{**SMALL, "inducing_points": 6, "hidden": "none"}, alpha=alpha
        )
        model.fit(x, y, epochs=150, batch_size=60, verbose=0)
        scales.append(float(model.likelihood.scale))
    assert scales[1] < 0.9 * scales[0]


def custom_network():
    layers = [diwp.FeaturesToGram(4), diwp.KernelOfGram("relu"), diwp.GlobalInducingGP(1)]
    return keras.Sequential([keras.Input((2,)), *layers])


@pytest.mark.parametrize(
    "options",
    [
        {"delta": 5.0},
        {"hidden": "gaussian_process"},
        {"stack": "omega", "depth": 0},
        {"network": custom_network},
    ],
)
def test_student_noise_of_every_kind_of_network(options):
    """The term rises with alpha from the bound's (Jensen), by at least 0.1 each time."""
    options = dict(options, num_samples=500, likelihood=likelihoods.StudentT(4.0, 0.5))
    small = {"seed": 0, "num_eval_samples": 20}
    if "network" in options:
        options["network"] = options["network"]()
    else:
        small = {**SMALL, **small}
    terms = []
    for alpha in (0.0, 0.5, 1.0):
        model = diwp_models.make_model(**{**small, **options}, alpha=alpha)
        model.compile(run_eagerly=True)
        model.adapt(X, Y)
        terms.append(objective(model)[1]["log_likelihood"])
    assert np.all(np.isfinite(terms)) and np.all(np.diff(terms) > 0.1)


@pytest.mark.slow
def test_classes_in_compiled_epochs(tmp_path):
    labels = (X[:, 0] > 0.0).astype(int)
    noise = likelihoods.Categorical()
    model = diwp_models.make_model(
        **SMALL, hidden="none", num_outputs=2, likelihood=noise, alpha=0.5
    )
    history = model.fit(X, labels, epochs=2, batch_size=6, verbose=0).history
    assert np.all(np.isfinite(history["loss"])) and "elbo" not in history
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.alpha == 0.5
    assert_allclose(loaded.predict(X)["probabilities"], model.predict(X)["probabilities"], 1e-5)
