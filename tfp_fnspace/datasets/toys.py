"""Toy problems of the five papers, generated from their formulas."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tfp_fnspace.boundary.arguments import checked_choice, checked_count


class Dataset(NamedTuple):
    """A toy problem.

    Attributes:
        x: `[N, X]` float64, inputs.
        y: `[N, 1]` float64, noisy targets.
        f: `[N, 1]` float64, mean of `y` given `x`; None if the targets have no single curve.
        function: The map from any `[M, X]` inputs to the `[M, 1]` values of `f`; None like `f`.
    """

    x: np.ndarray
    y: np.ndarray
    f: np.ndarray | None = None
    function: Callable[[np.ndarray], np.ndarray] | None = None


# --------------------------------------------------------------------------- toys: TAGI, fBNN


def cubic(seed: int = 0, num_points: int = 20) -> Dataset:
    """Returns a noisy cube, y = x^3 + v with v ~ N(0, 9) and x ~ U(-4, 4).

    The validation set of the paper is a second draw: `train, valid = cubic(0), cubic(1)`.

    Args:
        seed: Seed of `numpy.random.default_rng`.
        num_points: Number of points, at least 1; the paper has 20 for training and 20 for
            validation.

    Returns:
        `Dataset` with `[num_points, 1]` arrays.

    Raises:
        ValueError: If `num_points` is not a positive integer.

    References:
        Goulet, Nguyen & Amiri (2021), "Tractable Approximate Gaussian Inference for Bayesian
        Neural Networks", section 4.1, after Hernandez-Lobato & Adams (2015); also figure 1 of
        Sun et al. (2019), "Functional Variational Bayesian Neural Networks".
    """
    rng = np.random.default_rng(seed)
    x = rng.uniform(-4.0, 4.0, size=(checked_count("num_points", num_points), 1))
    return _with_gaussian_noise(x, lambda x: x**3, 3.0, rng)


def periodic(seed: int = 0, num_points: int = 20) -> Dataset:
    """Returns a sinusoid on both sides of a gap, y = 2 sin(4 x) + e with e ~ N(0, 0.04).

    The inputs are uniform on [-2, -0.5] u [0.5, 2]; the gap and both outsides test extrapolation.

    Args:
        seed: Seed of `numpy.random.default_rng`.
        num_points: Number of points, at least 1; the paper has 20.

    Returns:
        `Dataset` with `[num_points, 1]` arrays.

    Raises:
        ValueError: If `num_points` is not a positive integer.

    References:
        Sun et al. (2019), "Functional Variational Bayesian Neural Networks", section 5.1.1.
    """
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1.5, 1.5, size=(checked_count("num_points", num_points), 1))
    x += np.where(x < 0.0, -0.5, 0.5)
    return _with_gaussian_noise(x, lambda x: 2.0 * np.sin(4.0 * x), 0.2, rng)


def piecewise_constant(seed: int = 0, num_points: int = 40) -> Dataset:
    """Returns a random step function on [0, 1], seen without noise at its two ends.

    It has n ~ Poisson(3) jumps at uniform locations and n + 1 levels that are uniform on [0, 1].
    Half of the inputs are uniform on [0, 0.2], half on [0.8, 1]. The paper states no noise, so `y`
    equals `f`.

    Args:
        seed: Seed of `numpy.random.default_rng`; it also draws the function.
        num_points: Number of points, at least 2; an odd one goes to the left. The paper has 40.

    Returns:
        `Dataset` with `[num_points, 1]` arrays.

    Raises:
        ValueError: If `num_points` is not an integer of at least 2.

    References:
        Sun et al. (2019), "Functional Variational Bayesian Neural Networks", section 5.1.2 and
        appendix D.2.
    """
    rng = np.random.default_rng(seed)
    jumps, levels = _random_pieces(rng)

    def function(x):
        return levels[np.searchsorted(jumps, x, side="right")]

    return _seen_at_both_ends(function, num_points, rng)


def piecewise_linear(seed: int = 0, num_points: int = 40) -> Dataset:
    """Returns a random broken line on [0, 1], f(1) = 0, seen without noise at its two ends.

    It has n ~ Poisson(3) knots at uniform locations. The values at 0 and at the knots are uniform
    on [0, 1]. Half of the inputs are uniform on [0, 0.2], half on [0.8, 1]. The paper states no
    noise, so `y` equals `f`.

    Args:
        seed: Seed of `numpy.random.default_rng`; it also draws the function.
        num_points: Number of points, at least 2; an odd one goes to the left. The paper has 40.

    Returns:
        `Dataset` with `[num_points, 1]` arrays.

    Raises:
        ValueError: If `num_points` is not an integer of at least 2.

    References:
        Sun et al. (2019), "Functional Variational Bayesian Neural Networks", section 5.1.2 and
        appendix D.2.
    """
    rng = np.random.default_rng(seed)
    knots, values = _random_pieces(rng)
    knots, values = np.r_[0.0, knots, 1.0], np.r_[values, 0.0]
    return _seen_at_both_ends(lambda x: np.interp(x, knots, values), num_points, rng)


# --------------------------------------------------------------------------- toys: stable process


def _three_jumps(x):
    return 5.0 * ((x >= 1.0) | ((x >= -1.0) & (x < 0.0)))


def _two_jumps(x):
    return 5.0 * ((x >= -2.0 / 3.0) & (x < 2.0 / 3.0))


def _piecewise_smooth(x):
    return np.where(x >= 0.0, -2.0 * x**2 + 8.0, -3.0 * x + 2.0)


def _smooth_1d(x):
    return -2.0 * np.cos(x) ** 2 + 3.0 * np.tanh(x) - 2.0 * x


_FUNCTIONS_1D = {
    "three_jumps": _three_jumps,
    "one_jump": lambda x: 5.0 * (x > 0.0),
    "two_jumps": _two_jumps,
    "piecewise_smooth": _piecewise_smooth,
    "smooth": _smooth_1d,
}

_FUNCTIONS_2D = {
    "quadrants": lambda x1, x2: 5.0 * (x1 > 0.0) + 5.0 * (x2 > 0.0),
    "diagonal": lambda x1, x2: 5.0 * (x1 + x2 > 0.0),
    "curved_edge": lambda x1, x2: 5.0 * (x1**2 + 2.0 * x2 - 0.4 > 0.0),
    "smooth": lambda x1, x2: x1**2 + x2**2 - x1 * x2,
}


def step_1d(seed: int = 0, num_points: int = 40, *, function: str = "three_jumps") -> Dataset:
    """Returns a function of x with jumps, y = f(x) + N(0, 0.25), x equally spaced on [-2, 2].

    | `function` | f(x) | section |
    |---|---|---|
    | `"three_jumps"` | 5 where x >= 1 or -1 <= x < 0, else 0 | 4.1 |
    | `"one_jump"` | 5 where x > 0, else 0 | S.3.3 |
    | `"two_jumps"` | 5 where -2/3 <= x < 2/3, else 0 | S.3.3 |
    | `"piecewise_smooth"` | -2 x^2 + 8 where x >= 0, else -3 x + 2 | S.3.3 |
    | `"smooth"` | -2 cos(x)^2 + 3 tanh(x) - 2 x | S.3.3 |

    Args:
        seed: Seed of `numpy.random.default_rng`; it draws the noise only.
        num_points: Number of points, at least 2; the paper has 40 to train and 100 to predict.
        function: Name of f, see the table.

    Returns:
        `Dataset` with `[num_points, 1]` arrays.

    Raises:
        ValueError: If `num_points` is not an integer of at least 2 or `function` is unknown.

    References:
        Loria & Bhadra (2023), "Posterior Inference on Shallow Infinitely Wide Bayesian Neural
        Networks under Weights with Unbounded Variance".
    """
    f = _choose(_FUNCTIONS_1D, function)
    x = 2.0 * _symmetric_grid(checked_count("num_points", num_points, 2))[:, np.newaxis]
    return _with_gaussian_noise(x, f, 0.5, np.random.default_rng(seed))


def step_2d(seed: int = 0, points_per_axis: int = 7, *, function: str = "quadrants") -> Dataset:
    """Returns a function with jumps, y = f(x) + N(0, 0.25), x on a square grid of [-1, 1]^2.

    | `function` | f(x1, x2) | section |
    |---|---|---|
    | `"quadrants"` | 5 [x1 > 0] + 5 [x2 > 0] | 4.2 |
    | `"diagonal"` | 5 [x1 + x2 > 0] | S.3.4 |
    | `"curved_edge"` | 5 [x1^2 + 2 x2 - 0.4 > 0] | S.3.4 |
    | `"smooth"` | x1^2 + x2^2 - x1 x2 | S.3.4 |

    Args:
        seed: Seed of `numpy.random.default_rng`; it draws the noise only.
        points_per_axis: Points along each axis, at least 2; the paper has 7 to train and 9 to
            predict.
        function: Name of f, see the table.

    Returns:
        `Dataset` with `x` `[points_per_axis**2, 2]` (x1 varies fastest) and `y`, `f`
        `[points_per_axis**2, 1]`.

    Raises:
        ValueError: If `points_per_axis` is not an integer of at least 2 or `function` is unknown.

    References:
        Loria & Bhadra (2023), "Posterior Inference on Shallow Infinitely Wide Bayesian Neural
        Networks under Weights with Unbounded Variance".
    """
    of_coordinates = _choose(_FUNCTIONS_2D, function)
    axis = _symmetric_grid(checked_count("points_per_axis", points_per_axis, 2))
    x1, x2 = np.meshgrid(axis, axis)
    x = np.stack([x1.ravel(), x2.ravel()], axis=1)

    def f(x):
        return of_coordinates(x[:, :1], x[:, 1:])

    return _with_gaussian_noise(x, f, 0.5, np.random.default_rng(seed))


# --------------------------------------------------------------------------- toys: SIP


def bimodal(seed: int = 0, num_points: int = 1000) -> Dataset:
    """Returns crossing curves, y = 10 sin(x - 0.5) + e or 10 cos(x - 0.5) + e, each w.p. 1/2.

    Here e ~ N(0, 1) and x ~ U(-4, 4), and each point chooses its curve independently. The
    distribution of y given x is a mixture of two normals, so `f` and `function` are None.

    Args:
        seed: Seed of `numpy.random.default_rng`.
        num_points: Number of points, at least 1; the paper has 1000.

    Returns:
        `Dataset` with `[num_points, 1]` arrays `x`, `y`.

    Raises:
        ValueError: If `num_points` is not a positive integer.

    References:
        Rodriguez Santana, Zaldivar & Hernandez-Lobato (2022), "Function-space Inference with
        Sparse Implicit Processes", section 5.1.
    """
    rng = np.random.default_rng(seed)
    x = rng.uniform(-4.0, 4.0, size=(checked_count("num_points", num_points), 1))
    first = rng.random(x.shape) < 0.5
    curve = np.where(first, 10.0 * np.sin(x - 0.5), 10.0 * np.cos(x - 0.5))
    return Dataset(x, curve + rng.standard_normal(x.shape))


def heteroscedastic(seed: int = 0, num_points: int = 1000) -> Dataset:
    """Returns a sine with varying noise, y = 7 sin(x) + e sin(x) + 10 with e ~ N(0, 2^2).

    The inputs are x ~ U(-4, 4). The noise has standard deviation 2 |sin(x)| and vanishes at
    multiples of pi.

    Args:
        seed: Seed of `numpy.random.default_rng`.
        num_points: Number of points, at least 1; the paper has 1000.

    Returns:
        `Dataset` with `[num_points, 1]` arrays.

    Raises:
        ValueError: If `num_points` is not a positive integer.

    References:
        Rodriguez Santana, Zaldivar & Hernandez-Lobato (2022), "Function-space Inference with
        Sparse Implicit Processes", appendix D.2, equation 20.
    """
    rng = np.random.default_rng(seed)
    x = rng.uniform(-4.0, 4.0, size=(checked_count("num_points", num_points), 1))
    return _with_gaussian_noise(x, lambda x: 7.0 * np.sin(x) + 10.0, 2.0 * np.sin(x), rng)


def kinked(seed: int = 0, num_points: int = 1000) -> Dataset:
    """Returns a constant that turns into a sine, y = f(x) + e, e ~ N(0, 2^2), x ~ U(-4, 5).

    The function is f(x) = 10 for x < 0 and 10 (1 + sin(x)) for x >= 0. It is continuous, without a
    derivative at 0.

    Args:
        seed: Seed of `numpy.random.default_rng`.
        num_points: Number of points, at least 1; the paper has 1000.

    Returns:
        `Dataset` with `[num_points, 1]` arrays.

    Raises:
        ValueError: If `num_points` is not a positive integer.

    References:
        Rodriguez Santana, Zaldivar & Hernandez-Lobato (2022), "Function-space Inference with
        Sparse Implicit Processes", appendix D.3, equation 21.
    """
    rng = np.random.default_rng(seed)
    x = rng.uniform(-4.0, 5.0, size=(checked_count("num_points", num_points), 1))
    return _with_gaussian_noise(x, lambda x: 10.0 * (1.0 + np.sin(np.maximum(x, 0.0))), 2.0, rng)


# --------------------------------------------------------------------------- helpers


def _with_gaussian_noise(x, function, stddev, rng):
    f = function(x)
    return Dataset(x, f + stddev * rng.standard_normal(f.shape), f, function)


def _seen_at_both_ends(function, num_points, rng):
    num_right = checked_count("num_points", num_points, 2) // 2
    left = rng.uniform(0.0, 0.2, size=(num_points - num_right, 1))
    x = np.concatenate([left, rng.uniform(0.8, 1.0, size=(num_right, 1))])
    return Dataset(x, function(x), function(x), function)


def _random_pieces(rng):
    """Returns Poisson(3) many sorted locations, and one value more, all uniform on [0, 1]."""
    num_locations = rng.poisson(3.0)
    return np.sort(rng.random(num_locations)), rng.random(num_locations + 1)


def _symmetric_grid(num_points):
    # Unlike `linspace`, a ratio of integers is exactly odd around 0, so that a point on the edge
    # x1 + x2 = 0 falls on the side that the formula says, whatever the rounding.
    return np.arange(1 - num_points, num_points, 2) / (num_points - 1)


def _choose(functions, function):
    return functions[checked_choice("function", function, functions)]
