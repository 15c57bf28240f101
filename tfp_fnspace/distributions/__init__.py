"""Distributions that TFP lacks, and functions that TFP lacks for its own distributions."""

from tfp_fnspace.distributions.inverse_wishart import InverseWishart
from tfp_fnspace.distributions.positive_stable import PositiveStable
from tfp_fnspace.distributions.quantile import marginal_cdf, marginals, quantile
from tfp_fnspace.distributions.stable import Stable
from tfp_fnspace.distributions.stable_process import StableProcess
from tfp_fnspace.distributions.wishart import SingularWishart, Wishart

__all__ = [
    "InverseWishart",
    "PositiveStable",
    "SingularWishart",
    "Stable",
    "StableProcess",
    "Wishart",
    "marginal_cdf",
    "marginals",
    "quantile",
]
