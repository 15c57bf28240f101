"""The contract that the models of all methods keep."""

from tfp_fnspace.model.contract import FunctionSpaceModel

__all__ = ["FunctionSpaceModel"]
