"""The networks that SIP has where the user gives none."""

import keras

from tfp_fnspace import layers
from tfp_fnspace.processes import NeuralSamplerProcess, VariationalProcess

#: Standard deviation of a weight of the prior at the start, times fan_in^-1/2.
_INITIAL_SCALE = 1.0


def bnn_prior(num_inputs, num_outputs=1, units=(50, 50), activation="tanh", seed=None, **options):
    """A Bayesian network whose weights have means and variances that are learned.

    Args:
        num_inputs: Columns of x.
        num_outputs: D.
        units: Widths of the hidden layers.
        activation: As in Keras.
        seed: Integer, of the means at the start; None for Keras's own.
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
            layers.VariationalDense(
                width,
                activation=function,
                posterior=posterior,
                kernel_initializer=keras.initializers.LecunNormal(_shifted(seed, i)),
                dtype=dtype,
            )
        )
    return VariationalProcess(network, num_outputs, **options)


def neural_sampler_prior(
    num_inputs,
    num_outputs=1,
    units=(50, 50),
    activation="tanh",
    num_noise=10,
    seed=None,
    dropout=0.0,
    **options,
):
    """A network that takes noise beside x.

    Args:
        num_inputs: Columns of x.
        num_outputs: D.
        units: Widths of the hidden layers.
        activation: As in Keras.
        num_noise: Numbers of the noise of a function.
        seed: Integer, of the weights at the start; None for Keras's own.
        dropout: Rate of the dropout of hidden units, whose masks belong to a function.
        **options: `dtype`, `name`.

    Returns:
        `processes.NeuralSamplerProcess`.
    """
    network = mlp(
        num_inputs + num_noise, num_outputs, units, activation, options.get("dtype"), seed=seed
    )
    return NeuralSamplerProcess(network, num_noise, num_outputs, dropout, **options)


def mlp(
    num_inputs,
    num_outputs,
    units=(50, 50),
    activation="leaky_relu",
    dtype=None,
    dropout=0.0,
    seed=None,
):
    """A plain network: the sampler of the posterior and the discriminator.

    Args:
        num_inputs: Columns of the input.
        num_outputs: Columns of the output.
        units: Widths of the hidden layers.
        activation: As in Keras.
        dtype: As in Keras.
        dropout: Rate of the dropout of hidden units in training.
        seed: Integer, of the weights at the start and of dropout; None for Keras's own.

    Returns:
        `keras.Sequential`.
    """
    network = keras.Sequential([keras.Input((num_inputs,), dtype=dtype)])
    for i, width in enumerate([*units, num_outputs]):
        is_hidden, kernel = i < len(units), keras.initializers.GlorotUniform(_shifted(seed, i))
        function = activation if is_hidden else None
        network.add(
            keras.layers.Dense(width, activation=function, kernel_initializer=kernel, dtype=dtype)
        )
        if dropout and is_hidden:
            network.add(keras.layers.Dropout(dropout, seed=_shifted(seed, i), dtype=dtype))
    return network


def _shifted(seed, number):
    """The seed of a layer."""
    return None if seed is None else seed + number


#: The priors that have a name, and those of them whose weights have a law that is learned.
PRIORS = {"bnn": bnn_prior, "neural_sampler": neural_sampler_prior}
WITH_WEIGHT_DIVERGENCE = ("bnn",)
