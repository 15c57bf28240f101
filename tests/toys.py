"""Small models of the contract with known posteriors, for tests of what methods share."""

import keras
import tensorflow as tf

import tfp_fnspace as fns
from tfp_fnspace.math.random import fold_in, normal
from tfp_fnspace.model import GradientModel


@keras.saving.register_keras_serializable(package="toys")
class LinearModel(GradientModel):
    """Bayesian linear model `f = (1, x) w`, `w ~ N(0, I)`, with a full Gaussian posterior.

    `q(w_d) = N(m_d, L_d L_d^T)` for each output d is trained by its evidence lower bound. With
    `draws=True` predictions come from draws of w, otherwise from the moments of f (S = 1).
    """

    def __init__(
        self,
        num_inputs,
        num_outputs,
        likelihood,
        draws=False,
        standardize=None,
        seed=None,
        **kwargs,
    ):
        super().__init__(autocast=False, **kwargs)
        self.num_inputs, self.draws = num_inputs, draws
        inputs = keras.KerasTensor((None, num_inputs), dtype=self.variable_dtype)
        self.setup(likelihood, standardize is None or standardize, seed)
        self.setup_shapes([inputs], num_outputs)
        self.num_eval_samples = 50 if draws else 1
        size = num_inputs + 1
        self.mean = self.add_weight(name="mean", shape=(num_outputs, size), initializer="zeros")
        self.raw = self.add_weight(name="raw", shape=(num_outputs, size, size), initializer="zeros")

    def cholesky(self):
        raw = self.raw.value
        lower = tf.linalg.band_part(raw, -1, 0)
        return tf.linalg.set_diag(lower, tf.exp(tf.linalg.diag_part(raw)))

    def features(self, inputs):
        (x,) = inputs
        return tf.concat([tf.ones_like(x[:, :1]), x], axis=1)

    def gaussian(self, inputs):
        features = self.features(inputs)
        mean = tf.matmul(features, self.mean.value, transpose_b=True)
        projected = tf.einsum("np,dpq->ndq", features, self.cholesky())
        return fns.GaussianMoments(mean, tf.reduce_sum(projected**2, axis=-1))

    def objective(self, inputs, targets, num_rows, seed):
        expected = self.likelihood.expected_log_prob(self.gaussian(inputs), targets, seed)
        log_likelihood = num_rows * tf.reduce_mean(expected)
        lower = self.cholesky()
        diagonal = tf.linalg.diag_part(lower)
        kl = 0.5 * tf.reduce_sum(lower**2) + 0.5 * tf.reduce_sum(self.mean.value**2)
        kl -= tf.reduce_sum(tf.math.log(diagonal)) + 0.5 * diagonal.shape.num_elements()
        elbo = log_likelihood - kl
        parts = {"elbo": elbo, "log_likelihood": log_likelihood, "kl": kl}
        return -elbo / num_rows, parts

    def moments(self, inputs, num_samples, seed):
        if self.draws:
            return fns.GaussianMoments(self.functions(inputs, num_samples, seed), None)
        mean, variance = self.gaussian(inputs)
        return fns.GaussianMoments(mean[tf.newaxis], variance[tf.newaxis])

    def functions(self, inputs, num_samples, seed):
        shape = [num_samples, *self.mean.shape]
        noise = normal(shape, fold_in(seed, 0), self.variable_dtype)
        weights = self.mean.value + tf.einsum("dpq,sdq->sdp", self.cholesky(), noise)
        return tf.einsum("np,sdp->snd", self.features(inputs), weights)

    def default_optimizer(self, total_steps, part="model"):
        rate = keras.optimizers.schedules.CosineDecay(0.05, total_steps or 1000)
        return keras.optimizers.Adam(rate)

    def get_config(self):
        return {
            "name": self.name,
            "num_inputs": self.num_inputs,
            "num_outputs": self.num_outputs,
            "likelihood": keras.saving.serialize_keras_object(self.likelihood),
            "draws": self.draws,
            "standardize": self.standardize,
            "seed": self.seed,
        }

    @classmethod
    def from_config(cls, config):
        likelihood = keras.saving.deserialize_keras_object(config.pop("likelihood"))
        return cls(likelihood=likelihood, **config)


@keras.saving.register_keras_serializable("toys")
class Products(keras.layers.Layer):
    """Values `[N, K]` and their products, `[N, K + K^2]`.

    Log-ratios of normal distributions are linear in these.
    """

    def call(self, inputs):
        products = inputs[:, :, tf.newaxis] * inputs[:, tf.newaxis]
        return tf.concat([inputs, tf.reshape(products, [-1, inputs.shape[1] ** 2])], axis=1)
