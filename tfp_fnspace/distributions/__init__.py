"""Distributions that TFP lacks, and what TFP lacks about the distributions it has."""

from tfp_fnspace.distributions.positive_stable import PositiveStable
from tfp_fnspace.distributions.quantile import marginal_cdf, marginals, quantile
from tfp_fnspace.distributions.stable import Stable
from tfp_fnspace.distributions.stable_process import StableProcess

__all__ = ["PositiveStable", "Stable", "StableProcess", "marginal_cdf", "marginals", "quantile"]
