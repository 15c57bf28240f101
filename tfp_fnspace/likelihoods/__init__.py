"""Observation models p(y | f).

| | values of f | targets | `expected_log_prob` |
|---|---|---|---|
| `Gaussian` | D | `[N, D]` | closed form |
| `StudentT` | D | `[N, D]` | quadrature |
| `HeteroscedasticGaussian` | 2 D: D values, D log variances of the noise | `[N, D]` | quadrature |
| `Bernoulli` | D logits | `[N, D]` of 0 and 1 | quadrature |
| `Categorical` | D logits, one per class | `[N]` or `[N, 1]`, labels 0 to D - 1 | draws |
| `Remax` | D, one per class | as `Categorical` | draws |
| `HierarchicalCategorical` | one per node of a tree | the same, 0 to K - 1 for K classes | draws |

TAGI learns from `Gaussian`, `HeteroscedasticGaussian` and the last three by their `innovation`.
"""

from tfp_fnspace.likelihoods.additive import Gaussian, StudentT
from tfp_fnspace.likelihoods.base import Likelihood
from tfp_fnspace.likelihoods.categorical import Bernoulli, Categorical, Remax
from tfp_fnspace.likelihoods.heteroscedastic import HeteroscedasticGaussian
from tfp_fnspace.likelihoods.hierarchical import HierarchicalCategorical

__all__ = [
    "Bernoulli",
    "Categorical",
    "Gaussian",
    "HeteroscedasticGaussian",
    "HierarchicalCategorical",
    "Likelihood",
    "Remax",
    "StudentT",
]
