"""Acquisition functions of TensorFlow Probability on the posteriors of our models."""

import batteries
import conftest
import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

import tfp_fnspace as fns
from tfp_fnspace.decisions import FunctionPosterior, max_value_entropy

acquisition = tfp.experimental.bayesopt.acquisition

_RNG = np.random.default_rng(0)
X = _RNG.uniform(size=(40, 4))
Y = np.stack([np.sin(3.0 * X[:, 0]) + X[:, 1], 20.0 + 5.0 * X[:, 2]], axis=1)
NEW = _RNG.uniform(size=(7, 4))
BEST = float(Y[:, 1].max())


@pytest.fixture(scope="module")
def fitted():
    """Returns a function that returns a fitted model of a kind, always the same one."""
    models = {}

    def of(kind):
        if kind not in models:
            models[kind] = batteries.ALL_MODELS[kind]()
            batteries.fit(models[kind], X, Y, epochs=4)
        return models[kind]

    return of


@pytest.mark.parametrize("kind", batteries.KINDS)
@pytest.mark.slow
def test_acquisitions_of_points_are_the_formulas(fitted, kind):
    model = fitted(kind)
    posterior = FunctionPosterior(model, NEW, output=1)
    given = {"predictive_distribution": posterior, "observations": Y[:, 1]}
    outputs = model.predict(NEW)
    mean, stddev = outputs["mean"][:, 1], outputs["epistemic_stddev"][:, 1]
    gap = mean - BEST
    close = {"rtol": 1e-4, "atol": 1e-4 * stddev.max()}
    improvement = acquisition.GaussianProcessExpectedImprovement(**given, exploration=0.0)
    z = gap / stddev
    assert_allclose(improvement(), gap * stats.norm.cdf(z) + stddev * stats.norm.pdf(z), **close)
    bound = acquisition.GaussianProcessUpperConfidenceBound(**given, exploration=2.0)
    assert_allclose(bound(index_points=NEW), mean + 2.0 * stddev, **close)
    entropy = acquisition.GaussianProcessMaxValueEntropySearch(**given, seed=(1, 2))
    ours = max_value_entropy(mean, stddev, entropy._precomputed_samples, minimize=False)
    assert_allclose(entropy(), ours, rtol=1e-3, atol=1e-3 * ours.max())


@pytest.mark.parametrize("kind", batteries.KINDS)
def test_acquisitions_of_sets_are_means_over_functions(fitted, kind):
    model = fitted(kind)
    posterior = FunctionPosterior(model, NEW, output=1)
    functions = model.sample_functions(NEW, 30, (3, 4))[..., 1]
    assert_allclose(posterior.sample(30, seed=(3, 4)), functions, rtol=1e-6)

    class Seen(FunctionPosterior):
        def sample(self, sample_shape, seed=0, index_points=None):
            self.seed = seed
            return super().sample(sample_shape, seed, index_points)

    seen = Seen(model, NEW, output=1)
    options = {"observations": Y[:, 1], "num_samples": 30, "exploration": 0.0}
    ours = acquisition.ParallelExpectedImprovement(seen, **options)()
    functions = model.sample_functions(NEW, 30, seen.seed)[..., 1]
    assert_allclose(ours, np.mean(np.maximum(functions.max(axis=1) - BEST, 0.0)), rtol=1e-4)


def test_expected_improvement_of_one_point_by_draws(fitted):
    posterior = FunctionPosterior(fitted("fBNN_closed_form"), NEW, output=1)
    best = float(posterior.mean()[0])
    improvement = np.maximum(posterior.sample(20_000, seed=5)[:, 0] - best, 0.0)
    stddev = float(posterior.stddev()[0])
    conftest.check_mean_close(improvement[:, None], [stddev / np.sqrt(2.0 * np.pi)])


def test_sets_of_points(fitted):
    model = fitted("TAGI")
    sets = _RNG.uniform(size=(3, 2, 4))
    sets[2, 1] = sets[2, 0]
    posterior = FunctionPosterior(model, sets)
    assert posterior.mean().shape == (3, 2) and posterior.sample(6).shape == (6, 3, 2)
    given = {"predictive_distribution": posterior, "observations": Y[:, 0]}
    together = acquisition.ParallelExpectedImprovement(**given)()
    assert together.shape == (3,)
    alone = acquisition.ParallelExpectedImprovement(**given)(index_points=sets[1])
    assert_allclose(together[1], alone, rtol=1e-5)
    one = acquisition.ParallelExpectedImprovement(**given)(index_points=sets[2, :1])
    assert_allclose(together[2], one, rtol=1e-5)  # the same point twice tells no more


@pytest.mark.usefixtures("float64")
def test_gradients_are_those_of_the_acquisition():
    model = batteries.closed_form_model()
    batteries.fit(model, X, Y, epochs=2)
    posterior = FunctionPosterior(model, NEW)
    given = {"predictive_distribution": posterior, "observations": Y[:, 0]}
    for kind in ("GaussianProcessExpectedImprovement", "ParallelUpperConfidenceBound"):
        function = getattr(acquisition, kind)(**given)

        def total(points, function=function):
            return tf.reduce_sum(function(index_points=points))

        _, (gradient,) = tfp.math.value_and_gradient(total, [posterior.index_points])
        step = 1e-6 * np.eye(NEW.size)[9].reshape(NEW.shape)
        slope = (total(NEW + step) - total(NEW - step)) / 2e-6
        assert_allclose(gradient.numpy().flat[9], slope, rtol=1e-4, atol=1e-7)
        assert np.any(gradient.numpy() != 0.0)


def test_link():
    inputs = keras.Input((4,))
    network = inputs, fns.layers.VariationalDense(1)(inputs)
    model = fns.fbnn.VariationalModel(network, likelihood=fns.likelihoods.Poisson(), seed=0)
    model.fit(X, np.round(Y[:, 1]), epochs=2, verbose=0)
    posterior = FunctionPosterior(model, NEW)
    assert_allclose(posterior.mean(), model.predict(NEW)["mean"][:, 0], rtol=1e-5)
    draws = np.exp(model.sample_functions(NEW, 5, 1)[..., 0])
    assert_allclose(posterior.sample(5, seed=1), draws, rtol=1e-5)


def test_bad_arguments(fitted):
    model = fitted("TAGI")
    with pytest.raises(TypeError, match="`model` must be"):
        FunctionPosterior(keras.Sequential(), NEW)
    with pytest.raises(ValueError, match="not fitted"):
        FunctionPosterior(batteries.tagi_model(), NEW)
    with pytest.raises(ValueError, match=r"`index_points` must have shape \(..., N, 4\)"):
        FunctionPosterior(model, NEW[:, :3])
    with pytest.raises(ValueError, match="`index_points` must be finite"):
        FunctionPosterior(model, np.full((1, 4), np.nan))
    with pytest.raises(ValueError, match="`output` must be less than the 2 outputs"):
        FunctionPosterior(model, NEW, output=2)
    with pytest.raises(ValueError, match=r"`index_points` must have shape"):
        FunctionPosterior(model, NEW).mean(NEW[0])
    classes = batteries.tagi_model(num_outputs=3, likelihood=fns.likelihoods.Remax())
    classes.fit(X, np.arange(40) % 3, verbose=0)
    with pytest.raises(ValueError, match="`model` must be a regression with one input"):
        FunctionPosterior(classes, NEW)


def test_the_model_is_not_changed(fitted):
    model = fitted("SIP")
    before = [weight.numpy() for weight in model.weights]
    FunctionPosterior(model, NEW).sample(3)
    for old, weight in zip(before, model.weights, strict=True):
        assert_array_equal(old, weight.numpy())
