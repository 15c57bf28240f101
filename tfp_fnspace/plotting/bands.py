"""The prediction along one input: mean, intervals, function draws, data."""

from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from tfp_fnspace.boundary import arguments, arrays, columns, data
from tfp_fnspace.distributions import quantile
from tfp_fnspace.model import FunctionSpaceModel
from tfp_fnspace.plotting import style
from tfp_fnspace.typing import Array, ArrayLike, Distribution, Seed

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class AlongInput:
    """A model as a function of one input; the others stay at their means or at given values.

    `plot_predictive_band` accepts it in place of a model with one input.

    Args:
        model: Fitted model with inputs of shape `[N, D_in]` and one output.
        x: Rows, array or data frame `[N, D_in]`; the other inputs stay at their means.
        column: Number of the input, from 0, or its name in a data frame.
        at: Values `[D_in]` for the other inputs instead of the means, such as a row of x. If inputs
            are 0 or 1, or depend on each other, their means may be far from any row. Values in a
            series are matched by its index, the names of the columns in any order.

    Raises:
        TypeError: If the model is not one, or an array is not of numbers.
        ValueError: If `x` or `at` does not have this shape or is not finite, a series `at` has
            other names than the columns, or the column does not exist.

    Example:
        >>> x = np.random.default_rng(0).normal(size=(50, 3))
        >>> model = tfp_fnspace.diwp.DIWPModel(tfp_fnspace.diwp.DeepKernel(20, hidden="none"))
        >>> history = model.fit(x, np.sin(x[:, :1]), epochs=100, batch_size=50)
        >>> along = tfp_fnspace.plotting.AlongInput(model, x, column=0)
        >>> grid = np.linspace(-2.0, 2.0, 100)[:, np.newaxis]
        >>> mean = along.predict(grid)["mean"]  # [100, 1]
    """

    def __init__(
        self,
        model: FunctionSpaceModel,
        x: ArrayLike,
        column: int | str,
        at: ArrayLike | None = None,
    ):
        arguments.check_model(model, "predict", "predict_distribution", "sample_functions")
        columns.check_column_names(x, getattr(model, "column_names", None), "x")
        names, x = list(columns.column_names(x) or []), arrays.as_array(x, "x").astype(np.float64)
        number = names.index(column) if column in names else column
        if x.ndim != 2 or number not in range(x.shape[1]):
            raise ValueError(
                "`x` must have shape [N, D_in] with the column. "
                f"Received: x of shape {x.shape}, column={column!r}"
            )
        data.check_finite("x", x, names, "masked, NaN or infinite values")
        center = x.mean(axis=0) if at is None else self._values_at(at, names)
        if center.shape != x.shape[1:]:
            raise ValueError(
                f"`at` must have a value for each of the {x.shape[1]} inputs. "
                f"Received: at of shape {center.shape}"
            )
        data.check_finite("at", center, what="masked, NaN or infinite values")
        self.model, self.center, self.column = model, center, number
        self.likelihood = getattr(model, "likelihood", None)
        self.input_name = str(names[number]) if names else None

    @staticmethod
    def _values_at(at, names):
        index = getattr(at, "index", None)
        if columns.is_series(at) and index is not None:
            known = names or list(range(len(index)))
            if set(index) == set(known) and len(index) == len(known):
                at = at[known]
            elif list(index) != list(range(len(index))):
                raise ValueError(
                    f"`at` must have the names of the columns, {known}, in its index. "
                    f"Received: index={list(index)}"
                )
        return arrays.as_array(at, "at").astype(np.float64)

    def _rows(self, values):
        values = _line("x", values)
        rows = np.repeat(self.center[np.newaxis], len(values), axis=0)
        rows[:, self.column] = values[:, 0]
        return rows

    def predict(self, x: ArrayLike) -> dict[str, Array]:
        """Does what the model does, for values `[N, 1]` of the input."""
        return self.model.predict(self._rows(x))

    def predict_distribution(self, x: ArrayLike) -> Distribution:
        """Does what the model does, for values `[N, 1]` of the input."""
        return self.model.predict_distribution(self._rows(x))

    def sample_functions(self, x: ArrayLike, num_samples: int, seed: Seed = (0, 0)) -> Array:
        """Does what the model does, for values `[N, 1]` of the input."""
        return self.model.sample_functions(self._rows(x), num_samples, seed=seed)


def plot_predictive_band(
    model: FunctionSpaceModel | AlongInput,
    x: ArrayLike,
    *,
    data: Sequence[ArrayLike] | None = None,
    true_function: Callable[[Array], ArrayLike] | None = None,
    num_draws: int = 10,
    level: float = 0.9,
    seed: Seed = (0, 0),
    ax: "Axes | None" = None,
) -> "Axes":
    """Draws the prediction of a model with one input and one output along a line.

    The figure shows the mean, the central `level` interval of the observations (exact quantiles of
    `predict_distribution`), the band mean +- z epistemic stddev with the normal quantile z of the
    same `level`, function draws, the data and the true function. For a model with
    `function_quantiles`, whose functions need not have a mean, it shows the median and quantiles of
    f instead of mean and band.

    Args:
        model: Model with `predict_distribution(x)`, `predict(x)` and
            `sample_functions(x, num_draws, seed=)`.
        x: `[N, 1]` inputs in any order.
        data: Pair `(x, y)` of `[M, 1]` arrays to show as points, without missing ones (NaN,
            masked); a `datasets.Dataset` also works.
        true_function: Map from `[N, 1]` inputs to `[N, 1]` or `[N]` values.
        num_draws: Number of function draws, 0 for none.
        level: Probability of the interval, between 0 and 1.
        seed: Two integers, the seed of the function draws.
        ax: Axes to draw into; None makes a new figure.

    Returns:
        The `matplotlib.axes.Axes`.

    Raises:
        TypeError: If the model is not one, or an array is not of numbers.
        ValueError: If `x` or the prediction does not have exactly one column, `x` is not finite,
            `data` is not a pair of this kind or infinite somewhere, or `level` or `num_draws` is
            out of range.
        ImportError: If matplotlib is not installed.
    """
    arguments.check_model(model, "predict", "predict_distribution", "sample_functions")
    x = np.sort(_line("x", x), axis=0)
    level = arguments.checked_level(level)
    num_draws = arguments.checked_count("num_draws", num_draws, least=0)
    points = None if data is None else _points(data)
    prediction = model.predict(x)
    centre = _one_column("model.predict(x)['mean']", prediction["mean"])[:, 0]
    tail, percent = (1.0 - level) / 2.0, f"{100 * level:g} %"
    function_quantiles = getattr(model, "function_quantiles", None)
    if function_quantiles is not None:
        levels = [tail, 0.5, 1.0 - tail]
        low, centre, high = np.asarray(function_quantiles(x, levels))[:, 0].T
        name, inner_label = "median", f"{percent} of f"
    else:
        z = NormalDist().inv_cdf(0.5 + level / 2)
        reach = z * np.asarray(prediction["epistemic_stddev"])[:, 0]
        low, high = centre - reach, centre + reach
        name, inner_label = "mean", f"{percent} of f (±{z:.2f} epistemic std.)"
    interval = np.asarray(quantile(model.predict_distribution(x), [tail, 1.0 - tail]))

    ax = style.axes(ax)
    line = x[:, 0]
    style.shade(ax, line, *interval[:, 0].T, alpha=0.16, label=f"{percent} of y")
    style.shade(ax, line, low, high, alpha=0.32, label=inner_label)
    if num_draws:
        draws = np.asarray(model.sample_functions(x, num_draws, seed=seed))
        likelihood = getattr(model, "likelihood", None)
        if getattr(likelihood, "has_link", False):
            draws = np.asarray(likelihood.mean(draws))
        draws = draws[:, :, 0]
        ax.plot(line, draws.T, color=style.VERMILLION, lw=0.8, alpha=0.55)
        ax.lines[-1].set_label("draws of f")
    ax.plot(line, centre, color=style.BLUE, lw=2.2, label=name)
    if true_function is not None:
        truth = np.asarray(true_function(x)).reshape(-1)
        ax.plot(line, truth, color=style.BLACK, lw=1.4, ls=style.DASHED, label="true function")
    if points is not None:
        style.points(ax, *points, label="data")
    ax.set(xlabel=getattr(model, "input_name", None) or "x", ylabel="y")
    ax.margins(x=0)
    # An oscillating curve leaves no free corner for the legend, which needs headroom.
    bottom, top = ax.get_ylim()
    ax.set_ylim(bottom, top + 0.18 * (top - bottom))
    return style.finish(ax, loc="upper center", ncols=3)


def _one_column(name, values):
    values = arrays.as_array(values, name)
    if values.ndim != 2 or values.shape[1] != 1 or not len(values):
        raise ValueError(
            f"`{name}` must have shape [N, 1]: the plot has one input and one output (for more "
            "inputs, `plotting.AlongInput` varies one). "
            f"Received: shape={values.shape}"
        )
    return values


def _line(name, values):
    values = _one_column(name, values)
    data.check_finite(name, values, what="masked, NaN or infinite values")
    return values


def _points(pair):
    if not isinstance(pair, tuple | list) or len(pair) < 2:
        raise ValueError(f"`data` must be a pair (x, y). Received: data={type(pair).__name__}")
    x, y = _one_column("data x", pair[0]), _one_column("data y", pair[1])
    data.check_not_infinite("data x", x)
    data.check_not_infinite("data y", y)
    if len(x) != len(y):
        raise ValueError(
            "`data` must have a y for each x. "
            f"Received: data x of shape {x.shape}, data y of shape {y.shape}"
        )
    return x[:, 0], y[:, 0]
