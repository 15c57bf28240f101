"""The base class of approximate posteriors of the weights of a layer."""

import math
from collections.abc import Callable, Mapping
from typing import Any, Self

import keras
import tensorflow as tf

from tfp_fnspace.boundary import arguments
from tfp_fnspace.layers import priors as weight_priors
from tfp_fnspace.typing import ArrayLike, Config, Distribution, Seed, Tensor


class Posterior:
    r"""Base of posteriors `q(w)`, `w = mean + deviation`, over the parts of a layer's weights.

    Each part, such as `kernel` and `bias`, has a weight `<part>_mean`. A subclass adds the weights
    of its deviations, which have mean 0. The divergence from a prior is

        KL(q || p) = -H(q) - sum_parts E_q log p(w).

    The entropy has a closed form. The second term has one for `tfd.Normal`, and for `tfd.Laplace`
    if the marginals are Gaussian; otherwise it is a mean over draws.

    Args:
        initial_scale: Initial standard deviation of the deviations, times `fan_in^-1/2`.

    Raises:
        ValueError: If a number is not positive and finite.
    """

    #: Whether each weight has a Gaussian distribution.
    has_gaussian_marginals = True
    #: Whether weights are independent.
    is_factorized = False
    #: Whether the distribution of the deviations is unchanged when any of them change sign.
    is_symmetric = False
    #: Whether the weights `<part>_mean` are trained.
    trains_means = True

    def __init__(self, initial_scale: float = 0.1):
        self.initial_scale = arguments.checked_positive("initial_scale", initial_scale)

    def build(
        self,
        layer: keras.layers.Layer,
        shapes: Mapping[str, tuple[int, ...]],
        initializers: Mapping[str, Any],
        fan_in: int,
    ) -> None:
        """Adds the weights to a layer.

        Args:
            layer: Keras layer.
            shapes: Dict of the parts' shapes.
            initializers: Dict of the initializers of the parts' means.
            fan_in: Number of inputs that a unit sums over.
        """
        self.shapes = {name: tuple(shape) for name, shape in shapes.items()}
        self.means = {
            name: layer.add_weight(
                name=f"{name}_mean",
                shape=shape,
                initializer=initializers[name],
                trainable=self.trains_means,
                autocast=False,
            )
            for name, shape in self.shapes.items()
        }
        scale = self.initial_scale * fan_in**-0.5
        self._build_scales(layer, scale + math.log(-math.expm1(-scale)))

    def set_means(self, **means: ArrayLike) -> None:
        """Assigns the means of parts, arrays of their shapes."""
        for name, value in means.items():
            self.means[name].assign(value)

    def mean_values(self) -> dict[str, Tensor]:
        """Returns the mean of each weight, a dict of tensors of the parts' shapes."""
        return {name: mean.value for name, mean in self.means.items()}

    def sample(self, seed: Seed, num_samples: int) -> dict[str, Tensor]:
        """Draws all weights.

        Args:
            seed: int32 tensor `[2]`.
            num_samples: S.

        Returns:
            Dict of tensors `[S, *shape]`.
        """
        deviations, means = self.deviations(seed, num_samples), self.mean_values()
        return {name: means[name] + part for name, part in deviations.items()}

    def kl(
        self, priors: Mapping[str, Distribution], draw: Callable[[], dict[str, Tensor]]
    ) -> Tensor:
        """Returns `KL(q || p)` (see the class).

        Args:
            priors: Dict of the parts' priors, `tfd.Distribution` of one weight.
            draw: Function without arguments that returns draws as `sample` does; it is called only
                if there is no closed form.

        Returns:
            Scalar.
        """
        means, variances = self.mean_values(), self.variances()
        total = self.entropy()
        for name, prior in priors.items():
            moments = means[name], variances[name]
            density = weight_priors.expected_log_prob(prior, *moments, self.has_gaussian_marginals)
            if density is None:
                density = tf.reduce_mean(weight_priors.log_prob(prior, draw()[name]), axis=0)
            total += tf.reduce_sum(density)
        return -total

    # For subclasses ---------------------------------------------------------------------------

    def _build_scales(self, layer, raw_scale):
        """Adds the weights of the deviations; softplus of `raw_scale` is the initial scale."""
        raise NotImplementedError

    def deviations(self, seed: Seed, num_samples: int) -> dict[str, Tensor]:
        """Draws the deviations from the means, as `sample` does with the means."""
        raise NotImplementedError

    def variances(self) -> dict[str, Tensor]:
        """Returns the variance of each weight, a dict of tensors of the parts' shapes."""
        raise NotImplementedError

    def entropy(self) -> Tensor:
        """Returns `-E_q log q(w)` over all parts, a scalar."""
        raise NotImplementedError

    def times_root(self, rows: Tensor) -> Tensor | None:
        """Returns `rows R`, where `R R^T` is the covariance of all weights, part after part.

        Args:
            rows: Tensor `[..., P]`.

        Returns:
            Tensor `[..., Q]`, or None if the distribution is not Gaussian.
        """
        return None

    @property
    def is_gaussian(self) -> bool:
        """Whether all weights have a Gaussian distribution jointly."""
        return type(self).times_root is not Posterior.times_root

    # Shared -----------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """Number of weights in all parts."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    def _dtype(self):
        return next(iter(self.means.values())).value.dtype

    def _by_part(self, flat):
        """Splits a tensor `[..., P]` of all weights into a dict of tensors `[..., *shape]`."""
        sizes = [math.prod(shape) for shape in self.shapes.values()]
        leading = tf.unstack(tf.shape(flat)[:-1])
        parts = zip(self.shapes.items(), tf.split(flat, sizes, axis=-1), strict=True)
        return {name: tf.reshape(part, [*leading, *shape]) for (name, shape), part in parts}

    def get_config(self) -> Config:
        return {"initial_scale": self.initial_scale}

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(**config)
