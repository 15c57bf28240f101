"""Attention with Gaussian weights."""

import math
from typing import Any

import keras
import tensorflow as tf

from tfp_fnspace.boundary.arguments import check_count, checked_count
from tfp_fnspace.methods.tagi import propagation
from tfp_fnspace.methods.tagi.layers.base import (
    Inputs,
    TAGILayer,
    is_pair,
    mean_shape,
    one_mask,
    symbolic_moments,
)
from tfp_fnspace.methods.tagi.layers.dense import Dense
from tfp_fnspace.typing import Config, GaussianMoments, Shape, Tensor


@keras.saving.register_keras_serializable(package="tfp_fnspace.tagi")
class MultiHeadAttention(TAGILayer):
    r"""Attention with several heads; queries, keys, values and outputs have Gaussian weights.

        s_ij = q_i . k_j / sqrt(key_dim),   p = softmax_j(s),   o_i = sum_j p_ij v_j

    for each head, where `q`, `k`, `v` and the output are `Dense` layers. Scores and outputs are
    sums of products of uncertain units (the rule of `BilinearLayer`). The softmax is linearised at
    the means with its whole Jacobian `J = diag(p) - p p^T`:

        var(p_j) = sum_l J_jl^2 var(s_l),   dm_l = sum_j J_jl dm_j,   dS_l = sum_j J_jl^2 dS_j

    All units are treated as independent. In self-attention, however, queries, keys and values share
    their inputs; as in `Add`, their covariances are dropped.

    Args:
        num_heads: Number of heads, a positive integer.
        key_dim: Number of units of a query and of a key, for each head.
        value_dim: Number of units of a value, for each head; `key_dim` by default.
        use_bias: Whether the four dense layers have biases.
        output_shape: Number of units of the output, an integer; that of the query by default.
        prior, gain, bias_variance: For the four dense layers, as in `BilinearLayer`.
        **kwargs: `name`, `dtype`.

    Call arguments:
        query: `(mean, variance)` pair of tensors `[N, T, D]`, or one tensor.
        value: The same, `[N, S, E]`.
        key: The same; `value` by default.
        query_mask, value_mask, key_mask: Boolean tensors `[N, T]` and `[N, S]`, false for padded
            steps, which no position sees. Keras passes them on. If no step of a row counts, all
            steps get the same weight.
        use_causal_mask: Whether position i sees positions up to i only.

    Returns:
        `GaussianMoments` of tensors `[N, T, output_shape]`.

    Attributes:
        query_dense, key_dense, value_dense, output_dense: `Dense` layers.

    Raises:
        ValueError: If a size is not a positive integer.

    Example:
        >>> series = keras.Input((12, 4))
        >>> mean, variance = tfp_fnspace.tagi.MultiHeadAttention(2, 3)(series, series)
    """

    heeds_masks = True

    # `build` makes them.
    query_dense: Dense
    key_dense: Dense
    value_dense: Dense
    output_dense: Dense

    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        value_dim: int | None = None,
        *,
        use_bias: bool = True,
        output_shape: int | None = None,
        prior: str = "glorot",
        gain: float = 1.0,
        bias_variance: float = 0.01,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.num_heads = checked_count("num_heads", num_heads)
        self.key_dim = checked_count("key_dim", key_dim)
        self.value_dim = checked_count("value_dim", key_dim if value_dim is None else value_dim)
        if output_shape is not None:
            check_count("output_shape", output_shape)
        self.output_units = output_shape
        self.dense_options = {
            "use_bias": use_bias,
            "prior": prior,
            "gain": gain,
            "bias_variance": bias_variance,
        }

    def build(self, query_shape: Shape, value_shape: Shape, key_shape: Shape | None = None) -> None:
        query, value = mean_shape(query_shape), mean_shape(value_shape)
        key = value if key_shape is None else mean_shape(key_shape)
        if {len(query), len(value), len(key)} != {3} or len({value[1], key[1]} - {None}) > 1:
            raise ValueError(
                "MultiHeadAttention needs a query, a value and a key of rank 3, the last two of "
                f"one length. Received: shapes={query}, {value}, {key}"
            )
        concatenated = self.num_heads * self.value_dim
        plans = {
            "query": (self.num_heads * self.key_dim, query),
            "key": (self.num_heads * self.key_dim, key),
            "value": (concatenated, value),
            "output": (self.output_units or query[-1], (*query[:-1], concatenated)),
        }
        options = {**self.dense_options, "dtype": self.dtype_policy}
        for name, (units, shape) in plans.items():
            layer = Dense(units, name=name, **options)
            layer.build(shape)
            setattr(self, f"{name}_dense", layer)

    def call(
        self,
        query: Inputs,
        value: Inputs,
        key: Inputs | None = None,
        query_mask: Tensor | None = None,
        value_mask: Tensor | None = None,
        key_mask: Tensor | None = None,
        use_causal_mask: bool = False,
    ) -> GaussianMoments:
        key = value if key is None else key
        queries = self._heads(self.query_dense(query))
        keys = self._heads(self.key_dense(key))
        values = self._heads(self.value_dense(value))
        scale = 1.0 / math.sqrt(self.key_dim)
        mean, variance = propagation.product(
            lambda q, k: tf.einsum("nthd,nshd->nhts", q, k), queries, keys
        )
        mean, variance = mean * scale, variance * scale**2
        seen = self._seen(tf.shape(mean)[-2:], one_mask([value_mask, key_mask]), use_causal_mask)
        if seen is not None:
            mean = tf.where(seen, mean, tf.constant(-1e9, mean.dtype))
            variance = tf.where(seen, variance, 0.0)
        weights = _softmax(mean, variance)
        outputs = propagation.product(
            lambda p, v: tf.einsum("nhts,nshd->nthd", p, v), weights, values
        )
        return self.output_dense(GaussianMoments(*map(self._joined, outputs)))

    def _seen(self, shape, mask, causal):
        """Returns which value positions each query position sees, `[..., T, S]`; None for all."""
        seen = tf.linalg.band_part(tf.ones(shape, tf.bool), -1, 0) if causal else None
        if mask is None:
            return seen
        steps = tf.cast(mask, tf.bool)[:, tf.newaxis, tf.newaxis]
        return steps if seen is None else tf.logical_and(steps, seen)

    def _heads(self, moments):
        """Reshapes `[N, T, heads * units]` to `[N, T, heads, units]`."""
        return tuple(
            tf.reshape(part, [*_leading(part), self.num_heads, part.shape[-1] // self.num_heads])
            for part in moments
        )

    def _joined(self, tensor):
        return tf.reshape(tensor, [*_leading(tensor), self.num_heads * self.value_dim])

    def compute_output_shape(
        self, query_shape: Shape, value_shape: Shape | None = None, key_shape: Shape | None = None
    ) -> Shape:
        query = mean_shape(query_shape)
        return (*query[:-1], self.output_units or query[-1])

    def compute_output_spec(
        self, query: Any, value: Any, key: Any = None, **options: Any
    ) -> GaussianMoments:
        shape = self.compute_output_shape((query[0] if is_pair(query) else query).shape)
        return symbolic_moments(shape, self.variable_dtype)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "value_dim": self.value_dim,
            "output_shape": self.output_units,
            **self.dense_options,
        }


def _leading(tensor):
    """Returns the sizes of the first two axes; the number of rows is a tensor."""
    shape = tf.shape(tensor)
    return [shape[0], tensor.shape[1] or shape[1]]


def _softmax(mean, variance):
    """Returns the moments of the softmax over the last axis, linearised at the means."""

    def squared_jacobian(p, tensor):
        """Returns `sum_l J_jl^2 t_l`, also the transposed product, since `J` is symmetric."""
        square = tf.square(p) * tensor
        others = tf.reduce_sum(square, axis=-1, keepdims=True) - square
        return tf.square(p) * (others + tf.square(1.0 - p) * tensor)

    if not propagation.innovations_active():
        p = tf.nn.softmax(mean)
        return p, tf.maximum(squared_jacobian(p, variance), 0.0)

    @tf.custom_gradient
    def propagate(m, s):
        p = tf.nn.softmax(m)

        def innovate(dm, ds):
            first = p * (dm - tf.reduce_sum(p * dm, axis=-1, keepdims=True))
            return first, squared_jacobian(p, ds)

        return (p, tf.maximum(squared_jacobian(p, s), 0.0)), innovate

    return propagate(mean, variance)
