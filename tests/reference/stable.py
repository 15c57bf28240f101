"""Stable distributions by slow and simple integration, one number at a time, float64.

* `positive_stable` integrates Kanter's representation. `zolotarev` integrates the theorem as Nolan
  (2020) prints it (3.2 and 3.3). Both use the logarithm of the variable's odds, in short pieces.
* `from_characteristic_function` inverts the Fourier transform by the trapezoidal rule.
"""

import numpy as np
from scipy import integrate

PIECES = np.concatenate([np.arange(-60.0, -8.0, 4.0), np.arange(-8.0, 8.0, 0.5), [8, 12, 20, 40]])


def _integral(integrand):
    """Integrates `integrand(u, 1 - u)` over u in (0, 1), in t = log(u / (1 - u))."""

    def in_t(t):
        u, v = 1.0 / (1.0 + np.exp(-t)), 1.0 / (1.0 + np.exp(t))
        return integrand(u, v) * u * v

    pieces = zip(PIECES[:-1], PIECES[1:], strict=True)
    return sum(integrate.quad(in_t, *piece, epsabs=0.0, epsrel=1e-11)[0] for piece in pieces)


def positive_stable(x, a):
    """Returns density and distribution function for the Laplace transform exp(-l^a)."""
    r = a / (1.0 - a)

    def exponent(u, v):
        sines = np.sin([a * np.pi * u, (1.0 - a) * np.pi * u, np.pi * min(u, v)])
        logarithm = [r, 1.0, -1.0 / (1.0 - a)] @ np.log(sines) - r * np.log(x)
        # Beyond 1e5 its exponential is 0 in any case.
        return np.exp(min(logarithm, np.log(1e5)))

    def density(u, v):
        e = exponent(u, v)
        return r / x * e * np.exp(-e)

    return _integral(density), _integral(lambda u, v: np.exp(-exponent(u, v)))


def zolotarev(z, alpha, beta):
    """Returns density and cdf of S1(alpha, beta), for alpha != 1, |beta| < 1 and z != 0."""
    if z < 0.0:
        density, cdf = zolotarev(-z, alpha, -beta)
        return density, 1.0 - cdf
    start = np.arctan(beta * np.tan(np.pi * alpha / 2.0)) / alpha
    width = np.pi / 2.0 + start
    power = alpha / (alpha - 1.0)

    def exponent(u, v):
        theta, angle, cosine = width * u - start, alpha * width * u, np.sin(width * v)
        factor = np.cos(alpha * start) ** (1.0 / (alpha - 1.0)) * (cosine / np.sin(angle)) ** power
        full = z**power * factor * np.cos(alpha * start + (alpha - 1.0) * theta) / cosine
        return min(full, 1e5)

    def density(u, v):
        e = exponent(u, v)
        return e * np.exp(-e)

    with np.errstate(over="ignore", divide="ignore"):
        tail = width / np.pi * _integral(lambda u, v: np.exp(-exponent(u, v)))
        scaled = abs(power) / z * width / np.pi * _integral(density)
    return scaled, 1.0 - tail if alpha > 1.0 else (np.pi / 2.0 - start) / np.pi + tail


def from_characteristic_function(z, alpha, beta):
    """Returns density and cdf of S1(alpha, beta), for alpha >= 0.75 and moderate z."""
    w = np.arange(-45.0, np.log(40.0) / alpha, 2e-4)
    t = np.exp(w)
    if alpha == 1.0:
        bend = -2.0 / np.pi * beta * t * w
    else:
        bend = beta * np.tan(np.pi * alpha / 2.0) * t**alpha
    size, phase = np.exp(-(t**alpha)), z * t - bend
    density = np.sum(size * np.cos(phase) * t) * 2e-4 / np.pi
    return density, 0.5 + np.sum(size * np.sin(phase)) * 2e-4 / np.pi
