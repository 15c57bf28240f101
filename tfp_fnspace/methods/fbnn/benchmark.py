"""The models of `benchmark paper`, fBNN or Bayes by Backprop."""

from collections.abc import Sequence
from typing import Any

import keras

from tfp_fnspace import layers, likelihoods
from tfp_fnspace.methods.fbnn.divergences import Stein
from tfp_fnspace.methods.fbnn.measurement import Box
from tfp_fnspace.methods.fbnn.model import FBNNModel
from tfp_fnspace.methods.fbnn.variational_model import VariationalModel
from tfp_fnspace.processes.fitted import fitted_prior
from tfp_fnspace.typing import Array


def network(num_inputs: int, units: Sequence[int]) -> tuple[Any, Any]:
    """Builds ReLU layers with independent normal priors of variance 1 / inputs and one output.

    Args:
        num_inputs: X, the number of inputs.
        units: List of the widths of the hidden layers.

    Returns:
        Symbolic inputs and outputs.
    """
    inputs = hidden = keras.Input((num_inputs,))
    for width in units:
        hidden = layers.VariationalDense(width, activation="relu", prior="fan_in")(hidden)
    return inputs, layers.VariationalDense(1, prior="fan_in")(hidden)


def fit(
    x: Array,
    y: Array,
    *,
    units: Sequence[int],
    epochs: int,
    batch_size: int,
    learning_rate: float,
    num_samples: int,
    min_scale: float,
    seed: int,
    prior: dict[str, Any],
) -> tuple[VariationalModel, dict[str, float]]:
    """Builds and fits a model with learnt noise, in the form that `registry` expects.

    Args:
        x: Training inputs `[N, X]`.
        y: Training targets `[N, 1]`.
        units: List of the widths of the hidden layers.
        epochs: Number of passes over the rows.
        batch_size: Rows in a batch.
        learning_rate: Learning rate of Adam.
        num_samples: Number of draws in a step.
        min_scale: Least standard deviation of the noise, in standard deviations of the targets.
        seed: Integer.
        prior: Dict with three entries. `max_rows` is the number of rows to which a Gaussian
            process, the prior, is fitted first; if its noise is larger, it becomes the least noise.
            `measurement` is the number of uniform points in a step, and `injected_noise` the noise.
            An empty dict means Bayes by Backprop.

    Returns:
        The model, and a dict of values that the training rows have determined.
    """
    keras.utils.set_random_seed(seed)
    chosen, options = {}, {}
    if prior:
        process = fitted_prior(x, y, prior["max_rows"], seed)
        chosen["prior_noise_scale"] = float(process.noise_scale)
        min_scale = max(min_scale, chosen["prior_noise_scale"])
        options = {
            "prior": process,
            "measurement": Box(prior["measurement"]),
            "divergence": Stein(injected_noise=prior["injected_noise"]),
            "kl_weight": "batch",
        }
    likelihood = likelihoods.Gaussian(2.0 * min_scale, trainable=True, min_scale=min_scale)
    options.update(likelihood=likelihood, num_samples=num_samples, kl_annealing_steps=0, seed=seed)
    model = (FBNNModel if prior else VariationalModel)(network(x.shape[1], units), **options)
    model.compile(optimizer=keras.optimizers.Adam(learning_rate))
    model.fit(x, y, batch_size=batch_size, epochs=epochs, verbose=0)
    chosen["noise_scale"] = float(keras.ops.convert_to_numpy(model.likelihood.scale))
    return model, chosen
