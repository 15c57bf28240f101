"""Likelihoods whose predictive laws are equal mixtures."""

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_fnspace.likelihoods.base import Likelihood
from tfp_fnspace.typing import GaussianMoments

tfd = tfp.distributions

#: Least number of components of a predictive mixture whose Gaussians each take several nodes. The
#: time of CRPS and quantiles grows with it.
_NUM_COMPONENTS = 200


class MixtureLikelihood(Likelihood):
    """A likelihood with the law of the observations for each Gaussian of f.

    A subclass has `_components(moments, unit, seed)`: the laws, batch `[N, S]`, event `[D]`, for
    moments of tensors `[N, S, D]`; batch `[N, S K]` with K nodes of each Gaussian.
    """

    def mixture(self, moments, unit=1.0, seed=(0, 0)):
        """See `Likelihood.mixture`.

        Returns:
            `tfd.MixtureSameFamily`, batch `[N]`, event `[D]`, of S components; of S K where the
            law given a Gaussian has no closed form, with K nodes of each.
        """
        swapped = (None if v is None else tf.transpose(v, [1, 0, 2]) for v in moments)
        components = self._components(GaussianMoments(*swapped), unit, seed)
        return _equal_mixture(components)

    def joint(self, functions, unit=1.0):
        """Law of the observations at N points jointly, where f is one of S functions.

        The noise is independent from point to point; the observations are not, as all are of one
        function.

        Args:
            functions: Tensor `[S, N, D]`, f in the units of the result.
            unit: As for `mixture`.

        Returns:
            `tfd.MixtureSameFamily` of S components, no batch, event `[N, D]`.
        """
        points = self._components(GaussianMoments(functions, None), unit, (0, 0))
        return _equal_mixture(tfd.Independent(points, reinterpreted_batch_ndims=1))


def _equal_mixture(components):
    size = components.batch_shape[-1] or components.batch_shape_tensor()[-1]
    weights = tf.zeros(size, components.dtype)
    return tfd.MixtureSameFamily(tfd.Categorical(logits=weights), components)


def num_nodes(num_gaussians):
    """K, the even number of nodes that each of S Gaussians takes in a mixture."""
    return 2 * -(-_NUM_COMPONENTS // (2 * num_gaussians))
