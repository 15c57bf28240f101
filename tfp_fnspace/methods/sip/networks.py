"""The default networks of SIP."""

from collections.abc import Callable, Sequence
from typing import Any

import keras

from tfp_fnspace import layers
from tfp_fnspace.processes import NeuralSamplerProcess, VariationalProcess
from tfp_fnspace.processes.base import Process

#: Initial standard deviation of a weight of the prior, times fan_in^-1/2.
_INITIAL_SCALE = 1.0


def bnn_prior(
    num_inputs: int,
    num_outputs: int = 1,
    units: Sequence[int] = (50, 50),
    activation: Any = "tanh",
    seed: int | None = None,
    **options: Any,
) -> VariationalProcess:
    """Makes a Bayesian network whose weights have learned means and variances.

    Args:
        num_inputs: Number of columns of x.
        num_outputs: D.
        units: Widths of the hidden layers.
        activation: As in Keras.
        seed: Integer seed of the initial means; None for Keras's own seed.
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
    num_inputs: int,
    num_outputs: int = 1,
    units: Sequence[int] = (50, 50),
    activation: Any = "tanh",
    num_noise: int = 10,
    seed: int | None = None,
    dropout: float = 0.0,
    **options: Any,
) -> NeuralSamplerProcess:
    """Makes a network whose inputs are x and noise.

    Args:
        num_inputs: Number of columns of x.
        num_outputs: D.
        units: Widths of the hidden layers.
        activation: As in Keras.
        num_noise: Number of noise inputs of a function.
        seed: Integer seed of the initial weights; None for Keras's own seed.
        dropout: Dropout rate of hidden units; each function has its own masks.
        **options: `dtype`, `name`.

    Returns:
        `processes.NeuralSamplerProcess`.
    """
    network = mlp(
        num_inputs + num_noise, num_outputs, units, activation, options.get("dtype"), seed=seed
    )
    return NeuralSamplerProcess(network, num_noise, num_outputs, dropout, **options)


def mlp(
    num_inputs: int,
    num_outputs: int,
    units: Sequence[int] = (50, 50),
    activation: Any = "leaky_relu",
    dtype: str | None = None,
    dropout: float = 0.0,
    seed: int | None = None,
) -> keras.Sequential:
    """Makes a plain network, for the sampler of the posterior and for the discriminator.

    Args:
        num_inputs: Number of columns of the input.
        num_outputs: Number of columns of the output.
        units: Widths of the hidden layers.
        activation: As in Keras.
        dtype: As in Keras.
        dropout: Dropout rate of hidden units in training.
        seed: Integer seed of the initial weights and of dropout; None for Keras's own seed.

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
    """Returns the seed of a layer."""
    return None if seed is None else seed + number


#: The priors by name, and the names of those whose weights have a learned distribution.
PRIORS: dict[str, Callable[..., Process]] = {
    "bnn": bnn_prior,
    "neural_sampler": neural_sampler_prior,
}
WITH_WEIGHT_DIVERGENCE = ("bnn",)
