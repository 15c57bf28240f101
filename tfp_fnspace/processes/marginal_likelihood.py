"""Fitting by marginal likelihood, with L-BFGS over weights and a bound with inducing points."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_fnspace.boundary.arguments import check_count, checked_count
from tfp_fnspace.boundary.data import check_finite
from tfp_fnspace.math import linalg
from tfp_fnspace.tracing import traced
from tfp_fnspace.typing import Array, ArrayLike, Tensor

#: L-BFGS starts again from the best point so far after a failed line search, at most this often.
_MOST_STARTS = 10

_LOG_TWO_PI = math.log(2.0 * math.pi)


class Fit(NamedTuple):
    """The result of a fit.

    Attributes:
        log_marginal_likelihood: The largest value found, or the bound; a float.
        converged: Whether the gradient or the relative change became small enough.
        num_iterations: Number of iterations of L-BFGS.
    """

    log_marginal_likelihood: float
    converged: bool
    num_iterations: int


def maximise(
    objective: Callable[[], Tensor], variables: Sequence[keras.Variable], max_iterations: int = 200
) -> Fit:
    """Maximises a function of variables by L-BFGS and assigns them the best values.

    Args:
        objective: Function without arguments that reads the variables and returns a float64
            scalar.
        variables: Float64 `keras.Variable`s.
        max_iterations: Positive integer.

    Returns:
        `Fit`.

    Raises:
        ValueError: If the objective is not finite at the start.
    """
    return Maximiser(objective, variables).run(max_iterations)


class Maximiser:
    """`maximise` for several runs, with one trace of the objective.

    Args:
        objective: As for `maximise`. Other variables that it reads may change between runs.
        variables: As for `maximise`.
    """

    def __init__(self, objective: Callable[[], Tensor], variables: Sequence[keras.Variable]):
        self.variables = variables
        self._shapes = [tuple(v.shape) for v in variables]
        present = self._position()

        def loss(position):
            mapping = list(zip(variables, self._parts(position), strict=True))
            with keras.StatelessScope(state_mapping=mapping):
                return -tf.reshape(objective(), [])

        def loss_and_gradient(position):
            return tfp.math.value_and_gradient(loss, position)

        # Each function is traced once, although L-BFGS calls the loss in many places, and is not
        # inlined there. They are concrete functions, for which TensorFlow does not warn of
        # retracing when a program fits a fifth process.
        apart = traced(loss_and_gradient, experimental_attributes={"_noinline": True})
        self._loss_and_gradient = apart.get_concrete_function(present)

        def minimise(start, scale, max_iterations):
            return tfp.optimizer.lbfgs_minimize(
                lambda position: tf.nest.map_structure(
                    lambda v: scale * v, self._loss_and_gradient(position)
                ),
                start,
                tolerance=1e-6,
                f_relative_tolerance=1e-12,
                max_iterations=max_iterations,
            )

        number = tf.TensorSpec([], tf.float64)
        self._minimise = traced(minimise).get_concrete_function(
            present, number, tf.TensorSpec([], tf.int32)
        )

    def run(self, max_iterations: int = 200) -> Fit:
        """Runs `maximise` from the present values, and starts again after failed line searches."""
        check_count("max_iterations", max_iterations)
        best = self._position()
        least, gradient = self._loss_and_gradient(best)
        if not math.isfinite(float(least)):
            raise ValueError(
                "The marginal likelihood must be finite at the start. "
                f"Received: log_marginal_likelihood={-float(least)}"
            )
        converged, num_iterations = False, 0
        for _ in range(_MOST_STARTS):
            # The first step is the scaled gradient, so it changes each weight by at most 1.
            scale = 1.0 / tf.maximum(tf.reduce_max(tf.abs(gradient)), 1.0)
            result = self._minimise(best, scale, tf.constant(max_iterations - num_iterations))
            num_iterations += int(result.num_iterations)
            value, slope = self._loss_and_gradient(result.position)
            is_better = bool(value <= least)  # false if a line search met a NaN
            gain = float(least - value) if is_better else 0.0
            if is_better:
                best, least, gradient = result.position, value, slope
            converged = is_better and bool(result.converged)
            if converged or num_iterations >= max_iterations or gain <= 0.0:
                break
        for variable, value in zip(self.variables, self._parts(best), strict=True):
            variable.assign(value)
        return Fit(-float(least), converged, num_iterations)

    def _position(self):
        return tf.concat([tf.reshape(v.value, [-1]) for v in self.variables], axis=0)

    def _parts(self, position):
        pieces = tf.split(position, [math.prod(shape) for shape in self._shapes])
        return [tf.reshape(p, shape) for p, shape in zip(pieces, self._shapes, strict=True)]


def take_best(
    objective: Callable[[], Tensor], variable: keras.Variable, values: Sequence[float]
) -> None:
    """Assigns a variable the value at which an objective is largest (the first of equals).

    Args:
        objective: Function without arguments that returns a scalar; non-finite values count as
            least.
        variable: `keras.Variable`.
        values: List of values.
    """
    found = []
    for value in values:
        variable.assign(value)
        found.append(float(objective()))
    variable.assign(values[int(np.argmax(np.where(np.isfinite(found), found, -np.inf)))])


def collapsed_bound(
    y: Tensor, x: Tensor, inducing: Tensor, kernel: Any, noise_scale: Tensor, jitter: float
) -> Tensor:
    """Returns Titsias's lower bound of `log N(y; 0, K + s^2 I)` with inducing points.

        log N(y; 0, Q + s^2 I) - tr(K - Q) / (2 s^2),   Q = K_xz K_zz^-1 K_zx

    The inducing points have their optimal posterior. The cost is O(N M^2): with `A = L^-1 K_zx /
    s`, `L L^T = K_zz` and `B = I + A A^T`, no N x N matrix is made.

    Args:
        y: Residuals, `[D, N]`.
        x: Points `[N, I]`.
        inducing: z, `[M, I]`.
        kernel: TFP kernel of batch shape `[]` or `[D]`.
        noise_scale: s, a scalar.
        jitter: Number added to the diagonals of K and K_zz.

    Returns:
        Tensor `[D]`.

    References:
        Titsias (2009), "Variational learning of inducing variables in sparse Gaussian processes",
        AISTATS, equation 9.
    """
    identity = tf.eye(tf.shape(inducing)[0], dtype=x.dtype)
    ii = kernel.matrix(inducing, inducing) + jitter * identity
    diagonal = kernel.apply(x, x, example_ndims=1) + jitter
    return collapsed_bound_of(y, ii, kernel.matrix(inducing, x), diagonal, noise_scale)


def collapsed_bound_of(
    y: Tensor, ii: Tensor, it: Tensor, tt: Tensor, noise_scale: Tensor
) -> Tensor:
    """Returns `collapsed_bound`, given kernel matrices.

    Args:
        y: Residuals, `[D, N]`.
        ii: K_zz, `[..., M, M]`, whose leading axes are `[]` or `[D]`.
        it: K_zx, `[..., M, N]`.
        tt: Diagonal of K, `[..., N]`.
        noise_scale: s, `[]` or `[D]`.

    Returns:
        Tensor `[D]`.
    """
    size = tf.cast(tf.shape(y)[-1], y.dtype)
    scale = noise_scale[..., tf.newaxis, tf.newaxis]  # [1, 1] or [D, 1, 1]
    a = tf.linalg.triangular_solve(linalg.cholesky(ii).factor, it) / scale  # [..., M, N]
    inner = linalg.outer_product(a)
    identity = tf.eye(tf.shape(ii)[-1], dtype=y.dtype)
    inner_factor = linalg.cholesky(inner + identity).factor
    projected = tf.linalg.matvec(a, y) / scale[..., 0]  # [D, M]
    factors = tf.broadcast_to(
        inner_factor, tf.concat([tf.shape(y)[:1], tf.shape(identity)], axis=0)
    )
    explained = tf.linalg.triangular_solve(factors, projected[..., tf.newaxis])[..., 0]
    variance = tf.square(noise_scale)
    log_det = linalg.log_determinant(inner_factor) + size * tf.math.log(variance)
    squares = tf.reduce_sum(tf.square(y), axis=-1) / variance
    squares -= tf.reduce_sum(tf.square(explained), axis=-1)
    unexplained = tf.reduce_sum(tt, axis=-1) / variance - tf.linalg.trace(inner)
    return -0.5 * (size * _LOG_TWO_PI + log_det + squares + unexplained)


def checked_data(x: ArrayLike, y: ArrayLike, num_outputs: int) -> tuple[Tensor, Tensor]:
    """Checks and returns points and observations as float64 tensors, `[N, ...]` and `[N, D]`.

    Args:
        x: Array `[N, ...]`.
        y: Array `[N, D]`, or `[N]` for one output.
        num_outputs: D.

    Returns:
        The pair.

    Raises:
        ValueError: If shapes do not match or a value is not finite.
    """
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    y = y[:, np.newaxis] if y.ndim == 1 else y
    if x.ndim < 2 or len(x) < 1 or y.shape != (len(x), num_outputs):
        raise ValueError(
            f"`x` must have the shape [N, ...] and `y` [N, {num_outputs}]. "
            f"Received: x.shape={x.shape}, y.shape={y.shape}"
        )
    for name, values in (("x", x), ("y", y)):
        check_finite(name, values)
    return tf.constant(x), tf.constant(y)


def random_rows(x: Tensor, num_rows: int, seed: int) -> Array:
    """Chooses distinct rows of x at random.

    Args:
        x: Tensor `[N, I]`.
        num_rows: Number of rows, a positive integer.
        seed: Integer.

    Returns:
        Array `[num_rows, I]`.

    Raises:
        ValueError: If there are fewer distinct rows.
    """
    rows = np.unique(x.numpy(), axis=0)
    if checked_count("num_inducing", num_rows) > len(rows):
        raise ValueError(
            f"`num_inducing` must be at most the number of distinct rows, {len(rows)}. "
            f"Received: num_inducing={num_rows}"
        )
    return np.random.default_rng(seed).permutation(rows)[:num_rows]
