"""Toy problems of the five papers and benchmark files with fixed splits (NumPy only).

The toys are generated from the formulas in the papers, so they need no files:

| function | paper | inputs | targets |
|---|---|---|---|
| `cubic` | TAGI 4.1, fBNN fig. 1 | U(-4, 4) | x^3 + N(0, 9) |
| `step_1d` | stable process 4.1, S.3.3 | grid on [-2, 2] | up to three jumps, N(0, 0.25) |
| `step_2d` | stable process 4.2, S.3.4 | grid on [-1, 1]^2 | jumps in the plane, N(0, 0.25) |
| `periodic` | fBNN 5.1.1 | U([-2, -0.5] u [0.5, 2]) | 2 sin(4 x) + N(0, 0.04) |
| `piecewise_constant`, `_linear` | fBNN 5.1.2, D.2 | U(0, 0.2) and U(0.8, 1) | a random f |
| `bimodal` | SIP 5.1 | U(-4, 4) | one of two curves + N(0, 1) |
| `heteroscedastic` | SIP D.2 | U(-4, 4) | 7 sin(x) + 10 + sin(x) N(0, 4) |
| `kinked` | SIP D.3 | U(-4, 5) | constant, then a sine, + N(0, 4) |

`load` reads benchmark files, `k_fold` splits rows for model choice.
"""

import os
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

DATA_DIR_VARIABLE = "TFP_FNSPACE_DATA"

_ARRAYS = ("x", "y", "test_index")


class Dataset(NamedTuple):
    """A toy problem.

    Attributes:
        x: `[N, X]` float64, inputs.
        y: `[N, 1]` float64, noisy targets.
        f: `[N, 1]` float64, mean of `y` given `x`; None where the targets have no single curve.
        function: The map from any `[M, X]` inputs to the `[M, 1]` values of `f`; None like `f`.
    """

    x: np.ndarray
    y: np.ndarray
    f: np.ndarray | None = None
    function: Callable[[np.ndarray], np.ndarray] | None = None


class Split(NamedTuple):
    """One division of a benchmark into training and test rows.

    Attributes:
        x_train: `[N_train, X]` inputs, rows in the order of the file.
        y_train: `[N_train, D]` targets.
        x_test: `[N_test, X]` inputs, rows in the order of the file's `test_index`.
        y_test: `[N_test, D]` targets.
    """

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray


# --------------------------------------------------------------------------- toys: TAGI, fBNN


def cubic(seed=0, num_points=20) -> Dataset:
    """Noisy cube, y = x^3 + v with v ~ N(0, 9) and x ~ U(-4, 4).

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
    x = rng.uniform(-4.0, 4.0, size=(_at_least(1, num_points=num_points), 1))
    return _with_gaussian_noise(x, lambda x: x**3, 3.0, rng)


def periodic(seed=0, num_points=20) -> Dataset:
    """Sinusoid seen on both sides of a gap, y = 2 sin(4 x) + e with e ~ N(0, 0.04).

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
    x = rng.uniform(-1.5, 1.5, size=(_at_least(1, num_points=num_points), 1))
    x += np.where(x < 0.0, -0.5, 0.5)
    return _with_gaussian_noise(x, lambda x: 2.0 * np.sin(4.0 * x), 0.2, rng)


def piecewise_constant(seed=0, num_points=40) -> Dataset:
    """Random step function on [0, 1], seen without noise at its two ends.

    n ~ Poisson(3) jumps at uniform locations, n + 1 levels uniform on [0, 1]. Half of the inputs
    are uniform on [0, 0.2], half on [0.8, 1]. The paper states no noise, so `y` equals `f`.

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


def piecewise_linear(seed=0, num_points=40) -> Dataset:
    """Random broken line on [0, 1] with f(1) = 0, seen without noise at its two ends.

    n ~ Poisson(3) knots at uniform locations; the values at 0 and at the knots are uniform on
    [0, 1]. Half of the inputs are uniform on [0, 0.2], half on [0.8, 1]. The paper states no
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


def step_1d(seed=0, num_points=40, *, function="three_jumps") -> Dataset:
    """Functions on the line with jumps, y = f(x) + N(0, 0.25), x equally spaced on [-2, 2].

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
    x = 2.0 * _symmetric_grid(_at_least(2, num_points=num_points))[:, np.newaxis]
    return _with_gaussian_noise(x, f, 0.5, np.random.default_rng(seed))


def step_2d(seed=0, points_per_axis=7, *, function="quadrants") -> Dataset:
    """Functions on the plane with jumps, y = f(x) + N(0, 0.25), x on a square grid of [-1, 1]^2.

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
    axis = _symmetric_grid(_at_least(2, points_per_axis=points_per_axis))
    x1, x2 = np.meshgrid(axis, axis)
    x = np.stack([x1.ravel(), x2.ravel()], axis=1)

    def f(x):
        return of_coordinates(x[:, :1], x[:, 1:])

    return _with_gaussian_noise(x, f, 0.5, np.random.default_rng(seed))


# --------------------------------------------------------------------------- toys: SIP


def bimodal(seed=0, num_points=1000) -> Dataset:
    """Two curves crossing, y = 10 sin(x - 0.5) + e or 10 cos(x - 0.5) + e, each w.p. 1/2.

    e ~ N(0, 1), x ~ U(-4, 4), and each point chooses its curve by itself: the law of y given x is
    a mixture of two normals, so `f` and `function` are None.

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
    x = rng.uniform(-4.0, 4.0, size=(_at_least(1, num_points=num_points), 1))
    first = rng.random(x.shape) < 0.5
    curve = np.where(first, 10.0 * np.sin(x - 0.5), 10.0 * np.cos(x - 0.5))
    return Dataset(x, curve + rng.standard_normal(x.shape))


def heteroscedastic(seed=0, num_points=1000) -> Dataset:
    """Sine with noise that comes and goes, y = 7 sin(x) + e sin(x) + 10 with e ~ N(0, 2^2).

    x ~ U(-4, 4); the noise has standard deviation 2 |sin(x)| and vanishes at multiples of pi.

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
    x = rng.uniform(-4.0, 4.0, size=(_at_least(1, num_points=num_points), 1))
    return _with_gaussian_noise(x, lambda x: 7.0 * np.sin(x) + 10.0, 2.0 * np.sin(x), rng)


def kinked(seed=0, num_points=1000) -> Dataset:
    """Constant that turns into a sine at 0, y = f(x) + e with e ~ N(0, 2^2) and x ~ U(-4, 5).

    f(x) = 10 for x < 0 and 10 (1 + sin(x)) for x >= 0: continuous, without a derivative at 0.

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
    x = rng.uniform(-4.0, 5.0, size=(_at_least(1, num_points=num_points), 1))
    return _with_gaussian_noise(x, lambda x: 10.0 * (1.0 + np.sin(np.maximum(x, 0.0))), 2.0, rng)


# --------------------------------------------------------------------------- benchmark files


@dataclass(frozen=True, eq=False)
class Benchmark:
    """A data set with fixed splits, as read by `load`.

    Attributes:
        name: Name under which it was loaded.
        x: `[N, X]` inputs in the units of the file.
        y: `[N, D]` targets in the units of the file.
        test_index: `[num_splits, N_test]` row numbers of the test part of each split.
    """

    name: str
    x: np.ndarray
    y: np.ndarray
    test_index: np.ndarray

    @property
    def num_splits(self) -> int:
        """Number of fixed splits."""
        return len(self.test_index)

    def split(self, k) -> Split:
        """Rows of split `k`: the test rows listed in the file, all others for training.

        Args:
            k: Number of the split, 0 <= k < `num_splits`.

        Returns:
            `Split` of copies in the units of the file.

        Raises:
            ValueError: If `k` is not the number of a split.
        """
        if not _is_integer(k) or not 0 <= k < self.num_splits:
            raise ValueError(
                f"`k` must be an integer from 0 to {self.num_splits - 1} for '{self.name}'. "
                f"Received: k={k!r}"
            )
        test = self.test_index[k]
        train = np.setdiff1d(np.arange(len(self.x)), test)
        return Split(self.x[train], self.y[train], self.x[test], self.y[test])


def load(name, data_dir=None) -> Benchmark:
    """Reads the benchmark `<data_dir>/<name>.npz`.

    The file holds `x` `[N, X]`, `y` `[N, D]` or `[N]`, and `test_index` `[num_splits, N_test]` or
    `[N_test]` (one split). float32 and float64 are kept, other numbers become float64. Nothing is
    standardised and nothing is ever written.

    Example:
        >>> boston = load("boston", "data/uci")  # or load("uci/boston", "data")
        >>> x_train, y_train, x_test, y_test = boston.split(0)

    Args:
        name: Path of the file below `data_dir`, without `.npz`: `"boston"` when `data_dir` is the
            folder of the file, `"uci/boston"` when it is the parent of `uci`.
        data_dir: Folder; by default the environment variable `TFP_FNSPACE_DATA`.

    Returns:
        `Benchmark` with `x` `[N, X]`, `y` `[N, D]`, `num_splits` and `split(k)`.

    Raises:
        FileNotFoundError: If the folder or the file is missing; the latter lists what is there.
        ValueError: If no folder is given at all, or the file lacks an array, or an array has the
            wrong type or shape, or test indices are out of range or repeated.
    """
    folder = _data_folder(data_dir)
    path = folder / f"{name}.npz"
    if not path.is_file():
        raise FileNotFoundError(
            f"`name` must be one of {available(folder)} in '{folder}'. Received: name={name!r}"
        )
    if not zipfile.is_zipfile(path):
        raise ValueError(f"A data file must be a complete .npz archive. Received: path='{path}'")
    with np.load(path, allow_pickle=False) as archive:
        missing = [key for key in _ARRAYS if key not in archive.files]
        if missing:
            raise ValueError(
                f"A data file must hold the arrays 'x', 'y' and 'test_index'; {missing} missing. "
                f"Received: path='{path}' with {sorted(archive.files)}"
            )
        x, y, test_index = (archive[key] for key in _ARRAYS)
    x, y = _real_matrices(x, y, path)
    return Benchmark(str(name), x, y, _checked_test_index(test_index, len(x), path))


def available(data_dir=None) -> list[str]:
    """Names that `load` accepts: files in the folder itself and one folder below it.

    Args:
        data_dir: Folder; by default the environment variable `TFP_FNSPACE_DATA`.

    Returns:
        Sorted names such as `"boston"` or `"uci/boston"`; archives without the arrays `x`, `y` and
        `test_index` are left out.

    Raises:
        FileNotFoundError: If the folder is missing.
        ValueError: If no folder is given at all.
    """
    folder = _data_folder(data_dir)
    paths = [*folder.glob("*.npz"), *folder.glob("*/*.npz")]
    names = (path.relative_to(folder).as_posix() for path in paths if _has_the_arrays(path))
    return sorted(name.removesuffix(".npz") for name in names)


def k_fold(num_rows, num_folds, seed=0) -> list[tuple[np.ndarray, np.ndarray]]:
    """Random folds of the rows 0 ... num_rows - 1 for cross-validation.

    Every row is a validation row exactly once; fold sizes differ by at most one.

    Args:
        num_rows: Number of rows, at least 2.
        num_folds: Number of folds, 2 <= num_folds <= num_rows.
        seed: Seed of `numpy.random.default_rng`.

    Returns:
        `num_folds` pairs `(train_index, valid_index)` of sorted row numbers.

    Raises:
        ValueError: If `num_rows` or `num_folds` is out of range.
    """
    _at_least(2, num_rows=num_rows)
    if not _is_integer(num_folds) or not 2 <= num_folds <= num_rows:
        raise ValueError(
            f"`num_folds` must be an integer from 2 to `num_rows`={num_rows}. "
            f"Received: num_folds={num_folds!r}"
        )
    order = np.random.default_rng(seed).permutation(num_rows)
    folds = [np.sort(fold) for fold in np.array_split(order, num_folds)]
    return [(np.setdiff1d(order, valid), valid) for valid in folds]


# --------------------------------------------------------------------------- helpers


def _with_gaussian_noise(x, function, stddev, rng):
    f = function(x)
    return Dataset(x, f + stddev * rng.standard_normal(f.shape), f, function)


def _seen_at_both_ends(function, num_points, rng):
    num_right = _at_least(2, num_points=num_points) // 2
    left = rng.uniform(0.0, 0.2, size=(num_points - num_right, 1))
    x = np.concatenate([left, rng.uniform(0.8, 1.0, size=(num_right, 1))])
    return Dataset(x, function(x), function(x), function)


def _random_pieces(rng):
    """Sorted locations, Poisson(3) many, and one value more, all uniform on [0, 1]."""
    num_locations = rng.poisson(3.0)
    return np.sort(rng.random(num_locations)), rng.random(num_locations + 1)


def _symmetric_grid(num_points):
    # Unlike `linspace`, a ratio of integers is exactly odd around 0, so that a point on the edge
    # x1 + x2 = 0 falls on the side that the formula says and not where rounding puts it.
    return np.arange(1 - num_points, num_points, 2) / (num_points - 1)


def _choose(functions, function):
    if function not in functions:
        raise ValueError(
            f"`function` must be one of {list(functions)}. Received: function={function!r}"
        )
    return functions[function]


def _is_integer(value):
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _at_least(minimum, **argument):
    ((name, value),) = argument.items()
    if not _is_integer(value) or value < minimum:
        raise ValueError(
            f"`{name}` must be an integer of at least {minimum}. Received: {name}={value!r}"
        )
    return value


def _data_folder(data_dir):
    data_dir = data_dir or os.environ.get(DATA_DIR_VARIABLE)
    if not data_dir:
        raise ValueError(
            "A data folder must be given, either as the argument `data_dir` or as the environment "
            f"variable {DATA_DIR_VARIABLE}. Received: data_dir={data_dir!r}"
        )
    folder = Path(data_dir)
    if not folder.is_dir():
        raise FileNotFoundError(
            f"`data_dir` (or {DATA_DIR_VARIABLE}) must be an existing folder. "
            f"Received: data_dir='{folder}'"
        )
    return folder


def _has_the_arrays(path):
    # The archive's directory is enough: reading the arrays of every file would take seconds.
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return {f"{key}.npy" for key in _ARRAYS} <= set(archive.namelist())


def _real_matrices(x, y, path):
    y = y[:, np.newaxis] if y.ndim == 1 else y
    if x.ndim != 2 or y.ndim != 2 or len(x) != len(y) or x.size == 0 or y.size == 0:
        raise ValueError(
            "`x` must have shape [N, X] and `y` shape [N, D] or [N] with the same N, none empty. "
            f"Received: x.shape={x.shape}, y.shape={y.shape} in '{path}'"
        )
    return _real(x, "x", path), _real(y, "y", path)


def _real(values, name, path):
    if values.dtype.kind not in "fiub":
        raise ValueError(
            f"`{name}` must hold real numbers. Received: {name}.dtype={values.dtype} in '{path}'"
        )
    return values if values.dtype in (np.float32, np.float64) else values.astype(np.float64)


def _checked_test_index(test_index, num_rows, path):
    test_index = test_index[np.newaxis] if test_index.ndim == 1 else test_index
    if test_index.ndim != 2 or test_index.size == 0 or test_index.dtype.kind not in "iu":
        raise ValueError(
            "`test_index` must hold integers in shape [num_splits, N_test] or [N_test]. Received: "
            f"test_index.shape={test_index.shape}, dtype={test_index.dtype} in '{path}'"
        )
    low, high = test_index.min(), test_index.max()
    if low < 0 or high >= num_rows:
        raise ValueError(
            f"`test_index` must lie between 0 and {num_rows - 1}, the rows of `x`. "
            f"Received: test_index from {low} to {high} in '{path}'"
        )
    if (np.diff(np.sort(test_index, axis=1), axis=1) == 0).any():
        raise ValueError(
            "`test_index` must not name a row twice in one split. "
            f"Received: test_index with repeated rows in '{path}'"
        )
    if test_index.shape[1] == num_rows:
        raise ValueError(
            "`test_index` must leave rows to train on. "
            f"Received: {num_rows} test rows of {num_rows} in '{path}'"
        )
    return test_index
