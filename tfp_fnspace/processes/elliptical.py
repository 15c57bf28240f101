"""The base of Gaussian and Student-t processes: mean, kernel, factors and fitting."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfp_fnspace.boundary.arguments import checked_number
from tfp_fnspace.math import linalg, random
from tfp_fnspace.processes import marginal_likelihood
from tfp_fnspace.processes.base import Process
from tfp_fnspace.processes.kernel_weights import KernelWeights
from tfp_fnspace.typing import ArrayLike, Config, Tensor

#: Lower bound of the standard deviation of observation noise.
SMALLEST_NOISE = 1e-6


class EllipticalProcess(Process):
    """A process with constant mean m whose values at points have the covariance `K + jitter I`.

    Args:
        kernel: TFP kernel, or its description. Its batch shape is `[]`, or `[D]` for one kernel per
            output.
        num_outputs: D; the outputs are independent.
        mean: Initial m, a number for all outputs.
        noise_scale: Initial standard deviation of the noise of observations, positive. Only `fit`
            uses it.
        jitter: Variance added to the diagonal, at least 0.
        learn_mean: Whether m is learned.
        fixed: Parameters of the kernel that are not learned, see `KernelWeights`.
        **kwargs: `name`, `dtype`, `trainable`.
    """

    def __init__(
        self,
        kernel: Any,
        num_outputs: int = 1,
        mean: float = 0.0,
        noise_scale: float = 0.1,
        jitter: float = 1e-6,
        learn_mean: bool = False,
        fixed: Sequence[str] = (),
        **kwargs: Any,
    ):
        super().__init__(num_outputs, **kwargs)
        self.initial_mean = checked_number("mean", mean)
        self.initial_noise_scale = checked_number("noise_scale", noise_scale, SMALLEST_NOISE)
        self.jitter = checked_number("jitter", jitter, 0.0, inclusive=True)
        self.learn_mean = bool(learn_mean)
        self.kernel_weights = KernelWeights(
            kernel, fixed, dtype=self.dtype_policy, trainable=self.trainable
        )
        batch = self.kernel_weights.kernel().batch_shape
        # A TFP kernel that transforms its inputs by a function does not know its batch shape.
        if batch.rank is not None and batch.as_list() not in ([], [1], [self.num_outputs]):
            raise ValueError(
                "`kernel` must have the batch shape [] or [num_outputs]. "
                f"Received: kernel.batch_shape={batch}, num_outputs={num_outputs}"
            )
        self._mean = self.add_weight(
            name="mean",
            shape=(self.num_outputs,),
            initializer=constant(self.initial_mean),
            trainable=self.learn_mean,
        )
        self._log_noise = self.add_weight(
            name="log_noise_scale",
            shape=(),
            initializer=constant(np.log(self.initial_noise_scale - SMALLEST_NOISE)),
            trainable=False,  # not part of the density of f
        )
        self.built = True

    @property
    def has_density(self) -> bool:
        return True

    @property
    def has_moments(self) -> bool:
        return True

    @property
    def mean(self) -> Tensor:
        """m, tensor `[D]`."""
        return tf.convert_to_tensor(self._mean.value)

    @property
    def noise_scale(self) -> Tensor:
        """Standard deviation of the noise of observations, a scalar tensor."""
        return SMALLEST_NOISE + tf.exp(self._log_noise.value)

    def kernel(self) -> Any:
        """Returns the kernel at the present values of its parameters."""
        return self.kernel_weights.kernel()

    def fit(
        self,
        x: ArrayLike,
        y: ArrayLike,
        num_inducing: int | None = None,
        max_iterations: int = 200,
        seed: int = 0,
    ) -> marginal_likelihood.Fit:
        """Fits kernel, noise and learned parameters by marginal likelihood with L-BFGS, in float64.

        The exact objective is `log p(y)` with `K + noise_scale^2 I`, at a cost of O(N^3) per step.
        With inducing points, for Gaussian processes only, it is the collapsed variational bound of
        Titsias, at a cost of O(N num_inducing^2). The inducing points are learned too. (TFP's
        `VariationalGaussianProcess` has a bound that is not collapsed.)

        Starting from a small noise, a short length scale may explain a poor fit, which is a local
        optimum. The noise therefore starts at the best of its present value and 0.1, 0.3 and 1
        times the spread of y.

        Args:
            x: Points `[N, ...]`; `[N, I]` with inducing points.
            y: Observations `[N, D]`, or `[N]` for one output.
            num_inducing: Number of inducing points, which start at random rows; None for the exact
                objective.
            max_iterations: Maximum number of iterations of L-BFGS, a positive integer.
            seed: Seed of the rows at which inducing points start.

        Returns:
            `marginal_likelihood.Fit`.

        Raises:
            ValueError: If shapes do not match, a value is not finite, or there are more inducing
                points than rows.

        References:
            Titsias (2009), "Variational learning of inducing variables in sparse Gaussian
            processes", AISTATS.
        """
        x, y = marginal_likelihood.checked_data(x, y, self.num_outputs)
        config = {**self.get_config(), "dtype": "float64", "trainable": True}
        double = type(self).from_config(config)
        double.set_weights(self.get_weights())
        variables = [*double.trainable_variables, double._log_noise]
        if num_inducing is None:

            def objective():
                return double._log_prob(y, x, double.noise_scale)
        else:
            start = marginal_likelihood.random_rows(x, num_inducing, seed)
            inducing = keras.Variable(start, dtype="float64")
            variables.append(inducing)

            def objective():
                return double._collapsed_bound(y, x, tf.convert_to_tensor(inducing.value))

        marginal_likelihood.take_best(objective, double._log_noise, _noise_starts(double, y))
        result = marginal_likelihood.maximise(objective, variables, max_iterations)
        self.set_weights(double.get_weights())
        return result

    def _collapsed_bound(self, y, x, inducing):
        raise NotImplementedError(
            f"A {type(self).__name__} must be fitted without inducing points: its distribution "
            "given them is not Gaussian."
        )

    def _covariance(self, x, noise_scale):
        """Returns `K + (jitter + noise_scale^2) I`, `[N, N]` or `[D, N, N]`."""
        matrix = self.kernel().matrix(x, x)
        added = tf.square(noise_scale) + self.jitter
        return matrix + added * tf.eye(tf.shape(matrix)[-1], dtype=matrix.dtype)

    def _factor(self, x, noise_scale):
        return linalg.cholesky(self._covariance(x, noise_scale)).factor

    def _moments(self, x, noise_scale):
        covariance, size = self._covariance(x, noise_scale), tf.shape(x)[0]
        mean = tf.broadcast_to(self.mean, [size, self.num_outputs])
        return mean, tf.broadcast_to(covariance, [self.num_outputs, size, size])

    def _gaussian(self, x, n, seed):
        """Draws from N(0, K), `[n, N, D]`."""
        factor, size = self._factor(x, self._cast(0.0)), tf.shape(x)[0]
        normal = random.normal([self.num_outputs, size, n], seed, self.variable_dtype)
        return self._to_values(_lower_matmul(factor, self._to_columns(normal, factor)), [n, size])

    def _whitened(self, f, factor):
        """Returns `L^-1 (f - m)` in the columns of `_to_columns`, and the shape of f."""
        residual = f - self.mean
        flat = tf.reshape(residual, tf.concat([[-1], tf.shape(f)[-2:]], axis=0))
        columns = self._to_columns(tf.transpose(flat, [2, 1, 0]), factor)
        return tf.linalg.triangular_solve(factor, columns), tf.shape(f)

    def _to_columns(self, values, factor):
        """Reshapes `[D, N, S]` to right-hand sides of a factor `[N, N]` or `[D, N, N]`."""
        if factor.shape.rank == 3:
            return values
        return tf.reshape(tf.transpose(values, [1, 0, 2]), [tf.shape(values)[1], -1])

    def _to_values(self, columns, shape):
        """Reshapes columns back to `[..., N, D]`; `shape` is without the D."""
        if columns.shape.rank == 2:
            shape_of = [tf.shape(columns)[0], self.num_outputs, -1]
            columns = tf.transpose(tf.reshape(columns, shape_of), [1, 0, 2])  # [D, N, S]
        shape = tf.concat([shape, [self.num_outputs]], axis=0)
        return tf.reshape(tf.transpose(columns, [2, 1, 0]), shape)

    def _squares(self, whitened):
        """Sums squares over the points, `[D, S]`."""
        return tf.reshape(tf.reduce_sum(tf.square(whitened), axis=-2), [self.num_outputs, -1])

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "kernel": self.kernel_weights.description,
            "mean": self.initial_mean,
            "noise_scale": self.initial_noise_scale,
            "jitter": self.jitter,
            "learn_mean": self.learn_mean,
            "fixed": self.kernel_weights.fixed,
        }


def _lower_matmul(factor, columns):
    """Returns `L B`; a stored upper triangle of L is ignored."""
    return tf.matmul(tf.linalg.band_part(factor, -1, 0), columns)


def _noise_starts(process, y):
    """Returns initial values of `log_noise_scale`, the present value first."""
    spread = float(tf.math.reduce_std(y))
    others = [np.log(share * spread) for share in (0.1, 0.3, 1.0) if spread > 0.0]
    return [float(process._log_noise.value), *others]


def constant(value: float) -> keras.initializers.Initializer:
    """Returns an initializer that keeps float64; Keras would convert a number to float32.

    Args:
        value: Number.

    Returns:
        Keras initializer.
    """
    return keras.initializers.Constant(np.asarray(value, np.float64))
