"""The stable process as a distribution.

| module | content |
|---|---|
| `process` | the distribution |
| `prior` | the distribution of the scales and of the function |
| `gaussian` | the normal distributions for given scales |
| `density` | densities by importance sampling |
| `patterns` | signs of the hyperplanes at points |
| `checks` | checks of the arguments |
"""

from tfp_fnspace.distributions.stable_process.process import StableProcess

__all__ = ["StableProcess"]
