"""Deep inverse Wishart processes (Aitchison, Yang & Ober 2021)."""

from tfp_fnspace.methods.diwp.baselines import DeepGPModel, NNGPModel
from tfp_fnspace.methods.diwp.layers import (
    FeaturesToGram,
    GaussianProcessGram,
    GlobalInducingGP,
    GramKernel,
    InverseWishartFeatures,
    InverseWishartProcess,
)
from tfp_fnspace.methods.diwp.model import DIWPModel
from tfp_fnspace.methods.diwp.prior import PriorSample, sample_gram, sample_prior

__all__ = [
    "DIWPModel",
    "DeepGPModel",
    "FeaturesToGram",
    "GaussianProcessGram",
    "GlobalInducingGP",
    "GramKernel",
    "InverseWishartFeatures",
    "InverseWishartProcess",
    "NNGPModel",
    "PriorSample",
    "sample_gram",
    "sample_prior",
]
