r"""Convergence of Markov chains: rank-normalised R-hat and effective sample sizes (NumPy).

Every function takes draws `[chains, draws, ...]` and returns one number for every entry of the
trailing axes. Each chain is split into halves (the middle draw of an odd number is left out), so
that a trend within a chain counts as a difference between chains. S is the number of remaining
draws, M the number of halves, and N their length.

| draws of an entry | `rhat` | `ess_bulk`, `ess_tail` |
|---|---|---|
| not all finite | NaN | NaN |
| all equal | NaN | S, as in ArviZ |
| equal within each half, not between them | inf | about M / 2 |

References:
    Vehtari, Gelman, Simpson, Carpenter & Buerkner (2021), "Rank-normalization, folding, and
    localization: an improved R-hat for assessing convergence of MCMC", Bayesian Analysis 16(2).
    Geyer (1992), "Practical Markov chain Monte Carlo", Statistical Science 7(4).
"""

import math

import numpy as np
import tensorflow as tf

from tfp_fnspace.boundary import arrays
from tfp_fnspace.typing import Array, ArrayLike

_MIN_DRAWS = 4
_NUMBERS_AT_A_TIME = 2**18


def rhat(draws: ArrayLike) -> Array | np.float64:
    r"""Returns the rank-normalised split R-hat, the larger of the bulk's and the tails'.

        Rhat = sqrt(((N - 1)/N W + B/N) / W)

    Here W is the mean variance of the halves and B/N the variance of their means. They are computed
    from the normal scores of the draws (bulk) and from the normal scores of `|draws - median|`
    (folded, which shows chains that differ in scale). R-hat also exists for distributions without
    mean or variance. Converged chains have values below 1.01.

    Example:
        >>> bool(rhat(np.random.default_rng(0).normal(size=(4, 1000))) < 1.01)
        True

    Args:
        draws: Array `[chains, draws, ...]`, at least 4 draws.

    Returns:
        float64 array `[...]`; see the table in the module's docstring for draws that are constant
        or not finite.

    Raises:
        ValueError: If `draws` has fewer than 2 axes, no chain, or fewer than 4 draws.
    """
    return _for_each_entry(_rank_normalized_reduction, draws)


def ess_bulk(draws: ArrayLike) -> Array | np.float64:
    r"""Returns the effective sample size of the normal scores of the draws.

        ESS = S / tau,   tau = 1 + 2 sum_{t > 0} rho_t,

    where rho_t are the autocorrelations of all halves together, summed up to the end of Geyer's
    initial monotone sequence. The least tau is 1/log10(S) (chains may be better than independent
    draws).

    Args:
        draws: As for `rhat`.

    Returns:
        float64 array `[...]`; see the table in the module's docstring.

    Raises:
        ValueError: As for `rhat`.
    """
    return _for_each_entry(lambda rows: _effective_size(_normal_scores(_split(rows))), draws)


def ess_tail(draws: ArrayLike) -> Array | np.float64:
    r"""Returns the effective sample size in the tails.

    It is the smaller one of the sizes for the two indicators `draws <= quantile`, for the 5 % and
    the 95 % quantile of all draws. It measures how well a 90 % interval is known. An indicator that
    is constant (more than 5 % of the draws equal the largest) counts as known, with size S.

    Args:
        draws: As for `rhat`.

    Returns:
        float64 array `[...]`; see the table in the module's docstring.

    Raises:
        ValueError: As for `rhat`.
    """
    return _for_each_entry(_smaller_tail_size, draws)


# Shapes ------------------------------------------------------------------------------------------


def _for_each_entry(statistic, draws):
    """Applies `statistic`, a function of `[entries, chains, draws]`, to `[chains, draws, ...]`."""
    draws = arrays.as_array(draws, "draws").astype(np.float64)
    if draws.ndim < 2 or draws.shape[0] < 1 or draws.shape[1] < _MIN_DRAWS:
        raise ValueError(
            f"`draws` must have shape [chains, draws, ...] with at least {_MIN_DRAWS} draws. "
            f"Received: draws of shape {draws.shape}"
        )
    shape = draws.shape[2:]
    if draws.size == 0:
        return np.zeros(shape)
    rows = np.moveaxis(draws.reshape((*draws.shape[:2], -1)), -1, 0)
    # Parts are processed one at a time, so that each stays in the cache.
    count = min(len(rows), max(1, rows.size // _NUMBERS_AT_A_TIME))
    parts = np.array_split(rows, count)
    values = np.concatenate([_where_finite(statistic, part) for part in parts])
    return values.reshape(shape)[()]


def _where_finite(statistic, rows):
    finite = np.isfinite(rows).all(axis=(1, 2))
    rows = np.where(finite[:, np.newaxis, np.newaxis], rows, 0.0)
    return np.where(finite, statistic(rows), np.nan)


def _split(rows):
    """Reshapes `[entries, chains, draws]` to `[entries, M, N]`."""
    half = rows.shape[2] // 2
    return np.concatenate([rows[..., :half], rows[..., -half:]], axis=1)


# Statistics --------------------------------------------------------------------------------------


def _normal_scores(halves):
    """Returns normal quantiles at `(rank - 3/8)/(S + 1/4)`, ranks among all draws of an entry."""
    flat = halves.reshape(len(halves), -1)
    size = flat.shape[1]
    ranks = np.arange(2, 2 * size + 1) / 2.0  # ranks of ties are averages, halves of integers
    scores = tf.math.ndtri((ranks - 0.375) / (size + 0.25)).numpy()
    return scores[_doubled_ranks(flat) - 2].reshape(halves.shape)


def _doubled_ranks(flat):
    """Returns twice the average ranks along the last axis, integers from 2 on."""
    order = np.argsort(flat, axis=-1)
    ordered = np.take_along_axis(flat, order, axis=-1)
    place = np.arange(flat.shape[1])
    begins = np.ones(flat.shape, bool)
    begins[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    ends = np.roll(begins, -1, axis=-1)
    first = np.maximum.accumulate(np.where(begins, place, 0), axis=-1)
    last = np.where(ends, place, place[-1])[:, ::-1]
    last = np.minimum.accumulate(last, axis=-1)[:, ::-1]
    ranks = np.empty(flat.shape, np.int64)
    np.put_along_axis(ranks, order, first + last + 2, axis=-1)
    return ranks


def _rank_normalized_reduction(rows):
    halves = _split(rows)
    median = np.median(halves, axis=(1, 2), keepdims=True)
    bulk = _potential_scale_reduction(_normal_scores(halves))
    tails = _potential_scale_reduction(_normal_scores(np.abs(halves - median)))
    # If folding gives a constant (draws of two values, equally often), there is no tail.
    return np.fmax(bulk, tails)


def _potential_scale_reduction(halves):
    """Returns `sqrt(((N - 1)/N W + B/N) / W)` for `[entries, M, N]`."""
    num_draws = halves.shape[2]
    first = halves[..., :1]
    distance = halves - first  # exactly 0 for a constant half, and so is its variance
    between = (first[..., 0] + distance.mean(axis=2)).var(axis=1, ddof=1)
    within = distance.var(axis=2, ddof=1).mean(axis=1)
    # If all draws are equal, rounding must not make the halves differ.
    between = np.where(np.ptp(halves, axis=(1, 2)) == 0.0, 0.0, between)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.sqrt((num_draws - 1) / num_draws + between / within)


def _smaller_tail_size(rows):
    quantiles = np.quantile(rows, (0.05, 0.95), axis=(1, 2), keepdims=True)
    return np.minimum(
        *(_effective_size(_split((rows <= quantile).astype(np.float64))) for quantile in quantiles)
    )


def _effective_size(halves):
    """Returns the effective sample size for `[entries, M, N]`, S if all draws are equal."""
    size = halves[0].size
    with np.errstate(divide="ignore", invalid="ignore"):
        time = _autocorrelation_time(_autocorrelations(halves))
    constant = np.ptp(halves, axis=(1, 2)) == 0.0
    return np.where(constant, size, size / np.fmax(time, 1.0 / np.log10(size)))


def _autocorrelations(halves):
    """Returns autocorrelations `[entries, N]` at lags 0, 1, ... of all halves (equation 10)."""
    num_draws = halves.shape[2]
    means = halves.mean(axis=2, keepdims=True)
    # The length is doubled, so that the products do not wrap around. The mean over the halves
    # commutes with the inverse transform.
    length = 2 ** math.ceil(math.log2(2 * num_draws))
    spectrum = np.fft.rfft(halves - means, length, axis=2)
    power = (spectrum.real**2 + spectrum.imag**2).mean(axis=1)
    covariances = np.fft.irfft(power, length, axis=1)[:, :num_draws] / num_draws
    within = covariances[:, :1] * num_draws / (num_draws - 1)
    total = covariances[:, :1] + means[..., 0].var(axis=1, ddof=1)[:, np.newaxis]
    correlations = 1.0 - (within - covariances) / total
    correlations[:, 0] = 1.0
    return correlations


def _autocorrelation_time(correlations):
    """Returns `-1 + 2 sum rho_t` over Geyer's initial monotone sequence, for `[entries, N]`."""
    # The last two lags have only one or two products each.
    num_pairs = max(1, (correlations.shape[1] - 1) // 2)
    pairs = correlations[:, : 2 * num_pairs].reshape(len(correlations), num_pairs, 2)
    sums = pairs.sum(axis=2)  # positive and falling for a reversible chain, apart from noise
    kept = np.logical_and.accumulate(sums > 0.0, axis=1)
    kept[:, -1] = False
    total = np.where(kept, np.minimum.accumulate(sums, axis=1), 0.0).sum(axis=1)
    # Adding one half of the next pair reduces the bias for chains that alternate.
    following = np.take_along_axis(pairs[..., 0], kept.sum(axis=1)[:, np.newaxis], axis=1)[:, 0]
    return -1.0 + 2.0 * total + np.maximum(following, 0.0)
