"""The stable process as a distribution.

| module | what |
|---|---|
| `process` | the distribution |
| `prior` | the law of the scales and of the function |
| `gaussian` | the normal laws for given scales |
| `density` | densities by importance sampling |
| `patterns` | signs of the hyperplanes at points |
| `checks` | what the process may be given |
"""

from tfp_fnspace.distributions.stable_process.process import StableProcess

__all__ = ["StableProcess"]
