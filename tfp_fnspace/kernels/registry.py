"""Kernels by name."""

from tfp_fnspace.kernels.arc_cosine import ArcCosine
from tfp_fnspace.kernels.gram import GramKernel, Linear, deserialize
from tfp_fnspace.kernels.stationary import Matern, RationalQuadratic, SquaredExponential
from tfp_fnspace.typing import Config

_NAMES = {
    "arccosine0": (ArcCosine, {"order": 0}),
    "arccosine1": (ArcCosine, {"order": 1}),
    "arccosine2": (ArcCosine, {"order": 2}),
    "linear": (Linear, {}),
    "matern12": (Matern, {"nu": 0.5}),
    "matern32": (Matern, {"nu": 1.5}),
    "matern52": (Matern, {"nu": 2.5}),
    "rational_quadratic": (RationalQuadratic, {}),
    "rbf": (SquaredExponential, {}),
    "relu": (ArcCosine, {"order": 1}),
    "squared_exponential": (SquaredExponential, {}),
}


def get(identifier: GramKernel | Config | str) -> GramKernel:
    """Returns the kernel for an identifier.

    Args:
        identifier: `GramKernel` (which is returned), the result of `serialize`, or a name: `"relu"`
            (the same as `"arccosine1"`), `"arccosine0"`, `"arccosine2"`, `"linear"`,
            `"squared_exponential"` or `"rbf"`, `"matern12"`, `"matern32"`, `"matern52"`,
            `"rational_quadratic"`.

    Returns:
        `GramKernel`.

    Raises:
        ValueError: If there is no kernel of this name.
        TypeError: If it is something else.
    """
    if isinstance(identifier, GramKernel):
        return identifier
    if isinstance(identifier, dict):
        return deserialize(identifier)
    if not isinstance(identifier, str):
        raise TypeError(
            "A kernel must be given as a GramKernel, a name or a configuration. "
            f"Received: identifier={identifier!r}"
        )
    if identifier not in _NAMES:
        raise ValueError(
            f"A kernel's name must be one of {sorted(_NAMES)}. Received: identifier={identifier!r}"
        )
    kernel_class, config = _NAMES[identifier]
    return kernel_class(**config)
