r"""Equations on a gradient tape: moments forward, innovations backward, or draws.

The backward pass of TAGI is that of a reverse-mode tape with another local rule. Inside
`innovation_scope()` every layer is a `tf.custom_gradient` that carries innovations: its forward
pass computes moments, and its "gradient" is equation 15 or 16 of the paper (`equations`). One call
of `tape.gradient(..., output_gradients=(dm, dS))` therefore runs the Rauch-Tung-Striebel pass of
the paper through any graph. Outside the scope, a tape sees true derivatives. Inside
`sampling_scope()` layers carry function samples instead.
"""

import contextlib
import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf

from tfp_fnspace.math.random import fold_in, normal
from tfp_fnspace.methods.tagi import equations
from tfp_fnspace.methods.tagi.equations import LinearMap, MomentsAndSlope, Pair
from tfp_fnspace.typing import Seed, Tensor

_STATE = threading.local()


@contextlib.contextmanager
def _mode(**values):
    previous = dict(vars(_STATE))
    vars(_STATE).update(values)
    try:
        yield
    finally:
        vars(_STATE).clear()
        vars(_STATE).update(previous)


def innovation_scope(valid: Tensor | None = None) -> AbstractContextManager[None]:
    """Returns a context in which a gradient tape carries innovations instead of derivatives.

    Args:
        valid: Boolean tensor `[N]`, false for rows that only pad the batch; `None` means no
            padding.
    """
    return _mode(innovations=True, valid=valid)


def innovations_active() -> bool:
    """Returns whether the code runs inside `innovation_scope()`."""
    return getattr(_STATE, "innovations", False)


def frozen_scope() -> AbstractContextManager[None]:
    """Returns a context in which layers keep their state and act as in predictions."""
    return _mode(frozen=True)


def state_frozen() -> bool:
    """Returns whether the code runs inside `frozen_scope()`, or draws functions."""
    return sampling_active() or getattr(_STATE, "frozen", False)


def valid_rows() -> Tensor | None:
    """Returns the argument of `innovation_scope`: which rows count, or `None`."""
    return getattr(_STATE, "valid", None)


def sampling_scope(
    seed: Seed, num_samples: int, layers: Iterable[Any] = ()
) -> AbstractContextManager[None]:
    """Returns a context in which layers carry function samples instead of moments.

    In this context, the leading axis of every tensor holds `num_samples` blocks, one per function.
    Every layer draws its parameters once per function, so a layer that is used twice has the same
    parameters both times.

    Args:
        seed: int32 tensor `[2]`.
        num_samples: Number of functions, a Python integer.
        layers: The layers of the network; the position of a layer determines its seed.
    """
    places = {id(layer): place for place, layer in enumerate(layers)}
    return _mode(sampling=(seed, num_samples, places))


def sampling_active() -> bool:
    """Returns whether the code runs inside `sampling_scope()`."""
    return getattr(_STATE, "sampling", None) is not None


def layer_sampling(layer: Any) -> tuple[Tensor, int]:
    """Returns the seed of `layer` and the number of functions in the enclosing `sampling_scope`."""
    seed, num_samples, places = _STATE.sampling
    return fold_in(seed, places.get(id(layer), 0)), num_samples


def bilinear(
    linear_map: LinearMap, mean: Tensor, variance: Tensor | None, kernel: Pair, bias: Pair | None
) -> Pair:
    """Returns the moments of `L(a, w) + b`, with a gradient that carries innovations in the scope.

    Args:
        linear_map: Function `L(a, w)`, linear in each argument.
        mean: Tensor, mean of a.
        variance: Tensor, variance of a, or `None` for exactly known a.
        kernel: Pair of tensors, mean and variance of w.
        bias: Pair of tensors that broadcast to the output, or `None`.

    Returns:
        Mean and variance of the output.
    """
    if not innovations_active():
        return equations.bilinear_moments(linear_map, mean, variance, kernel, bias)
    arguments = [mean, variance, *kernel, *(bias or ())]
    present = [argument is not None for argument in arguments]

    @tf.custom_gradient
    def propagate(*tensors) -> Any:
        values = iter(tensors)
        full = [next(values) if here else None for here in present]
        ma, sa, mw, sw, mb, sb = full + [None] * (6 - len(full))
        bias = None if mb is None else (mb, sb)
        outputs = equations.bilinear_moments(linear_map, ma, sa, (mw, sw), bias)

        def innovate(dm, ds):
            gradients = equations.bilinear_innovations(linear_map, ma, mw, mb, dm, ds)
            return [g for g, here in zip(gradients, present, strict=True) if here]

        return outputs, innovate

    return propagate(*[a for a in arguments if a is not None])


def product(linear_map: LinearMap, first: Pair, second: Pair) -> Pair:
    """Returns the moments of `L(a, b)` for independent, uncertain units a and b.

    This is the rule of a kernel with b in its place, so b gets the innovations of a kernel.

    Args:
        linear_map: Function `L(a, b)`, linear in each argument; every product of an a and a b
            enters an output at most once, with coefficient 1.
        first: Pair of tensors, mean and variance of a.
        second: Pair of tensors, mean and variance of b.

    Returns:
        Mean and variance.
    """
    return bilinear(linear_map, *first, second, None)


def activation(
    moments: Callable[[Tensor, Tensor], MomentsAndSlope], mean: Tensor, variance: Tensor
) -> Pair:
    """Returns the moments of an activation, with a gradient that carries innovations in the scope.

    Args:
        moments: Function `(mean, variance) -> (mean, variance, slope)`.
        mean: Tensor.
        variance: Tensor.

    Returns:
        Mean and variance of the activation.
    """
    if not innovations_active():
        return moments(mean, variance)[:2]

    @tf.custom_gradient
    def propagate(m, s) -> Any:
        out_mean, out_variance, slope = moments(m, s)

        def innovate(dm, ds):
            return equations.activation_innovations(slope, dm, ds)

        return (out_mean, out_variance), innovate

    return propagate(mean, variance)


def draw(seed: Seed, num_samples: int, moments: Pair) -> Tensor:
    """Draws from independent Gaussians.

    Args:
        seed: int32 tensor `[2]`.
        num_samples: Number of draws, S.
        moments: Pair of tensors of one shape, mean and variance.

    Returns:
        Tensor `[S, ...]`.
    """
    mean, variance = moments
    shape = tf.concat([[num_samples], tf.shape(mean)], axis=0)
    return mean + tf.sqrt(variance) * normal(shape, seed, mean.dtype)


def fold(samples: Tensor) -> Tensor:
    """Reshapes `[S, N, ...]` to `[S * N, ...]`, the form in which layers take function samples."""
    folded = tf.reshape(samples, tf.concat([[-1], tf.shape(samples)[2:]], axis=0))
    return tf.ensure_shape(folded, [None, *samples.shape[2:]])


def unfold(folded: Tensor, num_samples: int) -> Tensor:
    """Reshapes `[S * N, ...]` to `[S, N, ...]`."""
    shape = tf.concat([[num_samples, -1], tf.shape(folded)[1:]], axis=0)
    return tf.ensure_shape(tf.reshape(folded, shape), [num_samples, None, *folded.shape[1:]])


def sample_bilinear(
    linear_map: LinearMap,
    inputs: Tensor,
    kernel: Pair,
    bias: Pair | None,
    seed: Seed,
    num_samples: int,
) -> Tensor:
    """Returns `L(a, w) + b` for one draw of `(w, b)` per function.

    Args:
        linear_map: Function `L(a, w)`.
        inputs: Tensor `[S * N, ...]`: S blocks of N rows.
        kernel: Pair of tensors, mean and variance.
        bias: Pair of tensors that broadcast to the output, or `None`.
        seed: int32 tensor `[2]`.
        num_samples: S.

    Returns:
        Tensor `[S * N, ...]`.
    """
    parameters = [draw(fold_in(seed, 0), num_samples, kernel)]
    if bias is not None:
        parameters.append(draw(fold_in(seed, 1), num_samples, bias))

    def one_function(arguments):
        a, w, *b = arguments
        return linear_map(a, w) + b[0] if b else linear_map(a, w)

    return fold(tf.vectorized_map(one_function, (unfold(inputs, num_samples), *parameters)))
