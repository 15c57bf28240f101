"""Likelihoods whose predictive distributions are equal mixtures."""

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_fnspace.likelihoods.base import Likelihood, of_each
from tfp_fnspace.typing import ArrayLike, Distribution, GaussianMoments, Seed, Tensor

tfd = tfp.distributions

#: Least number of components of a predictive mixture whose Gaussians have several nodes each. The
#: time for CRPS and quantiles grows with it.
_NUM_COMPONENTS = 200


class MixtureLikelihood(Likelihood):
    """A likelihood that gives a distribution of the observations for each Gaussian of f.

    A subclass has `_components(moments, unit, seed)`, which returns distributions with batch `[N,
    S]` and event `[D]` for moments `[N, S, D]`. The batch is `[N, S K]` with K nodes of each
    Gaussian.
    """

    def mixture(
        self, moments: GaussianMoments, unit: ArrayLike = 1.0, seed: Seed = (0, 0)
    ) -> Distribution:
        """Returns the distribution of the observations, see `Likelihood.mixture`.

        Returns:
            `tfd.MixtureSameFamily`, batch `[N]`, event `[D]`, with S components. It has S K, with K
            nodes of each Gaussian, if the distribution given a Gaussian has no closed form.
        """
        swapped = of_each(lambda part: tf.transpose(part, [1, 0, 2]), moments)
        components = self._components(swapped, unit, seed)
        return _equal_mixture(components)

    def joint(self, functions: Tensor, unit: ArrayLike = 1.0) -> Distribution:
        """Returns the joint distribution of the observations at N points, for f one of S functions.

        The noise is independent between points. The observations are not, as all belong to one
        function.

        Args:
            functions: Tensor `[S, N, D]`, f in the units of the result.
            unit: As for `mixture`.

        Returns:
            `tfd.MixtureSameFamily` of S components, no batch, event `[N, D]`.
        """
        points = self._components(GaussianMoments(functions, None), unit, (0, 0))
        return _equal_mixture(tfd.Independent(points, reinterpreted_batch_ndims=1))

    def _components(self, moments: GaussianMoments, unit: ArrayLike, seed: Seed) -> Distribution:
        raise NotImplementedError


def _equal_mixture(components: Distribution) -> Distribution:
    size = components.batch_shape[-1] or components.batch_shape_tensor()[-1]
    weights = tf.zeros(size, components.dtype)
    return tfd.MixtureSameFamily(tfd.Categorical(logits=weights), components)


def num_nodes(num_gaussians: int) -> int:
    """Returns K, the even number of nodes of each of S Gaussians in a mixture."""
    return 2 * -(-_NUM_COMPONENTS // (2 * num_gaussians))
