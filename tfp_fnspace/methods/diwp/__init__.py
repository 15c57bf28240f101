"""Deep inverse Wishart processes (Aitchison, Yang & Ober 2021)."""

from tfp_fnspace.methods.diwp.deep_kernel import DeepKernel
from tfp_fnspace.methods.diwp.layers import (
    FeaturesToGram,
    GaussianProcessGram,
    GlobalInducingGP,
    GramKernel,
    InverseWishartFeatures,
    InverseWishartProcess,
)
from tfp_fnspace.methods.diwp.model import DIWPModel
from tfp_fnspace.methods.diwp.options import Start
from tfp_fnspace.methods.diwp.prior import PriorSample, sample_gram, sample_prior

__all__ = [
    "DIWPModel",
    "DeepKernel",
    "FeaturesToGram",
    "GaussianProcessGram",
    "GlobalInducingGP",
    "GramKernel",
    "InverseWishartFeatures",
    "InverseWishartProcess",
    "PriorSample",
    "Start",
    "sample_gram",
    "sample_prior",
]
