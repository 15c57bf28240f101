"""The contract that the models of all methods keep."""

from tfp_fnspace.model.contract import FunctionSpaceModel
from tfp_fnspace.model.gradient import GradientTraining
from tfp_fnspace.model.mixture import MixturePrediction
from tfp_fnspace.model.saving import load_model

__all__ = ["FunctionSpaceModel", "GradientTraining", "MixturePrediction", "load_model"]
