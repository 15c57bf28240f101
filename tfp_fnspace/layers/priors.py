"""Priors of the weights of a layer: rules for their scale, and TFP distributions as data."""

import math
from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_fnspace.typing import Config, Distribution, Tensor

tfd = tfp.distributions

#: Rules, by name, that give the standard deviation of a Gaussian prior with mean 0.
RULES = {
    "fan_in": lambda fan_in, fan_out: fan_in**-0.5,
    "glorot": lambda fan_in, fan_out: (2.0 / (fan_in + fan_out)) ** 0.5,
    "he": lambda fan_in, fan_out: (2.0 / fan_in) ** 0.5,
    "standard": lambda fan_in, fan_out: 1.0,
}

#: The rules whose standard deviations are learnt from the weights themselves: around 0, and
#: around the weights that a layer starts with.
RELEVANCE, START = "relevance", "start"
LEARNT = (RELEVANCE, START)

_NOT_NUMBERS = ("name", "dtype")


def checked(prior: str | Config | Distribution, name: str = "prior") -> str | Distribution:
    """Checks a prior and returns a rule's name, or a distribution that no longer changes.

    Args:
        prior: A key of `RULES`, one of `LEARNT`, the result of `serialize`, or a `tfd.Distribution`
            of one weight. The current values of its parameters are used.
        name: Name of the argument, for messages.

    Returns:
        String, or `tfd.Distribution`.

    Raises:
        TypeError: If it is something else.
        ValueError: If there is no rule of that name, or the distribution is not one of a scalar.
    """
    if isinstance(prior, str):
        if prior not in (*RULES, *LEARNT):
            raise ValueError(
                f"`{name}` must be one of {sorted((*RULES, *LEARNT))} or a TFP distribution. "
                f"Received: {name}={prior!r}"
            )
        return prior
    if isinstance(prior, dict):
        return deserialize(prior)
    if not isinstance(prior, tfd.Distribution):
        raise TypeError(
            f"`{name}` must be the name of a rule or a TFP distribution. Received: {name}={prior!r}"
        )
    if prior.event_shape.rank != 0 or prior.batch_shape.rank != 0:
        raise ValueError(
            f"`{name}` must be the distribution of one weight, without batch and event. "
            f"Received: batch_shape={prior.batch_shape}, event_shape={prior.event_shape}"
        )
    return prior if _description(prior) is None else deserialize(_description(prior))


def distribution(
    prior: str | Distribution, fan_in: int, fan_out: int, dtype: str | tf.DType
) -> Distribution:
    """Returns the distribution of one weight.

    Args:
        prior: Result of `checked`, but none of `LEARNT`.
        fan_in: Number of inputs that a unit sums over.
        fan_out: Number of units that an input goes to.
        dtype: Dtype of the weights.

    Returns:
        `tfd.Distribution` of a scalar, with that dtype if it is one of TFP's own.
    """
    if isinstance(prior, str):
        scale = RULES[prior](fan_in, fan_out)
        return tfd.Normal(tf.zeros([], dtype), tf.constant(scale, dtype))
    description = _description(prior)
    return prior if description is None else _build(description, dtype)


def learnt(
    mean: Tensor,
    variance: Tensor,
    axes: Sequence[int],
    start: Tensor | None = None,
    least: float | Tensor = 0.0,
) -> Distribution:
    """Returns Gaussian priors with the best variances for weights of given moments.

    The weights along `axes` share a Gaussian around `start`. Its variance minimises the divergence
    from them: it is `E (w - start)^2`, averaged over these weights.

    Args:
        mean: Tensor of the shape of the weights.
        variance: Tensor of that shape.
        axes: List of axes.
        start: Tensor of the same shape; 0 by default.
        least: The smallest standard deviation, a scalar.

    Returns:
        `tfd.Normal` that broadcasts with the weights.
    """
    start = tf.zeros([], mean.dtype) if start is None else start
    squares = tf.reduce_mean(tf.square(mean - start) + variance, axis=axes, keepdims=True)
    least = tf.square(tf.cast(least, mean.dtype))
    return tfd.Normal(start, tf.sqrt(tf.maximum(squares, least)))


def log_prob(prior: Distribution, weights: Tensor) -> Tensor:
    """Returns the log density of weights `[...]` in their dtype."""
    values = prior.log_prob(tf.cast(weights, prior.dtype))
    return tf.cast(values, weights.dtype)


def expected_log_prob(
    prior: Distribution, mean: Tensor, variance: Tensor, is_gaussian: bool
) -> Tensor | None:
    """Returns the expected log density of weights of given moments, if it has a closed form.

    Under a Gaussian prior it depends only on the moments. Under a Laplace prior and for Gaussian
    weights it follows from the mean of a folded Gaussian.

    Args:
        prior: `tfd.Distribution` of one weight.
        mean: Tensor `[...]`.
        variance: Tensor `[...]`.
        is_gaussian: Whether the distribution of each weight is Gaussian.

    Returns:
        Tensor `[...]`, or `None`.
    """
    if isinstance(prior, tfd.Normal):
        squared = tf.square(mean - prior.loc) + variance
        log_scale = tf.math.log(prior.scale) + 0.5 * math.log(2.0 * math.pi)
        return -0.5 * squared / tf.square(prior.scale) - log_scale
    if isinstance(prior, tfd.Laplace) and is_gaussian:
        stddev = tf.sqrt(variance)
        ratio = (mean - prior.loc) / stddev
        folded = math.sqrt(2.0 / math.pi) * tf.exp(-0.5 * tf.square(ratio))
        folded = stddev * (folded + ratio * tf.math.erf(ratio / math.sqrt(2.0)))
        return -folded / prior.scale - tf.math.log(2.0 * prior.scale)
    return None


def serialize(prior: str | Distribution) -> str | Config:
    """Converts a prior to strings and numbers.

    Args:
        prior: Result of `checked`.

    Returns:
        The rule's name, or a dict of the name of the class in `tfd` and its parameters.

    Raises:
        ValueError: If the distribution is not one of TFP's own with numbers as parameters.
    """
    if isinstance(prior, str):
        return prior
    description = _description(prior)
    if description is None:
        raise ValueError(
            "A prior to be saved must be a TFP distribution with numbers as its parameters. "
            f"Received: prior={prior!r}"
        )
    return description


def deserialize(config: str | Config) -> str | Distribution:
    """Returns the prior from a result of `serialize`.

    Raises:
        ValueError: If TFP has no such distribution.
    """
    return config if isinstance(config, str) else _build(config, keras.config.floatx())


def _description(prior):
    """Returns the argument of `_build`, or `None` if the parameters are not numbers."""
    if getattr(tfd, type(prior).__name__, None) is not type(prior):
        return None
    parameters = {}
    for name, value in prior.parameters.items():
        if name in _NOT_NUMBERS or value is None or isinstance(value, bool):
            continue
        value = _description(value) if isinstance(value, tfd.Distribution) else _number(value)
        if value is None:
            return None
        parameters[name] = value
    return {"class_name": type(prior).__name__, "parameters": parameters}


def _number(value):
    """Returns a number or an array as nested lists, or `None` if it is neither."""
    try:
        array = tf.get_static_value(tf.convert_to_tensor(value))
    except (TypeError, ValueError):
        return None
    if array is None or not np.issubdtype(array.dtype, np.number):
        return None
    return array.tolist()


def _build(config, dtype):
    cls = getattr(tfd, str(config.get("class_name")), None)
    if not isinstance(cls, type) or not issubclass(cls, tfd.Distribution):
        raise ValueError(
            f"A prior must be a distribution of TFP. Received: {config.get('class_name')!r}"
        )
    parameters = {
        name: _build(value, dtype) if isinstance(value, dict) else tf.constant(value, dtype)
        for name, value in config["parameters"].items()
    }
    return cls(**parameters)
