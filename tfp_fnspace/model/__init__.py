"""What the models of all methods share."""

from tfp_fnspace.model.base import FunctionSpaceModel
from tfp_fnspace.model.gradient import GradientModel
from tfp_fnspace.model.saving import load_model

__all__ = ["FunctionSpaceModel", "GradientModel", "load_model"]
