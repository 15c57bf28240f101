"""Random walks of the noise, nu and alpha, and the weights of Student-t noise."""

import math

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_fnspace.math.kanter import log_exponential
from tfp_fnspace.methods.stable_process.samplers import gaussian
from tfp_fnspace.methods.stable_process.samplers import state as chain

#: Steps of noise and nu for one eigendecomposition.
_STEPS = 6

#: Logarithm of the largest variance of a group over the smallest of the noise: 1e-8 mean squares of
#: the targets, below which float64 no longer holds Q^-1 (constant targets would go to zero).
_LOG_RANGE = 17.0 * math.log(10.0)

#: Where the share of accepted steps is driven to.
_TARGET_ACCEPTANCE = 0.4


def log_noise_prior(log_noise, noise_prior):
    """Log density of `log sigma^2`, up to a constant."""
    if noise_prior == "scale":  # half-Cauchy on sigma
        return 0.5 * log_noise - tf.math.softplus(log_noise)
    return log_noise - tf.math.softplus(2.0 * log_noise)  # half-Cauchy on sigma^2


def log_nu_prior(log_nu, nu_prior):
    """Log density of `log nu`, up to a constant."""
    mean, stddev = nu_prior
    return -0.5 * tf.square((log_nu - mean) / stddev)


def walk_noise_and_nu(seed, state, values, squares, log_largest_total, problem, settings):
    """Random walks of `log sigma^2` and `log nu` on the spectrum of the covariance.

    Args:
        seed: int32 tensor `[2]`.
        state: `ChainState`.
        values: Eigenvalues `[B, N]` of `gaussian.spectrum`.
        squares: Squared coordinates `[B, N]` of the targets, of `gaussian.spectrum`.
        log_largest_total: `[B]`, of the groups' totals.
        problem: `Problem`.
        settings: `Settings`.

    Returns:
        `log_noise`, `log_nu`, and the shares of accepted steps of each, `[B]`.
    """
    chains = values.shape[0]
    moves = tf.stack([settings.infer_noise, settings.nu_prior is not None])
    first, second = tfp.random.split_seed(seed)
    noise = chain.standard_normal([_STEPS, 2, chains], first)
    noise *= tf.exp(tf.transpose(state.log_steps[:, :2]))
    noise *= tf.cast(moves, noise.dtype)[:, tf.newaxis]
    log_uniforms = tf.math.log(chain.uniform([_STEPS, 2, chains], second))

    return _compiled_walk(
        settings.noise_prior,
        settings.nu_prior,
        values,
        squares,
        state.log_noise,
        state.log_nu,
        problem.log_largest_mass - log_largest_total,
        problem.log_largest_mass - _LOG_RANGE,
        noise,
        log_uniforms,
    )


@tf.function(jit_compile=True, autograph=False)
def _compiled_walk(
    noise_prior,
    nu_prior,
    values,
    squares,
    log_noise,
    log_nu,
    largest_nu,
    smallest,
    noise,
    log_uniforms,
):
    def log_target(log_noise, log_nu):
        target = gaussian.log_likelihood_of_spectrum(values, squares, log_noise, log_nu)
        target += log_noise_prior(log_noise, noise_prior)
        return target if nu_prior is None else target + log_nu_prior(log_nu, nu_prior)

    where = [log_noise, log_nu]
    current = log_target(*where)
    accepted = [tf.zeros_like(current), tf.zeros_like(current)]
    for i in range(_STEPS):
        for part in range(2):
            proposal = list(where)
            proposal[part] = where[part] + noise[i, part]
            target = log_target(*proposal)
            accept = (target - current > log_uniforms[i, part]) & (proposal[1] <= largest_nu)
            accept &= proposal[0] >= smallest
            where[part] = tf.where(accept, proposal[part], where[part])
            current = tf.where(accept, target, current)
            accepted[part] += tf.cast(accept & (noise[i, part] != 0.0), current.dtype) / _STEPS
    return *where, *accepted


def walk_alpha(seed, state, problem, settings):
    """Two random-walk steps of alpha: one holds Kanter's variables, one the masses.

    With Kanter's (u, e) fixed, alpha changes all scales and with them the likelihood; with the
    masses `q^(2/alpha) s` fixed, it changes only the prior. Each mixes where the other is slow.

    Returns:
        The state with new alpha and scales, and the share of accepted steps, `[B]`.
    """
    low, high = settings.alpha_range
    chains = state.alpha.shape[0]
    first, second = tfp.random.split_seed(seed)
    noise = chain.standard_normal([2, chains], first) * tf.exp(state.log_steps[:, 2])
    log_uniforms = tf.math.log(chain.uniform([2, chains], second))

    def inside(alpha):
        return (alpha > low) & (alpha < high)

    def likelihood(scales, alpha):
        masses = chain.log_masses(scales, problem, alpha)
        totals = chain.group_totals(tf.exp(masses), problem)
        factor = gaussian.cholesky_of_covariance(totals, state, problem)
        largest = tf.math.log(tf.reduce_max(totals, axis=-1))
        allowed = state.log_nu + largest <= problem.log_largest_mass
        return gaussian.log_likelihood(factor, problem.targets), allowed

    # Kanter's variables held.
    alpha = state.alpha + noise[0]
    possible = inside(alpha)
    alpha = tf.where(possible, alpha, state.alpha)
    index = chain.index_of(state.alpha)[:, tf.newaxis]
    log_e = log_exponential(state.u, state.log_scales, index)
    scales = chain.scales_of(state.u, log_e, alpha[:, tf.newaxis])
    before, _ = likelihood(state.log_scales, state.alpha)
    after, allowed = likelihood(scales, alpha)
    accept = possible & allowed & (after - before > log_uniforms[0])
    state = state._replace(
        alpha=tf.where(accept, alpha, state.alpha),
        log_scales=tf.where(accept[:, tf.newaxis], scales, state.log_scales),
    )
    accepted = tf.cast(accept, alpha.dtype)

    # Masses held; a smaller step, since all atoms speak.
    alpha = state.alpha + noise[1] / math.sqrt(problem.place.shape[0])
    possible = inside(alpha)
    alpha = tf.where(possible, alpha, state.alpha)
    shift = (2.0 / state.alpha - 2.0 / alpha)[:, tf.newaxis] * problem.log_probability
    scales = state.log_scales + shift

    def prior(log_scales, value):
        density = chain.log_density(state.u, log_scales, value[:, tf.newaxis])
        return tf.reduce_sum(problem.present * density, axis=-1)

    ratio = prior(scales, alpha) - prior(state.log_scales, state.alpha)
    accept = possible & (ratio > log_uniforms[1])
    return state._replace(
        alpha=tf.where(accept, alpha, state.alpha),
        log_scales=tf.where(accept[:, tf.newaxis], scales, state.log_scales),
    ), accepted


def draw_noise_weights(seed, state, residuals, df):
    """Variances of Student-t noise given the noise: inverse gamma, independent.

    Args:
        seed: int32 tensor `[2]`.
        state: `ChainState`.
        residuals: `[B, N]`, y - f.
        df: Degrees of freedom.

    Returns:
        `[B, N]`.
    """
    squares = tf.square(residuals) * tf.exp(-state.log_noise)[:, tf.newaxis]
    shape = tf.constant(0.5 * (df + 1.0), chain.FLOAT)
    gamma = tf.random.stateless_gamma(residuals.shape, seed, alpha=shape, dtype=chain.FLOAT)
    return 0.5 * (df + squares) / gamma


def adapt(state, accepted, settings):
    """Robbins-Monro steps of the random walks' widths while the chain burns in."""
    time = tf.cast(state.iteration, chain.FLOAT)
    rate = 2.0 / (1.0 + time) ** 0.6
    rate *= tf.cast(state.iteration < settings.adapt_for, rate.dtype)
    change = rate * (tf.stack(accepted, axis=-1) - _TARGET_ACCEPTANCE)
    return tf.clip_by_value(state.log_steps + change, -8.0, 2.0)
