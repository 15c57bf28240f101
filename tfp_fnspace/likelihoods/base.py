"""The interface of observation models."""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tfp_fnspace.math.expectations import stddev_of
from tfp_fnspace.math.replicas import normal_of_rows
from tfp_fnspace.typing import Array, ArrayLike, Distribution, GaussianMoments, Seed, Tensor


def variance_of(moments: GaussianMoments) -> Tensor:
    """Returns the variance of Gaussians, zeros for exactly known values."""
    mean, variance = moments
    return tf.zeros_like(mean) if variance is None else variance


def of_each(function: Callable[[Tensor], Tensor], moments: GaussianMoments) -> GaussianMoments:
    """Applies a function to the mean, and to the variance if there is one."""
    mean, variance = moments
    return GaussianMoments(function(mean), None if variance is None else function(variance))


def static_size(tensor: Tensor, axis: int) -> int:
    """Returns the size of an axis that must be known in a graph.

    Raises:
        ValueError: If it is not known.
    """
    size = tensor.shape[axis]
    if size is None:
        raise ValueError(f"Axis {axis} must have a known size. Received: shape={tensor.shape}")
    return size


class Likelihood(keras.layers.Layer):
    """An observation model p(y | f); it is a layer, so its weights are saved with the model.

    Function values have shape `[..., N, D]` and targets `[N, D]`, both in model units.
    """

    #: Whether f are logits and targets are labels of classes.
    is_classifier = False

    #: Whether `log_expected_power` has a closed form.
    has_expected_power = False

    #: Whether the outputs after the first D describe the noise.
    has_noise_outputs = False

    #: Whether E(y | f) is another function than f. Targets are then not standardised, and the
    #: likelihood has a `function_scaler`, `mean` and `observed_moments`, see `LinkedLikelihood`.
    has_link = False

    #: Whether targets are limits `[N, 2 D]` of D outputs, the lower ones first.
    targets_are_limits = False

    function_scaler: Any  # the `Standardizer` of f if there is a link

    def check_outputs(self, num_outputs: int) -> None:
        """Refuses a number D of outputs that does not suit the likelihood.

        Raises:
            ValueError: If the number of outputs does not suit it.
        """

    def check_targets(self, targets: Array, name: str = "y") -> None:
        """Refuses targets that the likelihood gives no density.

        Args:
            targets: Array `[N, D]` in the user's units, finite, or NaN where a target is missing.
            name: Name of the argument, for messages.

        Raises:
            ValueError: If there are such targets; the message has the first rows.
        """

    def known_values(self, targets: Tensor) -> Tensor:
        """Returns the values `[N, D]` that scores compare with predictions, NaN if not known."""
        return targets

    def values_near(self, targets: Array) -> Array:
        """Returns values `[N, D]` near the targets, in their units, NaN where nothing is known."""
        return targets

    def best_constant(self, targets: Array) -> Tensor:
        """Returns the constant f `[D]` in model units for targets `[N, D]` in model units."""
        return tf.reduce_mean(tf.convert_to_tensor(targets), axis=0)

    def start_values(self, targets: Tensor) -> Tensor:
        """Returns values of f near targets, both `[N, D]` in model units, where training starts."""
        return targets

    def num_target_columns(self, num_outputs: int) -> int:
        """Returns the number of columns of the targets of a model with D outputs."""
        return num_outputs

    def num_labels(self, num_outputs: int) -> int | None:
        """Returns the number of classes of a target, or `None` if targets are measurements."""
        return None

    def mean_noise_variance(self, moments: GaussianMoments, unit: ArrayLike = 1.0) -> Tensor:
        """Returns the mean noise variance over f, an equal mixture of S Gaussians.

        Args:
            moments: As for `mixture`.
            unit: As for `mixture`.

        Returns:
            Tensor `[]`, `[D]` or `[N, D]` in squared units of the result.
        """
        raise NotImplementedError

    def log_prob(self, values: Tensor, targets: Tensor) -> Tensor:
        """Returns the log density (probability) of the targets given f, summed over outputs.

        Args:
            values: Tensor `[..., N, D]`, f.
            targets: Tensor `[N, D]`; labels `[N, 1]` or `[N]` for `Categorical`.

        Returns:
            Tensor `[..., N]`.
        """
        raise NotImplementedError

    def expected_log_prob(
        self, moments: GaussianMoments, targets: Tensor, seed: Seed | None = None
    ) -> Tensor:
        """Returns `E log p(y | f)` over `f ~ N(mean, variance)`, independent between outputs.

        Args:
            moments: `GaussianMoments` of f, tensors `[..., N, D]`; `variance=None` for draws.
            targets: As for `log_prob`.
            seed: int32 tensor `[2]`, for likelihoods that draw f (`Categorical`).

        Returns:
            Tensor `[..., N]`.
        """
        raise NotImplementedError

    def log_expected_power(
        self, moments: GaussianMoments, targets: Tensor, alpha: float, seed: Seed
    ) -> Tensor:
        r"""Returns `log E p(y | f)^alpha` over independent outputs `f ~ N(mean, variance)`.

        It is estimated from one draw of f unless a likelihood has a closed form. The exponential of
        the estimate is unbiased.

        Args:
            moments: `GaussianMoments` of f, tensors `[..., N, D]`; `variance=None` for draws.
            targets: As for `log_prob`.
            alpha: Positive number.
            seed: int32 tensor `[2]`.

        Returns:
            Tensor `[..., N]`.
        """
        values, variance = moments
        if variance is not None:
            values += stddev_of(variance) * normal_of_rows(tf.shape(values), seed, values.dtype)
        return alpha * self.log_prob(values, targets)

    def mixture(
        self, moments: GaussianMoments, unit: ArrayLike = 1.0, seed: Seed = (0, 0)
    ) -> Distribution:
        """Returns the distribution of the observations if f is an equal mixture of S Gaussians.

        Args:
            moments: `GaussianMoments` of f, tensors `[S, N, D]` in the units of the result, whose S
                and D are static; `variance=None` for draws.
            unit: One model unit of the targets, `[]` or `[D]`, in the units of the result.
            seed: Seed of the nodes of f if there is no closed form. They are the same at all
                points, so that predictions do not depend on the other rows.

        Returns:
            `tfd.Distribution`, batch `[N]`.
        """
        raise NotImplementedError
