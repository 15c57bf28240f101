"""The recipe of functional BNNs for a table.

For regression, the prior is a fitted Gaussian process and the network consists of its random cosine
features, so that the divergence has a closed form. For classes, the prior is a smooth process and
the network has two layers.
"""

from typing import Any

import keras
import numpy as np
import tensorflow_probability as tfp

from tfp_fnspace import layers, likelihoods
from tfp_fnspace.methods.fbnn.divergences import ClosedForm
from tfp_fnspace.methods.fbnn.measurement import Box
from tfp_fnspace.methods.fbnn.model import FBNNModel
from tfp_fnspace.processes.fitted import fitted_prior
from tfp_fnspace.processes.gaussian import GaussianProcess
from tfp_fnspace.recipes import scale_learnt_noise
from tfp_fnspace.trials import Table

#: An exact process is fitted to at most so many rows, since its time is cubic in their number, and
#: in so many iterations. Further ones gave no better predictions on the tables that were tried.
_PRIOR_ROWS, _PRIOR_ITERATIONS = 500, 50

#: Standard deviation of the least noise, relative to that of the targets.
_LEAST_NOISE = 0.01

#: The prior is fitted to the rows.
BUILDS_FROM_ROWS = True

#: There is no limit to the number of rows.
MOST_ROWS = None


def candidates(table: Table) -> list[dict[str, Any]]:
    """Returns the settings to try, the most promising first."""
    batch_size = min(1000, table.num_rows)
    steps = -(-table.num_rows // batch_size)  # of an epoch
    if table.num_classes is not None:
        batch_size = min(100, table.num_rows)
        steps = -(-table.num_rows // batch_size)
        common = {"batch_size": batch_size, "epochs": -(-2000 // steps)}
        return [{"units": 50, **common, "epochs_between_looks": -(-100 // steps)}]
    # The last layer starts at its regression, so few steps follow, with rows and points of the box.
    common = {"batch_size": batch_size, "epochs": -(-60 // steps)}
    return [{"units": 1000, **common, "epochs_between_looks": -(-10 // steps)}]


def build(settings: dict[str, Any], table: Table, seed: int) -> FBNNModel:
    """Builds and compiles a network with these settings, without fitting it."""
    if table.num_classes is not None:
        return _classifier(settings, table, seed)
    prior = fitted_prior(table.x, table.y, _PRIOR_ROWS, seed, "float64", _PRIOR_ITERATIONS)
    noise = max(2.0 * _LEAST_NOISE, float(prior.noise_scale))
    inputs = keras.Input((table.num_inputs,))
    features = layers.RandomFourierFeatures(settings["units"], prior.kernel(), seed=seed)(inputs)
    outputs = layers.VariationalDense(table.num_outputs, posterior="conditioned", prior="standard")
    model = FBNNModel(
        (inputs, outputs(features)),
        prior,
        likelihood=likelihoods.Gaussian(
            [noise] * table.num_outputs, trainable=True, min_scale=_LEAST_NOISE
        ),
        measurement=Box(100, margin=0.0),
        divergence=ClosedForm(injected_noise=0.2 * noise, fit_output=True),
        kl_weight="data",
        seed=seed,
    )
    rate = keras.optimizers.schedules.CosineDecay(
        5e-3, settings["epochs"] * -(-table.num_rows // settings["batch_size"]), alpha=0.01
    )
    model.compile(keras.optimizers.Adam(rate))
    return model


def _classifier(settings, table, seed):
    """Builds a network of tanh units with a smooth process as the prior of its logits."""
    # Inputs have variance 1, so the distance of two points is about the square root of twice their
    # number.
    kernel = tfp.math.psd_kernels.ExponentiatedQuadratic(
        np.float64(2.0), np.sqrt(np.float64(table.num_inputs))
    )
    keras.utils.set_random_seed(seed)
    inputs = keras.Input((table.num_inputs,))
    hidden = layers.VariationalDense(settings["units"], activation="tanh")(inputs)
    model = FBNNModel(
        (inputs, layers.VariationalDense(table.num_classes)(hidden)),
        GaussianProcess(kernel, num_outputs=table.num_classes),
        likelihood=likelihoods.Categorical(),
        measurement=Box(20),
        num_samples=50,
        seed=seed,
    )
    model.compile(keras.optimizers.Adam(3e-3))
    return model


scale_noise = scale_learnt_noise
