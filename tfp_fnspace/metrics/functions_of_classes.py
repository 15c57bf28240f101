"""Metrics of classes as functions of all rows at once; see `functions` for what all share."""

from tfp_fnspace.metrics import scores, scores_of_classes
from tfp_fnspace.typing import ArrayLike, Distribution, Tensor


def accuracy(y: ArrayLike, distribution: Distribution) -> Tensor:
    """Returns the fraction of the labels that are the most probable class.

    Args:
      y: labels, `[N]` or `[N, 1]` for `tfd.Categorical`, `[N, D]` for independent Bernoulli
        outputs, each of which counts; `NaN` where missing.
      distribution: `tfd.Categorical` with batch `[N]`, or `tfd.Bernoulli` with batch `[N, D]` or
        within `tfd.Independent`.

    Returns:
      Scalar tensor in [0, 1].

    Raises:
      TypeError: if the distribution is of another kind.
    """
    return scores.evaluate(scores_of_classes.accuracy(), y, distribution)


def expected_calibration_error(
    y: ArrayLike, distribution: Distribution, num_bins: int = 15
) -> Tensor:
    """Returns the mean distance between the confidence in the predicted class and its accuracy.

        ECE = sum_b n_b / n |accuracy of bin b - mean confidence of bin b|

    The confidence is the probability of the most probable class. Bin b = 1, ..., B holds the n_b
    predictions with confidence in `((b - 1) / B, b / B]`. With few predictions in a bin it is above
    0 even for a calibrated classifier.

    Args:
      y: as for `accuracy`.
      distribution: as for `accuracy`.
      num_bins: positive integer, B.

    Returns:
      Scalar tensor in [0, 1].

    Raises:
      TypeError: if the distribution is of another kind.
      ValueError: also if `num_bins` is not a positive integer.

    References:
      Guo, Pleiss, Sun and Weinberger (2017), On calibration of modern neural networks, equation 3.
    """
    return scores.evaluate(scores_of_classes.expected_calibration_error(num_bins), y, distribution)


def brier_score(y: ArrayLike, distribution: Distribution) -> Tensor:
    """Returns the mean squared error of the probabilities.

        BS = 1/N sum_n sum_k (p_nk - 1{y_n = k})^2        for three or more classes
        BS = 1/N sum_n (p_n1 - y_n)^2                     for two

    For two classes this is half the sum over the classes. scikit-learn's `brier_score_loss` has the
    same convention. The score is proper: it rewards calibration and sharpness at once. Unlike that
    of `nll`, the loss of a row is bounded, by 2 or 1.

    Args:
      y: as for `accuracy`.
      distribution: as for `accuracy`.

    Returns:
      Scalar tensor in [0, 2], for two classes in [0, 1].

    Raises:
      TypeError: if the distribution is of another kind.

    References:
      Brier (1950), Verification of forecasts expressed in terms of probability, Monthly Weather
      Review 78.
    """
    return scores.evaluate(scores_of_classes.brier_score(), y, distribution)
