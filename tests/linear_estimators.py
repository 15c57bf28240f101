"""A recipe in closed form: linear models, which test quickly what estimators do with any recipe."""

import types

import numpy as np
import toys

import tfp_fnspace as fns
from tfp_fnspace.sklearn import TAGIClassifier, TAGIRegressor

#: Variance of the prior weights, in the user's units: so large that the prior has no effect.
_WIDE = 1e6


def fit_table(x, y, num_classes=None, sample_weight=None, seed=0, report=None, **options):
    """Fits least squares to targets or one-hot labels, and returns it as a fitted model."""
    targets = y if num_classes is None else 8.0 * np.eye(num_classes)[y] - 4.0
    weights = np.ones(len(x)) if sample_weight is None else sample_weight
    rows = np.hstack([np.ones((len(x), 1)), x])
    inner = (rows.T * weights) @ rows + np.eye(rows.shape[1]) / _WIDE
    coefficients = np.linalg.solve(inner, (rows.T * weights) @ targets)  # [P, D]
    residuals = targets - rows @ coefficients
    scale = np.sqrt(np.average(residuals**2, axis=0, weights=weights)) + 1e-3
    if num_classes is None:
        likelihood = fns.likelihoods.Gaussian(scale)
    else:
        likelihood = fns.likelihoods.Categorical()
    model = toys.LinearModel(
        x.shape[1], targets.shape[1], likelihood, standardize=False, seed=seed, dtype="float64"
    )
    model.compile(run_eagerly=True)
    model.adapt(x, y)
    model.mean.assign(coefficients.T)
    root = np.linalg.cholesky(np.linalg.inv(inner))
    factors = scale[:, np.newaxis, np.newaxis] * root  # [D, P, P]
    diagonals = np.log(np.diagonal(factors, axis1=1, axis2=2))
    model.raw.assign(np.tril(factors, -1) + diagonals[:, np.newaxis] * np.eye(rows.shape[1]))
    for fraction, text in ((0.5, "half"), (1.0, "done")):
        if report is not None:
            report(fraction, text)
    settings = {"seed": seed, "batch_size": 20, **options}
    return types.SimpleNamespace(model=model, settings=settings, score=0.0)


class LinearRegressor(TAGIRegressor):
    """A regressor with all optional features, whose recipe is the one above."""

    _takes_variances = False

    def _fit_model(self, x, y, **options):
        return fit_table(x, y, **options)


class LinearClassifier(TAGIClassifier):
    """A classifier with all optional features, whose recipe is the one above."""

    _takes_variances = False

    def _fit_model(self, x, y, **options):
        return fit_table(x, y, **options)
