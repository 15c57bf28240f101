"""The networks that SIP has where the user gives none."""

import keras

from tfp_fnspace import layers
from tfp_fnspace.processes import NeuralSamplerProcess, VariationalProcess

#: Standard deviation of a weight of the prior at the start, times fan_in^-1/2.
_INITIAL_SCALE = 1.0


def bnn_prior(num_inputs, num_outputs=1, units=(50, 50), activation="tanh", **options):
    """A Bayesian network whose weights have means and variances that are learned.

    Args:
        num_inputs: Columns of x.
        num_outputs: D.
        units: Widths of the hidden layers.
        activation: As in Keras.
        **options: `dtype`, `name`.

    Returns:
        `processes.VariationalProcess`.
    """
    dtype = options.get("dtype")
    network = keras.Sequential([keras.Input((num_inputs,), dtype=dtype)])
    for i, width in enumerate([*units, num_outputs]):
        posterior = layers.FactorizedGaussian(initial_scale=_INITIAL_SCALE)
        function = activation if i < len(units) else None
        network.add(
            layers.VariationalDense(width, activation=function, posterior=posterior, dtype=dtype)
        )
    return VariationalProcess(network, num_outputs, **options)


def neural_sampler_prior(
    num_inputs, num_outputs=1, units=(50, 50), activation="tanh", num_noise=10, **options
):
    """A network that takes noise beside x.

    Args:
        num_inputs: Columns of x.
        num_outputs: D.
        units: Widths of the hidden layers.
        activation: As in Keras.
        num_noise: Numbers of the noise of a function.
        **options: `dtype`, `name`.

    Returns:
        `processes.NeuralSamplerProcess`.
    """
    network = mlp(num_inputs + num_noise, num_outputs, units, activation, options.get("dtype"))
    return NeuralSamplerProcess(network, num_noise, num_outputs, **options)


def mlp(num_inputs, num_outputs, units=(50, 50), activation="leaky_relu", dtype=None, dropout=0.0):
    """A plain network: the sampler of the posterior and the discriminator.

    Args:
        num_inputs: Columns of the input.
        num_outputs: Columns of the output.
        units: Widths of the hidden layers.
        activation: As in Keras.
        dtype: As in Keras.
        dropout: Rate of the dropout of hidden units in training.

    Returns:
        `keras.Sequential`.
    """
    network = keras.Sequential([keras.Input((num_inputs,), dtype=dtype)])
    for width in units:
        network.add(keras.layers.Dense(width, activation=activation, dtype=dtype))
        if dropout:
            network.add(keras.layers.Dropout(dropout, dtype=dtype))
    network.add(keras.layers.Dense(num_outputs, dtype=dtype))
    return network


#: The priors that have a name.
PRIORS = {"bnn": bnn_prior, "neural_sampler": neural_sampler_prior}
