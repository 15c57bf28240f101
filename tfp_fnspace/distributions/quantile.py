"""Marginals with their distribution functions and quantiles, also of mixtures.

A predictive distribution has batch `[N]` and event `[D]`: a distribution over D outputs at each of
N points. Its marginals are N D distributions of one number each, which form one distribution with
batch `[N, D]` and event `[]`.
"""

from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_fnspace.typing import ArrayLike, Distribution, Tensor

tfd = tfp.distributions

# Bisection halves a bracket once for every bit of the mantissa, and this many times more, since the
# bracket may be wider than the quantile by this power of two.
_SPARE_BITS = 17
_MAX_DOUBLINGS = 120

#: Distributions of non-negative integers.
_COUNTS = (tfd.Poisson, tfd.NegativeBinomial)


def marginals(distribution: Distribution) -> Distribution:
    """Returns the one-dimensional marginals of a distribution, one for every output.

    Args:
      distribution: `tfd.Distribution` with batch `[N]` and event `[D]`: `tfd.Independent` (also
        nested), a multivariate normal, `tfd.Empirical`, or `tfd.MixtureSameFamily` with components
        of these kinds; or any distribution with a scalar event, batch `[N]` or `[N, D]`.

    Returns:
      `tfd.Distribution` with batch `[N, D]` and event `[]` (batch `[N]` if the distribution has
      batch `[N]` and event `[]`). A mixture becomes a mixture with the same weights for every
      output.

    Raises:
      TypeError: if `distribution` is not a distribution, or its marginals are not known.
    """
    check_distribution(distribution)
    if is_independent(distribution):
        return marginals(distribution.distribution)
    if is_mixture(distribution):
        return _mixture_marginals(distribution)
    if event_rank(distribution) == 0:
        return distribution
    if isinstance(distribution, tfd.MultivariateNormalLinearOperator):
        return tfd.Normal(distribution.mean(), distribution.stddev())
    if isinstance(distribution, tfd.Empirical) and event_rank(distribution) == 1:
        return tfd.Empirical(_swap_last_axes(tf.convert_to_tensor(distribution.samples)))
    raise TypeError(
        "The marginals are known for distributions with a scalar event, tfd.Independent, "
        "multivariate normals, tfd.Empirical with event [D], and tfd.MixtureSameFamily of these. "
        f"Received: distribution={distribution}"
    )


def marginal_cdf(distribution: Distribution, y: ArrayLike) -> Tensor:
    """Returns the marginal distribution function of every output at `y`.

    Args:
      distribution: as in `marginals`, with batch `[N]` and event `[D]`.
      y: tensor that broadcasts with `[N, D]`.

    Returns:
      Tensor `[N, D]` of probabilities `P(Y_nd <= y_nd)`.

    Raises:
      TypeError: if the marginals are not known or have no distribution function.
    """
    scalar = marginals(distribution)
    return _cdf(scalar, tf.cast(tf.convert_to_tensor(y, dtype_hint=scalar.dtype), scalar.dtype))


def marginal_survival(scalar: Distribution, y: Tensor) -> Tensor:
    """Returns `P(Y > y)`, without cancellation where TFP has survival functions.

    Args:
      scalar: distribution with batch `[N, D]` and event `[]`.
      y: tensor `[..., N, D]` of its dtype.

    Returns:
      Tensor `[..., N, D]`.
    """
    if is_mixture(scalar):
        probs = scalar.mixture_distribution.probs_parameter()
        parts = marginal_survival(scalar.components_distribution, y[..., tf.newaxis])
        return tf.reduce_sum(probs * parts, axis=-1)
    return scalar.survival_function(y)


def quantile(distribution: Distribution, q: ArrayLike) -> Tensor:
    """Returns quantiles of every output, `inf {y : F(y) >= q}` for its distribution function F.

    They have a closed form if TFP has one, and for `tfd.Empirical` (an order statistic). Otherwise
    they are found by bisection of F in the graph, to about the resolution of the dtype. A mixture's
    quantile lies between the smallest and the largest of its components' quantiles, so heavy tails
    need no search. Results of bisection carry no gradient. Quantiles of counts
    (`tfd.Poisson`, `tfd.NegativeBinomial` and mixtures of them) are integers.

    Example:
    >>> weights = tfd.Categorical(probs=[0.5, 0.5])
    >>> parts = tfd.Independent(tfd.Normal([[[-1.0], [1.0]]], [[[1.0], [1.0]]]), 1)
    >>> quantile(tfd.MixtureSameFamily(weights, parts), 0.5).shape
    TensorShape([1, 1])

    Args:
      distribution: as in `marginals`, with batch `[N]` and event `[D]`.
      q: levels in (0, 1), scalar or `[Q]`.

    Returns:
      Tensor `[N, D]` for a scalar `q`, `[N, D, Q]` for `q` of shape `[Q]`.

    Raises:
      TypeError: if the marginals are not known, or have neither quantiles nor a distribution
        function.
      ValueError: if `q` has more than one axis or a level outside (0, 1).
    """
    scalar = marginals(distribution)
    levels = _check_levels(q, scalar.dtype)
    if isinstance(scalar, tfd.Empirical):
        return _empirical_quantile(scalar, levels)
    if levels.shape.rank == 0:
        return quantile_of_marginals(scalar, levels)
    rank = len(scalar.batch_shape)
    values = quantile_of_marginals(scalar, tf.reshape(levels, [-1] + [1] * rank))  # [Q, N, D]
    return tf.transpose(values, [*range(1, rank + 1), 0])


def quantile_of_marginals(scalar: Distribution, levels: Tensor) -> Tensor:
    """Returns quantiles at levels that may differ from output to output.

    Args:
      scalar: distribution with batch `[N, D]` and event `[]`.
      levels: tensor in (0, 1) that broadcasts with `[..., N, D]`.

    Returns:
      Tensor `[..., N, D]`.

    Raises:
      TypeError: if `scalar` has neither quantiles nor a distribution function.
    """
    if is_count(scalar):
        return _count_quantile(scalar, levels)
    try:
        return scalar.quantile(levels)
    except NotImplementedError:
        lower, upper = _bracket(scalar, levels)
        return tf.stop_gradient(_bisect(scalar, levels, lower, upper))


def check_distribution(distribution: Any) -> None:
    """Raises TypeError if `distribution` is not a TFP distribution."""
    if not isinstance(distribution, tfd.Distribution):
        raise TypeError(
            "distribution must be a tfp.distributions.Distribution over the outputs (batch [N], "
            f"event [D]). Received: distribution={distribution} of type "
            f"{type(distribution).__name__}"
        )


def event_rank(distribution: Distribution) -> int | None:
    """Returns the number of event axes, or None for a joint distribution of several parts."""
    return getattr(distribution.event_shape, "rank", None)


def is_independent(distribution: Distribution) -> bool:
    """Returns whether a distribution is a `tfd.Independent`.

    This is decided by an attribute: around a distribution that is not a composite tensor,
    `tfd.Independent(...)` returns an instance of a private class that is not a `tfd.Independent`.
    The same holds for mixtures.
    """
    return hasattr(distribution, "reinterpreted_batch_ndims")


def is_mixture(distribution: Distribution) -> bool:
    """Returns whether a distribution is a `tfd.MixtureSameFamily`; see `is_independent`."""
    return hasattr(distribution, "mixture_distribution") and hasattr(
        distribution, "components_distribution"
    )


def is_count(distribution: Distribution) -> bool:
    """Returns whether a distribution of numbers, or a mixture of them, is one of counts."""
    if is_mixture(distribution):
        return is_count(distribution.components_distribution)
    return isinstance(distribution, _COUNTS)


def has_atoms(scalar: Distribution) -> bool:
    """Returns whether a distribution of numbers gives single values a positive probability."""
    if is_mixture(scalar):
        return has_atoms(scalar.components_distribution)
    return is_count(scalar) or hasattr(scalar, "mass")


def marginal_mass(scalar: Distribution, y: Tensor) -> Tensor:
    """Returns the probability `P(Y = y)` of single values, 0 where the distribution is continuous.

    Args:
      scalar: distribution with batch `[N, D]` and event `[]`.
      y: tensor `[N, D]` of its dtype.

    Returns:
      Tensor `[N, D]`.
    """
    if is_mixture(scalar):
        probs = scalar.mixture_distribution.probs_parameter()
        parts = marginal_mass(scalar.components_distribution, y[..., tf.newaxis])
        return tf.reduce_sum(probs * parts, axis=-1)
    if is_count(scalar):
        return scalar.prob(y)
    if hasattr(scalar, "mass"):  # `CensoredNormal`
        return scalar.mass(y)
    return tf.zeros_like(y)


def is_factorised(distribution: Distribution) -> bool:
    """Returns whether the outputs are independent of each other, as far as the type shows."""
    if is_independent(distribution):
        return is_factorised(distribution.distribution)
    return event_rank(distribution) == 0 or isinstance(distribution, tfd.MultivariateNormalDiag)


def with_weights_of_components(distribution: Distribution) -> Distribution:
    """Returns the same distribution, for a mixture with weights in its components' dtype.

    TFP converts a list of weights to float32 whatever the components are, and then fails to add
    both.

    Args:
      distribution: `tfd.Distribution`.

    Returns:
      `tfd.Distribution`.
    """
    if not is_mixture(distribution):
        return distribution
    logits = distribution.mixture_distribution.logits_parameter()
    if logits.dtype == distribution.components_distribution.dtype:
        return distribution
    logits = tf.cast(logits, distribution.components_distribution.dtype)
    return distribution.copy(mixture_distribution=tfd.Categorical(logits=logits))


def _mixture_marginals(mixture):
    mixture = with_weights_of_components(mixture)
    components = marginals(mixture.components_distribution)
    if event_rank(mixture) == 0:
        return tfd.MixtureSameFamily(mixture.mixture_distribution, components)
    components = _components_last(components)
    logits = mixture.mixture_distribution.logits_parameter()  # [N, K]
    logits = tf.broadcast_to(logits[..., tf.newaxis, :], components.batch_shape_tensor())
    return tfd.MixtureSameFamily(tfd.Categorical(logits=logits), components)


def _components_last(scalar):
    """Converts a batch `[N, K, D]` to `[N, D, K]`, parameter by parameter."""
    shape = scalar.batch_shape_tensor()
    parameters = {
        name: _swap_last_axes(tf.broadcast_to(scalar.parameters[name], shape))
        for name in _elementwise_parameters(scalar)
    }
    return scalar.copy(**parameters)


def _elementwise_parameters(scalar):
    """Returns the names of the parameters, which must be tensors with an entry per batch member."""
    try:
        properties = scalar.parameter_properties(dtype=scalar.dtype)
    except NotImplementedError:
        properties = {}
    names = [name for name in properties if scalar.parameters.get(name) is not None]
    if not names or any(
        properties[n].event_ndims != 0 or not properties[n].is_tensor for n in names
    ):
        raise TypeError(
            "The components of a mixture over several outputs must have marginals whose "
            "parameters are tensors with an entry per output, such as tfd.Normal. "
            f"Received: components with marginals {scalar}"
        )
    return names


def _swap_last_axes(tensor):
    rank = len(tensor.shape)
    return tf.transpose(tensor, [*range(rank - 2), rank - 1, rank - 2])


def _check_levels(q, dtype):
    levels = tf.cast(tf.convert_to_tensor(q, dtype_hint=dtype), dtype)
    if levels.shape.rank not in (0, 1):
        raise ValueError(f"q must be a scalar or have shape [Q]. Received: q.shape={levels.shape}")
    static = tf.get_static_value(levels)
    if static is not None and not np.all((static > 0.0) & (static < 1.0)):
        raise ValueError(f"q must lie strictly between 0 and 1. Received: q={q}")
    return levels


def _empirical_quantile(scalar, levels):
    ordered = tf.sort(tf.convert_to_tensor(scalar.samples), axis=-1)  # [N, D, S]
    size = tf.shape(ordered)[-1]
    # 0.05 * 100 is above 5 in float32; without this slack it would give the sixth value.
    slack = 1.0 - 4.0 * np.finfo(levels.dtype.as_numpy_dtype).eps
    position = tf.math.ceil(levels * tf.cast(size, levels.dtype) * slack)
    return tf.gather(
        ordered, tf.clip_by_value(tf.cast(position, tf.int32) - 1, 0, size - 1), axis=-1
    )


def _cdf(scalar, x):
    if is_mixture(scalar):
        # TFP sums mixtures in logarithms, which takes twice the time, and bisection calls this
        # about 40 times.
        probs = scalar.mixture_distribution.probs_parameter()
        parts = _cdf(scalar.components_distribution, x[..., tf.newaxis])  # [..., N, D, K]
        return tf.reduce_sum(probs * parts, axis=-1)
    try:
        return scalar.cdf(x)
    except NotImplementedError as error:
        raise TypeError(
            "The distribution must have marginals with a distribution function (cdf). "
            f"Received: marginals {scalar}"
        ) from error


def _bracket(scalar, levels):
    if is_mixture(scalar):
        candidates = quantile_of_marginals(
            scalar.components_distribution, levels[..., tf.newaxis]
        )  # [..., N, D, K]
        return tf.reduce_min(candidates, axis=-1), tf.reduce_max(candidates, axis=-1)
    shape = tf.broadcast_dynamic_shape(tf.shape(levels), scalar.batch_shape_tensor())
    centre = tf.broadcast_to(_finite_or(0.0, scalar.mean, scalar.dtype), shape)
    width = tf.broadcast_to(_finite_or(1.0, scalar.stddev, scalar.dtype), shape)
    return _expand(scalar, levels, centre, tf.where(width > 0.0, width, 1.0))


def _finite_or(default, statistic, dtype):
    try:
        value = statistic()
    except NotImplementedError:
        return tf.constant(default, dtype)
    return tf.where(tf.math.is_finite(value), value, tf.constant(default, dtype))


def _expand(scalar, levels, centre, width):
    """Doubles an interval about `centre` on both sides until it contains the quantile."""

    def misses(lower, upper):
        return _cdf(scalar, lower) > levels, _cdf(scalar, upper) < levels

    def double(lower, upper, step, too_high, too_low):
        step = 2.0 * step
        lower = tf.where(too_high, centre - step, lower)
        upper = tf.where(too_low, centre + step, upper)
        return lower, upper, step, *misses(lower, upper)

    lower, upper = centre - width, centre + width
    lower, upper, *_ = tf.while_loop(
        lambda lower, upper, step, too_high, too_low: tf.reduce_any(too_high | too_low),
        double,
        (lower, upper, width, *misses(lower, upper)),
        maximum_iterations=_MAX_DOUBLINGS,
    )
    return lower, upper


def _bisect(scalar, levels, lower, upper):
    iterations = np.finfo(scalar.dtype.as_numpy_dtype).nmant + _SPARE_BITS

    def halve(i, lower, upper):
        middle = lower + 0.5 * (upper - lower)
        below = _cdf(scalar, middle) < levels
        return i + 1, tf.where(below, middle, lower), tf.where(below, upper, middle)

    _, lower, upper = tf.while_loop(
        lambda i, *_: i < iterations,
        halve,
        (0, lower, upper),
        maximum_iterations=iterations,
    )
    return lower + 0.5 * (upper - lower)


def _count_quantile(scalar, levels):
    """Returns the smallest integers k with F(k) >= level, by bisection of integers."""
    shape = tf.broadcast_dynamic_shape(tf.shape(levels), scalar.batch_shape_tensor())
    centre, width = (tf.broadcast_to(v, shape) for v in (scalar.mean(), scalar.stddev()))
    lower, upper = _expand(scalar, levels, centre, 4.0 * width + 1.0)
    lower, upper = tf.floor(lower) - 1.0, tf.math.ceil(upper)  # F(lower) < level <= F(upper)

    def halve(lower, upper):
        middle = tf.floor(0.5 * (lower + upper))
        below = _cdf(scalar, middle) < levels
        return tf.where(below, middle, lower), tf.where(below, upper, middle)

    _, upper = tf.while_loop(
        lambda lower, upper: tf.reduce_any(upper - lower > 1.0),
        halve,
        (lower, upper),
        maximum_iterations=_MAX_DOUBLINGS,
    )
    return tf.stop_gradient(tf.maximum(upper, 0.0))
