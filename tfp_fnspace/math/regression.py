"""Bayesian linear regression from sums over rows."""

import numpy as np
import tensorflow as tf

from tfp_fnspace.typing import Array, ArrayLike

#: Number of noise scales that a round of the search tries, and number of rounds.
_GRID, _ROUNDS = 101, 4


class LinearRegression:
    r"""Bayesian linear regression of D columns on the same I features.

        y_d = A w_d + e,     w_d ~ N(0, diag(s^2)),     e ~ N(0, sigma_d^2 I)

    The regression uses float64 and the eigenvectors of `S A^T A S`. This also works where the noise
    is so small that the posterior's precision has no Cholesky factor.

    Args:
        prior_scales: s, array `[I]`.
        num_outputs: D.
    """

    def __init__(self, prior_scales: ArrayLike, num_outputs: int):
        self.scales = np.asarray(prior_scales, np.float64)
        size = len(self.scales)
        self._squares = np.zeros([size, size])
        self._products = np.zeros([size, num_outputs])
        self._energy, self._num_rows = np.zeros(num_outputs), 0
        self._spectrum = None

    def update(
        self, design: ArrayLike, targets: ArrayLike, row_weights: Array | None = None
    ) -> None:
        """Adds rows.

        Args:
            design: Rows of A, `[B, I]`.
            targets: Rows of y, `[B, D]`.
            row_weights: Array `[B]`; a row of weight w counts as w copies. `None` stands for ones.
        """
        design, targets = (tf.cast(values, tf.float64) for values in (design, targets))
        num_rows = len(targets)
        if row_weights is not None:
            roots = np.sqrt(row_weights)[:, np.newaxis]
            design, targets, num_rows = roots * design, roots * targets, np.sum(row_weights)
        self._squares += tf.matmul(design, design, transpose_a=True).numpy()
        self._products += tf.matmul(design, targets, transpose_a=True).numpy()
        self._energy += tf.reduce_sum(tf.square(targets), axis=0).numpy()
        self._num_rows += num_rows
        self._spectrum = None

    def _decomposed(self):
        """Returns eigenvalues `[I]`, -vectors `[I, I]` of `S A^T A S`; `V^T S A^T y`, `[I, D]`."""
        if self._spectrum is None:
            column = self.scales[:, np.newaxis]
            values, axes = np.linalg.eigh(column * self._squares * self.scales)
            loads = axes.T @ (column * self._products)
            self._spectrum = np.maximum(values, 0.0), axes, loads
        return self._spectrum

    def posterior(self, noise_scale: ArrayLike) -> tuple[Array, Array]:
        """Returns the distribution of the weights given the rows.

        Args:
            noise_scale: sigma, positive, `[]` or `[D]`.

        Returns:
            Means `[I, D]`, and lower triangular roots R `[D, I, I]` of the covariances, `R R^T`.
        """
        values, axes, loads = self._decomposed()
        variances = np.broadcast_to(np.square(noise_scale), loads.shape[1:])
        ratios = variances[:, np.newaxis] / (values + variances[:, np.newaxis])  # [D, I]
        means = axes @ (loads * ratios.T / variances)
        roots = [np.transpose(np.linalg.qr((axes * np.sqrt(each)).T, mode="r")) for each in ratios]
        column = self.scales[:, np.newaxis]
        return column * means, column * np.stack(roots)

    def log_marginal_likelihood(self, noise_scale: ArrayLike) -> Array:
        """Returns the log density of each column given the noise, up to a constant.

        Args:
            noise_scale: sigma, positive, `[...]`.

        Returns:
            Array `[..., D]`.
        """
        values, _, loads = self._decomposed()
        variance = np.square(np.asarray(noise_scale, np.float64))[..., np.newaxis]
        log_determinant = (self._num_rows - len(values)) * np.log(variance[..., 0])
        log_determinant = log_determinant + np.sum(np.log(values + variance), axis=-1)
        explained = np.square(loads) / (values + variance)[..., np.newaxis]
        energy = (self._energy - np.sum(explained, axis=-2)) / variance
        return -0.5 * (log_determinant[..., np.newaxis] + energy)

    def best_noise_scale(self, least: float, separate: bool = False) -> float | Array:
        """Returns the sigma with the largest marginal likelihood that is not below a bound.

        Args:
            least: Positive number.
            separate: Whether each column has its own sigma.

        Returns:
            Number, or array `[D]`.
        """
        largest = max(2.0 * np.sqrt(np.max(self._energy) / self._num_rows), 2.0 * least)
        if not separate:
            return self._searched(least, largest, slice(None))
        return np.array([self._searched(least, largest, [d]) for d in range(len(self._energy))])

    def _searched(self, low, high, columns):
        """Returns the best scale on a grid that narrows about it."""
        least, largest, best = low, high, low
        for _ in range(_ROUNDS):
            grid = np.geomspace(low, high, _GRID)
            values = np.sum(self.log_marginal_likelihood(grid)[:, columns], axis=1)
            best, step = grid[np.argmax(values)], grid[1] / grid[0]
            low, high = max(least, best / step), min(largest, best * step)
        return float(best)
