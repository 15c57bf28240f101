"""Training curves."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from tfp_fnspace.boundary import arrays
from tfp_fnspace.plotting import style
from tfp_fnspace.typing import ArrayLike

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_history(
    history: keras.callbacks.History | Mapping[str, ArrayLike],
    *,
    metrics: Sequence[str] | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """Draws training curves: each metric solid, its `val_` twin dashed in the same colour.

    The epoch with the smallest `val_nll` is marked if that curve is drawn.

    Args:
        history: `keras.callbacks.History`, or a dictionary from names to one value per epoch
            (NaN for an epoch without a value).
        metrics: Names without `val_`, such as `["nll", "rmse"]`; None takes all but the learning
            rate.
        ax: Axes to draw into; None makes a new figure.

    Returns:
        The `matplotlib.axes.Axes`.

    Raises:
        ValueError: If nothing was recorded, a metric was not recorded, or curves differ in length.
        ImportError: If matplotlib is not installed.
    """
    recorded: Any = getattr(history, "history", history)
    curves = {k: arrays.as_array(v, k).astype(np.float64) for k, v in recorded.items()}
    metrics = _recorded_metrics(curves, metrics)
    epochs = _epochs(history, curves)
    curves = {name: values for name, values in curves.items() if _base(name) in metrics}

    ax = style.axes(ax)
    for i, metric in enumerate(metrics):
        for name, line in ((metric, "-"), (f"val_{metric}", (0, (4, 2)))):
            if name in curves:
                color = style.CURVES[i % len(style.CURVES)]
                _plot_known(ax, epochs, curves[name], color=color, ls=line, label=name)
    if np.isfinite(curves.get("val_nll", np.nan)).any():
        _mark_best(ax, epochs, curves["val_nll"])
    ax.set(xlabel="epoch", ylabel=metrics[0] if len(metrics) == 1 else "value")
    ax.xaxis.get_major_locator().set_params(integer=True)
    return style.finish(ax)


def _base(name):
    return name.removeprefix("val_")


def _recorded_metrics(curves, metrics):
    recorded = list(dict.fromkeys(_base(name) for name in curves))
    if metrics is None:
        metrics = [name for name in recorded if name != "learning_rate"]
    metrics = list(metrics)
    if not metrics or not set(metrics) <= set(recorded):
        raise ValueError(
            f"`metrics` must name curves of the history, which has {recorded}. "
            f"Received: metrics={metrics}"
        )
    return metrics


def _epochs(history, curves):
    lengths = {name: len(values) for name, values in curves.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(
            "Every curve must have one value per epoch; with `validation_freq` above 1, fill the "
            f"others with NaN. Received: lengths={lengths}"
        )
    # A History of a continued run starts at its `initial_epoch`, counted from 0.
    count = next(iter(lengths.values()))
    epochs = getattr(history, "epoch", None) or range(count)
    return np.asarray(epochs) + 1


def _plot_known(ax, epochs, values, **options):
    known = ~np.isnan(values)
    marker = "o" if known.sum() == 1 else None
    ax.plot(epochs[known], values[known], lw=1.8, marker=marker, **options)


def _mark_best(ax, epochs, val_nll):
    best = np.nanargmin(np.where(np.isfinite(val_nll), val_nll, np.nan))
    ax.axvline(epochs[best], color=style.GREY, lw=1.0, ls=":")
    label = f"best val_nll: {val_nll[best]:.4g} at epoch {epochs[best]}"
    ax.plot(
        epochs[best], val_nll[best], "o", color=style.BLACK, ms=6, zorder=4, ls="none", label=label
    )
