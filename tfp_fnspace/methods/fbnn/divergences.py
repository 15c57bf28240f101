"""The ways in which `FBNNModel` computes the divergence of functions and its gradient."""

import dataclasses
from typing import Any, TypeAlias

import keras

from tfp_fnspace.boundary import arguments
from tfp_fnspace.boundary.options import Options


@dataclasses.dataclass(frozen=True)
class Divergence(Options):
    """What the divergences have in common.

    Args:
        injected_noise: gamma, in units of f. Noise of this standard deviation is added to both
            sides of the divergence, which lowers it. At 0 the objective is exact.
        learn_prior: Whether the `trainable` parameters of the prior are trained jointly with the
            network (appendix C.2). The prior must have a density. Otherwise the model does not
            change them.
    """

    injected_noise: float = 0.01
    learn_prior: bool = False

    def __post_init__(self):
        arguments.checked_number("injected_noise", self.injected_noise, 0.0, inclusive=True)


@keras.saving.register_keras_serializable(package="tfp_fnspace.fbnn")
@dataclasses.dataclass(frozen=True)
class Stein(Divergence):
    """The gradient of `kl_surrogate`, by scores.

    The score of q is estimated by the spectral Stein estimator; the score of the prior is exact if
    it has a density. The value is that of `kl_estimate`.

    Args:
        injected_noise: As for `Divergence`.
        learn_prior: As for `Divergence`.
        share: Argument of `spectral_stein_score`.
        bandwidth: Argument of `spectral_stein_score`. It is 1 in the paper's program.
        whiten: Argument of `spectral_stein_score`. The paper's program does not whiten.
        monitor_steps: Number of steps between computations of the value for `History`, and thus of
            `elbo` and the value of the loss; it is kept in between. The gradient does not need it,
            and it takes a quarter of the time of a small step.

    Raises:
        ValueError: If an argument is not as described.
    """

    share: float = 0.99
    bandwidth: float = 2.0
    whiten: bool = True
    monitor_steps: int = 10

    def __post_init__(self):
        super().__post_init__()
        arguments.checked_positive("share", self.share)
        arguments.checked_positive("bandwidth", self.bandwidth)
        arguments.check_count("monitor_steps", self.monitor_steps)


@keras.saving.register_keras_serializable(package="tfp_fnspace.fbnn")
@dataclasses.dataclass(frozen=True)
class Regularized(Divergence):
    """`kl_estimate`, the divergence of the Gaussians with the moments of q and p.

    Noise of variance `injected_noise^2` for each point is added on both sides. This is finite and
    meaningful if the divergence of the functions is infinite, as it is for a network and most
    Gaussian processes. S functions suffice for (S - 1) // 2 points. If there are more rows and
    points together, this number of them is chosen at random in every step, with the noise for this
    number. The mean over steps is then the divergence at this number of points, without bias if the
    functions are normal. It differs little from the divergence at all points, since both noise and
    divergence grow with the number of points.

    Args:
        injected_noise: As for `Divergence`.
        learn_prior: As for `Divergence`.

    Raises:
        ValueError: If `injected_noise` is negative.
    """


@keras.saving.register_keras_serializable(package="tfp_fnspace.fbnn")
@dataclasses.dataclass(frozen=True)
class ClosedForm(Divergence):
    """The exact divergence of two Gaussians.

    The functions of the network must be Gaussian, since only the weights of its last layer are
    random (`GaussianOutput`), and the prior must be a Gaussian process. The predictive distribution
    is then Gaussian. There are no draws, so the functional evidence lower bound has no noise.
    Without injected noise it is finite only for more features than points and a prior whose
    covariance has a Cholesky factor. If jitter is added, it is counted in `History` (`jittered`)
    and a warning is given.

    Args:
        injected_noise: As for `Divergence`.
        learn_prior: As for `Divergence`.
        fit_output: Whether the posterior of the last layer, `"conditioned"`, starts at that of a
            Bayesian linear regression on its features, with the layer's prior, the noise of the
            likelihood and the data of the first `fit`. A dataset needs a pass for this; only its
            first batch is used if its length is not known. A trained noise scale starts at the
            maximum of the regression's marginal likelihood. The likelihood must be Gaussian.

    Raises:
        ValueError: If `injected_noise` is negative.
    """

    fit_output: bool = False


@keras.saving.register_keras_serializable(package="tfp_fnspace.fbnn")
@dataclasses.dataclass(frozen=True)
class Linearized(Divergence):
    r"""The exact divergence of the network's first-order expansion in its weights.

        f(x; w) ~ f(x; m) + J(x) (w - m),     w ~ N(m, V):     N(f(x; m), J V J^T)

    is Gaussian at all rows and points, so that its divergence from a Gaussian process has a closed
    form (`layers.LinearizedNetwork`). The value and its gradient have no noise, and a step needs no
    draws for them. As for `Regularized`, noise of variance `injected_noise^2` for each point is
    added on both sides, with which the divergence has a limit for many points. The expected
    log-likelihood and all predictions are those of the network itself, from draws. So the objective
    is no bound unless the network is linear in its random weights.

    A step takes time in proportion to the square of the number of rows and points; batches of about
    100 rows are a good size. The posteriors of all layers must be Gaussian, and the prior must be a
    Gaussian process.

    Args:
        injected_noise: As for `Divergence`.
        learn_prior: As for `Divergence`.

    Raises:
        ValueError: If `injected_noise` is negative.

    References:
        Rudner, Chen, Teh and Gal (2022), "Tractable function-space variational inference in
        Bayesian neural networks", NeurIPS.
        Cinquin and Bamler (2024), "Regularized KL-divergence for well-defined function-space
        variational inference in Bayesian neural networks".
    """


#: All divergences.
AnyDivergence: TypeAlias = Stein | Regularized | ClosedForm | Linearized


def checked_divergence(divergence: Any) -> AnyDivergence:
    """Returns a divergence, `Stein()` for `None`.

    Raises:
        TypeError: If it is something else.
    """
    if divergence is None:
        return Stein()
    if not isinstance(divergence, AnyDivergence):
        raise TypeError(
            "`divergence` must be a Stein, Regularized, ClosedForm or Linearized of "
            f"`tfp_fnspace.fbnn`. Received: divergence={divergence!r}"
        )
    return divergence
