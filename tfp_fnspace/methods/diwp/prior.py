"""Prior draws from deep kernel processes: Gram matrices of layers, and functions."""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfp_fnspace import kernels
from tfp_fnspace.boundary.arguments import (
    checked_choice,
    checked_count,
    checked_number,
    checked_positive,
)
from tfp_fnspace.math import linalg, random
from tfp_fnspace.methods.diwp import equations
from tfp_fnspace.methods.diwp.deep_kernel import STACKS, checked_kernels
from tfp_fnspace.typing import ArrayLike, Seed, Tensor

PROCESSES = ("inverse_wishart", "wishart", "residual_wishart")

#: Jitter, relative to the mean diagonal, beyond which rounding cannot explain a matrix that is not
#: positive semidefinite.
_ROUNDING = 1e-3


class PriorSample(NamedTuple):
    """The draws of `sample_prior`, for S samples, P points and `depth` hidden layers.

    Attributes:
        grams: List of depth + 1 Gram matrices, `[S, P, P]`, of the inputs and of the hidden layers.
        kernels: List of depth + 1 kernel matrices K(G) of these, `[S, P, P]`.
        functions: `[S, P, D]`, Gaussian with the last kernel matrix as covariance.
    """

    grams: list[Tensor]
    kernels: list[Tensor]
    functions: Tensor


def sample_gram(
    kernel_matrix: ArrayLike,
    process: str = "inverse_wishart",
    seed: Seed = 0,
    delta: float | None = None,
    width: float | None = None,
    residual: float = 1.0,
    num_samples: int = 1,
) -> Tensor:
    r"""Draws the Gram matrix of a layer around a kernel matrix K, which is its mean.

    Let P be the number of points, K = L L^T, and xi a matrix of independent standard normal
    entries:

        "inverse_wishart"     G ~ W^-1(delta K, delta + P + 1)                     (equation 4c)
        "wishart"             G ~ W(K / N, N)                                      (equation 4a)
        "residual_wishart"    G = L W W^T L^T,                               (equations 102, 103)
                              W = (xi / sqrt(N) + a I) / sqrt(1 + a^2),  [P, N]

    N = `width` is the number of features of a layer whose Gram matrix is G (equation 5c). If N < P,
    the matrix has rank N. a = `residual` is the weight of the skip connection of a residual layer.
    In its W the identity is the first P rows of an identity matrix of size N, so N >= P. All three
    are kernel processes: the distribution at some of the points does not depend on the others. With
    K_ij^2 + K_ii K_jj = v_ij, Var G_ij is `v_ij / N` for the Wishart process (equation 93; equation
    12 has a misprint) and `v_ij (1 + 2 a^2) / (N (1 + a^2)^2)` for the residual process. For
    delta > 2 it is `((delta + 2) K_ij^2 + delta K_ii K_jj) / ((delta + 1) (delta - 2))` for the
    inverse Wishart process.

    Args:
        kernel_matrix: K, symmetric positive semidefinite floating tensor `[..., P, P]`. A singular
            matrix gets the least jitter with which it has a Cholesky factor.
        process: One of `PROCESSES`.
        seed: Integer, pair of integers, or int32 tensor `[2]`.
        delta: Positive number, for the inverse Wishart process. The larger it is, the closer is G
            to K.
        width: N, for the other processes, a positive integer. For the Wishart process it may also
            be any real number greater than P - 1.
        residual: a >= 0, for the residual Wishart process; 0 gives the Wishart process.
        num_samples: S, the number of draws for each K.

    Returns:
        Tensor `[S, ..., P, P]`.

    Raises:
        TypeError: If the matrix is not floating.
        ValueError: If an argument is not as described, or the matrix is known and has a clearly
            negative eigenvalue.

    Example:
        >>> x = tf.linspace(-1.0, 1.0, 50)[:, tf.newaxis]
        >>> k = kernels.SquaredExponential().matrix(x @ tf.transpose(x))
        >>> g = sample_gram(k, "inverse_wishart", seed=0, delta=10.0)  # [1, 50, 50]

    References:
        Aitchison, Yang & Ober (2021), "Deep kernel processes", ICML, section 4, appendix H.
    """
    checked_choice("process", process, PROCESSES)
    factor = _factor_of_kernel(kernel_matrix)
    draws = checked_count("num_samples", num_samples), random.as_seed(seed)
    if process == "inverse_wishart":
        return equations.inverse_wishart(factor, checked_positive("delta", delta), *draws)
    size = factor.shape[-1]
    if process == "wishart":
        return equations.wishart(factor, _checked_width(width, size), *draws)
    width = _checked_residual_width(width, size)
    residual = checked_number("residual", residual, 0.0, inclusive=True)
    return equations.residual_wishart(factor, width, residual, *draws)


def sample_prior(
    x: ArrayLike,
    kernel: Any,
    depth: int = 1,
    process: str = "inverse_wishart",
    delta: float | None = None,
    width: float | None = None,
    residual: float = 1.0,
    stack: str = "omega",
    units: int = 1,
    num_samples: int = 1,
    seed: Seed = 0,
) -> PriorSample:
    r"""Draws Gram matrices and functions from a deep kernel process at given points.

        stack="omega":       G_0 = X Omega X^T / N_0,   Omega around the identity  (18, 94, 95)
        stack="features":    G_0 = X X^T / N_0                                             (5a)
        l = 1 ... depth:     G_l around K(G_{l-1})                                  (8b and 18)
        d = 1 ... units:     f_d ~ N(0, K(G_depth)),

    where "around" stands for the distribution of `sample_gram`. These are the priors of
    `DeepKernel`, whose arguments `depth` and `stack` have the same meaning, of deep Gaussian
    processes (`"wishart"`), and of their residual form. Each layer is independent of earlier layers
    given the one below it.

    Args:
        x: Floating array or tensor `[P, ...]`; axes after the first are flattened to N_0 features.
        kernel: A kernel of `tfp_fnspace.kernels` or its name, or a list of depth + 1.
        depth: Number of hidden layers, an integer of at least 0.
        process: As for `sample_gram`, for all layers including Omega.
        delta: As for `sample_gram`.
        width: As for `sample_gram`. It is also used for Omega.
        residual: As for `sample_gram`.
        stack: `"omega"` or `"features"`.
        units: D, the number of functions for each sample of the Gram matrices.
        num_samples: S.
        seed: Integer, pair of integers, or int32 tensor `[2]`.

    Returns:
        `PriorSample`.

    Raises:
        TypeError: If `x` is not floating.
        ValueError: If an argument is not as described.

    Example:
        >>> x = np.linspace(-3.0, 3.0, 100)[:, np.newaxis]
        >>> draw = sample_prior(x, "squared_exponential", depth=1, delta=5.0, units=4, seed=0)
        >>> draw.functions  # [1, 100, 4]

    References:
        Aitchison, Yang & Ober (2021), "Deep kernel processes", ICML, equations 8 and 18.
    """
    depth = checked_count("depth", depth, 0)
    checked_choice("stack", stack, STACKS)
    num_samples, units = checked_count("num_samples", num_samples), checked_count("units", units)
    features, seeds = _features(x), random.split(random.as_seed(seed), depth + 2)
    options = {"process": process, "delta": delta, "width": width, "residual": residual}
    if stack == "omega":
        identity = tf.eye(features.shape[-1], dtype=features.dtype)
        omega = sample_gram(identity, seed=seeds[0], **options, num_samples=num_samples)
        gram = equations.input_gram(features, omega)
    else:
        gram = tf.repeat(equations.input_gram(features), num_samples, axis=0)
    grams, matrices = [], []
    for i, layer_kernel in enumerate(checked_kernels(kernel, depth)):
        if i > 0:
            gram = sample_gram(matrices[-1], seed=seeds[i], **options)[0]
        grams.append(gram)
        matrices.append(kernels.get(layer_kernel).matrix(gram))
    factor = _factor_of_kernel(matrices[-1])
    functions = equations.gaussian_functions(factor, units, seeds[depth + 1])
    return PriorSample(grams, matrices, functions)


def _checked_width(width, size):
    width = checked_positive("width", width)
    if width <= size - 1 and width != int(width):
        raise ValueError(
            "`width` must be an integer if it is not greater than P - 1, P the number of "
            f"points. Received: width={width}, P={size}"
        )
    return width


def _checked_residual_width(width, size):
    width = checked_count("width", width)
    if width < size:
        raise ValueError(
            "`width` must be at least the number of points P: the identity of a residual layer "
            f"does not fit otherwise. Received: width={width}, P={size}"
        )
    return width


def _factor_of_kernel(matrix):
    matrix = _floating("kernel_matrix", matrix)
    size = matrix.shape[-2:] if matrix.shape.rank else ()
    if len(size) != 2 or size[0] is None or size[0] < 1 or size[0] != size[1]:
        raise ValueError(
            "`kernel_matrix` must have shape [..., P, P]. "
            f"Received: kernel_matrix.shape={matrix.shape}"
        )
    factor, jitter = linalg.cholesky(matrix)
    added = tf.get_static_value(jitter)
    if added is not None:
        unit = np.mean(np.abs(np.diagonal(matrix, axis1=-2, axis2=-1)), axis=-1)
        if not np.all(added <= _ROUNDING * unit):  # nor NaN
            raise ValueError(
                "`kernel_matrix` must be finite, positive semidefinite and not zero. Received: a "
                f"matrix that needs {np.max(added):.3g} more on its diagonal"
            )
    return factor


def _features(x):
    """Returns features `[P, N_0]`."""
    x = _floating("x", x)
    if x.shape.rank is None or x.shape.rank < 2 or not x.shape.is_fully_defined():
        raise ValueError(f"`x` must have shape [P, ...]. Received: x.shape={x.shape}")
    num_features = int(np.prod(x.shape[1:]))
    if num_features == 0 or x.shape[0] == 0:
        raise ValueError(f"`x` must not be empty. Received: x.shape={x.shape}")
    return tf.reshape(x, [x.shape[0], num_features])


def _floating(name, value):
    value = tf.convert_to_tensor(value)
    if not value.dtype.is_floating:
        raise TypeError(f"`{name}` must be floating. Received: dtype={value.dtype.name}")
    return value
