"""Random networks as processes, with random weights or random inputs."""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tfp_fnspace.boundary.arguments import checked_count, checked_number, checked_rate
from tfp_fnspace.layers import networks
from tfp_fnspace.math import random
from tfp_fnspace.processes import given_weights
from tfp_fnspace.processes.base import Process, check_width
from tfp_fnspace.tracing import traced
from tfp_fnspace.typing import Config, Distribution, Shape


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class BNNProcess(Process):
    """Functions of a Keras network whose weights are drawn from a prior; no density.

        f_s(x) = network(x; w_s),   w_s ~ prior,   s = 1 ... n

    By default a weight of rank 2 or more is `N(0, kernel_gain^2 / fan_in)`, where fan_in is the
    product of all its axes but the last. A weight of lower rank (a bias) is `N(0, bias_stddev^2)`.
    All functions of a call are computed in one vectorised pass. Layers that act differently in
    training (dropout, batch normalisation) are refused unless they are frozen; frozen layers run as
    in prediction. The process has a copy of the network, whose regularizers have no effect.

    Args:
        network: Keras model or layer from `[N, ...]` to `[N, D]`, or its serialised form.
        kernel_gain: Positive number. With ReLUs, sqrt(2) keeps the variance constant from layer to
            layer.
        bias_stddev: Number, at least 0.
        weight_prior: Function from the path of a weight (such as `"sequential/dense/kernel"`) and
            its shape to a TFP distribution of tensors of that shape, which replaces the default.
            For saving, register it by `keras.saving.register_keras_serializable`.
        num_outputs: D, a positive integer.
        **kwargs: `name`, `dtype`.

    Raises:
        ValueError: If an argument is not as described, or a layer acts differently in training; in
            `sample`, if the network's output is not `[N, D]`.

    Example:
        >>> network = keras.Sequential(
        ...     [keras.layers.Dense(50, activation="tanh"), keras.layers.Dense(1)]
        ... )
        >>> BNNProcess(network).sample(x, 100, seed=0)  # [100, N, 1]
    """

    draws_are_functions_of_x = True

    def __init__(
        self,
        network: keras.layers.Layer | Config,
        kernel_gain: float = 1.0,
        bias_stddev: float = 1.0,
        weight_prior: Callable[[str, tuple[int, ...]], Distribution] | Config | None = None,
        num_outputs: int = 1,
        **kwargs: Any,
    ):
        super().__init__(num_outputs, **kwargs)
        self.kernel_gain = checked_number("kernel_gain", kernel_gain, 0.0)
        self.bias_stddev = checked_number("bias_stddev", bias_stddev, 0.0, inclusive=True)
        if isinstance(weight_prior, dict):
            weight_prior = keras.saving.deserialize_keras_object(weight_prior)
        self.weight_prior = weight_prior
        self.network = given_weights.frozen_copy(network)
        self._compiled = traced(self._draw, reduce_retracing=True)

    def build(self, input_shape: Shape) -> None:
        self._drawn = given_weights.drawn_variables(self.network, input_shape)
        self.built = True

    def _sample(self, x, n, seed):
        return self._compiled(x, tf.convert_to_tensor(n), seed)

    def _draw(self, x, n, seed):
        weights = [
            self._weight(variable, n, its_seed)
            for variable, its_seed in zip(
                self._drawn, random.split(seed, len(self._drawn)), strict=True
            )
        ]
        values = given_weights.functions(self.network, self._drawn, weights, x)
        return _checked_output(self._cast(values), self.num_outputs)

    def _weight(self, variable, n, seed):
        """Draws a weight, `[n, ...]`."""
        shape = tuple(variable.shape)
        if self.weight_prior is not None:
            values = tf.cast(
                self.weight_prior(variable.path, shape).sample(n, seed), variable.dtype
            )
            if not values.shape[1:].is_compatible_with(shape):
                raise ValueError(
                    f"`weight_prior` must give a distribution of tensors of the shape {shape} for "
                    f"{variable.path}. Received: shape={values.shape[1:]}"
                )
            return values
        scale = given_weights.normal_scale(shape, self.kernel_gain, self.bias_stddev)
        return scale * random.normal([n, *shape], seed, variable.dtype)

    def get_config(self) -> Config:
        prior = self.weight_prior
        return {
            **super().get_config(),
            "network": given_weights.serialized(self.network),
            "kernel_gain": self.kernel_gain,
            "bias_stddev": self.bias_stddev,
            "weight_prior": None if prior is None else keras.saving.serialize_keras_object(prior),
        }


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class NeuralSamplerProcess(Process):
    """Functions of a network whose inputs are the point and noise; no density.

        f_s(x) = network([x, xi_s]),   xi_s ~ N(0, I_k),   s = 1 ... n

    One draw of the noise is one function. The network's weights are those of the process. A model
    that trains them adds the penalties of their regularizers to its loss. With `dropout` a function
    also has a draw of masks, the same at all points: after each layer but the last, a unit h
    becomes

        h_s m_s / (1 - r),   m_s ~ Bernoulli(1 - r)

    in training and in prediction. Functions then differ by more than k numbers, and the weights are
    less likely to learn the noise of few rows. A `Dropout` layer of Keras is refused, since it
    would drop units at each point separately.

    Args:
        network: Keras model or layer from `[B, I + k]` to `[B, D]`, or its serialised form.
        num_noise: k, a positive integer.
        num_outputs: D, a positive integer.
        dropout: r, from 0 (the default) to less than 1. Above 0 the network must be a
            `keras.Sequential`.
        **kwargs: `name`, `dtype`, `trainable`.

    Raises:
        ValueError: If an argument is not as described; in `sample` if points are not `[N, I]` or
            the network's output is not `[B, D]`.

    References:
        Ma, Li and Hernandez-Lobato (2019), "Variational implicit processes", ICML, example 3.

        Gal and Ghahramani (2016), "Dropout as a Bayesian approximation", ICML.
    """

    draws_are_functions_of_x = True

    network: Any  # a Keras layer, or a model with `layers`

    def __init__(
        self,
        network: keras.layers.Layer | Config,
        num_noise: int = 1,
        num_outputs: int = 1,
        dropout: float = 0.0,
        **kwargs: Any,
    ):
        super().__init__(num_outputs, **kwargs)
        self.num_noise = checked_count("num_noise", num_noise)
        self.dropout = checked_rate("dropout", dropout)
        is_config = isinstance(network, dict)
        self.network = keras.saving.deserialize_keras_object(network) if is_config else network
        if isinstance(self.network, keras.layers.Layer):
            networks.refuse_acting_in_training(self.network, type(self).__name__)
        if self.dropout and not isinstance(self.network, keras.Sequential):
            raise ValueError(
                "`network` must be a `keras.Sequential` with `dropout`. "
                f"Received: network={self.network!r}, dropout={dropout!r}"
            )

    def build(self, input_shape: Shape) -> None:
        if len(input_shape) != 2:
            raise ValueError(
                f"A neural sampler has points of the shape [N, I]. Received: x.shape={input_shape}"
            )
        width = input_shape[-1] + self.num_noise
        if not self.network.built:
            self.network.build((None, width))
        check_width(self.network, width)
        self.built = True

    def _sample(self, x, n, seed):
        size, width = tf.shape(x)[0], x.shape[-1]
        noise = random.normal([n, 1, self.num_noise], seed, x.dtype)
        noise = tf.broadcast_to(noise, [n, size, self.num_noise])
        points = tf.broadcast_to(x, [n, size, width])
        rows = tf.reshape(tf.concat([points, noise], axis=-1), [-1, width + self.num_noise])
        outputs = self._with_dropout(rows, n, seed) if self.dropout else self.network(rows)
        outputs = _checked_output(self._cast(outputs), self.num_outputs)
        return tf.reshape(outputs, [n, size, self.num_outputs])

    def _with_dropout(self, rows, n, seed):
        """Evaluates the network with dropout at the rows of n functions, one after the other."""
        *hidden, last = self.network.layers
        for i, layer in enumerate(hidden, 1):
            rows = layer(rows)
            width = rows.shape[-1]
            chance = tf.random.stateless_uniform([n, 1, width], random.fold_in(seed, i))
            masks = tf.cast(chance >= self.dropout, rows.dtype) / (1.0 - self.dropout)
            rows = tf.reshape(tf.reshape(rows, [n, -1, width]) * masks, [-1, width])
        return last(rows)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "network": given_weights.serialized(self.network),
            "num_noise": self.num_noise,
            "dropout": self.dropout,
        }


def _checked_output(values, num_outputs):
    if values.shape[-1] != num_outputs:
        raise ValueError(
            f"The network must have {num_outputs} outputs, `num_outputs`. "
            f"Received: output shape={values.shape}"
        )
    return values
