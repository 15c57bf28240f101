"""Functional variational Bayesian neural networks, variational networks with function priors.

References:
    Sun, Zhang, Shi and Grosse (2019), "Functional variational Bayesian neural networks", ICLR.
"""

from tfp_fnspace.about import About
from tfp_fnspace.methods.fbnn.adversarial import Adversarial
from tfp_fnspace.methods.fbnn.divergences import ClosedForm, Linearized, Regularized, Stein
from tfp_fnspace.methods.fbnn.functional_kl import kl_estimate, kl_surrogate
from tfp_fnspace.methods.fbnn.measurement import (
    Box,
    CallableSet,
    DataStream,
    MeasurementSet,
    Normal,
    TrainingRows,
)
from tfp_fnspace.methods.fbnn.model import FBNNModel
from tfp_fnspace.methods.fbnn.spectral_stein import spectral_stein_score
from tfp_fnspace.methods.fbnn.variational_model import VariationalModel

ABOUT = About(
    title="fBNN",
    model="FBNNModel",
    idea=(
        "a network with a prior on functions: functional ELBO, spectral Stein gradient estimator"
    ),
    learns="by gradients",
    facts={
        "belief": "the prior that you give",
        "inference": "variational, on functions",
        "away from the data": "follows the prior within the measurement box",
        "rows": "any",
        "inputs": "any",
        "tuning": "prior, learning rate, steps",
        "function draws": "across calls",
    },
    time="linear",
    minibatches="yes",
    streams=True,
    likelihoods=(
        "Gaussian",
        "StudentT",
        "Poisson",
        "NegativeBinomial",
        "LogNormal",
        "Gamma",
        "Beta",
        "CensoredGaussian",
        "CensoredLogNormal",
        "HeteroscedasticGaussian",
        "Bernoulli",
        "Categorical",
        "Ordinal",
        "HierarchicalCategorical",
        "IntervalCensoredGaussian",
        "IntervalCensoredLogNormal",
        "Remax",
    ),
    learns_noise=True,
    missing_targets=False,
    others=("Bayes by Backprop",),
)

__all__ = [
    "Adversarial",
    "Box",
    "CallableSet",
    "ClosedForm",
    "DataStream",
    "FBNNModel",
    "Linearized",
    "MeasurementSet",
    "Normal",
    "Regularized",
    "Stein",
    "TrainingRows",
    "VariationalModel",
    "kl_estimate",
    "kl_surrogate",
    "spectral_stein_score",
]
