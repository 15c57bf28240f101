"""Distributions that TFP lacks, and what TFP lacks about the distributions it has."""

from tfp_fnspace.distributions.quantile import marginal_cdf, marginals, quantile

__all__ = ["marginal_cdf", "marginals", "quantile"]
