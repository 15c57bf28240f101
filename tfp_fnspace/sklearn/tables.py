"""Conversion of tables with categories and missing values to numbers."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder

from tfp_fnspace.boundary.arrays import as_array
from tfp_fnspace.boundary.columns import column_names
from tfp_fnspace.typing import Array

#: Kurtosis above which a column has heavy tails: that of a Laplace distribution.
_HEAVY = 6.0

#: How far from the median a column with heavy tails is almost unchanged, in units of the distance
#: between its 5 % and its 95 % quantile.
_AS_IT_WAS = 0.2

#: Prefixes of the names of categorical dtypes in pandas, polars and PyArrow.
_CATEGORIES = ("category", "categorical", "enum", "dictionary")


def is_frame(table: Any) -> bool:
    """Returns whether a table is a data frame of pandas or polars."""
    is_pandas = hasattr(table, "iloc") and getattr(table, "ndim", None) == 2
    return is_pandas or hasattr(table, "get_columns")


def table_values(
    table: Any, is_category: Sequence[bool] | None = None
) -> tuple[Array, Sequence[bool]]:
    """Returns the columns of a table as one array.

    Args:
        table: Data frame of pandas or polars, or an array of objects, `[N, P]`.
        is_category: For each column, whether it holds categories; by default its dtype decides.

    Returns:
        Array `[N, P]`, and `is_category`. The array is float64 with NaN for missing values. If
        there are categories, it is an array of objects with `None` for a missing category.

    Raises:
        TypeError: If a column is neither of categories nor of numbers.
    """
    names, columns = _columns(table)
    if is_category is None:
        is_category = [str(column.dtype).lower().startswith(_CATEGORIES) for column in columns]
    columns = list(zip(names, columns, is_category, strict=True))
    _refuse_text(columns, table)
    values = np.empty(table.shape, object if any(is_category) else np.float64)
    for i, (name, column, of_words) in enumerate(columns):
        values[:, i] = _with_none(column) if of_words else as_array(column, f"X[{name!r}]")
    return values, is_category


def _columns(table: Any) -> tuple[Any, Any]:
    """Returns two lists, the names and the columns."""
    if hasattr(table, "iloc"):
        return column_names(table), [table.iloc[:, i] for i in range(table.shape[1])]
    if is_frame(table):
        return column_names(table), table.get_columns()
    return range(table.shape[1]), list(table.T)


def _refuse_text(columns, table):
    """Refuses words that are not declared as categories, since they may be names or prose."""
    text = [name for name, column, of_words in columns if not of_words and _has_text(column)]
    if text:
        names = f"dict.fromkeys({text}, "
        how = f'X.astype({names}"category"))'
        if hasattr(table, "get_columns"):
            how = f"X.cast({names}pl.Categorical))"
        raise TypeError(
            "`X` must have columns of numbers, of true and false, or of categories. Received: X "
            f"with text in the columns {text}: `{how}` makes categories of them in a data frame"
        )


def _has_text(column):
    array = np.asarray(column)
    is_object = array.dtype == object
    return array.dtype.kind in "SUT" or (
        is_object and any(isinstance(value, str | bytes) for value in array)
    )


def _with_none(values):
    """Returns an array of objects with `None` for missing values."""
    array = np.asarray(values, dtype=object)
    return np.array([None if _is_missing(value) else value for value in array], dtype=object)


def _is_missing(value):
    return value is None or type(value).__name__ == "NAType" or value != value


def _heavy_tails(numbers):
    """Returns medians `[P]` and scales `[P]`, infinite for columns that stay as they are."""
    medians, scales = np.zeros(numbers.shape[1]), np.full(numbers.shape[1], np.inf)
    for i, column in enumerate(numbers.T):
        column = column[~np.isnan(column)]
        spread = np.std(column) if np.all(np.isfinite(column)) and len(column) else 0.0
        if spread and np.mean(((column - np.mean(column)) / spread) ** 4) > _HEAVY:
            low, medians[i], high = np.quantile(column, [0.05, 0.5, 0.95])
            scales[i] = _AS_IT_WAS * (high - low) or spread
    return medians, scales


class TableEncoder(BaseEstimator):
    """Converts the columns of a table to numbers, by scikit-learn's own transformers.

    With `squash`, a number in a column with heavy tails becomes `asinh((x - median) / scale)`, so
    that a few extreme rows do not dominate a fit. Columns of categories are one-hot encoded. Words
    that were not seen in training, and missing words, become zeros. A missing number becomes the
    column's mean, and a column with missing numbers in training gets an additional indicator column
    of 0 and 1. For a model that takes uncertain inputs, a missing number instead has the mean and
    the variance of its column.

    Args:
        uncertain: Whether the model takes variances of its inputs.
        squash: Whether columns with heavy tails are squashed.
    """

    def __init__(self, uncertain: bool = False, squash: bool = True):
        self.uncertain = uncertain
        self.squash = squash

    def fit(self, values: Array, is_category: Sequence[bool]) -> Self:
        """Learns means, variances and words.

        Args:
            values: Array `[N, P]` from `table_values`.
            is_category: For each column, whether it holds categories.

        Returns:
            The encoder.
        """
        self.is_category_ = list(is_category)
        numbers, words = self._positions(False), self._positions(True)
        self.medians_, self.scales_ = _heavy_tails(values[:, numbers].astype(np.float64))
        if not self.squash:
            self.scales_[:] = np.inf
        values = self._squashed(values)
        known = [np.array(sorted(set(values[:, i]) - {None}, key=str), dtype=object) for i in words]
        imputer = SimpleImputer(add_indicator=not self.uncertain, keep_empty_features=True)
        encoder = OneHotEncoder(categories=known, handle_unknown="ignore", sparse_output=False)
        parts = [("numbers", imputer, numbers), ("words", encoder, words)]
        self.transformer_ = ColumnTransformer(parts, verbose_feature_names_out=False)
        self.transformer_.set_output(transform="default").fit(values)  # ignores global settings
        numbers = values[:, numbers].astype(np.float64)
        missing = np.isnan(numbers)
        self.has_variances_ = bool(self.uncertain and np.any(missing))
        known = ~np.all(missing, axis=0)
        self.variances_ = np.zeros(numbers.shape[1])
        self.variances_[known] = np.nanvar(numbers[:, known], axis=0)
        return self

    def _squashed(self, values):
        """Returns the table with squashed columns of heavy tails."""
        numbers = self._positions(False)
        found = values[:, numbers].astype(np.float64)
        heavy = np.isfinite(self.scales_)
        scaled = (found[:, heavy] - self.medians_[heavy]) / self.scales_[heavy]
        found[:, heavy] = np.arcsinh(scaled)
        values = values.copy()
        values[:, numbers] = found
        return values

    def _positions(self, of_words):
        return [i for i, other in enumerate(self.is_category_) if other == of_words]

    def transform(self, values: Array) -> Array | list[Array]:
        """Returns the inputs of the model.

        Args:
            values: Array `[N, P]` from `table_values`.

        Returns:
            Array `[N, X]`. For a model that takes uncertain inputs it is a list of two, means and
            variances, if a number is missing here or was missing in training.
        """
        values = self._squashed(values)
        means = np.asarray(self.transformer_.transform(values), np.float64)
        missing = np.isnan(values[:, self._positions(False)].astype(np.float64))
        if not self.has_variances_ and not (self.uncertain and np.any(missing)):
            return means
        variances = np.zeros_like(means)
        variances[:, : missing.shape[1]] = np.where(missing, self.variances_, 0.0)
        return [means, variances]

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Returns the names of the X columns that the model sees."""
        return self.transformer_.get_feature_names_out(input_features)
