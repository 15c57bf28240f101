"""The mathematics of the metrics of classes, made like those of `scores`."""

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_fnspace.boundary.arguments import check_count
from tfp_fnspace.distributions.quantile import marginals
from tfp_fnspace.metrics.scores import Score, align, weighted
from tfp_fnspace.typing import ArrayLike, Distribution, Tensor

tfd = tfp.distributions


def accuracy() -> Score:
    """Makes the score of `functions_of_classes.accuracy`."""

    def sums(y, distribution, row_weights=None):
        hit, _, observed = _predictions(y, distribution)
        return (tf.reduce_sum(weighted(values, row_weights)) for values in (hit, observed))

    return Score(sums)


def brier_score() -> Score:
    """Makes the score of `functions_of_classes.brier_score`."""

    def sums(y, distribution, row_weights=None):
        labels, probs, observed = class_probabilities(y, distribution)
        observed = weighted(observed, row_weights)
        num_classes = probs.shape[-1]
        errors = probs - tf.one_hot(labels, num_classes, dtype=probs.dtype)
        values = tf.reduce_sum(tf.square(errors), axis=-1) * (0.5 if num_classes == 2 else 1.0)
        return tf.reduce_sum(values * observed), tf.reduce_sum(observed)

    return Score(sums)


def expected_calibration_error(num_bins: int) -> Score:
    """Makes the score of `functions_of_classes.expected_calibration_error`."""
    check_count("num_bins", num_bins)

    def sums(y, distribution, row_weights=None):
        hit, confidence, observed = _predictions(y, distribution)
        hit, observed = (weighted(values, row_weights) for values in (hit, observed))
        bins = tf.cast(tf.math.ceil(confidence * num_bins), tf.int32) - 1
        bins = tf.reshape(tf.clip_by_value(bins, 0, num_bins - 1), [-1])
        gaps = tf.reshape(hit - observed * confidence, [-1])
        return tf.math.unsorted_segment_sum(gaps, bins, num_bins), tf.reduce_sum(observed)

    return Score(sums, lambda gaps: tf.reduce_sum(tf.abs(gaps)), shape=(num_bins,))


def _predictions(y, distribution):
    """Returns hits, confidences and 1 where observed, else 0, all `[N]` or `[N, D]`."""
    labels, probs, observed = class_probabilities(y, distribution)
    right = tf.equal(tf.argmax(probs, axis=-1), tf.cast(labels, tf.int64))
    return tf.cast(right, probs.dtype) * observed, tf.reduce_max(probs, axis=-1), observed


def class_probabilities(y: ArrayLike, distribution: Distribution) -> tuple[Tensor, Tensor, Tensor]:
    """Returns labels, the probabilities of all classes, and where labels are observed.

    Args:
        y: Labels, as for `functions_of_classes.accuracy`.
        distribution: `tfd.Categorical` or (independent) `tfd.Bernoulli`.

    Returns:
        int32 tensor `[N]` or `[N, D]`, 0 where missing; probabilities `[N, K]` or `[N, D, 2]`; and
        1 where observed, else 0, like the labels and of the dtype of the probabilities.

    Raises:
        TypeError: If the distribution is of another kind.
    """
    _, observed, filled = align(y, distribution)
    scalar = marginals(distribution)
    if isinstance(scalar, tfd.Categorical):
        probs = scalar.probs_parameter()  # [N, K]
    elif isinstance(scalar, tfd.Bernoulli):
        probs = scalar.probs_parameter()
        probs = tf.stack([1.0 - probs, probs], axis=-1)  # [N, D, 2]
    else:
        raise TypeError(
            "Scores of classes need tfd.Categorical or (independent) tfd.Bernoulli. "
            f"Received: distribution={distribution}"
        )
    return tf.cast(filled, tf.int32), probs, tf.cast(observed, probs.dtype)
