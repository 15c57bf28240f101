"""Markov chains for the scales of the stable process: pure functions of a seed and a state."""

from tfp_fnspace.methods.stable_process.samplers.problem import Problem, make_problem
from tfp_fnspace.methods.stable_process.samplers.run import Draws, run
from tfp_fnspace.methods.stable_process.samplers.state import (
    ChainState,
    Info,
    Settings,
    initial_state,
)

__all__ = [
    "ChainState",
    "Draws",
    "Info",
    "Problem",
    "Settings",
    "initial_state",
    "make_problem",
    "run",
]
