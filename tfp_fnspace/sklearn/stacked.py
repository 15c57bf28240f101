"""The estimators to begin with: several methods, weighed by what held-out rows say of them."""

import time
from itertools import zip_longest

import numpy as np

from tfp_fnspace import recipes, stacking, trials
from tfp_fnspace.sklearn.base import TableClassifier, TableRegressor, method_of, recipe_of

#: A member of less weight costs its fit and moves the mixture by less than held-out rows can tell.
_LEAST_WEIGHT = 0.03

#: Up to so many rows a kernel process is the first to be tried, beyond a network in batches.
_ROWS_FOR_KERNELS = 2000


class _Stacked:
    """Part of both estimators: trials of several recipes, weights, and fits to all rows."""

    def __init__(self, *, time_limit=60.0, random_state=None, verbose=0):
        super().__init__(time_limit=time_limit, random_state=random_state, verbose=verbose)

    def _fit_model(self, x, y, *, time_limit, seed, report=None, num_classes=None):
        begin = time.monotonic()
        table, warp = recipes.warped_table(trials.Table(x, y, num_classes), seed)
        names = _methods(table)
        by_method = [recipes.candidates_of(recipe_of(name), table) for name in names]
        found = recipes.try_candidates(
            [each for turn in zip_longest(*by_method) for each in turn if each],
            table,
            time_limit * recipes.TIME_FOR_TRIALS,
            seed,
            report,
            at_least=len(names),  # one method alone is no mixture
        )
        densities = np.stack([trial.log_density for trial in found], axis=1)

        def fitted(k):
            left = time_limit - (time.monotonic() - begin)
            return recipes.fit_as_tried(found[k], table, left, seed)

        model, weights = stacking.stacked(fitted, densities, _LEAST_WEIGHT)
        self.leaderboard_ = [
            {
                "method": method_of(trial.recipe),
                "weight": float(weight),
                "log_density": trial.score,
                "seconds": trial.seconds,
                "settings": trial.settings,
            }
            for weight, trial in sorted(zip(weights, found, strict=True), key=lambda each: -each[0])
        ]
        if report is not None:
            report(1.0, "fitted to all rows")
        settings = [each for each in self.leaderboard_ if each["weight"]]
        model = recipes.unwarped(model, warp)
        return recipes.Fitted(model, settings, _score(densities, weights), found)


def _score(densities, weights):
    """Mean held-out log density of the mixture, in nats."""
    used = weights > 0.0
    return float(np.mean(np.logaddexp.reduce(densities[:, used] + np.log(weights[used]), axis=1)))


def _methods(table):
    """Names of the methods that suit the rows, the one that is to be tried first in front.

    The others cost more for what held-out rows say of them.
    """
    return ["diwp", "tagi"] if table.num_rows <= _ROWS_FOR_KERNELS else ["tagi", "diwp"]


class FunctionSpaceRegressor(_Stacked, TableRegressor):
    """Regression by several methods at once, the one to begin with.

    Within the time it tries the methods that suit the rows, weighs their predictive distributions
    by stacking: the weights maximise the held-out log density of the mixture. It fits those that
    count to all rows and predicts the mixture.

    Args:
        time_limit: Seconds that `fit` may take, 60 by default; what has begun is finished.
        random_state: As for `TAGIRegressor`.
        verbose: As for `TAGIRegressor`.

    Attributes:
        model_: The fitted mixture, `stacking.StackedModel`, a Keras model.
        leaderboard_: What was tried, the largest weight first: a list of dicts of `method`,
            `weight`, `log_density` (held-out mean, in nats), `seconds` and `settings`.
            `pandas.DataFrame(leaderboard_)` makes a table of it.
        settings_: The part of it that counts.
        encoder_: As for `TAGIRegressor`.
        n_features_in_: As for `TAGIRegressor`.
        feature_names_in_: As for `TAGIRegressor`.

    Example:
        >>> from tfp_fnspace.sklearn import FunctionSpaceRegressor
        >>> x = np.linspace(-1.0, 1.0, 40)[:, np.newaxis]
        >>> regressor = FunctionSpaceRegressor(time_limit=1.0, random_state=0)
        >>> quantiles = regressor.fit(x, np.sin(3.0 * x[:, 0])).predict_quantiles(x, [0.05, 0.95])

    References:
        Yao, Vehtari, Simpson and Gelman (2018), "Using stacking to average Bayesian predictive
        distributions", Bayesian Analysis 13(3).
    """


class FunctionSpaceClassifier(_Stacked, TableClassifier):
    """Classification by several methods at once, the one to begin with.

    See `FunctionSpaceRegressor`.

    Args:
        time_limit: Seconds that `fit` may take, 60 by default; what has begun is finished.
        random_state: As for `TAGIRegressor`.
        verbose: As for `TAGIRegressor`.
    """
