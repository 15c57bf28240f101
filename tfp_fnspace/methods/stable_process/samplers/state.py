"""State, priors and diagnostics of a chain."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_fnspace.boundary import arguments
from tfp_fnspace.math.random import as_seed, normal
from tfp_fnspace.methods.stable_process import equations
from tfp_fnspace.methods.stable_process.samplers import checks
from tfp_fnspace.methods.stable_process.samplers.problem import Problem
from tfp_fnspace.typing import ArrayLike, Seed, Tensor

FLOAT = tf.float64

NOISE_PRIORS = ("variance", "scale")


class Settings(NamedTuple):
    """Priors, and the number of moves of each kind in an iteration.

    Attributes:
        infer_noise: Whether the variance of the noise is sampled.
        noise_prior: `"variance"`: half-Cauchy(0, 1) on sigma^2, as in the paper; `"scale"`:
            half-Cauchy(0, 1) on sigma.
        noise_df: Degrees of freedom of Student-t noise, or `None` for Gaussian noise.
        alpha_range: Interval of the uniform prior of alpha, or `None` if alpha is fixed.
        nu_prior: Mean and standard deviation of log nu, or `None` if nu is fixed.
        proposals: Draws from the prior that each group may take in an iteration.
        relocations: Moves of whole jumps in an iteration; `None` for 12 to 64, depending on the
            numbers of groups and of points.
        adapt_for: Iterations in which the steps of the random walks are adapted.
        num_copies: Sum of w - 1 over rows of weights w, whose `noise_weights` are 1 / w; see
            `equations.log_noise_of_copies`.
    """

    infer_noise: bool = True
    noise_prior: str = "variance"
    noise_df: float | None = None
    alpha_range: tuple[float, float] | None = None
    nu_prior: tuple[float, float] | None = None
    proposals: int = 2
    relocations: int | None = None
    adapt_for: int = 1000
    num_copies: float = 0.0

    def check(self) -> None:
        """Refuses settings that are not as described; every function that runs a sampler calls it.

        Raises:
            ValueError: For the first bad setting.
        """
        if not isinstance(self.infer_noise, bool | np.bool_):
            raise ValueError(
                f"`infer_noise` must be a boolean. Received: infer_noise={self.infer_noise!r}"
            )
        arguments.checked_choice("noise_prior", self.noise_prior, NOISE_PRIORS)
        if self.noise_df is not None:
            arguments.checked_positive("noise_df", self.noise_df)
        if self.alpha_range is not None:
            checks.checked_alpha_interval("alpha_range", self.alpha_range)
        if self.nu_prior is not None:
            checks.checked_nu_prior(self.nu_prior)
        arguments.check_count("proposals", self.proposals)
        if self.relocations is not None:
            arguments.check_count("relocations", self.relocations, 0)
        arguments.check_count("adapt_for", self.adapt_for, 0)


class ChainState(NamedTuple):
    """One state of each of B chains; a pure value.

    Attributes:
        u: `[B, L]`, Kanter's uniform variables of the atoms' scales.
        log_scales: `[B, L]`, `log s`.
        log_noise: `[B]`, `log sigma^2` in model units.
        noise_weights: `[B, N]`, the variances of Student-t noise in units of sigma^2; for Gaussian
            noise 1, or 1 / w for a row of weight w.
        alpha: `[B]`, index of the process.
        log_nu: `[B]`, `log nu`.
        log_steps: `[B, 3]`, logarithms of the random walks' steps: noise, nu, alpha.
        iteration: `[]` int32.
    """

    u: tf.Tensor
    log_scales: tf.Tensor
    log_noise: tf.Tensor
    noise_weights: tf.Tensor
    alpha: tf.Tensor
    log_nu: tf.Tensor
    log_steps: tf.Tensor
    iteration: tf.Tensor


def checked_state(state: Any, problem: Problem, settings: Settings) -> ChainState:
    """Returns the `ChainState` of a state or list of its parts; its static shapes must fit.

    Args:
        state: `ChainState`, or a list or tuple of its parts.
        problem: `Problem`.
        settings: `Settings`.

    Returns:
        `ChainState`.

    Raises:
        TypeError: If it is something else.
        ValueError: If a shape does not fit, or alpha is known and not inside the range.
    """
    if not isinstance(state, list | tuple) or len(state) != len(ChainState._fields):
        raise TypeError(
            "`state` must be a ChainState or a list of its parts. "
            f"Received: state of type {type(state).__name__}"
        )
    state = ChainState(*state)
    (chains, rows), atoms = problem.targets.shape, problem.group.shape[0]
    shapes = {"u": (chains, atoms), "log_scales": (chains, atoms), "iteration": ()}
    shapes |= {"noise_weights": (chains, rows), "log_steps": (chains, 3)}
    for name, part in state._asdict().items():
        shape = shapes.get(name, (chains,))
        if not tf.TensorShape(part.shape).is_compatible_with(shape):
            raise ValueError(
                f"`state.{name}` must have shape {shape} for this problem. "
                f"Received: state.{name}.shape={tuple(part.shape)}"
            )
    alpha = tf.get_static_value(state.alpha)
    if settings.alpha_range is not None and alpha is not None:
        low, high = settings.alpha_range
        wrong = alpha[~((alpha > low) & (alpha < high))]
        if wrong.size:
            raise ValueError(
                "`state.alpha` must be inside `alpha_range`. "
                f"Received: state.alpha={wrong[0]:g} with alpha_range={settings.alpha_range}"
            )
    return state


class Info(NamedTuple):
    """Diagnostics of an iteration, `[B]` each.

    Attributes:
        log_likelihood: `log N(y; 0, Q)` at the new noise and nu, before the scales moved.
        accept_scales: Share of the groups that took a new scale.
        accept_relocations: Share of the jumps' moves that were accepted.
        accept_noise, accept_nu, accept_alpha: Share of the random walks' steps.
    """

    log_likelihood: tf.Tensor
    accept_scales: tf.Tensor
    accept_relocations: tf.Tensor
    accept_noise: tf.Tensor
    accept_nu: tf.Tensor
    accept_alpha: tf.Tensor


#: An iteration of every chain.
OneStep: TypeAlias = Callable[[Seed, ChainState, Problem, Settings], tuple[ChainState, Info]]


def uniform(shape: Any, seed: Seed) -> Tensor:
    """Returns uniform draws in the open unit interval, float64.

    No algorithm is named here and below: a named one takes a dozen small operations to seed, which
    would be most of an iteration on few points.
    """
    tiny = 1e-300  # a zero would have an infinite logarithm
    return tf.random.stateless_uniform(shape, seed, minval=tiny, dtype=FLOAT)


def log_exponential_draws(shape: Any, seed: Seed) -> Tensor:
    """Returns the logarithms of standard exponential draws, float64."""
    return tf.math.log(-tf.math.log(uniform(shape, seed)))


def prior_scales(seed: Seed, alpha: Tensor, shape: Any) -> tuple[Tensor, Tensor]:
    """Returns Kanter's u and log s of scales drawn from the prior.

    Args:
        seed: int32 tensor `[2]`.
        alpha: Index of the process, tensor that broadcasts with `shape`.
        shape: Shape of the draws, ending in `[B, L]`.

    Returns:
        Pair of float64 tensors.
    """
    first, second = tfp.random.split_seed(seed)
    u = uniform(shape, first)
    log_e = log_exponential_draws(shape, second)
    return u, equations.log_scales_of(u, log_e, alpha)


def log_masses(log_scales: Tensor, problem: Problem, alpha: Tensor) -> Tensor:
    """Returns `equations.log_masses` of a problem, `[..., B, L]`, for alpha `[B]`."""
    return equations.log_masses(log_scales, problem.log_probability, alpha[:, tf.newaxis])


def group_totals(masses: Tensor, problem: Problem) -> Tensor:
    """Sums over the atoms of each group: `[..., L]` to `[..., G]`."""
    return sum_over(masses, problem.group, problem.size.shape[0])


def covariance_factor(totals: Tensor, state: ChainState, problem: Problem) -> Tensor:
    """Returns the Cholesky factor of Q, `[B, N, N]`, for the groups' totals `[B, G]`."""
    covariance = equations.function_covariance(totals, problem.signs)
    return equations.covariance_factor(
        covariance, state.noise_weights, state.log_noise, state.log_nu
    )


def sum_over(values: Tensor, members: Tensor, count: int) -> Tensor:
    """Sums the last axis by `members`: `[..., L]` to `[..., count]`."""
    rank = len(values.shape)
    last_first = tf.transpose(values, [rank - 1, *range(rank - 1)])
    totals = tf.math.unsorted_segment_sum(last_first, members, count)
    return tf.transpose(totals, [*range(1, rank), 0])


def initial_state(
    seed: Seed, problem: Problem, alpha: ArrayLike, nu: ArrayLike, noise_variance: ArrayLike
) -> ChainState:
    """Returns a state with scales from the prior, cut off, and the given hyper-parameters.

    Args:
        seed: Non-negative integer, two integers, or int32 tensor `[2]`.
        problem: `Problem`.
        alpha: Index of the process in (0, 2], a number or an array `[B]`.
        nu: Scale of the process, positive, a number or an array `[B]`.
        noise_variance: `sigma^2`, positive, a number or an array `[B]`.

    Returns:
        `ChainState`.

    Raises:
        TypeError: If `problem` is not a `Problem`, or a value is not a number.
        ValueError: If a shape is wrong, or a value is out of range.
    """
    checks.check_type("problem", problem, Problem)
    chains, rows = problem.targets.shape
    atoms = problem.group.shape[0]
    alpha = tf.constant(checks.checked_per_chain("alpha", alpha, chains, largest=2.0))
    nu = tf.constant(checks.checked_per_chain("nu", nu, chains))
    noise = tf.constant(checks.checked_per_chain("noise_variance", noise_variance, chains))
    u, scales = prior_scales(as_seed(seed), alpha[:, tf.newaxis], [chains, atoms])
    masses = log_masses(scales, problem, alpha)
    # This spares a chain the way back from masses that are far too large for the data.
    limit = problem.log_largest_mass - 16.0 - tf.math.log(nu)
    scales = scales - tf.nn.relu(masses - limit[:, tf.newaxis])
    return ChainState(
        u=u,
        log_scales=scales,
        log_noise=tf.math.log(noise),
        noise_weights=tf.ones([chains, rows], FLOAT),
        alpha=alpha,
        log_nu=tf.math.log(nu),
        log_steps=tf.fill([chains, 3], tf.constant(-0.7, FLOAT)),
        iteration=tf.constant(0),
    )


def standard_normal(shape: Any, seed: Seed) -> Tensor:
    """Returns standard normal draws, float64."""
    return normal(shape, seed, FLOAT)
