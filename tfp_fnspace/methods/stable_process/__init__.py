"""Posterior inference for the alpha-stable limit of wide networks.

References:
    Loría & Bhadra (2023), "Posterior Inference on Infinitely Wide Bayesian Neural Networks under
    Weights with Unbounded Variance".
"""

from tfp_fnspace.about import About
from tfp_fnspace.methods.stable_process.diagnostics import Convergence
from tfp_fnspace.methods.stable_process.hyperplanes import Partition, partition
from tfp_fnspace.methods.stable_process.model import StableProcessModel
from tfp_fnspace.methods.stable_process.options import Chains, LogNormal, Refined, Sampled, Uniform

ABOUT = About(
    title="stable process",
    model="StableProcessModel",
    idea=(
        "posterior of infinitely wide networks with infinite-variance weights: functions with jumps"
    ),
    learns="by MCMC",
    facts={
        "belief": "piecewise constant, with jumps",
        "inference": "Markov chains, exact in the limit",
        "away from the data": "opens, may jump",
        "rows": "hundreds",
        "inputs": "1 or 2, more by sampled hyperplanes",
        "tuning": "length of the chains",
        "function draws": "across calls",
    },
    time="cubic",
    minibatches="no: the chains condition on all rows at once",
    streams=False,
    likelihoods=("Gaussian", "StudentT"),
    learns_noise=True,
    missing_targets=False,
)

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
