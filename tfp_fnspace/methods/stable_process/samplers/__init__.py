"""Markov chains for the scales of the stable process: pure functions of a seed and a state.

| sampler | an iteration |
|---|---|
| `"grouped"` | groups of atoms refreshed from the prior, jumps relocated, random walks |
| `"metropolis"` | Algorithm S.2 of the paper: every atom, and the noise, from the prior |
| `"hmc"` | a Hamiltonian trajectory of Kanter's variables and the hyper-parameters |

Each is a function `one_step(seed, state, problem, settings)`: one iteration of every chain, which
leaves the posterior of scales and hyper-parameters invariant.

Args:
    seed: int32 tensor `[2]`.
    state: `ChainState`.
    problem: `Problem`.
    settings: `Settings`.

Returns:
    `ChainState`, `Info`.
"""

from tfp_fnspace.methods.stable_process.samplers import grouped, hmc, metropolis
from tfp_fnspace.methods.stable_process.samplers.kernels import StableProcessKernel
from tfp_fnspace.methods.stable_process.samplers.problem import Problem, make_problem
from tfp_fnspace.methods.stable_process.samplers.run import Draws, run
from tfp_fnspace.methods.stable_process.samplers.state import (
    ChainState,
    Info,
    Settings,
    initial_state,
)

#: The functions `(seed, state, problem, settings) -> (state, info)` by name.
SAMPLERS = {
    "grouped": grouped.one_step,
    "metropolis": metropolis.one_step,
    "hmc": hmc.one_step,
}

__all__ = [
    "SAMPLERS",
    "ChainState",
    "Draws",
    "Info",
    "Problem",
    "Settings",
    "StableProcessKernel",
    "initial_state",
    "make_problem",
    "run",
]
