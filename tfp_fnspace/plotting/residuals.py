"""Where is the prediction wrong? Standardised residuals by input."""

from typing import TYPE_CHECKING

import numpy as np

from tfp_fnspace.metrics.scores import standardized_residuals
from tfp_fnspace.plotting import style
from tfp_fnspace.plotting.tables import column_of
from tfp_fnspace.typing import Array, ArrayLike, Distribution

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Rows in a window of the running mean: at least so many, and this share of all.
_LEAST_ROWS, _SHARE = 20, 0.1


def plot_residuals(
    x: ArrayLike,
    y: ArrayLike,
    distribution: Distribution,
    column: int | str,
    *,
    ax: "Axes | None" = None,
) -> "Axes":
    """Draws residuals in units of the predicted standard deviation against an input.

        z = (y - mean) / stddev

    If the prediction is right, they have mean 0 and standard deviation 1 whatever the input is. The
    figure shows a running mean and the running standard deviation about it, at each value of the
    input, over the rows with this value or the nearest tenth of the rows (at least 20), if these
    are more. Where the band is wider than 1 the predictions are too sure, where it is narrower they
    are not sure enough, and where it is off 0 they are biased. The outputs are pooled.

    Args:
        x: Rows, array or data frame `[N, P]`; rows with a missing value in the column are left out.
        y: `[N, D]` observations, NaN if missing.
        distribution: `tfd.Distribution` with batch `[N]` and event `[D]`.
        column: Number of the input, from 0, or its name in a data frame. It may hold words, which
            each have a mean and a standard deviation.
        ax: Axes to draw into; None makes a new figure.

    Returns:
        The `matplotlib.axes.Axes`.

    Raises:
        TypeError: If the column holds neither numbers nor words.
        ValueError: If there is no such column, `x` and `y` have different lengths, `y` does not fit
            the distribution, or the distribution has no mean and standard deviation.
        ImportError: If matplotlib is not installed.
    """
    inputs = column_of(x, column)
    residuals = np.asarray(standardized_residuals(y, distribution), np.float64)
    residuals = residuals.reshape(len(residuals), -1)  # [N, D]
    if len(inputs.values) != len(residuals):
        raise ValueError(
            "`x` must have a row for each row of `y`. "
            f"Received: x of {len(inputs.values)} rows, y of {len(residuals)}"
        )
    values = np.repeat(inputs.values, residuals.shape[1])
    known = np.isfinite(values) & np.isfinite(residuals.reshape(-1))
    values, residuals = values[known], residuals.reshape(-1)[known]
    if not values.size:
        raise ValueError(
            "There must be a row with a known input, a known observation, and a prediction with "
            f"mean and standard deviation. Received: none, column={column!r}"
        )
    least = max(_LEAST_ROWS, int(np.ceil(_SHARE * values.size)))
    at, mean, spread = _running(values, residuals, least if inputs.words is None else 1)

    ax = style.axes(ax)
    style.points(ax, values, residuals, label=f"rows ({values.size})")
    label = "running mean ± standard deviation"
    if inputs.words is None:
        style.shade(ax, at, mean - spread, mean + spread, alpha=0.28, label=label)
        ax.plot(at, mean, color=style.BLUE, lw=2.2)
    else:
        bars = {"fmt": "o", "color": style.BLUE, "lw": 2.2, "capsize": 4, "zorder": 5}
        ax.errorbar(at, mean, spread, label="mean ± standard deviation", **bars)
        ax.set_xticks(range(len(inputs.words)), inputs.words)
        ax.set_xlim(-0.5, len(inputs.words) - 0.5)
    for height in (-1.0, 0.0, 1.0):
        ax.axhline(height, color=style.GREY, lw=1.0, ls=style.DASHED)
    ax.lines[-1].set_label("calibrated: 0 ± 1")
    reach = 1.08 * np.max(np.abs(residuals))
    ax.set(xlabel=inputs.name, ylabel="(y − mean) / stddev", ylim=(-reach, reach))
    return style.finish_below_legend(ax)


def _running(values: Array, residuals: Array, least: int) -> tuple[Array, Array, Array]:
    """Returns the mean and standard deviation of residuals near each value of the input.

    A window has all rows with a value. If these are fewer than `least`, it also has the rows next
    to them in the order of the input, as many below as above, as far as there are any.

    Args:
        values: Values of the input `[M]`.
        residuals: Residuals `[M]`.
        least: Number of rows in a window.

    Returns:
        Three arrays `[V]`, where V is the number of different values: the values in order, means
        and standard deviations.
    """
    order = np.argsort(values, kind="stable")
    residuals = residuals[order]
    at, first, counts = np.unique(values[order], return_index=True, return_counts=True)
    half = np.maximum(least - counts, 0)
    first, end = first - half // 2, first + counts + (half + 1) // 2
    first, end = np.maximum(first, 0), np.minimum(end, len(residuals))

    def means(powers):
        sums = np.concatenate([[0.0], np.cumsum(powers)])
        return (sums[end] - sums[first]) / (end - first)

    mean = means(residuals)
    return at, mean, np.sqrt(np.maximum(means(np.square(residuals)) - np.square(mean), 0.0))
