"""Estimators for skpro, which compares and combines probabilistic regressions.

This module needs skpro: `from tfp_fnspace.sklearn.skpro import SkproRegressor`.
"""

from typing import Any

import numpy as np
import pandas as pd
import tensorflow as tf
from sklearn.base import clone

from tfp_fnspace.distributions.quantile import marginals, quantile_of_marginals
from tfp_fnspace.sklearn.regressors import TAGIRegressor
from tfp_fnspace.typing import Array, Distribution

try:
    from skpro.distributions.base import BaseDistribution
    from skpro.regression.base import BaseProbaRegressor
except ImportError as error:
    raise ImportError(
        f"`tfp_fnspace.sklearn.skpro` needs skpro: `pip install skpro`. Received: {error}"
    ) from error

__all__ = ["PredictiveDistribution", "SkproRegressor"]


class PredictiveDistribution(BaseDistribution):
    """The marginals of a predictive distribution, one for each row and target column, for skpro.

    Samples are independent draws of the rows. Draws of functions, whose values at all rows belong
    together, are `estimator_.sample_functions(X, num_samples)`.

    Args:
        distribution: `tfd.Distribution` with batch `[N]` and event `[D]`.
        rows: Numbers of the rows that belong to the distribution, all by default.
        cols: Numbers of its target columns.
        index: Index of the rows, as in skpro.
        columns: Names of the target columns.
    """

    _tags = {
        "authors": ["tfp_fnspace"],
        "capabilities:exact": ["mean", "var", "pdf", "log_pdf", "cdf", "ppf"],
        "distr:measuretype": "continuous",
        "distr:paramtype": "nonparametric",
    }

    def __init__(
        self,
        distribution: Distribution,
        rows: Any = None,
        cols: Any = None,
        index: Any = None,
        columns: Any = None,
    ):
        self.distribution, self.rows, self.cols = distribution, rows, cols
        (num_rows,), (num_columns,) = distribution.batch_shape, distribution.event_shape
        self._rows = np.arange(num_rows) if rows is None else np.asarray(rows)
        self._cols = np.arange(num_columns) if cols is None else np.asarray(cols)
        self._marginals = marginals(distribution)
        super().__init__(
            pd.RangeIndex(len(self._rows)) if index is None and self._rows.ndim else index,
            pd.RangeIndex(len(self._cols)) if columns is None and self._cols.ndim else columns,
        )

    def _part(self, rows, cols, **labels):
        """Returns the distribution of some of the rows and columns."""
        return type(self)(self.distribution, self._rows[rows], self._cols[cols], **labels)

    def _iloc(self, rowidx: Any = None, colidx: Any = None) -> "PredictiveDistribution":
        if all(isinstance(chosen, int | np.integer) for chosen in (rowidx, colidx)):
            return self._iat(rowidx, colidx)
        rows, cols = (
            np.atleast_1d(np.arange(size)[slice(None) if chosen is None else chosen])
            for size, chosen in zip(self.shape, (rowidx, colidx), strict=True)
        )
        return self._part(rows, cols, index=self.index[rows], columns=self.columns[cols])

    def _iat(self, rowidx: Any = None, colidx: Any = None) -> "PredictiveDistribution":
        return self._part(rowidx, colidx)

    def _mine(self, values):
        """Returns the values of this part, given those of all rows and columns `[N, D]`."""
        values = np.asarray(values)[self._rows][..., self._cols]
        return values[()] if np.ndim(values) == 0 else values

    def _applied(self, function, x, fill):
        """Returns a function of all marginals at x, which has the shape of this part."""
        whole = np.array(np.broadcast_to(fill, self._marginals.batch_shape), np.float64)
        whole[np.ix_(np.atleast_1d(self._rows), np.atleast_1d(self._cols))] = x
        return self._mine(function(tf.constant(whole, self._marginals.dtype)))

    def _mean(self) -> Array:
        return self._mine(self._marginals.mean())

    def _var(self) -> Array:
        return self._mine(self._marginals.variance())

    def _log_pdf(self, x: Array) -> Array:
        return self._applied(self._marginals.log_prob, x, self._marginals.mean())

    def _pdf(self, x: Array) -> Array:
        return np.exp(self._log_pdf(x))

    def _cdf(self, x: Array) -> Array:
        return self._applied(self._marginals.cdf, x, self._marginals.mean())

    def _ppf(self, p: Array) -> Array:
        return self._applied(lambda levels: quantile_of_marginals(self._marginals, levels), p, 0.5)


class SkproRegressor(BaseProbaRegressor):
    """A regressor of `tfp_fnspace.sklearn` as a probabilistic regressor of skpro.

    Args:
        estimator: Regressor of `tfp_fnspace.sklearn`, which is cloned; `TAGIRegressor()` by
            default.

    Attributes:
        estimator_: The fitted regressor.

    Raises:
        TypeError: If `estimator` does not have `predict_distribution`.

    Example:
        >>> import numpy as np
        >>> import pandas as pd
        >>> from tfp_fnspace.sklearn import TAGIRegressor
        >>> from tfp_fnspace.sklearn.skpro import SkproRegressor
        >>> x = pd.DataFrame({"x": np.linspace(-1.0, 1.0, 40)})
        >>> regressor = SkproRegressor(TAGIRegressor(time_limit=1.0, random_state=0))
        >>> distribution = regressor.fit(x, np.sin(3.0 * x)).predict_proba(x)

    References:
        Gressmann, Király, Mateen and Oberhauser (2018), "Probabilistic supervised learning".
    """

    _tags = {
        "authors": ["tfp_fnspace"],
        "capability:multioutput": True,
        "capability:missing": True,
        "X_inner_mtype": "pd_DataFrame_Table",
        "y_inner_mtype": "pd_DataFrame_Table",
    }

    def __init__(self, estimator: Any = None):
        self.estimator = estimator
        super().__init__()

    def _fit(self, X: pd.DataFrame, y: pd.DataFrame) -> "SkproRegressor":
        estimator = TAGIRegressor() if self.estimator is None else self.estimator
        if not hasattr(estimator, "predict_distribution"):
            raise TypeError(
                "`estimator` must be a regressor of `tfp_fnspace.sklearn`. "
                f"Received: estimator={estimator!r}"
            )
        self._y_columns = y.columns
        fresh: Any = clone(estimator)
        self.estimator_ = fresh.fit(_named(X), y)
        return self

    def _predict(self, X: pd.DataFrame) -> pd.DataFrame:
        mean = self.estimator_.predict(_named(X))
        return pd.DataFrame(mean, index=X.index, columns=self._y_columns)

    def _predict_proba(self, X: pd.DataFrame) -> PredictiveDistribution:
        found = self.estimator_.predict_distribution(_named(X))
        return PredictiveDistribution(found, index=X.index, columns=self._y_columns)

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Returns settings with which skpro tests the class."""
        return [{"estimator": TAGIRegressor(time_limit=1.0, random_state=i)} for i in range(2)]


def _named(X: pd.DataFrame) -> pd.DataFrame:
    """Returns the table with words as names of its columns, as scikit-learn demands."""
    return X.set_axis([str(name) for name in X.columns], axis=1)
