r"""The mathematics of the stable process, in the order of the paper.

A network with one hidden layer of sign units g(x) = sign(b + w.x), (b, w) standard normal, has
symmetric alpha-stable output weights. As its width grows, it tends to an alpha-stable process f
(Proposition 1, section 2):

    E exp(i t.f) = exp(-(nu/2)^(alpha/2) E|t.g|^alpha),                                          (3)
    E|t.g|^alpha = sum_l q_l |sum_j t_j tau_l(x_j)|^alpha.                                       (4)

tau_l are the ways in which a hyperplane splits the points x_j, and q_l are their probabilities.
Given latent positive scales s_l, the process is Gaussian (Theorem 1):

    y | s ~ N(0, Q),    Q = nu sum_l q_l^(2/alpha) s_l tau_l tau_l^T + sigma^2 I,
    s_l ~ S+(alpha/2), independent,    E exp(-r s_l) = exp(-r^(alpha/2)).

Equivalently, `f(x) = sum_l beta_l tau_l(x)` with `beta_l | s_l ~ N(0, nu q_l^(2/alpha) s_l)`, and
`y = f(x) + e` with `e ~ N(0, sigma^2 I)`. Markov chains sample the posterior of s and sigma^2, and
equations (5) and (6) predict from each of their states.

The code adds four things to the paper. Atoms l with one pattern on the data form a group g, and Q
depends only on its total `S_g = sum_{l in g} q_l^(2/alpha) s_l`. Kanter's variables (u, e) stand
for the scales, whose density has no closed form. alpha and nu may have priors. Student-t noise has
the covariance sigma^2 W, W diagonal; Gaussian noise has W = I.

| paper | here | elsewhere |
|---|---|---|
| (3), (4) | | `distributions.stable_process.prior` |
| 2.1, S.1: tau_l, q_l | `signs`, `separation` | `hyperplanes` finds all tau_l |
| Theorem 1: s_l | `index_of` to `log_scales_of_masses` | `samplers.state` draws them |
| Theorem 1: Q, p(y given s) | `function_covariance` to `precision_of_spectrum` | |
| Proposition 2: (5), (6) | `function_values` to `predictive_moments` | `draws` |
| section 3: priors, choice of alpha, nu | `log_noise_prior` to `log_nu_prior` | `validation` |
| S.2: acceptance | `log_ratio`, `gain`, `update_twice` | `samplers.metropolis`, `samplers.sweep` |
| not in the paper | `scales_with_kanter_kept` to the end | `samplers.hyper`, `samplers.relocate` |

`distributions.stable_process.gaussian.conditional` is (5) for given scales in closed form.

Shapes: B chains, N points, L atoms, G groups, I inputs. Arguments of one name are the same thing:

| argument | shape | meaning |
|---|---|---|
| `u`, `log_e`, `log_scales` | `[..., L]` | Kanter's u, log e, log s |
| `log_probability` | `[L]` | log q |
| `alpha`, `new_alpha` | broadcasts with the scales, such as `[B, 1]` | index of the process |
| `signs` | `[N, L]` or `[N, G]` | tau, -1 or +1 |
| `totals` | `[B, G]` | S |
| `covariance` | `[B, N, N]` | sum_g S_g tau_g tau_g^T |
| `noise_weights` | `[B, N]` | the diagonal of W |
| `log_noise`, `log_nu` | `[B]` | log sigma^2, log nu |
| `factor` | `[B, N, N]` | lower Cholesky factor of Q |
| `targets` | `[B, N]` | y |

References:
    Loria & Bhadra (2023), "Posterior Inference on Infinitely Wide Bayesian Neural Networks under
    Weights with Unbounded Variance".
"""

import math
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfp_fnspace.math import kanter
from tfp_fnspace.typing import Array, GaussianMoments, Seed, Tensor

# Section 2.1 and S.1: patterns and their probabilities ------------------------------------------


def signs(x: Tensor, hyperplanes: Tensor) -> Tensor:
    """Returns `tau_l(x) = sign(b_l + w_l.x)`, `[N, L]`, for points `[N, I]`.

    It is +1 on a hyperplane. The paper has sign(0) = 0, an event of probability zero.

    Args:
        x: Tensor `[N, I]`.
        hyperplanes: Tensor `[L, I+1]`, (b_l, w_l).

    Returns:
        float32 tensor `[N, L]`.
    """
    side = tf.matmul(x, hyperplanes[:, 1:], transpose_b=True) + hyperplanes[:, 0]
    return tf.where(side >= 0.0, 1.0, -1.0)


def separation(x: Array, other: Array, side: Array) -> Array:
    """Returns pi times the probability that a hyperplane separates two points on a line (S.1).

    It is `arctan x' - arctan x` for neighbours x < x'. With `side` -1 it is pi times the
    probability that both are on one side, `pi - (arctan x' - arctan x)`, which is q of the pattern
    without a change if x and x' are the first and the last point. The signs in S.1 are wrong there.

    Args:
        x: NumPy array `[n]`.
        other: NumPy array `[n]`, x'.
        side: NumPy array `[n]` of +1 and -1.

    Returns:
        NumPy array `[n]`, in radians.
    """
    size, other_size = np.hypot(1.0, x), np.hypot(1.0, other)
    # A difference of arctangents would cancel for neighbours far from zero.
    sine = np.abs(other - x) / size / other_size
    cosine = (1.0 + x * other) / size / other_size
    return np.arctan2(sine, side * cosine)


# Theorem 1: the scales --------------------------------------------------------------------------


def index_of(alpha: Tensor) -> Tensor:
    """Returns alpha/2, the index of the scales; just below 1 at alpha = 2, where s rounds to 1."""
    return tf.minimum(alpha / 2.0, 1.0 - 1e-9)


def log_scales_of(u: Tensor, log_e: Tensor, alpha: Tensor) -> Tensor:
    """Returns `log s`, `[..., L]`: s ~ S+(alpha/2) if u ~ U(0, 1) and e ~ Exp(1) (Kanter)."""
    return kanter.log_scale(u, log_e, index_of(alpha))


def log_exponentials_of(u: Tensor, log_scales: Tensor, alpha: Tensor) -> Tensor:
    """Returns `log e`, `[..., L]`: the inverse of `log_scales_of` in its second argument."""
    return kanter.log_exponential(u, log_scales, index_of(alpha))


def log_scale_density(u: Tensor, log_scales: Tensor, alpha: Tensor) -> Tensor:
    """Returns `log p(log s | u) = log r + log e - e`, `r = a/(1 - a)`, `a = alpha/2`: `[..., L]`.

    The density of s alone, p_{S+} in Theorem 1, has no closed form.
    """
    index = index_of(alpha)
    log_e = kanter.log_exponential(u, log_scales, index)
    return tf.math.log(index / (1.0 - index)) + log_e - tf.exp(log_e)


def log_masses(log_scales: Tensor, log_probability: Tensor, alpha: Tensor) -> Tensor:
    """Returns `log(q^(2/alpha) s)`, `[..., L]`: the atoms' shares of the covariance."""
    return 2.0 / alpha * log_probability + log_scales


def log_scales_of_masses(log_masses: Tensor, log_probability: Tensor, alpha: Tensor) -> Tensor:
    """Returns `log s`, `[..., L]`: the inverse of `log_masses` in its first argument."""
    return log_masses - 2.0 / alpha * log_probability


# Theorem 1: the covariance, and the density given the scales ------------------------------------


def function_covariance(totals: Tensor, signs: Tensor) -> Tensor:
    """Returns `sum_g S_g tau_g tau_g^T`, `[B, N, N]`: the covariance of f divided by nu."""
    return tf.matmul(signs * totals[:, tf.newaxis, :], signs, transpose_b=True)


def covariance_factor(
    covariance: Tensor, noise_weights: Tensor, log_noise: Tensor, log_nu: Tensor
) -> Tensor:
    """Returns the Cholesky factor of `Q = nu sum_g S_g tau_g tau_g^T + sigma^2 W`, `[B, N, N]`."""
    covariance = tf.exp(log_nu)[:, tf.newaxis, tf.newaxis] * covariance
    noise = tf.exp(log_noise)[:, tf.newaxis] * noise_weights
    return tf.linalg.cholesky(
        tf.linalg.set_diag(covariance, tf.linalg.diag_part(covariance) + noise)
    )


def log_likelihood(factor: Tensor, targets: Tensor) -> Tensor:
    """Returns `log N(y; 0, Q)`, `[B]`: the Gaussian density under the integral of Theorem 1."""
    whitened = tf.linalg.triangular_solve(factor, targets[:, :, tf.newaxis])[:, :, 0]
    half_log_determinant = tf.reduce_sum(tf.math.log(tf.linalg.diag_part(factor)), axis=-1)
    constant = 0.5 * math.log(2.0 * math.pi) * targets.shape[-1]
    return -0.5 * tf.reduce_sum(whitened**2, axis=-1) - half_log_determinant - constant


def precision_of_factor(factor: Tensor) -> Tensor:
    """Returns `Q^-1`, `[B, N, N]`."""
    identity = tf.eye(factor.shape[-1], batch_shape=factor.shape[:1], dtype=factor.dtype)
    inverse = tf.linalg.triangular_solve(factor, identity)
    return tf.matmul(inverse, inverse, transpose_a=True)


def spectrum(
    covariance: Tensor, noise_weights: Tensor, targets: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the spectrum of `W^-1/2 (sum_g S_g tau_g tau_g^T) W^-1/2`.

    In its basis `W^-1/2 Q W^-1/2` is diagonal for every nu and sigma: `nu * value + sigma^2`.

    Returns:
        Eigenvalues `[B, N]`, eigenvectors `[B, N, N]`, and squared coordinates `[B, N]` of
        `W^-1/2 y`.
    """
    root = tf.sqrt(noise_weights)
    values, vectors = tf.linalg.eigh(covariance / (root[:, :, tf.newaxis] * root[:, tf.newaxis, :]))
    coordinates = tf.linalg.matvec(vectors, targets / root, transpose_a=True)
    return tf.nn.relu(values), vectors, tf.square(coordinates)


def log_likelihood_of_spectrum(
    values: Tensor, squares: Tensor, log_noise: Tensor, log_nu: Tensor
) -> Tensor:
    """Returns `log N(y; 0, Q) + log det(W) / 2`, `[B]`, from eigenvalues and coordinates."""
    variance = tf.exp(log_nu)[..., tf.newaxis] * values + tf.exp(log_noise)[..., tf.newaxis]
    terms = tf.math.log(2.0 * math.pi * variance) + squares / variance
    return -0.5 * tf.reduce_sum(terms, axis=-1)


def precision_of_spectrum(
    values: Tensor, vectors: Tensor, noise_weights: Tensor, log_noise: Tensor, log_nu: Tensor
) -> Tensor:
    """Returns `Q^-1`, `[B, N, N]`, from eigenvalues and eigenvectors."""
    variance = tf.exp(log_nu)[:, tf.newaxis] * values + tf.exp(log_noise)[:, tf.newaxis]
    whitened = vectors / tf.sqrt(noise_weights)[:, :, tf.newaxis]
    return tf.matmul(whitened / variance[:, tf.newaxis, :], whitened, transpose_b=True)


# Proposition 2: prediction ----------------------------------------------------------------------


def function_values(weights: Tensor, signs: Tensor) -> Tensor:
    """Returns `f(x) = sum_l beta_l tau_l(x)`, `[S, N]`, for the weights beta `[S, L]`.

    With the signs first and the weights second, the result is `[N, S]`.
    """
    return tf.matmul(weights, signs, transpose_b=True)


def posterior_weights(
    prior: Tensor, residual: Tensor, variance: Tensor, factor: Tensor, signs: Tensor, group: Tensor
) -> Tensor:
    """Turns a draw of beta from its prior into one given y: equation (5) at every x at once.

    With beta0 ~ N(0, D) and e0 ~ N(0, sigma^2 W), `beta0 + D T^T Q^-1 (y - T beta0 - e0)` has the
    distribution of beta given y (Matheron's rule).

    Args:
        prior: Tensor `[B, L]`, beta0.
        residual: Tensor `[B, N]`, `y - T beta0 - e0`.
        variance: Tensor `[B, L]`, the diagonal of D, `nu q^(2/alpha) s`.
        factor: Tensor `[B, N, N]`.
        signs: Tensor `[N, G]`.
        group: Integer tensor `[L]`, the group of each atom: T is `signs[:, group]`.

    Returns:
        Tensor `[B, L]`.
    """
    solved = tf.linalg.cholesky_solve(factor, residual[:, :, tf.newaxis])[:, :, 0]
    pull = tf.matmul(solved, signs)  # [B, G], T^T Q^-1 r
    return prior + variance * tf.gather(pull, group, axis=1)


def predictive_moments(values: Tensor, shares: Tensor) -> GaussianMoments:
    """Returns mean and variance of f over the draws, which stand for the integral in (6).

    Args:
        values: Tensor `[N, S, D]`, f of each draw.
        shares: Tensor `[S]`, weights of the draws with sum 1.

    Returns:
        Tensors `[N, D]`.
    """
    shares = shares[:, tf.newaxis]
    mean = tf.reduce_sum(shares * values, axis=1)
    deviations = tf.square(values - mean[:, tf.newaxis, :])
    return GaussianMoments(mean, tf.reduce_sum(shares * deviations, axis=1))


# Section 3: priors of the noise and of nu; that of alpha is uniform ------------------------------


def log_noise_of_copies(log_noise: Tensor, num_copies: float) -> Tensor:
    r"""Returns what copies of rows add to the log-likelihood, `[B]`, up to a constant.

    The likelihood of w copies of a row is that of one row with the noise variance sigma^2 / w,
    times a power of sigma^2:

        N(y; f, sigma^2)^w = c (sigma^2)^(-(w - 1) / 2) N(y; f, sigma^2 / w).

    Args:
        log_noise: log sigma^2, tensor `[B]`.
        num_copies: Sum of w - 1 over the rows.
    """
    return -0.5 * num_copies * log_noise


def log_noise_prior(log_noise: Tensor, noise_prior: str) -> Tensor:
    """Returns the log density of `log sigma^2`, `[B]`, up to a constant.

    Args:
        log_noise: Tensor `[B]`.
        noise_prior: `"variance"`: half-Cauchy(0, 1) on sigma^2, as in the paper; `"scale"`: on
            sigma.
    """
    if noise_prior == "scale":
        return 0.5 * log_noise - tf.math.softplus(log_noise)
    return log_noise - tf.math.softplus(2.0 * log_noise)


def log_noise_quantile(level: Tensor, noise_prior: str) -> Tensor:
    """Returns the quantile of `log sigma^2` under its prior, for levels in (0, 1)."""
    half_cauchy = tf.tan(0.5 * math.pi * level)
    power = 2.0 if noise_prior == "scale" else 1.0
    return power * tf.math.log(half_cauchy)


def log_nu_prior(log_nu: Tensor, nu_prior: tuple[float, float]) -> Tensor:
    """Returns the log density of `log nu ~ N(mean, stddev^2)`, `[B]`, up to a constant."""
    mean, stddev = nu_prior
    return -0.5 * tf.square((log_nu - mean) / stddev)


# Algorithm S.2: acceptance ratios ---------------------------------------------------------------


def log_ratio(change: Tensor, curvature: Tensor, slope: Tensor) -> Tensor:
    """Returns `log p(y | Q') - log p(y | Q)` for `Q' = Q + d tau tau^T`, by Woodbury's formula.

    It is `-log(1 + d c)/2 + d m^2 / (2 (1 + d c))`. The prior of s is the proposal, so that it
    cancels.

    Args:
        change: Tensor, `d = nu q^(2/alpha) (s' - s)`.
        curvature: Tensor of the same shape, `c = tau^T Q^-1 tau`.
        slope: Tensor of the same shape, `m = tau^T Q^-1 y`.
    """
    factor = 1.0 + change * curvature
    return 0.5 * (change * tf.square(slope) / factor - tf.math.log(factor))


def gain(change: Tensor, curvature: Tensor) -> Tensor:
    """Returns `d / (1 + d c)`: Q^-1 loses this times `Q^-1 tau tau^T Q^-1`."""
    return change / (1.0 + change * curvature)


class Update(NamedTuple):
    """`Q'^-1` `[B, N, N]`, `Q'^-1 y` `[B, N]`, and `log p(y | Q') - log p(y | Q)` `[B]`."""

    precision: Tensor
    weighted: Tensor
    log_ratio: Tensor


def update_twice(
    precision: Tensor, weighted: Tensor, patterns: Tensor, first: Tensor, second: Tensor
) -> Update:
    """Returns the `Update` for `Q' = Q + d tau tau^T + d' tau' tau'^T`, in closed form.

    Args:
        precision: Tensor `[B, N, N]`, Q^-1.
        weighted: Tensor `[B, N]`, Q^-1 y.
        patterns: Tensor `[B, N, 2]`, tau and tau'.
        first: Tensor `[B]`, d.
        second: Tensor `[B]`, d'.
    """
    product = tf.matmul(precision, patterns)
    gram = tf.matmul(patterns, product, transpose_a=True)
    slope = tf.linalg.matvec(patterns, weighted, transpose_a=True)
    d, e = first, second
    a, b, c = gram[:, 0, 0], gram[:, 0, 1], gram[:, 1, 1]
    # (I + D M)^-1 D is symmetric, [[d (1 + e c), -d e b], [., e (1 + d a)]] / determinant.
    determinant = (1.0 + d * a) * (1.0 + e * c) - d * e * tf.square(b)
    cross = -d * e * b
    middle = tf.stack(
        [
            tf.stack([d * (1.0 + e * c), cross], axis=-1),
            tf.stack([cross, e * (1.0 + d * a)], axis=-1),
        ],
        axis=-2,
    )
    middle /= determinant[:, tf.newaxis, tf.newaxis]
    pull = tf.linalg.matvec(middle, slope)
    ratio = 0.5 * (tf.reduce_sum(slope * pull, axis=-1) - tf.math.log(determinant))
    return Update(
        precision=precision - tf.matmul(tf.matmul(product, middle), product, transpose_b=True),
        weighted=weighted - tf.linalg.matvec(product, pull),
        log_ratio=ratio,
    )


# Not in the paper: alpha is inferred, jumps are relocated, noise is Student-t ---------------------


def scales_with_kanter_kept(
    u: Tensor, log_scales: Tensor, alpha: Tensor, new_alpha: Tensor
) -> Tensor:
    """Returns `log s` at a new alpha for the same (u, e), whose prior does not depend on alpha."""
    return log_scales_of(u, log_exponentials_of(u, log_scales, alpha), new_alpha)


def scales_with_masses_kept(
    log_scales: Tensor, log_probability: Tensor, alpha: Tensor, new_alpha: Tensor
) -> Tensor:
    """Returns `log s` at a new alpha for the same masses, and so the same likelihood."""
    return log_scales + (2.0 / alpha - 2.0 / new_alpha) * log_probability


def log_scales_prior(u: Tensor, log_scales: Tensor, alpha: Tensor, present: Tensor) -> Tensor:
    """Returns `sum_l log p(log s_l | u_l)`, `[B]`, over the atoms with 1 in `present` `[L]`."""
    return tf.reduce_sum(present * log_scale_density(u, log_scales, alpha), axis=-1)


def log_density_of_logit(logit: Tensor) -> Tensor:
    """Returns the log density of the logit of a uniform variable, such as u."""
    return -tf.math.softplus(logit) - tf.math.softplus(-logit)


def log_jump_density(logit: Tensor, log_scales: Tensor, alpha: Tensor) -> Tensor:
    """Returns `log p(logit u, log s)`, the prior of an atom in unconstrained coordinates."""
    return log_scale_density(tf.sigmoid(logit), log_scales, alpha) + log_density_of_logit(logit)


def draw_noise_weights(seed: Seed, residuals: Tensor, log_noise: Tensor, df: float) -> Tensor:
    """Draws W of Student-t noise with `df` degrees of freedom given f, `[B, N]`.

    They are independent inverse gamma variables of shape `(df + 1)/2` and scale
    `(df + (y - f)^2 / sigma^2)/2`.

    Args:
        seed: int32 tensor `[2]`.
        residuals: Tensor `[B, N]`, y - f.
        log_noise: Tensor `[B]`.
        df: Degrees of freedom.
    """
    squares = tf.square(residuals) * tf.exp(-log_noise)[:, tf.newaxis]
    shape = tf.constant(0.5 * (df + 1.0), residuals.dtype)
    gamma = tf.random.stateless_gamma(residuals.shape, seed, alpha=shape, dtype=residuals.dtype)
    return 0.5 * (df + squares) / gamma
