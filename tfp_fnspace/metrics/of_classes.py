"""Keras's metrics for classifiers: the form of the probabilities that each metric takes."""

import keras
import tensorflow as tf

from tfp_fnspace.typing import Tensor

_K = keras.metrics

#: Metrics of one-hot targets, which the models do not have, and what to use instead.
_ONE_HOT = {
    _K.CategoricalAccuracy: "SparseCategoricalAccuracy",
    _K.CategoricalCrossentropy: "SparseCategoricalCrossentropy",
    _K.TopKCategoricalAccuracy: "SparseTopKCategoricalAccuracy",
    _K.CategoricalHinge: "SparseCategoricalCrossentropy",
    _K.F1Score: "Precision and Recall",
    _K.FBetaScore: "Precision and Recall",
    _K.OneHotIoU: "MeanIoU",
    _K.OneHotMeanIoU: "MeanIoU",
}

#: Metrics of labels and of the probabilities of all classes.
_SPARSE = (
    _K.SparseCategoricalAccuracy,
    _K.SparseCategoricalCrossentropy,
    _K.SparseTopKCategoricalAccuracy,
)

#: Metrics of a number and its prediction, for binary targets 1 or 0 and the probability of 1.
_NUMBERS = (
    _K.ConcordanceCorrelation,
    _K.CosineSimilarity,
    _K.Hinge,
    _K.KLDivergence,
    _K.LogCoshError,
    _K.MeanAbsoluteError,
    _K.MeanAbsolutePercentageError,
    _K.MeanSquaredError,
    _K.MeanSquaredLogarithmicError,
    _K.PearsonCorrelation,
    _K.Poisson,
    _K.R2Score,
    _K.RootMeanSquaredError,
    _K.SquaredHinge,
)

#: Metrics of binary targets and the probability of 1.
_BINARY = (
    *_NUMBERS,
    _K.AUC,
    _K.BinaryAccuracy,
    _K.BinaryCrossentropy,
    _K.BinaryIoU,
    _K.FalseNegatives,
    _K.FalsePositives,
    _K.Precision,
    _K.PrecisionAtRecall,
    _K.Recall,
    _K.RecallAtPrecision,
    _K.SensitivityAtSpecificity,
    _K.SpecificityAtSensitivity,
    _K.TrueNegatives,
    _K.TruePositives,
)

#: Metrics of labels, true and predicted.
_LABELS = (_K.Accuracy, _K.IoU, _K.MeanIoU)


def check_class_metric(metric: keras.metrics.Metric, num_classes: int, num_columns: int) -> None:
    """Refuses a metric of Keras that cannot be right for a classifier.

    Args:
        metric: `keras.metrics.Metric`.
        num_classes: K, the number of classes of a column of targets.
        num_columns: Columns of the targets.

    Raises:
        ValueError: If the metric is for one-hot targets, for two classes or one column if there are
            more, or for logits.
    """
    received = f"Received: metric {type(metric).__name__} of {num_classes} classes"
    for kind, instead in _ONE_HOT.items():
        if isinstance(metric, kind):
            raise ValueError(
                f"`metrics` must be of labels, as the targets are, not of one-hot vectors: use "
                f"{instead}. {received}"
            )
    if isinstance(metric, _BINARY) and num_classes > 2:
        raise ValueError(
            f"{type(metric).__name__} must have two classes: for more, use metrics of labels, such "
            f"as SparseCategoricalAccuracy. {received}"
        )
    if isinstance(metric, _SPARSE) and num_columns > 1:
        raise ValueError(
            f"{type(metric).__name__} must have one column of labels: for several, use "
            f"BinaryAccuracy or BinaryCrossentropy. {received} in each of {num_columns} columns"
        )
    if getattr(metric, "from_logits", getattr(metric, "_from_logits", False)) or getattr(
        metric, "_fn_kwargs", {}
    ).get("from_logits"):
        raise ValueError(
            "`metrics` must take probabilities: use `from_logits=False`. "
            f"{received}, from_logits=True"
        )


def for_class_metric(
    metric: keras.metrics.Metric, probabilities: Tensor, num_columns: int
) -> Tensor:
    """Returns probabilities of classes in the form that a metric takes.

    Args:
        metric: `keras.metrics.Metric`.
        probabilities: Tensor `[N, K]` for the classes of one column of labels, or `[N, D]` of
            probabilities of 1 in each of D columns.
        num_columns: Columns of the targets.

    Returns:
        For binary metrics, the probabilities of class 1, `[N, 1]` or `[N, D]`. For metrics of the
        probabilities of labels, those of all classes, `[N, K]`. For metrics of labels, predicted
        labels. For other metrics, the probabilities as they are.
    """
    # Binary columns have as many probabilities as there are columns of targets.
    is_yes = probabilities.shape[-1] == num_columns
    if isinstance(metric, _BINARY):
        return probabilities if is_yes else probabilities[:, 1:]
    if isinstance(metric, _SPARSE) and is_yes:
        return tf.concat([1.0 - probabilities, probabilities], axis=1)
    if isinstance(metric, _LABELS):
        if is_yes:
            return tf.cast(probabilities > 0.5, probabilities.dtype)
        return tf.cast(tf.argmax(probabilities, axis=1)[:, tf.newaxis], probabilities.dtype)
    return probabilities
