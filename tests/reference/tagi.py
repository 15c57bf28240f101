"""TAGI in NumPy, float64: slow, one row at a time, written from the paper.

Goulet, Nguyen & Amiri (2021): products of Gaussians (equations 3 to 6), their sums (10), the
linearised activation (11, 12), and the Rauch-Tung-Striebel step (14 to 16) with explicit
covariances, where the package carries innovations on a gradient tape.

A network is a list of `Block`s: a dense layer and the name of the activation that follows it.
"""

import dataclasses
from itertools import pairwise

import numpy as np
from scipy import integrate

# Activations -------------------------------------------------------------------------------------


def _sigmoid(z):
    return 1.0 / (1.0 + np.exp(-z))


# Name -> function and derivative.
LINEARIZED = {
    "linear": (lambda z: z, lambda z: np.ones_like(z)),
    "relu": (lambda z: np.maximum(z, 0.0), lambda z: (z > 0.0) * 1.0),
    "leaky_relu": (lambda z: np.where(z > 0.0, z, 0.2 * z), lambda z: np.where(z > 0.0, 1.0, 0.2)),
    "tanh": (np.tanh, lambda z: 1.0 - np.tanh(z) ** 2),
    "sigmoid": (_sigmoid, lambda z: _sigmoid(z) * (1.0 - _sigmoid(z))),
    "softplus": (lambda z: np.logaddexp(0.0, z), _sigmoid),
}

# Piecewise-linear name -> function and kinks.
PIECEWISE = {
    "relu": (lambda z: np.maximum(z, 0.0), [0.0]),
    "tanh": (lambda z: np.clip(z, -1.0, 1.0), [-1.0, 1.0]),
    "sigmoid": (lambda z: 0.5 * (1.0 + np.clip(z, -1.0, 1.0)), [-1.0, 1.0]),
}


def linearized_moments(name, mean, variance):
    """Returns mean, variance and slope of f linearised at the mean (equations 11 and 12)."""
    function, derivative = LINEARIZED[name]
    slope = derivative(mean)
    return function(mean), slope**2 * variance, slope


def exact_moments(name, mean, variance):
    """Integrates mean, variance and slope cov(z, f(z))/var(z) of one Gaussian z numerically."""
    function, kinks = PIECEWISE[name]
    centre = function(mean)
    if variance == 0.0:
        step = 2.0**-20
        return centre, 0.0, (function(mean + step) - function(mean - step)) / (2.0 * step)
    stddev = np.sqrt(variance)
    # Between the kinks are polynomials times the density: 200 Gauss-Legendre nodes are exact.
    ends = np.clip([-12.0, *((np.array(kinks) - mean) / stddev), 12.0], -12.0, 12.0)

    def expectation(g):
        def integrand(n):
            return g(mean + stddev * n) * np.exp(-0.5 * n**2) / np.sqrt(2.0 * np.pi)

        return sum(integrate.fixed_quad(integrand, *piece, n=200)[0] for piece in pairwise(ends))

    # The shift by f(mean) avoids cancellation where f is nearly constant.
    shift = expectation(lambda z: function(z) - centre)
    spread = expectation(lambda z: (function(z) - centre - shift) ** 2)
    slope = expectation(lambda z: (function(z) - centre) * (z - mean) / variance)
    return centre + shift, spread, slope


def activation_moments(name, mean, variance):
    """Returns moments of a vector of units; `name` is e.g. "linear", "relu" or "exact relu"."""
    if name is None:
        return mean, variance, np.ones_like(mean)
    if not name.startswith("exact "):
        return linearized_moments(name, mean, variance)
    name = name.removeprefix("exact ")
    rows = [exact_moments(name, m, s) for m, s in zip(mean, variance, strict=True)]
    return tuple(np.array(column, float) for column in zip(*rows, strict=True))


# Dense layers and networks -----------------------------------------------------------------------


@dataclasses.dataclass
class Block:
    """A dense layer, `kernel_*` `[in, out]`, and the activation after it."""

    kernel_mean: np.ndarray
    kernel_variance: np.ndarray
    bias_mean: np.ndarray
    bias_variance: np.ndarray
    activation: str | None = None

    NAMES = ("kernel_mean", "kernel_variance", "bias_mean", "bias_variance")

    def parameters(self):
        return [getattr(self, name) for name in self.NAMES]


def dense_moments(block, mean, variance):
    """Returns moments of `z_j = sum_i w_ij a_i + b_j` (equations 3, 6, 10, all independent)."""
    product_mean = np.zeros_like(block.kernel_mean)
    product_variance = np.zeros_like(block.kernel_mean)
    for i in range(len(mean)):
        mw, sw = block.kernel_mean[i], block.kernel_variance[i]
        product_mean[i] = mean[i] * mw
        product_variance[i] = variance[i] * sw + variance[i] * mw**2 + sw * mean[i] ** 2
    return (
        product_mean.sum(axis=0) + block.bias_mean,
        product_variance.sum(axis=0) + block.bias_variance,
    )


def forward(network, x, input_variance=0.0):
    """Passes one row through the network: output moments, and what each block saw.

    Returns:
        Mean, variance, and for each block a tuple `(ma, cov(z_below, a), mz, Sz)`.
    """
    mean = np.asarray(x, float)
    variance = np.broadcast_to(np.asarray(input_variance, float), mean.shape)
    below = variance  # cov(z, a) of the inputs with themselves
    seen = []
    for block in network:
        z_mean, z_variance = dense_moments(block, mean, variance)
        seen.append((mean, below, z_mean, z_variance))
        mean, variance, slope = activation_moments(block.activation, z_mean, z_variance)
        below = slope * z_variance
    return mean, variance, seen


def row_changes(network, x, y, noise_variance, input_variance=0.0):
    """Returns what one row changes: four arrays for each block, all from one prior.

    NaN in y is missing: that output is not updated.
    """
    mean, variance, seen = forward(network, x, input_variance)
    observed = ~np.isnan(y)
    gain = variance / (variance + noise_variance)  # equation 14
    mean_change = np.where(observed, gain * (np.where(observed, y, 0.0) - mean), 0.0)
    variance_change = np.where(observed, -gain * variance, 0.0)
    changes = []
    for block, (a, below, _, z_variance) in zip(network[::-1], seen[::-1], strict=True):
        # Equation 16: J = cov(theta, z)/var(z), with cov(w_ij, z_j) = Sw_ij a_i.
        gain_kernel = block.kernel_variance * a[:, np.newaxis] / z_variance
        gain_bias = block.bias_variance / z_variance
        changes.insert(
            0,
            [
                gain_kernel * mean_change,
                gain_kernel**2 * variance_change,
                gain_bias * mean_change,
                gain_bias**2 * variance_change,
            ],
        )
        # Equation 15, for the units below the activation: cov(z_i, z+_j) = cov(z_i, a_i) mw_ij.
        gain_units = below[:, np.newaxis] * block.kernel_mean / z_variance
        mean_change, variance_change = gain_units @ mean_change, gain_units**2 @ variance_change
    return changes


def capped_change(mean, variance, mean_change, variance_change, num_rows):
    """Returns new moments, each change limited to `sqrt(variance)/cap`; zeros mean no bias."""
    if not np.any(variance):
        return mean, variance
    cap = 0.1 if num_rows == 1 else 2.0 if num_rows < 256 else 3.0
    limit = np.sqrt(variance) / cap
    new_variance = variance + np.clip(variance_change, -limit, limit)
    new_variance = np.where(new_variance > 0.0, new_variance, 1e-5)
    return mean + np.clip(mean_change, -limit, limit), new_variance


def capped_update(network, x, y, noise_variance, input_variance=0.0):
    """Updates to the posterior after one batch, in place: sums changes over rows, then caps."""
    variances = np.broadcast_to(input_variance, np.shape(x))
    rows = [
        row_changes(network, *row, noise_variance, s)
        for *row, s in zip(x, y, variances, strict=True)
    ]
    for i, block in enumerate(network):
        sums = [sum(row[i][k] for row in rows) for k in range(4)]
        kernel = capped_change(*block.parameters()[:2], *sums[:2], len(x))
        bias = capped_change(*block.parameters()[2:], *sums[2:], len(x))
        for name, value in zip(block.NAMES, (*kernel, *bias), strict=True):
            setattr(block, name, value)


def exact_update(network, x, y, noise_variance, input_variance=0.0):
    """Runs the paper's recursion in place: row by row, without a cap."""
    variances = np.broadcast_to(input_variance, np.shape(x))
    for row, target, s in zip(x, y, variances, strict=True):
        changes = row_changes(network, row, target, noise_variance, s)
        for block, parts in zip(network, changes, strict=True):
            for name, change in zip(block.NAMES, parts, strict=True):
                setattr(block, name, getattr(block, name) + change)


# A graph by hand ---------------------------------------------------------------------------------


@dataclasses.dataclass
class Graph:
    """h = relu(first(x)); r = h + shared(h); c = [shared(r), exact tanh(branch(x))]; last(c).

    `shared` is one layer that is used twice. Both uses learn from one prior, and their changes add.
    """

    first: Block
    shared: Block
    branch: Block
    last: Block

    def blocks(self):
        return [self.first, self.shared, self.branch, self.last]

    def forward(self, x):
        x = np.asarray(x, float)
        zero = np.zeros_like(x)
        t = {"x": (x, zero)}
        t["zh"] = dense_moments(self.first, x, zero)
        *t["h"], t["slope_h"] = linearized_moments("relu", *t["zh"])
        t["s1"] = dense_moments(self.shared, *t["h"])
        t["r"] = (t["h"][0] + t["s1"][0], t["h"][1] + t["s1"][1])
        t["s2"] = dense_moments(self.shared, *t["r"])
        t["zb"] = dense_moments(self.branch, x, zero)
        *t["b"], t["slope_b"] = activation_moments("exact tanh", *t["zb"])
        t["c"] = [np.concatenate([s, b]) for s, b in zip(t["s2"], t["b"], strict=True)]
        t["out"] = dense_moments(self.last, *t["c"])
        return t

    def row_changes(self, x, y, noise_variance):
        """Returns the changes of `blocks()`, from the ratios q and p.

        They are q = change of the mean / variance and p = change of the variance / variance^2.
        In terms of these ratios ("innovations") RTS needs no division by a variance: q_a = W q_z
        and p_a = W^2 p_z through a layer, and both are added up where paths meet.
        """
        t = self.forward(x)

        def weights(block, a, q, p):
            """Returns changes of a layer whose input has mean a, from the ratios of its output."""
            return [
                block.kernel_variance * np.outer(a, q),
                block.kernel_variance**2 * np.outer(a**2, p),
                block.bias_variance * q,
                block.bias_variance**2 * p,
            ]

        def through(block, q, p):
            return block.kernel_mean @ q, block.kernel_mean**2 @ p

        total = t["out"][1] + noise_variance
        q, p = (y - t["out"][0]) / total, -1.0 / total
        last = weights(self.last, t["c"][0], q, p)
        q, p = through(self.last, q, p)
        width = len(t["s2"][0])
        q_s2, p_s2, q_b, p_b = q[:width], p[:width], q[width:], p[width:]
        branch = weights(self.branch, t["x"][0], t["slope_b"] * q_b, t["slope_b"] ** 2 * p_b)
        second_use = weights(self.shared, t["r"][0], q_s2, p_s2)
        q_r, p_r = through(self.shared, q_s2, p_s2)
        first_use = weights(self.shared, t["h"][0], q_r, p_r)  # a sum passes its ratios on
        q_s1, p_s1 = through(self.shared, q_r, p_r)
        q_h, p_h = q_r + q_s1, p_r + p_s1
        first = weights(self.first, t["x"][0], t["slope_h"] * q_h, t["slope_h"] ** 2 * p_h)
        shared = [a + b for a, b in zip(first_use, second_use, strict=True)]
        return [first, shared, branch, last]

    def update(self, x, y, noise_variance, rule):
        """Updates in place: `capped` takes the whole batch at once, `exact` row by row."""
        size = len(x) if rule == "capped" else 1
        for start in range(0, len(x), size):
            xs, ys = x[start : start + size], y[start : start + size]
            rows = [self.row_changes(*row, noise_variance) for row in zip(xs, ys, strict=True)]
            for i, block in enumerate(self.blocks()):
                sums = [sum(row[i][k] for row in rows) for k in range(4)]
                old = block.parameters()
                if rule == "capped":
                    kernel = capped_change(*old[:2], *sums[:2], len(xs))
                    new = (*kernel, *capped_change(*old[2:], *sums[2:], len(xs)))
                else:
                    new = [a + b for a, b in zip(old, sums, strict=True)]
                for name, value in zip(block.NAMES, new, strict=True):
                    setattr(block, name, value)


# Linear models -----------------------------------------------------------------------------------


def linear_regression_posterior(x, y, noise_variance, prior_mean, prior_variance):
    """Returns posterior mean and covariance of w in `y = x w + v`, by textbook formulas."""
    prior_mean, prior_variance = np.array(prior_mean), np.array(prior_variance)
    precision = np.linalg.inv(np.diag(prior_variance)) + x.T @ x / noise_variance
    covariance = np.linalg.inv(precision)
    return covariance @ (prior_mean / prior_variance + x.T @ y / noise_variance), covariance
