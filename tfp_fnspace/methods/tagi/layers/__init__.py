"""Keras layers that propagate Gaussian moments (TAGI)."""

from tfp_fnspace.methods.tagi.layers.activation import Activation
from tfp_fnspace.methods.tagi.layers.base import BilinearLayer, ElementwiseLayer, TAGILayer
from tfp_fnspace.methods.tagi.layers.dense import Dense
from tfp_fnspace.methods.tagi.layers.structure import Add, Concatenate, Flatten, Reshape

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
]
