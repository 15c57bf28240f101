"""TAGI: tractable approximate Gaussian inference for Bayesian neural networks.

References:
    Goulet, Nguyen & Amiri (2021), "Tractable Approximate Gaussian Inference for Bayesian Neural
    Networks", JMLR 22(251).
"""

from tfp_fnspace.methods.tagi.conversion import from_keras
from tfp_fnspace.methods.tagi.layers import (
    LSTM,
    Activation,
    Add,
    AveragePooling1D,
    AveragePooling2D,
    BatchNormalization,
    Bidirectional,
    BilinearLayer,
    Concatenate,
    Conv1D,
    Conv2D,
    Conv2DTranspose,
    Conv3D,
    Dense,
    DepthwiseConv2D,
    ElementwiseLayer,
    Embedding,
    Flatten,
    GlobalAveragePooling1D,
    GlobalAveragePooling2D,
    LayerNormalization,
    MaxPooling2D,
    MultiHeadAttention,
    Reshape,
    RMSNormalization,
    TAGILayer,
    UpSampling2D,
    ZeroPadding2D,
)
from tfp_fnspace.methods.tagi.model import TAGIModel

__all__ = [
    "Activation",
    "Add",
    "AveragePooling1D",
    "AveragePooling2D",
    "BatchNormalization",
    "Bidirectional",
    "BilinearLayer",
    "Concatenate",
    "Conv1D",
    "Conv2D",
    "Conv2DTranspose",
    "Conv3D",
    "Dense",
    "DepthwiseConv2D",
    "ElementwiseLayer",
    "Embedding",
    "Flatten",
    "GlobalAveragePooling1D",
    "GlobalAveragePooling2D",
    "LSTM",
    "LayerNormalization",
    "MaxPooling2D",
    "MultiHeadAttention",
    "RMSNormalization",
    "Reshape",
    "TAGILayer",
    "TAGIModel",
    "UpSampling2D",
    "ZeroPadding2D",
    "from_keras",
]
