"""The base of all estimators: a table encoder, a recipe and the model that it fits."""

import importlib
from collections.abc import Sequence
from types import ModuleType
from typing import Any, Self

import numpy as np
import tensorflow as tf
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_array, check_consistent_length, check_random_state
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, _check_y, check_is_fitted, validate_data

from tfp_fnspace import recipes
from tfp_fnspace.boundary import arguments
from tfp_fnspace.model import FunctionSpaceModel
from tfp_fnspace.sklearn import pickles
from tfp_fnspace.sklearn.progress import ProgressBar
from tfp_fnspace.sklearn.served import WithExport, label_rows
from tfp_fnspace.sklearn.tables import TableEncoder, is_frame, table_values
from tfp_fnspace.typing import Array, ArrayLike, Distribution, Seed
from tfp_fnspace.warping import chosen_warp

#: Upper bound of seeds.
_MOST_SEEDS = 2**31 - 1


class TableEstimator(WithExport, BaseEstimator):
    """Base of all estimators, see `TableRegressor` and `TableClassifier`.

    A subclass has `method`, the name of a folder of `tfp_fnspace.methods` with a recipe, or
    overrides `_fit_model`.
    """

    method = None

    #: Whether the model takes variances of its inputs, see `TableEncoder`.
    _takes_variances = False

    settings_: Any  # what `fit` learns, beside `model_` and `encoder_`

    def __init__(
        self,
        *,
        time_limit: float = 15.0,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ):
        self.time_limit = time_limit
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        return tags

    def _fit_model(self, x, y, **options):
        """Runs a recipe and returns its result, an object with `model` and `settings`.

        Args:
            x: float64 array `[N, X]`, or a list of means and variances.
            y: float64 array `[N, D]`, or integer labels `[N]`.
            **options: As for `recipes.fit_table`.
        """
        return recipes.fit_table(recipe_of(self.method), x, y, **options)

    def _fit(self, X, y, sample_weight, **options):
        """Encodes the table and runs the recipe; y must have been checked."""
        time_limit = arguments.checked_positive("time_limit", self.time_limit)
        values, is_category = self._values(X, reset=True)
        check_consistent_length(values, y)
        if sample_weight is not None:
            weights = self._checked_weights(sample_weight, len(y))
            kept = np.flatnonzero(weights)  # a row of weight zero is no row
            values, y, options["sample_weight"] = values[kept], y[kept], weights[kept]
        seed = _seed(self.random_state)
        self.encoder_ = self._fitted_encoder(values, is_category, y, seed)
        found = self._fit_model(
            self.encoder_.transform(values),
            y,
            time_limit=time_limit,
            seed=seed,
            report=ProgressBar(time_limit) if self.verbose else None,
            **options,
        )
        self.model_, self.settings_ = found.model, found.settings
        return self

    def _fitted_encoder(self, values, is_category, y, seed, squash=True):
        encoder = TableEncoder(uncertain=self._takes_variances, squash=squash)
        return encoder.fit(values, is_category)

    def _checked_weights(self, sample_weight, num_rows):
        rows = np.empty(num_rows)
        weights = _check_sample_weight(
            sample_weight, rows, dtype=np.float64, ensure_non_negative=True
        )
        if np.count_nonzero(weights) < 2:
            raise ValueError(
                "`sample_weight` must be positive in at least 2 rows. "
                f"Received: sample_weight with {np.count_nonzero(weights)} positive numbers"
            )
        return weights

    def _checked_y(self, y, **options):
        if y is None:
            raise ValueError(
                f"This {type(self).__name__} estimator requires y to be passed, but the target y "
                "is None."
            )
        return _check_y(y, estimator=self, **options)

    def _values(self, X, reset=False):
        """Returns an array of the columns, and which are categories (see `table_values`)."""
        known = None if reset else self.encoder_.is_category_
        options = {"ensure_all_finite": "allow-nan", "ensure_min_samples": 2 if reset else 1}
        has_words = known is not None and any(known)
        if is_frame(X):
            validate_data(self, X, reset=reset, skip_check_array=True)
        else:
            dtype = object if has_words else np.float64
            X = np.asarray(validate_data(self, X, reset=reset, dtype=dtype, **options))
        if not is_frame(X) and not has_words:
            return X, [False] * X.shape[1]
        values, is_category = table_values(X, known)
        check_array(values, dtype=None, input_name="X", estimator=self, **options)
        return values, is_category

    def _inputs(self, X):
        """Returns the inputs of the model."""
        check_is_fitted(self)
        values, _ = self._values(X)
        return self.encoder_.transform(values)

    def _model_of(self, inputs):
        """Returns the model that takes given inputs."""
        return self.model_

    def with_model(self, model: FunctionSpaceModel) -> Self:
        """Returns a copy of the estimator that predicts with another model.

        Args:
            model: Fitted model of the same inputs and targets as `model_`, such as `model_` after
                `calibration.calibrate`.

        Returns:
            A fitted estimator, which shares all other attributes with this one.
        """
        check_is_fitted(self)
        other = type(self).__new__(type(self))
        vars(other).update(vars(self), model_=model)
        return other

    def _predict(self, X):
        """Returns the result of `model_.predict`."""
        inputs = self._inputs(X)
        return self._model_of(inputs).predict(inputs)

    def predict_distribution(self, X: ArrayLike) -> Distribution:
        """Predicts the distribution of the target.

        Args:
            X: Array or data frame `[N, P]`.

        Returns:
            A distribution of TensorFlow Probability with batch `[N]`. For a regressor it is the
            distribution of the target in its units, with event `[D]`. For a classifier it is that
            of the position of the class in `classes_`.
        """
        inputs = self._inputs(X)
        return self._model_of(inputs).predict_distribution(inputs)

    def sample_functions(self, X: ArrayLike, num_samples: int, seed: Seed = (0, 0)) -> Array:
        """Draws functions from the posterior, whose values at all rows belong together.

        Args:
            X: Array or data frame `[N, P]`.
            num_samples: S, a positive integer.
            seed: Integer or two integers.

        Returns:
            Array `[S, N, D]`: for a regressor in the units of the target, for a classifier what the
            likelihood of `model_` makes probabilities of.
        """
        inputs = self._inputs(X)
        return self._model_of(inputs).sample_functions(inputs, num_samples, seed=seed)

    def __getstate__(self):
        state = dict(super().__getstate__())
        if "model_" in state:
            state["model_"] = pickles.as_bytes(state["model_"])
        return state

    def __setstate__(self, state):
        super().__setstate__(state)
        if "model_" in state:
            self.model_ = pickles.from_bytes(state["model_"])


class TableRegressor(RegressorMixin, TableEstimator):
    """Base of all regressors; see [the guide](../howto/sklearn.md) for columns and units."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fits the method to a table, with its recipe.

        Args:
            X: Array or data frame `[N, P]` of numbers, booleans and categories; NaN is missing.
            y: Targets `[N]` or `[N, D]`, finite.
            sample_weight: Non-negative weights `[N]`. A row of weight w counts as w copies of it,
                and one of weight zero is left out.

        Returns:
            The estimator.

        Raises:
            TypeError: If a column has text or dates.
            ValueError: If the data are bad, or weights are refused.
        """
        y = self._targets(y)
        self._has_columns = y.ndim == 2
        return self._fit(X, y.reshape(len(y), -1), sample_weight)

    def _fitted_encoder(self, values, is_category, y, seed, squash=True):
        """Fits an encoder that squashes columns only if a regression of y then predicts better."""
        encoder = super()._fitted_encoder(values, is_category, y, seed)
        if not np.any(np.isfinite(encoder.scales_)):
            return encoder
        plain = super()._fitted_encoder(values, is_category, y, seed, squash=False)

        def log_density(encoder):
            x = encoder.transform(values)
            return chosen_warp(x[0] if isinstance(x, list) else x, y, seed).log_density

        return encoder if log_density(encoder) > log_density(plain) else plain

    def _targets(self, y):
        """Returns the targets `[N]` or `[N, D]` as float64."""
        return self._checked_y(y, multi_output=True, y_numeric=True).astype(np.float64)

    def predict(self, X: ArrayLike, return_std: bool = False) -> Array | tuple[Array, Array]:
        """Predicts the mean of the target.

        Args:
            X: As for `fit`.
            return_std: Whether to return also the standard deviation of an observation, which
                includes the noise.

        Returns:
            Array `[N]`, or `[N, D]` if y had columns; or a tuple of two of them.
        """
        found = self.predict_moments(X)
        return (found["mean"], found["stddev"]) if return_std else found["mean"]

    def predict_moments(self, X: ArrayLike) -> dict[str, Array]:
        """Predicts the mean of the target and its standard deviation, and what it consists of.

        Args:
            X: As for `fit`.

        Returns:
            Dict of arrays `[N]`, or `[N, D]` if y had columns: `mean`, `stddev` (of an
            observation), `epistemic_stddev` (of the function, which more rows would reduce) and
            `aleatoric_stddev` (of the noise); the variances add up.
        """
        return {name: self._like_y(values) for name, values in self._predict(X).items()}

    def predict_quantiles(self, X: ArrayLike, quantiles: float | Sequence[float]) -> Array:
        """Predicts quantiles of the target.

        Args:
            X: As for `fit`.
            quantiles: Number in (0, 1), or a list of Q of them.

        Returns:
            Array `[N]` or `[N, Q]`; `[N, D]` or `[N, D, Q]` if y had columns.
        """
        inputs = self._inputs(X)
        found = self._like_y(self._model_of(inputs).predict_quantiles(inputs, quantiles))
        return found if np.ndim(quantiles) else found[..., 0]

    def sample_y(
        self, X: ArrayLike, n_samples: int = 1, random_state: int | np.random.RandomState | None = 0
    ) -> Array:
        """Draws targets from their predictive distributions, each row by itself.

        `sample_functions` draws functions, whose values at all rows belong together.

        Args:
            X: As for `fit`.
            n_samples: S, the number of draws at each row.
            random_state: As in scikit-learn.

        Returns:
            Array `[N, S]`, or `[N, D, S]` if y had columns.
        """
        arguments.check_count("n_samples", n_samples)
        seed = tf.constant([_seed(random_state), 0], tf.int32)
        draws = self.predict_distribution(X).sample(n_samples, seed=seed).numpy()  # [S, N, D]
        return self._like_y(np.moveaxis(draws, 0, -1))

    def _like_y(self, values):
        """Returns values `[N, D, ...]`, without the column axis if y had none."""
        return values if self._has_columns else values[:, 0]

    def _served(self, outputs):
        return {name: self._like_y(values) for name, values in outputs.items()}


class TableClassifier(ClassifierMixin, TableEstimator):
    """Base of all classifiers; see [the guide](../howto/sklearn.md) for columns."""

    def __init__(
        self,
        *,
        time_limit: float = 15.0,
        class_weight: dict[Any, float] | str | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ):
        super().__init__(time_limit=time_limit, random_state=random_state, verbose=verbose)
        self.class_weight = class_weight

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fits the method to a table, with its recipe.

        Args:
            X: As for a regressor.
            y: Labels `[N]`, numbers or words, of at least two classes.
            sample_weight: As for a regressor.

        Returns:
            The estimator.

        Raises:
            TypeError: If a column has text or dates.
            ValueError: If the data are bad, or weights are refused.
        """
        y = self._labels(y)
        sample_weight = self._weights_of(y, sample_weight)
        kept = slice(None) if sample_weight is None else np.flatnonzero(sample_weight)
        self.classes_ = np.unique(y[kept])
        # A label of rows without weight is none of the classes; `_fit` leaves these rows out.
        labels = np.searchsorted(self.classes_, y)
        return self._fit_labels(X, labels, sample_weight)

    def _labels(self, y):
        y = self._checked_y(y)
        check_classification_targets(y)
        return y

    def _weights_of(self, y, sample_weight=None):
        """Returns the weights of rows times those of their classes, or `None` if all are 1."""
        if sample_weight is not None:
            sample_weight = self._checked_weights(sample_weight, len(y))
        if self.class_weight is None:
            return sample_weight
        if isinstance(self.class_weight, dict):
            for label, weight in self.class_weight.items():
                arguments.checked_positive(f"class_weight[{label!r}]", weight)
        if self.class_weight != "balanced":
            of_rows = compute_sample_weight(self.class_weight, y)
        else:  # all classes get the same sum of weights
            labels = np.unique(y, return_inverse=True)[1]
            sums = np.bincount(labels, sample_weight)
            present = sums > 0.0
            of_rows = (np.mean(sums[present]) / np.where(present, sums, 1.0))[labels]
        return self._checked_weights(
            of_rows if sample_weight is None else sample_weight * of_rows, len(y)
        )

    def _fit_labels(self, X, labels, sample_weight=None):
        if len(self.classes_) < 2:
            raise ValueError(
                "`y` must have at least two classes. "
                f"Received: y with {len(self.classes_)} classes, {self.classes_.tolist()}"
            )
        return self._fit(X, labels, sample_weight, num_classes=len(self.classes_))

    def predict_proba(self, X: ArrayLike) -> Array:
        """Predicts the probability of each class, in the order of `classes_`.

        Args:
            X: As for `fit`.

        Returns:
            Array `[N, K]`.
        """
        return self.predict_entropies(X)["probabilities"]

    def predict_entropies(self, X: ArrayLike) -> dict[str, Array]:
        """Predicts the probability of each class, how uncertain the label is, and why.

        Args:
            X: As for `fit`.

        Returns:
            Dict of `probabilities` `[N, K]`, in the order of `classes_`; `entropy` `[N]` of the
            label; and `mutual_information` `[N]` between the label and the function, the part of
            the entropy that more rows would reduce. Both are in nats.
        """
        found = {name: values.astype(np.float64) for name, values in self._predict(X).items()}
        total = np.sum(found["probabilities"], axis=1, keepdims=True)
        return {**found, "probabilities": found["probabilities"] / total}

    def predict(self, X: ArrayLike) -> Array:
        """Predicts the most probable class.

        Args:
            X: As for `fit`.

        Returns:
            Array `[N]` of labels.
        """
        probabilities = self.predict_proba(X)
        return self.classes_[np.argmax(probabilities, axis=1)]

    def _served(self, outputs):
        num_rows = tf.shape(outputs["probabilities"])[0]
        return {**outputs, "labels": label_rows(self.classes_, num_rows)}


def recipe_of(method: str) -> ModuleType:
    """Returns the recipe module of a method, given the name of its folder."""
    return importlib.import_module(f"tfp_fnspace.methods.{method}.recipe")


def method_of(recipe: ModuleType) -> str:
    """Returns the name of the folder of a recipe module."""
    return recipe.__name__.split(".")[-2]


def _seed(random_state):
    return int(check_random_state(random_state).randint(_MOST_SEEDS))
