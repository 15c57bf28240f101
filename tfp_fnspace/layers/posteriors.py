"""Approximate posteriors of the weights of a layer."""

import math

import keras
import numpy as np
import tensorflow as tf

from tfp_fnspace import arguments
from tfp_fnspace.layers import priors as weight_priors
from tfp_fnspace.math import linalg
from tfp_fnspace.math.normals import fast_normal

#: The smallest standard deviation of a weight: its logarithm must be finite.
_SMALLEST = 1e-10

_LOG_2PI = math.log(2.0 * math.pi)


class Posterior:
    r"""Base of posteriors `q(w)`, `w = mean + deviation`, over the parts of a layer's weights.

    The parts, such as `kernel` and `bias`, have a weight `<part>_mean` each; a subclass adds what
    its deviations, which have mean 0, depend on. The divergence from a prior is

        KL(q || p) = -H(q) - sum_parts E_q log p(w):

    the entropy is in closed form, the second term too for `tfd.Normal`, and for `tfd.Laplace`
    where the marginals are Gaussian; otherwise it is the mean over draws.

    Args:
        initial_scale: Initial standard deviation of the deviations, times `fan_in^-1/2`.

    Raises:
        ValueError: If a number is not positive and finite.
    """

    #: Whether each weight has a Gaussian law.
    has_gaussian_marginals = True
    #: Whether weights are independent.
    is_factorized = False
    #: Whether the law of the deviations stays the same when any of them change sign.
    is_symmetric = False

    def __init__(self, initial_scale=0.1):
        self.initial_scale = arguments.checked_positive("initial_scale", initial_scale)

    def build(self, layer, shapes, initializers, fan_in):
        """Adds the weights to a layer.

        Args:
            layer: Keras layer.
            shapes: Dict of the parts' shapes.
            initializers: Dict of the initializers of their means.
            fan_in: Number of inputs that a unit sums over.
        """
        self.shapes = {name: tuple(shape) for name, shape in shapes.items()}
        self.means = {
            name: layer.add_weight(
                name=f"{name}_mean",
                shape=shape,
                initializer=initializers[name],
                autocast=False,
            )
            for name, shape in self.shapes.items()
        }
        scale = self.initial_scale * fan_in**-0.5
        self._build_scales(layer, scale + math.log(-math.expm1(-scale)))

    def set_means(self, **means):
        """Assigns the means of parts, arrays of their shapes."""
        for name, value in means.items():
            self.means[name].assign(value)

    def sample(self, seed, num_samples):
        """Draws of all weights.

        Args:
            seed: int32 tensor `[2]`.
            num_samples: S.

        Returns:
            Dict of tensors `[S, *shape]`.
        """
        deviations = self.deviations(seed, num_samples)
        return {name: self.means[name].value + part for name, part in deviations.items()}

    def kl(self, priors, draw):
        """`KL(q || p)`, see the class.

        Args:
            priors: Dict of the parts' priors, `tfd.Distribution` of one weight.
            draw: Function without arguments that returns draws as `sample` does; it is called
                only where there is no closed form.

        Returns:
            Scalar.
        """
        variances = self.variances()
        total = self.entropy()
        for name, prior in priors.items():
            moments = self.means[name].value, variances[name]
            density = weight_priors.expected_log_prob(prior, *moments, self.has_gaussian_marginals)
            if density is None:
                density = tf.reduce_mean(weight_priors.log_prob(prior, draw()[name]), axis=0)
            total += tf.reduce_sum(density)
        return -total

    # Of a subclass ----------------------------------------------------------------------------

    def _build_scales(self, layer, raw_scale):
        """Adds the weights of the deviations; softplus of `raw_scale` is the initial scale."""
        raise NotImplementedError

    def deviations(self, seed, num_samples):
        """As `sample`, without the means."""
        raise NotImplementedError

    def variances(self):
        """Variance of each weight, a dict of tensors of the parts' shapes."""
        raise NotImplementedError

    def entropy(self):
        """`-E_q log q(w)` over all parts, a scalar."""
        raise NotImplementedError

    # Shared -----------------------------------------------------------------------------------

    @property
    def size(self):
        """Number of weights in all parts."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    def _dtype(self):
        return next(iter(self.means.values())).value.dtype

    def _by_part(self, flat):
        """Parts of a tensor `[..., P]` of all weights, a dict of tensors `[..., *shape]`."""
        sizes = [math.prod(shape) for shape in self.shapes.values()]
        leading = tf.unstack(tf.shape(flat)[:-1])
        parts = zip(self.shapes.items(), tf.split(flat, sizes, axis=-1), strict=True)
        return {name: tf.reshape(part, [*leading, *shape]) for (name, shape), part in parts}

    def get_config(self):
        return {"initial_scale": self.initial_scale}

    @classmethod
    def from_config(cls, config):
        return cls(**config)


class _ScalePerWeight(Posterior):
    """Posteriors with a scale for each weight and independent parts."""

    is_symmetric = True

    def _build_scales(self, layer, raw_scale):
        self._raw_scales = {
            name: layer.add_weight(
                name=f"{name}_raw_scale",
                shape=shape,
                initializer=keras.initializers.Constant(raw_scale),
                autocast=False,
            )
            for name, shape in self.shapes.items()
        }

    def scales(self):
        """Positive scales, a dict of tensors of the parts' shapes."""
        return {name: _positive(raw.value) for name, raw in self._raw_scales.items()}


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class FactorizedGaussian(_ScalePerWeight):
    r"""Independent Gaussians, `w_i ~ N(mean_i, scale_i^2)`, the posterior of Bayes by Backprop.

    Args:
        initial_scale: Initial standard deviation, times `fan_in^-1/2`.

    References:
        Blundell et al. (2015), "Weight uncertainty in neural networks", ICML.
    """

    is_factorized = True

    def deviations(self, seed, num_samples):
        noise = self._by_part(fast_normal([num_samples, self.size], seed, self._dtype()))
        return {name: scale * noise[name] for name, scale in self.scales().items()}

    def variances(self):
        return {name: tf.square(scale) for name, scale in self.scales().items()}

    def entropy(self):
        logs = [tf.reduce_sum(tf.math.log(scale)) for scale in self.scales().values()]
        return tf.add_n(logs) + 0.5 * self.size * (1.0 + _LOG_2PI)


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class Radial(_ScalePerWeight):
    r"""Radial posterior: a uniform direction and a radius of its own for each part.

        w = mean + scale * u r,      u uniform on the unit sphere,  r ~ N(0, 1).

    Draws of many weights are as far from the mean as those of a few, where those of a Gaussian
    gather at `sqrt(P)` standard deviations. A weight's variance is `scale^2 / P` with P weights in
    the part; for P = 1 the law is Gaussian. The density of the deviation x at scale 1 is
    `2 phi(|x|) / (A |x|^(P-1))` with A the area of the sphere, so that

        H = sum log scale + log(A / 2) + (1 + log 2 pi)/2 - (P - 1)(Euler's gamma + log 2)/2.

    Args:
        initial_scale: Initial scale, times `fan_in^-1/2`.

    References:
        Farquhar, Osborne & Gal (2020), "Radial Bayesian neural networks: beyond discrete support
        in large-scale Bayesian deep learning", AISTATS.
    """

    has_gaussian_marginals = False

    def deviations(self, seed, num_samples):
        scales = self.scales()
        count = self.size + len(scales)
        noise = fast_normal([num_samples, count], seed, self._dtype())
        directions = self._by_part(noise[:, : self.size])
        radii = tf.unstack(noise[:, self.size :], axis=1)
        parts = {}
        for (name, scale), radius in zip(scales.items(), radii, strict=True):
            axes = list(range(1, len(scale.shape) + 1))
            direction = tf.math.l2_normalize(directions[name], axis=axes)
            parts[name] = scale * direction * tf.reshape(radius, [-1] + [1] * len(scale.shape))
        return parts

    def variances(self):
        return {
            name: tf.square(scale) / math.prod(scale.shape) for name, scale in self.scales().items()
        }

    def entropy(self):
        total = tf.add_n([tf.reduce_sum(tf.math.log(s)) for s in self.scales().values()])
        return total + sum(_radial_entropy(math.prod(s)) for s in self.shapes.values())


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class FullCovarianceGaussian(Posterior):
    r"""`w ~ N(mean, L L^T)` jointly over all P weights of the layer, L lower triangular.

    L has P^2 numbers, and a draw costs P^2: for small layers.

    Args:
        initial_scale: Initial standard deviation, times `fan_in^-1/2`.
    """

    def _build_scales(self, layer, raw_scale):
        self._raw = layer.add_weight(
            name="raw_cholesky",
            shape=(self.size, self.size),
            initializer=_Diagonal(raw_scale),
            autocast=False,
        )

    def cholesky(self):
        """L, `[P, P]`, its rows in the order of the parts."""
        raw = self._raw.value
        lower = tf.linalg.band_part(raw, -1, 0)
        return tf.linalg.set_diag(lower, _positive(tf.linalg.diag_part(raw)))

    def deviations(self, seed, num_samples):
        noise = fast_normal([num_samples, self.size], seed, self._dtype())
        return self._by_part(tf.matmul(noise, self.cholesky(), transpose_b=True))

    def variances(self):
        return self._by_part(tf.reduce_sum(tf.square(self.cholesky()), axis=1))

    def entropy(self):
        return 0.5 * (linalg.log_determinant(self.cholesky()) + self.size * (1.0 + _LOG_2PI))


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class LowRankGaussian(Posterior):
    r"""`w ~ N(mean, diag(scale^2) + F F^T)` jointly over all P weights, F of shape `[P, rank]`.

        w = mean + scale * e + F z,      e ~ N(0, I_P),  z ~ N(0, I_rank).

    Args:
        rank: Columns of F.
        initial_scale: Initial standard deviation, times `fan_in^-1/2`; F begins a tenth of that.

    Raises:
        ValueError: If `rank` is not a positive integer.
    """

    def __init__(self, rank=2, initial_scale=0.1):
        super().__init__(initial_scale)
        self.rank = arguments.checked_count("rank", rank)

    def _build_scales(self, layer, raw_scale):
        self._raw_scale = layer.add_weight(
            name="raw_scale",
            shape=(self.size,),
            initializer=keras.initializers.Constant(raw_scale),
            autocast=False,
        )
        initial = 0.1 * math.log1p(math.exp(raw_scale)) * self.rank**-0.5
        self._factor = layer.add_weight(
            name="factor",
            shape=(self.size, self.rank),
            initializer=keras.initializers.RandomNormal(stddev=initial),
            autocast=False,
        )

    def deviations(self, seed, num_samples):
        dtype = self._dtype()
        normals = fast_normal([num_samples, self.size + self.rank], seed, dtype)
        noise, low = tf.split(normals, [self.size, self.rank], axis=1)
        common = tf.matmul(low, self._factor.value, transpose_b=True)
        return self._by_part(_positive(self._raw_scale.value) * noise + common)

    def variances(self):
        low = tf.reduce_sum(tf.square(self._factor.value), axis=1)
        return self._by_part(tf.square(_positive(self._raw_scale.value)) + low)

    def entropy(self):
        scale = _positive(self._raw_scale.value)
        ratio = self._factor.value / scale[:, tf.newaxis]
        # |D^2 + F F^T| = |D|^2 |I + F^T D^-2 F|, a matrix of size `rank`.
        inner = tf.eye(self.rank, dtype=scale.dtype) + tf.matmul(ratio, ratio, transpose_a=True)
        log_determinant = linalg.log_determinant(tf.linalg.cholesky(inner))
        log_determinant += 2.0 * tf.reduce_sum(tf.math.log(scale))
        return 0.5 * (log_determinant + self.size * (1.0 + _LOG_2PI))

    def get_config(self):
        return {"rank": self.rank, **super().get_config()}


POSTERIORS = {
    "factorized": FactorizedGaussian,
    "full": FullCovarianceGaussian,
    "low_rank": LowRankGaussian,
    "radial": Radial,
}


def get(identifier):
    """A posterior that no layer has yet.

    Args:
        identifier: A key of `POSTERIORS`, a `Posterior`, which is copied, or its configuration by
            `keras.saving.serialize_keras_object`.

    Returns:
        `Posterior`.

    Raises:
        TypeError: If it is something else.
        ValueError: If there is no posterior of that name.
    """
    if isinstance(identifier, dict):
        identifier = keras.saving.deserialize_keras_object(identifier)
    if isinstance(identifier, Posterior):
        return type(identifier).from_config(identifier.get_config())
    if not isinstance(identifier, str):
        raise TypeError(
            f"`posterior` must be one of {sorted(POSTERIORS)} or a Posterior. "
            f"Received: posterior={identifier!r}"
        )
    return POSTERIORS[arguments.checked_choice("posterior", identifier, sorted(POSTERIORS))]()


class _Diagonal(keras.initializers.Initializer):
    """A multiple of the identity."""

    def __init__(self, value):
        self.value = value

    def __call__(self, shape, dtype=None):
        return self.value * tf.eye(shape[0], dtype=dtype)


def _positive(raw):
    return tf.nn.softplus(raw) + _SMALLEST


def _radial_entropy(size):
    """Entropy at scale 1, see `Radial`."""
    log_area = math.log(2.0) + 0.5 * size * math.log(math.pi) - math.lgamma(0.5 * size)
    radius = 0.5 * (np.euler_gamma + math.log(2.0))  # -E log |r|
    return log_area - math.log(2.0) + 0.5 * (1.0 + _LOG_2PI) - (size - 1) * radius
