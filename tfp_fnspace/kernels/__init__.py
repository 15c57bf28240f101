"""Kernels of Gram matrices, and kernels of features that TFP lacks."""

from tfp_fnspace.kernels.arc_cosine import ArcCosine, ArcCosineKernel
from tfp_fnspace.kernels.gram import (
    Constant,
    GramKernel,
    Linear,
    Product,
    Sum,
    deserialize,
    serialize,
)
from tfp_fnspace.kernels.neural_kernel_network import NeuralKernelNetwork
from tfp_fnspace.kernels.registry import get
from tfp_fnspace.kernels.stationary import Matern, RationalQuadratic, SquaredExponential

__all__ = [
    "ArcCosine",
    "ArcCosineKernel",
    "Constant",
    "GramKernel",
    "Linear",
    "Matern",
    "NeuralKernelNetwork",
    "Product",
    "RationalQuadratic",
    "SquaredExponential",
    "Sum",
    "deserialize",
    "get",
    "serialize",
]
