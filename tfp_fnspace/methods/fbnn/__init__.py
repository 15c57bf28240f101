"""Functional variational Bayesian neural networks: variational networks with priors on functions.

References:
    Sun, Zhang, Shi and Grosse (2019), "Functional variational Bayesian neural networks", ICLR.
"""

from tfp_fnspace.methods.fbnn.variational_model import VariationalModel

__all__ = ["VariationalModel"]
