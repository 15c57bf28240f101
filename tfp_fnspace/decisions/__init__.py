"""Decisions from function samples: Thompson sampling, max-value entropy search, acquisitions."""

from tfp_fnspace.decisions.bandits import ContextualBandit
from tfp_fnspace.decisions.entropy_search import max_value_entropy, sample_optima, suggest
from tfp_fnspace.decisions.posterior import FunctionPosterior

__all__ = [
    "ContextualBandit",
    "FunctionPosterior",
    "max_value_entropy",
    "sample_optima",
    "suggest",
]
