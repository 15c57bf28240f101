"""Sets of classes with a guaranteed coverage."""

from typing import Any

import numpy as np

from tfp_fnspace.boundary import arguments
from tfp_fnspace.calibration.conformal import conformal_quantile
from tfp_fnspace.calibration.rows import targets_of
from tfp_fnspace.typing import Array, ArrayLike, Rows


class AdaptiveSets:
    r"""Sets of classes that contain the label with a probability of at least the level.

    The classes of a row are taken from the most probable on, until their probabilities sum to
    about a threshold. This is the randomised version of adaptive prediction sets: a class k has the
    score

        S(x, k) = sum_{j before k} p_j(x) + U p_k(x),     U uniform on (0, 1), one for each row,

    and the set has all classes with a score of at most tau, which is the kth smallest score of the
    labels of n held-out rows, `k = ceil((n + 1) level)`. For exchangeable rows the label is in it
    with a probability from `level` to `level + 1 / (n + 1)`. The most probable class is always in
    the set, which can only raise this. Classes of equal probability are in the order of their
    numbers. The draws of U follow from the seed and the number of the row in x.

    It pickles with its model.

    Args:
        model: Fitted classifier of this library, of one label for each row; or any classifier of
            scikit-learn with `predict_proba`.
        x: Inputs of rows that the model was not fitted to.
        y: Their labels.
        seed: Non-negative integer.

    Attributes:
        model: The model.
        scores: Array `[n]`, the scores of the labels.
        seed: The seed.

    Raises:
        TypeError: If `model` is of another kind.
        ValueError: If it is a regression, has several labels for each row, or the data are bad.

    References:
        Romano, Sesia and Candes (2020), "Classification with valid and adaptive coverage", NeurIPS.
    """

    def __init__(self, model: Any, x: Rows, y: ArrayLike, seed: int = 0):
        self.model, self.seed = model, arguments.checked_count("seed", seed, 0)
        probabilities = _probabilities(model, x)
        if hasattr(model, "get_params"):
            labels = targets_of(model, y, len(probabilities), 1)
        else:
            labels = model.checks.data(x, y)[1]
        every = self._scores(probabilities, stream=0)
        self.scores = np.take_along_axis(every, labels.astype(int), axis=1)[:, 0]

    def sets(self, x: Rows, level: float = 0.9) -> Array:
        """Returns which classes are in the sets.

        Args:
            x: Inputs of N rows.
            level: Number in (0, 1).

        Returns:
            Boolean array `[N, K]`, in the order of the classes.

        Raises:
            ValueError: If the level needs more held-out rows, or the data are bad.
        """
        threshold = conformal_quantile(self.scores, level)
        probabilities = _probabilities(self.model, x)
        chosen = self._scores(probabilities, stream=1) <= threshold
        chosen[np.arange(len(chosen)), np.argmax(probabilities, axis=1)] = True
        return chosen

    def _scores(self, probabilities, stream):
        """Returns the scores of all classes `[N, K]`; new rows have another stream of draws."""
        order = np.argsort(-probabilities, axis=1, kind="stable")
        ordered = np.take_along_axis(probabilities, order, axis=1)
        uniform = np.random.default_rng([self.seed, stream]).random((len(probabilities), 1))
        ordered = np.cumsum(ordered, axis=1) - (1.0 - uniform) * ordered
        found = np.empty_like(ordered)
        np.put_along_axis(found, order, ordered, axis=1)
        return found


def _probabilities(model, x):
    """Returns probabilities of classes, float64 `[N, K]`."""
    if hasattr(model, "predict_proba"):
        return np.asarray(model.predict_proba(x), np.float64)
    is_estimator = hasattr(model, "get_params")
    if not is_estimator:
        arguments.check_model(model, "predict", "predict_distribution", "predicted")
    if is_estimator or not model.likelihood.is_classifier:
        raise ValueError(
            "`model` must be a classifier; `SplitConformal` is for regressions. "
            "Received: a regression"
        )
    found = model.predict(x)["probabilities"].astype(np.float64)
    if model.num_target_columns != 1 or found.shape[1] < 2:
        raise ValueError(
            "`model` must have one label of several classes for each row. Received: a likelihood "
            f"of independent outputs, {type(model.likelihood).__name__}"
        )
    return found / np.sum(found, axis=1, keepdims=True)
