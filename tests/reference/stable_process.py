"""The stable process in NumPy, float64: written from the paper, slow and simple.

Loria & Bhadra (2023): `f = T beta` with `beta_l ~ N(0, d_l)`, `d_l = nu q_l^(2/alpha) s_l` and s_l
positive (alpha/2)-stable with Laplace transform exp(-lambda^(alpha/2)); `y = f + N(0, sigma^2)`.
T holds the signs, `[n + m, L]`: rows of the n training points come first, then the m new points.
q holds the probabilities, `[L]`. `algorithm_s2` is the paper's sampler, and the baseline of the
speed benchmark. `importance_posterior` and `voigt_posterior` are the truth for a few points.
"""

import math

import numpy as np
from scipy import integrate, special

# Above this ratio of an atom's variance to the noise variance, float64 no longer resolves the
# conditional distribution of f.
_LARGEST_RATIO = 1e10
_CHUNK = 100_000


# Partition of a line and scales ------------------------------------------------------------------


def line_partition(x):
    """Returns signs `[N, L]` and probabilities `[L]` for distinct unordered points `[N]` of a line.

    The sign changes nowhere among the points, or between two neighbours (S.1, with the
    probability of the first corrected to 1 - (arctan max - arctan min)/pi).
    """
    x = np.asarray(x, np.float64)
    ordered = np.sort(x)
    between = np.diff(np.arctan(ordered)) / np.pi
    signs = [np.ones_like(x), *(np.where(x > left, 1.0, -1.0) for left in ordered[:-1])]
    return np.stack(signs, axis=1), np.append(1.0 - between.sum(), between)


def positive_stable(rng, alpha, shape):
    """Draws s by Kanter's formula; alpha broadcasts with `shape`, and alpha = 2 gives s = 1."""
    a = np.asarray(alpha) / 2.0
    if np.all(a == 1.0):
        return np.ones(shape)
    u, e = rng.uniform(size=shape), rng.standard_exponential(shape)
    log_s = np.log(np.sin(a * np.pi * u)) - np.log(np.sin(np.pi * u)) / a
    log_s += (1.0 - a) / a * (np.log(np.sin((1.0 - a) * np.pi * u)) - np.log(e))
    return np.exp(np.minimum(log_s, 300.0))  # beyond 1e130 nothing is accepted, but inf breeds NaN


def noise_variances(rng, noise_prior, shape):
    """Draws sigma^2: half-Cauchy(0, 1) on sigma^2 ("variance") or on sigma ("scale")."""
    draws = np.abs(rng.standard_cauchy(shape))
    return {"variance": draws, "scale": draws**2}[noise_prior]


def hyper_parameters(rng, alpha, nu, noise_scale, noise_prior, size):
    """Draws alpha, nu and sigma^2, `[size]` each.

    Args:
        rng: NumPy generator.
        alpha: A number, or the interval of its uniform prior.
        nu: A number, or mean and standard deviation of log nu, which is normal.
        noise_scale: sigma, or None: drawn from its prior.
        noise_prior: See `noise_variances`.
        size: Number of draws.
    """
    alphas = rng.uniform(*alpha, size) if np.ndim(alpha) else np.full(size, float(alpha))
    nus = np.exp(rng.normal(*nu, size)) if np.ndim(nu) else np.full(size, float(nu))
    if noise_scale is None:
        return alphas, nus, noise_variances(rng, noise_prior, size)
    return alphas, nus, np.full(size, float(noise_scale) ** 2)


def simulate(rng, signs, probabilities, alpha, nu, noise_scale, noise_prior, size):
    """Draws everything from the prior, without the scales.

    The weights are symmetric stable, `E exp(i t beta_l) = exp(-q_l |t|^alpha (nu/2)^(alpha/2))`,
    drawn by the formula of Chambers, Mallows & Stuck (1976).

    Args:
        rng: NumPy generator.
        signs: `[N, L]`.
        probabilities: `[L]`.
        alpha, nu, noise_scale, noise_prior, size: See `hyper_parameters`.

    Returns:
        Dict: f `[size, N]`, alpha, nu and noise (sigma^2), `[size]` each.
    """
    alphas, nus, noise = hyper_parameters(rng, alpha, nu, noise_scale, noise_prior, size)
    a = alphas[:, np.newaxis]
    angle = rng.uniform(-np.pi / 2.0, np.pi / 2.0, (size, len(probabilities)))
    wait = rng.standard_exponential(angle.shape)
    beta = np.sin(a * angle) / np.cos(angle) ** (1.0 / a)
    beta *= (np.cos((1.0 - a) * angle) / wait) ** ((1.0 - a) / a)
    beta *= np.sqrt(nus / 2.0)[:, np.newaxis] * probabilities ** (1.0 / a)
    return {"f": beta @ np.transpose(signs), "alpha": alphas, "nu": nus, "noise": noise}


# Algorithm S.2 -----------------------------------------------------------------------------------


def algorithm_s2(
    y,
    signs,
    probabilities,
    alpha,
    nu,
    num_iterations,
    seed,
    noise_prior="variance",
    noise_scale=None,
):
    """Runs the paper's sampler: one atom at a time from the prior, then the noise from the prior.

    An atom costs one product with Q^-1 (and a rank-one update when accepted), O(n^2). Q^-1 and
    the determinant are recomputed once an iteration. f is one draw from its Gaussian conditional
    distribution (Proposition 2) by Matheron's rule, which needs no covariance of the new points.
    With beta0 ~ N(0, D) and r = y - T beta0 - sigma e, it is `f = T (beta0 + D T' Q^-1 r)`,
    O((n + m) L).

    Args:
        y: `[n]`.
        signs: `[n + m, L]`.
        probabilities: `[L]`.
        alpha: Index in (0, 2].
        nu: Positive number.
        num_iterations: T.
        seed: Integer.
        noise_prior: See `noise_variances`.
        noise_scale: sigma, if it is known.

    Returns:
        Dict: f `[T, n + m]`, sigma `[T]`, accepted (share of the atoms' proposals).
    """
    rng = np.random.default_rng(seed)
    n, num_atoms = len(y), len(probabilities)
    at_training = np.ascontiguousarray(signs[:n], np.float64)  # [n, L]
    patterns = np.ascontiguousarray(at_training.T)  # [L, n]: an atom's pattern in one piece
    signs = np.ascontiguousarray(signs, np.float64)
    factors = nu * np.asarray(probabilities) ** (2.0 / alpha)
    variances = factors * positive_stable(rng, alpha, num_atoms)  # d, [L]
    fixed = noise_scale is not None
    noise = noise_scale**2 if fixed else float(noise_variances(rng, noise_prior, ()))
    covariance = (at_training * variances) @ patterns
    precision = np.linalg.inv(covariance + noise * np.eye(n))
    f, sigma = np.empty((num_iterations, len(signs))), np.empty(num_iterations)
    accepted = 0
    for t in range(num_iterations):
        proposals = factors * positive_stable(rng, alpha, num_atoms)
        thresholds = -2.0 * rng.standard_exponential(num_atoms)  # 2 log of uniforms
        accepted += _sweep(precision, y, patterns, variances, proposals, thresholds)
        covariance = (at_training * variances) @ patterns
        if not fixed:
            proposal = float(noise_variances(rng, noise_prior, ()))
            ratio = _log_density(y, covariance, proposal) - _log_density(y, covariance, noise)
            if -rng.standard_exponential() < ratio:
                noise = proposal
        precision = np.linalg.inv(covariance + noise * np.eye(n))
        beta = np.sqrt(variances) * rng.standard_normal(num_atoms)
        residual = y - at_training @ beta - math.sqrt(noise) * rng.standard_normal(n)
        beta += variances * (patterns @ (precision @ residual))
        f[t], sigma[t] = signs @ beta, math.sqrt(noise)
    return {"f": f, "sigma": sigma, "accepted": accepted / (num_iterations * num_atoms)}


def _sweep(precision, y, patterns, variances, proposals, thresholds):
    """Makes one proposal for every atom; `variances` changes in place.

    With p = Q^-1 t, `det Q' = det Q (1 + delta t'p)` and
    `Q'^-1 = Q^-1 - delta / (1 + delta t'p) p p'`. y'Q^-1 is carried as one more row of Q^-1, so
    that one product gives p and y'p, and one update changes both.

    Returns:
        Number of proposals accepted.
    """
    rows = np.vstack([precision, y @ precision])
    product, change, outer = np.empty(len(rows)), np.empty(len(y)), np.empty_like(rows)
    solved, column, row = product[:-1], product[:, np.newaxis], change[np.newaxis]
    current, proposed, thresholds = variances.tolist(), proposals.tolist(), thresholds.tolist()
    accepted, log, multiply, subtract = 0, math.log, np.multiply, np.subtract
    for k, pattern in enumerate(patterns):
        rows.dot(pattern, product)
        delta = proposed[k] - current[k]
        growth = 1.0 + delta * float(pattern.dot(solved))
        if growth <= 0.0:  # through rounding, if the atom holds nearly all of the variance
            continue
        step = delta / growth
        if thresholds[k] < step * float(product[-1]) ** 2 - log(growth):
            current[k] = proposed[k]
            accepted += 1
            multiply(solved, step, change)
            column.dot(row, outer)  # BLAS takes a third of the time of broadcasting
            subtract(rows, outer, rows)
    variances[:] = current
    return accepted


def _log_density(y, covariance, noise):
    """Computes `log N(y; 0, covariance + noise I)` without the constant."""
    factor = np.linalg.cholesky(covariance + noise * np.eye(len(y)))
    whitened = np.linalg.solve(factor, y)
    return -0.5 * whitened @ whitened - np.log(np.diagonal(factor)).sum()


# Truth for a few points --------------------------------------------------------------------------


def importance_posterior(
    y,
    signs,
    probabilities,
    alpha,
    nu,
    noise_scale,
    num_draws,
    seed,
    levels=(0.0,),
    noise_prior="variance",
):
    """Computes the posterior of f for a few points, by importance sampling from the scales' prior.

    Given the scales (and sigma) f is Gaussian with moments m, v (Proposition 2), so a draw
    contributes m, m^2 + v and Phi((level - m)/sqrt(v)) with weight N(y; 0, Q). Errors are standard
    errors, by the delta method. Those of the second moment are unreliable at new points for
    alpha < 3/2, where it has infinite variance; those of the distribution function are always
    reliable. Draws with an atom above 1e10 noise variances have weight 0 (their share of the
    evidence is about 1e-5 of their probability).

    Args:
        y: `[n]`, n small.
        signs: `[n + m, L]`.
        probabilities: `[L]`.
        alpha: Index in (0, 2], or the interval of its uniform prior.
        nu: Positive number, or mean and standard deviation of log nu, which is normal.
        noise_scale: sigma, or None: drawn from its prior.
        num_draws: Number of draws.
        seed: Integer.
        levels: Where to evaluate the distribution function, `[K]`.
        noise_prior: See `noise_variances`.

    Returns:
        Dict name -> (estimate, standard error): mean and second_moment `[n + m]`, cdf
        `[n + m, K]`, log_noise_scale, alpha, log_nu, log_evidence; and effective_size, of the
        weights.
    """
    rng = np.random.default_rng(seed)
    y, signs = np.asarray(y, np.float64), np.asarray(signs, np.float64)
    shift, sums = None, 0.0
    for begin in range(0, num_draws, _CHUNK):
        size = min(_CHUNK, num_draws - begin)
        alphas, nus, noise = hyper_parameters(rng, alpha, nu, noise_scale, noise_prior, size)
        column = alphas[:, np.newaxis]
        variances = positive_stable(rng, column, (size, len(probabilities)))
        variances *= nus[:, np.newaxis] * np.asarray(probabilities) ** (2.0 / column)
        log_weights, mean, variance = _conditional(y, signs, variances, noise)
        shift = np.max(log_weights) if shift is None else shift
        weights = np.exp(log_weights - shift)
        with np.errstate(divide="ignore"):
            log_scale = np.maximum(0.5 * np.log(noise), -700.0)
        hyper = np.stack([np.ones(size), log_scale, alphas, np.log(nus)], axis=1)
        values = _statistics(mean, variance, np.asarray(levels, np.float64))
        values = np.concatenate([hyper, values], axis=1)  # [size, G]
        squares = weights**2
        sums = sums + np.stack([weights @ values, squares @ values, squares @ values**2])
    return _summary(sums, shift, num_draws, len(signs), len(levels))


def _conditional(y, signs, variances, noise):
    """Returns log weights `[S]` and moments of f `[S, n + m]`, scales `[S, L]`, noises `[S]`."""
    n = len(y)
    bad = (variances.max(axis=1) > _LARGEST_RATIO * noise) | (noise == 0.0)
    variances, noise = np.where(bad[:, np.newaxis], 1.0, variances), np.where(bad, 1.0, noise)
    scaled = signs * variances[:, np.newaxis]  # T D, [S, n + m, L]
    joint = scaled @ signs[:n].T  # [S, n + m, n]
    covariance = joint[:, :n] + noise[:, np.newaxis, np.newaxis] * np.eye(n)
    gain = np.swapaxes(np.linalg.solve(covariance, np.swapaxes(joint, 1, 2)), 1, 2)
    solved = np.linalg.solve(covariance, np.broadcast_to(y[:, np.newaxis], (len(noise), n, 1)))
    log_weights = -0.5 * (solved[..., 0] @ y + np.linalg.slogdet(2.0 * np.pi * covariance)[1])
    # This is Joseph's form of K_ff - G K_nf: a sum of squares, in which nothing cancels.
    left = signs - gain @ signs[:n]
    variance = np.einsum("sil,sl->si", left**2, variances)
    variance += noise[:, np.newaxis] * (gain**2).sum(axis=2)
    return np.where(bad, -np.inf, log_weights), gain @ y, variance


def _statistics(mean, variance, levels):
    standard = (levels - mean[..., np.newaxis]) / np.sqrt(variance)[..., np.newaxis]
    cdf = special.ndtr(standard).reshape(len(mean), -1)
    return np.concatenate([mean, mean**2 + variance, cdf], 1)


def _summary(sums, shift, num_draws, num_points, num_levels):
    """Returns estimates from sum w g, sum w^2 g, sum w^2 g^2; the first g is 1."""
    weighted, squared, squared_squares = sums
    total, total_squares = weighted[0], squared[0]
    estimate = weighted / total
    error = squared_squares - 2.0 * estimate * squared + estimate**2 * total_squares
    error = np.sqrt(np.maximum(error, 0.0)) / total
    ends = 4 + num_points * np.arange(3)
    parts = {
        name: (estimate[begin:end], error[begin:end])
        for name, begin, end in zip(("mean", "second_moment"), ends, ends[1:], strict=False)
    }
    shape = (num_points, num_levels)
    relative = math.sqrt(max(total_squares / total**2 - 1.0 / num_draws, 0.0))
    return {
        **parts,
        "cdf": (estimate[ends[2] :].reshape(shape), error[ends[2] :].reshape(shape)),
        "log_noise_scale": (estimate[1], error[1]),
        "alpha": (estimate[2], error[2]),
        "log_nu": (estimate[3], error[3]),
        "log_evidence": (math.log(total / num_draws) + shift, relative),
        "effective_size": total**2 / total_squares,
    }


def voigt_posterior(y, nu, sigma, levels=(0.0,)):
    """Computes the posterior of f at one point for alpha = 1 by quadrature.

    The prior is Cauchy(0, sqrt(nu/2)).

    Returns:
        Dict: mean, second_moment, cdf `[K]` at the levels, log_evidence (a Voigt profile).
    """
    width = math.sqrt(nu / 2.0)
    evidence = special.voigt_profile(y, sigma, width)

    def posterior(f):
        likelihood = math.exp(-0.5 * ((y - f) / sigma) ** 2) / (sigma * math.sqrt(2.0 * math.pi))
        return likelihood * width / (math.pi * (f * f + width * width)) / evidence

    lower, upper = y - 40.0 * sigma, y + 40.0 * sigma

    def integral(function, end=upper):
        breaks = sorted({p for p in (0.0, y, y - 3 * sigma, y + 3 * sigma) if lower < p < end})
        return integrate.quad(
            lambda f: function(f) * posterior(f), lower, end, points=breaks, limit=500
        )[0]

    return {
        "mean": integral(lambda f: f),
        "second_moment": integral(lambda f: f * f),
        "cdf": np.array([integral(lambda f: 1.0, min(max(v, lower), upper)) for v in levels]),
        "log_evidence": math.log(evidence),
    }
