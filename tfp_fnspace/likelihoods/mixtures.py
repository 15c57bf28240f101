"""Likelihoods whose predictive distributions are equal mixtures."""

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_fnspace.likelihoods.base import Likelihood, of_each, static_size
from tfp_fnspace.math.expectations import normal_nodes
from tfp_fnspace.math.random import as_seed
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


def at_nodes(moments: GaussianMoments, seed: Seed) -> Tensor:
    r"""Returns K values of f for each of S Gaussians, which stand for it in a mixture.

        f_ks = m_s + c sqrt(v_s) z_ks,    c^2 = sum_s v_s / sum_s v_s (1/K sum_k z_ks^2)

    where z are the nodes of `normal_nodes`. The factor c, which is near 1 at each point, makes the
    variance of all values exact; their mean is exact anyway.

    Args:
        moments: `GaussianMoments` of tensors `[N, S, D]`, whose S and D are static.
        seed: Seed of the nodes, which are the same at all points.

    Returns:
        Tensor `[N, S K, D]`; the means `[N, S, D]` if there is no variance.
    """
    mean, variance = moments
    if variance is None:
        return mean
    size, outputs = static_size(mean, 1), static_size(mean, 2)
    nodes = num_nodes(size)
    z = normal_nodes(size, nodes, outputs, as_seed(seed), mean.dtype)  # [S, K, D]
    squares = variance * tf.reduce_mean(tf.square(z), axis=1)
    ratio = tf.math.divide_no_nan(  # no floor, here or below, since it would have a unit
        tf.reduce_sum(variance, axis=1, keepdims=True),
        tf.reduce_sum(squares, axis=1, keepdims=True),
    )
    stddev = tf.sqrt(variance * ratio)[:, :, tf.newaxis]
    values = mean[:, :, tf.newaxis] + stddev * z  # [N, S, K, D]
    return tf.reshape(values, [tf.shape(mean)[0], size * nodes, outputs])
