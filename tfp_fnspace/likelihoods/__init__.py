"""Observation models p(y | f).

| | values of f | targets | `expected_log_prob` |
|---|---|---|---|
| `Gaussian` | D | `[N, D]` | closed form |
| `StudentT` | D | `[N, D]` | quadrature |
| `HeteroscedasticGaussian` | 2 D: D values, D log variances of the noise | `[N, D]` | quadrature |
| `Poisson` | D logarithms of means | `[N, D]`, counts | closed form |
| `NegativeBinomial` | D logarithms of means | `[N, D]`, counts | quadrature |
| `LogNormal` | D logarithms of medians | `[N, D]`, positive | closed form |
| `Gamma` | D logarithms of means | `[N, D]`, positive | closed form |
| `Beta` | D logits of means | `[N, D]`, between 0 and 1 | quadrature |
| `CensoredGaussian` | D | `[N, D]`, between limits | quadrature |
| `CensoredLogNormal` | D logarithms of medians | `[N, D]`, positive, between limits | quadrature |
| `IntervalCensoredGaussian` | D | `[N, 2 D]`, limits of each row | quadrature |
| `IntervalCensoredLogNormal` | D logarithms of medians | `[N, 2 D]`, the same | quadrature |
| `Bernoulli` | D logits | `[N, D]` of 0 and 1 | quadrature |
| `Categorical` | D logits, one per class | `[N]` or `[N, 1]`, labels 0 to D - 1 | draws |
| `Ordinal` | one | `[N]` or `[N, 1]`, labels 0 to K - 1 for K ordered classes | quadrature |
| `Remax` | D, one per class | as `Categorical` | draws |
| `HierarchicalCategorical` | one per node of a tree | as `Ordinal`, without an order | draws |

TAGI learns from `Gaussian`, `HeteroscedasticGaussian`, `LogNormal`, the four that are censored,
`Categorical`, `Remax` and `HierarchicalCategorical` by their `innovation`.
"""

from tfp_fnspace.likelihoods.additive import Gaussian, StudentT
from tfp_fnspace.likelihoods.base import Likelihood
from tfp_fnspace.likelihoods.bounded import Beta
from tfp_fnspace.likelihoods.categorical import Bernoulli, Categorical, Remax
from tfp_fnspace.likelihoods.censored import (
    CensoredGaussian,
    CensoredLogNormal,
    IntervalCensoredGaussian,
    IntervalCensoredLogNormal,
)
from tfp_fnspace.likelihoods.counts import NegativeBinomial, Poisson
from tfp_fnspace.likelihoods.heteroscedastic import HeteroscedasticGaussian
from tfp_fnspace.likelihoods.hierarchical import HierarchicalCategorical
from tfp_fnspace.likelihoods.ordinal import Ordinal
from tfp_fnspace.likelihoods.positive import Gamma, LogNormal

__all__ = [
    "Bernoulli",
    "Beta",
    "Categorical",
    "CensoredGaussian",
    "CensoredLogNormal",
    "Gamma",
    "Gaussian",
    "HeteroscedasticGaussian",
    "HierarchicalCategorical",
    "IntervalCensoredGaussian",
    "IntervalCensoredLogNormal",
    "Likelihood",
    "LogNormal",
    "NegativeBinomial",
    "Ordinal",
    "Poisson",
    "Remax",
    "StudentT",
]
