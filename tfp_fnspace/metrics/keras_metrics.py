"""The metrics as Keras metrics, which accumulate over batches.

Each keeps a sum and a count, so the result over batches of any sizes equals the function of the
same name on all rows, but for the draws of `EnergyScore`. With weights of rows, means are weighted
means. Sums and counts are float64 unless another dtype is given.
"""

import keras
import tensorflow as tf

from tfp_fnspace.boundary.arguments import checked_count
from tfp_fnspace.boundary.weights import checked_weights
from tfp_fnspace.metrics import scores, scores_of_classes
from tfp_fnspace.typing import ArrayLike, Config, Distribution, Tensor


class _ScoreMetric(keras.metrics.Metric):
    """Accumulates a `Score`; a subclass chooses the score and stores its options."""

    #: Models pass the predictive distribution to metrics with this mark, and its mean to others.
    takes_distribution = True

    # The direction for callbacks with `mode="auto"`; `None` if neither direction is better.
    _direction = "down"

    def __init__(
        self, score: scores.Score, name: str | None, dtype: str | keras.DTypePolicy | None
    ):
        # Squares of targets in large units may be too large for float32.
        super().__init__(name=name, dtype=dtype or "float64")
        self._score = score
        # Keras gives weights the global float type, whatever the dtype of the metric is.
        options = {"initializer": "zeros", "dtype": self.dtype}
        self.total = self.add_weight(shape=score.shape, name="total", **options)
        self.count = self.add_weight(shape=(), name="count", **options)

    def update_state(
        self,
        y_true: ArrayLike,
        distribution: Distribution,
        sample_weight: ArrayLike | None = None,
    ) -> None:
        """Adds a batch.

        Args:
          y_true: tensor `[N, D]` or `[N]`, `NaN` where missing.
          distribution: `tfd.Distribution` over it, batch `[N]` and event `[D]`.
          sample_weight: positive weights `[N]` of the rows, 1 if None.

        Raises:
          TypeError: if `distribution` is not a distribution that the metric can treat.
          ValueError: if the shapes do not match or a weight is not positive (tensors are not
            checked).
        """
        if sample_weight is not None and not tf.is_tensor(sample_weight):
            sample_weight = tf.constant(checked_weights(sample_weight, len(y_true)))
        total, count = self._sums(y_true, distribution, sample_weight)
        self.total.assign_add(tf.cast(total, self.dtype))
        self.count.assign_add(tf.cast(count, self.dtype))

    def _sums(self, y, distribution, row_weights):
        return self._score.sums(y, distribution, row_weights)

    def result(self) -> Tensor:
        """Returns the metric over all batches so far, a scalar; `NaN` before the first."""
        total, count = (tf.convert_to_tensor(v.value) for v in (self.total, self.count))
        return self._score.finish(total / count)


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class RMSE(_ScoreMetric):
    """Root mean squared error of the predictive mean: `metrics.rmse` over batches.

    Args:
      name: string.
      dtype: dtype of the sums, float64 if None.
    """

    def __init__(self, name: str = "rmse", dtype: str | keras.DTypePolicy | None = None):
        super().__init__(scores.rmse(), name, dtype)


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class MAE(_ScoreMetric):
    """Mean absolute error of the predictive median: `metrics.mae` over batches.

    Args:
      name: string.
      dtype: dtype of the sums, float64 if None.
    """

    def __init__(self, name: str = "mae", dtype: str | keras.DTypePolicy | None = None):
        super().__init__(scores.mae(), name, dtype)


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class NLL(_ScoreMetric):
    """Negative log predictive density, joint over outputs: `metrics.nll` over batches.

    Args:
      name: string.
      dtype: dtype of the sums, float64 if None.
    """

    def __init__(self, name: str = "nll", dtype: str | keras.DTypePolicy | None = None):
        super().__init__(scores.nll(), name, dtype)


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class IntervalCensoredNLL(_ScoreMetric):
    """Negative log probability of intervals: `metrics.interval_censored_nll` over batches.

    Args:
      name: string.
      dtype: dtype of the sums, float64 if None.
    """

    #: Models pass targets that are limits to metrics with this mark, and known values to others.
    takes_limits = True

    def __init__(
        self, name: str = "interval_censored_nll", dtype: str | keras.DTypePolicy | None = None
    ):
        super().__init__(scores.interval_censored_nll(), name, dtype)


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class CRPS(_ScoreMetric):
    """Continuous ranked probability score: `metrics.crps` over batches.

    Args:
      name: string.
      dtype: dtype of the sums, float64 if None.
    """

    def __init__(self, name: str = "crps", dtype: str | keras.DTypePolicy | None = None):
        super().__init__(scores.crps(), name, dtype)


class _LevelMetric(_ScoreMetric):
    """Metric with a `level`: the probability of the central interval, or below a quantile."""

    def __init__(
        self,
        score: scores.Score,
        level: float,
        name: str | None,
        dtype: str | keras.DTypePolicy | None,
    ):
        super().__init__(score, name, dtype)
        self.level = float(level)

    def get_config(self) -> Config:
        return {"level": self.level, **super().get_config()}


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class IntervalCoverage(_LevelMetric):
    """Coverage of the central predictive interval: `metrics.interval_coverage` over batches.

    Args:
      level: float in (0, 1).
      name: string, `coverage_90` for level 0.9 if None.
      dtype: dtype of the sums, float64 if None.

    Raises:
      ValueError: if `level` is outside (0, 1).
    """

    _direction = None  # closer to the level is better

    def __init__(
        self,
        level: float = 0.9,
        name: str | None = None,
        dtype: str | keras.DTypePolicy | None = None,
    ):
        name = name or f"coverage_{100 * level:g}"
        super().__init__(scores.interval_coverage(level), level, name, dtype)


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class IntervalWidth(_LevelMetric):
    """Width of the central predictive interval: `metrics.interval_width` over batches.

    Args:
      level: float in (0, 1).
      name: string, `width_90` for level 0.9 if None.
      dtype: dtype of the sums, float64 if None.

    Raises:
      ValueError: if `level` is outside (0, 1).
    """

    def __init__(
        self,
        level: float = 0.9,
        name: str | None = None,
        dtype: str | keras.DTypePolicy | None = None,
    ):
        name = name or f"width_{100 * level:g}"
        super().__init__(scores.interval_width(level), level, name, dtype)


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class IntervalScore(_LevelMetric):
    """Score of the central predictive interval: `metrics.interval_score` over batches.

    Args:
      level: float in (0, 1).
      name: string, `interval_score_90` for level 0.9 if None.
      dtype: dtype of the sums, float64 if None.

    Raises:
      ValueError: if `level` is outside (0, 1).
    """

    def __init__(
        self,
        level: float = 0.9,
        name: str | None = None,
        dtype: str | keras.DTypePolicy | None = None,
    ):
        name = name or f"interval_score_{100 * level:g}"
        super().__init__(scores.interval_score(level), level, name, dtype)


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class PinballLoss(_LevelMetric):
    """Pinball loss of a predictive quantile: `metrics.pinball_loss` over batches.

    Args:
      level: float in (0, 1), the probability below the quantile.
      name: string, `pinball_90` for level 0.9 if None.
      dtype: dtype of the sums, float64 if None.

    Raises:
      ValueError: if `level` is outside (0, 1).
    """

    def __init__(
        self,
        level: float,
        name: str | None = None,
        dtype: str | keras.DTypePolicy | None = None,
    ):
        name = name or f"pinball_{100 * level:g}"
        super().__init__(scores.pinball_loss(level), level, name, dtype)


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class DawidSebastianiScore(_ScoreMetric):
    """Score of mean and variance: `metrics.dawid_sebastiani_score` over batches.

    Args:
      name: string.
      dtype: dtype of the sums, float64 if None.
    """

    def __init__(
        self, name: str = "dawid_sebastiani", dtype: str | keras.DTypePolicy | None = None
    ):
        super().__init__(scores.dawid_sebastiani_score(), name, dtype)


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class EnergyScore(_ScoreMetric):
    """Energy score of the joint distribution of the outputs: `metrics.energy_score` over batches.

    With several outputs each batch has its own draws, so the result depends on the batches by the
    error of the estimate. With one output there are no draws.

    Args:
      num_samples: integer of at least 2, the number of draws of each row.
      seed: non-negative integer.
      name: string.
      dtype: dtype of the sums, float64 if None.

    Raises:
      ValueError: if `num_samples` or `seed` is something else.
    """

    def __init__(
        self,
        num_samples: int = 100,
        seed: int = 0,
        name: str = "energy_score",
        dtype: str | keras.DTypePolicy | None = None,
    ):
        seed = checked_count("seed", seed, 0)
        super().__init__(scores.energy_score(num_samples, seed), name, dtype)
        self.num_samples, self.seed = int(num_samples), seed

    def _sums(self, y, distribution, row_weights):
        rows = tf.cast(self.count.value, tf.int32)
        score = scores.energy_score(self.num_samples, self.seed, rows)
        return score.sums(y, distribution, row_weights)

    def get_config(self) -> Config:
        return {"num_samples": self.num_samples, "seed": self.seed, **super().get_config()}


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class CalibrationError(_ScoreMetric):
    """Distance of the PIT's frequencies from nominal: `metrics.calibration_error` over batches.

    Args:
      num_levels: positive integer.
      name: string.
      dtype: dtype of the sums, float64 if None.

    Raises:
      ValueError: if `num_levels` is not a positive integer.
    """

    def __init__(
        self,
        num_levels: int = 19,
        name: str = "calibration_error",
        dtype: str | keras.DTypePolicy | None = None,
    ):
        super().__init__(scores.calibration_error(num_levels), name, dtype)
        self.num_levels = int(num_levels)

    def get_config(self) -> Config:
        return {"num_levels": self.num_levels, **super().get_config()}


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class Accuracy(_ScoreMetric):
    """Fraction of labels that are the most probable class: `metrics.accuracy` over batches.

    Args:
      name: string.
      dtype: dtype of the sums, float64 if None.
    """

    _direction = "up"

    def __init__(self, name: str = "accuracy", dtype: str | keras.DTypePolicy | None = None):
        super().__init__(scores_of_classes.accuracy(), name, dtype)


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class BrierScore(_ScoreMetric):
    """Mean squared error of the probabilities of classes: `metrics.brier_score` over batches.

    Args:
      name: string.
      dtype: dtype of the sums, float64 if None.
    """

    def __init__(self, name: str = "brier", dtype: str | keras.DTypePolicy | None = None):
        super().__init__(scores_of_classes.brier_score(), name, dtype)


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class ExpectedCalibrationError(_ScoreMetric):
    """Calibration of classes: `metrics.expected_calibration_error` over batches.

    Args:
      num_bins: positive integer.
      name: string.
      dtype: dtype of the sums, float64 if None.

    Raises:
      ValueError: if `num_bins` is not a positive integer.
    """

    def __init__(
        self, num_bins: int = 15, name: str = "ece", dtype: str | keras.DTypePolicy | None = None
    ):
        super().__init__(scores_of_classes.expected_calibration_error(num_bins), name, dtype)
        self.num_bins = int(num_bins)

    def get_config(self) -> Config:
        return {"num_bins": self.num_bins, **super().get_config()}
