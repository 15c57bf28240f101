"""Expectations under normal distributions in SciPy."""

import numpy as np
from scipy import integrate, stats


def expectation(function, mean, variance):
    """Computes `E function(f)`, f ~ N(mean, variance), by adaptive quadrature."""
    if variance == 0.0:
        return function(mean)
    stddev = np.sqrt(variance)
    density = stats.norm(mean, stddev).pdf
    ends = (mean - 12 * stddev, mean + 12 * stddev)
    return integrate.quad(lambda f: density(f) * function(f), *ends, epsabs=1e-10, limit=200)[0]
