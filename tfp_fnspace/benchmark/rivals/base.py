"""Shared parts of the rivals: units, Gaussian mixtures, kernel estimates of a density."""

from typing import Self

import numpy as np
import tensorflow_probability as tfp

from tfp_fnspace.typing import Array, ArrayLike, Distribution

tfd = tfp.distributions

#: Largest number of kernels of an estimate; with more values they lie at quantiles.
_MOST_KERNELS = 200


class Declined(ValueError):
    """The estimator is not made for data like these; this does not count as a failure."""


class Units:
    """Mean and standard deviation of each column; a constant column has 1.

    Args:
        values: Array `[N, ...]`.
    """

    def __init__(self, values: Array):
        self.mean, self.scale = values.mean(axis=0), values.std(axis=0)
        self.scale = np.where(self.scale > 0.0, self.scale, 1.0)

    def standardised(self, values: Array) -> Array:
        """Returns the values in standard deviations from the mean."""
        return (values - self.mean) / self.scale


class Rival:
    """An estimator that sees standardised columns and predicts in the user's units.

    A subclass has `_fit(x, y)` with `x` `[N, X]` and `y` `[N]`, and `_predict(x)`: means and
    standard deviations, `[N]` of Gaussians or `[N, K]` of mixtures of K equal parts.

    Args:
        random_state: Seed, a non-negative integer.
    """

    def __init__(self, random_state: int = 0):
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fits to inputs `[N, X]` and targets `[N]` or `[N, 1]`; returns the estimator."""
        x, y = np.asarray(X, np.float64), np.asarray(y, np.float64).reshape(len(X))
        self._x_units, self._y_units = Units(x), Units(y)
        self._fit(self._x_units.standardised(x), self._y_units.standardised(y))
        return self

    def _fit(self, x, y):
        raise NotImplementedError

    def _predict(self, x):
        raise NotImplementedError

    def predict_distribution(self, X: ArrayLike) -> Distribution:
        """Returns the predictive distribution of the targets, batch `[N]` and event `[1]`."""
        loc, scale = self._predict(self._x_units.standardised(np.asarray(X, np.float64)))
        units = self._y_units
        return gaussians(units.mean + units.scale * loc, units.scale * scale)


def gaussians(loc: ArrayLike, scale: ArrayLike) -> Distribution:
    """Returns Gaussians of arrays `[N]`, or equal mixtures of arrays `[N, K]`; event `[1]`."""
    loc, scale = np.broadcast_arrays(np.asarray(loc, np.float64), np.asarray(scale, np.float64))
    parts = tfd.Independent(tfd.Normal(loc[..., np.newaxis], scale[..., np.newaxis]), 1)
    if loc.ndim == 1:
        return parts
    return tfd.MixtureSameFamily(tfd.Categorical(logits=np.zeros(loc.shape)), parts)


def kernel_density(values: Array) -> tuple[Array, Array]:
    """Returns centres `[K]` and widths `[K]` of Gaussian kernels that estimate a density.

    The widths are Silverman's rule times `sqrt(g / f)` (Abramson 1982). `f` is the density with
    constant widths at the centre and `g` the geometric mean of `f`. So kernels are wide where
    values are rare, and an outlier is less surprising than under a Gaussian tail.

    Args:
        values: Array `[N]`.
    """
    size = len(values)
    centres = values
    if size > _MOST_KERNELS:
        levels = (np.arange(_MOST_KERNELS) + 0.5) / _MOST_KERNELS
        centres = np.quantile(values, levels)
    spread = np.std(values)
    quartiles = np.subtract(*np.quantile(values, [0.75, 0.25])) / 1.349
    spread = min(spread, quartiles) if quartiles > 0.0 else spread
    width = max(0.9 * spread * size**-0.2, 1e-3)
    density = np.exp(_log_density(centres, centres, width))
    return centres, width * np.sqrt(np.exp(np.mean(np.log(density))) / density)


def _log_density(values, centres, widths):
    """Returns the log density at `values` `[N]` of kernels of equal weight."""
    z = (values[:, np.newaxis] - centres) / widths
    logs = -0.5 * z * z - np.log(np.sqrt(2.0 * np.pi) * widths)
    most = logs.max(axis=1, keepdims=True)
    return most[:, 0] + np.log(np.mean(np.exp(logs - most), axis=1))


def held_out(size: int, seed: int, fraction: float = 0.1) -> tuple[Array, Array]:
    """Returns random row numbers: training rows, and a tenth of the rows for early stopping."""
    order = np.random.default_rng(seed).permutation(size)
    cut = max(1, round(fraction * size))
    return np.sort(order[cut:]), np.sort(order[:cut])


def log_density_of_kernels(train: Array, valid: Array) -> float:
    """Returns the mean log density of the kernel estimate from `train` at `valid`."""
    return float(np.mean(_log_density(valid, *kernel_density(train))))
