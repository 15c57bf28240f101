"""The divergence in closed form of networks whose functions are Gaussian."""

import tensorflow as tf

from tfp_fnspace.callbacks import JitterReport
from tfp_fnspace.layers.gaussian_output import GaussianOutput
from tfp_fnspace.likelihoods import Gaussian
from tfp_fnspace.methods.fbnn.functional_kl import gaussian_kl
from tfp_fnspace.typing import GaussianMoments

#: Number of rows whose features are in memory at once while the last layer is fitted.
_ROWS_OF_FEATURES = 2000

#: Least initial value of a trained noise scale, relative to its minimum, at which it would not
#: move.
_ABOVE_LEAST = 1.01


class ClosedForm:
    """Mixin of `FBNNModel`: `kl="closed_form"` and `fit_output`.

    The model has `kl`, `prior`, `likelihood`, `fit_output` and `injected_noise` when it calls
    `_setup_closed_form`. Afterwards `_output` is the `GaussianOutput` of its network, or None if
    another divergence is used.
    """

    jittered_matrix = "A covariance of the network or of the prior at the measurement points"

    def _setup_closed_form(self):
        self._output = GaussianOutput(self.network) if self.kl == "closed_form" else None
        if self._output is not None and not self.prior.is_gaussian:
            raise ValueError(
                '`kl="closed_form"` needs a Gaussian process as prior. '
                f"Received: prior={type(self.prior).__name__}"
            )
        if self._output is not None and self.in_users_units:
            raise ValueError(
                '`kl="closed_form"` needs a network from inputs to values in model units. '
                "Received: in_users_units=True, as networks of `from_keras` are by default"
            )
        if self.fit_output and (self._output is None or type(self.likelihood) is not Gaussian):
            raise ValueError(
                '`fit_output` needs `kl="closed_form"` and a Gaussian likelihood. '
                f"Received: kl={self.kl!r}, likelihood={type(self.likelihood).__name__}"
            )
        if self.fit_output:
            self._output.prior_scales()  # refuses unsuitable layers

    def _epoch_callbacks(self, callbacks, initial_epoch):
        reports = [] if self._output is None else [JitterReport()]
        return [*super()._epoch_callbacks(callbacks, initial_epoch), *reports]

    @staticmethod
    def jittered_when_predicting():
        """Returns 0, since predictions factor no covariance."""
        return 0

    @property
    def wants_batches_first(self):
        return self.fit_output

    def prepare_with_batches(self, batches):
        """Fits the last layer, in parts of the rows so that features take little memory."""

        def parts():
            for (x,), targets in batches:
                for i in range(0, len(targets), _ROWS_OF_FEATURES):
                    rows = slice(i, i + _ROWS_OF_FEATURES)
                    (inputs,) = self.scaled([tf.constant(x[rows])])
                    yield inputs, self.target_scaler(tf.constant(targets[rows]))

        regression, likelihood = self._output.regression(parts()), self.likelihood
        if likelihood.trainable_variables:
            separate, least = bool(likelihood.scale.shape.rank), likelihood.min_scale
            best = regression.best_noise_scale(_ABOVE_LEAST * least, separate)
            likelihood.set_scale(best)
        scale = tf.cast(likelihood.scale, tf.float64).numpy()
        self._output.layer.posterior.condition(regression, scale)

    def _gaussian_distribution_at(self, points):
        """Returns the result of `_distribution_at` of the model for a normal distribution."""
        joint = self._output.joint(points)

        def divergence(_):
            kl, num_jittered = self._closed_form_at(joint, points)
            return kl, kl, {"jittered": tf.cast(num_jittered, kl.dtype)}

        return self._moments_of(joint), divergence

    def _closed_form_at(self, joint, points):
        mean, root = (tf.cast(v, self.variable_dtype) for v in joint)
        return gaussian_kl(mean, root, points, self.prior, self.injected_noise)

    def _moments_of(self, joint):
        """Returns the `GaussianMoments` of a joint distribution, `[1, N, D]`."""
        moments = joint.mean, joint.variance()
        return GaussianMoments(*(tf.cast(v, self.variable_dtype)[tf.newaxis] for v in moments))

    def mixture_moments(self, x, num_samples, seed):
        if self._output is None:
            return super().mixture_moments(x, num_samples, seed)
        return self.in_user_units(self._moments_of(self._output.joint(*self.scaled(x))))

    def numbers_per_sample(self):
        size = 0 if self._output is None else self._output.layer.posterior.size * self.num_outputs
        return max(super().numbers_per_sample(), size)
