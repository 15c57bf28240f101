"""What models ask of an observation model."""

import keras
import tensorflow as tf

from tfp_fnspace.math.quadrature import stddev_of
from tfp_fnspace.math.replicas import normal_of_rows


class Likelihood(keras.layers.Layer):
    """An observation model p(y | f); a layer, so that what it holds is saved with the model.

    Function values have shape `[..., N, D]` and targets `[N, D]`, both in model units.
    """

    #: Whether f are logits and targets are labels of classes.
    is_classifier = False

    #: Whether `log_expected_power` is in closed form.
    has_expected_power = False

    #: Whether the outputs after the first D describe the noise.
    has_noise_outputs = False

    def check_outputs(self, num_outputs):
        """Refuses a number D of outputs that does not fit.

        Raises:
            ValueError: If it does not.
        """

    def num_target_columns(self, num_outputs):
        """Columns of the targets of a model with D outputs."""
        return num_outputs

    def num_labels(self, num_outputs):
        """Number of classes that a target can name; `None` where it is a measurement."""
        return None

    def mean_noise_variance(self, moments, unit=1.0):
        """Variance of the noise, averaged over f, where f is an equal mixture of S Gaussians.

        Args:
            moments: As for `mixture`.
            unit: As for `mixture`.

        Returns:
            Tensor `[]`, `[D]` or `[N, D]` in squared units of the result.
        """
        raise NotImplementedError

    def log_prob(self, values, targets):
        """Log density (probability) of the targets given f, summed over outputs.

        Args:
            values: Tensor `[..., N, D]`, f.
            targets: Tensor `[N, D]`; labels `[N, 1]` or `[N]` for `Categorical`.

        Returns:
            Tensor `[..., N]`.
        """
        raise NotImplementedError

    def expected_log_prob(self, moments, targets, seed=None):
        """`E log p(y | f)` over `f ~ N(mean, variance)`, independent between outputs.

        Args:
            moments: `GaussianMoments` of f, tensors `[..., N, D]`; `variance=None` for draws.
            targets: As for `log_prob`.
            seed: int32 tensor `[2]`, for likelihoods that draw f (`Categorical`).

        Returns:
            Tensor `[..., N]`.
        """
        raise NotImplementedError

    def log_expected_power(self, moments, targets, alpha, seed):
        r"""`log E p(y | f)^alpha` over `f ~ N(mean, variance)`, independent between outputs.

        From one draw of f unless a likelihood has a closed form: the exponential is unbiased.

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

    def mixture(self, moments, unit=1.0, seed=(0, 0)):
        """Law of the observations where f is an equal mixture of S Gaussians.

        Args:
            moments: `GaussianMoments` of f, tensors `[S, N, D]` in the units of the result, S and
                D known when a graph is made; `variance=None` for draws.
            unit: One model unit of the targets, `[]` or `[D]`, in the units of the result.
            seed: Seed of the nodes of f where there is no closed form; they are the same at all
                points, so that predictions do not depend on the other rows.

        Returns:
            `tfd.Distribution`, batch `[N]`.
        """
        raise NotImplementedError
