r"""The one rule of TAGI: moments forward, innovations backward.

For a map `L(a, w)` that is linear in `a` and in `w`, with independent Gaussian `a ~ (ma, Sa)`,
`w ~ (mw, Sw)`, `b ~ (mb, Sb)`:

    forward     mz = L(ma, mw) + mb        Sz = L(ma^2 + Sa, Sw) + L(Sa, mw^2) + Sb
    backward    dm_a = VJP_a L(., mw)[dm]      dS_a = VJP_a L(., mw^2)[dS]
                g_w = VJP_w L(ma, .)[dm]       h_w = VJP_w L(ma^2, .)[dS]

where `(dm, dS)` are the *innovations* of the output. The backward pass is that of a reverse-mode
tape with another local rule. Inside `innovation_scope()` every layer is a `tf.custom_gradient` that
carries innovations. One call of `tape.gradient(..., output_gradients=(dm, dS))` therefore runs the
Rauch-Tung-Striebel pass of the paper (equations 15 and 16) through any graph. Outside the scope, a
tape sees true derivatives.
"""

import contextlib
import threading

import tensorflow as tf

from tfp_fnspace.math.random import fold_in, normal

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


def innovation_scope(valid=None):
    """Returns a context in which a gradient tape carries innovations instead of derivatives.

    Args:
        valid: Boolean tensor `[N]`, false for rows that only pad the batch; `None` means no
            padding.
    """
    return _mode(innovations=True, valid=valid)


def innovations_active():
    """Returns whether the code runs inside `innovation_scope()`."""
    return getattr(_STATE, "innovations", False)


def frozen_scope():
    """Returns a context in which layers keep their state and act as in predictions."""
    return _mode(frozen=True)


def state_frozen():
    """Returns whether the code runs inside `frozen_scope()`, or draws functions."""
    return sampling_active() or getattr(_STATE, "frozen", False)


def valid_rows():
    """Returns the argument of `innovation_scope`: which rows count, or `None`."""
    return getattr(_STATE, "valid", None)


def sampling_scope(seed, num_samples, layers=()):
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


def sampling_active():
    """Returns whether the code runs inside `sampling_scope()`."""
    return getattr(_STATE, "sampling", None) is not None


def layer_sampling(layer):
    """Returns the seed of `layer` and the number of functions in the enclosing `sampling_scope`."""
    seed, num_samples, places = _STATE.sampling
    return fold_in(seed, places.get(id(layer), 0)), num_samples


def bilinear_moments(linear_map, mean, variance, kernel, bias):
    """Returns the moments of `L(a, w) + b`, with true derivatives.

    Args:
        linear_map: Function `L(a, w)`, linear in each argument.
        mean: Tensor, mean of `a`.
        variance: Tensor, variance of `a`, or `None` for exactly known `a`.
        kernel: Pair of tensors, mean and variance of `w`.
        bias: Pair of tensors that broadcast to the output, or `None`.

    Returns:
        Mean and variance of the output.
    """
    kernel_mean, kernel_variance = kernel
    second_moment = tf.square(mean) if variance is None else tf.square(mean) + variance
    out_mean = linear_map(mean, kernel_mean)
    out_variance = linear_map(second_moment, kernel_variance)
    if variance is not None:
        out_variance += linear_map(variance, tf.square(kernel_mean))
    if bias is not None:
        out_mean += bias[0]
        out_variance += bias[1]
    return out_mean, out_variance


def bilinear(linear_map, mean, variance, kernel, bias):
    """Returns the results of `bilinear_moments` with a gradient that carries innovations.

    There are two vector-Jacobian products. That of `L(ma, mw) + mb` gives `dm_a`, `g_w` and `g_b`;
    that of `L(ma^2, mw^2) + mb^2` gives `dS_a`, `h_w` and `h_b` (a bias is a weight whose input is
    1).

    The arguments and results are those of `bilinear_moments`.
    """
    arguments = [mean, variance, *kernel, *(bias or ())]
    present = [argument is not None for argument in arguments]

    @tf.custom_gradient
    def propagate(*tensors):
        values = iter(tensors)
        full = [next(values) if here else None for here in present]
        ma, sa, mw, sw, mb, sb = full + [None] * (6 - len(full))
        outputs = bilinear_moments(linear_map, ma, sa, (mw, sw), None if mb is None else (mb, sb))

        def innovate(dm, ds):
            first = _vjp(linear_map, (ma, mw, mb), dm)
            second = _vjp(linear_map, (tf.square(ma), tf.square(mw), mb), ds)
            gradients = [part for pair in zip(first, second, strict=True) for part in pair]
            return [g for g, here in zip(gradients, present, strict=False) if here]

        return outputs, innovate

    return propagate(*[a for a in arguments if a is not None])


def _vjp(linear_map, arguments, cotangent):
    """Returns the vector-Jacobian products of `L(a, w) + b` in all its arguments."""
    inputs, kernel, bias = arguments
    sources = [inputs, kernel] + ([] if bias is None else [bias])
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(sources)
        output = linear_map(inputs, kernel)
        if bias is not None:
            output += bias
    gradients = tape.gradient(output, sources, output_gradients=cotangent)
    return [tf.convert_to_tensor(gradient) for gradient in gradients]  # that of a gather is sparse


def product(linear_map, first, second):
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
    propagate = bilinear if innovations_active() else bilinear_moments
    return propagate(linear_map, *first, second, None)


def activation(moments, mean, variance):
    """Applies an activation whose gradient carries innovations.

    The innovations are multiplied by the slope for the mean, and by its square for `dS`.

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
    def propagate(m, s):
        out_mean, out_variance, slope = moments(m, s)
        return (out_mean, out_variance), lambda dm, ds: (slope * dm, tf.square(slope) * ds)

    return propagate(mean, variance)


def draw(seed, num_samples, moments):
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


def fold(samples):
    """Reshapes `[S, N, ...]` to `[S * N, ...]`, the form in which layers take function samples."""
    folded = tf.reshape(samples, tf.concat([[-1], tf.shape(samples)[2:]], axis=0))
    return tf.ensure_shape(folded, [None, *samples.shape[2:]])


def unfold(folded, num_samples):
    """Reshapes `[S * N, ...]` to `[S, N, ...]`."""
    shape = tf.concat([[num_samples, -1], tf.shape(folded)[1:]], axis=0)
    return tf.ensure_shape(tf.reshape(folded, shape), [num_samples, None, *folded.shape[1:]])


def sample_bilinear(linear_map, inputs, kernel, bias, seed, num_samples):
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
