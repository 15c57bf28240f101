"""What `benchmark paper` fits: fBNN or Bayes by Backprop."""

import keras

from tfp_fnspace import layers, likelihoods
from tfp_fnspace.methods.fbnn.measurement import Box
from tfp_fnspace.methods.fbnn.model import FBNNModel
from tfp_fnspace.methods.fbnn.variational_model import VariationalModel
from tfp_fnspace.processes.fitted import fitted_prior


def network(num_inputs, units):
    """ReLU layers of weights with independent normal priors of variance 1 / inputs, one output.

    Args:
        num_inputs: X.
        units: List of the widths of the hidden layers.

    Returns:
        Symbolic inputs and outputs.
    """
    inputs = hidden = keras.Input((num_inputs,))
    for width in units:
        hidden = layers.VariationalDense(width, activation="relu", prior="fan_in")(hidden)
    return inputs, layers.VariationalDense(1, prior="fan_in")(hidden)


def fit(x, y, *, units, epochs, batch_size, learning_rate, num_samples, min_scale, seed, prior):
    """Builds and fits a model whose noise is learnt, as `registry` asks for it.

    Args:
        x: Training inputs `[N, X]`.
        y: Training targets `[N, 1]`.
        units: List of the widths of the hidden layers.
        epochs: Passes over the rows.
        batch_size: Rows of a step.
        learning_rate: Of Adam.
        num_samples: Draws of a step.
        min_scale: Least standard deviation of the noise, in those of the targets.
        seed: Integer.
        prior: Dict of `max_rows` to which a Gaussian process is fitted first, the prior, whose
            noise is the least one if it is larger; `measurement`, uniform points of a step; and
            `injected_noise`. Empty: Bayes by Backprop.

    Returns:
        The model, and a dict of what the training rows chose.
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
            "injected_noise": prior["injected_noise"],
            "kl_weight": "batch",
        }
    likelihood = likelihoods.Gaussian(2.0 * min_scale, trainable=True, min_scale=min_scale)
    options.update(likelihood=likelihood, num_samples=num_samples, kl_annealing_steps=0, seed=seed)
    model = (FBNNModel if prior else VariationalModel)(network(x.shape[1], units), **options)
    model.compile(optimizer=keras.optimizers.Adam(learning_rate))
    model.fit(x, y, batch_size=batch_size, epochs=epochs, verbose=0)
    chosen["noise_scale"] = float(keras.ops.convert_to_numpy(model.likelihood.scale))
    return model, chosen
