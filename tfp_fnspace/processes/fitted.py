"""A Gaussian process fitted to rows, for priors and least noise of recipes and benchmarks."""

from typing import Any

import numpy as np

from tfp_fnspace.layers.scaler import RunningMoments, Standardizer
from tfp_fnspace.processes.gaussian import GaussianProcess
from tfp_fnspace.processes.kernel_weights import ard_squared_exponential
from tfp_fnspace.typing import ArrayLike

#: The least length scale of a column, in its standard deviations. A column of two values, say,
#: may have one that is next to zero: then the frequencies of the kernel are beyond float32.
_LEAST_LENGTH_SCALE = 1e-3


def fitted_prior(
    x: ArrayLike,
    y: ArrayLike,
    max_rows: int = 500,
    seed: int = 0,
    dtype: Any = None,
    max_iterations: int = 200,
) -> GaussianProcess:
    """Fits a Gaussian process with a squared exponential kernel, one length scale per input.

    Only the first of several rows with equal inputs counts: if data were entered twice, the
    likelihood of a process without noise would be unbounded.

    Args:
        x: Training inputs `[N, X]`.
        y: Training targets `[N, D]`, which share one kernel and one noise.
        max_rows: Maximum number of rows that it is fitted to, drawn at random.
        seed: Seed of the drawn rows.
        dtype: Dtype of the process.
        max_iterations: Maximum number of iterations of L-BFGS, a positive integer.

    Returns:
        `processes.GaussianProcess` in standardised units, with `kernel()` and `noise_scale`.

    Example:
        >>> x = np.linspace(-1.0, 1.0, 30)[:, np.newaxis]
        >>> prior = tfp_fnspace.processes.fitted_prior(x, np.sin(3.0 * x))
        >>> functions = prior.sample(x, 5, seed=0)  # [5, 30, 1]
    """
    x, y = (_standardised(np.asarray(values, np.float64)) for values in (x, y))
    rows = np.sort(np.unique(x, axis=0, return_index=True)[1])
    if len(rows) > max_rows:
        rows = np.random.default_rng(seed).choice(rows, max_rows, replace=False)
    x, y = x[rows], y[rows]
    kernel = ard_squared_exponential(x.shape[1])
    prior = GaussianProcess(kernel, num_outputs=y.shape[1], dtype=dtype)
    prior.fit(x, y, max_iterations=max_iterations)
    lengths = prior.kernel_weights.parameter_weights["scale_diag"]
    least = np.log(np.expm1(_LEAST_LENGTH_SCALE))  # softplus of the weight is the length scale
    lengths.assign(np.maximum(lengths.numpy(), least))
    return prior


def _standardised(values):
    """Standardises values as the models do."""
    moments, scaler = RunningMoments(values.shape[1]), Standardizer()
    moments.update(values)
    scaler.build(values.shape)
    scaler.adapt(moments)
    return scaler(values).numpy()
