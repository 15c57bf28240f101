"""TAGI: tractable approximate Gaussian inference for Bayesian neural networks.

References:
    Goulet, Nguyen & Amiri (2021), "Tractable Approximate Gaussian Inference for Bayesian Neural
    Networks", JMLR 22(251).
"""

from tfp_fnspace.methods.tagi.layers import (
    Activation,
    Add,
    BilinearLayer,
    Concatenate,
    Dense,
    ElementwiseLayer,
    Flatten,
    Reshape,
    TAGILayer,
)
from tfp_fnspace.methods.tagi.model import TAGIModel

__all__ = [
    "Activation",
    "Add",
    "BilinearLayer",
    "Concatenate",
    "Dense",
    "ElementwiseLayer",
    "Flatten",
    "Reshape",
    "TAGILayer",
    "TAGIModel",
]
