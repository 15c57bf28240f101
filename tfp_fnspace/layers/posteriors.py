"""Approximate posteriors of the weights of a layer."""

import math

import keras
import numpy as np
import tensorflow as tf

from tfp_fnspace.boundary import arguments
from tfp_fnspace.layers.posterior_base import Posterior
from tfp_fnspace.math import linalg
from tfp_fnspace.math.random import fast_normal
from tfp_fnspace.math.regression import LinearRegression
from tfp_fnspace.typing import Array, Config, Seed, Tensor

#: The smallest standard deviation of a weight, whose logarithm must be finite.
_SMALLEST = 1e-10

_LOG_2PI = math.log(2.0 * math.pi)


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

    def scales(self) -> dict[str, Tensor]:
        """Returns positive scales, a dict of tensors of the parts' shapes."""
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

    def deviations(self, seed: Seed, num_samples: int) -> dict[str, Tensor]:
        noise = self._by_part(fast_normal([num_samples, self.size], seed, self._dtype()))
        return {name: scale * noise[name] for name, scale in self.scales().items()}

    def variances(self) -> dict[str, Tensor]:
        return {name: tf.square(scale) for name, scale in self.scales().items()}

    def times_root(self, rows: Tensor) -> Tensor:
        return rows * tf.concat([tf.reshape(s, [-1]) for s in self.scales().values()], axis=0)

    def entropy(self) -> Tensor:
        logs = [tf.reduce_sum(tf.math.log(scale)) for scale in self.scales().values()]
        return tf.add_n(logs) + 0.5 * self.size * (1.0 + _LOG_2PI)


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class Radial(_ScalePerWeight):
    r"""Radial posterior: a uniform direction and a separate radius for each part.

        w = mean + scale * u r,      u uniform on the unit sphere,  r ~ N(0, 1).

    Draws of many weights are as far from the mean as draws of a few, whereas draws of a Gaussian
    gather at `sqrt(P)` standard deviations. A weight's variance is `scale^2 / P` with P weights in
    the part; for P = 1 the distribution is Gaussian. The density of the deviation x at scale 1 is
    `2 phi(|x|) / (A |x|^(P-1))` with A the area of the sphere, so that

        H = sum log scale + log(A / 2) + (1 + log 2 pi)/2 - (P - 1)(Euler's gamma + log 2)/2.

    Args:
        initial_scale: Initial scale, times `fan_in^-1/2`.

    References:
        Farquhar, Osborne & Gal (2020), "Radial Bayesian neural networks: beyond discrete support
        in large-scale Bayesian deep learning", AISTATS.
    """

    has_gaussian_marginals = False

    def deviations(self, seed: Seed, num_samples: int) -> dict[str, Tensor]:
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

    def variances(self) -> dict[str, Tensor]:
        return {
            name: tf.square(scale) / math.prod(scale.shape) for name, scale in self.scales().items()
        }

    def entropy(self) -> Tensor:
        total = tf.add_n([tf.reduce_sum(tf.math.log(s)) for s in self.scales().values()])
        return total + sum(_radial_entropy(math.prod(s)) for s in self.shapes.values())


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class FullCovarianceGaussian(Posterior):
    r"""`w ~ N(mean, L L^T)` jointly over all P weights of the layer, L lower triangular.

    L has P^2 numbers, and a draw costs P^2 operations, so it suits small layers.

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

    def cholesky(self) -> Tensor:
        """Returns L, `[P, P]`, its rows in the order of the parts."""
        raw = self._raw.value
        lower = tf.linalg.band_part(raw, -1, 0)
        return tf.linalg.set_diag(lower, _positive(tf.linalg.diag_part(raw)))

    def deviations(self, seed: Seed, num_samples: int) -> dict[str, Tensor]:
        noise = fast_normal([num_samples, self.size], seed, self._dtype())
        return self._by_part(tf.matmul(noise, self.cholesky(), transpose_b=True))

    def variances(self) -> dict[str, Tensor]:
        return self._by_part(tf.reduce_sum(tf.square(self.cholesky()), axis=1))

    def times_root(self, rows: Tensor) -> Tensor:
        return tf.tensordot(rows, self.cholesky(), axes=1)

    def entropy(self) -> Tensor:
        return 0.5 * (linalg.log_determinant(self.cholesky()) + self.size * (1.0 + _LOG_2PI))


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class LowRankGaussian(Posterior):
    r"""`w ~ N(mean, diag(scale^2) + F F^T)` jointly over all P weights, F of shape `[P, rank]`.

        w = mean + scale * e + F z,      e ~ N(0, I_P),  z ~ N(0, I_rank).

    Args:
        rank: Number of columns of F.
        initial_scale: Initial standard deviation, times `fan_in^-1/2`; F starts at a tenth of that.

    Raises:
        ValueError: If `rank` is not a positive integer.
    """

    def __init__(self, rank: int = 2, initial_scale: float = 0.1):
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

    def deviations(self, seed: Seed, num_samples: int) -> dict[str, Tensor]:
        dtype = self._dtype()
        normals = fast_normal([num_samples, self.size + self.rank], seed, dtype)
        noise, low = tf.split(normals, [self.size, self.rank], axis=1)
        common = tf.matmul(low, self._factor.value, transpose_b=True)
        return self._by_part(_positive(self._raw_scale.value) * noise + common)

    def variances(self) -> dict[str, Tensor]:
        low = tf.reduce_sum(tf.square(self._factor.value), axis=1)
        return self._by_part(tf.square(_positive(self._raw_scale.value)) + low)

    def times_root(self, rows: Tensor) -> Tensor:
        own = rows * _positive(self._raw_scale.value)
        return tf.concat([own, tf.tensordot(rows, self._factor.value, axes=1)], axis=-1)

    def entropy(self) -> Tensor:
        scale = _positive(self._raw_scale.value)
        ratio = self._factor.value / scale[:, tf.newaxis]
        # |D^2 + F F^T| = |D|^2 |I + F^T D^-2 F|, a matrix of size `rank`.
        inner = tf.eye(self.rank, dtype=scale.dtype) + tf.matmul(ratio, ratio, transpose_a=True)
        log_determinant = linalg.log_determinant(tf.linalg.cholesky(inner))
        log_determinant += 2.0 * tf.reduce_sum(tf.math.log(scale))
        return 0.5 * (log_determinant + self.size * (1.0 + _LOG_2PI))

    def get_config(self) -> Config:
        return {"rank": self.rank, **super().get_config()}


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class ConditionedGaussian(FullCovarianceGaussian):
    r"""`w ~ N(mean + B v, B L L^T B^T)`, which is standard normal at first in B's coordinates.

    The vector v, which starts at 0, and the lower triangular L are trained. The means of the parts
    and the lower triangular B are not. B is the identity until `condition` makes `N(mean, B B^T)`
    the posterior of a linear regression. Data with little noise determine some directions of w a
    thousand times better than others. After `condition` they are no harder to train on than other
    data, since near the start the objective is as if they had been whitened.

    Args:
        initial_scale: Initial standard deviation, times `fan_in^-1/2`, until `condition` is called.
    """

    trains_means = False

    def _build_scales(self, layer, raw_scale):
        super()._build_scales(layer, raw_scale)
        options = {"autocast": False, "shape": (self.size, self.size), "trainable": False}
        self._raw_base = layer.add_weight(name="base", initializer=_Diagonal(1.0), **options)
        self._shift = layer.add_weight(
            name="shift", shape=(self.size,), initializer="zeros", autocast=False
        )

    def condition(self, regression: LinearRegression, noise_scale: float | Array) -> None:
        """Sets the distribution to the posterior of the weights of a linear regression.

        Args:
            regression: `math.regression.LinearRegression`, whose rows of W are the parts' weights,
                one after another.
            noise_scale: Positive number, or one for each column of W.
        """
        means, roots = regression.posterior(noise_scale)
        for name, part in self._by_part(tf.constant(means.reshape(-1))).items():
            self.means[name].assign(part.numpy())
        base = np.einsum("dij,de->idje", roots, np.eye(len(roots)))
        self._raw_base.assign(base.reshape(self.size, self.size))
        self._shift.assign(np.zeros(self.size))
        self._raw.assign(np.eye(self.size) * math.log(math.expm1(1.0)))

    def base(self) -> Tensor:
        """Returns B, `[P, P]`."""
        return tf.linalg.band_part(self._raw_base.value, -1, 0)

    def mean_values(self) -> dict[str, Tensor]:
        shift = self._by_part(tf.linalg.matvec(self.base(), self._shift.value))
        return {name: mean.value + shift[name] for name, mean in self.means.items()}

    def deviations(self, seed: Seed, num_samples: int) -> dict[str, Tensor]:
        noise = fast_normal([num_samples, self.size], seed, self._dtype())
        noise = tf.matmul(noise, self.cholesky(), transpose_b=True)
        return self._by_part(tf.matmul(noise, self.base(), transpose_b=True))

    def variances(self) -> dict[str, Tensor]:
        root = tf.matmul(self.base(), self.cholesky())
        return self._by_part(tf.reduce_sum(tf.square(root), axis=1))

    def times_root(self, rows: Tensor) -> Tensor:
        return super().times_root(tf.tensordot(rows, self.base(), axes=1))

    def entropy(self) -> Tensor:
        base = tf.reduce_sum(tf.math.log(tf.abs(tf.linalg.diag_part(self.base()))))
        return super().entropy() + base


POSTERIORS = {
    "conditioned": ConditionedGaussian,
    "factorized": FactorizedGaussian,
    "full": FullCovarianceGaussian,
    "low_rank": LowRankGaussian,
    "radial": Radial,
}


def get(identifier: str | Config | Posterior) -> Posterior:
    """Makes a posterior that no layer has yet.

    Args:
        identifier: A key of `POSTERIORS`, a `Posterior` (which is copied), or its configuration by
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
    """Returns the entropy at scale 1 (see `Radial`)."""
    log_area = math.log(2.0) + 0.5 * size * math.log(math.pi) - math.lgamma(0.5 * size)
    radius = 0.5 * (np.euler_gamma + math.log(2.0))  # -E log |r|
    return log_area - math.log(2.0) + 0.5 * (1.0 + _LOG_2PI) - (size - 1) * radius
