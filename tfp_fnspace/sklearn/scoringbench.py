"""Regressors for ScoringBench, which scores predictive distributions of tables.

ScoringBench is a checkout rather than a package. It takes models by their methods, so that this
module does not import it.
"""

from typing import Any, NamedTuple, Self

import numpy as np
from scipy import stats
from sklearn.base import clone

from tfp_fnspace.boundary import arguments
from tfp_fnspace.sklearn.regressors import TAGIRegressor
from tfp_fnspace.typing import Array, ArrayLike

__all__ = ["BinnedPrediction", "ScoringBenchRegressor"]

#: The outermost edges are the quantiles of a normal distribution at so many standard deviations, of
#: probability 3e-7.
_MOST_STDDEVS = 5.0


class BinnedPrediction(NamedTuple):
    """Predictive distributions as histograms of B bins, ScoringBench's `DistributionPrediction`.

    Attributes:
        probas: Probabilities of the bins `[N, B]`.
        bin_edges: Edges of the bins in units of the target, `[N, B + 1]`, ascending.
        bin_midpoints: Midpoints of the bins `[N, B]`.
        mean: Means of the distributions, `[N]`.
    """

    probas: Array
    bin_edges: Array
    bin_midpoints: Array
    mean: Array


class ScoringBenchRegressor:
    """A regressor of `tfp_fnspace.sklearn` as a model of ScoringBench.

    The edges of the bins are quantiles of each predictive distribution. For a Gaussian they have
    equal distances, from -5 to 5 standard deviations; what is beyond belongs to the last bins.

    Args:
        estimator: Regressor of `tfp_fnspace.sklearn`, which is cloned; `TAGIRegressor()` by
            default.
        num_bins: B, a positive integer.

    Attributes:
        estimator_: The fitted regressor.

    Raises:
        TypeError: If `estimator` does not have `predict_quantiles`.
        ValueError: If `num_bins` is not a positive integer.

    Example:
        >>> from tfp_fnspace.sklearn import TAGIRegressor
        >>> from tfp_fnspace.sklearn.scoringbench import ScoringBenchRegressor
        >>> x = np.linspace(-1.0, 1.0, 40)[:, np.newaxis]
        >>> regressor = ScoringBenchRegressor(TAGIRegressor(time_limit=1.0, random_state=0))
        >>> histograms = regressor.fit(x, np.sin(3.0 * x[:, 0])).predict_distribution(x)

    References:
        Landsgesell and others (2026), "ScoringBench: a benchmark for evaluating tabular foundation
        models with proper scoring rules", arXiv 2603.29928.
    """

    def __init__(self, estimator: Any = None, num_bins: int = 200):
        estimator = TAGIRegressor() if estimator is None else estimator
        if not hasattr(estimator, "predict_quantiles"):
            raise TypeError(
                "`estimator` must be a regressor of `tfp_fnspace.sklearn`. "
                f"Received: estimator={estimator!r}"
            )
        self.estimator, self.num_bins = estimator, arguments.checked_count("num_bins", num_bins)

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fits a clone of the estimator to a table `[N, P]` and its targets `[N]`."""
        fresh: Any = clone(self.estimator)
        self.estimator_ = fresh.fit(X, np.ravel(np.asarray(y)))
        return self

    def predict(self, X: ArrayLike) -> Array:
        """Predicts the mean of the target, `[N]`."""
        return self.estimator_.predict(X)

    def predict_distribution(self, X: ArrayLike) -> BinnedPrediction:
        """Predicts the distribution of the target as a histogram for each row."""
        levels = stats.norm.cdf(np.linspace(-_MOST_STDDEVS, _MOST_STDDEVS, self.num_bins + 1))
        edges = np.asarray(self.estimator_.predict_quantiles(X, levels.tolist()), np.float64)
        masses = np.diff(levels)
        masses /= np.sum(masses)
        return BinnedPrediction(
            probas=np.tile(masses, (len(edges), 1)),
            bin_edges=edges,
            bin_midpoints=0.5 * (edges[:, 1:] + edges[:, :-1]),
            mean=self.predict(X),
        )
