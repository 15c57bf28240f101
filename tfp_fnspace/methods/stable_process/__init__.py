"""Posterior inference for the alpha-stable limit of wide networks.

References:
    Loría & Bhadra (2023), "Posterior Inference on Infinitely Wide Bayesian Neural Networks under
    Weights with Unbounded Variance".
"""

from tfp_fnspace.methods.stable_process.diagnostics import Convergence
from tfp_fnspace.methods.stable_process.hyperplanes import Partition, partition
from tfp_fnspace.methods.stable_process.model import StableProcessModel
from tfp_fnspace.methods.stable_process.options import Chains, LogNormal, Refined, Sampled, Uniform

__all__ = [
    "Chains",
    "Convergence",
    "LogNormal",
    "Partition",
    "Refined",
    "Sampled",
    "StableProcessModel",
    "Uniform",
    "partition",
]
