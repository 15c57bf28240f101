"""The start of training at a Gaussian process that is fitted by marginal likelihood."""

from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_fnspace.layers.draws import function_draws
from tfp_fnspace.math import linalg
from tfp_fnspace.math.selection import greedy_pivots
from tfp_fnspace.methods.diwp.layers import FeaturesToGram, KernelOfGram
from tfp_fnspace.methods.diwp.layers.base import JITTER, with_jitter
from tfp_fnspace.processes.marginal_likelihood import Maximiser, collapsed_bound_of, take_best
from tfp_fnspace.typing import Array, Network, Tensor

#: The most rows that kernel and noise are fitted to, unless there are more inducing points.
MAX_ROWS = 500

#: Factors of the scales of the inputs, one for each of several starts.
_SCALES = (0.5, 2.0, 8.0)

#: By how much per row and output a start must exceed the fit to all rows to replace it.
_MARGIN = 0.05

#: Factors of the noise when the inducing points become few; the best one is used.
_NOISE_FACTORS = tuple(2.0**i for i in range(8))

#: Iterations of L-BFGS for kernel and noise, and for inducing points that move with them.
_MAX_ITERATIONS, _MAX_MOVES = 100, 1000

#: The pseudo-observations are at least this precise, in units of the prior's precision.
_LEAST_PRECISION = 1e-3

#: A learned noise starts at least at this multiple of its minimum, since it has almost no gradient
#: below.
_ABOVE_LEAST = 1.01


class FittedStart(NamedTuple):
    """A process with inducing points and its best posterior there; numbers are in model units.

    Attributes:
        inducing_inputs: Positions of the inducing points, `[P, N_0]`.
        weights: Values of the kernel's weights, one array each.
        noise_scale: Standard deviation of the noise, `[]` or `[D]`.
        pseudo_targets: v, `[D, P]`.
        pseudo_noise_factor: T, lower triangular with positive diagonal, `[D, P, P]`.
        log_marginal_likelihood: That of the rows, at the weights that maximise it; a float.
        bound: The lower bound of the rows with the inducing points, at `weights`; a float.
    """

    inducing_inputs: Array
    weights: list[Array]
    noise_scale: Array
    pseudo_targets: Array
    pseudo_noise_factor: Array
    log_marginal_likelihood: float
    bound: float

    def assign_to(self, network: Network, likelihood: Any) -> None:
        """Assigns these values to a network and a likelihood of `fitted_start`."""
        features = next(each for each in network.layers if isinstance(each, FeaturesToGram))
        features.inducing_inputs.assign(self.inducing_inputs)
        _assign(_kernel_weights(network.layers), self.weights)
        if likelihood.trainable_variables:
            likelihood.set_scale(self.noise_scale)
        network.layers[-1].posterior.assign(self.pseudo_targets, self.pseudo_noise_factor)


def _kernel_weights(layers):
    """Returns those weights of a network's layers that are parameters of its kernels.

    Args:
        layers: The layers. Those that draw random matrices have no such weights.
    """
    names = ("scale", "bias", "log_constant", "log_amplitude")
    kinds = (FeaturesToGram, KernelOfGram)
    found = [
        getattr(each, name, None) for each in layers if isinstance(each, kinds) for name in names
    ]
    return [weight for weight in found if weight is not None]


def _is_trained(weight, layers):
    """Returns whether a weight is trained, which it is not in a frozen layer."""
    return any(weight is each for layer in layers for each in layer.trainable_weights)


class _MeanKernel:
    """The kernel of a network whose random matrices are at their prior means, in float64.

    The mean of a draw of an inverse Wishart process is its input matrix, and the mean of Omega is
    the identity.

    Args:
        layers: The layers of the network, in order.
        points: Tensor `[P, N_0]`, the inducing inputs.
    """

    def __init__(self, layers, points):
        double, self.layers, blocks_shape = {"dtype": "float64"}, [], None
        for layer in layers:
            if isinstance(layer, FeaturesToGram):
                own = FeaturesToGram(
                    len(points), learn_scale=layer.learn_scale, constant=layer.constant, **double
                )
                own.build([None, points.shape[1]])
                own.inducing_inputs.assign(points)
                own.inducing_inputs.trainable = _is_trained(layer.inducing_inputs, layers)
            elif isinstance(layer, KernelOfGram):
                own = KernelOfGram.from_config({**layer.get_config(), **double})
                own.build(blocks_shape)
            else:
                continue
            self.layers.append(own)
        self.weights = _kernel_weights(self.layers)
        for own, other in zip(self.weights, _kernel_weights(layers), strict=True):
            own.assign(tf.cast(other.value, own.dtype))
            own.trainable = _is_trained(other, layers)

    @property
    def trainable_weights(self):
        """The weights that are not frozen."""
        return [weight for weight in self.weights if weight.trainable]

    @property
    def inducing_inputs(self):
        """The inducing inputs, a weight `[P, N_0]`."""
        return self.layers[0].inducing_inputs

    def blocks(self, data):
        """Computes K_zz, K_zx and the diagonal of K_xx for data x, `[P, P]`, `[P, N]` and `[N]`."""
        with function_draws(1, 0):
            blocks = data
            for layer in self.layers:
                blocks = layer.call(blocks)
        return [block[0] for block in blocks]


class _Noise:
    """The noise of a Gaussian likelihood, with a float64 weight if it is learned."""

    def __init__(self, likelihood):
        scale = np.asarray(keras.ops.convert_to_numpy(likelihood.scale), np.float64)
        self.least, self._fixed, self.weights = likelihood.min_scale, scale, []
        if likelihood.trainable_variables:
            self.weights = [keras.Variable(self.stored(scale), dtype="float64", name="noise")]

    def stored(self, scale):
        """Returns the value of the weight that represents a scale."""
        return np.log(np.maximum(scale - self.least, 1e-6 * self.least))

    @property
    def scale(self):
        if not self.weights:
            return tf.constant(self._fixed)
        return self.least + tf.exp(self.weights[0].value)


def fitted_start(
    network: Network,
    likelihood: Any,
    x: Tensor,
    y: Tensor,
    size: int,
    count: int,
    greedy: bool,
    move: bool = False,
) -> FittedStart:
    r"""Fits the Gaussian process of a network whose random matrices are at their means.

    1. Kernel and noise are set to maxima of `log N(y; 0, K + s^2 I)`, by L-BFGS from several
    multiples of the scales of the inputs.
    2. The inducing points are set to rows, and kernel and noise to a maximum of the lower bound
    with them, starting from the largest maximum of step 1. As its functions may be too rough for
    few points, the other maxima and the initial values of step 1 are also tried. One of these is
    used if its density of step 1 is larger by 0.05 per row and output. If the inducing points may
    move, at most 1,000 further steps of L-BFGS on the same bound also change the inducing inputs.
    3. The posterior is the best one for all rows: with `L L^T = K_zz` and `W = L^-1 K_zx K_xz
    L^-T + c s^2 I`, where c is a small number for directions without data,

           A = s^2 L W^-1 L^T = T T^T,     v = L W^-1 L^-1 K_zx y.

    Args:
        network: Keras model of a sequence of layers of `diwp`.
        likelihood: `likelihoods.Gaussian`.
        x: Tensor `[N, N_0]`, the rows in model units.
        y: Tensor `[N, D]`.
        size: Number of rows, from the first on, that kernel and noise are fitted to.
        count: Number of inducing points, at most `size`.
        greedy: Whether they are at the rows of largest variance given the previous ones, under the
            kernel at which a run of step 2 starts; otherwise they are at the first rows.
        move: Whether they move from these rows, unless they are frozen.

    Returns:
        `FittedStart`.

    References:
        Titsias (2009), "Variational learning of inducing variables in sparse Gaussian processes",
        AISTATS, equations 9 and 10.
    """
    jitter = JITTER[network.layers[-1].variable_dtype]
    x, y = (tf.cast(values, tf.float64) for values in (x, y))
    some_x, some_y = x[:size], y[:size]
    of_all, of_few = (_MeanKernel(network.layers, some_x[:points]) for points in (size, count))
    noise = _Noise(likelihood)
    weights, few_weights = (k.trainable_weights + noise.weights for k in (of_all, of_few))

    def evidence():
        ii, _, _ = of_all.blocks(x[:1])
        return _log_evidence(some_y, with_jitter(ii, jitter), noise.scale)

    def few_blocks(data):
        ii, it, tt = of_few.blocks(data)
        return with_jitter(ii, jitter), it, tt

    def bound():
        blocks = few_blocks(some_x)
        return tf.reduce_sum(collapsed_bound_of(tf.transpose(some_y), *blocks, noise.scale))

    maximise_evidence = _maximiser(evidence, weights)
    maximise_bound = _maximiser(bound, few_weights)
    moving = [of_few.inducing_inputs] if move and of_few.inducing_inputs.trainable else []

    def maximum(values):
        _assign(weights, values)
        return maximise_evidence(), _values(weights)

    def with_few_points(values):
        _assign(weights, values)
        rows = np.arange(count)
        if greedy:
            k = of_all.blocks(x[:1])[0].numpy()
            rows = np.sort(greedy_pivots(np.diag(k), k.__getitem__, count))
        of_few.inducing_inputs.assign(tf.gather(x, rows))
        _assign(few_weights, values)
        # The noise fitted to all rows is too small for a few points.
        for weight in noise.weights:
            stored = [noise.stored(factor * noise.scale.numpy()) for factor in _NOISE_FACTORS]
            take_best(bound, weight, stored)
        largest_bound, values = maximise_bound(), _values(few_weights)
        _assign(weights, values)
        return float(evidence()), largest_bound, rows, values

    starts = _starts(of_all, noise)
    maxima = sorted(map(maximum, starts), key=lambda each: -each[0])
    chosen, *others = map(with_few_points, [*(values for _, values in maxima), *starts])
    other = max(others, key=lambda each: each[0])
    if other[0] > chosen[0] + _MARGIN * size * y.shape[1]:
        chosen = other
    _, largest_bound, rows, values = chosen
    of_few.inducing_inputs.assign(tf.gather(x, rows))
    _assign(few_weights, values)
    if moving:
        largest_bound = _maximiser(bound, [*few_weights, *moving], _MAX_MOVES)()
    scale = noise.scale.numpy()
    if noise.weights:
        scale = np.maximum(scale, _ABOVE_LEAST * noise.least)
    ii, it, _ = few_blocks(x)
    posterior = _best_posterior(y.numpy(), ii, it.numpy(), np.broadcast_to(scale, y.shape[1:]))
    fitted = of_few.inducing_inputs.numpy(), _values(of_few.weights), scale
    return FittedStart(*fitted, *posterior, maxima[0][0], largest_bound)


def _starts(kernel, noise):
    """Returns the starts of L-BFGS: the present values, with several scales."""
    weights = kernel.trainable_weights + noise.weights
    values = _values(weights)
    scale = getattr(kernel.layers[0], "scale", None)
    if not any(weight is scale for weight in weights):
        return [values]
    pairs = list(zip(weights, values, strict=True))
    return [[f * v if w is scale else v for w, v in pairs] for f in _SCALES]


def _maximiser(objective, weights, max_iterations=_MAX_ITERATIONS):
    """Returns a function that moves weights to a maximum from their values, and returns it."""
    if not weights:
        return lambda: float(objective())
    maximiser = Maximiser(objective, weights)
    return lambda: maximiser.run(max_iterations).log_marginal_likelihood


def _values(weights):
    return [weight.numpy() for weight in weights]


def _assign(weights, values):
    for weight, value in zip(weights, values, strict=True):
        weight.assign(value)


def _log_evidence(y, k, noise_scale):
    """Returns `sum_d log N(y_d; 0, K + s_d^2 I)` for y `[N, D]`, K `[N, N]`, s `[]` or `[D]`."""
    variance = tf.square(noise_scale)[..., tf.newaxis, tf.newaxis]
    factor = linalg.cholesky(k + variance * tf.eye(tf.shape(k)[0], dtype=k.dtype)).factor
    normal = tfp.distributions.MultivariateNormalTriL(scale_tril=factor)
    return tf.reduce_sum(normal.log_prob(tf.transpose(y)))


def _best_posterior(y, ii, it, noise_scale):
    """Computes v `[D, P]` and T `[D, P, P]` of `fitted_start`, with a noise for each output."""
    factor = linalg.cholesky(ii).factor.numpy()
    cross = np.linalg.solve(factor, it)
    targets, factors = [], []
    for column, scale in zip(y.T, noise_scale, strict=True):
        # These avoid factors of W and A, whose small eigenvalues would be lost to rounding.
        least = np.sqrt(_LEAST_PRECISION) * scale * np.eye(len(factor))
        root = np.transpose(np.linalg.qr(np.concatenate([cross.T, least]), mode="r"))
        targets.append(factor @ np.linalg.solve(root.T, np.linalg.solve(root, cross @ column)))
        upper = np.linalg.qr(scale * np.linalg.solve(root, factor.T), mode="r")
        factors.append((np.sign(np.diag(upper))[:, np.newaxis] * upper).T)
    return np.stack(targets), np.stack(factors)
