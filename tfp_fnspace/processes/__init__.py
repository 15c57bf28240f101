"""Priors over functions."""

from tfp_fnspace.processes.base import Process
from tfp_fnspace.processes.callable import CallableProcess
from tfp_fnspace.processes.fitted import fitted_prior
from tfp_fnspace.processes.gaussian import GaussianProcess
from tfp_fnspace.processes.kernel_weights import KernelWeights, ard_squared_exponential
from tfp_fnspace.processes.networks import BNNProcess, NeuralSamplerProcess
from tfp_fnspace.processes.piecewise import PiecewiseConstant, PiecewiseLinear
from tfp_fnspace.processes.student_t import StudentTProcess
from tfp_fnspace.processes.variational import VariationalProcess

__all__ = [
    "BNNProcess",
    "CallableProcess",
    "GaussianProcess",
    "KernelWeights",
    "NeuralSamplerProcess",
    "PiecewiseConstant",
    "PiecewiseLinear",
    "Process",
    "StudentTProcess",
    "VariationalProcess",
    "ard_squared_exponential",
    "fitted_prior",
]
