"""Where training starts: a Gaussian process that is fitted by marginal likelihood."""

import math
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfp_fnspace.layers.draws import function_draws
from tfp_fnspace.math import linalg
from tfp_fnspace.math.selection import greedy_pivots
from tfp_fnspace.methods.diwp.layers import FeaturesToGram, GramKernel
from tfp_fnspace.methods.diwp.layers.base import JITTER, with_jitter
from tfp_fnspace.processes.marginal_likelihood import Fit, collapsed_bound_of, maximise, take_best

#: The most rows that the process is fitted to, unless there are more inducing points.
MAX_ROWS = 500

#: What the scales of the inputs are multiplied by, one after the other: the best start counts.
_SCALES = (0.5, 2.0, 8.0)

#: What the noise is multiplied by when the inducing points become few; again the best counts.
_NOISE_FACTORS = tuple(2.0**i for i in range(8))

_MAX_ITERATIONS = 100

#: The pseudo-observations are at least this precise, in units of the prior's precision.
_LEAST_PRECISION = 1e-3

_LOG_TWO_PI = math.log(2.0 * math.pi)


class Start(NamedTuple):
    """A process with inducing points and its best posterior there; numbers in model units.

    Attributes:
        rows: The rows that the inducing points are at, `[P]`.
        weights: Values of the kernel's weights, one array for each of `kernel_weights`.
        noise_scale: Standard deviation of the noise, `[]` or `[D]`.
        pseudo_targets: v, `[D, P]`.
        pseudo_noise_factor: T, lower triangular with positive diagonal, `[D, P, P]`.
        log_marginal_likelihood: Of the rows, at the weights that maximise it; a float.
        bound: The lower bound with the inducing points, at `weights`; a float.
    """

    rows: np.ndarray
    weights: list
    noise_scale: np.ndarray
    pseudo_targets: np.ndarray
    pseudo_noise_factor: np.ndarray
    log_marginal_likelihood: float
    bound: float


def kernel_weights(layers):
    """The weights of a network's layers that are parameters of its kernels.

    Args:
        layers: Layers, of which those that draw random matrices have no such weights.
    """
    names = ("scale", "bias", "log_constant", "log_amplitude")
    kinds = (FeaturesToGram, GramKernel)
    found = [
        getattr(each, name, None) for each in layers if isinstance(each, kinds) for name in names
    ]
    return [weight for weight in found if weight is not None]


class _MeanKernel:
    """The kernel of a network whose random matrices are at their prior means, in float64.

    The mean of a draw of an inverse Wishart process, or of the Gram matrix of Gaussian processes,
    is the matrix that comes in; that of Omega is the identity.

    Args:
        layers: The network's, in order.
        points: Tensor `[P, N_0]`, the inducing inputs.
    """

    def __init__(self, layers, points):
        double, self.layers, blocks_shape = {"dtype": "float64"}, [], None
        for layer in layers:
            if isinstance(layer, FeaturesToGram):
                own = FeaturesToGram(len(points), layer.learn_scale, layer.constant, **double)
                own.build([None, points.shape[1]])
                own.inducing_inputs.assign(points)
            elif isinstance(layer, GramKernel):
                own = GramKernel.from_config({**layer.get_config(), **double})
                own.build(blocks_shape)
            else:
                continue
            self.layers.append(own)
        self.weights = kernel_weights(self.layers)
        for own, other in zip(self.weights, kernel_weights(layers), strict=True):
            own.assign(tf.cast(other.value, own.dtype))

    def blocks(self, data):
        """K_zz, K_zx and the diagonal of K_xx for data x, `[P, P]`, `[P, N]` and `[N]`."""
        with function_draws(1, 0):
            blocks = data
            for layer in self.layers:
                blocks = layer.call(blocks)
        return [block[0] for block in blocks]


class _Noise:
    """The noise of a Gaussian likelihood, with a float64 weight where it is learned."""

    def __init__(self, likelihood):
        scale = np.asarray(keras.ops.convert_to_numpy(likelihood.scale), np.float64)
        self._least, self._fixed, self.weights = likelihood.min_scale, scale, []
        if likelihood.trainable_variables:
            self.weights = [keras.Variable(self.stored(scale), dtype="float64", name="noise")]

    def stored(self, scale):
        """The value of the weight that stands for a scale."""
        return np.log(np.maximum(scale - self._least, 1e-6 * self._least))

    @property
    def scale(self):
        if not self.weights:
            return tf.constant(self._fixed)
        return self._least + tf.exp(self.weights[0].value)


def fitted_start(network, likelihood, x, y, count, greedy):
    r"""Fits the Gaussian process that the network is with its random matrices at their means.

    1. Kernel and noise at the largest `log N(y; 0, K + s^2 I)` of three runs of L-BFGS.
    2. The inducing points at rows, and kernel and noise at the largest lower bound with them.
    3. The posterior that has this bound: with `L L^T = K_zz` and
       `W = L^-1 K_zx K_xz L^-T + c s^2 I`, c a small number for what the data do not see,

           A = s^2 L W^-1 L^T = T T^T,     v = L W^-1 L^-1 K_zx y.

    Args:
        network: Keras model of layers of `diwp`, one after the other.
        likelihood: `likelihoods.Gaussian`.
        x: Tensor `[N, N_0]`, the rows in model units.
        y: Tensor `[N, D]`.
        count: Number of inducing points, at most N.
        greedy: Whether they are at the rows of greatest variance given those before them, under
            the fitted kernel; else at the first.

    Returns:
        `Start`.

    References:
        Titsias (2009), "Variational learning of inducing variables in sparse Gaussian processes",
        AISTATS, equations 9 and 10.
    """
    jitter = JITTER[network.layers[-1].variable_dtype]
    x, y = (tf.cast(values, tf.float64) for values in (x, y))
    kernel, noise = _MeanKernel(network.layers, x), _Noise(likelihood)

    def evidence():
        ii, _, _ = kernel.blocks(x[:1])
        return _log_evidence(y, with_jitter(ii, jitter), noise.scale)

    largest = _maximised(evidence, kernel.weights + noise.weights, _starts(kernel, noise))
    rows = np.arange(count)
    if greedy:
        k = kernel.blocks(x[:1])[0].numpy()
        rows = np.sort(greedy_pivots(np.diag(k), k.__getitem__, count))
    kernel = _MeanKernel(kernel.layers, tf.gather(x, rows))

    def blocks():
        ii, it, tt = kernel.blocks(x)
        return with_jitter(ii, jitter), it, tt

    def bound():
        return tf.reduce_sum(collapsed_bound_of(tf.transpose(y), *blocks(), noise.scale))

    # The noise of all rows is too small for a few points.
    for weight in noise.weights:
        take_best(bound, weight, [noise.stored(f * noise.scale.numpy()) for f in _NOISE_FACTORS])
    found = _maximised(bound, kernel.weights + noise.weights)
    ii, it, _ = (block.numpy() for block in blocks())
    scale = noise.scale.numpy()
    posterior = _best_posterior(y.numpy(), ii, it, np.broadcast_to(scale, y.shape[1:]))
    return Start(
        rows,
        [weight.numpy() for weight in kernel.weights],
        scale,
        *posterior,
        largest.log_marginal_likelihood,
        found.log_marginal_likelihood,
    )


def _starts(kernel, noise):
    """Where L-BFGS starts: the present values, with several scales of the inputs."""
    weights = kernel.weights + noise.weights
    values = [weight.numpy() for weight in weights]
    scale = getattr(kernel.layers[0], "scale", None)
    if scale is None:
        return [values]
    return [
        [f * v if w is scale else v for w, v in zip(weights, values, strict=True)] for f in _SCALES
    ]


def _maximised(objective, weights, starts=None):
    if not weights:
        return Fit(float(objective()), True, 0)
    return maximise(objective, weights, _MAX_ITERATIONS, starts)


def _log_evidence(y, k, noise_scale):
    """`sum_d log N(y_d; 0, K + s_d^2 I)` of y `[N, D]`, K `[N, N]` and s `[]` or `[D]`."""
    size, units = tf.shape(y)[0], tf.shape(y)[1]
    variance = tf.reshape(tf.square(noise_scale), [-1, 1, 1])
    factor = linalg.cholesky(k + variance * tf.eye(size, dtype=k.dtype)).factor
    factor = tf.broadcast_to(factor, [units, size, size])
    whitened = tf.linalg.triangular_solve(factor, tf.transpose(y)[..., tf.newaxis])
    terms = tf.reduce_sum(tf.square(whitened), axis=[1, 2]) + linalg.log_determinant(factor)
    return -0.5 * tf.reduce_sum(terms + tf.cast(size, k.dtype) * _LOG_TWO_PI)


def _best_posterior(y, ii, it, noise_scale):
    """The v `[D, P]` and T `[D, P, P]` of `fitted_start`, for a noise of each output."""
    factor = np.linalg.cholesky(ii)
    cross = np.linalg.solve(factor, it)
    targets, factors = [], []
    for column, scale in zip(y.T, noise_scale, strict=True):
        w = cross @ cross.T + _LEAST_PRECISION * scale**2 * np.eye(len(ii))
        root = np.linalg.cholesky(w)
        targets.append(factor @ np.linalg.solve(root.T, np.linalg.solve(root, cross @ column)))
        # Not from A, whose small eigenvalues rounding would take: A = H^T H, H = Q R.
        upper = np.linalg.qr(scale * np.linalg.solve(root, factor.T), mode="r")
        factors.append((np.sign(np.diag(upper))[:, np.newaxis] * upper).T)
    return np.stack(targets), np.stack(factors)
