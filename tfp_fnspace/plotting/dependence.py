"""How does the prediction depend on an input? Partial dependence with its epistemic band."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfp_fnspace.boundary import arguments
from tfp_fnspace.model.summary import probabilities_given
from tfp_fnspace.plotting import style
from tfp_fnspace.plotting.tables import Column, column_of, with_column
from tfp_fnspace.typing import ArrayLike, Seed

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class _Dependence(NamedTuple):
    """Averages over rows at each of G values of an input, for each of D outputs or K classes.

    Attributes:
        at: Values of the input `[G]`, in order.
        mean: Averages of the mean `[G, D]`.
        low: Lower quantiles over functions of their averages `[G, D]`.
        high: Upper quantiles `[G, D]`.
    """

    at: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


def plot_partial_dependence(
    model: Any,
    x: ArrayLike,
    column: int | str,
    *,
    num_points: int = 15,
    num_rows: int = 50,
    num_samples: int = 100,
    level: float = 0.9,
    seed: Seed = (0, 0),
    ax: "Axes | None" = None,
) -> "Axes":
    r"""Draws the average prediction when one input is moved and the others stay as they are.

        m(v) = 1/N sum_n E[y | x_n with v in the column],   g_s(v) = 1/N sum_n f_s(x_n with v)

    The curve is m. The band has quantiles at `(1 - level) / 2` and its complement of the averages
    g_s of S functions that are drawn from the posterior. Each function is averaged by itself, so
    the band says what is not known of the average. It is narrower than the band of a single row if
    the errors of rows are independent of each other, and as wide if all rows share them.

    The values of v are those of rows of x, from the smallest to the largest, at equal distances in
    rank. Combinations of inputs that occur nowhere in the data count too, so read it with care
    where inputs depend on each other. For a classifier the average is that of the probabilities of
    the classes; of two classes only that of the second.

    Args:
        model: Fitted `FunctionSpaceModel`, or an estimator of `tfp_fnspace.sklearn`.
        x: Rows, array or data frame `[M, P]`, of which N are averaged over.
        column: Number of the input, from 0, or its name in a data frame. It may hold words.
        num_points: The most values of the input.
        num_rows: The most rows, N; if x has more, they are chosen at equal distances. The time of
            models that draw functions jointly (DIWP) is cubic in the number of rows and values.
        num_samples: S, the number of functions.
        level: Probability of the band, between 0 and 1.
        seed: Integer or two integers, the seed of the functions.
        ax: Axes to draw into; None makes a new figure.

    Returns:
        The `matplotlib.axes.Axes`.

    Raises:
        TypeError: If the model is not one, or the data are not of numbers.
        ValueError: If x has not the columns of the model, there is no such column, it has no known
            value, or an option is out of range.
        ImportError: If matplotlib is not installed.

    References:
        Friedman (2001), Greedy function approximation: a gradient boosting machine, Annals of
        Statistics 29, section 8.2.
    """
    arguments.check_model(model, "predict", "predict_distribution", "sample_functions")
    inputs = column_of(x, column)
    counts = {"num_points": num_points, "num_rows": num_rows, "num_samples": num_samples}
    for name, count in counts.items():
        arguments.check_count(name, count)
    found = _dependence(model, x, inputs, seed=seed, level=arguments.checked_level(level), **counts)

    ax = style.axes(ax)
    names, shown = _output_names(model, found.mean.shape[1])
    of = "f" if likelihood_of_classes(model) is None else "the probability"
    for i, d in enumerate(shown):
        color = style.CURVES[i % len(style.CURVES)]
        band = f"{100 * level:g} % of the average of {of}" if i == 0 else None
        curve = [values[:, d] for values in (found.mean, found.low, found.high)]
        if inputs.words is None:
            style.shade(ax, found.at, curve[1], curve[2], color, alpha=0.28, label=band)
            ax.plot(found.at, curve[0], color=color, lw=2.2, label=names[d])
        else:  # side by side
            at = found.at + 0.14 * (i - (len(shown) - 1) / 2)
            ax.vlines(at, curve[1], curve[2], color=color, lw=7.0, alpha=0.28, label=band)
            ax.plot(at, curve[0], "o", color=color, ms=6.0, label=names[d])
    if inputs.words is None:
        data = inputs.values[np.isfinite(inputs.values)]
        ax.plot(
            data,
            np.full(len(data), 0.012),
            "|",
            color=style.BLACK,
            ms=5.0,
            mew=0.7,
            alpha=0.35,
            transform=ax.get_xaxis_transform(),
            label="rows",
        )
        ax.margins(x=0.02)
    else:
        ax.set_xticks(range(len(inputs.words)), inputs.words)
        ax.set_xlim(-0.5, len(inputs.words) - 0.5)
    ax.margins(y=0.08)
    ax.set(xlabel=inputs.name, ylabel="average probability" if of != "f" else "average prediction")
    return style.finish_below_legend(ax)


def _dependence(
    model: Any,
    x: ArrayLike,
    inputs: Column,
    *,
    num_points: int,
    num_rows: int,
    num_samples: int,
    level: float,
    seed: Seed,
) -> _Dependence:
    """Computes what the figure shows; see `plot_partial_dependence`."""
    sources = _places(inputs, num_points)  # [G]
    total = len(inputs.values)
    rows = np.unique(np.linspace(0, total - 1, min(total, num_rows)).round().astype(int))  # [N]
    table = with_column(
        x, np.tile(rows, len(sources)), inputs.number, np.repeat(sources, len(rows))
    )
    shape = len(sources), len(rows)
    distribution = model.predict_distribution(table)
    # All points are in one call, since some models draw their functions jointly at these.
    functions = np.asarray(model.sample_functions(table, num_samples, seed=seed))  # [S, G N, D]
    classes = likelihood_of_classes(model)
    if classes is None:
        mean = np.asarray(distribution.mean())
    else:
        mean = np.asarray(classes.probabilities(distribution))
        functions = probabilities_given(tf.constant(functions), classes).numpy()
    averages = functions.reshape(len(functions), *shape, -1).mean(axis=2)  # [S, G, D]
    tail = 0.5 * (1.0 - level)
    low, high = np.quantile(averages, [tail, 1.0 - tail], axis=0)
    return _Dependence(inputs.values[sources], mean.reshape(*shape, -1).mean(axis=1), low, high)


def _places(inputs, num_points):
    """Returns numbers of rows with different values of the input, in their order, `[G]`."""
    known = np.flatnonzero(np.isfinite(inputs.values))
    if not known.size:
        raise ValueError(
            f"The column must have a known value. Received: column {inputs.name!r} without one"
        )
    order = known[np.argsort(inputs.values[known], kind="stable")]
    _, firsts = np.unique(inputs.values[order], return_index=True)
    if len(firsts) > num_points:
        chosen = np.linspace(0, len(order) - 1, num_points).round().astype(int)
        _, firsts = np.unique(inputs.values[order[chosen]], return_index=True)
        order = order[chosen]
    return order[firsts]


def likelihood_of_classes(model: Any) -> Any:
    """Returns the likelihood of a classifier, a model or an estimator, else `None`."""
    likelihood = getattr(getattr(model, "model_", model), "likelihood", None)
    return likelihood if getattr(likelihood, "is_classifier", False) else None


def _output_names(model, num_outputs):
    """Returns labels of the curves, and the numbers of the outputs that are shown."""
    of_model = getattr(model, "model_", model)
    targets = getattr(of_model, "target_names", None) or range(num_outputs)
    if likelihood_of_classes(model) is None:
        named = [f"mean, {name}" for name in targets] if num_outputs > 1 else ["mean"]
        return named, range(num_outputs)
    if of_model.num_target_columns == num_outputs:  # each of these targets is 0 or 1
        return [f"mean, target {name} is 1" for name in targets], range(num_outputs)
    classes = getattr(model, "classes_", range(num_outputs))
    named = [f"mean, class {name}" for name in classes]
    return named, [1] if num_outputs == 2 else range(num_outputs)
