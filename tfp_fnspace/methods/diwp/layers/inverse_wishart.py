"""The inverse Wishart process as a layer."""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tfp_fnspace.boundary.arguments import checked_positive
from tfp_fnspace.layers.draws import FunctionDraws, current_draws
from tfp_fnspace.math import bartlett, replicas
from tfp_fnspace.methods.diwp import equations
from tfp_fnspace.methods.diwp.layers.base import JITTER, GramLayer, joint_factor, positive
from tfp_fnspace.typing import ArrayLike, Config, GramBlocks, Shape, Tensor

#: Initial gamma, and the initial scale of V, which keep q near the prior.
_GAMMA, _V = 0.1, 0.01

#: V in units of its weight. Adam's steps have the same size, however small the gradient is. If V is
#: not whitened, such steps in entries of V itself would change a smooth K by more than its jitter.
_V_UNIT = 0.1


class InverseWishartPosterior:
    r"""`q(G) = W^-1(delta K + V V^T, delta + gamma + k + 1)` and its divergence from the prior.

    The prior is `W^-1(delta K, delta + k + 1)`, whose mean is K (equations 18 and 21). With K = L
    L^T, the learned matrix is V, or U with V = L U.

    Args:
        layer: `GramLayer` that gets the weights.
        size: k.
        delta: Initial delta.
        learn_delta: Whether delta is learned.
        whiten: Whether U is learned rather than V.
    """

    def __init__(
        self, layer: GramLayer, size: int, delta: float, learn_delta: bool, whiten: bool = True
    ):
        self.size, self.whiten = size, whiten
        self.log_delta = layer.positive_weight("delta", delta, learn_delta)
        self.log_gamma = layer.positive_weight("gamma", _GAMMA, trainable=True)
        stddev = _V / _V_UNIT * size**-0.5
        self.v_in_units = layer.add_weight(
            name="v",
            shape=(size, size),
            initializer=keras.initializers.RandomNormal(stddev=stddev, seed=2),
        )

    @property
    def delta(self) -> Tensor:
        return positive(self.log_delta)

    @property
    def v(self) -> Tensor:
        """V, or U if it is whitened, `[k, k]`."""
        return _V_UNIT * tf.convert_to_tensor(self.v_in_units)

    def assign_v(self, v: ArrayLike) -> None:
        """Sets V, or U if it is whitened."""
        self.v_in_units.assign(tf.cast(v, self.v_in_units.dtype) / _V_UNIT)

    def sample(self, draws: FunctionDraws, k_factor: Tensor) -> Tensor:
        r"""Draws M of `G = (L M)(L M)^T`, K = L L^T, and reports the divergence.

        Args:
            draws: `FunctionDraws`.
            k_factor: L, `[S, k, k]` or `[1, k, k]`.

        Returns:
            Lower triangular tensor `[S, k, k]`.
        """
        dtype, size = k_factor.dtype, self.size
        v, delta = tf.cast(self.v, dtype)[tf.newaxis], tf.cast(self.delta, dtype)
        w, gram = equations.relative_scale(v, delta, None if self.whiten else k_factor)
        inner = draws.cholesky(tf.eye(size, dtype=dtype) + gram)
        # Float64 is cheap here.
        double = [
            positive(tf.cast(weight.value, tf.float64))
            for weight in (self.log_delta, self.log_gamma)
        ]
        draws.add_divergence(equations.gram_divergence(w, gram, inner, *double, size))
        gamma = tf.cast(positive(self.log_gamma), dtype)
        samples, seed = draws.num_samples, draws.next_seed()
        return equations.posterior_rotation(inner, delta, gamma, size, samples, seed)


@keras.saving.register_keras_serializable(package="tfp_fnspace.diwp")
class InverseWishartProcess(GramLayer):
    r"""Inverse Wishart process around the input kernel matrix (equations 18 and 21).

        p(G) = W^-1(delta K, delta + P + 1),           E[G] = K,
        q(G_ii) = W^-1(delta K_ii + V V^T, delta + gamma + P + 1)     on the inducing points,

    and the conditional prior for the data given the inducing points. The distribution of a data
    point does not depend on the other points of a call. At one point (equations 105 to 107 with one
    test point)

        g_tt.i ~ InverseGamma((delta + P + 2)/2, delta k_tt.i / 2),
        G_ii^-1 g_it ~ N(K_ii^-1 k_it, g_tt.i (delta K_ii)^-1),
        g_tt = g_tt.i + g_ti G_ii^-1 g_it.

    For a joint distribution of N points it is `W^-1(delta K_tt.i, delta + P + N + 1)` and a matrix
    normal distribution. delta determines how far G deviates from K. As delta tends to infinity, the
    limit is the deterministic kernel of an infinitely wide network.

    The paper learns V. If K is smooth, most of its eigenvalues are tiny, and very small entries of
    V in their directions take q far from the prior; a single optimiser step is enough. With
    `whiten`, V is L U with `K_ii = L L^T`, and U is learned. The divergence then depends only on U,
    delta and gamma. For a given K this is the same family of q; above other inverse Wishart layers
    V changes with each draw of K.

    Args:
        delta: Initial delta, positive.
        learn_delta: Whether delta is learned.
        whiten: Whether V is learned in the coordinates of K.
        **kwargs: `name`, `dtype`.

    Call arguments:
        blocks: `GramBlocks` of K.

    Returns:
        `GramBlocks` of G, S draws.

    Raises:
        ValueError: If `delta` is not positive, or the dtype is neither float32 nor float64.

    References:
        Aitchison, Yang & Ober (2021), "Deep kernel processes", ICML.
    """

    def __init__(
        self, delta: float = 100.0, *, learn_delta: bool = True, whiten: bool = True, **kwargs: Any
    ):
        super().__init__(**kwargs)
        self.initial_delta = checked_positive("delta", delta)
        self.learn_delta, self.whiten = bool(learn_delta), bool(whiten)

    def build(self, blocks_shape: Sequence[Shape]) -> None:
        size = blocks_shape[0][-1]
        self.posterior = InverseWishartPosterior(
            self, size, self.initial_delta, self.learn_delta, self.whiten
        )

    @property
    def delta(self) -> Tensor:
        """The parameter delta, a scalar tensor."""
        return self.posterior.delta

    def call(self, blocks: Sequence[Tensor]) -> GramBlocks:
        draws = current_draws()
        ii, it, tt = self.unpack(blocks)
        ii = self.with_jitter(ii)
        k_factor = draws.cholesky(ii)
        rotation = self.posterior.sample(draws, k_factor)
        given = equations.given_inducing(k_factor, it, tt, JITTER[tt.dtype.name])
        sample = self._sample_joint if draws.noise == "joint" else self._sample_pointwise
        noise, variance = sample(draws, given, it)
        return equations.assemble(k_factor, rotation, given.whitened + noise, variance)

    def _sample_pointwise(self, draws, given, it):
        dtype, size = it.dtype, self.posterior.size
        delta, seed = tf.cast(self.delta, dtype), draws.next_seed()
        extra = self.points_of_a_conditional(it)
        concentration = equations.point_concentration(delta, size, extra)
        samples, count = draws.num_samples, tf.shape(it)[-1]
        log_gamma = replicas.of_all_rows(
            lambda rows: bartlett.log_gamma(tf.broadcast_to(concentration, [samples, rows]), seed),
            1 if draws.noise == "shared" else count,
            axis=1,
        )
        noise = draws.point_normal([samples, size, count], dtype)
        return equations.point_given_inducing(given.variance, delta, log_gamma, noise)

    def _sample_joint(self, draws, given, it):
        factor = joint_factor(draws, given.covariance, given.variance)
        seed = draws.next_seed()
        shape = [draws.num_samples, self.posterior.size, tf.shape(it)[-1]]
        noise = draws.normal(shape, it.dtype)
        delta = tf.cast(self.delta, it.dtype)
        return equations.points_given_inducing(factor, delta, noise, seed)

    def points_of_a_conditional(self, it: Tensor) -> int | Tensor:
        """Returns the number of points that add to the degrees of freedom of each: 1.

        Args:
            it: Blocks `[S, P, N]`.
        """
        return 1

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "delta": self.initial_delta,
            "learn_delta": self.learn_delta,
            "whiten": self.whiten,
        }
