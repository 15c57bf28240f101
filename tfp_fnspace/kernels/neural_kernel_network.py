"""Kernels composed by a network of sums and products."""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_fnspace.math.parameters import as_parameter, is_deferred
from tfp_fnspace.typing import Array, ArrayLike

tfpk = tfp.math.psd_kernels


class NeuralKernelNetwork(tfpk.AutoCompositeTensorPsdKernel):
    r"""A network whose inputs and output are kernels.

    Layers of sums with non-negative weights alternate with layers of products, starting from P
    primitive kernels:

        h^0 = (k_1, ..., k_P)
        a^l = W^l h^{l-1} + b^l,   W^l >= 0, b^l >= 0,   l = 1 ... L
        h^l_j = a^l_{2j} a^l_{2j+1} for l < L,   k = a^L, one number

    Sums of kernels with non-negative weights, non-negative constants and products of kernels are
    kernels, so k is a kernel. Every W^l but the last has an even number of rows. `KernelWeights`
    holds the weights, the biases and the parameters of the primitives as weights of a Keras layer
    (by softplus).

    Args:
        kernels: List of P primitive kernels over the same features.
        weights: List of L tensors or variables `[..., units_l, inputs_l]` with entries at least 0,
            where inputs_1 = P, inputs_{l+1} = units_l / 2, units_L = 1. Leading axes broadcast with
            the batch shapes of the kernels. `initial_weights` makes suitable ones.
        biases: List of L tensors `[..., units_l]` with entries at least 0; None for no biases.
        validate_args: Whether to check the signs of values that are known only later.
        name: Name of the operations.

    Raises:
        ValueError: If the shapes do not match or a known weight is negative.

    Example:
        >>> primitives = [tfpk.ExponentiatedQuadratic(1.0, 0.5), tfpk.Linear(0.1, 1.0)]
        >>> weights, biases = initial_weights(2, units=(8, 4), seed=0)
        >>> NeuralKernelNetwork(primitives, weights, biases).matrix(x, x)

    References:
        Sun, Zhang, Wang, Zeng, Li and Grosse (2018), "Differentiable compositional kernel learning
        for Gaussian processes", ICML, section 3.
    """

    def __init__(
        self,
        kernels: Sequence[Any],
        weights: Sequence[ArrayLike],
        biases: Sequence[ArrayLike] | None = None,
        validate_args: bool = False,
        name: str = "NeuralKernelNetwork",
    ):
        parameters = dict(locals())
        _check_structure(kernels, weights, biases)
        with tf.name_scope(name) as name:
            dtype = _dtype_of(kernels, weights, biases or [])
            self._kernels = list(kernels)
            self._weights = [as_parameter(w, dtype) for w in weights]
            self._biases = None if biases is None else [as_parameter(b, dtype) for b in biases]
            super().__init__(
                feature_ndims=kernels[0].feature_ndims,
                dtype=dtype,
                name=name,
                validate_args=validate_args,
                parameters=parameters,
            )

    @classmethod
    def _parameter_properties(cls, dtype):
        def positive(event_ndims, name):
            def ndims(self):
                values = getattr(self, name)
                return None if values is None else [event_ndims] * len(values)

            return tfp.util.ParameterProperties(
                event_ndims=ndims,
                default_constraining_bijector_fn=tfp.bijectors.Softplus,
            )

        return dict(
            kernels=tfp.util.BatchedComponentProperties(
                event_ndims=lambda self: [0 for _ in self.kernels]
            ),
            weights=positive(2, "weights"),
            biases=positive(1, "biases"),
        )

    @property
    def kernels(self) -> list[Any]:
        """The primitive kernels."""
        return self._kernels

    @property
    def weights(self) -> list[Any]:
        """Weights of the sums, a list of tensors `[units, inputs]`."""
        return self._weights

    @property
    def biases(self) -> list[Any] | None:
        """Constants added to the sums, a list of tensors `[units]`, or None."""
        return self._biases

    def _apply(self, x1, x2, example_ndims=0):
        return self._compose([k.apply(x1, x2, example_ndims) for k in self.kernels], example_ndims)

    def _matrix(self, x1, x2):
        return self._compose([k.matrix(x1, x2) for k in self.kernels], 2)

    def _compose(self, values, example_ndims):
        shape = functools.reduce(tf.broadcast_dynamic_shape, [tf.shape(v) for v in values])
        hidden = tf.stack([tf.broadcast_to(v, shape) for v in values], axis=-1)  # [..., P]
        for layer, weights in enumerate(self.weights):
            if layer > 0:
                hidden = hidden[..., ::2] * hidden[..., 1::2]
            weights = tf.convert_to_tensor(weights)
            if weights.shape.rank == 2:
                hidden = tf.tensordot(hidden, weights, [[-1], [-1]])  # [..., units]
            else:
                hidden = tf.linalg.matvec(_with_examples(weights, 2, example_ndims), hidden)
            if self.biases is not None:
                biases = tf.convert_to_tensor(self.biases[layer])
                hidden += _with_examples(biases, 1, example_ndims)
        return hidden[..., 0]

    def _batch_shape(self):
        shapes = [k.batch_shape for k in self.kernels]
        shapes += [tf.TensorShape(w.shape[:-2]) for w in self.weights]
        shapes += [tf.TensorShape(b.shape[:-1]) for b in self.biases or []]
        return functools.reduce(tf.broadcast_static_shape, shapes)

    def _batch_shape_tensor(self):
        shapes = [k.batch_shape_tensor() for k in self.kernels]
        shapes += [tf.shape(w)[:-2] for w in self.weights]
        shapes += [tf.shape(b)[:-1] for b in self.biases or []]
        return functools.reduce(tf.broadcast_dynamic_shape, shapes)

    def _parameter_control_dependencies(self, is_init):
        if not self.validate_args:
            return []
        return [
            tf.debugging.assert_non_negative(values, message="Weights must be at least 0.")
            for values in [*self.weights, *(self.biases or [])]
            if is_init != is_deferred(values)
        ]


def _with_examples(values, event_ndims, example_ndims):
    """Inserts axes of examples between the batch axes and the event axes."""
    return values[(..., *(example_ndims * [None]), *(event_ndims * [slice(None)]))]


def initial_weights(
    num_kernels: int, units: Sequence[int] = (8, 4), seed: int = 0
) -> tuple[list[Array], list[Array]]:
    """Returns initial weights and biases of a `NeuralKernelNetwork`.

    Entries are uniform on `[0.5, 1.5] / inputs`. They are unequal so that units can differ, and the
    kernel is as large as its primitives if these are about 1. Biases are 0.01.

    Args:
        num_kernels: P, a positive integer.
        units: Numbers of units of the sums before products, which are even. The last layer with one
            unit follows.
        seed: Integer.

    Returns:
        List of arrays `[units_l, inputs_l]` and list of arrays `[units_l]`.

    Raises:
        ValueError: If units are not positive and even.
    """
    if any(size < 2 or size % 2 for size in units):
        raise ValueError(f"`units` must be positive even numbers. Received: units={units}")
    rng = np.random.default_rng(seed)
    outputs = [*units, 1]
    inputs = [num_kernels, *(size // 2 for size in units)]
    weights = [
        rng.uniform(0.5, 1.5, (rows, columns)) / columns
        for rows, columns in zip(outputs, inputs, strict=True)
    ]
    return weights, [np.full(rows, 0.01) for rows in outputs]


def _dtype_of(kernels, *tensors):
    """Returns the dtype of the kernels; if none has one, that of the tensors, or else float32."""
    found = [k.dtype for k in kernels if k.dtype is not None]
    found += [v.dtype for values in tensors for v in values if tf.is_tensor(v) or is_deferred(v)]
    return tf.as_dtype(found[0]) if found else tf.float32


def _check_structure(kernels, weights, biases):
    if not kernels or any(k.feature_ndims != kernels[0].feature_ndims for k in kernels):
        raise ValueError(
            "`kernels` must be at least one kernel, all of the same `feature_ndims`. "
            f"Received: kernels={kernels}"
        )
    shapes = [tuple(np.shape(w))[-2:] for w in weights]
    inputs, fits = len(kernels), bool(shapes)
    for layer, shape in enumerate(shapes):
        is_last = layer == len(shapes) - 1
        fits = fits and len(shape) == 2 and shape[1] == inputs
        fits = fits and (shape[0] == 1 if is_last else shape[0] > 0 and shape[0] % 2 == 0)
        inputs = shape[0] // 2 if fits else None
    if not fits:
        raise ValueError(
            "`weights` must have the shapes [units, inputs]: the number of kernels as the first "
            "inputs, even units, half of them as the next inputs, one unit at the end. "
            f"Received: {len(kernels)} kernels, shapes={shapes}"
        )
    if biases is not None and [tuple(np.shape(b))[-1:] for b in biases] != [s[:1] for s in shapes]:
        raise ValueError(
            "`biases` must have the shapes [units] of the weights. "
            f"Received: shapes={[tuple(np.shape(b)) for b in biases]}"
        )
    for name, values in (("weights", weights), ("biases", biases or [])):
        fixed = [tf.convert_to_tensor(v) for v in values if not is_deferred(v)]
        known = [tf.get_static_value(v) for v in fixed]
        if any(v is not None and not np.all(v >= 0.0) for v in known):
            raise ValueError(f"`{name}` must be at least 0. Received: {name}={known}")
