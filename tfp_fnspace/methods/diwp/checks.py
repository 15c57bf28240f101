"""Checks of the arguments of `DIWPModel`, each with one clear error."""

from typing import Any

import keras

from tfp_fnspace import likelihoods
from tfp_fnspace.methods.diwp import layers
from tfp_fnspace.methods.diwp.deep_kernel import DeepKernel
from tfp_fnspace.methods.diwp.layers import FeaturesToGram, GlobalInducingGP
from tfp_fnspace.methods.diwp.options import Start

#: Layers that `start` supports, whose draws tend to the mean as delta grows.
_WITH_MEANS = (
    FeaturesToGram,
    layers.InverseWishartFeatures,
    layers.KernelOfGram,
    layers.InverseWishartProcess,
    GlobalInducingGP,
)


def check_network(network: Any, num_outputs: int | None) -> None:
    """Refuses networks that do not map one input to the moments of f.

    Args:
        network: What was given.
        num_outputs: `None`, since a network has its own number.

    Raises:
        TypeError: If it is not a Keras model.
        ValueError: If it has no shapes yet, several inputs, or unsuitable first and last layers.
    """
    if not isinstance(network, keras.Model):
        raise TypeError(
            "`network` must be a tfp_fnspace.diwp.DeepKernel or a Keras model. "
            f"Received: network={network!r}"
        )
    inputs = getattr(network, "inputs", None) or []
    if len(inputs) != 1:
        raise ValueError(
            "`network` must have layers and begin with one `keras.Input`. "
            f"Received: network with {len(network.layers)} layers and {len(inputs)} inputs"
        )
    if num_outputs is not None:
        raise ValueError(
            "A Keras model has its own number of outputs, so `num_outputs` must not be given. "
            f"Received: network and num_outputs={num_outputs!r}"
        )
    inner = [each for each in network.layers if not isinstance(each, keras.layers.InputLayer)]
    if not isinstance(inner[0], FeaturesToGram) or not isinstance(inner[-1], GlobalInducingGP):
        raise ValueError(
            "`network` must begin with FeaturesToGram or InverseWishartFeatures and end with "
            f"GlobalInducingGP. Received: {type(inner[0]).__name__} ... {type(inner[-1]).__name__}"
        )


def check_start(start: Start, likelihood: Any, network: Any) -> None:
    """Refuses models without a fitted start.

    Args:
        start: `Start` with a fit, for the message.
        likelihood: The likelihood.
        network: A `DeepKernel`, or a Keras model.

    Raises:
        ValueError: If the likelihood is not Gaussian, if hidden layers are Gaussian processes, or
            if the network is not a sequence of layers of `diwp`.
    """
    rule = f'`Start(fit="{start.fit}")` '
    if type(likelihood) is not likelihoods.Gaussian:
        raise ValueError(
            f"{rule}needs Gaussian noise. Received: likelihood={type(likelihood).__name__}"
        )
    if isinstance(network, DeepKernel):
        if network.hidden == "gaussian_process":
            raise ValueError(
                f"{rule}needs random matrices that are near their means; those of a few sampled "
                "features are not. Received: hidden='gaussian_process'"
            )
        return
    other = [each for each in network.layers if type(each) not in _WITH_MEANS]
    other = [type(each).__name__ for each in other if not isinstance(each, keras.layers.InputLayer)]
    if other or not isinstance(network, keras.Sequential):
        raise ValueError(
            f"{rule}needs a `keras.Sequential` of layers of `diwp` without `GaussianProcessGram`. "
            f"Received: {type(network).__name__} with {', '.join(other) or 'no other layers'}"
        )


def check_alpha(alpha: float, likelihood: Any, num_samples: int) -> None:
    """Refuses a positive alpha that would have no effect.

    Args:
        alpha: Number from 0 to 1.
        likelihood: A likelihood.
        num_samples: Number of samples in a training step.

    Raises:
        ValueError: If alpha is positive and the expectation would use a single draw of f.
    """
    if alpha > 0.0 and num_samples < 2 and not likelihood.has_expected_power:
        raise ValueError(
            "`num_samples` must be at least 2 with `alpha` and noise that is not Gaussian: with "
            "one draw of f the objective is that of alpha=0. "
            f"Received: num_samples={num_samples}, alpha={alpha:g}"
        )
