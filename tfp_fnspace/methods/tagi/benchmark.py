"""The model of `benchmark paper`, a network with one hidden layer."""

import keras

from tfp_fnspace import likelihoods
from tfp_fnspace.methods.tagi.layers import Activation, Dense
from tfp_fnspace.methods.tagi.model import TAGIModel
from tfp_fnspace.typing import Array


def fit(
    x: Array,
    y: Array,
    *,
    units: int,
    moments: str,
    initial_noise_scale: float,
    epochs: int,
    batch_size: int,
    seed: int,
) -> tuple[TAGIModel, dict[str, float]]:
    """Builds and fits a model with cross-validated noise, in the form that `registry` expects.

    Args:
        x: Training inputs `[N, X]`.
        y: Training targets `[N, D]`.
        units: Width of the hidden layer of ReLU units.
        moments: As for `tagi.Activation`.
        initial_noise_scale: Initial noise scale of the cross-validation, in standard deviations of
            the targets.
        epochs: Number of passes over the rows.
        batch_size: Rows in a batch.
        seed: Integer.

    Returns:
        The model, and a dict of the settings that the training rows chose.
    """
    inputs = keras.Input((x.shape[1],))
    hidden = Dense(units, activation=Activation("relu", moments=moments))(inputs)
    likelihood = likelihoods.Gaussian(scale=initial_noise_scale)
    outputs = Dense(y.shape[1])(hidden)
    model = TAGIModel(inputs, outputs, likelihood=likelihood, noise="cross_validate", seed=seed)
    model.fit(x, y, epochs=epochs, batch_size=batch_size, verbose=0)
    return model, {
        "noise_scale": float(model.likelihood.scale.numpy()),
        "held_out_log_likelihood": max(score for _, score in model.noise_scores),
    }
