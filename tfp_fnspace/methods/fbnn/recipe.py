"""From the rows of a table to a functional BNN: a fitted prior, and random cosines of it."""

import keras
import numpy as np

from tfp_fnspace import layers, likelihoods
from tfp_fnspace.methods.fbnn.measurement import Box
from tfp_fnspace.methods.fbnn.model import FBNNModel
from tfp_fnspace.processes.fitted import fitted_prior

#: An exact process is fitted to at most so many rows: its time is cubic in them.
_PRIOR_ROWS = 500

#: Standard deviation of the least noise, in that of the targets.
_LEAST_NOISE = 0.01

#: The prior is fitted to them.
BUILDS_FROM_ROWS = True


def candidates(table):
    """Settings to try, the most likely first."""
    batch_size = min(1000, table.num_rows)
    steps = -(-table.num_rows // batch_size)  # of an epoch
    # The last layer starts at its regression: few steps follow, of rows and points of the box.
    common = {"batch_size": batch_size, "epochs": -(-60 // steps)}
    return [{"units": 1000, **common, "epochs_between_looks": -(-10 // steps)}]


def build(settings, table, seed):
    """A network of random cosines with these settings, compiled and not fitted."""
    prior = fitted_prior(table.x, table.y, _PRIOR_ROWS, seed, "float64")
    noise = max(2.0 * _LEAST_NOISE, float(prior.noise_scale))
    inputs = keras.Input((table.num_inputs,))
    features = layers.RandomFourierFeatures(settings["units"], prior.kernel(), seed=seed)(inputs)
    outputs = layers.VariationalDense(table.num_outputs, posterior="conditioned", prior="standard")
    model = FBNNModel(
        (inputs, outputs(features)),
        prior,
        likelihoods.Gaussian([noise] * table.num_outputs, trainable=True, min_scale=_LEAST_NOISE),
        Box(100, margin=0.0),
        kl="closed_form",
        kl_weight="data",
        injected_noise=0.2 * noise,
        fit_output=True,
        seed=seed,
    )
    rate = keras.optimizers.schedules.CosineDecay(
        5e-3, settings["epochs"] * -(-table.num_rows // settings["batch_size"]), alpha=0.01
    )
    model.compile(keras.optimizers.Adam(rate))
    return model


def scale_noise(model, factor):
    """Multiplies the standard deviation of the noise."""
    scale = factor * keras.ops.convert_to_numpy(model.likelihood.scale)
    model.likelihood.set_scale(np.maximum(scale, 1.01 * _LEAST_NOISE))
