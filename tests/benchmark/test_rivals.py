"""The alternatives that a user has: each fits and predicts a distribution that scores accept."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import integrate, stats
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from tfp_fnspace import metrics
from tfp_fnspace.benchmark import estimators
from tfp_fnspace.benchmark.rivals import base, networks, sparse_gaussian_process, variational
from tfp_fnspace.benchmark.rivals.quantile_function import PiecewiseLinearCDF

RIVALS = [name for name, place in estimators.ESTIMATORS.items() if ".rivals." in place]
RNG = np.random.default_rng(0)
X = np.column_stack([RNG.uniform(-2.0, 2.0, 60), RNG.normal(size=60), np.ones(60)])
Y = 50.0 + 10.0 * (np.sin(2.0 * X[:, 0]) + 0.2 * RNG.normal(size=60))


@pytest.fixture(autouse=True)
def few_steps(monkeypatch):
    monkeypatch.setattr(networks, "_MOST_STEPS", 100)
    monkeypatch.setattr(variational, "_STEPS", 100)
    monkeypatch.setattr(sparse_gaussian_process, "_STEPS", 20)


@pytest.mark.filterwarnings("ignore:After 100 steps the model explains")
@pytest.mark.parametrize("name", RIVALS)
@pytest.mark.slow
def test_a_rival_predicts_a_density(name):
    model = estimators.make(name, random_state=1)
    assert model.fit(X, Y[:, np.newaxis]) is model
    rows = X[:3]
    distribution = model.predict_distribution(rows)
    assert (distribution.batch_shape, distribution.event_shape) == ((3,), (1,))
    grid = np.linspace(-150.0, 250.0, 40_001)
    points = tf.cast(np.repeat(grid, 3).reshape(-1, 3, 1), distribution.dtype)
    density = np.exp(distribution.log_prob(points))
    np.testing.assert_allclose(integrate.trapezoid(density, grid, axis=0), 1.0, rtol=0.01)
    mean = integrate.trapezoid(density * grid[:, np.newaxis], grid, axis=0)
    np.testing.assert_allclose(np.ravel(distribution.mean()), mean, rtol=0.01)
    # The bound is the score of a constant that predicts the mean; any useful rival beats it.
    crps = float(metrics.crps(Y, model.predict_distribution(X)))
    assert 0.0 < crps < 8.0
    assert float(metrics.interval_width(Y[:3], distribution)) > 0.0


@pytest.mark.parametrize("name", ["ngboost", "deep_ensemble", "bayes_by_backprop"])
@pytest.mark.filterwarnings("ignore:After 100 steps the model explains")
@pytest.mark.slow
def test_the_same_seed_gives_the_same_rival(name):
    x = np.column_stack([X[:, 0], X[:, 0], X[:, 1]])  # chance picks one of the first two
    found = [estimators.make(name, 3).fit(x, Y).predict_distribution(x[:2]) for _ in range(2)]
    np.testing.assert_array_equal(*(d.log_prob([[50.0]] * 2) for d in found))


def test_an_exact_gp_declines_many_rows():
    model = estimators.make("exact_gp", random_state=0)
    with pytest.raises(base.Declined, match="at most 2000 rows. Received: 2001 rows"):
        model.fit(np.zeros((2001, 1)), np.zeros(2001))


def test_linear_is_the_regression_line_with_its_noise():
    x = np.linspace(0.0, 10.0, 400)
    y = 3.0 - 2.0 * x + 0.5 * RNG.normal(size=400)
    model = estimators.make("linear", random_state=0).fit(x[:, np.newaxis], y)
    found = model.predict_distribution([[20.0]])
    line = stats.linregress(x, y)
    np.testing.assert_allclose(found.mean()[0, 0], line.intercept + 20.0 * line.slope, rtol=1e-3)
    noise = np.std(y - line.intercept - line.slope * x)
    np.testing.assert_allclose(found.stddev()[0, 0], noise, rtol=0.05)


@pytest.mark.parametrize("values", [RNG.normal(size=400), np.exp(RNG.normal(size=400))])
def test_climatology_is_the_better_of_gaussian_and_kernels(values):
    model = estimators.make("climatology", random_state=0).fit(np.zeros((400, 1)), values)
    others = np.exp(RNG.normal(size=1000)) if values.min() > 0.0 else RNG.normal(size=1000)
    nll = float(metrics.nll(others, model.predict_distribution(np.zeros((1000, 1)))))
    gaussian = -np.mean(stats.norm.logpdf(others, values.mean(), values.std()))
    kernels = -np.mean(stats.gaussian_kde(values).logpdf(others))
    assert nll < min(gaussian, kernels) + 0.02


def test_kernels_are_wide_where_values_are_rare():
    centres, widths = base.kernel_density(np.array([*np.linspace(-1.0, 1.0, 41), 9.0]))
    assert centres[-1] == 9.0 and widths[-1] > 2.0 * widths[:-1].max()
    assert len(base.kernel_density(RNG.normal(size=5000))[0]) == 200


def test_the_bound_with_all_points_is_the_marginal_likelihood():
    x, y = X[:, :2], Y - Y.mean()
    kernel = ConstantKernel(30.0) * RBF([0.7, 1.3]) + WhiteKernel(4.0)
    exact = GaussianProcessRegressor(kernel, optimizer=None, alpha=0.0).fit(x, y)
    x, y, lengths = (tf.constant(values) for values in (x, y[:, np.newaxis], [0.7, 1.3]))
    lengths = tf.cast(lengths, tf.float64)
    thirty, four = (tf.constant(value, tf.float64) for value in (30.0, 4.0))
    found = sparse_gaussian_process.bound(x, y, thirty, four, lengths, x)
    np.testing.assert_allclose(found, exact.log_marginal_likelihood_value_, rtol=1e-4)
    fewer = sparse_gaussian_process.bound(x, y, thirty, four, lengths, x[:10])
    assert float(fewer) < float(found) - 1.0


# A distribution of quantiles -------------------------------------------------------------------


@pytest.fixture(scope="module")
def quantiles():
    """Makes two distributions: their levels, their quantiles, and the TFP distribution."""
    levels, values = (0.1, 0.3, 0.8, 0.95), np.array([[-1.0, 0.0, 0.5, 3.0], [1.0, 2.0, 4.0, 4.5]])
    return levels, values, PiecewiseLinearCDF(levels, values)


def test_quantiles_are_those_given(quantiles):
    levels, values, distribution = quantiles
    for level, expected in zip(levels, values.T, strict=True):
        np.testing.assert_allclose(distribution.quantile(level), expected)
        np.testing.assert_allclose(distribution.cdf(expected), level)
    middle = distribution.cdf(0.5 * (values[:, 1] + values[:, 2]))
    np.testing.assert_allclose(middle, 0.55)
    for level in (0.01, 0.2, 0.999):
        np.testing.assert_allclose(distribution.cdf(distribution.quantile(level)), level)


def test_the_tail_goes_through_the_outermost_and_the_fourth_quantile(quantiles):
    levels, values, distribution = quantiles
    step = values[:, 3] - values[:, 0]  # from 0.95 to 0.1 or 0.9 to 0.05; one more step
    np.testing.assert_allclose(distribution.cdf(values[:, 0] - step), 0.1 * 0.1 / 0.95)
    further = distribution.survival_function(values[:, 3] + step)
    np.testing.assert_allclose(further, 0.05 * 0.05 / 0.9)


@pytest.mark.slow
def test_moments_and_score_are_integrals_of_the_density(quantiles):
    distribution = quantiles[2]

    def integral(function, row):
        """Integrates over the pieces, on each of which the density is smooth."""
        edges = [-100.0, *quantiles[1][row], 150.0]
        parts = [
            integrate.quad(function, a + 1e-12, b - 1e-12, epsabs=1e-10, limit=200)[0]
            for a, b in zip(edges[:-1], edges[1:], strict=True)
        ]
        return sum(parts)

    def density(y, row):
        return float(distribution.prob(y)[row])

    for row in (0, 1):
        assert integral(lambda y, r=row: density(y, r), row) == pytest.approx(1.0, abs=1e-6)
        mean = integral(lambda y, r=row: y * density(y, r), row)
        second = integral(lambda y, r=row: y * y * density(y, r), row)
        assert float(distribution.mean()[row]) == pytest.approx(mean, abs=1e-5)
        assert float(distribution.variance()[row]) == pytest.approx(second - mean**2, abs=1e-4)
        y = quantiles[1][row, 1]
        crps = integral(lambda t, r=row, y=y: (float(distribution.cdf(t)[r]) - (t >= y)) ** 2, row)
        # The score's quadrature over levels is for smooth quantiles; these have kinks.
        one = PiecewiseLinearCDF(quantiles[0], quantiles[1][row : row + 1])
        assert float(metrics.crps([y], one)) == pytest.approx(crps, rel=5e-3)


def test_samples_have_the_quantiles(quantiles):
    levels, values, distribution = quantiles
    draws = distribution.sample(20_000, seed=1).numpy()
    for row in (0, 1):
        found = [np.mean(draws[:, row] <= value) for value in values[row]]
        # The tolerance is five standard errors: a false failure in a million.
        np.testing.assert_allclose(found, levels, atol=5.0 * 0.5 / np.sqrt(20_000))
