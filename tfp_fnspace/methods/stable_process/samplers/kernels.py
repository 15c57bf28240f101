"""The samplers as transition kernels of TensorFlow Probability."""

from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_fnspace.methods.stable_process.samplers import checks, grouped
from tfp_fnspace.methods.stable_process.samplers.problem import Problem
from tfp_fnspace.methods.stable_process.samplers.state import (
    FLOAT,
    ChainState,
    Info,
    OneStep,
    Settings,
    checked_state,
)
from tfp_fnspace.typing import Seed


class StableProcessKernel(tfp.mcmc.TransitionKernel):
    """A sampler of the stable process for `tfp.mcmc.sample_chain`.

    The state is a `ChainState`, or a list of its parts; the kernel's results are an `Info`.

    Example:
        >>> import numpy as np
        >>> from tfp_fnspace.methods.stable_process import samplers
        >>> problem = samplers.make_problem(np.ones([1, 1]), np.ones(1), np.array([[0.3], [0.3]]))
        >>> kernel = StableProcessKernel(problem, samplers.Settings())
        >>> start = samplers.initial_state([1, 2], problem, alpha=1.1, nu=1.0, noise_variance=0.1)
        >>> states = tfp.mcmc.sample_chain(3, start, kernel=kernel, trace_fn=None, seed=[3, 4])
        >>> states.log_noise.shape
        TensorShape([3, 2])

    Args:
        problem: `Problem`.
        settings: `Settings`.
        one_step: Function `(seed, state, problem, settings) -> (state, info)`.

    Raises:
        TypeError: If an argument is of another type.
        ValueError: If a setting is out of range.
    """

    def __init__(self, problem: Problem, settings: Settings, one_step: OneStep = grouped.one_step):
        checks.check_type("problem", problem, Problem)
        checks.check_type("settings", settings, Settings)
        settings.check()
        checks.check_one_step(one_step)
        self._parameters = {"problem": problem, "settings": settings, "one_step": one_step}

    @property
    def parameters(self) -> dict[str, Any]:
        """The arguments that the kernel was made with."""
        return self._parameters

    @property
    def is_calibrated(self) -> bool:
        """True: the kernel leaves the posterior invariant."""
        return True

    def one_step(
        self, current_state: Any, previous_kernel_results: Any, seed: Seed = None
    ) -> tuple[Any, Info]:
        """Runs one iteration of every chain.

        Args:
            current_state: `ChainState`, or a list of its parts.
            previous_kernel_results: `Info`; it is not used.
            seed: Integer or int32 tensor `[2]`; `None` draws one.

        Returns:
            The next state, with the structure of the current one, and `Info`.
        """
        del previous_kernel_results
        parts = self._parameters
        state, info = parts["one_step"](
            tfp.random.sanitize_seed(seed),
            ChainState(*current_state),
            parts["problem"],
            parts["settings"],
        )
        return tf.nest.pack_sequence_as(current_state, list(state)), info

    def bootstrap_results(self, init_state: Any) -> Info:
        """Returns `Info` of zeros, before any iteration.

        Raises:
            TypeError: If this is not a state.
            ValueError: If the state's shapes do not fit the problem.
        """
        parts = self._parameters
        chains = checked_state(init_state, parts["problem"], parts["settings"]).alpha.shape[0]
        return Info(*[tf.zeros([chains], FLOAT)] * len(Info._fields))
