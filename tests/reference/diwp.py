"""Deep inverse Wishart processes in NumPy and SciPy, dense and slow."""

import numpy as np
from scipy import stats


def inverse_wishart(df, scale, size, seed):
    """Draws inverse Wishart matrices `[size, k, k]`."""
    draws = stats.invwishart(df=df, scale=scale).rvs(size=size, random_state=seed)
    return draws.reshape(size, *np.shape(scale))


def process_draws(k, delta, size, seed):
    """Draws the inverse Wishart process jointly at all points of a kernel matrix (equation 18)."""
    return inverse_wishart(delta + len(k) + 1, delta * k, size, seed)


def relu(gram):
    """Computes the arc-cosine kernel of order 1, `E[relu(f) relu(f')]` times 2."""
    norms = np.sqrt(np.diag(gram))
    cosine = np.clip(gram / np.outer(norms, norms), -1.0, 1.0)
    angle = np.arccos(cosine)
    return np.outer(norms, norms) * (np.sin(angle) + (np.pi - angle) * cosine) / np.pi


def squared_exponential(gram):
    """Computes `exp(-R / 2)`."""
    norms = np.diag(gram)
    return np.exp(-0.5 * (norms[:, np.newaxis] - 2.0 * gram + norms))


def gaussian_kl(mean, covariance, prior):
    """Computes `KL(N(mean, covariance) || N(0, prior))`."""
    trace = np.trace(np.linalg.solve(prior, covariance))
    log_ratio = np.linalg.slogdet(prior)[1] - np.linalg.slogdet(covariance)[1]
    return 0.5 * (trace + mean @ np.linalg.solve(prior, mean) - len(mean) + log_ratio)


def inducing_posterior(k, v, noise):
    """Returns mean and covariance of `q(f_i)` (equations 97 and 98); Lambda inverts `noise`."""
    precision = np.linalg.inv(noise)
    covariance = np.linalg.inv(np.linalg.inv(k) + precision)
    return covariance @ precision @ v, covariance


def predict(k, num_inducing, v, noise):
    """Returns moments of f at the other points of a kernel matrix, with f_i integrated out.

    Args:
        k: Kernel matrix of inducing points and data, `[P + N, P + N]`.
        num_inducing: P.
        v: `[P]`.
        noise: `[P, P]`.

    Returns:
        Mean `[N]` and covariance `[N, N]`.
    """
    mean, covariance = inducing_posterior(k[:num_inducing, :num_inducing], v, noise)
    ii, it, tt = split(k, num_inducing)
    weights = np.linalg.solve(ii, it).T
    return weights @ mean, tt - weights @ it + weights @ covariance @ weights.T


def log_marginal_likelihood(k, y, noise):
    """Returns the log marginal likelihood of Gaussian process regression."""
    return stats.multivariate_normal(cov=k + noise * np.eye(len(k))).logpdf(y)


def split(k, num_inducing):
    """Returns the blocks ii, it, tt."""
    return (
        k[:num_inducing, :num_inducing],
        k[:num_inducing, num_inducing:],
        k[num_inducing:, num_inducing:],
    )
