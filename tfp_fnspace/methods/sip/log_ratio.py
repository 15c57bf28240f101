"""Divergences of distributions that can only be sampled, estimated by discriminators."""

from typing import Any, NamedTuple, Self

import keras
import tensorflow as tf

from tfp_fnspace.math import random
from tfp_fnspace.methods.sip import contrast, equations
from tfp_fnspace.typing import Config, Network, Seed, Tensor


class Divergences(NamedTuple):
    """Estimates from draws of q and of p, scalars.

    Attributes:
        forward: KL(q || p).
        reverse: KL(p || q).
        loss: The loss of the discriminators.
        accuracy: Share of the draws of q and p that they classify correctly.
        num_jittered: Number of covariances that needed more on their diagonal, int32.
    """

    forward: Tensor
    reverse: Tensor
    loss: Tensor
    accuracy: Tensor
    num_jittered: Tensor | int = 0


@keras.saving.register_keras_serializable(package="tfp_fnspace.sip")
class LogRatio(keras.layers.Layer):
    r"""Estimates KL(q || p) and KL(p || q) by one or two discriminators.

    With one discriminator T, which is trained by `Divergences.loss`,

        KL(q || p) = E_q T,    KL(p || q) = -E_p T                                (equation 10).

    With adaptive contrast, one discriminator compares q with the normal distribution q_bar with the
    moments of q, and another compares p with p_bar, in values standardised by the moments (appendix
    B):

        log q - log p = [T_q - log (p_bar / q_bar)] - T_p,
        KL(q || p) = E_q[T_q - T_p] + KL(q_bar || p_bar),

    and the same with q and p exchanged. The discriminators then only have to learn how q and p
    deviate from normal distributions. In the paper the normal distributions have independent
    values, so that the discriminators must learn the dependence between values, which is strong for
    a smooth function. With `noise` they have full covariances (`contrast.JointNormal`).

    Gradients pass through the draws, while T is fixed. This gives the whole gradient of KL(q || p)
    in q and of KL(p || q) in p, since E_q of the score of q is 0. It gives nothing of the gradient
    of KL(p || q) in q and of KL(q || p) in p, which the paper also leaves out. Without contrast, q
    therefore follows only KL(q || p), and p only KL(p || q). With contrast the closed forms have
    all gradients: for two normal distributions, those of both divergences in both distributions.

    Args:
        discriminator: Keras model from `[S, K]` to `[S, 1]`.
        contrast: A second discriminator for p, with adaptive contrast; None without it.
        noise: Variance of noise for full covariances. Noise of this variance is first added to
            draws of p, as to the covariance at the inducing points. Noise of a hundredth of it is
            added to draws of q, whose network may have fewer dimensions than there are values.
            None, the default, means independent values.
        **kwargs: `name`, `dtype`.

    Call arguments:
        q: Draws `[S, K]`.
        p: Draws `[S, K]`.
        seed: int32 tensor `[2]`, seed of the contrast.
        training: Whether dropout is active.

    Returns:
        `Divergences`.

    References:
        Mescheder, Nowozin and Geiger (2017), "Adversarial variational Bayes", ICML.
    """

    #: Whether a single discriminator sees values standardised by their moments.
    standardizes = False

    def __init__(
        self,
        discriminator: Network,
        contrast: Network | None = None,
        noise: float | None = None,
        **kwargs: Any,
    ):
        super().__init__(autocast=False, **kwargs)
        self.discriminator, self.contrast, self.noise = discriminator, contrast, noise
        self.built = True

    def call(self, q: Tensor, p: Tensor, seed: Seed, training: bool = True) -> Divergences:
        if self.contrast is None:
            at_q, at_p = (self._logits(self.discriminator, v, training) for v in (q, p))
            loss, accuracy = equations.classification(at_q, at_p)
            return Divergences(*equations.log_ratio_divergences(at_q, at_p), loss, accuracy)
        if self.noise is None:
            part = equations.normal_part(q, p)
        else:
            part = contrast.joint_normal_part(*contrast.with_noise(q, p, self.noise, seed))
        t_q = [self._logits(self.discriminator, v, training) for v in part.by_q]
        t_p = [self._logits(self.contrast, v, training) for v in part.by_p]
        normals = [
            random.normal(tf.shape(v), its_seed, v.dtype)
            for v, its_seed in zip((q, p), random.split(seed, 2), strict=True)
        ]
        of_q = self._logits(self.discriminator, normals[0], training)
        of_p = self._logits(self.contrast, normals[1], training)
        losses = equations.classification(t_q[0], of_q), equations.classification(t_p[1], of_p)
        loss, accuracy = (a + b for a, b in zip(*losses, strict=True))
        divergences = equations.contrasted_divergences(t_q, t_p, part)
        return Divergences(*divergences, loss, 0.5 * accuracy, part.num_jittered)

    def spread(self, q: Tensor, p: Tensor) -> Tensor:
        """Returns the range of a discriminator's outputs over draws, the smaller one of two."""
        values = tf.concat([q, p], axis=0)
        if self.standardizes or self.contrast is not None:
            values = equations.standardized(values, *equations.normal_moments(values))
        networks = [network for network in (self.discriminator, self.contrast) if network]
        logits = tf.stack([self._logits(network, values, False) for network in networks])
        return tf.reduce_min(tf.reduce_max(logits, axis=1) - tf.reduce_min(logits, axis=1))

    def restart(self) -> bool:
        """Draws the weights of the discriminators again.

        Returns:
            Whether it did. It does not if their class cannot be made from its config.
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

    def get_config(self) -> Config:
        serialize = keras.saving.serialize_keras_object
        networks = {"discriminator": self.discriminator, "contrast": self.contrast}
        parts = {name: v if v is None else serialize(v) for name, v in networks.items()}
        return {**super().get_config(), **parts, "noise": self.noise}

    @classmethod
    def from_config(cls, config: Config) -> Self:
        config = dict(config)
        for name in ("discriminator", "contrast"):
            if config[name] is not None:
                config[name] = keras.saving.deserialize_keras_object(config[name])
        return cls(**config)


@keras.saving.register_keras_serializable(package="tfp_fnspace.sip")
class NormalLogRatio(LogRatio):
    r"""`LogRatio` with adaptive contrast for standard normal p with independent values.

    One discriminator T tells q, in values standardised by its moments, from normal draws. The rest
    has a closed form:

        KL(q || p) = E_q T + KL(q_bar || p),    KL(p || q) = KL(p || q_bar) - E_p T.

    Args:
        discriminator: Keras model from `[S, K]` to `[S, 1]`.
        **kwargs: `name`, `dtype`.

    References:
        Mescheder, Nowozin and Geiger (2017), "Adversarial variational Bayes", ICML, section 3.3.
    """

    standardizes = True

    def call(self, q: Tensor, p: Tensor, seed: Seed, training: bool = True) -> Divergences:
        of_q = equations.normal_moments(q)
        at_q, at_p = (
            self._logits(self.discriminator, equations.standardized(v, *of_q), training)
            for v in (q, p)
        )
        draws = random.normal(tf.shape(p), seed, p.dtype)
        at_normal = self._logits(self.discriminator, draws, training)
        loss, accuracy = equations.classification(at_q, at_normal)
        divergences = equations.divergences_from_standard_normal(at_q, at_p, of_q)
        return Divergences(*divergences, loss, accuracy)
