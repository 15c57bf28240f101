r"""The equations of sparse implicit processes, in the order of the paper.

A process f (equation 5) can be drawn from, but has no density. Its values u at M inducing points Z
have a posterior without density, from which a network g draws. Given u, other values of the process
are treated as Gaussian:

    q(f, u) = p(f | u) q(u),    u = g(e),    e ~ N(0, I)                             (equation 8).

Training maximises, in g, Z, the likelihood and the prior,

    1/alpha sum_n log E_q p(y_n | f_n)^alpha - 1/2 [KL(q(u) || p(u)) + KL(p(u) || q(u))]      (12).

In this file are, with the equations of the paper in brackets,

    section 2.1   `classification` (3) and `log_ratio_divergences` (2, 10), by a discriminator
    section 2.2   `empirical_moments` (6); VIP: `gaussian_process_draws`, `linear_model_moments`,
                  `weight_divergence`
    section 3     `symmetrized` (11), `data_energy` and `loss` (9, 12), `conditional` (13),
                  `mixture` (8, 14), `matheron_draws`
    appendix B    `normal_part` (16, 19), `contrasted_divergences` (17); for AVB and AADM,
                  `divergences_from_standard_normal`

Three baselines share `data_energy` and `loss`. AVB and AADM have the weights w of a network in the
place of f and u: equation 4, the objective of AVB, is that of `alpha=0` with KL(q(w) || p(w)), and
AADM has other alpha. VIP has a divergence in closed form. `contrast` extends appendix B to normal
distributions with full covariances, which the paper does not have.

There are S draws, N points, D outputs, and K = M D values that a discriminator sees.
"""

from typing import NamedTuple

import tensorflow as tf

from tfp_fnspace.likelihoods import Likelihood
from tfp_fnspace.likelihoods.energy import data_term
from tfp_fnspace.math import linalg
from tfp_fnspace.math.row_weights import weighted
from tfp_fnspace.typing import GaussianMoments, Seed, Tensor

#: The least variance of `normal_moments`, in case a sampler has collapsed to a point.
_LEAST_VARIANCE = 1e-6


# Section 2.1: divergences of distributions that can only be sampled -------------------------------


def classification(at_q: Tensor, at_p: Tensor) -> tuple[Tensor, Tensor]:
    """Returns loss and accuracy of a discriminator, positive at q and negative at p if right.

        loss = -E_q log sigma(T) - E_p log(1 - sigma(T))                           (equation 3)

    The minimiser over all functions is `T = log q - log p`.

    Args:
        at_q: T at draws of q, `[S]`.
        at_p: T at draws of p, `[S]`.

    Returns:
        Pair of scalars.
    """
    loss = tf.reduce_mean(tf.nn.softplus(-at_q)) + tf.reduce_mean(tf.nn.softplus(at_p))
    right = [tf.cast(v > 0.0, v.dtype) for v in (at_q, -at_p)]
    return loss, 0.5 * tf.add_n([tf.reduce_mean(v) for v in right])


def log_ratio_divergences(at_q: Tensor, at_p: Tensor) -> tuple[Tensor, Tensor]:
    """Estimates both divergences from T = log q - log p.

        KL(q || p) = E_q T,    KL(p || q) = -E_p T                      (equations 2 and 10)

    Args:
        at_q: T at draws of q, `[S]`.
        at_p: T at draws of p, `[S]`.

    Returns:
        KL(q || p) and KL(p || q), scalars.
    """
    return tf.reduce_mean(at_q), -tf.reduce_mean(at_p)


# Section 2.2: implicit processes as Gaussian processes, and VIP -----------------------------------


class ProcessMoments(NamedTuple):
    """Moments of a process of D outputs at N points and at M inducing points.

    Attributes:
        mean_x: Tensor `[N, D]`.
        mean_z: Tensor `[M, D]`.
        zz: Covariances between inducing points, `[D, M, M]`.
        zx: Covariances of inducing points (rows) with points, `[D, M, N]`.
        xx: Variances at the points, `[D, N]`.
    """

    mean_x: Tensor
    mean_z: Tensor
    zz: Tensor
    zx: Tensor
    xx: Tensor


def empirical_moments(at_x: Tensor, at_z: Tensor) -> ProcessMoments:
    """Computes the moments of S draws of a process (equation 6).

        m(x) = 1/S sum_s f_s(x),   K(x, x') = 1/S sum_s (f_s(x) - m(x)) (f_s(x') - m(x'))

    Args:
        at_x: The draws at the points, `[S, N, D]`.
        at_z: The same draws at the inducing points, `[S, M, D]`.

    Returns:
        `ProcessMoments`.
    """
    mean_x, x = _centred(at_x)
    mean_z, z = _centred(at_z)
    variance = linalg.squared_column_norms(x)
    zz = linalg.outer_product(tf.linalg.matrix_transpose(z))
    return ProcessMoments(mean_x, mean_z, zz, tf.matmul(z, x, transpose_a=True), variance)


def _centred(draws: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the mean `[N, D]` and `(f_s - m) / sqrt(S)`, `[D, S, N]`."""
    mean = tf.reduce_mean(draws, axis=0)
    scale = tf.math.rsqrt(tf.cast(tf.shape(draws)[0], draws.dtype))
    return mean, tf.transpose((draws - mean) * scale, [2, 0, 1])


def gaussian_process_draws(draws: Tensor, coefficients: Tensor) -> Tensor:
    """Draws from the Gaussian process with the moments of equation 6, which is a linear model.

        g(x) = m(x) + S^-1/2 sum_s a_s (f_s(x) - m(x)),   a ~ N(0, I)

    Args:
        draws: The f_s at points, `[S, N, D]`.
        coefficients: a, `[n, D, S]`. The outputs are independent, as in the conditional.

    Returns:
        Tensor `[n, N, D]`.
    """
    mean, centred = _centred(draws)
    products = tf.matmul(tf.transpose(coefficients, [1, 0, 2]), centred)  # [D, n, N]
    return mean + tf.transpose(products, [1, 2, 0])


def linear_model_moments(draws: Tensor, mean: Tensor, cholesky: Tensor) -> GaussianMoments:
    """Computes the moments of f in VIP, the linear model with q(a) = N(mu, L L^T).

        E f(x) = m(x) + mu^T d(x),   Var f(x) = |L^T d(x)|^2,   d_s = S^-1/2 (f_s - m)

    Args:
        draws: The f_s at points, `[S, N, D]`.
        mean: mu, `[D, S]`.
        cholesky: L, `[D, S, S]`.

    Returns:
        `GaussianMoments`, tensors `[1, N, D]`.
    """
    f_mean = gaussian_process_draws(draws, mean[tf.newaxis])  # [1, N, D]
    columns = tf.transpose(cholesky, [2, 0, 1])  # [S, D, S]
    deviations = gaussian_process_draws(draws, columns) - tf.reduce_mean(draws, axis=0)
    return GaussianMoments(f_mean, tf.reduce_sum(tf.square(deviations), axis=0)[tf.newaxis])


def weight_divergence(mean: Tensor, cholesky: Tensor) -> Tensor:
    """Computes KL(q(a) || N(0, I)) of VIP over all outputs, q(a) = N(mu, L L^T).

        1/2 [tr L L^T + mu^T mu - S - log |L L^T|], summed over the outputs

    Args:
        mean: mu, `[D, S]`.
        cholesky: L, `[D, S, S]`.

    Returns:
        Scalar.
    """
    squares = tf.reduce_sum(tf.square(cholesky)) + tf.reduce_sum(tf.square(mean))
    count = tf.cast(tf.size(mean), mean.dtype)
    return 0.5 * (squares - count - tf.reduce_sum(linalg.log_determinant(cholesky)))


# Section 3: sparse implicit processes -------------------------------------------------------------


def symmetrized(forward: Tensor, reverse: Tensor) -> Tensor:
    """Returns the mean of KL(q || p) and KL(p || q), scalars (equation 11)."""
    return 0.5 * (forward + reverse)


def data_energy(
    likelihood: Likelihood,
    moments: GaussianMoments,
    targets: Tensor,
    alpha: float,
    seed: Seed,
    num_draws: int = 1,
    row_weights: Tensor | None = None,
) -> Tensor:
    """Computes the first term of equation 12 per row, the energy of BB-alpha with its sign changed.

        1/N 1/alpha sum_n log 1/S sum_s E[p(y_n | f_n)^alpha | u_s]

    At `alpha=0`, its limit, it is the first term of equations 1 and 9, the expected log density.

    Args:
        likelihood: p(y | f).
        moments: Moments of f given each draw u_s, `[S, N, D]`; with `variance=None` for draws of f.
        targets: y, `[N, D]`.
        alpha: Number from 0 to 1.
        seed: int32 tensor `[2]`.
        num_draws: Draws of f, if the expectation given u_s has no closed form (see `data_term`).
        row_weights: `[N]`, factors of the terms of the rows, or `None`.

    Returns:
        Scalar.
    """
    term = data_term(likelihood, moments, targets, alpha, seed, num_draws=num_draws)
    return tf.reduce_mean(weighted(term, row_weights))


def loss(
    log_likelihood: Tensor,
    divergence: Tensor,
    num_rows: Tensor | float,
    kl_weight: Tensor | float = 1.0,
) -> Tensor:
    """Computes what training minimises, the objective (equation 12) divided by -N.

    With KL(q || p) alone and the energy at `alpha=0`, the objective is equation 9, or 4 in weights.

    Args:
        log_likelihood: `data_energy`, a scalar.
        divergence: The divergence, which belongs to all rows together, a scalar.
        num_rows: N.
        kl_weight: beta, which rises from 0 to 1 in a warm-up (section 5.2).

    Returns:
        Scalar.
    """
    return kl_weight * divergence / num_rows - log_likelihood


class Conditional(NamedTuple):
    r"""The Gaussian distribution of values at points given values u at inducing points (eq. 13).

        f(x) | u ~ N(m(x) + w(x)^T (u - m(Z)), k(x)),   w(x) = (K_zz + j I)^-1 K_zx,
        k(x) = K_xx - K_xz (K_zz + j I)^-1 K_zx

    for each output separately.

    Attributes:
        mean_x: m(x), `[N, D]`.
        mean_z: m(Z), `[M, D]`.
        weights: w, `[D, M, N]`.
        variance: k, `[N, D]`.
        jitter: j, `[D]`, sigma^2 in the paper.
        num_jittered: Number of matrices that needed more jitter than was given, int32.
    """

    mean_x: Tensor
    mean_z: Tensor
    weights: Tensor
    variance: Tensor
    jitter: Tensor
    num_jittered: Tensor


def conditional(moments: ProcessMoments, jitter: float) -> Conditional:
    """Computes the distribution given values at the inducing points (equation 13).

    Args:
        moments: `ProcessMoments`.
        jitter: Variance added to the diagonal of `K_zz`, a number. If the sum is not positive
            definite in floating point, more is added (`math.linalg.cholesky`) and counted.

    Returns:
        `Conditional`.
    """
    diagonal = tf.linalg.diag_part(moments.zz)
    factor, extra = linalg.cholesky(tf.linalg.set_diag(moments.zz, diagonal + jitter))
    half = tf.linalg.triangular_solve(factor, moments.zx)  # [D, M, N]
    variance = tf.maximum(moments.xx - linalg.squared_column_norms(half), 0.0)
    return Conditional(
        moments.mean_x,
        moments.mean_z,
        tf.linalg.triangular_solve(factor, half, adjoint=True),
        tf.transpose(variance),
        jitter + extra,
        tf.math.count_nonzero(extra, dtype=tf.int32),
    )


def mixture(given: Conditional, u: Tensor) -> GaussianMoments:
    """Returns the S Gaussian components of q(f) = 1/S sum_s p(f | u_s) (equations 8 and 14).

    Args:
        given: `Conditional`.
        u: Draws of q(u), `[S, M, D]`.

    Returns:
        `GaussianMoments`, tensors `[S, N, D]`.
    """
    mean = given.mean_x + _applied(given.weights, u - given.mean_z)
    return GaussianMoments(mean, tf.broadcast_to(given.variance, tf.shape(mean)))


def matheron_draws(
    given: Conditional, u: Tensor, process_x: Tensor, process_z: Tensor, normal: Tensor
) -> Tensor:
    r"""Draws f given u by Matheron's rule, which the paper does not have.

        f(x) = g(x) + w(x)^T (u - g(Z) - sqrt(j) e)

    has the distribution of f given u, if g is a Gaussian process with the moments of the process
    and e is standard normal. It is a function of x.

    Args:
        given: `Conditional`.
        u: Tensor `[S, M, D]`.
        process_x: g at the points, `[S, N, D]`, for example by `gaussian_process_draws`.
        process_z: g at the inducing points, `[S, M, D]`.
        normal: e, `[S, M, D]`.

    Returns:
        Tensor `[S, N, D]`.
    """
    return process_x + _applied(given.weights, u - process_z - tf.sqrt(given.jitter) * normal)


def _applied(weights: Tensor, values: Tensor) -> Tensor:
    """Returns `w(x)^T v` for each output, given `[D, M, N]` and `[S, M, D]`, as `[S, N, D]`."""
    products = tf.matmul(tf.transpose(values, [2, 0, 1]), weights)  # [D, S, N]
    return tf.transpose(products, [1, 2, 0])


# Appendix B: adaptive contrast --------------------------------------------------------------------


class NormalPart(NamedTuple):
    """Draws of q and p, standardised by normal distributions q_bar and p_bar with their moments.

    Attributes:
        by_q: Draws of q and of p, standardised by q_bar: q_0 and p_q in equation 19, `[S, K]`.
        by_p: Draws of q and of p, standardised by p_bar: q_p and p_0 in equation 19, `[S, K]`.
        forward: KL(q_bar || p_bar), a scalar.
        reverse: KL(p_bar || q_bar), a scalar.
        num_jittered: Number of covariances that needed more on their diagonal, int32.
    """

    by_q: list[Tensor]
    by_p: list[Tensor]
    forward: Tensor
    reverse: Tensor
    num_jittered: Tensor | int = 0


def normal_moments(draws: Tensor) -> tuple[Tensor, Tensor]:
    """Returns means and variances of draws `[S, K]`, tensors `[K]` (equation 16)."""
    mean, variance = tf.nn.moments(draws, axes=[0])
    return mean, variance + _LEAST_VARIANCE


def standardized(values: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """Standardises values by moments, which are constants in the gradient (equation 19)."""
    mean, variance = map(tf.stop_gradient, (mean, variance))
    return (values - mean) * tf.math.rsqrt(variance)


def normal_divergence(of: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor]) -> Tensor:
    """Computes the KL divergence of two normal distributions of independent values.

    As an estimate for the distributions of the draws, it is too large: with S draws of q and known
    p, by about 1 / S nats for each value, whatever q is.

    Args:
        of: Means and variances of the first distribution, `[K]`.
        other: Means and variances of the second one, `[K]`.

    Returns:
        Scalar.
    """
    (mean, variance), (other_mean, other_variance) = of, other
    ratio = variance / other_variance
    squares = tf.square(mean - other_mean) / other_variance
    return 0.5 * tf.reduce_sum(ratio + squares - 1.0 - tf.math.log(ratio))


def normal_part(q: Tensor, p: Tensor) -> NormalPart:
    """Computes the part of two distributions that normal distributions of independent values have.

    Args:
        q: Draws `[S, K]`.
        p: Draws `[S, K]`.

    Returns:
        `NormalPart`.
    """
    of_q, of_p = normal_moments(q), normal_moments(p)
    return NormalPart(
        [standardized(v, *of_q) for v in (q, p)],
        [standardized(v, *of_p) for v in (q, p)],
        normal_divergence(of_q, of_p),
        normal_divergence(of_p, of_q),
    )


def contrasted_divergences(
    t_q: list[Tensor], t_p: list[Tensor], part: NormalPart
) -> tuple[Tensor, Tensor]:
    """Estimates both divergences from T_q = log q - log q_bar and T_p = log p - log p_bar.

        KL(q || p) = E_q[T_q - T_p] + KL(q_bar || p_bar),
        KL(p || q) = E_p[T_p - T_q] + KL(p_bar || q_bar)                  (equation 17)

    Args:
        t_q: T_q at draws of q and of p, `[S]`.
        t_p: T_p at draws of q and of p, `[S]`.
        part: `NormalPart` of the draws.

    Returns:
        KL(q || p) and KL(p || q), scalars.
    """
    forward = tf.reduce_mean(t_q[0] - t_p[0]) + part.forward
    reverse = tf.reduce_mean(t_p[1] - t_q[1]) + part.reverse
    return forward, reverse


def divergences_from_standard_normal(
    at_q: Tensor, at_p: Tensor, of_q: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor]:
    """Estimates both divergences of q and a standard normal p from T = log q - log q_bar.

        KL(q || p) = E_q T + KL(q_bar || p),    KL(p || q) = KL(p || q_bar) - E_p T

    Args:
        at_q: T at draws of q, `[S]`.
        at_p: T at draws of p, `[S]`.
        of_q: `normal_moments` of the draws of q.

    Returns:
        KL(q || p) and KL(p || q), scalars.

    References:
        Mescheder, Nowozin and Geiger (2017), "Adversarial variational Bayes", ICML, section 3.3.
    """
    standard = tf.zeros_like(of_q[0]), tf.ones_like(of_q[1])
    forward = tf.reduce_mean(at_q) + normal_divergence(of_q, standard)
    return forward, normal_divergence(standard, of_q) - tf.reduce_mean(at_p)
