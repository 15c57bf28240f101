"""Gaussian processes on Gram matrices with global inducing posteriors (appendix G)."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfp_fnspace.boundary.arguments import checked_choice, checked_count
from tfp_fnspace.layers.draws import FunctionDraws, current_draws
from tfp_fnspace.math import linalg
from tfp_fnspace.methods.diwp import equations
from tfp_fnspace.methods.diwp.layers.base import JITTER, GramLayer, joint_factor
from tfp_fnspace.typing import ArrayLike, Config, GaussianMoments, GramBlocks, Shape, Tensor

#: Initial standard deviation of the pseudo-observations.
_NOISE = 0.3

PRECISIONS = ("full", "diagonal")


class GlobalInducingPosterior:
    r"""`q(f_i) ~ N(f_i; 0, K_ii) N(v; f_i, A)` with learned pseudo-targets v and A = T T^T.

    It is the posterior of a Gaussian process that has observed v with noise of covariance A, the
    inverse of the paper's Lambda (equations 21 and 97). With C = K_ii + A, therefore,

        E[f_i] = K_ii C^-1 v,     cov[f_i] = K_ii - K_ii C^-1 K_ii,
        KL(q || p) = E_q[log N(v; f_i, A)] - log N(v; 0, C).

    Args:
        layer: `GramLayer` that gets the weights.
        size: P.
        units: D.
        precision: `"full"` or `"diagonal"` A.
        shared: Whether all units have the same A.
    """

    def __init__(self, layer: GramLayer, size: int, units: int, precision: str, shared: bool):
        self.size, self.units = size, units
        self.v = layer.add_weight(
            name="pseudo_targets",
            shape=(units, size),
            initializer=keras.initializers.RandomNormal(stddev=_NOISE, seed=3),
        )
        count = 1 if shared else units
        self.log_diagonal = layer.add_weight(
            name="log_pseudo_noise",
            shape=(count, size),
            initializer=keras.initializers.Constant(np.log(_NOISE)),
        )
        self.lower = None
        if precision == "full":
            self.lower = layer.add_weight(
                name="pseudo_noise_tril", shape=(count, size, size), initializer="zeros"
            )

    def assign(self, v: ArrayLike, noise_factor: ArrayLike) -> None:
        """Sets v and A, with an approximation of A if the weights cannot represent it.

        Args:
            v: Array `[D, P]`.
            noise_factor: T, lower triangular with positive diagonal, `[D, P, P]`. If units share A,
                they get the mean. A diagonal A gets the precisions of the given one.
        """
        factor = np.asarray(noise_factor, np.float64)
        if len(factor) > self.log_diagonal.shape[0]:
            upper = np.linalg.qr(np.concatenate(factor, axis=-1).T / np.sqrt(len(factor)), "r")
            factor = (np.sign(np.diag(upper))[:, np.newaxis] * upper).T[np.newaxis]
        diagonal = np.einsum("dii->di", factor)
        if self.lower is None:
            diagonal = np.linalg.norm(np.linalg.inv(factor), axis=-2) ** -1.0
        else:
            self.lower.assign(np.tril(factor / diagonal[:, :, np.newaxis], -1))
        self.log_diagonal.assign(np.log(diagonal))
        self.v.assign(v)

    @property
    def noise_factor(self) -> Tensor:
        """T, lower triangular with positive diagonal, `[D or 1, P, P]`."""
        diagonal = tf.exp(tf.convert_to_tensor(self.log_diagonal))
        if self.lower is None:
            return tf.linalg.diag(diagonal)
        # Rows are relative to their diagonal, so that one step size suits all.
        lower = tf.convert_to_tensor(self.lower) * diagonal[:, :, tf.newaxis]
        return tf.linalg.set_diag(tf.linalg.band_part(lower, -1, 0), diagonal)

    def condition(self, draws: FunctionDraws, ii: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the quantities for predictions, and reports the divergence.

        Args:
            draws: `FunctionDraws`.
            ii: K_ii, `[S, P, P]`.

        Returns:
            Cholesky factor of C, `[S, D or 1, P, P]`, and `L_C^-1 v`, `[S, D, P, 1]`.
        """
        t, v = tf.cast(self.noise_factor, ii.dtype), tf.cast(self.v.value, ii.dtype)
        factor = draws.cholesky(equations.covariance_of_targets(ii, t))
        whitened, divergence = equations.output_divergence(factor, v, t)
        draws.add_divergence(divergence)
        return factor, whitened


class _GaussianProcess(GramLayer):
    def __init__(self, units: int, precision: str, shared_precision: bool, **kwargs: Any):
        super().__init__(**kwargs)
        self.units = checked_count("units", units)
        self.precision = checked_choice("precision", precision, PRECISIONS)
        self.shared_precision = bool(shared_precision)

    def build(self, blocks_shape: Sequence[Shape]) -> None:
        size = blocks_shape[0][-1]
        self.posterior = GlobalInducingPosterior(
            self, size, self.units, self.precision, self.shared_precision
        )

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "units": self.units,
            "precision": self.precision,
            "shared_precision": self.shared_precision,
        }


@keras.saving.register_keras_serializable(package="tfp_fnspace.diwp")
class GlobalInducingGP(_GaussianProcess):
    r"""Output layer of Gaussian processes with the input kernel matrix.

    `f_d ~ N(0, K)` for each of D units. The posterior at the inducing points is the prior times
    pseudo-observations v with noise of covariance A, `q(f_i) ~ N(f_i; 0, K_ii) N(v; f_i, A)`
    (equation 97, A is the inverse of Lambda). With the inducing outputs integrated out, f at the
    data given K is Gaussian in closed form:

        E[f_t] = K_ti C^-1 v,       var[f_t] = K_tt - K_ti C^-1 K_it,       C = K_ii + A.

    With inducing points at the data, v = y and A = sigma^2 I, this is Gaussian process regression.

    Args:
        units: D, the number of outputs.
        precision: `"full"`, where A is any positive definite matrix, or `"diagonal"`.
        shared_precision: Whether all outputs have the same A.
        **kwargs: `name`, `dtype`.

    Call arguments:
        blocks: `GramBlocks` of K.

    Returns:
        `GaussianMoments` of f, `[S, N, D]`. For a joint distribution of the points, draws from it
        with variance 0.

    Raises:
        ValueError: If `units` is not a positive integer, `precision` is not one of these, or the
            dtype is neither float32 nor float64.
    """

    def __init__(
        self, units: int, *, precision: str = "full", shared_precision: bool = False, **kwargs: Any
    ):
        super().__init__(units, precision, shared_precision, **kwargs)

    def call(self, blocks: Sequence[Tensor]) -> GaussianMoments:
        draws = current_draws()
        ii, it, tt = self.unpack(blocks)
        factor, whitened = self.posterior.condition(draws, self.with_jitter(ii))
        mean, given = equations.output_given_inducing(factor, whitened, it, tt)
        if draws.noise == "joint":
            root = joint_factor(draws, given.covariance, given.variance)
            shape = [draws.num_samples, *tf.unstack(tf.shape(mean))[1:], 1]
            noise = draws.normal(shape, mean.dtype)
            values = mean + tf.matmul(root + tf.zeros_like(noise), noise)[..., 0]
            values = tf.cast(tf.linalg.matrix_transpose(values), self.variable_dtype)
            return GaussianMoments(values, tf.zeros_like(values))
        variance = given.variance + tf.zeros_like(mean)
        return GaussianMoments(*(tf.linalg.matrix_transpose(part) for part in (mean, variance)))

    def compute_output_spec(self, blocks: Any) -> GaussianMoments:
        shape = (None, None, self.units)
        return GaussianMoments(*(keras.KerasTensor(shape, self.variable_dtype) for _ in range(2)))


@keras.saving.register_keras_serializable(package="tfp_fnspace.diwp")
class GaussianProcessGram(_GaussianProcess):
    r"""Hidden layer of a deep Gaussian process, with sampled features and their Gram matrix.

    `f_d ~ N(0, K)` for each of D units with the posterior of `GlobalInducingPosterior`, and `G = F
    F^T / D` (equation 5). A deep Gaussian process with global inducing points is a network of these
    layers and `KernelOfGram`. The prior over G is a Wishart process.

    Args:
        units: D, the width.
        precision: As for `GlobalInducingGP`.
        shared_precision: As for `GlobalInducingGP`.
        **kwargs: `name`, `dtype`.

    Call arguments:
        blocks: `GramBlocks` of K.

    Returns:
        `GramBlocks`, S draws.

    Raises:
        ValueError: As for `GlobalInducingGP`.

    References:
        Ober & Aitchison (2021), "Global inducing point variational posteriors for Bayesian neural
        networks and deep Gaussian processes", ICML.
    """

    def __init__(
        self, units: int, *, precision: str = "full", shared_precision: bool = True, **kwargs: Any
    ):
        super().__init__(units, precision, shared_precision, **kwargs)

    def call(self, blocks: Sequence[Tensor]) -> GramBlocks:
        draws = current_draws()
        ii, it, tt = self.unpack(blocks)
        ii = self.with_jitter(ii)
        k_factor = draws.cholesky(ii)
        inducing = self._sample_inducing(draws, ii, k_factor)
        given = equations.given_inducing(k_factor, it, tt, JITTER[tt.dtype.name])
        solved = linalg.solve_lower(k_factor, inducing)
        mean = tf.matmul(given.whitened + tf.zeros_like(solved[:, :, :1]), solved, transpose_a=True)
        data = _sample_data(draws, given, mean)
        return equations.gram_of_features(inducing, data, draws.noise == "joint")

    def _sample_inducing(self, draws, ii, k_factor):
        """Draws from q(f_i) by Matheron's rule, `[S, P, D]`."""
        c_factor, whitened = self.posterior.condition(draws, ii)
        shape = [draws.num_samples, self.units, self.posterior.size, 1]
        prior = draws.normal(shape, ii.dtype)
        prior = tf.matmul(
            tf.broadcast_to(tf.expand_dims(k_factor, 1), [*shape[:3], shape[2]]), prior
        )
        noise = draws.normal(shape, ii.dtype)
        noise_factor = tf.cast(self.posterior.noise_factor, ii.dtype)
        noise = tf.matmul(tf.broadcast_to(noise_factor, [*shape[:3], shape[2]]), noise)
        residual = whitened - linalg.solve_lower(c_factor, prior + noise)
        pull = linalg.solve_lower(c_factor, residual, adjoint=True)
        drawn = prior + tf.matmul(tf.expand_dims(ii, 1), pull)
        return tf.linalg.matrix_transpose(drawn[..., 0])


def _sample_data(draws, given, mean):
    """Draws functions at the data given the inducing points.

    Args:
        draws: `FunctionDraws`.
        given: `GivenInducing` of K.
        mean: Conditional means of the functions, `[S, N, D]`.

    Returns:
        Tensor `[S, N, D]`, independent between points, or joint if the draws are.
    """
    count, size = tf.shape(mean)[1], mean.shape[2]
    if draws.noise == "joint":
        factor = joint_factor(draws, given.covariance, given.variance)
        noise = draws.normal([draws.num_samples, count, size], mean.dtype)
        return mean + tf.matmul(factor, noise)
    noise = draws.point_normal([draws.num_samples, size, count], mean.dtype)
    noise = tf.sqrt(given.variance)[:, tf.newaxis, :] * noise
    return mean + tf.linalg.matrix_transpose(noise)
