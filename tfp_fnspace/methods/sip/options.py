"""Options of models: the estimate of a divergence by a discriminator, and draws of a prior."""

import dataclasses

import keras

from tfp_fnspace.boundary import arguments
from tfp_fnspace.boundary.options import Options
from tfp_fnspace.methods.sip import parts
from tfp_fnspace.processes.base import Process
from tfp_fnspace.typing import Network

KINDS = ("symmetric", "forward")

#: Variance added to covariances of draws, and to exact covariances.
_JITTER, _EXACT_JITTER = 1e-2, 1e-5


@keras.saving.register_keras_serializable(package="tfp_fnspace.sip")
@dataclasses.dataclass(frozen=True)
class Adversarial(Options):
    """The divergence of u, estimated by a discriminator that is trained with the model.

    Args:
        kind: `"symmetric"`, the mean of KL(q || p) and KL(p || q) (equation 11), which also trains
            the prior; or `"forward"`, KL(q || p). With one discriminator KL(p || q) has no gradient
            in q, so only `adaptive_contrast` finds the minimum of the symmetric divergence.
        discriminator: Keras model from `[S, M D]` to `[S, 1]`; by default it has two hidden layers
            of 50 units.
        adaptive_contrast: Whether the divergence is estimated relative to its normal part (appendix
            B), with two discriminators. `True` is the paper's version, with independent values.
            `"full"` uses the covariances between the values at the inducing points. They are
            computed from at least 2 M D + 3 draws, which include those of a step and of the prior;
            noise of variance `jitter` is then added to the prior, as in the conditional. The
            discriminators only see deviations from normality, and `kl_estimate` is near the
            divergence if these are small.
        dropout: Dropout rate of the hidden units of the default discriminator.
        kl_annealing: Fraction of the steps of the first `fit` in which the weight of the divergence
            rises from 0 to 1. There is no annealing for a stream of unknown length.
        prior_penalty: lambda >= 0. The term lambda KL(q(w) || p(w)) / N is added to the loss for N
            rows, where q is the learned distribution of the prior's weights and p are the priors of
            its layers (for `"bnn"` with variances 1 / fan_in). This is a prior of the prior's
            parameters, which prevents it from learning the noise of the data. It requires a prior
            with `weight_divergence`.

    Raises:
        TypeError: If `discriminator` is not a Keras model.
        ValueError: If an argument is not as described.
    """

    kind: str = "symmetric"
    discriminator: Network | None = None
    adaptive_contrast: bool | str = False
    dropout: float = 0.0
    kl_annealing: float = 0.2
    prior_penalty: float = 0.0

    def __post_init__(self):
        arguments.checked_choice("kind", self.kind, KINDS)
        _check_estimate(self, ("full",))
        arguments.checked_number("prior_penalty", self.prior_penalty, 0.0, inclusive=True)


@keras.saving.register_keras_serializable(package="tfp_fnspace.sip")
@dataclasses.dataclass(frozen=True)
class AdversarialOfWeights(Options):
    """The divergence KL(q || p) of the weights of a network, estimated by a discriminator.

    Args:
        discriminator: Keras model from `[S, P]` to `[S, 1]`; by default it has two hidden layers of
            50 units.
        adaptive_contrast: Whether the discriminator compares q with the normal distribution of
            independent values with its moments, whose divergence from the prior has a closed form.
            Otherwise it compares q with the prior.
        dropout: Dropout rate of the hidden units of the default discriminator.
        kl_annealing: Fraction of the steps of the first `fit` in which the weight of the divergence
            rises from 0 to 1. There is no annealing for a stream of unknown length.

    Raises:
        TypeError: If `discriminator` is not a Keras model.
        ValueError: If an argument is not as described.
    """

    discriminator: Network | None = None
    adaptive_contrast: bool = True
    dropout: float = 0.0
    kl_annealing: float = 0.2

    def __post_init__(self):
        _check_estimate(self)


def _check_estimate(options, kinds_of_contrast=()):
    """Checks what all estimates by a discriminator have."""
    parts.check_discriminator(options.discriminator)
    contrast = parts.checked_contrast(options.adaptive_contrast, kinds_of_contrast)
    object.__setattr__(options, "adaptive_contrast", contrast)
    arguments.checked_rate("dropout", options.dropout)
    arguments.checked_fraction("kl_annealing", options.kl_annealing)


@keras.saving.register_keras_serializable(package="tfp_fnspace.sip")
@dataclasses.dataclass(frozen=True)
class PriorDraws(Options):
    """The draws of the prior from which the moments of f given u are computed.

    Args:
        num_draws: S, the number of prior draws for the moments and for the discriminator. The
            default is the larger of the model's `num_samples` and 2 M: with no more draws than
            inducing points, u would determine almost everything. It is the same in prediction,
            since the learned distribution depends on it.
        fixed: Whether the S draws for the moments are the same functions in every step and in
            prediction, as in VIP; the discriminator still gets new draws. Then w(x) is not noisy,
            and the S functions are learned. This fits more finely if there is little noise or there
            are many rows, but is more prone to learn the noise of few rows. It has no effect if the
            prior has `moments`.
        num_eval_sets: B. Predictions combine their draws of u in turn with the moments of B sets of
            S draws. Training averages over such sets, which are new in every step; a prediction
            from a single set has the noise of that set. B sets take more than B times as long. With
            fewer than B draws of u, the mixture has one set for each draw. It has no effect if the
            prior has `moments` or the draws are fixed.
        jitter: Variance added to the covariance at the inducing points, in model units. The default
            is 1e-5 if the prior has `moments`, and 1e-2 if the moments are those of draws. The
            paper uses 1e-5, with which the moments of as many draws as inducing points are mostly
            noise. Less may be better if the variance of the observation noise is smaller.

    Raises:
        ValueError: If an argument is not as described.
    """

    num_draws: int | None = None
    fixed: bool = False
    num_eval_sets: int = 1
    jitter: float | None = None

    def __post_init__(self):
        if self.num_draws is not None:
            arguments.check_count("num_draws", self.num_draws, 2)
        arguments.check_count("num_eval_sets", self.num_eval_sets)
        if self.jitter is not None:
            arguments.checked_positive("jitter", self.jitter)

    def count(self, num_samples: int, inducing_points: int) -> int:
        """Returns S for a model."""
        return self.num_draws or max(num_samples, 2 * inducing_points)

    def jitter_for(self, prior: Process | str) -> float:
        """Returns the variance that is added for a prior, a process or the name of one."""
        has_moments = getattr(prior, "has_moments", False)
        return self.jitter or (_EXACT_JITTER if has_moments else _JITTER)
