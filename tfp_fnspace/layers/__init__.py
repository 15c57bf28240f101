"""Keras layers that several methods share."""

from tfp_fnspace.layers.convert import from_keras
from tfp_fnspace.layers.convolutions import VariationalConv1D, VariationalConv2D
from tfp_fnspace.layers.dense import VariationalDense
from tfp_fnspace.layers.draws import function_draws
from tfp_fnspace.layers.embedding import VariationalEmbedding
from tfp_fnspace.layers.fourier import RandomFourierFeatures
from tfp_fnspace.layers.gaussian_output import GaussianOutput
from tfp_fnspace.layers.linearized import LinearizedNetwork
from tfp_fnspace.layers.per_sample import PerSample, RepeatSamples
from tfp_fnspace.layers.posterior_base import Posterior
from tfp_fnspace.layers.posteriors import (
    ConditionedGaussian,
    FactorizedGaussian,
    FullCovarianceGaussian,
    LowRankGaussian,
    Radial,
)
from tfp_fnspace.layers.variational import VariationalLayer

__all__ = [
    "ConditionedGaussian",
    "FactorizedGaussian",
    "FullCovarianceGaussian",
    "GaussianOutput",
    "LinearizedNetwork",
    "LowRankGaussian",
    "PerSample",
    "Posterior",
    "Radial",
    "RandomFourierFeatures",
    "RepeatSamples",
    "VariationalConv1D",
    "VariationalConv2D",
    "VariationalDense",
    "VariationalEmbedding",
    "VariationalLayer",
    "from_keras",
    "function_draws",
]
