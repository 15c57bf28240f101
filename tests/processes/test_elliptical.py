"""Gaussian and Student-t processes: densities, draws, fits, kernels as weights."""

import logging

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from numpy.testing import assert_allclose
from scipy import stats

from tfp_fnspace import kernels
from tfp_fnspace.kernels import neural_kernel_network as nkn
from tfp_fnspace.kernels.description import describe
from tfp_fnspace.processes import (
    GaussianProcess,
    KernelWeights,
    StudentTProcess,
    ard_squared_exponential,
)
from tfp_fnspace.processes.marginal_likelihood import Maximiser, maximise

tfpk = tfp.math.psd_kernels
FALSE_FAIL = 1e-6
X = np.random.default_rng(0).uniform(-1.0, 1.0, (5, 2))
OPTIONS = {"mean": 0.4, "jitter": 0.05, "dtype": "float64"}


@keras.saving.register_keras_serializable(package="test_elliptical")
def first_column(x, *_):
    """Returns the column that a kernel uses."""
    return x[..., :1]


#: Name -> kernel.
KERNELS = {
    "ard": lambda: ard_squared_exponential(2, 1.3, [0.4, 0.9]),
    "sum": lambda: (
        tfpk.ExponentiatedQuadratic(1.0, 0.5) + tfpk.Linear(0.1, 0.7) * tfpk.MaternThreeHalves(2.0)
    ),
    "periodic": lambda: (
        tfpk.ExpSinSquared(1.0, 0.8, 2.0) + tfpk.RationalQuadratic(0.5, 1.0, None, 2.0)
    ),
    "arc_cosine": lambda: kernels.ArcCosineKernel(1, 0.8),
    "transformed": lambda: tfpk.FeatureTransformed(
        tfpk.ExponentiatedQuadratic(1.3, 0.4), first_column
    ),
    "network": lambda: kernels.NeuralKernelNetwork(
        [tfpk.ExponentiatedQuadratic(1.0, 0.5), tfpk.Linear(0.1)], *nkn.initial_weights(2, (4,))
    ),
    "by_output": lambda: tfpk.ExponentiatedQuadratic([1.0, 2.0], [0.5, 0.7]),
}
PROCESSES = {
    "gaussian": lambda kernel, **options: GaussianProcess(kernel, **OPTIONS, **options),
    "student": lambda kernel, **options: StudentTProcess(kernel, df=4.5, **OPTIONS, **options),
}


def make(process="gaussian", kernel="ard", num_outputs=2):
    return PROCESSES[process](KERNELS[kernel](), num_outputs=num_outputs)


def scipy_distributions(process, made, gamma):
    mean, covariance = (v.numpy() for v in made.moments(X, gamma))
    for d in range(made.num_outputs):
        if process == "gaussian":
            yield stats.multivariate_normal(mean[:, d], covariance[d])
        else:
            yield stats.multivariate_t(mean[:, d], covariance[d] * 2.5 / 4.5, df=4.5)


@pytest.mark.parametrize("process", PROCESSES)
@pytest.mark.parametrize("kernel", ["ard", "by_output", "transformed"])
@pytest.mark.parametrize("gamma", [0.0, 0.3])
def test_log_prob_is_scipys_and_score_its_gradient(process, kernel, gamma):
    made = make(process, kernel)
    f = np.random.default_rng(1).normal(size=(3, 4, 5, 2))
    distributions = list(scipy_distributions(process, made, gamma))
    expected = sum(distribution.logpdf(f[..., d]) for d, distribution in enumerate(distributions))
    assert_allclose(made.log_prob(f, X, gamma), expected, rtol=1e-9)
    assert_allclose(made.log_prob(f[0, 0], X, gamma), expected[0, 0], rtol=1e-9)
    score = made.score(f, X, gamma)
    assert score.shape == f.shape
    for i, d in np.ndindex(5, 2):
        step = np.zeros((5, 2))
        step[i, d] = 1e-5
        up, down = (made.log_prob(f + s * step, X, gamma) for s in (1, -1))
        assert_allclose(score[..., i, d], (up - down) / 2e-5, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("process", PROCESSES)
@pytest.mark.parametrize("kernel", ["ard", "by_output"])
def test_draws_have_the_moments(process, kernel, assert_mean_close):
    made = make(process, kernel)
    f = made.sample(X, 100_000, seed=3).numpy()
    mean, covariance = made.moments(X)
    assert_mean_close(f, mean, FALSE_FAIL)
    # Squares of Student-t draws with df = 4.5 have slow tails: the draws' signs tell as much.
    if process == "gaussian":
        products = (f - mean)[:, :, None, :] * (f - mean)[:, None, :, :]
        assert_mean_close(products, np.transpose(covariance, [1, 2, 0]), FALSE_FAIL)
    for d, distribution in enumerate(scipy_distributions(process, made, 0.0)):
        scale = np.sqrt(
            distribution.cov[0, 0] if process == "gaussian" else distribution.shape[0, 0]
        )
        marginal = stats.norm if process == "gaussian" else stats.t(4.5)
        z = (f[:, 0, d] - np.asarray(mean)[0, d]) / scale
        assert stats.kstest(z, marginal.cdf).pvalue > FALSE_FAIL


def test_student_outputs_are_independent_and_points_are_not():
    f = make("student").sample(X, 50_000, seed=4).numpy() - 0.4
    size = np.abs(f)
    across = stats.spearmanr(size[:, 0, 0], size[:, 0, 1])
    assert across.pvalue > FALSE_FAIL
    assert stats.spearmanr(size[:, 0, 0], size[:, 4, 0]).pvalue < FALSE_FAIL


@pytest.mark.parametrize("process", PROCESSES)
def test_a_draw_is_one_function(process):
    x = np.array([[0.3, 0.1], [0.3, 0.1], [-0.5, 0.2]])
    made = PROCESSES[process](KERNELS["ard"]())
    options = {**made.get_config(), "jitter": 0.0}
    f = type(made).from_config(options).sample(x, 20, seed=0).numpy()
    assert_allclose(f[:, 0], f[:, 1], atol=1e-4)
    assert np.abs(f[:, 0] - f[:, 2]).min() > 1e-4
    assert_allclose(f, type(made).from_config(options).sample(x, 20, seed=0))


@pytest.mark.parametrize("kernel", KERNELS)
def test_kernels_become_weights_and_round_trip(kernel):
    given = KERNELS[kernel]()
    layer = KernelWeights(given)
    x = X.astype("float32")
    assert_allclose(layer.kernel().matrix(x, x), given.matrix(x, x), rtol=1e-5, atol=1e-5)
    config = keras.saving.serialize_keras_object(layer)
    copy = keras.saving.deserialize_keras_object(config)
    layer.set_weights([w + 0.1 for w in layer.get_weights()])
    copy.set_weights(layer.get_weights())
    assert_allclose(copy.kernel().matrix(x, x), layer.kernel().matrix(x, x))
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(tf.sin(layer.kernel().matrix(x, x + 0.3)))
    gradients = tape.gradient(total, layer.trainable_variables)
    assert gradients
    assert all(g is not None and np.all(np.isfinite(g)) for g in gradients)


def test_fixed_parameters_are_not_trained():
    kernel = KERNELS["periodic"]()
    layer = KernelWeights(kernel, fixed=["period", "kernels/1/amplitude"])
    assert {w.path.rsplit("/")[-1] for w in layer.non_trainable_variables} == {
        "kernels_0_period",
        "kernels_1_amplitude",
    }
    with pytest.raises(ValueError, match="`fixed` must name"):
        KernelWeights(kernel, fixed=["perod"])


def test_kernels_that_cannot_be_saved_are_refused():
    class Mine(tfpk.ExponentiatedQuadratic):
        pass

    with pytest.raises(ValueError, match="A kernel's class must be"):
        describe(Mine(1.0))
    with pytest.raises(TypeError, match="A kernel must be"):
        describe("rbf")
    with pytest.raises(ValueError, match="batch shape"):
        GaussianProcess(KERNELS["by_output"](), num_outputs=3)


# Fits --------------------------------------------------------------------------------------------


def data(size=25, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2.0, 2.0, (size, 2))
    return x, np.sin(2.0 * x[:, 0]) + 0.3 * x[:, 1] + 0.1 * rng.normal(size=size)


@pytest.mark.slow
def test_fit_is_scikit_learns():
    gp = pytest.importorskip("sklearn.gaussian_process")
    x, y = data()
    k = gp.kernels
    theirs = gp.GaussianProcessRegressor(
        k.ConstantKernel(1.0) * k.RBF([1.0, 1.0], (1e-3, 1e3)) + k.WhiteKernel(0.01), alpha=0.0
    ).fit(x, y)
    ours = GaussianProcess(ard_squared_exponential(2), jitter=0.0, dtype="float64")
    result = ours.fit(x, y)
    assert result.converged
    assert_allclose(
        result.log_marginal_likelihood, theirs.log_marginal_likelihood_value_, atol=1e-4
    )
    kernel = ours.kernel()
    assert_allclose(kernel.scale_diag, theirs.kernel_.k1.k2.length_scale, rtol=2e-3)
    assert_allclose(kernel.kernel.amplitude**2, theirs.kernel_.k1.k1.constant_value, rtol=2e-3)
    assert_allclose(ours.noise_scale**2, theirs.kernel_.k2.noise_level, rtol=2e-3)


@pytest.mark.slow
def test_fit_recovers_what_the_data_came_from():
    # There are 200 points: the intervals are about 4 standard errors of such fits.
    true = GaussianProcess(tfpk.ExponentiatedQuadratic(1.5, 0.3), dtype="float64")
    x = np.linspace(0.0, 10.0, 200)[:, np.newaxis]
    y = true.sample(x, 1, seed=5)[0] + 0.2 * np.random.default_rng(5).normal(size=(200, 1))
    fitted = GaussianProcess(tfpk.ExponentiatedQuadratic(1.0, 1.0))
    assert fitted.fit(x, y).converged
    assert 1.0 < float(fitted.kernel().amplitude) < 2.2
    assert 0.24 < float(fitted.kernel().length_scale) < 0.36
    assert 0.15 < float(fitted.noise_scale) < 0.25


def test_collapsed_bound_is_below_and_tight_with_all_points():
    x, y = data(30)
    made = GaussianProcess(ard_squared_exponential(2), num_outputs=1, dtype="float64", jitter=1e-9)
    y = tf.constant(y[:, np.newaxis])
    exact = float(made.log_prob(y, x, made.noise_scale))
    bounds = [float(made._collapsed_bound(y, tf.constant(x), tf.constant(x[:m]))) for m in (5, 30)]
    assert bounds[0] < bounds[1] <= exact + 1e-6
    assert_allclose(bounds[1], exact, rtol=1e-5)


@pytest.mark.slow
def test_fit_with_inducing_points_is_near_the_exact_fit():
    x, y = data(60)
    exact, sparse = (GaussianProcess(ard_squared_exponential(2)) for _ in range(2))
    best, bound = exact.fit(x, y), sparse.fit(x, y, num_inducing=20)
    assert bound.log_marginal_likelihood <= best.log_marginal_likelihood + 1e-3
    assert bound.log_marginal_likelihood > best.log_marginal_likelihood - 2.0
    assert_allclose(sparse.noise_scale, exact.noise_scale, rtol=0.1)


@pytest.mark.slow
def test_student_fit_is_better_than_its_start():
    x, y = data()
    made = StudentTProcess(ard_squared_exponential(2), learn_df=True, learn_mean=True)
    start = float(made.log_prob(y[:, np.newaxis], x, made.noise_scale))
    assert made.fit(x, y).log_marginal_likelihood > start + 1.0
    with pytest.raises(NotImplementedError, match="without inducing points"):
        made.fit(x, y, num_inducing=5)


@pytest.mark.slow
def test_many_fits_in_one_program_do_not_warn_of_retracing():
    messages = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())
    tf.get_logger().addHandler(handler)
    variable = keras.Variable(0.0, dtype="float64")
    for start in range(5):  # TensorFlow warns at the fifth
        variable.assign(start)
        assert maximise(lambda: -tf.square(variable - 2.0), [variable]).converged
        assert_allclose(variable, 2.0, atol=1e-6)
    tf.get_logger().removeHandler(handler)
    assert not messages


@pytest.mark.slow
def test_several_runs_see_what_changed_between_them():
    """The maximum of a concave quadratic is where another variable says."""
    place, variable = (keras.Variable([0.0, 0.0], dtype="float64") for _ in range(2))
    maximiser = Maximiser(lambda: -tf.reduce_sum(tf.square(variable - place)), [variable])
    for values in ([1.0, 2.0], [-3.0, 0.5]):
        place.assign(values)
        fit = maximiser.run()
        assert_allclose(variable, values, atol=1e-6)
        assert fit.converged and abs(fit.log_marginal_likelihood) < 1e-10


def test_functions_in_kernels_are_found_by_name():
    kernel = tfpk.FeatureTransformed(tfpk.ExponentiatedQuadratic(), lambda x, *_: x[..., :1])
    with pytest.raises(ValueError, match="must be found by their names.*transformation_fn=<"):
        GaussianProcess(kernel)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ((np.zeros((3, 2)), np.zeros(4)), "`x` must have the shape"),
        ((np.full((3, 2), np.nan), np.zeros(3)), "`x` must be finite"),
        ((np.zeros((3, 2)), np.zeros(3), 2), "`num_inducing` must be at most"),
    ],
)
def test_bad_data(arguments, match):
    with pytest.raises(ValueError, match=match):
        GaussianProcess(ard_squared_exponential(2)).fit(*arguments)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"mean": np.nan}, "`mean` must be a finite number"),
        ({"noise_scale": 0.0}, "`noise_scale` must be"),
        ({"jitter": -1.0}, "`jitter` must be"),
        ({"num_outputs": 0}, "`num_outputs` must be"),
        ({"df": 2.0}, "`df` must be"),
    ],
)
def test_bad_options(options, match):
    with pytest.raises(ValueError, match=match):
        StudentTProcess(ard_squared_exponential(2), **options)


def test_bad_values():
    made = make()
    with pytest.raises(ValueError, match="Values must have"):
        made.log_prob(np.zeros((5, 1)), X)
    with pytest.raises(ValueError, match="Points must have"):
        made.sample(np.zeros(5), 1, seed=0)
    with pytest.raises(ValueError, match="`num_samples` must be"):
        made.sample(X, 0, seed=0)
