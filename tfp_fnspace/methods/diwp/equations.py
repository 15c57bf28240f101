r"""Deep inverse Wishart processes: the equations of the paper, in its order.

The model has P points with inputs X, `[P, N_0]`, and kernels K(G) of Gram matrices:

    Omega ~ W^-1(delta_1 I, delta_1 + N_0 + 1),     G_1 = X Omega X^T / N_0,
    G_l ~ W^-1(delta_l K(G_{l-1}), delta_l + P + 1),     l = 2 ... L,                         (18)
    f_d ~ N(0, K(G_L)),     d = 1 ... D,     y ~ p(y | f).

W^-1(Psi, nu) is SciPy's `invwishart(df=nu, scale=Psi)`. The paper's experiments have no Omega, and
their first Gram matrix is `X X^T / N_0`. The sections of this file are

    the generative model                sections 4 and 5.1, appendices F and H
    the posterior of a Gram matrix      section 5.2, appendix F
    the posterior of the output         section 5.2, appendix G
    the bound                           section 5.3, equations 23 to 29
    the data given inducing points      section 5.3, equations 30 to 34, appendix I

The kernels (equations 13 to 17) are in `tfp_fnspace.kernels`, and the densities (equation 3) in
`tfp_fnspace.distributions`. `docs/notation.md` lists the letters and the misprints of the paper.

Shapes have S draws, P inducing points, N data points and D outputs. Matrices are handled by their
factors: with K_ii = L L^T, a draw is G_ii = C C^T with C = L M.

References:
    Aitchison, Yang & Ober (2021), "Deep kernel processes", ICML.
"""

import math
from typing import NamedTuple

import tensorflow as tf

from tfp_fnspace.distributions import InverseWishart, SingularWishart, Wishart
from tfp_fnspace.math import bartlett, linalg, random
from tfp_fnspace.typing import GramBlocks, Seed, Tensor

#: The least variance of a data point given the inducing points. That of an output is also at least
#: this multiple of its prior variance.
_TINY, _LEAST_OF_OUTPUT = 1e-20, 1e-10


# The generative model: sections 4 and 5.1 ---------------------------------------------------------


def wishart(factor: Tensor, width: float, num_samples: int, seed: Seed) -> Tensor:
    """Draws `G ~ W(K / N, N)`, whose mean is K (equations 4a and 8b).

    Args:
        factor: L with K = L L^T, `[..., P, P]`.
        width: N, any number above P - 1, or a positive integer.
        num_samples: S.
        seed: int32 tensor `[2]`.

    Returns:
        Tensor `[S, ..., P, P]`, of rank N if N < P.
    """
    root = factor / math.sqrt(width)
    if width > factor.shape[-1] - 1:
        distribution = Wishart(tf.constant(width, factor.dtype), scale_tril=root)
    else:
        distribution = SingularWishart(int(width), scale_tril=root)
    return distribution.sample(num_samples, seed=seed)


def inverse_wishart(factor: Tensor, delta: float, num_samples: int, seed: Seed) -> Tensor:
    """Draws `G ~ W^-1(delta K, delta + P + 1)`, whose mean is K (equations 4c, 18 and 19).

    Args:
        factor: L with K = L L^T, `[..., P, P]`.
        delta: Positive number.
        num_samples: S.
        seed: int32 tensor `[2]`.

    Returns:
        Tensor `[S, ..., P, P]`.
    """
    df = tf.constant(delta + factor.shape[-1] + 1.0, factor.dtype)
    distribution = InverseWishart(df, scale_tril=math.sqrt(delta) * factor)
    return distribution.sample(num_samples, seed=seed)


def residual_wishart(
    factor: Tensor, width: int, residual: float, num_samples: int, seed: Seed
) -> Tensor:
    """Draws `G = L W W^T L^T`, `W = (xi / sqrt(N) + a I) / sqrt(1 + a^2)` (equations 99, 102, 103).

    Args:
        factor: L with K = L L^T, `[..., P, P]`.
        width: N, an integer of at least P.
        residual: a >= 0, the weight of the skip connection.
        num_samples: S.
        seed: int32 tensor `[2]`, for the standard normal matrix xi.

    Returns:
        Tensor `[S, ..., P, P]`.
    """
    shape = tf.concat([[num_samples], tf.shape(factor)[:-1], [width]], axis=0)
    noise = random.normal(shape, seed, factor.dtype) / math.sqrt(width)
    weights = noise + residual * tf.eye(factor.shape[-1], width, dtype=factor.dtype)
    root = tf.matmul(factor, weights / math.sqrt(1.0 + residual**2))
    return linalg.outer_product(root)


def input_gram(features: Tensor, omega: Tensor | None = None) -> Tensor:
    """Computes `X X^T / N_0` (equation 5a), or `X Omega X^T / N_0` (equations 18, 94 and 95).

    Args:
        features: X, `[P, N_0]`.
        omega: Omega, `[S, N_0, N_0]`, or `None`.

    Returns:
        Tensor `[S, P, P]`, with S = 1 if there is no Omega.
    """
    scaled = features / math.sqrt(features.shape[-1])
    if omega is None:
        return linalg.outer_product(scaled[tf.newaxis])
    gram = tf.matmul(tf.matmul(scaled, omega), scaled, transpose_b=True)
    return 0.5 * (gram + tf.linalg.matrix_transpose(gram))


def gram_of_features(
    inducing: Tensor, data: Tensor, joint: bool, constant: Tensor | None = None
) -> GramBlocks:
    """Computes `F F^T / N_l + c^2` in the blocks of equation 22 (equations 5a, 5c and 15).

    Args:
        inducing: Features F of the inducing points, `[S, P, N_l]`.
        data: Features of the data, `[S, N, N_l]`.
        joint: Whether `tt` is the matrix between all data points, instead of its diagonal.
        constant: c^2, a scalar, or `None` for 0.

    Returns:
        `GramBlocks`.
    """
    size = tf.cast(tf.shape(inducing)[-1], inducing.dtype)
    if joint:
        tt = tf.matmul(data, data, transpose_b=True) / size
    else:
        tt = tf.reduce_sum(tf.square(data), axis=-1) / size
    ii = tf.matmul(inducing, inducing, transpose_b=True) / size
    blocks = GramBlocks(ii, tf.matmul(inducing, data, transpose_b=True) / size, tt)
    return blocks if constant is None else GramBlocks(*(block + constant for block in blocks))


def gaussian_functions(factor: Tensor, units: int, seed: Seed) -> Tensor:
    """Draws D independent functions `f_d ~ N(0, K)` (equations 5b, 8c and 18).

    Args:
        factor: L with K = L L^T, `[S, P, P]`.
        units: D.
        seed: int32 tensor `[2]`.

    Returns:
        Tensor `[S, P, D]`.
    """
    shape = tf.concat([tf.shape(factor)[:-1], [units]], axis=0)
    return tf.matmul(factor, random.normal(shape, seed, factor.dtype))


# The posterior of a Gram matrix: section 5.2, appendix F ------------------------------------------
#
# q(G_ii) = W^-1(delta K_ii + V V^T, delta + gamma + P + 1) (equation 21). For Omega, K_ii is the
# identity and P is N_0 (equation 96). With W = L^-1 V / sqrt(delta) the scale of q is
# delta L (I + W W^T) L^T. I + W W^T is factored, so that the divergence is never the difference of
# two large determinants.


def relative_scale(v: Tensor, delta: Tensor, factor: Tensor | None) -> tuple[Tensor, Tensor]:
    """Computes `W = L^-1 V / sqrt(delta)` and `W W^T` (equations 21 and 96).

    Args:
        v: V, or U of V = L U, `[1, P, P]`.
        delta: Scalar.
        factor: L, `[S, P, P]`, if V is given, `None` if U is.

    Returns:
        Two tensors, `[S, P, P]` or `[1, P, P]`.
    """
    if factor is not None:
        v = tf.linalg.triangular_solve(factor, tf.broadcast_to(v, tf.shape(factor)))
    w = v / tf.sqrt(delta)
    return w, linalg.outer_product(w)


def posterior_rotation(
    inner: Tensor, delta: Tensor, gamma: Tensor, size: int, num_samples: int, seed: Seed
) -> Tensor:
    """Draws M of `G_ii = (L M)(L M)^T` from q (equations 21 and 96).

    M is sqrt(delta) times the factor of I + W W^T times the inverse of Bartlett's factor.

    Args:
        inner: Cholesky factor of I + W W^T, `[S, P, P]` or `[1, P, P]`.
        delta: Scalar.
        gamma: Scalar.
        size: P.
        num_samples: S.
        seed: int32 tensor `[2]`.

    Returns:
        Lower triangular tensor `[S, P, P]`.
    """
    transposed = tf.broadcast_to(tf.linalg.matrix_transpose(inner), [num_samples, size, size])
    solved = bartlett.solve_upper_factor(seed, delta + gamma + size + 1.0, transposed)
    return tf.sqrt(delta) * tf.linalg.matrix_transpose(solved)


def gram_divergence(
    w: Tensor, gram: Tensor, inner: Tensor, delta: Tensor, gamma: Tensor, size: int
) -> Tensor:
    r"""Returns `KL(q(G_ii) || p(G_ii))`, the part of the bound of one layer, in closed form.

    With A = W W^T, nu_p = delta + P + 1 and nu_q = nu_p + gamma (equations 18 and 21), it is

        nu_p/2 (log|I + A| - tr((I + A)^-1 A)) - gamma/2 tr((I + A)^-1 A)
        + log Gamma_P(nu_p/2) - log Gamma_P(nu_q/2) + gamma/2 psi_P(nu_q/2).

    Args:
        w: W, `[S, P, P]` or `[1, P, P]`.
        gram: A.
        inner: Cholesky factor of I + A.
        delta: Scalar in float64, in which large terms cancel as delta grows.
        gamma: Scalar in float64.
        size: P.

    Returns:
        Tensor `[S]` or `[1]`.
    """
    excess, trace = linalg.log_determinant_and_trace(w, gram, inner)
    excess64, trace64 = tf.cast(excess, tf.float64), tf.cast(trace, tf.float64)
    df_p = delta + size + 1.0
    df_q = df_p + gamma
    value = 0.5 * (df_p * excess64 - gamma * trace64)
    value += bartlett.log_multigamma(df_p, size) - bartlett.log_multigamma(df_q, size)
    value += 0.5 * gamma * bartlett.multidigamma(df_q, size)
    return tf.cast(value, w.dtype)


# The posterior of the output: section 5.2, appendix G ---------------------------------------------
#
# q(f_i) ~ N(f_i; 0, K_ii) N(v; f_i, A) for each output, with the inverse A = T T^T of Lambda
# (equations 97 and 98). With C = K_ii + A, the moments in equation 21 are E[f_i] = K_ii C^-1 v and
# cov[f_i] = K_ii - K_ii C^-1 K_ii.


def covariance_of_targets(ii: Tensor, noise_factor: Tensor) -> Tensor:
    """Computes `C = K_ii + T T^T`, the prior covariance of the pseudo-targets v.

    Args:
        ii: K_ii, `[S, P, P]`.
        noise_factor: T, `[D or 1, P, P]`.

    Returns:
        Tensor `[S, D or 1, P, P]`.
    """
    return tf.expand_dims(ii, 1) + linalg.outer_product(noise_factor)


def output_divergence(c_factor: Tensor, v: Tensor, noise_factor: Tensor) -> tuple[Tensor, Tensor]:
    """Computes `KL(q(f_i) || p(f_i)) = E_q[log N(v; f_i, A)] - log N(v; 0, C)` of all outputs.

    Args:
        c_factor: L_C with C = L_C L_C^T, `[S, D or 1, P, P]`.
        v: Pseudo-targets, `[D, P]`.
        noise_factor: T, lower triangular with positive diagonal, `[D or 1, P, P]`.

    Returns:
        `L_C^-1 v`, `[S, D, P, 1]`, and the divergence, `[S]`.
    """
    whitened = linalg.solve_lower(c_factor, v[:, :, tf.newaxis])
    units, size = tf.cast(v.shape[0], v.dtype), v.shape[1]
    copies = units / tf.cast(tf.shape(noise_factor)[0], v.dtype)
    solved = linalg.solve_lower(c_factor, whitened, adjoint=True)  # C^-1 v
    residual = tf.matmul(noise_factor, solved, transpose_a=True)
    misfit = tf.reduce_sum(tf.square(residual), axis=[1, 2, 3])
    evidence = tf.reduce_sum(tf.square(whitened), axis=[1, 2, 3])
    trace = tf.reduce_sum(linalg.squared_norm_of_solution(c_factor, noise_factor), axis=1)
    log_determinants = linalg.log_determinant(c_factor) - linalg.log_determinant(noise_factor)
    log_determinants = tf.reduce_sum(log_determinants, axis=1)
    rest = copies * (log_determinants + trace) - units * size  # the other constants cancel
    return whitened, 0.5 * (evidence - misfit + rest)


# The bound: section 5.3 ---------------------------------------------------------------------------


def bound(
    log_likelihoods: Tensor, divergence: Tensor, num_rows: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Computes the evidence lower bound (equation 27), divided by the number of rows.

    The conditional priors of the data cancel in equation 23. By equations 28 and 29, the divergence
    is the sum over layers of `gram_divergence` and `output_divergence`, averaged over draws.

    Args:
        log_likelihoods: `E_q log p(y_n | f_n)` of the rows of a batch, `[N]`.
        divergence: Scalar.
        num_rows: Number of rows of the data, a scalar.

    Returns:
        The bound and its two parts, scalars: mean log likelihood, and divergence per row.
    """
    log_likelihood, kl = tf.reduce_mean(log_likelihoods), divergence / num_rows
    return log_likelihood - kl, log_likelihood, kl


# The data given the inducing points: section 5.3, appendix I --------------------------------------


class GivenInducing(NamedTuple):
    """A kernel matrix of the data given the inducing points.

    Attributes:
        whitened: `a = L^-1 K_it`, `[S, P, N]`.
        variance: Diagonal of `K_tt.i = K_tt - a^T a`, `[S, N]`, positive.
        covariance: The matrix, `[S, N, N]`, for the joint distribution of all points; else `None`.
    """

    whitened: Tensor
    variance: Tensor
    covariance: Tensor | None = None


def given_inducing(factor: Tensor, it: Tensor, tt: Tensor, least: float) -> GivenInducing:
    """Computes the Schur complement `K_tt.i = K_tt - K_ti K_ii^-1 K_it` (equations 33 and 105).

    Args:
        factor: L, `[S, P, P]`.
        it: K_it, `[S, P, N]`.
        tt: K_tt, `[S, N, N]`, or its diagonal, `[S, N]`.
        least: The least variance of the result, relative to that of the prior.

    Returns:
        `GivenInducing`.
    """
    is_joint = tt.shape.rank == it.shape.rank
    return _schur_complement(tf.linalg.triangular_solve(factor, it), tt, is_joint, least)


def point_concentration(delta: Tensor, num_inducing: int, num_points: int | Tensor = 1) -> Tensor:
    """Returns the first parameter of the inverse gamma distribution in equation 106.

    Args:
        delta: Scalar.
        num_inducing: P.
        num_points: P_t of the equation, which is 1 for a point by itself.

    Returns:
        Scalar.
    """
    return 0.5 * (delta + num_inducing + 1.0 + tf.cast(num_points, delta.dtype))


def point_given_inducing(
    variance: Tensor, delta: Tensor, log_gamma: Tensor, noise: Tensor
) -> tuple[Tensor, Tensor]:
    """Draws G at each data point by itself (equations 106 and 107).

        g_tt.i ~ InverseGamma((delta + P + 2)/2, delta k_tt.i / 2),
        L^T G_ii^-1 g_it ~ N(a, g_tt.i / delta I).

    Args:
        variance: k_tt.i, `[S, N]`.
        delta: Scalar.
        log_gamma: Logarithms of gamma draws of concentration `point_concentration`, `[S, N or 1]`.
        noise: Standard normal draws, `[S, P, N or 1]`.

    Returns:
        What is added to a, `[S, P, N]`, and g_tt.i, `[S, N]`.
    """
    drawn = 0.5 * delta * variance * tf.exp(-log_gamma)
    return noise * tf.expand_dims(tf.sqrt(drawn / delta), -2), drawn


def points_given_inducing(
    factor: Tensor, delta: Tensor, noise: Tensor, seed: Seed
) -> tuple[Tensor, Tensor]:
    """Draws G jointly at all data points (equation 34).

        G_tt.i ~ W^-1(delta K_tt.i, delta + P + N + 1),
        L^T G_ii^-1 G_it ~ MN(a, I / delta, G_tt.i).

    Args:
        factor: Lower triangular factor of K_tt.i, `[S, N, N]` or `[1, N, N]`.
        delta: Scalar.
        noise: Standard normal draws, `[S, P, N]`.
        seed: int32 tensor `[2]`.

    Returns:
        What is added to a, `[S, P, N]`, and G_tt.i, `[S, N, N]`.
    """
    samples, num_inducing, count = tf.unstack(tf.shape(noise))
    root = tf.sqrt(delta)
    df = delta + tf.cast(num_inducing + 1 + count, delta.dtype)
    transposed = tf.linalg.matrix_transpose(root * factor)
    transposed = tf.broadcast_to(transposed, [samples, count, count])
    drawn = bartlett.solve_upper_factor(seed, df, transposed)  # G_tt.i = drawn^T drawn
    return tf.matmul(noise, drawn) / root, tf.matmul(drawn, drawn, transpose_a=True)


def assemble(k_factor: Tensor, rotation: Tensor, whitened: Tensor, variance: Tensor) -> GramBlocks:
    """Assembles the blocks of G without a further factorisation (equation 32).

        B = C^T G_ii^-1 G_it = M^T (a + noise),     C = L M,
        G_ii = C C^T,     G_it = C B,     G_tt = G_tt.i + B^T B.

    Args:
        k_factor: L, `[S, P, P]` or `[1, P, P]`.
        rotation: M, `[S, P, P]`.
        whitened: a + noise, which is `L^T G_ii^-1 G_it`, `[S, P, N]`.
        variance: g_tt.i, `[S, N]`, or G_tt.i, `[S, N, N]`.

    Returns:
        `GramBlocks`.
    """
    factor = tf.matmul(k_factor, rotation)
    coordinates = tf.matmul(rotation, whitened, transpose_a=True)
    if variance.shape.rank == coordinates.shape.rank:
        tt = variance + tf.matmul(coordinates, coordinates, transpose_a=True)
    else:
        tt = variance + linalg.squared_column_norms(coordinates)
    return GramBlocks(ii=linalg.outer_product(factor), it=tf.matmul(factor, coordinates), tt=tt)


def output_given_inducing(
    c_factor: Tensor, whitened: Tensor, it: Tensor, tt: Tensor
) -> tuple[Tensor, GivenInducing]:
    """Computes `E[f_t] = K_ti C^-1 v` and `cov[f_t] = K_tt - K_ti C^-1 K_it`.

    These are the moments of the first factor of equation 30, averaged over f_i of equation 21.

    Args:
        c_factor: L_C, `[S, D or 1, P, P]`.
        whitened: `L_C^-1 v`, `[S, D, P, 1]`.
        it: K_it, `[S, P, N]`.
        tt: K_tt, `[S, N, N]`, or its diagonal, `[S, N]`.

    Returns:
        Mean `[S, D, N]`, and `GivenInducing` with C for K_ii, whose parts have a second axis D or
        1.
    """
    is_joint = tt.shape.rank == it.shape.rank
    cross = linalg.solve_lower(c_factor, tf.expand_dims(it, 1))  # [S, D or 1, P, N]
    mean = tf.squeeze(tf.matmul(whitened, cross, transpose_a=True), -2)
    return mean, _schur_complement(cross, tf.expand_dims(tt, 1), is_joint, _LEAST_OF_OUTPUT)


def _schur_complement(whitened, tt, is_joint, least):
    covariance = None
    if is_joint:
        covariance = tt - tf.matmul(whitened, whitened, transpose_a=True)
        tt = tf.linalg.diag_part(tt)
    variance = tt - linalg.squared_column_norms(whitened)
    # This bounds rounding errors, and gives the square root a gradient where the kernel is 0.
    variance = tf.maximum(variance, least * tt + _TINY)
    return GivenInducing(whitened, variance, covariance)
