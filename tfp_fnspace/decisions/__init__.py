"""Decisions from function samples: Thompson sampling and max-value entropy search."""

from tfp_fnspace.decisions.bandits import ContextualBandit
from tfp_fnspace.decisions.entropy_search import max_value_entropy, sample_optima, suggest

__all__ = ["ContextualBandit", "max_value_entropy", "sample_optima", "suggest"]
