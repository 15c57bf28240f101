"""Keras layers on Gram matrices."""

from tfp_fnspace.methods.diwp.layers.features import FeaturesToGram, InverseWishartFeatures
from tfp_fnspace.methods.diwp.layers.gaussian_process import GaussianProcessGram, GlobalInducingGP
from tfp_fnspace.methods.diwp.layers.inverse_wishart import InverseWishartProcess
from tfp_fnspace.methods.diwp.layers.kernel import KernelOfGram

__all__ = [
    "FeaturesToGram",
    "GaussianProcessGram",
    "GlobalInducingGP",
    "KernelOfGram",
    "InverseWishartFeatures",
    "InverseWishartProcess",
]
