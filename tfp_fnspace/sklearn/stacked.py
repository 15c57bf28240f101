"""The estimators to begin with, which weigh several methods by held-out rows."""

import time
from itertools import zip_longest
from typing import Any

import numpy as np

from tfp_fnspace import recipes, stacking, trials
from tfp_fnspace.sklearn.base import TableClassifier, TableRegressor, method_of, recipe_of

#: Members of less weight are left out: each costs a fit, and changes the mixture by less than
#: held-out rows can show.
_LEAST_WEIGHT = 0.03

#: Up to this many rows a kernel process is tried first; beyond it, a network in batches.
_ROWS_FOR_KERNELS = 2000


class _Stacked:
    """Common part of both estimators: trials of several recipes, weights, and fits to all rows."""

    def _fit_model(
        self, x, y, *, time_limit, seed, report=None, num_classes=None, sample_weight=None
    ):
        begin = time.monotonic()
        table = trials.Table(x, y, num_classes, row_weights=sample_weight)
        table, warp = recipes.warped_table(table, seed)
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
        row_weights = found[0].row_weights

        def fitted(k):
            left = time_limit - (time.monotonic() - begin)
            return recipes.fit_as_tried(found[k], table, left, seed)

        model, weights = stacking.stacked(fitted, densities, _LEAST_WEIGHT, row_weights)
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
        return recipes.Fitted(model, settings, _score(densities, weights, row_weights), found)


def _score(densities, weights, row_weights):
    """Returns the mean held-out log density of the mixture, in nats."""
    used = weights > 0.0
    of_rows = np.logaddexp.reduce(densities[:, used] + np.log(weights[used]), axis=1)
    return float(np.average(of_rows, weights=row_weights))


def _methods(table):
    """Returns the names of the methods that suit the rows, in the order of the trials.

    The other methods cost more than their held-out densities justify.
    """
    return ["diwp", "tagi"] if table.num_rows <= _ROWS_FOR_KERNELS else ["tagi", "diwp"]


class FunctionSpaceRegressor(_Stacked, TableRegressor):
    """Regression by several methods at once, the regressor to begin with.

    Within the time limit it tries the methods that suit the rows, and weighs their predictive
    distributions by stacking: the weights maximise the held-out log density of the mixture. It then
    fits the methods with enough weight to all rows, and predicts their mixture.

    Args:
        time_limit: Seconds that `fit` may take, 60 by default; a step that has begun is finished.
        random_state: As for `TAGIRegressor`.
        verbose: As for `TAGIRegressor`.

    Attributes:
        model_: The fitted mixture, `stacking.StackedModel`, a Keras model.
        leaderboard_: All trials, the largest weight first: a list of dicts with `method`, `weight`,
            `log_density` (held-out mean, in nats), `seconds` and `settings`.
            `pandas.DataFrame(leaderboard_)` makes a table of it.
        settings_: The entries of `leaderboard_` with a weight.
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

    def __init__(
        self,
        *,
        time_limit: float = 60.0,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ):
        super().__init__(time_limit=time_limit, random_state=random_state, verbose=verbose)


class FunctionSpaceClassifier(_Stacked, TableClassifier):
    """Classification by several methods at once, the classifier to begin with.

    See `FunctionSpaceRegressor`.

    Args:
        time_limit: Seconds that `fit` may take, 60 by default; a step that has begun is finished.
        class_weight: As for `TAGIClassifier`.
        random_state: As for `TAGIRegressor`.
        verbose: As for `TAGIRegressor`.
    """

    def __init__(
        self,
        *,
        time_limit: float = 60.0,
        class_weight: dict[Any, float] | str | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ):
        super().__init__(
            time_limit=time_limit,
            class_weight=class_weight,
            random_state=random_state,
            verbose=verbose,
        )
