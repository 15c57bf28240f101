"""Baselines from the same layers, `DIWPModel` with other hidden layers."""

import keras

from tfp_fnspace import arguments
from tfp_fnspace.methods.diwp.model import DIWPModel


@keras.saving.register_keras_serializable(package="tfp_fnspace.diwp")
class NNGPModel(DIWPModel):
    """Gaussian process with the kernel of an infinitely wide network: `DIWPModel(hidden="none")`.

    The arguments are those of `DIWPModel`, but `hidden` cannot be changed.
    """

    def __init__(self, inducing_points=100, kernel="relu", depth=2, hidden="none", *args, **kwargs):
        hidden = arguments.checked_choice("hidden", hidden, ("none",))
        super().__init__(inducing_points, kernel, depth, hidden, *args, **kwargs)


@keras.saving.register_keras_serializable(package="tfp_fnspace.diwp")
class DeepGPModel(DIWPModel):
    """Deep Gaussian process as wide as the input: `DIWPModel(hidden="gaussian_process")`.

    The arguments are those of `DIWPModel`, but `hidden` cannot be changed.
    """

    def __init__(
        self,
        inducing_points=100,
        kernel="relu",
        depth=2,
        hidden="gaussian_process",
        *args,
        **kwargs,
    ):
        hidden = arguments.checked_choice("hidden", hidden, ("gaussian_process",))
        super().__init__(inducing_points, kernel, depth, hidden, *args, **kwargs)
