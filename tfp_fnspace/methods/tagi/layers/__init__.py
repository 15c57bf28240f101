"""Keras layers that propagate Gaussian moments (TAGI)."""

from tfp_fnspace.methods.tagi.layers.activation import Activation
from tfp_fnspace.methods.tagi.layers.attention import MultiHeadAttention
from tfp_fnspace.methods.tagi.layers.base import BilinearLayer, ElementwiseLayer, TAGILayer
from tfp_fnspace.methods.tagi.layers.bidirectional import Bidirectional
from tfp_fnspace.methods.tagi.layers.convolution import (
    Conv1D,
    Conv2D,
    Conv3D,
    DepthwiseConv2D,
)
from tfp_fnspace.methods.tagi.layers.dense import Dense
from tfp_fnspace.methods.tagi.layers.embedding import (
    Embedding,
)
from tfp_fnspace.methods.tagi.layers.images import (
    UpSampling2D,
    ZeroPadding2D,
)
from tfp_fnspace.methods.tagi.layers.normalization import (
    BatchNormalization,
    LayerNormalization,
    RMSNormalization,
)
from tfp_fnspace.methods.tagi.layers.pooling import (
    AveragePooling1D,
    AveragePooling2D,
    GlobalAveragePooling1D,
    GlobalAveragePooling2D,
    MaxPooling2D,
)
from tfp_fnspace.methods.tagi.layers.recurrent import LSTM
from tfp_fnspace.methods.tagi.layers.structure import Add, Concatenate, Flatten, Reshape
from tfp_fnspace.methods.tagi.layers.transposed import Conv2DTranspose

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
    "UpSampling2D",
    "ZeroPadding2D",
]
