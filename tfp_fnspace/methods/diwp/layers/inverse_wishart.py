"""The inverse Wishart process as a layer."""

import keras
import tensorflow as tf

from tfp_fnspace.boundary.arguments import checked_positive
from tfp_fnspace.layers.draws import current_draws
from tfp_fnspace.math import bartlett, linalg
from tfp_fnspace.methods.diwp.layers import conditional
from tfp_fnspace.methods.diwp.layers.base import GramLayer, positive

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

    def __init__(self, layer, size, delta, learn_delta, whiten=True):
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
    def delta(self):
        return positive(self.log_delta)

    @property
    def v(self):
        """V, or U if it is whitened, `[k, k]`."""
        return _V_UNIT * tf.convert_to_tensor(self.v_in_units)

    def assign_v(self, v):
        """Sets V, or U if it is whitened."""
        self.v_in_units.assign(tf.cast(v, self.v_in_units.dtype) / _V_UNIT)

    def sample(self, draws, k_factor):
        r"""Draws M of `G = (L M)(L M)^T`, K = L L^T, and reports the divergence.

        With W = L^-1 V / sqrt(delta) = U / sqrt(delta), the scale of q is

            delta K + V V^T = delta L (I + W W^T) L^T.

        I + W W^T is factored, so that the divergence is never the difference of two large
        determinants. M is lower triangular: sqrt(delta) times the factor of I + W W^T times the
        inverse of Bartlett's factor.

        Args:
            draws: `FunctionDraws`.
            k_factor: L, `[S, k, k]` or `[1, k, k]`.

        Returns:
            Tensor `[S, k, k]`.
        """
        dtype = k_factor.dtype
        v, delta = tf.cast(self.v, dtype)[tf.newaxis], tf.cast(self.delta, dtype)
        root = tf.sqrt(delta)
        if not self.whiten:
            v = tf.linalg.triangular_solve(k_factor, tf.broadcast_to(v, tf.shape(k_factor)))
        w = v / root
        gram = linalg.outer_product(w)
        inner = draws.cholesky(tf.eye(self.size, dtype=dtype) + gram)
        draws.add_divergence(self.divergence(*linalg.log_determinant_and_trace(w, gram, inner)))
        df = delta + tf.cast(positive(self.log_gamma), dtype) + self.size + 1.0
        shape = [draws.num_samples, self.size, self.size]
        transposed = tf.broadcast_to(tf.linalg.matrix_transpose(inner), shape)
        solved = bartlett.solve_upper_factor(draws.next_seed(), df, transposed)
        return root * tf.linalg.matrix_transpose(solved)

    def divergence(self, excess, trace):
        r"""Returns `KL(q || p)` in closed form.

        With A = W W^T, nu_p = delta + k + 1 and nu_q = nu_p + gamma,

            nu_p/2 (log|I + A| - tr((I + A)^-1 A)) - gamma/2 tr((I + A)^-1 A)
            + log Gamma_k(nu_p/2) - log Gamma_k(nu_q/2) + gamma/2 psi_k(nu_q/2).

        Args:
            excess: The first bracket, `[S]`.
            trace: `tr((I + A)^-1 A)`, `[S]`.

        Returns:
            Tensor `[S]`.
        """
        # Float64 is cheap here, and large terms cancel as delta grows.
        delta, gamma = (
            positive(tf.cast(weight.value, tf.float64))
            for weight in (self.log_delta, self.log_gamma)
        )
        excess64, trace64 = tf.cast(excess, tf.float64), tf.cast(trace, tf.float64)
        k = self.size
        df_p = delta + k + 1.0
        df_q = df_p + gamma
        value = 0.5 * (df_p * excess64 - gamma * trace64)
        value += bartlett.log_multigamma(df_p, k) - bartlett.log_multigamma(df_q, k)
        value += 0.5 * gamma * bartlett.multidigamma(df_q, k)
        return tf.cast(value, excess.dtype)


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

    def __init__(self, delta=100.0, learn_delta=True, whiten=True, **kwargs):
        super().__init__(**kwargs)
        self.initial_delta = checked_positive("delta", delta)
        self.learn_delta, self.whiten = bool(learn_delta), bool(whiten)

    def build(self, blocks_shape):
        size = blocks_shape[0][-1]
        self.posterior = InverseWishartPosterior(
            self, size, self.initial_delta, self.learn_delta, self.whiten
        )

    @property
    def delta(self):
        """The parameter delta, a scalar tensor."""
        return self.posterior.delta

    def call(self, blocks):
        draws = current_draws()
        ii, it, tt = self.unpack(blocks)
        ii = self.with_jitter(ii)
        k_factor = draws.cholesky(ii)
        rotation = self.posterior.sample(draws, k_factor)
        given = conditional.given_inducing(k_factor, it, tt)
        delta, size = tf.cast(self.delta, ii.dtype), self.posterior.size
        if draws.noise == "joint":
            noise, variance = conditional.sample_joint(draws, given, delta, size)
        else:
            extra = self.points_of_a_conditional(it)
            noise, variance = conditional.sample_pointwise(draws, given, delta, size, extra)
        return conditional.assemble(k_factor, rotation, given.whitened + noise, variance)

    def points_of_a_conditional(self, it):
        """Returns the number of points that add to the degrees of freedom of each: 1.

        Args:
            it: Blocks `[S, P, N]`.
        """
        return 1

    def get_config(self):
        return {
            **super().get_config(),
            "delta": self.initial_delta,
            "learn_delta": self.learn_delta,
            "whiten": self.whiten,
        }
