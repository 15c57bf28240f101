"""Divergences of laws that can only be drawn from, by discriminators."""

from typing import NamedTuple

import keras
import tensorflow as tf

from tfp_fnspace.math import random

#: The least variance of a contrast, against a sampler that has collapsed to a point.
_LEAST_VARIANCE = 1e-6


class Divergences(NamedTuple):
    """Estimates from draws of q and of p, scalars.

    Attributes:
        forward: KL(q || p).
        reverse: KL(p || q).
        loss: What the discriminators minimise.
        accuracy: Share of the draws that they tell right, q and p alike.
    """

    forward: tf.Tensor
    reverse: tf.Tensor
    loss: tf.Tensor
    accuracy: tf.Tensor


def classification(at_q, at_p):
    """Loss and accuracy of a discriminator that should be positive at q and negative at p.

        loss = -E_q log sigma(T) - E_p log(1 - sigma(T))                           (equation 3)

    Its minimum over all functions is at `T = log q - log p`.

    Args:
        at_q: T at draws of q, `[S]`.
        at_p: T at draws of p, `[S]`.

    Returns:
        Pair of scalars.
    """
    loss = tf.reduce_mean(tf.nn.softplus(-at_q)) + tf.reduce_mean(tf.nn.softplus(at_p))
    right = [tf.cast(v > 0.0, v.dtype) for v in (at_q, -at_p)]
    return loss, 0.5 * tf.add_n([tf.reduce_mean(v) for v in right])


@keras.saving.register_keras_serializable(package="tfp_fnspace.sip")
class LogRatio(keras.layers.Layer):
    r"""Estimates KL(q || p) and KL(p || q) by one discriminator or two.

    With one, T, trained by `Divergences.loss`,

        KL(q || p) = E_q T,    KL(p || q) = -E_p T                                (equation 10).

    With adaptive contrast there is a discriminator for each law against the normal law of
    independent values with its moments, in values standardised by them (appendix B):

        log q - log p = [T_q - log (p_bar / q_bar)] - T_p,
        KL(q || p) = E_q[T_q - T_p] + KL(q_bar || p_bar),

    and the other way round. The discriminators then see what is not normal about q and p only.

    Gradients go through the draws, with T as it is. That is all of the gradient of KL(q || p) in q
    and of KL(p || q) in p, where E_q of the score of q is 0; it is nothing of that of KL(p || q) in
    q and of KL(q || p) in p, which the paper leaves out. Without contrast, q follows KL(q || p)
    only, and p KL(p || q). With it the closed forms have all gradients: of two normal laws with
    independent values, those of both divergences in both.

    Args:
        discriminator: Keras model from `[S, K]` to `[S, 1]`.
        contrast: Another one for p, with adaptive contrast; None without.
        **kwargs: `name`, `dtype`.

    Call arguments:
        q: Draws `[S, K]`.
        p: Draws `[S, K]`.
        seed: int32 tensor `[2]`, of the contrast.
        training: Whether dropout is on.

    Returns:
        `Divergences`.

    References:
        Mescheder, Nowozin and Geiger (2017), "Adversarial variational Bayes", ICML.
    """

    #: Whether a single discriminator sees values in units of their moments.
    standardizes = False

    def __init__(self, discriminator, contrast=None, **kwargs):
        super().__init__(autocast=False, **kwargs)
        self.discriminator, self.contrast = discriminator, contrast
        self.built = True

    def call(self, q, p, seed, training=True):
        if self.contrast is None:
            at_q, at_p = (self._logits(self.discriminator, v, training) for v in (q, p))
            loss, accuracy = classification(at_q, at_p)
            return Divergences(tf.reduce_mean(at_q), -tf.reduce_mean(at_p), loss, accuracy)
        q_bar, p_bar = _moments(q), _moments(p)
        t_q = [self._logits(self.discriminator, _standard(v, q_bar), training) for v in (q, p)]
        t_p = [self._logits(self.contrast, _standard(v, p_bar), training) for v in (q, p)]
        normals = [
            random.normal(tf.shape(v), its_seed, v.dtype)
            for v, its_seed in zip((q, p), random.split(seed, 2), strict=True)
        ]
        of_q = classification(t_q[0], self._logits(self.discriminator, normals[0], training))
        of_p = classification(t_p[1], self._logits(self.contrast, normals[1], training))
        forward = tf.reduce_mean(t_q[0] - t_p[0]) + _normal_divergence(q_bar, p_bar)
        reverse = tf.reduce_mean(t_p[1] - t_q[1]) + _normal_divergence(p_bar, q_bar)
        loss, accuracy = (a + b for a, b in zip(of_q, of_p, strict=True))
        return Divergences(forward, reverse, loss, 0.5 * accuracy)

    def spread(self, q, p):
        """How much what a discriminator says differs over draws; of two, of the less."""
        values = tf.concat([q, p], axis=0)
        if self.standardizes or self.contrast is not None:
            values = _standard(values, _moments(values))
        networks = [network for network in (self.discriminator, self.contrast) if network]
        logits = tf.stack([self._logits(network, values, False) for network in networks])
        return tf.reduce_min(tf.reduce_max(logits, axis=1) - tf.reduce_min(logits, axis=1))

    def restart(self):
        """Draws the weights of the discriminators anew.

        Returns:
            Whether it did: not where they are of a class that cannot be made from its config.
        """
        networks = [network for network in (self.discriminator, self.contrast) if network]
        try:
            fresh = [keras.models.clone_model(network).get_weights() for network in networks]
        except (NotImplementedError, TypeError, ValueError):
            return False
        for network, weights in zip(networks, fresh, strict=True):
            network.set_weights(weights)
        return True

    def _logits(self, network, values, training):
        return tf.cast(network(values, training=training)[:, 0], values.dtype)

    def get_config(self):
        serialize = keras.saving.serialize_keras_object
        networks = {"discriminator": self.discriminator, "contrast": self.contrast}
        parts = {name: v if v is None else serialize(v) for name, v in networks.items()}
        return {**super().get_config(), **parts}

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        for name in ("discriminator", "contrast"):
            if config[name] is not None:
                config[name] = keras.saving.deserialize_keras_object(config[name])
        return cls(**config)


def _moments(values):
    mean, variance = tf.nn.moments(values, axes=[0])
    return mean, variance + _LEAST_VARIANCE


def _standard(values, moments):
    """Values in units of moments, which are constants in the gradient (equation 19)."""
    mean, variance = map(tf.stop_gradient, moments)
    return (values - mean) * tf.math.rsqrt(variance)


def _normal_divergence(a, b):
    """Divergence of independent normal values from others, in closed form."""
    (mean, variance), (other_mean, other_variance) = a, b
    ratio = variance / other_variance
    squares = tf.square(mean - other_mean) / other_variance
    return 0.5 * tf.reduce_sum(ratio + squares - 1.0 - tf.math.log(ratio))


@keras.saving.register_keras_serializable(package="tfp_fnspace.sip")
class NormalLogRatio(LogRatio):
    r"""`LogRatio` with adaptive contrast where p is the standard normal law of independent values.

    One discriminator T tells q, in values standardised by its moments, from normal draws; the rest
    is in closed form:

        KL(q || p) = E_q T + KL(q_bar || p),    KL(p || q) = KL(p || q_bar) - E_p T.

    Args:
        discriminator: Keras model from `[S, K]` to `[S, 1]`.
        **kwargs: `name`, `dtype`.

    References:
        Mescheder, Nowozin and Geiger (2017), "Adversarial variational Bayes", ICML, section 3.3.
    """

    standardizes = True

    def call(self, q, p, seed, training=True):
        q_bar, normal = _moments(q), (tf.zeros_like(q[0]), tf.ones_like(q[0]))
        at_q, at_p = (
            self._logits(self.discriminator, _standard(v, q_bar), training) for v in (q, p)
        )
        draws = random.normal(tf.shape(p), seed, p.dtype)
        loss, accuracy = classification(at_q, self._logits(self.discriminator, draws, training))
        forward = tf.reduce_mean(at_q) + _normal_divergence(q_bar, normal)
        reverse = _normal_divergence(normal, q_bar) - tf.reduce_mean(at_p)
        return Divergences(forward, reverse, loss, accuracy)
