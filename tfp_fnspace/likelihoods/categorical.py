"""Observations that are classes."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_fnspace.boundary.arguments import checked_positive
from tfp_fnspace.likelihoods.base import Likelihood, of_each, static_size, variance_of
from tfp_fnspace.math.expectations import normal_expectation, normal_nodes, stddev_of
from tfp_fnspace.math.normalized import NormalizedMoments, remax_moments, softmax_moments
from tfp_fnspace.math.random import as_seed
from tfp_fnspace.math.replicas import normal_of_rows
from tfp_fnspace.typing import ArrayLike, Config, Distribution, GaussianMoments, Seed, Tensor

tfd = tfp.distributions

#: The least number of values of the logits in an average over a mixture of Gaussians, and the
#: number of parts in which they are used. Each part has at least one value of every component.
_NUM_LOGITS, _NUM_PARTS = 800, 8


class _Classes(Likelihood):
    """Base of the likelihoods of classes.

    A subclass has `_averages(moments, seed)`: the mean probabilities `[N, D]` and the mean
    entropy given f `[N]`; `_entropy(probabilities)`, `[N]`; and `from_probabilities`.
    """

    is_classifier = True

    def __init__(self, **kwargs: Any):
        super().__init__(autocast=False, **kwargs)
        self.built = True

    def uncertainty(self, moments: GaussianMoments, seed: Seed = (0, 0)) -> dict[str, Tensor]:
        """Returns probabilities of the classes, and the share of the uncertainty that is about f.

        Args:
            moments: `GaussianMoments` of the logits, tensors `[S, N, D]`, an equal mixture of S
                components; `variance=None` for draws.
            seed: Seed of the nodes of the components, for `Categorical`; the same at all points.

        Returns:
            Dict with `probabilities` `[N, D]`, the means over f; `entropy` `[N]`, that of the label
            under these probabilities, in nats; and `mutual_information` `[N]` between the label and
            f, which is the entropy minus the mean entropy given f. For several Bernoulli outputs
            these are sums over the outputs.

        References:
            Houlsby et al. (2011), "Bayesian active learning for classification and preference
            learning", arXiv:1112.5745.
        """
        probabilities, conditional_entropy = self._averages(moments, seed)
        entropy = self._entropy(probabilities)
        information = tf.maximum(entropy - conditional_entropy, 0.0)
        return {
            "probabilities": probabilities,
            "entropy": entropy,
            "mutual_information": information,
        }

    def mixture(
        self, moments: GaussianMoments, unit: ArrayLike = 1.0, seed: Seed = (0, 0)
    ) -> Distribution:
        probabilities, _ = self._averages(moments, seed)
        return self.from_probabilities(probabilities)

    def predictive(self, moments: GaussianMoments, unit: ArrayLike = 1.0) -> Distribution:
        """Returns the distribution of the label for Gaussian f with moments `[N, D]`."""
        return self.mixture(one_component(moments), unit)

    def from_probabilities(self, probabilities: ArrayLike) -> Distribution:
        """Returns the distribution of the label for given probabilities, batch `[N]`."""
        raise NotImplementedError

    def _averages(self, moments: GaussianMoments, seed: Seed) -> tuple[Tensor, Tensor]:
        raise NotImplementedError

    def _entropy(self, probabilities: Tensor) -> Tensor:
        raise NotImplementedError


def one_component(moments: GaussianMoments) -> GaussianMoments:
    """Converts the moments of a Gaussian, `[N, D]`, to those of a mixture, `[1, N, D]`."""
    return of_each(lambda part: part[tf.newaxis], moments)


class Labels(_Classes):
    """Base of the likelihoods of integer labels.

    A subclass has `_log_probabilities(values)`, the logarithms `[..., N, K]` of the probabilities
    of the K classes for f of shape `[..., N, D]`, and `num_labels`.
    """

    def num_target_columns(self, num_outputs: int) -> int:
        return 1

    def log_prob(self, values: Tensor, targets: Tensor) -> Tensor:
        logs = self._log_probabilities(tf.convert_to_tensor(values))
        chosen = tf.one_hot(_labels(targets), logs.shape[-1], dtype=logs.dtype)  # [N, K]
        return tf.reduce_sum(chosen * logs, axis=-1)

    def expected_log_prob(
        self, moments: GaussianMoments, targets: Tensor, seed: Seed | None = None
    ) -> Tensor:
        """Estimates `Likelihood.expected_log_prob` from one draw of each f, without bias.

        Raises:
            ValueError: If there is no seed, and f is not known exactly.
        """
        mean, variance = moments
        if variance is None:
            return self.log_prob(mean, targets)
        if seed is None:
            raise ValueError(
                "The expected log-probability of a class is estimated by draws: pass a `seed`. "
                "Received: seed=None"
            )
        noise = normal_of_rows(tf.shape(mean), as_seed(seed), mean.dtype)
        return self.log_prob(mean + stddev_of(variance) * noise, targets)

    def _averages(self, moments: GaussianMoments, seed: Seed) -> tuple[Tensor, Tensor]:
        values = self._values(moments, as_seed(seed))
        parts = [tf.exp(self._log_probabilities(part)) for part in values]
        means = [tf.reduce_mean(p, axis=[0, 1]) for p in parts]
        entropies = [tf.reduce_mean(self._entropy(p), axis=[0, 1]) for p in parts]
        return tf.add_n(means) / len(parts), tf.add_n(entropies) / len(parts)

    def _values(self, moments: GaussianMoments, seed: Seed) -> list[Tensor]:
        """Returns values of f, a list of tensors `[S, K, N, D]` of equal sizes."""
        mean, variance = moments
        mean = mean[:, tf.newaxis]
        if variance is None:
            return [mean]
        size, outputs = static_size(mean, 0), static_size(mean, -1)
        nodes = _NUM_PARTS * -(-_NUM_LOGITS // (_NUM_PARTS * size))
        noise = normal_nodes(size, nodes, outputs, seed, mean.dtype)[:, :, tf.newaxis]
        stddev = stddev_of(variance)[:, tf.newaxis]
        return [mean + stddev * part for part in tf.split(noise, _NUM_PARTS, axis=1)]

    def _entropy(self, probabilities: Tensor) -> Tensor:
        return -tf.reduce_sum(tf.math.xlogy(probabilities, probabilities), axis=-1)

    def from_probabilities(self, probabilities: ArrayLike) -> Distribution:
        """Returns `tfd.Categorical`, batch `[N]`, for probabilities `[N, K]`."""
        probabilities = tf.convert_to_tensor(probabilities)
        tiny = np.finfo(probabilities.dtype.as_numpy_dtype).tiny
        return tfd.Categorical(logits=tf.math.log(tf.maximum(probabilities, tiny)))

    def probabilities(self, distribution: Distribution) -> Tensor:
        """Returns the probabilities `[N, K]` of a result of `from_probabilities`."""
        return distribution.probs_parameter()

    def _log_probabilities(self, values: Tensor) -> Tensor:
        raise NotImplementedError


def _labels(targets: Tensor) -> Tensor:
    """Returns integer labels `[N]`, from targets `[N]` or `[N, 1]`."""
    targets = tf.convert_to_tensor(targets)
    if len(targets.shape) != 1:
        targets = targets[..., 0]  # pyright: ignore[reportArgumentType]
    return tf.cast(targets, tf.int32)


class _Normalized(Labels):
    """One of D classes, with probabilities that are positive functions of f divided by their sum.

    A subclass has `_normalized(mean, variance)`, the `NormalizedMoments` of the probabilities of
    a Gaussian f.
    """

    def __init__(self, scale: float = 0.1, **kwargs: Any):
        super().__init__(**kwargs)
        self.scale = checked_positive("scale", scale)

    def check_outputs(self, num_outputs: int) -> None:
        if num_outputs < 2:
            raise ValueError(
                "A categorical likelihood needs a model with an output for each of at least 2 "
                f"classes. Received: {num_outputs} output"
            )

    def num_labels(self, num_outputs: int) -> int:
        return num_outputs

    def innovation(self, moments: GaussianMoments, targets: Tensor) -> tuple[Tensor, Tensor]:
        r"""Returns the innovations of f given a label, in closed form.

        The Gaussian moments of the probabilities follow from those of f (`NormalizedMoments`). The
        probabilities are observed with noise N(0, scale^2): 1 for the class of the label, 0 for the
        others. The D observations are treated as independent of each other given f, so with two
        classes the label counts twice.

        Args:
            moments: `GaussianMoments` of f, tensors `[N, D]`.
            targets: Labels `[N, 1]` or `[N]`.

        Returns:
            Pair of tensors `[N, D]`.
        """
        normalized = self._normalized(moments[0], variance_of(moments))
        mean = normalized.moments.mean
        precision = 1.0 / (variance_of(normalized.moments) + self.scale**2)
        observed = tf.one_hot(_labels(targets), mean.shape[-1], dtype=mean.dtype)
        return normalized.innovation((observed - mean) * precision, -precision)

    def closed_form_probabilities(self, moments: GaussianMoments) -> Tensor:
        """Returns the mean probabilities, normalised, for `GaussianMoments` `[N, D]` of f."""
        mean = self._normalized(moments[0], variance_of(moments)).moments.mean
        return mean / tf.reduce_sum(mean, axis=-1, keepdims=True)

    def get_config(self) -> Config:
        return {**super().get_config(), "scale": self.scale}

    def _normalized(self, mean: Tensor, variance: Tensor) -> NormalizedMoments:
        raise NotImplementedError


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class Categorical(_Normalized):
    """One of D classes, `p(y = k | f) = exp(f_k) / sum_j exp(f_j)`.

    The D outputs of the model are logits, one for each class. Targets are integer labels from 0 to
    D - 1, of shape `[N]` or `[N, 1]`. Expectations over Gaussian logits are not integrals of low
    dimension, so `expected_log_prob` draws the logits. Predictions average over Latin hypercubes,
    with at least 800 values in total and at least 8 for each component of a mixture. TAGI learns
    from labels in closed form, through log-normal moments (see `innovation`).

    Args:
        scale: Standard deviation of the noise with which TAGI observes probabilities, a positive
            number. Nothing else depends on it.
        **kwargs: `name`, `dtype`.
    """

    def _log_probabilities(self, values: Tensor) -> Tensor:
        return tf.nn.log_softmax(values)

    def _normalized(self, mean: Tensor, variance: Tensor) -> NormalizedMoments:
        return softmax_moments(mean, variance)


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class Remax(_Normalized):
    r"""One of D classes, `p(y = k | f) = max(f_k, 0) / sum_j max(f_j, 0)`.

    This is `Categorical` with rectified units instead of exponentials. The moments of max(f, 0) are
    exact, and only the division by the sum is log-normal. It is for TAGI. Predictions average over
    values of f as for `Categorical`; a value without any positive f gives all classes `1 / D`.

    Args:
        scale: Standard deviation of the noise with which TAGI observes probabilities, a positive
            number. Nothing else depends on it. Much smaller scales overfit, since rectified
            probabilities reach 0 and 1; those of `Categorical` do not.
        **kwargs: `name`, `dtype`.
    """

    def __init__(self, scale: float = 0.3, **kwargs: Any):
        super().__init__(scale, **kwargs)

    def _log_probabilities(self, values: Tensor) -> Tensor:
        # The floor keeps the logarithms finite, and the classes equal if no f is positive.
        floor = tf.constant(1e-10, values.dtype)
        logs = tf.math.log(tf.maximum(values, floor))
        return logs - tf.reduce_logsumexp(logs, axis=-1, keepdims=True)

    def _normalized(self, mean: Tensor, variance: Tensor) -> NormalizedMoments:
        return remax_moments(mean, variance)


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class Bernoulli(_Classes):
    """D binary outputs, `p(y_d = 1 | f) = 1 / (1 + exp(-f_d))`, independent given f.

    Targets are 0 or 1, of shape `[N, D]`. Expectations over Gaussian logits are computed by
    Gauss-Hermite quadrature. The predictive distribution has the averaged probabilities and
    independent outputs. It is exact for D = 1, and the product of the marginals for several
    outputs.

    Args:
        **kwargs: `name`, `dtype`.
    """

    def num_labels(self, num_outputs: int) -> int:
        return 2

    def log_prob(self, values: Tensor, targets: Tensor) -> Tensor:
        logits = tf.convert_to_tensor(values)
        targets = tf.cast(targets, logits.dtype)
        return tf.reduce_sum(targets * logits - tf.nn.softplus(logits), axis=-1)

    def expected_log_prob(
        self, moments: GaussianMoments, targets: Tensor, seed: Seed | None = None
    ) -> Tensor:
        normaliser = normal_expectation(tf.nn.softplus, moments)
        targets = tf.cast(targets, normaliser.dtype)
        return tf.reduce_sum(targets * moments[0] - normaliser, axis=-1)

    def _averages(self, moments: GaussianMoments, seed: Seed) -> tuple[Tensor, Tensor]:
        probabilities = tf.reduce_mean(normal_expectation(tf.sigmoid, moments), axis=0)
        entropies = normal_expectation(_entropy_of_logits, moments)  # [S, N, D]
        return probabilities, tf.reduce_sum(tf.reduce_mean(entropies, axis=0), axis=-1)

    def _entropy(self, probabilities: Tensor) -> Tensor:
        both = [probabilities, 1.0 - probabilities]
        return -tf.reduce_sum(tf.add_n([tf.math.xlogy(p, p) for p in both]), axis=-1)

    def from_probabilities(self, probabilities: ArrayLike) -> Distribution:
        """Returns `tfd.Independent` Bernoulli, batch `[N]`, event `[D]`, for probabilities."""
        probabilities = tf.convert_to_tensor(probabilities)
        eps = np.finfo(probabilities.dtype.as_numpy_dtype).eps
        each = tfd.Bernoulli(probs=tf.clip_by_value(probabilities, eps, 1.0 - eps))
        return tfd.Independent(each, reinterpreted_batch_ndims=1)

    def probabilities(self, distribution: Distribution) -> Tensor:
        """Returns the probabilities `[N, D]` of a result of `from_probabilities`."""
        return distribution.distribution.probs_parameter()


def _entropy_of_logits(logits: Tensor) -> Tensor:
    return tf.nn.softplus(logits) - logits * tf.sigmoid(logits)
