"""Observation models p(y | f).

| | values of f | targets | `expected_log_prob` |
|---|---|---|---|
| `Gaussian` | D | `[N, D]` | closed form |
| `StudentT` | D | `[N, D]` | quadrature |
| `HeteroscedasticGaussian` | 2 D: D values, D log variances of the noise | `[N, D]` | quadrature |
| `Bernoulli` | D logits | `[N, D]` of 0 and 1 | quadrature |
| `Categorical` | D logits, one per class | `[N]` or `[N, 1]`, labels 0 to D - 1 | draws |
"""

from tfp_fnspace.likelihoods.additive import Gaussian, StudentT
from tfp_fnspace.likelihoods.base import Likelihood
from tfp_fnspace.likelihoods.categorical import Bernoulli, Categorical
from tfp_fnspace.likelihoods.heteroscedastic import HeteroscedasticGaussian

__all__ = [
    "Bernoulli",
    "Categorical",
    "Gaussian",
    "HeteroscedasticGaussian",
    "Likelihood",
    "StudentT",
]
