"""Observation models p(y | f).

| | values of f | targets | `expected_log_prob` |
|---|---|---|---|
| `Gaussian` | D | `[N, D]` | closed form |
| `StudentT` | D | `[N, D]` | quadrature |
| `Bernoulli` | D logits | `[N, D]` of 0 and 1 | quadrature |
| `Categorical` | D logits, one per class | `[N]` or `[N, 1]`, labels 0 to D - 1 | draws |
"""

from tfp_fnspace.likelihoods.additive import Gaussian, StudentT
from tfp_fnspace.likelihoods.base import Likelihood
from tfp_fnspace.likelihoods.categorical import Bernoulli, Categorical

__all__ = ["Bernoulli", "Categorical", "Gaussian", "Likelihood", "StudentT"]
