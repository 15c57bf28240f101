"""SavedModels of estimators, which take the columns of a table as they are."""

import keyword
import os
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from sklearn.utils.validation import check_is_fitted

from tfp_fnspace.boundary import arguments
from tfp_fnspace.export import ENDINGS, check_served_range, endpoints, saved_model
from tfp_fnspace.model import FunctionSpaceModel
from tfp_fnspace.sklearn.tables import TableEncoder
from tfp_fnspace.typing import Array, Tensor

#: Names that no column may have, since an argument of `sample` has them or Python does.
_TAKEN = ("seed", "self")


class WithExport:
    """Mixin of estimators, which writes them for programs without this library."""

    encoder_: TableEncoder
    model_: FunctionSpaceModel

    def export(
        self,
        filepath: str | os.PathLike[str],
        format: str = "tf_saved_model",
        num_samples: int = 100,
    ) -> None:
        """Writes what serves predictions without this library and without scikit-learn.

        A SavedModel takes the columns of the table as they are, each a named tensor `[N]`. Numbers
        are float64, where NaN is missing, and true is 1. Categories are text; the empty text is
        missing, and so is any word that `fit` has not seen. An array has the columns `x_0`, `x_1`
        ...; in a name each character other than ASCII letters, digits and `_` becomes `_`
        (`served.tensor_names` has the whole rule). It has the endpoints

        - `serve` (also `serving_default`): for a regressor what `predict_moments` returns, and
          `quantiles` at 5, 50 and 95 %, `[N, 3]` (`[N, D, 3]` if y had columns); for a classifier
          `probabilities` and their `labels`, both `[N, K]`, `entropy` and `mutual_information`
          `[N]`.
        - `sample`, which also takes a `seed`, an int32 tensor `[2]`: what `sample_functions`
          returns.

        All outputs of a row are NaN if one of its numbers is infinite.

        Programs of ONNX and LiteRT have no text. They take the numbers that the encoder makes of
        the columns, `encoder_.transform`, whose names are `encoder_.get_feature_names_out()`.

        Args:
            filepath: As for `FunctionSpaceModel.export`.
            format: As for `FunctionSpaceModel.export`.
            num_samples: As for `FunctionSpaceModel.export`.

        Raises:
            ImportError: If the format needs a package that is not installed.
            NotImplementedError: If the model computes something that the format cannot express.
            OSError: If `filepath` cannot be written; its content is then unchanged.
            TypeError: If `filepath` is not a path.
            ValueError: If the format is another one, the estimator is not fitted, or for a reason
                of `FunctionSpaceModel.export`.
        """
        arguments.checked_choice("format", format, ("tf_saved_model", *ENDINGS))
        check_is_fitted(self)
        if format in ENDINGS:
            self.model_.export(filepath, format=format)
            return
        num_samples = arguments.checked_count("num_samples", num_samples)
        encoder, model = self.encoder_, self._served_model()
        check_served_range(model)
        serve, sample = endpoints.serve_of(model), endpoints.sample_of(model, num_samples)

        def serve_columns(*columns):
            return self._served(serve(*encoded(encoder, columns)))

        def sample_columns(*inputs):
            *columns, seed = inputs
            return sample(*encoded(encoder, columns), seed)

        saved_model.write_saved_model(filepath, serve_columns, sample_columns, self._column_specs())

    def _column_specs(self):
        is_category = self.encoder_.is_category_
        names = tensor_names(getattr(self, "feature_names_in_", range(len(is_category))))
        return [
            tf.TensorSpec([None], tf.string if of_words else tf.float64, name=name)
            for name, of_words in zip(names, is_category, strict=True)
        ]

    def _served_model(self) -> FunctionSpaceModel:
        """Returns the model that takes what `encoded` returns."""
        return self.model_

    def _served(self, outputs: dict[str, Tensor]) -> dict[str, Tensor]:
        """Returns the tensors of the estimator for those of its model."""
        raise NotImplementedError


def tensor_names(columns: Iterable[Any]) -> list[str]:
    """Returns the names of the tensors of columns.

    Each character other than ASCII letters, digits and `_` becomes `_`. A name that does not begin
    with a letter, is a keyword of Python, or is `seed`, gets `x_` in front. A name that an earlier
    column has gets `_` at its end.

    Args:
        columns: Names of columns.
    """
    found = []
    for column in columns:
        name = re.sub("[^A-Za-z0-9_]", "_", str(column))
        if not name[:1].isalpha() or keyword.iskeyword(name) or name in _TAKEN:
            name = f"x_{name}"
        while name in found:
            name += "_"
        found.append(name)
    return found


def encoded(encoder: TableEncoder, columns: Sequence[Tensor]) -> list[Tensor]:
    """Computes `encoder.transform` in the graph, in float64.

    Args:
        encoder: Fitted encoder.
        columns: A tensor `[N]` for each column, numbers or text.

    Returns:
        List of a tensor `[N, X]`; or, if the encoder is for uncertain inputs and there is a column
        of numbers, of two: means, and variances, which are zero for all that is known.
    """
    of_words = encoder.is_category_
    numbers = [c for c, other in zip(columns, of_words, strict=True) if not other]
    words = [c for c, other in zip(columns, of_words, strict=True) if other]
    parts, missing = [], None
    if numbers:
        values, missing = _numbers(encoder, tf.stack(numbers, axis=1))
        parts += values
    if words:
        known = encoder.transformer_.named_transformers_["words"].categories_
        for column, texts in zip(words, known, strict=True):
            is_word = tf.equal(column[:, tf.newaxis], tf.constant(list(map(str, texts)), tf.string))
            parts.append(tf.cast(is_word, tf.float64))
    means = tf.concat(parts, axis=1)
    if missing is None or not encoder.uncertain:
        return [means]
    variances = tf.where(missing, encoder.variances_, tf.zeros_like(encoder.variances_))
    return [means, tf.pad(variances, [[0, 0], [0, means.shape[1] - variances.shape[1]]])]


def _numbers(encoder, values):
    """Returns the parts of the inputs that are made of numbers `[N, P]`, and which are missing."""
    squashed = tf.asinh((values - encoder.medians_) / encoder.scales_)
    values = tf.where(np.isfinite(encoder.scales_), squashed, values)
    missing = tf.math.is_nan(values)
    imputer = encoder.transformer_.named_transformers_["numbers"]
    parts = [tf.where(missing, imputer.statistics_, values)]
    if imputer.add_indicator:
        marked = tf.gather(missing, imputer.indicator_.features_, axis=1)
        parts.append(tf.cast(marked, tf.float64))
    return parts, missing


def label_rows(classes: Array, num_rows: Tensor) -> Tensor:
    """Returns the classes `[K]` as rows `[N, K]`, numbers as they are and all else as text."""
    is_number = classes.dtype.kind in "biuf"
    values = tf.constant(classes if is_number else [str(label) for label in classes])
    return tf.tile(values[tf.newaxis], [num_rows, 1])
