"""Constant noise that is learnt with the weights."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfp_fnspace.likelihoods import Gaussian
from tfp_fnspace.methods.tagi import equations
from tfp_fnspace.methods.tagi.layers.base import TAGILayer
from tfp_fnspace.typing import GaussianMoments, Tensor

#: Prior variance of the logarithm of the noise's variance. One standard deviation is a factor of
#: 1.6 in the scale.
_PRIOR_VARIANCE = 1.0


class LearnedNoise(TAGILayer):
    """The logarithm w of the variance of the noise, a Gaussian parameter without inputs.

    It replaces the second half of the outputs in `likelihoods.HeteroscedasticGaussian.innovation`,
    with one w for each scale of the likelihood. The prior is N(log(scale^2 - min_scale^2) - 1/2,
    1). Under it, the mean of `min_scale^2 + exp(w)` is the square of the initial scale of the
    likelihood.

    Args:
        likelihood: `likelihoods.Gaussian` with a trainable scale.
        **kwargs: `name`, `dtype`.
    """

    def __init__(self, likelihood: Gaussian, **kwargs: Any):
        super().__init__(**kwargs)
        self.min_scale = likelihood.min_scale
        mean = self._prior_mean(likelihood)
        initializers = {"mean": mean, "variance": _PRIOR_VARIANCE}
        self.log_variance = GaussianMoments(
            *(
                self.add_weight(
                    name=f"log_variance_{part}",
                    shape=mean.shape,
                    initializer=keras.initializers.Constant(value),
                    autocast=False,
                )
                for part, value in initializers.items()
            )
        )
        self.built = True

    def _prior_mean(self, likelihood):
        scale = np.asarray(likelihood.scale, np.float64)
        return equations.log_variance_mean(scale, self.min_scale, _PRIOR_VARIANCE)

    def adapt(self, likelihood: Gaussian) -> None:
        """Sets the prior mean by the present scale of a likelihood."""
        self.log_variance.mean.assign(self._prior_mean(likelihood))

    @property
    def parameters(self) -> list[GaussianMoments]:
        return [self.log_variance]

    def behind(self, moments: GaussianMoments) -> GaussianMoments:
        """Appends the moments of w to moments of function values `[N, D]`; returns `[N, 2 D]`."""
        own = (
            tf.broadcast_to(part.value, tf.shape(values))
            for part, values in zip(self.log_variance, moments, strict=True)
        )
        pairs = zip(moments, own, strict=True)
        return GaussianMoments(*(tf.concat(pair, axis=-1) for pair in pairs))

    def scale(self) -> Tensor:
        """Returns the square root of the mean variance of the noise, `[]` or `[D]`."""
        mean, variance = (part.value for part in self.log_variance)
        return equations.noise_scale(mean, variance, self.min_scale)
