"""The priors of the weights of a variational layer."""

import keras
import tensorflow as tf

from tfp_fnspace.layers import priors
from tfp_fnspace.layers.posterior_base import Posterior
from tfp_fnspace.typing import ArrayLike, Distribution

#: The least standard deviation of the prior `"start"`, relative to the kernel's root mean square.
_LEAST_SPREAD = 0.2


class WeightPriors(keras.layers.Layer):
    """Mixin of `VariationalLayer`: its `prior` and `bias_prior`."""

    # What `VariationalLayer` has.
    posterior: Posterior
    kernel_name: str
    takes_indices: bool
    use_bias: bool
    _fans: tuple[int, int]

    def _take_priors(self, prior, bias_prior):
        """Checks and keeps the user's priors, see `VariationalLayer`."""
        self.prior = None if prior is None else priors.checked(prior)
        self._given_bias_prior = bias_prior
        if bias_prior is None:
            has_mean_0 = self.prior in (None, priors.RELEVANCE, *priors.RULES)
            bias_prior = "standard" if has_mean_0 else self.prior
        self.bias_prior = priors.checked(bias_prior, "bias_prior")
        if self.bias_prior == priors.RELEVANCE:
            raise ValueError(
                "`bias_prior` must not be 'relevance': a unit has only one bias, so nothing shows "
                f"whether it is useful. Received: bias_prior={bias_prior!r}"
            )
        self._start = {}

    def _prior_config(self):
        bias_prior = None if self._given_bias_prior is None else priors.serialize(self.bias_prior)
        prior = None if self.prior is None else priors.serialize(self.prior)
        return {"prior": prior, "bias_prior": bias_prior}

    def _build_start(self):
        """Keeps the values at which the weights start, if a prior is around them."""
        if priors.START in (self.prior, self.bias_prior):
            for name, mean in self.posterior.means.items():
                options = {"trainable": False, "autocast": False, "shape": mean.shape}
                self._start[name] = self.add_weight(name=f"{name}_start", **options)
            self.start_at(**{name: mean.value for name, mean in self.posterior.means.items()})

    def start_at(self, **means: ArrayLike) -> None:
        """Sets the initial means of the posterior and of the prior `"start"`."""
        self.posterior.set_means(**means)
        for name in self._start.keys() & means.keys():
            self._start[name].assign(means[name])

    def weight_priors(self, rule: str = "fan_in") -> dict[str, Distribution]:
        """Returns the priors of the weights, a dict of `tfd.Distribution` that broadcast.

        Args:
            rule: The prior of a layer that was given no prior.
        """
        given = {self.kernel_name: rule if self.prior is None else self.prior}
        if self.use_bias:
            given["bias"] = self.bias_prior
        return {
            name: self._learnt_prior(name, prior)
            if prior in priors.LEARNT
            else priors.distribution(prior, *self._fans, self.variable_dtype)
            for name, prior in given.items()
        }

    def _learnt_prior(self, name, rule):
        """Returns the prior of a part, one of `priors.LEARNT`, for the current posterior."""
        mean, variance = self.posterior.mean_values()[name], self.posterior.variances()[name]
        axes = list(range(len(mean.shape)))
        if name == self.kernel_name and not self.takes_indices:
            del axes[-2]  # that of the inputs
        if rule == priors.RELEVANCE:
            return priors.learnt(mean, variance, axes)
        size = tf.sqrt(tf.reduce_mean(tf.square(self._start[self.kernel_name].value)))
        return priors.learnt(mean, variance, axes, self._start[name].value, _LEAST_SPREAD * size)
