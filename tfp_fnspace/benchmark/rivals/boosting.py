"""Two predictive distributions from scikit-learn's histogram gradient boosting."""

import numpy as np
import tensorflow_probability as tfp
from sklearn.ensemble import HistGradientBoostingRegressor

from tfp_fnspace.benchmark.rivals.base import Rival, kernel_density
from tfp_fnspace.benchmark.rivals.quantile_function import PiecewiseLinearCDF
from tfp_fnspace.datasets import k_fold
from tfp_fnspace.typing import ArrayLike, Distribution

tfd = tfp.distributions

#: Levels at which quantiles are boosted.
_LEVELS = (0.025, 0.05, *np.arange(1, 10) / 10, 0.95, 0.975)

#: Between two quantiles the density is at most this, per standard deviation of the targets.
_GREATEST_DENSITY = 100.0


def _boosting(seed, **options):
    """Returns a model with the package's defaults, up to 500 trees, stopped by a held-out tenth."""
    return HistGradientBoostingRegressor(
        max_iter=500, early_stopping=True, validation_fraction=0.1, random_state=seed, **options
    )


class ConformalBoosting(Rival):
    """Boosting with the residuals of five-fold cross-validation around its predictions.

    The distribution at x is the prediction plus a kernel estimate of the residuals
    (`base.kernel_density`), so that there is a density. Its quantiles are those of conformal
    prediction with cross-validated residuals, except for the width of the kernels.
    """

    def _fit(self, x, y):
        seed, residuals = self.random_state, np.empty(len(y))
        for train, valid in k_fold(len(y), min(5, len(y)), seed):
            part = _boosting(seed).fit(x[train], y[train])
            residuals[valid] = y[valid] - part.predict(x[valid])
        self._model = _boosting(seed).fit(x, y)
        self._centres, self._widths = kernel_density(residuals)

    def _predict(self, x):
        return self._model.predict(x)[:, np.newaxis] + self._centres, self._widths


class QuantileBoosting(Rival):
    """A boosted model for each of 13 levels from 2.5 to 97.5 %.

    The quantiles of a row are sorted, so that they do not cross, and kept so far apart that the
    density is at most 100 over the standard deviation of the targets. Between them the distribution
    function is linear; outside it has exponential tails through the outermost and the fourth
    quantile (`quantile_function.PiecewiseLinearCDF`).
    """

    def _fit(self, x, y):
        self._models = [
            _boosting(self.random_state, loss="quantile", quantile=level).fit(x, y)
            for level in _LEVELS
        ]

    def predict_distribution(self, X: ArrayLike) -> Distribution:
        x = self._x_units.standardised(np.asarray(X, np.float64))
        quantiles = np.sort([model.predict(x) for model in self._models], axis=0)  # [Q, N]
        least = np.diff(_LEVELS) / _GREATEST_DENSITY
        for i, gap in enumerate(least):
            quantiles[i + 1] = np.maximum(quantiles[i + 1], quantiles[i] + gap)
        knots = self._y_units.mean + self._y_units.scale * quantiles.T
        return tfd.Independent(PiecewiseLinearCDF(_LEVELS, knots[:, np.newaxis]), 1)
