"""The estimators that `benchmark uci` knows, ours and others, by name; a new one adds a line.

Each has `fit(X, y)` and `predict_distribution(X)`, and `random_state` is its only argument.
"""

import importlib
from typing import Any

_RIVALS = "tfp_fnspace.benchmark.rivals"
_OURS = "tfp_fnspace.sklearn"

#: Name -> `module:class`.
ESTIMATORS = {
    "stacked": f"{_OURS}:FunctionSpaceRegressor",
    "tagi": f"{_OURS}:TAGIRegressor",
    "stable_process": f"{_OURS}:StableProcessRegressor",
    "fbnn": f"{_OURS}:FBNNRegressor",
    "sip": f"{_OURS}:SIPRegressor",
    "diwp": f"{_OURS}:DIWPRegressor",
    "exact_gp": f"{_RIVALS}.gaussian_processes:ExactGP",
    "sparse_gp": f"{_RIVALS}.sparse_gaussian_process:SparseGP",
    "bayes_by_backprop": f"{_RIVALS}.variational:BayesByBackprop",
    "mc_dropout": f"{_RIVALS}.networks:MCDropout",
    "deep_ensemble": f"{_RIVALS}.networks:DeepEnsemble",
    "ngboost": f"{_RIVALS}.natural_boosting:NGBoost",
    "quantile_boosting": f"{_RIVALS}.boosting:QuantileBoosting",
    "conformal_boosting": f"{_RIVALS}.boosting:ConformalBoosting",
    "linear": f"{_RIVALS}.plain:Linear",
    "climatology": f"{_RIVALS}.plain:Climatology",
}

#: Titles of other estimators in pictures and tables, where they are not the names with spaces.
_TITLES = {
    "exact_gp": "exact GP",
    "sparse_gp": "sparse GP",
    "bayes_by_backprop": "Bayes by Backprop",
    "mc_dropout": "MC dropout",
    "ngboost": "NGBoost",
}


def is_ours(name: str) -> bool:
    """Returns whether an estimator is one of this package's methods."""
    return ESTIMATORS.get(name, "").startswith(_OURS)


def title(name: str) -> str:
    """Returns the title of an estimator in pictures and tables: the class name for ours."""
    if is_ours(name):
        return ESTIMATORS[name].partition(":")[2]
    return _TITLES.get(name, name.replace("_", " "))


def make(name: str, random_state: int) -> Any:
    """Returns an estimator with its shipped defaults.

    Args:
        name: One of `ESTIMATORS`.
        random_state: Its seed.

    Returns:
        The estimator, not fitted; all packages that it needs are imported.

    Raises:
        ValueError: If the name is unknown.
        ImportError: If a package is missing that `pip install tfp_fnspace[bench]` brings.
    """
    if name not in ESTIMATORS:
        raise ValueError(f"An estimator must be one of {sorted(ESTIMATORS)}. Received: {name!r}")
    module, _, attribute = ESTIMATORS[name].partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except ImportError as error:
        raise ImportError(
            f"The estimator {name!r} needs packages that `pip install tfp_fnspace[bench]` brings. "
            f"Received: {error}"
        ) from error
    return found(random_state=random_state)
