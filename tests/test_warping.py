"""Warped targets: the warp that the rows call for, and the model of the warped targets."""

import keras
import numpy as np
import pytest
import scipy.stats

from tfp_fnspace import recipes, stacking, trials, warping
from tfp_fnspace.distributions import quantile
from tfp_fnspace.methods.diwp import recipe as diwp
from tfp_fnspace.methods.tagi import TAGIModel
from tfp_fnspace.methods.tagi import recipe as tagi
from tfp_fnspace.metrics import crps

GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(60, 2))
Z = np.stack([np.sin(X[:, 0]), X[:, 1]], axis=1) + 0.3 * GENERATOR.normal(size=(60, 2))
SHIFT, SCALE = np.array([10.0, -3.0]), np.array([2.0, 50.0])
MOST = np.array([100.0, 100.0])  # no prediction is bounded
Y = SHIFT + SCALE * np.sinh(Z)


def fitted(recipe, kind=None):
    table = trials.Table(X, Z)
    settings = next(s for s in recipe.candidates(table) if s.get("noise") == kind)
    model = recipe.build(settings, table, seed=0)
    model.fit(X, Z, epochs=5, batch_size=settings["batch_size"], verbose=0)
    return model


@pytest.fixture(scope="module", params=["tagi", "diwp"])
def model(request):
    member = fitted(tagi, "constant") if request.param == "tagi" else fitted(diwp)
    return warping.WarpedModel(member, SHIFT, SCALE, MOST)


@pytest.mark.slow
def test_distribution_is_that_of_the_warped_gaussian(model):
    mean, stddev = (model.member.predict(X)[key].astype(float) for key in ("mean", "stddev"))
    expected = scipy.stats.johnsonsu(-mean / stddev, 1.0 / stddev, SHIFT, SCALE)
    distribution = model.predict_distribution(X)
    np.testing.assert_allclose(
        distribution.log_prob(Y), expected.logpdf(Y).sum(axis=1), rtol=1e-4, atol=1e-4
    )
    found = model.predict(X)
    np.testing.assert_allclose(found["mean"], expected.mean(), rtol=1e-4)
    np.testing.assert_allclose(found["stddev"], expected.std(), rtol=1e-4)
    np.testing.assert_allclose(distribution.mean(), found["mean"], rtol=1e-4)
    parts = np.square(found["epistemic_stddev"]) + np.square(found["aleatoric_stddev"])
    np.testing.assert_allclose(np.square(found["stddev"]), parts, rtol=1e-9)


def test_variance_of_functions_is_that_of_the_mean_over_noise(model):
    moments = {key: value.astype(float) for key, value in model.member.predict(X[:3]).items()}
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    weights /= weights.sum()
    growth = np.exp(0.5 * np.square(moments["aleatoric_stddev"]))
    values = moments["mean"] + moments["epistemic_stddev"] * nodes[:, np.newaxis, np.newaxis]
    values = SHIFT + SCALE * growth * np.sinh(values)
    mean = np.tensordot(weights, values, 1)
    expected = np.sqrt(np.tensordot(weights, np.square(values - mean), 1))
    found = model.predict(X[:3])["epistemic_stddev"]
    np.testing.assert_allclose(found, expected, rtol=2e-3)


@pytest.mark.slow
def test_functions_have_the_moments_of_predict(model):
    if isinstance(model.member, TAGIModel):
        pytest.skip("its functions, of weights that are drawn, are not Gaussian at a point")
    functions = model.sample_functions(X[:5], 4000, seed=1)
    found = model.predict(X[:5])
    error = found["epistemic_stddev"] / np.sqrt(4000)
    # The bound is five standard errors for ten numbers: false once in 100,000 runs of other seeds.
    assert np.all(np.abs(functions.mean(axis=0) - found["mean"]) < 5.0 * error + 1e-6)


@pytest.mark.slow
def test_files_and_scores(model, tmp_path):
    path = tmp_path / "model.keras"
    model.save(path)
    again = keras.models.load_model(path)
    np.testing.assert_allclose(again.predict(X)["mean"], model.predict(X)["mean"], rtol=1e-6)
    scores = model.evaluate(X, Y, verbose=0, return_dict=True)
    expected = -np.mean(model.predict_distribution(X).log_prob(Y))
    assert scores["nll"] == pytest.approx(expected, rel=1e-5)
    with pytest.raises(ValueError, match="cannot be trained itself"):
        model.fit(X, Y)


@pytest.mark.slow
def test_a_mixture_is_warped_as_its_members_are(model):
    other = model.member
    mixed = model.with_member(stacking.StackedModel([model.member, other], [0.4, 0.6]))
    expected = model.predict_distribution(X)
    found = mixed.predict_distribution(X)
    np.testing.assert_allclose(found.log_prob(Y), expected.log_prob(Y), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(crps(Y, found), crps(Y, expected), rtol=1e-3)
    np.testing.assert_allclose(quantile(found, 0.9), quantile(expected, 0.9), rtol=1e-4)


def test_large_deviations_are_bounded_and_the_mean_stays_near(model):
    """Unbounded, the mean of y would grow as `exp(stddev^2 / 2)`."""
    found = model.member.predict(X)
    most = np.median(found["stddev"], axis=0).astype(float)
    assert np.mean(found["stddev"] > most) > 0.2
    bounded = warping.WarpedModel(model.member, SHIFT, SCALE, most)
    mean, stddev = found["mean"].astype(float), np.minimum(found["stddev"], most)
    expected = scipy.stats.johnsonsu(-mean / stddev, 1.0 / stddev, SHIFT, SCALE)
    predicted = bounded.predict(X)
    np.testing.assert_allclose(predicted["mean"], expected.mean(), rtol=1e-4)
    np.testing.assert_allclose(predicted["stddev"], expected.std(), rtol=1e-4)
    if not isinstance(model.member, TAGIModel):  # whose function samples are not Gaussian
        functions = bounded.sample_functions(X, 2000, seed=1)
        error = predicted["epistemic_stddev"] / np.sqrt(2000)
        # Six standard errors of 120 means: false once in four million runs of other seeds.
        assert np.all(np.abs(functions.mean(axis=0) - predicted["mean"]) < 6.0 * error + 1e-6)


def test_deviations_are_bounded_by_that_of_the_warped_targets():
    generator = np.random.default_rng(4)
    x = generator.normal(size=(200, 1))
    y = np.sinh(4.0 * x + 0.1 * generator.normal(size=(200, 1)))
    warp = warping.chosen_warp(x, y).warp
    np.testing.assert_allclose(warp.most_stddev, np.std(warp(y), axis=0), rtol=1e-12)
    assert warp.most_stddev[0] > 1.0


def test_numbers_must_match_the_columns(model):
    with pytest.raises(ValueError, match=r"`most_stddev` must.*Received: shift=\[1.0\], scale"):
        warping.WarpedModel(model.member, [1.0], [1.0], [1.0])


def test_jacobian_is_the_derivative():
    warp = warping.Warp(SHIFT, SCALE, MOST)
    step = 1e-6
    slopes = (warp(Y + step) - warp(Y - step)) / (2.0 * step)
    np.testing.assert_allclose(warp.log_jacobian(Y), np.log(slopes).sum(axis=1), rtol=1e-6)


def test_density_of_others_is_that_of_a_fit_without_the_row():
    """The closed form equals a ridge regression for each row that is left out."""
    x = (X - X.mean(axis=0)) / X.std(axis=0)
    z = (Z[:, 0] - Z[:, 0].mean()) / Z[:, 0].std()
    u, squares = warping._left_singular(x)
    found = warping._density_of_others(Z[:, 0], np.zeros(60), u, squares)
    least, densities = np.inf, None
    for penalty in warping._PENALTIES:
        residuals = np.empty(60)
        for i in range(60):
            rows = np.arange(60) != i
            design = np.concatenate([np.ones((60, 1)), x], axis=1)
            ridge = np.diag([0.0, penalty, penalty])
            gram = design[rows].T @ design[rows] + ridge
            weights = np.linalg.solve(gram, design[rows].T @ z[rows])
            residuals[i] = z[i] - design[i] @ weights
        if np.mean(residuals**2) < least:
            least = np.mean(residuals**2)
            densities = scipy.stats.norm(0.0, np.sqrt(least)).logpdf(residuals)
    np.testing.assert_allclose(found, densities - np.log(Z[:, 0].std()), rtol=1e-9)


def test_skewed_targets_are_warped_and_gaussian_ones_are_not():
    generator = np.random.default_rng(3)
    x = generator.normal(size=(300, 2))
    z = x[:, :1] + 0.5 * generator.normal(size=(300, 1))
    assert warping.chosen_warp(x, z).warp is None
    y = np.concatenate([np.exp(z), z], axis=1)
    warp = warping.chosen_warp(x, y).warp
    warped = warp(y)
    assert warp.most_stddev[1] == 1.0
    assert abs(scipy.stats.skew(warped[:, 0])) < 0.5 < scipy.stats.skew(np.exp(z[:, 0]))
    assert np.corrcoef(warped[:, 1], z[:, 0])[0, 1] > 1.0 - 1e-9  # as good as a straight line


def test_constant_targets_are_left_alone_and_few_values_stay_finite():
    x = np.random.default_rng(0).normal(size=(20, 2))
    assert warping.chosen_warp(x, np.full((20, 1), 3.0)).warp is None
    choice = warping.chosen_warp(x, np.eye(20)[:, :1])
    assert np.isfinite(choice.log_density)
    assert choice.warp is None or np.all(np.isfinite(choice.warp(np.eye(20)[:, :1])))


def test_a_warp_is_no_finer_than_the_rounding_of_counts():
    generator = np.random.default_rng(5)
    x = generator.normal(size=(400, 1))
    y = generator.poisson(np.exp(x - 0.5)).astype(float)
    warp = warping.chosen_warp(x, y).warp
    assert warp.scale[0] >= 12.0**-0.5
    assert warp.shift[0] in (-0.5, *np.quantile(y, [0.05, 0.5, 0.95, 1.0]))


@pytest.mark.slow
def test_recipe_scores_are_densities_of_the_targets():
    table, warp = recipes.warped_table(trials.Table(X, np.exp(3.0 * Z)), seed=0)
    assert warp is not None
    member = fitted(diwp)
    densities = trials.Scored(member).log_density(table)
    model = recipes.unwarped(member, warp)
    expected = model.predict_distribution(X).log_prob(np.exp(3.0 * Z))
    np.testing.assert_allclose(densities, expected, rtol=1e-4, atol=1e-3)
