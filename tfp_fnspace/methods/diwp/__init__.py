"""Deep inverse Wishart processes (Aitchison, Yang & Ober 2021)."""

from tfp_fnspace.about import About
from tfp_fnspace.methods.diwp.deep_kernel import DeepKernel
from tfp_fnspace.methods.diwp.layers import (
    FeaturesToGram,
    GaussianProcessGram,
    GlobalInducingGP,
    InverseWishartFeatures,
    InverseWishartProcess,
    KernelOfGram,
)
from tfp_fnspace.methods.diwp.model import DIWPModel
from tfp_fnspace.methods.diwp.options import Start
from tfp_fnspace.methods.diwp.prior import PriorSample, sample_gram, sample_prior

ABOUT = About(
    title="DIWP",
    model="DIWPModel",
    idea=(
        "deep inverse Wishart processes: kernels that are learnt layer by layer, with inducing "
        "points"
    ),
    learns="by gradients",
    facts={
        "belief": "a random kernel around a given one",
        "inference": "variational, on Gram matrices",
        "away from the data": "opens",
        "rows": "any",
        "inputs": "any",
        "tuning": "kernel, depth, steps",
        "function draws": "within a call",
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
    "DIWPModel",
    "DeepKernel",
    "FeaturesToGram",
    "GaussianProcessGram",
    "GlobalInducingGP",
    "KernelOfGram",
    "InverseWishartFeatures",
    "InverseWishartProcess",
    "PriorSample",
    "Start",
    "sample_gram",
    "sample_prior",
]
