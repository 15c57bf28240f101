"""Metrics as functions of all rows at once.

Every function takes `y` of shape `[N, D]` (or `[N]` where D = 1) and a predictive distribution over
it with batch `[N]` and event `[D]` (or batch `[N]` or `[N, D]` and a scalar event), and returns a
scalar of the distribution's dtype. `NaN` in `y` means *not observed*, and is ignored. If nothing at
all is observed, the result is `NaN`.

`y` may be an array, a list, a data frame or a tensor; masked values, `None` and `pandas.NA` are
also missing. All functions raise a `TypeError` if `y` has values that are not real numbers, or if
the second argument is not a distribution that they support. They raise a `ValueError` if the shapes
do not match or if `y` has infinite values (tensors are not checked while a graph is traced).
"""

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_fnspace.metrics import scores
from tfp_fnspace.typing import ArrayLike, Distribution, Seed, Tensor

tfd = tfp.distributions


def rmse(y: ArrayLike, distribution: Distribution) -> Tensor:
    """Returns the root mean squared error of the predictive mean, over the observed entries.

    Example:
    >>> distribution = tfd.Independent(tfd.Normal([[0.0], [0.0]], 1.0), 1)
    >>> float(rmse([[3.0], [3.0]], distribution))
    3.0

    Args:
      y: tensor `[N, D]` or `[N]`, `NaN` where missing.
      distribution: `tfd.Distribution` with batch `[N]` and event `[D]`.

    Returns:
      Scalar tensor, in the units of `y`.
    """
    return scores.evaluate(scores.rmse(), y, distribution)


def mae(y: ArrayLike, distribution: Distribution) -> Tensor:
    """Returns the mean absolute error of the predictive *median*, over the observed entries.

    The median, not the mean, minimises the expected absolute error. The two differ if the
    predictive distribution is skewed.

    Args:
      y: tensor `[N, D]` or `[N]`, `NaN` where missing.
      distribution: `tfd.Distribution` with batch `[N]` and event `[D]`.

    Returns:
      Scalar tensor, in the units of `y`.
    """
    return scores.evaluate(scores.mae(), y, distribution)


def nll(y: ArrayLike, distribution: Distribution) -> Tensor:
    """Returns the mean over rows of the negative joint log predictive density of the outputs.

        nll = -1/N sum_n log p(y_n1, ..., y_nD)

    Missing entries are integrated out if that only means to leave out factors: for independent
    outputs, and for mixtures whose components have independent outputs. Otherwise a row with a
    missing entry is left out. A row in which nothing is observed does not count.

    Args:
      y: tensor `[N, D]` or `[N]`, `NaN` where missing.
      distribution: `tfd.Distribution` with batch `[N]` and event `[D]`.

    Returns:
      Scalar tensor, in nats.

    Raises:
      TypeError: also for `tfd.Empirical`, which has no density.
    """
    return scores.evaluate(scores.nll(), y, distribution)


def interval_censored_nll(limits: ArrayLike, distribution: Distribution) -> Tensor:
    """Returns the mean negative log probability of intervals, a density where they are one value.

        -1/N sum_n log P(low_n < y_n <= high_n)

    Outputs of a row are joint, as in `nll`. Example: a value above 0 and a value of 0 exactly.

    >>> distribution = tfd.Independent(tfd.Normal([[0.0], [0.0]], 1.0), 1)
    >>> round(float(interval_censored_nll([[0.0, np.inf], [0.0, 0.0]], distribution)), 4)
    0.806

    Args:
      limits: tensor `[N, 2 D]`: lower limits of D outputs, then upper ones. `-inf` and `inf` are no
        limits.
      distribution: `tfd.Distribution` with batch `[N]` and event `[D]`.

    Returns:
      Scalar tensor, in nats.

    Raises:
      TypeError: also for dependent outputs that are not a mixture of independent ones.
    """
    return scores.evaluate(scores.interval_censored_nll(), limits, distribution)


def crps(y: ArrayLike, distribution: Distribution) -> Tensor:
    """Returns the mean continuous ranked probability score over the observed entries.

        CRPS(F, y) = int (F(x) - 1{y <= x})^2 dx = E|X - y| - E|X - X'| / 2

    There are closed forms for Gaussian marginals, Gaussian mixtures and `tfd.Empirical`. For counts
    (`tfd.Poisson`, `tfd.NegativeBinomial` and mixtures of them) the integral is a sum over the
    integers, computed term by term up to counts of 2000, and as that of a smooth function beyond
    them (the relative error is below 1e-3). For mixtures of other components, and after
    `calibration.recalibrate`, the first integral is computed by quadrature (296 nodes; the relative
    error is about 1e-4, and 1e-3 if components are hundreds of times as far apart as they are wide,
    or for a recalibrated mixture). For any other marginals it is twice the integral of the pinball
    loss over the levels, by quadrature (32 nodes on either side of `F(y)`; the relative error is
    about 1e-4 or less for tails no heavier than Student's t with 3 degrees of freedom, and `y` must
    lie in the support).

    Args:
      y: tensor `[N, D]` or `[N]`, `NaN` where missing.
      distribution: `tfd.Distribution` with batch `[N]` and event `[D]`.

    Returns:
      Scalar tensor, in the units of `y`.

    References:
      Gneiting and Raftery (2007), Strictly proper scoring rules, JASA 102. Grimit et al. (2006),
      QJRMS 132 (mixtures). Laio and Tamea (2007), HESS 11 (pinball loss).
    """
    return scores.evaluate(scores.crps(), y, distribution)


def crps_from_samples(y: ArrayLike, samples: ArrayLike) -> Tensor:
    """Returns the continuous ranked probability score of the empirical distribution of samples.

        CRPS = 1/S sum_i |x_i - y| - 1/(2 S^2) sum_ij |x_i - x_j|

    It takes O(S log S) by sorting. This is the score of the S samples *as the forecast*. As an
    estimate of the score of their distribution it is too large by `E|X - X'| / (2 S)`.

    Args:
      y: tensor `[N, D]` or `[N]`, `NaN` where missing.
      samples: tensor `[S, N, D]` or `[S, N]`.

    Returns:
      Scalar tensor, the mean over the observed entries, in the units of `y`.

    Raises:
      ValueError: if `samples` does not have 2 or 3 axes, or does not match `y`.
    """
    samples = scores.as_observations(samples, name="samples")
    rank = samples.shape.rank
    if rank not in (2, 3):
        raise ValueError(
            f"samples must have shape [S, N, D] or [S, N]. Received: samples.shape={samples.shape}"
        )
    return crps(y, tfd.Empirical(tf.transpose(samples, [*range(1, rank), 0])))


def interval_coverage(y: ArrayLike, distribution: Distribution, level: float = 0.9) -> Tensor:
    """Returns the fraction of the observed entries inside the central predictive interval.

    The interval reaches from the quantile at `(1 - level) / 2` to that at `(1 + level) / 2`, both
    included.

    Args:
      y: tensor `[N, D]` or `[N]`, `NaN` where missing.
      distribution: `tfd.Distribution` with batch `[N]` and event `[D]`.
      level: float in (0, 1); a calibrated prediction covers this fraction.

    Returns:
      Scalar tensor in [0, 1].

    Raises:
      ValueError: also if `level` is outside (0, 1).
    """
    return scores.evaluate(scores.interval_coverage(level), y, distribution)


def interval_width(y: ArrayLike, distribution: Distribution, level: float = 0.9) -> Tensor:
    """Returns the mean width of the central predictive interval at the observed entries.

    Args:
      y: tensor `[N, D]` or `[N]`; only its shape and its missing entries (`NaN`) matter.
      distribution: `tfd.Distribution` with batch `[N]` and event `[D]`.
      level: float in (0, 1).

    Returns:
      Scalar tensor, in the units of `y`.

    Raises:
      ValueError: also if `level` is outside (0, 1).
    """
    return scores.evaluate(scores.interval_width(level), y, distribution)


def interval_score(y: ArrayLike, distribution: Distribution, level: float = 0.9) -> Tensor:
    """Returns the mean score of the central predictive interval, its width plus a penalty.

        IS = (u - l) + 2 / (1 - level) (max(l - y, 0) + max(y - u, 0))

    l and u are the ends of the interval of `interval_coverage`. The score is proper: it weighs the
    width of the interval against the observations outside.

    Args:
      y: tensor `[N, D]` or `[N]`, `NaN` where missing.
      distribution: `tfd.Distribution` with batch `[N]` and event `[D]`.
      level: float in (0, 1).

    Returns:
      Scalar tensor, the mean over the observed entries, in the units of `y`.

    Raises:
      ValueError: also if `level` is outside (0, 1).

    References:
      Gneiting and Raftery (2007), Strictly proper scoring rules, JASA 102, equation 43.
    """
    return scores.evaluate(scores.interval_score(level), y, distribution)


def pinball_loss(y: ArrayLike, distribution: Distribution, level: float) -> Tensor:
    """Returns the mean pinball loss of the predictive quantile q at a level.

        loss = max(level (y - q), (level - 1) (y - q))

    It judges this quantile alone. At the level 1/2 it is half of `mae`, and twice its integral over
    the levels is `crps`.

    Args:
      y: tensor `[N, D]` or `[N]`, `NaN` where missing.
      distribution: `tfd.Distribution` with batch `[N]` and event `[D]`.
      level: float in (0, 1), the probability below q.

    Returns:
      Scalar tensor, the mean over the observed entries, in the units of `y`.

    Raises:
      ValueError: also if `level` is outside (0, 1).
    """
    return scores.evaluate(scores.pinball_loss(level), y, distribution)


def dawid_sebastiani_score(y: ArrayLike, distribution: Distribution) -> Tensor:
    """Returns the mean score of the first two predictive moments of each output.

        DSS = (y - mean)^2 / variance + log variance

    For a Gaussian it is twice the negative log density, less log 2 pi. For other distributions it
    ignores all but the moments, and is `NaN` or infinite if they do not exist.

    Args:
      y: tensor `[N, D]` or `[N]`, `NaN` where missing.
      distribution: `tfd.Distribution` with batch `[N]` and event `[D]`.

    Returns:
      Scalar tensor, the mean over the observed entries.

    References:
      Dawid and Sebastiani (1999), Coherent dispersion criteria for optimal experimental design,
      Annals of Statistics 27.
    """
    return scores.evaluate(scores.dawid_sebastiani_score(), y, distribution)


def energy_score(
    y: ArrayLike, distribution: Distribution, num_samples: int = 100, seed: Seed = 0
) -> Tensor:
    """Returns the mean energy score of the joint distribution of the outputs.

        ES = E||X - y|| - E||X - X'|| / 2

    X and X' are independent draws of a row's outputs. With one output this is `crps`, and is
    computed as such, without draws. With several outputs it is estimated from S draws
    `x_1, ..., x_S` of each row, without bias:

        1/S sum_i ||x_i - y|| - 1/(2 S) sum_i ||x_i - x_{i-1}||,    x_0 = x_S

    The norm adds up squares over the outputs, so an output in large units dominates. Missing
    entries are left out of the norm. A row in which nothing is observed does not count.

    Args:
      y: tensor `[N, D]` or `[N]`, `NaN` where missing.
      distribution: `tfd.Distribution` with batch `[N]` and event `[D]`.
      num_samples: integer of at least 2, S.
      seed: integer or two integers; the same seed gives the same draws.

    Returns:
      Scalar tensor, in the units of `y`.

    Raises:
      ValueError: also if `num_samples` is not an integer of at least 2.

    References:
      Gneiting and Raftery (2007), Strictly proper scoring rules, JASA 102, section 4.3.
    """
    return scores.evaluate(scores.energy_score(num_samples, seed), y, distribution)


def calibration_error(y: ArrayLike, distribution: Distribution, num_levels: int = 19) -> Tensor:
    """Returns the mean distance of the frequencies of the PIT from their nominal values.

        1/L sum_k |#{n, d : F_nd(y_nd) <= q_k} / #{n, d} - q_k|,   q_k = k / (L + 1)

    With few rows it is above 0 even for a calibrated prediction, by about `0.3 / sqrt(N D)`.

    Args:
      y: tensor `[N, D]` or `[N]`, `NaN` where missing.
      distribution: `tfd.Distribution` with batch `[N]` and event `[D]`.
      num_levels: positive integer, L.

    Returns:
      Scalar tensor in [0, 1/2].

    Raises:
      ValueError: also if `num_levels` is not a positive integer.
    """
    return scores.evaluate(scores.calibration_error(num_levels), y, distribution)


def pit(y: ArrayLike, distribution: Distribution) -> Tensor:
    """Returns the probability integral transform, the marginal CDF at the observation.

    It is uniform on (0, 1) if the prediction is calibrated and continuous.

    Args:
      y: tensor `[N, D]` or `[N]`, `NaN` where missing.
      distribution: `tfd.Distribution` with batch `[N]` and event `[D]`.

    Returns:
      Tensor `[N, D]` in [0, 1], `NaN` where `y` is missing; `[N]` if the distribution has batch
      `[N]` and a scalar event.
    """
    return scores.pit(y, distribution)
