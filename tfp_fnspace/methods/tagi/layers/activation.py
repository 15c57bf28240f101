"""Activation functions of Gaussian units."""

import functools
from collections.abc import Callable
from typing import Any, Self, TypeAlias

import keras
import tensorflow as tf

from tfp_fnspace.boundary.arguments import checked_choice, what_it_is
from tfp_fnspace.methods.tagi import equations
from tfp_fnspace.methods.tagi.equations import MomentsAndSlope
from tfp_fnspace.methods.tagi.layers.base import BilinearLayer, ElementwiseLayer, Inputs
from tfp_fnspace.typing import Config, GaussianMoments, Shape, Tensor

#: What `activation=` may be: a name, a function, a layer, or the config of a layer.
ActivationLike: TypeAlias = str | Callable[[Tensor], Tensor] | ElementwiseLayer | Config | None

#: Elementwise functions by name, for linearised activations.
FUNCTIONS = {
    "linear": tf.identity,
    "relu": tf.nn.relu,
    "leaky_relu": tf.nn.leaky_relu,
    "tanh": tf.tanh,
    "sigmoid": tf.sigmoid,
    "softplus": tf.nn.softplus,
}


def _clip(x):
    return tf.clip_by_value(x, -1.0, 1.0)


#: Piecewise-linear functions with exact Gaussian moments: name -> (moments, function).
EXACT = {
    "relu": (equations.exact_relu, tf.nn.relu),
    "tanh": (equations.exact_tanh, _clip),
    "sigmoid": (equations.exact_sigmoid, lambda x: 0.5 * (1.0 + _clip(x))),
}


@keras.saving.register_keras_serializable(package="tfp_fnspace.tagi")
class Activation(ElementwiseLayer):
    r"""Activation function of Gaussian units.

    `moments="linearized"` is the paper's rule, linearisation at the mean m: `E[a] = f(m)`,
    `var[a] = f'(m)^2 S`, with slope `f'(m)`. `moments="exact"` uses the exact moments of a
    piecewise-linear function of a Gaussian: relu `max(z, 0)`, tanh `clip(z, -1, 1)`, sigmoid `(1 +
    clip(z, -1, 1))/2`, with slope `cov(z, a)/var(z) = E[f'(z)]`.

    Args:
        activation: `"linear"`, `"relu"`, `"leaky_relu"` (negative slope 0.2, as in Keras),
            `"tanh"`, `"sigmoid"`, `"softplus"`, or (linearised) an elementwise function written in
            TensorFlow. Register a function with `keras.saving.register_keras_serializable` to load
            the model again.
        moments: `"linearized"` or `"exact"`.
        **kwargs: `name`, `dtype`.

    Call arguments:
        inputs: `(mean, variance)` pair of tensors `[N, ...]`, or one tensor.

    Returns:
        `GaussianMoments` of the same shape (a tensor for a tensor).

    Raises:
        ValueError: If the activation or `moments` is unknown, or has no exact moments.

    References:
        Goulet, Nguyen & Amiri (2021), equations 11 and 12.
    """

    def __init__(
        self,
        activation: str | Callable[[Tensor], Tensor],
        *,
        moments: str = "linearized",
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.moments_rule = checked_choice("moments", moments, ("linearized", "exact"))
        known = EXACT if moments == "exact" else FUNCTIONS
        is_function = callable(activation) and not isinstance(activation, type)
        if activation not in known and (moments == "exact" or not is_function):
            raise ValueError(
                f"With moments={moments!r}, `activation` must be one of {sorted(known)}"
                f"{'' if moments == 'exact' else ' or a function'}{what_it_is(activation)}. "
                f"Received: activation={activation!r}"
            )
        self.activation = activation
        if moments == "exact":
            self._moments, self._function = EXACT[activation]
        else:
            self._function = known.get(activation, activation)
            self._moments = functools.partial(equations.linearized, self._function)

    def function(self, z: Tensor) -> Tensor:
        return self._function(z)

    def moments(self, mean: Tensor, variance: Tensor) -> MomentsAndSlope:
        return self._moments(mean, variance)

    def get_config(self) -> Config:
        activation = self.activation
        if callable(activation):
            activation = keras.saving.serialize_keras_object(activation)
        return {**super().get_config(), "activation": activation, "moments": self.moments_rule}

    @classmethod
    def from_config(cls, config: Config) -> Self:
        config = dict(config)
        activation = config.pop("activation")
        if isinstance(activation, dict):
            activation = keras.saving.deserialize_keras_object(activation)
        return cls(activation, **config)


def get_activation(identifier: ActivationLike) -> ElementwiseLayer | None:
    """Returns the `Activation` layer (or other `ElementwiseLayer`) of an `activation=`, or `None`.

    Args:
        identifier: `None`, a name, a function, an `ElementwiseLayer`, or its serialised config.

    Raises:
        ValueError: If `identifier` is none of these.
    """
    if isinstance(identifier, dict):
        identifier = keras.saving.deserialize_keras_object(identifier)
    if identifier is None or isinstance(identifier, ElementwiseLayer):
        return identifier
    return Activation(identifier)


class ActivatedLayer(BilinearLayer):
    """Base of linear layers with an `activation=` argument.

    Args:
        activation: Name, function, or `Activation` layer that follows; see `Activation`.
        **kwargs: As for `BilinearLayer`.
    """

    def __init__(self, *, activation: ActivationLike = None, **kwargs: Any):
        super().__init__(**kwargs)
        self.activation = get_activation(activation)

    def build(self, input_shape: Shape) -> None:
        super().build(input_shape)
        if self.activation is not None:
            self.activation.built = True  # it has no weights, and is never called directly

    def call(self, inputs: Inputs) -> GaussianMoments:
        outputs = super().call(inputs)
        return outputs if self.activation is None else self.activation.propagate(*outputs)

    def get_config(self) -> Config:
        activation = self.activation
        if activation is not None:
            activation = keras.saving.serialize_keras_object(activation)
        return {**super().get_config(), "activation": activation}
