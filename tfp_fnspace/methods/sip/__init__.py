"""SIP: sparse implicit processes.

References:
    Rodriguez Santana, Zaldivar & Hernandez-Lobato (2022), "Function-space inference with sparse
    implicit processes", ICML.
"""

from tfp_fnspace.about import About
from tfp_fnspace.methods.sip.log_ratio import LogRatio
from tfp_fnspace.methods.sip.model import SIPModel
from tfp_fnspace.methods.sip.networks import bnn_prior, neural_sampler_prior
from tfp_fnspace.methods.sip.options import Adversarial, AdversarialOfWeights, PriorDraws
from tfp_fnspace.methods.sip.vip import VIPModel
from tfp_fnspace.methods.sip.weight_space import AADMModel, AVBModel

ABOUT = About(
    title="SIP",
    model="SIPModel",
    idea=(
        "sparse implicit processes with a discriminator: predictive distributions of any shape, "
        "priors that are learnt"
    ),
    learns="by gradients",
    facts={
        "belief": "a random network that learns from the data",
        "inference": "variational, on values at inducing points, by a discriminator",
        "away from the data": "follows the learnt prior",
        "rows": "any",
        "inputs": "any",
        "tuning": "alpha, inducing points, steps",
        "function draws": "across calls",
    },
    time="linear; cubic in the inducing points",
    minibatches="yes",
    streams=True,
    likelihoods=(
        "Gaussian",
        "StudentT",
        "Poisson",
        "NegativeBinomial",
        "LogNormal",
        "Gamma",
        "Beta",
        "CensoredGaussian",
        "CensoredLogNormal",
        "HeteroscedasticGaussian",
        "Bernoulli",
        "Categorical",
        "Ordinal",
        "HierarchicalCategorical",
        "IntervalCensoredGaussian",
        "IntervalCensoredLogNormal",
        "Remax",
    ),
    learns_noise=True,
    missing_targets=False,
)

__all__ = [
    "AADMModel",
    "AVBModel",
    "Adversarial",
    "AdversarialOfWeights",
    "LogRatio",
    "PriorDraws",
    "SIPModel",
    "VIPModel",
    "bnn_prior",
    "neural_sampler_prior",
]
