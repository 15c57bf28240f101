"""TAGI: tractable approximate Gaussian inference for Bayesian neural networks.

References:
    Goulet, Nguyen & Amiri (2021), "Tractable Approximate Gaussian Inference for Bayesian Neural
    Networks", JMLR 22(251).
"""

from tfp_fnspace.about import About
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

ABOUT = About(
    title="TAGI",
    model="TAGIModel",
    idea="closed-form Gaussian inference, no gradients, no learning rate",
    learns="in closed form; `partial_fit` goes on, row by row",
    facts={
        "belief": "small independent weights",
        "inference": "closed form, assumed densities",
        "away from the data": "too sure",
        "rows": "any",
        "inputs": "any",
        "tuning": "noise scale, epochs",
        "function draws": "across calls",
    },
    time="linear",
    minibatches="yes",
    streams=True,
    likelihoods=(
        "Gaussian",
        "HeteroscedasticGaussian",
        "Categorical",
        "HierarchicalCategorical",
        "Remax",
    ),
    learns_noise=True,
    missing_targets=True,
)

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
