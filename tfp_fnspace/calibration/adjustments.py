"""What is done to a predictive distribution: small objects that a `CalibratedModel` has."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_fnspace.boundary import arguments, arrays
from tfp_fnspace.distributions.quantile import is_independent, is_mixture, marginals
from tfp_fnspace.distributions.recalibrated import Recalibrated
from tfp_fnspace.model.summary import Predicted
from tfp_fnspace.typing import Array, ArrayLike, Config, Distribution, Tensor

tfd = tfp.distributions

#: Families that a change of location and scale does not leave.
_FAMILIES = (tfd.Normal, tfd.StudentT, tfd.JohnsonSU)


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class Scaling:
    r"""The whole predictive distribution is stretched about its mean.

        y'_d = m_d + c_d (y_d - m_d)

    All standard deviations are multiplied by c_d, those of f and of the noise too. The distribution
    stays in its family: Gaussian, Student t, Johnson's S_U, or a mixture of these.

    Args:
        scale: List of D positive numbers c_d, one for each column of the targets.

    Attributes:
        scale: float64 array `[D]`.

    Raises:
        ValueError: If a number is not positive and finite.
    """

    is_of_classes = False

    def __init__(self, scale: ArrayLike):
        self.scale = _positive("scale", scale)

    @property
    def num_columns(self) -> int:
        """D."""
        return len(self.scale)

    def distribution(self, distribution: Distribution) -> Distribution:
        """Returns the stretched distribution.

        Args:
            distribution: `tfd.Distribution`, batch `[N]`, event `[D]`.

        Raises:
            TypeError: If it is of another family.
        """
        mean = location(distribution)
        if is_mixture(distribution):
            components = self._stretched(
                distribution.components_distribution.distribution, mean[:, tf.newaxis]
            )
            return tfd.MixtureSameFamily(distribution.mixture_distribution, _columns(components))
        return _columns(self._stretched(distribution.distribution, mean))

    def _stretched(self, scalar, mean):
        """Stretches distributions of numbers, batch `[..., D]`, about given means."""
        scale = tf.constant(self.scale, scalar.dtype)
        return scalar.copy(loc=mean + scale * (scalar.loc - mean), scale=scale * scalar.scale)

    def tensors(self, found: dict[str, Tensor], distribution: Distribution) -> dict[str, Tensor]:
        """Returns the tensors of `predict`, for those of the member."""
        return {
            name: value if name == "mean" else tf.constant(self.scale, value.dtype) * value
            for name, value in found.items()
        }

    def functions(self, draws: Tensor, found: Predicted) -> Tensor:
        """Returns functions `[S, N, D]`, for those of the member and what it predicts."""
        mean = tf.cast(found.tensors()["mean"], draws.dtype)
        return mean + tf.constant(self.scale, draws.dtype) * (draws - mean)

    def get_config(self) -> Config:
        return {"scale": self.scale.tolist()}

    @classmethod
    def from_config(cls, config: Config) -> "Scaling":
        return cls(**config)


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class Recalibration:
    r"""The distribution function F of each column is mapped, `G(y) = R(F(y))`.

    R is piecewise linear and rises from 0 to 1. See `distributions.recalibrated.Recalibrated`. The
    columns of the targets become independent of each other. The variances of f and of the noise
    keep their shares of the total. A function draw keeps its distance from the mean, in units of
    the standard deviation.

    Args:
        levels: `[J + 1, D]`, levels of F in each column, from 0 to 1. They rise strictly, and a
            column with fewer pieces ends in several ones.
        values: `[J + 1, D]`, the values of R there, in the same way.

    Attributes:
        levels: float64 array.
        values: float64 array.

    Raises:
        ValueError: If the numbers do not rise from 0 to 1.
    """

    is_of_classes = False

    def __init__(self, levels: ArrayLike, values: ArrayLike):
        self.levels, self.values = (np.asarray(v, np.float64) for v in (levels, values))
        shapes = self.levels.shape, self.values.shape
        if len(shapes[0]) != 2 or shapes[0] != shapes[1] or shapes[0][0] < 2:
            raise ValueError(
                "`levels` and `values` must have a row for each knot, at least two, and a column "
                f"for each column of the targets. Received: shapes {shapes[0]} and {shapes[1]}"
            )
        both = np.stack([self.levels, self.values])
        rises = (np.diff(both, axis=1) > 0.0) | (both[:, 1:] == 1.0)
        if not np.all(rises) or np.any(both[:, 0] != 0.0) or np.any(both[:, -1] != 1.0):
            raise ValueError(
                "`levels` and `values` must rise from 0 to 1 in each column. "
                f"Received: levels={self.levels.tolist()}, values={self.values.tolist()}"
            )

    @property
    def num_columns(self) -> int:
        """D."""
        return self.levels.shape[1]

    def distribution(self, distribution: Distribution) -> Distribution:
        """Returns the mapped distribution, for one with batch `[N]` and event `[D]`."""
        return _columns(Recalibrated(marginals(distribution), self.levels, self.values))

    def tensors(self, found: dict[str, Tensor], distribution: Distribution) -> dict[str, Tensor]:
        """Returns the tensors of `predict`, for those of the member and the mapped distribution."""
        mean, variance = distribution.distribution.moments()
        squares = {
            name: tf.square(tf.cast(found[name], variance.dtype))
            for name in ("epistemic_stddev", "aleatoric_stddev")
        }
        total = tf.add_n(list(squares.values()))
        return {
            "mean": mean,
            "stddev": tf.sqrt(variance),
            **{
                name: tf.sqrt(tf.math.divide_no_nan(square, total) * variance)
                for name, square in squares.items()
            },
        }

    def functions(self, draws: Tensor, found: Predicted) -> Tensor:
        """Returns functions `[S, N, D]`, for those of the member and what it predicts."""
        before = found.tensors()
        after = self.distribution(found.distribution()).distribution.moments()
        mean, stddev = (tf.cast(before[name], draws.dtype) for name in ("mean", "stddev"))
        scaled = tf.math.divide_no_nan(draws - mean, stddev)
        return tf.cast(after[0], draws.dtype) + tf.cast(tf.sqrt(after[1]), draws.dtype) * scaled

    def get_config(self) -> Config:
        return {"levels": self.levels.tolist(), "values": self.values.tolist()}

    @classmethod
    def from_config(cls, config: Config) -> "Recalibration":
        return cls(**config)


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class Tempering:
    r"""Probabilities of classes are raised to a power and normalised.

        p'_k = p_k^(1/T) / sum_j p_j^(1/T)

    T > 1 makes them less certain; their order stays. Independent binary outputs have a temperature
    each. The mutual information keeps its share of the entropy.

    Args:
        temperature: List of positive numbers: one, or one for each binary output.

    Attributes:
        temperature: float64 array `[1]` (`[D]`).

    Raises:
        ValueError: If a number is not positive and finite.

    References:
        Guo, Pleiss, Sun and Weinberger (2017), "On calibration of modern neural networks", ICML.
    """

    is_of_classes = True

    def __init__(self, temperature: ArrayLike):
        self.temperature = _positive("temperature", temperature)

    @property
    def num_columns(self) -> int:
        """Columns of the targets."""
        return len(self.temperature)

    def tensors(self, found: dict[str, Tensor], are_binary: bool) -> dict[str, Tensor]:
        """Returns the tensors of `predict`, for those of the member.

        Args:
            found: Dict with `probabilities` `[N, K]`, `entropy` and `mutual_information` `[N]`.
            are_binary: Whether the probabilities are those of independent binary outputs.
        """
        given = found["probabilities"]
        outcomes = tf.stack([1.0 - given, given], axis=-1) if are_binary else given[:, tf.newaxis]
        tiny = np.finfo(given.dtype.as_numpy_dtype).tiny
        logs = tf.math.log(tf.maximum(outcomes, tiny))  # [N, columns, outcomes]
        temperature = tf.constant(self.temperature, given.dtype)[:, tf.newaxis]
        outcomes = tf.nn.softmax(logs / temperature)
        entropy = -tf.reduce_sum(tf.math.xlogy(outcomes, outcomes), axis=[1, 2])
        share = tf.math.divide_no_nan(found["mutual_information"], found["entropy"])
        return {
            "probabilities": outcomes[..., 1] if are_binary else outcomes[:, 0],
            "entropy": entropy,
            "mutual_information": share * entropy,
        }

    def get_config(self) -> Config:
        return {"temperature": self.temperature.tolist()}

    @classmethod
    def from_config(cls, config: Config) -> "Tempering":
        return cls(**config)


def location(distribution: Distribution) -> Tensor:
    """Returns the mean of each column, `[N, D]`; for Student t, the location.

    Args:
        distribution: `tfd.Distribution`, batch `[N]`, event `[D]`.

    Raises:
        TypeError: If a factor of the spread would leave its family.
    """
    mixture = is_mixture(distribution)
    independent = distribution.components_distribution if mixture else distribution
    scalar = independent.distribution if is_independent(independent) else None
    if not isinstance(scalar, _FAMILIES):
        raise TypeError(
            "A factor of the spread is for predictive distributions that are Gaussian, Student t, "
            "Johnson's S_U or mixtures of these. Calibrate before `recalibrate`; for others take "
            "`recalibrate` alone, or `SplitConformal`. "
            f"Received: a predictive distribution {distribution}"
        )
    mean = scalar.mean() if isinstance(scalar, tfd.JohnsonSU) else scalar.loc
    if not mixture:
        return mean
    weights = tf.nn.softmax(distribution.mixture_distribution.logits_parameter())  # [N, K] or [K]
    return tf.reduce_sum(tf.cast(weights, mean.dtype)[..., tf.newaxis] * mean, axis=-2)


def _columns(scalar):
    return tfd.Independent(scalar, reinterpreted_batch_ndims=1)


def _positive(name: str, values: Any) -> Array:
    array = arrays.as_array(values, name).astype(np.float64)
    if array.ndim != 1 or not len(array):
        raise ValueError(
            f"`{name}` must be a list with a number for each column. Received: {name}={values!r}"
        )
    return np.array([arguments.checked_positive(name, float(value)) for value in array])
