"""SIP: sparse implicit processes.

References:
    Rodriguez Santana, Zaldivar & Hernandez-Lobato (2022), "Function-space inference with sparse
    implicit processes", ICML.
"""

from tfp_fnspace.methods.sip.log_ratio import LogRatio
from tfp_fnspace.methods.sip.model import SIPModel
from tfp_fnspace.methods.sip.networks import bnn_prior, neural_sampler_prior
from tfp_fnspace.methods.sip.options import Adversarial, PriorDraws
from tfp_fnspace.methods.sip.vip import VIPModel
from tfp_fnspace.methods.sip.weight_space import AADMModel, AVBModel

__all__ = [
    "AADMModel",
    "AVBModel",
    "Adversarial",
    "LogRatio",
    "PriorDraws",
    "SIPModel",
    "VIPModel",
    "bnn_prior",
    "neural_sampler_prior",
]
